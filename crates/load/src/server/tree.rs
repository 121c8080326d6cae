//! A process tree, looked at again and again, with counters that outlive its processes.
//!
//! The idea: who belonged to it once belongs to it for life, orphans too, and so do the children of
//! all that belong. Each look adds what every process used since the last one. What a process used
//! before anybody looked at it, or after the last look, is in the time its parent was told of when
//! it waited for it: the part of that which is not known yet is added as well (`account`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::time::Duration;

use super::account::Account;
use super::clock::{TICK_NS, ticks_since_boot};
use super::files::{beginning, numbers_in};
use super::groups::{Anew, Groups};
use super::machine;
use super::reading::TreeFigures;
use super::texts::{self, Stat};

/// Processes of a tree that are looked at.
const PROCESSES_MAX: usize = 65_536;
/// Threads of a process that are looked at.
const THREADS_MAX: usize = 16_384;
/// A process that does not belong is not looked at again until so many were started, one part of
/// all numbers: they are given in turn, so that until then its number is nobody else's.
const STRANGERS_PART: u64 = 4;
/// A file on one process or thread.
const FILE_BYTES_MAX: usize = 8 * 1024;
/// A `smaps_rollup`.
const ROLLUP_BYTES_MAX: u64 = 64 * 1024;

/// How much a look takes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depth {
    /// CPU time, processes, waiting for a core.
    Light,
    /// Also context switches and peaks.
    Full,
}

/// The processes that grow from some roots.
#[derive(Debug)]
pub(super) struct Tree {
    roots: Vec<u32>,
    members: BTreeMap<u32, Member>,
    totals: Totals,
    groups: Groups,
    /// When it was last looked at; 0 before.
    looked_ticks: u64,
    /// Processes that do not belong to it, and how many the machine had started when the first of
    /// them was found.
    strangers: BTreeSet<u32>,
    strangers_from: Option<u64>,
    /// How many the machine had started at the last look.
    looked_from: Option<u64>,
    /// Numbers of processes there are.
    numbers: u64,
    buffer: Vec<u8>,
}

/// A process of the tree.
#[derive(Debug, Default)]
struct Member {
    start_ticks: u64,
    parent: u32,
    account: Account,
    threads: BTreeMap<u32, Thread>,
    /// What its threads used before it came to the tree is not counted.
    is_newly_adopted: bool,
}

/// What a thread had used at the last look.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    run_queue_ns: u64,
    voluntary: u64,
    involuntary: u64,
}

/// What the tree used so far, its ended processes included.
#[derive(Debug, Default)]
struct Totals {
    cpu_ns: u64,
    run_queue_ns: u64,
    voluntary: u64,
    involuntary: u64,
    peak_bytes: u64,
}

impl Tree {
    pub(super) fn new(roots: Vec<u32>) -> Tree {
        Tree {
            roots,
            members: BTreeMap::new(),
            totals: Totals::default(),
            groups: Groups::new(),
            looked_ticks: 0,
            strangers: BTreeSet::new(),
            strangers_from: None,
            looked_from: None,
            numbers: machine::process_numbers(),
            buffer: vec![0; FILE_BYTES_MAX],
        }
    }

    pub(super) fn roots(&self) -> &[u32] {
        &self.roots
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        self.members.keys().copied().collect()
    }

