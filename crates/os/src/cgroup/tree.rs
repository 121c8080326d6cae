//! Groups with limits, made, changed in place and removed.
//!
//! The idea: a list of [`Group`]s says what there is to be; the tree remembers what it has written
//! and writes what differs. The first groups of a list are made at once, which shows what cannot
//! be had; since making thousands takes many seconds, the others are made when they are first
//! wanted, but for those that another tree has left there: what runs in them goes on, and their
//! limits are this list's. A group that is no longer named goes as soon as nothing runs in it; until then its
//! limits hold. A change that cannot be made whole is taken back; but where more memory is in use
//! than a group is to have, which version 1 refuses, that limit alone waits (`held.rs`).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

use super::base::{clear, enable, make_group};
use super::controllers::{Controller, Controllers};
use super::held::HeldLimit;
use super::kill::{groups, remove};
use super::layout::{Hierarchy, Layout, Version};
use super::leaf::{Leaf, RUN};
use super::limits::Limits;
use super::settings::{Absence, Value, Write, writes};
use super::{Error, interface};

/// Groups of a list that are made at once.
const MADE_AT_ONCE: usize = 256;

/// A group to be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Names from the outermost group to this one.
    pub path: Vec<String>,
    /// What it may use.
    pub limits: Limits,
}

/// The groups there are. One at a time has its hands in a layout's directories.
#[derive(Debug, Default)]
pub struct Tree {
    pub(super) layout: Layout,
    /// The latest list.
    pub(super) named: Named,
    /// What has been made.
    pub(super) nodes: BTreeMap<Vec<String>, Node>,
    /// What waits, by the group's path.
    pub(super) held: BTreeMap<Vec<String>, HeldLimit>,
}

/// A list of groups, to be looked up by their paths.
#[derive(Debug, Default)]
pub(super) struct Named {
    groups: Rc<[Group]>,
    /// Where each is in the list, in the order of the paths.
    by_path: Box<[usize]>,
}

impl Named {
    fn new(groups: Rc<[Group]>) -> Named {
        let path = |at: &usize| groups.get(*at).map(|group| &group.path);
        let mut by_path: Box<[usize]> = (0..groups.len()).collect();
        by_path.sort_by(|one, other| path(one).cmp(&path(other)));
        Named { groups, by_path }
    }

    pub(super) fn get(&self, path: &[String]) -> Option<&Limits> {
        let of = |at: &usize| self.groups.get(*at).map(|group| group.path.as_slice());
        let at = self.by_path.binary_search_by(|at| of(at).cmp(&Some(path)));
        let group = self.groups.get(*self.by_path.get(at.ok()?)?)?;
        Some(&group.limits)
    }

    pub(super) fn has(&self, path: &[String]) -> bool {
        self.get(path).is_some()
    }
}

#[derive(Debug, Default)]
pub(super) struct Node {
    /// Named by the latest list.
    kept: bool,
    /// Controllers in whose hierarchies it stands.
    controllers: Controllers,
    /// What was written; not known of a group that was found there.
    pub(super) written: Option<Limits>,
    gives_way: bool,
    leaf: Option<Leaf>,
}

impl Tree {
    /// Kills and removes what another tree, whose process is no more, left in these places, but for
    /// these processes and what is in one group with them.
    pub fn clear(layout: &Layout, spared: &[u32]) {
        let spared = spared.iter().filter_map(|pid| i32::try_from(*pid).ok());
        let spared = spared.collect();
        for hierarchy in &layout.hierarchies {
            clear(&hierarchy.directory, &spared);
        }
    }

    /// Changes the limits of groups already there to what the list says, and makes the first of
    /// the others. In the list, groups come after those they are in. Groups no longer listed go
    /// with the next [`Tree::sweep`].
    ///
    /// # Errors
    /// Everything that could not be done; then the limits are what they were, wherever that can be.
    pub fn apply(&mut self, layout: &Layout, groups: Rc<[Group]>) -> Result<(), Vec<Error>> {
        self.layout = layout.clone();
        let (before, held) = (self.limits(), self.held.clone());
        let wanted: Vec<Group> = groups
            .iter()
            .enumerate()
            .filter(|(at, group)| {
                *at < MADE_AT_ONCE || self.has(&group.path) || layout.has(&group.path)
            })
            .map(|(_, group)| group.clone())
            .collect();
        let problems = self.change(&wanted);
        if !problems.is_empty() {
            // What cannot be taken back either is what could not be done.
            let _ = self.change(&before);
            self.held = held;
            return Err(problems);
        }
        self.named = Named::new(groups);
        for (path, node) in &mut self.nodes {
            node.kept = self.named.has(path);
        }
        self.held.retain(|path, _| self.named.has(path));
        Ok(())
    }

