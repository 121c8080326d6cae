//! A regular expression of a configuration: linear in the text where it can be, else counted.
//!
//! What looks around, refers back to a group or gives nothing back (`(?>a)`, `a++`) is more than an
//! automaton can do. Such a pattern goes to the matcher of this crate, with few steps; all others go
//! to `regex`, whose time is at worst the text times what was compiled. Both find the same: `^` and
//! `$` are the ends of the text, `\d`, `\s` and `\w` are ASCII, and a byte that is no UTF-8 is a
//! character, so that it hides nothing.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};

use super::{Budget, Exhausted, Flags, Pattern, Spans, Syntax};

/// Memory of a compiled expression, and of what a matcher keeps of its way through texts.
const COMPILED_BYTES_MAX: usize = 512 << 10;
/// How `regex` calls what it leaves to us.
const BEYOND_LINEAR: [&str; 2] = ["look-around", "backreferences"];

/// A regular expression, ready to be matched. Copies share what was compiled.
#[derive(Debug, Clone)]
pub struct Expression(Form);

#[derive(Debug, Clone)]
enum Form {
    Linear(Arc<Regex>),
    Counted(Arc<Pattern>, Arc<str>),
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it, or that it is too large.
    pub fn new(source: &str) -> Result<Self, Syntax> {
        if let Some(source) = for_linear(source) {
            let linear = RegexBuilder::new(&source)
                .size_limit(COMPILED_BYTES_MAX)
                .dfa_size_limit(COMPILED_BYTES_MAX)
                .build();
            let error = match linear {
                Ok(regex) => return Ok(Self(Form::Linear(Arc::new(regex)))),
                Err(error) => Syntax::from(error),
            };
            if !BEYOND_LINEAR.iter().any(|word| error.0.contains(word)) {
                return Err(error);
            }
        }
        let flags = Flags {
            whole_text: true,
            ..Flags::default()
        };
        let pattern = Pattern::new(source, flags)?;
        Ok(Self(Form::Counted(Arc::new(pattern), source.into())))
    }

    /// Whether it is found in `text`.
    ///
    /// # Errors
    /// When that takes too many steps.
    pub fn is_match(&self, text: &[u8]) -> Result<bool, Exhausted> {
        match &self.0 {
            Form::Linear(regex) => Ok(match std::str::from_utf8(text) {
                Ok(_) => regex.is_match(text),
                Err(_) => regex.is_match(characters(text).as_bytes()),
            }),
            Form::Counted(..) => self.find(text).map(|found| found.is_some()),
        }
    }

    /// Where it and its groups are found first in a text that is UTF-8.
    ///
    /// # Errors
    /// When that takes too many steps.
    pub fn find(&self, text: &[u8]) -> Result<Option<Spans>, Exhausted> {
        match &self.0 {
            Form::Linear(regex) => Ok(regex.captures(text).map(|found| {
                let groups = found.iter();
                Spans(
                    groups
                        .map(|group| group.map(|it| (it.start(), it.end())))
                        .collect(),
                )
            })),
            Form::Counted(pattern, _) => pattern.find(text, 0, &mut Budget::few(text.len())),
        }
    }

    /// As it was written, where its steps are counted.
    pub fn counted(&self) -> Option<&Arc<str>> {
        match &self.0 {
            Form::Linear(_) => None,
            Form::Counted(_, source) => Some(source),
        }
    }

    /// How many groups are remembered, the whole match not among them.
    pub fn groups(&self) -> usize {
        match &self.0 {
            Form::Linear(regex) => regex.captures_len() - 1,
            Form::Counted(pattern, _) => pattern.groups(),
        }
    }

    /// The number of the group of this name.
    pub fn group_named(&self, name: &str) -> Option<usize> {
        match &self.0 {
            Form::Linear(regex) => regex.capture_names().position(|it| it == Some(name)),
            Form::Counted(pattern, _) => {
                let mut names = pattern.names().iter();
                let (_, numbers) = names.find(|(known, _)| known == name)?;
                numbers.first().copied()
            }
        }
    }
}

/// The regular expressions of one reading of a configuration, each compiled once: many sites have
/// the same.
#[derive(Debug, Default)]
pub struct Expressions(RefCell<HashMap<Box<str>, Expression>>);

impl Expressions {
    /// The expression of this source.
    ///
    /// # Errors
    /// As [`Expression::new`].
    pub fn of(&self, source: &str) -> Result<Expression, Syntax> {
        if let Some(known) = self.0.borrow().get(source) {
            return Ok(known.clone());
        }
        let made = Expression::new(source)?;
        self.0.borrow_mut().insert(source.into(), made.clone());
        Ok(made)
    }
}

