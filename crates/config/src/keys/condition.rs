//! `match`: what a request must be like.

use super::amounts::HOUR;
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Kind, Section, key};

pub(crate) const MATCH: Section = Section {
    title: "match = { … }",
    about: "Conditions of a rule or a limit. In globs `*` is any bytes including `/`, `?` one byte, `[a-z]` a class and \
        `[!a-z]` its opposite; `[*]` is a star. A pattern over a file or path without a leading `/` matches at its end.",
    keys: &[
        key(
            "file",
            Kind::Other("glob or list of globs"),
            Absent("any"),
            "The file the request was resolved to matches one of these. A request for which there is no file matches no pattern, not even \
             `*`: what missing ones are to meet as well goes by `path`, or by `exists`. On a site without a root \
             the path stands for the file.",
            "file = \"*.php\"",
        ),
        key(
            "file_regex",
            Kind::Other("regular expression"),
            Absent("any"),
            "A regular expression found in the name of that file below its root, or the mount's, which begins with `/`. \
             As in `path_regex`, looking around and referring back are counted in steps; its groups stand in no text.",
            "file_regex = '^/(ab|cd)[^/]*\\.php$'",
        ),
        key(
            "path",
            Kind::Other("glob or list of globs"),
            Absent("any"),
            "The canonical path, decoded, matches one of these.",
            "path = [\"/api/*\", \"/rpc\"]",
        ),
        key(
            "path_regex",
            Kind::Other("regular expression"),
            Absent("any"),
            "A regular expression found in the canonical path; `^` and `$` anchor it. Its groups may stand in the rule's \
             texts, as `$1` or `${name}`. One that looks around or refers back to a group (`(?!…)`, `\\1`) is matched within \
             50,000 steps and a few for each byte; a request that takes more is answered 500 (`regex_steps`).",
            "path_regex = '^/v[0-9]+/'",
        ),
        key(
            "method",
            Kind::Other("method or list of methods"),
            Absent("any"),
            "The request's method is one of these.",
            "method = [\"GET\", \"HEAD\"]",
        ),
        key(
            "header",
            Kind::Other("table of globs, regular expressions or `true`"),
            Absent("any"),
            "A field of that name has a value matching the glob, or in which the regular expression is found; `true`: is \
             there at all.",
            "header = { User-Agent = \"*bot*\", Cookie = true }",
        ),
        key(
            "query",
            Kind::Other("table of globs, regular expressions or `true`"),
            Absent("any"),
            "A parameter of that name has such a value, decoded; `true`: is there at all.",
            "query = { debug = true, page = \"[0-9]*\" }",
        ),
        key(
            "cookie",
            Kind::Other("table of globs, regular expressions or `true`"),
            Absent("any"),
            "A cookie of that name has such a value, as it was sent; `true`: is there at all.",
            "cookie = { beta = \"1\", session = true }",
        ),
        key(
            "client",
            Kind::Other("address or network, or a list of them"),
            Absent("any"),
            "The client, resolved through trusted proxies, is in one of these networks.",
            "client = [\"10.0.0.0/8\", \"::1\"]",
        ),
        key(
            "exists",
            Kind::Flag,
            Absent("either"),
            "Whether the request was resolved to something that exists.",
            "exists = false",
        ),
        key(
            "server_env",
            Kind::Text,
            Absent("any"),
            "A `RewriteRule` of the virtual host, in a section of `htaccess.directories` with `context = \"server\"`, has set \
             this variable by its flag `E`. What `.htaccess` files set is another matter. A rule that asks for it matches, \
             and forwards, the path that those rules have come to.",
            "server_env = \"forwarded\"",
        ),
        key(
            "cost_above",
            Kind::Duration(1, HOUR),
            Absent("any"),
            "A run of the file the request was resolved to takes more processor time than this: the mean of its last runs, as a \
             CGI program or in a pool of PHP. A file of which fewer than 20 runs are known costs nothing, nor does one \
             that does not run. What is known changes when the mean has moved by a fifth, so that no file goes to and fro.",
            "cost_above = \"50ms\"",
        ),
        key(
            "row",
            Kind::Text,
            Absent("any"),
            "The row of the host says something in this column, on a site whose `hosts` are those of a directory.",
            "row = \"upstream\"",
        ),
        key(
            "map",
            Kind::Text,
            Absent("no map is asked"),
            "The map that is asked, when all other conditions hold; the request waits for its answer. \
             Answers are compared by the keys below, all of which must hold.",
            "map = \"load\"",
        ),
        key(
            "key",
            Kind::Other("template"),
            Value("\"\""),
            "What the map is asked.",
            "key = \"$host\"",
        ),
        key(
            "above",
            Kind::Other("number"),
            Absent("any"),
            "The map's answer is a number above this one. What is no number is not above anything.",
            "above = 3.0",
        ),
        key(
            "below",
            Kind::Other("number"),
            Absent("any"),
            "The map's answer is a number below this one.",
            "below = 0.5",
        ),
        key(
            "equals",
            Kind::Text,
            Absent("any"),
            "The map's answer is this text, byte for byte.",
            "equals = \"blue\"",
        ),
        key(
            "answered",
            Kind::Flag,
            Value("true"),
            "Whether the map has an answer. `NULL` from a program, and a key that a file does not have, are none.",
            "answered = false",
        ),
        key(
            "not",
            Kind::Other("table or list of tables"),
            Absent("nothing is excluded"),
            "Conditions that must not all hold; of a list, those of no table.",
            "not = { method = \"GET\" }",
        ),
    ],
};

pub(crate) const TEXT_MATCH: Section = Section {
    title: "match.header.NAME = { … }",
    about: "What a field, a parameter of the query or a cookie must be like, where a glob does not say it: \
        `header = { User-Agent = { regex = '(?i)bot' } }`.",
    keys: &[key(
        "regex",
        Kind::Other("regular expression"),
        Required,
        "It is found somewhere in the value; `^` and `$` anchor it, `(?i)` takes capitals and small letters alike. \
         As in `path_regex`, looking around and referring back are counted in steps.",
        "regex = '(?i)bot|crawl'",
    )],
};
