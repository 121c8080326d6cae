# ENV, and what a script cannot have.
$$ = Process.pid
ENV = Object.new
ENV.instance_variable_set(:@values, Nagaya.__environment)
class << ENV
  include Enumerable
  def [](name) @values[name.to_s] end
  def fetch(*given, &block) @values.fetch(*given, &block) end
  def key?(name) @values.key?(name) end
  alias has_key? key?
  alias include? key?
  alias member? key?
  def keys; @values.keys end
  def values; @values.values end
  def size; @values.size end
  alias length size
  def empty?; @values.empty? end
  def each(&block) @values.each(&block); self end
  alias each_pair each
  def to_h; @values.dup end
  alias to_hash to_h
  def inspect; @values.inspect end
  def to_s; "ENV" end
  %i[[]= store delete clear replace update merge! reject! select! keep_if delete_if].each do |name|
    define_method(name) { |*| raise NotImplementedError, "ENV cannot be changed by scripts: set variables where nagaya is started, and name them in scripts.env" }
  end
end
module Nagaya
  LogOutput = Object.new
  class << LogOutput
    def puts(*objects) Kernel.instance_method(:puts).bind(self).call(*objects); nil end
    def print(*objects) puts(objects.join); nil end
    def write(*objects)
      text = objects.join
      puts(text.chomp)
      text.bytesize
    end
    def <<(object) puts(object.to_s.chomp); self end
    def printf(*given) puts(sprintf(*given).chomp); nil end
    def flush; self end
    def sync; true end
    def sync=(value) value end
    def tty?; false end
    alias isatty tty?
  end
  def self.__refuse(name, instead) raise NotImplementedError, "#{name} is not there for scripts: #{instead}" end
  def self.__absent(names, instead)
    names.each do |name|
      absent = Class.new
      Object.const_set(name, absent)
      absent.define_singleton_method(:new) { |*| Nagaya.__refuse("#{name}.new", instead) }
      absent.define_singleton_method(:method_missing) { |called, *| Nagaya.__refuse("#{name}.#{called}", instead) }
    end
  end
  __absent(%i[IO Dir FileTest], "files are read by File.read, and looked for by File.exist?")
  __absent(%i[Socket BasicSocket TCPSocket TCPServer UDPSocket UNIXSocket UNIXServer IPSocket],
           "it would block the worker; use HttpRequest, Redis, Memcached or MySQL, which do not")
  __absent(%i[Thread Queue], "a worker runs one script at a time; waits let others run, and Async.sleep or sleep waits")
end
STDOUT = STDERR = $stdout = $stderr = Nagaya::LogOutput
module Kernel
  {
    system: "a program would block the worker; serve programs by handler = { cgi = true }, or ask a service by HttpRequest",
    "`": "a program would block the worker; serve programs by handler = { cgi = true }, or ask a service by HttpRequest",
    spawn: "a program would block the worker; serve programs by handler = { cgi = true }",
    popen: "a program would block the worker; serve programs by handler = { cgi = true }",
    exec: "it would replace the server; serve programs by handler = { cgi = true }",
    fork: "workers are threads of one process; each request's script waits without blocking others as it is",
    trap: "signals belong to the server; see `nagaya serve --help` for what they do",
    open: "use File.read for files, and HttpRequest for URLs",
    gets: "a server has no input; see Request#body",
    load: "use require: a file below scripts.lib is run once for each VM",
    autoload: "use require in scripts.init",
    at_exit: "use scripts.worker_exit",
  }.each { |name, instead| define_method(name) { |*| Nagaya.__refuse(name, instead) } }
end
module Process
  {
    fork: "workers are threads of one process",
    kill: "a script ends its own hook by exit, and nothing else",
    wait: "scripts have no children", waitpid: "scripts have no children",
    waitpid2: "scripts have no children", daemon: "nagaya serve runs in the foreground; see the guide on systemd",
    exit: "use exit, which ends the hook", abort: "use exit, which ends the hook",
    setuid: "the server's user is `user` in the configuration", setgid: "the server's user is `user` in the configuration",
  }.each { |name, instead| define_singleton_method(name) { |*| Nagaya.__refuse("Process.#{name}", instead) } }
end
module Uname
  def self.uname
    { sysname: sysname, nodename: nodename, release: release, version: version, machine: machine }
  end
end
