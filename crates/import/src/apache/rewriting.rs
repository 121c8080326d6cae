//! `Redirect`, and what of `RewriteRule` the engine of `.htaccess` files does not do: all of it where
//! a site has no files, and what forwards.
//!
//! The idea: a rule of Apache's is carried where all its conditions are what a `match` tells; one
//! that forbids and has others forbids whatever they say.

use htaccess::words::rewrite_arguments;

use super::ApacheLine;
use super::conditions::{Conditions, conditions};
use super::programs::upstream;
use super::sections::Area;
use super::site::HostWork;
use crate::draft::{DraftKeys, TomlItem};
use crate::words;

/// Expressions that any path has.
const ANY: [&str; 9] = [
    "^", ".", ".*", "^.*$", "^(.*)$", "(.*)", "^/", "^/(.*)$", "^/?(.*)$",
];

/// A text with our variables; groups are those of an expression.
pub(super) fn template(text: &str, regex: &str) -> Option<String> {
    const VARIABLES: [(&str, &str); 8] = [
        ("%{HTTP_HOST}", "${host}"),
        ("%{SERVER_NAME}", "${host}"),
        ("%{HTTP:Host}", "${host}"),
        ("%{REQUEST_URI}", "${path}"),
        ("%{QUERY_STRING}", "${query}"),
        ("%{REMOTE_ADDR}", "${client}"),
        ("%{REQUEST_METHOD}", "${method}"),
        ("%{REQUEST_SCHEME}", "${scheme}"),
    ];
    let groups = words::groups(regex);
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let known = VARIABLES.iter().find(|(name, _)| rest.starts_with(name));
        if let Some((name, ours)) = known {
            out.push_str(ours);
            rest = rest.get(name.len()..)?;
            continue;
        }
        let behind = rest.get(c.len_utf8()..)?;
        let digit = behind.chars().next().and_then(|it| it.to_digit(10));
        match (c, digit) {
            ('$', Some(digit)) if digit as usize <= groups => {
                out.push_str(&format!("${{{digit}}}"));
                rest = behind.get(1..)?;
                continue;
            }
            ('$', Some(_)) | ('%', Some(_)) => return None,
            ('%', None) if behind.starts_with('{') => return None,
            ('$', None) => out.push_str("$$"),
            ('\\', None) => {}
            (c, _) if c.is_control() || !c.is_ascii_graphic() => return None,
            (c, _) => out.push(c),
        }
        rest = behind;
    }
    Some(out)
}

/// Whether a text leads somewhere that no group decides.
fn leads(target: &str) -> bool {
    let Some((scheme, rest)) = target.split_once("://") else {
        return target.starts_with('/') && !target.starts_with("//")
            || target.starts_with("${path}")
            || target.starts_with("${uri}");
    };
    let host = rest
        .get(..rest.find(['/', '?']).unwrap_or(rest.len()))
        .unwrap_or_default();
    let host = host
        .replace("${host}", "")
        .replace("${uri}", "")
        .replace("${path}", "");
    ["http", "https", "${scheme}"].contains(&scheme) && !host.contains('$') && !rest.is_empty()
}

/// Whether all that a virtual host does is to redirect to TLS.
pub(super) fn goes_to_tls(body: &[&ApacheLine], hosts: &[String]) -> bool {
    let mut redirects = false;
    for line in body {
        let last = line
            .words
            .iter()
            .rev()
            .find(|word| word.starts_with("https://"));
        let rest = last
            .and_then(|it| it.strip_prefix("https://"))
            .unwrap_or_default();
        let host = rest.split('/').next().unwrap_or_default();
        match line.name.as_str() {
            "redirect" | "redirectpermanent" => {
                let is_all = line.words.iter().any(|word| word == "/");
                redirects |= is_all && hosts.iter().any(|it| it == host);
                if !is_all || !redirects {
                    return false;
                }
            }
            "rewriterule" => {
                let is_it = ["%{HTTP_HOST}", "%{SERVER_NAME}"]
                    .iter()
                    .any(|it| rest.starts_with(it));
                if !is_it {
                    return false;
                }
                redirects = true;
            }
            "proxypass" | "proxypassmatch" | "alias" | "scriptalias" | "sethandler"
            | "redirectmatch" => return false,
            _ => {}
        }
    }
    redirects
}

