//! The ledger: who holds which permits, who waits, for all workers. Start reading here.
//!
//! Three kinds of locks, always taken in this order: the **wait_queue** (everything that waits), the
//! **cells** of workers by index (each a few permits of every fixed limit), the **shards** by index
//! (all gates). A request locks its own worker's cells, which nobody else wants, and there finds
//! either a permit of every limit, or which shards to lock besides. It takes a permit everywhere
//! or nowhere while all of these locks are held, so nobody ever sees half of an attempt.
//!
//! What stops a request for longer than that goes to the wait_queue: a gate that is full or waited at,
//! and permits that lie in other workers' cells. Those are called in, all cells locked, before
//! anybody is refused or queued; the gate is then counted in its shard alone, until it has been
//! little used for a while. So a limit is never exceeded, and no permit lies idle while one waits.
//!
//! Limits are read from a table that each worker has under its own lock. Who holds the wait_queue and
//! all cells may replace it: no request is between two tables. A new one is made beforehand, by
//! the one who holds the **register**, which is locked before all others.
//!
//! Nothing is allocated, no key is walked over and nothing of others is called under the lock of
//! a shard or of cells, but for a few that say so (`define`, `drift`). Wakers are called when no
//! lock but perhaps the register's is held: they may not define limits. Left out: when requests ask, and for what; that is the gateway's business.

mod attempt;
mod cells;
mod counters;
mod define;
mod digest;
mod entry;
mod fleet;
mod fleet_rates;
mod gate;
mod handle;
mod holds;
mod lease;
mod rates;
mod reserve;
mod route;
mod settle;
mod shadow;
mod shard;
mod view;
mod wait_queue;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use crate::Time;
use crate::ask::{Ask, LimitId, TenantId, WANTS_MAX};
use crate::definition::{Change, Defined, Definition, TenantDefinition};
use crate::fleet::{FleetKey, FleetRules, FleetState, StoreReply};
use crate::look::{GateLook, LimitLook, Steered};
use crate::permit::Permit;
use crate::refusal::{Refusal, Why};
use crate::sync::{Apart, Lock};
use crate::ticket::Ticket;

use attempt::Attempt;
use cells::Cells;
use define::Register;
use digest::Secret;
use route::{Bits, FEW, Keys};
use shadow::Shadow;
use shard::Shard;
use wait_queue::WaitQueue;
use waiting::Verdict;

pub use fleet::{FleetCall, FleetLook, LeaseLook};
pub use fleet_rates::RateTicket;
pub(crate) use handle::{End, Handle};
pub(crate) use holds::Holds;
pub use lease::TenantLease;
pub use rates::RateCheck;
pub(crate) use reserve::Reserved;
pub(crate) use wait_queue::Charged;
pub(crate) use waiting::Wait;

/// Shards for each worker, so that two rarely meet at one.
const SHARDS_A_WORKER: usize = 4;
/// Shards of a ledger. Their set fits a word.
const SHARDS: std::ops::RangeInclusive<usize> = 8..=64;

/// All limits of a process and what is counted at them. Workers share one.
pub struct Ledger {
    /// One for each worker.
    handles: Box<[Arc<Handle>]>,
}

/// What the ledger says to a request.
#[derive(Debug)]
pub enum Admission {
    /// It may go on, and holds a permit at each of its gates.
    Admitted(Permit),
    /// It waits at one gate and holds nothing.
    Waiting(Ticket),
    /// It may not go on.
    Refused(Box<Refusal>),
}

/// What a ledger is made of.
pub(crate) struct Books {
    cells: Box<[Apart<Lock<Cells>>]>,
    shards: Box<[Apart<Lock<Shard>>]>,
    register: Lock<Register>,
    wait_queue: Apart<Lock<WaitQueue>>,
    /// Whether a limit has reserves.
    has_reserves: AtomicBool,
    secret: Secret,
    /// For what queues hash.
    queue_seed: u64,
}

impl Ledger {
    /// Makes a ledger without limits for a number of workers, with a secret for hashing keys.
    #[must_use]
    pub fn new(workers: usize, seed: [u64; 4]) -> Self {
        let workers = workers.max(1);
        let shards = (workers * SHARDS_A_WORKER)
            .next_power_of_two()
            .clamp(*SHARDS.start(), *SHARDS.end());
        let [first, second, queue_seed, _] = seed;
        let books = Arc::new(Books {
            cells: (0..workers).map(|_| Apart::default()).collect(),
            shards: (0..shards)
                .map(|_| Apart(Lock::new(Shard::new())))
                .collect(),
            register: Lock::default(),
            wait_queue: Apart::default(),
            has_reserves: AtomicBool::new(false),
            secret: Secret([first, second]),
            queue_seed,
        });
        let handle = |worker| Handle::new(worker, books.clone());
        Self {
            handles: (0..workers)
                .map(|worker| Arc::new(handle(worker)))
                .collect(),
        }
    }

