//! What answers: back ends and php-fpm, and what they are asked.

use super::condition::and;
use super::parse::Statement;
use super::place::{NginxPlace, PlaceKind};
use super::site::SiteWork;
use super::template::template;
use super::{Http, Scope};
use crate::draft::{DraftKeys, TomlItem, member};
use crate::words;

/// Fields about the client that the gateway sends by itself.
const OWN_FIELDS: [&str; 8] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-request-id",
    "upgrade",
    "connection",
    "accept-encoding",
    "content-length",
];

/// Variables that programs get by themselves.
const OWN_PARAMS: [&str; 22] = [
    "QUERY_STRING",
    "REQUEST_METHOD",
    "CONTENT_TYPE",
    "CONTENT_LENGTH",
    "SCRIPT_NAME",
    "SCRIPT_FILENAME",
    "REQUEST_URI",
    "DOCUMENT_URI",
    "DOCUMENT_ROOT",
    "SERVER_PROTOCOL",
    "REQUEST_SCHEME",
    "HTTPS",
    "GATEWAY_INTERFACE",
    "SERVER_SOFTWARE",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "REMOTE_USER",
    "SERVER_ADDR",
    "SERVER_PORT",
    "SERVER_NAME",
    "PATH_INFO",
    "PATH_TRANSLATED",
];

/// A handler that was made, or why none could be.
pub(super) type Made<T> = Result<T, &'static str>;

impl<'a> Http<'a> {
    /// The name of an upstream that is used, or the address itself, as `fastcgi` or `proxy` want it;
    /// none where an upstream has no server that can be asked.
    fn server(&self, text: &str, is_fastcgi: bool) -> Option<String> {
        if let Some(statement) = self.upstreams.get(text) {
            let mut lines = self.body(statement).into_iter();
            lines.find(|line| {
                line.name == "server" && !is_reserve(line) && address(line).is_some()
            })?;
            self.used.borrow_mut().insert((text.to_owned(), is_fastcgi));
            return Some(upstream_name(text, is_fastcgi));
        }
        words::server(text, "80")
    }

    /// `proxy_pass` of a location.
    pub(super) fn proxy(
        &self,
        line: &Statement,
        place: &NginxPlace<'a>,
        keys: &mut DraftKeys,
    ) -> Made<()> {
        const UNKNOWN: &str =
            "where it forwards to is not known: write `proxy` or a script that names the upstream";
        let scope = &place.scope;
        let url = line.first();
        let plain = url.strip_suffix("$request_uri").unwrap_or(url);
        let (scheme, rest) = plain.split_once("://").ok_or(UNKNOWN)?;
        let is_unix = rest.starts_with("unix:");
        let (authority, path) = match is_unix {
            true => rest
                .strip_prefix("unix:")
                .and_then(|it| it.rsplit_once(':'))
                .map_or((rest, ""), |_| {
                    let end = rest.rfind(':').unwrap_or(rest.len());
                    rest.split_at(end)
                }),
            false => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        };
        let path = path.strip_prefix(':').unwrap_or(path);
        if rest.contains('$') || !["http", "https"].contains(&scheme) {
            return Err(UNKNOWN);
        }
        let server = self.server(authority, false).ok_or(UNKNOWN)?;
        let is_named = self.upstreams.contains_key(authority);
        if is_named && scheme == "https" {
            return Err(
                "TLS with several servers is said with `tls` of `[upstreams.NAME]`: write it by hand",
            );
        }
        let upstream = match is_named || is_unix {
            true => server,
            false => match (scheme, authority.contains(':')) {
                ("https", false) => format!("https://{authority}:443"),
                (scheme, _) => format!("{scheme}://{server}"),
            },
        };
        let mut proxy = vec![member("upstream", upstream)];
        if !path.is_empty() && plain == url {
            self.moved(line, path, place, keys, &mut proxy)?;
        }
        if scheme == "https" {
            let note = "the back end's certificate is verified here";
            self.ledger.differs(line.id, note);
        }
        self.asked_fields(scope, keys, &mut proxy);
        let flag = |name, off: &str| {
            scope
                .last(name)
                .filter(|it| it.first() == off)
                .map(|it| it.id)
        };
        if let Some(id) = flag("proxy_buffering", "off") {
            self.ledger.carried(id);
            proxy.push(member("buffer_reply", false));
        }
        if scope
            .last("proxy_request_buffering")
            .is_none_or(|it| it.first() != "off")
        {
            proxy.push(member("buffer_request", true));
        }
        self.back_redirects(scope, &mut proxy);
        self.ledger.carried(line.id);
        keys.put_in("handler", "proxy", TomlItem::Table(proxy), &[line.id]);
        Ok(())
    }

