# Regexp, MatchData, and the methods of String that take a pattern.
class Regexp
  def self.union(*patterns)
    patterns = patterns[0] if patterns.size == 1 && patterns[0].is_a?(Array)
    return new("(?!)") if patterns.empty?
    new(patterns.map { |one| one.is_a?(Regexp) ? one.to_s : escape(one) }.join("|"))
  end
  def self.last_match(group = nil)
    match = $~
    group && match ? match[group] : match
  end
  def __matched(string, at)
    spans = __match(string, at)
    Nagaya.__last(spans && MatchData.new(self, string, spans))
  end
  def match(string, pos = 0)
    return Nagaya.__last(nil) if string.nil?
    string = string.to_s if string.is_a?(Symbol)
    match = __matched(string, pos == 0 ? 0 : string.__byte_of(pos))
    match && block_given? ? yield(match) : match
  end
  def =~(string)
    match = match(string)
    match && match.begin(0)
  end
  def ===(string)
    return false unless string.is_a?(String) || string.is_a?(Symbol)
    !match(string).nil?
  end
  def casefold?; options & IGNORECASE != 0 end
  def names; __names.map { |name, _| name } end
  def named_captures; __names.to_h end
  def ==(other) other.is_a?(Regexp) && source == other.source && options == other.options end
  alias eql? ==
  def dup; self end
  def clone(*) self end
  def hash; [source, options].hash end
  def to_s
    on = ""
    off = ""
    [[MULTILINE, "m"], [IGNORECASE, "i"], [EXTENDED, "x"]].each { |bit, letter| (options & bit != 0 ? on : off) << letter }
    "(?#{on}#{off.empty? ? "" : "-" + off}:#{source})"
  end
  def inspect
    letters = ""
    [[MULTILINE, "m"], [IGNORECASE, "i"], [EXTENDED, "x"]].each { |bit, letter| letters << letter if options & bit != 0 }
    "/#{source.split("/", -1).join("\\/")}/#{letters}"
  end
end
class MatchData
  attr_reader :regexp, :string
  def initialize(regexp, string, spans)
    @regexp = regexp
    @string = string.dup
    @spans = spans
  end
  def size; @spans.size / 2 end
  alias length size
  def __number(group)
    case group
    when Integer then group < 0 ? group + size : group
    else
      name = group.to_s
      found = @regexp.__names.find { |known, _| known == name }
      raise IndexError, "undefined group name reference: #{name}" unless found
      found[1].reverse.find { |number| @spans[2 * number] } || found[1][-1]
    end
  end
  def __text(number)
    from = number >= 0 && @spans[2 * number]
    from ? @string.byteslice(from, @spans[2 * number + 1] - from) : nil
  end
  def [](group, length = nil)
    return to_a[group, length] if length
    return to_a[group] if group.is_a?(Range)
    __text(__number(group))
  end
  def begin(group)
    from = @spans[2 * __number(group)]
    from && (from == 0 ? 0 : @string.byteslice(0, from).size)
  end
  def end(group)
    to = @spans[2 * __number(group) + 1]
    to && @string.byteslice(0, to).size
  end
  def offset(group) [self.begin(group), self.end(group)] end
  def byteoffset(group)
    number = __number(group)
    [@spans[2 * number], @spans[2 * number + 1]]
  end
  def pre_match; @string.byteslice(0, @spans[0]) end
  def post_match; @string.byteslice(@spans[1], @string.bytesize) end
  def to_a; (0...size).map { |number| __text(number) } end
  def captures; (1...size).map { |number| __text(number) } end
  alias deconstruct captures
  def names; @regexp.names end
  def named_captures; names.map { |name| [name, self[name]] }.to_h end
  def values_at(*groups) groups.map { |group| self[group] } end
  def to_s; __text(0) end
  def ==(other)
    other.is_a?(MatchData) && @string == other.string && @regexp == other.regexp && byteoffset(0) == other.byteoffset(0)
  end
  def inspect
    names = @regexp.__names
    told = (1...size).map do |number|
      name, = names.find { |_, numbers| numbers.include?(number) }
      " #{name || number}:#{__text(number).inspect}"
    end
    "#<MatchData #{to_s.inspect}#{told.join}>"
  end
