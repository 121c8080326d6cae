//! Answers as JSON, spelt as they always were.
//!
//! The idea: the fields and their order are the types'; only what serde_json would spell otherwise
//! stands here. Numbers have no exponent, and no fraction where they are whole; control characters
//! have their number, all of Unicode's; whole numbers of a list have a space between them.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// Puts an answer into JSON and a line feed.
pub fn json(answer: &impl Serialize) -> String {
    let mut out = Vec::with_capacity(4_096);
    // Writing to memory does not fail, and every key of an answer is text.
    let _ = answer.serialize(&mut Serializer::with_formatter(
        &mut out,
        Spelling::default(),
    ));
    out.push(b'\n');
    String::from_utf8(out).unwrap_or_default()
}

/// What is spelt otherwise.
#[derive(Debug, Default)]
struct Spelling {
    /// Whether the value that comes next is one of a list, and not its first.
    follows: bool,
}

impl Formatter for Spelling {
    fn write_u64<W: ?Sized + Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        let space = if self.follows { " " } else { "" };
        write!(writer, "{space}{value}")
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        write!(writer, "{value}")
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.follows = false;
        writer.write_all(b"[")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.follows = !first;
        writer.write_all(if first { b"" } else { b"," })
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.follows = false;
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.follows = false;
        writer.write_all(b"{")
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        mut fragment: &str,
    ) -> io::Result<()> {
        while let Some((at, control)) = fragment.char_indices().find(|(_, it)| it.is_control()) {
            let (plain, rest) = fragment.split_at(at);
            write!(writer, "{plain}\\u{:04x}", u32::from(control))?;
            fragment = rest.strip_prefix(control).unwrap_or_default();
        }
        writer.write_all(fragment.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        escaped: CharEscape,
    ) -> io::Result<()> {
        let control = match escaped {
            CharEscape::Quote => return writer.write_all(b"\\\""),
            CharEscape::ReverseSolidus => return writer.write_all(b"\\\\"),
            CharEscape::Solidus => return writer.write_all(b"/"),
            CharEscape::Backspace => 0x08,
            CharEscape::FormFeed => 0x0c,
            CharEscape::LineFeed => b'\n',
            CharEscape::CarriageReturn => b'\r',
            CharEscape::Tab => b'\t',
            CharEscape::AsciiControl(control) => control,
        };
        write!(writer, "\\u{control:04x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Named;

    #[test]
    fn numbers_are_spelt_out() {
        let numbers = [Some(3.0), None, Some(0.1 + 0.2), Some(1e-7), Some(-0.0)];
        let spelt = "[3,null,0.30000000000000004,0.0000001,-0]\n";
        assert_eq!(json(&numbers), spelt);
        assert_eq!(json(&1e21), "1000000000000000000000\n");
    }

    #[test]
    fn control_characters_have_their_number() {
        let text = "\"\\/ \n\r\t\u{8}\u{c}\u{1f}\u{7f}\u{9f}é";
        let spelt = r#""\"\\/ \u000a\u000d\u0009\u0008\u000c\u001f\u007f\u009fé""#;
        assert_eq!(json(&text), format!("{spelt}\n"));
    }

    #[test]
    fn only_whole_numbers_of_a_list_have_a_space() {
        let lists = [Named::from_iter([("a", vec![1_u64, 2]), ("b", vec![3])])];
        assert_eq!(json(&lists), "[{\"a\":[1, 2],\"b\":[3]}]\n");
        let objects = [1, 2].map(|number: u64| Named::from_iter([("a", number)]));
        assert_eq!(json(&objects), "[{\"a\":1},{\"a\":2}]\n");
        assert_eq!(json(&(["a", "b"], 1_u64)), "[[\"a\",\"b\"], 1]\n");
    }
}