    /// A path in the URL takes the place of the location's.
    fn moved(
        &self,
        line: &Statement,
        path: &str,
        place: &NginxPlace<'a>,
        keys: &mut DraftKeys,
        proxy: &mut Vec<(String, TomlItem)>,
    ) -> Made<()> {
        const UNKNOWN: &str = "the path of its URL takes the place of a path that is not known";
        let is_plain = path
            .bytes()
            .all(|byte| (b'!'..=b'~').contains(&byte) && !b"$?#%".contains(&byte));
        if !is_plain || path.contains("//") {
            return Err(UNKNOWN);
        }
        let prefix = place.pattern.as_str();
        match place.kind {
            PlaceKind::Regex | PlaceKind::Named => return Err(UNKNOWN),
            PlaceKind::Exact | PlaceKind::Prefix { .. } if prefix == path => return Ok(()),
            PlaceKind::Exact => {
                proxy.push(member("path", path));
                return Ok(());
            }
            PlaceKind::Prefix { .. } => {}
        }
        let (ours, theirs) = (prefix.strip_suffix('/'), path.strip_suffix('/'));
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            let mut add = |name: &str, path: &str| {
                if !path.is_empty() {
                    proxy.push((name.to_owned(), path.into()));
                }
            };
            add("strip_prefix", ours);
            add("add_prefix", theirs);
            return Ok(());
        }
        // One of the two ends within a name: what is behind the location's path follows at once.
        let regex =
            words::expression(&format!("^{}(.*)$", words::escape(prefix)), false).ok_or(UNKNOWN)?;
        let mut members = keys
            .get("match")
            .cloned()
            .unwrap_or(TomlItem::Table(Vec::new()));
        if let TomlItem::Table(members) = &mut members {
            members.retain(|(name, _)| name != "path");
            and(members, "path_regex", regex.into());
        }
        keys.replace("match", members);
        proxy.push(member("path", format!("{path}${{1}}")));
        let note = "the path of the URL takes the place of the location's, letter for letter, as in nginx: a `/` at \
            the end of one of them alone is seldom meant";
        self.ledger.differs(line.id, note);
        Ok(())
    }

    /// What the back end is told.
    fn asked_fields(
        &self,
        scope: &Scope<'a>,
        keys: &mut DraftKeys,
        proxy: &mut Vec<(String, TomlItem)>,
    ) {
        let mut host = Some("upstream".to_owned());
        for line in scope.all(&["proxy_set_header"]) {
            let name = line.first();
            let value = line.words.get(1).map_or("", String::as_str);
            let lower = name.to_ascii_lowercase();
            if lower == "host" {
                self.ledger.carried(line.id);
                host = match value {
                    "$host" | "$http_host" | "$host:$server_port" | "$http_host:$server_port" => {
                        None
                    }
                    "$proxy_host" => Some("upstream".to_owned()),
                    literal => {
                        let literal =
                            literal.replace("$server_name", self.current_host.borrow().as_str());
                        let known = words::host(&literal);
                        if known.is_none() {
                            let note =
                                "the client's host is sent: what is said of it is not known here";
                            self.ledger.differs(line.id, note);
                        }
                        known
                    }
                };
                continue;
            }
            if OWN_FIELDS.contains(&lower.as_str()) {
                self.ledger.idle(line.id, "the gateway does this by itself");
                continue;
            }
            let value = template(&self.settled(value), None);
            match value.filter(|_| config::is_changeable_field(name)) {
                Some(value) if value.is_empty() => {
                    self.ledger.carried(line.id);
                    self.taken_away(line, name, keys);
                }
                Some(value) => {
                    self.ledger.carried(line.id);
                    let field = TomlItem::table([(name, value.into())]);
                    keys.put_in("request_headers", "set", field, &[line.id]);
                }
                None => {
                    self.ledger.lost(
                        line.id,
                        "a variable in it is none here: the client's own is taken away; write `request_headers`",
                    );
                    self.taken_away(line, name, keys);
                }
            }
        }
        if let Some(host) = host {
            proxy.push(member("host", host));
        }
    }

    /// What the other server puts in its place, a client's own field never comes to a program.
    fn taken_away(&self, line: &Statement, name: &str, keys: &mut DraftKeys) {
        if config::is_changeable_field(name) {
            let names = TomlItem::texts([name]);
            keys.put_in("request_headers", "remove", names, &[line.id]);
        }
    }

    /// `proxy_redirect`, and fields that clients are not told.
    fn back_redirects(&self, scope: &Scope<'a>, proxy: &mut Vec<(String, TomlItem)>) {
        for line in scope.all(&["proxy_redirect"]) {
            match line.first() {
                "off" => {
                    self.ledger.carried(line.id);
                    proxy.push(member("proxy_redirect", false));
                }
                "default" => self.ledger.carried(line.id),
                _ => self.ledger.lost(
                    line.id,
                    "write it as `proxy_redirect = { location = { … } }`",
                ),
            }
        }
    }

    /// Fields of programs that clients are not told.
    pub(super) fn hidden_fields(&self, scope: &Scope<'a>, keys: &mut DraftKeys) {
        for line in scope.all(&["proxy_hide_header", "fastcgi_hide_header"]) {
            if config::is_changeable_field(line.first()) {
                self.ledger.carried(line.id);
                keys.put_in(
                    "reply_headers",
                    "remove",
                    TomlItem::texts([line.first()]),
                    &[line.id],
                );
            }
        }
    }

    /// `[upstreams.NAME]` of all that are used.
    pub(super) fn share_upstreams(&self, shared: &mut crate::draft::SharedDraft) {
        for (name, is_fastcgi) in self.used.borrow().iter() {
            if let Some(statement) = self.upstreams.get(name.as_str()) {
                let title = format!(
                    "[upstreams.{}]",
                    config::quote(upstream_name(name, *is_fastcgi))
                );
                self.upstream(statement, *is_fastcgi, shared.table(title));
            }
        }
        for (name, statement) in &self.upstreams {
            let mut used = self.used.borrow().iter().any(|(used, _)| used == name);
            used |= statement.block.is_none();
            if !used {
                self.bury(
                    statement,
                    crate::Fate::NotNeeded,
                    "nothing that is carried asks it",
                );
            }
        }
    }

    fn upstream(&self, statement: &'a Statement, is_fastcgi: bool, keys: &mut DraftKeys) {
        keys.note(&[statement.id]);
        self.ledger.carried(statement.id);
        let mut servers = Vec::new();
        let mut balance = None;
        for line in self.body(statement) {
            match line.name.as_str() {
                "server" => servers.extend(self.one_server(line, keys)),
                "least_conn" => {
                    self.ledger.carried(line.id);
                    balance = Some("least_requests");
                }
                "keepalive" => {
                    self.ledger.carried(line.id);
                    let count = line.first().parse().unwrap_or(16_u64).min(1_000);
                    keys.put("keepalive", count, &[line.id]);
                }
                "ip_hash" | "hash" | "random" | "sticky" => self.ledger.differs(
                    line.id,
                    "servers take turns: no client is kept at one of them",
                ),
                _ => self.ledger.idle(
                    line.id,
                    "servers that fail rest and come back by themselves",
                ),
            }
        }
        keys.put("servers", TomlItem::List(servers), &[]);
        if is_fastcgi {
            keys.put("protocol", "fastcgi", &[]);
        }
        if let Some(balance) = balance {
            keys.put("balance", balance, &[]);
        }
    }

    fn one_server(&self, line: &Statement, keys: &mut DraftKeys) -> Option<TomlItem> {
        if is_reserve(line) {
            let note = "only servers that are asked stand in `servers`: there is none in reserve";
            self.ledger.differs(line.id, note);
            return None;
        }
        let Some(address) = address(line) else {
            self.ledger.lost(line.id, "it is no address here");
            return None;
        };
        self.ledger.carried(line.id);
        keys.note(&[line.id]);
        let weight = line
            .words
            .iter()
            .find_map(|word| word.strip_prefix("weight="));
        let weight = weight
            .and_then(|it| it.parse::<u64>().ok())
            .filter(|weight| *weight > 1);
        Some(match weight {
            None => address.into(),
            Some(weight) => TomlItem::table([
                ("address", address.into()),
                ("weight", TomlItem::Count(weight.min(1_000))),
            ]),
        })
    }
}

