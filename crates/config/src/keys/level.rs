//! Keys of `caps` and `timeouts` on a site or a rule: numbers that stand in place of the process's.

use super::amounts::{DAY, KIB, TIB};
use super::key::Fallback::Absent;
use super::key::{Key, Kind, Section, key};
use super::process::{HEAD_MAX, REQUESTS_MAX};

pub(super) const CAPS_OF_LEVEL: Key = key(
    "caps",
    Kind::Other("table"),
    Absent("as the levels above say"),
    "Sizes and counts in place of those of `[caps]`.",
    "caps = { body_bytes = \"64MiB\" }",
);
pub(super) const TIMEOUTS_OF_LEVEL: Key = key(
    "timeouts",
    Kind::Other("table"),
    Absent("as the levels above say"),
    "Waits in place of those of `[timeouts]`.",
    "timeouts = { upstream_read = \"5m\" }",
);

const FROM_ABOVE: super::Fallback = Absent("as the level above says");

pub(crate) const LEVEL_CAPS: Section = Section {
    title: "caps = { … }",
    about: "Sizes and counts of a site or a rule, in place of those of `[caps]`: the innermost counts, be it larger or smaller. \
        Of the rules that match, the last one that says a number does so for the request, else its site, else `[caps]`.",
    keys: &[
        key(
            "body_bytes",
            Kind::Size(0, 1_024 * TIB),
            FROM_ABOVE,
            "A request's body; more is answered 413. An announced length is refused as soon as the rule is chosen, before the \
             body is asked for or read; one that no rule of the site admits before any script runs; what comes in chunks \
             while it is read. What is set aside before the handler begins has its share of `caps.spool_disk_bytes` all the same.",
            "body_bytes = \"64MiB\"",
        ),
        key(
            "upstream_head_bytes",
            Kind::Size(KIB, HEAD_MAX),
            FROM_ABOVE,
            "Head of the reply of an upstream's server or of a program; more is answered 502.",
            "upstream_head_bytes = \"64KiB\"",
        ),
        key(
            "requests_per_connection",
            Kind::Count(0, REQUESTS_MAX),
            FROM_ABOVE,
            "Requests on one connection, of whatever sites: once it has carried so many, a request that meets this one is \
             its last. 0 is no cap.",
            "requests_per_connection = 100",
        ),
    ],
};

pub(crate) const LEVEL_TIMEOUTS: Section = Section {
    title: "timeouts = { … }",
    about: "Waits of a site or a rule, in place of those of `[timeouts]`: the innermost counts, be it longer or shorter, as \
        with `caps`.",
    keys: &[
        key(
            "upstream_read",
            Kind::Duration(1, DAY),
            FROM_ABOVE,
            "Longest silence of an upstream's server or of a program, as in `[timeouts]`; longer is answered 504.",
            "upstream_read = \"5m\"",
        ),
        key(
            "write",
            Kind::Duration(1, DAY),
            FROM_ABOVE,
            "Longest time a client may take no byte of the reply, and how far it may fall behind `caps.write_rate_min`.",
            "write = \"5m\"",
        ),
        key(
            "idle",
            Kind::Duration(1, DAY),
            FROM_ABOVE,
            "On a site alone: how long a connection is kept after a request of this site, until the next one begins.",
            "idle = \"5s\"",
        ),
    ],
};
