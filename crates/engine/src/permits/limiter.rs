//! What all workers share of limits: the ledger, its clock, what was refused lately, and what is
//! other than configured.
//!
//! A limit is what the configuration says, with what the overrides file says in place of that, with
//! what was set while running on top. The ledger is told the outcome alone.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use limits::{Change, Definition, Ledger, TenantDefinition, TenantLease, Time};
use os::cgroup::Layout;
use tokio::sync::Notify;

use super::compiled::{Kept, Limits};
use super::gates::Gates;
use super::refusals::Refusals;
use super::throttled::Throttles;

/// How often the ledger does what time asks for.
const TICK_MS: u64 = 200;
/// Limits that are other than configured, at most; a further change works, but not over a reload.
const CHANGED_MAX: usize = 2_048;

/// Places of tenants of rows before those are looked for that nobody holds.
const LENT_MIN: usize = 1_024;

/// The places of tenants of rows, by tenant and the share that its plan says.
type Lent = HashMap<(Box<str>, u32), Weak<TenantLease>>;

/// The limits' part of what workers share.
#[derive(Debug)]
pub struct Limiter {
    /// Who holds what.
    pub ledger: Ledger,
    /// Gates that scripts have made up.
    pub gates: Arc<Gates>,
    /// What was refused lately.
    pub refusals: Refusals,
    /// How control groups with a quota stand.
    throttles: Throttles,
    /// The places of tenants of rows. Held for one look or change.
    lent: Mutex<Lent>,
    /// How many there may be before those are forgotten that nobody holds.
    lent_max: AtomicUsize,
    /// Somebody waits for permits of the store that machines share.
    pub(crate) draws: Notify,
    /// Which run of the server this is, for that store: no other has the number.
    pub(crate) run: u64,
    /// The beginning of the ledger's time.
    started: Instant,
    /// Tells for how long the machine has been suspended, in nanoseconds; until a generation has limits that machines share
    /// nobody asks: leases end in that time, too.
    suspended_ns: fn() -> u64,
    /// What it told when it was asked first; the greatest number until then.
    suspended_from_ns: AtomicU64,
    ticked_ms: AtomicU64,
    /// Held while a generation comes into force or an operator asks for a change.
    changed: Mutex<Vec<Changed>>,
}

/// A limit that is other than configured.
#[derive(Debug, Clone)]
struct Changed {
    /// As the configuration has it.
    configured: Definition,
    /// What was kept of changes, in place of that.
    kept: Option<Kept>,
    /// What was set while running, on top.
    set: Vec<Change>,
}

/// Who has made a limit what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The configuration.
    Configured,
    /// An operator, while running.
    Set,
    /// A line of the overrides file.
    Kept(Arc<str>, usize),
    /// An operator, while running, and for what was not set a line of the overrides file.
    SetAndKept(Arc<str>, usize),
}

impl Limiter {
    /// Makes one without limits, for so many workers; the ledger's time begins at `started`.
    pub fn new(workers: usize, started: Instant) -> Self {
        // Keys of clients are hashed: nobody may know how.
        let random = RandomState::new();
        let seed = std::array::from_fn(|at| random.hash_one(at));
        Self {
            ledger: Ledger::new(workers, seed),
            gates: Arc::default(),
            refusals: Refusals::default(),
            throttles: Throttles::default(),
            lent: Mutex::default(),
            lent_max: AtomicUsize::new(LENT_MIN),
            draws: Notify::new(),
            run: random.hash_one("run"),
            started,
            suspended_ns: os::cpu::suspended_ns,
            suspended_from_ns: AtomicU64::new(u64::MAX),
            ticked_ms: AtomicU64::new(0),
            changed: Mutex::default(),
        }
    }

    /// Has the store asked for whoever came to wait, where machines share one.
    pub(crate) fn draw(&self) {
        if self.ledger.take_draw() {
            self.draws.notify_one();
        }
    }

