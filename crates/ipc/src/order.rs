//! What a worker and the spawner say to each other: one packet each (`os::fdpass::packet_pair`).
//!
//! The idea: a worker numbers its programs as it likes; everything said about one carries that
//! number. An [`Order`] to run is answered by exactly one `Failed` or `Ended`, whoever ended the
//! program; only where it asks for that, `Started` comes before `Ended`. A close of either end means that
//! the other process has gone: the spawner then kills the worker's programs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use os::cgroup::{Group, Limits, directory_name};
use serde::{Deserialize, Serialize};

use crate::codec::{self, BadMessage, beside};
use crate::manifest::NamedProgram;
use crate::rows::RowOrder;

/// Bytes in one order; what is longer cannot be sent.
pub const ORDER_BYTES_MAX: usize = 128 * 1024;
/// Bytes in one report.
pub const REPORT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of free text in a report: a detail, the name of a group.
const TEXT_BYTES_MAX: usize = 1024;

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Run a program; answered by `Failed` or `Ended`.
    Run(Run),
    /// Run a map's program; answered likewise.
    RunMap(RunMap),
    /// Run a chore; answered likewise. Said over the supervisor's own link alone.
    RunChore(RunChore),
    /// Have a pool run; answered by `Warm` or `NotWarm`, before that perhaps by some `Warming`.
    /// To ask once more for one that is known to be warm is to say that its socket refuses.
    Warm {
        /// The worker's number for this order.
        id: u64,
        /// The pool, whichever generation the request belongs to.
        pool: String,
        /// Whether it is to run as the latest manifest says: until it does, one that runs is not warm.
        is_latest: bool,
    },
    /// Have the pool of a row run, as this generation's manifest makes it; answered as `Warm`.
    WarmRow {
        /// The worker's number for this order.
        id: u64,
        /// The row.
        row: Box<RowOrder>,
    },
    /// A pool is in use, and is not to be ended for want of work. Nothing is started by that.
    Used {
        /// The pool.
        pool: String,
    },
    /// Kill a program and all in its process group. Nothing happens where it has ended.
    Kill {
        /// The worker's number for it.
        id: u64,
    },
}

/// A program to run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Run {
    /// The worker's number for it; none of its programs that has not ended may have it.
    pub id: u64,
    /// The generation whose manifest is meant.
    pub generation: u64,
    /// Which root it is run from ([`SiteManifest::index`](crate::manifest::SiteManifest::index)).
    pub site: u32,
    /// Index of the rule in the site.
    pub rule: u32,
    /// The row that makes the site, of those of [`RowsManifest`](crate::rows::RowsManifest).
    pub row: Option<Box<RowOrder>>,
    /// The group a script wants it born in, below its rule's: one name, as [`wish`] makes it.
    pub group: Option<Box<Group>>,
    /// The file, relative to the site's root, as it was resolved: no `.` nor `..`.
    pub script: Vec<u8>,
    /// Whether `Started` is to be said. Few ask: it costs both ends a turn while the program loads.
    pub says_start: bool,
    /// Its environment: names and values.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its standard input.
    #[serde(with = "beside")]
    pub stdin: OwnedFd,
    /// Its standard output.
    #[serde(with = "beside")]
    pub stdout: OwnedFd,
    /// Its standard error.
    #[serde(with = "beside")]
    pub stderr: OwnedFd,
}

/// A map's program to run. As whom, where and with what arguments says the manifest.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunMap {
    /// The worker's number for it; none of its programs that has not ended may have it.
    pub id: u64,
    /// The generation whose manifest is meant.
    pub generation: u64,
    /// Index of the map in the generation's model.
    pub map: u32,
    /// Its standard input.
    #[serde(with = "beside")]
    pub stdin: OwnedFd,
    /// Its standard output.
    #[serde(with = "beside")]
    pub stdout: OwnedFd,
    /// Its standard error.
    #[serde(with = "beside")]
    pub stderr: OwnedFd,
}

/// A program to run on the gateway's own behalf. No manifest has it: the supervisor, which makes
/// manifests, asks for it itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunChore {
    /// The supervisor's number for it; none of its chores that has not ended may have it.
    pub id: u64,
    /// What is run.
    pub program: NamedProgram,
    /// Its standard input.
    #[serde(with = "beside")]
    pub stdin: OwnedFd,
    /// Its standard output.
    #[serde(with = "beside")]
    pub stdout: OwnedFd,
    /// Its standard error.
    #[serde(with = "beside")]
    pub stderr: OwnedFd,
}

