//! The VMs of one worker and generation: the one that all share, and tenants' own.
//!
//! A tenant's own opens with the first script that a request of its has to run; meanwhile that
//! request waits, and whoever else wants this VM waits for the same opening. A request keeps its VM
//! to its end, and a VM that somebody keeps is not closed. At most so many are open (`scripts.vms`):
//! for another the longest idle closes, and where none is idle the first to become so. As to
//! memory, tenants' VMs come and go within what the worker's VMs have together.
//!
//! When the last request of the generation has ended, `worker_exit` runs in all and they close.

mod opening;
#[cfg(test)]
mod tests;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use script::{Cause, Exceeded, Failure, Script};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use self::opening::{Failed, Opening};
use super::lifecycle::Scripts;
use super::plan::{Plan, Use, VmIndex};
use crate::generation::Generation;
use crate::stats::{ScriptStats, WorkerStats, bump};
use crate::worker::resources::Resources;

/// The VMs of one worker and generation.
pub(crate) struct Vms {
    generation: Arc<Generation>,
    stats: Arc<WorkerStats>,
    shared: Scripts,
    /// By tenant, as the plan counts them.
    own: Box<[Own]>,
    /// Those of tenants that are open.
    open: RefCell<Vec<Rc<OwnVm>>>,
    /// One for each that may be open.
    seats: Arc<Semaphore>,
    /// Openings that wait for a seat.
    wanted: Cell<usize>,
    /// VMs whose `worker_exit` runs.
    closing: Cell<usize>,
    /// Openings under way.
    opening: Cell<usize>,
    /// Requests that wait for a VM.
    waiting: Cell<usize>,
    /// Counts how often a VM became idle.
    turn: Cell<u64>,
    /// Scripts of which it was said that a body was too long for them.
    told: RefCell<HashSet<usize>>,
    /// Told when a VM has closed, or an opening has ended.
    changed: Notify,
    /// Told when no request of the generation is left.
    unused: Notify,
    is_ending: Cell<bool>,
}

/// A tenant's VM, open or not.
#[derive(Default)]
struct Own {
    /// What it may have to run. They outlive the VM, with what was seen of their files.
    scripts: OnceCell<Rc<[Script]>>,
    state: RefCell<State>,
}

#[derive(Default)]
enum State {
    #[default]
    Closed,
    Opening(Rc<Opening>),
    Open(Rc<OwnVm>),
    Failed(Failed),
}

/// A tenant's VM that is open.
struct OwnVm {
    index: usize,
    scripts: Scripts,
    /// How many requests keep it.
    pins: Cell<usize>,
    /// When it became idle, in turns.
    idle_since: Cell<u64>,
    _seat: OwnedSemaphorePermit,
}

/// A tenant's VM that is kept for a request.
pub(crate) struct Pinned {
    vms: Rc<Vms>,
    vm: Rc<OwnVm>,
}

impl fmt::Debug for Vms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vms")
            .field("open", &self.open.borrow().len())
            .finish_non_exhaustive()
    }
}

impl Vms {
    /// Opens the VM that all share. `None`: the generation has no scripts.
    ///
    /// # Errors
    /// The first script of any VM that is no Ruby, or that failed in this one.
    pub(crate) async fn open(
        resources: &Resources,
        shared: &Arc<script::Shared>,
        generation: &Arc<Generation>,
    ) -> Result<Option<Rc<Self>>, Failure> {
        let Some(plan) = &generation.scripts else {
            return Ok(None);
        };
        let own = plan.vms.len().saturating_sub(1);
        Ok(Some(Rc::new(Self {
            shared: Scripts::open(resources, shared, generation, plan).await?,
            generation: Arc::clone(generation),
            stats: Arc::clone(&resources.stats),
            own: (0..own).map(|_| Own::default()).collect(),
            open: RefCell::default(),
            seats: Arc::new(Semaphore::new(plan.vms_max)),
            wanted: Cell::new(0),
            closing: Cell::new(0),
            opening: Cell::new(0),
            waiting: Cell::new(0),
            turn: Cell::new(0),
            told: RefCell::default(),
            changed: Notify::new(),
            unused: Notify::new(),
            is_ending: Cell::new(false),
        })))
    }

    /// The VM that all share.
    pub(super) fn shared(&self) -> &Scripts {
        &self.shared
    }

    /// Whether any tenant has a VM of its own.
    pub(super) fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// Keeps a tenant's VM, if it is open.
    pub(super) fn pin(self: &Rc<Self>, vm: VmIndex) -> Option<Pinned> {
        match &*self.own.get(vm.own()?)?.state.borrow() {
            State::Open(vm) => Some(Pinned::new(self, vm)),
            State::Closed | State::Opening(_) | State::Failed(_) => None,
        }
    }

    /// Keeps a tenant's VM, opened if it is not open; waits for that so long for `script`.
    ///
    /// # Errors
    /// It does not open, or not in time.
    pub(super) async fn pin_opened(
        self: Rc<Self>,
        vm: VmIndex,
        script: Arc<str>,
        wall: Duration,
    ) -> Result<Pinned, Failure> {
        let failed = |exceeded: Exceeded| Failure {
            script: Arc::clone(&script),
            cause: Cause::Budget(Box::new(exceeded)),
        };
        let opening = match vm.own().map(|index| self.opening_of(index)) {
            Some(Ok(opening)) => opening,
            Some(Err(failure)) => return Err(failure),
            None => return Err(failed(exceeded("has no VM of its own", None))),
        };
        let waiting = self.waiting.get();
        let waits_max = self.plan().map_or(0, |plan| plan.budgets.parked);
        if waiting >= waits_max {
            let what = format!("{waiting} scripts wait for their VMs already");
            return Err(failed(exceeded(what, Some("parked"))));
        }
        let _waits = Part::begin(&self, |vms| &vms.waiting);
        match tokio::time::timeout(wall, opening.ended()).await {
            Ok(ended) => ended,
            Err(_) => Err(failed(self.too_late(&opening, wall))),
        }
    }

