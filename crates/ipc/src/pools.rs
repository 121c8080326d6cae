//! Pools, as supervisor, spawner and workers speak of them.
//!
//! The idea: the supervisor owns the listening sockets for ever and says what a pool is
//! ([`PoolManifest`]); the spawner starts, hands over and ends its masters; a worker that finds a
//! pool cold asks for it by number ([`crate::order::Order::Warm`]), and waits on its connection,
//! which the kernel keeps until a master accepts it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::codec::{beside, path};
use crate::rows::RowUsers;

/// Where a master of php-fpm tells of its processes: a path that no request of a client has, since
/// what a client asks for never has `..` in it.
pub const FPM_STATUS_PATH: &str = "/../status";

/// A pool: everything that has to be known to run it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolManifest {
    /// Names its socket, its group and its directory, as `config::model::Pool::id`.
    pub id: String,
    /// In messages: `php 8.2 of example.jp`.
    pub name: String,
    /// Whose turn a start of it is.
    pub tenant: String,
    /// That tenant's share of starts relative to others'.
    pub weight: u32,
    /// The user it runs as; `None` is the user of the spawner itself, which is not root.
    pub user: Option<String>,
    /// Whom that may be, where a row has named it.
    pub users: Option<RowUsers>,
    /// The group that is its own, by index in the manifest's groups; none: the spawner's own. The
    /// group of the same pool may be another with the next manifest, when limits come or go above
    /// it.
    pub group: Option<u32>,
    /// Its own directory, which exists, with `sessions`, `uploads` and `cache` in it: its user's.
    #[serde(with = "path")]
    pub directory: PathBuf,
    /// Where its socket is.
    #[serde(with = "path")]
    pub socket: PathBuf,
    /// What runs in it.
    pub program: PoolProgramManifest,
    /// What it sees of the machine's files; `None`: what its user may see.
    pub walls: Option<WallsManifest>,
    /// How long it is kept without work; `None` for ever, and it is started with the gateway.
    pub idle_ms: Option<u64>,
}

/// A site that a pool serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolSite {
    /// Its name.
    pub name: String,
    /// Where its files are; empty where it has none.
    #[serde(with = "path")]
    pub root: PathBuf,
}

/// What runs in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolProgramManifest {
    /// A master of php-fpm.
    Php {
        /// `php-fpm`.
        #[serde(with = "path")]
        program: PathBuf,
        /// Children.
        processes: u32,
        /// Requests that a child serves.
        requests: u32,
        /// How long a request may take.
        time_ms: u64,
        /// Settings of the whole process (`-d`).
        ini: Vec<(String, String)>,
        /// Settings that programs cannot change (`php_admin_value`).
        admin: Vec<(String, String)>,
        /// The sites that it serves, which its mail is stamped with.
        sites: Vec<PoolSite>,
    },
    /// An application that listens.
    App {
        /// Program and arguments.
        command: Vec<String>,
        /// Where it starts.
        #[serde(with = "path")]
        directory: PathBuf,
        /// Its variables.
        env: Vec<(String, String)>,
        /// Processes that listen.
        instances: u32,
        /// How long it may take to listen.
        start_ms: u64,
        /// How long it may take to end.
        stop_ms: u64,
        /// A path that it answers over HTTP with less than 500 once it is ready; `None`: it is as
        /// soon as it accepts a connection.
        ready: Option<String>,
    },
}

/// What a pool sees of the machine's files: these and [`crate::manifest::Manifest::sees`], and
/// nothing else. What lies in another of them comes after it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct WallsManifest {
    /// Directories and files, each where it is outside.
    pub sees: Vec<Seen>,
    /// Size of its own `/tmp`.
    pub tmp_bytes: u64,
}

/// A directory or file that a pool sees.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seen {
    /// Where it is, outside and inside.
    #[serde(with = "path")]
    pub path: PathBuf,
    /// Whether it may be written, by whom the file system lets.
    pub is_writable: bool,
    /// Whether a pool does without it where it is missing.
    pub is_optional: bool,
}

/// The socket of a pool, for the spawner.
#[derive(Debug, Serialize, Deserialize)]
pub struct PoolSocket {
    /// The pool.
    pub id: String,
    /// It listens.
    #[serde(with = "beside")]
    pub socket: OwnedFd,
}