/// What the spawner says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The program runs: its `execve` has succeeded. Said where it was asked for.
    Started {
        /// The worker's number for it.
        id: u64,
        /// Its process id.
        pid: u32,
    },
    /// The program was not started.
    Failed {
        /// The worker's number for it.
        id: u64,
        /// Why.
        failure: Failure,
        /// What exactly, for the log.
        detail: String,
    },
    /// The program has ended.
    Ended(Ended),
    /// The pool waits for its turn to start, or starts.
    Warming {
        /// The worker's number for the order.
        id: u64,
        /// How long that will take, as far as can be told.
        wait_ms: u64,
    },
    /// The pool runs.
    Warm {
        /// The worker's number for the order.
        id: u64,
    },
    /// The pool does not run.
    NotWarm {
        /// The worker's number for the order.
        id: u64,
        /// Why.
        failure: Failure,
        /// What exactly, for the log.
        detail: String,
        /// When it may be asked for again.
        retry_ms: u64,
    },
    /// A pool that ran has ended; said to every worker, unasked.
    Cold {
        /// The pool.
        pool: String,
    },
    /// Other processes of a pool take requests from now on, and those before end what they have
    /// begun; said likewise.
    HandedOver {
        /// The pool.
        pool: String,
    },
    /// What a pool has come to since its spawner started; said to one worker of the newest server,
    /// unasked.
    Counts {
        /// The pool.
        pool: String,
        /// What is counted.
        counts: PoolCounts,
    },
    /// What runs of PHP files have cost; said to one worker of a server, unasked.
    Costs {
        /// Whose files they are.
        tenant: String,
        /// Each file once.
        costs: Vec<FileCost>,
    },
}

/// What is counted of a pool where its masters are started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolCounts {
    /// Masters that have been ready.
    pub masters: u64,
    /// How long these took, all together.
    pub masters_us: u64,
    /// Messages that `nagaya sendmail` has handed over in it, as it says.
    pub mails: u64,
    /// Those that it could not, or not to everybody.
    pub mails_unsent: u64,
}

/// What runs of a file have cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCost {
    /// Its full name, no longer than php-fpm tells it: 255 bytes.
    pub file: String,
    /// How many they were.
    pub runs: u32,
    /// Their processor time, all together, in microseconds.
    pub cpu_us: u64,
}

/// How a program ended and what it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The worker's number for it.
    pub id: u64,
    /// How.
    pub end: End,
    /// Processor time of it and of the children it waited for, in microseconds.
    pub cpu_us: u64,
    /// The most memory one of these processes had resident, in bytes.
    pub peak_rss_bytes: u64,
    /// The limit it ran into, as far as can be told.
    pub limit: Option<LimitHit>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// By itself, with this status.
    Exit(u8),
    /// By this signal.
    Signal(u8),
}

/// A limit that a program ran into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitHit {
    /// Its group was out of memory, and the kernel killed it.
    Memory {
        /// The group whose limit it was.
        group: String,
        /// The limit.
        bytes: u64,
    },
    /// Its group had as many processes as it may.
    Pids {
        /// The group whose limit it was.
        group: String,
        /// The limit.
        pids: u64,
    },
    /// It used up its processor time (`RLIMIT_CPU`).
    CpuTime {
        /// The limit.
        seconds: u64,
    },
    /// It wrote a file larger than it may (`RLIMIT_FSIZE`).
    FileSize {
        /// The limit.
        bytes: u64,
    },
}