/// Makes rules of the lines of a level.
pub(super) struct Rewriter<'r, 'w, 'a> {
    pub(super) work: &'r mut HostWork<'w, 'a>,
    pub(super) area: &'r Area,
}

impl<'a> Rewriter<'_, '_, 'a> {
    /// Makes rules of what rewrites; what is left is for the engine.
    pub(super) fn rewriting(mut self, lines: &[&'a ApacheLine]) -> Vec<&'a ApacheLine> {
        let ledger = self.work.apache.ledger;
        let last = lines.iter().rev().find(|it| it.name == "rewriteengine");
        let is_on = last.is_some_and(|line| line.is_on());
        let leaves = self.area.is_whole() && self.work.roots.has_files();
        let (mut asked, mut left) = (Vec::new(), Vec::new());
        for line in lines {
            match line.name.as_str() {
                "rewriteengine" => {
                    ledger.carried(line.id);
                    left.push(*line);
                }
                _ if !is_on => ledger.idle(line.id, "`RewriteEngine` is not on"),
                "rewritecond" => asked.push(*line),
                "rewriterule" => {
                    let forwards = RewriteLine::read(line).is_some_and(|rule| rule.forwards());
                    match leaves && !forwards {
                        true => left.extend(asked.drain(..).chain([*line])),
                        false => self.rule(line, &asked),
                    }
                    asked.clear();
                }
                _ => ledger.say_last(
                    line.id,
                    crate::Fate::NotNeeded,
                    "a virtual host has no base",
                ),
            }
        }
        let has_rules = left.iter().any(|line| line.name == "rewriterule");
        left.retain(|_| leaves && is_on && has_rules);
        left
    }

    pub(super) fn redirect(&mut self, line: &'a ApacheLine) {
        const UNKNOWN: &str = "its path, or where it leads to, is not known here: write `redirect`";
        let ledger = self.work.apache.ledger;
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        let first = words
            .first()
            .map(|it| it.to_ascii_lowercase())
            .unwrap_or_default();
        let (status, rest) = match (line.name.as_str(), first.as_str()) {
            ("redirectpermanent", _) => (301, words.as_slice()),
            (_, "permanent") => (301, words.get(1..).unwrap_or_default()),
            (_, "temp") => (302, words.get(1..).unwrap_or_default()),
            (_, "seeother") => (303, words.get(1..).unwrap_or_default()),
            (_, "gone") => (410, words.get(1..).unwrap_or_default()),
            (_, code) => match code.parse::<u16>() {
                Ok(code) => (code, words.get(1..).unwrap_or_default()),
                Err(_) => (302, words.as_slice()),
            },
        };
        let (from, to) = (
            rest.first().copied().unwrap_or_default(),
            rest.get(1).copied().unwrap_or_default(),
        );
        let mut rule = DraftKeys::default();
        let (made, shield) = match line.name == "redirectmatch" {
            true => (redirect_match(from, to, status, &mut rule), from.to_owned()),
            false => {
                let path = words::escape(from.strip_suffix('/').unwrap_or(from));
                let shield = format!("^{path}(?:/|$)");
                (redirect_prefix(from, to, status, &mut rule), shield)
            }
        };
        rule.note(&[line.id]);
        match made {
            Some(is_exact) => {
                match is_exact {
                    true => ledger.carried(line.id),
                    false => ledger.differs(
                        line.id,
                        "a query does not come along: add `?$query` where it must",
                    ),
                }
                self.work.shields.push(shield);
                self.work.early.push(rule);
            }
            None => ledger.lost(line.id, UNKNOWN),
        }
    }

    fn rule(&mut self, line: &'a ApacheLine, asked: &[&'a ApacheLine]) {
        const UNKNOWN: &str = "a condition, a flag or a variable of it has no counterpart: write `rewrite`, `redirect` or a script";
        let ledger = self.work.apache.ledger;
        let ids: Vec<usize> = asked.iter().chain([&line]).map(|it| it.id).collect();
        let parsed = RewriteLine::read(line);
        let regex = parsed.as_ref().and_then(RewriteLine::regex);
        let is_made = match (&parsed, regex, conditions(asked)) {
            (Some(parsed), Some(regex), Some(conditions)) => {
                self.written(line, &ids, parsed, &regex, conditions)
            }
            _ => false,
        };
        if is_made {
            return;
        }
        ids.iter().for_each(|id| ledger.lost(*id, UNKNOWN));
        if let Some(parsed) = parsed.filter(RewriteLine::forbids) {
            let why = "it is not known whom a rule that refuses keeps out";
            let regex = words::expression(&parsed.pattern, true);
            let is_part = !parsed.pattern.starts_with('!') && !ANY.contains(&&*parsed.pattern);
            match regex.filter(|_| is_part && self.area.prefix.is_none()) {
                Some(regex) => self.work.close(&Area::of_regex(regex), why, line),
                None => self.work.close(self.area, why, line),
            }
        }
    }

    /// Makes a rule of a line that is understood with its conditions, if there is one.
    fn written(
        &mut self,
        line: &'a ApacheLine,
        ids: &[usize],
        parsed: &RewriteLine,
        regex: &str,
        conditions: Conditions,
    ) -> bool {
        let ledger = self.work.apache.ledger;
        let differs = |note: &str| ids.iter().for_each(|id| ledger.differs(*id, note));
        let (target, redirect) = (parsed.target.as_str(), parsed.redirect());
        if conditions.is_plain_http {
            let is_key = redirect.is_some() && target.starts_with("https://") && self.work.is_tls;
            if is_key {
                differs("answered 308 by `tls = { redirect = true }`");
                let keys = &mut self.work.draft.keys;
                keys.put_in("tls", "redirect", TomlItem::Flag(true), &[line.id]);
            }
            return is_key;
        }
        let mut rule = DraftKeys::default();
        let made = match redirect {
            _ if parsed.has(&["F", "forbidden"]) => {
                rule.put("deny", "all", &[]);
                Some(true)
            }
            _ if parsed.has(&["G", "gone"]) => answer(410, || None, &mut rule),
            Some(status) => parsed.redirected(status, regex, &mut rule),
            None if parsed.forwards() => forwarded(target, regex, &mut rule),
            None => None,
        };
        let is_any = ANY.contains(&&*parsed.pattern) && !target.contains('$');
        let members = conditions.with_path((!is_any).then_some(regex));
        let Some(is_exact) = made else {
            return false;
        };
        ids.iter().for_each(|id| ledger.carried(*id));
        if !is_exact {
            ledger.differs(
                line.id,
                "a query does not come along: add `?$query` where it must",
            );
        }
        rule.note(ids);
        rule.matching(members);
        self.work.early.push(rule);
        true
    }
}

/// A `RewriteRule`.
pub(super) struct RewriteLine {
    pattern: String,
    target: String,
    flags: Vec<String>,
}

impl RewriteLine {
    pub(super) fn read(line: &ApacheLine) -> Option<Self> {
        let (pattern, target, flags) = rewrite_arguments(&line.text)?;
        let [pattern, target, flags] = [pattern, target, flags.unwrap_or_default()]
            .map(|it| String::from_utf8_lossy(&it).into_owned());
        let flags = flags.trim_matches(['[', ']']).split(',');
        Some(Self {
            pattern,
            target,
            flags: flags.map(|flag| flag.trim().to_owned()).collect(),
        })
    }

