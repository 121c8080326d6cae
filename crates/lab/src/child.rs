//! A started program: pinned to its cores, in a process group of its own, stopped by its owner.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use load::Error;
use load::server::{Server, Which};

/// How long a program may take to end before it is killed.
const STOP_WAIT: Duration = Duration::from_secs(3);
/// Between two looks at whether it ended.
const LOOK: Duration = Duration::from_millis(5);
/// What is shown of a program's words.
const WORDS_BYTES: u64 = 2000;

/// What is to be started.
#[derive(Debug)]
pub struct Start<'a> {
    /// The command and its words.
    pub words: &'a [String],
    /// Cores it may run on; none is all.
    pub cores: &'a [usize],
    /// Its working directory.
    pub directory: &'a Path,
    /// File for what it says.
    pub output: &'a Path,
    /// Variables on top of ours.
    pub environment: &'a [(String, String)],
}

/// A program and its descendants. Dropping it ends them.
#[derive(Debug)]
pub struct Running {
    child: Child,
    output: PathBuf,
}

impl Start<'_> {
    /// Starts it. Where there is `setpriv`, the kernel sends it TERM should we die without
    /// unwinding.
    pub fn run(&self) -> Result<Running, Error> {
        let doing = || format!("start {}", self.words.join(" "));
        let file = File::options()
            .append(true)
            .create(true)
            .open(self.output)
            .map_err(|e| Error::new(doing(), e))?;
        let copy = file.try_clone().map_err(|e| Error::new(doing(), e))?;
        let setpriv = super::program::on_path("setpriv");
        let mut words: Vec<&str> = Vec::new();
        if let Some(path) = setpriv.as_ref().and_then(|path| path.to_str()) {
            words.extend([path, "--pdeathsig", "TERM"]);
        }
        words.extend(self.words.iter().map(String::as_str));
        let (first, rest) = words
            .split_first()
            .ok_or_else(|| Error::new(doing(), "there is no command"))?;
        let mut command = Command::new(first);
        command
            .args(rest)
            .current_dir(self.directory)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .process_group(0) // Ctrl-C is for us; we then stop what we started, in order.
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy);
        let child = on_cores(self.cores, || command.spawn());
        Ok(Running {
            child: child.map_err(|e| Error::new(doing(), e))?,
            output: self.output.to_owned(),
        })
    }
}

impl Running {
    /// Its pid; setpriv has become the program by exec.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The last lines it said, in one.
    pub fn words(&self) -> String {
        let said = last_words(&self.output);
        let lines: Vec<&str> = said
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        match lines.len() {
            0 => "it said nothing".to_owned(),
            count => format!(
                "it said: {}",
                lines
                    .get(count.saturating_sub(6)..)
                    .unwrap_or_default()
                    .join(" | ")
            ),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        // Descendants that left the group are known only while their parents live.
        let tree = Server::find(&Which::Pid(self.pid())).map(|server| server.processes());
        send(self.pid(), Signal::TERM);
        let deadline = Instant::now() + STOP_WAIT;
        while self.ended().is_none() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        if let Some(group) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        if self.ended().is_none() {
            // Deepest first, so that no parent restarts what is being ended.
            tree.unwrap_or_default()
                .iter()
                .rev()
                .for_each(|pid| send(*pid, Signal::KILL));
            let _ = self.child.wait();
        }
    }
}

/// Kills and reaps, when dropped, every descendant that is left, however it got away from its
/// parent. [`adopt`] made them ours.
#[derive(Debug)]
pub struct Sweep;

impl Drop for Sweep {
    fn drop(&mut self) {
        let deadline = Instant::now() + STOP_WAIT;
        while Instant::now() < deadline {
            let children = os::process::children();
            if children.is_empty() {
                return;
            }
            for pid in children {
                os::process::kill_child(pid);
            }
            let _ = rustix::process::waitpid(None, rustix::process::WaitOptions::NOHANG);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Makes orphans of what we start our children, so that none escapes.
pub fn adopt() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Does something with this thread on some cores; what it starts stays there. Cores that are not
/// there leave the thread where it is.
pub(crate) fn on_cores<T>(cores: &[usize], work: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None);
    pin(cores);
    let done = work();
    if let Ok(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    done
}

/// Pins this thread.
pub(crate) fn pin(cores: &[usize]) {
    let mut set = CpuSet::new();
    cores
        .iter()
        .filter(|core| **core < CpuSet::MAX_CPU)
        .for_each(|core| set.set(*core));
    let _ = sched_setaffinity(None, &set);
}

/// The end of what was written to a file.
pub(crate) fn last_words(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(WORDS_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(WORDS_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_program_is_gone_with_its_children() {
        let directory = testkit::TempDir::new();
        let output = directory.path().join("output");
        let words = [
            "sh",
            "-c",
            "trap '' TERM; sleep 300 & echo started $!; wait; sleep 300",
        ];
        let running = Start {
            words: &words.map(str::to_owned),
            cores: &[0],
            directory: directory.path(),
            output: &output,
            environment: &[],
        };
        let running = running.run().expect("sh starts");
        let said = || {
            let text = last_words(&output);
            text.trim().strip_prefix("started ").map(str::to_owned)
        };
        let deadline = Duration::from_secs(20);
        let child = testkit::eventually(deadline, "the child", said);
        assert!(running.words().contains("started"));
        let pid = running.pid();
        drop(running);
        for pid in [pid.to_string(), child] {
            let gone = || {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
                (!status.is_ok_and(|text| !text.contains("zombie"))).then_some(())
            };
            testkit::eventually(deadline, "its end", gone);
        }
    }
}
