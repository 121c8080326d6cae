//! CPUs and memory nodes by their numbers, as the kernel's files list them: `0-3,8`.

use serde::{Deserialize, Serialize};

/// Longest text of a list.
const BYTES_MAX: usize = 256;
/// The greatest number: Linux is built for at most 8,192 CPUs.
const NUMBER_MAX: u32 = 8_191;

/// Numbers and ranges of numbers, at least one; digits, commas and dashes alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NumberList(String);

impl NumberList {
    /// Reads a list in its strict form: no blanks, no steps, no range backwards.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() <= BYTES_MAX && ranges(text).is_some()).then(|| Self(text.to_owned()))
    }

    /// The list as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has every number of a list that the kernel wrote, and that has one.
    pub(super) fn covers(&self, written: &str) -> bool {
        let (Some(own), Some(written)) = (ranges(&self.0), ranges(written)) else {
            return false;
        };
        let has = |number| {
            own.iter()
                .any(|(first, last)| (*first..=*last).contains(&number))
        };
        written
            .into_iter()
            .all(|(first, last)| (first..=last).all(has))
    }
}

impl TryFrom<String> for NumberList {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("not a list of numbers")
    }
}

impl From<NumberList> for String {
    fn from(list: NumberList) -> Self {
        list.0
    }
}

/// The first and the last of each range; of a single number both are it.
fn ranges(text: &str) -> Option<Vec<(u32, u32)>> {
    let each = text.split(',').map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        (first <= last).then_some((first, last))
    });
    each.collect()
}

/// Digits alone, where Rust's own reading takes a sign as well.
fn number(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.filter(|number| *number <= NUMBER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_and_ranges_are_a_list() {
        for text in ["0", "0-1", "0-3,8", "8,0-3", "0,0", "00", "8191"] {
            let list = NumberList::parse(text);
            assert_eq!(list.as_ref().map(NumberList::as_str), Some(text));
        }
        let long = "0,".repeat(BYTES_MAX / 2) + "0";
        for text in [
            "",
            ",",
            "0,",
            ",0",
            "-",
            "0-",
            "-1",
            "+1",
            "1-0",
            "0-1-2",
            " 0",
            "0\n",
            "0 1",
            "a",
            "0-7:1/2",
            "8192",
            "99999999999",
            "0\u{660}",
            &long,
        ] {
            assert_eq!(NumberList::parse(text), None, "{text:?}");
            assert!(NumberList::try_from(text.to_owned()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_list_covers_what_is_in_it() {
        for (own, written, expected) in [
            ("0,1", "0-1", true),
            ("0-3,8", "2-3,8", true),
            ("0-3,8", "2-4", false),
            ("1", "0", false),
            ("1", "", false),
        ] {
            let list = NumberList::parse(own).unwrap();
            assert_eq!(list.covers(written), expected, "{own} {written}");
        }
    }
}
