//! Keys of `[upstreams.NAME]`.

use super::amounts::DAY;
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Kind, Section, key};
use super::limit::LIMITS_OF_LEVEL;

pub(crate) const UPSTREAM: Section = Section {
    title: "[upstreams.NAME]",
    about: "A group of servers. Rules name it: `handler = { proxy = \"NAME\" }`, or `handler = { fastcgi = \"NAME\" }` \
        where `protocol` is `\"fastcgi\"`. \
        A name is letters, digits, `-`, `_` and `.`.",
    keys: &[
        key(
            "protocol",
            Kind::Choice(&["http", "fastcgi"]),
            Value("http"),
            "What the servers speak: HTTP/1.1, or FastCGI as php-fpm does.",
            "protocol = \"fastcgi\"",
        ),
        key(
            "servers",
            Kind::Other("list of addresses, or of tables with `address` and `weight`"),
            Required,
            "Its servers, at least one: `\"127.0.0.1:9000\"`, `\"app.internal:9000\"` or `\"unix:/run/app.sock\"`.",
            "servers = [\"127.0.0.1:9000\", { address = \"unix:/run/app.sock\", weight = 2 }]",
        ),
        key(
            "keepalive",
            Kind::Count(0, 65_536),
            Value("256"),
            "Unused connections kept to each server by each worker. With `protocol = \"fastcgi\"` the default is 16: \
             each holds one of php-fpm's processes, which other programs that ask the same pool then lack.",
            "keepalive = 32",
        ),
        key(
            "balance",
            Kind::Choice(&["round_robin", "least_requests"]),
            Value("round_robin"),
            "How a server is chosen; both respect weights.",
            "balance = \"least_requests\"",
        ),
        key(
            "fails",
            Kind::Count(1, 1_000),
            Value("3"),
            "Failures in a row after which a server rests.",
            "fails = 1",
        ),
        key(
            "back_off",
            Kind::Duration(1, DAY),
            Value("1s"),
            "First rest of a failed server; each further failure doubles it.",
            "back_off = \"500ms\"",
        ),
        key(
            "back_off_max",
            Kind::Duration(1, DAY),
            Value("30s"),
            "Longest rest. No less than `back_off`.",
            "back_off_max = \"1m\"",
        ),
        key(
            "tries",
            Kind::Count(1, 16),
            Value("2"),
            "Servers tried for one request, where trying again is safe.",
            "tries = 1",
        ),
        key(
            "agent",
            Kind::Count(1, 65_535),
            Absent("no agent is asked"),
            "Port on which an agent answers on each server's host (`nagaya agent`, or any of HAProxy's agent-check); beside a Unix socket, on 127.0.0.1. \
             Each is asked once a second. What it says scales the server's weight; one that it wants drained is left alone as long as there is another; where all are to be, all are asked as configured. \
             What `nagaya agent` measures is told as the sensors `upstream.NAME.load1` and such. One that does not answer for 5 s says nothing.",
            "agent = 9707",
        ),
        key(
            "proxy_protocol",
            Kind::Choice(&["off", "v1", "v2"]),
            Value("off"),
            "Whether each connection begins by saying for which client it is made, by the PROXY protocol: version 1, or 2 with the \
             request's id. Such a connection carries one request, for the next may be another client's; `keepalive` is of no use then. \
             For HTTP alone.",
            "proxy_protocol = \"v2\"",
        ),
        key(
            "tls",
            Kind::Other("`true` or a table"),
            Absent("plain HTTP"),
            "Whether its servers are spoken to by TLS (1.2 or 1.3); a URL that begins with `https://` says the same. For HTTP alone.",
            "tls = true",
        ),
        LIMITS_OF_LEVEL,
    ],
};

pub(crate) const UPSTREAM_TLS: Section = Section {
    title: "tls = { … } of [upstreams.NAME]",
    about: "TLS to the servers of an upstream; `true` is an empty table. All of it has to be agreed on within \
        `timeouts.upstream_connect`.",
    keys: &[
        key(
            "ca",
            Kind::Text,
            Absent("the authorities that this machine trusts"),
            "PEM file of the authorities that vouch for the servers' certificates, read with the configuration. \
             A certificate that vouches for itself stands for itself.",
            "ca = \"certs/internal.pem\"",
        ),
        key(
            "name",
            Kind::Text,
            Absent("the host of each server's address"),
            "The name that the servers are asked for, and that their certificates must have.",
            "name = \"app.internal\"",
        ),
        key(
            "certificate",
            Kind::Text,
            Absent("none is shown"),
            "PEM file with the certificate that the servers are shown where they ask for one, and those between it and its authority. \
             A file that changes is taken within seconds.",
            "certificate = \"certs/gateway.pem\"",
        ),
        key(
            "key",
            Kind::Text,
            Absent("`certificate` holds it, too"),
            "PEM file with the certificate's private key, without a password. The keeper has it, and signs handshakes with it.",
            "key = \"certs/gateway.key\"",
        ),
        key(
            "verify",
            Kind::Flag,
            Value("true"),
            "Whether a server has to prove who it is. Without that whoever is on the way can read and change everything.",
            "verify = false",
        ),
    ],
};

pub(crate) const SERVER: Section = Section {
    title: "servers = [{ … }]",
    about: "One server of an upstream, where its address alone does not say all.",
    keys: &[
        key(
            "address",
            Kind::Text,
            Required,
            "`\"127.0.0.1:9000\"`, `\"app.internal:9000\"` or `\"unix:/run/app.sock\"`.",
            "address = \"unix:/run/app.sock\"",
        ),
        key(
            "weight",
            Kind::Count(1, 1_000),
            Value("1"),
            "Its share, relative to its fellows.",
            "weight = 2",
        ),
    ],
};