/// A source for `regex`, to which digits, spaces and letters are Unicode's unless it is told; `None`
/// where it holds what that would take for something else.
fn for_linear(source: &str) -> Option<String> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source.chars();
    let (mut classes, mut repeats) = (0_usize, false);
    while let Some(c) = rest.next() {
        let had_repeated = std::mem::take(&mut repeats);
        match c {
            '\\' => {
                match rest.next() {
                    Some('d') => out.push_str("[0-9]"),
                    Some('D') => out.push_str("[^0-9]"),
                    Some('s') => out.push_str(r"[\t-\r\x20]"),
                    Some('S') => out.push_str(r"[^\t-\r\x20]"),
                    Some('w') => out.push_str("[0-9A-Za-z_]"),
                    Some('W') => out.push_str("[^0-9A-Za-z_]"),
                    other => out.extend(['\\'].into_iter().chain(other)),
                }
                continue;
            }
            '[' => classes += 1,
            ']' => classes = classes.saturating_sub(1),
            '+' if had_repeated => return None,
            '(' if classes == 0 && rest.as_str().starts_with("?>") => return None,
            '*' | '+' | '?' => repeats = classes == 0,
            _ => {}
        }
        out.push(c);
    }
    Some(out)
}

/// A text with a character for each byte that is no UTF-8.
fn characters(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        out.push_str(chunk.valid());
        let others = chunk.invalid().iter();
        out.extend(others.map(|_| char::REPLACEMENT_CHARACTER));
    }
    out
}

