//! The control groups a configuration asks for, and whether this machine can have them.
//!
//! The idea: two steps. [`Shape`] is what the model alone says: a group for each tenant, site and
//! rule that has a `cgroup` and runs programs, one inside the other, and one for each pool, with
//! limits above it or not, which makes its processes known; and which of them each rule's programs
//! and each pool are born in. [`Verdict`] is what becomes of it on a machine: limits that cannot be had
//! are named, as errors or, where the configuration lets them go, as warnings. A shape is the same
//! on every machine, so that supervisor, spawner and server mean the same groups by it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::Path;

use config::model::{Cgroup, Handler, Model, Plan, Pool, Site};
use config::{reason, size};
use os::cgroup::{
    Controller, Controllers, CpuLimit, Device, Group, Host, IoLimit, Limits, Version,
    directory_name,
};
use serde::{Deserialize, Serialize};

/// A group in words: whose programs are in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The tenant.
    pub tenant: String,
    /// The site, unless it is the tenant's group.
    pub site: Option<String>,
    /// The rule, unless it is the site's or the tenant's group.
    pub rule: Option<String>,
    /// What a script calls it that has made it, below the group of the others.
    pub script: Option<String>,
    /// The pool, in a group that is a pool's alone.
    pub pool: Option<String>,
}

/// The kind of group that scripts make.
pub const OF_SCRIPTS: &str = "script";

/// Every group a model asks for, each after those it is in.
#[derive(Debug, Default)]
pub struct Shape<'a> {
    /// The groups.
    pub groups: Vec<Shaped<'a>>,
    /// The group of each rule that has one, by the indices of site and rule.
    pub leaves: HashMap<(usize, usize), usize>,
    /// The group of each pool, by its index in the model.
    pub pools: Vec<usize>,
    /// Where rows have pools, what binds each tenant of a plan, by its index in the model.
    pub plans: Option<Vec<Option<Shaped<'a>>>>,
}

/// What limits a pool's own group: nothing but those above it.
static UNLIMITED: Cgroup = Cgroup {
    cpu_millicores: None,
    cpu_burst_us: None,
    cpu_weight: None,
    memory_bytes: None,
    memory_high_bytes: None,
    pids: None,
    io: Vec::new(),
    required: false,
};

/// A group a model asks for.
#[derive(Debug)]
pub struct Shaped<'a> {
    /// Directories from the outermost group to this one.
    pub path: Vec<String>,
    /// Whose it is.
    pub owner: Owner,
    cgroup: &'a Cgroup,
}

/// What a machine makes of the groups.
#[derive(Debug, Default)]
pub struct Verdict {
    /// The groups with the limits that can be had, in the order of the shape.
    pub groups: Vec<Group>,
    /// The limits of each plan's tenants, where rows have pools.
    pub plans: Vec<Limits>,
    /// The controllers for that.
    pub needs: Controllers,
    /// Limits that must be there and cannot be.
    pub problems: Vec<Lacking>,
    /// Limits that the configuration lets go, and those that bind less than they seem to.
    pub warnings: Vec<String>,
}

/// A limit that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// Where it is asked for, what is in the way and what to do about it.
    pub message: String,
    /// It may be had by the same program somewhere else on this machine.
    pub is_of_this_place: bool,
}

impl<'a> Shape<'a> {
    /// The groups of a model.
    pub fn of(model: &'a Model) -> Self {
        let mut shape = Self::default();
        let mut known: HashMap<Vec<String>, usize> = HashMap::new();
        for (site_index, site) in model.sites.iter().enumerate() {
            for (rule_index, rule) in site.rules.iter().enumerate() {
                if !matches!(rule.handler, Some(Handler::Cgi(_))) {
                    continue;
                }
                let leaf = shape.add(&mut known, levels(model, site, rule_index));
                let leaf = leaf.map(|leaf| ((site_index, rule_index), leaf));
                shape.leaves.extend(leaf);
            }
        }
        for pool in &model.pools {
            let leaf = shape.add(&mut known, levels_of_pool(model, pool));
            shape.pools.extend(leaf);
        }
        let of_rows = model.sites.iter().any(Site::has_programs_of_rows);
        shape.plans = of_rows.then(|| model.plans.iter().map(of_plan).collect());
        shape
    }

