//! Keys of `[[listen]]`.

use super::key::Fallback::{Absent, Required, Value};
use super::key::{Kind, Section, key};
use super::tls::TLS_OF_LISTENER;

pub(crate) const LISTEN: Section = Section {
    title: "[[listen]]",
    about: "One address that is served.",
    keys: &[
        key(
            "address",
            Kind::Text,
            Required,
            "`\"127.0.0.1:80\"`, `\"[::]:80\"` (IPv6 alone) or `\"unix:/path\"`. No two listeners share one.",
            "address = \"0.0.0.0:80\"",
        ),
        key(
            "backlog",
            Kind::Count(1, 65_535),
            Value("4096"),
            "Connections the kernel may hold unaccepted, for each worker. The kernel's `net.core.somaxconn` caps it.",
            "backlog = 511",
        ),
        key(
            "mode",
            Kind::Text,
            Value("0666"),
            "Permissions of a Unix socket's file, octal: who may write may connect. The file's group is that of whoever \
             starts the gateway, or of a directory with the set-group-id bit.",
            "mode = \"0660\"",
        ),
        key(
            "proxy_protocol",
            Kind::Other("table with `from`"),
            Absent("nobody is believed"),
            "Who says for whom it speaks, by the PROXY protocol (version 1 or 2), before anything else.",
            "proxy_protocol = { from = \"unix\" }",
        ),
        TLS_OF_LISTENER,
        key(
            "protocols",
            Kind::Other("list of `\"http/1.1\"` and `\"h2\"`, without TLS `\"h2c\"`"),
            Absent("both with TLS, `[\"http/1.1\"]` without"),
            "The versions of HTTP that are spoken. With TLS the client chooses among them (ALPN); without, HTTP/2 is spoken \
             with those that begin with it (`\"h2c\"`), and never by `Upgrade`.",
            "protocols = [\"http/1.1\", \"h2c\"]",
        ),
    ],
};

pub(crate) const SENDERS: Section = Section {
    title: "proxy_protocol = { … }",
    about: "Balancers in front of a listener, which tell the client's address by the PROXY protocol.",
    keys: &[key(
        "from",
        Kind::Other("list of addresses and networks, or `\"unix\"`"),
        Required,
        "Peers that send such a header: each of them must, and anybody else's is bad HTTP. `\"unix\"` is whoever connects to \
         a Unix socket. Networks of this machine itself are refused where sites run programs, which could pose as any client; \
         so is `\"unix\"` with a `mode` that lets everybody write.",
        "from = [\"10.0.0.0/8\"]",
    )],
};
