//! All limits of a generation: compiled with it, named by the ledger once it is in force.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use config::model::{self, LimitIdentities, LimitKey, LimitOn, LimitPlace, Model};
use ipc::groups::Owner;
use limits::fleet::FleetRules;
use limits::{Defined, Definition, LimitId, TenantDefinition, TenantId};

use super::caps;
use super::definitions::{changed, definition};
use super::level::Level;
use super::limit::{Key, Limit, Place, Scope};
use crate::conditions::{self, Conditions};
use crate::costs::Costs;
use crate::error::{Error, Kind, Result};

/// The limits of one generation.
#[derive(Debug, Default)]
pub struct Limits {
    /// Those of the process.
    pub(super) process: Level,
    /// Those of tenants, in the order of `tenant_definitions`.
    pub(super) tenants: Vec<Level>,
    /// Those of plans, in the order of the configuration; none where no row can name one.
    pub(super) plans: Vec<Level>,
    /// Those of upstreams, in the order of the configuration; none at all where no upstream has any.
    pub(super) upstreams: Vec<Level>,
    /// The places for programs, and the turns of passwords to be compared; none where no rule
    /// starts a program, or nothing asks for a password.
    pub(super) programs: Level,
    pub(super) passwords: Level,
    /// The groups with a quota of processors, each with a limit of its own.
    pub(super) throttled: Vec<QuotaGroup>,
    /// Whether there is one that counts how fast requests come.
    pub(super) has_rates: bool,
    /// Whether there is one that counts how many there are at once.
    pub(super) has_permits: bool,
    /// Whether there is one that counts handshakes.
    pub(super) has_handshakes: bool,
    /// Whether one that stands outside of sites looks at the resolved file.
    pub(super) needs_file: bool,
    /// By which rules permits are leased of a store that machines share.
    pub(crate) fleet: Option<FleetRules>,
    /// What this machine is called among them.
    pub(crate) machine: Option<String>,
    /// Digests of the configuration's parts, where there are such rules.
    pub(crate) digests: BTreeMap<String, String>,
    /// Workers of the gateway.
    pub(super) workers: usize,
    definitions: Vec<Definition>,
    /// What operators have kept of changes, by index.
    kept: Vec<(usize, Kept)>,
    /// Of those that do not count all requests at all times, which they count; by index, in order.
    scopes: Vec<(usize, Scope)>,
    /// Permits that are tenants' before others', by the limit's index.
    reserves: Vec<(usize, model::Reserve)>,
    /// Indexes of those whose keys say nothing of clients, in order.
    public_keys: Vec<usize>,
    /// Indexes of those that stand on rules without names, in order.
    unnamed: Vec<usize>,
    tenant_definitions: Vec<TenantDefinition>,
    defined: OnceLock<Defined>,
}

/// What an operator has kept of changes of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The limit with these changes.
    pub definition: Definition,
    /// The overrides file.
    pub file: Arc<str>,
    /// The line of it, from 1.
    pub line: usize,
}

/// A group with a quota of processors, and its limit.
#[derive(Debug)]
pub(super) struct QuotaGroup {
    /// Index of the limit.
    pub(super) index: u32,
    pub(super) path: Vec<String>,
    /// Thousandths of a core.
    pub(super) millicores: u32,
    /// Whether requests have come to its programs since the last look.
    pub(super) was_used: AtomicBool,
}

impl Limits {
    /// The limits as configured, in the order of their indexes.
    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// What operators have kept of changes, by index.
    pub(super) fn kept(&self) -> &[(usize, Kept)] {
        &self.kept
    }

    /// Which requests a limit counts; `None`: all, at all times.
    pub(super) fn scope(&self, at: usize) -> Option<&Scope> {
        let found = self.scopes.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        self.scopes.get(found).map(|(_, scope)| scope)
    }

    /// Whether the keys of a limit say nothing of who a client is; whoever built it.
    pub(crate) fn has_public_keys(&self, limit: LimitId) -> bool {
        let mut public = self.public_keys.iter();
        public.any(|at| self.id(*at) == Some(limit))
    }

    /// Whether a limit is called by the place of its rule, and so may be called otherwise after a
    /// reload.
    pub(super) fn is_on_unnamed_rule(&self, at: usize) -> bool {
        self.unnamed.binary_search(&at).is_ok()
    }

