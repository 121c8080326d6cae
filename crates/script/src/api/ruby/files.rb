# Names of paths, and what cannot be done with files.
class File
  SEPARATOR = Separator = "/"
  def self.basename(path, suffix = nil)
    raise TypeError, "File.basename takes a String" unless path.is_a?(String)
    return path if path.empty?
    path = path.byteslice(0, path.bytesize - 1) while path.bytesize > 1 && path.getbyte(-1) == 47
    return path if path == "/"
    at = path.byterindex("/")
    name = at ? path.byteslice(at + 1, path.bytesize) : path
    suffix = extname(name) if suffix == ".*"
    if suffix && !suffix.empty? && suffix != name && name.end_with?(suffix)
      name = name.byteslice(0, name.bytesize - suffix.bytesize)
    end
    name
  end
  def self.dirname(path)
    raise TypeError, "File.dirname takes a String" unless path.is_a?(String)
    path = path.byteslice(0, path.bytesize - 1) while path.bytesize > 1 && path.getbyte(-1) == 47
    at = path.byterindex("/")
    return "." unless at
    at -= 1 while at > 0 && path.getbyte(at - 1) == 47
    at == 0 ? "/" : path.byteslice(0, at)
  end
  def self.extname(path)
    name = basename(path)
    at = name.byterindex(".")
    return "" if !at || at == 0 || at == name.bytesize - 1
    return "" if name.byteslice(0, at).delete(".").empty?
    name.byteslice(at, name.bytesize)
  end
  def self.join(*names)
    names.flatten.map(&:to_s).each_with_index.inject("") do |path, (name, index)|
      next name if index == 0
      path = path.byteslice(0, path.bytesize - 1) while path.getbyte(-1) == 47
      name = name.byteslice(1, name.bytesize) while name.getbyte(0) == 47
      "#{path}/#{name}"
    end
  end
  def self.new(*) Nagaya.__refuse("File.new", "use File.read; what is to be kept goes to Cache, Redis or MySQL") end
  def self.method_missing(name, *)
    Nagaya.__refuse("File.#{name}", "use File.read, exist?, mtime, basename, dirname, extname and join; what is to be kept goes to Cache, Redis or MySQL")
  end
end
