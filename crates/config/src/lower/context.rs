//! What a run of the lowering shares: the sources, and the problems found so far.
//!
//! The idea: problems are collected, not returned, so that all of them are found in one go. Where
//! a file cannot be parsed, what seems to be missing may stand in the unread part: only problems
//! that are certain are told then.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use pattern::{Expression, Expressions};
use toml::de::DeTable;

use super::file_cache::FileCache;
use crate::aside::{Wrong, WrongFile};
use crate::diagnostics::{Diagnostics, Place, Problem, Severity, printable};
use crate::include::Broken;
use crate::last_good::LastGood;
use crate::sources::{SourceFile, Sources};

/// Problems remembered; a file of a million mistakes needs no million reports.
const FINDINGS_MAX: usize = 10_000;

/// The run of the lowering: its sources, and what was found so far.
pub(crate) struct Context<'a> {
    pub(crate) sources: &'a Sources,
    findings: RefCell<Vec<Finding>>,
    warnings: RefCell<Vec<Finding>>,
    /// Stands for tables that are not there.
    pub(crate) nothing: DeTable<'a>,
    /// Where the lines begin of the files that were asked for.
    lines: RefCell<BTreeMap<usize, Vec<usize>>>,
    /// The names of the maps, by their index; known before anything asks one.
    pub(crate) maps: RefCell<Vec<String>>,
    /// The names of the accounts with authorities, by their index; known before sites are read.
    pub(crate) accounts: RefCell<Vec<String>>,
    /// The names of the directories, by their index; known before sites are read.
    pub(crate) directories: RefCell<Vec<String>>,
    /// The files that name clients, by their index.
    pub(crate) denied: RefCell<Vec<PathBuf>>,
    /// Files that keys name, judged.
    pub(crate) files: FileCache,
    /// The regular expressions that were read.
    pub(crate) expressions: Expressions,
    /// Whether what is being read stands in a site that rows make, whose texts may have their columns.
    pub(crate) has_rows: Cell<bool>,
    /// The columns of them that were named.
    pub(crate) columns: RefCell<BTreeSet<String>>,
    /// Whether machines share limits; known before limits are read.
    pub(crate) has_fleet: Cell<bool>,
    /// The file of which it was told last that there is none, where limits ask for it.
    pub(crate) fleet_missed: Cell<Option<usize>>,
    /// The regular expression whose groups texts may use where is being read.
    groups_of: RefCell<Option<String>>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) file: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// How sure a problem is while parts of the configuration could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// From here on a file cannot be parsed.
    Avalanche,
    /// A line cannot be parsed, or a file read.
    Syntax,
    /// Something written is wrong.
    Mistake,
    /// Something is missing, which may have stood in the unreadable part.
    Absence,
}

/// A problem whose places are not yet looked up.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    weight: Weight,
    message: String,
    spot: Option<Spot>,
    other: Option<(String, Spot)>,
    help: Option<String>,
}

impl Finding {
    /// Adds what to do about it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Finding {
        self.help = Some(help.into());
        self
    }

    /// Adds a suggestion, if there is one.
    pub(crate) fn meant(mut self, meant: Option<&str>) -> Finding {
        if let Some(meant) = meant {
            self.help = Some(format!("did you mean `{meant}`?"));
        }
        self
    }

    /// Adds the other place concerned, and its part in the problem.
    pub(crate) fn other(mut self, role: &str, spot: Spot) -> Finding {
        self.other = Some((role.to_owned(), spot));
        self
    }

    /// Says that the problem vanishes where a file is broken and may hold what is missing.
    pub(crate) fn absence(mut self) -> Finding {
        self.weight = Weight::Absence;
        self
    }

    /// Says that the problem leaves the rest of its file unread.
    pub(crate) fn avalanche(mut self) -> Finding {
        self.weight = Weight::Avalanche;
        self
    }

    /// Says that the problem leaves part of a file unread.
    pub(crate) fn syntax(mut self) -> Finding {
        self.weight = Weight::Syntax;
        self
    }

    fn told(self, sources: &Sources) -> Problem {
        let place = |spot: Spot| {
            let file = sources.file(spot.file)?;
            Some(Place::new(&file.name, &file.text, spot.start..spot.end))
        };
        let other = self
            .other
            .and_then(|(role, spot)| Some((role, place(spot)?)));
        Problem {
            message: self.message,
            place: self.spot.and_then(place),
            other,
            help: self.help,
        }
    }
}