    /// What tenants have of a limit before others.
    pub(super) fn reserves_of(&self, at: usize) -> impl Iterator<Item = &model::Reserve> {
        let of_limit = self.reserves.iter().filter(move |(of, _)| *of == at);
        of_limit.map(|(_, reserve)| reserve)
    }

    /// The same of all limits, as the ledger names them; nothing before the generation was in force.
    pub(super) fn reserves(&self) -> Vec<(LimitId, TenantId, u32)> {
        let reserves = self.reserves.iter();
        let named = reserves.filter_map(|(at, reserve)| {
            let mut tenants = self.tenant_definitions.iter();
            let tenant = tenants.position(|it| it.name == reserve.tenant)?;
            let tenant = *self.defined()?.tenants.get(tenant)?;
            Some((self.id(*at)?, tenant, reserve.permits))
        });
        named.collect()
    }

    /// What the ledger is told of the tenants.
    pub fn tenant_definitions(&self) -> &[TenantDefinition] {
        &self.tenant_definitions
    }

    /// How the ledger names the places for programs, with those of a site's groups.
    pub(super) fn of_programs<'a>(
        &'a self,
        of_groups: &'a Level,
    ) -> impl Iterator<Item = LimitId> + 'a {
        let places = self.programs.iter().chain(&**of_groups);
        places.filter_map(|limit| self.id(limit.index()))
    }

    /// Notes how the ledger names them. Only the first time counts.
    pub fn name(&self, defined: Defined) {
        let _ = self.defined.set(defined);
    }

    /// Index of a limit by its identity.
    pub(super) fn position(&self, identity: &str) -> Option<usize> {
        let mut known = self.definitions.iter();
        known.position(|definition| definition.identity == identity)
    }

    /// Whether a limit is made of `caps` or a `cgroup`, not of an entry of `limits`.
    pub(super) fn is_of_caps(&self, at: usize) -> bool {
        let mut own = self.programs.iter().chain(&*self.passwords);
        own.any(|limit| limit.index() == at) || self.is_throttled(at)
    }

    /// Whether a limit follows the throttling of a group.
    pub(super) fn is_throttled(&self, at: usize) -> bool {
        let number = |group: &QuotaGroup| group.index as usize;
        self.throttled.binary_search_by_key(&at, number).is_ok()
    }

    /// Has the groups of a level looked at: a request comes to their programs.
    pub(super) fn note_use(&self, of_groups: &Level) {
        for limit in &**of_groups {
            let number = |group: &QuotaGroup| group.index as usize;
            let at = self.throttled.binary_search_by_key(&limit.index(), number);
            // Written once by many: workers do not contend for it.
            if let Some(group) = at.ok().and_then(|at| self.throttled.get(at))
                && !group.was_used.load(Relaxed)
            {
                group.was_used.store(true, Relaxed);
            }
        }
    }

    /// Whether tenants of rows are to have places in the ledger.
    pub(crate) fn needs_tenants(&self) -> bool {
        !self.definitions.is_empty()
    }

    /// Whether a plan has any.
    pub(super) fn any_of_plans(&self) -> bool {
        self.plans.iter().any(|level| !level.is_empty())
    }

    /// Whether one is configured exactly so.
    pub(super) fn has(&self, configured: &Definition) -> bool {
        self.definitions.contains(configured)
    }

    /// How the ledger names a limit; `None` before the generation was in force.
    pub fn id(&self, index: usize) -> Option<LimitId> {
        self.defined.get()?.limits.get(index).copied()
    }

    /// How the ledger names limits and tenants; `None` before the generation was in force.
    pub(super) fn defined(&self) -> Option<&Defined> {
        self.defined.get()
    }

    /// The name of a tenant.
    pub(super) fn tenant_name(&self, index: u32) -> &str {
        let tenant = usize::try_from(index).ok();
        let tenant = tenant.and_then(|index| self.tenant_definitions.get(index));
        tenant.map_or("", |tenant| &tenant.name)
    }
}

/// The group of a tenant or a site.
#[derive(Debug, Clone)]
struct LevelGroup {
    path: Vec<String>,
    /// Index of its limit, once that is compiled.
    index: Option<u32>,
}

/// Limits being compiled, one level after another.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    limits: Limits,
    model: &'a Model,
    costs: Arc<Costs>,
    tenants: HashMap<&'a str, u32>,
    identities: LimitIdentities,
    /// The groups of tenants and sites, by tenant and site.
    groups: HashMap<(&'a str, Option<String>), LevelGroup>,
    /// Whether the model has any limit at all.
    is_needed: bool,
    /// Whether what is compiled stands on a site that stands for those of rows.
    is_of_rows: bool,
}

