//! Finds what a configuration file names: includes, files to fetch, directories to look at.
//!
//! The idea: a shallow look that complains of nothing. Whatever is misplaced or mistyped is
//! skipped here and reported by the lowering, which meets the same value again.

use toml::de::{DeTable, DeValue};

use crate::include::Broken;
use crate::lower::names::Named;

/// Where distributions keep the certificates of authorities in one file.
pub const AUTHORITIES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Names as written in the file.
#[derive(Debug, Default)]
pub(crate) struct Mentions {
    /// Patterns of `include`, and what becomes of the others if a file is wrong.
    pub(crate) includes: Vec<(String, Broken)>,
    /// Files of passwords and groups, error pages and authorities of clients.
    pub(crate) data: Vec<String>,
    /// Files of scripts.
    pub(crate) scripts: Vec<String>,
    /// Directories of Ruby that scripts may require.
    pub(crate) libraries: Vec<String>,
    /// Files of maps.
    pub(crate) map_files: Vec<String>,
    /// Files that name clients.
    pub(crate) client_files: Vec<String>,
    pub(crate) country_files: Vec<String>,
    /// Document roots and their boundaries.
    pub(crate) directories: Vec<String>,
    /// Sockets and other files that are made where their directory is.
    pub(crate) sockets: Vec<String>,
    /// Sockets of FastCGI servers, which are there already.
    pub(crate) fastcgi_sockets: Vec<String>,
    /// Logs, made likewise.
    pub(crate) logs: Vec<String>,
    /// The control socket, which is one of the sockets as well.
    pub(crate) control: Option<String>,
    /// The file of kept changes of limits.
    pub(crate) limits_overrides: Option<String>,
    /// The file of last good versions.
    pub(crate) last_good: Option<String>,
    /// The user the server becomes.
    pub(crate) user: Option<String>,
    /// Whether rules want PHP, one is described, or a pool may name one.
    pub(crate) wants_php: bool,
    /// Users that programs of sites, maps and accounts run as.
    pub(crate) program_users: Vec<String>,
}

/// Everything `text` names.
pub(crate) fn find(text: &str) -> Mentions {
    let (document, _) = DeTable::parse_recoverable(text);
    let mut mentions = Mentions::default();
    let top = document.get_ref();
    let includes = elements(top, "include").flat_map(includes_of);
    mentions.includes.extend(includes);
    mentions.user = member(top, "user").and_then(text_of);
    let control = member(top, "control").and_then(DeValue::as_table);
    let control = control.and_then(|control| member(control, "socket"));
    mentions.control = control.and_then(text_of);
    mentions.sockets.extend(mentions.control.clone());
    mentions.limits_overrides = member(top, "limits_overrides").and_then(text_of);
    mentions.sockets.extend(mentions.limits_overrides.clone());
    mentions.last_good = member(top, "last_good").and_then(text_of);
    mentions.sockets.extend(mentions.last_good.clone());
    find_processes(top, &mut mentions);
    mentions.logs.extend(log_files(top));
    let listeners = elements(top, "listen").filter_map(DeValue::as_table);
    let addresses = listeners.filter_map(|table| member(table, "address")?.as_str());
    let sockets = addresses.filter_map(|address| address.strip_prefix("unix:"));
    mentions.sockets.extend(sockets.map(str::to_owned));
    mentions.data.extend(refusal_pages(top));
    mentions.data.extend(shed_pages(top));
    mentions.scripts.extend(scripts_of(top));
    mentions.libraries.extend(listed(top, "scripts", "lib"));
    for (table, key) in [("scripts", "cache_files"), ("tls", "script_files")] {
        mentions.directories.extend(listed(top, table, key));
    }
    mentions.wants_php = top.contains_key("php");
    find_levels(top, &mut mentions);
    find_maps(top, &mut mentions);
    find_accounts(top, &mut mentions);
    for site in elements(top, "sites").filter_map(DeValue::as_table) {
        let roots = rooted(site).flat_map(|it| [member(it, "root"), member(it, "within")]);
        mentions
            .directories
            .extend(roots.flatten().filter_map(text_of));
        let pages = member(site, "error_pages").and_then(DeValue::as_table);
        let pages = pages.into_iter().flat_map(|pages| pages.values());
        mentions
            .data
            .extend(pages.filter_map(|page| text_of(page.get_ref())));
        mentions.data.extend(refusal_pages(site));
        mentions.logs.extend(log_files(site));
        mentions.data.extend(auth_files(site));
        mentions.client_files.extend(client_files(site));
        mentions.data.extend(authorities_of_clients(site));
        let rules = || elements(site, "rules").filter_map(DeValue::as_table);
        mentions.logs.extend(rules().flat_map(log_files));
        mentions.data.extend(rules().flat_map(auth_files));
        mentions.client_files.extend(rules().flat_map(client_files));
        mentions.data.extend(rules().flat_map(refusal_pages));
        mentions.scripts.extend(scripts_of(site));
        mentions.scripts.extend(rules().flat_map(scripts_of));
        mentions.scripts.extend(rules().flat_map(handler_scripts));
        if rules().any(forwards_by_tls) {
            mentions.data.extend(AUTHORITIES.map(str::to_owned));
        }
        let sockets = rules().filter_map(fastcgi_socket);
        mentions.fastcgi_sockets.extend(sockets);
        let log = member(site, "log").and_then(DeValue::as_table);
        mentions.wants_php |=
            site.contains_key("pool") || rules().any(|rule| has_handler(rule, &["php"]));
        if rules().any(|rule| has_handler(rule, &["cgi", "php", "app"]))
            || log.is_some_and(|log| log.contains_key("error"))
        {
            let users = rooted(site).filter_map(|it| text_of(member(it, "user")?));
            mentions.program_users.extend(users);
        }
    }
    mentions
}