impl<'a> Context<'a> {
    pub(crate) fn new(sources: &'a Sources) -> Context<'a> {
        Context {
            sources,
            findings: RefCell::new(Vec::new()),
            warnings: RefCell::new(Vec::new()),
            nothing: DeTable::new(),
            lines: RefCell::default(),
            maps: RefCell::default(),
            accounts: RefCell::default(),
            directories: RefCell::default(),
            denied: RefCell::default(),
            files: Default::default(),
            expressions: Expressions::default(),
            has_rows: Cell::new(false),
            columns: RefCell::default(),
            has_fleet: Cell::new(false),
            fleet_missed: Cell::default(),
            groups_of: RefCell::default(),
        }
    }

    /// Does `work` where texts may use the groups of this expression, and of no other.
    pub(crate) fn where_groups_are_of<T>(
        &self,
        expression: Option<&str>,
        work: impl FnOnce() -> T,
    ) -> T {
        let outer = self.groups_of.replace(expression.map(str::to_owned));
        let done = work();
        self.groups_of.replace(outer);
        done
    }

    /// Does `work` where texts may have columns of rows, or may not.
    pub(crate) fn where_rows_are<T>(&self, known: bool, work: impl FnOnce() -> T) -> T {
        let outer = self.has_rows.replace(known);
        self.columns.take();
        let done = work();
        self.has_rows.set(outer);
        done
    }

    /// The expression whose groups texts may use.
    pub(crate) fn groups_of(&self) -> Option<Expression> {
        let source = self.groups_of.borrow();
        source
            .as_deref()
            .and_then(|it| self.expressions.of(it).ok())
    }

    /// Whether a file may be set aside where it is wrong.
    pub(crate) fn is_loose(&self, file: usize) -> bool {
        let file = self.sources.files.get(file);
        file.is_some_and(|file| file.broken == Broken::Keep)
    }

    /// The file of a quoted text, and the number of the line on which what it holds begins.
    pub(crate) fn line_of_text(&self, spot: &Spot) -> Option<(&'a str, usize)> {
        let file = self.sources.file(spot.file)?;
        let mut lines = self.lines.borrow_mut();
        // Counted once: a file may hold ten thousand scripts.
        let starts = lines.entry(spot.file).or_insert_with(|| {
            let newlines = file.text.match_indices('\n');
            newlines.map(|(at, _)| at + 1).collect()
        });
        let line = starts.partition_point(|start| *start <= spot.start) + 1;
        let rest = file.text.get(spot.start..).unwrap_or_default();
        let quotes = ["\"\"\"", "'''"];
        let behind = quotes.iter().find_map(|quote| rest.strip_prefix(quote));
        let skipped = behind.is_some_and(|text| text.starts_with(['\n', '\r']));
        Some((&file.name, line + usize::from(skipped)))
    }

    /// How many problems there are so far.
    pub(crate) fn found(&self) -> usize {
        self.findings.borrow().len()
    }

    pub(crate) fn report(&self, finding: Finding) {
        let mut findings = self.findings.borrow_mut();
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    }

    /// Tells of what is not wrong, but hardly meant.
    pub(crate) fn warn(&self, finding: Finding) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < FINDINGS_MAX {
            warnings.push(finding);
        }
    }

    /// The model and the warnings, unless anything is wrong.
    pub(crate) fn finish<T>(self, model: T) -> Result<(T, Diagnostics), Diagnostics> {
        let judged = self.judged(model, &LastGood::default());
        judged.map_err(|wrong| wrong.all)
    }

