//! Starting programs: as somebody, in a group, with nothing of this process left in them.
//!
//! The idea: everything is made ready before the process is: its arguments, its limits, the
//! groups of its user. The new process then makes system calls only, in one fixed order
//! (`child.rs`), and the first that fails is told through a pipe that closes by itself when
//! `execve` succeeds. So nothing is waited for: the caller asks the [`Verdict`] when it can be
//! read. Whether a program may be run at all, and what it may ask of the kernel, is the callers'
//! business.

mod child;
mod mounts;
mod process;
mod walls;

use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::user::User;

pub use self::process::{Adopted, End, Ended, Process, adopt_orphans, next_ended, reap_orphan};
pub use self::walls::{Seen, Walls};

/// Descriptors a program may have by default: what it may take for granted, and what does not
/// make those slow that look at each.
const FILES_USUAL: u64 = 1024;
/// What programs make files with: nobody but their user may write them.
const UMASK: libc::mode_t = 0o022;
/// `libc` has these two in a type they do not fit.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// Bytes of a [`Verdict`]: the stage, the error's number, and the step of the stage.
const VERDICT_BYTES: usize = 9;
/// The variable that says who is to take the descriptors it was started with.
const LISTEN_PID: &[u8] = b"LISTEN_PID=";

/// A program to start.
#[derive(Debug)]
pub struct Birth<'a> {
    /// The directory it starts in; behind walls, that of [`Walls::new`].
    pub directory: BorrowedFd<'a>,
    /// The name of its file in that directory, or an absolute one, as inside walls. It is its first
    /// argument.
    pub name: &'a CStr,
    /// Further arguments.
    pub arguments: &'a [CString],
    /// Its environment: `NAME=value`.
    pub environment: &'a [CString],
    /// Its standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Descriptors that it has as 3, 4 and so on. With any, its environment has `LISTEN_PID`, too;
    /// `LISTEN_FDS` is the caller's.
    pub listeners: &'a [BorrowedFd<'a>],
    /// Who it runs as; `None` is who this process is.
    pub user: Option<&'a User>,
    /// What each of its processes may use.
    pub limits: &'a Limits,
    /// The group it is born in.
    pub birthplace: Birthplace<'a>,
    /// What it sees of the machine's files; `None` is what this process sees.
    pub walls: Option<&'a Walls>,
    /// What it may not ask of the kernel.
    pub filter: Option<&'a Filter>,
    /// Whether it goes on when this process has ended.
    pub outlives: bool,
}

/// What a process may not ask of the kernel: a program for `seccomp(2)`, whoever made it.
#[derive(Debug, Clone)]
pub struct Filter(Vec<libc::sock_filter>);

impl Filter {
    /// One of these instructions: code, both jumps, operand.
    #[must_use]
    pub fn of(instructions: impl IntoIterator<Item = (u16, u8, u8, u32)>) -> Filter {
        let instructions = instructions.into_iter();
        let instructions =
            instructions.map(|(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k });
        Filter(instructions.collect())
    }

    fn program(&self) -> io::Result<libc::sock_fprog> {
        let len = u16::try_from(self.0.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(libc::sock_fprog {
            len,
            // The kernel reads it only.
            filter: self.0.as_ptr().cast_mut(),
        })
    }
}

/// What each process of a program may use. `None` is what this process may, but 1,024 descriptors
/// until it asks for more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processor time in seconds.
    pub cpu_s: Option<u64>,
    /// Address space in bytes.
    pub memory_bytes: Option<u64>,
    /// Open descriptors.
    pub files: Option<u64>,
    /// Processes of the user.
    pub processes: Option<u64>,
    /// Size of a file it writes, in bytes.
    pub file_size_bytes: Option<u64>,
}

/// The control group a program is in from its first instruction.
#[derive(Debug, Clone, Copy)]
pub enum Birthplace<'a> {
    /// That of this process.
    Own,
    /// A group of version 2: its directory.
    Into(BorrowedFd<'a>),
    /// Groups of version 1, one for each controller in use: their `cgroup.procs`, writable. The
    /// new process puts itself in before it does anything else.
    Join(&'a [BorrowedFd<'a>]),
}

