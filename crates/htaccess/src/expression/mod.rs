//! Expressions of `<If>`, `RewriteCond expr` and their like, without lookups of other URLs.
//!
//! [`parse`] reads the grammar of ap_expr in one pass over the bytes, [`evaluate`] says what an
//! expression comes to. A tree is as deep as [`DEPTH_MAX`] and as large as its line.

mod evaluate;
mod function;
mod parse;

use ipnet::IpNet;

use crate::pattern::Pattern;
use crate::variable::Variable;

pub(crate) use evaluate::{holds, number, text};
pub(crate) use parse::{condition, is_by_env, words};

/// Parts of an expression within each other.
const DEPTH_MAX: usize = 32;

/// What is true or not.
#[derive(Debug)]
pub(crate) enum Condition {
    Always(bool),
    Not(Box<Condition>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    /// `-n`, `-f` and its like.
    Unary(u8, Word),
    Texts(Word, Comparison, Word),
    Numbers(Word, Comparison, Word),
    Matches(Word, Pattern),
    In(Word, Vec<Word>),
    Network(Word, IpNet),
    /// `-strmatch` and its like: whether letters are the same in either case, and slashes apart.
    Like(Word, Word, Likeness),
}

/// How a comparison must come out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(crate) fn holds(self, found: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => found.is_eq(),
            Self::NotEqual => found.is_ne(),
            Self::Less => found.is_lt(),
            Self::LessOrEqual => found.is_le(),
            Self::Greater => found.is_gt(),
            Self::GreaterOrEqual => found.is_ge(),
        }
    }
}

/// How a text may be like another with stars in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likeness {
    Exact,
    Folded,
    Path,
}

/// What comes to a text.
#[derive(Debug)]
pub(crate) enum Word {
    Text(Vec<u8>),
    Variable(Variable),
    /// `$1`.
    Group(u8),
    Joined(Vec<Word>),
    Call(function::Function, Box<Word>),
}
