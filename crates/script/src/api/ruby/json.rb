# JSON of values with objects in them.
module JSON
  def self.generate(value, options = nil) __plain(value, nil) || __walk(value, 0) end
  def self.pretty_generate(value, options = nil)
    __plain(value, 2) || __plain(parse(__walk(value, 0)), 2)
  end
  class << self
    alias stringify generate
    alias dump generate
  end
  def self.__walk(value, depth)
    raise NestingError, "nesting of #{depth} is too deep" if depth > 60
    case value
    when Hash
      "{" + value.map { |key, item| "#{__plain(key.to_s, nil)}:#{__walk(item, depth + 1)}" }.join(",") + "}"
    when Array
      "[" + value.map { |item| __walk(item, depth + 1) }.join(",") + "]"
    when nil, true, false, Integer, Float, String, Symbol then __plain(value, nil)
    else value.to_json
    end
  end
end
class Object
  def to_json(*) JSON.__plain(to_s, nil) end
end
[Hash, Array, NilClass, TrueClass, FalseClass, Integer, Float, String, Symbol].each do |plain|
  plain.class_eval { def to_json(*) JSON.generate(self) end }
end
