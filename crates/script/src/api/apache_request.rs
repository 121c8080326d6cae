//! What only `Apache::Request` has.
//!
//! Much of it speaks of the insides of another server: what has no counterpart here is 0 or `nil` to
//! be read, and raises `NotImplementedError` to be changed.

use mruby::{Answer, Takes};

use super::chapter::{Chapter, takes_texts};
use super::entries::{Classes, method, missing, not_there, reader};
use super::headers::first;
use super::native::{answered, request};
use super::request::{number, own, property, text, whole, write, writer};
use crate::request::{Property, Request, Side};
use crate::state::NativeCall;

const APACHE: Classes = &["Apache::Request"];

/// Methods in the order of their numbers, as `Apache::M_GET` and the like.
const METHODS: &[&str] = &[
    "GET",
    "PUT",
    "POST",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "VERSION-CONTROL",
    "CHECKOUT",
    "UNCHECKOUT",
    "CHECKIN",
    "UPDATE",
    "LABEL",
    "REPORT",
    "MKWORKSPACE",
    "MKACTIVITY",
    "BASELINE-CONTROL",
    "MERGE",
];

/// `Apache::PROXYREQ_REVERSE`.
const REVERSE: i64 = 2;

const URL: (Takes, &str) = (takes_texts(1, 1), "url");

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Apache::Request",
    text: "What only this one has, beside the above.",
    classes: &[],
    constants: &[],
    methods: &[
        reader(
            APACHE,
            &["canonical_filename"],
            "The resolved file.",
            |call| property(call, Property::Filename),
        ),
        writer(
            APACHE,
            &["canonical_filename="],
            "As `filename=`.",
            |call| super::request::change(call, Property::Filename),
        ),
        reader(
            APACHE,
            &["path_info"],
            "What follows the file in the path.",
            |call| property(call, Property::PathInfo),
        ),
        reader(
            APACHE,
            &["handler"],
            "The handler that answers: `\"proxy\"` and the like.",
            |call| property(call, Property::Handler),
        ),
        reader(APACHE, &["status"], STATUS, status),
        writer(APACHE, &["status="], SET_STATUS, set_status),
        reader(APACHE, &["status_line"], STATUS, |call| {
            property(call, Property::Status)
        }),
        reader(APACHE, &["range"], "The request's `Range`.", |call| {
            field(call, Side::In, b"range")
        }),
        reader(
            APACHE,
            &["content_encoding"],
            "The reply's `Content-Encoding`.",
            |call| field(call, Side::Out, b"content-encoding"),
        ),
        reader(
            APACHE,
            &["content_length"],
            "The reply's `Content-Length`, as an Integer; 0 without one.",
            content_length,
        ),
        reader(
            APACHE,
            &["ap_auth_type"],
            "`\"Basic\"`, or `nil`.",
            auth_type,
        ),
        reader(APACHE, &["vlist_validator"], "Always `nil`.", |_| {
            Answer::Nil
        }),
        reader(
            APACHE,
            &["proxyreq"],
            "`Apache::PROXYREQ_REVERSE` if a script has chosen an upstream, or the handler is a proxy.",
            proxyreq,
        ),
        reader(
            APACHE,
            &["proto_num"],
            "1001 for HTTP/1.1, 1000 for HTTP/1.0.",
            proto_num,
        ),
        reader(
            APACHE,
            &["method_number"],
            "`Apache::M_GET` and the like; `Apache::M_INVALID` of others.",
            method_number,
        ),
        reader(APACHE, &["header_only"], "1 for HEAD, else 0.", |call| {
            flag(call, |request| is(request, Property::Method, b"HEAD"))
        }),
        reader(
            APACHE,
            &["chunked"],
            "1 if the request's body came in chunks, else 0.",
            |call| flag(call, is_chunked),
        ),
        reader(
            APACHE,
            &[
                "assbackwards",
                "read_body",
                "read_chunked",
                "used_path_info",
                "eos_sent",
                "no_cache",
                "no_local_copy",
            ],
            "Always 0.",
            |_| Answer::Int(0),
        ),
        reader(
            APACHE,
            &["response_time"],
            "Seconds since the request came, a Float.",
            response_time,
        ),
        method(APACHE, &["reverse_proxy"], URL, PROXY, reverse_proxy),
        missing(APACHE, &["run_handler"], |_| {
            not_there(
                "Apache::Request#run_handler",
                "let the script end, and the request's handler runs; or use redirect",
            )
        }),
        missing(APACHE, &["error_log_into"], |_| {
            not_there(
                "Apache::Request#error_log_into",
                "lines go to the error log, by errlogger",
            )
        }),
        missing(
            APACHE,
            &[
                "hostname=",
                "document_root=",
                "user=",
                "ap_auth_type=",
                "path_info=",
                "range=",
                "content_length=",
                "content_encoding=",
                "status_line=",
                "handler=",
                "proxyreq=",
                "vlist_validator=",
            ],
            |_| {
                not_there(
                    "changing this",
                    "the configuration and the request decide it; uri=, args=, headers_in, headers_out \
                     and reverse_proxy can be used",
                )
            },
        ),
    ],
    in_ruby: &[],
    prelude: "",
};