/// What a new process was doing when it could not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It could not be made.
    Fork,
    /// Entering its group.
    Group,
    /// Becoming a session of its own, with its own descriptors and signals.
    Session,
    /// Building its walls.
    Walls,
    /// Limiting itself.
    Limits,
    /// Becoming its user.
    User,
    /// Giving up what it may not ask of the kernel.
    Filter,
    /// Entering its directory.
    Directory,
    /// Becoming the program.
    Exec,
}

/// Why a program was not started.
#[derive(Debug)]
pub struct Failed {
    /// What was being done.
    pub stage: Stage,
    /// The path that a wall could not be built for.
    pub path: Option<PathBuf>,
    /// Why not.
    pub error: io::Error,
}

/// What became of a new process: readable as soon as it is known.
#[derive(Debug)]
pub struct Verdict {
    says: OwnedFd,
    /// What its walls are built by.
    steps: Option<Arc<[PathBuf]>>,
}

impl Verdict {
    /// `None` while it is not known, then whether the program runs.
    pub fn ask(&self) -> Option<Result<(), Failed>> {
        let mut record = [0; VERDICT_BYTES];
        match crate::net::read(self.says.as_fd(), &mut record) {
            Ok(0) => Some(Ok(())),
            Ok(_) => Some(Err(self.failed(record))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Err(at_fork(error))),
        }
    }

    fn failed(&self, record: [u8; VERDICT_BYTES]) -> Failed {
        let [stage, n0, n1, n2, n3, step @ ..] = record;
        let stage = Stage::of_number(stage);
        let step = usize::try_from(u32::from_ne_bytes(step)).unwrap_or(usize::MAX);
        let steps = self.steps.as_ref().filter(|_| stage == Stage::Walls);
        let number = i32::from_ne_bytes([n0, n1, n2, n3]);
        Failed {
            stage,
            path: steps.and_then(|steps| steps.get(step).cloned()),
            error: io::Error::from_raw_os_error(number),
        }
    }
}

fn at_fork(error: io::Error) -> Failed {
    Failed {
        stage: Stage::Fork,
        path: None,
        error,
    }
}

impl AsFd for Verdict {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.says.as_fd()
    }
}

/// Starts a program. Call it from the thread that lives as long as the process: the program dies
/// with it, unless it outlives both.
///
/// # Errors
/// When no process can be made. What fails in the new process is told by the verdict.
pub fn spawn(birth: &Birth<'_>) -> Result<(Process, Verdict), Failed> {
    let (verdict, says) = verdict_pipe().map_err(at_fork)?;
    let beneath: &[u8] = match birth.name.to_bytes().starts_with(b"/") {
        true => b"",
        false => b"./",
    };
    let path = [beneath, birth.name.to_bytes_with_nul()].concat();
    let path = CStr::from_bytes_with_nul(&path).map_err(|_| at_fork(io::Error::other("a name")))?;
    let arguments: Vec<_> = std::iter::once(birth.name.as_ptr())
        .chain(birth.arguments.iter().map(|argument| argument.as_ptr()))
        .chain([std::ptr::null()])
        .collect();
    let mut listen_pid = [0_u8; child::LISTEN_PID_BYTES];
    let listen_pid = match birth.listeners {
        [] => std::ptr::null_mut(),
        _ => &raw mut listen_pid,
    };
    let environment: Vec<_> = birth
        .environment
        .iter()
        .map(|variable| variable.as_ptr())
        // Without it, the first end of two.
        .chain([listen_pid.cast_const().cast(), std::ptr::null()])
        .collect();
    let limits = birth.limits.to_set(&Own::get().limits);
    let filter = birth.filter.map(Filter::program).transpose();
    let mut moved = Moved::beyond(birth.stdio.len() + birth.listeners.len());
    let fds = birth.stdio.iter().chain(birth.listeners);
    let fds: io::Result<Vec<_>> = fds.map(|fd| moved.number(*fd)).collect();
    let mut ready = child::Ready {
        directory: moved.number(birth.directory).map_err(at_fork)?,
        path: path.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        fds: &fds.map_err(at_fork)?,
        listen_pid,
        walls: birth.walls,
        user: birth.user,
        limits: &limits,
        signals: u64::MAX,
        parent: (!birth.outlives).then(std::process::id),
        filter: filter.map_err(at_fork)?,
        says: moved.number(says.as_fd()).map_err(at_fork)?,
    };
    let process = born(&mut ready, birth.birthplace)?;
    let steps = birth.walls.map(|walls| Arc::clone(&walls.steps));
    let says = verdict;
    Ok((process, Verdict { says, steps }))
}

