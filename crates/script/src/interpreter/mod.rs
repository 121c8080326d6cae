//! One VM of one worker and generation: scripts compiled in it, and what becomes of it.
//!
//! [`Interpreter::begin`] gives a [`Run`], which is the life of one call of a script.
//!
//! A VM that had to be given up is replaced before the next run, and nothing runs in the new one
//! before `init` and `worker_init` have; runs that were parked in the old one fail.

mod required;
mod run;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use mruby::{Budget, Counting, Error, Raised, Slot, Vm};

use crate::api;
use crate::blanks;
use crate::failure::{Cause, Exceeded, Failure};
use crate::fibers::Fibers;
use crate::phase::Phase;
use crate::request::Request;
use crate::script::{Cache, Compiled, Script, Source};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::state::State;
use crate::together::Together;
use stores::spell;

pub use run::{Begun, Ran, Run, Step, Wait};

/// How often the file of a script with `cache = "mtime"` is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Largest script.
const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// The class of what ends a script that used up its CPU time; the crate `mruby` makes it.
const BUDGET_ERROR: &str = "ScriptBudgetError";

/// CPU time of `init`, `worker_init` and `worker_exit` between two waits, and of compiling: no
/// request pays for them each time, and what is compiled has an end.
const START_CPU: Duration = Duration::from_secs(1);

/// Runs scripts, one at a time, any number of them waiting.
pub struct Interpreter {
    settings: Rc<Settings>,
    shared: Arc<Shared>,
    together: Rc<Together>,
    open: RefCell<Open>,
    fibers: Fibers,
    starters: RefCell<Vec<(Phase, Script)>>,
    parked: Cell<usize>,
    reopening: tokio::sync::Mutex<()>,
    /// What the VM held when its starters had ended.
    fresh_bytes: Cell<usize>,
    /// From when another VM stands in the place of a lost one until its starters have ended.
    starting: Cell<bool>,
}

/// A script's text, the number of its first line, and when its file was changed last.
type Text = (Arc<[u8]>, u16, Option<SystemTime>);

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

impl Interpreter {
    /// Opens a VM with the whole API in it.
    ///
    /// # Errors
    /// When it does not fit into its memory budget.
    pub fn open(settings: Settings, shared: Arc<Shared>) -> Result<Rc<Self>, Failure> {
        let together = Together::new(&settings.budgets);
        Self::open_in(Rc::new(settings), shared, together)
    }

