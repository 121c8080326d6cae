//! The rule of a location: who may come in, its settings, and what answers.
//!
//! The idea: each location comes to one rule, for exactly its paths. Files are what is left over. A
//! program is told by its path and by the file that is found, and of what an index of a directory is,
//! nginx chooses the location anew: a rule for such files holds for directories, too.

use std::rc::Rc;

use super::condition::{Members, and_not};
use super::handler::Made;
use super::parse::Statement;
use super::place::{NginxPlace, PlaceKind, members_of};
use super::site::SiteWork;
use crate::draft::{DraftKeys, TomlItem, member};
use crate::words;

/// What holds for a program's paths, whatever file is found.
const ASKED: [&str; 5] = ["deny", "allow", "auth", "limits", "reply_headers"];

/// What answers at a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answering {
    /// A handler, whatever the file is.
    Itself,
    /// A program that is a file.
    Program,
    /// Files.
    Files,
}

impl<'a> SiteWork<'_, 'a> {
    /// Makes the rules of a location.
    pub(super) fn answering(&mut self, at: usize) {
        let places = Rc::clone(&self.places);
        let Some(place) = places.get(at).filter(|it| it.kind != PlaceKind::Named) else {
            return;
        };
        let members = members_of(&places, at, &self.left);
        let own = place.own().to_vec();
        let stays = self.act(Some(place), &own, &members);
        let mut rule = DraftKeys::rule(members.clone(), place.id.as_slice());
        self.say(place, &mut rule);
        for line in own.iter().filter(|line| line.name == "limit_except") {
            self.except(line, &members);
        }
        self.leave_to_site(place);
        let made = self.handled(place, &members, &mut rule);
        let tried = place.line("try_files");
        match (&made, tried) {
            (Ok(Answering::Files), Some(line)) => self.tried(line, place, &members, &mut rule),
            (Ok(Answering::Program), Some(line)) => self.tried_by_program(line, place, &members),
            (Ok(Answering::Itself), Some(line)) => self.http.ledger.differs(
                line.id,
                "what answers here is asked whatever files there are: leave it to a named location",
            ),
            (Err(why), _) => {
                self.lose(place, why);
                place.close(why);
            }
            (_, None) => {}
        }
        if let Some(why) = place.closed() {
            rule.close(why);
        }
        let made = made.unwrap_or(Answering::Itself);
        if made != Answering::Program {
            self.keep_inside(place, &mut rule);
        }
        let settings = self.push(place, (rule, stays), &members, made);
        self.left_to_named(place, &members);
        if made == Answering::Files && place.kind == PlaceKind::Exact {
            self.admitted_by_outer(place);
        }
        let mut after = std::mem::take(&mut self.after);
        self.main.append(&mut after);
        self.main.extend(settings);
    }

    /// Of a directory's own location nginx asks the index as a path, which is in the prefix's.
    fn admitted_by_outer(&mut self, place: &NginxPlace<'a>) {
        if !place.pattern.ends_with('/') {
            return;
        }
        let places = Rc::clone(&self.places);
        let begins = |it: &&NginxPlace<'a>| {
            it.is_prefix() && it.outer == place.outer && place.pattern.starts_with(&it.pattern)
        };
        let prefix = places.iter().filter(begins);
        let Some(prefix) = prefix.max_by_key(|it| it.pattern.len()) else {
            return;
        };
        let mut rule = DraftKeys::default();
        self.admit(prefix, &mut rule);
        let refuses = |line: &Statement| line.first().starts_with('4');
        self.keep_inside(prefix, &mut rule);
        if let Some(why) = prefix.closed() {
            rule.close(why);
        } else if prefix.line("return").is_some_and(refuses) {
            rule.close("its index is where nobody comes in");
        }
        rule.matching(vec![member("path", place.glob())]);
        self.after.push(rule);
    }

    /// Puts the rule of a location where it belongs; `stays`: what it rewrites before it answers. What
    /// is to stand behind what leads elsewhere is given back.
    fn push(
        &mut self,
        place: &NginxPlace<'a>,
        (mut rule, stays): (DraftKeys, DraftKeys),
        members: &Members,
        answers: Answering,
    ) -> Option<DraftKeys> {
        if answers == Answering::Program {
            self.lead_elsewhere(stays, members);
            // What it asks for holds for its paths, whatever file is found.
            let mut asks = rule.clone();
            asks.split(&ASKED);
            asks.matching(members.clone());
            self.keep_inside(place, &mut asks);
            rule.take("limits");
            rule.take("reply_headers");
            if !asks.is_idle() {
                self.main.push(asks);
            }
            self.by_file.push((place.rank(), rule));
            return None;
        }
        self.led_to(place, members, &rule);
        if stays.has("rewrite") {
            if answers == Answering::Files && self.has_files() {
                rule.put_in("handler", "static", true, &[]);
            }
            rule.merge(stays);
            // No rule above it may take what it has made of the path.
            self.early.push(rule);
            return None;
        }
        // What is led elsewhere has the settings of where it comes to.
        let leads = answers == Answering::Files && place.line("try_files").is_some();
        let settings = leads.then(|| rule.split(&["deny", "allow", "auth", "limits", "rewrite"]));
        self.main.push(rule);
        settings
    }

    /// The mount that a location is.
    pub(super) fn mount_of(&self, place: &NginxPlace<'a>) -> Option<String> {
        let path = place.pattern.trim_end_matches('/');
        let mut mounts = self.draft.mounts.iter();
        let found = mounts.find(|(known, _)| place.is_prefix() && known == path);
        found.map(|(path, _)| path.clone())
    }

    /// What only the site can say.
    fn leave_to_site(&self, place: &NginxPlace<'a>) {
        let is_mount = self.mount_of(place).is_some();
        for line in place.own().iter().filter(|_| !place.is_root()) {
            if line.name == "error_page" || (line.name == "index" && !is_mount) {
                let note =
                    "indexes and error pages are a site's: write them there, or a site of its own";
                self.http.ledger.lost(line.id, note);
            }
        }
    }

    /// `try_files` of a location whose files a program runs.
    fn tried_by_program(&mut self, line: &Statement, place: &NginxPlace<'a>, members: &Members) {
        if line.words.last().is_some_and(|it| it.starts_with('=')) {
            let note = "what a program is told to run is a file that is there, always";
            return self.http.ledger.idle(line.id, note);
        }
        let mut leading = DraftKeys::default();
        self.say(place, &mut leading);
        self.tried(line, place, members, &mut leading);
        self.lead_elsewhere(leading, members);
    }

    /// The rule for what `try_files` of a location leads to one with `internal`: it answers at once, for
    /// a request that came to that one's path is refused.
    pub(super) fn led_inside(
        &mut self,
        at: usize,
        line: &Statement,
        to: Vec<(String, TomlItem)>,
        members: Members,
    ) {
        let places = Rc::clone(&self.places);
        let Some(place) = places.get(at) else { return };
        let from: Vec<usize> = place.id.into_iter().chain([line.id]).collect();
        let mut rule = DraftKeys::rule(members, &from);
        self.say(place, &mut rule);
        self.http.hidden_fields(&place.scope, &mut rule);
        let made = match (place.line("fastcgi_pass"), place.line("proxy_pass")) {
            (Some(line), _) => self.fastcgi(line, &place.scope, &mut rule),
            (None, Some(line)) => self.http.proxy(line, place, &mut rule),
            (None, None) => Err("what is led to a location with `internal` has no handler there"),
        };
        match (made, place.closed()) {
            (Ok(()), None) => {}
            (Err(why), _) | (_, Some(why)) => {
                self.http.ledger.lost(line.id, why);
                rule.close(why);
            }
        }
        let to = self.leading(to, Vec::new());
        rule.put("rewrite", to, &[]);
        self.after.push(rule);
    }

    /// Makes the handler of a location whose rule has these members.
    pub(super) fn handled(
        &mut self,
        place: &NginxPlace<'a>,
        members: &Members,
        rule: &mut DraftKeys,
    ) -> Made<Answering> {
        let http = self.http;
        http.hidden_fields(&place.scope, rule);
        if let Some(line) = place.line("return") {
            self.returned(line, &place.scope, place.regex(), rule)?;
            return Ok(Answering::Itself);
        }
        if let Some(line) = place.line("stub_status") {
            http.ledger
                .differs(line.id, "figures are in the format of Prometheus");
            rule.put_in("handler", "metrics", "prometheus", &[line.id]);
            return Ok(Answering::Itself);
        }
        if let Some(line) = place.line("proxy_pass") {
            http.proxy(line, place, rule)?;
            return Ok(Answering::Itself);
        }
        let Some(line) = place.line("fastcgi_pass") else {
            return Ok(Answering::Files);
        };
        self.fastcgi(line, &place.scope, rule)?;
        self.by_file(place, line, members.clone(), rule)?;
        Ok(Answering::Program)
    }

    /// A program is told by the file that is found, too.
    fn by_file(
        &self,
        place: &NginxPlace<'a>,
        line: &Statement,
        mut members: Members,
        rule: &mut DraftKeys,
    ) -> Made<()> {
        let files = match place.kind {
            PlaceKind::Regex | PlaceKind::Exact => self
                .files_of(place)
                .ok_or("which files a program is for is not known: write `match = { file = … }`")?,
            PlaceKind::Prefix { .. } => {
                self.http
                    .ledger
                    .differs(line.id, "only files whose names end in `.php` are run");
                vec!["*.php".to_owned()]
            }
            PlaceKind::Named => {
                return Err("a program is told by its file, and here is none: write `try`");
            }
        };
        if files.iter().any(|file| self.may_be_index(file)) {
            for (name, item) in &mut members {
                match (name.as_str(), place.kind, &*item) {
                    ("path_regex", _, TomlItem::Text(regex)) => {
                        *item = format!("{regex}|/$").into();
                    }
                    ("path", PlaceKind::Exact, TomlItem::Text(path)) => {
                        *item = TomlItem::texts([path.as_str(), "*/"]);
                    }
                    _ => {}
                }
            }
        }
        members.insert(0, member("file", TomlItem::one_or_list(files)));
        rule.matching(members);
        Ok(())
    }

    /// A rule for files that a directory's index leads to, where an expression or an exact path means
    /// the file and not the directory.
    fn led_to(&mut self, place: &NginxPlace<'a>, members: &Members, rule: &DraftKeys) {
        let mut led = DraftKeys::default();
        for name in ["deny", "allow", "auth", "request_headers", "handler"] {
            if let Some(item) = rule.get(name) {
                led.put(name, item.clone(), &[]);
            }
        }
        let files = match place.kind {
            PlaceKind::Regex | PlaceKind::Exact if !led.is_idle() && self.has_files() => {
                self.files_of(place).unwrap_or_default()
            }
            _ => return,
        };
        let is_led_to = |file: &String| {
            let (directory, name) = file.rsplit_once('/').unwrap_or(("", file));
            let directory = format!("{}/", directory.replace(['*', '?'], "x"));
            let means_directory = name == "*" && words::is_found(&place.pattern, &directory);
            self.may_be_index(file) && !means_directory
        };
        let files: Vec<String> = files.into_iter().filter(is_led_to).collect();
        if files.is_empty() {
            return;
        }
        let outer = self.outer_prefix(place).unwrap_or_default();
        let directories = match (outer.ends_with('/'), outer.as_str()) {
            (_, "/") => vec!["*/".to_owned()],
            (true, outer) => vec![outer.to_owned(), format!("{outer}*/")],
            (false, outer) => vec![format!("{outer}*/")],
        };
        led.note(place.id.as_slice());
        let mut led_members = vec![
            member("file", TomlItem::one_or_list(files)),
            member("path", TomlItem::one_or_list(directories)),
        ];
        for not in nots_of_directories(members) {
            and_not(&mut led_members, not);
        }
        let theirs = self.exact_files(place);
        if !theirs.is_empty() {
            let theirs = member("file", TomlItem::one_or_list(theirs));
            and_not(&mut led_members, vec![theirs]);
        }
        led.matching(led_members);
        self.by_file.push((place.rank(), led));
    }

    /// Files for whose paths an exact location is chosen before an expression.
    fn exact_files(&self, place: &NginxPlace<'a>) -> Vec<String> {
        let is_before = |it: &&NginxPlace<'a>| {
            let is_beside = it.outer.is_none() || it.outer == place.outer;
            place.kind == PlaceKind::Regex && it.kind == PlaceKind::Exact && is_beside
        };
        let exact = self.places.iter().filter(is_before);
        let files = exact.filter_map(|it| self.file_at(&it.glob()));
        files.filter(|file| self.may_be_index(file)).collect()
    }

    /// The path of the innermost prefix that a location stands in, as a glob.
    fn outer_prefix(&self, place: &NginxPlace<'a>) -> Option<String> {
        let mut outer = place.outer;
        while let Some(found) = outer.and_then(|at| self.places.get(at)) {
            if found.is_prefix() {
                return words::glob(&found.pattern);
            }
            outer = found.outer;
        }
        None
    }

    /// Whether a directory's index may be such a file.
    fn may_be_index(&self, file: &str) -> bool {
        let name = file.rsplit('/').next().unwrap_or_default();
        let mut indexes = self.indexes.iter();
        name.contains('[') || indexes.any(|index| words::is_meant(name, index))
    }

    /// The files of an exact path's or an expression's, as globs.
    fn files_of(&self, place: &NginxPlace<'a>) -> Option<Vec<String>> {
        let whole = |glob: &str| match glob.starts_with('/') {
            true => self.file_at(glob),
            false => Some(glob.to_owned()),
        };
        match place.kind {
            PlaceKind::Regex => {
                let source = place.pattern.strip_prefix("(?i)").unwrap_or(&place.pattern);
                let globs = words::globs(source)?;
                globs.texts.iter().map(|text| whole(text)).collect()
            }
            PlaceKind::Exact => Some(vec![whole(&place.glob())?]),
            PlaceKind::Prefix { .. } | PlaceKind::Named => None,
        }
    }
}

/// Of the paths that are others' those of directories; their files have rules of their own, and no
/// file is an exact path that is a directory's.
fn nots_of_directories(members: &Members) -> Vec<Members> {
    let nots = members.iter().filter(|(name, _)| name == "not");
    let nots = nots.flat_map(|(_, item)| match item {
        TomlItem::List(all) => all.as_slice(),
        only => std::slice::from_ref(only),
    });
    let is_prefix = |path: &TomlItem| matches!(path, TomlItem::Text(path) if path.ends_with('*'));
    let of_directories = |not: &TomlItem| {
        let TomlItem::Table(not) = not else {
            return None;
        };
        let mut not = not.clone();
        for (name, item) in &mut not {
            match item {
                TomlItem::List(paths) if name == "path" => paths.retain(is_prefix),
                item if name == "path" && !is_prefix(item) => return None,
                _ if name == "path_regex" => return None,
                _ => {}
            }
        }
        let is_empty = |(_, item): &(String, TomlItem)| *item == TomlItem::List(Vec::new());
        (!not.iter().any(is_empty)).then_some(not)
    };
    nots.filter_map(of_directories).collect()
}
