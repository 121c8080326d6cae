//! The stores that scripts ask, as processes of the test's own: memcached, MariaDB, PostgreSQL, Redis.
//!
//! The idea: a client of a store is tested against the real one, on a free port, in a directory
//! that goes away with it. A test may stop a store, start it again on the same port, and hold it
//! still, which from outside looks like a machine that hangs. Nothing of the machine's own
//! configuration is read and no service of it is touched.

mod mariadb;
mod memcached;
mod postgres;
mod redis;

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process};

pub use mariadb::{MariaDb, Sql};
pub use memcached::{Cache, Memcached};
pub use postgres::{Postgres, PostgresSql};
pub use redis::{Redis, RedisServer};

use crate::processes::{children, hold_still};
use crate::temp::TempDir;
use crate::wait::{PATIENCE, eventually};

/// A Redis as it comes; as [`RedisServer::start`].
#[must_use]
pub fn a_redis() -> Option<RedisServer> {
    RedisServer::start(&[])
}

/// A PostgreSQL as it comes; as [`Postgres::start`].
#[must_use]
pub fn a_postgres() -> Option<Postgres> {
    Postgres::start(&[])
}

/// A MariaDB as it comes; as [`MariaDb::start`].
#[must_use]
pub fn a_mariadb() -> Option<MariaDb> {
    MariaDb::start(&[])
}

/// Where programs lie, also those that an ordinary user's PATH lacks.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];

/// What a store of any kind is: a program, how it is started and where it listens, and its process
/// while it runs; killed when dropped.
#[derive(Debug)]
pub struct Store<K> {
    program: PathBuf,
    arguments: Vec<String>,
    directory: TempDir,
    address: SocketAddr,
    /// Whether it has come up.
    is_ready: fn(&Self) -> bool,
    child: Option<Child>,
    /// What has it end though somebody is connected.
    ending: Signal,
    kind: K,
}

impl<K> Store<K> {
    /// Starts a program that listens on a port of 127.0.0.1.
    fn begin(
        kind: K,
        program: PathBuf,
        arguments: Vec<String>,
        (directory, port): (TempDir, u16),
        is_ready: fn(&Self) -> bool,
    ) -> Self {
        let mut store = Self {
            program,
            arguments,
            directory,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            is_ready,
            child: None,
            ending: Signal::TERM,
            kind,
        };
        store.restart();
        store
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it; connections to it are closed, new ones are refused.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let pid = Pid::from_child(&child);
        // One that is held still would not hear the first.
        for signal in [self.ending, Signal::CONT] {
            kill_process(pid, signal).expect("signal a store");
        }
        eventually(PATIENCE, &format!("{} to end", self.name()), || {
            child.try_wait().expect("wait for a child")
        });
    }

    /// Starts it again on the same port, ending it first where it runs. Only MariaDB has then what
    /// it had before.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.stop();
        let log = File::create(self.log_file()).expect("create a log file");
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", self.name()));
        self.child = Some(child);
        eventually(PATIENCE, &format!("{} to be ready", self.name()), || {
            let ended = self.child.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                panic!("{} ended with {status}: {}", self.name(), self.log());
            }
            (self.is_ready)(self).then_some(())
        });
    }

    /// Holds it still: its connections stay open and nothing is answered.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it does not run.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref();
        let child = child.unwrap_or_else(|| panic!("{} does not run", self.name()));
        let main = Pid::from_child(child);
        if signal == Signal::STOP {
            hold_still(child.id());
        }
        // Some have a process for each connection.
        for id in children(child.id()) {
            match i32::try_from(id).ok().and_then(Pid::from_raw) {
                Some(_) if signal == Signal::STOP => hold_still(id),
                // It may have ended meanwhile.
                Some(other) => kill_process(other, signal).unwrap_or_default(),
                None => {}
            }
        }
        if signal != Signal::STOP {
            kill_process(main, signal).expect("signal a store");
        }
    }

    /// What it has written since it was started last.
    fn log(&self) -> String {
        let log = std::fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn name(&self) -> std::borrow::Cow<'_, str> {
        file_name(&self.program)
    }
}

impl<K> Drop for Store<K> {
    fn drop(&mut self) {
        // What it keeps goes away with its directory; it need not put anything in order.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Finds a program under the first of its names that is installed; says so when none is.
fn find(names: &[&str]) -> Option<PathBuf> {
    let paths = names
        .iter()
        .flat_map(|name| DIRECTORIES.map(|directory| Path::new(directory).join(name)));
    let found = paths.into_iter().find(|path| path.is_file());
    if found.is_none() {
        crate::lacks_program(names.first().unwrap_or(&""));
    }
    found
}

/// The user a store is told to be, where the test is root: a store refuses that unless told.
fn user_for_root(user: &str) -> Option<&str> {
    geteuid().is_root().then_some(user)
}

fn file_name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&one| one.to_owned()).collect()
}
