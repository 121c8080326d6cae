//! Pools: what they share, and which of them sites have.
//!
//! The idea: a handler joins the pool that is as its site wants one, or the site has a new one. What
//! a pool is called tells whose it is and not how it is set, so that settings may change under it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::command::command;
use super::context::problem;
use super::fields::wrong_variable;
use super::php;
use super::table::Table;
use super::template::{Purpose, template};
use super::tops::Tops;
use super::value::{Entry, Value};
use super::values;
use crate::address::split_port;
use crate::keys;
use crate::model::{
    AppPool, Php, PhpPool, PlanPool, Pool, PoolProgram, Pools, Protocol, Share, SitePool,
};

/// Of a pool's name, what is there for people.
const SHOWN_BYTES_MAX: usize = 40;

/// The pools found so far.
pub(crate) struct PoolList {
    terms: Pools,
    phps: Vec<Php>,
    list: Vec<Pool>,
    /// Those that are alike but for their settings.
    of_owner: HashMap<String, Vec<usize>>,
    ids: HashSet<String>,
    /// PHPs that pools of rows may have.
    of_rows: BTreeSet<usize>,
    sites: usize,
    site: Option<PoolSite>,
}

/// A site whose handlers are read.
struct PoolSite {
    index: usize,
    tenant: String,
    tenant_index: Option<usize>,
    /// The user that it names.
    user: Option<String>,
    /// Its first host.
    host: String,
    pool: SitePool,
    /// Which PHP it has, once that was asked; `None` has been reported.
    php: Option<Option<usize>>,
}

impl PoolList {
    /// Takes in what pools share, and PHPs.
    pub(crate) fn open(tops: &Tops<'_>) -> PoolList {
        PoolList {
            terms: terms(tops),
            phps: php::all(tops),
            list: Vec::new(),
            of_owner: HashMap::new(),
            ids: HashSet::new(),
            of_rows: BTreeSet::new(),
            sites: 0,
            site: None,
        }
    }

    /// Begins with the next site.
    pub(crate) fn begin(
        &mut self,
        table: &Table<'_>,
        (tenant, tenant_index, plan): (&str, Option<usize>, PlanPool),
        host: &str,
    ) {
        let user = table.get("user").filter(|user| user.is_text());
        self.site = Some(PoolSite {
            index: self.sites,
            tenant: tenant.to_owned(),
            tenant_index,
            user: user.and_then(|user| user.text()).map(str::to_owned),
            host: host.to_owned(),
            pool: self.of_site(table, plan),
            php: None,
        });
        self.sites += 1;
    }

    /// Ends with the site that was begun.
    pub(crate) fn end(&mut self) -> Option<SitePool> {
        let site = self.site.take()?;
        // Of a PHP that no rule asks for nothing is kept.
        let php = site.pool.php.filter(|_| site.php.is_some());
        Some(SitePool { php, ..site.pool })
    }

    /// Has what follows of the site at hand run as another user, and says as whom before.
    pub(crate) fn become_user(&mut self, user: Option<String>) -> Option<String> {
        let site = self.site.as_mut()?;
        std::mem::replace(&mut site.user, user)
    }

    /// The site's pool with PHP; `None` once the reason was reported at a handler.
    pub(crate) fn php(&mut self, handler: &Value<'_>) -> Option<usize> {
        let known = self.site.as_ref()?.php;
        let php = known.unwrap_or_else(|| self.choose_php(handler))?;
        let version = self.phps.get(php)?.version.clone();
        let pool = &self.site.as_ref()?.pool;
        let program = PoolProgram::Php(PhpPool {
            php,
            processes: pool.processes,
            requests: pool.requests,
            time_ms: pool.time_ms,
            admin: pool.admin.clone(),
        });
        self.join(program, &format!("php {version}"), &["php"])
    }

    /// Has the pools of a site's rows have PHP: that of the site, or the one that each names. `None` as above.
    pub(crate) fn php_of_rows(&mut self, handler: &Value<'_>) -> Option<()> {
        let (site, phps) = (self.site.as_mut()?, self.phps.len());
        if site.pool.php_column().is_some() && phps > 0 {
            site.php = Some(None);
            self.of_rows.extend(0..phps);
            return Some(());
        }
        let known = site.php;
        let php = known.unwrap_or_else(|| self.choose_php(handler))?;
        self.of_rows.insert(php);
        Some(())
    }

