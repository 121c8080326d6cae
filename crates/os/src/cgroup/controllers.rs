//! The controllers there are, and sets of them.

use serde::{Deserialize, Serialize};

/// A part of the kernel that limits or counts one thing for groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Processor time: quota and weight.
    Cpu,
    /// Processor time, counted: a controller of its own in version 1, always there in version 2.
    CpuTime,
    /// Memory.
    Memory,
    /// The number of processes and threads.
    Pids,
    /// Reading from and writing to block devices.
    Io,
    /// Which CPUs and which memory nodes.
    Cpuset,
}

impl Controller {
    /// Every controller.
    pub const ALL: [Controller; 6] = [
        Controller::Cpu,
        Controller::CpuTime,
        Controller::Memory,
        Controller::Pids,
        Controller::Io,
        Controller::Cpuset,
    ];

    /// Its name in version 2, and in what people read.
    pub fn name(self) -> &'static str {
        match self {
            Controller::Io => "io",
            other => other.v1_name(),
        }
    }

    /// Its name in version 1.
    pub fn v1_name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::CpuTime => "cpuacct",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Io => "blkio",
            Controller::Cpuset => "cpuset",
        }
    }

    /// The controller of a name in either version.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|controller| controller.name() == name || controller.v1_name() == name)
    }
}

/// A set of controllers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Controllers(u8);

impl Controllers {
    /// No controller.
    pub const NONE: Controllers = Controllers(0);

    /// Adds a controller.
    pub fn insert(&mut self, controller: Controller) {
        self.0 |= 1 << controller as u8;
    }

    /// Whether a controller is among them.
    pub fn contains(self, controller: Controller) -> bool {
        self.0 & (1 << controller as u8) != 0
    }

    /// Those of both sets together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both sets.
    #[must_use]
    pub(crate) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = Controller> {
        Controller::ALL
            .into_iter()
            .filter(move |controller| self.contains(*controller))
    }
}

impl FromIterator<Controller> for Controllers {
    fn from_iter<I: IntoIterator<Item = Controller>>(controllers: I) -> Self {
        let mut set = Self::NONE;
        controllers
            .into_iter()
            .for_each(|controller| set.insert(controller));
        set
    }
}
