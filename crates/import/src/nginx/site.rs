//! A `server` made into a site.
//!
//! The idea: rules stand in four groups. First what is about access, each rule for exactly the paths
//! for which nginx would have chosen its location; then what rewrites and redirects; then one rule
//! with a handler for each location, in nginx's order; what is left falls to the site's files.

use super::parse::Statement;
use super::place::{NginxPlace, PlaceKind, Rank};
use super::settings::{ACCESS, AUTH, FIELDS, LIMITS};
use super::table::{Meaning, meaning};
use super::{Http, NginxServer, Scope};
use crate::Fate;
use crate::draft::{DraftKeys, SiteDraft, TomlItem};
use crate::front::Front;
use crate::words;

/// Locations within each other.
const NESTED_MAX: usize = 8;
/// Locations of a site: each is held against all others.
const PLACES_MAX: usize = 1_000;

/// A site while it is put together.
pub(super) struct SiteWork<'h, 'a> {
    pub(super) http: &'h Http<'a>,
    pub(super) draft: SiteDraft,
    pub(super) root: Option<String>,
    pub(super) scope: Scope<'a>,
    pub(super) places: Vec<NginxPlace<'a>>,
    /// Rules about access.
    access: Vec<DraftKeys>,
    /// Rules that rewrite and redirect.
    pub(super) early: Vec<DraftKeys>,
    /// Rules with handlers, and where each stands.
    pub(super) main: Vec<(Rank, DraftKeys)>,
    pub(super) is_tls: bool,
    /// Whether what is missing is answered by a program.
    pub(super) has_fallback: bool,
    pub(super) uses_unless: bool,
    /// Named locations that something leads to.
    pub(super) named: Vec<String>,
    /// Whether a family is said by a location, and so no longer by the site.
    pub(super) is_split: [bool; 4],
}

/// The families that rules add up: who may come in, passwords, limits, fields.
const FAMILIES: [&[&str]; 4] = [ACCESS, AUTH, LIMITS, FIELDS];

/// The site of a server.
pub(super) fn build<'a>(http: &Http<'a>, server: &NginxServer<'a>, front: &Front) -> SiteDraft {
    let scope = Scope::default()
        .with(http.level.clone())
        .with(server.body.clone());
    http.current_host
        .replace(front.hosts.first().cloned().unwrap_or_default());
    let mut work = SiteWork {
        http,
        draft: SiteDraft {
            hosts: front.hosts.clone(),
            ..SiteDraft::default()
        },
        root: None,
        places: Vec::new(),
        access: Vec::new(),
        early: Vec::new(),
        main: Vec::new(),
        is_tls: front.is_tls(),
        has_fallback: false,
        uses_unless: false,
        named: Vec::new(),
        is_split: [false; 4],
        scope: scope.clone(),
    };
    work.draft.keys.note(&[server.line.id]);
    http.ledger.carried(server.line.id);
    work.collect(&server.body, &scope, None, 0);
    if !work.places.iter().any(NginxPlace::is_root) {
        work.places.push(NginxPlace::rest(scope));
    }
    work.files();
    work.site_settings();
    if work.is_tls {
        work.tls();
    }
    let body = server.body.clone();
    work.act(None, &body);
    match work
        .scope
        .own()
        .iter()
        .find(|line| line.name == "return")
        .copied()
    {
        Some(line) => work.all_returned(line),
        None => work.all_places(),
    }
    work.finish()
}

