//! An interpreter, and how one goes into it: compile, start, resume.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use slab::Slab;

use crate::bridge::{Inner, raise_of, tree_of};
use crate::call::{Host, Native, slice, within};
use crate::datum::{self, Datum};
use crate::memory::Memory;
use crate::raw::{self, RawAnswer, RawVm, Text};
use crate::ticker::Ticker;

/// What is taken of the value a script ends with, which is mostly nobody's.
const ENDED_ELEMENTS_MAX: usize = 1_000;
const ENDED_BYTES_MAX: usize = 64 * 1_024;

/// Lines that tell where a fiber stands, as many as of a backtrace.
const PLACES_MAX: usize = 20;

/// Room for answers that is kept between calls.
const SCRATCH_BYTES_KEPT: usize = 64 * 1_024;

/// An exception nobody rescued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raised {
    /// The full name of its class.
    pub class: String,
    /// What it says.
    pub message: String,
    /// Where it was raised, innermost first: `FILE:LINE:in METHOD`.
    pub backtrace: Vec<String>,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.class)
    }
}

/// Why an interpreter did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// It could not be opened: no memory within its budget.
    Open,
    /// The code raised.
    Raised(Raised),
    /// One call of a C function took so long that the interpreter had to be given up. It does
    /// nothing any more, whatever it is asked.
    Lost,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("no interpreter fits into its memory budget"),
            Self::Raised(raised) => raised.fmt(f),
            Self::Lost => f.write_str(
                "one call took so long that the interpreter was given up and is opened anew",
            ),
        }
    }
}

impl std::error::Error for Error {}

/// What an interpreter may take.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Where everything it holds is counted.
    pub memory: Rc<Memory>,
    /// CPU time of one run: until it waits or ends.
    pub cpu: Duration,
}

/// Something that is kept from being collected until it is let go.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Slot(usize);

impl Slot {
    /// Its number, by which `Nagaya.__run` knows the script in it.
    pub fn number(self) -> i64 {
        i64::try_from(self.0).unwrap_or(-1)
    }
}

/// What a fiber begins or goes on with.
#[derive(Debug)]
pub enum Resume {
    /// This script, from its beginning: the fiber is fresh, or has come to the end of another.
    Script(Slot),
    /// The value of the call that waited.
    Value(Datum),
    /// A new object of the class with this full name, which holds this.
    Object(&'static str, Rc<dyn Any>),
    /// An exception, raised where it waited: the full name of its class, and what it says.
    Raise(&'static str, String),
}

/// Where a fiber that was resumed has come to.
#[derive(Debug, PartialEq)]
pub enum Halt {
    /// The end of its script, with the value of its last line: of lists at most 1,000 elements, and
    /// of texts 64 KiB. The fiber can begin another script.
    Ended(Datum),
    /// A wait, or a yield.
    Parked,
}

/// What a class is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassKind {
    /// A module.
    Module,
    /// A class.
    Class,
    /// A class whose objects may hold something of Rust's.
    Holding,
}

/// Whose method it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodOf {
    /// Of objects.
    Object,
    /// Of the class itself.
    Class,
}

/// What a native takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// Fewest arguments.
    pub least: u8,
    /// Most arguments, at most 64.
    pub most: u8,
    /// A bit for each argument that is made a String with `to_s` unless it is `nil`; the last of
    /// 16 stands for all that follow.
    pub texts: u16,
}

/// An interpreter with the Rust side it belongs to.
///
/// It stays on its thread.
pub struct Vm<H: Host> {
    raw: *mut RawVm,
    inner: *mut Inner<H>,
    slots: Slab<()>,
    lost: bool,
    memory: Rc<Memory>,
    _ticker: Option<Rc<Ticker>>,
}

