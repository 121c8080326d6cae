//! A configuration made ready to serve: hosts looked up in one step, globs compiled.
//!
//! A generation never changes. A reload makes a new one and swaps it whole; an exchange holds the
//! one it began with until its access record is written.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use config::countries::CountryFile;
use config::model::{
    self, Handler, HostPattern, Isolate, ListenAddress, Model, WatchedFigure, Whose,
};
use ipnet::IpNet;
use os::cgroup::Layout;

use crate::access_log::targets::{TargetIndex, Targets, TargetsBuilder};
use crate::admission::denied::{self, DenyFile};
use crate::copies::Copies;
use crate::costs::Costs;
use crate::directory::programs::{self, RowProgramTerms};
use crate::error::{Error, Kind, Result};
use crate::guarded::Guarded;
use crate::listener_terms::ListenerTerms;
use crate::maps::map;
use crate::maps::map::Map;
use crate::maps::texts;
use crate::permits::classes::{self, TenantClasses};
use crate::permits::compiled;
use crate::permits::compiled::Limits;
use crate::programs::pools::{self, Newcomer, ProgramPool};
use crate::room::Room;
use crate::scripts::plan::{Builder as ScriptsBuilder, Plan};
use crate::shedding::compiled::Shedding;
use crate::site::Site;
use crate::stats::SiteStats;
use crate::tls::policy::Policies;
use crate::tls::servers::{self, AllServerTerms};
use ipc::codec::Packed;
use ipc::groups::{Owner, Shape};

/// Labels of a host looked at when searching for a wildcard.
const LABELS_MAX: usize = 32;

/// One generation.
#[derive(Debug)]
pub struct Generation {
    /// Counts up with each accepted configuration.
    pub number: u64,
    /// What concerns the whole process.
    pub process: Process,
    /// Sites in file order.
    pub sites: Vec<Site>,
    /// What is spoken at its listeners, and who is believed there.
    pub(crate) listened: ListenerTerms,
    /// On what terms its sites do.
    pub(crate) policies: Policies,
    /// On what terms TLS is spoken to its upstreams, by their index.
    pub(crate) server_terms: AllServerTerms,
    /// The addresses it listens on: nobody is forwarded to them by what a script says.
    pub listeners: Box<[SocketAddr]>,
    /// Upstreams in file order.
    pub upstreams: Vec<Arc<model::Upstream>>,
    /// Its maps, in file order.
    pub maps: Box<[Arc<Map>]>,
    /// Its files of clients that are kept out, in the order of the model.
    pub(crate) denied: Box<[Arc<DenyFile>]>,
    /// Whether a text asks one of them.
    pub(crate) texts_ask_maps: bool,
    /// Tenants whose figures an alert is about.
    pub(crate) watched_tenants: BTreeSet<Box<str>>,
    /// Its pools of processes, in the order of the model.
    pub(crate) program_pools: Arc<[Arc<ProgramPool>]>,
    /// Settings of PHP that no file of a tenant changes, of each of them.
    pub(crate) fixed_settings: Box<[BTreeSet<Box<str>>]>,
    /// Trees of sites that came to one of them by a reload or an upgrade, by the numbers of both: where
    /// it runs, its processes may not see their files.
    pub(crate) newcomers: HashMap<(usize, u32), Arc<Newcomer>>,
    /// What files cost: the same for all generations.
    pub(crate) costs: Arc<Costs>,
    /// Tenants for whom nothing is done, when it comes into force.
    pub(crate) suspended: BTreeSet<String>,
    /// Classes of requests of those of its tenants that have some.
    pub(crate) classes: Vec<(Arc<str>, TenantClasses)>,
    /// Its limits, but for those of sites and rules.
    pub limits: Limits,
    /// Its rules that shed; `None` is none.
    pub(crate) shedding: Option<Shedding>,
    /// The groups that programs run in, by path and owner, each after those it is in: as many as
    /// pools, and seldom asked for.
    groups: Box<[Packed<OwnedGroup>]>,
    /// Which of them have a quota of processors.
    with_cpu_quota: Box<[usize]>,
    /// Which are a pool's, or around one.
    around_pools: Box<[usize]>,
    /// Which of them programs of a rule are born in, by the indices of site and rule.
    leaves: HashMap<(usize, usize), usize>,
    /// Where these groups stand; not known to the model.
    pub layout: Layout,
    /// What its descriptors are enough for; not known to the model.
    pub room: Room,
    /// Where access records go.
    pub logs: Targets,
    /// Its scripts; `None` is none.
    pub(crate) scripts: Option<Plan>,
    /// The files of scripts and passwords.
    pub(crate) guarded: Guarded,
    exact: HashMap<Box<str>, Destination>,
    below: HashMap<Box<str>, Destination>,
    any: Option<Destination>,
    /// The sites that stand for those of rows, in file order.
    pub(crate) row_sites: Vec<Destination>,
    /// What the programs of their rows have in common, by the site's index.
    pub(crate) row_programs: HashMap<u32, RowProgramTerms>,
    /// Its directories, in the order of the model.
    pub(crate) directories: Box<[Arc<model::Directory>]>,
    /// Its plans, likewise.
    pub(crate) plans: Box<[PlanTerms]>,
    /// Tenants whom no row may name.
    pub(crate) written_tenants: HashSet<Box<str>>,
    /// Those of the configuration that may not look at their own figures.
    pub(crate) without_console: HashSet<Box<str>>,
}

