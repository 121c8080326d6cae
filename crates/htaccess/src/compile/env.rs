//! Lines that set variables.

use super::{Compiler, Wrong};
use crate::expression;
use crate::pattern::{Case, Pattern};
use crate::request::{VARIABLES_MAX, Variables};
use crate::settings::{EnvCondition, EnvTest, Settings};
use crate::tree::Directive;

impl Compiler<'_> {
    pub(super) fn env(
        &mut self,
        name: &str,
        directive: &Directive,
        words: &[Vec<u8>],
        settings: &mut Settings,
    ) -> Result<(), Wrong> {
        let (first, rest) = words.split_first().ok_or("it names a variable")?;
        match name {
            "SetEnv" => {
                self.reserved(directive.line, first);
                let value = rest.first().cloned().unwrap_or_default();
                settings.env.insert(first.clone(), Some(value));
                return few(settings);
            }
            "UnsetEnv" => {
                settings
                    .env
                    .extend(words.iter().map(|name| (name.clone(), None)));
                return few(settings);
            }
            "PassEnv" => {
                self.left_unset(
                    directive.line,
                    "PassEnv: nothing of the server's own variables is passed on",
                );
                return Ok(());
            }
            _ if first.to_ascii_lowercase().starts_with(b"oid(") => {
                self.left_unset(
                    directive.line,
                    "SetEnvIf: certificates of clients are not looked at",
                );
                return Ok(());
            }
            _ => {}
        }
        let case = if name.ends_with("NoCase") {
            Case::Folded
        } else {
            Case::Exact
        };
        let (test, sets) = match name {
            "SetEnvIfExpr" => (EnvTest::Expression(expression::condition(first)?), rest),
            "BrowserMatch" | "BrowserMatchNoCase" => {
                let pattern = Pattern::new(first, case)?;
                (EnvTest::Named(b"User-Agent".to_vec(), pattern), rest)
            }
            _ => {
                let (pattern, sets) = rest.split_first().ok_or("it lacks its pattern")?;
                let pattern = Pattern::new(pattern, case)?;
                let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
                match first.iter().all(is_plain) {
                    true => (EnvTest::Named(first.clone(), pattern), sets),
                    false => (EnvTest::Field(Pattern::new(first, case)?, pattern), sets),
                }
            }
        };
        if sets.is_empty() {
            return Err("it sets no variable".into());
        }
        let sets = self.sets(directive.line, sets);
        settings.env_conditions.push(
            EnvCondition {
                line: directive.line,
                test,
                sets,
            }
            .into(),
        );
        Ok(())
    }

    /// Names, and what each is set to; none where it is taken away.
    fn sets(&mut self, line: u32, words: &[Vec<u8>]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut all = Vec::new();
        for word in words {
            let equals = word.iter().position(|byte| *byte == b'=');
            let (name, value) = word.split_at(equals.unwrap_or(word.len()));
            let pair = match (name.strip_prefix(b"!"), value.get(1..)) {
                (Some(name), None) => (name.to_vec(), None),
                (_, Some(value)) if !value.is_empty() => (name.to_vec(), Some(value.to_vec())),
                _ => (name.to_vec(), Some(b"1".to_vec())),
            };
            self.reserved(line, &pair.0);
            all.push(pair);
        }
        all
    }

    fn reserved(&mut self, line: u32, name: &[u8]) {
        if !Variables::may_be_set(name) {
            let text = format!("{} is not a file's to set", String::from_utf8_lossy(name));
            self.left_unset(line, &text);
        }
    }

    /// Tells that a line sets nothing.
    fn left_unset(&mut self, line: u32, why: &str) {
        self.problem(line, "htaccess_refused", why.to_owned(), false);
        self.reliance.env_missed.get_or_insert(line);
    }
}

fn few(settings: &Settings) -> Result<(), Wrong> {
    match settings.env.len() <= VARIABLES_MAX {
        true => Ok(()),
        false => Err(format!("there are more than {VARIABLES_MAX} variables").into()),
    }
}
