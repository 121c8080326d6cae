//! Keys of `[directories.NAME]`.

use super::amounts::{DAY, HOUR};
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};

pub(super) const DIRECTORIES_OF_PROCESS: Key = key(
    "directories",
    Kind::Other("table of tables"),
    Value("{}"),
    "Directories, by name: tables of databases that say which hosts there are.",
    "directories = { customers = { source = \"file:customers.csv\" } }",
);

pub(crate) const DIRECTORY: Section = Section {
    title: "[directories.NAME]",
    about: "A table that says which hosts there are and what is meant by each, asked by a process of its own that has \
        its passwords. Rows are kept: a source that does not answer costs only hosts that were never asked for. \
        A name is letters, digits, `-` and `_`. Directories stand in the first file alone.",
    keys: &[
        key(
            "source",
            Kind::Text,
            Required,
            "Where the table is: `mysql://USER@HOST:PORT/DATABASE`, `postgres://…` likewise, `sqlite:FILE`, or `file:FILE` with \
             a name that ends in `.csv` (the first line names the columns) or `.jsonl` (an object a line), which has a column \
             `host`. Behind `?` and divided by `&`: `password_file=FILE`, whose first line is the password and which the \
             supervisor alone reads, `socket=PATH` instead of an address, and `tls=on` with `ca=FILE`, PEM of the \
             authorities where they are not the machine's. Files are relative to the configuration file.",
            "source = \"postgres://nagaya@db.internal/hosting?password_file=db.password&tls=on\"",
        ),
        key(
            "query",
            Kind::Text,
            Absent("the source is a file"),
            "What is asked for a host, which is `$host` there. It gives one row, or none; its columns are the row's.",
            "query = \"SELECT tenant, upstream FROM domains WHERE host = $host\"",
        ),
        key(
            "all",
            Kind::Text,
            Absent("rows are known once they were asked for"),
            "What lists all rows, with a column `host`, to fill the snapshot: at start, and every hour. With `$after`, which is the last host of \
             the page before (at first an empty text), it is asked page by page; else it may give 10,000 rows.",
            "all = \"SELECT host, tenant, upstream FROM domains WHERE host > $after ORDER BY host LIMIT 1000\"",
        ),
        key(
            "changes",
            Kind::Text,
            Absent("a changed row is in force after `keep`"),
            "How changed rows are heard of: a query that is asked each second and gives a growing number and a host for each \
             change above `$since`, or for `postgres` `LISTEN CHANNEL`, whose messages are hosts.",
            "changes = \"SELECT id, host FROM changes WHERE id > $since ORDER BY id LIMIT 1000\"",
        ),
        key(
            "memcached",
            Kind::Text,
            Absent("the source is asked at once"),
            "A memcached that is asked before the source, and told what that said.",
            "memcached = \"127.0.0.1:11211\"",
        ),
        key(
            "trust",
            Kind::Choice(&["signed", "unsigned"]),
            Value("signed"),
            "Which rows from memcached are believed: those that this directory has signed, under a key of its own, or all that \
             stand under a host's name, for tables that others fill: an object in JSON, or a text that is the column `upstream`. \
             Whoever reaches such a memcached says which sites there are.",
            "trust = \"unsigned\"",
        ),
        key(
            "keep",
            Kind::Duration(1_000, DAY),
            Value("60s"),
            "How long a row is fresh. Then it is asked for again, and serves meanwhile.",
            "keep = \"5m\"",
        ),
        key(
            "missing",
            Kind::Duration(100, DAY),
            Value("10s"),
            "How long it is believed that a host has no row.",
            "missing = \"1m\"",
        ),
        key(
            "stale",
            Kind::Duration(0, 365 * DAY),
            Value("7d"),
            "How long a row serves while the source does not answer.",
            "stale = \"30d\"",
        ),
        key(
            "snapshot",
            Kind::Text,
            Absent("rows are forgotten when the process ends"),
            "A file in which rows are kept, so that a machine starts without its database. It is made, for the process's user \
             alone; the directory it lies in has to be there and to be that user's to write.",
            "snapshot = \"/var/lib/nagaya/customers/rows\"",
        ),
        key(
            "wait",
            Kind::Duration(10, HOUR),
            Value("1s"),
            "How long a request waits for a row; then it is answered 503.",
            "wait = \"500ms\"",
        ),
        key(
            "questions",
            Kind::Other("rate: `\"200/s\"`, also `/m`, `/h` and `/d`"),
            Value("\"200/s\""),
            "How many hosts that are not known may be asked for. Those above it wait in turns by the client's network; who is \
             not asked for within `wait` is answered 503.",
            "questions = \"50/s\"",
        ),
        key(
            "uid_min",
            Kind::Count(1, 4_294_967_294),
            Value("1000"),
            "The least uid that a row's `user` may have.",
            "uid_min = 10000",
        ),
        key(
            "user",
            Kind::Text,
            Absent(
                "`nagaya-directory` where there is such a user, or another than the server's that every system has",
            ),
            "The user that the process becomes when started as root. Uid 0 is refused. All directories name the same.",
            "user = \"directory\"",
        ),
    ],
};
