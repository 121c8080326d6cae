//! What scripts call without a receiver.

use std::time::Duration;

use mruby::{Answer, ClassKind, Datum, Error, MethodOf, Vm};
use tracing::Level;

use super::chapter::{Chapter, Class, InRuby, Method, takes, takes_texts};
use super::log::say;
use super::native::wait;
use crate::state::{NativeCall, State};
use crate::wait::Woken;

/// Raised by `exit`: the script ends, as if it had come to its last line.
pub(crate) const EXIT: &str = "ScriptExit";

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Kernel",
    text: "Called without a receiver, in any script.",
    classes: &[Class {
        name: EXIT,
        superclass: "Exception",
        kind: ClassKind::Class,
    }],
    constants: &[],
    methods: &[
        Method {
            classes: &["Kernel"],
            names: &["puts", "print"],
            of: MethodOf::Object,
            takes: takes_texts(0, 64),
            arguments: "*objects",
            waits: "",
            doc: "Writes a line to the error log, at level info.",
            native: puts,
        },
        Method {
            classes: &["Kernel"],
            names: &["server_name"],
            of: MethodOf::Object,
            takes: takes(0, 0),
            arguments: "",
            waits: "",
            doc: "`\"NGINX\"` or `\"Apache\"`, as `scripts.server` says.",
            native: server_name,
        },
        Method {
            classes: &["Kernel"],
            names: &["sleep"],
            of: MethodOf::Object,
            takes: takes(1, 1),
            arguments: "seconds",
            waits: "the time given",
            doc: "Suspends this request's script, and nothing else. Answers the whole seconds.",
            native: sleep,
        },
    ],
    in_ruby: &[
        InRuby {
            name: "get_server_class",
            arguments: "",
            waits: "",
            doc: "`Nginx` or `Apache`, as `scripts.server` says.",
        },
        InRuby {
            name: "p",
            arguments: "*objects",
            waits: "",
            doc: "Writes what `inspect` says of each object to the error log; answers as in Ruby.",
        },
        InRuby {
            name: "exit",
            arguments: "",
            waits: "",
            doc: "Ends the hook, as if it had come to its last line. The request goes on.",
        },
    ],
    prelude: "
module Kernel
  def p(*objects)
    objects.each { |object| puts(object.inspect) }
    objects.size > 1 ? objects : objects.first
  end
  def exit(*) raise ScriptExit end
  alias exit! exit
end
",
};

fn puts(call: &mut NativeCall<'_>) -> Answer {
    for index in 0..call.count() {
        say(call, Level::INFO, index);
    }
    Answer::Nil
}

/// Settles what nearly every script asks and always gets the same answer to.
pub(super) fn fix(vm: &mut Vm<State>) -> Result<(), Error> {
    let server = Datum::Class(vm.host().settings.server.name());
    vm.always("Kernel", "get_server_class", &server)
}

fn server_name(call: &mut NativeCall<'_>) -> Answer {
    let name = match call.host.settings.server {
        crate::settings::ServerClass::Nginx => "NGINX",
        crate::settings::ServerClass::Apache => "Apache",
    };
    Answer::Bytes(name.as_bytes().to_vec())
}

pub(super) fn sleep(call: &mut NativeCall<'_>) -> Answer {
    let Some(seconds) = call.float(0) else {
        return Answer::type_error("sleep takes a number of seconds");
    };
    let Ok(time) = Duration::try_from_secs_f64(seconds) else {
        return Answer::argument_error("sleep takes a number of seconds that is not negative");
    };
    wait(call, async move {
        tokio::time::sleep(time).await;
        Woken::Value(Datum::Int(
            i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        ))
    })
}