    /// Puts a generation's limits in force. One whose identity was there keeps its state; what was
    /// changed while running is as the definition has it now.
    ///
    /// Limits that are not named any more admit everybody, and are forgotten with their last permit.
    pub fn define(
        &self,
        now: Time,
        limits: &[Definition],
        tenants: &[TenantDefinition],
    ) -> Defined {
        self.books().define(now, limits, tenants)
    }

    /// Gives a tenant a place for as long as the lease is held, or a generation names no other there: for those
    /// whom no configuration names.
    #[must_use]
    pub fn lend(&self, now: Time, definition: &TenantDefinition) -> TenantLease {
        self.books().lend(now, definition)
    }

    /// Says of how many permits of limits with one key tenants are sure: each is lent while its tenant
    /// does not want it, and is the tenant's as soon as a permit comes back. Those of before are not any
    /// more.
    pub fn set_reserves(&self, now: Time, reserves: &[(LimitId, TenantId, u32)]) {
        self.books().set_reserves(now, reserves);
    }

    /// Changes a limit at once. Nobody is evicted; what a change frees is handed out.
    pub fn change(&self, now: Time, limit: LimitId, change: &Change) {
        self.books().change(now, limit, change);
    }

    /// Has `decide` say how many permits a fixed limit has from now on. That lasts until the limit is
    /// defined or changed otherwise.
    pub fn steer(&self, now: Time, limit: LimitId, decide: impl FnOnce(Steered) -> u32) {
        self.books().steer(now, limit, decide);
    }

    /// Checks the rates of all limits of a request, and charges all, or none. What those in shadow would have refused is
    /// answered in the order of the request's limits.
    pub fn check_rates(&self, now: Time, ask: &Ask<'_>) -> RateCheck {
        let handle = self.handle(ask.worker);
        handle.books.check_rates(handle, now, ask, None)
    }

    /// Does so again for a request that has waited for the store.
    pub fn check_rates_again(&self, now: Time, ask: &Ask<'_>, ticket: RateTicket) -> RateCheck {
        let handle = self.handle(ask.worker);
        handle.books.check_rates(handle, now, ask, Some(ticket))
    }

    /// Takes a permit at every gate of a request, or at none.
    pub fn admit(&self, now: Time, ask: &Ask<'_>) -> Admission {
        let handle = self.handle(ask.worker);
        if let [only] = ask.wants {
            let taken = handle.books.cells[handle.worker].lock().take_one(only);
            if let Some(hold) = taken {
                let holds = Holds::of_one(hold);
                return Admission::Admitted(Permit::new(handle.clone(), holds, now));
            }
        }
        admit_elsewhere(handle, now, ask)
    }

    /// Does what time asks for: ends waits, forgets idle keys, settles. A few times a second.
    pub fn tick(&self, now: Time) {
        self.books().tick(now);
    }

    /// Has limits with leased permits ask by these rules, or no more. What was leased stays so.
    pub fn join_fleet(&self, rules: Option<FleetRules>) {
        self.books().join_fleet(rules);
    }

    /// Tells, once, whether somebody waits for permits of the store for whom nobody has asked yet.
    pub fn take_draw(&self) -> bool {
        self.books().take_draw()
    }

    /// Makes leased permits what they may be now, and tells what the store is to be asked, if anything. To be called every few
    /// [`FleetCall::ROUND`], by one thread.
    pub fn fleet_round(&self, now: Time) -> Option<FleetCall> {
        self.books().fleet_round(now)
    }

    /// Hears what the store said to the call of this number; `None`: nothing.
    pub fn hear_fleet(&self, now: Time, seq: u64, reply: Option<&StoreReply>) {
        self.books().hear_fleet(now, seq, reply);
    }

    /// Hears from the store, between its answers, that these keys are to be claimed: the next round does so.
    pub fn call_fleet(&self, now: Time, called: &[FleetKey]) {
        self.books().call_fleet(now, called);
    }

    /// Tells how the store is, and by which rules it is asked.
    #[must_use]
    pub fn fleet_state(&self, now: Time) -> Option<(FleetState, FleetRules)> {
        self.books().fleet_state(now)
    }

    /// Tells how the store is, and what is leased of it.
    #[must_use]
    pub fn fleet_look(&self, now: Time) -> Option<FleetLook> {
        self.books().fleet_look(now)
    }

    /// Shows the gates of one limit or of all, at most `keys_max`: the busiest.
    #[must_use]
    pub fn look(&self, now: Time, limit: Option<LimitId>, keys_max: usize) -> Vec<GateLook> {
        self.books().look(now, limit, keys_max)
    }

