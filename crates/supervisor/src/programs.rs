//! The spawner as the supervisor keeps it: started first, told every manifest first, ended last.
//!
//! The idea: what it is told is answered at once, so the supervisor waits for the answer; no
//! request waits meanwhile; what it says of pools beside that is kept until it is dealt with. When
//! the spawner dies, everything else goes on: programs that ran die with it, what they left behind
//! comes to this process and is killed here, but for masters of pools; and after a rest the next
//! spawner is told of sockets, masters and manifests again and given new links.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use config::reason;
use ipc::manifest::{FromSpawner, Manifest, ToSpawner};
use ipc::message::Message;
use ipc::pools::{PoolProcess, PoolQuestion, PoolSocket};
use ipc::server::ToServer;
use os::cgroup::{Base, Host};

use crate::Supervisor;
use crate::child::{self, Child, KeptProcess, Server, wait_for};
use crate::phase::Phase;
use crate::pools::places::Listening;
use crate::pools::{News, PoolProcesses};
use crate::reload::{Generation, Refused};
use crate::role::Role;

/// How long a spawner may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long what a spawner left behind may take to end.
const ORPHANS_MAX: Duration = Duration::from_secs(1);
/// How often it is looked for meanwhile, by who waits for it and by who does not.
const ORPHANS_LOOK: Duration = Duration::from_millis(5);
const ORPHANS_AGAIN: Duration = Duration::from_millis(100);

/// The spawner, or the wait for the next one; when dropped, it ends its programs and itself, or is killed.
#[derive(Debug, Default)]
pub(super) struct Programs {
    pub(super) kept: KeptProcess,
    /// Children of this process from before it was the gateway's, as an entry point may leave them.
    strangers: Vec<u32>,
    /// Whether an earlier spawner still has programs.
    pub(super) is_beside: bool,
    /// Masters of pools: they outlive a spawner.
    pub(super) masters: PoolProcesses,
    /// The sockets of pools that the spawner has, by their numbers.
    sockets: BTreeSet<u64>,
    /// What it has said that was not dealt with.
    news: Vec<News>,
    /// Limits of its groups that wait, each in words.
    pub(super) held: Vec<String>,
    /// When what is left behind is to be looked for again.
    pub(super) orphans: Option<Instant>,
}

impl Programs {
    /// Makes this process the one that what a spawner leaves behind comes to. To be called before
    /// there are children of ours.
    pub(super) fn prepare() -> io::Result<Programs> {
        let mut programs = Programs::default();
        os::spawn::adopt_orphans()?;
        programs.strangers = os::process::children();
        Ok(programs)
    }

    /// Goes on with what another supervisor had.
    pub(super) fn take_over(
        spawner: Option<Child>,
        (strangers, masters): (Vec<u32>, Vec<PoolProcess>),
        held: Vec<String>,
        current: &Generation,
    ) -> Programs {
        let mut programs = Programs::default();
        if let Some(spawner) = spawner {
            programs.kept.run(spawner, ());
        }
        programs.strangers = strangers;
        programs.masters = PoolProcesses::take_over(masters, current.places.directory());
        programs.sockets = numbers(current).collect();
        programs.held = held;
        programs
    }

    /// Children of this process that are none of ours.
    pub(super) fn strangers(&self) -> &[u32] {
        &self.strangers
    }

    /// Whether a spawner is there.
    pub(super) fn is_running(&self) -> bool {
        self.kept.process().is_some()
    }

    /// Starts a spawner, and tells it these generations. That of a successor gets no pools in its
    /// charge: another has them until this program serves.
    pub(super) fn start(&mut self, generations: &[&Generation]) -> Result<(), String> {
        let spawner = Child::start(&Role::Spawner).map_err(|error| {
            let reason = reason(&error);
            self.rest(Duration::ZERO);
            format!("start the spawner: {reason}")
        })?;
        tracing::info!(pid = spawner.pid(), "spawner started");
        self.kept.run(spawner, ());
        self.sockets.clear();
        self.hold(Vec::new());
        let told = generations.iter().try_for_each(|it| self.tell_sockets(it));
        told.and_then(|()| match child::is_successor() {
            true => Ok(()),
            false => self.give_charge_of_pools(),
        })?;
        generations.iter().try_for_each(|it| self.tell(it))
    }

