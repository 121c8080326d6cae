//! Bytes from outside as parts of a line: nothing in them can end a field or the line.

/// Bytes of one field that are written; the rest is cut.
const FIELD_BYTES_MAX: usize = 8 * 1024;

/// As Apache's `ap_escape_logitem`: printable ASCII as it is, the rest as `\n` or `\xHH`.
pub(super) fn apache(value: &[u8], out: &mut Vec<u8>) {
    escape(value, &APACHE, out, |byte, out| match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        _ => control(byte, out),
    });
}

/// As [`apache`], but quotes mean nothing in LTSV.
pub(super) fn ltsv(value: &[u8], out: &mut Vec<u8>) {
    escape(value, &LTSV, out, |byte, out| match byte {
        b'\\' => out.extend_from_slice(b"\\\\"),
        _ => control(byte, out),
    });
}

/// The inside of a JSON string. Bytes that are no UTF-8 become U+FFFD.
pub(super) fn json(value: &[u8], out: &mut Vec<u8>) {
    for chunk in capped(value).utf8_chunks() {
        runs(
            chunk.valid().as_bytes(),
            &JSON,
            out,
            |byte, out| match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                _ => {
                    out.extend_from_slice(b"\\u00");
                    out.extend_from_slice(&hex(byte));
                }
            },
        );
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

fn control(byte: u8, out: &mut Vec<u8>) {
    let letter = match byte {
        0x08 => b'b',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x0b => b'v',
        _ => {
            out.extend_from_slice(b"\\x");
            out.extend_from_slice(&hex(byte));
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]
}

fn capped(value: &[u8]) -> &[u8] {
    value.get(..FIELD_BYTES_MAX).unwrap_or(value)
}

fn escape(value: &[u8], odd: &Table, out: &mut Vec<u8>, each: impl Fn(u8, &mut Vec<u8>)) {
    runs(capped(value), odd, out, each);
}

/// Copies runs of plain bytes whole, and lets `each` write the odd ones between them.
fn runs(value: &[u8], odd: &Table, out: &mut Vec<u8>, each: impl Fn(u8, &mut Vec<u8>)) {
    let mut rest = value;
    while let Some(at) = rest.iter().position(|byte| odd[usize::from(*byte)]) {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((byte, after)) = tail.split_first() else {
            return;
        };
        each(*byte, out);
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// Which bytes are not written as they are.
type Table = [bool; 256];

static APACHE: Table = table(Quotes::Odd, 0x7f);
static LTSV: Table = table(Quotes::Plain, 0x7f);
static JSON: Table = table(Quotes::Odd, 0x100);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Odd,
    Plain,
}

const fn table(quotes: Quotes, odd_from: usize) -> Table {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let quote = byte == b'"' as usize && matches!(quotes, Quotes::Odd);
        // DEL is a control character in every format.
        table[byte] =
            byte < 0x20 || byte >= odd_from || byte == 0x7f || byte == b'\\' as usize || quote;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(value: &[u8], with: fn(&[u8], &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        with(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn odd_bytes_are_written_as_each_format_wants_them() {
        for (value, in_apache, in_ltsv, in_json) in [
            (
                &b"plain /a?b=c"[..],
                "plain /a?b=c",
                "plain /a?b=c",
                "plain /a?b=c",
            ),
            (b"a\"b\\c", r#"a\"b\\c"#, r#"a"b\\c"#, r#"a\"b\\c"#),
            (b"a\nb\r\tc", r"a\nb\r\tc", r"a\nb\r\tc", r"a\nb\r\tc"),
            (
                b"\x08\x0b\x0c",
                r"\b\v\x0c",
                r"\b\v\x0c",
                r"\u0008\u000b\u000c",
            ),
            (
                b"\x00\x1b\x7f",
                r"\x00\x1b\x7f",
                r"\x00\x1b\x7f",
                r"\u0000\u001b\u007f",
            ),
            ("長".as_bytes(), r"\xe9\x95\xb7", r"\xe9\x95\xb7", "長"),
            (b"a\xffb", r"a\xffb", r"a\xffb", "a\u{fffd}b"),
        ] {
            assert_eq!(escaped(value, apache), in_apache);
            assert_eq!(escaped(value, ltsv), in_ltsv);
            assert_eq!(escaped(value, json), in_json);
        }
    }

    #[test]
    fn whatever_comes_stays_one_field_of_one_line() {
        let all: Vec<u8> = (0..=255).collect();
        for with in [apache, ltsv, json] {
            let line = escaped(&all, with);
            assert!(!line.contains(['\n', '\r', '\t', '\0', '\u{7f}']));
        }
        for with in [apache, json] {
            let line = escaped(&all, with).replace(r"\\", "").replace(r#"\""#, "");
            assert!(!line.contains('"'), "{line}");
        }
    }

    #[test]
    fn a_long_field_is_cut() {
        assert_eq!(escaped(&[b'a'; 10_000], apache).len(), 8 * 1024);
        assert_eq!(escaped(&[b'\n'; 10_000], json).len(), 16 * 1024);
    }
}