    /// Opens another VM on the same thread, which knows nothing of this one; what both may take
    /// together is what this one may.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn another(&self) -> Result<Rc<Self>, Failure> {
        let (settings, shared) = (Rc::clone(&self.settings), Arc::clone(&self.shared));
        Self::open_in(settings, shared, Rc::clone(&self.together))
    }

    fn open_in(
        settings: Rc<Settings>,
        shared: Arc<Shared>,
        together: Rc<Together>,
    ) -> Result<Rc<Self>, Failure> {
        let vm = open_vm(&settings, &shared, &together)?;
        Ok(Rc::new(Self {
            settings,
            shared,
            together,
            open: RefCell::new(Open::new(vm)),
            fibers: Fibers::default(),
            starters: RefCell::default(),
            parked: Cell::new(0),
            reopening: tokio::sync::Mutex::new(()),
            fresh_bytes: Cell::new(0),
            starting: Cell::new(false),
        }))
    }

    /// Runs `init` and `worker_init` scripts in this order, now and in every VM that replaces this.
    ///
    /// # Errors
    /// The first that failed.
    pub async fn start(self: &Rc<Self>, starters: Vec<(Phase, Script)>) -> Result<(), Failure> {
        self.starters.replace(starters);
        self.run_starters().await
    }

    async fn run_starters(self: &Rc<Self>) -> Result<(), Failure> {
        self.read_kept().await;
        self.compile_library().await?;
        let starters = self.starters.borrow().clone();
        for (phase, script) in &starters {
            let run = self.begin_in_vm(*phase, script).await?;
            run.run_through(None).await?;
        }
        let mut open = self.open.borrow_mut();
        open.vm.set_cpu(START_CPU);
        // A VM that was lost meanwhile is replaced before anything runs.
        let _ = open.vm.collect();
        self.fresh_bytes.set(open.vm.bytes());
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
        let run = self.begin(phase, script).await?;
        run.run_through(request).await
    }

    /// Checks that a script's text is Ruby, without running it.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub async fn check(self: &Rc<Self>, script: &Script) -> Result<(), Failure> {
        self.ready(script).await.map(drop)
    }

    /// Compiles a script's text and forgets it again: whether it is Ruby, and no more is wanted.
    ///
    /// # Errors
    /// As [`Interpreter::check`].
    pub async fn try_out(self: &Rc<Self>, script: &Script) -> Result<(), Failure> {
        let (text, line, _) = self.text_of(script).await?;
        let slot = self.compile(script, &text, line)?;
        self.open.borrow_mut().vm.let_go(slot);
        Ok(())
    }

    /// Whether there is memory for another VM that holds what this one held at first, and a quarter
    /// more.
    pub fn has_room_for_another(&self) -> bool {
        let fresh = self.fresh_bytes.get();
        self.together.memory.has_room_for_another(fresh + fresh / 4)
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
        if !self.is_started() {
            self.reopen(script).await?;
        }
        self.begin_in_vm(phase, script).await
    }

    /// Begins a script and lets it go on, where nothing has to be waited for first, as a file that is to
    /// be read; `None` otherwise. The time is about `now`: it says whether files are due to be looked at.
    pub fn run_at_once(
        self: &Rc<Self>,
        phase: Phase,
        script: &Script,
        now: Instant,
        request: Option<&mut (dyn Request + 'static)>,
    ) -> Option<Result<Begun, Failure>> {
        if !self.is_started() {
            return None;
        }
        let ready = match self.known(script, now) {
            Some(slot) => Ok(Ready::kept(slot)),
            None => self.compiled(script, seen_text(script)?),
        };
        let run = ready.and_then(|ready| Run::begin(self, phase, script, ready));
        Some(run.and_then(|run| run.go_on(request)))
    }

    /// Whether scripts may run in the VM as it is.
    fn is_started(&self) -> bool {
        !self.starting.get() && !self.open.borrow().vm.is_lost()
    }

    async fn begin_in_vm(self: &Rc<Self>, phase: Phase, script: &Script) -> Result<Run, Failure> {
        let ready = self.ready(script).await?;
        Run::begin(self, phase, script, ready)
    }

    /// The script, compiled in the VM that is open.
    async fn ready(self: &Rc<Self>, script: &Script) -> Result<Ready, Failure> {
        if let Some(slot) = self.known(script, Instant::now()) {
            return Ok(Ready::kept(slot));
        }
        let text = self.text_of(script).await?;
        self.compiled(script, text)
    }

    fn compiled(self: &Rc<Self>, script: &Script, text: Text) -> Result<Ready, Failure> {
        let (text, line, changed) = text;
        let slot = self.compile(script, &text, line)?;
        if script.is_compiled_each_time() {
            return Ok(Ready::once(self, slot));
        }
        self.remember(script, slot, changed, text);
        Ok(Ready::kept(slot))
    }

    async fn text_of(&self, script: &Script) -> Result<Text, Failure> {
        if let Some(seen) = seen_text(script) {
            return Ok(seen);
        }
        let path = script.path();
        let read = self.settings.reader.read(path, SCRIPT_BYTES_MAX).await;
        let read = read.map_err(|error| unreadable(script, &error))?;
        Ok((read.bytes.into(), 1, None))
    }

    /// The slot of a script that is compiled already; now and then its file is looked at meanwhile.
    fn known(self: &Rc<Self>, script: &Script, now: Instant) -> Option<Slot> {
        let number = self.open.borrow().number;
        let compiled = script.inner.compiled.borrow();
        let compiled = compiled.as_ref().filter(|compiled| compiled.vm == number)?;
        if let Source::File {
            cache: Cache::Mtime,
            ..
        } = script.inner.source
        {
            self.look_now_and_then(script, now);
        }
        Some(compiled.slot)
    }

    fn look_now_and_then(self: &Rc<Self>, script: &Script, now: Instant) {
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
            script.inner.unreadable.take();
            return;
        }
        let read = self.settings.reader.read(path, SCRIPT_BYTES_MAX).await;
        if self.open.borrow().number != before.vm {
            // Another VM by now, which compiles the script when it is next run.
            return;
        }
        if read.is_ok() {
            script.inner.unreadable.take();
        }
        match read {
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
                let why = Some(error.to_string());
                if script.inner.unreadable.replace(why.clone()) != why {
                    let script = &**script.name();
                    tracing::warn!(script, %error, "script not readable, the last one stays in use");
                }
            }
        }
    }

    fn compile(&self, script: &Script, text: &[u8], line: u16) -> Result<Slot, Failure> {
        let mut open = self.open.borrow_mut();
        open.vm.set_cpu(START_CPU);
        let compiled = open.vm.compile(text, &script.inner.file, line);
        compiled.map_err(|mut error| {
            // Nothing of it ran: whatever is told there is of something else.
            if let Error::Raised(raised) = &mut error {
                raised.backtrace.clear();
                remark(raised, blanks::in_text(text, line));
            }
            self.judge_memory(&mut open.vm, &error);
            // It says the line itself.
            failure_of(&script.inner.file, error, Allowed::Start)
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

    /// After a failure for want of memory, gives the VM up if it is full of what its scripts keep: every
    /// script would fail in it from now on.
    fn judge_memory(&self, vm: &mut Vm<State>, error: &Error) {
        if !lacks_memory(error) {
            return;
        }
        vm.set_cpu(START_CPU);
        // Where that took too long the VM is lost already.
        let _ = vm.collect();
        let (most, fresh) = (vm.bytes_max(), self.fresh_bytes.get());
        let kept = vm.bytes();
        // Half of what another would have to give.
        if !vm.is_lost() && kept > fresh + most.saturating_sub(fresh) / 2 {
            vm.give_up();
            tracing::warn!(
                kept_bytes = kept,
                memory_bytes = most,
                "the interpreter is given up: what scripts keep in globals, constants and Userdata fills its memory (scripts.memory)"
            );
        }
    }

    /// Puts another VM in the place of one that was given up, and starts it. Where that fails, the
    /// next run begins with it again.
    async fn reopen(self: &Rc<Self>, script: &Script) -> Result<(), Failure> {
        let _one = self.reopening.lock().await;
        if self.is_started() {
            return Ok(());
        }
        if self.open.borrow().vm.is_lost() {
            let fresh = open_vm(&self.settings, &self.shared, &self.together)?;
            self.replace(fresh);
            self.starting.set(true);
            tracing::warn!(script = &**script.name(), "a new interpreter is open");
        }
        self.run_starters().await?;
        self.starting.set(false);
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

/// A script's text where no file is to be read for it. What another VM has seen of a file holds for
/// this one.
fn seen_text(script: &Script) -> Option<Text> {
    let seen = script.inner.compiled.borrow();
    match &script.inner.source {
        Source::Code { text, line } => Some((Arc::clone(text), *line, None)),
        Source::File {
            cache: Cache::Never,
            ..
        } => None,
        Source::File { text, .. } => match (&*seen, text) {
            (Some(seen), _) => Some((Arc::clone(&seen.text), 1, seen.changed)),
            (None, Some(text)) => Some((Arc::clone(text), 1, None)),
            (None, None) => None,
        },
    }
}

fn open_vm(
    settings: &Rc<Settings>,
    shared: &Arc<Shared>,
    together: &Rc<Together>,
) -> Result<Vm<State>, Failure> {
    let name: Arc<str> = Arc::from("the scripts' API");
    let state = State::new(settings, shared, together);
    let budget = Budget {
        memory: Rc::clone(&together.memory),
        cpu: settings.budgets.cpu,
    };
    let vm = Vm::open(state, budget).and_then(|mut vm| {
        api::register(&mut vm)?;
        vm.unseal();
        Ok(vm)
    });
    vm.map_err(|error| failure_of(&name, error, Allowed::Start))
}

/// CPU time from one wait to the next.
#[derive(Clone, Copy)]
enum Allowed {
    /// What [`START_CPU`] says.
    Start,
    /// What `scripts.cpu` says.
    Request(Duration),
}

impl Allowed {
    fn of(interpreter: &Interpreter, phase: Phase) -> Self {
        match phase.is_of_vm() {
            true => Self::Start,
            false => Self::Request(interpreter.settings.budgets.cpu),
        }
    }

    fn cpu(self) -> Duration {
        match self {
            Self::Start => START_CPU,
            Self::Request(cpu) => cpu,
        }
    }

    /// What became of a script that took more.
    fn exceeded(self, backtrace: Vec<String>) -> Box<Exceeded> {
        let cpu = spell(self.cpu());
        let what = format!("used up its CPU time ({cpu}) without waiting");
        let mut exceeded = Exceeded::of("cpu", what);
        if matches!(self, Self::Start) {
            exceeded.key = None;
            exceeded
                .what
                .push_str(", all that starting, ending and compiling have");
        }
        exceeded.backtrace = backtrace;
        exceeded
    }
}

fn failure_of(script: &Arc<str>, error: Error, allowed: Allowed) -> Failure {
    let cause = match error {
        Error::Raised(mut raised) => {
            api::leave_operators(&mut raised.backtrace);
            if raised.class == "NoMethodError" || raised.class == "NameError" {
                let told = blanks::in_message(&raised.message);
                remark(&mut raised, told);
            }
            match raised.class == BUDGET_ERROR {
                true => Cause::Budget(allowed.exceeded(raised.backtrace)),
                false => Cause::Raised(raised),
            }
        }
        Error::Open => Cause::Budget(Exceeded::of("memory", "does not fit into a VM")),
        Error::Lost => Cause::Lost,
    };
    Failure {
        script: Arc::clone(script),
        cause,
    }
}

/// Adds to what an exception says.
fn remark(raised: &mut Raised, more: Option<String>) {
    if let Some(more) = more {
        raised.message.push_str("; ");
        raised.message.push_str(&more);
    }
}

/// Whether there was no room, for the script or for what was to be said of it.
fn lacks_memory(error: &Error) -> bool {
    match error {
        Error::Raised(raised) => {
            raised.class == "NoMemoryError"
                || raised.class == "Exception" && raised.message.is_empty()
        }
        Error::Open | Error::Lost => false,
    }
}

fn unreadable(script: &Script, error: &std::io::Error) -> Failure {
    Failure {
        script: Arc::clone(script.name()),
        cause: Cause::Unreadable(error.to_string()),
    }
}