    /// A pool of the site with this version of PHP, whatever that of its rules is.
    pub(crate) fn php_of(&mut self, value: &Value<'_>, version: &str) -> Option<usize> {
        self.tell_unknown(value, version);
        let at = self.phps.iter().position(|php| *php.version == *version);
        let site = self.site.as_mut()?;
        let own = site.php.replace(at);
        let pool = self.php(value);
        if let Some(site) = &mut self.site {
            site.php = own;
        }
        pool
    }

    /// The site's pool with an application.
    pub(crate) fn app(&mut self, app: AppPool) -> Option<usize> {
        let program = app.command.first().map_or("", String::as_str);
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        let directory = app.directory.to_string_lossy().into_owned();
        let owner = ["app", directory.as_str()];
        self.join(PoolProgram::App(app), &program, &owner)
    }

    /// A pool's name and socket.
    pub(crate) fn place(&self, pool: usize) -> Option<(String, PathBuf)> {
        let pool = self.list.get(pool)?;
        Some((pool.id.clone(), pool.socket.clone()))
    }

    /// Says which upstream leads to a pool.
    pub(crate) fn lead(&mut self, pool: usize, upstream: usize) {
        if let Some(pool) = self.list.get_mut(pool) {
            pool.upstream = upstream;
        }
    }

    /// What all pools share, the PHPs they run, and the lists that handlers' indices point into.
    pub(crate) fn finish(mut self) -> (Pools, Vec<Php>, Vec<Pool>) {
        let mut places: BTreeMap<usize, usize> = self.of_rows.iter().map(|php| (*php, 0)).collect();
        for pool in &self.list {
            if let PoolProgram::Php(php) = &pool.program {
                places.insert(php.php, 0);
            }
        }
        for (place, at) in places.values_mut().zip(0..) {
            *place = at;
        }
        for pool in &mut self.list {
            if let PoolProgram::Php(php) = &mut pool.program {
                php.php = places.get(&php.php).copied().unwrap_or_default();
            }
        }
        let phps = self.phps.into_iter().enumerate();
        let used = phps.filter(|(at, _)| places.contains_key(at));
        (self.terms, used.map(|(_, php)| php).collect(), self.list)
    }

    /// The pool of the site at hand that runs this, be it a new one.
    fn join(&mut self, program: PoolProgram, what: &str, kind: &[&str]) -> Option<usize> {
        let site = self.site.as_ref()?;
        let whose = match site.pool.share {
            Share::Site => &site.host,
            Share::User => &site.tenant,
        };
        let own = (site.pool.share == Share::Site).then_some(site.host.as_str());
        let user = site.user.as_deref();
        let mut owner: Vec<&str> = kind.to_vec();
        owner.extend([site.tenant.as_str(), user.unwrap_or(""), own.unwrap_or("")]);
        let alike = self.of_owner.entry(hash(&owner)).or_default();
        let list = &self.list;
        let joined = alike.iter().copied().find(|at| {
            let pool = list.get(*at);
            pool.is_some_and(|it| it.program == program && it.isolate == site.pool.isolate)
        });
        if let Some(joined) = joined {
            let pool = self.list.get_mut(joined)?;
            pool.is_kept |= site.pool.is_kept;
            if pool.sites.last() != Some(&site.index) {
                pool.sites.push(site.index);
            }
            return Some(joined);
        }
        let id = new_id(
            &mut self.ids,
            &owner,
            (kind.first().unwrap_or(&""), whose, &site.host),
        );
        alike.push(self.list.len());
        self.list.push(Pool {
            socket: self.terms.directory.join(format!("{id}.sock")),
            id,
            name: format!("{what} of {whose}"),
            tenant: site.tenant.clone(),
            tenant_index: site.tenant_index,
            user: site.user.clone(),
            sites: vec![site.index],
            upstream: 0,
            program,
            isolate: site.pool.isolate,
            is_kept: site.pool.is_kept,
        });
        Some(self.list.len() - 1)
    }

