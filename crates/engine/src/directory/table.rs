//! What is known of hosts, for all workers: rows, that there is none, and who is being asked for.
//!
//! The idea: a name is asked for once, however many wait for it. What is known serves while it is fresh; a row
//! that is older serves on while it is asked for again, as long as `stale` says. Questions are let out at the
//! directory's pace, in turns by the network of who came for a name. Time is passed in, as milliseconds.
//!
//! Left out: who carries questions and answers (`link`), and what a row makes (`row`).

mod room;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::model;
use ipc::directory::{DirectoryState, RowAnswer, RowFrom};
use tokio::sync::{Notify, watch};

use super::entry::{DirectoryCounters, DirectoryLook, EntryState, HostEntry};
use super::turns::{PushedName, Turns};

/// Bytes of rows and names that are kept of one directory, about.
const BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 64 << 20 };
/// What a name takes beside its texts, about.
const NAME_BYTES: usize = 256;
/// Hosts that the process is to forget and was not told yet.
const FORGOTTEN_MAX: usize = 1_000;
/// How long nothing is asked again of a host whose row could not be had anew.
const RETRY_MS: u64 = 1_000;
/// How long nothing is asked again of a host that nothing is known of, where nobody could say.
const DOWN_MS: u64 = 200;
/// Old rows that wait to be asked for again.
const OLD_MAX: usize = 8_192;
/// Hosts that are looked at before others may look.
const LOOKED_AT_ONCE: usize = 500;
/// The share of a second in which questions may come at once.
const BURST: f64 = 0.1;

/// What is known of hosts.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    /// Held for one look or change.
    known: Mutex<Vec<KnownDirectory>>,
    /// The thread of the link has something to do.
    pub(super) asks: Notify,
    /// What the process is to forget: a host, or all. Held for one look or change.
    pub(super) forgotten: Mutex<Vec<Option<String>>>,
    /// How the directories said they are. Held for one look or change.
    pub(super) states: Mutex<Vec<(String, DirectoryState)>>,
}

/// One directory.
#[derive(Debug)]
struct KnownDirectory {
    terms: Arc<model::Directory>,
    hosts: HashMap<Box<str>, Slot>,
    /// Names with a row, in the order in which they are looked at when there is no room, and before them those that
    /// had none when that was known. Those that are asked for the first time are in neither.
    order: VecDeque<Box<str>>,
    without_row: VecDeque<Box<str>>,
    bytes: usize,
    turns: Turns,
    /// Names whose rows are old.
    old: VecDeque<Box<str>>,
    is_old_next: bool,
    /// Questions that may be asked at once, and when that was known.
    credit: (f64, u64),
    next_id: u64,
    is_linked: bool,
    counters: DirectoryCounters,
}

/// A host.
#[derive(Debug, Default)]
struct Slot {
    entry: Option<Arc<HostEntry>>,
    asked: Option<AskedName>,
    /// Nobody could say, and is asked again from then on.
    down_until_ms: u64,
    /// Whether it is among those that are looked at for room.
    is_listed: bool,
}

/// A name that is being asked for. Whoever waits hears when this is dropped.
#[derive(Debug)]
struct AskedName {
    /// The question's number; `None` while it waits for its turn.
    id: Option<u64>,
    ended: watch::Sender<()>,
    /// What is answered may be older than a change that was heard of since.
    is_outdated: bool,
}

/// What a look came to.
#[derive(Debug)]
pub(crate) enum Look {
    /// This is known.
    Known(Arc<HostEntry>),
    /// It is asked for; this ends when there is an answer.
    Asked(watch::Receiver<()>),
    /// Nobody could say a moment ago; it is asked again after so many milliseconds.
    Down(u64),
    /// There is no room for the question.
    Busy,
    /// No directory is called so.
    Nowhere,
}

/// What somebody has who does not wait any longer.
#[derive(Debug)]
pub(crate) enum GaveUp {
    /// What was known before.
    Known(Arc<HostEntry>),
    /// The name was not even asked for.
    Busy,
    /// Nobody has answered.
    Down,
}

