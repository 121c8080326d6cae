//! `Nginx::Request` and `Apache::Request`.
//!
//! An object knows the number of the request it was made for: kept beyond its end, or used in
//! another's script, it raises.

use std::any::Any;
use std::rc::Rc;

use mruby::{Answer, ClassKind, MethodOf};

use super::{Chapter, Class, Method, answered, request, takes};
use crate::request::{Property, Request};
use crate::state::NativeCall;

/// The request an object was made for.
pub(super) struct Made {
    serial: u64,
}

const REQUESTS: &[&str] = &["Nginx::Request", "Apache::Request"];

const fn reader(name: &'static [&'static str], doc: &'static str, native: Native) -> Method {
    Method {
        classes: REQUESTS,
        names: name,
        of: MethodOf::Object,
        takes: takes(0, 0),
        arguments: "",
        waits: "",
        doc,
        native,
    }
}

type Native = fn(&mut NativeCall<'_>) -> Answer;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Request",
    text: "",
    classes: &[
        Class {
            name: "Nginx::Request",
            superclass: "Object",
            kind: ClassKind::Holding,
        },
        Class {
            name: "Apache::Request",
            superclass: "Object",
            kind: ClassKind::Holding,
        },
    ],
    constants: &[],
    methods: &[
        Method {
            classes: REQUESTS,
            names: &["initialize"],
            of: MethodOf::Object,
            takes: takes(0, 0),
            arguments: "",
            waits: "",
            doc: "",
            native: initialize,
        },
        reader(&["filename"], "The resolved file.", |call| {
            property(call, Property::Filename)
        }),
        reader(&["hostname"], "The host it is for.", |call| {
            property(call, Property::Host)
        }),
        reader(&["uri"], "Its path.", |call| property(call, Property::Uri)),
        reader(&["sub_request?"], "Always `false`.", |_| {
            Answer::Bool(false)
        }),
    ],
    in_ruby: &[],
    prelude: "",
};

/// Any object that belongs to the request it is made for.
pub(super) fn initialize(call: &mut NativeCall<'_>) -> Answer {
    answered(request(call).map(|request| {
        let serial = request.scope().serial();
        Answer::Attach(Rc::new(Made { serial }) as Rc<dyn Any>)
    }))
}

/// The request the receiver was made for, if it is the one the script runs for.
pub(super) fn own<'a>(
    call: &'a mut NativeCall<'_>,
) -> Result<&'a mut (dyn Request + 'static), Answer> {
    let made = call.attached::<Made>();
    let request = request(call)?;
    match made {
        Some(made) if made.serial == request.scope().serial() => Ok(request),
        _ => Err(Answer::runtime_error(
            "this object belongs to a request that has ended: make a new one",
        )),
    }
}

/// A property's value, or `nil`.
pub(super) fn property(call: &mut NativeCall<'_>, property: Property) -> Answer {
    if let Err(raise) = own(call) {
        return raise;
    }
    let (_, out, request) = call.parts();
    match request.is_some_and(|request| request.read(property, out)) {
        true => Answer::Scratch,
        false => Answer::Nil,
    }
}
