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
  conf.cc.flags << defines << %w[-O3 -fPIC -g]
  more = ENV.fetch("NAGAYA_MRUBY_FLAGS", "").split
  conf.cc.flags << more
  conf.linker.flags << more.grep(/sanitize/)
end