    /// Tells the spawner a manifest, and the sockets it has not, and hears whether it takes it.
    pub(super) fn tell(&mut self, generation: &Generation) -> Result<(), String> {
        let manifest = &generation.manifest;
        self.tell_sockets(generation)?;
        let answer = self
            .send(&ToSpawner::Manifest(Box::new(Manifest {
                is_beside: self.is_beside,
                ..manifest.clone()
            })))
            .and_then(|()| self.hear_answer());
        match answer {
            Ok(FromSpawner::Ready { generation: number }) if number == manifest.generation => {
                // It lets go of the sockets of others.
                self.sockets = numbers(generation).collect();
                Ok(())
            }
            Ok(FromSpawner::Refused { message, .. }) => Err(message),
            Ok(_) => {
                self.lose("it answered something else");
                Err("the spawner answered something else".into())
            }
            Err(error) => Err(self.lose_by("does not answer", &error)),
        }
    }

    /// Gives the spawner the sockets of a generation's pools that it has not.
    pub(super) fn tell_sockets(&mut self, generation: &Generation) -> Result<(), String> {
        self.masters.write_in(generation.places.directory());
        let known = &self.sockets;
        let is_new = |(_, it): &(&str, &Listening)| !known.contains(&it.number());
        let new: Vec<_> = generation.places.of_pools().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let copies = new.iter().map(|(id, it)| {
            let (id, socket) = ((*id).to_owned(), it.socket()?);
            Ok(PoolSocket { id, socket })
        });
        let copies = copies.collect::<io::Result<_>>();
        copies
            .and_then(|copies| self.send(&ToSpawner::Sockets(copies)))
            .map_err(|error| self.lose_by("does not take sockets", &error))?;
        self.sockets.extend(new.iter().map(|(_, it)| it.number()));
        Ok(())
    }

    /// Gives the spawner the socket of a row's pool, which it may have had before.
    pub(super) fn tell_place_of_row(
        &mut self,
        generation: &Generation,
        id: &str,
    ) -> Result<(), String> {
        let mut sockets = generation.places.of_pools();
        if let Some((_, socket)) = sockets.find(|(pool, _)| *pool == id) {
            self.sockets.remove(&socket.number());
        }
        self.tell_sockets(generation)
    }

    /// Says something that is not answered.
    pub(super) fn say(&mut self, word: &ToSpawner) -> Result<(), String> {
        self.send(word)
            .map_err(|error| self.lose_by("does not hear", &error))
    }

    /// Tells the spawner which masters run: from now on it sees to pools.
    pub(super) fn give_charge_of_pools(&mut self) -> Result<(), String> {
        let copies = self.masters.known.iter().map(PoolProcess::try_clone);
        let copies = copies.collect::<io::Result<_>>();
        copies
            .and_then(|copies| self.send(&ToSpawner::PoolProcesses(copies)))
            .map_err(|error| self.lose_by("does not take masters", &error))
    }

    /// Asks the spawner something; the answer is news.
    pub(super) fn ask_of_pools(
        &mut self,
        number: u64,
        question: PoolQuestion,
    ) -> Result<(), String> {
        self.send(&ToSpawner::Pools { number, question })
            .map_err(|error| self.lose_by("does not hear", &error))
    }

    /// What the spawner has said since this was asked last.
    pub(super) fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Hears what it says unasked, or that it has ended.
    pub(super) fn on_word(&mut self) {
        match self.hear(Duration::ZERO) {
            Ok(word) => match self.take_in(word) {
                None => {}
                Some(_) => self.lose("it says what it was not asked"),
            },
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.lose("it ended"),
            Err(error) => drop(self.lose_by("is not understood", &error)),
        }
    }

    /// Waits for an answer, and takes in what comes before it.
    fn hear_answer(&mut self) -> io::Result<FromSpawner> {
        let until = Instant::now() + ANSWER_MAX;
        loop {
            let word = self.hear(until.saturating_duration_since(Instant::now()))?;
            if let Some(answer) = self.take_in(word) {
                return Ok(answer);
            }
        }
    }

    /// Waits for what it says, but not for ever.
    fn hear(&self, patience: Duration) -> io::Result<FromSpawner> {
        let link = self.kept.link().ok_or(io::ErrorKind::BrokenPipe)?;
        wait_for(link, patience).and_then(|()| FromSpawner::recv(link))
    }

    /// Takes in what is no answer to a manifest.
    fn take_in(&mut self, word: FromSpawner) -> Option<FromSpawner> {
        match word {
            FromSpawner::PoolProcess(master) => self.masters.add(master),
            FromSpawner::PoolProcessEnded { pid } => {
                self.masters.remove(pid);
                self.news.push(News::Ended);
            }
            FromSpawner::Deaf { id } => self.news.push(News::Deaf(id)),
            FromSpawner::Place { id, user } => self.news.push(News::Place(id, user)),
            FromSpawner::Leave { id } => self.news.push(News::Leave(id)),
            FromSpawner::Pools { number, answer } => self.news.push(News::Answer(number, answer)),
            FromSpawner::Held { limits } => self.hold(limits),
            answer => return Some(answer),
        }
        None
    }