/// What of a plan is not its limits.
#[derive(Debug)]
pub(crate) struct PlanTerms {
    pub(crate) name: Box<str>,
    pub(crate) weight: u32,
    /// Whether its tenants may look at their own figures.
    pub(crate) has_console: bool,
    /// Whether the groups of its tenants have a quota of processors.
    pub(crate) has_cpu_quota: bool,
}

/// A group, by its path, and whose it is.
pub(crate) type OwnedGroup = (Vec<String>, Owner);

/// What a host leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// Index in [`Generation::sites`].
    pub site: u32,
    /// Where the access record goes.
    pub log: Option<TargetIndex>,
}

/// Settings of the process.
#[derive(Debug)]
pub struct Process {
    /// Every wait.
    pub timeouts: model::Timeouts,
    /// Every size and count.
    pub caps: model::Caps,
    /// Bytes of what is known of `.htaccess` files.
    pub htaccess_cached_bytes: usize,
    /// Logging.
    pub log: model::Log,
    /// What is recorded; `None` is nothing.
    pub(crate) recorder: Option<model::Recorder>,
    /// What tells the country of a client that is recorded, where that is wanted and can be read.
    pub(crate) countries: Option<Arc<CountryFile>>,
    /// Peers whose forwarding fields are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Field edits on every request.
    pub request_headers: model::FieldEdits,
    /// Field edits on every reply.
    pub reply_headers: model::FieldEdits,
}

impl Process {
    fn of(model: &Model, before: Option<&Self>) -> Self {
        Self {
            timeouts: model.timeouts.clone(),
            caps: model.caps.clone(),
            recorder: model.recorder.clone(),
            countries: countries(model, before),
            htaccess_cached_bytes: model.htaccess_cached_bytes,
            log: model.log.clone(),
            trusted_proxies: model.trusted_proxies.clone(),
            request_headers: model.request_headers.clone(),
            reply_headers: model.reply_headers.clone(),
        }
    }
}

/// The file that tells countries: that of `before`, unless there is another that can be read.
fn countries(model: &Model, before: Option<&Process>) -> Option<Arc<CountryFile>> {
    let path = model.recorder.as_ref()?.countries.as_ref()?;
    let known = before.and_then(|before| before.countries.as_ref());
    if let Some(known) = known.filter(|known| known.is_still_at(path)) {
        return Some(Arc::clone(known));
    }
    match CountryFile::read(path) {
        Ok(file) => Some(Arc::new(file)),
        Err(error) => {
            let named = before.and_then(|it| it.recorder.as_ref()?.countries.as_ref());
            let kept = known.filter(|_| named == Some(path)).map(Arc::clone);
            let path = path.display();
            match kept.is_some() {
                true => tracing::error!(%path, error, "countries are those read before"),
                false => tracing::error!(%path, error, "countries are not recorded"),
            }
            kept
        }
    }
}

/// Where a model listens, but for Unix sockets.
pub(crate) fn listeners(model: &Model) -> Box<[SocketAddr]> {
    let addresses = model.listeners.iter().map(|listener| &listener.address);
    let addresses = addresses.filter_map(|address| match address {
        ListenAddress::Tcp(address) => Some(*address),
        ListenAddress::Unix(_) => None,
    });
    addresses.collect()
}

fn watched_tenants(model: &Model) -> BTreeSet<Box<str>> {
    let tenants = model.alerts.iter().filter_map(|alert| match &alert.figure {
        WatchedFigure::Of(Whose::Tenant, name, _) => Some(Box::from(&**name)),
        _ => None,
    });
    tenants.collect()
}

