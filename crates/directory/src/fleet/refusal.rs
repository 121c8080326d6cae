//! What it means that a store does not answer as it should, and what helps.
//!
//! The idea: a store that is away comes back by itself; one that refuses this machine does not, so its words are told with their
//! meaning. There is one place for that, whoever is told: the error log, `nagaya status`, `nagaya fleet`, `nagaya fleet check`.

use stores::{Error, Kind};

/// Words that a store, or whoever speaks with it, refuses with; what they mean.
const MEANINGS: [(&str, &str); 13] = [
    ("WRONGPASS", PASSWORD),
    ("invalid password", PASSWORD),
    (
        "without any password configured",
        "the store has no password: leave `password_file` out, or set `requirepass` there",
    ),
    ("NOAUTH", LOGIN),
    // The same, where many words are said.
    ("unauthenticated", LOGIN),
    ("NOPERM", ACCOUNT),
    ("ACL failure", ACCOUNT),
    ("user executing the script can't run", ACCOUNT),
    (
        "DENIED",
        "the store lets nobody in from another machine: give it a password (`requirepass`)",
    ),
    (
        "READONLY",
        "the store is a replica: `store`, or the Sentinels there, have to name the primary",
    ),
    (
        "OOM ",
        "the store is full: raise its `maxmemory`, or give it to the fleet alone",
    ),
    (
        "DB index is out of range",
        "the store refuses the database of this number: name one in `store` that it has",
    ),
    (
        "speaks no TLS",
        "the store does not speak TLS at this port: name its `tls-port`, or leave `tls=on` out",
    ),
];
/// The same of Sentinels.
const OF_SENTINELS: [(&str, &str); 3] = [
    (
        "NOAUTH",
        "the Sentinels want a password, and are told none: leave `requirepass` out there",
    ),
    (
        "DENIED",
        "the Sentinels let nobody in from another machine: set `protected-mode no` there",
    ),
    (
        "unknown command",
        "what answers is no Sentinel: name the port of one, or leave `sentinel=` out",
    ),
];
const PASSWORD: &str = "the store refuses the password in `password_file`, or the user in `store`";
const LOGIN: &str = "the store wants a password: add `?password_file=FILE` to `store`";
const ACCOUNT: &str =
    "the store forbids what is needed: the guide on several machines lists all commands";

/// Why the store has not answered: in its own words where it has some, and with what they mean. It may speak TLS where it was never
/// heard.
pub(super) fn told(error: &Error, is_heard: bool) -> String {
    let why = error.to_string();
    let meaning = MEANINGS.iter().find(|(words, _)| why.contains(words));
    match (meaning, error.kind()) {
        (Some((_, meaning)), _) => format!("{meaning} ({why})"),
        (None, Kind::Server) => why,
        // One that is spoken to without TLS and waits for it says nothing else.
        (None, Kind::Lost) if !is_heard => {
            format!("the store does not answer: {why} (if it speaks TLS there, add `tls=on`)")
        }
        (None, _) => format!("the store does not answer: {why}"),
    }
}

/// Why a Sentinel has not told where the store is.
pub(super) fn told_of_sentinel(error: &Error) -> String {
    let why = error.to_string();
    match OF_SENTINELS.iter().find(|(words, _)| why.contains(words)) {
        Some((_, meaning)) => format!("{meaning} ({why})"),
        None => format!("no Sentinel answers: {why}"),
    }
}

/// Whether what was told does not pass by itself.
pub(super) fn is_lasting(told: &str) -> bool {
    let meanings = MEANINGS.iter().chain(&OF_SENTINELS);
    meanings.map(|(_, it)| it).any(|it| told.starts_with(it))
}