/// The patterns of an entry of `include`: a text, or a table with one or several.
fn includes_of(include: &DeValue<'_>) -> Vec<(String, Broken)> {
    let Some(table) = include.as_table() else {
        let pattern = text_of(include).map(|pattern| (pattern, Broken::Refuse));
        return pattern.into_iter().collect();
    };
    let broken = member(table, "broken").and_then(DeValue::as_str);
    let broken = broken.and_then(Broken::named).unwrap_or(Broken::first());
    let one = member(table, "files").and_then(text_of);
    let patterns = one
        .into_iter()
        .chain(elements(table, "files").filter_map(text_of));
    patterns.map(|pattern| (pattern, broken)).collect()
}

/// A site and its mounts.
fn rooted<'a, 'i>(site: &'a DeTable<'i>) -> impl Iterator<Item = &'a DeTable<'i>> {
    let mounts = elements(site, "mounts").filter_map(DeValue::as_table);
    mounts.chain([site])
}

/// What tenants and upstreams name.
fn find_levels(top: &DeTable<'_>, mentions: &mut Mentions) {
    for table in ["tenants", "upstreams"] {
        let named = member(top, table).and_then(DeValue::as_table);
        let levels = named.into_iter().flat_map(|named| named.values());
        for level in levels.filter_map(|level| level.get_ref().as_table()) {
            mentions.data.extend(refusal_pages(level));
            mentions.scripts.extend(scripts_of(level));
            let servers = elements(level, "servers");
            let sockets = servers.filter_map(socket_of);
            mentions.fastcgi_sockets.extend(sockets);
            let authorities = member(level, "tls")
                .into_iter()
                .flat_map(authorities_of_servers);
            mentions.data.extend(authorities);
        }
    }
}

fn find_maps(top: &DeTable<'_>, mentions: &mut Mentions) {
    let maps = member(top, "maps").and_then(DeValue::as_table);
    let maps = maps.into_iter().flat_map(|maps| maps.values());
    for map in maps.filter_map(|map| map.get_ref().as_table()) {
        let text = |key| member(map, key).and_then(text_of);
        mentions.program_users.extend(text("user"));
        mentions.map_files.extend(text("file"));
    }
}

/// Where our own processes keep what outlives them, and whom they become.
fn find_processes(top: &DeTable<'_>, mentions: &mut Mentions) {
    let recorder = member(top, "recorder").and_then(DeValue::as_table);
    let countries = recorder.and_then(|it| text_of(member(it, "countries")?));
    mentions.country_files.extend(countries);
    find_recorder(top, mentions);
    find_directories(top, mentions);
    find_fleet(top, mentions);
    let alerts = elements(top, "alerts").filter_map(DeValue::as_table);
    let users = alerts.filter_map(|alert| text_of(member(alert, "user")?));
    mentions.program_users.extend(users);
}

