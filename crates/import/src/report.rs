//! The account of an import: a page for people, and JSON for panels.
//!
//! The idea: what people have to look at comes first, and what needs no look is a number.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{Fate, Imported, SourceLine};

/// What is told before everything else, for whoever relies on it: a name, and a sentence.
const HEADLINES: [(&str, &str); 3] = [
    (
        "rules of ModSecurity",
        "no such rules are run here: what they kept out comes in, unless something else keeps it out; a script in \
         `access`, `limits` and `deny` are what there is",
    ),
    (
        "lines of a cache",
        "there is no cache: every request reaches its program or back end, so measure whether that bears the load \
         before you switch",
    ),
    (
        "lines of LiteSpeed's cache",
        "there is no such cache: every page is made anew, so measure whether PHP bears the load before you switch",
    ),
];

/// Which headline a line belongs to.
fn headline(text: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    let name = lower
        .trim_start_matches('<')
        .split(' ')
        .next()
        .unwrap_or_default();
    let is_cache = |begin: &str| {
        let rest = name.strip_prefix(begin);
        rest.is_some_and(|rest| rest.starts_with("_cache") || rest == "_no_cache")
    };
    if name.starts_with("secrule")
        || name.starts_with("secaction")
        || name.starts_with("modsecurity")
    {
        Some(0)
    } else if ["fastcgi", "proxy", "uwsgi", "scgi"]
        .into_iter()
        .any(is_cache)
    {
        Some(1)
    } else if name.starts_with("lscache")
        || lower.contains("e=cache-control")
        || ["cachelookup", "cacheengine", "cachekeymodify"].contains(&name)
    {
        Some(2)
    } else {
        None
    }
}

impl Imported {
    /// How many lines have each class.
    pub fn totals(&self) -> BTreeMap<Fate, usize> {
        let mut totals = BTreeMap::new();
        for line in &self.lines {
            *totals.entry(line.fate).or_default() += 1;
        }
        totals
    }

    /// Whether somebody has to look at something.
    pub fn asks_for_a_look(&self) -> bool {
        let is_fine = |line: &SourceLine| matches!(line.fate, Fate::Carried | Fate::NotNeeded);
        !self.lines.iter().all(is_fine)
    }

    fn headlines(&self) -> impl Iterator<Item = (usize, &'static str, &'static str)> {
        let mut counts = [0_usize; HEADLINES.len()];
        for at in self.lines.iter().filter_map(|line| headline(&line.text)) {
            counts[at] += 1;
        }
        let all = counts.into_iter().zip(HEADLINES);
        all.filter(|(count, _)| *count > 0)
            .map(|(count, (name, sentence))| (count, name, sentence))
    }

    fn summary(&self) -> String {
        let totals = self.totals();
        let parts = Fate::ALL.map(|fate| {
            let count = totals.get(&fate).copied().unwrap_or_default();
            format!("{count} {}", fate.words())
        });
        format!("{} lines: {}", self.lines.len(), parts.join(", "))
    }

    /// The account for people.
    pub fn page(&self) -> String {
        let mut page = String::new();
        // Writing to memory does not fail, here and below.
        for (count, name, sentence) in self.headlines() {
            let _ = writeln!(page, "{count} {name}: {sentence}.\n");
        }
        let _ = writeln!(page, "{}", self.summary());
        for fate in Fate::ALL.into_iter().rev() {
            if matches!(fate, Fate::Carried | Fate::NotNeeded) {
                continue;
            }
            let mut lines = self
                .lines
                .iter()
                .filter(|line| line.fate == fate)
                .peekable();
            if lines.peek().is_some() {
                let _ = writeln!(page, "\n{}:", fate.words());
            }
            for line in lines {
                let _ = writeln!(page, "  {}:{}: {}", line.file, line.line, line.text);
                let _ = writeln!(page, "      {}", line.note);
            }
        }
        page
    }

    /// The account for programs, every line in it.
    pub fn json(&self) -> String {
        let totals: serde_json::Map<String, Value> = Fate::ALL
            .into_iter()
            .map(|fate| {
                let count = self.totals().get(&fate).copied().unwrap_or_default();
                (fate.words().to_owned(), json!(count))
            })
            .collect();
        let headlines: Vec<Value> = self
            .headlines()
            .map(|(count, name, sentence)| json!({ "count": count, "name": name, "sentence": sentence }))
            .collect();
        let line = |line: &SourceLine| {
            json!({
                "file": &*line.file,
                "line": line.line,
                "text": line.text,
                "class": line.fate.words(),
                "note": line.note,
            })
        };
        let lines: Vec<Value> = self.lines.iter().map(line).collect();
        let files: Vec<&str> = self.files.iter().map(|file| &*file.name).collect();
        let all = json!({
            "totals": totals,
            "headlines": headlines,
            "files": files,
            "lines": lines,
        });
        format!("{all:#}\n")
    }
}
