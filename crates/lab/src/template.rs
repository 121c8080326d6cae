//! Placeholders of configs, commands and files: `@port@`, and lines that are repeated or left out.
//!
//! The idea: a template is filled line by line. A name that nobody set is an error with its line,
//! never an empty text. What looks like a placeholder but is none (`user@example.org`) stays.

use std::collections::BTreeMap;

/// Longest text a template may become.
const TEXT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest name between two `@`.
const NAME_BYTES_MAX: usize = 64;

/// What the names stand for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values(BTreeMap<String, String>);

impl Values {
    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl ToString) {
        self.0.insert(name.into(), value.to_string());
    }

    pub(crate) fn set_all(&mut self, values: &BTreeMap<String, String>) {
        let pairs = values
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        self.0.extend(pairs);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// `text` with every placeholder filled in. A value may hold placeholders itself, one deep.
    pub(crate) fn fill(&self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        self.block(&lines, 1, None, &mut out)?;
        Ok(out)
    }

    /// A run of lines, in which `@n@` is `count`.
    fn block(
        &self,
        lines: &[&str],
        first: usize,
        count: Option<u64>,
        out: &mut String,
    ) -> Result<(), String> {
        let mut index = 0;
        while let Some(line) = lines.get(index) {
            let number = first + index;
            let said = |problem: String| format!("line {number}: {problem}");
            index += 1;
            let Some((word, name)) = directive(line) else {
                self.line(line, count, out).map_err(said)?;
                continue;
            };
            let inner = body(lines.get(index..).unwrap_or_default()).ok_or_else(|| {
                format!("line {number}: `@{word} {name}@` has no `@end@` on a line of its own")
            })?;
            match word {
                "repeat" => {
                    for turn in 0..self.times(name).map_err(said)? {
                        self.block(inner, number + 1, Some(turn), out)?;
                    }
                }
                _ if self.holds(name) => self.block(inner, number + 1, count, out)?,
                _ => {}
            }
            index += inner.len() + 1;
        }
        Ok(())
    }

    fn line(&self, line: &str, count: Option<u64>, out: &mut String) -> Result<(), String> {
        let once = self.names(line, count)?;
        let twice = if once == line {
            once
        } else {
            self.names(&once, count)?
        };
        if out.len() + twice.len() > TEXT_BYTES_MAX {
            return Err(format!("more than {TEXT_BYTES_MAX} bytes"));
        }
        out.push_str(&twice);
        Ok(())
    }

    fn names(&self, line: &str, count: Option<u64>) -> Result<String, String> {
        let mut out = String::with_capacity(line.len());
        let mut rest = line;
        while let Some((before, after)) = rest.split_once('@') {
            out.push_str(before);
            let name = after.split_once('@').map(|(name, _)| name);
            let Some(name) = name.filter(|name| is_name(name)) else {
                out.push('@');
                rest = after;
                continue;
            };
            match (name, count, self.get(name)) {
                ("n", Some(count), _) => out.push_str(&count.to_string()),
                (_, _, Some(value)) => out.push_str(value),
                _ => return Err(self.stranger(name)),
            }
            rest = after.get(name.len() + 1..).unwrap_or_default();
        }
        out.push_str(rest);
        Ok(out)
    }

    fn stranger(&self, name: &str) -> String {
        let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
        let help = match super::source::nearest(name, &known) {
            Some(meant) => format!("did you mean `@{meant}@`?"),
            None => format!("there are {}", super::source::listed(&known)),
        };
        format!("nothing is called `@{name}@`; {help}")
    }

    fn times(&self, name: &str) -> Result<u64, String> {
        let text = self.get(name).unwrap_or(name);
        text.parse()
            .ok()
            .filter(|count| *count <= 1_000_000)
            .ok_or_else(|| format!("`@repeat {name}@`: `{text}` is no number up to 1000000"))
    }

    /// Whether a name is set to something other than nothing, `false` and `0`; `not` before it
    /// turns that round.
    fn holds(&self, name: &str) -> bool {
        match name.strip_prefix("not ") {
            Some(name) => !self.holds(name),
            None => !matches!(self.get(name), None | Some("" | "false" | "0")),
        }
    }
}

/// `@repeat NAME@` or `@if NAME@`, alone on a line.
fn directive(line: &str) -> Option<(&str, &str)> {
    let inner = line.trim().strip_prefix('@')?.strip_suffix('@')?;
    let (word, name) = inner.split_once(' ')?;
    ["repeat", "if"].contains(&word).then_some((word, name))
}

/// The lines up to the `@end@` that belongs to what was just opened.
fn body<'a, 'b>(lines: &'a [&'b str]) -> Option<&'a [&'b str]> {
    let mut depth = 0;
    for (index, line) in lines.iter().enumerate() {
        if directive(line).is_some() {
            depth += 1;
        } else if line.trim() == "@end@" {
            if depth == 0 {
                return lines.get(..index);
            }
            depth -= 1;
        }
    }
    None
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        let mut values = Values::default();
        values.set("port", 8080);
        values.set("three", 3);
        values.set("off", "false");
        values.set("nested", "to @port@");
        values
    }

    #[test]
    fn names_lines_and_repeats_are_filled_in() {
        for (template, text) in [
            ("listen @port@;", "listen 8080;"),
            ("a@b.example and @port@@port@", "a@b.example and 80808080"),
            ("@nested@", "to 8080"),
            (
                "@repeat three@\nsite-@n@\n@end@\nend\n",
                "site-0\nsite-1\nsite-2\nend\n",
            ),
            ("@repeat 2@\n@if three@\nx@n@\n@end@\n@end@\n", "x0\nx1\n"),
            ("@if off@\na\n@end@\n@if not off@\nb\n@end@\n", "b\n"),
            ("@if missing@\na\n@end@\n", ""),
            ("@ alone @ and @", "@ alone @ and @"),
        ] {
            assert_eq!(values().fill(template).as_deref(), Ok(text), "{template}");
        }
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        for (template, problem) in [
            (
                "a\n@prot@\n",
                "line 2: nothing is called `@prot@`; did you mean `@port@`?",
            ),
            (
                "@if port@\na\n",
                "line 1: `@if port@` has no `@end@` on a line of its own",
            ),
            (
                "@repeat many@\n@end@\n",
                "line 1: `@repeat many@`: `many` is no number up to 1000000",
            ),
        ] {
            assert_eq!(values().fill(template), Err(problem.to_owned()));
        }
    }
}
