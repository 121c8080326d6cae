//! Keys of an entry of `include`.

use super::key::Fallback::{Required, Value};
use super::key::{Kind, Section, key};

pub(crate) const INCLUDE: Section = Section {
    title: "include = [{ … }]",
    about: "Files, and what becomes of the others if one of them is broken. An entry of `include` that is a text is one of \
        `files` with `broken = \"refuse\"`.",
    keys: &[
        key(
            "files",
            Kind::Other("file glob, or list of them"),
            Required,
            "The files.",
            "files = [\"sites.d/*.toml\", \"more.d/*.toml\"]",
        ),
        key(
            "broken",
            Kind::Choice(&["refuse", "keep"]),
            Value("refuse"),
            "What a file that is broken comes to. `refuse`: nothing of the configuration is taken. `keep`: that file is \
             set aside, everything else is taken. Its last good version stays in force, over a restart as well (see \
             `last_good`); where there is none that goes with the rest, the file is left out. `nagaya check`, `nagaya \
             status` and the error log say so. Files that such a file includes are kept likewise.",
            "broken = \"keep\"",
        ),
    ],
};