/// Where the recorder's directory is made, and whom it becomes.
fn find_recorder(top: &DeTable<'_>, mentions: &mut Mentions) {
    let recorder = member(top, "recorder").and_then(DeValue::as_table);
    let named = |key| text_of(member(recorder?, key)?);
    mentions.sockets.extend(named("directory"));
    mentions.program_users.extend(named("user"));
}

/// Whom the process becomes that asks the fleet's store.
fn find_fleet(top: &DeTable<'_>, mentions: &mut Mentions) {
    let fleet = member(top, "fleet").and_then(DeValue::as_table);
    let user = fleet.and_then(|it| text_of(member(it, "user")?));
    mentions.program_users.extend(user);
}

/// Where snapshots of directories are made, and whom their process becomes.
fn find_directories(top: &DeTable<'_>, mentions: &mut Mentions) {
    let directories = member(top, "directories").and_then(DeValue::as_table);
    let directories = directories.into_iter().flat_map(|it| it.values());
    for directory in directories.filter_map(|it| it.get_ref().as_table()) {
        let text = |key| member(directory, key).and_then(text_of);
        mentions.sockets.extend(text("snapshot"));
        mentions.program_users.extend(text("user"));
    }
}

fn find_accounts(top: &DeTable<'_>, mentions: &mut Mentions) {
    let accounts = member(top, "acme").and_then(DeValue::as_table);
    let accounts = accounts.into_iter().flat_map(|accounts| accounts.values());
    for account in accounts.filter_map(|account| account.get_ref().as_table()) {
        for (table, key) in [("dns", "user"), ("export", "owner")] {
            let table = member(account, table).and_then(DeValue::as_table);
            let user = table.and_then(|table| member(table, key)).and_then(text_of);
            mentions.program_users.extend(user);
        }
    }
}

fn member<'a, 'i>(table: &'a DeTable<'i>, key: &str) -> Option<&'a DeValue<'i>> {
    table.get(key).map(|value| value.get_ref())
}

fn elements<'a, 'i>(table: &'a DeTable<'i>, key: &str) -> impl Iterator<Item = &'a DeValue<'i>> {
    let array = member(table, key).and_then(DeValue::as_array);
    array
        .into_iter()
        .flat_map(|array| array.iter())
        .map(|element| element.get_ref())
}

fn text_of(value: &DeValue<'_>) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn fastcgi_socket(rule: &DeTable<'_>) -> Option<String> {
    let handler = member(rule, "handler")?.as_table()?;
    socket_of(member(handler, "fastcgi")?)
}

/// The path of a Unix socket that a server is written with, alone or in a table.
fn socket_of(server: &DeValue<'_>) -> Option<String> {
    let address = match server.as_table() {
        Some(table) => member(table, "address")?,
        None => server,
    };
    let path = address.as_str()?.strip_prefix("unix:")?;
    path.starts_with('/').then(|| path.to_owned())
}

fn log_files<'a>(level: &'a DeTable<'_>) -> impl Iterator<Item = String> + 'a {
    let log = member(level, "log").and_then(DeValue::as_table);
    let targets = ["access", "error"].map(|key| log.and_then(|log| text_of(member(log, key)?)));
    let targets = targets.into_iter().flatten();
    targets.filter(|target| !["", "-"].contains(&target.as_str()))
}

/// Whether a rule's handler is one of these.
fn has_handler(rule: &DeTable<'_>, words: &[&str]) -> bool {
    let handler = member(rule, "handler").and_then(DeValue::as_table);
    handler.is_some_and(|handler| words.iter().any(|word| handler.contains_key(*word)))
}

/// Pages of refusals that the limits of a level name.
fn refusal_pages<'a>(level: &'a DeTable<'_>) -> impl Iterator<Item = String> + 'a {
    let limits = elements(level, "limits").filter_map(DeValue::as_table);
    limits.filter_map(|limit| text_of(member(limit, "page")?))
}