impl Generation {
    /// Makes a generation of copies of a model. Sites that stay go on counting where they
    /// stopped `before`.
    ///
    /// # Errors
    /// When a pattern is too large to compile, or a time zone is not known here.
    pub fn compile(number: u64, model: &Model, before: Option<&Self>) -> Result<Self> {
        let mut targets = TargetsBuilder::new(&model.log.access);
        let shape = Shape::of(model);
        let groups: Vec<_> = shape.owned().collect();
        let shedding = before.and_then(|before| before.shedding.as_ref());
        let shedding = Shedding::compile(model, &groups, shedding)?;
        let upstreams = model.upstreams.iter().cloned();
        let mut generation = Self {
            number,
            process: Process::of(model, before.map(|before| &before.process)),
            sites: Vec::with_capacity(model.sites.len()),
            listeners: listeners(model),
            watched_tenants: watched_tenants(model),
            listened: ListenerTerms::new(model),
            policies: Policies::compile(model, before.map(|before| &before.policies))?,
            server_terms: servers::compile(model, before.map_or(&[], |it| &it.server_terms))?,
            upstreams: upstreams.map(Arc::new).collect(),
            maps: map::compile(model, before.map_or(&[], |before| &before.maps))?,
            denied: denied::compile(model, before.map(|before| &*before.denied))?,
            texts_ask_maps: texts::texts_ask(model),
            fixed_settings: pools::fixed_settings(model),
            program_pools: pools::compile(model, before.map_or(&[], |it| &it.program_pools)),
            newcomers: before.map_or_else(HashMap::new, |before| before.newcomers_of(model)),
            costs: before.map_or_else(Arc::default, |before| Arc::clone(&before.costs)),
            suspended: model.suspended.clone(),
            classes: Vec::new(),
            limits: Limits::default(),
            shedding,
            groups: Box::default(),
            with_cpu_quota: shape.with_cpu_quota().collect(),
            around_pools: shape.around_pools().collect(),
            leaves: shape.leaves,
            layout: Layout::default(),
            room: Room::ENOUGH,
            logs: Targets::default(),
            scripts: None,
            guarded: Guarded::of(model)?,
            exact: HashMap::with_capacity(model.sites.len()),
            below: HashMap::new(),
            any: None,
            row_sites: Vec::new(),
            row_programs: programs::compile(model),
            directories: model.directories.iter().cloned().map(Arc::new).collect(),
            plans: plans(model),
            written_tenants: written_tenants(model),
            without_console: without_console(model),
        };
        let mut copies = generation.copies(model);
        copies.classes = generation.compile_classes(model, before)?;
        let mut limits = compiled::Builder::new(model, &generation.costs, &groups)?;
        for (site, stats) in model.sites.iter().zip(stats(model, before)) {
            let acceptor = model.acceptor_of(site);
            generation.point_hosts(site, &mut targets)?;
            targets.add_error_log(site);
            let (model, before) = (site, generation.sites.last());
            let mut site = Site::compile(model, stats, before, &mut copies, &mut limits)?;
            site.acceptor = acceptor;
            // Nobody else has them yet.
            let rules = Arc::get_mut(&mut site.rules).unwrap_or_default();
            for (rule, model_rule) in rules.iter_mut().zip(&model.rules) {
                rule.log = targets.add_rule(model, model_rule);
            }
            generation.sites.push(site);
        }
        generation.limits = limits.finish();
        let groups = groups.iter().map(Packed::of);
        let groups = groups.collect::<std::io::Result<_>>();
        generation.groups = groups.map_err(|error| Error::io(Kind::Internal, "groups", &error))?;
        generation.scripts = copies.scripts.finish(model);
        generation.logs = targets.finish();
        Ok(generation)
    }

    /// Comes after one that another server had, and whose pools go on.
    pub(crate) fn follow(&mut self, model: &Model, earlier: &Model) {
        let pools = earlier.pools.iter();
        let roots = pools.flat_map(|pool| {
            let sites = pool.sites.iter();
            let sites = sites.filter_map(move |at| earlier.sites.get(*at));
            let roots = sites.flat_map(move |site| site.roots_of(pool.user.as_ref()));
            roots.map(move |(_, root)| ((&*pool.id, &*root.within), None))
        });
        self.newcomers = newcomers(&roots.collect(), model);
    }