    /// The processes' shares of memory; `None` where one of them may not be read. Those that ended
    /// meanwhile, or have no memory any more, have none.
    pub(super) fn pss_bytes(&self) -> Option<u64> {
        let mut sum: u64 = 0;
        for pid in self.members.keys() {
            let mut rollup = String::new();
            let file = File::open(format!("/proc/{pid}/smaps_rollup"));
            match file.and_then(|file| file.take(ROLLUP_BYTES_MAX).read_to_string(&mut rollup)) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
                _ => sum = sum.saturating_add(texts::pss_bytes(&rollup).unwrap_or(0)),
            }
        }
        (sum > 0).then_some(sum)
    }

    /// Looks at it. The order matters: what parents were told of their children is read before the
    /// children's own clocks, so that nothing is counted as both.
    pub(super) fn look(&mut self, depth: Depth) -> TreeFigures {
        let now_ticks = ticks_since_boot();
        let all = self.scan();
        let found = self.belonging(&all);
        let strangers = all.keys().filter(|pid| !found.contains_key(pid));
        self.strangers.extend(strangers);
        let mut told = self.bury(&found);
        let mut gain_ns: u64 = 0;
        for (pid, stat) in &found {
            gain_ns += self.count_cpu(*pid, stat, told.remove(pid).unwrap_or(0));
        }
        let processes: BTreeSet<u32> = found.keys().copied().collect();
        let anew = match depth {
            Depth::Light => Anew::New,
            Depth::Full => Anew::All,
        };
        self.groups.learn(&processes, anew);
        let of_group = self.groups.cpu_since(&processes);
        let of_group_ns = of_group.map(|time| u64::try_from(time.as_nanos()).unwrap_or(0));
        let gain_ns = of_group_ns.unwrap_or(gain_ns);
        self.totals.cpu_ns = self.totals.cpu_ns.saturating_add(gain_ns);
        let mut reading = TreeFigures {
            processes: found.len() as u64,
            threads: found.values().map(|stat| stat.threads).sum(),
            throttling: self.groups.throttling(),
            ..TreeFigures::default()
        };
        let peaks = found.iter().map(|(pid, stat)| {
            let member = self.members.get_mut(pid);
            member.map_or(0, |member| {
                count_threads(
                    *pid,
                    stat,
                    depth,
                    member,
                    &mut self.totals,
                    &mut self.buffer,
                )
            })
        });
        let peak_bytes = peaks.sum();
        self.totals.peak_bytes = self.totals.peak_bytes.max(peak_bytes);
        self.looked_ticks = now_ticks;
        self.fill(&mut reading);
        reading
    }

    fn fill(&self, reading: &mut TreeFigures) {
        reading.cpu = Duration::from_nanos(self.totals.cpu_ns);
        reading.run_queue = Duration::from_nanos(self.totals.run_queue_ns);
        reading.peak_bytes = self.totals.peak_bytes;
        reading.voluntary_switches = self.totals.voluntary;
        reading.involuntary_switches = self.totals.involuntary;
    }

    /// All processes there are but the known strangers. Where none was started since the last look,
    /// there are no others than the tree's.
    fn scan(&mut self) -> BTreeMap<u32, Stat> {
        let started = machine::started();
        let since = |then: Option<u64>| started?.checked_sub(then?);
        if since(self.strangers_from).is_none_or(|new| new >= self.numbers / STRANGERS_PART) {
            self.strangers.clear();
            self.strangers_from = started;
        }
        let is_quiet = since(self.looked_from) == Some(0);
        self.looked_from = started;
        let processes = match is_quiet {
            true => self.processes(),
            false => numbers_in("/proc"),
        };
        let mut found = BTreeMap::new();
        for pid in processes {
            if self.strangers.contains(&pid) {
                continue;
            }
            let bytes = beginning(&format!("/proc/{pid}/stat"), &mut self.buffer);
            if let Some(stat) = bytes.and_then(texts::stat) {
                found.insert(pid, stat);
            }
        }
        found
    }

    /// Those of all processes that belong to the tree. This process belongs to none, unless it is
    /// asked for: a load generator started from the server's shell is no part of the server.
    fn belonging(&self, all: &BTreeMap<u32, Stat>) -> BTreeMap<u32, Stat> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, stat) in all {
            children.entry(stat.parent).or_default().push(*pid);
        }
        let is_root = |pid: &u32| self.looked_ticks == 0 && self.roots.contains(pid);
        let is_known = |pid: &u32, stat: &Stat| {
            let known = self.members.get(pid);
            known.is_some_and(|member| member.start_ticks == stat.start_ticks)
        };
        let begin = all
            .iter()
            .filter(|(pid, stat)| is_root(pid) || is_known(pid, stat));
        let mut ahead: Vec<u32> = begin.map(|(pid, _)| *pid).collect();
        let mut found = BTreeMap::new();
        let own = std::process::id();
        while let Some(pid) = ahead.pop() {
            let is_own = pid == own && !self.roots.contains(&own);
            if is_own || found.contains_key(&pid) || found.len() >= PROCESSES_MAX {
                continue;
            }
            if let Some(stat) = all.get(&pid) {
                found.insert(pid, *stat);
                ahead.extend(children.get(&pid).into_iter().flatten());
            }
        }
        found
    }

    /// Forgets the processes that ended. Returns, for each of those that live on, how much of what
    /// it may have been told is counted already.
    fn bury(&mut self, found: &BTreeMap<u32, Stat>) -> BTreeMap<u32, u64> {
        let lives = |pid: &u32, member: &Member| {
            let stat = found.get(pid);
            stat.is_some_and(|stat| stat.start_ticks == member.start_ticks)
        };
        let ended: Vec<u32> = self
            .members
            .iter()
            .filter(|(pid, member)| !lives(pid, member))
            .map(|(pid, _)| *pid)
            .collect();
        let mut told = BTreeMap::new();
        for pid in &ended {
            let Some(member) = self.members.get(pid) else {
                continue;
            };
            // Who ended together with its parent is in what that one's parent was told.
            let mut heir = member.parent;
            while ended.contains(&heir) {
                heir = self.members.get(&heir).map_or(0, |above| above.parent);
            }
            *told.entry(heir).or_insert(0) += member.account.counted_ns();
        }
        for pid in ended {
            self.members.remove(&pid);
        }
        told
    }

    /// Tells the CPU time of a process, and of those it waited for, that is new.
    fn count_cpu(&mut self, pid: u32, stat: &Stat, buried_ns: u64) -> u64 {
        let reaped_ns = stat.reaped_ticks.saturating_mul(TICK_NS);
        let own_ns = os::cpu::process_cpu_ns_of(pid);
        // It was there before the last look, and belonged to somebody else.
        let is_adopted = stat.start_ticks.saturating_add(1) < self.looked_ticks;
        let member = self.members.entry(pid).or_insert_with(|| {
            let account = match is_adopted {
                true => Account::from_now_on(own_ns.unwrap_or(0), reaped_ns),
                false => Account::default(),
            };
            Member {
                start_ticks: stat.start_ticks,
                account,
                is_newly_adopted: is_adopted,
                ..Member::default()
            }
        });
        member.parent = stat.parent;
        member.account.look(own_ns, reaped_ns, buried_ns)
    }
}

