//! Programs by their open files: started as children, or executed in this process's place.
//!
//! The idea: a file that was opened is the one that runs, whatever lies at its path since. Who takes
//! this process's place gets bytes and descriptors: a memory file with both, whose number stands
//! in a variable of the environment beside the process it is meant for.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd, pread};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, waitpid};

use crate::net::wait_readable;

/// Bytes of what is handed over, the numbers of its descriptors included.
const HANDED_BYTES_MAX: usize = 16 << 20;
/// Names what is handed over.
const VARIABLE: &str = "NAGAYA_HANDOVER";

/// A program, by its open file.
#[derive(Debug)]
pub struct Program {
    file: OwnedFd,
    /// An interpreter opens the file once more, by its number.
    is_script: bool,
}

/// What one program hands to the one that takes its place.
#[derive(Debug)]
pub struct Handed {
    /// Bytes.
    pub bytes: Vec<u8>,
    /// Descriptors, in an order that the bytes know.
    pub fds: Vec<OwnedFd>,
}

/// What was handed to this program.
#[derive(Debug)]
pub struct Inherited {
    /// What it is to go on with.
    pub handed: io::Result<Handed>,
    /// The program before, and what it would go on with.
    pub before: Option<(Program, Handed)>,
}

/// A child of this process, started by this program or by the one before; or a child of the
/// process whose place this one is to take.
#[derive(Debug)]
pub struct Process(Pid);

impl Program {
    /// Opens the program at `path`.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Program> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Program::of(rustix::fs::open(path.as_ref(), flags, Mode::empty())?)
    }

    /// This program.
    pub fn running() -> io::Result<Program> {
        Program::open("/proc/self/exe")
    }

    fn of(file: OwnedFd) -> io::Result<Program> {
        let mut first = [0; 2];
        let read = pread(&file, &mut first, 0)?;
        Ok(Program {
            file,
            is_script: first.get(..read) == Some(b"#!"),
        })
    }

    /// Runs it with `arguments`, and `link` as its standard input.
    pub fn spawn<A: AsRef<OsStr>>(&self, arguments: &[A], link: OwnedFd) -> io::Result<Process> {
        let mut command = Command::new(self.path());
        command.arg0("nagaya").args(arguments);
        command.stdin(Stdio::from(link));
        let inherited = self.interpreted();
        keep_over_exec(&inherited, FdFlags::empty())?;
        let child = command.spawn();
        keep_over_exec(&inherited, FdFlags::CLOEXEC)?;
        Ok(Process(Pid::from_child(&child?)))
    }

    /// Executes it in this process's place, with the arguments this process was given. `before` is
    /// the program that runs, and what it could go on with. Tells why that cannot be.
    pub fn take_place(&self, handed: &Handed, before: Option<(&Program, &Handed)>) -> io::Error {
        match self.try_take_place(handed, before) {
            Err(error) => error,
            Ok(never) => match never {},
        }
    }

    fn try_take_place(
        &self,
        handed: &Handed,
        before: Option<(&Program, &Handed)>,
    ) -> io::Result<std::convert::Infallible> {
        let own = handed.written()?;
        let mut value = format!("{} {}", std::process::id(), own.as_raw_fd());
        let mut kept = self.interpreted();
        kept.push(own.as_fd());
        kept.extend(handed.fds.iter().map(AsFd::as_fd));
        let other = before.map(|(_, handed)| handed.written()).transpose()?;
        if let (Some((program, handed)), Some(other)) = (before, &other) {
            value.push_str(&format!(
                " {} {}",
                program.file.as_raw_fd(),
                other.as_raw_fd()
            ));
            kept.extend([program.file.as_fd(), other.as_fd()]);
            kept.extend(handed.fds.iter().map(AsFd::as_fd));
        }
        let mut arguments = std::env::args_os();
        let mut command = Command::new(self.path());
        command.arg0(arguments.next().unwrap_or_else(|| "nagaya".into()));
        command.args(arguments).env(VARIABLE, value);
        keep_over_exec(&kept, FdFlags::empty())?;
        let error = command.exec();
        keep_over_exec(&kept, FdFlags::CLOEXEC)?;
        Err(error)
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    fn interpreted(&self) -> Vec<BorrowedFd<'_>> {
        self.is_script
            .then(|| self.file.as_fd())
            .into_iter()
            .collect()
    }
}

