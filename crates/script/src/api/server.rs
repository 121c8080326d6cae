//! The modules `Nginx` and `Apache`: output, status, log.

use mruby::{Answer, ClassKind, MethodOf};

use super::{Chapter, Class, Constant, Method, Value, answered, scope, takes, takes_texts};
use crate::state::NativeCall;

const BOTH: &[&str] = &["Nginx", "Apache"];
const NGINX: &[&str] = &["Nginx"];
const APACHE: &[&str] = &["Apache"];

const fn int(classes: &'static [&'static str], name: &'static str, value: i64) -> Constant {
    Constant {
        classes,
        name,
        value: Value::Int(value),
    }
}

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Nginx and Apache",
    text: "Both are there, whatever `scripts.server` says; the constants differ as they always did.",
    classes: &[
        Class {
            name: "Nginx",
            superclass: "Object",
            kind: ClassKind::Class,
        },
        Class {
            name: "Apache",
            superclass: "Object",
            kind: ClassKind::Class,
        },
    ],
    constants: &[
        int(NGINX, "DECLINED", -5),
        int(NGINX, "OK", 0),
        int(NGINX, "LOG_INFO", 7),
        int(NGINX, "LOG_NOTICE", 6),
        int(APACHE, "DECLINED", -1),
        int(APACHE, "OK", 0),
        int(APACHE, "LOG_INFO", 6),
        int(APACHE, "LOG_NOTICE", 5),
        int(BOTH, "HTTP_SERVICE_UNAVAILABLE", 503),
    ],
    methods: &[
        Method {
            classes: BOTH,
            names: &["return"],
            of: MethodOf::Class,
            takes: takes(1, 1),
            arguments: "status",
            waits: "",
            doc: "Sets the status the request is answered with when the script has ended. It does not \
                  end the script. `OK` and `DECLINED` let the request go on.",
            native: give_status,
        },
        Method {
            classes: BOTH,
            names: &["rputs", "echo"],
            of: MethodOf::Class,
            takes: takes_texts(1, 1),
            arguments: "object",
            waits: "",
            doc: "Writes to the reply's body.",
            native: rputs,
        },
    ],
    in_ruby: &[],
    prelude: "",
};

fn give_status(call: &mut NativeCall<'_>) -> Answer {
    let Some(status) = call.int(0) else {
        return Answer::type_error("return takes a status: an Integer");
    };
    answered(scope(call).map(|scope| {
        scope.returned = Some(status);
        Answer::Int(status)
    }))
}

fn rputs(call: &mut NativeCall<'_>) -> Answer {
    let bytes_max = call.host.settings.budgets.output_bytes;
    let text = call.bytes(0).unwrap_or_default().to_vec();
    answered(scope(call).map(|scope| {
        if scope.output.len() + text.len() > bytes_max {
            return Answer::runtime_error(format!(
                "the reply would be longer than {bytes_max} bytes: see scripts.output"
            ));
        }
        scope.output.extend_from_slice(&text);
        Answer::Nil
    }))
}