impl<'a> SiteWork<'_, 'a> {
    /// Nobody comes in where this location is for, or to the site.
    pub(super) fn close(&mut self, place: Option<&NginxPlace<'a>>, why: &str) {
        match place
            .filter(|place| !place.is_root())
            .map(NginxPlace::members)
        {
            Some(Some(members)) => {
                let mut rule = DraftKeys::default();
                rule.matching(members);
                rule.close(why);
                self.access.push(rule);
            }
            Some(None) => {}
            None => self.draft.keys.close(why),
        }
    }

    fn collect(
        &mut self,
        body: &[&'a Statement],
        scope: &Scope<'a>,
        outer: Option<&str>,
        depth: usize,
    ) {
        let http = self.http;
        for line in body {
            let reason = http.judge(line);
            if let (Some(why), 0) = (reason, depth) {
                self.draft.keys.close(why);
            }
            if line.name != "location" {
                continue;
            }
            let inner = http
                .files
                .body(line.block.as_deref().unwrap_or_default(), http.ledger);
            let read = NginxPlace::read(line)
                .filter(|_| depth < NESTED_MAX && self.places.len() < PLACES_MAX);
            let Some((kind, pattern)) = read else {
                let why = "a location's expression is none here, or there are too many of them";
                http.bury(line, Fate::NotCarried, why);
                self.draft.keys.close(why);
                continue;
            };
            http.ledger.carried(line.id);
            let inner_scope = scope.with(inner.clone());
            let outer_path = match kind {
                PlaceKind::Regex => outer,
                _ => Some(pattern.as_str()),
            };
            self.collect(&inner, &inner_scope, outer_path, depth + 1);
            for (is_split, names) in self.is_split.iter_mut().zip(FAMILIES) {
                *is_split |= inner.iter().any(|line| names.contains(&line.name.as_str()));
            }
            let place = NginxPlace {
                kind,
                outer: outer
                    .filter(|_| kind == PlaceKind::Regex)
                    .map(str::to_owned),
                pattern,
                scope: inner_scope,
                id: Some(line.id),
            };
            // Those that are found first by nginx come first.
            let closing = inner.iter().find_map(|line| match meaning(&line.name) {
                Meaning::Closing(why) => Some(why),
                _ => None,
            });
            if let Some(why) = closing {
                self.close(Some(&place), why);
            }
            self.places.push(place);
        }
    }

    fn site_settings(&mut self) {
        let http = self.http;
        let scope = self.scope.clone();
        let root_place = self.places.iter().find(|place| place.is_root());
        let inner = root_place.map_or(&scope, |place| &place.scope).clone();
        let keys = &mut self.draft.keys;
        http.bounds(&scope, keys);
        if keys.get("caps").is_none_or(|it| !it.has("body_bytes")) {
            keys.put_in("caps", "body_bytes", "1MiB", &[]);
            keys.remark(
                "client_max_body_size: nginx's own where nothing is said; ours would be 1GiB",
            );
        }
        http.records(&scope, keys);
        http.compression(&scope, keys);
        let [clients, auth, limits, fields] = self.is_split;
        if !clients {
            http.clients(&scope, keys);
        }
        if !auth {
            http.auth(&scope, keys);
        }
        if !limits {
            http.limits(&scope, keys);
        }
        if !fields {
            http.fields(&scope, keys);
        }
        if let Some(line) = scope.last("keepalive_timeout")
            && let Some(wait) = words::wait(line.first())
        {
            http.ledger.carried(line.id);
            keys.put_in("timeouts", "idle", wait, &[line.id]);
        }
        for (name, word, key, said) in [
            ("underscores_in_headers", "on", "underscore_fields", "keep"),
            ("merge_slashes", "off", "slashes", "keep"),
        ] {
            if let Some(line) = scope.last(name) {
                http.ledger.carried(line.id);
                if line.first() == word {
                    keys.put(key, said, &[line.id]);
                }
            }
        }
        self.error_pages(&inner);
        for line in self
            .scope
            .own()
            .iter()
            .filter(|line| line.name == "error_log")
        {
            match http.path(line.first()) {
                Some(path) => {
                    http.ledger.differs(
                        line.id,
                        "as long as both servers run, they write into one file",
                    );
                    self.draft.keys.put_in("log", "error", path, &[line.id]);
                }
                None => http
                    .ledger
                    .idle(line.id, "the gateway's own goes to standard error"),
            }
        }
    }

    fn tls(&mut self) {
        let (http, scope) = (self.http, self.scope.clone());
        let keys = &mut self.draft.keys;
        for (name, key) in [
            ("ssl_certificate", "certificate"),
            ("ssl_certificate_key", "key"),
        ] {
            for (at, line) in scope.all(&[name]).into_iter().enumerate() {
                match http.path(line.first()).filter(|_| at == 0) {
                    Some(path) => {
                        http.ledger.carried(line.id);
                        keys.put_in("tls", key, path, &[line.id]);
                    }
                    None => http
                        .ledger
                        .lost(line.id, "a site has one certificate, in a file"),
                }
            }
        }
        let Some(line) = scope
            .last("ssl_verify_client")
            .filter(|line| line.first() != "off")
        else {
            return;
        };
        let authorities = scope.last("ssl_client_certificate");
        let Some((ca, path)) = authorities.and_then(|it| Some((it, http.path(it.first())?))) else {
            http.ledger
                .lost(line.id, "who vouches for clients is not known");
            return keys.close("who vouches for clients' certificates is not known");
        };
        http.ledger.carried(ca.id);
        keys.put_in("tls", "client_ca", path, &[ca.id]);
        match line.first() {
            "on" => http.ledger.carried(line.id),
            other => {
                if other == "optional_no_ca" {
                    http.ledger.differs(
                        line.id,
                        "certificates that `client_ca` did not sign are refused",
                    );
                }
                http.ledger.carried(line.id);
                keys.put_in("tls", "client_auth", "ask", &[line.id]);
            }
        }
    }

    /// `return` of the server: locations are never come to.
    fn all_returned(&mut self, line: &'a Statement) {
        let mut rule = DraftKeys::default();
        let scope = self.scope.clone();
        match self.returned(line, &scope, None, &mut rule) {
            Ok(()) => self.early.push(rule),
            Err(why) => {
                self.http.ledger.lost(line.id, why);
                self.close(None, why);
            }
        }
        for line in self
            .scope
            .own()
            .iter()
            .filter(|line| line.name == "location")
        {
            self.http.bury(
                line,
                Fate::NotNeeded,
                "the `return` beside it answers everything",
            );
        }
    }

    fn all_places(&mut self) {
        let places = std::mem::take(&mut self.places);
        for (at, place) in places.iter().enumerate() {
            if place.kind != PlaceKind::Named {
                self.admitted(at, place, &places);
            }
        }
        self.places = places;
        for at in 0..self.places.len() {
            // Each is gone through with the others at hand.
            let place = self.places.get(at).cloned();
            if let Some(place) = place.filter(|place| place.kind != PlaceKind::Named) {
                self.answering(&place);
            }
        }
        let unnamed = |place: &&NginxPlace<'a>| {
            place.kind == PlaceKind::Named && !self.named.contains(&place.pattern)
        };
        for place in self.places.iter().filter(unnamed) {
            let ids = place.own().iter().map(|line| line.id).chain(place.id);
            ids.for_each(|id| {
                self.http
                    .ledger
                    .lost(id, "nothing that is carried leads to it")
            });
        }
    }

    /// Who is let in at a location.
    fn admitted(&mut self, at: usize, place: &NginxPlace<'a>, places: &[NginxPlace<'a>]) {
        let http = self.http;
        let split = self.is_split;
        let lines = |place: &NginxPlace<'a>| -> Vec<usize> {
            let families = FAMILIES
                .iter()
                .zip(split)
                .take(3)
                .filter(|(_, split)| *split);
            let lines = families.flat_map(|(names, _)| place.scope.all(names));
            lines.map(|line| line.id).collect()
        };
        let own = lines(place);
        let Some(members) = place.exactly(at, places, |other| lines(other) != own) else {
            return;
        };
        let mut rule = DraftKeys::default();
        rule.note(&place.id.into_iter().collect::<Vec<_>>());
        rule.matching(members);
        self.say_access(place, &mut rule);
        if let Some(line) = place.own().iter().find(|line| line.name == "internal") {
            let note = "nobody comes in from outside; no reply leads there, for there is no `X-Accel-Redirect`";
            http.ledger.differs(line.id, note);
            rule.close("internal");
        }
        if !rule.is_idle() {
            self.access.push(rule);
        }
        for line in place
            .own()
            .iter()
            .filter(|line| line.name == "limit_except")
        {
            self.except(place, line);
        }
    }

    fn say_access(&self, place: &NginxPlace<'a>, rule: &mut DraftKeys) {
        let [clients, auth, limits, _] = self.is_split;
        if auth {
            self.http.auth(&place.scope, rule);
        }
        if limits {
            self.http.limits(&place.scope, rule);
        }
        if clients && !rule.has("deny") {
            self.http.clients(&place.scope, rule);
        }
    }

    fn except(&mut self, place: &NginxPlace<'a>, line: &'a Statement) {
        let http = self.http;
        http.ledger.carried(line.id);
        let inner = http
            .files
            .body(line.block.as_deref().unwrap_or_default(), http.ledger);
        let scope = Scope::default().with(inner);
        let mut methods = line.words.clone();
        methods.retain(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_uppercase()));
        if methods.iter().any(|it| it == "GET") {
            methods.push("HEAD".to_owned());
        }
        let mut rule = DraftKeys::default();
        rule.note(&[line.id]);
        let Some(mut members) = place.members() else {
            return;
        };
        if !methods.is_empty() {
            let not = TomlItem::table([("method", TomlItem::texts(methods))]);
            members.push(("not".to_owned(), not));
        }
        rule.matching(members);
        http.clients(&scope, &mut rule);
        http.auth(&scope, &mut rule);
        if !rule.is_idle() {
            self.access.push(rule);
        }
    }

    /// The site as it is written.
    fn finish(mut self) -> SiteDraft {
        if self.uses_unless {
            let tried = match self.draft.keys.get("try") {
                Some(TomlItem::List(tried)) => tried.clone(),
                _ => vec!["$path".into(), "$path/".into()],
            };
            let mut whole: Vec<TomlItem> = vec!["$path".into(), "$path/".into()];
            whole.extend(
                tried
                    .into_iter()
                    .filter(|it| ![TomlItem::from("$path"), "$path/".into()].contains(it)),
            );
            self.draft.keys.replace("try", TomlItem::List(whole));
        }
        self.main.sort_by_key(|(rank, _)| *rank);
        let main = self.main.into_iter().map(|(_, rule)| rule);
        let rules = self.access.into_iter().chain(self.early).chain(main);
        self.draft.rules = rules.collect();
        self.draft
    }
}
