//! `[[sites]]`: hosts, root, files, settings and rules.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cgroup::{Enforcement, cgroup};
use super::conditions::SiteFiles;
use super::context::{Spot, problem};
use super::limits::{Level, Outer, judge_site, limits};
use super::mounts::mounts;
use super::plan::Plans;
use super::rewrite::{judge_unless, rewrites, warn_of_passed};
use super::rows;
use super::rule::rule;
use super::script;
use super::settings::{compress, settings};
use super::sharing::Sharing;
use super::table::Table;
use super::tenant::Tenants;
use super::tops::Tops;
use super::upstream::Upstreams;
use super::user::{Role, wrong_user};
use super::value::Value;
use super::{error_logs, files, handler, htaccess, tls, values};
use crate::alike::Alike;
use crate::keys;
use crate::model::{
    Cgroup, Compress, Condition, ErrorPage, Files, Handler, HostPattern, LogTarget, PhaseScripts,
    Rewrite, Root, Rule, Share, Site, SitePool, TryEntry,
};

/// What is taken for a program's source where nobody says otherwise.
const SOURCES: [&str; 12] = [
    "*.php", "*.phtml", "*.phps", "*.php3", "*.php4", "*.php5", "*.php7", "*.php8", "*.cgi",
    "*.pl", "*.py", "*.rb",
];

/// Where each host was first named.
type Hosts = HashMap<HostPattern, Spot>;

/// What a site takes from the levels above.
pub(crate) struct Around<'a> {
    pub(crate) log: &'a LogTarget,
    pub(crate) user: &'a str,
    pub(crate) tenants: &'a Tenants,
    pub(crate) plans: &'a Plans,
    pub(crate) enforcement: Enforcement,
    /// How many limits there are on the top level.
    pub(crate) limits: usize,
    pub(crate) scripts: &'a PhaseScripts,
}

/// Every site of every file.
pub(crate) fn lower_all(
    tops: &Tops<'_>,
    upstreams: &mut Upstreams,
    around: &Around<'_>,
) -> Vec<Site> {
    let values = tops.elements("sites", "`hosts = [\"*\"]` and `root = \"/var/www/html\"`");
    let (mut hosts, mut alike) = (Hosts::new(), Alike::default());
    let mut sharing = Sharing::default();
    let mut of_directories = HashSet::new();
    let sites = values.iter().filter_map(|value| {
        let has_rows = value.member("hosts").is_some_and(|hosts| hosts.is_table());
        let site = || site(value, upstreams, around, &mut hosts);
        let mut site = value.context.where_rows_are(has_rows, site)?;
        if let Some(rows) = &mut site.rows {
            rows.columns = value.context.columns.take();
        }
        rows::note(value, site.rows.as_deref(), &mut of_directories);
        sharing.note(value, &site, upstreams);
        alike.share(&mut site);
        Some((value, site))
    });
    let sites: Vec<_> = sites.collect();
    sharing.judge(tops.context);
    error_logs::judge(&sites);
    sites.into_iter().map(|(_, site)| site).collect()
}

