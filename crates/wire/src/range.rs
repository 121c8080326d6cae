//! Byte ranges (RFC 9110 §14): one range, or the whole.
//!
//! Several ranges are answered with the whole, which is always allowed and leaves nothing to be
//! multiplied by a hostile list. Ranges that are not well-formed are ignored, as the RFC has it.

use crate::{date, framing::decimal};

/// What to send for a GET of a known size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeAnswer {
    /// Everything, 200.
    Whole,
    /// These bytes, both ends included, 206.
    Part {
        /// First byte sent.
        first: u64,
        /// Last byte sent; smaller than the size.
        last: u64,
    },
    /// Nothing of it exists, 416.
    Unsatisfiable,
}

/// Decides by `Range` and `If-Range` for a representation with this strong tag and time.
pub fn evaluate(
    range: Option<&[u8]>,
    if_range: Option<&[u8]>,
    size: u64,
    etag: &[u8],
    modified_s: u64,
) -> RangeAnswer {
    let spec = range
        .and_then(strip_unit)
        .filter(|_| if_range.is_none_or(|value| still_same(value, etag, modified_s)));
    match spec {
        Some(spec) => answer(spec, size).unwrap_or(RangeAnswer::Whole),
        None => RangeAnswer::Whole,
    }
}

fn strip_unit(range: &[u8]) -> Option<&[u8]> {
    let (unit, spec) = range.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(spec)
}

/// `If-Range` asks for an exact match: a weak tag never is one.
fn still_same(if_range: &[u8], etag: &[u8], modified_s: u64) -> bool {
    match if_range {
        [b'"', ..] => if_range == etag,
        _ => date::parse(if_range) == Some(modified_s),
    }
}

/// `None` for anything but one well-formed range.
fn answer(spec: &[u8], size: u64) -> Option<RangeAnswer> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (spec.get(..dash)?, spec.get(dash + 1..)?);
    let (first, last) = match (position(first)?, position(last)?) {
        (None, None) => return None,
        (None, Some(0)) => return Some(RangeAnswer::Unsatisfiable),
        // An empty representation has no last bytes to send, yet is asked for in full.
        (None, Some(_)) if size == 0 => return Some(RangeAnswer::Whole),
        (None, Some(suffix)) => (size.saturating_sub(suffix), size - 1),
        (Some(first), None) => (first, u64::MAX),
        (Some(first), Some(last)) if last < first => return None,
        (Some(first), Some(last)) => (first, last),
    };
    if first >= size {
        return Some(RangeAnswer::Unsatisfiable);
    }
    Some(RangeAnswer::Part {
        first,
        last: last.min(size - 1),
    })
}

/// A position if digits are there; one too large for us is as good as the largest.
#[allow(
    clippy::option_option,
    reason = "ill-formed and left out are two things"
)]
fn position(digits: &[u8]) -> Option<Option<u64>> {
    match digits {
        [] => Some(None),
        _ if digits.iter().all(u8::is_ascii_digit) => {
            Some(Some(decimal(digits).unwrap_or(u64::MAX)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: &[u8] = b"\"abc\"";

    fn of_ten(range: &str) -> RangeAnswer {
        evaluate(Some(range.as_bytes()), None, 10, ETAG, 784_111_777)
    }

    #[test]
    fn one_range_is_answered() {
        for (range, first, last) in [
            ("bytes=0-0", 0, 0),
            ("bytes=0-9", 0, 9),
            ("BYTES=2-5", 2, 5),
            ("bytes=5-", 5, 9),
            ("bytes=-3", 7, 9),
            ("bytes=-10", 0, 9),
            ("bytes=-99", 0, 9),
            ("bytes=9-99999999999999999999999", 9, 9),
            ("bytes=-18446744073709551616", 0, 9),
        ] {
            assert_eq!(of_ten(range), RangeAnswer::Part { first, last }, "{range}");
        }
    }

    #[test]
    fn ranges_beyond_the_end_are_unsatisfiable() {
        for range in [
            "bytes=10-",
            "bytes=10-20",
            "bytes=-0",
            "bytes=99999999999999999999999-",
        ] {
            assert_eq!(of_ten(range), RangeAnswer::Unsatisfiable, "{range}");
        }
        assert_eq!(
            evaluate(Some(b"bytes=0-"), None, 0, ETAG, 0),
            RangeAnswer::Unsatisfiable
        );
        assert_eq!(
            evaluate(Some(b"bytes=-5"), None, 0, ETAG, 0),
            RangeAnswer::Whole
        );
    }

    #[test]
    fn several_and_malformed_ranges_are_the_whole() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-2",
            "bytes=0-1,3-4",
            "bytes=0-0,",
            "bytes=,0-0",
            "bytes= 0-1",
            "bytes=0 -1",
            "bytes=a-b",
            "bytes=0-1-2",
            "bytes=--1",
            "bytes=+0-1",
            "bytes:0-1",
            "items=0-1",
            "bytes =0-1",
            "bytes=0x0-1",
        ] {
            assert_eq!(of_ten(range), RangeAnswer::Whole, "{range}");
        }
        assert_eq!(evaluate(None, None, 10, ETAG, 0), RangeAnswer::Whole);
    }

    #[test]
    fn if_range_must_match_exactly() {
        let part = RangeAnswer::Part { first: 0, last: 1 };
        for (if_range, expected) in [
            ("\"abc\"", part),
            ("\"abd\"", RangeAnswer::Whole),
            ("W/\"abc\"", RangeAnswer::Whole),
            ("abc", RangeAnswer::Whole),
            ("*", RangeAnswer::Whole),
            ("Sun, 06 Nov 1994 08:49:37 GMT", part),
            ("Sun, 06 Nov 1994 08:49:38 GMT", RangeAnswer::Whole),
            ("Sun, 06 Nov 1994 08:49:36 GMT", RangeAnswer::Whole),
        ] {
            let answer = evaluate(
                Some(b"bytes=0-1"),
                Some(if_range.as_bytes()),
                10,
                ETAG,
                784_111_777,
            );
            assert_eq!(answer, expected, "{if_range}");
        }
    }
}