end
class String
  def __byte_of(pos)
    pos += size if pos < 0
    return -1 if pos < 0 || pos > size
    byteslice(0, bytesize)[0, pos].bytesize
  end
  def __pattern(pattern)
    case pattern
    when Regexp then pattern
    when String then Regexp.new(pattern)
    else raise TypeError, "wrong argument type #{pattern.class} (expected Regexp)"
    end
  end
  def =~(pattern)
    raise TypeError, "type mismatch: String given" if pattern.is_a?(String)
    pattern =~ self
  end
  def match(pattern, pos = 0, &block) __pattern(pattern).match(self, pos, &block) end
  def match?(pattern, pos = 0) __pattern(pattern).match?(self, pos) end
  def __pattern_at(pattern, group = 0)
    match = pattern.match(self)
    match && match[group]
  end
  def __pattern_index(pattern, pos = 0)
    match = pattern.match(self, pos)
    match && match.begin(0)
  end
  def __pattern_rindex(pattern, pos = nil)
    at = pos ? __byte_of(pos > size ? size : pos) : bytesize
    spans = at < 0 ? nil : pattern.__last_match(self, at)
    match = Nagaya.__last(spans && MatchData.new(pattern, self, spans))
    match && match.begin(0)
  end
  def __pattern_split(pattern, limit = 0) Nagaya.__split(self, pattern, limit) end
  def __pattern_set(pattern, *given)
    raise ArgumentError, "wrong number of arguments (given #{given.size + 1}, expected 2..3)" unless given.size == 1 || given.size == 2
    group = given.size == 2 ? given[0] : 0
    raise TypeError, "no implicit conversion into String" unless given[-1].is_a?(String)
    match = pattern.match(self)
    raise IndexError, "regexp not matched" unless match
    from, to = match.byteoffset(group)
    raise IndexError, "regexp group #{group} not matched" unless from
    replace(byteslice(0, from) + given[-1] + byteslice(to, bytesize))
    given[-1]
  end
  def __pattern_starts(*patterns)
    patterns.any? do |pattern|
      next start_with?(pattern) unless pattern.is_a?(Regexp)
      !Regexp.new("\\A(?:#{pattern.source})", pattern.options).match(self).nil?
    end
  end
  def scan(pattern)
    return Nagaya.__scan(self, pattern) unless block_given?
    pattern = Regexp.new(Regexp.escape(pattern)) if pattern.is_a?(String)
    string = dup
    last = nil
    at = 0
    while at && (match = pattern.__matched(string, at))
      from, to = match.byteoffset(0)
      at = from == to ? Nagaya.__after(string, to) : to
      last = match
      yield match.size > 1 ? match.captures : match.to_s
    end
    Nagaya.__last(last)
    self
  end
  def __substituted(pattern, hash, all)
    pattern = Regexp.new(Regexp.escape(pattern)) if pattern.is_a?(String)
    raise TypeError, "wrong argument type #{pattern.class} (expected Regexp)" unless pattern.is_a?(Regexp)
    string = dup
    out = nil
    last = nil
    done = 0
    at = 0
    while at && (match = pattern.__matched(string, at))
      from, to = match.byteoffset(0)
      out ||= ""
      out << string.byteslice(done, from - done)
      out << (hash ? hash[match.to_s] : yield(match.to_s)).to_s
      done = to
      last = match
      break unless all
      at = from == to ? Nagaya.__after(string, to) : to
    end
    Nagaya.__last(last)
    out && out << string.byteslice(done, string.bytesize - done)
  end
  def __substitute(given, all, block)
    pattern, by = given
    case given.size
    when 2
      return __substituted(pattern, by, all) if by.is_a?(Hash)
      Nagaya.__substitute(self, pattern, by, all)
    when 1
      raise ArgumentError, "wrong number of arguments (given 1, expected 2)" unless block
      __substituted(pattern, nil, all, &block)
    else raise ArgumentError, "wrong number of arguments (given #{given.size}, expected 1..2)"
    end
  end
  def sub(*given, &block) __substitute(given, false, block) || dup end
  def gsub(*given, &block)
    return to_enum(:gsub, *given) if given.size == 1 && !block
    __substitute(given, true, block) || dup
  end
  def sub!(*given, &block)
    raise FrozenError, "can't modify frozen String" if frozen?
    out = __substitute(given, false, block)
    out && replace(out)
  end
  def gsub!(*given, &block)
    return to_enum(:gsub!, *given) if given.size == 1 && !block
    raise FrozenError, "can't modify frozen String" if frozen?
    out = __substitute(given, true, block)
    out && replace(out)
  end
  alias __partition partition
  def partition(pattern)
    return __partition(pattern) unless pattern.is_a?(Regexp)
    match = pattern.match(self)
    match ? [match.pre_match, match.to_s, match.post_match] : [dup, "", ""]
  end
end
class Symbol
  def =~(pattern) to_s =~ pattern end
  def match(pattern, pos = 0) to_s.match(pattern, pos) end
  def match?(pattern, pos = 0) to_s.match?(pattern, pos) end
end
class NilClass
  def =~(pattern) nil end
end
