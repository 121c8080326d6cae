//! Problems of a configuration, each with its place, and how they are shown.
//!
//! The idea: a [`Diagnostics`] owns the few lines it shows, so it outlives the sources it speaks
//! of and can be logged, sent to a control socket or compared in a test. What is a problem is
//! decided by the lowering; nothing here knows a key.

use std::fmt;
use std::ops::Range;

/// Problems shown at most; the rest is only counted.
const SHOWN_MAX: usize = 100;
/// Columns of a source line shown at most; longer lines are cut around the problem.
const COLUMNS_MAX: usize = 140;

/// Every problem found in a configuration, in the order of the files and their lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics {
    problems: Vec<Problem>,
    hidden: usize,
    severity: Severity,
}

/// Whether a configuration with these problems is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// It is not.
    Error,
    /// It is: it says something that has no effect, or cannot have the one that is meant.
    Warning,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong: lower case, no full stop.
    pub message: String,
    /// Where; `None` when a whole file is meant (the message names it).
    pub place: Option<Place>,
    /// The other place concerned, and its part in it.
    pub other: Option<(String, Place)>,
    /// What to do about it.
    pub help: Option<String>,
}

/// A stretch of one line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as the reader would name it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    source: String,
    underlined: Range<usize>,
}

/// Whether a rendering uses terminal colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    Never,
    /// ANSI escapes.
    Always,
}

impl Diagnostics {
    /// Keeps the first of `problems` and counts the others.
    pub(crate) fn new(
        severity: Severity,
        mut problems: impl ExactSizeIterator<Item = Problem>,
    ) -> Diagnostics {
        let hidden = problems.len().saturating_sub(SHOWN_MAX);
        let problems = problems.by_ref().take(SHOWN_MAX).collect();
        Diagnostics {
            problems,
            hidden,
            severity,
        }
    }

    /// A single problem that has no place in any file.
    pub(crate) fn placeless(message: String, help: Option<String>) -> Diagnostics {
        let problem = Problem {
            message,
            place: None,
            other: None,
            help,
        };
        Diagnostics::new(Severity::Error, std::iter::once(problem))
    }

    /// What others than the lowering have found wrong.
    #[must_use]
    pub fn errors(problems: Vec<Problem>) -> Diagnostics {
        Diagnostics::new(Severity::Error, problems.into_iter())
    }

    /// What they have found that is hardly meant.
    #[must_use]
    pub fn warnings(problems: Vec<Problem>) -> Diagnostics {
        Diagnostics::new(Severity::Warning, problems.into_iter())
    }

    /// These problems, and behind them what others have found wrong.
    #[must_use]
    pub fn and(self, more: Vec<Problem>) -> Diagnostics {
        Diagnostics::joined([self, Diagnostics::errors(more)])
    }

    /// The problems of several, one after the other.
    pub(crate) fn joined(several: impl IntoIterator<Item = Diagnostics>) -> Diagnostics {
        let mut hidden = 0;
        let problems = several.into_iter().flat_map(|it| {
            hidden += it.hidden;
            it.problems
        });
        let problems: Vec<Problem> = problems.collect();
        let mut joined = Diagnostics::new(Severity::Error, problems.into_iter());
        joined.hidden += hidden;
        joined
    }

    /// The problems, at most a hundred.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// How many problems there are, shown or not.
    pub fn count(&self) -> usize {
        self.problems.len() + self.hidden
    }

    /// The text for people; empty where there are no problems and nothing is refused.
    pub fn render(&self, colour: Colour) -> String {
        let paint = Paint {
            on: colour == Colour::Always,
        };
        let mut text = String::new();
        for problem in &self.problems {
            problem.render(self.severity, &paint, &mut text);
            text.push('\n');
        }
        let count = self.count();
        if self.severity == Severity::Warning {
            if self.hidden > 0 {
                text.push_str(&format!("{} more warnings are not shown\n", self.hidden));
            }
            return text;
        }
        text.push_str(&match (count, self.hidden) {
            (1, _) => "1 problem\n".to_owned(),
            (_, 0) => format!("{count} problems\n"),
            (_, hidden) => format!("{count} problems, {hidden} of them not shown\n"),
        });
        text
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.render(Colour::Never))
    }
}

impl std::error::Error for Diagnostics {}

impl fmt::Display for Problem {
    /// What is wrong and what to do about it, in one line, without its place.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&printable(&self.message))?;
        match &self.help {
            Some(help) => write!(out, ": {}", printable(help)),
            None => Ok(()),
        }
    }
}

impl Problem {
    /// One that is known where it stands, if it is.
    #[must_use]
    pub fn at(place: Option<Place>, message: String) -> Problem {
        Problem {
            message,
            place,
            other: None,
            help: None,
        }
    }

    fn render(&self, severity: Severity, paint: &Paint, out: &mut String) {
        let last_line = [
            self.place.as_ref(),
            self.other.as_ref().map(|(_, place)| place),
        ];
        let last_line = last_line
            .iter()
            .flatten()
            .map(|place| place.line)
            .max()
            .unwrap_or(0);
        let gutter = last_line.to_string().len();
        let pad = " ".repeat(gutter);
        out.push_str(&format!(
            "{}: {}\n",
            paint.red(severity.word()),
            paint.bold(&printable(&self.message))
        ));
        if let Some(place) = &self.place {
            place.render(gutter, '^', "", paint, out);
        }
        if let Some((role, place)) = &self.other {
            place.render(gutter, '-', role, paint, out);
        }
        if let Some(help) = &self.help {
            out.push_str(&format!(
                "{pad} {} help: {}\n",
                paint.blue("="),
                printable(help)
            ));
        }
    }
}

