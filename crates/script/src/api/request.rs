//! `Nginx::Request` and `Apache::Request`: what both have, and how their objects find the request.
//!
//! An object knows the number of the request it was made for: kept beyond its end, or used in
//! another's script, it raises.

use mruby::Answer;

use super::chapter::{Chapter, InRuby, Method, takes, takes_texts};
use super::entries::{Classes, Native, holder, method, reader};
use super::native::{answered, ask, no_request, request};
use crate::request::{Property, Refused, Request};
use crate::state::NativeCall;
use crate::wait::Ask;

/// Longest body a script gets: the longest String there is.
const BODY_BYTES_MAX: usize = 10 << 20;

const BOTH: Classes = &["Nginx::Request", "Apache::Request"];
const NGINX: Classes = &["Nginx::Request"];

/// A writer: `name=`.
pub(super) const fn writer(
    classes: Classes,
    names: &'static [&'static str],
    doc: &'static str,
    native: Native,
) -> Method {
    method(classes, names, (takes_texts(1, 1), "value"), doc, native)
}

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Request",
    text: "An object belongs to the request it was made for, and raises when it is used for another; \
           so do those of the classes below that tell of a request. What can be changed, and in which phases, is up to the request: changing what is not to be \
           changed raises `RuntimeError`, and no value may have a line break in it.",
    classes: &[holder("Nginx::Request"), holder("Apache::Request")],
    constants: &[],
    methods: &[
        method(BOTH, &["initialize"], (takes(0, 0), ""), "", initialize),
        reader(BOTH, &["filename"], "The resolved file.", |call| {
            property(call, Property::Filename)
        }),
        writer(
            BOTH,
            &["filename="],
            "Changes the file: in `rewrite`, within the site's root.",
            |call| change(call, Property::Filename),
        ),
        reader(
            BOTH,
            &["hostname"],
            "The host it is for: lower case, without port.",
            |call| property(call, Property::Host),
        ),
        reader(
            NGINX,
            &["authority"],
            "The `Host` field as it was sent.",
            |call| property(call, Property::HttpHost),
        ),
        reader(
            BOTH,
            &["uri"],
            "Its path, decoded, without the query.",
            |call| property(call, Property::Uri),
        ),
        writer(BOTH, &["uri="], "Changes the path: in `rewrite`.", |call| {
            change(call, Property::Uri)
        }),
        reader(
            BOTH,
            &["unparsed_uri"],
            "Path and query as they were sent.",
            |call| property(call, Property::UnparsedUri),
        ),
        writer(
            BOTH,
            &["unparsed_uri="],
            "Raises unless the request lets it be changed.",
            |call| change(call, Property::UnparsedUri),
        ),
        reader(
            BOTH,
            &["request_line", "the_request"],
            "The request line as it was sent.",
            |call| property(call, Property::RequestLine),
        ),
        writer(
            BOTH,
            &["request_line=", "the_request="],
            "Raises unless the request lets it be changed.",
            |call| change(call, Property::RequestLine),
        ),
        reader(
            BOTH,
            &["args"],
            "The query, without `?`; `\"\"` where there is none (`Nginx::Var#args` is `nil` then).",
            |call| {
                text(call, |request, out| {
                    request.read(Property::Args, out);
                    true
                })
            },
        ),
        writer(
            BOTH,
            &["args="],
            "Changes the query, before the handler. What is put into it has to be encoded: \
             `Nginx::Utils.escape` and `Apache.escape` encode a name or a value.",
            |call| change(call, Property::Args),
        ),
        reader(BOTH, &["method"], "`\"GET\"` and the like.", |call| {
            property(call, Property::Method)
        }),
        writer(
            BOTH,
            &["method="],
            "Changes the method, before the handler.",
            |call| change(call, Property::Method),
        ),
        reader(BOTH, &["protocol"], "`\"HTTP/1.1\"`.", |call| {
            property(call, Property::Protocol)
        }),
        writer(
            BOTH,
            &["protocol="],
            "Raises unless the request lets it be changed.",
            |call| change(call, Property::Protocol),
        ),
        reader(BOTH, &["scheme"], "`\"http\"` or `\"https\"`.", |call| {
            property(call, Property::Scheme)
        }),
        reader(
            BOTH,
            &["user"],
            "The user who gave a password, or `nil`.",
            |call| property(call, Property::User),
        ),
        reader(BOTH, &["document_root"], "The site's root.", |call| {
            property(call, Property::DocumentRoot)
        }),
        reader(
            BOTH,
            &["content_type"],
            "The `Content-Type` of the reply.",
            |call| property(call, Property::ContentType),
        ),
        writer(
            BOTH,
            &["content_type="],
            "Gives the reply this `Content-Type`.",
            |call| change(call, Property::ContentType),
        ),
        reader(
            BOTH,
            &["sub_request?", "main?"],
            "Always `false`: what a script asks the server itself is a request of its own.",
            |_| Answer::Bool(false),
        ),
        reader(
            BOTH,
            &["internal_redirect?", "prev?"],
            "Whether a script has sent the request elsewhere inside.",
            |call| answered(own(call).map(|own| Answer::Bool(own.scope().redirects > 0))),
        ),
        reader(
            BOTH,
            &["external_redirect?", "next?"],
            "Whether a script sends the client elsewhere.",
            |call| answered(own(call).map(|own| Answer::Bool(own.scope().redirect.is_some()))),
        ),
        Method {
            waits: "the body",
            ..method(BOTH, &["__body"], (takes(0, 0), ""), "", body)
        },
    ],
    in_ruby: &[
        InRuby {
            name: "Nginx::Request#body, Nginx::Request#get_body",
            arguments: "",
            waits: "the body",
            doc: "The whole body of a POST, PUT or PATCH, at most 10 MiB; others raise `RuntimeError`. It \
                  is not used up: the handler gets it as well.",
        },
        InRuby {
            name: "Apache::Request#body",
            arguments: "",
            waits: "the body",
            doc: "The whole body, at most 10 MiB. It is not used up: the handler gets it as well.",
        },
        InRuby {
            name: "Nginx::Request#read_body",
            arguments: "",
            waits: "",
            doc: "`Nginx::OK`: there is nothing to be done before `body`.",
        },
        InRuby {
            name: "Nginx::Request#headers_in, #headers_out, #var, Apache::Request#headers_in, \
                   #headers_out, #notes, #finfo",
            arguments: "",
            waits: "",
            doc: "See the classes of these names.",
        },
    ],
    prelude: "