    /// `pool` of a site, whose tenant's plan says what it does not say itself.
    fn of_site(&self, site: &Table<'_>, plan: PlanPool) -> SitePool {
        let table = site.table("pool", &keys::POOL);
        let count = |key, of_plan: Option<u32>| match of_plan {
            Some(count) if table.get(key).is_none() => count,
            _ => table.count(key) as u32,
        };
        let own_time_ms = page_time(&table);
        let of_plan = plan.time_ms.filter(|_| table.get("time").is_none());
        let share = table.get("share").and_then(|value| value.choice());
        let own = match site.get("cgroup") {
            Some(_) => Share::Site,
            None => Share::User,
        };
        let version = table.get("php").and_then(|value| {
            let version = value.text()?;
            let names_row = version.contains("$row.") || version.contains("${row.");
            if !(site.context.has_rows.get() && names_row) {
                self.tell_unknown(&value, version);
            } else if template(&value, Purpose::Target)?.as_row().is_none() {
                value.report_help(
                    "a column says all of the version, or nothing",
                    "as in `php = \"$row.php\"`",
                );
            }
            Some(version.to_owned())
        });
        SitePool {
            php: version,
            processes: count("processes", plan.processes),
            requests: count("requests", plan.requests),
            time_ms: of_plan.unwrap_or(own_time_ms),
            admin: php::settings(table.entries("admin")),
            share: share.unwrap_or(own),
            isolate: table.choice("isolate"),
            is_kept: table.count("min") == 1,
            waiting_page: table.flag("waiting_page"),
        }
    }

    /// Settles which PHP the site at hand has.
    fn choose_php(&mut self, handler: &Value<'_>) -> Option<usize> {
        let said = self.site.as_ref()?.pool.php.clone();
        let versions: Vec<&str> = self.phps.iter().map(|php| &*php.version).collect();
        let finding = |message: &str| problem(handler.spot(), message).absence();
        let chosen = match (said, &*versions) {
            (Some(said), versions) => versions.iter().position(|version| *version == said),
            (None, [_]) => Some(0),
            (None, []) => {
                let help =
                    "install its php-fpm, or describe it: `[php.\"8.2\"]` with `program = \"…\"`";
                let finding = finding("there is no PHP where it is looked for").help(help);
                handler.context.report(finding);
                None
            }
            (None, versions @ [first, ..]) => {
                let help = format!("as in `pool = {{ php = \"{first}\" }}` of the site");
                let message = format!("say which PHP: there are {}", versions.join(", "));
                handler.context.report(finding(&message).help(help));
                None
            }
        };
        let version = chosen
            .and_then(|at| self.phps.get(at))
            .map(|php| php.version.clone());
        let site = self.site.as_mut()?;
        site.php = Some(chosen);
        site.pool.php = version;
        chosen
    }

    /// Reports a version that there is not.
    fn tell_unknown(&self, value: &Value<'_>, version: &str) {
        let known: Vec<&str> = self.phps.iter().map(|php| &*php.version).collect();
        if known.contains(&version) {
            return;
        }
        let describe = format!("describe it: `[php.\"{version}\"]`");
        let help = match known.as_slice() {
            [] => format!("install its php-fpm, or {describe}"),
            known => format!("there are {}; or {describe}", known.join(", ")),
        };
        let finding = problem(value.spot(), format!("there is no PHP `{version}`"));
        value.context.report(finding.help(help).absence());
    }
}

/// A name that no pool has yet: what it is and whose, for people, and what stands for its owner, to
/// which `host` is added where another pool of that owner was first.
fn new_id(
    ids: &mut HashSet<String>,
    owner: &[&str],
    (kind, whose, host): (&str, &str, &str),
) -> String {
    let letters = format!("{kind}-{whose}").to_ascii_lowercase();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let words = letters.split(|c| !fits(c)).filter(|word| !word.is_empty());
    let mut shown = words.collect::<Vec<_>>().join("-");
    shown.truncate(SHOWN_BYTES_MAX);
    let mut owner = owner.to_vec();
    loop {
        let id = format!("{}-{}", shown.trim_end_matches('-'), hash(&owner));
        if ids.insert(id.clone()) {
            return id;
        }
        owner.push(host);
    }
}

