//! Where our groups stand: handed from the supervisor to its children as a few lines of text.
//!
//! The idea: only the supervisor looks for hierarchies and takes a place in them. Whoever gets
//! the layout, privileged or not, finds groups below it without looking again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::controllers::{Controller, Controllers};
use super::names::name_of;

/// Version of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// A hierarchy for one controller, or a few.
    V1,
    /// The hierarchy for all.
    V2,
}

/// A hierarchy in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its version.
    pub version: Version,
    /// What it is used for.
    pub controllers: Controllers,
    /// Our directory in it, above all groups.
    pub directory: PathBuf,
}

/// Every hierarchy in use; empty where no group is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// Each of them.
    pub hierarchies: Vec<Hierarchy>,
}

/// Hierarchies of a layout: more are not to be had.
const HIERARCHIES_MAX: usize = Controller::ALL.len();

impl Layout {
    /// As text, a line for each hierarchy.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        for hierarchy in &self.hierarchies {
            let version = match hierarchy.version {
                Version::V1 => "v1",
                Version::V2 => "v2",
            };
            let names: Vec<_> = hierarchy.controllers.iter().map(Controller::name).collect();
            let directory = hierarchy.directory.display();
            out.push_str(&format!("{version} {} {directory}\n", names.join(",")));
        }
        out
    }

    /// From text; `None` when it is no layout.
    pub fn decode(text: &str) -> Option<Self> {
        let line = |line: &str| {
            let (version, rest) = line.split_once(' ')?;
            let (names, directory) = rest.split_once(' ')?;
            let names = names.split(',').filter(|name| !name.is_empty());
            let controllers: Option<Controllers> = names.map(Controller::from_name).collect();
            let directory = PathBuf::from(directory);
            Some(Hierarchy {
                version: match version {
                    "v1" => Version::V1,
                    "v2" => Version::V2,
                    _ => return None,
                },
                controllers: controllers?,
                directory: directory.is_absolute().then_some(directory)?,
            })
        };
        let lines = text.lines().take(HIERARCHIES_MAX + 1);
        let hierarchies: Vec<Hierarchy> = lines.map(line).collect::<Option<_>>()?;
        (hierarchies.len() <= HIERARCHIES_MAX).then_some(Self { hierarchies })
    }

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

    /// Every controller that is to be had.
    pub fn controllers(&self) -> Controllers {
        let each = self.hierarchies.iter().map(|each| each.controllers);
        each.fold(Controllers::NONE, Controllers::union)
    }
}

impl Hierarchy {
    /// Whether any of these controllers is had from it.
    pub fn is_for(&self, controllers: Controllers) -> bool {
        !self.controllers.intersection(controllers).is_empty()
    }

    /// The directory of a group.
    pub fn group(&self, path: &[String]) -> PathBuf {
        let mut directory = self.directory.clone();
        directory.extend(path.iter().map(Path::new));
        directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_survives_its_way_to_a_child() {
        let layout = Layout {
            hierarchies: vec![
                Hierarchy {
                    version: Version::V1,
                    controllers: [Controller::Cpu, Controller::CpuTime].into_iter().collect(),
                    directory: "/sys/fs/cgroup/cpu,cpuacct/a b/nagaya-1".into(),
                },
                Hierarchy {
                    version: Version::V2,
                    controllers: [Controller::Io].into_iter().collect(),
                    directory: "/sys/fs/cgroup/nagaya-1".into(),
                },
            ],
        };
        assert_eq!(Layout::decode(&layout.encode()), Some(layout));
        assert_eq!(Layout::decode(""), Some(Layout::default()));
        let many = "v1 cpu /a\n".repeat(6);
        for broken in ["v3 cpu /a", "v1 gpu /a", "v1 cpu a", "v1 cpu", "v1", &many] {
            assert_eq!(Layout::decode(broken), None, "{broken}");
        }
    }
}