    /// Adds the groups of these levels that are not there, and tells which the innermost is.
    fn add(
        &mut self,
        known: &mut HashMap<Vec<String>, usize>,
        levels: impl Iterator<Item = Level<'a>>,
    ) -> Option<usize> {
        let mut path = Vec::new();
        let mut leaf = None;
        for (name, owner, cgroup) in levels {
            path.push(name);
            let at = *known.entry(path.clone()).or_insert_with(|| {
                let path = path.clone();
                self.groups.push(Shaped {
                    path,
                    owner,
                    cgroup,
                });
                self.groups.len() - 1
            });
            leaf = Some(at);
        }
        leaf
    }

    /// The group that a rule's programs are born in; `None` where no level has one.
    pub fn leaf(&self, site: usize, rule: usize) -> Option<usize> {
        self.leaves.get(&(site, rule)).copied()
    }

    /// The groups in words.
    pub fn owned(&self) -> impl Iterator<Item = (Vec<String>, Owner)> {
        let groups = self.groups.iter();
        groups.map(|it| (it.path.clone(), it.owner.clone()))
    }

    /// The places of groups that have a quota of processors.
    pub fn with_cpu_quota(&self) -> impl Iterator<Item = usize> {
        let groups = self.groups.iter().enumerate();
        let groups = groups.filter(|(_, it)| it.cgroup.cpu_millicores.is_some());
        groups.map(|(place, _)| place)
    }

    /// The places of groups that are a pool's, or around one.
    pub fn around_pools(&self) -> impl Iterator<Item = usize> {
        let of_pools = self.pools.iter().filter_map(|at| self.groups.get(*at));
        let around = of_pools.flat_map(|it| (1..=it.path.len()).map(|depth| &it.path[..depth]));
        let around: HashSet<&[String]> = around.collect();
        let groups = self.groups.iter().enumerate();
        groups.filter_map(move |(place, it)| around.contains(&*it.path).then_some(place))
    }

    /// What this machine makes of it. `device` finds the disk a path is on.
    pub fn judge(&self, host: &Host, device: impl Fn(&Path) -> io::Result<Device>) -> Verdict {
        let mut court = Court {
            host,
            device,
            verdict: Verdict::default(),
            said: BTreeMap::new(),
        };
        for group in &self.groups {
            let limits = court.limits(group);
            let verdict = &mut court.verdict;
            verdict.needs = verdict.needs.union(limits.needs());
            verdict.groups.push(Group {
                path: group.path.clone(),
                limits,
            });
        }
        for plan in self.plans.iter().flatten() {
            let limits = plan.as_ref().map(|plan| court.limits(plan));
            let (limits, verdict) = (limits.unwrap_or_default(), &mut court.verdict);
            verdict.needs = verdict.needs.union(limits.needs());
            verdict.plans.push(limits);
        }
        court.sum_up();
        court.verdict
    }
}

/// The group of each tenant of a plan; its place is the tenant's.
fn of_plan(plan: &Plan) -> Option<Shaped<'_>> {
    let owner = Owner {
        tenant: format!("of plan {}", plan.name),
        ..Owner::default()
    };
    Some(Shaped {
        path: Vec::new(),
        owner,
        cgroup: plan.cgroup.as_deref()?,
    })
}

/// A group on the way: directory, owner, limits.
type Level<'a> = (String, Owner, &'a Cgroup);

/// The levels of a rule that have a `cgroup`, outermost first.
fn levels<'a>(
    model: &'a Model,
    site: &'a Site,
    rule_index: usize,
) -> impl Iterator<Item = Level<'a>> {
    let rule = site.rules.get(rule_index);
    let host = site.name();
    // As rules are counted where they have no name of their own.
    let number = rule_index + 1;
    let level = rule.and_then(|rule| {
        let owner = Owner {
            rule: Some(rule.name.clone()),
            ..owner_of_site(site)
        };
        let name = directory_name("rule", &format!("{host}-{number}"));
        Some((name, owner, rule.cgroup.as_deref()?))
    });
    levels_above(model, &site.tenant, site.tenant_index, Some(site)).chain(level)
}

