//! One VM of one worker and generation, and the runs of scripts in it.
//!
//! [`Interpreter::run`] is the life of a hook call: a fiber starts with the script; when a native
//! has to wait, the fiber is parked, its future awaited, and the fiber goes on. A run that is
//! dropped (the client left, the time was up) lets its fiber go.
//!
//! A VM that had to be given up is replaced before the next run, `init` and `worker_init` included;
//! runs that were parked in it fail.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use mruby::{Budget, Counting, Datum, Error, Resume, Slot, Vm};
use tokio::time::timeout;

use crate::api;
use crate::failure::{Cause, Failure};
use crate::fibers::Fibers;
use crate::phase::Phase;
use crate::request::Request;
use crate::scope::Scope;
use crate::script::{Cache, Compiled, Script, Source};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::state::State;
use crate::wait::{Pending, Woken};

/// How often the file of a script with `cache = "mtime"` is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Largest script.
const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// What a script's run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// The value of its last line.
    pub value: Datum,
}

/// Runs scripts, one at a time, any number of them waiting.
pub struct Interpreter {
    settings: Rc<Settings>,
    shared: Arc<Shared>,
    open: RefCell<Open>,
    fibers: Fibers,
    starters: RefCell<Vec<(Phase, Script)>>,
    parked: Cell<usize>,
    reopening: tokio::sync::Mutex<()>,
}

struct Open {
    vm: Vm<State>,
    /// No other VM of this process has it: what belongs to another is void.
    number: u64,
}

static OPENED: AtomicU64 = AtomicU64::new(1);

impl Open {
    fn new(vm: Vm<State>) -> Self {
        let number = OPENED.fetch_add(1, Relaxed);
        Self { vm, number }
    }
}

/// What one stretch of a run came to.
pub enum Step {
    /// The script has come to its end.
    Done(Ran),
    /// It waits.
    Waits(Wait),
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

impl Interpreter {
    /// Opens a VM with the whole API in it.
    ///
    /// # Errors
    /// When it does not fit into its memory budget.
    pub fn open(settings: Settings, shared: Arc<Shared>) -> Result<Rc<Self>, Failure> {
        let settings = Rc::new(settings);
        let vm = open_vm(&settings, &shared)?;
        Ok(Rc::new(Self {
            settings,
            shared,
            open: RefCell::new(Open::new(vm)),
            fibers: Fibers::default(),
            starters: RefCell::default(),
            parked: Cell::new(0),
            reopening: tokio::sync::Mutex::new(()),
        }))
    }

    /// Runs `init` and `worker_init` scripts in this order, now and in every VM that replaces this.
    ///
    /// # Errors
    /// The first that failed.
    pub async fn start(self: &Rc<Self>, starters: Vec<(Phase, Script)>) -> Result<(), Failure> {
        self.starters.replace(starters.clone());
        for (phase, script) in &starters {
            self.run_in_vm(*phase, script, None).await?;
        }
        Ok(())
    }

    /// Runs a script to its end; natives see `request`.
    ///
    /// # Errors
    /// What made it fail. It may have changed the request before.
    pub async fn run(
        self: &Rc<Self>,
        phase: Phase,
        script: &Script,
        request: Option<&mut (dyn Request + 'static)>,
    ) -> Result<Ran, Failure> {
        if self.open.borrow().vm.is_lost() {
            self.reopen(script).await?;
        }
        self.run_in_vm(phase, script, request).await
    }

    /// Checks that a script's text is Ruby, without running it.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub async fn check(self: &Rc<Self>, script: &Script) -> Result<(), Failure> {
        self.ready(script).await.map(drop)
    }

    /// Fibers that wait now.
    pub fn parked(&self) -> usize {
        self.parked.get()
    }

    /// Bytes the VM holds.
    pub fn memory_bytes(&self) -> usize {
        self.open.borrow().vm.bytes()
    }

    /// Objects in the VM after a full collection.
    pub fn objects(&self) -> usize {
        let mut open = self.open.borrow_mut();
        // A lost VM has nothing to collect, and its number says nothing.
        let _ = open.vm.collect();
        open.vm.objects()
    }

