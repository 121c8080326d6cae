//! What a run of the lowering shares: the sources, and the problems found so far.
//!
//! The idea: problems are collected, not returned, so that all of them are found in one go. Where
//! a file cannot be parsed, what seems to be missing may stand in the unread part: only problems
//! that are certain are told then.

use std::cell::RefCell;
use std::collections::BTreeSet;

use toml::de::DeTable;

use crate::diagnostics::{Diagnostics, Place, Problem};
use crate::sources::Sources;

/// Problems remembered; a file of a million mistakes needs no million reports.
const FINDINGS_MAX: usize = 10_000;

/// The run of the lowering: its sources, and what was found so far.
pub(crate) struct Context<'a> {
    pub(crate) sources: &'a Sources,
    findings: RefCell<Vec<Finding>>,
    /// Stands for tables that are not there.
    pub(crate) nothing: DeTable<'a>,
    /// Files that keys name, judged.
    pub(crate) files: super::files::FileCache,
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
}

impl<'a> Context<'a> {
    pub(crate) fn new(sources: &'a Sources) -> Context<'a> {
        Context {
            sources,
            findings: RefCell::new(Vec::new()),
            nothing: DeTable::new(),
            files: Default::default(),
        }
    }

    pub(crate) fn report(&self, finding: Finding) {
        let mut findings = self.findings.borrow_mut();
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    }

    /// The model, unless anything was found.
    pub(crate) fn finish<T>(self, model: Option<T>) -> Result<T, Diagnostics> {
        let findings = self.findings.into_inner();
        match model {
            Some(model) if findings.is_empty() => Ok(model),
            _ => Err(Diagnostics::new(told(self.sources, findings))),
        }
    }
}

/// The findings worth telling, in the order of their places.
fn told(sources: &Sources, mut findings: Vec<Finding>) -> Vec<Problem> {
    hide_consequences(sources, &mut findings);
    findings.sort_by(|left, right| left.spot.cmp(&right.spot));
    let place = |spot: Spot| {
        let file = sources.files.get(spot.file)?;
        Some(Place::new(&file.name, &file.text, spot.start..spot.end))
    };
    let problem = |finding: Finding| Problem {
        message: finding.message,
        place: finding.spot.and_then(place),
        other: finding
            .other
            .and_then(|(role, spot)| Some((role, place(spot)?))),
        help: finding.help,
    };
    findings.into_iter().map(problem).collect()
}

/// Removes what may be true only because part of a file could not be read.
fn hide_consequences(sources: &Sources, findings: &mut Vec<Finding>) {
    let line_of = |spot: &Spot| {
        let text = sources.files.get(spot.file).map_or("", |file| &file.text);
        let before = text.get(..floor(text, spot.start)).unwrap_or_default();
        (spot.file, before.matches('\n').count())
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

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
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