/// The levels of a pool, whose own group is there in any case: below that of its tenant, and that
/// of its site, where it serves one alone.
fn levels_of_pool<'a>(model: &'a Model, pool: &'a Pool) -> impl Iterator<Item = Level<'a>> {
    let site = match *pool.sites {
        [site] => model.sites.get(site),
        _ => None,
    };
    let owner = Owner {
        tenant: pool.tenant.clone(),
        site: site.map(Site::name),
        pool: Some(pool.name.clone()),
        ..Owner::default()
    };
    let own = (directory_name("pool", &pool.id), owner, &UNLIMITED);
    levels_above(model, &pool.tenant, pool.tenant_index, site).chain([own])
}

/// Those of a tenant and a site that have a `cgroup`.
fn levels_above<'a>(
    model: &'a Model,
    tenant: &str,
    tenant_index: Option<usize>,
    site: Option<&'a Site>,
) -> impl Iterator<Item = Level<'a>> {
    let known = tenant_index.and_then(|at| model.tenants.get(at));
    let of_tenant = known.and_then(|it| it.cgroup.as_deref()).map(|cgroup| {
        let owner = Owner {
            tenant: tenant.to_owned(),
            ..Owner::default()
        };
        (directory_name("tenant", tenant), owner, cgroup)
    });
    let of_site = site.and_then(|site| {
        let name = directory_name("site", &site.name());
        Some((name, owner_of_site(site), site.cgroup.as_deref()?))
    });
    of_tenant.into_iter().chain(of_site)
}

fn owner_of_site(site: &Site) -> Owner {
    Owner {
        tenant: site.tenant.clone(),
        site: Some(site.name()),
        ..Owner::default()
    }
}

impl Owner {
    /// As messages name it.
    pub fn describe(&self) -> String {
        if let Some(pool) = &self.pool {
            return format!("pool {pool}");
        }
        let whose = match (&self.site, &self.rule) {
            (Some(site), Some(rule)) => format!("{rule} of site {site}"),
            (Some(site), None) => format!("site {site}"),
            _ => format!("tenant {}", self.tenant),
        };
        match &self.script {
            Some(name) => format!("{} of {whose}", name.escape_debug()),
            None => whose,
        }
    }
}

struct Court<'a, F> {
    host: &'a Host,
    device: F,
    verdict: Verdict,
    /// What was found once, and how many limits it strikes beside the first.
    said: BTreeMap<(Controller, Severity, &'static str), Finding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Error,
    Warning,
    Hint,
}

struct Finding {
    message: String,
    remedy: Option<String>,
    is_of_this_place: bool,
    more: usize,
}

