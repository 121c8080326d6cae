//! `return`, `rewrite`, `if` and `try_files`, as handlers, rewriting and `try`.

use super::Scope;
use super::condition::{IfAsked, Members, and, and_not, with_asked};
use super::handler::Made;
use super::parse::Statement;
use super::place::{NginxPlace, PlaceKind, inside};
use super::site::SiteWork;
use super::table::{Meaning, meaning};
use super::template::{target, template};
use crate::draft::{DraftKeys, TomlItem, member};
use crate::words;

/// Expressions for any path, with what their group is.
const WHOLE: [(&str, &str); 6] = [
    ("^(.*)$", "$1"),
    ("^(.*)", "$1"),
    ("(.*)", "$1"),
    ("^/?(.*)$", "/$1"),
    ("^/(.*)$", "/$1"),
    ("^/(.*)", "/$1"),
];

/// How the client's query is put behind a path.
const ARGS: [&str; 6] = [
    "?$is_args$args",
    "$is_args$args",
    "&$args",
    "&$query_string",
    "?$args",
    "?$query_string",
];

/// What stands behind a program's name is a part of the path for nginx, and no file is found there.
const BEHIND_PROGRAM: &str = "\\.php/";

/// What a `rewrite` comes to.
enum Rewriting {
    /// A rule that redirects.
    Redirect(DraftKeys),
    /// An entry of `rewrite`; whether the location stays the one it is in (`break`).
    Entry(TomlItem, bool),
}

/// What is said where nothing can be tried.
const UNTRIED: &str = "a path that is put together cannot be tried: write `try` or `rewrite`";

fn entry_of_try(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix("$uri") {
        let is_suffix =
            rest.starts_with('.') && config::is_changeable_field(rest.trim_start_matches('.'));
        return match rest {
            "" | "/" => Some(format!("$path{rest}")),
            "/index.html" | "/index.htm" | "/index.php" => Some("$path/".to_owned()),
            _ if is_suffix => Some(format!("$path{rest}")),
            _ => None,
        };
    }
    let is_plain = words::file_path(text).is_some() && !text.ends_with('/');
    let is_clean = text.split('/').all(|part| ![".", ".."].contains(&part));
    (is_plain && is_clean && !text.contains('?')).then(|| text.to_owned())
}

/// `to` and `query` of what leads to a path; `None` where that cannot be said. `drops`: the client's
/// query does not come along unless it is said.
fn leading_to(to: &str, regex: Option<&str>, drops: bool) -> Option<Vec<(String, TomlItem)>> {
    let kept = ARGS.iter().find_map(|it| to.strip_suffix(it));
    let to = target(kept.unwrap_or(to), regex)?;
    let is_path = to.starts_with('/') && !to.contains(['#']);
    if !is_path || to.contains("${uri}") || to.contains("${host}") {
        return None;
    }
    let query = match (to.contains('?'), drops && kept.is_none()) {
        (true, false) => Some("append"),
        (false, true) => Some("drop"),
        (true, true) | (false, false) => None,
    };
    let mut members = vec![member("to", to)];
    members.extend(query.map(|it| member("query", it)));
    Some(members)
}

