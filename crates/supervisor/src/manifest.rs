//! What the spawner is told of a configuration: the rules, maps and pools that run programs, and
//! nothing else.

use std::collections::BTreeSet;

use config::model::{Cgi, Handler, MapSource, Model, Mount, Site, Symlinks};
use config::reason;
use ipc::codec::Packed;
use ipc::groups::Shape;
use ipc::manifest::{Manifest, MapManifest, NamedProgram, RuleManifest, SiteManifest};
use ipc::rows::RowKey;
use os::cgroup::{Base, Controller, Controllers, Group, Layout, Limits};

use crate::directory::{row_key, written_tenants};
use crate::{pools, surroundings};

/// Makes a generation's manifest, and takes the controllers it needs; the errors are what this process
/// or this machine cannot do for it.
pub(super) fn of(model: &Model, generation: u64, base: &mut Base) -> Result<Manifest, Vec<String>> {
    let shape = Shape::of(model);
    let mut problems = Vec::new();
    let mut sites = Vec::new();
    for (index, (at, site, mount)) in (0..).zip(roots(model)) {
        let rules = rules(site, |rule| shape.leaf(at, rule));
        let root = mount.map_or(site.root.as_ref(), |mount| Some(&mount.root));
        let Some(root) = root.filter(|_| !rules.is_empty()) else {
            continue;
        };
        match surroundings::user(site, mount) {
            Ok(user) => sites.push(SiteManifest {
                index,
                name: site.name() + mount.map_or("", |mount| mount.path.as_str()),
                tenant: site.tenant.clone(),
                root: root.path.clone(),
                within: root.within.clone(),
                symlinks: symlinks(root.symlinks),
                user,
                rules,
            }),
            Err(problem) => problems.push(problem),
        }
    }
    let maps = maps(model, &mut problems);
    let pools = pools::manifest::of(model, &shape, &mut problems);
    problems.extend(surroundings::servers_own(model));
    problems.extend(surroundings::unbecomable_chores(model));
    let may_wish = model.all_scripts().next().is_some();
    let more = Controllers::from_iter(may_wish.then_some(WISHED).into_iter().flatten());
    let more = more.union(Controllers::from_iter(
        (!model.pools.is_empty() || shape.plans.is_some()).then_some(Controller::Cpu),
    ));
    let (layout, groups, plans) = groups(&shape, more, base).unwrap_or_else(|found| {
        problems.extend(found);
        Default::default()
    });
    let rows = pools::rows::of(model, &plans, &mut problems);
    let written_tenants = match rows.is_empty() {
        true => Vec::new(),
        false => written_tenants(model),
    };
    let row_key = row_key().unwrap_or_else(|problem| {
        problems.push(problem);
        RowKey::default()
    });
    if problems.is_empty() {
        Ok(Manifest {
            generation,
            is_beside: false,
            log_level: model.log.level,
            programs_max: model.caps.programs as u64,
            layout,
            groups,
            sites,
            maps,
            pools,
            rows,
            row_key,
            written_tenants,
            starting_max: model.pool_terms.starting,
            sees: pools::manifest::sees(model),
            cache_bytes: model.pool_terms.cache_bytes,
            mail: model.pool_terms.mail.clone(),
            suspended: model.suspended.iter().cloned().collect(),
        })
    } else {
        Err(problems)
    }
}

/// What programs may be run from: every site, and then the mounts of each, with their site's index.
fn roots(model: &Model) -> impl Iterator<Item = (usize, &Site, Option<&Mount>)> {
    let sites = model.sites.iter().enumerate();
    let own = sites.clone().map(|(at, site)| (at, site, None));
    let mounts = sites.flat_map(|(at, site)| {
        let mounts = site.mounts.iter();
        mounts.map(move |mount| (at, site, Some(mount)))
    });
    own.chain(mounts)
}

/// The maps that run programs.
fn maps(model: &Model, problems: &mut Vec<String>) -> Vec<MapManifest> {
    let mut manifest = Vec::new();
    for (index, map) in (0..).zip(&model.maps) {
        let MapSource::Program(program) = &map.source else {
            continue;
        };
        match surroundings::user_of_map(map, program) {
            Ok(user) => manifest.push(MapManifest {
                index,
                program: NamedProgram {
                    whose: format!("map {}", map.name),
                    command: program.command.clone(),
                    directory: program.directory.clone(),
                    user,
                    may_be_root: false,
                },
                processes: u32::try_from(program.processes).unwrap_or(u32::MAX),
            }),
            Err(problem) => problems.push(problem),
        }
    }
    manifest
}