    /// As [`Context::finish`]; says which files are wrong that may be set aside.
    pub(crate) fn judged<T>(
        self,
        model: T,
        last_good: &LastGood,
    ) -> Result<(T, Diagnostics), Wrong> {
        let mut findings = self.findings.into_inner();
        if findings.is_empty() {
            let warnings = self.warnings.into_inner();
            return Ok((model, told(self.sources, Severity::Warning, warnings)));
        }
        hide_consequences(self.sources, &mut findings);
        let mut files: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
        for finding in &findings {
            if let Some(culprit) = culprit(self.sources, last_good, finding) {
                files.entry(culprit).or_default().push(finding.clone());
            }
        }
        let told = |findings| told(self.sources, Severity::Error, findings);
        let files = files.into_iter().filter_map(|(number, findings)| {
            let file = self.sources.files.get(number)?;
            Some(WrongFile {
                path: file.path(),
                name: printable(&file.name),
                text: file.text.clone(),
                problems: told(findings),
            })
        });
        Err(Wrong {
            files: files.collect(),
            all: told(findings),
        })
    }
}

/// The file that a problem is the fault of, if it may be set aside. Of two files that do not go
/// together it is the one that may be set aside; of two such the one whose last good version did
/// not say it, and else the one that is read later.
fn culprit(sources: &Sources, last_good: &LastGood, finding: &Finding) -> Option<usize> {
    let spots = finding.spot.iter();
    let spots = spots.chain(finding.other.as_ref().map(|(_, spot)| spot));
    let loose = |spot: &'_ Spot| {
        let files = sources.files.get(spot.file);
        files.filter(|file| file.broken == Broken::Keep)
    };
    let innocence = |spot: &Spot, file: &SourceFile| {
        let said = file.text.get(spot.start..spot.end).unwrap_or_default();
        match last_good.in_force(&file.path()) {
            Some(text) if *text == file.text => 2,
            Some(text) if text.contains(said) => 1,
            _ => 0,
        }
    };
    let spots = spots.filter_map(|spot| Some((innocence(spot, loose(spot)?), spot.file)));
    let least = spots.min_by_key(|(innocence, file)| (*innocence, Reverse(*file)));
    least.map(|(_, file)| file)
}

/// Findings in the order of the files and their lines.
fn told(sources: &Sources, severity: Severity, mut findings: Vec<Finding>) -> Diagnostics {
    findings.sort_by(|left, right| left.spot.cmp(&right.spot));
    let problems = findings.into_iter().map(|finding| finding.told(sources));
    Diagnostics::new(severity, problems)
}

/// Removes what may be true only because part of a file could not be read.
fn hide_consequences(sources: &Sources, findings: &mut Vec<Finding>) {
    // A line is known by its first byte.
    let line_of = |spot: &Spot| {
        let text = sources.file(spot.file).map_or("", |file| &file.text);
        (spot.file, line_start(text, spot.start))
    };
    let of = |weight| {
        let matching = findings
            .iter()
            .filter(move |finding| finding.weight == weight);
        matching.filter_map(|finding| finding.spot.as_ref())
    };
    let lines: BTreeSet<_> = of(Weight::Syntax).map(line_of).collect();
    let rests: Vec<Spot> = of(Weight::Avalanche).cloned().collect();
    if lines.is_empty() && rests.is_empty() {
        return;
    }
    let unread = |spot: &Spot| {
        let behind = |rest: &Spot| rest.file == spot.file && rest.start <= spot.start;
        lines.contains(&line_of(spot)) || rests.iter().any(behind)
    };
    findings.retain(|finding| match (finding.weight, &finding.spot) {
        (Weight::Avalanche | Weight::Syntax, _) | (Weight::Mistake, None) => true,
        (Weight::Absence, _) => false,
        (Weight::Mistake, Some(spot)) => !unread(spot),
    });
}

/// The first byte of the line that holds byte `at`.
pub(crate) fn line_start(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |newline| newline + 1)
}

/// The title of a table that has a name of somebody's choice: `[tenants."example.jp"]`.
pub(crate) fn title_of(kind: &str, name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !name.is_empty() && name.bytes().all(is_bare) {
        true => format!("[{kind}.{name}]"),
        false => format!("[{kind}.{name:?}]"),
    }
}

/// A problem at `spot`.
pub(crate) fn problem(spot: Spot, message: impl Into<String>) -> Finding {
    Finding {
        weight: Weight::Mistake,
        message: message.into(),
        spot: Some(spot),
        other: None,
        help: None,
    }
}

/// A problem of the configuration as a whole.
pub(crate) fn problem_overall(message: impl Into<String>) -> Finding {
    Finding {
        weight: Weight::Absence,
        message: message.into(),
        spot: None,
        other: None,
        help: None,
    }
}