    /// Counts instructions from now on, at some cost, for [`Interpreter::instructions`].
    pub fn count_instructions(&self) {
        self.open.borrow_mut().vm.count_instructions(Counting::On);
    }

    /// Instructions since they are counted.
    pub fn instructions(&self) -> u64 {
        self.open.borrow().vm.instructions()
    }

    /// Begins a run whose owner lets it go on, step by step: it may show the script another object
    /// for the same request each time.
    ///
    /// # Errors
    /// When the script cannot be compiled, or there is no room for it.
    pub async fn begin(self: &Rc<Self>, phase: Phase, script: &Script) -> Result<Run, Failure> {
        if self.open.borrow().vm.is_lost() {
            self.reopen(script).await?;
        }
        self.begin_in_vm(phase, script).await
    }

    /// As [`Interpreter::begin`], where nothing has to be waited for or compiled first; `None`
    /// otherwise.
    pub fn begin_at_once(
        self: &Rc<Self>,
        phase: Phase,
        script: &Script,
    ) -> Option<Result<Run, Failure>> {
        if self.open.borrow().vm.is_lost() {
            return None;
        }
        let slot = self.known(script)?;
        Some(Run::begin(self, phase, script, Ready::kept(slot)))
    }

    async fn begin_in_vm(self: &Rc<Self>, phase: Phase, script: &Script) -> Result<Run, Failure> {
        let ready = self.ready(script).await?;
        Run::begin(self, phase, script, ready)
    }

