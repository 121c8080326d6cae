//! Bytes from outside as parts of a line: nothing in them can end a field or the line.

/// Bytes of one field that are written; the rest is cut.
const FIELD_BYTES_MAX: usize = 8 * 1024;

/// As Apache's `ap_escape_logitem`: printable ASCII as it is, the rest as `\n` or `\xHH`.
pub(super) fn apache(value: &[u8], out: &mut Vec<u8>) {
    runs(capped(value), out, |byte, out| match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        _ => control(byte, out),
    });
}

/// As [`apache`], but quotes mean nothing in LTSV.
pub(super) fn ltsv(value: &[u8], out: &mut Vec<u8>) {
    runs(capped(value), out, |byte, out| match byte {
        b'"' => out.push(byte),
        b'\\' => out.extend_from_slice(b"\\\\"),
        _ => control(byte, out),
    });
}

/// The inside of a JSON string. Bytes that are no UTF-8 become U+FFFD.
pub(super) fn json(value: &[u8], out: &mut Vec<u8>) {
    let value = capped(value);
    if value.is_ascii() {
        return json_text(value, out);
    }
    for chunk in value.utf8_chunks() {
        json_text(chunk.valid().as_bytes(), out);
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

fn json_text(text: &[u8], out: &mut Vec<u8>) {
    runs(text, out, |byte, out| match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0x80.. => out.push(byte),
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&hex(byte));
        }
    });
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

/// Copies runs of plain bytes whole, and lets `each` write the odd ones between them.
fn runs(value: &[u8], out: &mut Vec<u8>, each: impl Fn(u8, &mut Vec<u8>)) {
    let mut rest = value;
    while let Some(at) = first_odd(rest) {
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

/// The first byte that some format does not write as it is: a control character, a quote, a
/// backslash or no ASCII. Eight bytes are looked at together; a borrow runs upwards only, so
/// the lowest byte found is a true one.
fn first_odd(text: &[u8]) -> Option<usize> {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = EACH << 7;
    let mut blocks = text.chunks_exact(8);
    let mut at = 0;
    for block in &mut blocks {
        let word = block
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        let below_space = word.wrapping_sub(EACH * 0x20);
        let equal = |byte: u8| (word ^ (EACH * u64::from(byte))).wrapping_sub(EACH);
        let odd = word | below_space | equal(b'"') | equal(b'\\') | equal(0x7f);
        if odd & HIGH != 0 {
            return Some(at + (odd & HIGH).trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let is_odd = |byte: &u8| !(0x20..0x7f).contains(byte) || matches!(byte, b'"' | b'\\');
    let last = blocks.remainder().iter().position(is_odd);
    last.map(|last| at + last)
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
    fn the_first_odd_byte_is_found_wherever_it_is() {
        for byte in 0..=255_u8 {
            let is_odd = !(0x20..0x7f).contains(&byte) || b"\"\\".contains(&byte);
            for at in 0..20 {
                // A second odd byte after it changes nothing.
                let mut text = [b'a'; 21];
                (text[at], text[20]) = (byte, b'"');
                let expected = if is_odd { at } else { 20 };
                assert_eq!(first_odd(&text), Some(expected), "{byte:#x} at {at}");
                assert_eq!(first_odd(&text[..20]), is_odd.then_some(at));
            }
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