    /// Takes nothing for written any more: somebody else had hands in these directories. The next
    /// list is written whole.
    pub fn forget_written(&mut self) {
        for node in self.nodes.values_mut() {
            node.written = None;
        }
    }

    /// The leaf that programs of a group are born in. `groups` is the list the group is of: what
    /// has not been made yet is made, also what is gone because a later list does not name it.
    ///
    /// # Errors
    /// When it is not there and cannot be made.
    pub fn leaf(&mut self, groups: &[Group], path: &[String]) -> Result<&Leaf, Error> {
        if !self.has(path) {
            self.make_chain(groups, path)?;
        }
        let Some(node) = self.nodes.get_mut(path) else {
            return Err(unknown(path));
        };
        let leaf = match node.leaf.take() {
            Some(leaf) => leaf,
            None => Leaf::open(&self.layout, path, node.controllers)?,
        };
        Ok(node.leaf.insert(leaf))
    }

    /// The leaf of a group that no list names, below one that `groups` names: it is made, or given
    /// these limits, and stays until [`Tree::let_go`].
    ///
    /// # Errors
    /// When it cannot be made, or one of its limits has no controller in this layout.
    pub fn leaf_within(&mut self, groups: &[Group], group: &Group) -> Result<&Leaf, Error> {
        let has_none = |controller: &Controller| self.layout.of(*controller).is_none();
        if let Some(lacking) = group.limits.needs().iter().find(has_none) {
            let what = format!("limit the group {}", group.path.join("/"));
            let name = lacking.name();
            let why = format!("the controller {name} is not to be had for it");
            return Err(Error::new(what, io::Error::other(why)));
        }
        let mut chain = groups.to_vec();
        chain.push(group.clone());
        if self.has(&group.path) {
            self.rewrite(&chain, &group.path, Tree::write)?;
        } else {
            self.make_chain(&chain, &group.path)?;
        }
        if let Some(node) = self.nodes.get_mut(&group.path) {
            node.kept = true;
        }
        self.leaf(&chain, &group.path)
    }