    /// The ledger's time at a moment.
    pub fn time(&self, moment: Instant) -> Time {
        let since = moment.saturating_duration_since(self.started);
        let since_ns = since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos());
        Time(match self.suspended_from_ns.load(Relaxed) {
            u64::MAX => since_ns,
            from_ns => since_ns + (self.suspended_ns)().saturating_sub(from_ns),
        })
    }

    /// The ledger's time for somebody who asks for permits and began at this moment: where permits are leased, now, as a server
    /// may have been stopped since, and what it held is another's.
    pub(super) fn time_to_ask(&self, moment: Instant) -> Time {
        match self.suspended_from_ns.load(Relaxed) {
            u64::MAX => self.time(moment),
            _ => self.time(Instant::now()),
        }
    }

    /// How long the request has waited that waits longest for a permit; `None` where none waits.
    pub fn oldest_wait(&self, moment: Instant) -> Option<Duration> {
        self.ledger.oldest_wait(self.time(moment))
    }

    /// Has limits of control groups follow how these are kept from processors, if it is time.
    pub(crate) fn follow_groups(&self, limits: &Limits, layout: &Layout, now: Instant) {
        let now = (self.time(now), now);
        self.throttles.step(&self.ledger, now, limits, layout);
    }

    /// Follows them no more.
    pub(crate) fn let_groups_go(&self, limits: &Limits) {
        let now = self.time(Instant::now());
        self.throttles.let_go(&self.ledger, now, limits);
    }

    /// Puts the limits of a generation in force. What was set while running stays set where
    /// configuration and overrides file say of the limit what they said before.
    pub fn put_in_force(&self, limits: &Limits) {
        let now = self.time(Instant::now());
        let mut changed = self.lock();
        let before = std::mem::replace(&mut *changed, kept_of(limits));
        let set = before.into_iter().filter(|was| !was.set.is_empty());
        for was in set.filter(|was| limits.has(&was.configured)) {
            match (of(&mut changed, &was.configured.identity), &was.kept) {
                (Some(it), Some(kept)) if it.is_kept_as(&kept.definition) => it.set = was.set,
                (None, None) => changed.push(was),
                _ => {}
            }
        }
        let in_force = in_force(limits, &changed);
        // Before the limits, as who comes to one of them may have to wait for the store at once.
        if limits.fleet.is_some() {
            // From here on for good: time does not run back.
            let now_ns = (self.suspended_ns)();
            let from_ns = &self.suspended_from_ns;
            // Another generation may have it counted already.
            let _ = from_ns.compare_exchange(u64::MAX, now_ns, Relaxed, Relaxed);
        }
        self.ledger.join_fleet(limits.fleet);
        let defined = self
            .ledger
            .define(now, &in_force, limits.tenant_definitions());
        limits.name(defined);
        self.ledger.set_reserves(now, &limits.reserves());
    }

    /// A place in the ledger for a tenant of rows, as long as it is held: the one that it has already, by its name and
    /// weight.
    pub(crate) fn lend(&self, name: &str, weight: u32, keys_max: u32) -> Arc<TenantLease> {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Box::from(name), weight);
        let known = lent.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known {
            return known;
        }
        if lent.len() >= self.lent_max.load(Relaxed) {
            lent.retain(|_, lease| lease.strong_count() > 0);
            self.lent_max.store((lent.len() * 2).max(LENT_MIN), Relaxed);
        }
        let definition = TenantDefinition {
            name: name.to_owned(),
            weight,
            keys_max,
        };
        let lease = Arc::new(self.ledger.lend(self.time(Instant::now()), &definition));
        lent.insert(key, Arc::downgrade(&lease));
        lease
    }

    /// Makes a limit of the generation in force what an operator wants of it, at once and until
    /// configuration or overrides file say something else.
    pub(super) fn set(&self, limits: &Limits, at: usize, wanted: &Definition) {
        self.change(limits, at, |it| {
            for change in differences(&it.in_force(), wanted) {
                it.note(&change);
            }
        });
    }

    /// Takes what was kept of a limit, in place of what had been kept; what was set and
    /// `is_covered` by it is kept now, and set no longer.
    pub(super) fn keep(
        &self,
        limits: &Limits,
        at: usize,
        kept: Kept,
        is_covered: impl Fn(&Change) -> bool,
    ) {
        self.change(limits, at, |it| {
            it.kept = Some(kept);
            it.set.retain(|change| !is_covered(change));
        });
    }

    /// Makes a limit what the configuration says.
    pub(super) fn forget(&self, limits: &Limits, at: usize) {
        self.change(limits, at, |it| {
            it.kept = None;
            it.set.clear();
        });
    }

    /// Hears that a line of the overrides file is gone: those behind it have moved up.
    pub(super) fn move_up_from(&self, gone: usize) {
        let mut changed = self.lock();
        for kept in changed.iter_mut().filter_map(|it| it.kept.as_mut()) {
            if kept.line > gone {
                kept.line -= 1;
            }
        }
    }

    /// A limit as it is now, and who says so.
    pub(crate) fn in_force(&self, configured: &Definition) -> (Definition, Origin) {
        let changed = self.lock();
        let found = changed.iter().find(|it| it.configured == *configured);
        match found {
            Some(it) => (it.in_force(), it.origin()),
            None => (configured.clone(), Origin::Configured),
        }
    }

    /// Limits that are other than configured, each in a line, in the order of their names.
    pub(crate) fn changes(&self) -> String {
        let changed = self.lock();
        let lines = changed.iter().map(|it| format!("{:?}\n", it.in_force()));
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        lines.concat()
    }

    /// Changes what is known of a limit, and the limit with it.
    fn change(&self, limits: &Limits, at: usize, change: impl FnOnce(&mut Changed)) {
        let (Some(id), Some(configured)) = (limits.id(at), limits.definitions().get(at)) else {
            return;
        };
        let now = self.time(Instant::now());
        let mut changed = self.lock();
        let known = of(&mut changed, &configured.identity).cloned();
        let mut it = known.unwrap_or_else(|| Changed {
            configured: configured.clone(),
            kept: None,
            set: Vec::new(),
        });
        let before = it.in_force();
        change(&mut it);
        for change in differences(&before, &it.in_force()) {
            self.ledger.change(now, id, &change);
        }
        changed.retain(|it| it.configured.identity != configured.identity);
        if !it.is_as_configured() && changed.len() < CHANGED_MAX {
            changed.push(it);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Changed>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what time asks for, if it is time; any worker may call it, as often as it likes. What
    /// there is to say of refusals is given to `tell`, with the site whose limit it is.
    pub(crate) fn tick(&self, now: Instant, tell: impl Fn(Option<&str>, &dyn Fn())) {
        let time = self.time(now);
        let now_ms = time.0 / 1_000_000;
        let last_ms = self.ticked_ms.load(Relaxed);
        let is_due = now_ms.saturating_sub(last_ms) >= TICK_MS;
        let mine = is_due
            && self
                .ticked_ms
                .compare_exchange(last_ms, now_ms, Relaxed, Relaxed)
                .is_ok();
        if mine {
            self.ledger.tick(time);
            self.refusals.say(now_ms, tell);
        }
    }
}

/// What is known of a limit that is other than configured.
fn of<'a>(changed: &'a mut [Changed], identity: &str) -> Option<&'a mut Changed> {
    let mut known = changed.iter_mut();
    known.find(|it| it.configured.identity == identity)
}

