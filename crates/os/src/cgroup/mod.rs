//! Control groups, versions 1 and 2: long-lived groups that programs are born in.
//!
//! The idea: each controller is had from wherever this machine has it ([`Host`]); below this
//! process's own group one directory a hierarchy is ours for as long as we hold its lock
//! ([`Base`]); in it stands a [`Tree`] of groups with [`Limits`]; and a [`Leaf`] is what a program
//! is born in. Nothing that runs is ever moved, but for the gateway itself, once, before it has
//! children. Which groups there are and what they may use is the callers' business.

mod base;
mod controllers;
mod device;
mod held;
mod host;
mod interface;
mod kill;
mod lack;
mod layout;
mod leaf;
mod limits;
mod mounts;
mod names;
mod numbers;
mod pressure;
mod settings;
mod standing;
mod tree;
mod usage;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;

pub use self::base::{Base, Placed};
pub use self::controllers::{Controller, Controllers};
pub use self::device::{Device, device_of};
pub use self::held::HeldLimit;
pub use self::host::{Host, OwnGroup, Sight};
pub use self::kill::kill_all;
pub use self::lack::Lack;
pub use self::layout::{Hierarchy, Layout, Version};
pub use self::leaf::{Hits, Leaf};
pub use self::limits::{CpuLimit, IoLimit, Limits};
pub use self::names::directory_name;
pub use self::numbers::NumberList;
pub use self::pressure::pressure;
pub use self::standing::{CpuFigures, Mounts, Standing};
pub use self::tree::{Group, Tree};
pub use self::usage::{CpuTimes, Usage};

/// What could not be done, and what the system said.
#[derive(Debug)]
pub struct Error {
    /// What was being done, to what.
    pub what: String,
    /// Why not.
    pub error: io::Error,
}

impl Error {
    fn new(what: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self {
            what: what.into(),
            error: error.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl std::error::Error for Error {}
