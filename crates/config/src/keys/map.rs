//! Keys of `[maps.NAME]`.

use super::amounts::{DAY, GIB, HOUR, KIB, MIB};
use super::key::Fallback::{Absent, Value};
use super::key::{Kind, Section, key};

pub(crate) const MAP: Section = Section {
    title: "[maps.NAME]",
    about: "What answers a key with a text: a program, as Apache's `RewriteMap prg:`, or a file, as `txt:`. \
        Rules ask it by `match = { map = \"NAME\", … }`, texts by `${NAME:KEY|DEFAULT}`. \
        A name is letters, digits, `-`, `_` and `.`.",
    keys: &[
        key(
            "program",
            Kind::Other("list of texts: a program and its arguments"),
            Absent("`file` has the answers"),
            "A program that reads a key a line and answers each with a line; `NULL` is no answer. One without a slash is \
             looked for in `/usr/local/bin`, `/usr/bin` and `/bin`; any other, and what its arguments name, is relative to \
             the directory of the configuration file, where it starts. It is started with the gateway, and again when it ends.",
            "program = [\"perl\", \"loadaverage.pl\"]",
        ),
        key(
            "file",
            Kind::Text,
            Absent("`program` has the answers"),
            "A file of lines: a key, white space, its value. Empty lines and those that begin with `#` are left out. \
             It is read again within a second when it has changed; 16 MiB at most. Replace it by `mv`, not in place.",
            "file = \"moved.txt\"",
        ),
        key(
            "user",
            Kind::Text,
            Absent("the server's user"),
            "Who the program runs as. Uid 0 is refused.",
            "user = \"maps\"",
        ),
        key(
            "processes",
            Kind::Count(1, 64),
            Value("1"),
            "How many of the program run. More than one suit programs that remember nothing from one question to the next.",
            "processes = 2",
        ),
        key(
            "timeout",
            Kind::Duration(1, HOUR),
            Value("2s"),
            "How long a question may take. One that takes longer gets `on_error`; a program that answers nobody \
             for so long is ended and started again.",
            "timeout = \"500ms\"",
        ),
        key(
            "waiting",
            Kind::Count(1, 65_536),
            Value("1024"),
            "Questions that may wait for one process; further ones get `on_error` at once. They are fewer while it is \
             behind: no more than it can answer in half of `timeout`.",
            "waiting = 100",
        ),
        key(
            "cache",
            Kind::Duration(1, DAY),
            Absent("the program is asked each time"),
            "For how long an answer is used for the same key. Questions with one key that come meanwhile share one.",
            "cache = \"1m\"",
        ),
        key(
            "cache_entries",
            Kind::Count(1, 1_000_000),
            Value("4096"),
            "Answers that are kept; the oldest go first.",
            "cache_entries = 100",
        ),
        key(
            "cache_bytes",
            Kind::Size(KIB, GIB),
            Value("1MiB"),
            "Keys and answers that are kept, in total.",
            "cache_bytes = \"64KiB\"",
        ),
        key(
            "on_error",
            Kind::Text,
            Absent("no answer, as if it had said `NULL`"),
            "The answer where the program gives none: it has died, hangs, floods or is asked too much.",
            "on_error = \"0.00\"",
        ),
        key(
            "key_bytes",
            Kind::Size(1, MIB),
            Value("4KiB"),
            "Longest key; one that is longer, or has a line's end in it, is not asked and gets `on_error`.",
            "key_bytes = 256",
        ),
        key(
            "answer_bytes",
            Kind::Size(1, MIB),
            Value("4KiB"),
            "Longest answer. A program that says more is ended and started again; a file's line with a longer value is left out.",
            "answer_bytes = 64",
        ),
    ],
};
