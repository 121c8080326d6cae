//! The rule of a location: its settings, and what answers.
//!
//! The idea: each location comes to one rule with a handler, be it that of files, so that no rule
//! below it is for its requests; one without, and `/` alone, falls to the site's files.

use super::parse::Statement;
use super::place::{NginxPlace, PlaceKind};
use super::settings::ACCESS;
use super::site::SiteWork;
use crate::draft::{DraftKeys, TomlItem};
use crate::words;

impl<'a> SiteWork<'_, 'a> {
    /// What answers at a location.
    pub(super) fn answering(&mut self, place: &NginxPlace<'a>) {
        let http = self.http;
        let own = place.own().to_vec();
        self.act(Some(place), &own);
        self.left_to_named(place);
        let mut rule = DraftKeys::default();
        rule.note(&place.id.into_iter().collect::<Vec<_>>());
        let Some(members) = place.members() else {
            return;
        };
        rule.matching(members);
        if self.is_split[3] {
            http.fields(&place.scope, &mut rule);
        }
        let level = place.scope.below(2);
        http.bounds(&level, &mut rule);
        http.records(&level, &mut rule);
        http.compression(&level, &mut rule);
        let is_mount = self.mount_of(place).is_some();
        for line in place.own().iter().filter(|_| !place.is_root()) {
            let is_of_site = ["autoindex", "error_page"].contains(&line.name.as_str());
            if is_of_site || (line.name == "index" && !is_mount) {
                let note = "lists of files, indexes and error pages are a site's: write them there, or a site of its own";
                http.ledger.lost(line.id, note);
            }
        }
        let made = self.handled(place, &mut rule);
        let try_files = own.iter().find(|line| line.name == "try_files").copied();
        let is_by_file = rule.get("match").is_some_and(|it| it.has("file"));
        if let Some(line) = try_files {
            match is_by_file {
                true => self.tried_by_program(line),
                false => self.tried(line, Some(place), self.mount_of(place).as_deref()),
            }
        }
        match made {
            Ok(true) => self.main.push((place.rank(is_by_file), rule)),
            Ok(false) => {
                let falls_through = place.is_root()
                    || (place.kind == PlaceKind::Exact && place.pattern.ends_with('/'));
                let access = place.scope.all(ACCESS);
                if self.is_split[0]
                    && access
                        .first()
                        .is_some_and(|line| line.says(&["all"]) && line.name == "deny")
                {
                    return;
                }
                if !falls_through && (self.root.is_some() || !self.draft.mounts.is_empty()) {
                    rule.put_in("handler", "static", TomlItem::Flag(true), &[]);
                }
                self.main.push((place.rank(false), rule));
            }
            Err(why) => {
                for line in place
                    .own()
                    .iter()
                    .filter(|line| line.name.ends_with("_pass") || line.name == "return")
                {
                    http.ledger.lost(line.id, why);
                }
                self.close(Some(place), why);
            }
        }
    }

    fn mount_of(&self, place: &NginxPlace<'a>) -> Option<String> {
        let path = place.pattern.trim_end_matches('/');
        let mut mounts = self.draft.mounts.iter();
        let is_prefix = matches!(place.kind, PlaceKind::Prefix { .. });
        let found = mounts.find(|(known, _)| is_prefix && known == path);
        found.map(|(path, _)| path.clone())
    }

    /// `try_files` of a location whose files a program runs.
    fn tried_by_program(&mut self, line: &Statement) {
        let ledger = self.http.ledger;
        let note = "what a program is told to run is a file that is there, always";
        match self.has_fallback || !line.words.last().is_some_and(|it| it.starts_with('=')) {
            true => ledger.differs(line.id, "a program that is not there is answered as `try` of the site says, by the front controller if there is one"),
            false => ledger.idle(line.id, note),
        }
    }

    /// Makes the handler of a location; `false` where it has none.
    pub(super) fn handled(
        &mut self,
        place: &NginxPlace<'a>,
        rule: &mut DraftKeys,
    ) -> Result<bool, &'static str> {
        let http = self.http;
        http.hidden_fields(&place.scope, rule);
        let own = |name: &str| place.own().iter().find(|line| line.name == name).copied();
        if let Some(line) = own("return") {
            self.returned(line, &place.scope, place.regex(), rule)?;
            return Ok(true);
        }
        if let Some(line) = own("stub_status") {
            http.ledger
                .differs(line.id, "figures are in the format of Prometheus");
            rule.put_in("handler", "metrics", "prometheus", &[line.id]);
            return Ok(true);
        }
        if let Some(line) = own("proxy_pass") {
            let prefix = matches!(place.kind, PlaceKind::Prefix { .. } | PlaceKind::Exact);
            http.proxy(
                line,
                &place.scope,
                prefix.then_some(place.pattern.as_str()),
                rule,
            )?;
            return Ok(true);
        }
        let Some(line) = own("fastcgi_pass") else {
            return Ok(false);
        };
        self.fastcgi(line, &place.scope, rule)?;
        self.by_file(place, line, rule)?;
        let [clients, auth, ..] = self.is_split;
        if auth {
            http.auth(&place.scope, rule);
        }
        if clients && !rule.has("deny") {
            http.clients(&place.scope, rule);
        }
        Ok(true)
    }

    /// A program is told by the file that is found, however the path led to it.
    fn by_file(
        &self,
        place: &NginxPlace<'a>,
        line: &Statement,
        rule: &mut DraftKeys,
    ) -> Result<(), &'static str> {
        let ledger = self.http.ledger;
        let mut members = Vec::new();
        let file = match place.kind {
            PlaceKind::Regex => {
                let source = place.pattern.strip_prefix("(?i)").unwrap_or(&place.pattern);
                let globs = words::globs(source);
                let globs = globs.ok_or(
                    "which files a program is for is not known: write `match = { file = … }`",
                )?;
                if globs.is_anchored && !globs.texts.iter().all(|text| text.starts_with('*')) {
                    let root = self
                        .root
                        .as_deref()
                        .and_then(words::glob)
                        .unwrap_or_default();
                    globs
                        .texts
                        .iter()
                        .map(|text| format!("{root}{text}"))
                        .collect()
                } else {
                    globs.texts
                }
            }
            PlaceKind::Exact => {
                let root = self.root.as_deref().unwrap_or_default();
                words::glob(&format!("{root}{}", place.pattern))
                    .into_iter()
                    .collect()
            }
            PlaceKind::Prefix { .. } | PlaceKind::Named => {
                if let Some(path) = words::glob(&place.pattern)
                    .filter(|it| it != "/" && place.kind != PlaceKind::Named)
                {
                    members.push(("path".to_owned(), (path + "*").into()));
                }
                ledger.differs(line.id, "only files whose names end in `.php` are run");
                vec!["*.php".to_owned()]
            }
        };
        if let Some(outer) = place.outer.as_deref().and_then(words::glob) {
            members.push(("path".to_owned(), (outer + "*").into()));
        }
        members.push(("file".to_owned(), TomlItem::one_or_list(file)));
        rule.matching(members);
        Ok(())
    }
}