const STATUS: &str = "The reply's status, once there is one.";
const SET_STATUS: &str = "Gives the reply a status, from 100 to 599.";
const PROXY: &str = "Sends the request to this upstream, by its name or as `http://host:port`. What is \
                     forwarded is the request's own path, so the URL has that one or none.";

fn field(call: &mut NativeCall<'_>, side: Side, name: &[u8]) -> Answer {
    text(call, |request, out| first(request, side, name, out))
}

fn status(call: &mut NativeCall<'_>) -> Answer {
    match property(call, Property::Status) {
        Answer::Scratch => number(call, Property::Status),
        other => other,
    }
}

fn set_status(call: &mut NativeCall<'_>) -> Answer {
    let status = whole(call.bytes(0).unwrap_or_default());
    if !(100..=599).contains(&status) {
        return Answer::argument_error("a status is a number from 100 to 599");
    }
    answered(own(call).and_then(|own| {
        write(own, Property::Status, status.to_string().as_bytes())?;
        Ok(Answer::Argument(0))
    }))
}

fn content_length(call: &mut NativeCall<'_>) -> Answer {
    answered(own(call).map(|own| {
        let mut length = 0;
        own.field(Side::Out, b"content-length", &mut |value| {
            length = whole(value);
        });
        Answer::Int(length)
    }))
}

fn auth_type(call: &mut NativeCall<'_>) -> Answer {
    match property(call, Property::User) {
        Answer::Scratch => Answer::Bytes(b"Basic".to_vec()),
        other => other,
    }
}

fn proxyreq(call: &mut NativeCall<'_>) -> Answer {
    answered(own(call).map(|own| {
        let chosen = own.scope().upstream.is_some() || is(own, Property::Handler, b"proxy");
        Answer::Int(if chosen { REVERSE } else { 0 })
    }))
}

/// Whether a property is just this.
fn is(request: &dyn Request, property: Property, value: &[u8]) -> bool {
    let mut read = Vec::new();
    request.read(property, &mut read) && read == value
}

fn is_chunked(request: &dyn Request) -> bool {
    let mut chunked = false;
    request.field(Side::In, b"transfer-encoding", &mut |value| {
        chunked |= value.eq_ignore_ascii_case(b"chunked");
    });
    chunked
}

fn flag(call: &mut NativeCall<'_>, of: fn(&dyn Request) -> bool) -> Answer {
    answered(own(call).map(|own| Answer::Int(i64::from(of(own)))))
}

fn proto_num(call: &mut NativeCall<'_>) -> Answer {
    answered(own(call).map(|own| {
        let is_old = is(own, Property::Protocol, b"HTTP/1.0");
        Answer::Int(if is_old { 1_000 } else { 1_001 })
    }))
}

fn method_number(call: &mut NativeCall<'_>) -> Answer {
    answered(own(call).map(|own| {
        let mut name = Vec::new();
        own.read(Property::Method, &mut name);
        // HEAD has GET's number.
        let name = if name == b"HEAD" { b"GET" } else { &*name };
        let known = METHODS.iter().position(|known| known.as_bytes() == name);
        Answer::Int(i64::try_from(known.unwrap_or(METHODS.len())).unwrap_or(0))
    }))
}

fn response_time(call: &mut NativeCall<'_>) -> Answer {
    answered(own(call).map(|own| {
        let mut digits = Vec::new();
        own.read(Property::RequestTime, &mut digits);
        let seconds = std::str::from_utf8(&digits).unwrap_or_default().parse();
        Answer::Float(seconds.unwrap_or(0.0))
    }))
}

fn reverse_proxy(call: &mut NativeCall<'_>) -> Answer {
    let url = call.bytes(0).unwrap_or_default().to_vec();
    let rest = url.strip_prefix(b"http://").unwrap_or(&url);
    let path_at = rest.iter().position(|byte| *byte == b'/');
    let (server, path) = rest.split_at(path_at.unwrap_or(rest.len()));
    let is_server = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(byte);
    if server.is_empty() || url.starts_with(b"https://") || !server.iter().all(is_server) {
        return Answer::argument_error(
            "reverse_proxy takes the name of an upstream, or http://host:port",
        );
    }
    answered(request(call).and_then(|request| {
        let mut asked = Vec::new();
        request.read(Property::UnparsedUri, &mut asked);
        if !matches!(path, b"" | b"/") && path != asked {
            return Err(not_there(
                "reverse_proxy to another path",
                "change the request's own with uri= in rewrite",
            ));
        }
        request.scope().upstream = Some(server.to_vec());
        Ok(Answer::Nil)
    }))
}
