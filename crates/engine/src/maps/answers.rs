//! What maps have answered to one request.

use std::sync::Arc;

/// A map's answer; `None` is none.
pub(crate) type Answer = Option<Arc<[u8]>>;

/// What maps have answered to one request. It asks nothing twice, so all that looks at an answer
/// sees the same one.
#[derive(Debug, Default)]
pub struct Answers(Vec<Heard>);

#[derive(Debug)]
struct Heard {
    map: usize,
    key: Vec<u8>,
    answer: Answer,
}

impl Answers {
    /// Nothing was asked.
    pub const NONE: Self = Self(Vec::new());

    /// What a map answered to a key; `None` where it was not asked.
    pub fn find(&self, map: usize, key: &[u8]) -> Option<Option<&[u8]>> {
        let found = self
            .0
            .iter()
            .find(|heard| heard.map == map && heard.key == key)?;
        Some(found.answer.as_deref())
    }

    /// Keeps an answer.
    pub(super) fn keep(&mut self, map: usize, key: Vec<u8>, answer: Answer) {
        self.0.push(Heard { map, key, answer });
    }

    /// Forgets the last request.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// An answer as a number that can be compared.
pub(crate) fn number(answer: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(answer.trim_ascii()).ok()?;
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// What a map is to be asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Index of the map in the generation.
    pub(crate) map: usize,
    pub(crate) key: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_by_map_and_key() {
        let mut answers = Answers::default();
        answers.keep(1, b"a".to_vec(), Some(Arc::from(&b"x"[..])));
        answers.keep(1, b"b".to_vec(), None);
        assert_eq!(answers.find(1, b"a"), Some(Some(&b"x"[..])));
        assert_eq!(answers.find(1, b"b"), Some(None));
        assert_eq!((answers.find(0, b"a"), answers.find(1, b"")), (None, None));
        answers.clear();
        assert_eq!(answers.find(1, b"a"), None);
    }

    #[test]
    fn only_what_can_be_compared_is_a_number() {
        for (text, expected) in [
            ("3.5", Some(3.5)),
            (" 10.00\r", Some(10.0)),
            ("-1e3", Some(-1000.0)),
            ("4", Some(4.0)),
            ("", None),
            ("3.5, 1", None),
            ("NaN", None),
            ("inf", None),
            ("0x10", None),
            ("load", None),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text:?}");
        }
    }
}
