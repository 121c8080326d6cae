//! The limits and tenants in force, as every worker reads them: a table that is replaced whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::counters::Counters;
use super::digest::{Kind, Secret};
use super::gate::Gate;
use super::holds::Place;
use super::reserve::Reserve;
use crate::Time;
use crate::adaptive::Adaptive;
use crate::ask::{LimitId, TenantId};
use crate::definition::{
    Change, Concurrent, Definition, Keyed, Mode, RateDefinition, Shared, TenantDefinition,
};
use crate::fleet::OnLoss;
use crate::rate::Rate;
use crate::refusal::Why;
use crate::sync::Lock;

/// Permits a cell draws at once, at most.
const BATCH_MAX: u32 = 64;
/// Permits for each worker that a limit needs for being counted in cells.
const PERMITS_A_WORKER_MIN: u32 = 4;
/// What a turn is taken for where none was measured.
const UNMEASURED: Duration = Duration::from_secs(1);
/// Turns without a refusal after which one begins a new row.
const TURNS: u32 = 100;

/// The limits and tenants in force.
#[derive(Debug, Default, Clone)]
pub(crate) struct Table {
    pub(crate) limits: Vec<Option<Arc<Entry>>>,
    pub(crate) tenants: Arc<Vec<Arc<Tenant>>>,
}

/// One limit as it stands.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) id: LimitId,
    pub(crate) name: Arc<str>,
    pub(crate) identity: Arc<str>,
    pub(super) shared: Shared,
    pub(super) keyed: Keyed,
    /// As last defined.
    pub(super) defined: Settings,
    /// With what was changed since.
    pub(crate) settings: Settings,
    /// Where a fixed limit's gate is.
    pub(crate) place: Place,
    /// Not configured any more; it admits everybody until the last permit is back.
    pub(crate) retired: bool,
    /// What tenants have of it before others.
    pub(crate) reserves: Arc<[Reserve]>,
    /// Where its permits are leased: what holds while the store is away, and what its keys are told from others' by.
    pub(crate) fleet: Option<(OnLoss, u64)>,
    pub(crate) life: Arc<Life>,
}

/// What may change while a limit runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) concurrent: Option<Concurrent>,
    pub(crate) queue: u32,
    pub(crate) wait: Duration,
    pub(crate) late: Option<Duration>,
    pub(crate) rate: Option<RateDefinition>,
    pub(crate) mode: Mode,
}

/// What a limit keeps from one entry to the next.
#[derive(Debug)]
pub(crate) struct Life {
    /// Permits there are. Written while no worker can read it.
    cap: AtomicU32,
    /// Gates that exist for it.
    pub(crate) gates: AtomicU32,
    /// What it has come to. Shared with what stood in its place before under its identity.
    pub(crate) counters: Arc<Counters>,
    /// What `auto` found out. Most limits have a fixed number, and this is large.
    pub(crate) adaptive: Lock<Option<Box<Adaptive>>>,
}

impl Table {
    /// The limit of a name, if it is in force.
    pub(crate) fn limit(&self, id: LimitId) -> Option<&Arc<Entry>> {
        let entry = self.limits.get(id.index as usize)?.as_ref()?;
        (entry.id.version == id.version && !entry.retired).then_some(entry)
    }

    /// The limit of something that refers to it, which keeps it from being forgotten.
    pub(crate) fn at(&self, index: u32) -> Option<&Arc<Entry>> {
        self.limits.get(index as usize)?.as_ref()
    }

    pub(crate) fn tenant(&self, id: TenantId) -> Option<&Arc<Tenant>> {
        self.tenants.get(id.0 as usize)
    }
}

impl Settings {
    pub(crate) fn of(definition: &Definition) -> Self {
        Self {
            concurrent: definition.concurrent,
            queue: definition.queue,
            wait: definition.wait,
            late: definition.late,
            rate: definition.rate,
            mode: definition.mode,
        }
    }

    pub(crate) fn with(self, change: &Change) -> Self {
        match *change {
            Change::Concurrent(concurrent) => Self { concurrent, ..self },
            Change::Queue(queue) => Self { queue, ..self },
            Change::Wait(wait) => Self { wait, ..self },
            Change::Late(late) => Self { late, ..self },
            Change::Rate(rate) => Self { rate, ..self },
            Change::Mode(mode) => Self { mode, ..self },
        }
    }
}

