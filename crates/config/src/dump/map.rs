//! Maps as TOML.

use super::write::{Lines, list, quote, quote_path};
use crate::model::{Map, MapProgram, MapSource};
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