impl From<regex::Error> for Syntax {
    fn from(error: regex::Error) -> Self {
        if let regex::Error::CompiledTooBig(_) = error {
            return Self("it is too large".to_owned());
        }
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default().trim();
        Self(last.trim_start_matches("error: ").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn found(source: &str, text: &str) -> Option<Vec<String>> {
        let expression = Expression::new(source).expect(source);
        let spans = expression.find(text.as_bytes()).expect("few steps")?;
        assert_eq!(expression.is_match(text.as_bytes()), Ok(true));
        assert_eq!(spans.iter().count(), expression.groups() + 1);
        let group = |span: Option<(usize, usize)>| span.map_or("-", |(from, to)| &text[from..to]);
        Some(spans.iter().map(|span| group(span).to_owned()).collect())
    }

    #[test]
    fn groups_are_the_same_whichever_matcher_finds_them() {
        for (linear, counted, text) in [
            ("^/a/([0-9]+)(x)?", "^(?=/a)/a/([0-9]+)(x)?", "/a/7"),
            ("(?i)/B(.*)$", "(?i)/B(?!z)(.*)$", "/bcd"),
            ("(?<id>[0-9]+)", "(?<![0-9])(?<id>[0-9]+)", "ab12"),
            ("^b$", "^(?!c)b$", "a\nb"),
        ] {
            assert_eq!(found(linear, text), found(counted, text), "{counted}");
        }
        let counted = Expression::new("(?=a)(?<id>a)").expect("a pattern");
        assert_eq!(counted.group_named("id"), Some(1));
        assert_eq!(counted.group_named("it"), None);
        let linear = Expression::new("(b)(?<id>a)").expect("a pattern");
        assert_eq!(linear.group_named("id"), Some(2));
    }

    #[test]
    fn a_text_is_the_same_characters_to_both_matchers() {
        for (linear, text, is_found) in [
            ("^.*sqlmap.*$", &b"\xffsqlmap \xe3\x81"[..], true),
            ("^.{2}$", b"\xe3\x81", true),
            ("^.{2}$", "é".as_bytes(), false),
            ("^[^a]$", b"\xff", true),
            ("^[é]$", "é".as_bytes(), true),
            ("^\\w$", "é".as_bytes(), false),
            ("^\\W$", "é".as_bytes(), true),
            ("^\\d$", "٣".as_bytes(), false),
            ("^[^\\d/]$", "٣".as_bytes(), true),
            ("^[\\D]$", b"3", false),
            ("^a\\sb\\Sc$", b"a\x0bbxc", true),
            ("^a\\sb$", "a\u{3000}b".as_bytes(), false),
            ("^a[\\w.-]+$", b"ab.c-d", true),
            ("^\\\\d$", b"\\d", true),
            ("x\\b", "x!".as_bytes(), true),
            ("x\\b", "xé".as_bytes(), false),
        ] {
            let counted = Expression::new(&format!("(?!\\n){linear}")).expect(linear);
            let linear = Expression::new(linear).expect(linear);
            assert!(linear.counted().is_none() && counted.counted().is_some());
            for expression in [linear, counted] {
                assert_eq!(expression.is_match(text), Ok(is_found), "{expression:?}");
            }
        }
    }

    #[test]
    fn both_matchers_find_the_same_in_all_short_texts() {
        let expressions = [
            "^.{2}$", "a.", "[^a]$", "\\w+$", "^\\W", "\\d\\s", "[\\S]{2}", "[^\\w/]", "^[é/]",
            "é+1", "\\b1", "a\\B", "(?i)É.", "[\\w.-]$", "a|\\s|^_",
        ];
        let bytes = b"aA1_ \n/-\xff\xc3\xa9\xe3";
        let mut texts = vec![Vec::new()];
        for length in 0..3 {
            let shorter: Vec<_> = texts
                .iter()
                .filter(|it| it.len() == length)
                .cloned()
                .collect();
            let longer = |text: &Vec<u8>| bytes.map(|byte| [text.as_slice(), &[byte]].concat());
            texts.extend(shorter.iter().flat_map(longer));
        }
        assert_eq!(texts.len(), 1 + 12 + 144 + 1_728);
        for source in expressions {
            let linear = Expression::new(source).expect(source);
            let counted = Expression::new(&format!("(?!x)(?:{source})")).expect(source);
            assert!(linear.counted().is_none() && counted.counted().is_some());
            for text in &texts {
                let found = [&linear, &counted].map(|it| it.is_match(text));
                assert_eq!(found[0], found[1], "{source} in {}", text.escape_ascii());
            }
        }
    }

    #[test]
    fn what_gives_nothing_back_is_counted() {
        for (source, text, is_found) in [
            ("^a++ab$", "aab", false),
            ("^(?>a|ab)c$", "abc", false),
            ("^a?+b$", "ab", true),
            ("^[*+]+$", "*+", true),
            ("^\\++$", "++", true),
            ("^a*?b$", "aab", true),
        ] {
            assert_eq!(found(source, text).is_some(), is_found, "{source}");
        }
    }

    #[test]
    fn an_expression_is_compiled_once_however_many_have_it() {
        let all = Expressions::default();
        let source = || {
            let made = all.of("^/(?!x)").expect("a pattern");
            Arc::clone(made.counted().expect("one that looks around"))
        };
        assert!(Arc::ptr_eq(&source(), &source()));
        assert!(all.of("(").is_err() && all.of("(").is_err());
    }

    #[test]
    fn what_is_found_depends_on_what_stands_around_it_and_came_before() {
        let base = "^(/.+)/(.*)::\\2$";
        assert_eq!(
            found(base, "/sub/a.html::a.html"),
            Some(
                ["/sub/a.html::a.html", "/sub", "a.html"]
                    .map(str::to_owned)
                    .into()
            )
        );
        assert_eq!(found(base, "/sub/a.html::b.html"), None);
        assert_eq!(found("^/(?!wp-admin)", "/wp-admin/x"), None);
        assert!(found("^/(?!wp-admin)", "/blog").is_some());
    }

    #[test]
    fn what_is_wrong_is_said_and_no_other_dialect_is_taken_for_ours() {
        for (source, why) in [
            ("(", "unclosed group"),
            ("(a{1000}){1000}", "it is too large"),
            ("[ab]*a[ab]{20000}", "it is too large"),
            ("\\y", "unrecognized escape sequence"),
            ("(?=a", ""),
        ] {
            let error = Expression::new(source).expect_err(source).to_string();
            assert!(error.contains(why), "{source}: {error}");
        }
    }

    #[test]
    fn what_people_write_is_not_too_large() {
        let names: Vec<_> = (100..700).map(|it| format!("crawler{it}")).collect();
        for source in [
            format!("(?i)({})", names.join("|")),
            "^/[^/]{1,64}/(.{1,255})$".to_owned(),
            "^/\\w{1,255}(?:-\\w{1,64})*$".to_owned(),
        ] {
            assert!(Expression::new(&source).is_ok(), "{source}");
        }
    }

    #[test]
    fn a_pattern_that_would_never_end_is_given_up_within_milliseconds() {
        for source in [
            "(?!x)(a+)+\\1$",
            "(?=a)(a|aa)+\\1$",
            "^(?=(a+)+b)",
            "(.*)(.*)(.*)(.*)\\1z",
        ] {
            let expression = Expression::new(source).expect(source);
            for length in [30, 1_000, 30_000] {
                let mut text = vec![b'a'; length];
                text.push(b'!');
                let since = Instant::now();
                assert_eq!(expression.is_match(&text), Err(Exhausted), "{source}");
                // Many times what it takes: the machine may stand still.
                assert!(since.elapsed() < Duration::from_secs(5), "{source}");
            }
        }
    }
}
