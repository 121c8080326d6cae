//! Ruby's syntax of regular expressions, read into a tree.

use std::sync::Arc;

use super::class::{Class, Property};
use super::set::{line_break, shorthand};
use super::{Flags, Syntax};

/// Groups and sets in one another.
pub(super) const DEPTH_MAX: usize = 60;
/// Groups that are remembered.
const GROUPS_MAX: usize = 200;
/// Largest count of `{n,m}`.
const COUNT_MAX: u32 = 10_000;

/// What is to be matched.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Empty,
    /// A character; whether case does not matter.
    Char(u32, bool),
    /// A byte that need not be a character.
    Byte(u8),
    /// Any character; whether a newline is one.
    Any(bool),
    Set(Arc<Class>, bool),
    Assert(Assert),
    Group(usize, Box<Node>),
    Concat(Vec<Node>),
    Alternate(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>, Manner),
    Back(Reference, bool),
    Look(Box<Node>, Look),
    Atomic(Box<Node>),
    Keep,
    If(Reference, Box<Node>, Box<Node>),
}

/// How a repetition goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    Greedy,
    Lazy,
    Possessive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) behind: bool,
    pub(super) negative: bool,
}

/// A place, not a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assert {
    LineStart,
    LineEnd,
    TextStart,
    TextEnd,
    /// Before a newline at the end of the text, too.
    LastLineEnd,
    Boundary,
    NoBoundary,
    SearchStart,
}

/// A group that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reference {
    Number(usize),
    Name(String),
}

/// A tree with what is known of its groups.
pub(super) struct Parsed {
    pub(super) node: Node,
    pub(super) groups: usize,
    /// In the order they appear; each name may have several groups.
    pub(super) names: Vec<(String, Vec<usize>)>,
}

pub(super) struct Parser<'a> {
    pub(super) chars: &'a [char],
    pub(super) at: usize,
    pub(super) depth: usize,
    /// Sets within sets that could not be made part of them.
    pub(super) apart: usize,
    groups: usize,
    names: Vec<(String, Vec<usize>)>,
    /// Whether groups without a name are remembered.
    remembers: bool,
    unnamed: bool,
}

pub(super) fn parse(source: &str, flags: Flags) -> Result<Parsed, Syntax> {
    let mut chars = Vec::with_capacity(source.len());
    chars.extend(source.chars());
    let mut parsed = parse_once(&chars, flags, true)?;
    if !parsed.1 || parsed.0.names.is_empty() {
        return Ok(parsed.0);
    }
    // Beside named groups the others are not remembered.
    parsed = parse_once(&chars, flags, false)?;
    Ok(parsed.0)
}

fn parse_once(chars: &[char], flags: Flags, remembers: bool) -> Result<(Parsed, bool), Syntax> {
    let mut parser = Parser {
        chars,
        at: 0,
        depth: 0,
        apart: 0,
        groups: 0,
        names: Vec::new(),
        remembers,
        unnamed: false,
    };
    let node = parser.alternate(flags)?;
    if parser.at < chars.len() {
        return Err(parser.wrong("a ) without its ("));
    }
    let parsed = Parsed {
        node,
        groups: parser.groups,
        names: parser.names,
    };
    Ok((parsed, parser.unnamed))
}

