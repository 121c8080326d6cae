//! An upgrade as the supervisor sees it that is to give way: a new program proves itself beside
//! everything that serves, and then takes this one's place.
//!
//! The idea: nothing is given up before the new program's processes serve. Its successor is a child
//! like others, and whatever becomes of it or of what it has started, this program serves on. What is
//! left to fail then is to execute the file that runs already; a program that cannot go on
//! with what its own successor has written executes this one again, which goes on with what it
//! had.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use config::reason;
use ipc::handover::{ChildProcess, FromSuccessor, ToSuccessor};
use ipc::manifest::find_in_path;
use ipc::message::Message;
use ipc::server::{LastReload, ReloadOutcome, Tally, ToServer};
use os::exec::{Handed, Program};
use os::signal::Signal;

use crate::Supervisor;
use crate::child::{Child, Server};
use crate::handover::Leaving;
use crate::phase::Phase;
use crate::retiring::{LeavingChildren, RETIRING_MAX};
use crate::role::Role;

/// How long a new program may take to serve.
const READY_MAX: Duration = Duration::from_secs(60);
/// Processes a new program may start, at most.
const STARTED_MAX: usize = 16;
/// Words on the command line of one, and bytes of each.
const WORDS_MAX: usize = 16;
const WORD_BYTES_MAX: usize = 4_096;
/// How long the last lines of the error log may take.
const FLUSH: Duration = Duration::from_secs(1);

/// An upgrade under way.
#[derive(Debug)]
pub(super) struct Upgrade {
    path: PathBuf,
    program: Program,
    successor: Child,
    /// What was started for the successor.
    started: Vec<Child>,
    /// The processes that serve, as the successor was told of them.
    serving: Vec<u32>,
    /// What this program would go on with.
    own: Handed,
    until: Instant,
}

impl Upgrade {
    /// Starts the new program and tells it what there is.
    fn begin(own: Handed, serving: Vec<u32>) -> Result<Upgrade, String> {
        let path = installed();
        let said =
            |what: &str, error: io::Error| format!("{what} {}: {}", path.display(), reason(&error));
        let program = Program::open(&path).map_err(|error| said("open", error))?;
        let successor = Child::start_of(&program, &Role::successor().words());
        let successor = successor.map_err(|error| said("start", error))?;
        tracing::info!(pid = successor.pid(), program = %path.display(), "the new program is tried");
        let copies = own.fds.iter().map(|fd| fd.try_clone());
        let fds = copies.collect::<io::Result<_>>();
        let fds = fds.map_err(|error| said("hand over to", error))?;
        let bytes = own.bytes.clone();
        // Who does not listen has ended, and how is heard next, or is waited for in vain.
        let _ = ToSuccessor::Handover { bytes, fds }.send(successor.link());
        Ok(Upgrade {
            path,
            program,
            successor,
            started: Vec::new(),
            serving,
            own,
            until: Instant::now() + READY_MAX,
        })
    }

    /// What becomes readable when the successor says something or ends.
    pub(super) fn link(&self) -> BorrowedFd<'_> {
        self.successor.link()
    }

    /// When the new program is waited for no longer.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// The processes of the new program.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        let started = self.started.iter().map(Child::pid);
        started.chain([self.successor.pid()])
    }

    /// The successor, to be ended; what it has started ends with it, and may finish what it has begun.
    fn leave(self, leaving: &mut LeavingChildren) -> Child {
        leaving.add(self.started);
        self.successor
    }

    /// Starts a process of the new program, as its successor asks for it.
    fn start(&mut self, words: &[String]) -> io::Result<()> {
        let is_bounded = words.len() <= WORDS_MAX
            && words.iter().all(|word| word.len() <= WORD_BYTES_MAX)
            && self.started.len() < STARTED_MAX;
        if !is_bounded {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let started = Child::start_of(&self.program, &words);
        let started = started.and_then(|child| Ok((child.to_hand_over()?, child)));
        let answer = match started {
            Ok((ChildProcess { pid, link, .. }, mut child)) => {
                child.close();
                self.started.push(child);
                ToSuccessor::Started { pid, link }
            }
            Err(error) => ToSuccessor::NotStarted {
                why: format!("start {}: {}", self.path.display(), reason(&error)),
            },
        };
        answer.send(self.successor.link())
    }
}

