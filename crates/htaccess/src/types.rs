//! What a file is, by the endings of its name: `AddType` and its like.

use std::collections::BTreeMap;

use crate::settings::ENTRY_BYTES;

/// Lines about endings that hold for one place.
pub(crate) const ENDINGS_MAX: usize = 2_048;

/// Handlers that a file may name besides those of PHP.
const HANDLERS: [&str; 3] = ["none", "default-handler", "cgi-script"];
/// Beginnings of names that hosts give PHP.
const PHP_BEGINNINGS: [&str; 6] = [
    "application/x-httpd-php",
    "application/x-httpd-ea-php",
    "application/x-httpd-alt-php",
    "application/x-lsphp",
    "x-httpd-php",
    "php",
];

/// Whether there is a handler of this name, in lower case.
pub(crate) fn is_handler(name: &str) -> bool {
    HANDLERS.contains(&name) || PHP_BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}

/// Whether a handler or media type of this name stands for PHP.
pub fn is_php(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    PHP_BEGINNINGS
        .iter()
        .any(|begin| name.starts_with(begin.as_bytes()))
}

/// What an ending says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Aspect {
    Type,
    Handler,
    Charset,
    Encoding,
    Language,
}

impl Aspect {
    const ALL: [Self; 5] = [
        Self::Type,
        Self::Handler,
        Self::Charset,
        Self::Encoding,
        Self::Language,
    ];
}

/// Lines about endings: each sets an aspect of files with such a name, or takes away what was set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Endings(BTreeMap<(Aspect, Vec<u8>), Option<Vec<u8>>>);

/// What files say of a file; where they say nothing the site's own table holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Described {
    /// The media type; `Some(None)` where the one of the site's table is taken away.
    pub media_type: Option<Option<Vec<u8>>>,
    /// The handler; `Some(None)` where one is taken away.
    pub handler: Option<Option<Vec<u8>>>,
    /// The charset.
    pub charset: Option<Vec<u8>>,
    /// Encodings, in the order they were applied.
    pub encodings: Vec<Vec<u8>>,
    /// The language.
    pub language: Option<Vec<u8>>,
}

impl Endings {
    pub(crate) fn add(&mut self, aspect: Aspect, ending: &[u8], value: Option<Vec<u8>>) {
        let ending = ending.strip_prefix(b".").unwrap_or(ending);
        let key = (aspect, ending.to_ascii_lowercase());
        // In Apache what a file takes away is taken away wherever in it that stands.
        if value.is_none() || self.0.get(&key) != Some(&None) {
            self.0.insert(key, value);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// About as many bytes as they take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let text = |text: &Vec<u8>| ENTRY_BYTES / 2 + text.len();
        let entries = self.0.iter();
        let bytes =
            entries.map(|((_, ending), value)| text(ending) + value.as_ref().map_or(0, text));
        bytes.sum()
    }

    pub(crate) fn then(&mut self, inner: &Self) {
        for (key, value) in &inner.0 {
            self.0.insert(key.clone(), value.clone());
        }
    }

    /// As much of a name as its type is told by: without endings whose type was taken away, and those
    /// that say something else and of which no type is known.
    pub(crate) fn typed<'n>(&self, mut name: &'n [u8], knows: impl Fn(&[u8]) -> bool) -> &'n [u8] {
        let others = [Aspect::Charset, Aspect::Encoding, Aspect::Language];
        while !self.0.is_empty()
            && let Some(dot) = name.iter().rposition(|byte| b"./".contains(byte))
        {
            let (before, ending) = name.split_at(dot);
            let Some(ending) = ending.strip_prefix(b".").map(<[u8]>::to_ascii_lowercase) else {
                break;
            };
            let says = |aspect| self.0.get(&(aspect, ending.clone()));
            let is_removed = matches!(says(Aspect::Type), Some(None));
            let is_other = || others.iter().any(|it| matches!(says(*it), Some(Some(_))));
            if !is_removed && (knows(name) || !is_other()) {
                break;
            }
            name = before;
        }
        name
    }

    /// What these say of a name: each of its endings, the last one last.
    pub(crate) fn describe(&self, name: &[u8]) -> Described {
        let mut described = Described::default();
        if self.0.is_empty() {
            return described;
        }
        let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        let base = base.strip_prefix(b".").unwrap_or(base);
        for ending in base.split(|byte| *byte == b'.').skip(1) {
            let mut key = (Aspect::Type, ending.to_ascii_lowercase());
            for aspect in Aspect::ALL {
                key.0 = aspect;
                let Some(value) = self.0.get(&key) else {
                    continue;
                };
                match (aspect, value) {
                    (Aspect::Type, None) if described.media_type.is_some() => {}
                    (Aspect::Type, value) => described.media_type = Some(value.clone()),
                    (Aspect::Handler, value) => described.handler = Some(value.clone()),
                    (Aspect::Charset, value) => described.charset.clone_from(value),
                    (Aspect::Language, value) => described.language.clone_from(value),
                    (Aspect::Encoding, Some(value)) => described.encodings.push(value.clone()),
                    (Aspect::Encoding, None) => {}
                }
            }
        }
        described
    }
}