    fn has(&self, names: &[&str]) -> bool {
        let is_one = |flag: &String| names.iter().any(|it| flag.eq_ignore_ascii_case(it));
        self.flags.iter().any(is_one)
    }

    /// Its expression; none where it is for what does not have it.
    fn regex(&self) -> Option<String> {
        let is_plain = !self.pattern.starts_with('!');
        words::expression(&self.pattern, self.has(&["NC", "nocase"])).filter(|_| is_plain)
    }

    /// Whether it refuses what it finds.
    pub(super) fn forbids(&self) -> bool {
        let is_refusal = |status: u16| (400..=599).contains(&status);
        self.has(&["F", "forbidden", "G", "gone"]) || self.redirect().is_some_and(is_refusal)
    }

    fn forwards(&self) -> bool {
        self.has(&["P", "proxy"])
    }

    /// Whether it may lead to files of the root.
    pub(super) fn leads_to_files(&self) -> bool {
        !self.forwards() && !self.forbids() && self.redirect().is_none() && self.target != "-"
    }

    /// A line that refuses all that this one may refuse.
    pub(super) fn closing(&self) -> Option<String> {
        let folds = if self.has(&["NC", "nocase"]) {
            ",NC"
        } else {
            ""
        };
        let is_fine = self.forbids() && !self.pattern.contains('"');
        is_fine.then(|| format!("RewriteRule \"{}\" - [F{folds}]\n", self.pattern))
    }