/// A question that is let out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) directory: String,
    pub(super) host: String,
    pub(super) id: u64,
}

impl Directories {
    /// These are asked from now on; of those that stay as they are what is known stays.
    pub(crate) fn put_in_force(&self, directories: &[Arc<model::Directory>]) {
        let mut known = self.lock();
        let mut before = std::mem::take(&mut *known);
        for terms in directories {
            let at = before.iter().position(|it| it.terms.name == terms.name);
            let kept = at.map(|at| before.swap_remove(at));
            known.push(match kept {
                Some(mut kept) => {
                    if *kept.terms != **terms {
                        kept.outdate();
                    }
                    kept.terms = Arc::clone(terms);
                    kept
                }
                None => KnownDirectory::new(terms),
            });
        }
    }

    /// What is known of a host, for a client of this network; it is asked for where that is not all.
    pub(crate) fn look(&self, directory: &str, host: &str, network: IpAddr, now_ms: u64) -> Look {
        let mut known = self.lock();
        let Some(directory) = known.iter_mut().find(|it| it.terms.name == directory) else {
            return Look::Nowhere;
        };
        let (look, is_asked) = directory.look(host, network, now_ms);
        drop(known);
        if is_asked {
            self.asks.notify_one();
        }
        look
    }

    /// Notes that a request gave up waiting for a name, and what it has instead.
    pub(crate) fn give_up(&self, directory: &str, host: &str, now_ms: u64) -> GaveUp {
        let mut known = self.lock();
        let Some(directory) = known.iter_mut().find(|it| it.terms.name == directory) else {
            return GaveUp::Down;
        };
        let slot = directory.hosts.get(host);
        if let Some(entry) = slot.and_then(|slot| slot.known_missing(now_ms)) {
            directory.counters.old += 1;
            entry.retry_at(now_ms + RETRY_MS);
            return GaveUp::Known(entry);
        }
        let asked = slot.and_then(|slot| slot.asked.as_ref());
        match directory.is_linked && asked.is_some_and(|asked| asked.id.is_none()) {
            true => {
                directory.counters.busy += 1;
                GaveUp::Busy
            }
            false => {
                directory.counters.gave_up += 1;
                GaveUp::Down
            }
        }
    }

    /// The questions that may be asked now, and in how many milliseconds there may be more.
    pub(super) fn questions(&self, most: usize, now_ms: u64) -> (Vec<Question>, Option<u64>) {
        let (mut questions, mut wait_ms) = (Vec::new(), None::<u64>);
        for directory in self.lock().iter_mut() {
            while questions.len() < most {
                match directory.next(now_ms) {
                    Next::Ask(question) => questions.push(question),
                    Next::Wait(ms) => {
                        wait_ms = Some(wait_ms.map_or(ms, |known| known.min(ms)));
                        break;
                    }
                    Next::Nothing => break,
                }
            }
        }
        match questions.len() < most {
            true => (questions, wait_ms),
            false => (questions, Some(0)),
        }
    }

    /// Takes an answer that was asked for; the reason where nobody knows.
    pub(super) fn hear(&self, asked: &Question, answer: RowAnswer, age_ms: u64, now_ms: u64) {
        let mut known = self.lock();
        let directory = known.iter_mut().find(|it| it.terms.name == asked.directory);
        if let Some(directory) = directory {
            directory.hear(asked, answer, age_ms, now_ms);
        }
    }

    /// What is known of a host, or of all, is to be asked for again.
    pub(crate) fn outdate(&self, directory: Option<&str>, host: Option<&str>) {
        let is_meant =
            |it: &&mut KnownDirectory| directory.is_none_or(|name| it.terms.name == name);
        for directory in self.lock().iter_mut().filter(is_meant) {
            match host {
                Some(host) => {
                    directory.outdate_host(host);
                }
                None => directory.outdate(),
            }
        }
    }