impl<'a> Builder<'a> {
    /// Compiles what stands outside of sites.
    ///
    /// # Errors
    /// As [`Limit::compile`].
    pub(crate) fn new(
        model: &'a Model,
        costs: &Arc<Costs>,
        groups: &'a [(Vec<String>, Owner)],
    ) -> Result<Self> {
        let mut builder = Self {
            limits: Limits {
                workers: model.workers,
                fleet: model.fleet.as_ref().map(|fleet| FleetRules {
                    lease: Duration::from_millis(fleet.lease_ms),
                    machines_min: fleet.machines,
                }),
                machine: model.fleet.as_ref().map(|fleet| {
                    let own = fleet.machine.clone();
                    own.unwrap_or_else(|| os::kernel::name().node)
                }),
                digests: (model.fleet.iter().flat_map(|_| config::digests(model))).collect(),
                ..Limits::default()
            },
            model,
            costs: Arc::clone(costs),
            tenants: HashMap::new(),
            identities: LimitIdentities::default(),
            groups: HashMap::new(),
            is_needed: has_any(model),
            is_of_rows: false,
        };
        if caps::has_quotas(model) {
            let own = groups
                .iter()
                .filter(|(_, it)| it.rule.is_none() && it.pool.is_none());
            let own = own.map(|(path, it)| {
                let (path, index) = (path.clone(), None);
                ((&*it.tenant, it.site.clone()), LevelGroup { path, index })
            });
            builder.groups = own.collect();
        }
        if !builder.is_needed {
            return Ok(builder);
        }
        builder.limits.process = builder.level(LimitPlace::Process, &model.limits)?;
        if caps::runs_programs(model) {
            let programs = caps::programs(model);
            builder.limits.programs = builder.level(LimitPlace::Process, &programs)?;
        }
        if caps::asks_passwords(model) {
            let has_permits = builder.limits.has_permits;
            let passwords = caps::passwords(model);
            builder.limits.passwords = builder.level(LimitPlace::Process, &passwords)?;
            builder.limits.has_permits = has_permits;
        }
        if model.upstreams.iter().any(|it| !it.limits.is_empty()) {
            for upstream in &model.upstreams {
                let place = LimitPlace::Upstream(&upstream.name);
                let level = builder.level(place, &upstream.limits)?;
                builder.limits.upstreams.push(level);
            }
        }
        if model.sites.iter().any(|site| site.rows.is_some()) {
            for plan in &model.plans {
                let level = builder.level(LimitPlace::Plan(&plan.name), &plan.limits)?;
                builder.limits.plans.push(level);
            }
        }
        builder.limits.needs_file = outer(model).any(needs_file);
        Ok(builder)
    }

    /// Index of the tenant of a site, whose limits are compiled with the first of its sites.
    ///
    /// # Errors
    /// As [`Limit::compile`].
    pub(crate) fn tenant(&mut self, site: &'a model::Site) -> Result<u32> {
        if !self.is_needed {
            return Ok(0);
        }
        if let Some(known) = self.tenants.get(site.tenant.as_str()) {
            return Ok(*known);
        }
        let index = number(self.limits.tenants.len())?;
        let said = site
            .tenant_index
            .and_then(|index| self.model.tenants.get(index));
        let limits = said.map_or(&[][..], |tenant| &tenant.limits);
        let level = self.level(LimitPlace::Tenant(&site.tenant), limits)?;
        self.limits.tenants.push(level);
        self.limits.tenant_definitions.push(TenantDefinition {
            name: site.tenant.clone(),
            weight: said.map_or(1, |tenant| tenant.weight),
            keys_max: u32::try_from(self.model.caps.limit_keys).unwrap_or(u32::MAX),
        });
        self.tenants.insert(&site.tenant, index);
        Ok(index)
    }

