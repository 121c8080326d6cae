//! How a namespace of `Cache` stands in a file: a line for each key, a tab, and its value.
//!
//! Tabs, line breaks and backslashes within are `\t`, `\n`, `\r` and `\\`; every other byte is itself.
//! So a shell writes it with `printf '%s\t%s\n'` and reads it with `cut`.

/// Keys with their values.
pub(super) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Appends the line of a key.
pub(super) fn write_line(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    write_word(key, out);
    out.push(b'\t');
    write_word(value, out);
    out.push(b'\n');
}

fn write_word(word: &[u8], out: &mut Vec<u8>) {
    for byte in word {
        match byte {
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            byte => out.push(*byte),
        }
    }
}

/// Reads all lines; empty ones are passed over, and of a key that is there twice the last counts.
///
/// # Errors
/// The number of a line that has no tab.
pub(super) fn read(text: &[u8]) -> Result<Pairs, usize> {
    let mut pairs = Pairs::new();
    for (number, line) in (1_usize..).zip(text.split(|byte| *byte == b'\n')) {
        if line.is_empty() {
            continue;
        }
        let tab = line.iter().position(|byte| *byte == b'\t').ok_or(number)?;
        let (key, value) = (line.get(..tab), line.get(tab + 1..));
        pairs.push((
            read_word(key.unwrap_or_default()),
            read_word(value.unwrap_or_default()),
        ));
    }
    Ok(pairs)
}

fn read_word(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut bytes = word.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let meant = match (byte, bytes.peek()) {
            (b'\\', Some(b't')) => Some(b'\t'),
            (b'\\', Some(b'n')) => Some(b'\n'),
            (b'\\', Some(b'r')) => Some(b'\r'),
            (b'\\', Some(b'\\')) => Some(b'\\'),
            _ => None,
        };
        if meant.is_some() {
            bytes.next();
        }
        out.push(meant.unwrap_or(byte));
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use super::*;

    #[test]
    fn lines_are_what_a_shell_writes() {
        let read_as = |text: &str| read(text.as_bytes());
        let pair = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        assert_eq!(read_as(""), Ok(vec![]));
        let two = vec![pair("/a.php", "{\"max\": 2}"), pair("b", "")];
        assert_eq!(read_as("/a.php\t{\"max\": 2}\n\nb\t"), Ok(two));
        let odd = vec![pair("a\\x\tb", "c\nd\\")];
        assert_eq!(read_as("a\\x\\tb\tc\\nd\\"), Ok(odd));
        assert_eq!(read_as("a\tb\nno tab\n"), Err(2));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(pairs in prop::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..8)) {
            let mut text = Vec::new();
            for (key, value) in &pairs {
                write_line(key, value, &mut text);
            }
            assert_eq!(read(&text), Ok(pairs));
        }
    }
}