impl<H: Host> fmt::Debug for Vm<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vm")
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl<H: Host> Vm<H> {
    /// Opens an interpreter. No budget of time applies until [`Vm::unseal`].
    ///
    /// # Errors
    /// When mruby does not fit into its memory.
    pub fn open(host: H, budget: Budget) -> Result<Self, Error> {
        let inner = Box::into_raw(Box::new(Inner::new(host)));
        let table = Inner::table(inner);
        let cpu_ns = u64::try_from(budget.cpu.as_nanos()).unwrap_or(u64::MAX);
        let memory = budget.memory;
        // SAFETY: the table is copied; `inner` and `memory` live until after `ngy_close`.
        let raw = unsafe { raw::ngy_open(&raw const table, memory.raw(), cpu_ns) };
        if raw.is_null() {
            // SAFETY: made by `Box::into_raw` above, and nobody else has it now.
            drop(unsafe { Box::from_raw(inner) });
            return Err(Error::Open);
        }
        // SAFETY: nothing of the interpreter runs now.
        unsafe { (*inner).raw = raw };
        let mut slots = Slab::new();
        // SAFETY: no preconditions.
        for _ in 0..unsafe { raw::ngy_roots_own() } {
            slots.insert(());
        }
        Ok(Self {
            raw,
            inner,
            slots,
            lost: false,
            memory,
            _ticker: Ticker::of_this_thread(),
        })
    }

    /// From now on what runs has its budget of time.
    pub fn unseal(&mut self) {
        // SAFETY: `raw` is open.
        unsafe { raw::ngy_unseal(self.raw) };
    }

    /// Gives what runs from now on so much CPU time until it waits or ends.
    pub fn set_cpu(&mut self, cpu: Duration) {
        let cpu_ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: `raw` is open or was given up; the shim's own number is there in both.
        unsafe { raw::ngy_set_cpu(self.raw, cpu_ns) };
    }

    /// The Rust side.
    pub fn host(&mut self) -> &mut H {
        // SAFETY: nothing of the interpreter runs while `self` is borrowed here.
        unsafe { &mut (*self.inner).host }
    }

    /// Whether it was given up.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Gives it up: it does nothing any more, as if one of its calls had not ended in time, and
    /// holds nothing.
    pub fn give_up(&mut self) {
        self.lost = true;
        // SAFETY: `raw` is open or was given up, and nothing of it runs now.
        unsafe { raw::ngy_empty(self.raw) };
    }

    /// Defines a class or module below `outer` (`""` for the top).
    ///
    /// # Errors
    /// When there is another of that name, or no such `outer`.
    pub fn define(
        &mut self,
        outer: &str,
        name: &str,
        superclass: &str,
        kind: ClassKind,
    ) -> Result<(), Error> {
        let kind: c_int = match kind {
            ClassKind::Module => 0,
            ClassKind::Class => 1,
            ClassKind::Holding => 2,
        };
        self.guarded(|raw| {
            // SAFETY: `raw` is open, and the texts outlive the call.
            unsafe { raw::ngy_class(raw, text(outer), text(name), text(superclass), kind) }
        })
    }

    /// Defines a method in Rust.
    ///
    /// # Errors
    /// When there is no such class.
    pub fn method(
        &mut self,
        class: &str,
        name: &str,
        of: MethodOf,
        takes: Takes,
        native: Native<H>,
    ) -> Result<(), Error> {
        // SAFETY: nothing of the interpreter runs now.
        let natives = unsafe { &mut (*self.inner).natives };
        natives.push(native);
        let spec = spec(natives.len() - 1, takes);
        let kind = c_int::from(of == MethodOf::Class);
        self.guarded(|raw| {
            // SAFETY: `raw` is open, and the texts outlive the call.
            unsafe { raw::ngy_method(raw, text(class), text(name), kind, spec) }
        })
    }

    /// Defines a constant of a class (`""` for the top).
    ///
    /// # Errors
    /// When there is no such class.
    pub fn constant(&mut self, class: &str, name: &str, value: &Datum) -> Result<(), Error> {
        let mut bytes = Vec::new();
        datum::write(value, &mut bytes);
        let answer = tree_of(&bytes);
        self.guarded(|raw| {
            // SAFETY: `raw` is open, and texts and answer outlive the call.
            unsafe { raw::ngy_constant(raw, text(class), text(name), &raw const answer) }
        })
    }

    /// Defines a method of a class's objects that always answers the same, whatever it is given.
    ///
    /// # Errors
    /// When there is no such class.
    pub fn always(&mut self, class: &str, name: &str, value: &Datum) -> Result<(), Error> {
        let mut bytes = Vec::new();
        datum::write(value, &mut bytes);
        let answer = tree_of(&bytes);
        self.guarded(|raw| {
            // SAFETY: `raw` is open, and texts and answer outlive the call.
            unsafe { raw::ngy_always(raw, text(class), text(name), &raw const answer) }
        })
    }

    /// Compiles `source`, whose first line is `line` of the file `name`.
    ///
    /// # Errors
    /// What is wrong with it: a SyntaxError with its line.
    pub fn compile(&mut self, source: &[u8], name: &str, line: u16) -> Result<Slot, Error> {
        let slot = self.slots.insert(());
        let compiled = self.guarded(|raw| {
            // SAFETY: `raw` is open, and the texts outlive the call.
            unsafe { raw::ngy_compile(raw, Text::of(source), text(name), line, slot) }
        });
        self.kept(slot, compiled)
    }

    /// Runs a compiled script outside of any fiber; it cannot wait.
    ///
    /// # Errors
    /// What it raised.
    pub fn run(&mut self, script: Slot) -> Result<(), Error> {
        // SAFETY: `raw` is open.
        self.guarded(|raw| unsafe { raw::ngy_run(raw, script.0) })
    }

    /// Makes a fiber that runs scripts, one after another.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn fiber(&mut self) -> Result<Slot, Error> {
        let slot = self.slots.insert(());
        // SAFETY: `raw` is open.
        let made = self.guarded(|raw| unsafe { raw::ngy_fiber(raw, slot) });
        self.kept(slot, made)
    }

    /// Starts or goes on with a fiber, until its script ends or waits; `lent` is what natives see of
    /// the request meanwhile.
    ///
    /// # Errors
    /// What it raised; the fiber is dead then.
    pub fn resume(
        &mut self,
        fiber: Slot,
        with: Resume,
        lent: Option<&mut H::Lent>,
    ) -> Result<Halt, Error> {
        let mut bytes = Vec::new();
        let mut answer = RawAnswer::nil();
        let message;
        match with {
            Resume::Script(script) => {
                answer.kind = raw::INTEGER;
                answer.integer = script.0 as i64;
            }
            Resume::Value(Datum::Nil) => {}
            Resume::Value(value) => {
                datum::write(&value, &mut bytes);
                answer = tree_of(&bytes);
            }
            Resume::Object(class, held) => {
                // SAFETY: nothing of the interpreter runs now.
                let handle = unsafe { (*self.inner).objects.insert(held) };
                datum::write_object(class, handle as u64, &mut bytes);
                answer = tree_of(&bytes);
            }
            Resume::Raise(class, said) => {
                message = said;
                answer = raise_of(class, message.as_bytes());
            }
        }
        // SAFETY: nothing of the interpreter runs now. The pointer is taken away again below,
        // before `lent` can be used by anybody else.
        unsafe { (*self.inner).lent = lent.map(NonNull::from) };
        let ended = self.guarded(|raw| {
            // SAFETY: `raw` is open, and the answer and its bytes outlive the call.
            unsafe { raw::ngy_resume(raw, fiber.0, &raw const answer) }
        });
        // SAFETY: nothing of the interpreter runs any more.
        unsafe { (*self.inner).lent = None };
        ended?;
        // SAFETY: `raw` is open.
        match unsafe { raw::ngy_ended(self.raw) } {
            0 => Ok(Halt::Parked),
            // SAFETY: nothing has run since, so that it is still there.
            _ => Ok(Halt::Ended(within(
                self.raw,
                unsafe { raw::ngy_result(self.raw) },
                ENDED_ELEMENTS_MAX,
                ENDED_BYTES_MAX,
            ))),
        }
    }

    /// Where a fiber that waits stands, innermost first: `FILE:LINE:in METHOD`.
    pub fn whereabouts(&self, fiber: Slot) -> Vec<String> {
        let mut places = Vec::new();
        if !self.lost {
            // SAFETY: `raw` is open; `add_place` gets this very list, and only while the call lasts.
            unsafe { raw::ngy_where(self.raw, fiber.0, (&raw mut places).cast(), add_place) };
        }
        places
    }

    /// Lets what `slot` keeps be collected.
    pub fn let_go(&mut self, slot: Slot) {
        if self.slots.try_remove(slot.0).is_some() && !self.lost {
            // SAFETY: `raw` is open.
            unsafe { raw::ngy_let_go(self.raw, slot.0) };
        }
    }

    /// Collects everything nobody holds.
    ///
    /// # Errors
    /// When the interpreter was given up.
    pub fn collect(&mut self) -> Result<(), Error> {
        // SAFETY: `raw` is open.
        self.guarded(|raw| unsafe { raw::ngy_collect(raw) })
    }

    /// Bytes the interpreter holds.
    pub fn bytes(&self) -> usize {
        // SAFETY: `raw` is open or was given up; the shim's own counter is there in both.
        unsafe { raw::ngy_bytes(self.raw) }
    }

    /// What it may hold, while others that share its memory keep theirs.
    pub fn bytes_max(&self) -> usize {
        self.memory.most(self.bytes())
    }

    /// Objects in the interpreter, those nobody holds any more counted until they are collected.
    pub fn objects(&self) -> usize {
        // SAFETY: `raw` is open or was given up; the shim knows which.
        unsafe { raw::ngy_objects(self.raw) }
    }

    /// What of Rust's its objects hold.
    pub fn held(&self) -> usize {
        // SAFETY: nothing of the interpreter runs now.
        unsafe { (*self.inner).objects.len() }
    }

    /// Counts instructions from now on, or no longer. Counting is slow.
    pub fn count_instructions(&mut self, counting: Counting) {
        // SAFETY: `raw` is open.
        unsafe { raw::ngy_count(self.raw, c_int::from(counting == Counting::On)) };
    }

    /// Instructions since counting began.
    pub fn instructions(&self) -> u64 {
        // SAFETY: the shim's own counter.
        unsafe { raw::ngy_instructions(self.raw) }
    }

    fn kept(&mut self, slot: usize, made: Result<(), Error>) -> Result<Slot, Error> {
        match made {
            Ok(()) => Ok(Slot(slot)),
            Err(error) => {
                self.let_go(Slot(slot));
                Err(error)
            }
        }
    }

    fn guarded(&mut self, enter: impl FnOnce(*mut RawVm) -> c_int) -> Result<(), Error> {
        if self.lost {
            return Err(Error::Lost);
        }
        let ended = enter(self.raw);
        // SAFETY: nothing of the interpreter runs any more.
        let inner = unsafe { &mut *self.inner };
        inner.scratch.clear();
        inner.scratch.shrink_to(SCRATCH_BYTES_KEPT);
        match ended {
            raw::FINE => Ok(()),
            raw::RAISED => Err(Error::Raised(inner.raised.take().unwrap_or_else(unknown))),
            _ => {
                self.give_up();
                Err(Error::Lost)
            }
        }
    }
}

