//! Access logs and the error logs of sites, opened with the supervisor's privileges and handed to the server.
//!
//! The idea: the server names a file, but cannot choose one. What it may ask for is known from
//! the configuration (`engine::log_paths`); every other path is refused. A log that cannot be
//! opened keeps a generation from starting only where nobody but the operator had a hand in it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use config::log_paths::LogPaths;
use config::model::Model;
use ipc::server::Log;
use os::user::User;

/// The logs of a generation.
#[derive(Debug)]
pub(super) struct Logs {
    open: BTreeMap<String, Rc<OwnedFd>>,
    on_demand: HashSet<String>,
    /// The numbers of users to whom a log belongs when it is made. Looked up once: logs are opened
    /// anew all at once, and a user database may be slow.
    readers: HashMap<String, u32>,
}

impl Logs {
    /// Opens every log with a fixed path that `before` has not open already. On failure says
    /// all that went wrong. One in others' hands is asked for by the server when it has records.
    pub(super) fn open(model: &Model, before: Option<&Logs>) -> Result<Logs, Vec<String>> {
        let paths = LogPaths::of(model);
        let (readers, mut problems) = numbers_of(paths.readers);
        let mut logs = Logs {
            open: BTreeMap::new(),
            on_demand: paths.filled,
            readers,
        };
        for path in paths.fixed {
            let known = before.and_then(|before| before.open.get(&path));
            let opened = match known {
                Some(known) => Ok(Rc::clone(known)),
                None => logs.open_at(&path).map(Rc::new),
            };
            match opened {
                Ok(file) => drop(logs.open.insert(path, file)),
                Err(error) if is_others_doing(&path, &error) => {
                    tracing::warn!(
                        "{}; that is in the hands of others, so the start goes on: its records are lost until that is put right",
                        problem(&path, &error)
                    );
                    logs.on_demand.insert(path);
                }
                Err(error) => problems.push(problem(&path, &error)),
            }
        }
        if problems.is_empty() {
            Ok(logs)
        } else {
            Err(problems)
        }
    }

    /// Those that another supervisor has opened.
    pub(super) fn of(logs: Vec<Log>) -> Logs {
        let open = logs.into_iter().map(|log| (log.path, Rc::new(log.file)));
        Logs {
            open: open.collect(),
            on_demand: HashSet::new(),
            readers: HashMap::new(),
        }
    }

    /// Opens every log again. One that cannot be opened stays as it is; says why.
    pub(super) fn reopen(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut open = std::mem::take(&mut self.open);
        for (path, file) in &mut open {
            match self.open_at(path) {
                Ok(opened) => *file = Rc::new(opened),
                Err(error) => problems.push(problem(path, &error)),
            }
        }
        self.open = open;
        problems
    }

    /// Opens a log the server asks for, if the configuration has such a one.
    pub(super) fn open_on_demand(&self, path: &str) -> Result<OwnedFd, String> {
        if self.on_demand.contains(path) {
            let opened = self.open_at(path);
            opened.map_err(|error| problem(path, &error))
        } else {
            Err(format!("no log of this configuration is at {path}"))
        }
    }