    /// Gives a group that is there and in no list these limits; one of memory that cannot be had yet waits.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn renew(&mut self, group: &Group) -> Result<(), Error> {
        self.rewrite(
            std::slice::from_ref(group),
            &group.path,
            Tree::write_or_hold,
        )
    }

    /// Gives a group that is there the limits a list says now.
    fn rewrite(
        &mut self,
        groups: &[Group],
        path: &[String],
        write: fn(&mut Tree, &Group) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let is_above = |group: &&Group| path.starts_with(&group.path);
        let chain: Vec<Group> = groups.iter().filter(is_above).cloned().collect();
        let chain = self.within_outer(&chain);
        let Some(group) = chain.last() else {
            return Err(unknown(path));
        };
        let written = self.nodes.get(path).and_then(|node| node.written.as_ref());
        if written == Some(&group.limits) {
            return Ok(());
        }
        let standing = standing_in(&chain);
        for (path, controllers) in &standing {
            self.make(path, *controllers)?;
        }
        self.hand_down(group, &standing)?;
        write(self, group)
    }

    /// Lets a group go with the next [`Tree::sweep`] that finds it empty, unless a list names it.
    pub fn let_go(&mut self, path: &[String]) {
        let is_named = self.named.has(path);
        if let Some(node) = self.nodes.get_mut(path) {
            node.kept = is_named;
        }
    }

    /// Has a group give way to whatever else wants a processor, together with those above it in
    /// which nothing runs: others stand beside the outermost of these. Tells whether it does.
    pub fn give_way(&mut self, path: &[String]) -> bool {
        let Some(hierarchy) = self.layout.of(Controller::Cpu) else {
            return false;
        };
        let mut chain = (1..=path.len()).map(|depth| &path[..depth]);
        let Some(path) = chain.find(|path| is_empty(&hierarchy.group(path))) else {
            return false;
        };
        let Some(node) = self.nodes.get_mut(path) else {
            return false;
        };
        node.gives_way = interface::give_way(&hierarchy.group(path), true);
        node.gives_way
    }

    /// Has a group and those above it give way no more.
    pub fn have_turn(&mut self, path: &[String]) {
        for path in (1..=path.len()).map(|depth| &path[..depth]) {
            let Some(node) = self.nodes.get(path).filter(|node| node.gives_way) else {
                continue;
            };
            let limits = node.written.as_ref().or_else(|| self.named.get(path));
            let group = Group {
                path: path.to_vec(),
                limits: limits.cloned().unwrap_or_default(),
            };
            self.end_way(path);
            // Where that fails, what is written there is not known, and written with the next list.
            let _ = self.write(&group);
        }
    }

    /// Has a group give way no more, if it does. The kernel has forgotten its weight over that.
    fn end_way(&mut self, path: &[String]) {
        let may_give_way = |node: &&mut Node| node.gives_way || node.written.is_none();
        let Some(node) = self.nodes.get_mut(path).filter(may_give_way) else {
            return;
        };
        node.gives_way = false;
        if let Some(written) = &mut node.written {
            written.cpu_weight = None;
        }
        if let Some(hierarchy) = self.layout.of(Controller::Cpu) {
            interface::give_way(&hierarchy.group(path), false);
        }
    }

    /// Whether there is a group, be it to go.
    pub fn has(&self, path: &[String]) -> bool {
        self.nodes.contains_key(path)
    }

    /// Removes groups that are no longer listed and in which nothing runs; tells how many are left
    /// to be removed another time.
    pub fn sweep(&mut self) -> usize {
        let gone = self.nodes.iter().filter(|(_, node)| !node.kept);
        let gone: Vec<Vec<String>> = gone.map(|(path, _)| path.clone()).collect();
        // Those below go before those above.
        for path in gone.iter().rev() {
            let hierarchies = self.layout.hierarchies.iter();
            let groups: Vec<_> = hierarchies.map(|hierarchy| hierarchy.group(path)).collect();
            // All or none of it: what is half removed would have to be found out about later.
            if !groups.iter().all(|group| is_empty(group)) {
                continue;
            }
            if groups.iter().all(|group| remove(group).is_ok()) {
                self.nodes.remove(path);
            } else if let Some(node) = self.nodes.get_mut(path) {
                (node.leaf, node.written) = (None, None);
            }
        }
        self.nodes.values().filter(|node| !node.kept).count()
    }

    /// The groups as they are.
    fn limits(&self) -> Vec<Group> {
        let written = self.nodes.iter().filter_map(|(path, node)| {
            Some(Group {
                path: path.clone(),
                limits: node.written.clone()?,
            })
        });
        written.collect()
    }

    /// Does what can be done, and tells what cannot.
    fn change(&mut self, groups: &[Group]) -> Vec<Error> {
        let groups = self.within_outer(groups);
        let mut problems = Vec::new();
        let standing = standing_in(&groups);
        for (path, controllers) in &standing {
            problems.extend(self.make(path, *controllers).err());
        }
        let handed = groups.iter().map(|group| self.hand_down(group, &standing));
        problems.extend(handed.filter_map(Result::err));
        if !problems.is_empty() {
            return problems;
        }
        // A group may not have more than the one above it, at no moment: what becomes less is
        // written from below, what becomes more from above.
        let (less, more): (Vec<_>, Vec<_>) = groups.iter().partition(|group| self.lessens(group));
        for group in less.into_iter().rev().chain(more) {
            problems.extend(self.write_or_hold(group).err());
        }
        problems
    }

    /// Makes a group and those above it, as far as they are missing.
    fn make_chain(&mut self, groups: &[Group], path: &[String]) -> Result<(), Error> {
        let is_above = |group: &&Group| path.starts_with(&group.path);
        let mut chain: Vec<Group> = groups.iter().filter(is_above).cloned().collect();
        for group in &mut chain {
            // The latest list has the last word.
            if let Some(limits) = self.named.get(&group.path) {
                group.limits = limits.clone();
            }
        }
        let chain = self.within_outer(&chain);
        let is_missing = |group: &&Group| !self.has(&group.path);
        let missing: Vec<Group> = chain.iter().filter(is_missing).cloned().collect();
        let made = self.make_missing(&chain, &missing);
        if made.is_err() {
            // No program may find a group whose limits do not hold.
            for group in &missing {
                self.nodes.remove(&group.path);
                self.held.remove(&group.path);
            }
        }
        made
    }

    fn make_missing(&mut self, chain: &[Group], missing: &[Group]) -> Result<(), Error> {
        let standing = standing_in(chain);
        for (path, controllers) in &standing {
            self.make(path, *controllers)?;
        }
        let mut each = chain.iter();
        each.try_for_each(|group| self.hand_down(group, &standing))?;
        let mut missing = missing.iter();
        missing.try_for_each(|group| match self.named.has(&group.path) {
            true => self.write_or_hold(group),
            // What a script wants holds at once, or the program does not run.
            false => self.write(group),
        })
    }

    /// Makes a group and its leaf in the hierarchies of these controllers, and opens nothing.
    fn make(&mut self, path: &[String], controllers: Controllers) -> Result<(), Error> {
        let mut is_new = true;
        let hierarchies = self.layout.hierarchies.iter();
        for hierarchy in hierarchies.filter(|each| each.is_for(controllers)) {
            is_new &= make_group(&hierarchy.group(path))?;
            make_group(&hierarchy.group(path).join(RUN))?;
        }
        let node = self.nodes.entry(path.to_vec()).or_insert_with(|| Node {
            kept: self.named.has(path),
            written: is_new.then(Limits::default),
            ..Node::default()
        });
        if node.controllers != node.controllers.union(controllers) {
            node.controllers = node.controllers.union(controllers);
            node.leaf = None;
        }
        Ok(())
    }

    /// Gives the controllers a group needs to it, through all groups above (version 2); and that of
    /// memory where a group above needs it, so that each one below counts its own part.
    fn hand_down(
        &self,
        group: &Group,
        standing: &BTreeMap<Vec<String>, Controllers>,
    ) -> Result<(), Error> {
        let mut needs = group.limits.needs();
        let stands_in = standing.get(&group.path).copied().unwrap_or_default();
        if stands_in.contains(Controller::Memory) {
            needs.insert(Controller::Memory);
        }
        for controller in needs.iter() {
            let hierarchy = self.layout.of(controller);
            let Some(hierarchy) = hierarchy.filter(|found| found.version == Version::V2) else {
                continue;
            };
            for depth in 0..group.path.len() {
                enable(&hierarchy.group(&group.path[..depth]), controller)?;
            }
        }
        Ok(())
    }

    /// Has a group's files say its limits.
    pub(super) fn write(&mut self, group: &Group) -> Result<(), Error> {
        let is_same = |node: &Node| node.written.as_ref() == Some(&group.limits);
        if self.nodes.get(&group.path).is_some_and(is_same) {
            return Ok(());
        }
        // The kernel takes no weight of a group that gives way, as one that was found there may.
        self.end_way(&group.path);
        let Some(node) = self.nodes.get_mut(&group.path) else {
            return Err(unknown(&group.path));
        };
        // Not known until every file is written.
        let before = node.written.take();
        for hierarchy in &self.layout.hierarchies {
            let directory = hierarchy.group(&group.path);
            for write in writes(hierarchy.version, before.as_ref(), &group.limits) {
                if hierarchy.controllers.contains(write.controller) {
                    put(&directory, &write)?;
                }
            }
            if hierarchy.version == Version::V2
                && hierarchy.controllers.contains(Controller::Cpuset)
            {
                are_had(&directory, &group.limits)?;
            }
        }
        node.written = Some(group.limits.clone());
        Ok(())
    }

    /// Whether a group's quota becomes less.
    fn lessens(&self, group: &Group) -> bool {
        let quota = |limits: &Limits| limits.cpu.map_or(u32::MAX, |cpu| cpu.millicores);
        let node = self.nodes.get(&group.path);
        let before = match node.and_then(|node| node.written.as_ref()) {
            Some(written) => quota(written),
            None => {
                let hierarchy = self.layout.of(Controller::Cpu);
                let found = hierarchy.and_then(|it| quota_there(&it.group(&group.path)));
                found.unwrap_or(u32::MAX)
            }
        };
        quota(&group.limits) < before
    }

    /// Version 1 refuses a quota above that of a group above, where version 2 lets the lower one
    /// hold: there the lower one is written.
    fn within_outer(&self, groups: &[Group]) -> Vec<Group> {
        let hierarchy = self.layout.of(Controller::Cpu);
        let Some(hierarchy) = hierarchy.filter(|found| found.version == Version::V1) else {
            return groups.to_vec();
        };
        let outer = outer_quota(hierarchy);
        let mut least: BTreeMap<&[String], u32> = BTreeMap::new();
        let mut bounded = groups.to_vec();
        for (group, original) in bounded.iter_mut().zip(groups) {
            let path = original.path.as_slice();
            let above = (0..path.len()).filter_map(|depth| least.get(&path[..depth]));
            let above = above.copied().min().unwrap_or(outer);
            if let Some(cpu) = &mut group.limits.cpu {
                cpu.millicores = cpu.millicores.min(above);
                least.insert(path, cpu.millicores);
            }
        }
        bounded
    }
}

