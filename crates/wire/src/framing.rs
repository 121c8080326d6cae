//! How long a body is: the one decision both sides share (RFC 9112 §6).
//!
//! Any doubt is refused. Two lengths are a doubt even when they are equal, and so is a transfer
//! coding beside a length: whoever sends both hopes that two readers choose differently.

use crate::{
    field_id::FieldId,
    fields::Fields,
    octets::{field_name_ok, list},
    refusal::Refusal,
};

/// Versions of HTTP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2.
    Http2,
}

/// How a request's body is framed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Framing {
    /// No body and no word about one.
    #[default]
    None,
    /// `Content-Length`, zero included.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

const FRAMING_FIELDS: u64 = FieldId::ContentLength.bit() | FieldId::TransferEncoding.bit();

/// What the fields declare about the body.
pub(crate) fn declared(fields: &Fields, version: Version) -> Result<Framing, Refusal> {
    if !fields.contains_any(FRAMING_FIELDS) {
        return Ok(Framing::None);
    }
    if !fields.contains(FieldId::TransferEncoding) {
        return length(fields).map(Framing::Length);
    }
    if version == Version::Http10 {
        return Err(Refusal::bad("te_in_http10"));
    }
    if fields.contains(FieldId::ContentLength) {
        return Err(Refusal::bad("te_and_cl"));
    }
    let mut codings = fields.get_all(FieldId::TransferEncoding);
    match (codings.next(), codings.next()) {
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (Some(coding), None) => Err(bad_coding(coding)),
        _ => Err(Refusal::bad("repeated_te")),
    }
}

/// The one `Content-Length`: digits and nothing else.
fn length(fields: &Fields) -> Result<u64, Refusal> {
    let mut lengths = fields.get_all(FieldId::ContentLength);
    match (lengths.next(), lengths.next()) {
        (Some(digits), None) => decimal(digits).ok_or(Refusal::bad("bad_cl")),
        _ => Err(Refusal::bad("repeated_cl")),
    }
}

/// A number of digits only, if it fits.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            None
        } else {
            number.checked_mul(10)?.checked_add(u64::from(digit))
        }
    })
}

/// 501 for a well-formed list with a coding nobody here knows, else 400.
fn bad_coding(value: &[u8]) -> Refusal {
    let well_formed = value
        .split(|&byte| byte == b',')
        .all(|element| field_name_ok(element.trim_ascii()));
    let is_chunked = |element: &[u8]| element.eq_ignore_ascii_case(b"chunked");
    let chunked = list(value).filter(|element| is_chunked(element)).count();
    let chunked_last = list(value).last().is_some_and(is_chunked);
    if well_formed && (chunked == 0 || (chunked == 1 && chunked_last)) {
        Refusal::new(501, "unknown_te")
    } else {
        Refusal::bad("bad_te")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(version: Version, lines: &[(&str, &str)]) -> Result<Framing, Refusal> {
        let mut fields = Fields::default();
        for (name, value) in lines {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        declared(&fields, version)
    }

    #[test]
    fn lengths_are_digits_that_fit() {
        for (value, length) in [
            ("0", 0),
            ("5", 5),
            ("007", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(
                decide(Version::Http11, &[("Content-Length", value)]),
                Ok(Framing::Length(length))
            );
        }
        for value in [
            "",
            "+1",
            "-1",
            "1,1",
            "1, 1",
            "0x1",
            "1_0",
            "1.0",
            "1 0",
            "18446744073709551616",
            "99999999999999999999",
        ] {
            let refusal = decide(Version::Http11, &[("Content-Length", value)]).unwrap_err();
            assert_eq!((refusal.status, refusal.reason), (400, "bad_cl"), "{value}");
        }
    }

    #[test]
    fn a_second_content_length_is_refused_even_if_equal() {
        let refusal = decide(
            Version::Http11,
            &[("Content-Length", "5"), ("content-length", "5")],
        )
        .unwrap_err();
        assert_eq!((refusal.status, refusal.reason), (400, "repeated_cl"));
    }

    #[test]
    fn only_chunked_is_a_transfer_coding() {
        for value in ["chunked", "Chunked", "CHUNKED"] {
            assert_eq!(
                decide(Version::Http11, &[("Transfer-Encoding", value)]),
                Ok(Framing::Chunked)
            );
        }
        for (value, status) in [
            ("x, chunked", 501),
            ("gzip,chunked", 501),
            ("xchunked", 501),
            ("identity", 501),
            ("gzip", 501),
            ("chunked, chunked", 400),
            ("chunked, gzip", 400),
            (",chunked", 400),
            ("chunked,", 400),
            ("chunked;q", 400),
            ("chunked;q=1", 400),
            ("\"chunked\"", 400),
            ("chun ked", 400),
            ("chunked\u{b}", 400),
            ("", 400),
        ] {
            let mut fields = Fields::default();
            let place = (FieldId::TransferEncoding, 0..0, 0..value.len());
            fields.load(value.as_bytes(), [place].into_iter());
            assert_eq!(
                declared(&fields, Version::Http11).unwrap_err().status,
                status,
                "{value:?}"
            );
        }
    }

    #[test]
    fn a_coding_stands_alone() {
        let chunked = ("Transfer-Encoding", "chunked");
        for (version, lines, reason) in [
            (
                Version::Http11,
                &[chunked, ("Content-Length", "5")][..],
                "te_and_cl",
            ),
            (
                Version::Http11,
                &[("Content-Length", "5"), chunked],
                "te_and_cl",
            ),
            (Version::Http11, &[chunked, chunked], "repeated_te"),
            (Version::Http10, &[chunked], "te_in_http10"),
            (
                Version::Http10,
                &[chunked, ("Content-Length", "5")],
                "te_in_http10",
            ),
        ] {
            let refusal = decide(version, lines).unwrap_err();
            assert_eq!((refusal.status, refusal.reason), (400, reason));
        }
    }
}