impl Parser<'_> {
    pub(super) fn wrong(&self, what: &str) -> Syntax {
        Syntax(format!("{what} (character {})", self.at))
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(super) fn eat(&mut self, wanted: char) -> bool {
        let is = self.peek() == Some(wanted);
        self.at += usize::from(is);
        is
    }

    pub(super) fn eat_all(&mut self, wanted: &str) -> bool {
        let mut rest = self.chars.iter().skip(self.at);
        let is = wanted.chars().all(|c| rest.next() == Some(&c));
        self.at += if is { wanted.chars().count() } else { 0 };
        is
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.at += usize::from(next.is_some());
        next
    }

    fn until(&mut self, end: char) -> Result<String, Syntax> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some(c) if c == end => return Ok(text),
                Some(c) => text.push(c),
                None => return Err(self.wrong(&format!("a {end} is missing"))),
            }
        }
    }

    fn alternate(&mut self, flags: Flags) -> Result<Node, Syntax> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong("more than 60 groups in one another"));
        }
        let mut all = vec![self.concat(flags)?];
        while self.eat('|') {
            all.push(self.concat(flags)?);
        }
        self.depth -= 1;
        Ok(match all.len() {
            1 => all.pop().unwrap_or(Node::Empty),
            _ => Node::Alternate(all),
        })
    }

    fn concat(&mut self, flags: Flags) -> Result<Node, Syntax> {
        let mut all: Vec<Node> = Vec::with_capacity(8);
        while let Some(c) = self.peek() {
            match c {
                '|' | ')' => break,
                '#' if flags.extended => while self.next().is_some_and(|c| c != '\n') {},
                c if flags.extended && c.is_ascii_whitespace() => self.at += 1,
                _ => {
                    if self.eat_all("(?#") {
                        self.until(')')?;
                        continue;
                    }
                    if let Some(rest) = self.rest_with_options(flags)? {
                        all.push(rest);
                        break;
                    }
                    let atom = self.atom(flags)?;
                    all.push(self.repeated(atom, flags)?);
                }
            }
        }
        Ok(match all.len() {
            0 => Node::Empty,
            1 => all.pop().unwrap_or(Node::Empty),
            _ => Node::Concat(all),
        })
    }

    /// `(?i)`: everything up to the end of the group, its alternatives too, has these options.
    fn rest_with_options(&mut self, flags: Flags) -> Result<Option<Node>, Syntax> {
        let before = self.at;
        if self.eat_all("(?")
            && let Some(flags) = self.options(flags)
            && self.eat(')')
        {
            return self.alternate(flags).map(Some);
        }
        self.at = before;
        Ok(None)
    }

    /// `imx-imx`; `None` where it is something else.
    fn options(&mut self, mut flags: Flags) -> Option<Flags> {
        let mut on = true;
        loop {
            match self.peek()? {
                'i' => flags.ignore_case = on,
                'm' => flags.multiline = on,
                'x' => flags.extended = on,
                // Which characters \w and the like mean: as it is.
                'a' | 'd' | 'u' if on => {}
                '-' if on => on = false,
                ':' | ')' => return Some(flags),
                _ => return None,
            }
            self.at += 1;
        }
    }

    fn repeated(&mut self, mut node: Node, flags: Flags) -> Result<Node, Syntax> {
        loop {
            if flags.extended {
                while self.peek().is_some_and(|c| c.is_ascii_whitespace()) {
                    self.at += 1;
                }
            }
            let (least, most, counted) = match self.peek() {
                Some('*') => (0, None, false),
                Some('+') => (1, None, false),
                Some('?') => (0, Some(1), false),
                Some('{') => match self.count()? {
                    Some((least, most)) => (least, most, true),
                    None => return Ok(node),
                },
                _ => return Ok(node),
            };
            self.at += usize::from(!counted);
            let exact = counted && most == Some(least);
            if exact && self.eat('?') {
                // Ruby reads /a{2}?/ as /(?:a{2})?/.
                let inner = Node::Repeat(Box::new(node), least, most, Manner::Greedy);
                node = Node::Repeat(Box::new(inner), 0, Some(1), Manner::Greedy);
                continue;
            }
            let manner = match self.peek() {
                Some('?') => Manner::Lazy,
                Some('+') if !counted => Manner::Possessive,
                _ => Manner::Greedy,
            };
            self.at += usize::from(manner != Manner::Greedy);
            node = Node::Repeat(Box::new(node), least, most, manner);
        }
    }

    /// `{n}`, `{n,}`, `{,m}`, `{n,m}`; anything else is text.
    fn count(&mut self) -> Result<Option<(u32, Option<u32>)>, Syntax> {
        let before = self.at;
        self.at += 1;
        let least = self.digits();
        let has_comma = self.eat(',');
        let most = if has_comma { self.digits() } else { least };
        if !self.eat('}') || (least.is_none() && most.is_none()) {
            self.at = before;
            return Ok(None);
        }
        let least = least.unwrap_or(0);
        if least.max(most.unwrap_or(0)) > COUNT_MAX {
            return Err(self.wrong("a count above 10000"));
        }
        match most {
            Some(most) if most < least => Err(self.wrong("a count that ends before it begins")),
            most => Ok(Some((least, most))),
        }
    }

    fn digits(&mut self) -> Option<u32> {
        let mut number = None;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            let so_far: u32 = number.unwrap_or(0);
            number = Some(so_far.saturating_mul(10).saturating_add(digit));
            self.at += 1;
        }
        number
    }

    fn atom(&mut self, flags: Flags) -> Result<Node, Syntax> {
        let c = self.next().unwrap_or_default();
        Ok(match c {
            '.' => Node::Any(flags.multiline),
            '^' if flags.whole_text => Node::Assert(Assert::TextStart),
            '^' => Node::Assert(Assert::LineStart),
            '$' if flags.whole_text => Node::Assert(Assert::TextEnd),
            '$' => Node::Assert(Assert::LineEnd),
            '(' => return self.group(flags),
            '[' => Node::Set(Arc::new(self.set()?), flags.ignore_case),
            '\\' => return self.escape(flags),
            '*' | '+' | '?' => return Err(self.wrong("nothing before a repetition")),
            c => Node::Char(c.into(), flags.ignore_case),
        })
    }

    fn group(&mut self, flags: Flags) -> Result<Node, Syntax> {
        if !self.eat('?') {
            self.unnamed = true;
            if !self.remembers {
                return self.closed(flags);
            }
            let number = self.another_group()?;
            return Ok(Node::Group(number, Box::new(self.closed(flags)?)));
        }
        let look = |behind, negative| Look { behind, negative };
        let looks = [
            ("=", look(false, false)),
            ("!", look(false, true)),
            ("<=", look(true, false)),
            ("<!", look(true, true)),
        ];
        for (sign, look) in looks {
            if self.eat_all(sign) {
                return Ok(Node::Look(Box::new(self.closed(flags)?), look));
            }
        }
        if self.eat('>') {
            return Ok(Node::Atomic(Box::new(self.closed(flags)?)));
        }
        if self.eat('<') {
            return self.named('>', flags);
        }
        if self.eat('\'') {
            return self.named('\'', flags);
        }
        if self.eat('(') {
            return self.conditional(flags);
        }
        if self.eat('~') {
            return Err(self.wrong("(?~ ) is not supported"));
        }
        match self.options(flags) {
            Some(flags) if self.eat(':') => self.closed(flags),
            _ => Err(self.wrong("an unknown kind of group")),
        }
    }

    fn closed(&mut self, flags: Flags) -> Result<Node, Syntax> {
        let node = self.alternate(flags)?;
        match self.eat(')') {
            true => Ok(node),
            false => Err(self.wrong("a ( without its )")),
        }
    }

    fn another_group(&mut self) -> Result<usize, Syntax> {
        self.groups += 1;
        match self.groups > GROUPS_MAX {
            true => Err(self.wrong("more than 200 groups")),
            false => Ok(self.groups),
        }
    }

    fn named(&mut self, end: char, flags: Flags) -> Result<Node, Syntax> {
        let name = self.until(end)?;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if name.starts_with(|c: char| c.is_ascii_digit())
            || name.is_empty()
            || !name.chars().all(is_word)
        {
            return Err(self.wrong("a group's name is none"));
        }
        let number = self.another_group()?;
        match self.names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, groups)) => groups.push(number),
            None => self.names.push((name, vec![number])),
        }
        Ok(Node::Group(number, Box::new(self.closed(flags)?)))
    }

    fn conditional(&mut self, flags: Flags) -> Result<Node, Syntax> {
        let reference = match self.peek() {
            Some('<') => {
                self.at += 1;
                let name = self.until('>')?;
                self.eat(')');
                self.reference(&name)?
            }
            _ => {
                let name = self.until(')')?;
                self.reference(&name)?
            }
        };
        let (yes, no) = match self.closed(flags)? {
            Node::Alternate(mut both) if both.len() == 2 => {
                let no = both.pop().unwrap_or(Node::Empty);
                (both.pop().unwrap_or(Node::Empty), no)
            }
            Node::Alternate(_) => return Err(self.wrong("more than two branches of a condition")),
            yes => (yes, Node::Empty),
        };
        Ok(Node::If(reference, Box::new(yes), Box::new(no)))
    }

    /// `name`, `2` or `-1`.
    fn reference(&self, text: &str) -> Result<Reference, Syntax> {
        if let Ok(number) = text.parse::<usize>() {
            return Ok(Reference::Number(number));
        }
        if let Some(back) = text
            .strip_prefix('-')
            .and_then(|back| back.parse::<usize>().ok())
        {
            return match (self.groups + 1).checked_sub(back) {
                Some(number) if number > 0 && back > 0 => Ok(Reference::Number(number)),
                _ => Err(self.wrong("a reference to a group that is not there")),
            };
        }
        Ok(Reference::Name(text.to_owned()))
    }

    fn escape(&mut self, flags: Flags) -> Result<Node, Syntax> {
        let Some(c) = self.peek() else {
            return Err(self.wrong("a \\ at the end"));
        };
        let set = |property, without| Node::Set(Arc::new(Class::of(property, without)), false);
        if let Some((property, without)) = shorthand(c) {
            self.at += 1;
            return Ok(set(property, without));
        }
        let assert = match c {
            'A' => Some(Assert::TextStart),
            'z' => Some(Assert::TextEnd),
            'Z' => Some(Assert::LastLineEnd),
            'b' => Some(Assert::Boundary),
            'B' => Some(Assert::NoBoundary),
            'G' => Some(Assert::SearchStart),
            _ => None,
        };
        if let Some(assert) = assert {
            self.at += 1;
            return Ok(Node::Assert(assert));
        }
        match c {
            'p' | 'P' => {
                let (property, without) = self.property()?;
                Ok(Node::Set(
                    Arc::new(Class::of(property, without)),
                    flags.ignore_case,
                ))
            }
            'K' => {
                self.at += 1;
                Ok(Node::Keep)
            }
            'R' => {
                self.at += 1;
                Ok(line_break())
            }
            'k' => self.named_back(flags),
            'g' | 'X' => Err(self.wrong(&format!("\\{c} is not supported"))),
            '1'..='9' => self.numbered_back(flags),
            _ => Ok(match self.code()? {
                Code::Char(code) => Node::Char(code, flags.ignore_case),
                Code::Byte(byte) => Node::Byte(byte),
            }),
        }
    }

    fn named_back(&mut self, flags: Flags) -> Result<Node, Syntax> {
        self.at += 1;
        let end = match self.next() {
            Some('<') => '>',
            Some('\'') => '\'',
            _ => return Err(self.wrong("\\k without a <name>")),
        };
        let name = self.until(end)?;
        Ok(Node::Back(self.reference(&name)?, flags.ignore_case))
    }

    /// `\12` is the twelfth group if there are as many so far, and an octal number otherwise.
    fn numbered_back(&mut self, flags: Flags) -> Result<Node, Syntax> {
        let before = self.at;
        let number = self.digits().unwrap_or(0);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        if number < 10 || number <= self.groups {
            return Ok(Node::Back(Reference::Number(number), flags.ignore_case));
        }
        self.at = before;
        Ok(match self.code()? {
            Code::Char(code) => Node::Char(code, flags.ignore_case),
            Code::Byte(byte) => Node::Byte(byte),
        })
    }

    /// `\p{Alpha}`, `\p{^Alpha}`, `\P{Alpha}`; at the `p`.
    pub(super) fn property(&mut self) -> Result<(Property, bool), Syntax> {
        let mut without = self.next() == Some('P');
        if !self.eat('{') {
            return Err(self.wrong("\\p without a {name}"));
        }
        without ^= self.eat('^');
        let name = self.until('}')?;
        match Property::of_name(&name) {
            Some(property) => Ok((property, without)),
            None => Err(self.wrong(&format!("no property {name} is known"))),
        }
    }

    /// A character written with a `\`, which has been read.
    pub(super) fn code(&mut self) -> Result<Code, Syntax> {
        let Some(c) = self.next() else {
            return Err(self.wrong("a \\ at the end"));
        };
        Ok(Code::Char(match c {
            't' => 9,
            'n' => 10,
            'v' => 11,
            'f' => 12,
            'r' => 13,
            'a' => 7,
            'e' => 27,
            'c' => u32::from(self.next().unwrap_or_default()) & 0x1f,
            'x' => {
                let digits = self.radix(16, 2);
                return self.byte(digits);
            }
            '0'..='7' => {
                self.at -= 1;
                let digits = self.radix(8, 3);
                return self.byte(digits);
            }
            'u' => self.unicode()?,
            other => other.into(),
        }))
    }

    fn byte(&self, digits: Option<u32>) -> Result<Code, Syntax> {
        match digits {
            Some(code @ 0..128) => Ok(Code::Char(code)),
            Some(code) => match u8::try_from(code) {
                Ok(byte) => Ok(Code::Byte(byte)),
                Err(_) => Err(self.wrong("a byte above 255")),
            },
            None => Err(self.wrong("a number without digits")),
        }
    }

    fn radix(&mut self, radix: u32, most: usize) -> Option<u32> {
        let mut number = None;
        for _ in 0..most {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(radix)) else {
                break;
            };
            number = Some(number.unwrap_or(0) * radix + digit);
            self.at += 1;
        }
        number
    }

    fn unicode(&mut self) -> Result<u32, Syntax> {
        let code = match self.eat('{') {
            true => {
                let text = self.until('}')?;
                u32::from_str_radix(text.trim(), 16).ok()
            }
            false => self.radix(16, 4),
        };
        match code.and_then(char::from_u32) {
            Some(c) => Ok(c.into()),
            None => Err(self.wrong("\\u without a character's number")),
        }
    }
}

pub(super) enum Code {
    Char(u32),
    Byte(u8),
}
