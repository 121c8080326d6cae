//! The configuration as the rest of the program sees it: checked, complete, immutable.
//!
//! The idea: a value of these types cannot be wrong. Defaults are filled in, names resolve, ranges
//! hold. [`crate::load`] is the only producer. No file, clock or socket is touched here.

mod acme;
mod alert;
mod cgroup;
mod condition;
mod directory;
mod file;
mod fleet;
mod handler;
mod host;
mod htaccess;
mod limit;
mod map;
mod mode;
mod mount;
pub(crate) mod number;
mod pool;
mod process;
mod recorder;
mod rewrite;
mod script;
pub mod sensor;
mod shed;
mod site;
mod template;
mod tls;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

pub use acme::{
    Acceptor, Acme, AcmeBinding, AcmeCertificate, AcmeChallenge, AcmeDns, AcmeExport, Chore,
    Covering, DemandedHosts, OnDemand, is_orderable,
};
pub use alert::{ALERTS_MAX, Alert, Measure, ServerFigure, WatchedFigure, Whose};
pub use cgroup::{CPU_PERIOD_US, Cgroup, IoLimit};
pub use condition::{Condition, Glob, TextMatch};
pub use directory::{
    AFTER_PARAMETER, DIRECTORIES_MAX, DatabaseServer, Directory, DirectoryChanges, DirectorySource,
    HOST_PARAMETER, PlacedQuery, RowFormat, RowTrust, SINCE_PARAMETER, pieces_of_query,
    with_placeholder,
};
pub use file::{Auth, AuthGroups, ErrorPage, FileIdentity, Guarded};
pub use fleet::{Fleet, FleetStore};
pub use handler::{
    Cgi, Console, EarlyHints, FastCgi, Handler, LinkSecret, MetricsFormat, Proxy, ProxyHost,
    ProxyRedirects, ProxyTarget, Redirect, Respond, Rlimits,
};
pub use host::HostPattern;
pub use htaccess::{DirectorySection, SiteHtaccess, UnknownLines};
pub use limit::{
    Concurrent, Kept, LIMITS_PER_REQUEST_MAX, Limit, LimitIdentities, LimitKey, LimitOn,
    LimitPlace, LimitScope, OnLoss, Rate, Reserve, When, Window,
};
pub use map::{Map, MapCache, MapLookup, MapMatch, MapProgram, MapSource};
pub use mode::Mode;
pub use mount::Mount;
pub use pool::{
    AppPool, Isolate, Php, PhpPool, PlanPool, Pool, PoolProgram, Pools, Share, SitePool,
    is_row_pool_id, row_pool_id,
};
pub use process::{
    Caps, Control, FieldEdits, ListenAddress, Listener, Log, LogFormat, LogLevel, LogTarget,
    Protocols, Senders, Timeouts,
};
pub use recorder::{Recorder, SaltTime};
pub use rewrite::{QueryChange, Rewrite};
pub use script::{
    AllowedAddress, Budgets, Cache, Library, OnError, PhaseScripts, Script, ScriptFile, Scripts,
    ScriptsVm, ServerClass, Source,
};
pub use shed::{Degrade, SHED_RULES_MAX, Shed, ShedReply, ShedScope};
pub use site::{
    Compress, EncodedSlash, Expires, Files, LevelCaps, LevelTimeouts, Lifetime, Root, RowRoot,
    Rule, Settings, Site, SiteRows, Slashes, Symlinks, TryEntry, UnderscoreFields, Variable,
};
pub use template::{Template, TemplatePart, TlsClientFact};
pub use tls::{
    CertificateFiles, ClientAuth, ClientCertificates, ListenTls, SiteTls, Tls, TlsVersion,
};
pub use upstream::{Balance, Protocol, ProxyVersion, Server, ServerAddress, Upstream, UpstreamTls};

/// How long compiling a script may take beside requests that are served.
const COMPILE_MAX: Duration = Duration::from_millis(10);

