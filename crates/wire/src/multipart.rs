//! `multipart/byteranges` (RFC 9110 §14.6): what stands around the parts of a reply.
//!
//! The boundary comes from outside, and is to be one that nobody who writes a file can know: who
//! could, might have a client take bytes of one part for the beginning of another.

use crate::{fields::encode_field, range::Span};

/// A reply of several parts of one representation.
#[derive(Debug, Clone, Copy)]
pub struct Multipart<'a> {
    /// What tells parts apart: 1 to 70 letters and digits (RFC 2046 §5.1.1).
    pub boundary: &'a [u8],
    /// The representation's media type; `None` where it has none.
    pub content_type: Option<&'a [u8]>,
    /// The representation's size in bytes.
    pub size: u64,
}

impl Multipart<'_> {
    /// The media type of the whole reply.
    #[must_use]
    pub fn media_type(&self) -> Vec<u8> {
        [b"multipart/byteranges; boundary=", self.boundary].concat()
    }

    /// Appends what stands before a part.
    pub fn push_head(&self, span: Span, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary);
        out.extend_from_slice(b"\r\n");
        if let Some(content_type) = self.content_type {
            encode_field(b"Content-Type", content_type, out);
        }
        encode_field(b"Content-Range", &content_range(span, self.size), out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends what stands behind the last part.
    pub fn push_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary);
        out.extend_from_slice(b"--\r\n");
    }

    /// How many bytes a reply with these parts has.
    #[must_use]
    pub fn bytes(&self, spans: &[Span]) -> u64 {
        let mut framing = Vec::new();
        let mut bytes = 0_u64;
        for span in spans {
            self.push_head(*span, &mut framing);
            bytes = bytes.saturating_add(span.bytes());
        }
        self.push_end(&mut framing);
        bytes.saturating_add(framing.len() as u64)
    }
}

/// `Content-Range` of a part of a representation of this size.
#[must_use]
pub fn content_range(span: Span, size: u64) -> Vec<u8> {
    format!("bytes {}-{}/{size}", span.first, span.last).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_as_long_as_it_says() {
        let content = b"0123456789";
        let spans = [Span { first: 8, last: 9 }, Span { first: 0, last: 0 }];
        for (content_type, line) in [
            (Some(&b"text/plain"[..]), "Content-Type: text/plain\r\n"),
            (None, ""),
        ] {
            let multipart = Multipart {
                boundary: b"0a1b",
                content_type,
                size: 10,
            };
            let mut out = Vec::new();
            for span in spans {
                multipart.push_head(span, &mut out);
                out.extend_from_slice(&content[span.first as usize..=span.last as usize]);
            }
            multipart.push_end(&mut out);
            assert_eq!(multipart.bytes(&spans), out.len() as u64);
            let expected = format!(
                "\r\n--0a1b\r\n{line}Content-Range: bytes 8-9/10\r\n\r\n89\
                 \r\n--0a1b\r\n{line}Content-Range: bytes 0-0/10\r\n\r\n0\
                 \r\n--0a1b--\r\n"
            );
            assert_eq!(String::from_utf8_lossy(&out), expected);
            let media_type = b"multipart/byteranges; boundary=0a1b";
            assert_eq!(multipart.media_type(), media_type);
        }
    }
}
