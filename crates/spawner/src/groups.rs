//! The control groups programs are born in, and what they ran into there.
//!
//! The idea: the groups of the latest manifest are there, with its limits; a program of an earlier one
//! is born in its own manifest's group, which is made again if it has gone. What a program ran into is
//! told from counters of its group at its birth and at its end: of two that fail at once, both
//! may be told of the limit that one of them hit. A limit below the memory in use may have to wait
//! ([`os::cgroup::HeldLimit`]); the supervisor is told which do.
//!
//! A worker's script may name a group of its own and limits for it. It is made below the group of
//! the rule, so it only ever takes away, and few are for one rule; where the rule has no group the
//! program is not run, since a limit somebody asked for would not hold.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ipc::manifest::{FromSpawner, Manifest};
use ipc::order::{Failure, LimitHit};
use os::cgroup::{Error, Group, HeldLimit, Hits, Layout, Leaf, Limits, Tree};
use os::spawn::Birthplace;

use super::manifests::{Authority, Known};
use super::{Refusal, Spawner};

/// Groups of scripts below one group of a manifest.
const WISHED_MAX: usize = 64;
/// Limits that wait of which the supervisor is told.
const HELD_MAX: usize = 20;
/// How often they are tried again.
const HELD_AGAIN: Duration = Duration::from_secs(1);
/// How long a script's group in which nothing runs is kept for the next program.
const WISHED_KEPT: Duration = Duration::from_secs(10);

/// The groups there are.
#[derive(Debug, Default)]
pub(super) struct Groups {
    tree: Tree,
    /// Whether what an earlier spawner left there is gone.
    is_clear: bool,
    /// The number of the latest manifest.
    generation: u64,
    /// Groups that no manifest names any more and that are not empty.
    leaving: usize,
    /// Groups of scripts, and when each was last wanted.
    wished: BTreeMap<Vec<String>, Instant>,
    /// Limits that wait, as they were told.
    held: Vec<HeldLimit>,
    /// When these are tried again.
    held_until: Option<Instant>,
}

/// The group of one program, and how often its limits had been hit at its birth.
#[derive(Debug)]
pub(super) struct Watch {
    known: Rc<Known>,
    at: usize,
    /// Its own group, below the manifest's, where a script named one.
    wished: Option<Group>,
    before: Hits,
}

/// A group to be born in; by default the spawner's own.
#[derive(Debug, Default)]
pub(super) struct Cradle<'a> {
    into: Option<BorrowedFd<'a>>,
    join: Vec<BorrowedFd<'a>>,
    pub(super) watch: Option<Watch>,
    /// Whether it gives way to other groups.
    pub(super) gives_way: bool,
}

impl Groups {
    /// Makes the groups of a manifest, and lets go of those it does not name. What an earlier
    /// spawner left there is killed but for these processes.
    pub(super) fn take(
        &mut self,
        manifest: &Manifest,
        groups: &Rc<[Group]>,
        spared: &[u32],
    ) -> Result<(), String> {
        if !self.is_clear && !manifest.is_beside {
            Tree::clear(&manifest.layout, spared);
        }
        self.is_clear = true;
        if self.generation == manifest.generation {
            // It comes again, since the spawner of a program that was tried may have written others.
            self.tree.forget_written();
        }
        let made = self.apply(&manifest.layout, groups);
        self.leaving = self.tree.sweep();
        if made.is_ok() {
            self.generation = manifest.generation;
        }
        made
    }

    /// Writes all limits of the latest manifest, whatever another spawner has written meanwhile.
    pub(super) fn write_again(&mut self, latest: &Known) -> Result<(), String> {
        self.tree.forget_written();
        self.apply(&latest.manifest.layout, &latest.groups)
    }

    fn apply(&mut self, layout: &Layout, groups: &Rc<[Group]>) -> Result<(), String> {
        let made = self.tree.apply(layout, Rc::clone(groups));
        made.map_err(|problems| {
            let problem = |error: &Error| {
                let reason = config::reason(&error.error);
                format!("{}: {reason}", error.what)
            };
            let problems: Vec<_> = problems.iter().map(problem).collect();
            problems.join("; ")
        })
    }

    /// Leaves limits that wait to another spawner, which has the same ones.
    pub(super) fn leave_held(&mut self) {
        self.tree.forget_held();
        self.held.clear();
    }

    /// Whether groups wait to be empty, or limits for memory to be given back.
    pub(super) fn are_waiting(&self) -> bool {
        self.are_leaving() || !self.held.is_empty()
    }

    fn are_leaving(&self) -> bool {
        self.leaving > 0 || !self.wished.is_empty()
    }

