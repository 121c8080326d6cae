//! What answers: PHP, CGI programs and back ends.

use htaccess::is_php;

use super::ApacheLine;
use super::access::{Admission, admission};
use super::lines::is_left_to_rules;
use super::sections::{Area, Roots};
use super::site::{HostWork, Shield};
use crate::Fate;
use crate::draft::{DraftKeys, TomlItem, member};
use crate::words;

/// An area, of files with these names alone where there are some. They go by where they lie, not by
/// the path: rewriting may have led there.
fn of_files(area: &Area, names: Option<Vec<String>>, roots: &Roots) -> Area {
    let mut area = area.clone();
    let Some(mut names) = names else {
        return area;
    };
    let directory = area.prefix.as_deref().and_then(|it| roots.directory_of(it));
    if let Some(directory) = directory.and_then(|it| words::glob(&it)) {
        area.prefix = None;
        names = names.iter().map(|it| format!("{directory}/{it}")).collect();
    }
    area.file = Some(("file", TomlItem::one_or_list(names)));
    area
}

/// A `proxy` of these, with the `Host` that the server sees.
pub(super) fn proxy_to(mut members: Vec<(String, TomlItem)>, keeps_host: bool) -> TomlItem {
    if !keeps_host {
        members.push(member("host", "upstream"));
    }
    TomlItem::Table(members)
}