impl<'a> SiteWork<'_, 'a> {
    /// `return` as a handler.
    pub(super) fn returned(
        &self,
        line: &Statement,
        scope: &Scope<'a>,
        regex: Option<&str>,
        keys: &mut DraftKeys,
    ) -> Made<()> {
        const UNKNOWN: &str =
            "a variable in it, or its status, has no counterpart: write `redirect` or `respond`";
        let ledger = self.http.ledger;
        let (status, text) = match line.words.as_slice() {
            [only] => match only.parse::<u16>() {
                Ok(status) => (status, None),
                Err(_) => (302, Some(only)),
            },
            [status, text] => (status.parse().map_err(|_| UNKNOWN)?, Some(text)),
            _ => return Err(UNKNOWN),
        };
        ledger.carried(line.id);
        keys.note(&[line.id]);
        let host = self.http.current_host.borrow().clone();
        if let (301 | 302 | 303 | 307 | 308, Some(text)) = (status, text) {
            let target = target(&text.replace("$server_name", &host), regex).ok_or(UNKNOWN)?;
            keys.put_in("handler", "redirect", target, &[]);
            keys.put_in("handler", "status", u64::from(status), &[]);
            return Ok(());
        }
        let code = match status {
            444 => {
                ledger.differs(line.id, "answered 403 and not by closing the connection");
                403
            }
            200..=299 | 400..=599 => status,
            _ => return Err(UNKNOWN),
        };
        let mut respond = vec![member("status", u64::from(code))];
        if let Some(text) = text.filter(|_| status != 204 && status != 444) {
            let lines: Option<Vec<String>> =
                text.split('\n').map(|line| template(line, regex)).collect();
            respond.push(member("body", lines.ok_or(UNKNOWN)?.join("\n")));
            if let Some(kind) = scope
                .last("default_type")
                .filter(|it| words::is_media_type(it.first()))
            {
                ledger.carried(kind.id);
                respond.push(member("content_type", kind.first()));
            }
        }
        keys.put_in("handler", "respond", TomlItem::Table(respond), &[]);
        Ok(())
    }

    /// The `rewrite`s and `if`s of a location with these members, or of the server; those after which
    /// the location stays the one it is are given back.
    pub(super) fn act(
        &mut self,
        place: Option<&NginxPlace<'a>>,
        own: &[&'a Statement],
        members: &Members,
    ) -> DraftKeys {
        let (mut again, mut stays) = (DraftKeys::default(), DraftKeys::default());
        for line in own {
            if !["rewrite", "if"].contains(&line.name.as_str()) {
                continue;
            }
            let rewriting = match line.name.as_str() {
                "rewrite" => self.rewriting(line, members, &[]),
                _ => None,
            };
            if let Some(Rewriting::Entry(entry, is_break)) = rewriting {
                self.http.ledger.carried(line.id);
                let keys = match (place, is_break) {
                    (None, _) => &mut self.draft.keys,
                    (_, true) => &mut stays,
                    (_, false) => &mut again,
                };
                keys.put("rewrite", TomlItem::List(vec![entry]), &[line.id]);
                continue;
            }
            self.lead_elsewhere(std::mem::take(&mut again), members);
            match rewriting {
                Some(Rewriting::Redirect(rule)) => self.early.push(rule),
                _ if line.name == "rewrite" => self.http.ledger.lost(
                    line.id,
                    "its expression, or a variable in it, has no counterpart: write `rewrite` or `redirect`",
                ),
                _ => self.asked(line, place, members),
            }
        }
        self.lead_elsewhere(again, members);
        stays
    }

    /// A rule with what leads a location's requests elsewhere.
    pub(super) fn lead_elsewhere(&mut self, mut rule: DraftKeys, members: &Members) {
        if rule.has("rewrite") {
            rule.matching(members.clone());
            self.early.push(rule);
        }
    }

    fn rewriting(
        &mut self,
        line: &Statement,
        members: &Members,
        unless: &[&'static str],
    ) -> Option<Rewriting> {
        let (source, to) = (line.first(), line.words.get(1)?.as_str());
        let flag = line.words.get(2).map_or("", String::as_str);
        let regex = words::expression(source, false)?;
        if !unless.is_empty() && !self.has_files() {
            return None;
        }
        let leads_out = ["http://", "https://", "$scheme"];
        let status = match flag {
            "permanent" => Some(301),
            "redirect" => Some(302),
            _ if leads_out.iter().any(|it| to.starts_with(it)) => Some(302),
            _ => None,
        };
        let (to, drops) = match to.strip_suffix('?') {
            Some(to) => (to, true),
            None => (to, false),
        };
        if let Some(status) = status {
            let is_plain = unless.is_empty();
            let rule = is_plain.then(|| {
                self.redirecting((line, source, &regex), (to, drops), status, members.clone())
            });
            return rule.flatten().map(Rewriting::Redirect);
        }
        let mut entry = vec![member("from", regex.clone())];
        entry.extend(leading_to(to, Some(&regex), drops)?);
        if !unless.is_empty() {
            self.uses_unless = true;
            entry.push(member("unless", TomlItem::texts(unless.iter().copied())));
        }
        if ["last", "break"].contains(&flag) {
            entry.push(member("last", true));
        }
        Some(Rewriting::Entry(TomlItem::Table(entry), flag == "break"))
    }

    /// The rule of a `rewrite` that redirects.
    fn redirecting(
        &self,
        (line, source, regex): (&Statement, &str, &str),
        (to, drops): (&str, bool),
        status: u64,
        mut members: Members,
    ) -> Option<DraftKeys> {
        let whole = WHOLE
            .iter()
            .find(|(whole, group)| *whole == source && to.ends_with(group));
        let (to, is_whole) = match whole {
            Some((_, group)) => (to.strip_suffix(group)?.to_owned() + "$request_uri", true),
            None => (
                to.to_owned(),
                to.contains("$request_uri") || to.contains("$args"),
            ),
        };
        let host = self.http.current_host.borrow().clone();
        let target = target(&to.replace("$server_name", &host), Some(regex))?;
        let mut rule = DraftKeys::default();
        let is_any = ["^", "^/", ".*", "^.*$", "^.*"].contains(&source);
        if !is_any && whole.is_none() {
            and(&mut members, "path_regex", regex.into());
        }
        rule.matching(members);
        self.http.ledger.carried(line.id);
        if !drops && !is_whole {
            self.http.ledger.differs(
                line.id,
                "the query does not come along: add `?$query` where it must",
            );
        }
        rule.put_in("handler", "redirect", target, &[line.id]);
        rule.put_in("handler", "status", status, &[]);
        Some(rule)
    }

    fn asked(&mut self, line: &'a Statement, place: Option<&NginxPlace<'a>>, members: &Members) {
        const MORE: &str = "an `if` can do no more here than `return` and `rewrite` for a request that a `match` tells: \
            write a rule or a script";
        let http = self.http;
        let body = http.body(line);
        let keeps_out = |it: &&Statement| {
            let refuses = it.name == "return" && it.first().starts_with('4');
            let is_access = ["deny", "auth_basic", "internal"].contains(&it.name.as_str());
            refuses || is_access || matches!(meaning(&it.name), Meaning::Closing(_))
        };
        let is_nobodys = |it: &&Statement| it.name == "set" && !http.asks_for(it.first());
        if !body.is_empty() && body.iter().all(is_nobodys) {
            let note = "nothing that is carried asks for the variable it sets";
            return http.bury(line, crate::Fate::NotNeeded, note);
        }
        let scope = place.map_or(&self.scope, |place| &place.scope);
        let asked = http.condition(&line.words.join(" "), scope, &self.draft.hosts);
        let Some(asked) = asked else {
            http.bury(line, crate::Fate::NotCarried, MORE);
            if body.iter().any(keeps_out) {
                self.close(place, "it is not known whom an `if` refuses");
            }
            return;
        };
        if asked.is_never {
            return http.bury(
                line,
                crate::Fate::NotNeeded,
                "what it asks never holds here",
            );
        }
        http.ledger.carried(line.id);
        for inner in body {
            let done = match inner.name.as_str() {
                "return" => self.answered(inner, line, place, &asked, members),
                "rewrite" => self.rewritten(inner, &asked, members),
                "break" => {
                    http.ledger.idle(inner.id, "rules go on to the next");
                    true
                }
                "set" if is_nobodys(&inner) => {
                    http.ledger
                        .idle(inner.id, "nothing that is carried asks for it");
                    true
                }
                _ => false,
            };
            if !done {
                http.bury(inner, crate::Fate::NotCarried, MORE);
                http.ledger.lost(line.id, MORE);
                if keeps_out(&inner) {
                    self.close(place, "it is not known whom an `if` refuses");
                }
            }
        }
    }

    /// `rewrite` in an `if`.
    fn rewritten(&mut self, line: &Statement, asked: &IfAsked, members: &Members) -> bool {
        if asked.is_plain_http {
            return false;
        }
        let members = with_asked(members.clone(), asked);
        match self.rewriting(line, &members, &asked.unless) {
            None => return false,
            Some(Rewriting::Redirect(rule)) => self.early.push(rule),
            Some(Rewriting::Entry(entry, _)) => {
                self.http.ledger.carried(line.id);
                let mut rule = DraftKeys::default();
                rule.put("rewrite", TomlItem::List(vec![entry]), &[line.id]);
                self.lead_elsewhere(rule, &members);
            }
        }
        true
    }

    /// `return` in an `if`.
    fn answered(
        &mut self,
        line: &'a Statement,
        asking: &Statement,
        place: Option<&NginxPlace<'a>>,
        asked: &IfAsked,
        members: &Members,
    ) -> bool {
        if asked.is_plain_http {
            let goes_on = line
                .words
                .get(1)
                .is_some_and(|it| it.starts_with("https://"));
            if goes_on && self.is_tls {
                let note = "answered 308 by `tls = { redirect = true }`";
                self.http.ledger.differs(line.id, note);
                self.draft.keys.put_in("tls", "redirect", true, &[line.id]);
            }
            return goes_on && self.is_tls;
        }
        let mut members = with_asked(members.clone(), asked);
        if !asked.unless.is_empty() {
            if !self.has_files() {
                return false;
            }
            and(&mut members, "exists", TomlItem::Flag(false));
        }
        let mut rule = DraftKeys::rule(members, &[asking.id]);
        let scope = place.map_or(&self.scope, |place| &place.scope).clone();
        let made = self.returned(line, &scope, place.and_then(NginxPlace::regex), &mut rule);
        if made.is_ok() {
            self.early.push(rule);
        }
        made.is_ok()
    }

    /// `try_files` of a location: what leads elsewhere is put into its rule, what else is tried into
    /// the site's or the mount's keys.
    pub(super) fn tried(
        &mut self,
        line: &Statement,
        place: &NginxPlace<'a>,
        members: &Members,
        rule: &mut DraftKeys,
    ) {
        let ledger = self.http.ledger;
        let Some((last, entries)) = line.words.split_last() else {
            return ledger.lost(line.id, "it tries nothing");
        };
        let tried: Option<Vec<String>> = entries.iter().map(|it| entry_of_try(it)).collect();
        let Some(mut tried) = tried else {
            return ledger.lost(line.id, UNTRIED);
        };
        tried.dedup();
        let words = tried.iter().filter_map(|entry| match entry.as_str() {
            "$path" => Some("file"),
            "$path/" => Some("directory"),
            _ => None,
        });
        let mut unless: Vec<&str> = words.collect();
        let is_plain = unless.len() == tried.len();
        let mount = self.mount_of(place);
        let is_whole = place.is_root() || mount.is_some();
        let status = last.strip_prefix('=').map(str::parse::<u16>);
        let leads = !last.starts_with(['@', '=']) && !last.starts_with("$uri");
        if !is_plain && !is_whole {
            return ledger.lost(line.id, "write it as `rewrite` with `unless`");
        }
        ledger.carried(line.id);
        if leads && is_plain {
            let Some(to) = leading_to(last, None, true) else {
                return ledger.lost(line.id, UNTRIED);
            };
            if let Some(at) = inside(&self.places, last) {
                let members = self.not_found(members, unless.contains(&"directory"));
                return self.led_inside(at, line, to, members);
            }
            unless.retain(|_| self.has_files());
            return rule.put("rewrite", self.leading(to, unless), &[line.id]);
        }
        if let Some(Err(_) | Ok(..400 | 600..)) = status {
            return ledger.lost(line.id, "it ends with a status that is none here");
        }
        let is_usual = is_plain && tried == ["$path", "$path/"];
        if let (Some(Ok(code @ 400..=599)), true) = (&status, is_plain && (!is_whole || is_usual)) {
            if *code != 404 && self.has_files() {
                let mut missing = DraftKeys::rule(self.missing(members, true), &[line.id]);
                let code = TomlItem::table([("status", u64::from(*code).into())]);
                missing.put_in("handler", "respond", code, &[]);
                self.after.push(missing);
            }
            return;
        }
        if is_usual || !is_whole {
            return;
        }
        let path = last.split('?').next().unwrap_or_default();
        let last = match status {
            Some(_) => Some(last.clone()),
            None if last.starts_with('@') => None,
            None => entry_of_try(path),
        };
        self.tried_of_all(
            line,
            mount.as_deref(),
            tried.into_iter().chain(last).collect(),
        );
    }

    /// The entries of `rewrite` that lead where nothing of some kinds stands.
    pub(super) fn leading(&mut self, to: Vec<(String, TomlItem)>, unless: Vec<&str>) -> TomlItem {
        self.uses_unless |= !unless.is_empty();
        let entry = |from: &str, unless: Vec<&str>| {
            let mut entry = vec![member("from", from)];
            entry.extend(to.iter().cloned());
            if !unless.is_empty() {
                entry.push(member("unless", TomlItem::texts(unless)));
            }
            TomlItem::Table(entry)
        };
        let mut entries = vec![entry("^", unless.clone())];
        if unless.contains(&"file") && self.has_programs() {
            let others = unless.into_iter().filter(|it| *it != "file");
            entries.push(entry(BEHIND_PROGRAM, others.collect()));
        }
        TomlItem::List(entries)
    }

    /// The members for what is not there, where there are files at all.
    fn not_found(&self, members: &Members, finds_directories: bool) -> Members {
        match self.has_files() {
            true => self.missing(members, finds_directories),
            false => members.clone(),
        }
    }

    /// The members for what is not there; of directories, too, where these are not looked for.
    fn missing(&self, members: &Members, finds_directories: bool) -> Members {
        let mut members = members.clone();
        let mut but = Vec::new();
        if !finds_directories {
            but.push("/$");
        }
        if self.has_programs() {
            but.push(BEHIND_PROGRAM);
        }
        match but.is_empty() {
            true => and(&mut members, "exists", TomlItem::Flag(false)),
            false => {
                let but = TomlItem::table([("path_regex", but.join("|").into())]);
                let there = vec![member("exists", true), member("not", but)];
                and_not(&mut members, there);
            }
        }
        members
    }

    /// `try` of the site or a mount.
    fn tried_of_all(&mut self, line: &Statement, mount: Option<&str>, mut tried: Vec<String>) {
        let keys = match mount {
            None => &mut self.draft.keys,
            Some(mount) => {
                for entry in &mut tried {
                    if let Some(below) = entry.strip_prefix(mount) {
                        *entry = below.to_owned();
                    }
                }
                let mut mounts = self.draft.mounts.iter_mut();
                match mounts.find(|(path, _)| path == mount) {
                    Some((_, keys)) => keys,
                    None => return,
                }
            }
        };
        if !tried.is_empty() {
            keys.put("try", TomlItem::texts(tried), &[line.id]);
        }
    }

    /// The rule for what `try_files` leaves to a named location.
    pub(super) fn left_to_named(&mut self, place: &NginxPlace<'a>, members: &Members) {
        let line = place.line("try_files");
        let name = line.and_then(|line| line.words.last()?.strip_prefix('@'));
        let (Some(line), Some(name)) = (line, name) else {
            return;
        };
        let places = std::rc::Rc::clone(&self.places);
        let is_it =
            |other: &&NginxPlace<'a>| other.kind == PlaceKind::Named && other.pattern == name;
        let Some(named) = places.iter().find(is_it) else {
            return;
        };
        self.named.push(name.to_owned());
        let finds_directories = line.words.iter().any(|word| word.starts_with("$uri/"));
        let members = self.not_found(members, finds_directories);
        let mut rule = DraftKeys::rule(members.clone(), named.id.as_slice());
        self.say(named, &mut rule);
        match self.handled(named, &members, &mut rule) {
            Ok(_) => {
                let mut returns = false;
                for line in named.own() {
                    returns |= line.name == "return";
                    match line.name.as_str() {
                        "rewrite" if returns => {
                            self.http
                                .ledger
                                .idle(line.id, "a `return` stands before it");
                        }
                        "rewrite" => self.rewritten_in_named(line, &members, &mut rule),
                        _ => {}
                    }
                }
            }
            Err(why) => {
                self.lose(named, why);
                named.close(why);
            }
        }
        if let Some(why) = named.closed() {
            rule.close(why);
        }
        self.after.push(rule);
    }

    /// A `rewrite` of a named location, whose rule is this one.
    fn rewritten_in_named(&mut self, line: &Statement, members: &Members, rule: &mut DraftKeys) {
        const BEHIND: &str =
            "it stands behind a `rewrite` that may have led past it: write a rule for it";
        match self.rewriting(line, members, &[]) {
            Some(Rewriting::Redirect(_)) if rule.has("rewrite") => {
                self.http.ledger.lost(line.id, BEHIND);
            }
            Some(Rewriting::Redirect(redirect)) => self.after.push(redirect),
            Some(Rewriting::Entry(entry, _)) => {
                self.http.ledger.carried(line.id);
                rule.put("rewrite", TomlItem::List(vec![entry]), &[line.id]);
            }
            None => self.http.ledger.lost(line.id, "write it as `rewrite`"),
        }
    }
}