    /// Removes groups that are empty, and tries limits again.
    pub(super) fn sweep(&mut self) {
        let now = Instant::now();
        if !self.held.is_empty() && self.held_until.is_none_or(|until| until <= now) {
            self.held_until = Some(now + HELD_AGAIN);
            self.tree.try_held();
        }
        for (path, wanted) in &self.wished {
            if now.duration_since(*wanted) >= WISHED_KEPT {
                self.tree.let_go(path);
            }
        }
        self.sweep_now();
    }

    fn sweep_now(&mut self) {
        if self.are_leaving() {
            self.leaving = self.tree.sweep();
            self.wished.retain(|path, _| self.tree.has(path));
        }
    }

    /// Where a program of a rule is born; `wish` is the group a script wants it in.
    pub(super) fn cradle(
        &mut self,
        entry: &Authority<'_>,
        wish: Option<&Group>,
    ) -> Result<Cradle<'_>, Refusal> {
        let groups = &entry.known.groups;
        let at = entry.rule.group.and_then(|at| usize::try_from(at).ok());
        let Some((at, group)) = at.and_then(|at| Some((at, groups.get(at)?))) else {
            return match wish {
                Some(_) => Err(without_group()),
                None => Ok(Cradle::default()),
            };
        };
        // Of a pool that starts beside it, in a group that was empty.
        self.have_turn(&group.path);
        let wished = wish.map(|wish| self.wished(group, wish)).transpose()?;
        if wished.is_none() && !self.tree.has(&group.path) {
            // Made again, it is to go again.
            self.leaving += 1;
        }
        let leaf = match &wished {
            Some(wished) => self.tree.leaf_within(&above(groups, wished), wished),
            None => self.tree.leaf(groups, &group.path),
        };
        Cradle::within(leaf, (&entry.known, at), wished)
    }

    /// Where a run of a pool is born: in a group of its own, below the pool's, where that has one. It
    /// gives way to others, as far as can be, until [`Groups::have_turn`].
    pub(super) fn cradle_of_run(
        &mut self,
        known: &Rc<Known>,
        group: Option<u32>,
        name: Option<&str>,
    ) -> Result<Cradle<'_>, Refusal> {
        let groups = &known.groups;
        let at = group.and_then(|at| usize::try_from(at).ok());
        let Some((at, group)) = at.and_then(|at| Some((at, groups.get(at)?))) else {
            return Ok(Cradle::default());
        };
        let Some(name) = name else {
            let what = "its last runs have not ended".to_owned();
            return Err(Refusal::new(Failure::GroupFailed, what));
        };
        let mut wished = Group {
            path: group.path.clone(),
            limits: Limits::default(),
        };
        wished.path.push(name.to_owned());
        let above = above(groups, &wished);
        let is_there = self.tree.leaf_within(&above, &wished).is_ok();
        let gives_way = is_there && self.tree.give_way(&wished.path);
        let leaf = self.tree.leaf_within(&above, &wished);
        let cradle = Cradle::within(leaf, (known, at), Some(wished))?;
        Ok(Cradle {
            gives_way,
            ..cradle
        })
    }

    /// Has the group of a row's tenant, the first of these, have its limits, where it stands.
    pub(super) fn renew(&mut self, groups: &[Group]) -> Result<(), Refusal> {
        let Some(group) = groups.first().filter(|group| self.tree.has(&group.path)) else {
            return Ok(());
        };
        self.tree.renew(group).map_err(|error| {
            let reason = config::reason(&error.error);
            Refusal::new(Failure::GroupFailed, format!("{}: {reason}", error.what))
        })
    }

    /// Has what runs in a group, or is to, give way to nobody any more.
    pub(super) fn have_turn(&mut self, path: &[String]) {
        self.tree.have_turn(path);
    }

    /// Has a run's group go, in which nothing runs any more.
    pub(super) fn let_go(&mut self, path: &[String]) {
        self.tree.let_go(path);
        self.leaving += 1;
    }

    /// The group of a script below `outer`; the one unwanted longest gives way where there are too
    /// many.
    fn wished(&mut self, outer: &Group, wish: &Group) -> Result<Group, Refusal> {
        let mut group = wish.clone();
        group.path.splice(0..0, outer.path.iter().cloned());
        if !self.wished.contains_key(&group.path) && self.count_below(&outer.path) >= WISHED_MAX {
            let below = self.wished.iter();
            let mut below: Vec<_> = below
                .filter(|(path, _)| path.starts_with(&outer.path))
                .collect();
            below.sort_by_key(|(_, wanted)| **wanted);
            below.iter().for_each(|(path, _)| self.tree.let_go(path));
            self.sweep_now();
            if self.count_below(&outer.path) >= WISHED_MAX {
                let outer = outer.path.join("/");
                let what =
                    format!("scripts have programs in {WISHED_MAX} groups below {outer} already");
                return Err(Refusal::new(Failure::GroupFailed, what));
            }
        }
        self.wished.insert(group.path.clone(), Instant::now());
        Ok(group)
    }

    fn count_below(&self, outer: &[String]) -> usize {
        let paths = self.wished.keys();
        paths.filter(|path| path.starts_with(outer)).count()
    }

    /// Which limit of its groups a program ran into since its birth.
    pub(super) fn hit(&mut self, watch: &Watch) -> Option<LimitHit> {
        let mut groups: &[Group] = &watch.known.groups;
        let own = groups.get(watch.at)?;
        let path = &watch.wished.as_ref().unwrap_or(own).path;
        let chain;
        if let Some(wished) = &watch.wished {
            let mut all = above(groups, wished);
            all.push(wished.clone());
            chain = all;
            groups = &chain;
        }
        let leaf: &Leaf = self.tree.leaf(groups, path).ok()?;
        let hits = leaf.hits().since(watch.before);
        if hits.oom_kills > 0 {
            let (group, bytes) = least(groups, path, |limits| limits.memory_bytes)?;
            return Some(LimitHit::Memory { group, bytes });
        }
        if hits.pids > 0 {
            let (group, pids) = least(groups, path, |limits| limits.pids.map(u64::from))?;
            return Some(LimitHit::Pids { group, pids });
        }
        None
    }
}

