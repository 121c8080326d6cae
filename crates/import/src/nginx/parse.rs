//! nginx's grammar: statements of words, with blocks in each other.
//!
//! `nginx -T` prints file after file, each below a line with its name, and leaves `include` where it
//! stands: what a pattern means is looked up among the files that were printed, and nothing else is
//! ever read.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::{Fate, Ledger};
use crate::{DEPTH_MAX, LINES_MAX, Unreadable, words};

/// Bytes of a word.
const WORD_BYTES_MAX: usize = 64 * 1024;
/// Words of a statement.
const WORDS_MAX: usize = 4_096;
/// Includes within each other.
const INCLUDES_MAX: usize = 16;
/// Begins the line above each file of `nginx -T`.
const FILE_MARK: &str = "# configuration file ";

/// A directive with its words, and its block if it has one.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) id: usize,
    pub(super) name: String,
    pub(super) words: Vec<String>,
    pub(super) block: Option<Vec<Statement>>,
}

impl Statement {
    /// The first word, or nothing.
    pub(super) fn first(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Whether these are its words.
    pub(super) fn says(&self, words: &[&str]) -> bool {
        self.words
            .iter()
            .map(String::as_str)
            .eq(words.iter().copied())
    }
}

/// The files of a configuration.
#[derive(Debug)]
pub(super) struct Files {
    list: Vec<(Arc<str>, Vec<Statement>)>,
    /// Statements that may still be gone through: a file may be included often.
    budget: Cell<usize>,
    /// The files that patterns of includes were found to mean.
    found: RefCell<BTreeMap<String, Vec<usize>>>,
}

impl Files {
    /// Reads what `nginx -T` prints, or one file.
    pub(super) fn read(text: &str, name: &str, ledger: &Ledger) -> Result<Self, Unreadable> {
        let mut list = Vec::new();
        let mut lines = 0;
        for (name, text) in split(text, name) {
            let mut reader = Reader {
                text,
                at: 0,
                line: 1,
                file: Arc::clone(&name),
                ledger,
                lines,
            };
            let statements = reader.block(0)?;
            lines = reader.lines;
            list.push((name, statements));
        }
        Ok(Self {
            list,
            budget: Cell::new(4 * LINES_MAX),
            found: RefCell::default(),
        })
    }

    /// The statements of the first file, with what it includes in its place.
    pub(super) fn main(&self, ledger: &Ledger) -> Vec<&Statement> {
        let first = self
            .list
            .first()
            .map(|(_, statements)| statements.as_slice());
        self.body(first.unwrap_or_default(), ledger)
    }

    /// The statements of a block, with what it includes in its place.
    pub(super) fn body<'a>(
        &'a self,
        block: &'a [Statement],
        ledger: &Ledger,
    ) -> Vec<&'a Statement> {
        let mut body = Vec::new();
        self.spread(block, 0, ledger, &mut body);
        body
    }

    /// Where the first file is.
    pub(super) fn directory(&self) -> String {
        let first = self
            .list
            .first()
            .and_then(|(name, _)| name.rsplit_once('/'));
        first.map_or_else(
            || "/etc/nginx".to_owned(),
            |(directory, _)| directory.to_owned(),
        )
    }

    /// Goes through all statements, wherever they stand.
    pub(super) fn each<'a>(&'a self, with: &mut impl FnMut(&'a Statement)) {
        let mut open: Vec<&Statement> = self.list.iter().flat_map(|(_, all)| all).collect();
        while let Some(statement) = open.pop() {
            with(statement);
            open.extend(statement.block.iter().flatten());
        }
    }

    /// Whether more was to be gone through than there may be.
    pub(super) fn is_exhausted(&self) -> bool {
        self.budget.get() == 0
    }

    fn spread<'a>(
        &'a self,
        block: &'a [Statement],
        depth: usize,
        ledger: &Ledger,
        body: &mut Vec<&'a Statement>,
    ) {
        for statement in block {
            if self.budget.get() == 0 {
                return;
            }
            self.budget.set(self.budget.get() - 1);
            if statement.name != "include" {
                body.push(statement);
                continue;
            }
            let found = self.included(statement.first());
            if depth >= INCLUDES_MAX {
                ledger.lost(statement.id, "files include each other too often");
            } else if !found.is_empty() {
                ledger.idle(statement.id, "what it includes stands in its place");
                for statements in found {
                    self.spread(statements, depth + 1, ledger, body);
                }
            } else if statement.first().contains(['*', '?', '[']) {
                ledger.idle(statement.id, "there is no such file");
            } else {
                let note = "the file is not in what was read: give what `nginx -T` prints";
                ledger.lost(statement.id, note);
            }
        }
    }

    fn included(&self, pattern: &str) -> Vec<&[Statement]> {
        let Some((main, _)) = self.list.first() else {
            return Vec::new();
        };
        let pattern = match pattern.starts_with('/') || !main.contains('/') {
            true => pattern.to_owned(),
            false => format!("{}/{pattern}", self.directory()),
        };
        let mut known = self.found.borrow_mut();
        let found = known.entry(pattern).or_insert_with_key(|pattern| {
            let begins = pattern.split(['*', '?']).next().unwrap_or_default();
            let meant = words::wildcards(pattern);
            let is_meant = |name: &str| match begins.len() == pattern.len() {
                true => name == pattern,
                false => {
                    name.starts_with(begins)
                        && meant
                            .as_ref()
                            .is_some_and(|it| it.is_match(name.as_bytes()) == Ok(true))
                }
            };
            let files = self.list.iter().enumerate().skip(1);
            let mut found: Vec<usize> = files
                .filter(|(_, (name, _))| is_meant(name))
                .map(|(at, _)| at)
                .collect();
            found.sort_by_key(|at| self.list.get(*at).map(|(name, _)| name));
            found
        });
        let found = found.iter().filter_map(|at| self.list.get(*at));
        found.map(|(_, it)| it.as_slice()).collect()
    }
}

