//! Byte ranges (RFC 9110 §14): one range, several, or the whole.
//!
//! What several ranges come to is bounded whatever is asked: those that meet are one, so that no
//! byte is sent twice; a list that is long, or longer and out of order, is answered with the whole
//! (RFC 9110 §14.2). Ranges that are not well-formed are ignored, as the RFC has it. What stands
//! between the parts of a reply is [`crate::multipart`]'s.

use crate::{date, framing::decimal, octets::list};

/// Most ranges that one request may list.
pub const RANGES_MAX: usize = 64;
/// Most ranges that may come in any order; more of them must ascend.
const UNORDERED_MAX: usize = 16;

/// Bytes of a representation, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub first: u64,
    /// Last byte; smaller than the representation's size.
    pub last: u64,
}

/// What to send for a GET of a known size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeAnswer {
    /// Everything, 200.
    Whole,
    /// These bytes, 206.
    Part(Span),
    /// Several parts in the order they were asked for, none of which meets another: 206 with
    /// `multipart/byteranges`.
    Parts(Vec<Span>),
    /// Nothing of it exists, 416.
    Unsatisfiable,
}

impl Span {
    /// How many bytes these are.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.last.saturating_sub(self.first).saturating_add(1)
    }

    /// Whether two spans overlap, or one begins where the other ends.
    fn meets(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    fn joined(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
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

/// `None` for anything but well-formed ranges, and for more of them than are answered.
fn answer(spec: &[u8], size: u64) -> Option<RangeAnswer> {
    if !spec.contains(&b',') {
        return one(spec, size);
    }
    if spec.split(|&byte| byte == b',').count() > RANGES_MAX {
        return None;
    }
    let mut spans = Vec::new();
    let mut specs = 0;
    for spec in list(spec) {
        specs += 1;
        match one(spec, size)? {
            RangeAnswer::Part(span) => spans.push(span),
            RangeAnswer::Unsatisfiable => {}
            whole => return Some(whole),
        }
    }
    if specs == 0 || spans.len() > UNORDERED_MAX && !spans.is_sorted_by_key(|span| span.first) {
        return None;
    }
    let parts = coalesced(&spans);
    Some(match parts.as_slice() {
        [] => RangeAnswer::Unsatisfiable,
        [part] => RangeAnswer::Part(*part),
        _ => RangeAnswer::Parts(parts),
    })
}

/// Spans of which none meets another, each where the first of those it was made of stood.
fn coalesced(spans: &[Span]) -> Vec<Span> {
    let mut parts: Vec<Span> = Vec::with_capacity(spans.len());
    for &span in spans {
        let mut joined = span;
        let mut place = None;
        // A span that grew may meet what it did not before.
        while let Some(at) = parts.iter().position(|part| part.meets(joined)) {
            joined = joined.joined(parts.remove(at));
            place = Some(place.map_or(at, |place: usize| place.min(at)));
        }
        parts.insert(place.unwrap_or(parts.len()), joined);
    }
    parts
}

/// `None` for anything but one well-formed range.
fn one(spec: &[u8], size: u64) -> Option<RangeAnswer> {
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
    Some(RangeAnswer::Part(Span {
        first,
        last: last.min(size - 1),
    }))
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

    fn part(first: u64, last: u64) -> RangeAnswer {
        RangeAnswer::Part(Span { first, last })
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
            assert_eq!(of_ten(range), part(first, last), "{range}");
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
    fn malformed_ranges_are_the_whole() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-2",
            "bytes=,",
            "bytes=0-1,4-3",
            "bytes=0-1,x",
            "bytes=0-1;3-4",
            "bytes=0-1 3-4,5-6",
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
        for (if_range, expected) in [
            ("\"abc\"", part(0, 1)),
            ("\"abd\"", RangeAnswer::Whole),
            ("W/\"abc\"", RangeAnswer::Whole),
            ("abc", RangeAnswer::Whole),
            ("*", RangeAnswer::Whole),
            ("Sun, 06 Nov 1994 08:49:37 GMT", part(0, 1)),
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

    #[test]
    fn several_ranges_are_parts_that_never_meet() {
        for (range, expected) in [
            ("bytes=0-1,3-4", &[(0, 1), (3, 4)][..]),
            ("bytes= 0-1 ,\t3-4", &[(0, 1), (3, 4)]),
            ("bytes=-1,0-0", &[(9, 9), (0, 0)]),
            ("bytes=8-,4-5,0-1", &[(8, 9), (4, 5), (0, 1)]),
            ("bytes=0-1,20-30,3-4,-0", &[(0, 1), (3, 4)]),
            ("bytes=0-2,2-4,8-8", &[(0, 4), (8, 8)]),
            ("bytes=0-1,2-3,8-8", &[(0, 3), (8, 8)]),
            ("bytes=8-8,0-1,2-3", &[(8, 8), (0, 3)]),
            ("bytes=0-0,4-4,8-8,1-3", &[(0, 4), (8, 8)]),
            ("bytes=0-0,8-8,4-4,3-5", &[(0, 0), (8, 8), (3, 5)]),
            ("bytes=0-0,,2-2,", &[(0, 0), (2, 2)]),
        ] {
            let spans = expected.iter().map(|&(first, last)| Span { first, last });
            assert_eq!(
                of_ten(range),
                RangeAnswer::Parts(spans.collect()),
                "{range}"
            );
        }
    }

    #[test]
    fn several_ranges_of_which_one_is_left_are_one_part() {
        for (range, expected) in [
            ("bytes=0-1,1-4", part(0, 4)),
            ("bytes=0-,0-,0-", part(0, 9)),
            ("bytes=0-4,5-9", part(0, 9)),
            ("bytes=5-9,0-4", part(0, 9)),
            ("bytes=0-0,4-4,8-8,1-3,5-7", part(0, 8)),
            ("bytes=20-30,2-3", part(2, 3)),
            ("bytes=0-0,", part(0, 0)),
            ("bytes=,0-0", part(0, 0)),
            ("bytes=20-30,-0", RangeAnswer::Unsatisfiable),
        ] {
            assert_eq!(of_ten(range), expected, "{range}");
        }
        let whole = evaluate(Some(b"bytes=0-0,-5"), None, 0, ETAG, 0);
        assert_eq!(whole, RangeAnswer::Whole);
    }

    #[test]
    fn long_lists_and_longer_ones_out_of_order_are_the_whole() {
        let listed = |firsts: &mut dyn Iterator<Item = usize>| {
            let specs: Vec<_> = firsts.map(|first| format!("{first}-{first}")).collect();
            let range = format!("bytes={}", specs.join(","));
            match evaluate(Some(range.as_bytes()), None, 1000, ETAG, 0) {
                RangeAnswer::Parts(parts) => parts.len(),
                RangeAnswer::Whole => 0,
                other => panic!("{range}: {other:?}"),
            }
        };
        let ascending = |count| (0..count).map(|at| at * 2);
        assert_eq!(listed(&mut ascending(RANGES_MAX)), RANGES_MAX);
        assert_eq!(listed(&mut ascending(RANGES_MAX + 1)), 0);
        assert_eq!(listed(&mut ascending(UNORDERED_MAX).rev()), UNORDERED_MAX);
        assert_eq!(listed(&mut ascending(UNORDERED_MAX + 1).rev()), 0);
        let empty = format!("bytes=0-0{}", ",".repeat(RANGES_MAX));
        let answer = evaluate(Some(empty.as_bytes()), None, 10, ETAG, 0);
        assert_eq!(answer, RangeAnswer::Whole);
    }
}
