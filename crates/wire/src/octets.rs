//! Classes of bytes, and the two list rules every field shares.
//!
//! The tables are built at compile time, so a class costs one load per byte.

/// Bytes of a token (RFC 9110 §5.6.2).
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Bytes of a field value: no control byte but HTAB.
pub(crate) const fn is_value_byte(byte: u8) -> bool {
    // Without branches, so that a block of bytes is judged at once.
    (byte == b'\t') | ((byte >= b' ') & (byte != 0x7f))
}

/// Whether `name` is a field name: a token of at least one byte.
pub fn field_name_ok(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| is_token_byte(byte))
}

/// Whether `value` can be a field's value: no CR, LF, NUL or other control byte but HTAB,
/// and no blank at either end.
pub fn field_value_ok(value: &[u8]) -> bool {
    value.iter().all(|&byte| is_value_byte(byte)) && value.trim_ascii().len() == value.len()
}

/// Whether a name has only the bytes that CGI does not fold: letters, digits and `-`.
pub(crate) fn is_plain_name(name: &[u8]) -> bool {
    // Without a way out on the way: names are short, and branches cost more than bytes.
    name.iter()
        .fold(true, |plain, &byte| plain & PLAIN_NAME[byte as usize])
}

/// Elements of a comma-separated list without blanks around them; empty elements are left out.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

static TOKEN: [bool; 256] = token_table();
static PLAIN_NAME: [bool; 256] = plain_name_table();

const fn plain_name_table() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = byte as u8 == b'-' || (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    table
}

const fn token_table() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(
            byte as u8,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        ) || (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tokens() {
        for good in [&b"Host"[..], b"x_y", b"!#$%&'*+-.^_`|~09az"] {
            assert!(field_name_ok(good), "{good:?}");
        }
        for bad in [&b""[..], b"a b", b"a:", b"a\0", b"\x80", b"(a)", b"a\r\n"] {
            assert!(!field_name_ok(bad), "{bad:?}");
        }
    }

    #[test]
    fn values_hold_no_control_byte() {
        for good in [&b""[..], b"a b", b"a\tb", b"\xff\x80"] {
            assert!(field_value_ok(good), "{good:?}");
        }
        for bad in [
            &b"a\rb"[..],
            b"a\nb",
            b"\0",
            b"\x7f",
            b"\x1b[",
            b" a",
            b"a\t",
        ] {
            assert!(!field_value_ok(bad), "{bad:?}");
        }
    }

    #[test]
    fn lists_drop_blanks_and_empty_elements() {
        let elements: Vec<&[u8]> = list(b" a ,,\tb, ").collect();
        assert_eq!(elements, [b"a", b"b"]);
        assert_eq!(list(b"").count(), 0);
    }
}