    fn hold(&mut self, limits: Vec<String>) {
        self.held = limits;
        self.news.push(News::Held);
    }

    fn send(&self, message: &ToSpawner) -> io::Result<()> {
        let link = self.kept.link();
        message.send(link.ok_or_else(|| io::Error::other("there is no spawner"))?)
    }

    /// Loses it over an error, and says so.
    fn lose_by(&mut self, what: &str, error: &io::Error) -> String {
        let reason = reason(error);
        self.lose(&format!("it {what}: {reason}"));
        format!("the spawner {what}: {reason}")
    }

    /// Links between the spawner and a server's workers: the workers' ends; none while there is
    /// no spawner.
    pub(super) fn links(&mut self, workers: usize) -> Vec<OwnedFd> {
        if !self.is_running() {
            return Vec::new();
        }
        let made = (0..workers).map(|_| os::fdpass::packet_pair());
        let made: io::Result<Vec<_>> = made.collect();
        let sent = made.and_then(|made| {
            let (workers, links) = made.into_iter().unzip();
            self.send(&ToSpawner::Workers { links })?;
            Ok(workers)
        });
        sent.unwrap_or_else(|error| {
            self.lose(&format!("it does not take links: {}", reason(&error)));
            Vec::new()
        })
    }

    /// A link to the spawner for chores, if there is a spawner; the one before is closed by it.
    pub(super) fn link_for_chores(&mut self) -> Option<OwnedFd> {
        self.kept.process()?;
        let sent = os::fdpass::packet_pair().and_then(|(ours, link)| {
            self.send(&ToSpawner::Chores { link })?;
            Ok(ours)
        });
        let failed = |error: &_| self.lose(&format!("it does not take a link: {}", reason(error)));
        sent.inspect_err(failed).ok()
    }

    /// Ends the spawner, if it has not ended, and rests before the next.
    pub(super) fn lose(&mut self, why: &str) {
        let Some(spawner) = self.kept.take_running() else {
            return;
        };
        let pid = spawner.pid();
        if child::is_successor() {
            return tracing::error!(pid, "lost the spawner: {why}");
        }
        let lived = spawner.lose("spawner", why);
        self.rest(lived);
    }

    /// Ends the spawner, and with it all programs.
    pub(super) fn end(&mut self) {
        self.kept.end();
        self.end_orphans(&[]);
        self.masters.forget_all();
    }

    /// Ends what a spawner left behind, and waits for it.
    fn end_orphans(&self, ours: &[u32]) {
        let until = Instant::now() + ORPHANS_MAX;
        loop {
            let left = self.kill_orphans(ours);
            if left == 0 {
                return;
            }
            if Instant::now() >= until {
                tracing::warn!(left, "programs that were killed have not ended");
                return;
            }
            std::thread::sleep(ORPHANS_LOOK);
        }
    }

    /// Kills and reaps what a spawner left behind: children of this process that are neither
    /// `ours` nor were here before. Programs, and all that descends from them, can be told by
    /// that they cannot gain privileges; whatever else came to this process is none of ours.
    /// Tells how many are still to be reaped.
    fn kill_orphans(&self, ours: &[u32]) -> usize {
        let mut orphans = os::process::children();
        orphans.retain(|child| !ours.contains(child) && !self.strangers.contains(child));
        for orphan in &orphans {
            // Whoever has ended is to be reaped here in any case.
            let _ = os::spawn::reap_orphan(*orphan);
        }
        orphans.retain(|child| os::process::has_no_new_privileges(*child));
        orphans.iter().copied().for_each(os::process::kill_child);
        orphans.len()
    }

    fn rest(&mut self, lived: Duration) {
        let (failures, rest) = self.kept.rest(lived);
        let rest_ms = rest.as_millis();
        tracing::warn!(failures, rest_ms, "the spawner is started again");
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.kept.end();
    }
}

impl Supervisor {
    /// Ends what a spawner left behind, without waiting for it: it is looked for again.
    pub(super) fn mind_orphans(&mut self, now: Instant) {
        if self.programs.orphans.take_if(|at| *at <= now).is_some() {
            let left = self.programs.kill_orphans(&self.our_pids());
            self.programs.orphans = (left > 0).then(|| now + ORPHANS_AGAIN);
        }
    }