    /// Forgets what is known of a host, or of all, here and at the process; it serves nobody from now on.
    pub(crate) fn forget(&self, host: Option<&str>) {
        for directory in self.lock().iter_mut() {
            let slots = directory.hosts.iter_mut();
            let meant = slots.filter(|(name, _)| host.is_none_or(|host| ***name == *host));
            for (_, slot) in meant {
                slot.outdate();
                if let Some(entry) = &slot.entry {
                    entry.forget();
                }
            }
        }
        let mut forgotten = self
            .forgotten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if forgotten.len() < FORGOTTEN_MAX {
            forgotten.push(host.map(str::to_owned));
        }
        drop(forgotten);
        self.asks.notify_one();
    }

    /// What is known of a host by each directory.
    pub(crate) fn show(&self, host: &str) -> Vec<(String, Option<Arc<HostEntry>>)> {
        let known = self.lock();
        let entry = |it: &KnownDirectory| it.hosts.get(host).and_then(|slot| slot.entry.clone());
        let shown = known.iter().map(|it| (it.terms.name.clone(), entry(it)));
        shown.collect()
    }

    /// What a directory knows of hosts.
    pub(super) fn entries(&self, directory: &str, hosts: &[String]) -> Vec<Option<Arc<HostEntry>>> {
        let mut entries = Vec::with_capacity(hosts.len());
        for hosts in hosts.chunks(LOOKED_AT_ONCE) {
            let known = self.lock();
            let directory = known.iter().find(|it| it.terms.name == directory);
            let entry = |host: &String| {
                let slot = directory?.hosts.get(&**host)?;
                slot.entry.clone()
            };
            entries.extend(hosts.iter().map(entry));
        }
        entries
    }

