//! A native at work: what it was given, and what it may answer.

use std::any::Any;
use std::ffi::c_void;
use std::rc::Rc;

use crate::datum::Datum;
use crate::raw::{self, RawValue, RawVm};

/// Levels of nested arrays and hashes that are looked into.
const DEPTH_MAX: usize = 32;

/// Elements of one argument that are looked at, nested ones counted.
const ELEMENTS_MAX: usize = 200_000;

/// Bytes of Strings and Symbols in one argument that are copied: one String can stand in an Array
/// any number of times, and a copy of each is outside of the interpreter's memory.
const BYTES_MAX: usize = 32 << 20;

/// The Rust side of an interpreter: what natives work on.
pub trait Host: 'static {
    /// What is lent for the time of one run, as the request it runs for.
    type Lent: ?Sized + 'static;

    /// A wait that was announced by [`Answer::Wait`] cannot be: something in C is in the way.
    fn cancel_wait(&mut self);
}

/// A method in Rust.
pub type Native<H> = fn(&mut Call<'_, H>) -> Answer;

/// What a native answers. Values are made of it when the native's own frame is gone.
#[derive(Debug)]
pub enum Answer {
    /// `nil`.
    Nil,
    /// `true` or `false`.
    Bool(bool),
    /// An Integer.
    Int(i64),
    /// A Float.
    Float(f64),
    /// A String of what [`Call::scratch`] holds.
    Scratch,
    /// A String.
    Bytes(Vec<u8>),
    /// Anything.
    Datum(Datum),
    /// The object whose method was called.
    Receiver,
    /// An argument, by its number from 0.
    Argument(usize),
    /// The receiver, which holds this from now on (for `initialize`).
    Attach(Rc<dyn Any>),
    /// The receiver, which bears this number from now on, never 0 (for `initialize`).
    Stamp(u64),
    /// A new object of the class with this full name, which holds this.
    Object(&'static str, Rc<dyn Any>),
    /// The fiber waits; what it is resumed with becomes the value.
    Wait,
    /// An exception: the full name of its class, and what it says.
    Raise(&'static str, String),
}

impl Answer {
    /// An ArgumentError.
    pub fn argument_error(message: impl Into<String>) -> Self {
        Self::Raise("ArgumentError", message.into())
    }

    /// A TypeError.
    pub fn type_error(message: impl Into<String>) -> Self {
        Self::Raise("TypeError", message.into())
    }

    /// A RuntimeError.
    pub fn runtime_error(message: impl Into<String>) -> Self {
        Self::Raise("RuntimeError", message.into())
    }
}

impl From<Datum> for Answer {
    fn from(datum: Datum) -> Self {
        Self::Datum(datum)
    }
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `nil`.
    Nil,
    /// `false`.
    False,
    /// `true`.
    True,
    /// An Integer.
    Integer,
    /// A Float.
    Float,
    /// A Symbol.
    Symbol,
    /// A String.
    String,
    /// An Array.
    Array,
    /// A Hash.
    Hash,
    /// Any other object.
    Other,
}

/// One call of a native.
pub struct Call<'a, H: Host> {
    /// The host's own state.
    pub host: &'a mut H,
    /// Where the bytes of [`Answer::Scratch`] are written; empty at first.
    pub scratch: &'a mut Vec<u8>,
    pub(crate) vm: *mut RawVm,
    pub(crate) receiver: RawValue,
    pub(crate) arguments: &'a [RawValue],
    pub(crate) lent: Option<&'a mut H::Lent>,
    pub(crate) objects: &'a slab::Slab<Rc<dyn Any>>,
}

impl<'a, H: Host> Call<'a, H> {
    /// What was lent for this run.
    pub fn lent(&mut self) -> Option<&mut H::Lent> {
        self.lent.as_deref_mut()
    }

    /// What was lent for this run, beside the host and the scratch.
    pub fn parts(&mut self) -> (&mut H, &mut Vec<u8>, Option<&mut H::Lent>) {
        (self.host, self.scratch, self.lent.as_deref_mut())
    }

    /// How many arguments there are.
    pub fn count(&self) -> usize {
        self.arguments.len()
    }

    /// What the argument is; a missing one is [`Kind::Nil`].
    pub fn kind(&self, index: usize) -> Kind {
        self.arguments
            .get(index)
            .map_or(Kind::Nil, |value| kind(*value))
    }

    /// The argument's bytes, if it is a String.
    pub fn bytes(&self, index: usize) -> Option<&[u8]> {
        let value = *self.arguments.get(index)?;
        // SAFETY: of a String. Its memory stays as it is until the interpreter runs again, which
        // needs the native to have returned; the borrow of `self` ends before.
        (kind(value) == Kind::String).then(|| unsafe { slice(raw::ngy_string(value)) })
    }

    /// The argument's bytes, if it is a String or a Symbol.
    pub fn name(&self, index: usize) -> Option<Vec<u8>> {
        match self.kind(index) {
            Kind::String => self.bytes(index).map(<[u8]>::to_vec),
            Kind::Symbol => self
                .arguments
                .get(index)
                .map(|value| symbol(self.vm, *value)),
            _ => None,
        }
    }

    /// The argument as a whole number, if it is an Integer, or a Float without a fraction.
    pub fn int(&self, index: usize) -> Option<i64> {
        let value = *self.arguments.get(index)?;
        match kind(value) {
            // SAFETY: of an Integer.
            Kind::Integer => Some(unsafe { raw::ngy_integer(value) }),
            Kind::Float => {
                // SAFETY: of a Float.
                let number = unsafe { raw::ngy_float(value) };
                #[allow(clippy::cast_possible_truncation, reason = "as casts saturate")]
                let whole = number as i64;
                #[allow(
                    clippy::cast_precision_loss,
                    reason = "compared with what it was made of"
                )]
                let same = whole as f64 == number;
                same.then_some(whole)
            }
            _ => None,
        }
    }

    /// The argument as a number, if it is one.
    pub fn float(&self, index: usize) -> Option<f64> {
        let value = *self.arguments.get(index)?;
        match kind(value) {
            // SAFETY: of a Float.
            Kind::Float => Some(unsafe { raw::ngy_float(value) }),
            #[allow(clippy::cast_precision_loss, reason = "a count of seconds or the like")]
            // SAFETY: of an Integer.
            Kind::Integer => Some(unsafe { raw::ngy_integer(value) } as f64),
            _ => None,
        }
    }

    /// Whether the argument counts as true in Ruby; a missing one does not.
    pub fn truth(&self, index: usize) -> bool {
        !matches!(self.kind(index), Kind::Nil | Kind::False)
    }

    /// The whole argument; what is nested deeper than 32 levels, comes after 200,000 elements, or
    /// finds no room in 32 MiB, is left out.
    pub fn datum(&self, index: usize) -> Datum {
        let value = self.arguments.get(index);
        value.map_or(Datum::Nil, |value| {
            within(self.vm, *value, ELEMENTS_MAX, BYTES_MAX)
        })
    }

    /// Bytes of all arguments that are Strings.
    pub fn given_bytes(&self) -> usize {
        let each = (0..self.count()).filter_map(|index| self.bytes(index));
        each.map(<[u8]>::len).sum()
    }

    /// What the receiver holds, if it holds a `T`.
    pub fn attached<T: 'static>(&self) -> Option<Rc<T>> {
        self.held_by(self.receiver)
    }

    /// As [`Call::attached`], for no longer than the call.
    pub fn held<T: 'static>(&self) -> Option<&'a T> {
        self.object(self.receiver)?.downcast_ref()
    }

    /// The number the receiver was stamped with; 0 for none.
    pub fn stamp(&self) -> u64 {
        // SAFETY: of any value.
        unsafe { raw::ngy_stamp(self.receiver) }
    }

    /// What an argument holds, if it holds a `T`.
    pub fn argument_attached<T: 'static>(&self, index: usize) -> Option<Rc<T>> {
        self.held_by(*self.arguments.get(index)?)
    }

    fn held_by<T: 'static>(&self, value: RawValue) -> Option<Rc<T>> {
        Rc::clone(self.object(value)?).downcast().ok()
    }

    fn object(&self, value: RawValue) -> Option<&'a Rc<dyn Any>> {
        // SAFETY: of any value.
        let handle = unsafe { raw::ngy_handle(value) };
        let index = usize::try_from(handle).ok()?.checked_sub(1)?;
        self.objects.get(index)
    }
}