impl Totals {
    fn add(&mut self, last: Thread, now: Thread) {
        self.run_queue_ns += now.run_queue_ns.saturating_sub(last.run_queue_ns);
        self.voluntary += now.voluntary.saturating_sub(last.voluntary);
        self.involuntary += now.involuntary.saturating_sub(last.involuntary);
    }
}

/// Adds what the threads of a process used since the last look; tells the peak of its memory.
fn count_threads(
    pid: u32,
    stat: &Stat,
    depth: Depth,
    member: &mut Member,
    totals: &mut Totals,
    buffer: &mut [u8],
) -> u64 {
    let before = std::mem::take(&mut member.threads);
    let threads = match stat.threads {
        0 | 1 => vec![pid],
        _ => numbers_in(&format!("/proc/{pid}/task")),
    };
    let mut peak_bytes = 0;
    for thread in threads.into_iter().take(THREADS_MAX) {
        let last = before.get(&thread).copied().unwrap_or_default();
        let mut now = last;
        let directory = format!("/proc/{pid}/task/{thread}");
        let schedstat = beginning(&format!("{directory}/schedstat"), buffer);
        now.run_queue_ns = schedstat
            .and_then(texts::run_queue_ns)
            .unwrap_or(last.run_queue_ns);
        if depth >= Depth::Full
            && let Some(bytes) = beginning(&format!("{directory}/status"), buffer)
        {
            let status = texts::status(bytes);
            peak_bytes = status.peak_bytes.max(peak_bytes);
            (now.voluntary, now.involuntary) = (status.voluntary, status.involuntary);
        }
        if !member.is_newly_adopted {
            totals.add(last, now);
        }
        member.threads.insert(thread, now);
    }
    member.is_newly_adopted = false;
    peak_bytes
}
