//! A `server` made into a site.
//!
//! The idea: first stands what rewrites, redirects and refuses before a location is asked; then one
//! rule for each location, for exactly the paths for which nginx chooses it; then what holds for
//! programs and for files that a directory's index leads to. What is left falls to the site's files.

use std::rc::Rc;

use super::condition::{Members, and_not};
use super::parse::Statement;
use super::place::{Left, NginxPlace, PlaceKind};
use super::settings::{ACCESS, AUTH, FIELDS, LIMITS};
use super::{Http, NginxServer, Scope};
use crate::Fate;
use crate::draft::{DraftKeys, SiteDraft, TomlItem, member};
use crate::front::Front;
use crate::ledger::ONE_FILE;
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
    pub(super) places: Rc<Vec<NginxPlace<'a>>>,
    /// Names that are tried in directories.
    pub(super) indexes: Vec<String>,
    /// Rules that rewrite, redirect and refuse before a location's.
    pub(super) early: Vec<DraftKeys>,
    /// The rules of locations.
    pub(super) main: Vec<DraftKeys>,
    /// Rules that stand behind that of the location which is being made.
    pub(super) after: Vec<DraftKeys>,
    /// Rules for files that directories lead to and of programs, and nginx's order among them.
    pub(super) by_file: Vec<(u8, DraftKeys)>,
    pub(super) is_tls: bool,
    pub(super) uses_unless: bool,
    /// Named locations that something leads to.
    pub(super) named: Vec<String>,
    /// What locations may still come to.
    pub(super) left: Left,
    /// Whether a family is said by a location, and so no longer by the site.
    pub(super) is_split: [bool; 4],
}

/// The families that rules add up: who may come in, passwords, limits, fields.
const FAMILIES: [&[&str]; 4] = [ACCESS, AUTH, LIMITS, FIELDS];

/// The site of a server.
pub(super) fn build<'a>(http: &Http<'a>, server: &NginxServer<'a>, front: &Front) -> SiteDraft {
    let scope = Scope::default()
        .with(http.inherited.clone())
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
        places: Rc::default(),
        indexes: Vec::new(),
        early: Vec::new(),
        main: Vec::new(),
        after: Vec::new(),
        by_file: Vec::new(),
        is_tls: front.is_tls(),
        uses_unless: false,
        named: Vec::new(),
        left: Left::default(),
        is_split: [false; 4],
        scope: scope.clone(),
    };
    work.draft.keys.note(&[server.line.id]);
    http.ledger.carried(server.line.id);
    let mut places = Vec::new();
    work.collect(&mut places, &server.body, &scope, None, 0);
    if !places.iter().any(NginxPlace::is_root) {
        places.push(NginxPlace::rest(&scope));
    }
    work.places = Rc::new(places);
    work.files();
    work.site_settings();
    if work.is_tls {
        work.tls();
    }
    let stays = work.act(None, &server.body, &Members::new());
    work.draft.keys.merge(stays);
    match scope.own().iter().find(|line| line.name == "return") {
        Some(line) => work.all_returned(line),
        None => work.all_places(),
    }
    work.finish()
}