    /// The limits that follow the throttling of the groups of a site and its tenant, each of which has
    /// one.
    ///
    /// # Errors
    /// As [`Limit::compile`].
    pub(crate) fn throttled(&mut self, site: &'a model::Site) -> Result<Level> {
        if self.groups.is_empty() {
            return Ok(Level::default());
        }
        let host = site.name();
        let said = site.tenant_index;
        let said = said.and_then(|index| self.model.tenants.get(index));
        let of_tenant = said.and_then(|it| caps::quota(&it.cgroup));
        let levels = [
            (
                LimitPlace::Site(&host),
                caps::quota(&site.cgroup),
                Some(host.clone()),
                caps::throttled(&site.limits, LimitKey::Site),
            ),
            (
                LimitPlace::Tenant(&site.tenant),
                of_tenant,
                None,
                caps::throttled(self.tenant_limits(site), LimitKey::Tenant),
            ),
        ];
        let mut level = Vec::new();
        for (place, quota, of_site, limit) in levels {
            let known = self.groups.get(&(site.tenant.as_str(), of_site.clone()));
            let (Some(millicores), Some(known)) = (quota, known.cloned()) else {
                continue;
            };
            let LevelGroup { path, index } = known;
            let index = match index {
                Some(index) => index,
                None => {
                    let index = number(self.limits.definitions.len())?;
                    self.level(place, std::slice::from_ref(&limit))?;
                    let known = LevelGroup {
                        path: path.clone(),
                        index: Some(index),
                    };
                    self.groups.insert((&site.tenant, of_site), known);
                    self.limits.throttled.push(QuotaGroup {
                        index,
                        path,
                        millicores,
                        was_used: AtomicBool::new(false),
                    });
                    index
                }
            };
            let costs = (None, &self.costs);
            level.push(Limit::compile(&limit, index, place.into(), costs)?);
        }
        Ok(Level::from(level))
    }

    /// Compiles the limits of one level.
    ///
    /// # Errors
    /// As [`Limit::compile`].
    pub(crate) fn level(&mut self, at: LimitPlace<'_>, limits: &[model::Limit]) -> Result<Level> {
        let place = match self.is_of_rows {
            true => Place::from(at).of_rows(),
            false => Place::from(at),
        };
        let zone = self.model.time_zone.as_deref();
        let mut level = Vec::with_capacity(limits.len());
        let mut of_handshakes = Vec::new();
        for limit in limits {
            let index = number(self.limits.definitions.len())?;
            let compiled = Limit::compile(limit, index, place, (zone, &self.costs))?;
            match limit.on {
                LimitOn::Request => {
                    self.limits.has_rates |= compiled.has_rate;
                    self.limits.has_permits |= compiled.has_permits;
                }
                LimitOn::Handshake => self.limits.has_handshakes = true,
            }
            let identity = self.identities.next(at, &limit.name);
            let workers = self.model.workers;
            let definition = definition(limit, identity, &compiled.key, place, workers);
            if let Some(kept) = &limit.kept {
                let kept = Kept {
                    definition: changed(&definition, &limit.in_force(), workers),
                    file: Arc::clone(&kept.file),
                    line: kept.line,
                };
                self.limits.kept.push((compiled.index(), kept));
            }
            let reserves = limit.reserves.iter();
            let reserves = reserves.map(|reserve| (compiled.index(), reserve.clone()));
            self.limits.reserves.extend(reserves);
            if let Some(scope) = compiled.scope() {
                self.limits.scopes.push((compiled.index(), scope));
            }
            if compiled.key.is_public() {
                self.limits.public_keys.push(compiled.index());
            }
            if matches!(at, LimitPlace::UnnamedRule(..)) {
                self.limits.unnamed.push(compiled.index());
            }
            self.limits.definitions.push(definition);
            match limit.on {
                LimitOn::Request => level.push(compiled),
                LimitOn::Handshake => of_handshakes.push(compiled),
            }
        }
        level.sort_by_key(Limit::is_fixed);
        of_handshakes.sort_by_key(Limit::is_fixed);
        let mut level = Level::from(level);
        level.of_handshakes = of_handshakes.into();
        Ok(level)
    }

    /// Has what is compiled from here on count each row's site for itself, or not.
    pub(crate) fn keep_rows_apart(&mut self, is_of_rows: bool) {
        self.is_of_rows = is_of_rows;
    }

    /// Whether a site's requests are resolved for the sake of a limit.
    pub(crate) fn need_file(&self, site: &model::Site) -> bool {
        let rules = site.rules.iter().flat_map(|rule| rule.limits.iter());
        let tenant = self.tenant_limits(site).iter();
        let plans = self.plan_limits(site);
        let mut classes = self.tenant_classes(site).iter();
        self.is_needed
            && (self.limits.needs_file
                || classes.any(|class| conditions::need_file(&class.conditions))
                || site
                    .limits
                    .iter()
                    .chain(tenant)
                    .chain(plans)
                    .chain(rules)
                    .any(needs_file))
    }

