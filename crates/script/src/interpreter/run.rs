//! One call of a script, from its beginning to its end.
//!
//! A fiber starts with the script; when a native has to wait, the fiber is parked, its future is
//! awaited by whoever owns the run, and the fiber goes on.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use mruby::{Datum, Error, Halt, Resume, Slot};
use tokio::time::timeout;

use super::{Allowed, Interpreter, Ready, failure_of};
use crate::api;
use crate::failure::{Cause, Exceeded, Failure};
use crate::phase::Phase;
use crate::request::Request;
use crate::scope::Scope;
use crate::script::Script;
use crate::wait::{Pending, Woken};
use stores::spell;

/// What a script's run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// The value of its last line.
    pub value: Datum,
}

/// What one stretch of a run came to.
pub enum Step {
    /// The script has come to its end.
    Done(Ran),
    /// It waits.
    Waits(Wait),
}

/// What a script came to that began and went on at once.
pub enum Begun {
    /// It has come to its end.
    Done(Ran),
    /// It waits.
    Waits(Box<(Run, Wait)>),
}

/// What a run waits for, and until when at most.
pub struct Wait {
    pending: Pending,
    until: Instant,
    _parked: Parked,
}

impl Wait {
    /// Whether the request itself is needed to wait for it.
    pub fn needs_request(&self) -> bool {
        matches!(self.pending, Pending::Ask(_))
    }
}

/// A run under way. Dropped before its end (the client left, the time was up), it lets its fiber go.
pub struct Run {
    interpreter: Rc<Interpreter>,
    script: Script,
    phase: Phase,
    number: u64,
    fiber: Option<Slot>,
    /// What the fiber goes on with.
    with: Option<Resume>,
    /// Known from the first wait on.
    deadline: Option<Instant>,
    /// What it holds, if it runs for no request: let go when it ends.
    own: Option<Box<Scope>>,
    /// Keeps a script that is compiled each time.
    _ready: Ready,
}

impl Run {
    pub(super) fn begin(
        interpreter: &Rc<Interpreter>,
        phase: Phase,
        script: &Script,
        ready: Ready,
    ) -> Result<Self, Failure> {
        let mut open = interpreter.open.borrow_mut();
        open.vm.host().features.give_up();
        let fiber = interpreter.fibers.acquire(&mut open.vm);
        let fiber = fiber.map_err(|error| {
            interpreter.judge_memory(&mut open.vm, &error);
            failure_of(script.name(), error, Allowed::of(interpreter, phase))
        })?;
        Ok(Self {
            interpreter: Rc::clone(interpreter),
            script: script.clone(),
            phase,
            number: open.number,
            fiber: Some(fiber),
            with: Some(Resume::Script(ready.slot)),
            deadline: None,
            own: None,
            _ready: ready,
        })
    }