impl Spawner {
    /// Tells which limits wait, where these are others than before.
    pub(super) fn tell_held(&mut self) {
        if self.groups.tree.held().eq(&self.groups.held) {
            return;
        }
        let held: Vec<HeldLimit> = self.groups.tree.held().cloned().collect();
        let before = std::mem::replace(&mut self.groups.held, held);
        let held = &self.groups.held;
        let is_new = |it: &&HeldLimit| !before.contains(it);
        for new in held.iter().filter(is_new).take(HELD_MAX) {
            tracing::warn!("{}", told(new));
        }
        let is_gone = |it: &&HeldLimit| held.iter().all(|new| new.path != it.path);
        for gone in before.iter().filter(is_gone).take(HELD_MAX) {
            let group = gone.path.join("/");
            tracing::info!("group {group}: its limit of memory waits no more");
        }
        let limits = all_told(held);
        self.tell_supervisor(&FromSpawner::Held { limits });
    }
}

/// What is said of the limits that wait: of so many each, and how many there are beside them.
fn all_told(held: &[HeldLimit]) -> Vec<String> {
    let more = held.len().saturating_sub(HELD_MAX);
    let more = (more > 0).then(|| format!("and {more} more limits of memory wait"));
    held.iter().take(HELD_MAX).map(told).chain(more).collect()
}

/// What is said of a limit that waits.
fn told(held: &HeldLimit) -> String {
    let kept = match held.kept_bytes {
        Some(bytes) => format!("its limit of memory stays {}", config::size(bytes)),
        None => "it stays without a limit of memory".to_owned(),
    };
    let (group, wanted) = (held.path.join("/"), config::size(held.wanted_bytes));
    format!("group {group}: {kept} until less than the {wanted} of the configuration are in use")
}

impl Watch {
    /// The group.
    pub(super) fn path(&self) -> Vec<String> {
        let own = self.known.groups.get(self.at);
        let group = self.wished.as_ref().or(own);
        group.map_or_else(Vec::new, |group| group.path.clone())
    }
}

impl<'a> Cradle<'a> {
    /// In a leaf, whose limits are watched from now on.
    fn within(
        leaf: Result<&'a Leaf, Error>,
        (known, at): (&Rc<Known>, usize),
        wished: Option<Group>,
    ) -> Result<Cradle<'a>, Refusal> {
        let leaf = leaf.map_err(|error| {
            let reason = config::reason(&error.error);
            Refusal::new(Failure::GroupFailed, format!("{}: {reason}", error.what))
        })?;
        let watch = Watch {
            known: Rc::clone(known),
            at,
            wished,
            before: leaf.hits(),
        };
        let into = leaf.directory();
        Ok(Cradle {
            into,
            join: match into {
                Some(_) => Vec::new(),
                None => leaf.procs().collect(),
            },
            watch: Some(watch),
            gives_way: false,
        })
    }

    /// In the words of a start.
    pub(super) fn birthplace(&self) -> Birthplace<'_> {
        match (self.into, self.join.as_slice()) {
            (Some(group), _) => Birthplace::Into(group),
            (None, []) => Birthplace::Own,
            (None, groups) => Birthplace::Join(groups),
        }
    }
}

