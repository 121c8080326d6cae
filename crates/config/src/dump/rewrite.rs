//! `rewrite` as TOML, every default written out.

use super::write::{Lines, braces, list, quote};
use crate::lower::rewrite::spell_query;
use crate::lower::template::spell;
use crate::model::Rewrite;

impl Lines {
    pub(super) fn rewrites(&mut self, rewrites: &[Rewrite]) {
        if !rewrites.is_empty() {
            self.key("rewrite", list(rewrites, rewrite));
        }
    }
}

fn rewrite(rewrite: &Rewrite) -> String {
    let unless = [
        rewrite.unless_file.then_some("file"),
        rewrite.unless_directory.then_some("directory"),
    ];
    let unless: Vec<_> = unless.into_iter().flatten().collect();
    let entries = [
        Some(format!("from = {}", quote(&rewrite.from))),
        Some(format!("to = {}", quote(spell(&rewrite.to)))),
        spell_query(rewrite.query).map(|word| format!("query = {}", quote(word))),
        (!unless.is_empty()).then(|| format!("unless = {}", list(&unless, quote))),
        Some(format!("last = {}", rewrite.last)),
    ];
    braces(entries.into_iter().flatten())
}