/// Why a program was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// No manifest that the spawner has names that rule, map or pool.
    UnknownRule,
    /// As many programs run as may.
    ProgramsFull,
    /// The file is not there.
    NotFound,
    /// The way to it is no plain path, or leads out of the site's directory.
    OutsideRoot,
    /// A symbolic link on the way that the site's policy refuses.
    SymlinkRefused,
    /// The file is no regular file.
    NotRegular,
    /// The user may not execute it, or not enter its directory.
    NotExecutable,
    /// File or directory belong neither to the site's user nor to root.
    OwnerMismatch,
    /// Somebody else may change file or directory.
    WritableByOthers,
    /// The file is setuid or setgid.
    SetuidFile,
    /// The site's user is root.
    UserIsRoot,
    /// There is no such user.
    UserUnknown,
    /// A variable that programs do not get, or one that cannot be told.
    EnvironmentRefused,
    /// The program its `#!` line names is missing.
    InterpreterMissing,
    /// Neither a binary for this machine nor a script with a `#!` line.
    NotAProgram,
    /// Its group, its user or the machine has as many processes as it may.
    PidsLimit,
    /// The machine has no memory for another process.
    NoMemory,
    /// It cannot be put into its group.
    GroupFailed,
    /// The file system it is on, or the database of users, does not answer.
    FilesSilent,
    /// The pool did not start, or ended again and again, and rests.
    PoolFailed,
    /// More orders wait for the pool than may.
    PoolsFull,
    /// Something else: see the detail.
    SpawnFailed,
    /// Its tenant is suspended.
    TenantSuspended,
}

impl Failure {
    /// Every failure with its word, in the order they are declared in.
    const ALL: [(Failure, &'static str); 23] = [
        (Failure::UnknownRule, "unknown_rule"),
        (Failure::ProgramsFull, "programs_full"),
        (Failure::NotFound, "program_not_found"),
        (Failure::OutsideRoot, "outside_root"),
        (Failure::SymlinkRefused, "symlink_refused"),
        (Failure::NotRegular, "not_regular"),
        (Failure::NotExecutable, "not_executable"),
        (Failure::OwnerMismatch, "owner_mismatch"),
        (Failure::WritableByOthers, "writable_by_others"),
        (Failure::SetuidFile, "setuid_file"),
        (Failure::UserIsRoot, "user_is_root"),
        (Failure::UserUnknown, "user_unknown"),
        (Failure::EnvironmentRefused, "environment_refused"),
        (Failure::InterpreterMissing, "interpreter_missing"),
        (Failure::NotAProgram, "not_a_program"),
        (Failure::PidsLimit, "pids_limit"),
        (Failure::NoMemory, "no_memory"),
        (Failure::GroupFailed, "group_failed"),
        (Failure::FilesSilent, "files_silent"),
        (Failure::PoolFailed, "pool_failed"),
        (Failure::PoolsFull, "pools_full"),
        (Failure::SpawnFailed, "spawn_failed"),
        (Failure::TenantSuspended, "tenant_suspended"),
    ];

    /// The word for it in logs and metrics: stable.
    #[must_use]
    pub fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(failure, _)| *failure == self);
        found.map_or("spawn_failed", |(_, word)| word)
    }
}

/// An order for whose pipes the spawner had no room: they are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unheld {
    /// The program's number.
    pub id: u64,
}

/// Of what a worker says, what comes before the first descriptor.
#[derive(Deserialize)]
enum Beginning {
    Run { id: u64 },
    RunMap { id: u64 },
    RunChore { id: u64 },
    Warm,
    WarmRow,
    Used,
    Kill,
}

impl Unheld {
    fn decode(bytes: &[u8]) -> Result<Unheld, BadMessage> {
        match codec::decode_beginning(bytes)? {
            Beginning::Run { id } | Beginning::RunMap { id } | Beginning::RunChore { id } => {
                Ok(Unheld { id })
            }
            Beginning::Warm | Beginning::WarmRow | Beginning::Used | Beginning::Kill => {
                Err(BadMessage::new("no descriptors belong to it"))
            }
        }
    }
}

impl Order {
    /// Sends it, or says `WouldBlock` where the link is full.
    ///
    /// # Errors
    /// `InvalidInput` where it is larger than an order may be; otherwise the spawner has gone.
    pub fn try_send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = codec::encode(self)?;
        if bytes.len() > ORDER_BYTES_MAX {
            let error = "more environment than a program can be given";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        match self {
            Order::Run(run) => os::fdpass::try_send(link, &bytes, &run.fds()),
            Order::RunMap(run) => os::fdpass::try_send(link, &bytes, &run.fds()),
            Order::RunChore(run) => os::fdpass::try_send(link, &bytes, &run.fds()),
            Order::Warm { .. }
            | Order::WarmRow { .. }
            | Order::Used { .. }
            | Order::Kill { .. } => os::fdpass::try_send(link, &bytes, &[]),
        }
    }

