//! Maps, and what is asked of them, as TOML.

use super::{Lines, list, quote, quote_path};
use crate::lower::spell;
use crate::model::{Map, MapMatch, MapProgram, MapSource};
use crate::units;

impl Lines {
    pub(super) fn map(&mut self, map: &Map) {
        self.section(&format!("[maps.{}]", quote(&map.name)));
        match &map.source {
            MapSource::File(path) => self.key("file", quote_path(path)),
            MapSource::Program(program) => self.map_program(program),
        }
        self.size("key_bytes", map.key_bytes as u64);
        self.size("answer_bytes", map.answer_bytes as u64);
    }

    fn map_program(&mut self, program: &MapProgram) {
        self.key("program", list(&program.command, quote));
        if program.has_own_user {
            self.key("user", quote(&program.user));
        }
        self.key("processes", program.processes);
        self.duration("timeout", program.timeout_ms);
        self.key("waiting", program.waiting);
        if let Some(cache) = program.cache {
            self.key("cache", quote(units::duration(cache.ms)));
            self.key("cache_entries", cache.entries);
            self.size("cache_bytes", cache.bytes as u64);
        }
        if let Some(text) = &program.on_error {
            self.key("on_error", quote(text));
        }
    }
}

/// The entries of a `match` that asks a map.
pub(super) fn conditions(asked: &MapMatch) -> Vec<String> {
    let mut entries = vec![format!("map = {}", quote(&asked.name))];
    if !asked.key.parts.is_empty() {
        entries.push(format!("key = {}", quote(spell(&asked.key))));
    }
    if !asked.answered {
        entries.push("answered = false".to_owned());
    }
    // Debug keeps the point that makes it a fraction again, and every digit.
    entries.extend(asked.above.map(|above| format!("above = {above:?}")));
    entries.extend(asked.below.map(|below| format!("below = {below:?}")));
    let equals = asked.equals.as_ref();
    entries.extend(equals.map(|text| format!("equals = {}", quote(text))));
    entries
}