impl Entry {
    /// A limit as it is defined.
    pub(crate) fn of(
        (id, place): (LimitId, Place),
        definition: &Definition,
        counters: Arc<Counters>,
    ) -> Self {
        let settings = Settings::of(definition);
        Self {
            id,
            name: definition.name.as_str().into(),
            identity: definition.identity.as_str().into(),
            shared: definition.shared,
            keyed: definition.keyed,
            defined: settings,
            settings,
            place,
            retired: false,
            reserves: Arc::default(),
            fleet: definition.fleet.map(|on_loss| {
                let identity = definition.identity.as_bytes();
                let [number, _] = Secret::FLEET.digest(0, Kind::Key, identity);
                (on_loss, number)
            }),
            life: Arc::new(Life::new(counters)),
        }
    }

    /// The same limit as it is defined now; `None` where it is as before, and nothing was changed.
    pub(crate) fn redefined(&self, definition: &Definition) -> Option<Self> {
        let settings = Settings::of(definition);
        let is_same = *self.name == *definition.name
            && self.shared == definition.shared
            && self.defined == settings
            && self.settings == settings
            && self.fleet.map(|(on_loss, _)| on_loss) == definition.fleet
            && !self.retired;
        (!is_same).then(|| Self {
            name: definition.name.as_str().into(),
            shared: definition.shared,
            defined: settings,
            settings,
            retired: false,
            fleet: self
                .fleet
                .zip(definition.fleet)
                .map(|((_, number), on_loss)| (on_loss, number)),
            ..self.clone()
        })
    }

    /// Whether a definition has its keys and permits come from where they do.
    pub(crate) fn is_keyed_as(&self, definition: &Definition) -> bool {
        self.keyed == definition.keyed && self.fleet.is_some() == definition.fleet.is_some()
    }

    pub(crate) fn index(&self) -> u32 {
        self.id.index
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.keyed == Keyed::Fixed
    }

    /// Whether several tenants compete in its queues.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared == Shared::Tenants
    }

    /// Whether a full gate of it stops anybody.
    pub(crate) fn enforces(&self) -> bool {
        self.settings.mode == Mode::Enforce && !self.retired && self.settings.concurrent.is_some()
    }

    /// Whether one more than so many would be refused, were it not in shadow. Who waits in a queue
    /// passes as well there, so there are as many more as may wait.
    pub(crate) fn would_refuse(&self, in_flight: u32, cap: u32) -> bool {
        self.settings.mode == Mode::Shadow && in_flight >= cap.saturating_add(self.settings.queue)
    }

    /// Permits there are at a gate of it: of leased ones those that are.
    #[inline]
    pub(crate) fn cap_at(&self, gate: &Gate, now: Time) -> u32 {
        match self.fleet {
            None => self.cap(),
            Some(_) if now < gate.leased_until => gate.leased.min(self.cap()),
            Some(_) => 0,
        }
    }

    /// Permits of a gate that may still come from the store.
    pub(crate) fn to_come(&self, gate: &Gate) -> u32 {
        match self.fleet {
            Some(_) if !gate.is_short => self.cap().saturating_sub(gate.leased),
            _ => 0,
        }
    }

    /// Whether its rate is drawn of the store. One that counts permits as well leases these.
    pub(crate) fn shares_rate(&self) -> bool {
        let Settings {
            concurrent, rate, ..
        } = self.settings;
        self.fleet.is_some() && concurrent.is_none() && rate.is_some()
    }

    /// Whether nobody asks the store for a gate yet.
    pub(crate) fn is_unasked(&self, gate: &Gate) -> bool {
        self.fleet.is_some() && !gate.is_listed
    }

    /// Permits there are for a key.
    pub(crate) fn cap(&self) -> u32 {
        self.life.cap.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cap(&self, cap: u32) {
        self.life.cap.store(cap, Ordering::Relaxed);
    }

    pub(crate) fn rate(&self) -> Option<Rate> {
        let RateDefinition { count, per, burst } = self.settings.rate?;
        Some(Rate::new(count, per, burst))
    }

    /// How long after one its next may go on where permits are held for so long, and after how many such turns it is
    /// certain that nobody is behind.
    pub(crate) fn turn(&self, why: Why, held: Duration) -> (Duration, u32) {
        match self.settings.rate.filter(|_| why == Why::Rate) {
            Some(rate) => (rate.per / rate.count.max(1), rate.burst),
            None if held.is_zero() => (UNMEASURED, TURNS),
            None => (held / self.cap().max(1), TURNS),
        }
    }

    pub(crate) fn is_auto(&self) -> bool {
        self.is_fixed() && matches!(self.settings.concurrent, Some(Concurrent::Auto { .. }))
    }

    /// Whether it may be counted in workers' cells: fixed, and enough permits for all of them.
    pub(crate) fn suits_cells(&self, workers: usize) -> bool {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX);
        self.is_fixed()
            && !self.is_auto()
            && self.fleet.is_none()
            && !self.retired
            && self.reserves.is_empty()
            && self.settings.concurrent.is_some()
            && self.cap() / PERMITS_A_WORKER_MIN >= workers
    }

    /// Permits a cell draws at once.
    pub(crate) fn batch(&self, workers: usize) -> u32 {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX);
        (self.cap() / workers.saturating_mul(PERMITS_A_WORKER_MIN)).clamp(1, BATCH_MAX)
    }
}