fn kind(value: RawValue) -> Kind {
    // SAFETY: of any value.
    match unsafe { raw::ngy_kind(value) } {
        0 => Kind::Nil,
        1 => Kind::False,
        2 => Kind::True,
        3 => Kind::Integer,
        4 => Kind::Float,
        5 => Kind::Symbol,
        6 => Kind::String,
        7 => Kind::Array,
        8 => Kind::Hash,
        _ => Kind::Other,
    }
}

/// # Safety
/// The memory is there and unchanged for as long as the caller says it is borrowed.
pub(crate) unsafe fn slice<'a>(text: raw::Text) -> &'a [u8] {
    if text.bytes.is_null() || text.size == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(text.bytes.cast(), text.size) }
}

fn symbol(vm: *mut RawVm, value: RawValue) -> Vec<u8> {
    // SAFETY: of a Symbol; copied before the shim's memory is used again.
    unsafe { slice(raw::ngy_symbol(vm, value)) }.to_vec()
}

/// A value as far as it has no more elements and bytes than that.
pub(crate) fn within(vm: *mut RawVm, value: RawValue, elements: usize, bytes: usize) -> Datum {
    datum(vm, value, 0, &mut Left { elements, bytes })
}

/// How much more of a value is looked at.
struct Left {
    elements: usize,
    bytes: usize,
}