    /// Tells how long the request has waited that waits longest; `None` where none waits.
    #[must_use]
    pub fn oldest_wait(&self, now: Time) -> Option<Duration> {
        self.books().oldest_wait(now)
    }

    /// Tells what each limit in force holds and has come to, all its keys together, in no order.
    /// Every key is looked at, a few under one lock.
    #[must_use]
    pub fn totals(&self) -> Vec<LimitLook> {
        self.books().totals()
    }

    /// Tells by how much the permits out differ from what the gates count: 0, or there is a bug.
    ///
    /// Walks all keys with everything locked: for tests and the curious, not for every second.
    #[must_use]
    pub fn drift(&self) -> u64 {
        self.books().drift()
    }

    fn books(&self) -> &Books {
        &self.handle(0).books
    }

    fn handle(&self, worker: usize) -> &Arc<Handle> {
        // There is at least one.
        self.handles.get(worker).unwrap_or(&self.handles[0])
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Ledger")
            .field("workers", &self.handles.len())
            .finish_non_exhaustive()
    }
}

/// The way of a request that has several limits, or did not find the permit of its only one in its
/// worker's cells. Apart, so that those who did pay for none of its room on the stack.
#[inline(never)]
fn admit_elsewhere(handle: &Arc<Handle>, now: Time, ask: &Ask<'_>) -> Admission {
    let wants = ask.wants.get(..WANTS_MAX).unwrap_or(ask.wants);
    if wants.len() != 1 && wants.iter().all(|want| want.key.is_none()) {
        let mut holds = Holds::with_capacity(wants.len());
        let taken = handle.books.cells[handle.worker]
            .lock()
            .take(wants, &mut holds);
        if taken {
            return Admission::Admitted(Permit::new(handle.clone(), holds, now));
        }
    }
    let ask = Ask { wants, ..*ask };
    match wants.len() {
        ..=FEW => admit_among_shards::<FEW>(handle, now, &ask),
        _ => admit_among_shards::<WANTS_MAX>(handle, now, &ask),
    }
}

/// Looks at all gates of at most `N` limits at once.
fn admit_among_shards<const N: usize>(handle: &Arc<Handle>, now: Time, ask: &Ask<'_>) -> Admission {
    let mut holds = Holds::with_capacity(ask.wants.len());
    let books = &handle.books;
    let mut keys = books.keys::<N>(handle.worker, ask.wants);
    loop {
        // Each need is met or replaced by a lesser one, so this ends after a few turns.
        match books.attempt(handle.worker, now, ask, &keys, &mut holds) {
            Attempt::Taken(over) if over.is_empty() => {
                return Admission::Admitted(permit(handle, now, ask, holds));
            }
            Attempt::Taken(over) => {
                return admitted_in_shadow(handle, now, ask, holds, &keys, over);
            }
            Attempt::Refused(facts) => {
                let refusal = facts.refuse(Why::Full, Duration::ZERO, None);
                return Admission::Refused(Box::new(refusal));
            }
            Attempt::WaitQueue => break,
            Attempt::Need(need) => {
                let table = books.cells[handle.worker].lock().table.clone();
                books.provide(now, ask, &table, &mut keys, need);
            }
        }
    }
    let mut keys = keys.widened();
    match books.ask_wait_queue(now, ask, &mut keys, &mut holds) {
        Verdict::Admitted(over) => admitted_in_shadow(handle, now, ask, holds, &keys, over),
        Verdict::Waiting(id, until) => Admission::Waiting(Ticket::new(handle.clone(), id, until)),
        Verdict::Refused(refusal) => Admission::Refused(refusal),
    }
}

/// The permit of a request that has taken its places, counted at its tenant's reserves.
fn permit(handle: &Arc<Handle>, now: Time, ask: &Ask<'_>, holds: Holds) -> Permit {
    let books = &handle.books;
    let reserved = books.has_reserves.load(Acquire).then(|| {
        let table = books.cells[handle.worker].lock().table.clone();
        table.reserved(ask.tenant.0, holds.iter())
    });
    let mut permit = Permit::new(handle.clone(), holds, now);
    if let Some(reserved) = reserved.filter(|it| !it.is_empty()) {
        permit.keep_reserved(reserved);
    }
    permit
}

/// Admits a request, and tells what the limits in shadow among `over` would have said.
#[cold]
#[inline(never)]
fn admitted_in_shadow<const N: usize>(
    handle: &Arc<Handle>,
    now: Time,
    ask: &Ask<'_>,
    holds: Holds,
    keys: &Keys<N>,
    over: Bits,
) -> Admission {
    let mut permit = permit(handle, now, ask, holds);
    let shadows = handle.books.shadows(now, ask, keys, over, Shadow::Permits);
    if !shadows.is_empty() {
        permit.keep_shadows(shadows);
    }
    Admission::Admitted(permit)
}