impl<'a> HostWork<'_, 'a> {
    /// A rule for an area.
    fn rule(&self, area: &Area) -> Option<DraftKeys> {
        Some(DraftKeys::rule(area.members(&[])?, &[]))
    }

    /// PHP and CGI programs; what takes them away, unless the engine does that.
    pub(super) fn programs(&mut self, lines: &[&'a ApacheLine], area: &Area, has_engine: bool) {
        for line in lines {
            let is_cgi = line.first().eq_ignore_ascii_case("cgi-script");
            if has_engine && !is_left_to_rules(line) && !is_cgi {
                continue;
            }
            let (kind, names) = match line.name.as_str() {
                "sethandler" => (line.first(), None),
                "addhandler" | "addtype" => {
                    let names = line
                        .words
                        .iter()
                        .skip(1)
                        .filter_map(|it| words::glob(it.trim_start_matches('.')));
                    (
                        line.first(),
                        Some(names.map(|it| format!("*.{it}")).collect::<Vec<_>>()),
                    )
                }
                "php_admin_flag" | "php_flag"
                    if line.first() == "engine" && !line.word(1).eq_ignore_ascii_case("on") =>
                {
                    self.without_programs(line, area);
                    continue;
                }
                _ => continue,
            };
            if names.as_ref().is_some_and(Vec::is_empty)
                || (line.name == "addtype" && !is_php(kind.to_ascii_lowercase().as_bytes()))
            {
                continue;
            }
            self.program(line, kind, area, names);
        }
    }

    fn without_programs(&mut self, line: &ApacheLine, area: &Area) {
        self.apache.ledger.say(
            line.id,
            Fate::Carried,
            "no program runs there: its source is not sent either",
        );
        if let Some(mut rule) = self.rule(area) {
            rule.put_in("handler", "static", true, &[line.id]);
            self.first.push(rule);
        }
    }

    fn program(&mut self, line: &ApacheLine, kind: &str, area: &Area, names: Option<Vec<String>>) {
        const NO_PROCESS: &str = "PHP runs in no process of ours: import with `--own-pools`, or name php-fpm's socket by `fastcgi`";
        let ledger = self.apache.ledger;
        let lower = kind.to_ascii_lowercase();
        let target = kind
            .split_once(':')
            .filter(|(word, _)| word.eq_ignore_ascii_case("proxy"))
            .map(|(_, rest)| rest);
        let fastcgi = target.and_then(fastcgi_address);
        let names = match fastcgi.is_some() && area.file.is_none() {
            true => Some(names.unwrap_or_else(|| vec!["*.php".to_owned()])),
            false => names,
        };
        let is_fcgid = lower.contains("fcgi")
            && lower.ends_with("-script")
            && names.iter().flatten().any(|name| name.contains("php"));
        let is_php = is_fcgid || is_php(lower.as_bytes());
        let area = &of_files(area, names, &self.roots);
        let Some(mut rule) = self.rule(area) else {
            return ledger.lost(line.id, "which files it is for is not known: write a rule");
        };
        let has_files = self.roots.has_files();
        match (lower.as_str(), fastcgi) {
            ("none" | "default-handler" | "text/html" | "text/plain", _) => {
                return self.without_programs(line, area);
            }
            ("server-status" | "server-info", _) => {
                ledger.differs(line.id, "figures are in the format of Prometheus");
                rule.put_in("handler", "metrics", "prometheus", &[line.id]);
            }
            (kind, _) if kind.contains("httpd-php-source") => {
                return ledger.say(line.id, Fate::Refused, "sources of programs are not sent");
            }
            _ if !has_files => return ledger.idle(line.id, "no site has files there"),
            (_, Some(address)) => self.fastcgi(line, address, &mut rule),
            _ if is_php && self.apache.options.own_pools => {
                let note = "PHP runs in a pool of the gateway's: give the site a `user`";
                ledger.differs(line.id, note);
                rule.put_in("handler", "php", true, &[line.id]);
            }
            _ if is_php => return ledger.lost(line.id, NO_PROCESS),
            ("cgi-script", _) => {
                ledger.differs(line.id, "run as the site's `user`");
                rule.put_in("handler", "cgi", true, &[line.id]);
            }
            _ => {
                let why = "such a handler has no counterpart: write a rule";
                ledger.lost(line.id, why);
                return self.close(area, why, line);
            }
        }
        self.main.push(rule);
    }

    /// PHP at the address of a FastCGI server, or in a pool of ours.
    fn fastcgi(&self, line: &ApacheLine, address: String, rule: &mut DraftKeys) {
        self.apache.ledger.carried(line.id);
        if self.apache.options.own_pools {
            rule.put_in("handler", "php", true, &[line.id]);
            rule.pool_at = Some((address, line.id));
        } else {
            rule.put_in("handler", "fastcgi", address, &[line.id]);
        }
    }

    /// `ProxyPass` and what goes with it.
    pub(super) fn proxies(&mut self, lines: &[&'a ApacheLine], area: &Area) {
        let keeps_host = self.keeps_host(lines);
        for line in lines
            .iter()
            .filter(|line| line.name == "proxypass" || line.name == "proxypassmatch")
        {
            let ledger = self.apache.ledger;
            let is_regex = line.name == "proxypassmatch";
            let (from, to) = match area
                .prefix
                .as_deref()
                .filter(|_| line.words.len() == 1 || line.word(1).contains('='))
            {
                Some(prefix) => (prefix, line.first()),
                None => (line.first(), line.word(1)),
            };
            let mut rule = DraftKeys::default();
            let made = match is_regex {
                true => self.forward_regex(line, from, to, keeps_host, &mut rule),
                false => self.forward(line, from, to, keeps_host, &mut rule),
            };
            rule.note(&[line.id]);
            match made {
                Ok(()) => {
                    ledger.carried(line.id);
                    let is_exempt = to == "!";
                    if fastcgi_address(to).is_none() {
                        let path = words::escape(from.trim_end_matches('/'));
                        let shield = Shield {
                            regex: match is_regex {
                                true => from.to_owned(),
                                false => format!("^{path}(?:/|$)"),
                            },
                            forwards: (!is_exempt).then_some(self.first.len()),
                            id: line.id,
                        };
                        // A location's come before those of the virtual host.
                        let at = if area.is_whole() {
                            self.shields.len()
                        } else {
                            0
                        };
                        self.shields.insert(at, shield);
                    }
                    match rule.get("match").filter(|_| is_exempt) {
                        Some(members) => {
                            let from = if area.is_whole() { self.first.len() } else { 0 };
                            self.exempt.push((from, members.clone()));
                            self.draft.keys.note(&[line.id]);
                        }
                        None => self.first.push(rule),
                    }
                }
                Err(why) => {
                    ledger.lost(line.id, why);
                    let area = match is_regex {
                        true => Area {
                            regex: words::expression(from, false),
                            ..Area::default()
                        },
                        false => Area::below(from),
                    };
                    self.close(&area, why, line);
                }
            }
        }
    }

    /// Leaves out of what is forwarded what is not.
    pub(super) fn leave_to_files(&mut self) {
        let is_proxy = |rule: &DraftKeys| rule.get("handler").is_some_and(|it| it.has("proxy"));
        for (at, rule) in self
            .first
            .iter_mut()
            .enumerate()
            .filter(|(_, it)| is_proxy(it))
        {
            let exempt = self.exempt.iter().filter(|(from, _)| *from <= at);
            let nots: Vec<TomlItem> = exempt.map(|(_, it)| it.clone()).collect();
            if nots.is_empty() {
                continue;
            }
            let mut members = match rule.get("match") {
                Some(TomlItem::Table(members)) => members.clone(),
                _ => Vec::new(),
            };
            members.push(member("not", TomlItem::List(nots)));
            rule.matching(members);
        }
    }

    pub(super) fn keeps_host(&self, lines: &[&ApacheLine]) -> bool {
        let said = lines
            .iter()
            .rev()
            .chain(self.apache.global.iter().rev())
            .find(|it| it.name == "proxypreservehost");
        said.iter()
            .for_each(|line| self.apache.ledger.carried(line.id));
        said.is_some_and(|line| line.is_on())
    }

    fn forward(
        &mut self,
        line: &ApacheLine,
        from: &str,
        to: &str,
        keeps_host: bool,
        rule: &mut DraftKeys,
    ) -> Result<(), &'static str> {
        let path = from.trim_end_matches('/');
        let area = Area::below(from);
        let members = area.members(&[]).ok_or("its path is not known")?;
        rule.matching(members.clone());
        if to == "!" {
            return Ok(());
        }
        if let Some(address) = fastcgi_address(to) {
            if self.roots.root.is_none() {
                return Err("php-fpm is asked for files of a `root`, and there is none");
            }
            let file = [member("file", "*.php")];
            rule.matching(members.into_iter().chain(file).collect());
            self.fastcgi(line, address, rule);
            return Ok(());
        }
        const UNKNOWN: &str = "where it forwards to is not known: write `proxy`";
        let (upstream, target) = self.known_upstream(to).ok_or(UNKNOWN)?;
        let mut proxy = vec![member("upstream", upstream)];
        let target = target.trim_end_matches('/');
        if target != path {
            let parts = [("strip_prefix", path), ("add_prefix", target)];
            let parts = parts.iter().filter(|(_, path)| !path.is_empty());
            proxy.extend(parts.map(|(name, path)| member(name, *path)));
        }
        rule.put_in("handler", "proxy", proxy_to(proxy, keeps_host), &[]);
        Ok(())
    }

    /// The upstream and the path of a URL; none where it is a balancer without servers.
    pub(super) fn known_upstream(&self, to: &str) -> Option<(String, String)> {
        let (upstream, path) = upstream(to)?;
        let title = format!("[upstreams.{}]", config::quote(&upstream));
        let mut tables = self.shared.tables.iter();
        let is_known = upstream.contains(':') || tables.any(|(known, _)| *known == title);
        is_known.then_some((upstream, path))
    }

    fn forward_regex(
        &mut self,
        line: &ApacheLine,
        from: &str,
        to: &str,
        keeps_host: bool,
        rule: &mut DraftKeys,
    ) -> Result<(), &'static str> {
        const UNKNOWN: &str =
            "an expression with a URL that is put together: write a rule with `path_regex`";
        let regex = words::expression(from, false).ok_or(UNKNOWN)?;
        rule.matching(vec![member("path_regex", regex.clone())]);
        if to == "!" {
            return Ok(());
        }
        if let Some(address) = fastcgi_address(to).filter(|_| self.roots.root.is_some()) {
            let globs = words::globs(from).ok_or(UNKNOWN)?;
            let names = globs
                .texts
                .into_iter()
                .map(|it| it.replace("/*", "*"))
                .collect();
            rule.matching(vec![member("file", TomlItem::one_or_list(names))]);
            self.fastcgi(line, address, rule);
            return Ok(());
        }
        let (upstream, path) = self.known_upstream(to).ok_or(UNKNOWN)?;
        let path = super::rewriting::template(&path, &regex)
            .filter(|it| it.starts_with('/'))
            .ok_or(UNKNOWN)?;
        let proxy = vec![member("upstream", upstream), member("path", path)];
        rule.put_in("handler", "proxy", proxy_to(proxy, keeps_host), &[]);
        Ok(())
    }

    /// `<Proxy>`: the servers of a balancer, and who may come to what is forwarded there.
    pub(super) fn proxied(
        &mut self,
        section: &'a ApacheLine,
        children: &[&'a ApacheLine],
        all: &[&'a ApacheLine],
    ) {
        self.balancer(section, children);
        let ledger = self.apache.ledger;
        let mut admission = admission(children, ledger);
        if admission.is_none() && section.restricts() {
            let why = "who may come in there is not known";
            admission = Some(Admission::closed(why));
        }
        let Some(admission) = admission.filter(|it| !it.is_open()) else {
            return;
        };
        ledger.carried(section.id);
        let url = section.first().split(['*', '?', '[']).next();
        let url = url.filter(|_| section.name == "proxy").unwrap_or_default();
        let lines = |within: &'a ApacheLine| match within.name.as_str() {
            "location" => within.children.iter().flatten().collect::<Vec<_>>(),
            _ => vec![within],
        };
        for outer in all {
            for line in lines(outer) {
                let last = line.words.iter().find(|word| word.contains("://"));
                let is_meant = last.is_some_and(|to| to.contains(url) || url.contains(&**to));
                let area = match line.name.as_str() {
                    "proxypass" if outer.name == "location" => Area::below(outer.first()),
                    "proxypass" => Area::below(line.first()),
                    "proxypassmatch" => Area::default(),
                    "rewriterule" if line.words.last().is_some_and(|it| it.contains('P')) => {
                        Area::default()
                    }
                    _ => continue,
                };
                if is_meant {
                    self.admissions.retain(|(known, ..)| *known != area);
                    self.admissions
                        .push((area, admission.clone(), children.to_vec()));
                }
            }
        }
    }

    fn balancer(&mut self, section: &'a ApacheLine, children: &[&'a ApacheLine]) {
        let apache = self.apache;
        let Some(name) = section
            .first()
            .strip_prefix("balancer://")
            .and_then(words::host)
        else {
            return apache.bury(
                section,
                Fate::NotNeeded,
                "only sites forward, and nobody is a client's proxy",
            );
        };
        apache.ledger.carried(section.id);
        let mut servers = Vec::new();
        for line in children {
            let server = (line.name == "balancermember")
                .then(|| upstream(line.first()))
                .flatten();
            match server.and_then(|(url, _)| url.strip_prefix("http://").map(str::to_owned)) {
                Some(server) => {
                    apache.ledger.carried(line.id);
                    servers.push(server);
                }
                None => apache.ledger.say_last(
                    line.id,
                    Fate::NotCarried,
                    "servers are addresses: write `[upstreams.NAME]`",
                ),
            }
        }
        let title = format!("[upstreams.{}]", config::quote(&name));
        if !servers.is_empty() && !self.shared.tables.iter().any(|(known, _)| *known == title) {
            self.shared
                .table(title)
                .put("servers", TomlItem::texts(servers), &[section.id]);
        }
    }
}