    /// Lets the script go on until it waits or ends; natives see `request` meanwhile.
    ///
    /// # Errors
    /// What made it fail. It may have changed the request before.
    pub fn step(&mut self, request: Option<&mut (dyn Request + 'static)>) -> Result<Step, Failure> {
        let mut guard = self.interpreter.open.borrow_mut();
        let open = &mut *guard;
        let resumable = self.fiber.filter(|_| open.number == self.number);
        let (Some(fiber), Some(with)) = (resumable, self.with.take()) else {
            return Err(self.failure(Cause::Lost));
        };
        let allowed = Allowed::of(&self.interpreter, self.phase);
        open.vm.set_cpu(allowed.cpu());
        let state = open.vm.host();
        state.begin(self.phase, self.script.name());
        state.own = self.own.take();
        let halted = open.vm.resume(fiber, with, request);
        let state = open.vm.host();
        self.own = state.own.take();
        match (halted, state.pending.take()) {
            (Ok(Halt::Ended(value)), _) => {
                self.fiber = None;
                self.interpreter.fibers.release(fiber, &mut open.vm);
                Ok(Step::Done(Ran { value }))
            }
            (Ok(Halt::Parked), Some(pending)) => {
                let until = self.deadline.unwrap_or_else(|| self.new_deadline());
                self.deadline = Some(until);
                Ok(Step::Waits(Wait {
                    pending,
                    until,
                    _parked: Parked::enter(self)?,
                }))
            }
            (Ok(Halt::Parked), None) => Err(self.failure(Cause::Raised(stray_yield()))),
            (Err(Error::Raised(raised)), _) if raised.class == api::EXIT => {
                Ok(Step::Done(Ran { value: Datum::Nil }))
            }
            (Err(error), _) => {
                // What it held is no longer held.
                self.fiber = None;
                open.vm.let_go(fiber);
                self.interpreter.judge_memory(&mut open.vm, &error);
                Err(failure_of(self.script.name(), error, allowed))
            }
        }
    }

    /// As [`Run::step`], of one that is kept only if it waits.
    pub(super) fn go_on(
        mut self,
        request: Option<&mut (dyn Request + 'static)>,
    ) -> Result<Begun, Failure> {
        Ok(match self.step(request)? {
            Step::Done(ran) => Begun::Done(ran),
            Step::Waits(wait) => Begun::Waits(Box::new((self, wait))),
        })
    }

    fn new_deadline(&self) -> Instant {
        let (_, wall) = self.wall();
        Instant::now() + wall
    }

    /// How long it may take, and the key that says so.
    fn wall(&self) -> (&'static str, Duration) {
        let budgets = &self.interpreter.settings.budgets;
        match self.phase {
            Phase::Log => ("log_wall", budgets.log_wall),
            _ => ("wall", budgets.wall),
        }
    }

    /// Waits for what the last step said; the next step goes on with it.
    ///
    /// # Errors
    /// When the script's time is up.
    pub async fn wait(
        &mut self,
        wait: Wait,
        request: Option<&mut (dyn Request + 'static)>,
    ) -> Result<(), Failure> {
        let left = wait.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.late(None));
        }
        let (woken, awaited) = match (wait.pending, request) {
            (Pending::Future(future, whom), _) => (timeout(left, fairly(future)).await, whom),
            (Pending::Ask(ask), Some(request)) => {
                let what = Rc::from(ask.to_string());
                let asked = timeout(left, fairly(request.perform(ask)));
                (asked.await, Some(what))
            }
            (Pending::Ask(_), None) => {
                let none = Woken::error("there is no request in this phase");
                (Ok(none), None)
            }
        };
        self.with = Some(woken.map_err(|_| self.late(awaited))?.into());
        Ok(())
    }

    /// Goes on to the script's end.
    pub(super) async fn run_through(
        mut self,
        mut request: Option<&mut (dyn Request + 'static)>,
    ) -> Result<Ran, Failure> {
        loop {
            match self.step(request.as_deref_mut())? {
                Step::Done(ran) => return Ok(ran),
                Step::Waits(wait) => self.wait(wait, request.as_deref_mut()).await?,
            }
        }
    }

    /// The failure of a script that waits still, when its time is up.
    fn late(&self, awaited: Option<Rc<str>>) -> Failure {
        let (key, wall) = self.wall();
        let what = format!("took too long (over {}), waits included", spell(wall));
        let mut exceeded = Exceeded::of(key, what);
        exceeded.awaited = awaited.as_deref().map(str::to_owned);
        exceeded.backtrace = self.whereabouts();
        self.failure(Cause::Budget(exceeded))
    }

    /// Where the script waits.
    fn whereabouts(&self) -> Vec<String> {
        let open = self.interpreter.open.borrow();
        let fiber = self.fiber.filter(|_| open.number == self.number);
        let mut places = fiber.map_or_else(Vec::new, |fiber| open.vm.whereabouts(fiber));
        api::leave_operators(&mut places);
        places
    }

    fn failure(&self, cause: Cause) -> Failure {
        Failure {
            script: Arc::clone(self.script.name()),
            cause,
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(fiber) = self.fiber {
            let mut open = self.interpreter.open.borrow_mut();
            if open.number == self.number {
                open.vm.let_go(fiber);
            }
        }
    }
}

/// A place among the fibers that wait.
struct Parked {
    interpreter: Rc<Interpreter>,
}

impl Parked {
    fn enter(run: &Run) -> Result<Self, Failure> {
        let interpreter = Rc::clone(&run.interpreter);
        let parked = interpreter.parked.get();
        if let Err(all) = interpreter.together.park(parked) {
            let what = format!("too many scripts wait already ({all})");
            return Err(run.failure(Cause::Budget(Exceeded::of("parked", what))));
        }
        interpreter.parked.set(parked + 1);
        Ok(Self { interpreter })
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let parked = &self.interpreter.parked;
        parked.set(parked.get() - 1);
        self.interpreter.together.unpark();
    }
}

/// Lets others run first where a wait is over at once: a script that asks again and again for what is
/// refused without waiting would keep the worker.
async fn fairly<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let at_once = poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    });
    match at_once.await {
        Some(value) => {
            tokio::task::yield_now().await;
            value
        }
        None => future.await,
    }
}

/// A script yielded from its own top: there is nobody who could resume it.
fn stray_yield() -> mruby::Raised {
    mruby::Raised {
        class: "FiberError".to_owned(),
        message: "Fiber.yield outside of a Fiber of the script's own".to_owned(),
        backtrace: Vec::new(),
    }
}
