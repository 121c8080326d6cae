//! Where the interpreter calls Rust: natives, objects that die, exceptions.
//!
//! Each function here is called by the shim while a method of [`crate::Vm`] is being executed, and
//! never calls the interpreter back.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice::from_raw_parts;

use slab::Slab;

use crate::call::{Answer, Call, Host, Native, slice};
use crate::datum;
use crate::raw::{self, HostTable, RawAnswer, RawValue, RawVm, Text};
use crate::vm::Raised;

/// Bytes kept of an exception's message.
const MESSAGE_BYTES_MAX: usize = 4_096;

/// The Rust side of an interpreter, as the shim knows it.
pub(crate) struct Inner<H: Host> {
    pub(crate) raw: *mut RawVm,
    pub(crate) host: H,
    pub(crate) natives: Vec<Native<H>>,
    pub(crate) objects: Slab<Rc<dyn Any>>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) message: Vec<u8>,
    pub(crate) lent: Option<NonNull<H::Lent>>,
    pub(crate) raised: Option<Raised>,
}

impl<H: Host> Inner<H> {
    pub(crate) fn new(host: H) -> Self {
        Self {
            raw: ptr::null_mut(),
            host,
            natives: Vec::new(),
            objects: Slab::new(),
            scratch: Vec::new(),
            message: Vec::new(),
            lent: None,
            raised: None,
        }
    }

    /// What the shim is to call, with `inner` as its state.
    pub(crate) fn table(inner: *mut Self) -> HostTable {
        HostTable {
            state: inner.cast(),
            dispatch: dispatch::<H>,
            cancel: cancel::<H>,
            dropped: dropped::<H>,
            failed: failed::<H>,
        }
    }
}

pub(crate) fn tree_of(bytes: &[u8]) -> RawAnswer {
    RawAnswer {
        bytes: bytes.as_ptr().cast(),
        size: bytes.len(),
        kind: raw::TREE,
        ..RawAnswer::nil()
    }
}

pub(crate) fn raise_of(class: &str, message: &[u8]) -> RawAnswer {
    RawAnswer {
        bytes: message.as_ptr().cast(),
        size: message.len(),
        name: class.as_ptr().cast(),
        name_size: class.len(),
        kind: raw::RAISE,
        ..RawAnswer::nil()
    }
}

/// # Safety
/// Called by the shim: `state` is the `Inner` of a `Vm` one of whose methods is being executed, and
/// no reference to it is alive; the arguments are values of that interpreter.
unsafe extern "C" fn dispatch<H: Host>(
    state: *mut c_void,
    native: u32,
    receiver: RawValue,
    count: usize,
    arguments: *const RawValue,
    answer: *mut RawAnswer,
) {
    // SAFETY: as said above.
    let inner = unsafe { &mut *state.cast::<Inner<H>>() };
    // SAFETY: the shim's own, for us to fill.
    let answer = unsafe { &mut *answer };
    let arguments = match count {
        0 => &[],
        // SAFETY: as said above; they live on the caller's C stack.
        _ => unsafe { from_raw_parts(arguments, count) },
    };
    let Some(native) = inner.natives.get(native as usize) else {
        *answer = RawAnswer::nil();
        return;
    };
    inner.scratch.clear();
    let mut call = Call {
        host: &mut inner.host,
        scratch: &mut inner.scratch,
        vm: inner.raw,
        receiver,
        arguments,
        // SAFETY: set by `resume` for as long as it lasts, which is longer than this call.
        lent: inner.lent.map(|mut lent| unsafe { lent.as_mut() }),
        objects: &inner.objects,
    };
    let given = catch_unwind(AssertUnwindSafe(|| native(&mut call)));
    let given = match given {
        // Nothing of what was given stands there.
        Ok(Answer::Argument(index)) if index >= count => Answer::Nil,
        Ok(given) => given,
        Err(_) => Answer::Raise(
            "ScriptError",
            "a bug of the gateway: see its error log".to_owned(),
        ),
    };
    inner.put(given, receiver, answer);
}

