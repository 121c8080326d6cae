//! Looking for scripts and other programs, and for the users they run as, where that may take long.
//!
//! The idea: a file system that hangs keeps whoever asks it, and nobody can be kept here but a
//! thread that does nothing else. So what is not known at once is looked for by a thread for each
//! order: few for one directory, so that what hangs in it leaves the others theirs, and an order
//! is given up when it has waited long. A thread that is kept keeps its place until it is let go.
//! Programs are started by the spawner's first thread alone: they die with the one that starts
//! them.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::reason;
use ipc::manifest::{NamedProgram, SiteManifest};
use ipc::order::{Failure, Run, RunChore, RunMap};
use ipc::rows::RowUsers;
use os::user::User;

use super::Refusal;
use super::checks::Runnable;
use super::pools::{FoundRun, WantedRun};
use super::programs::Order;

/// Threads there may be.
const THREADS_MAX: usize = 64;
/// Of these, those that look into one site's directory.
const THREADS_OF_ONE_MAX: usize = 2;
/// Orders that wait for such a thread, beside those of pools, of which few start at once.
const WAITING_OF_ONE_MAX: usize = 16;
/// How long an order is looked for.
const PATIENCE: Duration = Duration::from_secs(30);
/// A thread's stack: the database of users is the C library's, and takes some.
const STACK_BYTES: usize = 512 * 1024;

/// A program that was ordered.
#[derive(Debug)]
pub(super) enum Ordered {
    /// A rule's.
    Rule(Run),
    /// A map's.
    Map(RunMap),
    /// A chore.
    Chore(RunChore),
    /// A run of a pool, of the order's number.
    Pool,
}

/// What is to be found.
#[derive(Debug)]
pub(super) enum Wanted {
    Script(WantedScript),
    Named(NamedProgram),
    Run(Box<WantedRun>),
}

/// A site's script that is to be found.
#[derive(Debug)]
pub(super) struct WantedScript {
    /// The site, its rules left out.
    pub(super) site: SiteManifest,
    pub(super) script: Vec<u8>,
    /// Who it runs as, where that is known.
    pub(super) user: Option<Arc<User>>,
    /// Whom that may be, where a row has named it.
    pub(super) users: Option<RowUsers>,
}

impl Wanted {
    /// The directory that may hang.
    fn directory(&self) -> &Path {
        match self {
            Wanted::Script(wanted) => &wanted.site.within,
            Wanted::Named(program) => &program.directory,
            Wanted::Run(wanted) => &wanted.program.directory,
        }
    }
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) user: Arc<User>,
    pub(super) runnable: Runnable,
    /// The device of the site's directory, where asking it never takes long.
    pub(super) local_device: Option<u64>,
    /// What only a run of a pool needs.
    pub(super) run: Option<Box<FoundRun>>,
}

type Finding = Result<Found, Refusal>;

/// The orders that are looked for.
#[derive(Debug)]
pub(super) struct Lookups {
    look: fn(&Wanted) -> Finding,
    waiting: VecDeque<(Looked, Wanted)>,
    threads: BTreeMap<u64, Thread>,
    next: u64,
}

/// An order, while it is looked for.
#[derive(Debug)]
struct Looked {
    order: Order,
    run: Ordered,
    until: Instant,
}

#[derive(Debug)]
struct Thread {
    /// Closed at its end.
    end: PipeReader,
    handle: JoinHandle<Finding>,
    directory: PathBuf,
    /// `None` where nobody waits for it any more.
    looked: Option<Looked>,
}

impl Lookups {
    pub(super) fn new(look: fn(&Wanted) -> Finding) -> Lookups {
        Lookups {
            look,
            waiting: VecDeque::new(),
            threads: BTreeMap::new(),
            next: 0,
        }
    }

    /// Orders that are looked for.
    pub(super) fn count(&self) -> usize {
        self.all().count()
    }

    pub(super) fn has(&self, order: Order) -> bool {
        self.all().any(|looked| looked.order == order)
    }