impl Supervisor {
    /// Has the server show what is counted and known now.
    pub(super) fn send_tally(&mut self) {
        let tally = ToServer::Tally(self.tally.clone());
        if let Some(Err(error)) = self.phase.server().map(|server| server.send(&tally)) {
            self.lose_server_by("it does not hear", &error);
        }
    }

    /// Tries the new program.
    pub(super) fn upgrade(&mut self) {
        self.upgrade_begun_us = os::cpu::monotonic_us();
        self.notify.reloading();
        if self.retiring.len() >= RETIRING_MAX {
            let told = format!(
                "{RETIRING_MAX} servers of earlier programs still finish what is under way: wait, or lower timeouts.drain"
            );
            return self.keep_program(ReloadOutcome::Failed, format!("error: {told}\n"));
        }
        let begun = self.hand_over().map_err(|error| {
            let error = reason(&error);
            format!("write down what there is: {error}")
        });
        match begun.and_then(|(own, serving)| Upgrade::begin(own, serving)) {
            Ok(upgrade) => self.upgrade = Some(upgrade),
            Err(problem) => {
                self.keep_program(ReloadOutcome::Failed, format!("error: {problem}\n"));
            }
        }
    }

    /// Everything this supervisor has, and the processes that serve.
    fn hand_over(&self) -> io::Result<(Handed, Vec<u32>)> {
        let server = self.phase.server().map(Server::to_hand_over);
        let children = server.into_iter().chain(self.programs.kept.to_hand_over());
        let children = children.chain(self.keys.kept.to_hand_over());
        let children = children.chain(self.recordings.kept.to_hand_over());
        let children = children.chain(self.directories.kept.to_hand_over());
        let children = children.collect::<io::Result<Vec<_>>>()?;
        let serving = children.iter().map(|child| child.pid).collect();
        let begun_us = self.upgrade_begun_us;
        let leaving = Leaving {
            config: &self.config,
            generation: &self.current,
            base: &self.base,
            before: None,
            tally: Tally {
                last_upgrade: LastReload::new(begun_us, ReloadOutcome::Taken, String::new()),
                ..self.tally.clone()
            },
            children,
            retiring: self.retiring_to_hand_over()?,
            strangers: self.programs.strangers(),
            masters: &self.programs.masters.known,
        };
        Ok((leaving.write()?, serving))
    }

    /// Deals with a word of the successor, or with its end.
    pub(super) fn on_successor(&mut self) {
        let Some(upgrade) = &mut self.upgrade else {
            return;
        };
        let said = FromSuccessor::recv(upgrade.successor.link());
        let said = match said {
            Ok(FromSuccessor::Start { words }) => upgrade.start(&words).map(|()| None),
            other => other.map(Some),
        };
        match said {
            Ok(None | Some(FromSuccessor::Start { .. })) => {}
            Ok(Some(FromSuccessor::Refused { outcome, told })) => {
                self.refuse_upgrade(outcome, told);
            }
            Ok(Some(FromSuccessor::Ready { bytes, fds })) => self.give_way(&Handed { bytes, fds }),
            Err(error) => self.lose_successor(&error),
        }
    }

    fn lose_successor(&mut self, error: &io::Error) {
        let Some(upgrade) = self.upgrade.take() else {
            return;
        };
        let path = upgrade.path.display().to_string();
        let how = match (error.kind(), upgrade.leave(&mut self.leaving).end()) {
            (io::ErrorKind::InvalidData, _) | (_, Err(_)) => {
                format!("is not understood ({})", reason(error))
            }
            (_, Ok((status, _))) => format!("ended ({status})"),
        };
        let told = format!("error: {path} {how} before its server was ready: see the error log\n");
        self.refuse_upgrade(ReloadOutcome::Failed, told);
    }

