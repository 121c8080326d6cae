//! Imports: what comes of lines of other servers, that nothing is opened, and that what is written is
//! a configuration.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apache;
mod corpus;
mod debian;
mod nginx;
mod nginx_places;
mod places;
mod pools;
mod properties;
mod report;
mod servers;
mod written;

use import::{Fate, Imported};

/// The text of `a.example`, without comments.
fn site_of(imported: &Imported) -> String {
    let site = imported.files.iter().find(|file| file.name == "a.example");
    let lines = site.into_iter().flat_map(|file| file.text.lines());
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

/// What of the import is said of the line that begins so.
fn said<'i>(imported: &'i Imported, begins: &str) -> (Fate, &'i str) {
    let mut lines = imported.lines.iter();
    let line = lines.find(|line| line.text.starts_with(begins));
    line.map_or_else(
        || panic!("no line begins with {begins}"),
        |line| (line.fate, line.note.as_str()),
    )
}