    /// Looks for an order's script, as soon as there is a thread for it.
    pub(super) fn add(
        &mut self,
        order: Order,
        run: Ordered,
        wanted: Wanted,
        now: Instant,
    ) -> Result<(), Refusal> {
        let directory = wanted.directory();
        let waiting = self.waiting.iter();
        let waiting = waiting.filter(|(_, other)| other.directory() == directory);
        if waiting.count() >= WAITING_OF_ONE_MAX && !matches!(run, Ordered::Pool) {
            let directory = directory.display();
            let what = format!("too many wait for {directory} or its user already: does it hang?");
            return Err(Refusal::new(Failure::FilesSilent, what));
        }
        let until = now + PATIENCE;
        self.waiting
            .push_back((Looked { order, run, until }, wanted));
        Ok(())
    }

    /// Starts what there are threads for; those for whom none can be made come back.
    pub(super) fn start(&mut self) -> Vec<(Order, Refusal)> {
        let mut failed = Vec::new();
        while self.threads.len() < THREADS_MAX {
            let has_room = |(_, wanted): &(_, Wanted)| self.has_room(wanted.directory());
            let Some(at) = self.waiting.iter().position(has_room) else {
                break;
            };
            let Some((looked, wanted)) = self.waiting.remove(at) else {
                break;
            };
            let order = looked.order;
            if let Err(error) = self.start_one(looked, wanted) {
                let what = format!("start a thread: {}", reason(&error));
                failed.push((order, Refusal::new(Failure::SpawnFailed, what)));
            }
        }
        failed
    }

    fn has_room(&self, directory: &Path) -> bool {
        let threads = self.threads.values();
        let of_one = threads.filter(|thread| thread.directory == *directory);
        of_one.count() < THREADS_OF_ONE_MAX
    }

    fn start_one(&mut self, looked: Looked, wanted: Wanted) -> io::Result<()> {
        let (end, its_end) = io::pipe()?;
        let directory = wanted.directory().to_owned();
        let look = self.look;
        let builder = std::thread::Builder::new().name("nagaya-lookup".into());
        let handle = builder.stack_size(STACK_BYTES).spawn(move || {
            let found = look(&wanted);
            drop(its_end);
            found
        })?;
        let thread = Thread {
            end,
            handle,
            directory,
            looked: Some(looked),
        };
        self.threads.insert(self.next, thread);
        self.next += 1;
        Ok(())
    }

    /// What is readable when a thread has ended.
    pub(super) fn ends(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        let threads = self.threads.iter();
        threads.map(|(number, thread)| (*number, thread.end.as_fd()))
    }

    /// What a thread that has ended found, and for whom; `None` where nobody waits for it.
    pub(super) fn take(&mut self, number: u64) -> Option<(Order, Ordered, Finding)> {
        let thread = self.threads.remove(&number)?;
        let found = thread.handle.join().unwrap_or_else(|_| {
            let what = "the look for it failed".to_owned();
            Err(Refusal::new(Failure::SpawnFailed, what))
        });
        let looked = thread.looked?;
        Some((looked.order, looked.run, found))
    }

    /// Forgets the orders that are meant; what a thread finds for them is not used.
    pub(super) fn forget(&mut self, is_meant: impl Fn(Order) -> bool) -> Vec<Order> {
        self.forget_those(|looked| is_meant(looked.order))
    }