impl<'a> SiteWork<'_, 'a> {
    /// Nobody comes in where this location is for, or to the site.
    pub(super) fn close(&mut self, place: Option<&NginxPlace<'a>>, why: &'static str) {
        match place {
            Some(place) => place.close(why),
            None => self.draft.keys.close(why),
        }
    }

    /// Whether there are files that a rule could ask for.
    pub(super) fn has_files(&self) -> bool {
        self.root.is_some() || !self.draft.mounts.is_empty()
    }

    /// Whether files are programs.
    pub(super) fn has_programs(&self) -> bool {
        let mut places = self.places.iter();
        places.any(|place| place.line("fastcgi_pass").is_some())
    }

    fn collect(
        &mut self,
        places: &mut Vec<NginxPlace<'a>>,
        body: &[&'a Statement],
        scope: &Scope<'a>,
        outer: Option<usize>,
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
            let inner = http.body(line);
            let read =
                NginxPlace::read(line).filter(|_| depth < NESTED_MAX && places.len() < PLACES_MAX);
            let Some((kind, pattern)) = read else {
                let why = "a location's expression is none here, or there are too many of them";
                http.bury(line, Fate::NotCarried, why);
                self.draft.keys.close(why);
                continue;
            };
            if !matches!(kind, PlaceKind::Regex | PlaceKind::Named) && !pattern.starts_with('/') {
                http.bury(line, Fate::NotNeeded, "no path begins like that");
                continue;
            }
            let note = match kind {
                PlaceKind::Regex => {
                    "asked in nginx's order: its `match` says for which paths nginx would choose it"
                }
                _ => "",
            };
            http.ledger.say(line.id, Fate::Carried, note);
            for (is_split, names) in self.is_split.iter_mut().zip(FAMILIES) {
                *is_split |= inner.iter().any(|line| names.contains(&line.name.as_str()));
            }
            let scope = scope.with(inner.clone());
            let at = places.len();
            let read = (kind, pattern);
            places.push(NginxPlace::new(read, outer, scope.clone(), Some(line.id)));
            self.collect(places, &inner, &scope, Some(at), depth + 1);
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
        self.error_log();
    }

    fn error_log(&mut self) {
        let http = self.http;
        let own = self.scope.own().iter();
        for line in own.filter(|line| line.name == "error_log") {
            match http.path(line.first()) {
                Some(path) => {
                    http.ledger.differs(line.id, ONE_FILE);
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
        match self.returned(line, &self.scope, None, &mut rule) {
            Ok(()) => self.early.push(rule),
            Err(why) => {
                self.http.ledger.lost(line.id, why);
                self.close(None, why);
            }
        }
        let own = self.scope.own().iter();
        for line in own.filter(|line| line.name == "location") {
            let note = "the `return` beside it answers everything";
            self.http.bury(line, Fate::NotNeeded, note);
        }
    }

    fn all_places(&mut self) {
        for at in 0..self.places.len() {
            self.answering(at);
        }
        if self.left.is_none() {
            let why = "its locations within each other are told by too many others";
            self.close(None, why);
            let places = std::rc::Rc::clone(&self.places);
            let lines = places.iter().filter_map(|place| place.id);
            lines.for_each(|id| self.http.ledger.lost(id, why));
            (self.early, self.main, self.by_file) = Default::default();
            return;
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

    /// Says who is let in at a location.
    pub(super) fn admit(&self, place: &NginxPlace<'a>, rule: &mut DraftKeys) {
        let (http, scope) = (self.http, &place.scope);
        let [clients, auth, ..] = self.is_split;
        // What `return` answers it does before anybody is asked who he is.
        let asks = place.line("return").is_none();
        if asks && auth {
            http.auth(scope, rule);
        }
        if asks && clients && !rule.has("deny") {
            http.clients(scope, rule);
        }
    }

    /// Nobody comes to a location with `internal` from outside.
    pub(super) fn keep_inside(&self, place: &NginxPlace<'a>, rule: &mut DraftKeys) {
        if let Some(line) = place.scope.last("internal") {
            let note = "nobody comes in from outside, and inside what `try_files` and an index lead there: no `rewrite`, and no \
                reply, for there is no `X-Accel-Redirect`";
            self.http.ledger.differs(line.id, note);
            rule.close("internal");
        }
    }

    /// Says who is let in at a location, and its settings.
    pub(super) fn say(&self, place: &NginxPlace<'a>, rule: &mut DraftKeys) {
        let (http, scope) = (self.http, &place.scope);
        let [.., limits, fields] = self.is_split;
        self.admit(place, rule);
        if limits && place.line("return").is_none() {
            http.limits(scope, rule);
        }
        if fields {
            http.fields(scope, rule);
        }
        let level = scope.below(2);
        http.bounds(&level, rule);
        http.records(&level, rule);
        http.compression(&level, rule);
    }

    /// `limit_except` of a location with these members.
    pub(super) fn except(&mut self, line: &'a Statement, members: &Members) {
        let http = self.http;
        http.ledger.carried(line.id);
        let scope = Scope::default().with(http.body(line));
        let mut methods = line.words.clone();
        methods.retain(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_uppercase()));
        if methods.iter().any(|it| it == "GET") {
            methods.push("HEAD".to_owned());
        }
        let mut rule = DraftKeys::default();
        rule.note(&[line.id]);
        let mut members = members.clone();
        if !methods.is_empty() {
            let methods = TomlItem::texts(methods);
            and_not(&mut members, vec![member("method", methods)]);
        }
        rule.matching(members);
        http.clients(&scope, &mut rule);
        http.auth(&scope, &mut rule);
        if !rule.is_idle() {
            self.early.push(rule);
        }
    }

    /// What answers at a location is not carried, for this reason.
    pub(super) fn lose(&self, place: &NginxPlace<'a>, why: &str) {
        let answers = |line: &&&'a Statement| line.name.ends_with("_pass") || line.name == "return";
        for line in place.own().iter().filter(answers) {
            self.http.ledger.lost(line.id, why);
        }
    }

    /// The site as it is written.
    fn finish(mut self) -> SiteDraft {
        if self.uses_unless && self.draft.keys.has("try") {
            let tried = match self.draft.keys.get("try") {
                Some(TomlItem::List(tried)) => tried.clone(),
                _ => Vec::new(),
            };
            let mut whole: Vec<TomlItem> = vec!["$path".into(), "$path/".into()];
            whole.extend(
                tried
                    .into_iter()
                    .filter(|it| ![TomlItem::from("$path"), "$path/".into()].contains(it)),
            );
            self.draft.keys.replace("try", TomlItem::List(whole));
        }
        self.by_file.sort_by_key(|(rank, _)| *rank);
        let by_file = self.by_file.into_iter().map(|(_, rule)| rule);
        let rules = self.early.into_iter().chain(self.main).chain(by_file);
        self.draft.rules = rules.collect();
        self.draft
    }
}