impl<F: Fn(&Path) -> io::Result<Device>> Court<'_, F> {
    /// The limits of a group that can be had.
    fn limits(&mut self, group: &Shaped<'_>) -> Limits {
        let cgroup = group.cgroup;
        let mut limits = Limits::default();
        if let Some(millicores) = cgroup.cpu_millicores
            && self.has(Controller::Cpu, group, "cpu").is_some()
        {
            limits.cpu = Some(CpuLimit {
                millicores,
                burst_us: cgroup.cpu_burst_us.unwrap_or(0),
            });
        }
        if cgroup.cpu_weight.is_some() && self.has(Controller::Cpu, group, "cpu_weight").is_some() {
            limits.cpu_weight = cgroup.cpu_weight;
        }
        if cgroup.memory_bytes.is_some() && self.has(Controller::Memory, group, "memory").is_some()
        {
            limits.memory_bytes = cgroup.memory_bytes;
        }
        if cgroup.memory_high_bytes.is_some() {
            let version = self.has(Controller::Memory, group, "memory_high");
            if version == Some(Version::V1) {
                self.hint_at_soft_limit(group);
            }
            limits.memory_high_bytes = cgroup.memory_high_bytes.filter(|_| version.is_some());
        }
        if cgroup.pids.is_some() && self.has(Controller::Pids, group, "pids").is_some() {
            limits.pids = cgroup.pids;
        }
        if !cgroup.io.is_empty() && self.has(Controller::Io, group, "io").is_some() {
            limits.io = self.disks(group);
        }
        limits
    }

    /// Which version has a controller; where none has, that is said.
    fn has(&mut self, controller: Controller, group: &Shaped<'_>, key: &str) -> Option<Version> {
        let lack = match self.host.place(controller) {
            Ok(place) => return Some(place.version),
            Err(lack) => lack,
        };
        let (name, why) = (controller.name(), lack.reason());
        let owner = group.owner.describe();
        let finding = Finding {
            message: format!("cgroup of {owner}: {key} needs the controller {name}: {why}"),
            remedy: Some(lack.remedy(controller)),
            is_of_this_place: lack.is_of_this_place(),
            more: 0,
        };
        self.say(controller, severity(group), "lack", finding);
        None
    }

    fn hint_at_soft_limit(&mut self, group: &Shaped<'_>) {
        let owner = group.owner.describe();
        let finding = Finding {
            message: format!(
                "cgroup of {owner}: memory_high only gives way to others here (cgroup v1 has soft \
                 limits); memory is what binds"
            ),
            remedy: None,
            is_of_this_place: false,
            more: 0,
        };
        self.say(Controller::Memory, Severity::Hint, "soft", finding);
    }

    /// The limits of each disk; two paths on one disk share the stricter values.
    fn disks(&mut self, group: &Shaped<'_>) -> Vec<IoLimit> {
        let mut limits: Vec<IoLimit> = Vec::new();
        for wanted in &group.cgroup.io {
            let device = match (self.device)(&wanted.device) {
                Ok(device) => device,
                Err(error) => {
                    let (path, why) = (wanted.device.display(), reason(&error));
                    let owner = group.owner.describe();
                    let finding = Finding {
                        message: format!("cgroup of {owner}: io finds no disk for {path}: {why}"),
                        remedy: Some(
                            "name the block device, as lsblk shows it, or a path on it".into(),
                        ),
                        is_of_this_place: false,
                        more: 0,
                    };
                    self.say(Controller::Io, severity(group), "disk", finding);
                    continue;
                }
            };
            let limit = IoLimit {
                device,
                read_bytes: wanted.read_bytes,
                write_bytes: wanted.write_bytes,
                read_ops: wanted.read_ops,
                write_ops: wanted.write_ops,
            };
            match limits.iter_mut().find(|known| known.device == device) {
                Some(known) => *known = stricter(*known, limit),
                None => limits.push(limit),
            }
        }
        limits
    }

    fn say(
        &mut self,
        controller: Controller,
        severity: Severity,
        kind: &'static str,
        finding: Finding,
    ) {
        let known = self.said.entry((controller, severity, kind));
        known.and_modify(|first| first.more += 1).or_insert(finding);
    }

    fn sum_up(&mut self) {
        for ((_, severity, _), finding) in std::mem::take(&mut self.said) {
            let mut message = finding.message;
            if finding.more > 0 {
                message.push_str(&format!(" (and {} more limits)", finding.more));
            }
            if let Some(remedy) = finding.remedy {
                message.push_str(&format!("; to have it: {remedy}"));
            }
            match severity {
                Severity::Error => {
                    message.push_str("; or let it go: cgroup_required = false");
                    self.verdict.problems.push(Lacking {
                        message,
                        is_of_this_place: finding.is_of_this_place,
                    });
                }
                Severity::Warning => {
                    let message = format!("{message}; programs run without it");
                    self.verdict.warnings.push(message);
                }
                Severity::Hint => self.verdict.warnings.push(message),
            }
        }
    }
}

fn severity(group: &Shaped<'_>) -> Severity {
    if group.cgroup.required {
        Severity::Error
    } else {
        Severity::Warning
    }
}

fn stricter(one: IoLimit, other: IoLimit) -> IoLimit {
    let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
    IoLimit {
        device: one.device,
        read_bytes: least(one.read_bytes, other.read_bytes),
        write_bytes: least(one.write_bytes, other.write_bytes),
        read_ops: least(one.read_ops, other.read_ops),
        write_ops: least(one.write_ops, other.write_ops),
    }
}