    /// Gives up those that have waited long enough.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(Order, Refusal)> {
        let expired = self.forget_those(|looked| looked.until <= now);
        let refusal = || {
            let what = "its file system or the database of users does not answer".to_owned();
            Refusal::new(Failure::FilesSilent, what)
        };
        expired
            .into_iter()
            .map(|order| (order, refusal()))
            .collect()
    }

    /// When the next one is to be given up.
    pub(super) fn until(&self) -> Option<Instant> {
        self.all().map(|looked| looked.until).min()
    }

    fn forget_those(&mut self, is_meant: impl Fn(&Looked) -> bool) -> Vec<Order> {
        let mut forgotten = Vec::new();
        self.waiting.retain(|(looked, _)| {
            let stays = !is_meant(looked);
            if !stays {
                forgotten.push(looked.order);
            }
            stays
        });
        for thread in self.threads.values_mut() {
            let looked = thread.looked.take_if(|looked| is_meant(looked));
            forgotten.extend(looked.map(|looked| looked.order));
        }
        forgotten
    }

    fn all(&self) -> impl Iterator<Item = &Looked> {
        let waiting = self.waiting.iter().map(|(looked, _)| looked);
        let threads = self.threads.values();
        waiting.chain(threads.filter_map(|thread| thread.looked.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that hangs, unless it is told to fail.
    fn look(wanted: &Wanted) -> Finding {
        if matches!(wanted, Wanted::Script(wanted) if wanted.script == b"fails") {
            return Err(Refusal::new(Failure::NotFound, "gone".into()));
        }
        loop {
            std::thread::park();
        }
    }

    fn add(lookups: &mut Lookups, id: u64, directory: &str, script: &str) -> Result<(), Refusal> {
        let memory = || os::file::memfd("test", b"").unwrap();
        let run = Run {
            id,
            generation: 1,
            site: 0,
            rule: 0,
            row: None,
            group: None,
            script: script.into(),
            says_start: false,
            environment: Vec::new(),
            stdin: memory(),
            stdout: memory(),
            stderr: memory(),
        };
        let site = SiteManifest {
            index: 0,
            name: String::new(),
            tenant: String::new(),
            root: directory.into(),
            within: directory.into(),
            symlinks: os::file::Symlinks::Deny,
            user: None,
            rules: Vec::new(),
        };
        let wanted = Wanted::Script(WantedScript {
            site,
            script: script.into(),
            user: None,
            users: None,
        });
        lookups.add((0, id), Ordered::Rule(run), wanted, Instant::now())?;
        assert!(lookups.start().is_empty());
        Ok(())
    }

    /// Waits for the one thread that ends.
    fn ended(lookups: &Lookups) -> u64 {
        loop {
            let (numbers, ends): (Vec<_>, Vec<_>) = lookups.ends().unzip();
            let ready = os::net::wait_readable(&ends, None).unwrap();
            if let Some(at) = ready.iter().position(|ready| *ready) {
                return numbers[at];
            }
        }
    }

    #[test]
    fn a_directory_that_hangs_keeps_few_threads_and_others_have_theirs() {
        let mut lookups = Lookups::new(look);
        let most = (THREADS_OF_ONE_MAX + WAITING_OF_ONE_MAX) as u64;
        for id in 0..most {
            add(&mut lookups, id, "/hangs", "x").unwrap();
        }
        let full = add(&mut lookups, most, "/hangs", "x").unwrap_err();
        assert_eq!(full.failure, Failure::FilesSilent);
        assert_eq!(lookups.threads.len(), THREADS_OF_ONE_MAX);
        assert_eq!(lookups.count(), most as usize);
        assert!(lookups.has((0, most - 1)) && !lookups.has((1, 0)));
        let pools = Wanted::Named(NamedProgram {
            whose: "pool a".into(),
            command: vec!["x".into()],
            directory: "/hangs".into(),
            user: None,
            may_be_root: false,
        });
        let waits = lookups.add((u64::MAX, 1), Ordered::Pool, pools, Instant::now());
        waits.expect("others' orders are no failure of a pool's");

        add(&mut lookups, 100, "/other", "fails").unwrap();
        let number = ended(&lookups);
        let (order, run, found) = lookups.take(number).unwrap();
        let Ordered::Rule(run) = run else {
            panic!("a rule's program was ordered");
        };
        assert_eq!((order, run.id), ((0, 100), 100));
        assert_eq!(found.unwrap_err().failure, Failure::NotFound);
    }

    #[test]
    fn what_waits_long_or_is_not_wanted_is_given_up_and_threads_stay_counted() {
        let mut lookups = Lookups::new(look);
        for id in 0..4 {
            add(&mut lookups, id, "/hangs", "x").unwrap();
        }
        let gone = lookups.forget(|order| [0, 2].contains(&order.1));
        assert_eq!(gone, [(0, 2), (0, 0)], "one waits, one has a thread");
        assert_eq!(lookups.count(), 2);
        assert!(lookups.expire(Instant::now()).is_empty());
        let until = lookups.until().unwrap();
        let expired = lookups.expire(until + PATIENCE);
        let expired: Vec<_> = expired.iter().map(|(order, _)| order.1).collect();
        assert_eq!(expired, [3, 1]);
        assert_eq!((lookups.count(), lookups.until()), (0, None));
        assert_eq!(lookups.threads.len(), THREADS_OF_ONE_MAX);
        for directory in 0..THREADS_MAX {
            add(&mut lookups, 9, &format!("/{directory}"), "x").unwrap();
        }
        assert_eq!(lookups.threads.len(), THREADS_MAX);
        assert_eq!(lookups.waiting.len(), THREADS_OF_ONE_MAX);
    }
}
