//! `Nginx::Var`: the variables nginx users know.
//!
//! A name that no method has comes to `method_missing`, which looks it up in one sorted table, then
//! by its prefix (`http_`, `arg_`, …), then among what scripts of the request have set.

use mruby::{Answer, Kind, Takes};

use super::calendar::{iso, log_time, seconds_with_ms};
use super::chapter::{Chapter, takes};
use super::entries::{Classes, function, holder, method, reader};
use super::native::{answered, request};
use super::request::{body, initialize, own, text, write};
use crate::request::{Property, Request, Side, TlsProperty};
use crate::state::NativeCall;

use super::arguments::split_once;

const VAR: Classes = &["Nginx::Var"];

/// Longest name of a variable.
const NAME_BYTES_MAX: usize = 128;

/// A name, and a value made a String.
const SET: Takes = Takes {
    least: 2,
    most: 2,
    texts: 1 << 1,
};
const MISSING: Takes = Takes {
    least: 1,
    most: 2,
    texts: 1 << 1,
};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Nginx::Var",
    text: "`v.http_host` reads a variable, `v.foo = 'x'` sets one. Values are Strings; what has no value \
           is `nil`.\n\n\
           There are `args`, `query_string`, `is_args`, `uri`, `document_uri`, `request_uri`, `request`, \
           `request_method`, `request_filename`, `request_id`, `request_length`, `request_time`, \
           `document_root`, `realpath_root`, `scheme`, `https`, `host`, `hostname`, `server_name`, \
           `server_addr`, `server_port`, `server_protocol`, `remote_addr`, `binary_remote_addr`, \
           `remote_port`, `remote_user`, `connection`, `connection_requests`, `content_type`, \
           `content_length`, `status`, `body_bytes_sent`, `bytes_sent`, `upstream_addr`, \
           `upstream_status`, `upstream_response_time`, \
           `proxy_host`, `proxy_add_x_forwarded_for`, `fastcgi_script_name`, `fastcgi_path_info`, \
           `msec`, `time_local` and `time_iso8601` (both in UTC), `pid`, `pipe`, `nginx_version`; of a request \
           over TLS `ssl_protocol`, `ssl_cipher` and `ssl_server_name`, and where the client has shown a certificate \
           `tls_client_subject`, `tls_client_issuer`, `tls_client_serial`, `tls_client_fingerprint` (SHA-256), \
           `tls_client_not_before`, `tls_client_not_after` and `tls_client_cert` (PEM, escaped as in a URL); \
           `tls_client_verify` is `SUCCESS`, or `NONE` without one, and `ssl_client_s_dn`, `ssl_client_i_dn`, \
           `ssl_client_serial`, `ssl_client_v_start`, `ssl_client_v_end`, `ssl_client_verify` and \
           `ssl_client_escaped_cert` are nginx's names for these; and by \
           prefix: `http_NAME`, `sent_http_NAME`, `upstream_http_NAME` (a field of the upstream's or \
           the program's reply, as it came; from `header_filter` on), `arg_NAME`, `cookie_NAME`. What was \
           sent (`bytes_sent`, `body_bytes_sent`) is known in `log`.\n\n\
           `request_body` waits for the whole body, as `Nginx::Request#body` does.\n\n\
           Of these only `args` (and `query_string`) can be set. Any other name is a variable of the \
           request, which its later scripts see as well; `Apache::Notes` has the same.",
    classes: &[holder("Nginx::Var")],
    constants: &[],
    methods: &[
        reader(VAR, &["initialize"], "", initialize),
        method(VAR, &["method_missing"], (MISSING, ""), "", missing),
        // `Kernel` has a method of this name.
        method(VAR, &["server_name"], (takes(0, 0), ""), "", |call| {
            read(call, b"server_name")
        }),
        method(
            VAR,
            &["set"],
            (SET, "name, value"),
            "Sets a variable; `nil` takes it away.",
            |call| match call.name(0) {
                Some(name) => set(call, &name),
                None => Answer::type_error("a variable's name is a String or a Symbol"),
            },
        ),
        method(
            VAR,
            &["get"],
            (takes(1, 1), "name"),
            "A variable by its name.",
            |call| match call.name(0) {
                Some(name) => read(call, &name),
                None => Answer::Nil,
            },
        ),
        method(
            VAR,
            &["exist?"],
            (takes(1, 1), "name"),
            "Whether a variable has a value.",
            |call| exists(call, own),
        ),
        function(
            VAR,
            &["exist?"],
            (takes(1, 1), "name"),
            "Whether a variable has a value.",
            |call| exists(call, request),
        ),
    ],
    in_ruby: &[],
    prelude: "",
};

