//! Writes a pattern anew, in words that the matcher here takes as PCRE takes those it had.
//!
//! What is left undone in it, or means something else, is refused: `(?m)`, flags in the
//! midst of a group, counts that give nothing back. How large a pattern gets where it repeats groups
//! is known before it is compiled.

use std::fmt::Write as _;

/// Parts of a pattern, repeated ones as often as they are: so many, and some for each of its bytes.
const PARTS_MAX: usize = 128;
const PARTS_MAX_A_BYTE: usize = 8;

/// Writes a pattern anew.
pub(super) struct Writer<'p> {
    pattern: &'p [u8],
    rest: &'p [u8],
    pub(super) out: String,
    /// Groups that are remembered, so far.
    groups: usize,
    /// Those of them that have names.
    names: Vec<(String, usize)>,
    /// How many parts the groups have that are open, the outermost first.
    open: Vec<usize>,
    /// How many what stands before a repeat has.
    last: usize,
}

/// A repeat: how often at least and at most.
#[derive(Clone, Copy)]
struct Count {
    least: usize,
    most: Option<usize>,
    /// Bytes it takes, after its bracket.
    bytes: usize,
}

impl<'p> Writer<'p> {
    pub(super) fn new(pattern: &'p [u8]) -> Self {
        Self {
            pattern,
            rest: pattern,
            out: String::with_capacity(pattern.len() + 2),
            groups: 0,
            names: Vec::new(),
            open: vec![0],
            last: 0,
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
                b')' => {
                    self.out.push(')');
                    let within = match self.open.len() {
                        0 | 1 => 0,
                        _ => self.open.pop().unwrap_or_default(),
                    };
                    self.part(within.saturating_add(2));
                }
                b'*' => self.repeat("*", 0, None)?,
                b'+' => self.repeat("+", 1, None)?,
                b'?' => self.repeat("?", 0, Some(1))?,
                b'{' => match count_of(self.rest) {
                    Some(count) => self.count(count)?,
                    None => {
                        self.out.push_str("\\{");
                        self.part(1);
                    }
                },
                b'$' => self.out.push_str("\\z"),
                b'^' => self.out.push('^'),
                b'.' | b'|' => {
                    self.out.push(char::from(byte));
                    self.part(1);
                }
                // Blanks stay as they are: a flag may make nothing of them.
                b' ' | b'#' | b'\t' | b'\n' => {
                    self.out.push(char::from(byte));
                    self.part(1);
                }
                byte => self.literal(byte),
            }
        }
        Ok(())
    }

    /// Counts what was written as so many parts.
    fn part(&mut self, parts: usize) {
        self.last = parts;
        if let Some(open) = self.open.last_mut() {
            *open = open.saturating_add(parts);
        }
    }

    fn count(&mut self, count: Count) -> Result<(), String> {
        let (written, rest) = self.rest.split_at(count.bytes);
        self.rest = rest;
        let written = format!("{{{}", String::from_utf8_lossy(written));
        if count.most == Some(count.least) {
            // Lazy or not it is as many.
            self.take(b"?");
        }
        if self.rest.starts_with(b"+") {
            return Err("a count that gives nothing back is not had: use (?> )".to_owned());
        }
        self.repeat(&written, count.least, count.most)
    }

    /// A repeat, greedy, lazy or possessive.
    fn repeat(&mut self, how: &str, least: usize, most: Option<usize>) -> Result<(), String> {
        self.out.push_str(how);
        if self.take(b"?") {
            self.out.push('?');
        } else if self.take(b"+") {
            self.out.push('+');
        }
        let is_counted = |rest: &[u8]| count_of(rest).is_some();
        let is_repeated = matches!(self.rest, [b'*' | b'+' | b'?', ..])
            || self.rest.strip_prefix(b"{").is_some_and(is_counted);
        if is_repeated {
            return Err("a repeat is repeated".to_owned());
        }
        // One character is counted in one step; all else stands there as often as it may come.
        let more = most.unwrap_or(least.saturating_add(1)).saturating_sub(1);
        self.part(match self.last {
            0 | 1 => 0,
            parts => parts.saturating_mul(more),
        });
        let most = PARTS_MAX.saturating_add(self.pattern.len().saturating_mul(PARTS_MAX_A_BYTE));
        match self.open.last() {
            Some(open) if *open > most => Err("it repeats too much of itself".to_owned()),
            _ => Ok(()),
        }
    }

    fn literal(&mut self, byte: u8) {
        self.part(1);
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
        if self.rest.starts_with(b"*") {
            return Err("verbs such as (*FAIL) are not had".to_owned());
        }
        if !self.take(b"?") {
            self.groups += 1;
            self.open("(");
            return Ok(());
        }
        if self.take(b"#") {
            self.open("(?:");
            let end = self.rest.iter().position(|byte| *byte == b')');
            self.rest = end.and_then(|end| self.rest.get(end..)).unwrap_or_default();
            return Ok(());
        }
        for (look, words) in [
            (&b"="[..], "(?="),
            (b"!", "(?!"),
            (b"<=", "(?<="),
            (b"<!", "(?<!"),
            (b">", "(?>"),
        ] {
            if self.take(look) {
                self.open(words);
                return Ok(());
            }
        }
        for (begin, end) in [(&b"P<"[..], b'>'), (b"<", b'>'), (b"'", b'\'')] {
            if self.take(begin) {
                let name = self.name(end)?;
                self.groups += 1;
                self.names.push((name, self.groups));
                self.open("(");
                return Ok(());
            }
        }
        self.flags()
    }

    fn open(&mut self, words: &str) {
        self.out.push_str(words);
        self.open.push(0);
    }

    /// `(?i)`, where a group begins, or `(?i:`. That `.` is any byte goes without saying.
    fn flags(&mut self) -> Result<(), String> {
        let begins = ["", "(", "(?:"].iter().any(|begin| match *begin {
            "" => self.out.is_empty(),
            begin => self.out.ends_with(begin),
        });
        let mut flags = String::new();
        while let Some(byte) = self.next() {
            match byte {
                b'i' | b'x' => flags.push(char::from(byte)),
                b'-' if !flags.contains('-') => flags.push('-'),
                b's' if !flags.contains('-') => {}
                b':' => {
                    self.open(&format!("(?{flags}:"));
                    return Ok(());
                }
                b')' if begins => {
                    if !flags.is_empty() {
                        let _ = write!(self.out, "(?{flags})");
                    }
                    return Ok(());
                }
                b')' => return Err("flags stand where a group begins".to_owned()),
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
        self.part(match byte {
            b'b' | b'B' | b'Z' | b'R' => 4,
            b'1'..=b'9' | b'k' | b'g' => 2,
            _ => 1,
        });
        match byte {
            b'1'..=b'9' => self.reference(byte),
            b'd' | b'D' | b'w' | b'W' | b's' | b'S' | b'b' | b'B' | b'A' | b'z' => {
                self.out.push('\\');
                self.out.push(char::from(byte));
            }
            b'Z' => self.out.push_str("(?=\\n?\\z)"),
            b'G' => self.out.push_str("\\A"),
            b'h' => self.out.push_str("[\\t\\x20\\xA0]"),
            b'H' => self.out.push_str("[^\\t\\x20\\xA0]"),
            b'v' => self.out.push_str("[\\n\\x0B\\x0C\\r\\x85]"),
            b'V' => self.out.push_str("[^\\n\\x0B\\x0C\\r\\x85]"),
            b'R' => self.out.push_str("(?:\\r\\n|[\\n\\x0B\\x0C\\r\\x85])"),
            b'N' => self.out.push_str("[^\\n]"),
            b'K' => self.out.push_str("\\K"),
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
            self.refer(whole);
            return;
        }
        let rest = self.digits(2, 8).unwrap_or(0);
        self.hex((first - b'0').wrapping_mul(64).wrapping_add(rest));
    }

    fn refer(&mut self, group: usize) {
        let _ = write!(self.out, "(?:\\{group})");
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
        let mut names = self.names.iter();
        let named = names.find(|(have, _)| *have == name);
        let group = named.map(|(_, group)| *group);
        let group = group.or_else(|| name.parse().ok().filter(|group| *group < 100));
        let group = group.ok_or_else(|| format!("there is no group {name}"))?;
        self.refer(group);
        Ok(())
    }

    fn quoted(&mut self) {
        while !self.rest.is_empty() && !self.take(b"\\E") {
            if let Some(byte) = self.next() {
                self.part(1);
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
        self.part(1);
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
            [
                b'\\',
                b'd' | b'D' | b'w' | b'W' | b's' | b'S' | b'h' | b'v',
                ..
            ]
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
        let (is_without, plain) = match name.strip_prefix('^') {
            Some(plain) => (true, plain),
            None => (false, &*name),
        };
        if !plain.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Ok(false);
        }
        let holds = named(plain).ok_or_else(|| format!("there is no set [:{name}:]"))?;
        let mut from: Option<u8> = None;
        for byte in 0..=u8::MAX {
            if holds(byte) == is_without {
                from = None;
            } else if from.is_none() {
                from = Some(byte);
                self.hex(byte);
            }
            let ends = byte == u8::MAX || holds(byte + 1) == is_without;
            if ends && from.is_some_and(|from| from < byte) {
                self.out.push('-');
                self.hex(byte);
            }
        }
        self.rest = rest.get(end + 2..).unwrap_or_default();
        Ok(true)
    }
}

/// What a named set has: bytes of ASCII.
fn named(name: &str) -> Option<fn(u8) -> bool> {
    Some(match name {
        "alnum" => |byte: u8| byte.is_ascii_alphanumeric(),
        "alpha" => |byte: u8| byte.is_ascii_alphabetic(),
        "ascii" => |byte: u8| byte.is_ascii(),
        "blank" => |byte: u8| matches!(byte, b' ' | b'\t'),
        "cntrl" => |byte: u8| byte.is_ascii_control(),
        "digit" => |byte: u8| byte.is_ascii_digit(),
        "graph" => |byte: u8| byte.is_ascii_graphic(),
        "lower" => |byte: u8| byte.is_ascii_lowercase(),
        "print" => |byte: u8| byte == b' ' || byte.is_ascii_graphic(),
        "punct" => |byte: u8| byte.is_ascii_punctuation(),
        "space" => |byte: u8| matches!(byte, b' ' | b'\t'..=b'\r'),
        "upper" => |byte: u8| byte.is_ascii_uppercase(),
        "word" => |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric(),
        "xdigit" => |byte: u8| byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

fn number(digits: &[u8], radix: u32) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, radix).ok()
}

/// `n}`, `n,}` or `n,m}` at the begin, if a count stands there.
fn count_of(rest: &[u8]) -> Option<Count> {
    let end = rest.iter().take(12).position(|byte| *byte == b'}')?;
    let written = std::str::from_utf8(rest.get(..end)?).ok()?;
    let number = |digits: &str| {
        let are_digits = digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<usize>().ok().filter(|_| are_digits)
    };
    let (least, most) = match written.split_once(',') {
        None => (number(written)?, Some(number(written)?)),
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some(Count {
        least,
        most,
        bytes: end + 1,
    })
}