impl<H: Host> Inner<H> {
    /// Writes an answer down; what its pointers point to stays until the next call.
    #[inline(always)]
    fn put(&mut self, given: Answer, receiver: RawValue, answer: &mut RawAnswer) {
        *answer = RawAnswer::nil();
        match given {
            Answer::Nil => {}
            Answer::Bool(true) => answer.kind = raw::TRUE,
            Answer::Bool(false) => answer.kind = raw::FALSE,
            Answer::Int(number) => {
                answer.kind = raw::INTEGER;
                answer.integer = number;
            }
            Answer::Float(number) => {
                answer.kind = raw::FLOAT;
                answer.number = number;
            }
            Answer::Scratch => self.put_scratch(raw::BYTES, answer),
            Answer::Bytes(bytes) => {
                self.scratch = bytes;
                self.put_scratch(raw::BYTES, answer);
            }
            Answer::Datum(datum) => {
                self.scratch.clear();
                datum::write(&datum, &mut self.scratch);
                self.put_scratch(raw::TREE, answer);
            }
            Answer::Receiver => answer.kind = raw::SELF,
            Answer::Argument(index) => {
                answer.kind = raw::ARGUMENT;
                answer.integer = i64::try_from(index).unwrap_or(0);
            }
            Answer::Attach(held) => self.attach(held, receiver, answer),
            Answer::Stamp(number) => {
                answer.kind = raw::STAMP;
                answer.integer = number.cast_signed();
            }
            Answer::Object(class, held) => {
                let handle = self.objects.insert(held) as u64;
                self.scratch.clear();
                datum::write_object(class, handle, &mut self.scratch);
                self.put_scratch(raw::TREE, answer);
            }
            Answer::Wait => answer.kind = raw::WAIT,
            Answer::Raise(class, message) => {
                self.message = message.into_bytes();
                *answer = raise_of(class, &self.message);
            }
        }
    }

    fn put_scratch(&self, kind: i32, answer: &mut RawAnswer) {
        answer.kind = kind;
        answer.bytes = self.scratch.as_ptr().cast();
        answer.size = self.scratch.len();
    }

    fn attach(&mut self, held: Rc<dyn Any>, receiver: RawValue, answer: &mut RawAnswer) {
        answer.kind = raw::SELF;
        // SAFETY: of any value.
        let before = unsafe { raw::ngy_handle(receiver) };
        let before = usize::try_from(before)
            .ok()
            .and_then(|number| number.checked_sub(1));
        match before.and_then(|index| self.objects.get_mut(index)) {
            // Initialised a second time.
            Some(place) => *place = held,
            None => {
                answer.kind = raw::ATTACH;
                answer.integer = i64::try_from(self.objects.insert(held)).unwrap_or(0);
            }
        }
    }
}

/// # Safety
/// As [`dispatch`].
unsafe extern "C" fn cancel<H: Host>(state: *mut c_void) {
    // SAFETY: as said.
    let inner = unsafe { &mut *state.cast::<Inner<H>>() };
    // What it drops must not unwind into C.
    let _ = catch_unwind(AssertUnwindSafe(|| inner.host.cancel_wait()));
}

/// # Safety
/// As [`dispatch`]; `handle` is of an object that is being freed.
unsafe extern "C" fn dropped<H: Host>(state: *mut c_void, handle: u64) {
    // SAFETY: as said.
    let inner = unsafe { &mut *state.cast::<Inner<H>>() };
    let held = usize::try_from(handle)
        .ok()
        .and_then(|handle| inner.objects.try_remove(handle));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(held)));
}

/// # Safety
/// As [`dispatch`]; the texts are there while this lasts.
unsafe extern "C" fn failed<H: Host>(
    state: *mut c_void,
    class: Text,
    message: Text,
    backtrace: Text,
) {
    // SAFETY: as said.
    let inner = unsafe { &mut *state.cast::<Inner<H>>() };
    let shown = |text: Text| {
        // SAFETY: as said.
        let bytes = unsafe { slice(text) };
        let end = bytes.len().min(MESSAGE_BYTES_MAX);
        String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned()
    };
    inner.raised = Some(Raised {
        class: shown(class),
        message: shown(message),
        backtrace: shown(backtrace).lines().map(str::to_owned).collect(),
    });
}
