//! `Userdata`: what the scripts of one interpreter keep between requests.
//!
//! One object for each key, and what is kept under it in that object's instance variables: any
//! object can be kept, connections too, and the collector sees it. It goes when its generation's last
//! request has ended.
//!
//! Nothing is made when a script asks: `new` answers the object there is, and the first use of a name
//! defines a method for it, since `method_missing` makes an Array at each call; names beyond a number
//! go on without.

use mruby::ClassKind;

use super::chapter::{Chapter, Class, InRuby};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Userdata",
    text: "Objects of any class, kept from one request to the next. Each VM has its own, which is one \
           of a worker, or of a worker and a tenant; a reload begins with none, and so does a tenant's VM that \
           closed and opens again: `init` and `worker_init` fill it. For what all workers share \
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
    prelude: include_str!("ruby/userdata.rb"),
};
