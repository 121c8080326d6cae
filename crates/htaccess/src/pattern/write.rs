//! Writes a pattern anew, in words that the libraries here take as PCRE takes those it had.

use std::fmt::Write as _;

/// Writes a pattern anew.
pub(super) struct Writer<'p> {
    rest: &'p [u8],
    pub(super) out: String,
    /// It needs a matcher that goes back.
    pub(super) backtracks: bool,
    /// `$` and `^` are at ends of lines, too.
    is_multi_line: bool,
    groups: usize,
}

impl<'p> Writer<'p> {
    pub(super) fn new(pattern: &'p [u8]) -> Self {
        let opened = pattern
            .windows(2)
            .filter(|pair| pair[0] == b'(' && pair[1] != b'?');
        Self {
            rest: pattern,
            out: String::new(),
            backtracks: false,
            is_multi_line: false,
            groups: opened.count() + usize::from(pattern.last() == Some(&b'(')),
        }
    }

    fn take(&mut self, prefix: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        while let Some(byte) = self.next() {
            match byte {
                b'\\' => self.escape()?,
                b'[' => self.set()?,
                b'(' => self.group()?,
                b'*' | b'+' | b'?' => self.repeat(&[byte])?,
                b'{' => match count_of(self.rest) {
                    Some(length) => {
                        let (count, rest) = self.rest.split_at(length);
                        self.rest = rest;
                        let count = [&b"{"[..], count].concat();
                        self.repeat(&count)?;
                    }
                    None => self.out.push_str("\\{"),
                },
                b'$' if self.is_multi_line => self.out.push('$'),
                b'$' => self.out.push_str("\\z"),
                b'^' | b'|' | b')' | b'.' => self.out.push(char::from(byte)),
                // Blanks stay as they are: a flag may make nothing of them.
                b' ' | b'#' | b'\t' | b'\n' => self.out.push(char::from(byte)),
                byte => self.literal(byte),
            }
        }
        Ok(())
    }

    /// A repeat, greedy, lazy or possessive.
    fn repeat(&mut self, how: &[u8]) -> Result<(), String> {
        self.out.push_str(&String::from_utf8_lossy(how));
        if self.take(b"?") {
            self.out.push('?');
        } else if self.take(b"+") {
            self.out.push('+');
            self.backtracks = true;
        }
        let repeats = matches!(self.rest, [b'*' | b'+' | b'?', ..])
            || self
                .rest
                .strip_prefix(b"{")
                .is_some_and(|rest| count_of(rest).is_some());
        match repeats {
            true => Err("a repeat is repeated".to_owned()),
            false => Ok(()),
        }
    }

