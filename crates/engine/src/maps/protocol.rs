//! Apache's protocol of map programs: a key a line, an answer a line, `NULL` for none.
//!
//! The idea: bytes come in pieces of any size and leave as whole lines, in order. No answer is
//! longer than a map allows, so what is kept of a line that is not whole is bounded.

use std::sync::Arc;

use super::answers::Answer;

/// Bytes on their way to answers.
#[derive(Debug)]
pub(super) struct Lines {
    open: Vec<u8>,
    answer_bytes: usize,
}

/// A program says more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flood {
    /// A line is longer than an answer may be.
    Long,
    /// A line came that nobody has asked for.
    Unasked,
}

/// Whether a key can be asked: it is a line, and no longer than a map allows.
pub(super) fn can_be_asked(key: &[u8], key_bytes: usize) -> bool {
    key.len() <= key_bytes && !key.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0))
}

impl Lines {
    pub(super) fn new(answer_bytes: usize) -> Self {
        Self {
            open: Vec::new(),
            answer_bytes,
        }
    }

    /// Takes bytes, and adds each answer they complete.
    pub(super) fn push(&mut self, bytes: &[u8], answers: &mut Vec<Answer>) -> Result<(), Flood> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_whole) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            // A carriage return before the line's end does not count.
            if self.open.len() + text.len() > self.answer_bytes + 1 {
                return Err(Flood::Long);
            }
            if !is_whole {
                self.open.extend_from_slice(text);
            } else if self.open.is_empty() {
                answers.push(self.answer(text)?);
            } else {
                self.open.extend_from_slice(text);
                let answer = self.answer(&self.open)?;
                self.open.clear();
                answers.push(answer);
            }
        }
        Ok(())
    }

    fn answer(&self, line: &[u8]) -> Result<Answer, Flood> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > self.answer_bytes {
            return Err(Flood::Long);
        }
        match line.eq_ignore_ascii_case(b"NULL") {
            true => Ok(None),
            false => Ok(Some(Arc::from(line))),
        }
    }
}

impl Flood {
    /// What the log says of it.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Flood::Long => "it said a line longer than an answer may be (answer_bytes)",
            Flood::Unasked => "it said something nobody had asked for",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(pieces: &[&[u8]], answer_bytes: usize) -> Result<Vec<Option<String>>, Flood> {
        let mut lines = Lines::new(answer_bytes);
        let mut answers = Vec::new();
        for piece in pieces {
            lines.push(piece, &mut answers)?;
        }
        let text = |answer: Answer| answer.map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok(answers.into_iter().map(text).collect())
    }

    #[test]
    fn answers_are_the_same_however_their_bytes_are_cut() {
        let bytes = b"0.00\nNULL\n\nnull\r\nNULLS\n a b \nno end";
        let expected = [
            Some("0.00"),
            None,
            Some(""),
            None,
            Some("NULLS"),
            Some(" a b "),
        ];
        let expected = Ok(expected.map(|text| text.map(str::to_owned)).to_vec());
        assert_eq!(answers(&[bytes], 8), expected);
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(answers(&single, 8), expected);
        for first in 0..bytes.len() {
            for second in first..bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(answers(&pieces, 8), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn a_line_without_end_is_not_kept_beyond_what_an_answer_may_have() {
        assert_eq!(answers(&[b"1234\n"], 4), Ok(vec![Some("1234".into())]));
        assert_eq!(answers(&[b"1234\r\n"], 4), Ok(vec![Some("1234".into())]));
        for pieces in [
            &[&b"12345\n"[..]][..],
            &[b"123", b"456"],
            &[b"12345", b"\n"],
        ] {
            assert_eq!(answers(pieces, 4), Err(Flood::Long), "{pieces:?}");
        }
    }

    #[test]
    fn a_key_is_one_line() {
        assert!(can_be_asked(b"", 4) && can_be_asked(b"a b\t", 4));
        for key in [&b"a\nb"[..], b"a\0", b"a\r", b"12345"] {
            assert!(!can_be_asked(key, 4), "{key:?}");
        }
    }
}
