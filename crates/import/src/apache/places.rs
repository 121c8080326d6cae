//! Where a virtual host's files are: its root, and directories elsewhere.

use super::ApacheLine;
use super::rewriting::RewriteLine;
use super::sections::Area;
use super::site::HostWork;
use crate::draft::{DraftKeys, TomlItem, member};
use crate::words;

/// Mounts of a site.
const MOUNTS_MAX: usize = 64;

impl<'a> HostWork<'_, 'a> {
    /// Where files are: the root, and directories elsewhere.
    pub(super) fn places(
        &mut self,
        plain: &[&'a ApacheLine],
        rewriting: &[&'a ApacheLine],
        sections: &[&'a ApacheLine],
    ) {
        let ledger = self.apache.ledger;
        if let Some(line) = plain.iter().rev().find(|line| line.name == "documentroot") {
            match words::file_path(line.first()) {
                Some(_) if forwards_all(plain, rewriting) => {
                    ledger.idle(line.id, "all that is asked for is forwarded");
                }
                Some(path) => {
                    ledger.carried(line.id);
                    let path = words::without_slash(path);
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
        let within = sections.iter().flat_map(|it| it.children.iter().flatten());
        let all = plain.iter().copied().chain(within);
        let indexes = all.filter(|line| line.name == "directoryindex");
        let indexes: Vec<&str> = indexes
            .flat_map(|it| it.words.iter().map(|it| &**it))
            .collect();
        for line in aliases.filter(|it| ["alias", "scriptalias"].contains(&&*it.name)) {
            self.mount(line, &indexes);
        }
    }

    fn mount(&mut self, line: &'a ApacheLine, indexes: &[&str]) {
        let ledger = self.apache.ledger;
        let path = words::mount_path(line.first());
        let target = words::file_path(line.word(1));
        let (Some(path), Some(target)) = (path, target) else {
            let note = "it leads to no directory that is known: write a mount";
            return ledger.lost(line.id, note);
        };
        let (directory, program) = match line.name.as_str() {
            "scriptalias" => split_program(path, target),
            _ => (target.trim_end_matches('/'), None),
        };
        let mounts = &mut self.roots.mounts;
        if mounts.len() >= MOUNTS_MAX || mounts.iter().any(|(known, _)| known == path) {
            return ledger.idle(line.id, "another directory is there already");
        }
        ledger.carried(line.id);
        if let Some(mount) = self.draft.mount(path, directory, &[line.id])
            && let Some(program) = program
        {
            mount.put("try", TomlItem::texts([format!("/{program}")]), &[]);
        }
        mounts.push((path.to_owned(), directory.to_owned()));
        if line.name == "scriptalias" {
            self.script_directories.push(directory.to_owned());
            let note = "it is run as the site's `user`: what others may write is not";
            ledger.differs(line.id, note);
            match program {
                None => self.scripts(line, path),
                Some(program) => {
                    let is_index = indexes.iter().any(|it| [program, path].contains(it));
                    self.one_script(line, path, (directory, program), is_index);
                }
            }
        }
    }

    /// Each file below a path is a program.
    fn scripts(&mut self, line: &ApacheLine, path: &str) {
        let below = words::glob(path).map(|path| TomlItem::from(path + "/*"));
        let below = below.map(|it| member("path", it));
        let mut rule = DraftKeys::rule(below.into_iter().collect(), &[]);
        rule.put_in("handler", "cgi", true, &[line.id]);
        self.main.push(rule);
    }

    /// All below a path is one program's.
    fn one_script(
        &mut self,
        line: &ApacheLine,
        path: &str,
        (directory, program): (&str, &str),
        is_index: bool,
    ) {
        let set = |more: Option<(&str, &str)>| {
            let set = [("SCRIPT_NAME", path)].into_iter().chain(more);
            let set = set.map(|(name, value)| member(name, value));
            let set = TomlItem::table([("set", TomlItem::Table(set.collect()))]);
            TomlItem::table([("params", set)])
        };
        let regex = format!("^{}(/.*)?$", words::escape(path));
        let mut rule = DraftKeys::rule(vec![member("path_regex", regex)], &[]);
        rule.put_in("handler", "cgi", set(Some(("PATH_INFO", "$1"))), &[line.id]);
        // No handler for files of its name takes its place.
        self.first.push(rule);
        let file = words::glob(&format!("{directory}/{program}"));
        if let Some(file) = file.filter(|_| is_index) {
            let members = vec![member("path", "*/"), member("file", file)];
            let mut rule = DraftKeys::rule(members, &[]);
            rule.put_in("handler", "cgi", set(None), &[line.id]);
            self.first.push(rule);
        }
    }

    /// Whose links are followed in the root and the mounts: those that are lead wherever they do, out
    /// of it as well.
    pub(super) fn links(&mut self, plain: &[&'a ApacheLine], sections: &[&'a ApacheLine]) {
        let directories = sections.iter().filter(|it| it.name == "directory");
        let parts = |section: &&'a ApacheLine| {
            let areas = self.roots.parts(section).into_iter();
            (*section, areas.filter_map(|(_, area)| area).collect())
        };
        let parts: Vec<(&ApacheLine, Vec<Area>)> = directories.map(parts).collect();
        let lines = |here: &Area| {
            let within = parts.iter().filter(|(_, areas)| areas.contains(here));
            let within = within.flat_map(|(section, _)| section.children.iter().flatten());
            plain.iter().copied().chain(within).collect::<Vec<_>>()
        };
        if self.roots.root.is_some() {
            follow(&lines(&Area::default()), &mut self.draft.keys);
        }
        for (path, keys) in &mut self.draft.mounts {
            follow(&lines(&Area::below(path)), keys);
        }
    }
}

/// Says which links are followed where these lines hold, one after the other.
fn follow(lines: &[&ApacheLine], keys: &mut DraftKeys) {
    let (mut all, mut owners) = (true, false);
    for line in lines.iter().filter(|line| line.name == "options") {
        if !line.words.iter().any(|word| word.starts_with(['+', '-'])) {
            (all, owners) = (false, false);
        }
        for word in &line.words {
            let is_on = !word.starts_with('-');
            match &*word.trim_start_matches(['+', '-']).to_ascii_lowercase() {
                "followsymlinks" | "all" => all = is_on,
                "symlinksifownermatch" => owners = is_on,
                _ => {}
            }
        }
    }
    let said = match (all, owners) {
        (true, _) => "allow",
        (false, true) => "owner",
        (false, false) => return,
    };
    keys.put("symlinks", said, &[]);
    keys.put("within", "/", &[]);
}

/// Where a `ScriptAlias` leads to: a directory of programs; or a directory, and the one program in it
/// that all is for. By their names, for files are not looked at.
fn split_program<'t>(path: &str, target: &'t str) -> (&'t str, Option<&'t str>) {
    const SUFFIXES: [&str; 6] = ["cgi", "fcgi", "pl", "py", "rb", "sh"];
    let whole = target.trim_end_matches('/');
    let Some((directory, name)) = whole.rsplit_once('/') else {
        return (whole, None);
    };
    let is_program = match name.rsplit_once('.') {
        Some((_, suffix)) => SUFFIXES.contains(&suffix),
        None => {
            let is_alike = path.ends_with(&format!("/{name}"));
            !target.ends_with('/') && is_alike && !name.ends_with("bin")
        }
    };
    // A path becomes a template.
    match is_program && !directory.is_empty() && !path.contains('$') {
        true => (directory, Some(name)),
        false => (whole, None),
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