    /// Opens a log, given to its reader if it is made.
    fn open_at(&self, path: &str) -> io::Result<OwnedFd> {
        let at = Path::new(path);
        match self.readers.get(path) {
            Some(user) => os::log::open_log_for(at, *user),
            None => os::log::open_log(at),
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

/// The readers' numbers instead of their names, and what went wrong. Only root can give anything
/// away.
fn numbers_of(readers: HashMap<String, String>) -> (HashMap<String, u32>, Vec<String>) {
    if !os::process::is_root() {
        return Default::default();
    }
    let (mut known, mut problems) = (HashMap::new(), Vec::new());
    let mut number_of = |user: String| {
        *known.entry(user).or_insert_with_key(|user| {
            let found = User::look_up(user);
            let found = found.map_err(|error| {
                let why = config::reason(&error);
                problems.push(format!("give an error log to user {user}: {why}"));
            });
            found.ok().map(|user| user.uid)
        })
    };
    let numbers = readers.into_iter();
    let numbers = numbers.filter_map(|(path, user)| Some((path, number_of(user)?)));
    (numbers.collect(), problems)
}

/// Whether somebody else than the operator may be to blame: whoever has a hand in the path, or who
/// is to have the file and has used up what files they may have.
fn is_others_doing(path: &str, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::QuotaExceeded || os::log::is_in_others_hands(Path::new(path))
}

fn problem(path: &str, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => " (its directory must exist)",
        _ => "",
    };
    format!("open log {path}: {}{advice}", config::reason(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::temp::TempDir;

    fn model(directory: &TempDir, log: &str) -> Model {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:80\"\n[log]\naccess = \"{0}/{log}\"\n\
             [[sites]]\nhosts = [\"example.jp\", \"www.example.jp\", \"*.example.jp\"]\n\
             rules = [{{ handler = {{ respond = {{ body = \"x\" }} }} }}]\n",
            directory.path().display()
        );
        config::load(&config::Sources::from_text("nagaya.toml", &text)).unwrap()
    }

    #[test]
    fn only_paths_filled_with_configured_hosts_are_opened() {
        let directory = TempDir::new();
        let logs = Logs::open(&model(&directory, "$host.log"), None).unwrap();
        assert!(logs.open.is_empty());
        let ask = |name: &str| {
            let path = directory.path().join(name);
            logs.open_on_demand(path.to_str().unwrap()).is_ok()
        };
        for name in [
            "example.jp.log",
            "www.example.jp.log",
            "_.example.jp.log",
            "_.log",
        ] {
            assert!(ask(name), "{name}");
        }
        for name in [
            "other.jp.log",
            "x.example.jp.log",
            "../example.jp.log",
            "./example.jp.log",
            "",
        ] {
            assert!(!ask(name), "{name}");
        }
    }

    #[test]
    fn a_log_that_became_a_tenants_link_is_not_followed() {
        if testkit::lacks_root("to make a link of another user") {
            return;
        }
        let directory = TempDir::new();
        let mut logs = Logs::open(&model(&directory, "all.log"), None).unwrap();
        let path = directory.path().join("all.log");
        let precious = directory.write("precious", "");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(precious, &path).unwrap();
        std::os::unix::fs::lchown(&path, Some(65_534), None).unwrap();
        let problems = logs.reopen();
        assert!(
            problems[0].contains("belongs to user 65534"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_log_a_tenant_spoilt_does_not_keep_the_others_from_starting() {
        if testkit::lacks_root("to give a directory away") {
            return;
        }
        let directory = TempDir::new();
        let model = model(&directory, "tenant/logs/all.log");
        let tenant = directory.path().join("tenant");
        let log = tenant.join("logs/all.log");
        let spoil = || {
            let logs = Logs::open(&model, None).unwrap();
            assert!(logs.open.is_empty());
            logs
        };
        // The operator's own directory is missing.
        assert!(Logs::open(&model, None).is_err());
        std::fs::create_dir(&tenant).unwrap();
        assert!(Logs::open(&model, None).is_err());
        // The tenant's is missing, or the log is a directory or a link.
        std::os::unix::fs::chown(&tenant, Some(65_534), None).unwrap();
        spoil();
        std::fs::create_dir_all(&log).unwrap();
        spoil();
        std::fs::remove_dir(&log).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &log).unwrap();
        std::os::unix::fs::lchown(&log, Some(65_534), None).unwrap();
        let logs = spoil();
        // Once that is put right it is opened, for its records or by a reload.
        let ask = || logs.open_on_demand(log.to_str().unwrap());
        assert!(ask().is_err());
        std::fs::remove_file(&log).unwrap();
        ask().unwrap();
        let after = Logs::open(&model, Some(&logs)).unwrap();
        assert_eq!(after.open.len(), 1);
    }

    #[test]
    fn a_quota_that_is_used_up_keeps_nothing_from_starting() {
        let path = "/var/log/example.error.log";
        for (number, expected) in [(122, true), (1, false), (28, false)] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(is_others_doing(path, &error), expected, "{error}");
        }
    }

    #[test]
    fn readers_are_looked_up_once_and_before_anything_is_opened_for_them() {
        if testkit::lacks_root("to give logs away") {
            return;
        }
        let readers = [("/a", "nobody"), ("/b", "nobody"), ("/c", "no-such-user")];
        let readers = readers.map(|(path, user)| (path.to_owned(), user.to_owned()));
        let (numbers, problems) = numbers_of(HashMap::from(readers));
        let nobody = User::look_up("nobody").unwrap().uid;
        let expected = ["/a", "/b"].map(|path| (path.to_owned(), nobody));
        assert_eq!(numbers, HashMap::from(expected));
        assert_eq!(
            problems,
            ["give an error log to user no-such-user: no such user"]
        );
    }

    #[test]
    fn a_fixed_log_is_taken_over_and_opened_again_where_it_was() {
        let directory = TempDir::new();
        let model = model(&directory, "all.log");
        let before = Logs::open(&model, None).unwrap();
        let mut after = Logs::open(&model, Some(&before)).unwrap();
        let (path, kept) = before.open.first_key_value().unwrap();
        assert!(Rc::ptr_eq(kept, &after.open[path]));
        assert!(after.reopen().is_empty());
        assert!(!Rc::ptr_eq(kept, &after.open[path]));
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
        let held = Rc::clone(&after.open[path]);
        assert_eq!(after.reopen().len(), 1);
        assert!(
            Rc::ptr_eq(&held, &after.open[path]),
            "what cannot be opened again stays"
        );
    }
}