pub(super) fn symlinks(symlinks: Symlinks) -> os::file::Symlinks {
    match symlinks {
        Symlinks::Deny => os::file::Symlinks::Deny,
        Symlinks::Owner => os::file::Symlinks::Owner,
        Symlinks::Allow => os::file::Symlinks::Allow,
    }
}

/// The rules of a site that run programs, each in its group.
pub(super) fn rules(site: &Site, group: impl Fn(usize) -> Option<usize>) -> Vec<RuleManifest> {
    let mut manifest = Vec::new();
    for (index, rule) in (0_u32..).zip(&site.rules) {
        let Some(Handler::Cgi(cgi)) = &rule.handler else {
            continue;
        };
        let leaf = group(index as usize);
        manifest.push(RuleManifest {
            index,
            names: names(site, cgi),
            limits: os::spawn::Limits {
                cpu_s: cgi.limits.cpu_s,
                memory_bytes: cgi.limits.memory_bytes,
                files: cgi.limits.files,
                processes: cgi.limits.processes,
                file_size_bytes: cgi.limits.file_size_bytes,
            },
            group: leaf.and_then(|leaf| u32::try_from(leaf).ok()),
        });
    }
    manifest
}

/// Controllers that scripts may set limits of, where the machine has them.
const WISHED: [Controller; 5] = [
    Controller::Cpu,
    Controller::Memory,
    Controller::Pids,
    Controller::Io,
    Controller::Cpuset,
];

/// What a group has where nothing is said.
const CPU_WEIGHT_USUAL: u32 = 100;

/// Where groups stand, the groups, and the limits of plans.
type Granted = (Layout, Packed<Vec<Group>>, Vec<Limits>);

/// The groups, with the limits that can be had, where they stand, and the limits of plans; `more` are controllers that
/// are taken too, as far as they can be.
fn groups(shape: &Shape<'_>, more: Controllers, base: &mut Base) -> Result<Granted, Vec<String>> {
    if shape.groups.is_empty() && shape.plans.is_none() {
        return Ok(Default::default());
    }
    let verdict = shape.judge(base.host(), os::cgroup::device_of);
    for warning in &verdict.warnings {
        tracing::warn!("{warning}");
    }
    if !verdict.problems.is_empty() {
        let problems = verdict.problems.into_iter();
        return Err(problems.map(|lacking| lacking.message).collect());
    }
    for controller in more.iter() {
        let wanted = Controllers::from_iter([controller]);
        let is_there = base.host().place(controller).is_ok();
        if is_there && let Err(error) = base.claim(wanted) {
            let reason = reason(&error.error);
            tracing::info!(
                "neither scripts nor pools have the controller {}: {}: {reason}",
                controller.name(),
                error.what
            );
        }
    }
    let layout = base.claim(verdict.needs).map_err(|error| {
        let reason = reason(&error.error);
        vec![format!("{}: {reason}", error.what)]
    })?;
    let mut groups = verdict.groups;
    if layout.of(Controller::Cpu).is_some() {
        // It is what they have in any case, and has their groups stand there: a pool is known and
        // ended by its group.
        for at in &shape.pools {
            if let Some(group) = groups.get_mut(*at) {
                group.limits.cpu_weight = Some(CPU_WEIGHT_USUAL);
            }
        }
    }
    let packed = Packed::of(&groups);
    let packed = packed.map_err(|error| vec![format!("write groups down: {}", reason(&error))])?;
    Ok((layout.clone(), packed, verdict.plans))
}

/// The variables that a program may get beside the usual ones: those its rule sets, and `env` of
/// the site and of any rule that may have matched before.
fn names(site: &Site, cgi: &Cgi) -> Vec<String> {
    let levels = site.rules.iter().map(|rule| &rule.settings);
    let levels = std::iter::once(&site.settings).chain(levels);
    let env = levels.flat_map(|settings| settings.env.iter().map(|it| &it.name));
    let params = cgi.params.iter();
    let set = params.filter_map(|(name, value)| value.is_some().then_some(name));
    let names: BTreeSet<&String> = env.chain(set).collect();
    names.into_iter().cloned().collect()
}