impl Handed {
    /// A memory file with all of it: the descriptors' numbers in a line, then the bytes.
    fn written(&self) -> io::Result<OwnedFd> {
        let numbers: Vec<_> = self
            .fds
            .iter()
            .map(|fd| fd.as_raw_fd().to_string())
            .collect();
        let mut content = numbers.join(" ").into_bytes();
        content.push(b'\n');
        content.extend_from_slice(&self.bytes);
        crate::file::memfd("nagaya handover", &content)
    }

    fn read(file: OwnedFd) -> io::Result<Handed> {
        let mut content = crate::file::read_whole(file.as_fd(), HANDED_BYTES_MAX)?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no numbers of descriptors");
        let end = content.iter().position(|byte| *byte == b'\n');
        let bytes = content.split_off(end.ok_or_else(wrong)? + 1);
        let numbers = std::str::from_utf8(&content).map_err(|_| wrong())?;
        let fds = numbers.split_ascii_whitespace().map(take);
        Ok(Handed {
            fds: fds.collect::<io::Result<_>>()?,
            bytes,
        })
    }
}

impl Inherited {
    /// What the program before has left to this one, if there was one. To be called once, before
    /// this process has opened anything.
    pub fn take() -> Option<Inherited> {
        let value = std::env::var(VARIABLE).ok()?;
        let mut words = value.split(' ');
        // A child's environment has the variable, too.
        if words.next()?.parse() != Ok(std::process::id()) {
            return None;
        }
        crate::process::set_name("nagaya");
        let handed = words
            .next()
            .ok_or_else(|| io::ErrorKind::InvalidInput.into());
        let handed = handed.and_then(take).and_then(Handed::read);
        let before = words.next().zip(words.next());
        let before = before.and_then(|(program, handed)| {
            let program = take(program).and_then(Program::of).ok()?;
            Some((program, take(handed).and_then(Handed::read).ok()?))
        });
        // Whatever else was left open, nobody after this program is to have it.
        close_all_over_exec();
        Some(Inherited { handed, before })
    }
}

impl Process {
    /// One that another program has started, and that is still there to be waited for.
    pub fn known(id: u32) -> io::Result<Process> {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        pid.map(Process)
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for it to end, no longer than `patience`; tells whether it did. Its status is still to
    /// be asked for.
    pub fn ends_within(&self, patience: Duration) -> io::Result<bool> {
        let process = pidfd_open(self.0, PidfdFlags::empty())?;
        Ok(wait_readable(&[process.as_fd()], Some(patience))? == [true])
    }

    /// Kills it. It may have ended: its number is nobody else's until it is waited for.
    pub fn kill(&self) -> io::Result<()> {
        Ok(rustix::process::kill_process(self.0, Signal::KILL)?)
    }

    /// Its status, once it has ended.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        self.status(WaitOptions::empty())?
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Its status, if it has ended.
    pub fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.status(WaitOptions::NOHANG)
    }

    fn status(&self, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
        let waited = rustix::io::retry_on_intr(|| waitpid(Some(self.0), options))?;
        Ok(waited.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
    }
}

/// Takes a descriptor that was left open for this program, by its number.
fn take(number: &str) -> io::Result<OwnedFd> {
    let number: i32 = number
        .parse()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: borrowed for two calls that check it: they fail on a number that is not open.
    let there = unsafe { BorrowedFd::borrow_raw(number) };
    if fcntl_getfd(there)?.contains(FdFlags::CLOEXEC) {
        // Opened by this program, or taken already.
        return Err(Errno::BADF.into());
    }
    fcntl_setfd(there, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and left over from the program before: everything that this one opens
    // is close-on-exec, and so is this from now on, which is how a second taking fails.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn close_all_over_exec() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for number in numbers.filter(|number: &i32| *number > 2) {
        // SAFETY: borrowed for a call that fails on a number that is not open, and of one that is
        // changes nothing while this program runs.
        let _ = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC);
    }
}

fn keep_over_exec(fds: &[BorrowedFd<'_>], flags: FdFlags) -> io::Result<()> {
    fds.iter().try_for_each(|fd| Ok(fcntl_setfd(fd, flags)?))
}
