//! A regular expression of a configuration: linear in the text where it can be, else counted.
//!
//! What looks around or refers back to a group is more than an automaton can do. Such a pattern goes
//! to the matcher of this crate, with few steps; all others go to `regex`, whose time no text can
//! stretch. In both `^` and `$` are the ends of the text.

use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};

use super::{Budget, Exhausted, Flags, Pattern, Spans, Syntax};

/// Memory of a compiled expression.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// How `regex` calls what it leaves to us.
const BEYOND_LINEAR: [&str; 2] = ["look-around", "backreferences"];

/// A regular expression, ready to be matched. Copies share what was compiled.
#[derive(Debug, Clone)]
pub struct Expression(Form);

#[derive(Debug, Clone)]
enum Form {
    Linear(Regex),
    Counted(Arc<Pattern>, Arc<str>),
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it, or that it is too large.
    pub fn new(source: &str) -> Result<Self, Syntax> {
        let linear = RegexBuilder::new(source)
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(COMPILED_BYTES_MAX)
            .build();
        let error = match linear {
            Ok(regex) => return Ok(Self(Form::Linear(regex))),
            Err(error) => Syntax::from(error),
        };
        if !BEYOND_LINEAR.iter().any(|word| error.0.contains(word)) {
            return Err(error);
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
            Form::Linear(regex) => Ok(regex.is_match(text)),
            Form::Counted(..) => self.find(text).map(|found| found.is_some()),
        }
    }

    /// Where it and its groups are found first.
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
            ("\\y", "unrecognized escape sequence"),
            ("(?=a", ""),
        ] {
            let error = Expression::new(source).expect_err(source).to_string();
            assert!(error.contains(why), "{source}: {error}");
        }
    }

    #[test]
    fn a_pattern_that_would_never_end_is_given_up_within_milliseconds() {
        for source in [
            "(?!x)(a+)+$",
            "(?=a)(a|aa)+$",
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