    async fn run_in_vm(
        self: &Rc<Self>,
        phase: Phase,
        script: &Script,
        mut request: Option<&mut (dyn Request + 'static)>,
    ) -> Result<Ran, Failure> {
        let mut run = self.begin_in_vm(phase, script).await?;
        loop {
            match run.step(request.as_deref_mut())? {
                Step::Done(ran) => return Ok(ran),
                Step::Waits(wait) => run.wait(wait, request.as_deref_mut()).await?,
            }
        }
    }

    /// The script, compiled in the VM that is open.
    async fn ready(self: &Rc<Self>, script: &Script) -> Result<Ready, Failure> {
        if let Some(slot) = self.known(script) {
            return Ok(Ready::kept(slot));
        }
        let (text, line) = match &script.inner.source {
            Source::Code { text, line } => (Arc::clone(text), *line),
            Source::File {
                text: Some(text),
                cache: Cache::Mtime | Cache::Always,
                ..
            } => (Arc::clone(text), 1),
            Source::File { path, .. } => {
                let read = self.settings.reader.read(path, SCRIPT_BYTES_MAX).await;
                let read = read.map_err(|error| unreadable(script, &error))?;
                (read.bytes.into(), 1)
            }
        };
        let slot = self.compile(script, &text, line)?;
        if script.is_compiled_each_time() {
            return Ok(Ready::once(self, slot));
        }
        self.remember(script, slot, None, text);
        Ok(Ready::kept(slot))
    }

    /// The slot of a script that is compiled already; now and then its file is looked at meanwhile.
    fn known(self: &Rc<Self>, script: &Script) -> Option<Slot> {
        let number = self.open.borrow().number;
        let compiled = script.inner.compiled.borrow();
        let compiled = compiled.as_ref().filter(|compiled| compiled.vm == number)?;
        if let Source::File {
            cache: Cache::Mtime,
            ..
        } = script.inner.source
        {
            self.look_now_and_then(script);
        }
        Some(compiled.slot)
    }

    fn look_now_and_then(self: &Rc<Self>, script: &Script) {
        let now = Instant::now();
        match script.inner.looked.get() {
            Some(looked) if now.duration_since(looked) >= LOOK_EVERY => {}
            _ => return,
        }
        // Nobody else looks until this look has ended.
        script.inner.looked.set(None);
        let (interpreter, script) = (Rc::downgrade(self), script.clone());
        tokio::task::spawn_local(async move {
            if let Some(interpreter) = interpreter.upgrade() {
                interpreter.look(&script).await;
            }
            script.inner.looked.set(Some(Instant::now()));
        });
    }

    /// Compiles a script anew if its file has changed; what is wrong with it then is logged, and
    /// the script as it was goes on.
    async fn look(&self, script: &Script) {
        let Source::File { path, .. } = &script.inner.source else {
            return;
        };
        let before = script.inner.compiled.borrow().clone();
        let Some(before) = before else { return };
        let changed = self.settings.reader.changed(path).await;
        if changed.as_ref().ok() == before.changed.as_ref() && before.changed.is_some() {
            return;
        }
        match self.settings.reader.read(path, SCRIPT_BYTES_MAX).await {
            Ok(read) if *read.bytes == *before.text => {
                self.remember(script, before.slot, Some(read.changed), before.text);
            }
            Ok(read) => {
                let text: Arc<[u8]> = read.bytes.into();
                match self.compile(script, &text, 1) {
                    Ok(slot) => self.remember(script, slot, Some(read.changed), text),
                    Err(failure) => {
                        tracing::error!(%failure, "changed script refused, the last one stays in use");
                        self.remember(script, before.slot, Some(read.changed), before.text);
                    }
                }
            }
            Err(error) => {
                let script = &*script.inner.name;
                tracing::warn!(script, %error, "script not readable, the last one stays in use");
            }
        }
    }

    fn compile(&self, script: &Script, text: &[u8], line: u16) -> Result<Slot, Failure> {
        let mut open = self.open.borrow_mut();
        let compiled = open.vm.compile(text, &script.inner.name, line);
        compiled.map_err(|mut error| {
            // Nothing of it ran: whatever is told there is of something else.
            if let Error::Raised(raised) = &mut error {
                raised.backtrace.clear();
            }
            failure_of(&script.inner.name, error)
        })
    }

    fn remember(&self, script: &Script, slot: Slot, changed: Option<SystemTime>, text: Arc<[u8]>) {
        let mut open = self.open.borrow_mut();
        let compiled = Compiled {
            slot,
            vm: open.number,
            changed,
            text,
        };
        let before = script.inner.compiled.replace(Some(compiled));
        if let Some(before) = before
            && before.vm == open.number
            && before.slot != slot
        {
            open.vm.let_go(before.slot);
        }
        script.inner.looked.set(Some(Instant::now()));
    }

    fn replace(&self, fresh: Vm<State>) {
        let mut open = self.open.borrow_mut();
        self.fibers.forget();
        *open = Open::new(fresh);
    }

    /// Puts another VM in the place of one that was given up.
    async fn reopen(self: &Rc<Self>, script: &Script) -> Result<(), Failure> {
        let _one = self.reopening.lock().await;
        if !self.open.borrow().vm.is_lost() {
            return Ok(());
        }
        let fresh = open_vm(&self.settings, &self.shared)?;
        self.replace(fresh);
        tracing::warn!(script = &*script.inner.name, "a new interpreter is open");
        let starters = self.starters.borrow().clone();
        for (phase, script) in &starters {
            self.run_in_vm(*phase, script, None).await?;
        }
        Ok(())
    }
}

/// A script ready to run; one that is compiled each time is let go afterwards.
struct Ready {
    slot: Slot,
    owner: Option<(Rc<Interpreter>, u64)>,
}

impl Ready {
    fn kept(slot: Slot) -> Self {
        Self { slot, owner: None }
    }

