//! Globs of the configuration, compiled: `*` is any bytes, `?` one byte, `[a-z]` a class.
//!
//! A pattern without a leading `/` matches at the end, from a segment's start on. The shapes
//! people write (`*.php`, `/api/*`, `/health`) are compared directly; the rest becomes a regular
//! expression over bytes, whose time is linear in the text.

use regex::bytes::{Regex, RegexBuilder};

/// Largest compiled form of one pattern.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A compiled glob.
#[derive(Debug, Clone)]
pub struct Matcher {
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    /// The text itself.
    Exact(Box<[u8]>),
    /// The text, at the end and from a segment's start on.
    Tail(Box<[u8]>),
    /// Begins so.
    Prefix(Box<[u8]>),
    /// Ends so.
    Suffix(Box<[u8]>),
    /// Anything else.
    Regex(Regex),
}

impl Matcher {
    /// Compiles a pattern over paths and files.
    ///
    /// # Errors
    /// When its compiled form would be too large.
    pub fn new(pattern: &str) -> Result<Self, regex::Error> {
        let anchored = pattern.starts_with('/');
        let plain = |text: &str| !text.contains(['*', '?', '[', ']']);
        let shape = if plain(pattern) {
            let text = pattern.as_bytes().into();
            if anchored {
                Shape::Exact(text)
            } else {
                Shape::Tail(text)
            }
        } else if let Some(suffix) = pattern.strip_prefix('*').filter(|rest| plain(rest)) {
            Shape::Suffix(suffix.as_bytes().into())
        } else if let Some(prefix) = pattern
            .strip_suffix('*')
            .filter(|rest| anchored && plain(rest))
        {
            Shape::Prefix(prefix.as_bytes().into())
        } else {
            let start = if anchored { "^" } else { "(?:^|/)" };
            Shape::Regex(search(start, pattern)?)
        };
        Ok(Self { shape })
    }

    /// Compiles a pattern over a whole value (a field, a query parameter): there is no path to take the end of.
    ///
    /// # Errors
    /// When its compiled form would be too large.
    pub fn whole(pattern: &str) -> Result<Self, regex::Error> {
        let shape = if pattern.contains(['*', '?', '[', ']']) {
            Shape::Regex(search("^", pattern)?)
        } else {
            Shape::Exact(pattern.as_bytes().into())
        };
        Ok(Self { shape })
    }

    /// Whether `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        match &self.shape {
            Shape::Exact(exact) => **exact == *text,
            Shape::Prefix(prefix) => text.starts_with(prefix),
            Shape::Suffix(suffix) => text.ends_with(suffix),
            Shape::Tail(tail) => text
                .strip_suffix(&**tail)
                .is_some_and(|before| before.last().is_none_or(|byte| *byte == b'/')),
            Shape::Regex(regex) => regex.is_match(text),
        }
    }
}

/// Compiles a regular expression over bytes, bounded in size.
///
/// # Errors
/// When its syntax is wrong or its compiled form too large.
fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .build()
}

/// Compiles a pattern that has to match from `start` to the end. A `*` at either end asks nothing
/// there: left out, it spares the engine a walk over the whole text, and a fixed word between two
/// is looked for as such.
fn search(start: &str, pattern: &str) -> Result<Regex, regex::Error> {
    let tail = pattern.trim_start_matches('*');
    let start = if tail.len() < pattern.len() {
        ""
    } else {
        start
    };
    let middle = tail.trim_end_matches('*');
    let end = if middle.len() < tail.len() { "" } else { "$" };
    compile(&format!("{start}{}{end}", translate(middle)))
}

fn translate(pattern: &str) -> String {
    let mut regex = String::from("(?s-u:");
    let mut in_class = false;
    for char in pattern.chars() {
        match char {
            '[' if !in_class => {
                in_class = true;
                regex.push('[');
            }
            ']' if in_class => {
                in_class = false;
                regex.push(']');
            }
            '!' | '^' if in_class && regex.ends_with('[') => regex.push('^'),
            '-' if in_class => regex.push('-'),
            '*' if !in_class => regex.push_str(".*"),
            '?' if !in_class => regex.push('.'),
            other => bytes_of(other, &mut regex),
        }
    }
    regex.push(')');
    regex
}

/// Writes a character as the bytes it is made of, so that classes and texts mean bytes.
fn bytes_of(char: char, regex: &mut String) {
    for byte in char.encode_utf8(&mut [0; 4]).bytes() {
        regex.push_str(&format!("\\x{byte:02x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_the_reference_says() {
        let table: &[(&str, &str, bool)] = &[
            ("*.php", "/var/www/a.php", true),
            ("*.php", "/var/www/a.php5", false),
            ("sleep.php", "/var/www/sleep.php", true),
            ("sleep.php", "/var/www/oversleep.php", false),
            ("/api/*", "/api/v1/x", true),
            ("/api/*", "/api", false),
            ("/health", "/health", true),
            ("/health", "/healthy", false),
            ("/a?c", "/abc", true),
            ("/a?c", "/abbc", false),
            ("/[a-c]x", "/bx", true),
            ("/[!a-c]x", "/bx", false),
            ("/[!a-c]x", "/dx", true),
            ("*.p[hl]", "/x.pl", true),
            ("a*.php", "/x/ab.php", true),
            ("a*.php", "/x/bab.php", false),
            ("/a*b*c", "/a/x/b/y/c", true),
            ("/日*", "/日本", true),
            ("/a.c", "/abc", false),
            ("/(a|b)*", "/(a|b)c", true),
            ("*a*", "/xa/b", true),
            ("*a*", "/xb", false),
            ("*.[jp]*", "/x.jpg", true),
            ("a?*", "/x/ab/c", true),
            ("a?*", "/x/ba/c", false),
        ];
        for (pattern, text, expected) in table {
            let matcher = Matcher::new(pattern).expect(pattern);
            assert_eq!(
                matcher.matches(text.as_bytes()),
                *expected,
                "{pattern} on {text}"
            );
        }
    }

    #[test]
    fn a_glob_over_a_value_covers_the_whole_of_it() {
        let table: &[(&str, &str, bool)] = &[
            ("*bot*", "Googlebot/2.1", true),
            ("*bot*", "bot", true),
            ("*bot*", "Bot", false),
            ("**bot**", "a\nbot\n", true),
            ("*bot", "Googlebot", true),
            ("*bot", "Googlebot/2.1", false),
            ("Google*", "Googlebot", true),
            ("Google*", "a Googlebot", false),
            ("*a*c*", "xxabcxx", true),
            ("*a*c*", "xxcbaxx", false),
            ("[0-9]*", "1a", true),
            ("[0-9]*", "a1", false),
            ("*[*]*", "a*b", true),
            ("*[*]*", "ab", false),
            ("*", "", true),
            ("?*", "", false),
            ("DoCoMo", "DoCoMo/2.0", false),
        ];
        for (pattern, text, expected) in table {
            let matcher = Matcher::whole(pattern).expect(pattern);
            assert_eq!(
                matcher.matches(text.as_bytes()),
                *expected,
                "{pattern} on {text:?}"
            );
        }
    }

    #[test]
    fn a_newline_is_a_byte_like_any_other() {
        assert!(Matcher::new("/a*c?").expect("valid").matches(b"/a\nc\n"));
    }
}