/// Whether all that may have been a script was understood: otherwise its own mistake is told.
fn is_understood(
    table: &Table<'_>,
    scripts: &PhaseScripts,
    (rules, values): (&[Rule], &[Value<'_>]),
) -> bool {
    let is_lowered = |(rule, value): (&Rule, &Value<'_>)| {
        let scripts = value.member("scripts").is_none() || !rule.scripts.is_empty();
        scripts && (value.member("handler").is_none() || rule.handler.is_some())
    };
    (table.get("scripts").is_none() || !scripts.is_empty())
        && rules.len() == values.len()
        && rules.iter().zip(values).all(is_lowered)
}

fn site(
    value: &Value<'_>,
    upstreams: &mut Upstreams,
    around: &Around<'_>,
    hosts: &mut Hosts,
) -> Option<Site> {
    let table = value.table(&keys::SITE)?;
    let rows = rows::of_site(&table, around.plans);
    let root = (!rows::make(&table)).then(|| root(&table)).flatten();
    let rooted = rows::files(rows.as_ref(), rooted(&table));
    let log_table = table.table("log", &keys::SITE_LOG);
    let log = access_log(&log_table, around.log);
    let hosts = site_hosts(&table, hosts);
    let first_host = rows::first_host(rows.as_ref(), &hosts);
    let (tenants, enforcement) = (around.tenants, around.enforcement);
    let tenant = rows::whose(&table, &first_host, (tenants, around.plans), enforcement);
    let enforcement = Enforcement::of(&table, tenant.enforcement);
    let whose = (&*tenant.name, tenant.index, tenant.pool);
    upstreams.pools.begin(&table, whose, &first_host);
    let rule_values = table.list("rules");
    let compress = compress(&table.table("compress", &keys::COMPRESS));
    let numbered = rule_values.iter().zip(1..);
    let rules: Vec<_> = numbered
        .filter_map(|(value, number)| {
            rule(value, number, rooted, &compress, enforcement, upstreams)
        })
        .collect();
    let limits = limits(table.get("limits"), Level::Site(rooted));
    rows::judge(&table, &limits, (&rules, &rule_values));
    let outer = Outer {
        process: around.limits,
        tenant: tenant.limits,
    };
    judge_site(&table, outer, &limits, &rules, upstreams);
    let scripts = script::level(table.get("scripts"), script::Level::BeforeRules);
    let outer_scripts = [Some(around.scripts), tenant.scripts];
    judge_allow(&table, outer_scripts, &scripts, (&rules, &rule_values));
    let index = Arc::new(index(&table));
    let mounts = mounts(&table, &index, (&rules, &rule_values), upstreams);
    let htaccess = htaccess::of_site(&table, (&rules, &rule_values), upstreams);
    let says_server = htaccess.as_ref().is_some_and(|it| it.says_server());
    judge_answers(&table, (rooted, says_server), &rules, &rule_values);
    let (tried, rewrites) = asked_instead(&table, rooted, (&rules, &rule_values));
    let pool = upstreams.pools.end()?;
    judge_pool(&table, &rules, &pool);
    Some(Site {
        hosts,
        tenant: tenant.name,
        tenant_index: tenant.index,
        user: user(&table, &rules, around.user),
        has_own_user: rows.is_none() && table.get("user").is_some(),
        rows: rows.map(Box::new),
        cgroup: site_cgroup(&table, &rules, enforcement),
        pool: Arc::new(pool),
        root,
        mounts,
        htaccess,
        index,
        resolve: Arc::new(tried),
        slashes: table.choice("slashes"),
        encoded_slash: table.choice("encoded_slash"),
        underscore_fields: table.choice("underscore_fields"),
        files: Arc::new(site_files(&table.table("files", &keys::FILES), &compress)),
        compress: Arc::new(compress),
        record: table.flag("record"),
        error_pages: error_pages(&table),
        rewrites,
        settings: Arc::new(settings(&table, rooted)),
        error_log: error_log(&log_table, around.log),
        log,
        limits,
        scripts,
        tls: Arc::new(tls::of_site(&table)),
        rules,
    })
}

/// Whether a site has any files.
fn rooted(table: &Table<'_>) -> SiteFiles {
    match table.get("root").or(table.get("mounts")) {
        Some(_) => SiteFiles::Rooted,
        None => SiteFiles::Rootless,
    }
}

/// What a path is resolved to, and what is asked for in its place.
fn asked_instead(
    table: &Table<'_>,
    files: SiteFiles,
    rules: (&[Rule], &[Value<'_>]),
) -> (Vec<TryEntry>, Vec<Rewrite>) {
    let (tried, rewrites) = (resolve(table), rewrites(table, files));
    let of_rules = rules.0.iter().flat_map(|rule| &rule.rewrites);
    judge_unless(table, &tried, of_rules.chain(&rewrites));
    warn_of_passed(table, ("", &rewrites), rules);
    (tried, rewrites)
}

/// Refuses `allow` of `proxy` where no script of any level may name an upstream.
fn judge_allow(
    table: &Table<'_>,
    outer: [Option<&PhaseScripts>; 2],
    scripts: &PhaseScripts,
    (rules, values): (&[Rule], &[Value<'_>]),
) {
    let mut levels = outer.into_iter().flatten().chain([scripts]);
    let may_name =
        levels.any(PhaseScripts::may_name_upstreams) || rules.iter().any(Rule::may_name_upstreams);
    if !may_name && is_understood(table, scripts, (rules, values)) {
        values.iter().for_each(handler::refuse_allow);
    }
}

/// Where the site's records go.
fn access_log(table: &Table<'_>, around: &LogTarget) -> LogTarget {
    let own = table.get("access");
    let own = own.and_then(|value| values::log_target(&value));
    own.unwrap_or_else(|| around.clone())
}

/// The site's own error log, which is not the access log of all as well ([`error_logs`]).
fn error_log(table: &Table<'_>, access: &LogTarget) -> Option<String> {
    let value = table.get("error")?;
    let target = values::log_of_site(&value)?;
    match target {
        LogTarget::File(_) if target == *access => {
            value.report("`access` and `error` are one file");
            None
        }
        LogTarget::File(path) => Some(path),
        LogTarget::Off | LogTarget::Stdout => {
            let help = "leave it out for the error log of the process";
            value.report_help("`error` must be a file", help);
            None
        }
    }
}

/// Refuses a site that could answer nothing.
fn judge_answers(
    table: &Table<'_>,
    (files, says_server): (SiteFiles, bool),
    rules: &[Rule],
    values: &[Value<'_>],
) {
    warn_of_unreached(rules, values);
    let answered =
        rules.len() < values.len() || values.iter().any(|rule| rule.has_member("handler"));
    let says_root = table.has_misspelt("root");
    if files == SiteFiles::Rootless && !says_server && !says_root && !answered {
        let finding = problem(
            table.spot(),
            "the site has neither a `root` nor a rule with a `handler`",
        );
        table.context.report(
            finding
                .help("it could answer nothing; add one of them")
                .absence(),
        );
    }
}

/// The user of a site's programs. Whether there is such a user matters only where there are
/// programs, or a log that is made theirs; the server's user was looked at already.
fn user(table: &Table<'_>, rules: &[Rule], server: &str) -> String {
    let said = table.get("user").filter(|_| !rows::make(table));
    let Some(value) = said else {
        return server.to_owned();
    };
    let Some(name) = value.text() else {
        return server.to_owned();
    };
    let role = if rules.iter().any(starts_programs) {
        Role::Programs
    } else if table.get("log").is_some_and(|log| log.has_member("error")) {
        Role::ErrorLog
    } else {
        Role::Nobody
    };
    if let Some((message, help)) = wrong_user(value.context.sources, role, name) {
        value.report_help(message, help);
    }
    name.to_owned()
}

fn starts_programs(rule: &Rule) -> bool {
    rule.handler.as_ref().is_some_and(Handler::starts_programs)
}

/// Warns of rules below one that answers every request: the first with a handler ends the search.
fn warn_of_unreached(rules: &[Rule], values: &[Value<'_>]) {
    let answers_all =
        |rule: &Rule| rule.handler.is_some() && rule.conditions.iter().all(Condition::always_holds);
    let Some(at) = rules.iter().position(answers_all) else {
        return;
    };
    // A rule that could not be read has been reported, and the numbers of the others are not theirs.
    let (Some(rule), Some(value), true) = (
        rules.get(at),
        values.get(at + 1),
        rules.len() == values.len(),
    ) else {
        return;
    };
    let beyond = match values.len() - at - 2 {
        0 => "the rule is".to_owned(),
        1 => "the rule and the one below it are".to_owned(),
        more => format!("the rule and the {more} below it are"),
    };
    let name = &rule.name;
    let message = format!("{beyond} never reached: `{name}` above answers every request");
    let help =
        format!("put it above `{name}`, or say in the `match` of that which requests it is for");
    value.warn_help(message, help);
}

fn site_cgroup(table: &Table<'_>, rules: &[Rule], enforcement: Enforcement) -> Option<Box<Cgroup>> {
    let group = cgroup(table, enforcement);
    if let Some(value) = table.get("cgroup")
        && !rules.iter().any(starts_programs)
    {
        let message = "`cgroup` binds nothing: no rule of this site starts programs";
        let help = "it holds for what `cgi`, `php` and `app` start; a FastCGI server is limited where it is started";
        value.warn_help(message, help);
    }
    group
}

/// Tells of what `pool` says in vain.
fn judge_pool(table: &Table<'_>, rules: &[Rule], pool: &SitePool) {
    let mut handlers = rules.iter().filter_map(|rule| rule.handler.as_ref());
    let Some(value) = table.get("pool") else {
        return;
    };
    if !handlers.any(Handler::has_pool) {
        let message = "`pool` says nothing: no rule of this site has `php` or `app`";
        table.context.warn(problem(value.spot(), message));
    } else if pool.share == Share::User && table.get("cgroup").is_some() {
        value.report_help(
            "`share = \"user\"`: other sites use this pool, and the site's `cgroup` does not bind it",
            "leave `share` out, or put the `cgroup` on the tenant",
        );
    }
}

fn site_hosts(table: &Table<'_>, seen: &mut Hosts) -> Vec<HostPattern> {
    let list = table.required("hosts").filter(|_| !rows::make(table));
    let Some(list) = list else {
        return Vec::new();
    };
    let values = list.list().unwrap_or_default();
    if values.is_empty() && list.is_list() {
        list.report_help("the site has no hosts", "`\"*\"` is the default site");
    }
    let mut hosts = Vec::new();
    for value in values {
        let Some(pattern) = values::host_pattern(&value) else {
            continue;
        };
        match seen.get(&pattern) {
            Some(first) => {
                let name = value.text().unwrap_or_default();
                let finding = problem(value.spot(), format!("host `{name}` is named twice"));
                table
                    .context
                    .report(finding.other("first named here", first.clone()));
            }
            None => {
                seen.insert(pattern.clone(), value.spot());
                hosts.push(pattern);
            }
        }
    }
    hosts
}

/// The root that a site or a mount names, and its boundary.
pub(super) fn root(table: &Table<'_>) -> Option<Root> {
    let Some(named) = table.get("root") else {
        for name in ["within", "symlinks"] {
            if let Some(value) = table.get(name) {
                let finding = problem(
                    value.spot(),
                    format!("`{name}` says nothing without `root`"),
                );
                table.context.report(finding.absence());
            }
        }
        return None;
    };
    let symlinks = table.choice("symlinks");
    let boundary = table.get("within").map(|value| directory(&value));
    let path = directory(&named)?;
    let within = boundary.unwrap_or_else(|| Some(path.clone()))?;
    if !path.starts_with(&within) {
        let message = format!(
            "`root` ({}) does not lie beneath `within` ({})",
            path.display(),
            within.display()
        );
        named.report(message);
    }
    if within == Path::new("/") {
        let message = "this site may serve every file of the machine that the server can read";
        let help = "`within` is the directory that holds what the site may serve, and nothing else";
        let bounds = table.get("within").unwrap_or(named).spot();
        table.context.warn(problem(bounds, message).help(help));
    }
    Some(Root {
        path,
        within,
        symlinks,
    })
}

fn directory(value: &Value<'_>) -> Option<PathBuf> {
    let path = values::path(value)?;
    if let Some(why) = value.context.sources.directory_missing(&path) {
        value.report(format!("directory `{}`: {why}", path.display()));
    }
    // The path is as good as any for what else is checked.
    Some(path)
}

/// Names tried in a directory.
pub(super) fn index(table: &Table<'_>) -> Vec<String> {
    let Some(list) = table.get("index") else {
        return vec!["index.html".to_owned()];
    };
    let fits = |value: &Value<'_>| {
        let name = value.text()?;
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            value.report(format!(
                "{name:?} cannot be an index: it must be a file name without `/`, not hidden"
            ));
            return None;
        }
        Some(name.to_owned())
    };
    list.list()
        .unwrap_or_default()
        .iter()
        .filter_map(fits)
        .collect()
}

/// What a path is resolved to.
pub(super) fn resolve(table: &Table<'_>) -> Vec<TryEntry> {
    let Some(list) = table.get("try") else {
        return vec![TryEntry::Path, TryEntry::Directory];
    };
    let values = list.list().unwrap_or_default();
    if values.is_empty() && list.is_list() {
        list.report("`try` is empty: no path would be resolved to anything");
    }
    let mut entries = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let Some(entry) = try_entry(value) else {
            continue;
        };
        if matches!(entry, TryEntry::Status(_)) && index + 1 < values.len() {
            value.report("a status must come last in `try`: nothing is tried after it");
        }
        entries.push(entry);
    }
    entries
}

fn try_entry(value: &Value<'_>) -> Option<TryEntry> {
    let text = value.text()?;
    let clean = |path: &str| {
        !path.contains(['\0', '$']) && path.split('/').all(|part| ![".", ".."].contains(&part))
    };
    let entry = match (text, text.strip_prefix("$path"), text.strip_prefix('=')) {
        (_, Some(""), _) => Some(TryEntry::Path),
        (_, Some("/"), _) => Some(TryEntry::Directory),
        (_, Some(suffix), _)
            if suffix.starts_with('.') && !suffix.contains('/') && clean(suffix) =>
        {
            Some(TryEntry::Suffix(suffix.to_owned()))
        }
        (_, _, Some(status)) => {
            let status = status
                .parse()
                .ok()
                .filter(|status| (400..=599).contains(status));
            status.map(TryEntry::Status)
        }
        (file, None, _)
            if file.len() > 1 && file.starts_with('/') && !file.ends_with('/') && clean(file) =>
        {
            Some(TryEntry::Fixed(file.to_owned()))
        }
        _ => None,
    };
    if entry.is_none() {
        let help =
            "`$path`, `$path/`, `$path.html`, `/index.html` and `=404` (400 to 599) are understood";
        value.report_help(format!("`{text}` cannot be tried"), help);
    }
    entry
}

fn site_files(table: &Table<'_>, compress: &Compress) -> Files {
    let min_bytes = table.some_number("compress_min_bytes");
    let default_type = table
        .get("default_type")
        .and_then(|value| values::media_type(&value));
    let files = Files {
        sources: sources(table),
        listing: table.flag("listing"),
        types: types(table),
        default_type: default_type
            .unwrap_or_else(|| keys::default_of(&keys::FILES, "default_type").to_owned()),
        precompressed: table.flag("precompressed"),
        compress: table.flag("compress"),
        compress_min_bytes: min_bytes.map_or(compress.min_bytes, |bytes| bytes as usize),
        compress_max_bytes: table.size("compress_max_bytes") as usize,
    };
    if files.compress_max_bytes < files.compress_min_bytes {
        table.report_at(
            &["compress_max_bytes", "compress_min_bytes"],
            "`compress_max_bytes` is less than `compress_min_bytes`",
        );
    }
    files
}

/// What is named in `sources`, or the defaults, and what `sources_add` adds to either.
fn sources(table: &Table<'_>) -> Vec<String> {
    let defaults = || SOURCES.map(str::to_owned).to_vec();
    let named = table.get("sources");
    let mut sources = named.map_or_else(defaults, |list| source_names(&list));
    if let Some(list) = table.get("sources_add") {
        sources.extend(source_names(&list));
    }
    sources
}

fn source_names(list: &Value<'_>) -> Vec<String> {
    let glob = |value: &Value<'_>| {
        let glob = values::glob(value)?.0;
        if glob.contains('/') {
            value.report("`sources` are file names, without `/`");
            return None;
        }
        Some(glob)
    };
    let list = list.list().unwrap_or_default();
    list.iter().filter_map(glob).collect()
}

fn types(table: &Table<'_>) -> BTreeMap<String, String> {
    let mut types = BTreeMap::new();
    for entry in table.entries("types") {
        let extension = entry.name.to_ascii_lowercase();
        if extension.is_empty() || extension.contains(['.', '/', '\0']) {
            let message = format!("{extension:?} is no file extension: it stands without its dot");
            table.context.report(problem(entry.name_spot, message));
        } else if let Some(media_type) = values::media_type(&entry.value)
            && types.insert(extension, media_type).is_some()
        {
            let message = format!("extension `{}` has two types", entry.name);
            table.context.report(problem(entry.name_spot, message));
        }
    }
    types
}

fn error_pages(table: &Table<'_>) -> BTreeMap<u16, ErrorPage> {
    let mut pages = BTreeMap::new();
    for entry in table.entries("error_pages") {
        let status = entry
            .name
            .parse::<u16>()
            .ok()
            .filter(|status| (400..=599).contains(status));
        let page = files::error_page(&entry.value);
        match (status, page) {
            (Some(status), Some(page)) => {
                pages.insert(status, page);
            }
            (Some(_), None) => {}
            (None, _) => {
                let message = format!("`{}` is no status of an error: 400 to 599 are", entry.name);
                table.context.report(problem(entry.name_spot, message));
            }
        }
    }
    pages
}