    /// How the directories said last that they are.
    pub(crate) fn told(&self) -> Vec<(String, DirectoryState)> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.clone()
    }

    /// Notes whether there is somebody to be asked.
    pub(super) fn note_linked(&self, is_linked: bool) {
        for directory in self.lock().iter_mut() {
            directory.is_linked = is_linked;
            match is_linked {
                // Whoever is asked now may know of changes that nobody told.
                true => directory.outdate(),
                false => directory.end_questions(),
            }
        }
        self.asks.notify_one();
    }

    /// How they stand.
    pub(crate) fn looks(&self) -> Vec<DirectoryLook> {
        let known = self.lock();
        let look = |it: &KnownDirectory| DirectoryLook {
            name: it.terms.name.clone(),
            is_linked: it.is_linked,
            hosts: it.hosts.len(),
            bytes: it.bytes,
            waiting: it.turns.len(),
            counters: it.counters,
        };
        known.iter().map(look).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<KnownDirectory>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Next {
    Ask(Question),
    Wait(u64),
    Nothing,
}

impl Slot {
    /// That there was no row when somebody knew, and nothing newer.
    fn known_missing(&self, now_ms: u64) -> Option<Arc<HostEntry>> {
        let entry = self.entry.as_ref()?;
        let holds = matches!(entry.state, EntryState::Missing) && entry.serves(now_ms);
        holds.then(|| Arc::clone(entry))
    }

    fn outdate_entry(&self) {
        if let Some(entry) = &self.entry {
            entry.retry_at(0);
        }
    }

    fn outdate(&mut self) {
        self.outdate_entry();
        if let Some(asked) = &mut self.asked {
            asked.is_outdated = asked.id.is_some();
        }
    }
}

impl KnownDirectory {
    fn new(terms: &Arc<model::Directory>) -> Self {
        Self {
            terms: Arc::clone(terms),
            hosts: HashMap::new(),
            order: VecDeque::new(),
            without_row: VecDeque::new(),
            bytes: 0,
            turns: Turns::default(),
            old: VecDeque::new(),
            is_old_next: false,
            credit: (f64::INFINITY, 0),
            next_id: 0,
            is_linked: false,
            counters: DirectoryCounters::default(),
        }
    }

    fn look(&mut self, host: &str, network: IpAddr, now_ms: u64) -> (Look, bool) {
        let Some(slot) = self.hosts.get_mut(host) else {
            return self.ask_anew(host, network);
        };
        if let Some(entry) = &slot.entry {
            if entry.is_fresh(now_ms) {
                self.counters.fresh += 1;
                return (Look::Known(Arc::clone(entry)), false);
            }
            if entry.row().is_some() && entry.serves(now_ms) {
                self.counters.old += 1;
                let is_asked = slot.asked.is_none() && self.old.len() < OLD_MAX;
                if is_asked {
                    slot.asked = Some(AskedName::new().0);
                    self.old.push_back(host.into());
                }
                return (Look::Known(Arc::clone(entry)), is_asked);
            }
        }
        if let Some(asked) = &slot.asked {
            self.counters.waited += 1;
            return (Look::Asked(asked.ended.subscribe()), false);
        }
        if now_ms < slot.down_until_ms {
            return (Look::Down(slot.down_until_ms - now_ms), false);
        }
        let known_missing = slot.known_missing(now_ms);
        if !self.has_turn(host, network) {
            if let Some(entry) = known_missing {
                self.counters.old += 1;
                return (Look::Known(entry), false);
            }
            self.counters.busy += 1;
            return (Look::Busy, false);
        }
        self.counters.waited += 1;
        let (asked, waiting) = AskedName::new();
        if let Some(slot) = self.hosts.get_mut(host) {
            slot.asked = Some(asked);
        }
        (Look::Asked(waiting), true)
    }

    /// Asks for a host that nothing is known of.
    fn ask_anew(&mut self, host: &str, network: IpAddr) -> (Look, bool) {
        if !self.has_turn(host, network) {
            self.counters.busy += 1;
            return (Look::Busy, false);
        }
        self.counters.waited += 1;
        self.make_room();
        self.bytes += NAME_BYTES + host.len();
        let (asked, waiting) = AskedName::new();
        let slot = Slot {
            asked: Some(asked),
            ..Slot::default()
        };
        self.hosts.insert(host.into(), slot);
        (Look::Asked(waiting), true)
    }

    /// Has a name wait for its turn, if there is room.
    fn has_turn(&mut self, host: &str, network: IpAddr) -> bool {
        match self.turns.push(network, host) {
            PushedName::Waits => true,
            PushedName::InPlaceOf(other) => {
                self.leave(&other);
                true
            }
            PushedName::Refused => false,
        }
    }

    /// The next question, if one may be asked.
    fn next(&mut self, now_ms: u64) -> Next {
        if !self.is_linked {
            return Next::Nothing;
        }
        let (count, per_ms) = self.terms.questions;
        let a_ms = f64::from(count.max(1)) / (per_ms.max(1) as f64);
        let most = (a_ms * 1_000.0 * BURST).max(1.0);
        let since = now_ms.saturating_sub(self.credit.1) as f64;
        let credit = (self.credit.0 + since * a_ms).min(most);
        self.credit = (credit, now_ms);
        loop {
            let takes_old = self.is_old_next || self.turns.len() == 0;
            let host = match takes_old {
                true => self.old.front().cloned(),
                false => None,
            };
            if credit < 1.0 && (self.turns.len() > 0 || host.is_some()) {
                let wait_ms = ((1.0 - credit) / a_ms).ceil().max(1.0);
                return Next::Wait(wait_ms as u64);
            }
            self.is_old_next = !self.is_old_next && !self.old.is_empty();
            let is_old = host.is_some();
            let host = match is_old {
                true => self.old.pop_front(),
                false => self.turns.pop(),
            };
            let Some(host) = host else {
                match self.old.is_empty() {
                    true => return Next::Nothing,
                    false => continue,
                }
            };
            let Some(slot) = self.hosts.get_mut(&host) else {
                continue;
            };
            let Some(asked) = slot.asked.as_mut().filter(|asked| asked.id.is_none()) else {
                continue;
            };
            if !is_old && asked.ended.receiver_count() == 0 {
                // Nobody waits any more.
                self.leave(&host);
                continue;
            }
            self.credit.0 -= 1.0;
            self.next_id += 1;
            asked.id = Some(self.next_id);
            self.counters.asked += 1;
            return Next::Ask(Question {
                directory: self.terms.name.clone(),
                host: host.into(),
                id: self.next_id,
            });
        }
    }

    fn hear(&mut self, question: &Question, answer: RowAnswer, age_ms: u64, now_ms: u64) {
        let Some(slot) = self.hosts.get_mut(&*question.host) else {
            return;
        };
        if slot.asked.as_ref().and_then(|asked| asked.id) != Some(question.id) {
            return;
        }
        // Whoever waits is woken once this lock is given back.
        let is_outdated = slot.asked.take().is_some_and(|asked| asked.is_outdated);
        let terms = &self.terms;
        let (state, fresh_ms, stale_ms) = match answer {
            RowAnswer::Row(row) => {
                self.counters.rows += 1;
                if row.from != RowFrom::Source {
                    // What is kept elsewhere is no work for the source: whoever is known there has not to wait.
                    self.credit.0 += 1.0;
                }
                let fresh_ms = terms.keep_ms.saturating_sub(age_ms).max(RETRY_MS);
                let stale_ms = terms.stale_ms.max(terms.keep_ms).saturating_sub(age_ms);
                (EntryState::Row(row), fresh_ms, stale_ms.max(fresh_ms))
            }
            RowAnswer::Missing => {
                self.counters.missing += 1;
                let stale_ms = terms.stale_ms.max(terms.missing_ms);
                (EntryState::Missing, terms.missing_ms, stale_ms)
            }
            RowAnswer::Wrong(why) => {
                self.counters.wrong += 1;
                let ms = terms.missing_ms.max(RETRY_MS);
                (EntryState::Wrong(why), ms, ms)
            }
            RowAnswer::Down(_) => {
                self.counters.down += 1;
                let known = slot.entry.as_ref().filter(|it| it.serves(now_ms));
                match known {
                    Some(entry) => entry.retry_at(now_ms + RETRY_MS),
                    None => slot.down_until_ms = now_ms + DOWN_MS,
                }
                return self.list(&question.host);
            }
        };
        let fresh_ms = if is_outdated { 0 } else { fresh_ms };
        let serves = [fresh_ms, stale_ms]
            .map(|ms| now_ms.saturating_add(ms))
            .into();
        let heard_ms = now_ms.saturating_sub(age_ms);
        if let (Some(entry), EntryState::Row(row)) = (&slot.entry, &state)
            && entry.row() == Some(row)
        {
            entry.renew(serves, heard_ms);
            return;
        }
        let entry = HostEntry::new(state, serves, heard_ms);
        self.bytes += entry.bytes();
        if let Some(before) = &slot.entry {
            entry.note_as(before);
        }
        if let Some(before) = slot.entry.replace(Arc::new(entry)) {
            // Workers that have a site of it look again.
            before.retry_at(0);
            self.bytes = self.bytes.saturating_sub(before.bytes());
        }
        self.list(&question.host);
        self.make_room();
    }

    /// A host is said to have changed: it is asked for again before all whose rows are merely old, whether or not
    /// anybody comes for it.
    fn outdate_host(&mut self, host: &str) {
        let Some(slot) = self.hosts.get_mut(host) else {
            return;
        };
        slot.outdate();
        let is_under_way = slot.asked.as_ref().is_some_and(|asked| asked.id.is_some());
        if slot.entry.is_some() && !is_under_way && self.old.len() < 2 * OLD_MAX {
            slot.asked.get_or_insert_with(|| AskedName::new().0);
            self.old.push_front(host.into());
        }
    }

    fn outdate(&mut self) {
        for slot in self.hosts.values_mut() {
            slot.outdate();
        }
    }

    /// Nobody answers what was asked: it is asked again by who wants it.
    fn end_questions(&mut self) {
        let is_asked = |slot: &Slot| slot.asked.as_ref().is_some_and(|it| it.id.is_some());
        let asked = self.hosts.iter().filter(|(_, slot)| is_asked(slot));
        let asked: Vec<_> = asked.map(|(host, _)| host.clone()).collect();
        asked.iter().for_each(|host| self.leave(host));
    }
}

impl AskedName {
    fn new() -> (Self, watch::Receiver<()>) {
        let (ended, waiting) = watch::channel(());
        let asked = Self {
            id: None,
            ended,
            is_outdated: false,
        };
        (asked, waiting)
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