/// Descriptors out of the way of those that a program is to have by number.
struct Moved {
    floor: RawFd,
    kept: Vec<OwnedFd>,
}

impl Moved {
    fn beyond(count: usize) -> Moved {
        Moved {
            floor: RawFd::try_from(count).unwrap_or(RawFd::MAX),
            kept: Vec::new(),
        }
    }

    /// The number of a descriptor, or of a copy of it that is out of the way.
    fn number(&mut self, fd: BorrowedFd<'_>) -> io::Result<RawFd> {
        if fd.as_raw_fd() >= self.floor {
            return Ok(fd.as_raw_fd());
        }
        let copy = fcntl_dupfd_cloexec(fd, self.floor)?;
        let number = copy.as_raw_fd();
        self.kept.push(copy);
        Ok(number)
    }
}

/// Makes the process, in its group.
fn born(ready: &mut child::Ready<'_>, birthplace: Birthplace<'_>) -> Result<Process, Failed> {
    let (result, stage) = match birthplace {
        Birthplace::Own => (clone(ready, None, &[], None), Stage::Fork),
        Birthplace::Join(groups) => (clone(ready, None, groups, None), Stage::Fork),
        Birthplace::Into(group) => {
            let result = match clone(ready, Some(group), &[], None) {
                Err(error) if is_unknown(&error) => clone(ready, None, &[], Some(group)),
                result => result,
            };
            (result, Stage::Group)
        }
    };
    result.map_err(|error| {
        let few = [libc::EAGAIN, libc::ENOMEM];
        let of_machine = error
            .raw_os_error()
            .is_some_and(|number| few.contains(&number));
        let stage = if of_machine { Stage::Fork } else { stage };
        Failed {
            stage,
            path: None,
            error,
        }
    })
}

/// Whether the kernel, or a filter before it, does not know the call or its group.
fn is_unknown(error: &io::Error) -> bool {
    let unknown = [libc::ENOSYS, libc::E2BIG, libc::EINVAL, libc::EPERM];
    error
        .raw_os_error()
        .is_some_and(|number| unknown.contains(&number))
}