/// The limits as they hold, in the order of their indexes.
fn in_force<'a>(limits: &'a Limits, changed: &[Changed]) -> Cow<'a, [Definition]> {
    let mut definitions = Cow::Borrowed(limits.definitions());
    if changed.is_empty() {
        return definitions;
    }
    let changed: HashMap<&str, &Changed> = changed
        .iter()
        .map(|it| (it.configured.identity.as_str(), it))
        .collect();
    for definition in definitions.to_mut() {
        if let Some(it) = changed.get(definition.identity.as_str()) {
            *definition = it.in_force();
        }
    }
    definitions
}

/// The limits of which something was kept.
fn kept_of(limits: &Limits) -> Vec<Changed> {
    let kept = limits.kept().iter().filter_map(|(at, kept)| {
        Some(Changed {
            configured: limits.definitions().get(*at)?.clone(),
            kept: Some(kept.clone()),
            set: Vec::new(),
        })
    });
    kept.collect()
}

/// What has to be changed for a limit to become what is wanted.
pub(super) fn differences(now: &Definition, wanted: &Definition) -> Vec<Change> {
    let mut changes = Vec::new();
    if now.concurrent != wanted.concurrent {
        changes.push(Change::Concurrent(wanted.concurrent));
    }
    if now.queue != wanted.queue {
        changes.push(Change::Queue(wanted.queue));
    }
    if now.wait != wanted.wait {
        changes.push(Change::Wait(wanted.wait));
    }
    if now.late != wanted.late {
        changes.push(Change::Late(wanted.late));
    }
    if now.rate != wanted.rate {
        changes.push(Change::Rate(wanted.rate));
    }
    if now.mode != wanted.mode {
        changes.push(Change::Mode(wanted.mode));
    }
    changes
}