/// The request that a call is about.
type Of = for<'a> fn(&'a mut NativeCall<'_>) -> Result<&'a mut (dyn Request + 'static), Answer>;

/// Where a variable's value is.
#[derive(Clone, Copy)]
enum From {
    Property(Property),
    /// The same, `""` without a value.
    OrEmpty(Property),
    /// The same, `"0"` without a value.
    OrZero(Property),
    Fixed(&'static str),
    /// Appended; `false` without a value.
    Made(fn(&dyn Request, &mut Vec<u8>) -> bool),
}

/// Every variable with a name of its own, sorted by it.
const VARIABLES: &[(&str, From)] = &[
    ("args", From::Property(Property::Args)),
    ("binary_remote_addr", From::Made(binary_remote_addr)),
    ("body_bytes_sent", From::OrZero(Property::BodyBytesSent)),
    ("bytes_sent", From::OrZero(Property::BytesSent)),
    ("connection", From::Property(Property::Connection)),
    (
        "connection_requests",
        From::Property(Property::ConnectionRequests),
    ),
    ("content_length", From::Property(Property::ContentLength)),
    (
        "content_type",
        From::Made(|request, out| joined(request, Side::In, b"content-type", out)),
    ),
    ("document_root", From::Property(Property::DocumentRoot)),
    ("document_uri", From::Property(Property::Uri)),
    ("fastcgi_path_info", From::OrEmpty(Property::PathInfo)),
    ("fastcgi_script_name", From::Property(Property::Uri)),
    ("host", From::Property(Property::Host)),
    ("hostname", From::Made(|_, out| hostname(out))),
    ("https", From::Made(https)),
    ("is_args", From::Made(is_args)),
    ("msec", From::Made(|_, out| seconds_with_ms(out))),
    ("nginx_version", From::Fixed(env!("CARGO_PKG_VERSION"))),
    ("pid", From::Made(pid)),
    ("pipe", From::Fixed(".")),
    ("proxy_add_x_forwarded_for", From::Made(forwarded_for)),
    ("proxy_host", From::Property(Property::UpstreamName)),
    ("query_string", From::Property(Property::Args)),
    ("realpath_root", From::Property(Property::DocumentRoot)),
    ("remote_addr", From::Property(Property::RemoteAddress)),
    ("remote_port", From::Property(Property::RemotePort)),
    ("remote_user", From::Property(Property::User)),
    ("request", From::Property(Property::RequestLine)),
    ("request_filename", From::Property(Property::Filename)),
    ("request_id", From::Property(Property::Id)),
    ("request_length", From::Property(Property::RequestLength)),
    ("request_method", From::Property(Property::Method)),
    ("request_time", From::Property(Property::RequestTime)),
    ("request_uri", From::Property(Property::UnparsedUri)),
    ("scheme", From::Property(Property::Scheme)),
    ("server_addr", From::Property(Property::LocalAddress)),
    ("server_name", From::Property(Property::SiteName)),
    ("server_port", From::Property(Property::LocalPort)),
    ("server_protocol", From::Property(Property::Protocol)),
    (
        "ssl_cipher",
        From::Property(Property::Tls(TlsProperty::Cipher)),
    ),
    (
        "ssl_client_escaped_cert",
        From::Property(Property::Tls(TlsProperty::ClientEscapedPem)),
    ),
    (
        "ssl_client_i_dn",
        From::Property(Property::Tls(TlsProperty::ClientIssuer)),
    ),
    (
        "ssl_client_s_dn",
        From::Property(Property::Tls(TlsProperty::ClientSubject)),
    ),
    (
        "ssl_client_serial",
        From::Property(Property::Tls(TlsProperty::ClientSerial)),
    ),
    (
        "ssl_client_v_end",
        From::Property(Property::Tls(TlsProperty::ClientNotAfter)),
    ),
    (
        "ssl_client_v_start",
        From::Property(Property::Tls(TlsProperty::ClientNotBefore)),
    ),
    (
        "ssl_client_verify",
        From::Property(Property::Tls(TlsProperty::ClientVerify)),
    ),
    (
        "ssl_protocol",
        From::Property(Property::Tls(TlsProperty::Protocol)),
    ),
    (
        "ssl_server_name",
        From::Property(Property::Tls(TlsProperty::ServerName)),
    ),
    ("status", From::Property(Property::Status)),
    ("time_iso8601", From::Made(|_, out| iso(out))),
    ("time_local", From::Made(|_, out| log_time(out))),
    (
        "tls_client_cert",
        From::Property(Property::Tls(TlsProperty::ClientEscapedPem)),
    ),
    (
        "tls_client_fingerprint",
        From::Property(Property::Tls(TlsProperty::ClientFingerprint)),
    ),
    (
        "tls_client_issuer",
        From::Property(Property::Tls(TlsProperty::ClientIssuer)),
    ),
    (
        "tls_client_not_after",
        From::Property(Property::Tls(TlsProperty::ClientNotAfter)),
    ),
    (
        "tls_client_not_before",
        From::Property(Property::Tls(TlsProperty::ClientNotBefore)),
    ),
    (
        "tls_client_serial",
        From::Property(Property::Tls(TlsProperty::ClientSerial)),
    ),
    (
        "tls_client_subject",
        From::Property(Property::Tls(TlsProperty::ClientSubject)),
    ),
    (
        "tls_client_verify",
        From::Property(Property::Tls(TlsProperty::ClientVerify)),
    ),
    ("upstream_addr", From::Property(Property::UpstreamAddress)),
    (
        "upstream_response_time",
        From::Property(Property::UpstreamTime),
    ),
    ("upstream_status", From::Property(Property::UpstreamStatus)),
    ("uri", From::Property(Property::Uri)),
];

/// A variable was read or set as if it were a method.
fn missing(call: &mut NativeCall<'_>) -> Answer {
    let name = call.name(0).unwrap_or_default();
    match name.strip_suffix(b"=") {
        Some(name) if call.count() == 2 => set(call, name),
        _ => read(call, &name),
    }
}

fn read(call: &mut NativeCall<'_>, name: &[u8]) -> Answer {
    if name == b"request_body" {
        return body(call);
    }
    text(call, |request, out| value(request, name, out))
}

/// Whether a variable of a request has a value: of the receiver's, or the one the script runs for.
fn exists(call: &mut NativeCall<'_>, of: Of) -> Answer {
    let name = call.name(0).unwrap_or_default();
    answered(of(call).map(|request| {
        let there = name == b"request_body" || value(request, &name, &mut Vec::new());
        Answer::Bool(there)
    }))
}

/// Appends a variable's value; `false` when it has none.
fn value(request: &mut dyn Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    if let Some(from) = named(name) {
        return given(request, from, out);
    }
    if let Some(there) = prefixed(request, name, out) {
        return there;
    }
    let note = request.scope().note(name);
    note.map(|note| out.extend_from_slice(note)).is_some()
}

fn named(name: &[u8]) -> Option<From> {
    let index = VARIABLES.binary_search_by(|(known, _)| known.as_bytes().cmp(name));
    Some(VARIABLES.get(index.ok()?)?.1)
}

fn given(request: &dyn Request, from: From, out: &mut Vec<u8>) -> bool {
    match from {
        From::Property(property) => request.read(property, out),
        From::OrEmpty(property) => {
            request.read(property, out);
            true
        }
        From::OrZero(property) => {
            if !request.read(property, out) {
                out.push(b'0');
            }
            true
        }
        From::Fixed(text) => {
            out.extend_from_slice(text.as_bytes());
            true
        }
        From::Made(made) => made(request, out),
    }
}

/// The value of a variable that is named by its prefix; `None` when it is not.
fn prefixed(request: &dyn Request, name: &[u8], out: &mut Vec<u8>) -> Option<bool> {
    if let Some(field) = name.strip_prefix(b"http_") {
        if field == b"host" {
            return Some(request.read(Property::HttpHost, out));
        }
        return Some(joined(request, Side::In, &field_name(field), out));
    }
    if let Some(field) = name.strip_prefix(b"sent_http_") {
        if field == b"content_type" && request.read(Property::ContentType, out) {
            return Some(true);
        }
        return Some(joined(request, Side::Out, &field_name(field), out));
    }
    if let Some(field) = name.strip_prefix(b"upstream_http_") {
        return Some(joined(request, Side::Upstream, &field_name(field), out));
    }
    if let Some(key) = name.strip_prefix(b"arg_") {
        return Some(argument(request, key, out));
    }
    let cookie = name.strip_prefix(b"cookie_")?;
    Some(self::cookie(request, cookie, out))
}

fn field_name(name: &[u8]) -> Vec<u8> {
    name.iter()
        .map(|byte| if *byte == b'_' { b'-' } else { *byte })
        .collect()
}

/// The values of a field in one, with commas or semicolons between; `false` without any.
fn joined(request: &dyn Request, side: Side, name: &[u8], out: &mut Vec<u8>) -> bool {
    let between: &[u8] = match name {
        b"cookie" => b"; ",
        _ => b", ",
    };
    let mut there = false;
    request.field(side, name, &mut |value| {
        if there {
            out.extend_from_slice(between);
        }
        out.extend_from_slice(value);
        there = true;
    });
    there
}

/// The first value of a key in the query, compared without case, as nginx does.
fn argument(request: &dyn Request, key: &[u8], out: &mut Vec<u8>) -> bool {
    let mut query = Vec::new();
    request.read(Property::Args, &mut query);
    let value = query.split(|byte| *byte == b'&').find_map(|part| {
        let (name, value) = split_once(part, b'=')?;
        name.eq_ignore_ascii_case(key).then_some(value)
    });
    value.map(|value| out.extend_from_slice(value)).is_some()
}

fn cookie(request: &dyn Request, key: &[u8], out: &mut Vec<u8>) -> bool {
    let mut there = false;
    request.field(Side::In, b"cookie", &mut |cookies| {
        for part in cookies.split(|byte| *byte == b';') {
            let Some((name, value)) = split_once(part.trim_ascii(), b'=') else {
                continue;
            };
            if !there && name.eq_ignore_ascii_case(key) {
                out.extend_from_slice(value);
                there = true;
            }
        }
    });
    there
}

fn binary_remote_addr(request: &dyn Request, out: &mut Vec<u8>) -> bool {
    let mut shown = Vec::new();
    request.read(Property::RemoteAddress, &mut shown);
    match std::str::from_utf8(&shown).map(str::parse) {
        Ok(Ok(std::net::IpAddr::V4(address))) => out.extend_from_slice(&address.octets()),
        Ok(Ok(std::net::IpAddr::V6(address))) => out.extend_from_slice(&address.octets()),
        _ => return false,
    }
    true
}

fn is_args(request: &dyn Request, out: &mut Vec<u8>) -> bool {
    let before = out.len();
    request.read(Property::Args, out);
    if out.len() > before {
        out.truncate(before);
        out.push(b'?');
    }
    true
}

fn https(request: &dyn Request, out: &mut Vec<u8>) -> bool {
    let mut scheme = Vec::new();
    request.read(Property::Scheme, &mut scheme);
    if scheme == b"https" {
        out.extend_from_slice(b"on");
    }
    true
}

fn forwarded_for(request: &dyn Request, out: &mut Vec<u8>) -> bool {
    if joined(request, Side::In, b"x-forwarded-for", out) {
        out.extend_from_slice(b", ");
    }
    request.read(Property::RemoteAddress, out)
}

fn pid(_: &dyn Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(std::process::id().to_string().as_bytes());
    true
}

/// The machine's name. The kernel gives it from memory: nobody waits for a disk.
fn hostname(out: &mut Vec<u8>) -> bool {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    out.extend_from_slice(name.trim_ascii());
    !out.is_empty()
}

/// Sets a variable to the second argument.
fn set(call: &mut NativeCall<'_>, name: &[u8]) -> Answer {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(plain) {
        return Answer::argument_error("a variable's name has letters, digits and _ only");
    }
    let is_nil = call.kind(1) == Kind::Nil;
    let value = call.bytes(1).unwrap_or_default().to_vec();
    answered(own(call).and_then(|request| {
        match name {
            b"args" | b"query_string" => write(request, Property::Args, &value)?,
            name if is_own(name) => return Err(unchangeable(name)),
            name => {
                if !request.scope().set_note(name, (!is_nil).then_some(&value)) {
                    return Err(Answer::runtime_error(
                        "the variables of this request would take more than 1 MiB",
                    ));
                }
            }
        }
        Ok(Answer::Argument(1))
    }))
}

fn is_own(name: &[u8]) -> bool {
    let prefixes: [&[u8]; 5] = [
        b"http_",
        b"sent_http_",
        b"upstream_http_",
        b"arg_",
        b"cookie_",
    ];
    named(name).is_some()
        || name == b"request_body"
        || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn unchangeable(name: &[u8]) -> Answer {
    Answer::runtime_error(format!(
        "the variable {} cannot be changed: use Nginx::Request (uri=, filename=, method=, headers_in, \
         headers_out)",
        String::from_utf8_lossy(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::VARIABLES;

    #[test]
    fn variables_are_sorted_since_they_are_searched() {
        assert!(VARIABLES.is_sorted_by(|a, b| a.0 < b.0));
    }
}
