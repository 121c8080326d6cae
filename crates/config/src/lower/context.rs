//! What a run of the lowering shares: the sources, and the problems found so far.
//!
//! The idea: problems are collected, not returned, so that all of them are found in one go. Where
//! a file cannot be parsed, what seems to be missing may stand in the unread part: only problems
//! that are certain are told then.

use std::cell::RefCell;

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
    /// A file cannot be parsed or read.
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
    let line_of = |spot: &Spot| {
        let text = sources.files.get(spot.file).map_or("", |file| &file.text);
        let start = floor(text, spot.start);
        let before = text.get(..start).unwrap_or_default();
        (spot.file, before.matches('\n').count())
    };
    let broken = findings
        .iter()
        .any(|finding| finding.weight == Weight::Syntax);
    if broken {
        let syntax = findings
            .iter()
            .filter(|finding| finding.weight == Weight::Syntax);
        let lines: Vec<_> = syntax
            .filter_map(|finding| finding.spot.as_ref())
            .map(line_of)
            .collect();
        findings.retain(|finding| match (finding.weight, &finding.spot) {
            (Weight::Syntax, _) => true,
            (Weight::Absence, _) => false,
            (Weight::Mistake, Some(spot)) => !lines.contains(&line_of(spot)),
            (Weight::Mistake, None) => true,
        });
    }
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
