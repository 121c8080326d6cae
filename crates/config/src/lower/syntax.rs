//! From text to tables, past every mistake of TOML's own syntax.
//!
//! The idea: the parser recovers and goes on, but one mistake makes it complain again and again.
//! Of each line the first complaint is told, and behind a list or table that is never closed,
//! where every line is a mistake, only the first.

use toml::Spanned;
use toml::de::{DeTable, Error};

use super::context::{Context, Spot, line_start, problem};

/// The tables of file number `file`, as far as they can be read.
pub(crate) fn parse<'a>(context: &Context<'a>, file: usize) -> Spanned<DeTable<'a>> {
    let text = context.sources.file(file).map_or("", |file| &file.text);
    let (document, errors) = DeTable::parse_recoverable(text);
    let start = |error: &Error| error.span().map_or(0, |span| span.start);
    let line = |error: &Error| line_start(text, start(error));
    let mut lines: Vec<(usize, &Error)> = errors.iter().map(|error| (line(error), error)).collect();
    lines.sort_by_key(|(_, error)| start(error));
    let avalanche = avalanche_from(&lines);
    lines.dedup_by_key(|(line, _)| *line);
    for (line, error) in lines {
        let span = error.span().unwrap_or(0..0);
        let spot = Spot {
            file,
            start: span.start,
            end: span.end,
        };
        let finding = problem(spot, error.message().trim_end_matches(", expected nothing"));
        if avalanche == Some(line) {
            let help = "a list or table that begins before this is not closed";
            context.report(finding.avalanche().help(help));
            break;
        }
        context.report(match advice(error) {
            Some(help) => finding.help(help).syntax(),
            None => finding.syntax(),
        });
    }
    document
}

/// What to try, where the parser's words are about its grammar and not about the mistake.
fn advice(error: &Error) -> Option<&'static str> {
    let says = |word: &str| error.message().contains(word);
    if says("string values must be quoted") || says("invalid float") {
        Some("text stands in quotes, as in `\"127.0.0.1:8080\"`")
    } else if says("duplicate key") {
        Some("the same name stands further up; each of several tables is headed `[[name]]`")
    } else {
        None
    }
}

/// The line (its first byte) from which on everything is read as part of something unclosed.
fn avalanche_from(lines: &[(usize, &Error)]) -> Option<usize> {
    let says = |error: &Error, word: &str| error.message().contains(word);
    let (last, end) = lines.iter().find(|(_, error)| says(error, "unclosed"))?;
    let kind = if says(end, "array") {
        "array"
    } else {
        "inline table"
    };
    let first = lines.iter().find(|(_, error)| says(error, kind));
    Some(first.map_or(*last, |(line, _)| *line))
}