    /// The processes that are neither programs nor anybody else's.
    fn our_pids(&self) -> Vec<u32> {
        let mut ours = self.other_pids();
        ours.extend(self.phase.server().map(Server::pid));
        let kept = self.programs.kept.pid().into_iter();
        ours.extend(kept.chain(self.keys.kept.pid()));
        ours.extend(self.programs.masters.pids());
        ours
    }

    /// Starts the next spawner, and gives the server links to it.
    pub(super) fn start_spawner(&mut self) {
        self.programs.end_orphans(&self.our_pids());
        self.current.places.leave_rows();
        let mut generations = vec![&self.current];
        if let Phase::Reloading { next, .. } = &self.phase {
            generations.push(&**next);
        }
        if let Err(problem) = self.programs.start(&generations) {
            tracing::error!("{problem}");
            return self.programs.lose("it has no manifest");
        }
        let links = self.programs.links(self.current.workers);
        let given = self.phase.server().map(|server| {
            let links = ToServer::Programs { links };
            server.send(&links)
        });
        if let Some(Err(error)) = given {
            self.lose_server_by("it does not take links to the spawner", &error);
        }
    }

    /// Tells the spawner a generation before the server hears of it. Who has no programs needs no
    /// spawner.
    pub(super) fn tell_manifest(&mut self, next: &Generation) -> Result<(), String> {
        if !self.programs.is_running() {
            self.start_spawner();
        }
        match self.programs.tell(next) {
            Err(problem) if next.manifest.starts_nothing() => {
                tracing::error!("{problem}");
                Ok(())
            }
            told => told,
        }
    }

    /// Makes the current generation's manifest the latest again. A spawner that is yet to start is
    /// told of it in any case.
    pub(super) fn take_manifest_back(&mut self) {
        if !self.programs.is_running() {
            return;
        }
        if let Err(problem) = self.programs.tell(&self.current) {
            tracing::error!("{problem}");
        }
    }
}

/// The numbers of the sockets of a generation's pools.
fn numbers(generation: &Generation) -> impl Iterator<Item = u64> {
    generation.places.of_pools().map(|(_, it)| it.number())
}

/// Takes a place among the control groups, before there are children; what a crash left there goes.
pub(super) fn claim_place() -> Result<Base, Refused> {
    let host = Host::look().map_err(|error| {
        let problem = format!("look at control groups in /proc: {}", reason(&error));
        Refused::System(vec![problem])
    })?;
    let (base, problems) = Base::start(host);
    for problem in problems {
        let reason = reason(&problem.error);
        tracing::warn!("{}: {reason}", problem.what);
    }
    Ok(base)
}

/// Leaves to the spawner, which this process starts, what only the spawner does.
pub(super) fn lay_mounting_aside() {
    if let Err(error) = os::confine::lay_mounting_aside() {
        tracing::warn!(error = reason(&error), "CAP_SYS_ADMIN cannot be laid aside");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    use ipc::handover::ChildProcess;

    use super::*;

    /// With a spawner that says what the test wants; the process itself only waits for its link's end.
    #[expect(clippy::zombie_processes, reason = "who drops the spawner reaps it")]
    fn programs() -> (Programs, OwnedFd) {
        let (link, its_link) = os::fdpass::pair().unwrap();
        let process = Command::new("cat")
            .stdin(Stdio::from(its_link.try_clone().unwrap()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let child = Child::take_over(ChildProcess {
            kind: "spawner".into(),
            pid: process.id(),
            started_us: os::cpu::monotonic_us(),
            link,
        });
        let mut programs = Programs::default();
        programs.kept.run(child.unwrap(), ());
        (programs, its_link)
    }

    #[test]
    fn the_limits_that_wait_are_those_that_the_spawner_told_last() {
        let (mut programs, spawner) = programs();
        let say = |word: FromSpawner| word.send(spawner.as_fd()).unwrap();
        let held = |limits: &[&str]| FromSpawner::Held {
            limits: limits.iter().map(|&limit| limit.to_owned()).collect(),
        };
        let is_news = |programs: &mut Programs| matches!(programs.news()[..], [News::Held]);
        for limits in [&["a", "b"][..], &["b"], &[]] {
            say(held(limits));
            programs.on_word();
            assert_eq!(programs.held, limits);
            assert!(is_news(&mut programs) && !is_news(&mut programs));
        }
        // So it is with one that comes before an answer.
        say(held(&["c"]));
        say(FromSpawner::Ready { generation: 7 });
        let answer = programs.hear_answer().unwrap();
        assert!(matches!(answer, FromSpawner::Ready { generation: 7 }));
        assert_eq!(programs.held, ["c"]);
        assert!(is_news(&mut programs));
    }
}
