//! `Userdata`: what the scripts of one interpreter keep between requests.
//!
//! A Hash of Hashes in a global variable of the interpreter: any object can be kept, connections
//! too, and the collector sees it. It goes when its generation's last request has ended.

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
    prelude: "
$__userdata = {}
class Userdata
  SETTERS = {}
  def initialize(key = nil)
    key = key.nil? ? '' : key.to_s
    @kept = ($__userdata[key] ||= {})
  end
  def method_missing(name, *values)
    return @kept[name] if values.empty?
    target = SETTERS[name]
    unless target
      text = name.to_s
      raise NoMethodError, \"Userdata keeps objects under names: there is no #{text} with arguments\" unless text.end_with?('=')
      target = SETTERS[name] = text[0, text.size - 1].to_sym
    end
    @kept[target] = values[0]
  end
  def respond_to_missing?(*) true end
  def inspect() \"#<Userdata #{@kept.keys.inspect}>\" end
end
",
};