    fn once(interpreter: &Rc<Interpreter>, slot: Slot) -> Self {
        let number = interpreter.open.borrow().number;
        Self {
            slot,
            owner: Some((Rc::clone(interpreter), number)),
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if let Some((interpreter, number)) = &self.owner {
            let mut open = interpreter.open.borrow_mut();
            if open.number == *number {
                open.vm.let_go(self.slot);
            }
        }
    }
}

/// A run under way. Dropped before its end, it lets its fiber go.
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
    fn begin(
        interpreter: &Rc<Interpreter>,
        phase: Phase,
        script: &Script,
        ready: Ready,
    ) -> Result<Self, Failure> {
        let mut open = interpreter.open.borrow_mut();
        let fiber = interpreter.fibers.take(&mut open.vm);
        let fiber = fiber.map_err(|error| failure_of(&script.inner.name, error))?;
        Ok(Self {
            interpreter: Rc::clone(interpreter),
            script: script.clone(),
            phase,
            number: open.number,
            fiber: Some(fiber),
            with: Some(Resume::Value(Datum::Int(ready.slot.number()))),
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
        let state = open.vm.host();
        state.begin(self.phase, &self.script.inner.name);
        state.own = self.own.take();
        let ended = open.vm.resume(fiber, with, request);
        let state = open.vm.host();
        self.own = state.own.take();
        let (finished, pending) = (state.finished.take(), state.pending.take());
        match (ended, finished, pending) {
            (Ok(()), Some(value), _) => {
                self.fiber = None;
                self.interpreter.fibers.give_back(fiber, &mut open.vm);
                Ok(Step::Done(Ran { value }))
            }
            (Ok(()), None, Some(pending)) => {
                let until = self.deadline.unwrap_or_else(|| self.new_deadline());
                self.deadline = Some(until);
                Ok(Step::Waits(Wait {
                    pending,
                    until,
                    _parked: Parked::enter(self)?,
                }))
            }
            (Ok(()), None, None) => Err(self.failure(Cause::Raised(stray_yield()))),
            (Err(Error::Raised(raised)), ..) if raised.class == api::EXIT => {
                Ok(Step::Done(Ran { value: Datum::Nil }))
            }
            (Err(error), ..) => Err(failure_of(&self.script.inner.name, error)),
        }
    }

    fn new_deadline(&self) -> Instant {
        let budgets = &self.interpreter.settings.budgets;
        let wall = match self.phase {
            Phase::Log => budgets.log_wall,
            _ => budgets.wall,
        };
        Instant::now() + wall
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
        let woken = match (wait.pending, request) {
            (Pending::Future(future), _) => timeout(left, future).await,
            (Pending::Ask(ask), Some(request)) => timeout(left, request.perform(ask)).await,
            (Pending::Ask(_), None) => Ok(Woken::error("there is no request in this phase")),
        };
        let woken = woken.map_err(|_| match self.phase {
            Phase::Log => self.failure(Cause::Budget("took too long, waits included", "log_wall")),
            _ => self.failure(Cause::Budget("took too long, waits included", "wall")),
        })?;
        self.with = Some(woken.into());
        Ok(())
    }

    fn failure(&self, cause: Cause) -> Failure {
        Failure {
            script: Arc::clone(&self.script.inner.name),
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
        if parked >= interpreter.settings.budgets.parked {
            return Err(run.failure(Cause::Budget("too many scripts wait already", "parked")));
        }
        interpreter.parked.set(parked + 1);
        Ok(Self { interpreter })
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let parked = &self.interpreter.parked;
        parked.set(parked.get() - 1);
    }
}

fn open_vm(settings: &Rc<Settings>, shared: &Arc<Shared>) -> Result<Vm<State>, Failure> {
    let name: Arc<str> = Arc::from("the scripts' API");
    let state = State::new(settings, shared);
    let budget = Budget {
        memory_bytes: settings.budgets.memory_bytes,
        cpu: settings.budgets.cpu,
    };
    let vm = Vm::open(state, budget).and_then(|mut vm| {
        api::register(&mut vm)?;
        vm.unseal();
        Ok(vm)
    });
    vm.map_err(|error| match error {
        Error::Open => Failure {
            script: Arc::clone(&name),
            cause: Cause::Budget("does not fit into a VM", "memory"),
        },
        error => failure_of(&name, error),
    })
}

fn failure_of(script: &Arc<str>, error: Error) -> Failure {
    let cause = match error {
        Error::Raised(raised) => Cause::Raised(raised),
        Error::Open => Cause::Budget("does not fit into a VM", "memory"),
        Error::Lost => Cause::Lost,
    };
    Failure {
        script: Arc::clone(script),
        cause,
    }
}

fn unreadable(script: &Script, error: &std::io::Error) -> Failure {
    Failure {
        script: Arc::clone(&script.inner.name),
        cause: Cause::Unreadable(error.to_string()),
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