    /// The status it redirects with, if it does.
    fn redirect(&self) -> Option<u16> {
        let said = self
            .flags
            .iter()
            .find_map(|flag| match flag.split_once('=') {
                Some((name, code)) if ["r", "redirect"].contains(&&*name.to_ascii_lowercase()) => {
                    code.parse().ok().or(Some(302))
                }
                _ => None,
            });
        let is_redirect = self.has(&["R", "redirect"]);
        let leads_away = self.target.contains("://") && !self.forwards();
        said.or((is_redirect || leads_away).then_some(302))
    }

    /// The handler that redirects; whether it says all.
    fn redirected(&self, status: u16, regex: &str, rule: &mut DraftKeys) -> Option<bool> {
        let keeps = !self.target.contains('?') && !self.has(&["QSD"]);
        let uri = self.target.strip_suffix("%{REQUEST_URI}").filter(|_| keeps);
        let url = match uri {
            Some(before) => template(before, regex).map(|it| it + "${uri}"),
            None => template(self.target.trim_end_matches('?'), regex),
        };
        let is_exact = !keeps || uri.is_some();
        answer(status, || url, rule).map(|_| is_exact)
    }
}

fn forwarded(target: &str, regex: &str, rule: &mut DraftKeys) -> Option<bool> {
    let (upstream, path) = upstream(target)?;
    let path = template(&path, regex)?;
    let path = if path.is_empty() {
        "/".to_owned()
    } else {
        path
    };
    let proxy = TomlItem::table([("upstream", upstream.into()), ("path", path.into())]);
    rule.put_in("handler", "proxy", proxy, &[]);
    Some(true)
}

/// A handler that redirects or answers; whether it says all.
fn answer(
    status: u16,
    target: impl FnOnce() -> Option<String>,
    rule: &mut DraftKeys,
) -> Option<bool> {
    if let 301 | 302 | 303 | 307 | 308 = status {
        let target = target().filter(|it| leads(it))?;
        let is_whole = target.contains("${uri}") || target.contains('?');
        rule.put_in("handler", "redirect", target, &[]);
        rule.put_in("handler", "status", TomlItem::Count(status.into()), &[]);
        return Some(is_whole);
    }
    let respond = TomlItem::table([("status", TomlItem::Count(status.into()))]);
    rule.put_in("handler", "respond", respond, &[]);
    (400..=599).contains(&status).then_some(true)
}

fn redirect_match(from: &str, to: &str, status: u16, rule: &mut DraftKeys) -> Option<bool> {
    let regex = words::expression(from, false)?;
    rule.matching(vec![("path_regex".to_owned(), regex.clone().into())]);
    answer(status, || template(to, &regex), rule)
}

/// `Redirect` of a path and all below it.
fn redirect_prefix(from: &str, to: &str, status: u16, rule: &mut DraftKeys) -> Option<bool> {
    let path = from.strip_suffix('/').unwrap_or(from);
    if !from.starts_with('/') {
        return None;
    }
    if path.is_empty() && to.ends_with('/') && to.contains("://") {
        let to = to.strip_suffix('/').unwrap_or(to).to_owned();
        return answer(status, || Some(template(&to, "")? + "${uri}"), rule);
    }
    // The rest follows behind a slash that one of the two has.
    let escaped = words::escape(path);
    let has_path = to
        .split_once("://")
        .is_none_or(|(_, rest)| rest.contains('/'));
    let (regex, group) = match (to.ends_with('/'), has_path) {
        (true, _) => (format!("^{escaped}(?:/(.*))?$"), "${1}"),
        (false, true) => (format!("^{escaped}(/.*)?$"), "${1}"),
        (false, false) => (format!("^{escaped}(?:/(.*))?$"), "/${1}"),
    };
    let regex = words::expression(&regex, false)?;
    rule.matching(vec![("path_regex".to_owned(), regex.into())]);
    answer(status, || Some(template(to, "")? + group), rule)
}