class Nginx::Request
  def headers_in() Nginx::Headers_in.new end
  def headers_out() Nginx::Headers_out.new end
  def notes() Apache::Notes.new end
  def var() Nginx::Var.new end
  def read_body() Nginx::OK end
  def body
    unless ['POST', 'PUT', 'PATCH'].include?(method)
      raise \"a #{method} has no body: ask for it with POST, PUT and PATCH only\"
    end
    __body
  end
  alias get_body body
end
class Apache::Request
  def headers_in() Apache::Headers_in.new end
  def headers_out() Apache::Headers_out.new end
  def notes() Apache::Notes.new end
  def finfo() Apache::Finfo.new end
  alias body __body
end
",
};

/// Makes the receiver an object of the request the script runs for.
pub(super) fn initialize(call: &mut NativeCall<'_>) -> Answer {
    answered(request(call).map(|request| Answer::Stamp(request.scope().serial())))
}

/// The request the receiver was made for, if it is the one the script runs for.
pub(super) fn own<'a>(
    call: &'a mut NativeCall<'_>,
) -> Result<&'a mut (dyn Request + 'static), Answer> {
    let made_for = call.stamp();
    let request = request(call)?;
    match request.scope().serial() == made_for {
        true => Ok(request),
        false => Err(ended()),
    }
}

pub(super) fn ended() -> Answer {
    Answer::runtime_error("this object belongs to a request that has ended: make a new one")
}

/// What is appended for the receiver's request as a String; `nil` where there is nothing.
pub(super) fn text(
    call: &mut NativeCall<'_>,
    read: impl FnOnce(&mut (dyn Request + 'static), &mut Vec<u8>) -> bool,
) -> Answer {
    let (made_for, phase) = (call.stamp(), call.host.phase);
    match call.parts() {
        (_, _, None) => no_request(phase),
        (_, out, Some(request)) => match request.scope().serial() == made_for {
            true if read(request, out) => Answer::Scratch,
            true => Answer::Nil,
            false => ended(),
        },
    }
}

/// A property of the receiver's request, or `nil`.
pub(super) fn property(call: &mut NativeCall<'_>, property: Property) -> Answer {
    text(call, |request, out| request.read(property, out))
}

/// A property as a whole number; 0 when it has none, or is none.
pub(super) fn number(call: &mut NativeCall<'_>, property: Property) -> Answer {
    answered(own(call).map(|own| {
        let mut digits = Vec::new();
        own.read(property, &mut digits);
        Answer::Int(whole(&digits))
    }))
}

/// Digits as a number; 0 when they are none.
pub(super) fn whole(digits: &[u8]) -> i64 {
    let digits = std::str::from_utf8(digits).unwrap_or_default();
    digits.parse().unwrap_or(0)
}

/// Changes a property of the receiver's request to the first argument.
pub(super) fn change(call: &mut NativeCall<'_>, property: Property) -> Answer {
    let value = call.bytes(0).unwrap_or_default().to_vec();
    answered(own(call).and_then(|own| {
        write(own, property, &value)?;
        Ok(Answer::Argument(0))
    }))
}

/// Changes a property, or says why it cannot be.
pub(super) fn write(
    request: &mut dyn Request,
    property: Property,
    value: &[u8],
) -> Result<(), Answer> {
    if breaks(value) {
        return Err(Answer::argument_error(
            "no line breaks and no NUL in what a request is changed to",
        ));
    }
    let changed = request.write(property, value);
    changed.map_err(|Refused(why)| Answer::runtime_error(why))
}

/// Whether there is something in it that could end a line.
pub(super) fn breaks(value: &[u8]) -> bool {
    value.iter().any(|byte| b"\r\n\0".contains(byte))
}

/// The whole body, which is waited for.
pub(super) fn body(call: &mut NativeCall<'_>) -> Answer {
    if let Err(raise) = own(call) {
        return raise;
    }
    let bytes_max = BODY_BYTES_MAX;
    ask(call, Ask::Body { bytes_max })
}