/// A whole configuration: what one generation of the gateway runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Worker threads, at least 1. Fixed for the supervisor's life.
    pub workers: usize,
    /// User the server becomes when started as root.
    pub user: String,
    /// Control socket; `None` means there is none and `nagaya status` has nobody to ask.
    pub control: Option<Control>,
    /// Listeners in file order, addresses unique.
    pub listeners: Vec<Listener>,
    /// TLS of the listeners that speak it.
    pub tls: Tls,
    /// Logging of the process; sites may override `access`.
    pub log: Log,
    /// Every wait of the process.
    pub timeouts: Timeouts,
    /// Every size and count of the process.
    pub caps: Caps,
    /// Peers whose forwarding fields and request ids are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether limits of a cgroup that this host cannot enforce are an error, where no level says
    /// otherwise. Already in every [`Cgroup::required`].
    pub cgroup_required: bool,
    /// Fields changed on every request before it reaches a handler.
    pub request_headers: FieldEdits,
    /// Fields changed on every reply.
    pub reply_headers: FieldEdits,
    /// Time zone of every `when` that names none, as the tz database spells it; `None`: the
    /// machine's own.
    pub time_zone: Option<String>,
    /// Limits that every request meets.
    pub limits: Arc<[Limit]>,
    /// Where changes of limits are kept. What was read there is in every [`Limit::kept`].
    pub limits_overrides: PathBuf,
    /// Tenants of sites that operators have suspended, as the overrides file says.
    pub suspended: BTreeSet<String>,
    /// File of the last good versions of files that may be set aside.
    pub last_good: PathBuf,
    /// What is recorded of requests; `None` is nothing.
    pub recorder: Option<Recorder>,
    /// What machines share; `None` is nothing.
    pub fleet: Option<Fleet>,
    /// What the process says of scripts.
    pub scripts: Scripts,
    /// `[tenants.NAME]` in file order, names unique. Sites refer to them by index into this list.
    pub tenants: Vec<Tenant>,
    /// `[maps.NAME]` in file order, names unique. Rules and texts refer to them by index.
    pub maps: Vec<Map>,
    /// `[acme.NAME]` in file order, names unique. Sites refer to them by index into this list.
    pub acme: Vec<Acme>,
    /// `[directories.NAME]` in file order, names unique. Sites refer to them by index.
    pub directories: Vec<Directory>,
    /// `[plans.NAME]` in file order, names unique.
    pub plans: Vec<Plan>,
    /// Rules that send requests away when there is too much to do, in file order, names unique.
    pub shed: Vec<Shed>,
    /// `[[alerts]]` in file order, names unique.
    pub alerts: Vec<Alert>,
    /// What all pools share.
    pub pool_terms: Pools,
    /// `[php.VERSION]`, and those that were found where distributions put them, by version; those
    /// that no pool runs are left out.
    pub php: Vec<Php>,
    /// The pools that sites have, each once.
    pub pools: Vec<Pool>,
    /// Upstreams by name. Handlers refer to them by index into this list.
    pub upstreams: Vec<Upstream>,
    /// Bytes of what is known of `.htaccess` files. Default 64 MiB.
    pub htaccess_cached_bytes: usize,
    /// Sites in file order; at least one.
    pub sites: Vec<Site>,
    /// Files that name clients who are kept out, absolute, each once. Levels refer to them by index.
    pub denied: Vec<PathBuf>,
    /// Files of scripts and passwords, of all levels and handlers: as they are named (absolute) and,
    /// where links lead elsewhere, under their canonical names as well. Sorted, each once. They are
    /// never served.
    pub guarded: Arc<[Guarded]>,
}

/// `[tenants.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its share of what several tenants wait for, relative to theirs: 1 to 1,000. Default 1.
    pub weight: u32,
    /// Classes of its requests, among which its turns are shared by weight; at most
    /// [`CLASSES_MAX`], names unique.
    pub classes: Arc<[RequestClass]>,
    /// Limits that every request to its sites meets.
    pub limits: Arc<[Limit]>,
    /// What the programs of all its sites share.
    pub cgroup: Option<Box<Cgroup>>,
    /// Scripts that every request to its sites meets.
    pub scripts: Arc<PhaseScripts>,
    /// Where they run, and those of its sites and rules; `None`: as [`Model::own_vms`] has it.
    pub scripts_vm: Option<ScriptsVm>,
    /// Whether it may look at its own figures.
    pub console: bool,
}

/// Plans there may be.
pub const PLANS_MAX: usize = 1_000;

