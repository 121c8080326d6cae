# How mruby is built for Nagaya; read by mruby's own build through MRUBY_CONFIG.
#
# No gem that opens files or sockets, sleeps, ends the process or writes to its output: what a script
# may do to the outside is ours, in Rust. No bigint either: a product of two long numbers is one C
# call without end, so an Integer that leaves 64 bits raises RangeError.
MRuby::Build.new("host") do |conf|
  conf.toolchain :gcc

  %w[
    sprintf time struct compar-ext enum-ext string-ext numeric-ext array-ext hash-ext range-ext
    proc-ext symbol-ext object-ext objectspace fiber enumerator enum-lazy enum-chain toplevel-ext
    kernel-ext class-ext random set pack data math rational complex metaprog method proc-binding
    binding eval error catch errno compiler
  ].each { |gem| conf.gem core: "mruby-#{gem}" }

  defines = ENV.fetch("BINDGEN_EXTRA_CLANG_ARGS").split
  conf.cc.flags << defines << %w[-O3 -fPIE -g]
  more = ENV.fetch("NAGAYA_MRUBY_FLAGS", "").split
  conf.cc.flags << more
  conf.linker.flags << more.grep(/sanitize/)

  # What of mruby itself is mended: a file of its source each, patched in a copy and compiled instead.
  Dir["#{__dir__}/patches/*.patch"].sort.each do |patch|
    source = File.read(patch)[%r{^\+\+\+ b/(\S+)}, 1]
    original, copy = "#{MRUBY_ROOT}/#{source}", "#{conf.build_dir}/patched/#{source}"
    file copy => [patch, original] do
      mkdir_p File.dirname(copy)
      sh "patch", "-s", "-o", copy, original, patch
    end
    object = conf.objfile("#{conf.build_dir}/#{source.ext}")
    file object => copy do
      conf.cc.run object, copy, [], [File.dirname(original)]
    end
  end
end