    fn newcomers_of(&self, next: &Model) -> HashMap<(usize, u32), Arc<Newcomer>> {
        newcomers(&self.roots_of_pools(), next)
    }

    /// The roots that its pools serve.
    fn roots_of_pools(&self) -> Roots<'_> {
        let mut roots = HashMap::new();
        let trees = self.sites.iter().flat_map(|site| {
            let trees = site.trees();
            trees.map(move |tree| (site, tree))
        });
        for (site, tree) in trees {
            let (index, root) = (tree.number, &tree.root);
            let rules = site.rules.iter().enumerate();
            let handlers =
                rules.filter_map(|(at, rule)| tree.handler(at).or(rule.handler.as_ref()));
            let handlers = handlers.chain(site.named_handlers());
            for at in handlers.filter_map(Handler::pool) {
                let Some(pool) = self.program_pools.get(at) else {
                    continue;
                };
                let newcomer = self.newcomers.get(&(at, index));
                let newcomer = newcomer.filter(|newcomer| !newcomer.is_in());
                let known = roots.entry((&*pool.id, &*root.within));
                let known = known.or_insert(newcomer);
                *known = known.and(newcomer);
            }
        }
        roots
    }

    /// What sites of a model have in common.
    fn copies(&self, model: &Model) -> Copies {
        let mut copies = Copies {
            guarded: self.guarded.clone(),
            costs: Arc::clone(&self.costs),
            has_process_scripts: !model.scripts.phases.is_empty(),
            scripts: ScriptsBuilder::new(model),
            mounts: u32::try_from(model.sites.len()).unwrap_or(u32::MAX),
            weights: model.tenants.iter().map(|tenant| tenant.weight).collect(),
            ..Copies::default()
        };
        let of_tenants = model.tenants.iter().map(|tenant| {
            let vm = copies.scripts.vm_of(&tenant.name);
            copies.scripts.level(vm, &tenant.scripts)
        });
        copies.of_tenants = of_tenants.collect();
        copies
    }

    /// The classes of requests of each tenant of a model.
    fn compile_classes(
        &mut self,
        model: &Model,
        before: Option<&Self>,
    ) -> Result<Vec<TenantClasses>> {
        let mut all = Vec::with_capacity(model.tenants.len());
        for tenant in &model.tenants {
            if tenant.classes.is_empty() {
                all.push(TenantClasses::default());
                continue;
            }
            let known = before.into_iter().flat_map(|before| &before.classes);
            let mut known = known.filter(|(name, _)| **name == *tenant.name);
            let known = known.next().map(|(_, known)| known);
            let classes = classes::compile(tenant, known, &self.costs)?;
            self.classes
                .push((tenant.name.as_str().into(), Arc::clone(&classes)));
            all.push(classes);
        }
        Ok(all)
    }

    /// Points the hosts of the site that comes next to it.
    fn point_hosts(&mut self, site: &model::Site, targets: &mut TargetsBuilder) -> Result<()> {
        let index = u32::try_from(self.sites.len())
            .map_err(|_| Error::new(Kind::Internal, "too_many_sites", String::new()))?;
        if site.rows.is_some() {
            self.row_sites.push(Destination {
                site: index,
                log: targets.add(site, &HostPattern::Any),
            });
        }
        for host in &site.hosts {
            let destination = Destination {
                site: index,
                log: targets.add(site, host),
            };
            match host {
                HostPattern::Exact(host) => {
                    self.exact.insert(host.as_str().into(), destination);
                }
                HostPattern::Below(host) => {
                    self.below.insert(host.as_str().into(), destination);
                }
                HostPattern::Any => self.any = Some(destination),
            }
        }
        Ok(())
    }

    /// Site and log of a canonical host: exact before the longest wildcard before the default.
    pub fn destination_of(&self, host: &str) -> Option<Destination> {
        match self.exact.get(host) {
            Some(destination) => Some(*destination),
            None => self.below_of(host).or(self.any),
        }
    }

    /// The tenant whose site a name of a certificate is of, a pattern included; the default site has no names.
    pub(crate) fn tenant_of(&self, name: &str) -> Option<&str> {
        let destination = self.exact.get(name).copied();
        let destination = destination.or_else(|| self.below_of(name))?;
        let site = self.sites.get(destination.site as usize)?;
        Some(&site.tenant_name)
    }

    /// Whether a row may say what a canonical host leads to.
    pub(crate) fn may_be_row(&self, host: &str) -> bool {
        !self.row_sites.is_empty()
            && !self.exact.contains_key(host)
            && self.below_of(host).is_none()
    }

    /// The default site.
    pub(crate) fn any_site(&self) -> Option<Destination> {
        self.any
    }

    /// The map that is asked whether a certificate may be ordered for a canonical host: where its site covers it by a
    /// pattern alone, and has such names ordered.
    pub(crate) fn demand_map(&self, host: &str) -> Option<&Arc<Map>> {
        let site = self.destination_of(host)?.site;
        let map = self.sites.get(site as usize)?.acceptor?.map()?;
        let is_demanded = !self.exact.contains_key(host) && model::is_orderable(host);
        self.maps.get(map).filter(|_| is_demanded)
    }

    fn below_of(&self, host: &str) -> Option<Destination> {
        if self.below.is_empty() {
            return None;
        }
        let mut rest = host;
        for _ in 0..LABELS_MAX {
            rest = rest.split_once('.')?.1;
            if let Some(destination) = self.below.get(rest) {
                return Some(*destination);
            }
        }
        None
    }

    /// The upstreams behind which are processes that the gateway starts, by their index.
    pub(crate) fn upstreams_of_pools(&self) -> HashSet<usize> {
        let rules = self.sites.iter().flat_map(|site| site.rules.iter());
        let handlers = rules.filter_map(|rule| rule.handler.as_ref());
        let handlers = handlers.filter(|handler| handler.pool().is_some());
        handlers.filter_map(model::Handler::upstream).collect()
    }

    /// The groups that programs run in, by path and owner, each after those it is in.
    pub(crate) fn groups(&self) -> impl Iterator<Item = OwnedGroup> {
        // Written down here, so that each can be read.
        self.groups.iter().filter_map(|group| group.open().ok())
    }

    /// Those of them that have a quota of processors.
    pub(crate) fn groups_with_cpu_quota(&self) -> impl Iterator<Item = OwnedGroup> {
        let places = self.with_cpu_quota.iter();
        places.filter_map(|place| self.group_at(*place))
    }

    /// How many of them are a pool's, or around one.
    pub(crate) fn groups_of_pools(&self) -> usize {
        self.around_pools.len()
    }

    /// One of these.
    pub(crate) fn group_of_pool(&self, place: usize) -> Option<OwnedGroup> {
        self.group_at(*self.around_pools.get(place)?)
    }

    fn group_at(&self, place: usize) -> Option<OwnedGroup> {
        self.groups.get(place)?.open().ok()
    }

    /// The path of the group that programs of a rule are born in, by the indices of site and rule.
    pub(crate) fn group_of(&self, site: usize, rule: usize) -> Option<Vec<String>> {
        let group = self.groups.get(*self.leaves.get(&(site, rule))?)?;
        group.open().ok().map(|(path, _)| path)
    }

    /// Clients' connections it may have.
    pub fn connections_max(&self) -> usize {
        self.process.caps.connections.min(self.room.connections)
    }

    /// Whether `peer` is a proxy whose word is taken.
    pub fn trusts(&self, peer: std::net::IpAddr) -> bool {
        self.process
            .trusted_proxies
            .iter()
            .any(|net| net.contains(&peer))
    }
}