    /// What limits of a site's requests, whatever their rules, and classes want to know of maps.
    ///
    /// # Errors
    /// As [`Limit::compile`].
    pub(crate) fn asking(&self, site: &model::Site) -> Result<Arc<[Conditions]>> {
        let around = self.tenant_limits(site).iter().chain(site.limits.iter());
        let around = around.chain(self.plan_limits(site));
        let limits = outer(self.model).chain(around).map(judged);
        let classes = self.tenant_classes(site).iter();
        asking_any(
            limits.chain(classes.map(|class| (&*class.name, &*class.conditions))),
            &self.costs,
        )
    }

    /// All of them.
    pub(crate) fn finish(self) -> Limits {
        let mut limits = self.limits;
        limits.definitions.shrink_to_fit();
        limits.tenants.shrink_to_fit();
        limits.tenant_definitions.shrink_to_fit();
        limits
    }

    fn tenant_limits(&self, site: &model::Site) -> &'a [model::Limit] {
        let tenant = site.tenant_index;
        let tenant = tenant.and_then(|index| self.model.tenants.get(index));
        tenant.map_or(&[], |tenant| &tenant.limits)
    }

    /// Limits that a tenant of a row may have.
    fn plan_limits(&self, site: &model::Site) -> impl Iterator<Item = &'a model::Limit> + use<'a> {
        let plans = self.model.plans.iter();
        let is_of_rows = site.rows.is_some();
        plans
            .filter(move |_| is_of_rows)
            .flat_map(|plan| plan.limits.iter())
    }

    fn tenant_classes(&self, site: &model::Site) -> &'a [model::RequestClass] {
        let tenant = site.tenant_index;
        let tenant = tenant.and_then(|index| self.model.tenants.get(index));
        tenant.map_or(&[], |tenant| &tenant.classes)
    }
}

fn has_any(model: &Model) -> bool {
    let sites = model.sites.iter();
    let site = |site: &model::Site| {
        !site.limits.is_empty() || site.rules.iter().any(|rule| !rule.limits.is_empty())
    };
    let tenants = model.tenants.iter();
    outer(model).next().is_some()
        || tenants.clone().any(|tenant| !tenant.limits.is_empty())
        || model.plans.iter().any(|plan| !plan.limits.is_empty())
        || sites.clone().any(site)
        || caps::runs_programs(model)
        || caps::asks_passwords(model)
        || caps::has_quotas(model)
}

/// Limits that stand outside of tenants and sites.
fn outer(model: &Model) -> impl Iterator<Item = &model::Limit> {
    let upstreams = model.upstreams.iter().flat_map(|it| it.limits.iter());
    model.limits.iter().chain(upstreams)
}

fn needs_file(limit: &model::Limit) -> bool {
    Key::needs_file(&limit.key) || conditions::need_file(&limit.conditions)
}

/// The conditions of those limits that ask maps.
///
/// # Errors
/// As [`Limit::compile`].
pub(crate) fn asking<'a>(
    limits: impl IntoIterator<Item = &'a model::Limit>,
    costs: &Arc<Costs>,
) -> Result<Arc<[Conditions]>> {
    asking_any(limits.into_iter().map(judged), costs)
}

/// What a limit is called, and its conditions.
fn judged(limit: &model::Limit) -> (&str, &[model::Condition]) {
    (&limit.name, &limit.conditions)
}

/// As [`asking`], of limits and classes.
fn asking_any<'a>(
    all: impl Iterator<Item = (&'a str, &'a [model::Condition])>,
    costs: &Arc<Costs>,
) -> Result<Arc<[Conditions]>> {
    let mut asking = all
        .filter(|(_, conditions)| conditions::ask_maps(conditions))
        .peekable();
    if asking.peek().is_none() {
        return Ok(Arc::default());
    }
    let compiled = asking.map(|(name, conditions)| {
        let whose = format!("limit {name}");
        Conditions::compile(conditions, &whose, (costs, &Default::default()))
    });
    let compiled = compiled.collect::<std::result::Result<_, _>>();
    compiled.map_err(|error| Error::new(Kind::Internal, "pattern_too_large", error.to_string()))
}

fn number(count: usize) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::new(Kind::Internal, "too_many_limits", String::new()))
}
