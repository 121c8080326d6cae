//! Where a site's files are: its root, mounts, indexes, and pages for errors.
//!
//! The idea: files are found before rules, in the site's root or below a mount. The site's root is
//! that of `location /`, for what no location is for falls to it; a location whose files lie
//! elsewhere is a mount where its path can be one, and closed where it cannot.

use std::rc::Rc;

use super::parse::Statement;
use super::place::{NginxPlace, PlaceKind};
use super::site::SiteWork;
use super::{Http, Scope};
use crate::Fate;
use crate::draft::{DraftKeys, TomlItem};
use crate::words;

/// Mounts of a site.
const MOUNTS_MAX: usize = 64;

impl<'a> SiteWork<'_, 'a> {
    /// The site's files: where they are, and what a path means.
    pub(super) fn files(&mut self) {
        let http = self.http;
        let places = Rc::clone(&self.places);
        let Some(of_root) = places.iter().find(|place| place.is_root()) else {
            return;
        };
        let line = match of_root.needs_files() {
            true => of_root.scope.root().map(|(line, _)| line),
            // It answers for all that is nobody's: what else there is may be the root.
            false => only_root(&places).or_else(|| self.scope.last("root")),
        };
        if let Some(line) = line {
            match http.path(line.first()) {
                Some(path) => {
                    http.ledger.carried(line.id);
                    let path = words::without_slash(&path);
                    self.draft.keys.put("root", path, &[line.id]);
                    self.root = Some(path.to_owned());
                }
                None => http.ledger.lost(
                    line.id,
                    "a root that is put together is not known: write a site for each",
                ),
            }
        }
        for place in places.iter().filter(|it| it.needs_files() && !it.is_root()) {
            self.mounted(place);
        }
        let scopes = places.iter().map(|place| &place.scope).chain([&self.scope]);
        let indexes = scopes.filter_map(|scope| scope.last("index"));
        self.indexes = indexes
            .flat_map(|line| line.words.iter().cloned())
            .collect();
        self.indexes.push("index.html".to_owned());
        if self.has_files() {
            self.site_files(&of_root.scope);
            self.listing(&places);
        }
    }

    fn site_files(&mut self, inner: &Scope<'a>) {
        let ledger = self.http.ledger;
        let keys = &mut self.draft.keys;
        if let Some(line) = inner.last("index") {
            index(self.http, line, keys);
        }
        if let Some(line) = inner.last("gzip_static") {
            ledger.carried(line.id);
        }
        match inner.last("disable_symlinks") {
            Some(line) if line.first() != "off" && self.root.is_some() => {
                ledger.carried(line.id);
                let said = if line.first() == "if_not_owner" {
                    "owner"
                } else {
                    "deny"
                };
                keys.put("symlinks", said, &[line.id]);
            }
            _ if self.root.is_some() => keys.put("symlinks", "allow", &[]),
            _ => {}
        }
        if let Some(line) = inner
            .last("default_type")
            .filter(|it| words::is_media_type(it.first()))
        {
            ledger.carried(line.id);
            keys.put_in("files", "default_type", line.first(), &[line.id]);
        }
        for line in inner.all(&["types"]) {
            self.http.bury(
                line,
                Fate::NotNeeded,
                "the usual types are known; others stand in `files.types`",
            );
        }
    }

    /// Directories are listed if they are wherever files are served.
    fn listing(&mut self, places: &[NginxPlace<'a>]) {
        let served = places.iter().filter(|place| place.needs_files());
        let said: Vec<Option<&Statement>> =
            served.map(|place| place.scope.last("autoindex")).collect();
        let lists = |line: &Option<&Statement>| line.is_some_and(|it| it.first() == "on");
        let is_listed = said.iter().all(lists);
        for line in said.iter().flatten() {
            match line.first() == "on" && !is_listed {
                true => self.http.ledger.lost(
                    line.id,
                    "not all locations list their directories, and a site's are listed or not: `files = { listing = true }`",
                ),
                false => self.http.ledger.carried(line.id),
            }
        }
        if is_listed && let Some(Some(line)) = said.first() {
            let keys = &mut self.draft.keys;
            keys.put_in("files", "listing", true, &[line.id]);
        }
    }

    /// A location with files elsewhere: a mount, where its path can be one.
    fn mounted(&mut self, place: &NginxPlace<'a>) {
        let http = self.http;
        let Some((line, level)) = place.scope.root() else {
            if self.root.is_some() {
                place.close("nothing says where its files are");
            }
            return;
        };
        let is_own = level + 1 == place.scope.depth();
        let is_alias = line.name == "alias";
        if is_alias && is_own && self.is_of_mount(place, line) {
            return http.ledger.carried(line.id);
        }
        let Some(path) = http.path(line.first()) else {
            http.ledger.lost(
                line.id,
                "a root that is put together is not known: write a mount",
            );
            return place.close("its root is not known");
        };
        let path = path.trim_end_matches('/');
        if !is_alias && self.root.as_deref() == Some(path) {
            if is_own {
                http.ledger.idle(line.id, "it is the site's root");
            }
            return;
        }
        // That of a location around it is its mount's, if it has one.
        let owner = (!is_own && level >= 2).then(|| self.owner(place, level));
        match owner.flatten().map(|owner| owner.is_prefix()) {
            Some(true) => return,
            Some(false) => return place.close("its files lie elsewhere"),
            None => {}
        }
        self.mount(place, (line, path), is_own);
    }

    /// The location around another on whose level a root is said; none where it is the site's own.
    fn owner(&self, place: &NginxPlace<'a>, level: usize) -> Option<&NginxPlace<'a>> {
        let mut outer = place.outer.and_then(|at| self.places.get(at));
        while let Some(found) = outer.filter(|it| it.scope.depth() > level + 1) {
            outer = found.outer.and_then(|at| self.places.get(at));
        }
        outer.filter(|owner| !owner.is_root())
    }

    /// Makes a location with files at this path of the machine a mount.
    fn mount(&mut self, place: &NginxPlace<'a>, (line, path): (&Statement, &str), is_own: bool) {
        let (http, is_alias) = (self.http, line.name == "alias");
        let prefix = place.is_prefix().then_some(place.pattern.as_str());
        let mount = prefix
            .and_then(words::mount_path)
            .filter(|_| self.draft.mounts.len() < MOUNTS_MAX);
        let Some(mount) = mount else {
            let note = match place.kind {
                PlaceKind::Regex => {
                    "a `root` or `alias` in a location of an expression: files are found before rules, in the site's root \
                     or below a mount; write a mount, or a site of its own"
                }
                _ => "one file elsewhere is no mount: link it into the root",
            };
            if is_own {
                http.ledger.lost(line.id, note);
            }
            return place.close("its files lie elsewhere");
        };
        let root = match is_alias && is_own {
            true => path.to_owned(),
            false => format!("{path}{mount}"),
        };
        http.ledger.carried(line.id);
        let has_slash = (place.pattern.ends_with('/'), line.first().ends_with('/'));
        if is_alias && has_slash != (true, true) {
            let note = "an `alias` without its slash goes on with whatever follows: here the mount is for the path and all \
                below it, and nothing beside the directory can be reached";
            http.ledger.differs(line.id, note);
        }
        let ids: Vec<usize> = place.id.into_iter().chain([line.id]).collect();
        let Some(keys) = self.draft.mount(mount, &root, &ids) else {
            place.close("another directory is there already");
            return http
                .ledger
                .lost(line.id, "another directory is there already");
        };
        keys.put("symlinks", "allow", &[]);
        if let Some(line) = place.scope.below(2).last("index") {
            index(http, line, keys);
        }
    }

    /// Whether an alias of an expression, `/directory/$1`, is what a mount around it makes of its path.
    fn is_of_mount(&self, place: &NginxPlace<'a>, line: &Statement) -> bool {
        let directory = line.first().strip_suffix("/$1");
        let path = place.regex().and_then(|it| it.strip_prefix('^'));
        let (Some(directory), Some(path)) = (directory, path) else {
            return false;
        };
        self.draft.mounts.iter().any(|(mount, keys)| {
            let rest = path.strip_prefix(mount.as_str());
            let is_below = rest.is_some_and(|rest| rest.starts_with("/("));
            is_below && keys.get("root") == Some(&directory.into())
        })
    }

    /// The file that a path is, as a glob; `None` where there are none.
    pub(super) fn file_at(&self, path: &str) -> Option<String> {
        let below = |(mount, keys): &(String, DraftKeys)| {
            let rest = path.strip_prefix(mount.as_str())?;
            let root = match keys.get("root") {
                Some(TomlItem::Text(root)) if rest.starts_with('/') => root,
                _ => return None,
            };
            Some((mount.len(), format!("{}{rest}", words::glob(root)?)))
        };
        let mounts = self.draft.mounts.iter().filter_map(below);
        match mounts.max_by_key(|(length, _)| *length) {
            Some((_, file)) => Some(file),
            None => Some(format!("{}{path}", words::glob(self.root.as_ref()?)?)),
        }
    }

    pub(super) fn error_pages(&mut self, scope: &Scope<'a>) {
        let ledger = self.http.ledger;
        for line in scope.all(&["error_page"]) {
            let Some((page, statuses)) = line.words.split_last() else {
                continue;
            };
            let Some(file) = words::error_page(page).and_then(|page| self.file_at(page)) else {
                let note = "an error page is a file here, and no location or program answers for it: write `error_pages`";
                ledger.lost(line.id, note);
                continue;
            };
            for status in statuses {
                match words::is_error_status(status) && status != "444" {
                    true => {
                        ledger.carried(line.id);
                        self.draft
                            .keys
                            .put_in("error_pages", status, file.as_str(), &[line.id]);
                    }
                    false => ledger.differs(line.id, "the status stays what it was"),
                }
            }
        }
    }
}

/// The one root of all locations that serve files and can be no mounts.
fn only_root<'a>(places: &[NginxPlace<'a>]) -> Option<&'a Statement> {
    let fixed = places
        .iter()
        .filter(|it| it.needs_files() && !it.is_prefix());
    let mut roots = fixed.filter_map(|place| place.scope.root().map(|(line, _)| line));
    let first = roots.next().filter(|line| line.name == "root")?;
    roots
        .all(|line| line.name == "root" && line.first() == first.first())
        .then_some(first)
}

/// Names tried in a directory.
fn index(http: &Http<'_>, line: &Statement, keys: &mut DraftKeys) {
    let mut names = words::index_names(&line.words);
    names.retain(|name| !name.contains('$'));
    match names.len() == line.words.len() {
        true => http.ledger.carried(line.id),
        false => http.ledger.differs(
            line.id,
            "only names of files are tried: a path at the end is an entry of `try`",
        ),
    }
    if !names.is_empty() {
        keys.put("index", TomlItem::texts(names), &[line.id]);
    }
}