impl Place {
    /// The place of the bytes `span` of `text`. A span over several lines is cut to its first.
    pub(crate) fn new(file: &str, text: &str, span: Range<usize>) -> Place {
        let start = floor_boundary(text, span.start);
        let end = floor_boundary(text, span.end.max(start));
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let rest = text.get(line_start..).unwrap_or_default();
        let source = rest
            .split('\n')
            .next()
            .unwrap_or_default()
            .trim_end_matches('\r');
        let first = (start - line_start).min(source.len());
        let last = (end - line_start).min(source.len()).max(first);
        let column = chars_in(source, 0..first);
        Place {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: column + 1,
            source: masked(source),
            underlined: column..column + chars_in(source, first..last).max(1),
        }
    }

    fn render(&self, gutter: usize, mark: char, role: &str, paint: &Paint, out: &mut String) {
        let pad = " ".repeat(gutter);
        let bar = paint.blue("|");
        let (source, underlined) = self.window();
        let blank: String = source
            .chars()
            .take(underlined.start)
            .map(blank_of)
            .collect();
        let marked = source.chars().skip(underlined.start).take(underlined.len());
        let width: usize = marked.map(columns_of).sum();
        let marks = mark.to_string().repeat(width.max(1));
        let number = paint.blue(&format!("{:>gutter$}", self.line));
        let arrow = paint.blue("-->");
        out.push_str(&format!(
            "{pad}{arrow} {}:{}:{}\n",
            self.file, self.line, self.column
        ));
        out.push_str(&format!("{pad} {bar}\n"));
        out.push_str(&format!("{number} {bar} {}\n", printable(&source)));
        let line = format!("{marks} {}", printable(role));
        let line = if mark == '^' {
            paint.red(line.trim_end())
        } else {
            paint.blue(line.trim_end())
        };
        out.push_str(&format!("{pad} {bar} {blank}{line}\n"));
    }

    /// The part of the line that is shown, and the underlined characters within it.
    fn window(&self) -> (String, Range<usize>) {
        let length = self.source.chars().count();
        if length <= COLUMNS_MAX {
            return (self.source.clone(), self.underlined.clone());
        }
        let from = self
            .underlined
            .start
            .saturating_sub(COLUMNS_MAX / 2)
            .min(length - COLUMNS_MAX);
        let shown: String = self.source.chars().skip(from).take(COLUMNS_MAX).collect();
        let (start, end) = (self.underlined.start - from, self.underlined.end - from);
        (shown, start..end.min(COLUMNS_MAX))
    }
}

/// Terminal colours, or none.
struct Paint {
    on: bool,
}

impl Paint {
    fn red(&self, text: &str) -> String {
        self.with("31;1", text)
    }

    fn blue(&self, text: &str) -> String {
        self.with("34;1", text)
    }

    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    fn with(&self, code: &str, text: &str) -> String {
        if self.on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Text in which passwords of URLs are stars: whoever reads a log need not know them.
pub(crate) fn masked(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines
        .map(|line| {
            let shown = masked_account(line);
            let shown = shown.as_deref().unwrap_or(line);
            masked_parameter(shown).unwrap_or_else(|| shown.to_owned())
        })
        .collect()
}

/// A line with `USER:PASSWORD@` of a URL; whatever stands in a password, it ends before the last `@`.
fn masked_account(line: &str) -> Option<String> {
    let schemes = ["://", "mysql:", "postgres:", "postgresql:"];
    let mut found = schemes
        .iter()
        .filter_map(|it| Some(line.find(it)? + it.len()));
    let begin = found.next()?;
    let end = line.rfind('@')?;
    let colon = begin + line.get(begin..end)?.find(':')? + 1;
    Some(starred(line, colon, end))
}

/// A line with a parameter `password`.
fn masked_parameter(line: &str) -> Option<String> {
    let name = "password=";
    let begin = line.find(name)? + name.len();
    let rest = line.get(begin..)?;
    let length = rest.find(['&', '"', ' ', '\n']).unwrap_or(rest.len());
    Some(starred(line, begin, begin + length))
}

/// The line with stars there.
fn starred(line: &str, begin: usize, end: usize) -> String {
    let (shown, rest) = line.split_at(begin);
    let (hidden, rest) = rest.split_at(end.saturating_sub(begin));
    format!("{shown}{}{rest}", "*".repeat(hidden.chars().count()))
}

/// Text without control characters, so that a configuration cannot drive the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

fn chars_in(text: &str, range: Range<usize>) -> usize {
    text.get(range).unwrap_or_default().chars().count()
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// What stands under `c` left of the marks: a tab stays a tab, so that the terminal's width holds.
fn blank_of(c: char) -> &'static str {
    match columns_of(c) {
        _ if c == '\t' => "\t",
        2 => "  ",
        _ => " ",
    }
}

/// Columns a terminal gives `c`: East Asian scripts begin where Hangul does, and take two.
fn columns_of(c: char) -> usize {
    if ('\u{1100}'..'\u{10000}').contains(&c) || c >= '\u{1f300}' {
        2
    } else {
        1
    }
}
