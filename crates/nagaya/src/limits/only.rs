//! `--only`: the requests of a log that are looked at, and the condition of a limit that means them.
//!
//! On a log one pattern may match the path or the file. In a configuration these are two conditions,
//! and all conditions of a limit must hold: so a proposed limit takes the one that fits.

use config::Sources;
use engine::glob::Matcher;

use crate::outcome::{Outcome, complain};

/// Says what patterns are like, where one selects nothing.
const HINT: &str = "a pattern covers a path or file up to its end: '*.php', '/api/*', 'index.php'";

/// A pattern that paths and files are compared with.
#[derive(Debug)]
pub(super) struct Only {
    pattern: String,
    matcher: Matcher,
}

/// What of a request a condition looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Path,
    File,
}

impl Subject {
    /// As a configuration calls it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Subject::Path => "path",
            Subject::File => "file",
        }
    }
}

impl Only {
    /// Reads a pattern; when a configuration could not have it, that has been told.
    pub(super) fn read(pattern: &str) -> Result<Only, Outcome> {
        judged(pattern)
            .and_then(|()| Matcher::new(pattern).map_err(|error| error.to_string()))
            .map(|matcher| Only {
                pattern: pattern.to_owned(),
                matcher,
            })
            .map_err(|why| {
                complain(&format!("nagaya: --only {pattern:?}: {why}\n  {HINT}\n"));
                Outcome::Wrong
            })
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        self.matcher.matches(text.as_bytes())
    }

    /// The condition for a limit.
    pub(super) fn condition(&self, subject: Subject) -> String {
        let pattern = config::quote(&self.pattern);
        format!("match = {{ {} = {pattern} }}", subject.word())
    }

    /// Says that not one of some requests matches.
    pub(super) fn in_vain(&self, requests: &str) -> String {
        format!(
            "{requests} requests, none matches --only '{}'\n  {HINT}",
            self.pattern
        )
    }
}

/// What a configuration would say against a pattern.
fn judged(pattern: &str) -> Result<(), String> {
    let path = config::quote(pattern);
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:1\"\n[[sites]]\nhosts = [\"*\"]\nroot = \"/\"\n\
         limits = [{{ concurrent = 1, match = {{ path = {path} }} }}]\n"
    );
    config::load(&Sources::from_text("the pattern", &text))
        .map(|_| ())
        .map_err(|problems| match problems.problems().first() {
            Some(problem) => problem.message.clone(),
            None => problems.to_string(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_what_a_configuration_may_have() {
        for pattern in ["*.php", "/api/*", "index.php", "/a\"b\\c", "[!a-z]x?"] {
            assert!(Only::read(pattern).is_ok(), "{pattern}");
        }
        for pattern in ["", "[a", "/a\nb", "/x?id=7"] {
            assert_eq!(Only::read(pattern).err(), Some(Outcome::Wrong), "{pattern}");
        }
    }

    #[test]
    fn its_condition_is_toml() {
        let only = Only::read("/a\"b\\*").expect("a pattern");
        let condition = only.condition(Subject::Path);
        assert_eq!(condition, r#"match = { path = "/a\"b\\*" }"#);
    }
}