    /// Receives the next one, with the help of a buffer that grows to [`ORDER_BYTES_MAX`]; says
    /// `WouldBlock` where there is none.
    ///
    /// # Errors
    /// `UnexpectedEof` when the worker has gone, `InvalidData` for what is no order.
    pub fn try_recv(
        link: BorrowedFd<'_>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Result<Order, Unheld>> {
        buffer.resize(ORDER_BYTES_MAX, 0);
        let (bytes, fds) = os::fdpass::try_recv(link, buffer)?;
        let bytes = buffer.get(..bytes).unwrap_or_default();
        Ok(match fds {
            Some(fds) => Ok(Order::decode(bytes, fds)?),
            None => Err(Unheld::decode(bytes)?),
        })
    }

    fn decode(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Order, BadMessage> {
        let order = codec::decode(bytes, fds)?;
        if let Order::Run(Run {
            group: Some(group), ..
        }) = &order
            && !is_wish(group)
        {
            return Err(BadMessage::new("no name of a script's group"));
        }
        Ok(order)
    }
}

impl Order {
    /// The number of the program it is to start, if it is to start one.
    #[must_use]
    pub fn starts(&self) -> Option<u64> {
        match self {
            Order::Run(run) => Some(run.id),
            Order::RunMap(run) => Some(run.id),
            Order::RunChore(run) => Some(run.id),
            Order::Warm { .. }
            | Order::WarmRow { .. }
            | Order::Used { .. }
            | Order::Kill { .. } => None,
        }
    }
}

/// The kind of directory that groups of scripts are, in `os::cgroup::directory_name`'s words.
const WISH: &str = "script";

/// The group of this name, as an order may carry it.
#[must_use]
pub fn wish(name: &str, limits: Limits) -> Group {
    Group {
        path: vec![directory_name(WISH, name)],
        limits,
    }
}

/// Whether it is one that [`wish`] makes.
fn is_wish(group: &Group) -> bool {
    let is_ours = |name: &String| {
        let rest = name
            .strip_prefix(WISH)
            .and_then(|rest| rest.strip_prefix('-'));
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b".-_%+".contains(&byte);
        name.len() < 255 && rest.is_some_and(|rest| rest.bytes().all(is_safe))
    };
    matches!(group.path.as_slice(), [name] if is_ours(name))
}

impl Run {
    fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [&self.stdin, &self.stdout, &self.stderr].map(AsFd::as_fd)
    }
}

impl RunMap {
    fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [&self.stdin, &self.stdout, &self.stderr].map(AsFd::as_fd)
    }
}

impl RunChore {
    fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [&self.stdin, &self.stdout, &self.stderr].map(AsFd::as_fd)
    }
}

impl Report {
    /// Writes it down; free text too long for a report is cut.
    ///
    /// # Errors
    /// None of ours.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut cut = self.clone();
        match &mut cut {
            Report::Failed { detail: text, .. }
            | Report::NotWarm { detail: text, .. }
            | Report::Ended(Ended {
                limit:
                    Some(LimitHit::Memory { group: text, .. } | LimitHit::Pids { group: text, .. }),
                ..
            }) => codec::cut(text, TEXT_BYTES_MAX),
            Report::Started { .. }
            | Report::Ended(_)
            | Report::Warming { .. }
            | Report::Warm { .. }
            | Report::Cold { .. }
            | Report::HandedOver { .. }
            | Report::Counts { .. }
            | Report::Costs { .. } => {}
        }
        codec::encode(&cut)
    }

    /// Receives the next one; says `WouldBlock` where there is none.
    ///
    /// # Errors
    /// `UnexpectedEof` when the spawner has gone, `InvalidData` for what is no report.
    pub fn try_recv(link: BorrowedFd<'_>) -> io::Result<Report> {
        let mut buffer = [0; REPORT_BYTES_MAX];
        let (bytes, fds) = os::fdpass::try_recv(link, &mut buffer)?;
        codec::decode_passed(buffer.get(..bytes).unwrap_or_default(), fds)
    }
}

#[cfg(test)]
mod tests;