/// `[plans.NAME]`: what tenants have in common that are sold the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// The share of each of its tenants, as [`Tenant::weight`].
    pub weight: u32,
    /// Limits that every request to a site of one of them meets, each tenant for itself.
    pub limits: Arc<[Limit]>,
    /// What binds the programs of each of its tenants.
    pub cgroup: Option<Box<Cgroup>>,
    /// How many pages of PHP they may run, and how long.
    pub pool: PlanPool,
    /// Whether each may look at its own figures.
    pub console: bool,
}

/// Classes of one tenant.
pub const CLASSES_MAX: usize = 16;

/// A class of a tenant's requests: the first whose conditions hold is a request's.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestClass {
    /// Its name in records and figures.
    pub name: String,
    /// Conditions, all of which must hold. At least one.
    pub conditions: Vec<Condition>,
    /// Its share of the tenant's turns relative to the others', 1 to 1,000; requests of no class
    /// have 1. Default 1.
    pub weight: u32,
}

impl Model {
    /// What operators have kept of changes of limits, in the order of the configuration.
    pub fn kept(&self) -> impl Iterator<Item = &Kept> {
        self.all_limits().filter_map(|limit| limit.kept.as_deref())
    }

    /// The limits of all levels, in the order of the configuration.
    pub fn all_limits(&self) -> impl Iterator<Item = &Limit> {
        let upstreams = self.upstreams.iter().flat_map(|it| &*it.limits);
        let tenants = self.tenants.iter().flat_map(|it| &*it.limits);
        let sites = self.sites.iter().flat_map(|site| {
            let rules = site.rules.iter().flat_map(|rule| &*rule.limits);
            site.limits.iter().chain(rules)
        });
        let plans = self.plans.iter().flat_map(|plan| &*plan.limits);
        let limits = self
            .limits
            .iter()
            .chain(upstreams)
            .chain(tenants)
            .chain(plans);
        limits.chain(sites)
    }

    /// The longest that scripts take to start: those of `init` and `worker_init` have a time of
    /// their own each, and all are compiled.
    #[must_use]
    pub fn scripts_start_max(&self) -> Duration {
        let own = [&self.scripts.init, &self.scripts.worker_init];
        let wall = Duration::from_millis(self.scripts.budgets.wall_ms);
        let starting: Duration = own.into_iter().flatten().map(|_| wall).sum();
        let required = self.scripts.lib.iter().flat_map(|library| &library.files);
        let compiled = self.all_scripts().count() + required.count();
        starting + COMPILE_MAX * u32::try_from(compiled).unwrap_or(u32::MAX)
    }

    /// The tenants whose scripts run in VMs of their own: of those that have scripts, on themselves,
    /// their sites or rules, the ones that say so, and where there are two or more of them all that
    /// say nothing.
    #[must_use]
    pub fn own_vms(&self) -> BTreeSet<&str> {
        let tenant = |site: &Site| self.tenants.get(site.tenant_index?);
        let with_scripts = self.sites.iter().filter(|site| {
            tenant(site).is_some_and(|tenant| !tenant.scripts.is_empty()) || site.has_scripts()
        });
        let said = |site| tenant(site).and_then(|tenant| tenant.scripts_vm);
        let with_scripts = with_scripts.map(|site| (site.tenant.as_str(), said(site)));
        let with_scripts: BTreeMap<_, _> = with_scripts.collect();
        let otherwise = match with_scripts.len() {
            0 | 1 => ScriptsVm::Shared,
            _ => ScriptsVm::Own,
        };
        let own = with_scripts.into_iter();
        let own = own.filter(|(_, said)| said.unwrap_or(otherwise) == ScriptsVm::Own);
        own.map(|(tenant, _)| tenant).collect()
    }

    /// Every script, of every level and handler, outer levels first.
    pub fn all_scripts(&self) -> impl Iterator<Item = &Script> {
        let own = &self.scripts;
        let process = [&own.init, &own.worker_init, &own.worker_exit];
        let tenants = self.tenants.iter().map(|tenant| &tenant.scripts);
        let sites = self.sites.iter().map(|site| &site.scripts);
        let rules = || self.sites.iter().flat_map(|site| &site.rules);
        let levels = std::iter::once(&own.phases).chain(tenants).chain(sites);
        let levels = levels.chain(rules().map(|rule| &rule.scripts));
        let handlers = rules().filter_map(|rule| rule.handler.as_ref()?.script());
        let process = process.into_iter().flatten();
        process
            .chain(levels.flat_map(|level| level.iter()))
            .chain(handlers)
    }
}