/// The groups of a manifest that another is in.
fn above(groups: &[Group], group: &Group) -> Vec<Group> {
    let is_above = |above: &&Group| group.path.starts_with(&above.path);
    groups.iter().filter(is_above).cloned().collect()
}

/// A script asked for a limit where there is nothing to put it into.
fn without_group() -> Refusal {
    let what =
        "a script attached it to a control group, but neither its rule nor its site nor its \
                tenant has one to make it in: add a ceiling, as cgroup = { cpu = \"100%\" }"
            .to_owned();
    Refusal::new(Failure::GroupFailed, what)
}

/// The least limit on the way to a group, and whose it is: that one is hit first.
fn least(
    groups: &[Group],
    path: &[String],
    limit: impl Fn(&Limits) -> Option<u64>,
) -> Option<(String, u64)> {
    let above = groups.iter().filter(|group| path.starts_with(&group.path));
    let limits = above.filter_map(|group| Some((limit(&group.limits)?, &group.path)));
    let (limit, path) = limits.min()?;
    Some((path.join("/"), limit))
}

#[cfg(test)]
mod tests {
    use os::cgroup::{Controller, Hierarchy, Version};
    use testkit::TempDir;

    use super::*;

    #[test]
    fn the_limits_of_a_manifest_that_comes_again_are_written_whatever_is_there() {
        let place = TempDir::new();
        place.write("cgroup.subtree_control", "pids");
        for file in ["pids.max", "cgroup.procs", "run/cgroup.procs"] {
            place.write(&format!("a/{file}"), "");
        }
        let manifest = |generation| Manifest {
            generation,
            is_beside: true,
            layout: Layout {
                hierarchies: vec![Hierarchy {
                    version: Version::V2,
                    controllers: [Controller::Pids].into_iter().collect(),
                    directory: place.path().to_owned(),
                }],
            },
            ..Manifest::default()
        };
        let list: Rc<[Group]> = [Group {
            path: vec!["a".to_owned()],
            limits: Limits {
                pids: Some(7),
                ..Limits::default()
            },
        }]
        .into();
        let limit = || std::fs::read_to_string(place.path().join("a/pids.max")).unwrap();
        let mut groups = Groups::default();
        groups.take(&manifest(1), &list, &[]).unwrap();
        assert_eq!(limit(), "7");
        for (generation, expected) in [(2, "9"), (2, "7")] {
            // The spawner of another program has its hands in it.
            place.write("a/pids.max", "9");
            groups.take(&manifest(generation), &list, &[]).unwrap();
            assert_eq!(limit(), expected, "what is known is not written twice");
        }
    }

    #[test]
    fn of_many_limits_that_wait_so_many_are_told_and_how_many_there_are_beside_them() {
        let held = |number: usize| HeldLimit {
            path: vec![format!("tenant-{number}")],
            wanted_bytes: 1 << 20,
            kept_bytes: None,
        };
        let lines = |count| all_told(&(0..count).map(held).collect::<Vec<_>>());
        assert_eq!(lines(HELD_MAX).len(), HELD_MAX);
        let told = lines(HELD_MAX + 3);
        assert_eq!(told.len(), HELD_MAX + 1);
        assert_eq!(told.last().unwrap(), "and 3 more limits of memory wait");
    }

    #[test]
    fn the_least_limit_above_a_program_is_named() {
        let group = |path: &str, memory_bytes, pids| Group {
            path: path.split('/').map(str::to_owned).collect(),
            limits: Limits {
                memory_bytes,
                pids,
                ..Limits::default()
            },
        };
        let groups = [
            group("tenant-a", Some(50), None),
            group("tenant-a/site-b", Some(80), Some(9)),
            group("tenant-a/site-b/rule-1", None, Some(9)),
            group("tenant-x", Some(1), Some(1)),
        ];
        let memory = least(&groups, &groups[2].path, |limits| limits.memory_bytes);
        assert_eq!(memory, Some(("tenant-a".into(), 50)));
        let pids = least(&groups, &groups[2].path, |limits| {
            limits.pids.map(u64::from)
        });
        assert_eq!(pids, Some(("tenant-a/site-b".into(), 9)));
        let none = least(&groups, &groups[0].path, |limits| {
            limits.pids.map(u64::from)
        });
        assert_eq!(none, None);
    }
}