impl Changed {
    /// The limit as it is.
    fn in_force(&self) -> Definition {
        let kept = self.kept.as_ref().map(|kept| &kept.definition);
        let mut now = kept.unwrap_or(&self.configured).clone();
        for change in &self.set {
            match *change {
                Change::Concurrent(concurrent) => now.concurrent = concurrent,
                Change::Queue(queue) => now.queue = queue,
                Change::Wait(wait) => now.wait = wait,
                Change::Late(late) => now.late = late,
                Change::Rate(rate) => now.rate = rate,
                Change::Mode(mode) => now.mode = mode,
            }
        }
        now
    }

    fn is_as_configured(&self) -> bool {
        self.kept.is_none() && self.set.is_empty()
    }

    fn is_kept_as(&self, definition: &Definition) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| kept.definition == *definition)
    }

    fn origin(&self) -> Origin {
        match &self.kept {
            None => Origin::Set,
            Some(kept) if self.set.is_empty() => Origin::Kept(Arc::clone(&kept.file), kept.line),
            Some(kept) => Origin::SetAndKept(Arc::clone(&kept.file), kept.line),
        }
    }

    /// A change takes the place of an earlier one of its kind.
    fn note(&mut self, change: &Change) {
        let kind = std::mem::discriminant(change);
        self.set
            .retain(|known| std::mem::discriminant(known) != kind);
        self.set.push(*change);
    }
}

impl Origin {
    /// The overrides file.
    pub(super) fn file(&self) -> Option<&str> {
        match self {
            Self::Configured | Self::Set => None,
            Self::Kept(file, _) | Self::SetAndKept(file, _) => Some(file),
        }
    }

    /// As displayed, where the overrides file is named elsewhere.
    pub(super) fn without_file(&self) -> String {
        match self {
            Self::Configured | Self::Set => self.to_string(),
            Self::Kept(_, line) => format!("kept, line {line}"),
            Self::SetAndKept(_, line) => format!("set; kept, line {line}"),
        }
    }
}

impl fmt::Display for Origin {
    /// `config`, `set`, or the overrides file and line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => out.write_str("config"),
            Self::Set => out.write_str("set"),
            Self::Kept(file, line) => write!(out, "{file}:{line}"),
            Self::SetAndKept(file, line) => write!(out, "set, {file}:{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_a_machine_was_suspended_counts_where_permits_are_leased() {
        let started = Instant::now();
        let mut limiter = Limiter::new(1, started);
        limiter.suspended_ns = || 7_000_000_000;
        let moment = started + Duration::from_secs(1);
        assert_eq!(limiter.time(moment), Time(1_000_000_000));
        assert_eq!(limiter.time_to_ask(moment), Time(1_000_000_000));
        limiter.suspended_from_ns = AtomicU64::new(3_000_000_000);
        assert_eq!(limiter.time(moment), Time(5_000_000_000));
        let asked = limiter.time_to_ask(started);
        assert!(asked >= limiter.time(started));
    }
}