    fn literal(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'/' | b'-' | b'%' | b':' | b'=' => {
                self.out.push(char::from(byte));
            }
            byte => self.hex(byte),
        }
    }

    fn hex(&mut self, byte: u8) {
        let _ = write!(self.out, "\\x{byte:02X}");
    }

    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if self.rest.starts_with(b"*") {
            return Err("verbs such as (*FAIL) are not had".to_owned());
        }
        if !self.take(b"?") {
            return Ok(());
        }
        if self.take(b"#") {
            self.out.push_str("?:");
            let end = self.rest.iter().position(|byte| *byte == b')');
            self.rest = end.and_then(|end| self.rest.get(end..)).unwrap_or_default();
            return Ok(());
        }
        for look in [&b"="[..], b"!", b"<=", b"<!", b">"] {
            if self.take(look) {
                self.backtracks = true;
                self.out.push('?');
                self.out.push_str(&String::from_utf8_lossy(look));
                return Ok(());
            }
        }
        for (begin, end) in [(&b"P<"[..], b'>'), (b"<", b'>'), (b"'", b'\'')] {
            if self.take(begin) {
                let name = self.name(end)?;
                let _ = write!(self.out, "?P<{name}>");
                return Ok(());
            }
        }
        self.flags()
    }

    fn flags(&mut self) -> Result<(), String> {
        self.out.push('?');
        let mut sets = true;
        while let Some(byte) = self.next() {
            sets &= byte != b'-';
            self.is_multi_line |= sets && byte == b'm';
            match byte {
                b'i' | b'm' | b's' | b'x' | b'-' => self.out.push(char::from(byte)),
                b':' | b')' => {
                    self.out.push(char::from(byte));
                    return Ok(());
                }
                byte => return Err(format!("(?{} is not had", char::from(byte))),
            }
        }
        Err("a group is not closed".to_owned())
    }

    /// The name of a group, up to what ends it.
    fn name(&mut self, end: u8) -> Result<String, String> {
        let mut name = String::new();
        while let Some(byte) = self.next() {
            if byte == end && !name.is_empty() {
                return Ok(name);
            }
            if !byte.is_ascii_alphanumeric() && byte != b'_' {
                break;
            }
            name.push(char::from(byte));
        }
        Err("the name of a group has letters, digits and _".to_owned())
    }

    fn escape(&mut self) -> Result<(), String> {
        let byte = self.next().ok_or("it ends with a backslash")?;
        match byte {
            b'1'..=b'9' => self.reference(byte),
            b'd' | b'D' | b'w' | b'W' | b's' | b'S' | b'b' | b'B' | b'A' | b'z' => {
                self.out.push('\\');
                self.out.push(char::from(byte));
            }
            b'Z' => {
                self.backtracks = true;
                self.out.push_str("(?=\\n?\\z)");
            }
            b'G' => self.out.push_str("\\A"),
            b'h' => self.out.push_str("[\\t\\x20\\xA0]"),
            b'H' => self.out.push_str("[^\\t\\x20\\xA0]"),
            b'v' => self.out.push_str("[\\n\\x0B\\x0C\\r\\x85]"),
            b'V' => self.out.push_str("[^\\n\\x0B\\x0C\\r\\x85]"),
            b'R' => self.out.push_str("(?:\\r\\n|[\\n\\x0B\\x0C\\r\\x85])"),
            b'N' => self.out.push_str("[^\\n]"),
            b'K' => {
                self.backtracks = true;
                self.out.push_str("\\K");
            }
            b'Q' => self.quoted(),
            b'E' => {}
            b'k' | b'g' => return self.named_reference(),
            byte => {
                let byte = self.escaped(byte)?;
                self.hex(byte);
            }
        }
        Ok(())
    }

    /// `\1`, or where there are not so many groups a byte in octal.
    fn reference(&mut self, first: u8) {
        let more = self.rest.iter().take_while(|byte| byte.is_ascii_digit());
        let length = more.count().min(2);
        let whole = self
            .rest
            .iter()
            .take(length)
            .fold(usize::from(first - b'0'), |whole, digit| {
                whole * 10 + usize::from(digit - b'0')
            });
        if whole < 10 || whole <= self.groups {
            self.rest = self.rest.get(length..).unwrap_or_default();
            self.backtracks = true;
            let _ = write!(self.out, "(?:\\{whole})");
            return;
        }
        let rest = self.digits(2, 8).unwrap_or(0);
        self.hex((first - b'0').wrapping_mul(64).wrapping_add(rest));
    }

    fn named_reference(&mut self) -> Result<(), String> {
        let end = match self.next() {
            Some(b'{') => b'}',
            Some(b'<') => b'>',
            Some(b'\'') => b'\'',
            Some(digit @ b'1'..=b'9') => {
                self.reference(digit);
                return Ok(());
            }
            _ => return Err("\\g and \\k name a group".to_owned()),
        };
        let name = self.name(end)?;
        self.backtracks = true;
        let _ = match name.parse::<usize>() {
            Ok(number) => write!(self.out, "(?:\\{number})"),
            Err(_) => write!(self.out, "(?:\\k<{name}>)"),
        };
        Ok(())
    }

    fn quoted(&mut self) {
        while !self.rest.is_empty() && !self.take(b"\\E") {
            if let Some(byte) = self.next() {
                self.hex(byte);
            }
        }
    }

    /// The byte that an escape means, within sets and without.
    fn escaped(&mut self, byte: u8) -> Result<u8, String> {
        Ok(match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'f' => 0x0c,
            b'a' => 0x07,
            b'e' => 0x1b,
            b'c' => {
                self.next()
                    .ok_or("\\c lacks its letter")?
                    .to_ascii_uppercase()
                    ^ 64
            }
            b'x' if self.take(b"{") => {
                let end = self.rest.iter().position(|byte| *byte == b'}');
                let digits = end.and_then(|end| self.rest.get(..end)).unwrap_or_default();
                let value = number(digits, 16).ok_or("\\x{ } is a byte in hexadecimal")?;
                self.rest = self.rest.get(digits.len() + 1..).unwrap_or_default();
                value
            }
            b'x' => self.digits(2, 16).unwrap_or(0),
            b'0' => self.digits(2, 8).unwrap_or(0),
            byte if byte.is_ascii_alphanumeric() => {
                return Err(format!("\\{} means nothing", char::from(byte)));
            }
            byte => byte,
        })
    }

    fn digits(&mut self, most: usize, radix: u32) -> Option<u8> {
        let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
        let length = self.rest.iter().take(most).take_while(is_digit).count();
        let (digits, rest) = self.rest.split_at(length);
        self.rest = rest;
        number(digits, radix)
    }

    fn set(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.take(b"^") {
            self.out.push('^');
        }
        let mut is_first = true;
        // The byte that a range may begin with.
        let mut before: Option<u8> = None;
        loop {
            let byte = self.next().ok_or("a set lacks its ]")?;
            match byte {
                b']' if !is_first => {
                    self.out.push(']');
                    return Ok(());
                }
                b'[' if self.named_set()? => before = None,
                b'\\' if self.shorthand() => before = None,
                b'-' if before.is_some() && self.rest.first().is_some_and(|it| *it != b']') => {
                    self.range(before.take().unwrap_or_default())?;
                }
                byte => {
                    let byte = self.member(byte)?;
                    self.hex(byte);
                    before = Some(byte);
                }
            }
            is_first = false;
        }
    }

    fn member(&mut self, byte: u8) -> Result<u8, String> {
        if byte != b'\\' {
            return Ok(byte);
        }
        match self.next().ok_or("it ends with a backslash")? {
            b'b' => Ok(8),
            digit @ b'1'..=b'7' => {
                let more = self.digits(2, 8).unwrap_or(0);
                Ok((digit - b'0').wrapping_mul(8).wrapping_add(more))
            }
            byte => self.escaped(byte),
        }
    }

    /// The end of a range whose begin is written; a set of its own there leaves a bare hyphen.
    fn range(&mut self, from: u8) -> Result<(), String> {
        let is_set = matches!(
            self.rest,
            [b'\\', b'd' | b'D' | b'w' | b'W' | b's' | b'S' | b'h', ..]
        ) || self.rest.starts_with(b"[:");
        if is_set {
            self.hex(b'-');
            return Ok(());
        }
        let byte = self.next().ok_or("a set lacks its ]")?;
        let to = self.member(byte)?;
        if to < from {
            return Err("a range in a set runs backwards".to_owned());
        }
        self.out.push('-');
        self.hex(to);
        Ok(())
    }

    /// `\d` and its like within a set.
    fn shorthand(&mut self) -> bool {
        match self.rest.first() {
            Some(letter @ (b'd' | b'D' | b'w' | b'W' | b's' | b'S')) => {
                self.out.push('\\');
                self.out.push(char::from(*letter));
            }
            Some(b'h') => self.out.push_str("\\t\\x20\\xA0"),
            Some(b'v') => self.out.push_str("\\n\\x0B\\x0C\\r\\x85"),
            _ => return false,
        }
        self.rest = self.rest.get(1..).unwrap_or_default();
        true
    }

    /// `[:alpha:]` within a set; any other bracket is itself.
    fn named_set(&mut self) -> Result<bool, String> {
        let Some(rest) = self.rest.strip_prefix(b":") else {
            return Ok(false);
        };
        let Some(end) = rest.windows(2).position(|pair| pair == b":]") else {
            return Ok(false);
        };
        let name = String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned();
        let plain = name.strip_prefix('^').unwrap_or(&name);
        if !plain.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Ok(false);
        }
        const NAMES: [&str; 14] = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print",
            "punct", "space", "upper", "word", "xdigit",
        ];
        if !NAMES.contains(&plain) {
            return Err(format!("there is no set [:{name}:]"));
        }
        let _ = write!(self.out, "[:{name}:]");
        self.rest = rest.get(end + 2..).unwrap_or_default();
        Ok(true)
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, radix).ok()
}

/// The length of `n}`, `n,}` or `n,m}` at the begin, if a count stands there.
fn count_of(rest: &[u8]) -> Option<usize> {
    let end = rest.iter().position(|byte| *byte == b'}')?;
    let (from, to) = match rest
        .get(..end)?
        .split(|byte| *byte == b',')
        .collect::<Vec<_>>()[..]
    {
        [from] => (from, from),
        [from, to] => (from, to),
        _ => return None,
    };
    let are_digits = |digits: &[u8]| digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit);
    (!from.is_empty() && are_digits(from) && are_digits(to)).then_some(end + 1)
}
