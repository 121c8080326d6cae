//! Ruby in a box: a safe wrapper over mruby 3.2.
//!
//! The one idea: nothing of the interpreter is ever held in Rust. A native gets to look at its
//! arguments and answers with plain data ([`Answer`], [`Datum`]); values are made of it in C, when
//! the native's frame is gone, so that no longjmp crosses Rust. What has to last (a compiled script,
//! a fiber) is kept in the interpreter under a number ([`Slot`]).
//!
//! A run has a budget: bytes, counted by the interpreter's own allocator, and CPU time, kept by a
//! timer on the thread's CPU clock, which arms a hook before every instruction. Code stuck in one C
//! call beyond that is left by a jump, and the interpreter freed as a whole.
//!
//! Left out: classes, waits and requests. They are the crate `script`.

mod bridge;
mod call;
mod datum;
mod memory;
mod raw;

mod ticker;
mod vm;

/// mruby itself; we use what it links, not its bindings, whose structures may differ from ours.
#[allow(unused_extern_crates, reason = "linked, never named")]
extern crate mruby3_sys;

pub use call::{Answer, Call, Host, Kind, Native};
pub use datum::Datum;
pub use memory::Memory;
pub use vm::{Budget, ClassKind, Counting, Error, Halt, MethodOf, Raised, Resume, Slot, Takes, Vm};
