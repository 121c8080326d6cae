//! `Nginx::Upstream`, `Nginx::Utils`, and classes that are there to say what is not.

use std::rc::Rc;

use mruby::Answer;

use super::chapter::{Chapter, InRuby, Method, takes, takes_texts};
use super::entries::{Classes, class, function, holder, int, method, module, not_there, reader};
use super::native::{answered, request};
use super::request::ended;
use super::uri::{OF_URI, encode};
use crate::request::Request;
use crate::state::NativeCall;

const UPSTREAM: Classes = &["Nginx::Upstream"];
const ESCAPING: Classes = &["Nginx::Utils", "Apache"];
const AUTHN: Classes = &["Apache::AuthnProvider"];
const ACME: Classes = &["Nginx::SSL::ACME::Client", "Nginx::SSL::ACME::Dehydrated"];

/// What an object of `Nginx::Upstream` holds.
struct UpstreamHandle {
    /// The number of the request it was made for.
    serial: u64,
    name: Vec<u8>,
}

/// Longest name of a server or an upstream.
const SERVER_BYTES_MAX: usize = 255;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Upstream, Utils, and what is not there",
    text: "`Nginx::Stream`, `Nginx::SSL::ACME` and `Apache::AuthnProvider` are there so that scripts that \
           name them compile; using one raises `NotImplementedError`.",
    classes: &[
        holder("Nginx::Upstream"),
        module("Nginx::Utils"),
        module("Nginx::SSL::ACME"),
        class("Nginx::SSL::ACME::Client"),
        class("Nginx::SSL::ACME::Dehydrated"),
        class("Nginx::Stream"),
        class("Nginx::Stream::Connection"),
        class("Nginx::Stream::Async"),
        class("Apache::AuthnProvider"),
    ],
    constants: &[
        int(AUTHN, "AUTH_DENIED", 0),
        int(AUTHN, "AUTH_GRANTED", 1),
        int(AUTHN, "AUTH_USER_FOUND", 2),
        int(AUTHN, "AUTH_USER_NOT_FOUND", 3),
        int(AUTHN, "AUTH_GENERAL_ERROR", 4),
    ],
    methods: &[
        method(
            UPSTREAM,
            &["initialize"],
            (takes_texts(1, 1), "name"),
            "One of `[upstreams]`; a name that is not there raises `RuntimeError`. What is changed by it is \
             changed for this request only.",
            initialize,
        ),
        reader(
            UPSTREAM,
            &["server"],
            "What `server=` of this upstream was given last for this request; else the first of its servers in \
             the configuration, `\"127.0.0.1:8080\"`.",
            server,
        ),
        method(
            UPSTREAM,
            &["server="],
            (takes_texts(1, 1), "server"),
            "Sends the request to this server, `address:port`, or to an upstream by its name, whichever \
             upstream it would have gone to. The handler has to allow it: see `allow` of `proxy`.",
            set_server,
        ),
        reader(UPSTREAM, &["keepalive_cache"], "Always 2.", |_| {
            Answer::Int(2)
        }),
        method(
            UPSTREAM,
            &["keepalive_cache="],
            (takes(1, 1), "count"),
            "Accepted from 2 on, and left alone: the configuration says how many connections are kept.",
            keep,
        ),
        function(
            ESCAPING,
            &["escape"],
            (takes_texts(1, 1), "text"),
            "The text percent-encoded, but for letters, digits and `-._~`: as a name or value in a query.",
            escape,
        ),
        no_class(ACME, |_| no_acme()),
        no_class(
            &[
                "Nginx::Stream",
                "Nginx::Stream::Connection",
                "Nginx::Stream::Async",
            ],
            |_| not_there("Nginx::Stream", "the gateway speaks HTTP only"),
        ),
        no_class(AUTHN, |_| {
            not_there(
                "Apache::AuthnProvider",
                "read Authorization in headers_in in `access`, or use basic_auth in the configuration",
            )
        }),
        no_method(ACME, |_| no_acme()),
        no_method(
            &[
                "Nginx::Stream",
                "Nginx::Stream::Connection",
                "Nginx::Stream::Async",
            ],
            |_| not_there("Nginx::Stream", "the gateway speaks HTTP only"),
        ),
    ],
    in_ruby: &[InRuby {
        name: "Nginx::Utils.encode_parameters",
        arguments: "hash, between = '&', quote = nil",
        waits: "",
        doc: "`key=value` of each pair with `between` between them, keys and values encoded by `escape`, \
              values between two of `quote`. An Array's items are encoded and joined.",
    }],
    prelude: "
