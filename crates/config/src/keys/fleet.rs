//! Keys of `[fleet]`.

use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};

const MINUTE: u64 = 60_000;

pub(super) const FLEET_OF_PROCESS: Key = key(
    "fleet",
    Kind::Other("table"),
    Absent("every limit is this machine's"),
    "A store by which several machines count limits together.",
    "fleet = { store = \"redis://127.0.0.1\" }",
);

pub(crate) const FLEET: Section = Section {
    title: "[fleet]",
    about: "A Redis or Valkey by which limits with `scope = \"fleet\"` hold over several machines. Machines lease permits of it ahead of \
        need; no worker asks it. All machines have the same `store`, `lease` and limits. It stands in the first file alone.",
    keys: &[
        key(
            "store",
            Kind::Text,
            Required,
            "Where it listens: `redis://HOST:PORT/DATABASE`, with `USER@` before the host where somebody logs in by name. Behind `?` and \
             divided by `&`: `password_file=FILE`, relative to the configuration file, whose first line is the password and which the supervisor \
             alone reads, `socket=PATH` instead of an address, `tls=on` with `ca=FILE`, PEM of the authorities that its certificate may come from \
             (else the machine's), and `sentinel=NAME`: the addresses, divided by commas, are those of Sentinels (port 26379), which say where \
             NAME's primary is. Port 6379 and database 0 need not be named. It must not evict keys \
             (`maxmemory-policy noeviction`).",
            "store = \"redis://valkey.internal/1?password_file=valkey.password\"",
        ),
        key(
            "machine",
            Kind::Text,
            Absent("its host name"),
            "What the machine is called in the fleet. No two are called the same.",
            "machine = \"web1\"",
        ),
        key(
            "lease",
            Kind::Duration(2_000, MINUTE),
            Value("5s"),
            "How long the store gives permits to a machine, which renews them three times as often. What a machine held that is lost is free \
             again after that; so long the store gives out nothing after it has started. The same on all machines.",
            "lease = \"10s\"",
        ),
        key(
            "machines",
            Kind::Count(0, 10_000),
            Value("0"),
            "Machines there are at least: what is counted with for `on_loss = \"share\"` where the store has told of fewer, or a machine \
             starts while it is away.",
            "machines = 3",
        ),
        key(
            "user",
            Kind::Text,
            Absent("as `user` of directories"),
            "The user that the process becomes which asks the store, when started as root. Where there are directories, theirs says it.",
            "user = \"directory\"",
        ),
    ],
};
