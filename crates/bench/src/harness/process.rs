//! A started server: pinned to its cores, watched by the kernel, stopped by its owner.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};

use super::usage;
use crate::error::Error;

/// How long a server may take to end before it is killed.
const STOP_WAIT: Duration = Duration::from_secs(3);

/// A server and its descendants. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `command` on `cores` (as taskset takes them), its output appended to the file `output`.
    ///
    /// `setpriv` makes the kernel send TERM should this harness die without unwinding.
    pub(crate) fn start(command: &[String], cores: &str, output: &Path) -> Result<Process, Error> {
        let doing = || format!("start {}", command.join(" "));
        let file = File::options()
            .append(true)
            .create(true)
            .open(output)
            .map_err(|e| Error::new(doing(), e))?;
        let copy = file.try_clone().map_err(|e| Error::new(doing(), e))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "taskset", "-c", cores])
            .args(command)
            .process_group(0) // Ctrl-C is for the harness, which then stops its servers in order.
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .spawn()
            .map_err(|e| Error::new(doing(), e))?;
        Ok(Process { child })
    }

    /// Its pid; setpriv and taskset have become the server by exec.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends `signal` to the server itself.
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let tree = usage::tree(self.pid());
        self.signal(Signal::TERM);
        let deadline = Instant::now() + STOP_WAIT;
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.has_ended() {
            // Deepest first, so that no parent restarts what is being ended.
            tree.iter().rev().for_each(|pid| send(*pid, Signal::KILL));
            let _ = self.child.wait();
        }
    }
}

/// Raises the soft limit of descriptors to the hard one; the servers inherit it.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
