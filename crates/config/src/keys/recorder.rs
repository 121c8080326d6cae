//! Keys of `[recorder]`.

use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};

pub(super) const RECORDER_OF_PROCESS: Key = key(
    "recorder",
    Kind::Other("table"),
    Absent("nothing is recorded"),
    "What sites are asked for, recorded by a process of its own.",
    "recorder = { directory = \"/var/lib/nagaya/recorder\" }",
);

pub(crate) const RECORDER: Section = Section {
    title: "[recorder]",
    about: "Who visits the sites, what they look at and how long it takes: told by the workers in shared memory, and \
        recorded by a process of its own, for which no request ever waits. No address and no query is stored. Days are \
        those of `time_zone`. It stands in the first file alone.",
    keys: &[
        key(
            "directory",
            Kind::Text,
            Required,
            "Where figures are kept, relative to the configuration file. It is made, for the recorder's user alone, where it is \
             missing; the one it lies in has to be there.",
            "directory = \"/var/lib/nagaya/recorder\"",
        ),
        key(
            "salt",
            Kind::Choice(&["day", "week", "month"]),
            Value("day"),
            "How long a visitor is known as the same. For so long a random salt is kept, with which addresses are hashed; it is \
             deleted when its time is over. Once there are figures it stays as it is.",
            "salt = \"month\"",
        ),
        key(
            "exclude",
            Kind::Other("list of addresses and networks"),
            Value("[]"),
            "Clients of which nothing is recorded: the operator's own.",
            "exclude = [\"192.0.2.0/24\"]",
        ),
        key(
            "exclude_cookie",
            Kind::Text,
            Absent("cookies are not looked at"),
            "Requests with a cookie of this name are not recorded, whatever its value.",
            "exclude_cookie = \"not-me\"",
        ),
        key(
            "do_not_track",
            Kind::Flag,
            Value("false"),
            "Whether requests with `DNT: 1` or `Sec-GPC: 1` are not recorded.",
            "do_not_track = true",
        ),
        key(
            "search",
            Kind::Other("list of texts"),
            Value("[\"q\", \"s\", \"query\", \"search\"]"),
            "Keys of queries that say what was searched for on a site. Of queries nothing else is recorded, but for campaigns \
             (`utm_source`, `utm_medium`, `utm_campaign`).",
            "search = [\"keyword\"]",
        ),
        key(
            "groups",
            Kind::Other("table of texts"),
            Value("{}"),
            "Names that referrers are counted under which contain a text.",
            "groups = { \"example.org/press\" = \"Press\" }",
        ),
        key(
            "countries",
            Kind::Text,
            Absent("countries are not told"),
            "A database that says which country an address is in (MMDB: MaxMind's, or one of its layout with `country.iso_code` or \
             `country_code`), relative to the configuration file. The server reads it at its start and with a reload, as its own \
             user, and looks addresses up in the worker: none is handed on. Where it cannot be read, an error says so, and all \
             else is recorded.",
            "countries = \"/usr/share/GeoIP/GeoLite2-Country.mmdb\"",
        ),
        key(
            "user",
            Kind::Text,
            Absent(
                "`nagaya-recorder` where there is such a user, or another than the server's that every system has",
            ),
            "The user that the recorder becomes when started as root. Uid 0 is refused.",
            "user = \"figures\"",
        ),
        key(
            "nice",
            Kind::Count(0, 19),
            Value("10"),
            "How much the recorder gives way to others that want the processor.",
            "nice = 19",
        ),
        key(
            "send",
            Kind::Text,
            Absent("nothing is sent"),
            "A PostgreSQL that minutes of all figures, and incidents, are sent to, as `machine` of `[fleet]`, or the host name, calls this \
             machine: `postgres://USER@HOST:PORT/DATABASE`, with the options of a directory's `source` (`password_file`, `socket`, \
             `tls`, `ca`). Requests, visitors and lists are not sent. While it is away they wait in `directory`. The process that asks \
             directories connects, as its user; the recorder has no password and no socket.",
            "send = \"postgres://nagaya@10.0.0.5/history?password_file=/etc/nagaya/db&tls=on\"",
        ),
    ],
};

pub(super) const RECORD_OF_SITE: Key = key(
    "record",
    Kind::Flag,
    Value("true"),
    "Whether the recorder is told of the site's requests, where there is one.",
    "record = false",
);
