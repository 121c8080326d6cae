//! `return`, `rewrite`, `if` and `try_files`, as handlers, rewriting and `try`.

use super::Scope;
use super::condition::{IfAsked, Members, and_regex, condition, with_asked};
use super::handler::Made;
use super::parse::Statement;
use super::place::{NginxPlace, PlaceKind};
use super::site::SiteWork;
use super::table::{Meaning, meaning};
use super::template::{target, template};
use crate::draft::{DraftKeys, TomlItem};
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

/// What a `rewrite` comes to.
enum Rewriting {
    /// A rule that redirects.
    Redirect(DraftKeys),
    /// An entry of `rewrite`.
    Entry(TomlItem),
}

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
            keys.put_in("handler", "status", TomlItem::Count(status.into()), &[]);
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
        let mut respond = vec![("status".to_owned(), TomlItem::Count(code.into()))];
        if let Some(text) = text.filter(|_| status != 204 && status != 444) {
            let lines: Option<Vec<String>> =
                text.split('\n').map(|line| template(line, regex)).collect();
            respond.push(("body".to_owned(), lines.ok_or(UNKNOWN)?.join("\n").into()));
            if let Some(kind) = scope
                .last("default_type")
                .filter(|it| words::is_media_type(it.first()))
            {
                ledger.carried(kind.id);
                respond.push(("content_type".to_owned(), kind.first().into()));
            }
        }
        keys.put_in("handler", "respond", TomlItem::Table(respond), &[]);
        Ok(())
    }

    /// The `rewrite`s and `if`s of a location, or of the server.
    pub(super) fn act(&mut self, place: Option<&NginxPlace<'a>>, own: &[&'a Statement]) {
        let members = match place.map(NginxPlace::members) {
            None => Vec::new(),
            Some(Some(members)) => members,
            Some(None) => return,
        };
        for line in own {
            match line.name.as_str() {
                "rewrite" => self.rewritten(line, place, members.clone(), &[]),
                "if" => self.asked(line, place, &members),
                _ => {}
            }
        }
    }

    fn rewritten(
        &mut self,
        line: &'a Statement,
        place: Option<&NginxPlace<'a>>,
        members: Members,
        unless: &[&'static str],
    ) {
        let is_site = members.is_empty() && unless.is_empty() && place.is_none();
        match self.rewriting(line, members.clone(), unless) {
            Some(Rewriting::Redirect(rule)) => self.early.push(rule),
            Some(Rewriting::Entry(entry)) if is_site => {
                self.http.ledger.carried(line.id);
                self.draft.keys.put("rewrite", TomlItem::List(vec![entry]), &[line.id]);
            }
            Some(Rewriting::Entry(entry)) => {
                self.http.ledger.carried(line.id);
                let mut rule = DraftKeys::default();
                rule.matching(members);
                rule.put("rewrite", TomlItem::List(vec![entry]), &[line.id]);
                self.early.push(rule);
            }
            None => self.http.ledger.lost(
                line.id,
                "its expression, or a variable in it, has no counterpart: write `rewrite` or `redirect`",
            ),
        }
    }

    fn rewriting(
        &mut self,
        line: &Statement,
        members: Members,
        unless: &[&'static str],
    ) -> Option<Rewriting> {
        let (source, to) = (line.first(), line.words.get(1)?.as_str());
        let flag = line.words.get(2).map_or("", String::as_str);
        let regex = words::expression(source, false)?;
        if !unless.is_empty() && self.root.is_none() {
            return None;
        }
        let status = match flag {
            "permanent" => Some(301),
            "redirect" => Some(302),
            _ if ["http://", "https://", "$scheme"]
                .iter()
                .any(|it| to.starts_with(it)) =>
            {
                Some(302)
            }
            _ => None,
        };
        let (to, drops) = match to.strip_suffix('?') {
            Some(to) => (to, true),
            None => (to, false),
        };
        if let Some(status) = status {
            let is_plain = unless.is_empty();
            let rule = is_plain
                .then(|| self.redirecting((line, source, &regex), (to, drops), status, members));
            return rule.flatten().map(Rewriting::Redirect);
        }
        // What the client asked is put behind; so it is where only that stands there.
        let args = ["&$args", "&$query_string", "?$args", "?$query_string"];
        let kept = args.iter().find_map(|it| to.strip_suffix(it));
        let to = kept.unwrap_or(to);
        let target =
            target(to, Some(&regex)).filter(|it| it.starts_with('/') && !it.contains("${uri}"))?;
        let query = match (target.contains('?'), drops && kept.is_none()) {
            (true, false) => Some("append"),
            (true, true) => Some("replace"),
            (false, true) => Some("drop"),
            (false, false) => None,
        };
        if target.contains('#') || target.contains("${host}") {
            return None;
        }
        let mut entry = vec![
            ("from".to_owned(), regex.into()),
            ("to".to_owned(), target.into()),
        ];
        entry.extend(query.map(|it| ("query".to_owned(), it.into())));
        if !unless.is_empty() {
            self.uses_unless = true;
            entry.push(("unless".to_owned(), TomlItem::texts(unless.iter().copied())));
        }
        if ["last", "break"].contains(&flag) {
            entry.push(("last".to_owned(), TomlItem::Flag(true)));
        }
        Some(Rewriting::Entry(TomlItem::Table(entry)))
    }

    /// The rule of a `rewrite` that redirects.
    fn redirecting(
        &self,
        (line, source, regex): (&Statement, &str, &str),
        (to, drops): (&str, bool),
        status: u64,
        members: Members,
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
        match ["^", "^/", ".*", "^.*$", "^.*"].contains(&source) || (is_whole && whole.is_some()) {
            true => rule.matching(members),
            false => rule.matching(and_regex(members, regex)?),
        }
        self.http.ledger.carried(line.id);
        if !drops && !is_whole {
            self.http.ledger.differs(
                line.id,
                "the query does not come along: add `?$query` where it must",
            );
        }
        rule.put_in("handler", "redirect", target, &[line.id]);
        rule.put_in("handler", "status", TomlItem::Count(status), &[]);
        Some(rule)
    }

    fn asked(&mut self, line: &'a Statement, place: Option<&NginxPlace<'a>>, members: &Members) {
        const MORE: &str = "an `if` can do no more here than `return` and `rewrite` for a request that a `match` tells: \
            write a rule or a script";
        let http = self.http;
        let body = http
            .files
            .body(line.block.as_deref().unwrap_or_default(), http.ledger);
        let keeps_out = |it: &&Statement| {
            let refuses = it.name == "return" && it.first().starts_with('4');
            let is_access = ["deny", "auth_basic", "internal"].contains(&it.name.as_str());
            refuses || is_access || matches!(meaning(&it.name), Meaning::Closing(_))
        };
        let Some(asked) = condition(&line.words.join(" ")) else {
            http.bury(line, crate::Fate::NotCarried, MORE);
            if body.iter().any(keeps_out) {
                self.close(place, "it is not known whom an `if` refuses");
            }
            return;
        };
        http.ledger.carried(line.id);
        for inner in body {
            let done = match inner.name.as_str() {
                "return" => self.answered(inner, line, place, &asked, members),
                "rewrite" => match with_asked(members.clone(), &asked) {
                    Some(members) => {
                        self.rewritten(inner, place, members, &asked.unless);
                        true
                    }
                    None => false,
                },
                "break" => {
                    http.ledger.idle(inner.id, "rules go on to the next");
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
                self.draft
                    .keys
                    .put_in("tls", "redirect", TomlItem::Flag(true), &[line.id]);
            }
            return goes_on && self.is_tls;
        }
        let mut members = members.clone();
        if !asked.unless.is_empty() {
            if self.root.is_none() {
                return false;
            }
            members.push(("exists".to_owned(), TomlItem::Flag(false)));
        }
        let Some(members) = with_asked(members, asked) else {
            return false;
        };
        let mut rule = DraftKeys::default();
        rule.note(&[asking.id]);
        rule.matching(members);
        let scope = place.map_or(&self.scope, |place| &place.scope).clone();
        let made = self.returned(line, &scope, place.and_then(NginxPlace::regex), &mut rule);
        if made.is_ok() {
            self.early.push(rule);
        }
        made.is_ok()
    }

    /// `try_files` of a location, or of the server.
    pub(super) fn tried(
        &mut self,
        line: &'a Statement,
        place: Option<&NginxPlace<'a>>,
        mount: Option<&str>,
    ) {
        let ledger = self.http.ledger;
        let Some((last, entries)) = line.words.split_last() else {
            return ledger.lost(line.id, "it tries nothing");
        };
        let tried: Option<Vec<String>> = entries.iter().map(|it| entry_of_try(it)).collect();
        let path = last.split('?').next().unwrap_or_default();
        let query = last.get(path.len()..).unwrap_or_default();
        let is_status = last
            .strip_prefix('=')
            .is_some_and(|it| it.parse().is_ok_and(|it: u16| (400..=599).contains(&it)));
        let last_entry = if is_status {
            Some(last.clone())
        } else {
            entry_of_try(path)
        };
        let is_named = last.starts_with('@');
        let (Some(mut tried), true) = (tried, last_entry.is_some() || is_named) else {
            return ledger.lost(
                line.id,
                "a path that is put together cannot be tried: write `try` or `rewrite`",
            );
        };
        ledger.carried(line.id);
        if ![
            String::new(),
            "?$args".to_owned(),
            "?$query_string".to_owned(),
            "$is_args$args".to_owned(),
            "?$is_args$args".to_owned(),
        ]
        .contains(&query.to_owned())
            && !is_named
        {
            let note = "what is tried last is given the client's query: one with a query of its own is a `rewrite` with \
                `unless`";
            ledger.differs(line.id, note);
        }
        let is_whole = place.is_none_or(NginxPlace::is_root) || mount.is_some();
        if !is_whole {
            return self.tried_below(line, place, &tried, path, is_named || is_status);
        }
        tried.dedup();
        match (mount, last_entry) {
            (_, None) => {}
            (Some(mount), Some(entry)) if !is_status && !entry.starts_with('$') => {
                match entry.strip_prefix(mount) {
                    Some(below) if below.starts_with('/') => tried.push(below.to_owned()),
                    _ => ledger.lost(line.id, "what is tried last does not lie below the mount"),
                }
            }
            (_, Some(entry)) => tried.push(entry),
        }
        if tried.is_empty() {
            return;
        }
        let item = TomlItem::texts(tried);
        match mount {
            Some(mount) => {
                if let Some((_, keys)) =
                    self.draft.mounts.iter_mut().find(|(path, _)| path == mount)
                {
                    keys.put("try", item, &[line.id]);
                }
            }
            None => {
                self.has_fallback = !is_status && !is_named;
                self.draft.keys.put("try", item, &[line.id]);
            }
        }
    }

    /// `try_files` of a location that is neither the site's nor a mount's: by rewriting.
    fn tried_below(
        &mut self,
        line: &Statement,
        place: Option<&NginxPlace<'a>>,
        tried: &[String],
        last: &str,
        is_elsewhere: bool,
    ) {
        let members = place.and_then(NginxPlace::members);
        let unless = tried.iter().filter_map(|entry| match entry.as_str() {
            "$path" => Some("file"),
            "$path/" => Some("directory"),
            _ => None,
        });
        let unless: Vec<&str> = unless.collect();
        let (Some(members), false) = (members, is_elsewhere || last.starts_with('$')) else {
            return;
        };
        if unless.len() != tried.len() || self.root.is_none() {
            return self
                .http
                .ledger
                .lost(line.id, "write it as `rewrite` with `unless`");
        }
        let mut entry = vec![
            ("from".to_owned(), "^".into()),
            ("to".to_owned(), last.replace('$', "$$").into()),
        ];
        if !unless.is_empty() {
            self.uses_unless = true;
            entry.push(("unless".to_owned(), TomlItem::texts(unless)));
        }
        let mut rule = DraftKeys::default();
        rule.matching(members);
        rule.put(
            "rewrite",
            TomlItem::List(vec![TomlItem::Table(entry)]),
            &[line.id],
        );
        self.early.push(rule);
    }

    /// The rule for what `try_files` leaves to a named location.
    pub(super) fn left_to_named(&mut self, place: &NginxPlace<'a>) {
        let line = place.own().iter().find(|line| line.name == "try_files");
        let name = line.and_then(|line| line.words.last()?.strip_prefix('@'));
        let (Some(name), Some(mut members)) = (name, place.members()) else {
            return;
        };
        let named =
            |other: &&NginxPlace<'a>| other.kind == PlaceKind::Named && other.pattern == name;
        let places = std::mem::take(&mut self.places);
        if let Some(named) = places.iter().find(named) {
            self.named.push(name.to_owned());
            if self.root.is_some() {
                members.push(("exists".to_owned(), TomlItem::Flag(false)));
            }
            let mut rule = DraftKeys::default();
            rule.note(&named.id.into_iter().collect::<Vec<_>>());
            rule.matching(members);
            let rank = (6, usize::MAX - place.pattern.len());
            let members = match rule.get("match") {
                Some(TomlItem::Table(members)) => members.clone(),
                _ => Vec::new(),
            };
            match self.handled(named, &mut rule) {
                Ok(true) => self.main.push((rank, rule)),
                Ok(false) => {
                    for line in named.own().iter().filter(|line| line.name == "rewrite") {
                        self.rewritten(line, Some(place), members.clone(), &[]);
                    }
                }
                Err(why) => self.close(Some(place), why),
            }
        }
        self.places = places;
    }
}