/// What binds a group's memory and processes, in words: for the log, when one of them was hit.
pub fn describe(limits: &Limits) -> String {
    let cpu = limits.cpu.map(|cpu| format!("cpu {}m", cpu.millicores));
    let memory = limits
        .memory_bytes
        .map(|bytes| format!("memory {}", size(bytes)));
    let pids = limits.pids.map(|pids| format!("pids {pids}"));
    let each: Vec<String> = [cpu, memory, pids].into_iter().flatten().collect();
    each.join(", ")
}

#[cfg(test)]
mod tests {
    use config::Sources;
    use os::cgroup::Sight;

    use super::*;

    const CONFIG: &str = r#"
[[listen]]
address = "127.0.0.1:8080"

[tenants.example]
cgroup = { memory = "1GiB" }

[tenants.idle]
cgroup = { pids = 5 }

[[sites]]
hosts = ["a.example"]
tenant = "example"
root = "/srv"
cgroup = { cpu = "50%" }
rules = [
  { match = { path = "/slow/*" }, handler = { cgi = true }, cgroup = { cpu = "10%", pids = 9 } },
  { match = { path = "/x/*" }, handler = { cgi = true } },
  { match = { path = "/y" }, handler = { respond = { status = 200 } }, cgroup = { pids = 3 } },
]

[[sites]]
hosts = ["b.example"]
tenant = "idle"
root = "/srv"

[[sites]]
hosts = ["c.example"]
root = "/srv"
rules = [
  { match = { path = "/x/*" }, handler = { cgi = true } },
  { name = "report", match = { path = "/y/*" }, handler = { cgi = true }, cgroup = { io = { device = "/disk", read = "1MiB" } }, cgroup_required = false },
]
"#;

    fn model(text: &str) -> Model {
        let sources = Sources::from_text("nagaya.toml", text);
        config::load(&sources).unwrap_or_else(|problems| {
            panic!("{}", problems.render(config::Colour::Never));
        })
    }

    /// A machine with these controllers in version 1, each at a directory of its own.
    fn host(controllers: &[&str]) -> Host {
        let mut sight = Sight::default();
        for name in controllers {
            let line = format!("1 1 0:1 / /proc/self rw - cgroup cgroup rw,{name}\n");
            sight.mountinfo.push_str(&line);
            sight.cgroup.push_str(&format!("1:{name}:/fdinfo\n"));
        }
        Host::of(&sight)
    }

    #[test]
    fn groups_are_nested_and_only_where_programs_run_and_something_is_limited() {
        let model = model(CONFIG);
        let shape = Shape::of(&model);
        let paths: Vec<String> = shape.groups.iter().map(|g| g.path.join("/")).collect();
        assert_eq!(
            paths,
            [
                "tenant-example",
                "tenant-example/site-a.example",
                "tenant-example/site-a.example/rule-a.example-1",
                "rule-c.example-2",
            ]
        );
        let owners: Vec<String> = shape.groups.iter().map(|g| g.owner.describe()).collect();
        assert_eq!(
            owners,
            [
                "tenant example",
                "site a.example",
                "rule 1 of site a.example",
                "report of site c.example",
            ]
        );
        for (site, rule, leaf) in [
            (0, 0, Some(2)),
            (0, 1, Some(1)),
            (0, 2, None),
            (2, 0, None),
            (2, 1, Some(3)),
            (9, 9, None),
        ] {
            assert_eq!(shape.leaf(site, rule), leaf, "{site} {rule}");
        }
    }

