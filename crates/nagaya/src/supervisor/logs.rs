//! Access logs, opened with the supervisor's privileges and handed to the server.
//!
//! The idea: the server names a file, but cannot choose one. What it may ask for is known from
//! the configuration (`engine::log_paths`); every other path is refused.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use config::model::Model;
use engine::link::Log;
use engine::log_paths::LogPaths;

/// The logs of a generation.
#[derive(Debug)]
pub(super) struct Logs {
    open: BTreeMap<String, Rc<OwnedFd>>,
    on_demand: HashSet<String>,
}

impl Logs {
    /// Opens every log with a fixed path that `before` has not open already. On failure says
    /// all that went wrong.
    pub(super) fn open(model: &Model, before: Option<&Logs>) -> Result<Logs, Vec<String>> {
        let paths = LogPaths::of(model);
        let mut logs = Logs {
            open: BTreeMap::new(),
            on_demand: paths.filled,
        };
        let mut problems = Vec::new();
        for path in paths.fixed {
            let known = before.and_then(|before| before.open.get(&path));
            match known.map_or_else(|| open(&path).map(Rc::new), |known| Ok(Rc::clone(known))) {
                Ok(file) => drop(logs.open.insert(path, file)),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            Ok(logs)
        } else {
            Err(problems)
        }
    }

    /// Opens every log again. One that cannot be opened stays as it is; says why.
    pub(super) fn reopen(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        for (path, file) in &mut self.open {
            match open(path) {
                Ok(opened) => *file = Rc::new(opened),
                Err(problem) => problems.push(problem),
            }
        }
        problems
    }

    /// Opens a log the server asks for, if the configuration has such a one.
    pub(super) fn open_on_demand(&self, path: &str) -> Result<OwnedFd, String> {
        if self.on_demand.contains(path) {
            open(path)
        } else {
            Err(format!("no log of this configuration is at {path}"))
        }
    }

    /// Copies of the open logs, for the server.
    pub(super) fn for_server(&self) -> io::Result<Vec<Log>> {
        let copies = self.open.iter().map(|(path, file)| {
            Ok(Log {
                path: path.clone(),
                file: file.try_clone()?,
            })
        });
        copies.collect()
    }
}

fn open(path: &str) -> Result<OwnedFd, String> {
    os::file::open_log(Path::new(path)).map_err(|error| format!("open log {path}: {error}"))
}
