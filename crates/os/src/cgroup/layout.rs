//! Where our groups stand: handed from the supervisor to its children.
//!
//! The idea: only the supervisor looks for hierarchies and takes a place in them. Whoever gets
//! the layout, privileged or not, finds groups below it without looking again.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::controllers::{Controller, Controllers};
use super::interface;
use super::kill::groups;
use super::leaf::RUN;
use super::names::name_of;

/// Version of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Version {
    /// A hierarchy for one controller, or a few.
    V1,
    /// The hierarchy for all.
    V2,
}

/// A hierarchy in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hierarchy {
    /// Its version.
    pub version: Version,
    /// What it is used for.
    pub controllers: Controllers,
    /// Our directory in it, above all groups.
    pub directory: PathBuf,
}

/// Every hierarchy in use; empty where no group is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Each of them.
    pub hierarchies: Vec<Hierarchy>,
}

impl Layout {
    /// The hierarchy a controller is had from.
    pub fn of(&self, controller: Controller) -> Option<&Hierarchy> {
        self.hierarchies
            .iter()
            .find(|hierarchy| hierarchy.controllers.contains(controller))
    }

    /// Whether there is a group at `path`, in any hierarchy.
    pub fn has(&self, path: &[String]) -> bool {
        let mut hierarchies = self.hierarchies.iter();
        hierarchies.any(|hierarchy| hierarchy.group(path).is_dir())
    }

    /// What the groups of this kind right below the one at `path` are called: directory and name,
    /// in order.
    pub fn below(&self, path: &[String], kind: &str) -> BTreeMap<String, String> {
        let hierarchies = self.hierarchies.iter();
        let entries = hierarchies.filter_map(|it| std::fs::read_dir(it.group(path)).ok());
        let names = entries
            .flat_map(Iterator::flatten)
            .filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter_map(|directory| Some((directory.clone(), name_of(kind, &directory)?)))
            .collect()
    }

    /// The groups that these processes were born in, a directory in each hierarchy.
    pub fn birthplaces(&self, pids: &BTreeSet<u32>) -> BTreeMap<u32, Vec<PathBuf>> {
        let mut places: BTreeMap<u32, Vec<PathBuf>> = BTreeMap::new();
        let hierarchies = self.hierarchies.iter();
        for run in hierarchies.flat_map(|hierarchy| groups(&hierarchy.directory)) {
            let Some(group) = run.parent().filter(|_| run.ends_with(RUN)) else {
                continue;
            };
            let processes = interface::processes(&run).unwrap_or_default();
            let processes = processes.iter().filter_map(|it| u32::try_from(*it).ok());
            for pid in processes.filter(|pid| pids.contains(pid)) {
                places.entry(pid).or_default().push(group.to_owned());
            }
        }
        places
    }

    /// Every controller that is to be had.
    pub fn controllers(&self) -> Controllers {
        let each = self.hierarchies.iter().map(|each| each.controllers);
        each.fold(Controllers::NONE, Controllers::union)
    }
}

impl Hierarchy {
    /// Whether any of these controllers is had from it.
    pub(crate) fn is_for(&self, controllers: Controllers) -> bool {
        !self.controllers.intersection(controllers).is_empty()
    }

    /// The directory of a group.
    pub fn group(&self, path: &[String]) -> PathBuf {
        let mut directory = self.directory.clone();
        directory.extend(path.iter().map(Path::new));
        directory
    }
}