/// The files of a text, each with its name.
fn split<'t>(text: &'t str, name: &str) -> Vec<(Arc<str>, &'t str)> {
    let mut files: Vec<(Arc<str>, &str)> = Vec::new();
    let mut begins = 0;
    let mut at = 0;
    let mut current: Arc<str> = Arc::from(name);
    let mut has_mark = false;
    for line in text.split_inclusive('\n') {
        let mark = line.trim_end().strip_prefix(FILE_MARK);
        if let Some(named) = mark.and_then(|it| it.strip_suffix(':')) {
            let before = text.get(begins..at).unwrap_or_default();
            // Above the first file stands what the program says of itself.
            if has_mark || before.lines().any(is_said_by_nobody) {
                files.push((current, before));
            }
            current = Arc::from(named);
            begins = at + line.len();
            has_mark = true;
        }
        at += line.len();
    }
    files.push((current, text.get(begins..).unwrap_or_default()));
    files
}

fn is_said_by_nobody(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with("nginx: ")
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    file: Arc<str>,
    ledger: &'a Ledger,
    lines: usize,
}

/// What stands next.
enum Token {
    Word(String),
    Ends,
    Opens,
    Closes,
    Nothing,
}

impl Reader<'_> {
    fn wrong(&self, text: &str) -> Unreadable {
        Unreadable {
            file: self.file.to_string(),
            line: self.line,
            text: text.to_owned(),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn step(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line = self.line.saturating_add(1);
        }
        self.at += 1;
    }

    /// The statements up to the end of a block, or of the file.
    fn block(&mut self, depth: usize) -> Result<Vec<Statement>, Unreadable> {
        let mut statements = Vec::new();
        loop {
            match self.token()? {
                Token::Word(name) => statements.push(self.statement(name, depth)?),
                Token::Ends => {}
                Token::Opens => return Err(self.wrong("a block without a name begins here")),
                Token::Closes if depth > 0 => return Ok(statements),
                Token::Closes => return Err(self.wrong("`}` closes nothing")),
                Token::Nothing if depth == 0 => return Ok(statements),
                Token::Nothing => return Err(self.wrong("a block is not closed: a `}` is missing")),
            }
        }
    }

    fn statement(&mut self, name: String, depth: usize) -> Result<Statement, Unreadable> {
        let line = self.line;
        let mut words = Vec::new();
        let has_block = loop {
            match self.token()? {
                Token::Word(_) if words.len() >= WORDS_MAX => {
                    return Err(self.wrong("a directive has more than 4096 words"));
                }
                Token::Word(word) => words.push(word),
                Token::Ends => break false,
                Token::Opens => break true,
                Token::Closes | Token::Nothing => {
                    return Err(self.wrong(&format!("`{name}` is not ended: a `;` is missing")));
                }
            }
        };
        self.lines += 1;
        if self.lines > LINES_MAX {
            return Err(self.wrong("there are more than 1000000 directives"));
        }
        let shown = format!("{name} {}", words.join(" "));
        let id = self.ledger.enter(&self.file, line, shown.trim_end());
        let block = match has_block {
            false => None,
            true if depth >= DEPTH_MAX => {
                return Err(self.wrong("more than 64 blocks stand in each other"));
            }
            true if name.ends_with("_by_lua_block") => {
                self.skip_program()?;
                self.ledger.say(id, Fate::NotCarried, "");
                None
            }
            true => Some(self.block(depth + 1)?),
        };
        Ok(Statement {
            id,
            name,
            words,
            block,
        })
    }

    /// Passes over a program in Lua, whose braces pair but for those in its texts and comments.
    fn skip_program(&mut self) -> Result<(), Unreadable> {
        let mut depth = 1_usize;
        while depth > 0 {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            let skipped = match rest {
                [] => return Err(self.wrong("a block of Lua is not closed")),
                [b'-', b'-', rest @ ..] => 2 + long_text(rest).unwrap_or_else(|| line_of(rest)),
                [quote @ (b'"' | b'\''), rest @ ..] => 1 + end_of(rest, *quote),
                [b'[', ..] => long_text(rest).unwrap_or(1),
                [byte, ..] => {
                    depth += usize::from(*byte == b'{');
                    depth -= usize::from(*byte == b'}');
                    1
                }
            };
            (0..skipped).for_each(|_| self.step());
        }
        Ok(())
    }

    fn token(&mut self) -> Result<Token, Unreadable> {
        loop {
            match self.peek() {
                None => return Ok(Token::Nothing),
                Some(byte) if byte.is_ascii_whitespace() => self.step(),
                Some(b'#') => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.step();
                    }
                }
                Some(byte @ (b';' | b'{' | b'}')) => {
                    self.step();
                    return Ok(match byte {
                        b';' => Token::Ends,
                        b'{' => Token::Opens,
                        _ => Token::Closes,
                    });
                }
                Some(quote @ (b'"' | b'\'')) => {
                    self.step();
                    return self.word(Some(quote));
                }
                Some(_) => return self.word(None),
            }
        }
    }

    fn word(&mut self, quote: Option<u8>) -> Result<Token, Unreadable> {
        let begins = self.at;
        let mut last = 0;
        loop {
            let byte = match (self.peek(), quote) {
                (None, Some(_)) => return Err(self.wrong("a quote is not closed")),
                (None, None) => break,
                (Some(byte), _) => byte,
            };
            let ends = match quote {
                Some(quote) => byte == quote,
                // `${name}` is a variable.
                None => {
                    byte.is_ascii_whitespace() || byte == b';' || (byte == b'{' && last != b'$')
                }
            };
            if ends {
                break;
            }
            self.step();
            last = byte;
            if byte == b'\\' && self.peek().is_some() {
                self.step();
                last = 0;
            }
            if self.at - begins > WORD_BYTES_MAX {
                return Err(self.wrong("a word is longer than 65536 bytes"));
            }
        }
        let end = self.at;
        if quote.is_some() {
            self.step();
        }
        // A backslash may have stood before a character of several bytes.
        let raw = self.text.get(begins..end);
        let raw = raw.ok_or_else(|| self.wrong("a word ends within a character"))?;
        Ok(Token::Word(unescaped(raw)))
    }
}

