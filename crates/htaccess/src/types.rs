//! What a file is, by the endings of its name: `AddType` and its like.

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

/// What an ending says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aspect {
    Type,
    Handler,
    Charset,
    Encoding,
    Language,
    /// A filter; of those only compression is had.
    Filter,
}

/// Lines about endings: each sets an aspect, or takes away what was set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Endings(Vec<(Aspect, Vec<u8>, Option<Vec<u8>>)>);

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
    /// Whether it is compressed on its way.
    pub is_compressed: bool,
}

impl Endings {
    pub(crate) fn add(&mut self, aspect: Aspect, ending: &[u8], value: Option<Vec<u8>>) {
        let ending = ending
            .strip_prefix(b".")
            .unwrap_or(ending)
            .to_ascii_lowercase();
        self.0
            .retain(|(have, name, _)| *have != aspect || *name != ending);
        self.0.push((aspect, ending, value));
    }

    pub(crate) fn then(&mut self, inner: &Self) {
        for (aspect, ending, value) in &inner.0 {
            self.add(*aspect, ending, value.clone());
        }
    }

    /// What these say of a name: each of its endings, the last one last.
    pub(crate) fn describe(&self, name: &[u8]) -> Described {
        let mut described = Described::default();
        let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        let base = base.strip_prefix(b".").unwrap_or(base);
        for ending in base.split(|byte| *byte == b'.').skip(1) {
            let ending = ending.to_ascii_lowercase();
            for (aspect, name, value) in &self.0 {
                if *name != ending {
                    continue;
                }
                match (aspect, value) {
                    (Aspect::Type, value) => described.media_type = Some(value.clone()),
                    (Aspect::Handler, value) => described.handler = Some(value.clone()),
                    (Aspect::Charset, value) => described.charset.clone_from(value),
                    (Aspect::Language, value) => described.language.clone_from(value),
                    (Aspect::Encoding, Some(value)) => described.encodings.push(value.clone()),
                    (Aspect::Encoding, None) => {}
                    (Aspect::Filter, value) => described.is_compressed = value.is_some(),
                }
            }
        }
        described
    }
}
