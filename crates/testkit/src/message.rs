//! A loose reader of HTTP/1.1 messages, for looking at what came back.
//!
//! The idea: the tools must not share the product's parser, or both could be wrong together. This
//! one is written the naive way, forgives nothing silently and checks nothing it need not.

/// The first line and the fields of a message, as they were on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// Everything up to and including the blank line.
    pub bytes: Vec<u8>,
    /// First line without its line end; bytes that are no UTF-8 are replaced.
    pub line: String,
    /// Name and value of each field in order, value without surrounding blanks.
    pub fields: Vec<(String, String)>,
}

/// How the body of a message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// There is none.
    AtOnce,
    /// After this many bytes.
    After(usize),
    /// With the last chunk and its trailers.
    Chunked,
    /// With the connection.
    WithConnection,
}

impl Head {
    /// Takes a head off the front of `bytes`, if all of it is there.
    #[must_use]
    pub fn take(bytes: &[u8]) -> Option<Self> {
        let end = find(bytes, b"\r\n\r\n")? + 4;
        let text = String::from_utf8_lossy(&bytes[..end]);
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        let fields = lines
            .filter(|line| !line.is_empty())
            .map(|line| line.split_once(':').unwrap_or((line, "")))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Some(Self {
            bytes: bytes[..end].to_vec(),
            line,
            fields,
        })
    }

    /// First value of a field, any case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut all = self.fields.iter();
        all.find(|(have, _)| have.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// How many fields have this name, any case.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        let all = self.fields.iter();
        all.filter(|(have, _)| have.eq_ignore_ascii_case(name))
            .count()
    }

    /// How the body ends, going by the fields alone; `otherwise` when they do not say.
    #[must_use]
    pub fn ends(&self, otherwise: Ends) -> Ends {
        if self.field("transfer-encoding").is_some() {
            return Ends::Chunked;
        }
        match self.field("content-length").map(str::parse) {
            Some(Ok(length)) => Ends::After(length),
            _ => otherwise,
        }
    }
}

/// A body taken off the front of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The content, chunks put together.
    pub body: Vec<u8>,
    /// Bytes it took on the wire.
    pub consumed: usize,
    /// Whether it is all there.
    pub complete: bool,
}

/// Takes as much of a body as there is; `None` when its framing makes no sense.
#[must_use]
pub fn take_body(bytes: &[u8], ends: Ends) -> Option<Taken> {
    let (consumed, complete) = match ends {
        Ends::AtOnce => (0, true),
        Ends::After(length) => (length.min(bytes.len()), bytes.len() >= length),
        Ends::WithConnection => (bytes.len(), false),
        Ends::Chunked => return take_chunks(bytes),
    };
    Some(Taken {
        body: bytes[..consumed].to_vec(),
        consumed,
        complete,
    })
}

fn take_chunks(bytes: &[u8]) -> Option<Taken> {
    let mut taken = Taken {
        body: Vec::new(),
        consumed: 0,
        complete: false,
    };
    loop {
        let rest = &bytes[taken.consumed..];
        let Some(line_end) = find(rest, b"\r\n") else {
            return Some(taken);
        };
        let line = std::str::from_utf8(&rest[..line_end]).ok()?;
        let size = line.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        let rest = &rest[line_end + 2..];
        if size == 0 {
            return Some(finish_chunks(taken, line_end + 2, rest));
        }
        taken.body.extend(&rest[..size.min(rest.len())]);
        if rest.len() < size + 2 {
            return Some(taken);
        }
        if &rest[size..size + 2] != b"\r\n" {
            return None;
        }
        taken.consumed += line_end + 2 + size + 2;
    }
}

/// After the last chunk: trailers, if any, and the blank line.
fn finish_chunks(mut taken: Taken, last_line: usize, rest: &[u8]) -> Taken {
    let end = if rest.starts_with(b"\r\n") {
        Some(2)
    } else {
        find(rest, b"\r\n\r\n").map(|at| at + 4)
    };
    if let Some(end) = end {
        taken.consumed += last_line + end;
        taken.complete = true;
    }
    taken
}

/// Where `needle` first stands in `bytes`.
#[must_use]
pub fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|at| at == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together_and_a_cut_body_is_incomplete() {
        let whole = b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nA: b\r\n\r\nnext";
        let taken = take_body(whole, Ends::Chunked).unwrap();
        assert_eq!(taken.body, b"abcde");
        assert_eq!(taken.consumed, whole.len() - 4);
        assert!(taken.complete);
        for cut in 0..taken.consumed {
            let part = take_body(&whole[..cut], Ends::Chunked).unwrap();
            assert!(!part.complete, "cut at {cut}");
        }
        assert_eq!(take_body(b"3\r\nabcX\r\n0\r\n\r\n", Ends::Chunked), None);
    }

    #[test]
    fn a_head_gives_its_line_and_fields() {
        let head = Head::take(b"GET / HTTP/1.1\r\nHost: a\r\nX: b: c \r\n\r\nrest").unwrap();
        assert_eq!(head.line, "GET / HTTP/1.1");
        assert_eq!(head.field("HOST"), Some("a"));
        assert_eq!(head.field("x"), Some("b: c"));
        assert_eq!(Head::take(b"GET / HTTP/1.1\r\nHost: a\r\n"), None);
    }
}
