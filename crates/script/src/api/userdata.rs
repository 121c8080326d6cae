//! `Userdata`: what the scripts of one interpreter keep between requests.
//!
//! A Hash of Hashes in a global variable of the interpreter: any object can be kept, connections
//! too, and the collector sees it. It goes when its generation's last request has ended.
//!
//! The first use of a name defines a method for it, since `method_missing` makes an Array at each
//! call; names beyond a number go on without.

use mruby::ClassKind;

use super::{Chapter, Class, InRuby};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Userdata",
    text: "Objects of any class, kept from one request to the next. Each worker has its own, and a \
           reload begins with none: `init` and `worker_init` fill it. For what all workers share \
           there is `Cache`.",
    classes: &[Class {
        name: "Userdata",
        superclass: "Object",
        kind: ClassKind::Class,
    }],
    constants: &[],
    methods: &[],
    in_ruby: &[
        InRuby {
            name: "Userdata.new",
            arguments: "key = nil",
            waits: "",
            doc: "What is kept under `key`, a String: the same data for every object with this key.",
        },
        InRuby {
            name: "Userdata#NAME",
            arguments: "",
            waits: "",
            doc: "What is kept under this name, or `nil`. Names of methods that every object has \
                  (`hash`, `class`, `send`) cannot be used.",
        },
        InRuby {
            name: "Userdata#NAME=",
            arguments: "object",
            waits: "",
            doc: "Keeps an object under this name.",
        },
    ],
    prelude: r##"
$__userdata = {}
class Userdata
  METHODS = {}
  METHODS_MAX = 256
  def self.__reader(name) define_method(name) { @kept[name] } end
  def self.__writer(method, name) define_method(method) { |object| @kept[name] = object } end
  def initialize(key = nil)
    @kept = ($__userdata[key.to_s] ||= {})
  end
  def method_missing(method, *values)
    text = method.to_s
    writes = text.end_with?('=')
    raise NoMethodError, "Userdata keeps objects under names: #{text} takes no arguments" unless writes || values.empty?
    name = writes ? text[0, text.size - 1].to_sym : method
    if METHODS.size < METHODS_MAX
      METHODS[method] = true
      writes ? Userdata.__writer(method, name) : Userdata.__reader(name)
    end
    writes ? @kept[name] = values[0] : @kept[name]
  end
  def respond_to_missing?(*) true end
  def inspect() "#<Userdata #{@kept.keys.inspect}>" end
end
"##,
};
