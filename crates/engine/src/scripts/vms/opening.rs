//! A tenant's VM is opened, once for all who wait for it.
//!
//! One that does not open is tried again after a while that doubles each time: meanwhile its
//! scripts fail with what was said of it then.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use script::{Cause, Exceeded, Failure};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::timeout;

use super::{Own, OwnVm, Part, Pinned, State, Vms, exceeded};
use crate::scripts::plan::{Plan, VmIndex};
use crate::stats::bump;

/// How long a VM that did not open is left alone: at first, and at most.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);

/// An opening under way.
#[derive(Default)]
pub(super) struct Opening {
    result: RefCell<Option<Result<Pinned, Failure>>>,
    has_ended: Notify,
    /// Whether it waits for another VM to close.
    wants_seat: Cell<bool>,
}

/// A VM that did not open.
pub(super) struct Failed {
    failure: Failure,
    until: Instant,
    rest: Duration,
}

impl Opening {
    /// What it comes to.
    pub(super) async fn ended(&self) -> Result<Pinned, Failure> {
        loop {
            let ended = self.has_ended.notified();
            if let Some(result) = &*self.result.borrow() {
                return result.clone();
            }
            ended.await;
        }
    }

    fn end(&self, result: Result<Pinned, Failure>) {
        self.result.replace(Some(result));
        self.has_ended.notify_waiters();
    }
}

/// Why there is no VM.
enum Why {
    /// It does not start.
    Failed(Failure),
    /// All that may be open are in use.
    Crowded,
}

/// The work of an opening. However it ends, dropping this tells who waits.
struct Work {
    part: Part,
    opening: Rc<Opening>,
    index: usize,
    /// How long the VM is left alone if it does not open.
    rest: Duration,
    made: Result<Rc<OwnVm>, Why>,
}

impl Work {
    async fn run(mut self) {
        self.made = self.part.vms.make(self.index, &self.opening).await;
        drop(self);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let made = std::mem::replace(&mut self.made, Err(Why::Crowded));
        let result = self.part.vms.settle(self.index, made, self.rest);
        self.opening.end(result);
    }
}

impl Vms {
    /// The opening of a tenant's VM, begun here if there was none.
    ///
    /// # Errors
    /// It failed a moment ago.
    pub(super) fn opening_of(self: &Rc<Self>, index: usize) -> Result<Rc<Opening>, Failure> {
        let opening = Rc::<Opening>::default();
        let Some(own) = self.own.get(index).filter(|_| !self.is_ending.get()) else {
            return Err(failure(exceeded("the worker ends", None)));
        };
        let mut state = own.state.borrow_mut();
        let rest = match &*state {
            State::Opening(under_way) => return Ok(Rc::clone(under_way)),
            State::Open(vm) => {
                opening.end(Ok(Pinned::new(self, vm)));
                return Ok(opening);
            }
            State::Failed(failed) if Instant::now() < failed.until => {
                return Err(failed.failure.clone());
            }
            State::Failed(failed) => failed.rest * 2,
            State::Closed => REST_MIN,
        };
        *state = State::Opening(Rc::clone(&opening));
        let work = Work {
            part: Part::begin(self, |vms| &vms.opening),
            opening: Rc::clone(&opening),
            index,
            rest,
            made: Err(Why::Crowded),
        };
        drop(tokio::task::spawn_local(work.run()));
        Ok(opening)
    }

    async fn make(self: &Rc<Self>, index: usize, opening: &Opening) -> Result<Rc<OwnVm>, Why> {
        let (Some(plan), Some(own)) = (self.plan(), self.own.get(index)) else {
            return Err(Why::Crowded);
        };
        let wall = plan.budgets.wall;
        let seat = self.seat(opening, wall).await.ok_or(Why::Crowded)?;
        // Where no memory comes free in that time, opening says so.
        let _ = timeout(wall, self.free_memory()).await;
        let scripts = own.scripts(plan, index);
        let opened = self.shared.beside(plan, scripts).await;
        Ok(Rc::new(OwnVm {
            index,
            scripts: opened.map_err(Why::Failed)?,
            pins: Cell::new(0),
            idle_since: Cell::new(0),
            _seat: seat,
        }))
    }

