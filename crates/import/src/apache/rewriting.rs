//! `Redirect` and `RewriteRule`, as rules that redirect and rewrite.
//!
//! The idea: a rule of Apache's is carried where all its conditions are what a `match` tells; one
//! that forbids and has others forbids whatever they say.

use htaccess::words::rewrite_arguments;

use super::ApacheLine;
use super::conditions::{Conditions, conditions};
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
    pub(super) fn all(mut self, lines: &[&'a ApacheLine]) {
        let is_on = lines
            .iter()
            .rev()
            .find(|line| line.name == "rewriteengine")
            .is_some_and(|line| line.is_on());
        let mut asked: Vec<&'a ApacheLine> = Vec::new();
        for line in lines {
            let ledger = self.work.apache.ledger;
            match line.name.as_str() {
                "redirect" | "redirectpermanent" | "redirecttemp" | "redirectmatch" => {
                    self.redirect(line)
                }
                "fallbackresource" => self.fallback(line),
                "rewriteengine" => ledger.carried(line.id),
                "rewritecond" | "rewriterule" if !is_on => {
                    ledger.idle(line.id, "`RewriteEngine` is not on")
                }
                "rewritecond" => asked.push(line),
                "rewriterule" => {
                    self.rule(line, &asked);
                    asked.clear();
                }
                _ => {}
            }
        }
    }

    fn redirect(&mut self, line: &'a ApacheLine) {
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
        let made = match line.name == "redirectmatch" {
            true => self.redirect_match(from, to, status, &mut rule),
            false => redirect_prefix(from, to, status, &mut rule),
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
                self.work.early.push(rule);
            }
            None => ledger.lost(line.id, UNKNOWN),
        }
    }

    fn redirect_match(
        &self,
        from: &str,
        to: &str,
        status: u16,
        rule: &mut DraftKeys,
    ) -> Option<bool> {
        let regex = words::expression(from, false)?;
        rule.matching(vec![("path_regex".to_owned(), regex.clone().into())]);
        answer(status, || template(to, &regex), rule)
    }

    /// The path that all of a directory's rules begin with.
    fn base(&self) -> Option<&str> {
        self.work
            .in_directory
            .then(|| self.area.prefix.as_deref().unwrap_or_default())
    }

    fn regex(&self, pattern: &str, folds: bool) -> Option<String> {
        let pattern = match self.base() {
            None => pattern.to_owned(),
            Some(base) => {
                let base = words::escape(base);
                match pattern.strip_prefix('^') {
                    Some(rest) => format!("^{base}/{rest}"),
                    None => format!("^{base}/.*?(?:{pattern})"),
                }
            }
        };
        words::expression(&pattern, folds)
    }

    fn rule(&mut self, line: &'a ApacheLine, asked: &[&'a ApacheLine]) {
        const UNKNOWN: &str = "a condition, a flag or a variable of it has no counterpart: write `rewrite`, `redirect` or a script";
        let ledger = self.work.apache.ledger;
        let ids: Vec<usize> = asked.iter().chain([&line]).map(|it| it.id).collect();
        let parsed = RewriteLine::read(line);
        let regex = parsed
            .as_ref()
            .and_then(|it| self.regex(&it.pattern, it.has(&["NC", "nocase"])));
        let conditions = conditions(asked);
        let is_known = !conditions.is_unknown;
        let is_made = match (&parsed, regex.filter(|_| is_known)) {
            (Some(parsed), Some(regex)) => self.written(line, &ids, parsed, &regex, conditions),
            _ => false,
        };
        if is_made {
            return;
        }
        ids.iter().for_each(|id| ledger.lost(*id, UNKNOWN));
        if let Some(parsed) = parsed.filter(RewriteLine::forbids) {
            self.forbid_all(line, &parsed.pattern);
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
        let is_any = ANY.contains(&parsed.pattern.as_str());
        let is_plain = redirect.is_none() && !parsed.forbids() && !parsed.has(&["G", "gone"]);
        if conditions.is_plain_http {
            let is_key = redirect.is_some() && target.starts_with("https://") && self.work.is_tls;
            if is_key {
                differs("answered 308 by `tls = { redirect = true }`");
                let keys = &mut self.work.draft.keys;
                keys.put_in("tls", "redirect", TomlItem::Flag(true), &[line.id]);
            }
            return is_key;
        }
        let is_front = conditions.unless.len() == 2 && is_any && is_plain;
        if is_front && self.front_controller(line, target) {
            ids.iter().for_each(|id| ledger.carried(*id));
            return true;
        }
        if is_plain && target == "-" {
            differs(
                "what is left as it is needs no rule; variables and types are `env` and `files.types`",
            );
            return true;
        }
        let unless = conditions.unless.clone();
        let mut rule = DraftKeys::default();
        let made = match redirect {
            _ if parsed.forbids() => {
                rule.put("deny", "all", &[]);
                unless.is_empty().then_some(true)
            }
            _ if parsed.has(&["G", "gone"]) => answer(410, || None, &mut rule),
            Some(status) if unless.is_empty() => parsed.redirected(status, regex, &mut rule),
            Some(_) => None,
            None if parsed.has(&["P", "proxy"]) => self.forwarded(target, regex, &mut rule),
            None => self.entry(parsed, regex, &unless, &mut rule),
        };
        let members = conditions.with_path((!is_any || target.contains('$')).then_some(regex));
        let (Some(is_exact), Some(members)) = (made, members) else {
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

    /// It is not known whom a rule forbids: whatever its expression finds is closed.
    fn forbid_all(&mut self, line: &'a ApacheLine, pattern: &str) {
        let why = "it is not known whom a rule with `[F]` keeps out";
        let regex = self
            .regex(pattern, true)
            .filter(|_| !ANY.contains(&pattern) && self.area.prefix.is_none());
        match regex {
            Some(regex) => {
                let area = Area {
                    regex: Some(regex),
                    ..Area::default()
                };
                self.work.close(&area, why, line);
            }
            None => self.work.close(self.area, why, line),
        }
    }

    fn forwarded(&self, target: &str, regex: &str, rule: &mut DraftKeys) -> Option<bool> {
        let (scheme, rest) = target.split_once("://")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_tls = match scheme {
            "http" | "ws" => false,
            "https" | "wss" => true,
            _ => return None,
        };
        let (host, port) = authority
            .rsplit_once(':')
            .unwrap_or((authority, if is_tls { "443" } else { "80" }));
        let address = words::address(host, port)?;
        let upstream = format!("{}://{address}", if is_tls { "https" } else { "http" });
        let path = template(path, regex)?;
        let path = if path.is_empty() {
            "/".to_owned()
        } else {
            path
        };
        let proxy = TomlItem::table([("upstream", upstream.into()), ("path", path.into())]);
        rule.put_in("handler", "proxy", proxy, &[]);
        Some(true)
    }

    fn entry(
        &mut self,
        parsed: &RewriteLine,
        regex: &str,
        unless: &[&'static str],
        rule: &mut DraftKeys,
    ) -> Option<bool> {
        const KNOWN: [&str; 14] = [
            "L", "last", "END", "NC", "nocase", "QSA", "qsappend", "QSD", "PT", "NE", "B", "NS",
            "DPI", "",
        ];
        let target = parsed.target.as_str();
        if !parsed
            .flags
            .iter()
            .all(|flag| KNOWN.iter().any(|it| flag.eq_ignore_ascii_case(it)))
        {
            return None;
        }
        let whole = match (target.starts_with('/'), self.base()) {
            (true, _) => target.to_owned(),
            (false, Some(base)) => format!("{base}/{target}"),
            (false, None) => return None,
        };
        let (whole, drops) = match whole.strip_suffix('?') {
            Some(whole) => (whole.to_owned(), true),
            None => (whole, parsed.has(&["QSD"])),
        };
        let to = template(&whole, regex)?;
        if !to.starts_with('/')
            || to.starts_with("//")
            || to.contains(['#'])
            || (!unless.is_empty() && self.work.roots.root.is_none())
        {
            return None;
        }
        let mut entry = vec![
            ("from".to_owned(), regex.into()),
            ("to".to_owned(), to.clone().into()),
        ];
        let query = match (to.contains('?'), parsed.has(&["QSA", "qsappend"]), drops) {
            (true, true, _) => Some("append"),
            (false, _, true) => Some("drop"),
            _ => None,
        };
        entry.extend(query.map(|it| ("query".to_owned(), it.into())));
        if !unless.is_empty() {
            self.work.uses_unless = true;
            entry.push(("unless".to_owned(), TomlItem::texts(unless.iter().copied())));
        }
        rule.put("rewrite", TomlItem::List(vec![TomlItem::Table(entry)]), &[]);
        Some(true)
    }

    /// A program that all is given to that is no file: `try`, where it is all of a root.
    fn front_controller(&mut self, line: &ApacheLine, target: &str) -> bool {
        let whole = match (target.starts_with('/'), self.base()) {
            (false, Some(base)) => format!("{base}/{target}"),
            _ => target.to_owned(),
        };
        let is_file = words::file_path(&whole).is_some()
            && !whole.contains(['?', '%'])
            && !whole.ends_with('/')
            && !whole.contains("/.");
        is_file && self.tried(line, &whole)
    }

    fn tried(&mut self, line: &ApacheLine, file: &str) -> bool {
        let draft = &mut self.work.draft;
        let prefix = self.area.prefix.as_deref().unwrap_or_default();
        let tried = |last: &str| TomlItem::texts(["$path", "$path/", last]);
        if self.area.is_whole() && self.work.roots.root.is_some() {
            draft.keys.put("try", tried(file), &[line.id]);
            return true;
        }
        let mount = draft
            .mounts
            .iter_mut()
            .find(|(path, _)| path == prefix && self.area.names.is_none());
        match mount.and_then(|(path, keys)| Some((file.strip_prefix(path.as_str())?, keys))) {
            Some((below, keys)) if below.starts_with('/') => {
                keys.put("try", tried(below), &[line.id]);
                true
            }
            _ => false,
        }
    }

    fn fallback(&mut self, line: &'a ApacheLine) {
        let ledger = self.work.apache.ledger;
        let file = line.first().to_owned();
        if file.eq_ignore_ascii_case("disabled") {
            return ledger.idle(line.id, "nothing is tried last");
        }
        match self.front_controller(line, &file) {
            true => ledger.carried(line.id),
            false => ledger.lost(
                line.id,
                "what is tried last is a file of a root or a mount: write `rewrite` with `unless`",
            ),
        }
    }
}

/// A `RewriteRule`.
struct RewriteLine {
    pattern: String,
    target: String,
    flags: Vec<String>,
}

impl RewriteLine {
    fn read(line: &ApacheLine) -> Option<Self> {
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

    fn forbids(&self) -> bool {
        self.has(&["F", "forbidden"])
    }

    /// The status it redirects with, if it does.
    fn redirect(&self) -> Option<u16> {
        let said = self
            .flags
            .iter()
            .find_map(|flag| match flag.split_once('=') {
                Some((name, code)) if name.eq_ignore_ascii_case("R") => {
                    code.parse().ok().or(Some(302))
                }
                _ => None,
            });
        let is_redirect = self.has(&["R", "redirect"]);
        let leads_away = self.target.contains("://") && !self.has(&["P", "proxy"]);
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