fn line_of(text: &[u8]) -> usize {
    text.iter().take_while(|byte| **byte != b'\n').count()
}

/// Up to behind the byte that ends a text of Lua's, or its line.
fn end_of(text: &[u8], end: u8) -> usize {
    let mut is_escaped = false;
    let is_end = |byte: &u8| {
        let was_escaped = is_escaped;
        is_escaped = *byte == b'\\' && !was_escaped;
        !was_escaped && (*byte == end || *byte == b'\n')
    };
    text.iter().position(is_end).map_or(text.len(), |at| at + 1)
}

/// The length of a text of Lua's in brackets, `[[…]]` or `[=[…]=]`, if one begins.
fn long_text(text: &[u8]) -> Option<usize> {
    let inner = text.strip_prefix(b"[")?;
    let level = inner.iter().take_while(|byte| **byte == b'=').count();
    let inner = inner.get(level..)?.strip_prefix(b"[")?;
    let end = [&b"]"[..], &b"=".repeat(level), b"]"].concat();
    let found = inner.windows(end.len()).position(|it| it == end);
    Some(found.map_or(text.len(), |at| at + 2 * end.len()))
}

/// A word as it is meant: a backslash hides quotes, blanks and itself, and stays before all else.
fn unescaped(raw: &str) -> String {
    let mut out = String::new();
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match (c, chars.clone().next()) {
            ('\\', Some(next @ ('"' | '\'' | '\\'))) => {
                chars.next();
                out.push(next);
            }
            ('\\', Some('t' | 'r' | 'n')) => {
                let blank = match chars.next() {
                    Some('t') => '\t',
                    Some('r') => '\r',
                    _ => '\n',
                };
                out.push(blank);
            }
            _ => out.push(c),
        }
    }
    out
}