    #[test]
    fn a_pool_has_a_group_of_its_own_below_those_with_limits() {
        let text = CONFIG.replace(
            "handler = { respond = { status = 200 } }, cgroup = { pids = 3 }",
            "handler = { php = true }",
        );
        let text = format!(
            "{text}
[[sites]]
hosts = [\"d.example\"]
tenant = \"example\"
user = \"d\"
root = \"/srv\"
rules = [{{ handler = {{ php = true }} }}]

[[sites]]
hosts = [\"e.example\"]
user = \"e\"
root = \"/srv\"
rules = [{{ handler = {{ php = true }} }}]
"
        );
        let text = text.replacen("root =", "user = \"a\"\nroot =", 1);
        let sources = Sources::from_text("nagaya.toml", &text);
        let sources = sources.with_php("8.2", "/usr/sbin/php-fpm8.2");
        let model = config::load(&sources).unwrap_or_else(|problems| panic!("{problems}"));
        let shape = Shape::of(&model);
        let above = shape.pools.iter().zip(&model.pools).map(|(at, pool)| {
            let (own, above) = shape.groups[*at].path.split_last().unwrap();
            assert_eq!(*own, directory_name("pool", &pool.id));
            let owner = &shape.groups[*at].owner;
            assert_eq!(owner.describe(), format!("pool {}", pool.name));
            above.join("/")
        });
        let above: Vec<_> = above.collect();
        assert_eq!(
            above,
            ["tenant-example/site-a.example", "tenant-example", ""]
        );
        let verdict = shape.judge(&host(&[]), |_| Ok(Device { major: 8, minor: 0 }));
        let of_pools = shape.pools.iter().map(|at| &verdict.groups[*at].limits);
        assert!(
            of_pools
                .into_iter()
                .all(|limits| *limits == Limits::default())
        );
        assert_eq!(verdict.problems.len(), 3, "pools ask for nothing");
    }

    #[test]
    fn what_cannot_be_had_is_named_once_with_what_to_do() {
        let model = model(CONFIG);
        let shape = Shape::of(&model);
        let nothing = |_: &Path| Ok(Device { major: 8, minor: 0 });
        let verdict = shape.judge(&host(&[]), nothing);
        assert!(verdict.needs.is_empty());
        assert!(verdict.groups.iter().all(|g| g.limits == Limits::default()));
        let messages: Vec<&str> = verdict
            .problems
            .iter()
            .map(|p| p.message.as_str())
            .collect();
        for (message, parts) in messages.iter().zip([
            [
                "cgroup of site a.example: cpu needs the controller cpu",
                "(and 1 more limits)",
            ],
            [
                "cgroup of tenant example: memory needs the controller memory",
                "run a kernel",
            ],
            [
                "cgroup of rule 1 of site a.example: pids needs",
                "cgroup_required = false",
            ],
        ]) {
            for part in parts {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
        assert_eq!(messages.len(), 3, "{messages:#?}");
        let [warning] = verdict.warnings.as_slice() else {
            panic!("{:?}", verdict.warnings);
        };
        assert!(
            warning.contains("report of site c.example: io needs"),
            "{warning}"
        );
        assert!(warning.ends_with("programs run without it"), "{warning}");
    }

    #[test]
    fn a_disk_that_is_none_is_named() {
        let text = CONFIG.replace("cgroup_required = false", "cgroup_required = true");
        let model = model(&text);
        let host = Host::of(&Sight::default());
        let court = |device: io::Result<Device>| {
            let mut court = Court {
                host: &host,
                device: |_: &Path| match &device {
                    Ok(device) => Ok(*device),
                    Err(error) => Err(io::Error::other(error.to_string())),
                },
                verdict: Verdict::default(),
                said: BTreeMap::new(),
            };
            let shape = Shape::of(&model);
            let disks = court.disks(&shape.groups[3]);
            court.sum_up();
            (disks, court.verdict)
        };
        let (disks, verdict) = court(Ok(Device { major: 8, minor: 0 }));
        assert_eq!(disks.len(), 1);
        assert!(verdict.problems.is_empty());
        let (disks, verdict) = court(Err(io::Error::other("it lies on no block device")));
        assert!(disks.is_empty());
        let message = &verdict.problems[0].message;
        assert!(message.contains("finds no disk for /disk"), "{message}");
    }

    #[test]
    fn limits_are_put_into_words() {
        let limits = Limits {
            memory_bytes: Some(64 << 20),
            pids: Some(7),
            ..Limits::default()
        };
        assert_eq!(describe(&limits), "memory 64MiB, pids 7");
    }
}