/// Makes a process that is born in `into`, or enters groups by itself: by their `cgroup.procs`
/// (`join`) or by the directory of one (`enter`).
fn clone(
    ready: &mut child::Ready<'_>,
    into: Option<BorrowedFd<'_>>,
    join: &[BorrowedFd<'_>],
    enter: Option<BorrowedFd<'_>>,
) -> io::Result<Process> {
    let own = Own::get();
    let mut pidfd: libc::c_int = -1;
    // The second, since 5.5, spares it a call for every signal but those that are ignored.
    let mut flags = libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND;
    ready.signals = own.ignored;
    let mut group = 0;
    if let Some(into) = into {
        flags |= CLONE_INTO_CGROUP;
        group = u64::try_from(into.as_raw_fd()).unwrap_or_default();
    }
    // SAFETY: all zero is a valid value of this structure of numbers.
    let mut order: libc::clone_args = unsafe { std::mem::zeroed() };
    order.flags = flags;
    order.pidfd = &raw mut pidfd as u64;
    order.exit_signal = libc::SIGCHLD as u64;
    order.cgroup = group;
    // SAFETY: `order` and `pidfd` outlive the call. Without CLONE_VM and a stack of its own the
    // child goes on here on a copy of everything, as after fork.
    let mut pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const order,
            size_of::<libc::clone_args>(),
        )
    };
    if pid < 0 && into.is_none() && is_unknown(&io::Error::last_os_error()) {
        let flags = libc::c_long::from(libc::CLONE_PIDFD | libc::SIGCHLD);
        let none = std::ptr::null_mut::<libc::c_void>();
        ready.signals = u64::MAX;
        // SAFETY: as above, by the older call: flags, stack, where the descriptor goes.
        pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, &raw mut pidfd, none, none) };
    }
    match pid {
        0 => {
            // SAFETY: this is a new process with one thread; what `ready` points to was copied
            // with everything else, and its makers are in the frames above.
            unsafe { child::live(ready, join, enter) }
        }
        pid if pid > 0 => {
            // SAFETY: the kernel has put a fresh descriptor there, which nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Process::new(pid, pidfd)
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// A pipe that can be read without waiting, and closes when its writer becomes a program.
fn verdict_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (verdict, says) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&verdict, OFlags::NONBLOCK)?;
    Ok((verdict, says))
}

impl Limits {
    /// What is to be set: what differs from this process's own, and is never more.
    fn to_set(
        self,
        own: &[(child::Resource, libc::rlimit); 6],
    ) -> Vec<(child::Resource, libc::rlimit)> {
        // One second between the signal that can be caught and the one that cannot.
        let cpu = self.cpu_s.map(|limit| (limit, limit.saturating_add(1)));
        let files = self.files.map_or((FILES_USUAL, u64::MAX), both);
        let wanted = [
            Some((0, 0)),
            cpu,
            self.memory_bytes.map(both),
            Some(files),
            self.processes.map(both),
            self.file_size_bytes.map(both),
        ];
        let wanted = own.iter().zip(wanted);
        let wanted = wanted.filter_map(|(own, wanted)| Some((own, wanted?)));
        let wanted = wanted.map(|((resource, own), (soft, hard))| {
            let rlim_max = own.rlim_max.min(hard);
            let rlim_cur = rlim_max.min(soft);
            (*resource, libc::rlimit { rlim_cur, rlim_max })
        });
        wanted.collect()
    }
}

fn both(limit: u64) -> (u64, u64) {
    (limit, limit)
}

/// What programs begin with: asked once, nothing in this process changes it after its first
/// moments.
struct Own {
    limits: [(child::Resource, libc::rlimit); 6],
    ignored: u64,
}

impl Own {
    fn get() -> &'static Own {
        static OWN: OnceLock<Own> = OnceLock::new();
        OWN.get_or_init(|| Own {
            limits: Own::limits(),
            ignored: child::ignored(),
        })
    }

    fn limits() -> [(child::Resource, libc::rlimit); 6] {
        let resources = [
            libc::RLIMIT_CORE,
            libc::RLIMIT_CPU,
            libc::RLIMIT_AS,
            libc::RLIMIT_NOFILE,
            libc::RLIMIT_NPROC,
            libc::RLIMIT_FSIZE,
        ];
        resources.map(|resource| {
            let mut own = libc::rlimit {
                rlim_cur: libc::RLIM_INFINITY,
                rlim_max: libc::RLIM_INFINITY,
            };
            // SAFETY: writes to the structure it is given.
            unsafe { libc::getrlimit(resource, &mut own) };
            (resource, own)
        })
    }
}

impl Stage {
    const ALL: [Stage; 9] = [
        Stage::Fork,
        Stage::Group,
        Stage::Session,
        Stage::Walls,
        Stage::Limits,
        Stage::User,
        Stage::Filter,
        Stage::Directory,
        Stage::Exec,
    ];

    fn of_number(number: u8) -> Stage {
        let known = Stage::ALL.get(usize::from(number));
        known.copied().unwrap_or(Stage::Exec)
    }
}