fn plans(model: &Model) -> Box<[PlanTerms]> {
    let plans = model.plans.iter().map(|plan| PlanTerms {
        name: plan.name.as_str().into(),
        weight: plan.weight,
        has_console: plan.console,
        has_cpu_quota: { plan.cgroup.as_ref() }.is_some_and(|it| it.cpu_millicores.is_some()),
    });
    plans.collect()
}

fn without_console(model: &Model) -> HashSet<Box<str>> {
    let without = model.tenants.iter().filter(|tenant| !tenant.console);
    without.map(|tenant| Box::from(&*tenant.name)).collect()
}

/// The tenants of the configuration, where rows could name them.
fn written_tenants(model: &Model) -> HashSet<Box<str>> {
    if !model.sites.iter().any(|site| site.rows.is_some()) {
        return HashSet::new();
    }
    let said = model.tenants.iter().map(|tenant| &*tenant.name);
    let written = model.sites.iter().filter(|site| site.rows.is_none());
    said.chain(written.map(|site| &*site.tenant))
        .map(Box::from)
        .collect()
}

/// Roots that pools serve, and the newcomer whose each is: `None` where it was there before.
type Roots<'a> = HashMap<(&'a str, &'a Path), Option<&'a Arc<Newcomer>>>;

/// The trees of the next model's sites that their pools may not see, as they are not among those of
/// before; who is not in yet stays one.
fn newcomers(known: &Roots<'_>, next: &Model) -> HashMap<(usize, u32), Arc<Newcomer>> {
    let mut trees = next.sites.len();
    let first_mounts = next.sites.iter().map(|site| {
        trees += site.mounts.len();
        trees - site.mounts.len()
    });
    let first_mounts: Vec<usize> = first_mounts.collect();
    let mut newcomers = HashMap::new();
    let pools = next.pools.iter().enumerate();
    for (at, pool) in pools.filter(|(_, pool)| pool.isolate == Isolate::Home) {
        for index in &pool.sites {
            let site = next.sites.get(*index).into_iter();
            for (mount, root) in site.flat_map(|site| site.roots_of(pool.user.as_ref())) {
                let newcomer = match known.get(&(&*pool.id, &*root.within)) {
                    Some(None) => continue,
                    Some(Some(newcomer)) => Arc::clone(newcomer),
                    None => Arc::default(),
                };
                let tree = match (mount, first_mounts.get(*index)) {
                    (Some(mount), Some(first)) => first + mount,
                    _ => *index,
                };
                if let Ok(tree) = u32::try_from(tree) {
                    newcomers.insert((at, tree), newcomer);
                }
            }
        }
    }
    newcomers
}