/// For each group the controllers in whose hierarchies it must stand: those of the limits of every
/// group on the way to it and below it.
fn standing_in(groups: &[Group]) -> BTreeMap<Vec<String>, Controllers> {
    let needs = |group: &Group| {
        let mut needs = group.limits.needs();
        if needs.contains(Controller::Cpu) {
            needs.insert(Controller::CpuTime);
        }
        needs
    };
    let own: BTreeMap<&[String], Controllers> = groups
        .iter()
        .map(|group| (group.path.as_slice(), needs(group)))
        .collect();
    let mut standing: BTreeMap<Vec<String>, Controllers> = BTreeMap::new();
    for Group { path, .. } in groups {
        let chain = (1..=path.len()).filter_map(|depth| own.get(&path[..depth]));
        let needs = chain.fold(Controllers::NONE, |all, one| all.union(*one));
        for depth in 1..=path.len() {
            let all = standing.entry(path[..depth].to_vec()).or_default();
            *all = all.union(needs);
        }
    }
    standing
}

/// Writes a value to its file in a group.
fn put(group: &Path, write: &Write) -> Result<(), Error> {
    let file = group.join(write.file);
    let written = match &write.value {
        Value::Text(text) => interface::write(&file, text),
        Value::OfGroupAbove(name) => {
            let above = file.ancestors().nth(2).unwrap_or(group).join(name);
            interface::read(&above).and_then(|text| interface::write(&file, text.trim()))
        }
        Value::OfEachDevice(value) => interface::read(&file).and_then(|text| {
            let mut devices = text.lines().filter_map(|line| line.split(' ').next());
            devices.try_for_each(|device| interface::write(&file, &format!("{device} {value}")))
        }),
    };
    match written {
        Err(error)
            if write.absence == Absence::Harmless && error.kind() == io::ErrorKind::NotFound =>
        {
            Ok(())
        }
        Err(error) => {
            let what = format!("write {} to {}", write.value, file.display());
            Err(Error::new(what, error))
        }
        Ok(()) => Ok(()),
    }
}