    /// Deals with a new program that is not ready in time.
    pub(super) fn give_up_upgrade(&mut self) {
        let seconds = READY_MAX.as_secs();
        let told = format!("error: the new program was not ready within {seconds} s\n");
        self.refuse_upgrade(ReloadOutcome::Failed, told);
    }

    /// Ends what there is of the new program.
    pub(super) fn end_upgrade(&mut self) {
        if let Some(upgrade) = self.upgrade.take() {
            // Dropped, it is killed.
            drop(upgrade.leave(&mut self.leaving));
        }
    }

    /// Ends the new program and says why: this one serves on.
    pub(super) fn refuse_upgrade(&mut self, outcome: ReloadOutcome, told: String) {
        self.end_upgrade();
        // The new one's spawner may have given groups its limits.
        self.take_manifest_back();
        self.keep_program(outcome, told);
    }

    /// Says why this program serves on.
    fn keep_program(&mut self, outcome: ReloadOutcome, told: String) {
        for line in told.lines() {
            tracing::error!("{}", line.strip_prefix("error: ").unwrap_or(line));
        }
        tracing::error!("upgrade refused, the old program serves on");
        self.tally.last_upgrade = LastReload::new(self.upgrade_begun_us, outcome, told);
        let summary = self.current.summary();
        self.notify
            .ready(&format!("upgrade refused (see the log); {summary}"));
        self.send_tally();
    }

    /// Becomes the new program. Returns where that cannot be.
    fn give_way(&mut self, handed: &Handed) {
        let serving = self.phase.server().map(Server::pid).into_iter();
        let serving = serving.chain(self.programs.kept.pid());
        let serving = serving.chain(self.keys.kept.pid());
        let serving = serving.chain(self.recordings.kept.pid());
        let serving: Vec<_> = serving.chain(self.directories.kept.pid()).collect();
        let is_serving = matches!(self.phase, Phase::Serving { .. });
        let Some(upgrade) = self
            .upgrade
            .take_if(|it| is_serving && it.serving == serving)
        else {
            let told = "error: server or spawner were started again meanwhile: try once more\n";
            return self.refuse_upgrade(ReloadOutcome::Failed, told.to_owned());
        };
        tracing::info!("the new program serves and takes over");
        self.leave_alerts();
        // It has said its last.
        let _ = upgrade.successor.end();
        self.leave_signals();
        // The next program starts another, and holds the leases.
        self.authorities.end();
        error_log::flush(FLUSH);
        let error = match Program::running() {
            Ok(running) => {
                let before = (&running, &upgrade.own);
                upgrade.program.take_place(handed, Some(before))
            }
            Err(error) => error,
        };
        self.leaving.add(upgrade.started);
        let (path, error) = (upgrade.path.display(), reason(&error));
        let told = format!("error: execute {path}: {error}\n");
        self.refuse_upgrade(ReloadOutcome::Failed, told);
    }

    /// What is wanted and not begun is asked for again: blocked, signals wait for the new program.
    fn leave_signals(&self) {
        let wanted = [
            (self.wanted.reload, Signal::Hangup),
            (self.wanted.reopen, Signal::User1),
            (self.wanted.upgrade, Signal::User2),
        ];
        for (_, signal) in wanted.iter().filter(|(is_wanted, _)| *is_wanted) {
            let _ = os::process::send_signal(std::process::id(), *signal);
        }
    }
}

/// Where the program is that is installed: as this one was started.
fn installed() -> PathBuf {
    let name = std::env::args_os().next().unwrap_or_default();
    let path = PathBuf::from(&name);
    if path.components().count() > 1 {
        return path;
    }
    let found = name.to_str().and_then(find_in_path);
    found.unwrap_or_else(|| std::env::current_exe().unwrap_or(path))
}