impl Life {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self {
            cap: AtomicU32::new(0),
            gates: AtomicU32::new(0),
            counters,
            adaptive: Lock::new(None),
        }
    }
}

/// One tenant as it stands, or a place for one.
#[derive(Debug, Default)]
pub(crate) struct Tenant {
    /// As the generation in force calls it; empty where none does.
    pub(crate) name: String,
    /// Written where somebody is lent the place.
    weight: AtomicU32,
    keys_max: AtomicU32,
    pub(crate) keys: Arc<KeyCount>,
    /// Whether somebody has the place whom no generation names.
    is_lent: AtomicBool,
}

/// The distinct dynamic keys a tenant has, over all generations.
#[derive(Debug, Default)]
pub(crate) struct KeyCount {
    now: AtomicU32,
    /// None was idle, so none is looked for until then.
    all_busy_until_ns: AtomicU64,
}

/// How long a tenant whose keys were all busy is not searched for an idle one again.
const ALL_BUSY: Duration = Duration::from_millis(100);

impl Tenant {
    /// One that a generation names, with the keys it has.
    pub(super) fn named(definition: &TenantDefinition, keys: Arc<KeyCount>) -> Self {
        Self {
            name: definition.name.clone(),
            weight: AtomicU32::new(definition.weight),
            keys_max: AtomicU32::new(definition.keys_max),
            keys,
            is_lent: AtomicBool::new(false),
        }
    }

    /// A place that no generation names any more, with the keys there still are.
    pub(super) fn left(&self) -> Self {
        Self {
            keys_max: AtomicU32::new(self.keys_max.load(Ordering::Relaxed)),
            keys: Arc::clone(&self.keys),
            ..Self::default()
        }
    }

    /// Is this tenant's from now on. The register is held: nobody else asks for the place.
    pub(super) fn lend(&self, definition: &TenantDefinition) {
        self.weight.store(definition.weight, Ordering::Relaxed);
        self.keys_max.store(definition.keys_max, Ordering::Relaxed);
        self.is_lent.store(true, Ordering::Relaxed);
    }

    /// Is nobody's any more, once its keys are forgotten.
    pub(super) fn give_back(&self) {
        self.is_lent.store(false, Ordering::Release);
    }

    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Counts one key more, unless it has as many as it may.
    pub(crate) fn take_key(&self) -> bool {
        let keys_max = self.keys_max.load(Ordering::Relaxed);
        let more = |keys: u32| (keys < keys_max).then(|| keys + 1);
        self.keys
            .now
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    pub(crate) fn give_key_back(&self) {
        self.keys.now.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether its place may be another's.
    pub(super) fn is_gone(&self) -> bool {
        self.name.is_empty() && !self.is_lent.load(Ordering::Acquire) && !self.has_keys()
    }

    /// Whether it has keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.now.load(Ordering::Relaxed) > 0
    }

    /// Whether it is worth looking for a key that is idle.
    pub(crate) fn may_be_idle(&self, now: Time) -> bool {
        now.0 >= self.keys.all_busy_until_ns.load(Ordering::Relaxed)
    }

    /// Notes that no idle key was found.
    pub(crate) fn note_none_idle(&self, now: Time) {
        let until = now + ALL_BUSY;
        self.keys
            .all_busy_until_ns
            .store(until.0, Ordering::Relaxed);
    }
}