    /// One of the seats there are, whose turn it is; idle VMs close for it.
    async fn seat(
        self: &Rc<Self>,
        opening: &Opening,
        wall: Duration,
    ) -> Option<OwnedSemaphorePermit> {
        if let Ok(seat) = Arc::clone(&self.seats).try_acquire_owned() {
            return Some(seat);
        }
        let _wants = Part::begin(self, |vms| &vms.wanted);
        opening.wants_seat.set(true);
        self.free_seats();
        let seat = timeout(wall, Arc::clone(&self.seats).acquire_owned()).await;
        opening.wants_seat.set(false);
        seat.ok()?.ok()
    }

    /// Has idle VMs close until there is memory for another, or none is left.
    async fn free_memory(self: &Rc<Self>) {
        while !self.shared.interpreter().has_room_for_another() {
            let changed = self.changed.notified();
            if self.closing.get() == 0 && !self.close_idle(None) {
                return;
            }
            changed.await;
        }
    }

    fn settle(
        self: &Rc<Self>,
        index: usize,
        made: Result<Rc<OwnVm>, Why>,
        rest: Duration,
    ) -> Result<Pinned, Failure> {
        let Some(own) = self.own.get(index) else {
            return Err(failure(self.crowded()));
        };
        match made {
            Ok(vm) => {
                bump(&self.counters().own_opened, 1);
                own.state.replace(State::Open(Rc::clone(&vm)));
                self.open.borrow_mut().push(Rc::clone(&vm));
                let pinned = Pinned::new(self, &vm);
                if self.is_ending.get() {
                    self.close(&vm);
                }
                Ok(pinned)
            }
            Err(Why::Crowded) => {
                bump(&self.counters().own_failed, 1);
                own.state.replace(State::Closed);
                Err(failure(self.crowded()))
            }
            Err(Why::Failed(failure)) => {
                bump(&self.counters().own_failed, 1);
                let rest = rest.min(REST_MAX);
                self.tell_failed(index, &failure, rest);
                own.state.replace(State::Failed(Failed {
                    failure: failure.clone(),
                    until: Instant::now() + rest,
                    rest,
                }));
                Err(failure)
            }
        }
    }

    fn tell_failed(&self, index: usize, failure: &Failure, rest: Duration) {
        let vm = self.plan().and_then(|plan| plan.vms.get(index + 1));
        let tenant = vm.map_or("", |vm| &*vm.tenant);
        let (reason, again_s) = (failure.reason(), rest.as_secs());
        tracing::error!(tenant, reason, again_s, detail = %failure, "a tenant's VM does not start, its scripts fail until it does");
    }

    /// Why a script that has waited for its VM for so long waits no longer.
    pub(super) fn too_late(&self, opening: &Opening, wall: Duration) -> Exceeded {
        if opening.wants_seat.get() {
            return self.crowded();
        }
        let what = format!("waited {wall:?} for its tenant's VM, which is being opened");
        exceeded(what, Some("wall"))
    }

    fn crowded(&self) -> Exceeded {
        let open = self.open.borrow().len();
        let what = format!("all {open} VMs of tenants that may be open are in use by requests");
        exceeded(what, Some("vms"))
    }
}

impl Own {
    fn scripts(&self, plan: &Plan, index: usize) -> Rc<[script::Script]> {
        let vm = VmIndex::of_tenant(index);
        Rc::clone(self.scripts.get_or_init(|| plan.scripts_of(vm).collect()))
    }
}

fn failure(exceeded: Exceeded) -> Failure {
    Failure {
        script: Arc::from("a tenant's VM"),
        cause: Cause::Budget(Box::new(exceeded)),
    }
}