/// Pages of those who are shed.
fn shed_pages<'a>(top: &'a DeTable<'_>) -> impl Iterator<Item = String> + 'a {
    let rules = elements(top, "shed").filter_map(DeValue::as_table);
    rules.filter_map(|rule| text_of(member(member(rule, "respond")?.as_table()?, "page")?))
}

/// The files of passwords, groups and secrets of a level.
fn auth_files<'a>(level: &'a DeTable<'_>) -> impl Iterator<Item = String> + 'a {
    let auth = member(level, "auth").and_then(DeValue::as_table);
    let files = ["file", "group_file"].into_iter();
    let files = files.filter_map(move |key| text_of(member(auth?, key)?));
    files.chain(link_secret(level))
}

/// Files of clients that a level keeps out: one alone, or among networks.
fn client_files(level: &DeTable<'_>) -> Vec<String> {
    let file = |one: &DeValue<'_>| text_of(member(one.as_table()?, "file")?);
    let alone = member(level, "deny").and_then(file);
    alone
        .into_iter()
        .chain(elements(level, "deny").filter_map(file))
        .collect()
}

fn authorities_of_clients(site: &DeTable<'_>) -> Option<String> {
    let tls = member(site, "tls")?.as_table()?;
    text_of(member(tls, "client_ca")?)
}

/// Files of authorities that the `tls` of an upstream needs.
fn authorities_of_servers(tls: &DeValue<'_>) -> Vec<String> {
    let own = tls.as_table().and_then(|tls| member(tls, "ca"));
    match own.and_then(text_of) {
        Some(own) => vec![own],
        None => AUTHORITIES.map(str::to_owned).to_vec(),
    }
}

/// The file of the secret that links to a console are signed with.
fn link_secret(rule: &DeTable<'_>) -> Option<String> {
    let handler = member(rule, "handler")?.as_table()?;
    text_of(member(
        member(handler, "console")?.as_table()?,
        "link_secret",
    )?)
}

/// Whether a rule forwards to a URL of `https`.
fn forwards_by_tls(rule: &DeTable<'_>) -> bool {
    let proxy = member(rule, "handler")
        .and_then(DeValue::as_table)
        .and_then(|handler| member(handler, "proxy"));
    let url = proxy.and_then(|proxy| match proxy.as_table() {
        Some(proxy) => member(proxy, "upstream")?.as_str(),
        None => proxy.as_str(),
    });
    url.is_some_and(|url| url.starts_with("https://"))
}

/// Files of the scripts that a level names, whatever the phase.
fn scripts_of<'a>(level: &'a DeTable<'_>) -> impl Iterator<Item = String> + 'a {
    let scripts = member(level, "scripts").and_then(DeValue::as_table);
    let phases = scripts.into_iter().flat_map(|scripts| scripts.values());
    phases.flat_map(|phase| script_files(phase.get_ref()))
}

/// Directories that a key of a table names.
fn listed(top: &DeTable<'_>, table: &str, key: &str) -> Vec<String> {
    let table = member(top, table).and_then(DeValue::as_table);
    let named = table.and_then(|table| member(table, key));
    named.map(script_files).unwrap_or_default()
}

/// Files of the scripts that answer, or name an upstream.
fn handler_scripts(rule: &DeTable<'_>) -> Vec<String> {
    let handler = member(rule, "handler").and_then(DeValue::as_table);
    let content = handler.and_then(|handler| member(handler, "script"));
    let proxy = handler.and_then(|handler| member(handler, "proxy")?.as_table());
    let set = proxy.and_then(|proxy| member(proxy, "script"));
    let scripts = content.into_iter().chain(set);
    scripts.flat_map(script_files).collect()
}

/// Files of a script, or of a list of them.
fn script_files(value: &DeValue<'_>) -> Vec<String> {
    let file = |script: &DeValue<'_>| match script.as_table() {
        Some(table) => text_of(member(table, "file")?),
        None => text_of(script),
    };
    match value.as_array() {
        Some(scripts) => scripts
            .iter()
            .filter_map(|script| file(script.get_ref()))
            .collect(),
        None => file(value).into_iter().collect(),
    }
}
