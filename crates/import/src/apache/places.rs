//! Where a virtual host's files are: its root, and directories elsewhere.

use super::ApacheLine;
use super::rewriting::RewriteLine;
use super::sections::Area;
use super::site::HostWork;
use crate::draft::{DraftKeys, TomlItem};
use crate::words;

/// Mounts of a site.
const MOUNTS_MAX: usize = 64;

impl<'a> HostWork<'_, 'a> {
    /// Where files are: the root, and directories elsewhere.
    pub(super) fn places(&mut self, plain: &[&'a ApacheLine], rewriting: &[&'a ApacheLine]) {
        let ledger = self.apache.ledger;
        if let Some(line) = plain.iter().rev().find(|line| line.name == "documentroot") {
            match words::file_path(line.first()) {
                Some(_) if forwards_all(plain, rewriting) => {
                    ledger.idle(line.id, "all that is asked for is forwarded");
                }
                Some(path) => {
                    ledger.carried(line.id);
                    let path = if path.len() > 1 {
                        path.trim_end_matches('/')
                    } else {
                        path
                    };
                    self.draft.keys.put("root", path, &[line.id]);
                    self.roots.root = Some(path.to_owned());
                }
                None => ledger.lost(
                    line.id,
                    "a root that is put together is not known: write a site for each",
                ),
            }
        }
        // Those of the virtual host come before those outside.
        let aliases = plain.iter().rev();
        for line in aliases.filter(|it| ["alias", "scriptalias"].contains(&&*it.name)) {
            self.mount(line);
        }
    }

    fn mount(&mut self, line: &'a ApacheLine) {
        let ledger = self.apache.ledger;
        let path = words::mount_path(line.first());
        let directory = words::file_path(line.word(1));
        let (Some(path), Some(directory)) = (path, directory) else {
            let note = "it leads to no directory that is known: write a mount";
            return ledger.lost(line.id, note);
        };
        let directory = directory.trim_end_matches('/');
        let mounts = &mut self.roots.mounts;
        if mounts.len() >= MOUNTS_MAX || mounts.iter().any(|(known, _)| known == path) {
            return ledger.idle(line.id, "another directory is there already");
        }
        ledger.carried(line.id);
        if let Some(mount) = self.draft.mount(path, directory, &[line.id]) {
            mount.put("symlinks", "allow", &[]);
        }
        mounts.push((path.to_owned(), directory.to_owned()));
        if line.name == "scriptalias" {
            let below = words::glob(path).map(|path| TomlItem::from(path + "/*"));
            let mut rule = DraftKeys::default();
            rule.matching(
                below
                    .map(|it| ("path".to_owned(), it))
                    .into_iter()
                    .collect(),
            );
            rule.put_in("handler", "cgi", TomlItem::Flag(true), &[line.id]);
            let note =
                "each file below it is run as the site's `user`: one that others may write is not";
            ledger.differs(line.id, note);
            self.script_directories.push(directory.to_owned());
            self.main.push(rule);
        }
    }

    /// Whether links are followed to what is not their owner's.
    pub(super) fn links(&mut self, plain: &[&'a ApacheLine], sections: &[&'a ApacheLine]) {
        let holds = |section: &&&ApacheLine| {
            let parts = self.roots.parts(section);
            section.name == "directory"
                && parts
                    .iter()
                    .any(|(_, area)| area.as_ref().is_some_and(Area::is_whole))
        };
        let within = sections.iter().filter(holds);
        let lines = within.flat_map(|section| section.children.iter().flatten());
        let lines: Vec<&ApacheLine> = plain.iter().copied().chain(lines).collect();
        let options = lines.iter().filter(|line| line.name == "options");
        let words = options.flat_map(|line| &line.words);
        let words: Vec<String> = words
            .map(|word| word.trim_start_matches('+').to_ascii_lowercase())
            .collect();
        let has = |name: &str| words.iter().any(|word| word == name);
        let follows = has("followsymlinks") || has("all");
        if follows && !has("symlinksifownermatch") && self.roots.root.is_some() {
            self.draft.keys.put("symlinks", "allow", &[]);
        }
    }
}

/// Whether no file of a root is ever looked for, as all is forwarded.
fn forwards_all(plain: &[&ApacheLine], rewriting: &[&ApacheLine]) -> bool {
    let passes = || {
        plain
            .iter()
            .filter(|line| line.name.starts_with("proxypass"))
    };
    let is_local = |line: &&ApacheLine| {
        line.words
            .iter()
            .any(|word| word == "!" || word.contains("fcgi:"))
    };
    let leads_to_files = |line: &&&ApacheLine| {
        let rule = RewriteLine::read(line);
        line.name == "rewriterule" && rule.is_none_or(|rule| rule.leads_to_files())
    };
    passes().any(|line| line.name == "proxypass" && line.first() == "/")
        && !passes().any(is_local)
        && !plain
            .iter()
            .any(|line| ["alias", "scriptalias"].contains(&&*line.name))
        && !rewriting.iter().any(|line| leads_to_files(&line))
}
