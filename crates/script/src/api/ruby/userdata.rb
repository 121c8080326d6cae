class Userdata
  METHODS = {}
  METHODS_MAX = 256

  def self.new(key = nil) key ? __kept(key.to_s) : @nameless || __kept('') end

  def self.__kept(key)
    @nameless ||= allocate
    key.empty? ? @nameless : (@named ||= {})[key] ||= allocate
  end

  def self.__define(method, name, writes)
    return false if METHODS.size >= METHODS_MAX
    writes ? attr_writer(name) : attr_reader(name)
    METHODS[method] = true
  rescue NameError
    false
  end

  def method_missing(method, *values)
    text = method.to_s
    writes = text.end_with?('=')
    raise NoMethodError, "Userdata keeps objects under names: #{text} takes no arguments" unless writes || values.empty?
    name = writes ? text[0, text.size - 1] : text
    return __send__(method, *values) if Userdata.__define(method, name, writes)
    begin
      writes ? instance_variable_set("@#{name}", values[0]) : instance_variable_get("@#{name}")
    rescue NameError
      @__others ||= {}
      writes ? @__others[name] = values[0] : @__others[name]
    end
  end

  def respond_to_missing?(*) true end
  def inspect
    names = instance_variables.map { |name| name.to_s[1..-1].to_sym } - [:__others]
    "#<Userdata #{(names + (@__others || {}).keys.map(&:to_sym)).sort.inspect}>"
  end
end