/// 16 digits that stand for these words in this order.
fn hash(words: &[&str]) -> String {
    let mut hash = Sha256::new();
    for word in words {
        hash.update((word.len() as u64).to_le_bytes());
        hash.update(word.as_bytes());
    }
    let digits = hash.finalize();
    digits
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// `[pools]`.
fn terms(tops: &Tops<'_>) -> Pools {
    let table = tops.table("pools", &keys::POOLS);
    let directory = table.get("directory").and_then(|value| {
        if value.file != 0 {
            value.report_help(
                "`directory` of `[pools]` stands in the first file alone",
                "the gateway writes there: included files do not choose the place",
            );
        }
        values::path(&value)
    });
    let cores = tops.context.sources.cores as u64;
    let starting = table.some_number("starting").unwrap_or((cores / 2).max(2));
    let see = table.list("see").into_iter().filter_map(|value| {
        let path = values::path(&value)?;
        if path == Path::new("/") {
            let help = "that is `isolate = \"none\"`";
            value.report_help("`see` would show everything", help);
        }
        Some(path)
    });
    Pools {
        directory: directory.unwrap_or_else(|| keys::default_of(&keys::POOLS, "directory").into()),
        starting: starting as u32,
        idle_ms: table.duration("idle"),
        see: see.collect(),
        cache_bytes: table.size("cache"),
        mail: mail(&table),
    }
}

fn mail(table: &Table<'_>) -> String {
    let text = table.text("mail");
    let (host, port) = split_port(&text);
    let port = port.and_then(|port| port.parse::<u16>().ok());
    match (table.get("mail"), port) {
        (Some(value), None | Some(0)) => {
            let help = "one looks like `127.0.0.1:25`";
            value.report_help(format!("`{text}` has no port from 1 to 65535"), help);
        }
        (Some(value), Some(_)) if host.parse::<IpAddr>().is_err() => {
            drop(values::host(&value, host));
        }
        _ => {}
    }
    text
}

/// `pool` of a plan.
pub(super) fn of_plan(plan: &Table<'_>) -> PlanPool {
    let table = plan.table("pool", &keys::PLAN_POOL);
    let is_said = |key| table.get(key).is_some();
    PlanPool {
        processes: is_said("processes").then(|| table.count("processes") as u32),
        requests: is_said("requests").then(|| table.count("requests") as u32),
        time_ms: is_said("time").then(|| page_time(&table)),
    }
}

/// How long a page may take: php-fpm counts seconds.
fn page_time(table: &Table<'_>) -> u64 {
    let ms = table.duration("time");
    if !ms.is_multiple_of(1_000) {
        table.report_at(&["time"], "`time` must be whole seconds");
    }
    ms
}

/// `app = { … }`, but for what the gateway does with its requests.
pub(crate) fn app(table: &Table<'_>) -> AppPool {
    let protocol = table.choice("protocol");
    let directory = table.required("directory");
    let command: Vec<String> = table.required("command").map(command).unwrap_or_default();
    let instances = table.count("instances") as u32;
    if instances > 1 && command.iter().any(|word| word.contains("$socket")) {
        table.report_at(
            &["instances"],
            "one socket at the path of `$socket` is made by one process: leave `$socket` out and take descriptor 3",
        );
    }
    AppPool {
        command,
        directory: directory
            .and_then(|value| values::path(&value))
            .unwrap_or_default(),
        env: env(table.entries("env")),
        instances,
        start_ms: table.duration("start"),
        stop_ms: table.duration("stop"),
        protocol,
        ready: table.get("ready").and_then(|value| ready(&value, protocol)),
    }
}

fn ready(value: &Value<'_>, protocol: Protocol) -> Option<String> {
    let path = value.text()?;
    if protocol != Protocol::Http {
        value.report_help(
            "`ready` is for HTTP",
            "leave it out: it is ready when it accepts a connection",
        );
    }
    if !path.starts_with('/')
        || !path.bytes().all(|byte| byte.is_ascii_graphic())
        || path.contains('#')
    {
        value.report_help(
            format!("`{path}` is no path to ask for"),
            "one looks like `/health`",
        );
    }
    Some(path.to_owned())
}

fn env(entries: Vec<Entry<'_>>) -> Vec<(String, String)> {
    let mut env = Vec::new();
    for entry in entries {
        if let Some(finding) = wrong_variable(entry.name, &entry.name_spot) {
            entry.value.context.report(finding);
        } else if let Some(text) = entry.value.text() {
            if text.contains('\0') {
                entry
                    .value
                    .report(format!("`{}` may hold no NUL", entry.name));
            }
            env.push((entry.name.to_owned(), text.to_owned()));
        }
    }
    env.sort();
    env
}
