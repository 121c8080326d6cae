//! What differences come of: the new server's own record of the request, and the line that it names.
//!
//! The idea: each question has a user agent of its own, so the record is found by it whatever else
//! the server does meanwhile. Differences with one cause are one group with a count and an example.
//! Without a record the cause is the kind of file. Not here: what differs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use config::Naming;

use super::compare::{Aspect, Difference};
use super::fetch::Question;

/// How long a record may take to be written.
const RECORD: Duration = Duration::from_secs(2);
/// Records that are looked for where none is ever found.
const MISSED_MAX: u32 = 3;
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of records that are read for one request.
const READ_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Groups; what belongs to none is counted.
const GROUPS_MAX: usize = 500;

/// Why the new server answered as it did.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Cause {
    /// By its record.
    Recorded {
        site: String,
        rule: Option<String>,
        handler: Option<String>,
        reason: Option<String>,
    },
    /// By the last name of the path: `.php`.
    Ending(String),
}

/// The new server's access log.
#[derive(Debug)]
pub(super) struct Records {
    file: File,
    /// What was read of a line that is not whole yet.
    rest: Vec<u8>,
    has_found: bool,
    /// Records that were looked for.
    looked_for: u32,
}

impl Records {
    /// Reads what is added to a log from now on.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open(file: &Path) -> io::Result<Records> {
        let mut file = File::open(file)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Records {
            file,
            rest: Vec::new(),
            has_found: false,
            looked_for: 0,
        })
    }

    /// Whether it was looked for records, and there was none: it is another's log.
    pub(super) fn has_none(&self) -> bool {
        self.looked_for > 0 && !self.has_found
    }

    /// The cause in the record of this user agent, once it is written.
    pub(super) fn cause(&mut self, agent: &str) -> Option<Cause> {
        if !self.has_found && self.looked_for >= MISSED_MAX {
            return None;
        }
        self.looked_for += 1;
        let until = Instant::now() + RECORD;
        let mut left = READ_BYTES_MAX;
        loop {
            let mut more = Vec::new();
            let read = (&mut self.file).take(left).read_to_end(&mut more).ok()?;
            left = left.saturating_sub(read as u64);
            self.rest.extend_from_slice(&more);
            let whole = self.rest.iter().rposition(|byte| *byte == b'\n');
            let whole: Vec<u8> = self.rest.drain(..whole.map_or(0, |at| at + 1)).collect();
            let mut lines = whole.split(|byte| *byte == b'\n');
            if let Some(cause) = lines.find_map(|line| recorded(line, agent)) {
                self.has_found = true;
                return Some(cause);
            }
            if Instant::now() >= until || left == 0 {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn recorded(line: &[u8], agent: &str) -> Option<Cause> {
    let record: serde_json::Value = serde_json::from_slice(line).ok()?;
    let text = |name: &str| Some(record.get(name)?.as_str()?.to_owned());
    (text("user_agent")? == agent).then(|| Cause::Recorded {
        site: text("site").unwrap_or_default(),
        rule: text("rule"),
        handler: text("handler"),
        reason: text("reason"),
    })
}

impl Cause {
    /// What is known without a record.
    pub(super) fn of(question: &Question) -> Cause {
        let path = question.target.split('?').next().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        let ending = match name.rsplit_once('.') {
            Some((_, ending)) if !ending.is_empty() => format!(".{ending}"),
            _ if name.is_empty() => "a directory".to_owned(),
            _ => "no ending".to_owned(),
        };
        Cause::Ending(ending)
    }

    /// The lines of the other server that an import made the rule of, which stand above it.
    pub(super) fn made_of(&self, naming: Option<&Naming<'_>>) -> Vec<String> {
        let Cause::Recorded {
            site,
            rule: Some(rule),
            ..
        } = self
        else {
            return Vec::new();
        };
        naming.map_or_else(Vec::new, |it| it.comments_of_rule(site, rule))
    }

    /// In words, with the line of the configuration where that is known.
    pub(super) fn told(&self, naming: Option<&Naming<'_>>) -> String {
        let (site, rule, handler, reason) = match self {
            Cause::Ending(ending) => return format!("paths with {ending}"),
            Cause::Recorded {
                site,
                rule,
                handler,
                reason,
            } => (site, rule, handler, reason),
        };
        let place = rule
            .as_ref()
            .and_then(|rule| naming?.place_of_rule(site, rule))
            .map(|place| format!(" ({}:{})", place.file, place.line));
        let rule = rule.as_deref().unwrap_or("no rule");
        let mut told = format!("{site}, {rule}{}", place.unwrap_or_default());
        for (word, value) in [("handler", handler), ("reason", reason)] {
            if let Some(value) = value {
                told.push_str(&format!(", {word} {value}"));
            }
        }
        told
    }
}

/// Differences of one kind and one cause.
#[derive(Debug)]
pub(super) struct DifferenceGroup {
    pub(super) count: u64,
    pub(super) example: Question,
    pub(super) differences: Vec<Difference>,
}

/// All that was found.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: HashMap<(Cause, Vec<String>), DifferenceGroup>,
    /// Differences beyond the groups that are kept.
    pub(super) ungrouped: u64,
}

impl Groups {
    pub(super) fn add(&mut self, cause: Cause, question: &Question, differences: Vec<Difference>) {
        let mut kinds: Vec<String> = differences.iter().map(kind).collect();
        kinds.sort_unstable();
        let key = (cause, kinds);
        let is_full = self.groups.len() >= GROUPS_MAX;
        match self.groups.get_mut(&key) {
            Some(group) => group.count += 1,
            None if is_full => self.ungrouped += 1,
            None => {
                let group = DifferenceGroup {
                    count: 1,
                    example: question.clone(),
                    differences,
                };
                self.groups.insert(key, group);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The largest first.
    pub(super) fn sorted(&self) -> Vec<(&Cause, &DifferenceGroup)> {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by(|(one_key, one), (other_key, other)| {
            other.count.cmp(&one.count).then(one_key.cmp(other_key))
        });
        let groups = groups.into_iter();
        groups.map(|((cause, _), group)| (cause, group)).collect()
    }
}

/// What differences of one cause have in common: of a status what it was and is.
fn kind(difference: &Difference) -> String {
    let Difference { what, old, new } = difference;
    match what {
        Aspect::Status => format!("status {old} → {new}"),
        other => other.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_known_by_its_user_agent() {
        let line =
            br#"{"site":"a.jp","rule":"rule 2","handler":"php","reason":null,"user_agent":"v/7"}"#;
        let cause = recorded(line, "v/7").expect("it is of this request");
        assert_eq!(cause.told(None), "a.jp, rule 2, handler php");
        assert_eq!(recorded(line, "v/8"), None);
        assert_eq!(recorded(b"{", "v/7"), None);
    }

    #[test]
    fn differences_of_one_kind_and_cause_are_one_group() {
        let question = |target: &str| Question {
            host: "a.jp".into(),
            target: target.into(),
            is_head: false,
        };
        let status = |new: &str| Difference {
            what: Aspect::Status,
            old: "200".into(),
            new: new.into(),
        };
        let mut groups = Groups::default();
        for (target, new) in [
            ("/a.php", "404"),
            ("/b.php?x.y", "404"),
            ("/c.php", "403"),
            ("/d/", "404"),
        ] {
            let question = question(target);
            groups.add(Cause::of(&question), &question, vec![status(new)]);
        }
        let told: Vec<_> = groups
            .sorted()
            .into_iter()
            .map(|(cause, group)| (cause.told(None), group.count))
            .collect();
        assert_eq!(told.len(), 3);
        assert_eq!(told[0], ("paths with .php".to_owned(), 2));
    }
}