    fn plan(&self) -> Option<&Plan> {
        self.generation.scripts.as_ref()
    }

    /// Closes the VM that was idle for longest, but for `last`; `false` when there is none.
    fn close_idle(self: &Rc<Self>, last: Option<&Rc<OwnVm>>) -> bool {
        let idle = {
            let open = self.open.borrow();
            let idle = open.iter().filter(|vm| vm.pins.get() == 0);
            let idle = idle.filter(|vm| last.is_none_or(|last| !Rc::ptr_eq(vm, last)));
            idle.min_by_key(|vm| vm.idle_since.get()).cloned()
        };
        let is_any = idle.is_some();
        if let Some(vm) = idle {
            bump(&self.counters().own_closed, 1);
            self.close(&vm);
        }
        is_any
    }

    /// Runs a VM's `worker_exit` in a task of its own, after which it closes. Nobody gets it any
    /// more.
    fn close(self: &Rc<Self>, vm: &Rc<OwnVm>) {
        self.open.borrow_mut().retain(|open| !Rc::ptr_eq(open, vm));
        if let Some(own) = self.own.get(vm.index) {
            own.state.replace(State::Closed);
        }
        let (vm, closing) = (Rc::clone(vm), Part::begin(self, |vms| &vms.closing));
        tokio::task::spawn_local(async move {
            if let Some(plan) = closing.vms.plan() {
                vm.scripts.exit(plan).await;
            }
            drop(vm);
            drop(closing);
        });
    }

    /// Has as many idle VMs closed as seats are wanted.
    fn free_seats(self: &Rc<Self>) {
        while self.closing.get() < self.wanted.get() && self.close_idle(None) {}
    }

    /// Nobody keeps a VM any more.
    fn became_idle(self: &Rc<Self>, vm: &Rc<OwnVm>) {
        let turn = self.turn.get() + 1;
        self.turn.set(turn);
        vm.idle_since.set(turn);
        self.free_seats();
        if !self.shared.interpreter().has_room_for_another() {
            self.close_idle(Some(vm));
        }
    }

    /// The name of a script of which something is to be said, once.
    pub(super) fn tell_once(&self, vm: VmIndex, used: Use) -> Option<Arc<str>> {
        let plan = self.plan()?;
        let is_news = self.told.borrow_mut().insert(plan.number_of(vm, used)?);
        is_news.then(|| plan.name_of(vm, used))
    }

    /// VMs open, those of tenants among them; bytes they hold; scripts that wait in them or for them.
    pub(crate) fn figures(&self) -> [u64; 4] {
        let open = self.open.borrow();
        let all = || open.iter().map(|vm| &vm.scripts).chain([&self.shared]);
        let all = || all().map(Scripts::interpreter);
        let bytes: usize = all().map(|vm| vm.memory_bytes()).sum();
        let parked: usize = all().map(|vm| vm.parked()).sum();
        let own = open.len();
        [own + 1, own, bytes, parked + self.waiting.get()].map(|count| count as u64)
    }

    fn counters(&self) -> &ScriptStats {
        &self.stats.scripts
    }

    /// No request of the generation is left, or none is waited for.
    pub(crate) fn release(&self) {
        self.unused.notify_one();
    }

    /// Waits until they are released, then runs `worker_exit` in each.
    pub(crate) async fn end(self: &Rc<Self>) {
        self.unused.notified().await;
        self.is_ending.set(true);
        let open = self.open.borrow().clone();
        open.iter().for_each(|vm| self.close(vm));
        drop(open);
        loop {
            let changed = self.changed.notified();
            if self.closing.get() + self.opening.get() == 0 {
                break;
            }
            changed.await;
        }
        if let Some(plan) = self.plan() {
            self.shared.exit(plan).await;
        }
    }
}

fn exceeded(what: impl Into<String>, key: Option<&'static str>) -> Exceeded {
    Exceeded {
        what: what.into(),
        key,
        awaited: None,
        backtrace: Vec::new(),
    }
}

/// Part of what goes on among VMs, counted until it is dropped.
struct Part {
    vms: Rc<Vms>,
    count: fn(&Vms) -> &Cell<usize>,
}

impl Part {
    fn begin(vms: &Rc<Vms>, count: fn(&Vms) -> &Cell<usize>) -> Self {
        count(vms).set(count(vms).get() + 1);
        Self {
            vms: Rc::clone(vms),
            count,
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let count = (self.count)(&self.vms);
        count.set(count.get() - 1);
        self.vms.changed.notify_waiters();
    }
}

impl Pinned {
    fn new(vms: &Rc<Vms>, vm: &Rc<OwnVm>) -> Self {
        vm.pins.set(vm.pins.get() + 1);
        Self {
            vms: Rc::clone(vms),
            vm: Rc::clone(vm),
        }
    }
}

impl Clone for Pinned {
    fn clone(&self) -> Self {
        Self::new(&self.vms, &self.vm)
    }
}

impl Deref for Pinned {
    type Target = Scripts;

    fn deref(&self) -> &Scripts {
        &self.vm.scripts
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let pins = self.vm.pins.get() - 1;
        self.vm.pins.set(pins);
        if pins == 0 && !self.vms.is_ending.get() {
            self.vms.became_idle(&self.vm);
        }
    }
}