/// A master that runs: the spawner tells the supervisor, who tells the next spawner.
#[derive(Debug, Serialize, Deserialize)]
pub struct PoolProcess {
    /// The pool.
    pub id: String,
    /// Its process.
    pub pid: u32,
    /// Tells the settings it was started with from others, where one program has made both numbers.
    pub settings: u64,
    /// Which file its program was; `None` where nobody minds.
    pub identity: Option<Identity>,
    /// The same, for ever (`pidfd_open(2)`).
    #[serde(with = "beside")]
    pub process: OwnedFd,
    /// What it and its children say on standard error, to be read: as long as somebody has it,
    /// nobody who says something there is ended by that.
    #[serde(with = "beside")]
    pub words: OwnedFd,
}

/// Which file a program is: device, inode, and when its content changed, in seconds and nanoseconds.
pub type Identity = (u64, u64, i64, i64);

impl PoolProcess {
    /// Its descriptors, in the order of its fields.
    #[must_use]
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.process.as_fd(), self.words.as_fd()]
    }

    /// Another copy.
    ///
    /// # Errors
    /// When this process may open no more descriptors.
    pub fn try_clone(&self) -> io::Result<PoolProcess> {
        Ok(PoolProcess {
            id: self.id.clone(),
            pid: self.pid,
            settings: self.settings,
            identity: self.identity,
            process: self.process.try_clone()?,
            words: self.words.try_clone()?,
        })
    }
}

/// What operators ask of pools. The server hears it on its control socket, and knows which pools
/// are a site's; it goes by the supervisor to the spawner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolQuestion {
    /// How all of them stand; answered by `Pools`.
    List,
    /// Start another master of each of these that runs, and end the one before when that is ready.
    Restart(Vec<String>),
    /// End these; the next request starts them again.
    Stop(Vec<String>),
    /// End these, and empty what they keep of compiled files.
    Clear(Vec<String>),
    /// Of this tenant: end all pools and programs, and start none until `Resume`.
    Suspend(String),
    /// Start pools and programs of this tenant again as they are wanted.
    Resume(String),
    /// Kill all that runs of this tenant, and what of it is in its groups.
    Kill(String),
}

/// What is said to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolAnswer {
    /// How each pool stands, in the order of the manifest.
    Pools(Vec<PoolStanding>),
    /// It is being done to so many of those that were named.
    Begun(u32),
    /// It cannot be done, and why.
    Refused(String),
    /// It is being done to so many pools and programs of the tenant.
    Tenant {
        /// Pools that ran or started.
        pools: u32,
        /// Programs that were started for requests.
        programs: u32,
    },
}

/// How a pool stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStanding {
    /// The pool.
    pub id: String,
    /// In messages.
    pub name: String,
    /// The tenant.
    pub tenant: String,
    /// How far it is.
    pub state: PoolState,
    /// Its master, where there is one.
    pub pid: Option<u32>,
    /// The masters that have been ready.
    pub starts: u64,
    /// Those that have not been.
    pub starts_failed: u64,
    /// How long the last starts took until they were ready: the median.
    pub start_p50_ms: Option<u64>,
    /// The longest but one in a hundred.
    pub start_p99_ms: Option<u64>,
    /// Processes in it; of php-fpm those that its master has for pages.
    pub processes: u32,
    /// What its group holds of memory, where it has one that tells.
    pub memory_bytes: Option<u64>,
    /// Processor time that its group has taken.
    pub cpu_us: Option<u64>,
    /// Periods of the innermost group around it that has a quota, and those of them in which that
    /// ran out.
    pub periods: Option<(u64, u64)>,
    /// How long its group waited for processors, memory and devices in the last ten seconds: parts
    /// of ten thousand.
    pub pressure: [Option<u32>; 3],
    /// Messages that `nagaya sendmail` has handed over in it, as it says.
    pub mails: u64,
    /// Those that it could not, or not to everybody.
    pub mails_unsent: u64,
    /// Why it failed last; empty where it did not.
    pub failure: String,
    /// When it may be started again after that.
    pub retry_ms: Option<u64>,
}

/// How far a pool is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolState {
    /// Nothing runs.
    #[default]
    Cold,
    /// It waits for its turn to start.
    Waiting,
    /// Its master is not ready.
    Starting,
    /// It answers requests.
    Warm,
    /// It answers them, and another master is being started for it.
    HandingOver,
    /// Its master finishes what is under way.
    Draining,
    /// It could not be started, and is not for now.
    Failed,
    /// Its tenant is suspended.
    Suspended,
}

impl PoolState {
    /// The word for it, where it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            PoolState::Cold => "cold",
            PoolState::Waiting => "waiting",
            PoolState::Starting => "starting",
            PoolState::Warm => "warm",
            PoolState::HandingOver => "handing_over",
            PoolState::Draining => "draining",
            PoolState::Failed => "failed",
            PoolState::Suspended => "suspended",
        }
    }
}