/// Whether a group in version 2 has no other CPUs and memory nodes than it was given: it has those
/// of the group above it where that has none of them.
fn are_had(group: &Path, limits: &Limits) -> Result<(), Error> {
    let given = [
        (&limits.cpus, "cpuset.cpus.effective"),
        (&limits.mems, "cpuset.mems.effective"),
    ];
    for (list, file) in given {
        let Some(list) = list else { continue };
        let file = group.join(file);
        let what = || format!("have {} alone in {}", list.as_str(), group.display());
        let had = interface::read(&file).map_err(|error| Error::new(what(), error))?;
        if !list.covers(had.trim()) {
            let why = io::Error::other("the group above has none of them");
            return Err(Error::new(what(), why));
        }
    }
    Ok(())
}

/// Whether nothing runs in a group and those below it, or it is not there.
fn is_empty(group: &Path) -> bool {
    let groups = groups(group).into_iter();
    let mut processes = groups.filter_map(|group| interface::processes(&group).ok());
    processes.all(|processes| processes.is_empty())
}

/// The least quota of the groups above ours that can be seen, in thousandths of a core.
fn outer_quota(hierarchy: &Hierarchy) -> u32 {
    let above = hierarchy.directory.ancestors().skip(1);
    let groups = above.take_while(|group| group.join("cgroup.procs").exists());
    let quotas = groups.filter_map(quota_there);
    quotas.min().unwrap_or(u32::MAX).max(1)
}

