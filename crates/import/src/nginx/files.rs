//! Where a site's files are: its root, mounts, indexes, and pages for errors.
//!
//! The idea: files are found before rules, in the site's root or below a mount, so a location with a
//! root of its own is a mount where its path can be one, and closed where it cannot.

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
        let places = std::mem::take(&mut self.places);
        let of_root = places.iter().find(|place| place.is_root());
        let inner = of_root.map_or(&self.scope, |place| &place.scope).clone();
        let any = || places.iter().find_map(|place| place.scope.last("root"));
        let line = inner
            .last("alias")
            .or_else(|| inner.last("root"))
            .or_else(any);
        if let Some(line) = line {
            match http.path(line.first()) {
                Some(path) => {
                    http.ledger.carried(line.id);
                    let path = if path.len() > 1 {
                        path.trim_end_matches('/').to_owned()
                    } else {
                        path
                    };
                    self.draft.keys.put("root", path.as_str(), &[line.id]);
                    self.root = Some(path);
                }
                None => http.ledger.lost(
                    line.id,
                    "a root that is put together is not known: write a site for each",
                ),
            }
        }
        if self.root.is_some() {
            self.site_files(&inner);
        }
        for place in places.iter().filter(|place| !place.is_root()) {
            self.mounted(place);
        }
        self.places = places;
    }

    fn site_files(&mut self, inner: &Scope<'a>) {
        let ledger = self.http.ledger;
        let keys = &mut self.draft.keys;
        if let Some(line) = inner.last("index") {
            index(self.http, line, keys);
        }
        if let Some(line) = inner.last("autoindex") {
            ledger.carried(line.id);
            if line.first() == "on" {
                keys.put_in("files", "listing", TomlItem::Flag(true), &[line.id]);
            }
        }
        if let Some(line) = inner.last("gzip_static") {
            ledger.carried(line.id);
        }
        match inner.last("disable_symlinks") {
            Some(line) if line.first() != "off" => {
                ledger.carried(line.id);
                let said = if line.first() == "if_not_owner" {
                    "owner"
                } else {
                    "deny"
                };
                keys.put("symlinks", said, &[line.id]);
            }
            _ => keys.put("symlinks", "allow", &[]),
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

    /// A location with files elsewhere: a mount, where its path can be one.
    fn mounted(&mut self, place: &NginxPlace<'a>) {
        let http = self.http;
        let below = place.scope.below(2);
        let (alias, root) = (below.last("alias"), below.last("root"));
        let Some(line) = alias.or(root) else {
            return;
        };
        let Some(path) = http.path(line.first()) else {
            http.ledger.lost(
                line.id,
                "a root that is put together is not known: write a mount",
            );
            return self.close(Some(place), "its root is not known");
        };
        let path = path.trim_end_matches('/');
        if alias.is_none() && self.root.as_deref() == Some(path) {
            return http.ledger.idle(line.id, "it is the site's root");
        }
        let prefix =
            matches!(place.kind, PlaceKind::Prefix { .. }).then_some(place.pattern.as_str());
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
            http.ledger.lost(line.id, note);
            return self.close(Some(place), "its files lie elsewhere");
        };
        let root = match alias {
            Some(_) => path.to_owned(),
            None => format!("{path}{mount}"),
        };
        http.ledger.carried(line.id);
        let has_slash = (place.pattern.ends_with('/'), line.first().ends_with('/'));
        if alias.is_some() && has_slash != (true, true) {
            let note = "an `alias` without its slash goes on with whatever follows: here the mount is for the path and all \
                below it, and nothing beside the directory can be reached";
            http.ledger.differs(line.id, note);
        }
        let ids: Vec<usize> = place.id.into_iter().chain([line.id]).collect();
        let Some(keys) = self.draft.mount(mount, &root, &ids) else {
            return http
                .ledger
                .lost(line.id, "another directory is there already");
        };
        keys.put("symlinks", "allow", &[]);
        if let Some(line) = below.last("index") {
            index(http, line, keys);
        }
    }

    pub(super) fn error_pages(&mut self, scope: &Scope<'a>) {
        let ledger = self.http.ledger;
        for line in scope.all(&["error_page"]) {
            let (Some((page, statuses)), Some(root)) = (line.words.split_last(), &self.root) else {
                ledger.lost(line.id, "error pages are files: write `error_pages`");
                continue;
            };
            let is_page = [".html", ".htm", ".json", ".svg", ".txt"]
                .iter()
                .any(|end| page.ends_with(end));
            let file = words::file_path(page).filter(|page| is_page && !page.contains("/.."));
            let Some(file) = file else {
                let note = "an error page is a file here, and no location or program answers for it: write `error_pages`";
                ledger.lost(line.id, note);
                continue;
            };
            for status in statuses {
                let is_status = status
                    .parse::<u16>()
                    .is_ok_and(|it| (400..=599).contains(&it));
                match is_status && status != "444" && status.len() == 3 {
                    true => {
                        ledger.carried(line.id);
                        let file = format!("{root}{file}");
                        self.draft
                            .keys
                            .put_in("error_pages", status, file, &[line.id]);
                    }
                    false => ledger.differs(line.id, "the status stays what it was"),
                }
            }
        }
    }
}

/// Names tried in a directory.
fn index(http: &Http<'_>, line: &Statement, keys: &mut DraftKeys) {
    let fits = |name: &&String| {
        !name.is_empty()
            && !name.starts_with('.')
            && !name.contains(['/', '$'])
            && !name.contains(char::is_control)
    };
    let names: Vec<String> = line.words.iter().filter(fits).cloned().collect();
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