impl<H: Host> Drop for Vm<H> {
    fn drop(&mut self) {
        // SAFETY: `raw` was opened by us and is closed once; objects that die with it tell `inner`,
        // which therefore goes last.
        unsafe {
            match self.lost {
                true => raw::ngy_discard(self.raw),
                false => raw::ngy_close(self.raw),
            }
            drop(Box::from_raw(self.inner));
        }
    }
}

/// Whether instructions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// They are.
    On,
    /// They are not.
    Off,
}

/// # Safety
/// `places` is the list of a call of [`Vm::whereabouts`], and `place` is there until this returns.
unsafe extern "C" fn add_place(places: *mut c_void, place: Text) {
    // SAFETY: as said; nobody else looks at them meanwhile.
    let (places, place) = unsafe { (&mut *places.cast::<Vec<String>>(), slice(place)) };
    if places.len() < PLACES_MAX {
        places.push(String::from_utf8_lossy(place).into_owned());
    }
}

fn text(text: &str) -> Text {
    Text::of(text.as_bytes())
}

fn spec(native: usize, takes: Takes) -> u64 {
    let most = takes.most.min(64);
    native as u64
        | u64::from(takes.least.min(most)) << 20
        | u64::from(most) << 28
        | u64::from(takes.texts) << 36
}

fn unknown() -> Raised {
    Raised {
        class: "Exception".to_owned(),
        message: "an exception that cannot be shown".to_owned(),
        backtrace: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