/// The address of a FastCGI server in a URL of Apache's.
fn fastcgi_address(text: &str) -> Option<String> {
    if let Some((path, rest)) = text.split_once('|').filter(|_| text.starts_with("unix:")) {
        return words::server(path, "").filter(|_| rest.starts_with("fcgi:"));
    }
    let rest = text.strip_prefix("fcgi://")?;
    words::server(rest.split('/').next()?, "9000").filter(|it| !it.starts_with("unix:"))
}

/// The upstream of a URL as `proxy` has it, and the path.
pub(super) fn upstream(text: &str) -> Option<(String, String)> {
    if let Some((path, rest)) = text.split_once('|').filter(|_| text.starts_with("unix:")) {
        let behind = rest.split_once("://")?.1;
        let target = behind.find('/').and_then(|at| behind.get(at..));
        return Some((
            words::server(path, "")?,
            target.unwrap_or_default().to_owned(),
        ));
    }
    let (scheme, rest) = text.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '$']).unwrap_or(rest.len()));
    let plain = !path.contains(['?', '#', '%', ' ']) && !path.contains("//");
    match scheme {
        "http" | "ws" | "https" | "wss" if plain => {
            let is_tls = ["https", "wss"].contains(&scheme);
            let (host, port) = match authority.rsplit_once(':') {
                Some((host, port)) if !port.ends_with(']') => (host, port),
                _ => (authority, if is_tls { "443" } else { "80" }),
            };
            let address = words::address(host, port)?;
            Some((
                format!("{}://{address}", if is_tls { "https" } else { "http" }),
                path.to_owned(),
            ))
        }
        "balancer" if plain => Some((words::host(authority)?, path.to_owned())),
        _ => None,
    }
}