/// The quota of a group in version 1, in thousandths of a core; `None`: it has none.
fn quota_there(group: &Path) -> Option<u32> {
    let quota = interface::number(&group.join("cpu.cfs_quota_us"))?;
    let period = interface::number(&group.join("cpu.cfs_period_us"))?;
    u32::try_from(quota.saturating_mul(1_000) / period.max(1)).ok()
}

fn unknown(path: &[String]) -> Error {
    let what = format!("find the group {}", path.join("/"));
    Error::new(what, io::Error::from(io::ErrorKind::NotFound))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use testkit::TempDir;

    use super::*;

    fn group(path: &str, weight: u32) -> Group {
        Group {
            path: path.split('/').map(str::to_owned).collect(),
            limits: Limits {
                cpu_weight: Some(weight),
                ..Limits::default()
            },
        }
    }

    #[test]
    fn who_gives_way_is_the_outermost_in_which_nothing_runs_and_has_its_weight_again() {
        let place = TempDir::new();
        let groups = ["tenant", "tenant/pool", "tenant/other"];
        for group in groups {
            place.write(&format!("{group}/cpu.idle"), "1");
            for file in ["cpu.shares", "cgroup.procs", "run/cgroup.procs"] {
                place.write(&format!("{group}/{file}"), "");
            }
        }
        let read = |file: &str| fs::read_to_string(place.path().join(file)).unwrap();
        let idle = || {
            groups
                .map(|group| read(&format!("{group}/cpu.idle")))
                .concat()
        };
        let layout = Layout {
            hierarchies: vec![Hierarchy {
                version: Version::V1,
                controllers: [Controller::Cpu].into_iter().collect(),
                directory: place.path().to_owned(),
            }],
        };
        let [tenant, pool, mut other] = groups.map(|path| group(path, 70));
        let mut tree = Tree::default();
        let all = [tenant.clone(), pool.clone(), other.clone()];
        tree.apply(&layout, all.as_slice().into()).unwrap();
        assert_eq!(idle(), "000", "whoever had them give way is no more");
        assert!(tree.give_way(&pool.path));
        assert_eq!(idle(), "100");
        place.write("tenant/pool/run/cgroup.procs", "4711\n");
        assert!(tree.give_way(&other.path));
        assert_eq!(idle(), "101");
        // As the kernel forgets them.
        for group in groups {
            place.write(&format!("{group}/cpu.shares"), "");
        }
        let shares = || groups.map(|group| read(&format!("{group}/cpu.shares")));
        tree.have_turn(&pool.path);
        assert_eq!(
            (idle(), shares()),
            ("001".into(), ["716", "", ""].map(str::to_owned))
        );
        // Another weight could not be written otherwise.
        other.limits.cpu_weight = Some(50);
        tree.apply(&layout, [tenant, pool, other.clone()].into())
            .unwrap();
        assert_eq!(
            (idle(), shares()),
            ("000".into(), ["716", "", "512"].map(str::to_owned))
        );
        fs::remove_file(place.path().join("tenant/other/cpu.idle")).unwrap();
        assert!(!tree.give_way(&other.path), "an older kernel");
        tree.have_turn(&other.path);
        place.write("tenant/other/run/cgroup.procs", "4712\n");
        assert!(!tree.give_way(&other.path), "it works already");
    }
}
