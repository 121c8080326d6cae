//! `[directories.NAME]`.

use super::Lines;
use super::write::{quote, quote_path};
use crate::lower::names::Named;
use crate::model::{Directory, DirectoryChanges};
use crate::units;

impl Lines {
    pub(super) fn directories(&mut self, directories: &[Directory]) {
        directories.iter().for_each(|it| self.directory(it));
    }

    fn directory(&mut self, directory: &Directory) {
        self.section(&format!("[directories.{}]", quote(&directory.name)));
        self.key("source", quote(directory.source.url()));
        if !directory.query.is_empty() {
            self.key("query", quote(&directory.query));
        }
        if let Some(all) = &directory.all {
            self.key("all", quote(all));
        }
        match &directory.changes {
            Some(DirectoryChanges::Query(query)) => self.key("changes", quote(query)),
            Some(DirectoryChanges::Listen(channel)) => {
                self.key("changes", quote(format!("LISTEN {channel}")));
            }
            None => {}
        }
        if let Some(address) = &directory.memcached {
            self.key("memcached", quote(address));
            self.key("trust", quote(directory.trust.name()));
        }
        self.duration("keep", directory.keep_ms);
        self.duration("missing", directory.missing_ms);
        self.duration("stale", directory.stale_ms);
        if let Some(snapshot) = &directory.snapshot {
            self.key("snapshot", quote_path(snapshot));
        }
        self.duration("wait", directory.wait_ms);
        let (count, per_ms) = directory.questions;
        self.key("questions", quote(units::rate(count, per_ms)));
        self.key("uid_min", directory.uid_min);
        if let Some(user) = &directory.user {
            self.key("user", quote(user));
        }
    }
}
