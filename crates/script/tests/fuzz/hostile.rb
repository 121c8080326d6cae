# What scripts of the fuzzing are given: objects that lie, and change `$r`, the receiver of the call
# under way, while C code looks at it. What they do next is counted, so that it is the same again.
$count = 0
$r = $x = nil
$a = []
$n = :to_s
$fibers = []

def evil(*)
  $count += 1
  case $count % 41
  when 0 then $r.clear
  when 1 then $r.replace([])
  when 2 then $r.replace("")
  when 3 then $r << 1
  when 4 then $r.concat($r)
  when 5 then $r.shift; GC.start
  when 6 then $r.pop
  when 7 then GC.start
  when 8 then nil
  when 9 then -1
  when 10 then 1 << 40
  when 11 then "text"
  when 12 then [1, 2]
  when 13 then $x
  when 14 then $r
  when 15 then raise "evil"
  when 16 then $r = nil; GC.start; "x" * 300
  when 17 then 1.5
  when 18 then :sym
  when 19 then {1 => 2}
  when 20 then $r.freeze
  when 21 then $r.__send__(:initialize, $x)
  when 22 then $r.__send__(:initialize_copy, $x)
  when 23 then 100.times { |i| $r[i] = i }
  when 24 then 100.times { |i| $r.delete(i) }
  when 25 then $r.push(*(0..100).to_a)
  when 26 then $r << "grows" * 100
  when 27 then true
  when 28 then false
  when 29 then $r.slice!(0, 2); GC.start; [0] * 50
  when 30 then $r.rehash
  when 31 then $r.each { |*| $r.clear }
  when 32 then $r.__send__($n, *$a)
  when 33 then Liar.new
  when 34 then $r.map! { |v| v.to_s * 10 }; GC.start
  when 35 then $r.resume
  when 36 then Float::NAN
  when 37 then $r.unshift(1, 2, 3)
  when 38 then $r.sort! { |a, b| $r.clear; 1 }
  when 39 then $r.instance_variable_set(:@a, $x)
  when 40 then Fiber.new { $r.clear; GC.start }.resume
  end
end

def evil_raise; raise "evil"; end

# Answers whatever it is asked for with something else.
class Liar
  include Enumerable
  include Comparable
  %i[to_s inspect to_str to_i to_int to_f to_a to_ary to_h to_hash to_sym to_proc call <=> == === eql?
     hash coerce size length exclude_end? message + - * / % & | << succ =~ first last keys begin end].each do |name|
    define_method(name) { |*| evil }
  end
  def each; yield 1; evil; yield [2, 3]; evil; yield self; end
  def method_missing(*) evil; end
  def respond_to?(*) true; end
end

# Is what C code wants by its class, and does something else first.
class Evil
  def to_s; evil rescue 0; "evil" * 20; end
  def inspect; evil rescue 0; "evil"; end
  def to_str; evil rescue 0; "evil"; end
  def to_i; evil rescue 0; 2; end
  def to_int; evil rescue 0; 3; end
  def to_a; evil rescue 0; [1, 2, 3]; end
  def to_ary; evil rescue 0; [1, 2, 3]; end
  def to_h; evil rescue 0; {a: 1}; end
  def to_hash; evil rescue 0; {a: 1}; end
  def to_proc; proc { |*| evil rescue 0 }; end
  def <=>(other) evil rescue 0; ($count % 3) - 1; end
  def ==(other) evil rescue 0; $count.even?; end
  def eql?(other) evil rescue 0; $count.even?; end
  def ===(other) evil rescue 0; $count.even?; end
  def hash; evil rescue 0; $count % 5; end
  def call(*) evil rescue 0; 1; end
  def coerce(other) evil rescue 0; [1, 2]; end
  def each; 5.times { |i| yield i; evil rescue 0 }; end
  def succ; evil rescue 0; self; end
end

class Mute < BasicObject
  def method_missing(*) ::Kernel.raise "mute"; end
end

class LyingString < String
  def to_s; evil; end
  def to_str; evil; end
  def ==(*) evil; end
  def hash; $count += 1; end
  def size; 1 << 40; end
  def length; -1; end
end

class LyingArray < Array
  def each; 3.times { |i| yield i; evil rescue 0 }; end
  def size; 1 << 40; end
  def length; -5; end
  def [](*) evil; end
  def to_a; evil; end
  def to_ary; evil; end
  def ==(*) evil; end
end

class LyingHash < Hash
  def each; yield [1, 2]; evil; end
  def keys; evil; end
  def default(*) evil; end
  def [](*) evil; end
  def to_h; evil; end
  def to_hash; evil; end
end

module Cyclic
  def self.make; a = [1]; a << a << {a => a}; a; end
  def self.hash; h = {}; h[:h] = h; h[h] = [h]; h; end
end

module Deep
  def self.array(n = 3000) a = []; n.times { a = [a] }; a; end
  def self.hash; h = {}; 1000.times { h = {h: h} }; h; end
  def self.text; "(" * 2000; end
  def self.recurse(*) [1].each { |x| Deep.recurse(x) }; end
end

module Odd
  def self.any; [1, "a", nil, [], {}, :s, 1.5, Liar.new][($count += 1) % 8]; end
  def self.each; o = Object.new; o.extend(Enumerable); def o.each(*a) yield 1; evil; yield 3, 4; yield nil; end; o; end
  def self.compares; o = Object.new; o.extend(Comparable); def o.<=>(*) evil; end; o; end
end
