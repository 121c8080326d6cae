//! `rewrite`: what is asked for in the place of what was.

use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};

pub(crate) const REWRITE_OF_LEVEL: Key = key(
    "rewrite",
    Kind::Other("list of tables"),
    Absent("nothing is rewritten"),
    "What is asked for in the place of what was, entry by entry. A site's is done once, before a file is looked for \
     and rules are tried, and then that of the mount below which the path is. A rule's is done when the rule matches: \
     then the file is looked for and all rules are tried again, with the new path; what matched before stays in force, and each rule rewrites a request once.",
    "rewrite = [{ from = '^/media/(.+)$', to = \"/show.php?media=$1\", unless = \"file\" }]",
);

pub(crate) const REWRITE: Section = Section {
    title: "rewrite = [{ … }]",
    about: "Another path in the place of the one that was asked for, on a site, a mount or a rule. Programs are told \
        the new one, and in `REQUEST_URI` what the client sent. More than 10 rounds of rules are answered 500 (`rewrite_loop`).",
    keys: &[
        key(
            "from",
            Kind::Other("regular expression"),
            Required,
            "It is found in the canonical path, which begins with `/`, as the entries above have left it; `^` and `$` \
             anchor it.",
            "from = '^/article/([0-9]+)$'",
        ),
        key(
            "to",
            Kind::Other("template"),
            Required,
            "The whole of what is asked for instead, as clients write it: a path, and behind a `?` a query. `$1` and \
             `${name}` are groups of `from`, `$0` all that was found; empty where a group was not met. Their text is \
             escaped, in a query `&`, `=` and `+` as well.",
            "to = \"/article.php?id=$1\"",
        ),
        key(
            "query",
            Kind::Choice(&["append", "drop", "replace"]),
            Absent("`\"replace\"` where `to` has a query; else the client's stays"),
            "What becomes of the client's query: put behind that of `to`, taken away, or replaced by that of `to`.",
            "query = \"append\"",
        ),
        key(
            "unless",
            Kind::Other("`\"file\"`, `\"directory\"`, or a list of them"),
            Absent("whatever stands there"),
            "Leaves a path alone at which such a thing stands, as `$path` and `$path/` of `try` find it.",
            "unless = [\"file\", \"directory\"]",
        ),
        key(
            "last",
            Kind::Flag,
            Value("false"),
            "Whether the entries below are passed over where this one applies.",
            "last = true",
        ),
    ],
};
