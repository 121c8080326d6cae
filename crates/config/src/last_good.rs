//! The last good versions of files that may be set aside, and what is known of each.
//!
//! The idea: one small file of TOML holds all of them, so that it is replaced as a whole and a
//! person can read it. It is read and written by the supervisor; here it is text. A version is what
//! stood in a file when a generation with it came into force; one that is left out for now is kept
//! until the file is right again or gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use crate::dump::write::quote;

/// How the file begins.
const HEAD: &str = "\
# The last good versions of files that are included with `broken = \"keep\"`, as the gateway wrote them
# when it came to serve them. What is wrong with such a file is set aside, and its version here stays
# in force. Whoever removes this file has the broken ones left out at the next start.
";

/// The last good versions of files that are included with `broken = "keep"`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastGood {
    /// By absolute path.
    files: BTreeMap<PathBuf, Remembered>,
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Remembered {
    /// `None` where it never was right.
    version: Option<Version>,
    /// Since when it is set aside.
    set_aside: Option<String>,
    /// Whether nothing of it is in force, not even its version.
    is_left_out: bool,
}

/// The text of a file that was in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The text.
    pub text: Arc<str>,
    /// When it came into force, as RFC 3339 writes it.
    pub accepted: String,
}

/// What is in force of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Standing<'a> {
    /// This, as it is written.
    AsWritten(&'a str),
    /// Its last good version.
    SetAside,
    /// Nothing.
    LeftOut,
}

impl LastGood {
    /// Reads what [`LastGood::to_text`] wrote.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<LastGood, String> {
        let document = DeTable::parse(text).map_err(|error| error.message().to_owned())?;
        let files = document.get_ref().get("files");
        let files = files.and_then(|files| files.get_ref().as_array());
        let entries = files.into_iter().flat_map(|files| files.iter());
        let read = |entry: &DeValue<'_>| -> Option<(PathBuf, Remembered)> {
            let table = entry.as_table()?;
            let text = |name| Some(table.get(name)?.get_ref().as_str()?.to_owned());
            let version = text("text").zip(text("accepted"));
            let remembered = Remembered {
                version: version.map(|(text, accepted)| Version {
                    text: text.into(),
                    accepted,
                }),
                set_aside: text("set_aside"),
                is_left_out: table.get("left_out")?.get_ref().as_bool()?,
            };
            Some((text("file")?.into(), remembered))
        };
        let entries = entries.map(|entry| read(entry.get_ref()));
        let files: Option<_> = entries.collect();
        let files = files.ok_or("one of its `[[files]]` lacks a key")?;
        Ok(LastGood { files })
    }

    /// All of it as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = HEAD.to_owned();
        for (path, remembered) in &self.files {
            let file = quote(path.display());
            out.push_str(&format!("\n[[files]]\nfile = {file}\n"));
            if let Some(since) = &remembered.set_aside {
                out.push_str(&format!("set_aside = {}\n", quote(since)));
            }
            out.push_str(&format!("left_out = {}\n", remembered.is_left_out));
            if let Some(version) = &remembered.version {
                let (accepted, text) = (quote(&version.accepted), block(&version.text));
                out.push_str(&format!("accepted = {accepted}\ntext = {text}\n"));
            }
        }
        out
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Since when a file is set aside.
    #[must_use]
    pub fn set_aside_since(&self, path: &Path) -> Option<&str> {
        self.files.get(path)?.set_aside.as_deref()
    }

    /// What is known when these files, and no others, have come into force at `now`.
    pub(crate) fn followed_by<'a>(
        &self,
        files: impl Iterator<Item = (PathBuf, Standing<'a>)>,
        now: &str,
    ) -> LastGood {
        let files = files.map(|(path, standing)| {
            let known = self.files.get(&path);
            let version = known.and_then(|known| known.version.clone());
            let since = known.and_then(|known| known.set_aside.clone());
            let since = Some(since.unwrap_or_else(|| now.to_owned()));
            let (version, set_aside, is_left_out) = match standing {
                Standing::AsWritten(text) => {
                    let same = version.filter(|version| &*version.text == text);
                    let fresh = || Version {
                        text: text.into(),
                        accepted: now.to_owned(),
                    };
                    (Some(same.unwrap_or_else(fresh)), None, false)
                }
                Standing::SetAside => (version, since, false),
                Standing::LeftOut => (version, since, true),
            };
            let remembered = Remembered {
                version,
                set_aside,
                is_left_out,
            };
            (path, remembered)
        });
        LastGood {
            files: files.collect(),
        }
    }

    pub(crate) fn version(&self, path: &Path) -> Option<&Version> {
        self.files.get(path)?.version.as_ref()
    }

    /// What of the file is in force, if it is known.
    pub(crate) fn in_force(&self, path: &Path) -> Option<&str> {
        let remembered = self.files.get(path).filter(|known| !known.is_left_out)?;
        Some(&remembered.version.as_ref()?.text)
    }
}

/// A text as a string of TOML whose lines are its lines.
fn block(text: &str) -> String {
    let inner = |line: &str| {
        let quoted = quote(line);
        let inner = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        inner.unwrap_or_default().to_owned()
    };
    let lines: Vec<String> = text.split('\n').map(inner).collect();
    format!("\"\"\"\n{}\"\"\"", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_whatever_stands_in_a_file() {
        let texts = [
            "",
            "\n",
            "\n\n[[sites]]\nhosts = [\"a\"]\n",
            "a = \"\"\"x\"\"\"\r\n\tb = '\\n'\0\u{7f}\u{85}長屋",
            "\"\"\"",
            "ends in a backslash\\",
        ];
        let files = texts.iter().enumerate().map(|(number, text)| {
            let version = Version {
                text: (*text).into(),
                accepted: "2026-11-25T02:17:00Z".to_owned(),
            };
            let remembered = Remembered {
                version: Some(version).filter(|_| number != 1),
                set_aside: (number % 2 == 1).then(|| "2026-11-26T00:00:00Z".to_owned()),
                is_left_out: number == 1,
            };
            (
                PathBuf::from(format!("/sites.d/\"{number}\".toml")),
                remembered,
            )
        });
        let known = LastGood {
            files: files.collect(),
        };
        let text = known.to_text();
        assert_eq!(LastGood::parse(&text), Ok(known), "{text}");
        assert_eq!(LastGood::parse(""), Ok(LastGood::default()));
    }

    #[test]
    fn what_was_not_written_here_is_refused() {
        for text in ["[[files]]\nfile = \"/a\"", "files = [1]", "files = ["] {
            LastGood::parse(text).unwrap_err();
        }
    }
}