impl Left {
    /// Room for so many bytes, which are taken off.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }
}

fn datum(vm: *mut RawVm, value: RawValue, depth: usize, left: &mut Left) -> Datum {
    if depth > DEPTH_MAX || left.elements == 0 {
        return Datum::Other;
    }
    left.elements -= 1;
    match kind(value) {
        Kind::Nil => Datum::Nil,
        Kind::False => Datum::Bool(false),
        Kind::True => Datum::Bool(true),
        // SAFETY: of an Integer.
        Kind::Integer => Datum::Int(unsafe { raw::ngy_integer(value) }),
        // SAFETY: of a Float.
        Kind::Float => Datum::Float(unsafe { raw::ngy_float(value) }),
        Kind::Symbol => match symbol(vm, value) {
            name if left.take(name.len()) => Datum::Symbol(name),
            _ => Datum::Other,
        },
        // SAFETY: of a String, copied at once.
        Kind::String => match unsafe { slice(raw::ngy_string(value)) } {
            text if left.take(text.len()) => Datum::Bytes(text.to_vec()),
            _ => Datum::Other,
        },
        Kind::Array => array(vm, value, depth, left),
        Kind::Hash => hash(vm, value, depth, left),
        Kind::Other => Datum::Other,
    }
}

fn array(vm: *mut RawVm, value: RawValue, depth: usize, left: &mut Left) -> Datum {
    // SAFETY: of an Array.
    let length = unsafe { raw::ngy_array_length(value) };
    let mut items = Vec::new();
    for index in 0..length {
        if left.elements == 0 {
            break;
        }
        // SAFETY: of an Array; beyond its end there is nil.
        let item = unsafe { raw::ngy_array_at(value, index) };
        items.push(datum(vm, item, depth + 1, left));
    }
    Datum::Array(items)
}

struct Walk<'a> {
    vm: *mut RawVm,
    depth: usize,
    left: &'a mut Left,
    pairs: Vec<(Datum, Datum)>,
}

fn hash(vm: *mut RawVm, value: RawValue, depth: usize, left: &mut Left) -> Datum {
    let mut walk = Walk {
        vm,
        depth: depth + 1,
        left,
        pairs: Vec::new(),
    };
    // SAFETY: of a Hash; `each` gets the pointer given here, and only while this call lasts.
    unsafe { raw::ngy_hash_each(vm, value, (&raw mut walk).cast(), each) };
    Datum::Hash(walk.pairs)
}

/// # Safety
/// `walk` points to the `Walk` of a call of [`hash`].
unsafe extern "C" fn each(walk: *mut c_void, key: RawValue, value: RawValue) {
    // SAFETY: as said; nobody else looks at it meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    if walk.left.elements > 0 {
        let key = datum(walk.vm, key, walk.depth, walk.left);
        let value = datum(walk.vm, value, walk.depth, walk.left);
        walk.pairs.push((key, value));
    }
}