/// Whether a server of an upstream is asked only when others are not there, or never.
fn is_reserve(line: &Statement) -> bool {
    line.words.iter().any(|it| it == "down" || it == "backup")
}

/// Where a server of an upstream is.
fn address(line: &Statement) -> Option<String> {
    words::server(line.first(), "80")
}

fn upstream_name(name: &str, is_fastcgi: bool) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = name
        .chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect();
    match is_fastcgi {
        true => format!("{name}-fastcgi"),
        false => name,
    }
}

/// What a program in a pool of ours is told: the client's fields by themselves, all else as `env`.
fn told(set: Vec<(String, TomlItem)>, keys: &mut DraftKeys) {
    for (name, value) in set {
        let field = name.strip_prefix("HTTP_").map(|it| it.replace('_', "-"));
        match field.filter(|it| config::is_changeable_field(it)) {
            None => keys.put_in("env", &name, value, &[]),
            Some(field) if value == TomlItem::from("") => {
                keys.put_in("request_headers", "remove", TomlItem::texts([field]), &[]);
            }
            Some(field) => {
                let field = TomlItem::table([(&*field, value)]);
                keys.put_in("request_headers", "set", field, &[]);
            }
        }
    }
}

impl<'a> SiteWork<'_, 'a> {
    /// `fastcgi_pass`, for files that the site finds.
    pub(super) fn fastcgi(
        &self,
        line: &Statement,
        scope: &Scope<'a>,
        keys: &mut DraftKeys,
    ) -> Made<()> {
        const UNKNOWN: &str = "where it forwards to is not known: write `fastcgi`";
        let http = self.http;
        let Some(root) = &self.root else {
            return Err("php-fpm is asked for files of a `root`, and there is none");
        };
        let has_port = line.first().contains(':') || http.upstreams.contains_key(line.first());
        let server = has_port.then(|| http.server(line.first(), true));
        let server = server.flatten().ok_or(UNKNOWN)?;
        let (mut set, mut foreign_root) = (Vec::new(), None);
        for param in scope.all(&["fastcgi_param"]) {
            let (name, value) = (param.first(), param.words.get(1).map_or("", String::as_str));
            if name == "SCRIPT_FILENAME" {
                foreign_root = self.foreign_root(param, value, root)?;
            } else if ["PHP_VALUE", "PHP_ADMIN_VALUE"].contains(&name) {
                let note = "settings of PHP belong into the pool's file, as `php_admin_value[NAME] = VALUE`: a \
                    process keeps them for whoever comes next";
                http.ledger.say(param.id, crate::Fate::Refused, note);
            } else if OWN_PARAMS.contains(&name) && (value.contains('$') || name != "HTTPS") {
                http.ledger
                    .idle(param.id, "programs are told that by themselves");
            } else if !config::is_variable_name(name) {
                http.ledger
                    .lost(param.id, "it cannot be a variable of a program here");
            } else if let Some(value) = template(&http.settled(value), None) {
                http.ledger.carried(param.id);
                if !(value.is_empty() && param.words.get(2).is_some()) {
                    keys.note(&[param.id]);
                    set.retain(|(known, _)| known != name);
                    set.push((name.to_owned(), value.into()));
                }
            } else {
                let note = "a variable in it is none here: write `params`";
                http.ledger.lost(param.id, note);
                if let Some(field) = name.strip_prefix("HTTP_") {
                    http.taken_away(param, &field.replace('_', "-"), keys);
                }
            }
        }
        let mut fastcgi = vec![member("address", server.clone())];
        if let Some(root) = foreign_root {
            fastcgi.push(member("root", root));
        }
        if http.options.own_pools {
            told(std::mem::take(&mut set), keys);
        }
        if !set.is_empty() {
            let params = TomlItem::table([("set", TomlItem::Table(set))]);
            fastcgi.push(member("params", params));
        }
        for (name, ours) in [
            ("fastcgi_request_buffering", "buffer_request"),
            ("fastcgi_buffering", "buffer_reply"),
        ] {
            if let Some(off) = scope.last(name).filter(|it| it.first() == "off") {
                http.ledger.carried(off.id);
                fastcgi.push((ours.to_owned(), TomlItem::Flag(false)));
            }
        }
        http.ledger.carried(line.id);
        if http.options.own_pools {
            keys.put_in("handler", "php", true, &[line.id]);
            keys.pool_at = Some((server, line.id));
        } else {
            let fastcgi = match fastcgi.len() {
                1 => server.into(),
                _ => TomlItem::Table(fastcgi),
            };
            keys.put_in("handler", "fastcgi", fastcgi, &[line.id]);
        }
        Ok(())
    }

    /// The root as php-fpm sees it, where that is another.
    fn foreign_root(&self, param: &Statement, value: &str, root: &str) -> Made<Option<String>> {
        const UNKNOWN: &str = "it runs one program whatever is asked for: write `try`, or a mount with the program in it";
        let rest = ["$fastcgi_script_name", "$uri", "$document_uri"];
        let before = rest.iter().find_map(|rest| value.strip_suffix(rest));
        let before = before.map(|it| it.trim_end_matches('/'));
        match before {
            Some("$document_root" | "$realpath_root") => {}
            Some(path) if path == root => {}
            Some(path) if words::file_path(path).is_some() => {
                self.http.ledger.carried(param.id);
                return Ok(Some(path.to_owned()));
            }
            None if value == "$request_filename" => {}
            _ => return Err(UNKNOWN),
        }
        self.http
            .ledger
            .idle(param.id, "it is the file that was found, always");
        Ok(None)
    }
}