/// The counters of each site: those it had `before`, if any.
///
/// They outlive the generation. Made beforehand they lie together; one amid each site would keep
/// from the kernel what lies around it when the rest of the generation is gone.
fn stats(model: &Model, before: Option<&Generation>) -> Vec<Arc<SiteStats>> {
    let sites = before.map_or(&[][..], |before| &before.sites).iter();
    let known: HashMap<_, _> = sites.map(|site| (&*site.name, &site.stats)).collect();
    let kept = |site: &model::Site| known.get(&*site.name()).copied().cloned();
    let sites = model.sites.iter();
    sites.map(|site| kept(site).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
[[listen]]
address = '127.0.0.1:1'
[[sites]]
hosts = ['a.jp']
root = '/a'
rules = [{ match = { path = '/x' }, handler = { static = true } }]
[[sites]]
hosts = ['b.jp']
root = '/b'
rules = [{ match = { path = '/y' }, handler = { static = true } }]
";

    const SITE: &str = "
[[sites]]
hosts = ['HOST.jp']
tenant = 't'
user = 'backup'
root = '/srv/HOST'
rules = [{ handler = { app = { command = ['/bin/true'], directory = '/srv' } } }]
";

    #[test]
    fn who_comes_to_a_pool_of_another_server_is_a_newcomer_and_nobody_else() {
        let model = |hosts: &[&str]| {
            let head = "[pools]\ndirectory = '/run/p'\n[[listen]]\naddress = '127.0.0.1:1'\n";
            let sites = hosts.iter().map(|host| SITE.replace("HOST", host));
            let text = head.to_owned() + &sites.collect::<String>();
            config::load(&config::Sources::from_text("test.toml", &text)).expect("valid")
        };
        let (earlier, next) = (model(&["a", "b"]), model(&["c", "b", "a"]));
        let mut generation = Generation::compile(1, &next, None).expect("small patterns");
        assert_eq!(generation.program_pools.len(), 1, "it is one for all");
        assert!(generation.newcomers.is_empty());
        generation.follow(&next, &earlier);
        let newcomers: Vec<_> = generation.newcomers.keys().collect();
        assert_eq!(newcomers, [&(0, 0)]);
    }

    #[test]
    fn a_generation_shares_what_its_model_shares_and_keeps_none_of_it() {
        let model = config::load(&config::Sources::from_text("test.toml", TEXT)).expect("valid");
        let held = |model: &Model| {
            let site = &model.sites[0];
            let lists = [
                Arc::strong_count(&site.index),
                Arc::strong_count(&site.resolve),
            ];
            let files = Arc::strong_count(&site.files);
            (lists, files, Arc::strong_count(&site.settings))
        };
        let before = held(&model);
        let generation = Generation::compile(1, &model, None).expect("small patterns");
        assert_eq!(held(&model), before);
        let [one, other] = &generation.sites[..] else {
            panic!("two sites");
        };
        assert!(Arc::ptr_eq(&one.files, &other.files));
        let trees = [one, other].map(|site| site.trees().next().expect("a root"));
        assert!(Arc::ptr_eq(&trees[0].index, &trees[1].index));
        assert!(one.settings.is_none() && one.rules[0].settings.is_none());
    }
}
