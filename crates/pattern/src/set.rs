//! Sets of characters, as they are written: `[a-z&&[^x]]`, `[[:alpha:]]`, `[\w.]`.

use std::sync::Arc;

use super::class::{Class, Property};
use super::parse::{Code, DEPTH_MAX, Node, Parser};
use super::{Syntax, byte_code};

/// Sets within sets of one pattern that have to be asked one by one.
const APART_MAX: usize = 100;

impl Parser<'_> {
    /// A set, after its `[`.
    pub(super) fn set(&mut self) -> Result<Class, Syntax> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong("more than 60 groups in one another"));
        }
        let negated = self.eat('^');
        let mut class = self.set_items(true)?;
        if self.eat_all("&&") {
            class.and = Some(Box::new(self.set_rest()?));
        }
        class.negated = negated;
        class.finish();
        self.depth -= 1;
        match self.eat(']') {
            true => Ok(class),
            false => Err(self.wrong("a [ without its ]")),
        }
    }

    /// What stands after `&&`, up to the `]`.
    fn set_rest(&mut self) -> Result<Class, Syntax> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong("more than 60 groups in one another"));
        }
        let mut class = self.set_items(false)?;
        if self.eat_all("&&") {
            class.and = Some(Box::new(self.set_rest()?));
        }
        class.finish();
        self.depth -= 1;
        Ok(class)
    }

    fn set_items(&mut self, mut is_first: bool) -> Result<Class, Syntax> {
        let mut class = Class::default();
        loop {
            let rest = self.chars.get(self.at..).unwrap_or_default();
            match rest {
                [] => return Err(self.wrong("a [ without its ]")),
                [']', ..] if !is_first => return Ok(class),
                ['&', '&', ..] => return Ok(class),
                ['[', ':', ..] if self.posix(&mut class)? => {}
                ['[', ..] => {
                    self.at += 1;
                    let within = self.set()?;
                    self.take_in(&mut class, within)?;
                }
                ['\\', c, ..] if shorthand(*c).is_some() => {
                    shorthand(*c)
                        .into_iter()
                        .for_each(|property| class.add_property(property));
                    self.at += 2;
                }
                ['\\', 'p' | 'P', ..] => {
                    self.at += 1;
                    let property = self.property()?;
                    class.add_property(property);
                }
                _ => self.set_range(&mut class)?,
            }
            is_first = false;
        }
    }

    /// Makes a set part of the one it stands in.
    fn take_in(&mut self, class: &mut Class, within: Class) -> Result<(), Syntax> {
        if let Some(apart) = class.unite(within) {
            class.within.push(apart);
            self.apart += 1;
        }
        match self.apart > APART_MAX {
            true => Err(self.wrong("more than 100 sets with ^ or && within sets")),
            false => Ok(()),
        }
    }

    /// A character, or all from it to another.
    fn set_range(&mut self, class: &mut Class) -> Result<(), Syntax> {
        let from = self.set_char()?;
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let is_range = match rest {
            ['-', ']', ..] | ['-', '[', ..] => false,
            ['-', '\\', c, ..] => shorthand(*c).is_none() && !matches!(c, 'p' | 'P'),
            ['-', ..] => true,
            _ => false,
        };
        if !is_range {
            class.ranges.push((from, from));
            return Ok(());
        }
        self.at += 1;
        let to = self.set_char()?;
        if to < from {
            return Err(self.wrong("a range that ends before it begins"));
        }
        class.ranges.push((from, to));
        Ok(())
    }

    fn set_char(&mut self) -> Result<u32, Syntax> {
        match self.next() {
            Some('\\') => {
                if self.eat('b') {
                    return Ok(8);
                }
                Ok(match self.code()? {
                    Code::Char(code) => code,
                    Code::Byte(byte) => byte_code(byte),
                })
            }
            Some(c) => Ok(c.into()),
            None => Err(self.wrong("a [ without its ]")),
        }
    }

    /// `[:alpha:]` or `[:^alpha:]`, if that is what it is.
    fn posix(&mut self, class: &mut Class) -> Result<bool, Syntax> {
        let rest = self.chars.get(self.at + 2..).unwrap_or_default();
        let length = rest.iter().take(20).position(|c| *c == ':');
        let Some(length) = length.filter(|length| rest.get(length + 1) == Some(&']')) else {
            return Ok(false);
        };
        let name: String = rest.iter().take(length).collect();
        let (name, without) = match name.strip_prefix('^') {
            Some(name) => (name, true),
            None => (name.as_str(), false),
        };
        match Property::of_name(name) {
            Some(property) => class.add_property((property, without)),
            None => return Err(self.wrong(&format!("no class [:{name}:] is known"))),
        }
        self.at += 2 + length + 2;
        Ok(true)
    }
}

/// `\d` and its kin: the property, and whether it is to be absent.
pub(super) fn shorthand(c: char) -> Option<(Property, bool)> {
    Some(match c {
        'd' => (Property::AsciiDigit, false),
        'D' => (Property::AsciiDigit, true),
        's' => (Property::AsciiSpace, false),
        'S' => (Property::AsciiSpace, true),
        'w' => (Property::AsciiWord, false),
        'W' => (Property::AsciiWord, true),
        'h' => (Property::AsciiHex, false),
        'H' => (Property::AsciiHex, true),
        _ => return None,
    })
}

/// `\R`.
pub(super) fn line_break() -> Node {
    let mut single = Class::default();
    single.ranges = vec![(10, 13), (0x85, 0x85), (0x2028, 0x2029)];
    single.finish();
    let both = Node::Concat(vec![Node::Char(13, false), Node::Char(10, false)]);
    let single = Node::Set(Arc::new(single), false);
    Node::Atomic(Box::new(Node::Alternate(vec![both, single])))
}
