//! Conditional requests, in the order of RFC 9110 §13.2.2.
//!
//! Only the verdict: ranges are judged after it, by [`crate::range`].

use crate::{date, field_id::FieldId, fields::Fields, method::Method};

/// What the preconditions come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Answer as if there were none.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    PreconditionFailed,
}

const CONDITIONS: u64 = FieldId::IfMatch.bit()
    | FieldId::IfNoneMatch.bit()
    | FieldId::IfModifiedSince.bit()
    | FieldId::IfUnmodifiedSince.bit();

/// Judges the preconditions against a representation; `None` for both means there is none.
pub fn evaluate(
    fields: &Fields,
    method: Method,
    etag: Option<&[u8]>,
    modified_s: Option<u64>,
) -> Verdict {
    if !fields.contains_any(CONDITIONS) {
        return Verdict::Proceed;
    }
    let exists = etag.is_some() || modified_s.is_some();
    let reading = matches!(method, Method::Get | Method::Head);
    if fields.contains(FieldId::IfMatch) {
        if !matches_any(fields, FieldId::IfMatch, etag, exists, strong_eq) {
            return Verdict::PreconditionFailed;
        }
    } else if later_than(fields, FieldId::IfUnmodifiedSince, modified_s) == Some(true) {
        return Verdict::PreconditionFailed;
    }
    if fields.contains(FieldId::IfNoneMatch) {
        match matches_any(fields, FieldId::IfNoneMatch, etag, exists, weak_eq) {
            true if reading => return Verdict::NotModified,
            true => return Verdict::PreconditionFailed,
            false => {}
        }
    } else if reading && later_than(fields, FieldId::IfModifiedSince, modified_s) == Some(false) {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// Whether the representation is newer than the date of a field; a repeated or malformed one says nothing.
fn later_than(fields: &Fields, id: FieldId, modified_s: Option<u64>) -> Option<bool> {
    let mut values = fields.get_all(id);
    match (values.next(), values.next()) {
        (Some(value), None) => Some(modified_s? > date::parse(value)?),
        _ => None,
    }
}

fn matches_any(
    fields: &Fields,
    id: FieldId,
    etag: Option<&[u8]>,
    exists: bool,
    same: fn(&[u8], &[u8]) -> bool,
) -> bool {
    fields.get_all(id).any(|value| match etag {
        _ if value == b"*" => exists,
        Some(etag) => Tags(value).any(|tag| same(tag, etag)),
        None => false,
    })
}

/// Equal, and neither weak.
fn strong_eq(left: &[u8], right: &[u8]) -> bool {
    left == right && !left.starts_with(b"W/")
}

fn weak_eq(left: &[u8], right: &[u8]) -> bool {
    left.strip_prefix(b"W/").unwrap_or(left) == right.strip_prefix(b"W/").unwrap_or(right)
}

/// Entity tags of a list, which may have commas inside their quotes. Ends at the first that is none.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let blanks = self
            .0
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b','))
            .count();
        let list = self.0.get(blanks..)?;
        let opening = if list.starts_with(b"W/") { 2 } else { 0 };
        let opaque = list.get(opening..)?.strip_prefix(b"\"")?;
        let closing = opaque.iter().position(|&byte| byte == b'"')?;
        let (tag, rest) = list.split_at_checked(opening + closing + 2)?;
        self.0 = rest;
        Some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: &[u8] = b"\"a\"";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const MODIFIED_S: u64 = 784_111_777;

    fn judge(method: Method, lines: &[(&str, &str)]) -> Verdict {
        let mut fields = Fields::default();
        for (name, value) in lines {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        evaluate(&fields, method, Some(ETAG), Some(MODIFIED_S))
    }

    #[test]
    fn each_condition_alone() {
        use Verdict::{NotModified, PreconditionFailed, Proceed};
        for (name, value, get, put) in [
            ("If-Match", "\"a\"", Proceed, Proceed),
            ("If-Match", "\"b\", \"a\"", Proceed, Proceed),
            ("If-Match", "*", Proceed, Proceed),
            ("If-Match", "\"b\"", PreconditionFailed, PreconditionFailed),
            (
                "If-Match",
                "W/\"a\"",
                PreconditionFailed,
                PreconditionFailed,
            ),
            (
                "If-Match",
                "\"x,\"a\"\"",
                PreconditionFailed,
                PreconditionFailed,
            ),
            ("If-Match", "", PreconditionFailed, PreconditionFailed),
            ("If-None-Match", "\"a\"", NotModified, PreconditionFailed),
            ("If-None-Match", "W/\"a\"", NotModified, PreconditionFailed),
            ("If-None-Match", "*", NotModified, PreconditionFailed),
            (
                "If-None-Match",
                "\"b,c\" , \"a\"",
                NotModified,
                PreconditionFailed,
            ),
            ("If-None-Match", "\"b\"", Proceed, Proceed),
            ("If-None-Match", "a", Proceed, Proceed),
            ("If-Modified-Since", SAME, NotModified, Proceed),
            ("If-Modified-Since", AFTER, NotModified, Proceed),
            ("If-Modified-Since", BEFORE, Proceed, Proceed),
            ("If-Modified-Since", "yesterday", Proceed, Proceed),
            ("If-Unmodified-Since", SAME, Proceed, Proceed),
            (
                "If-Unmodified-Since",
                BEFORE,
                PreconditionFailed,
                PreconditionFailed,
            ),
            ("If-Unmodified-Since", "yesterday", Proceed, Proceed),
        ] {
            assert_eq!(
                judge(Method::Get, &[(name, value)]),
                get,
                "GET {name}: {value}"
            );
            assert_eq!(
                judge(Method::Put, &[(name, value)]),
                put,
                "PUT {name}: {value}"
            );
        }
        assert_eq!(judge(Method::Get, &[]), Proceed);
    }

    #[test]
    fn tags_overrule_dates() {
        let not_matched = [("If-None-Match", "\"b\""), ("If-Modified-Since", AFTER)];
        assert_eq!(judge(Method::Get, &not_matched), Verdict::Proceed);
        let matched = [("If-Match", "\"a\""), ("If-Unmodified-Since", BEFORE)];
        assert_eq!(judge(Method::Get, &matched), Verdict::Proceed);
        let failed_first = [("If-None-Match", "\"a\""), ("If-Match", "\"b\"")];
        assert_eq!(
            judge(Method::Get, &failed_first),
            Verdict::PreconditionFailed
        );
        let both = [("If-Match", "\"a\""), ("If-None-Match", "\"a\"")];
        assert_eq!(judge(Method::Head, &both), Verdict::NotModified);
    }

    #[test]
    fn a_second_line_continues_the_list() {
        let lines = [("If-None-Match", "\"b\""), ("If-None-Match", "\"a\"")];
        assert_eq!(judge(Method::Get, &lines), Verdict::NotModified);
    }

    #[test]
    fn without_a_representation_a_star_does_not_match() {
        let mut fields = Fields::default();
        fields.push(b"If-Match", b"*");
        assert_eq!(
            evaluate(&fields, Method::Put, None, None),
            Verdict::PreconditionFailed
        );
        fields.clear();
        fields.push(b"If-None-Match", b"*");
        assert_eq!(evaluate(&fields, Method::Put, None, None), Verdict::Proceed);
    }
}