module Nginx::Utils
  def self.encode_parameters(items, between = '&', quote = nil)
    encoded = if items.is_a?(Hash)
      items.map { |key, value| \"#{escape(key)}=#{quote}#{escape(value)}#{quote}\" }
    else
      items.map { |item| escape(item) }
    end
    between ? encoded.join(between) : encoded
  end
end
",
};

const fn no_class(classes: Classes, native: super::entries::Native) -> Method {
    method(classes, &["initialize"], (takes(0, 16), ""), "", native)
}

const fn no_method(classes: Classes, native: super::entries::Native) -> Method {
    function(classes, &["method_missing"], (takes(0, 64), ""), "", native)
}

fn no_acme() -> Answer {
    not_there(
        "Nginx::SSL::ACME",
        "the gateway orders certificates itself: tls = { acme = \"NAME\" } of a site",
    )
}

fn initialize(call: &mut NativeCall<'_>) -> Answer {
    let name = call.bytes(0).unwrap_or_default().to_vec();
    answered(request(call).and_then(|request| {
        let mut server = Vec::new();
        if name.len() > SERVER_BYTES_MAX || !request.server_of(&name, &mut server) {
            let shown = name.get(..SERVER_BYTES_MAX).unwrap_or(&name);
            let why = format!(
                "no upstream is called \"{}\": see [upstreams]",
                shown.escape_ascii()
            );
            return Err(Answer::runtime_error(why));
        }
        let serial = request.scope().serial();
        Ok(Answer::Attach(Rc::new(UpstreamHandle { serial, name })))
    }))
}

/// What the receiver holds, and the request it was made for, if the script runs for that.
fn own<'a>(
    call: &'a mut NativeCall<'_>,
) -> Result<(Rc<UpstreamHandle>, &'a mut (dyn Request + 'static)), Answer> {
    let handle = call.attached::<UpstreamHandle>().ok_or_else(ended)?;
    let request = request(call)?;
    match request.scope().serial() == handle.serial {
        true => Ok((handle, request)),
        false => Err(ended()),
    }
}

fn server(call: &mut NativeCall<'_>) -> Answer {
    answered(own(call).map(|(upstream, request)| {
        if let Some((of, server)) = &request.scope().server_of
            && *of == upstream.name
        {
            return Answer::Bytes(server.clone());
        }
        let mut server = Vec::new();
        request.server_of(&upstream.name, &mut server);
        Answer::Bytes(server)
    }))
}

fn set_server(call: &mut NativeCall<'_>) -> Answer {
    let server = call.bytes(0).unwrap_or_default().to_vec();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(byte);
    if server.is_empty() || server.len() > SERVER_BYTES_MAX || !server.iter().all(plain) {
        return Answer::argument_error("a server is an address with its port: 192.0.2.1:8080");
    }
    answered(own(call).map(|(upstream, request)| {
        let scope = request.scope();
        scope.server_of = Some((upstream.name.clone(), server.clone()));
        scope.upstream = Some(server);
        Answer::Argument(0)
    }))
}

fn keep(call: &mut NativeCall<'_>) -> Answer {
    match call.int(0) {
        Some(2..) => Answer::Argument(0),
        _ => Answer::argument_error("keepalive_cache= takes a number from 2 on"),
    }
}

fn escape(call: &mut NativeCall<'_>) -> Answer {
    let mut escaped = String::new();
    encode(call.bytes(0).unwrap_or_default(), OF_URI, &mut escaped);
    Answer::Bytes(escaped.into_bytes())
}
