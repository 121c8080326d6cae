//! Operators' Ruby at the phases of a request.
//!
//! A script that waits suspends only its own request: each call of a script runs in a fiber, and a
//! native that has to wait leaves a future behind and parks the fiber; [`Interpreter::run`] awaits
//! the future and goes on with the fiber. Nothing in here blocks a thread.
//!
//! Start at `interpreter/` (one VM of one worker and generation, and a run in it), then `request.rs`
//! (what scripts see of a request: the engine implements it), then `api/` (the classes scripts use, as
//! tables). What happens when a native waits is told in `api/native.rs`.
//!
//! Left out: which script runs when, and what its answer means for the request. The engine decides.
#![forbid(unsafe_code)]

mod api;
mod blanks;
mod calendar;
mod checksum;
mod clients;
mod failure;
mod fibers;
mod interpreter;
mod library;
mod log_lines;
mod patterns;
mod phase;
mod replace;
mod request;
mod scope;
mod script;
mod settings;
mod shared;
mod state;
mod together;
mod token;
mod trial;
mod wait;

pub use api::reference;
pub use failure::{Cause, Exceeded, Failure};
pub use interpreter::{Begun, Interpreter, Ran, Run, Step, Wait};
pub use library::{Library, LibraryFile};
pub use mruby::{Datum, Raised};
pub use phase::Phase;
pub use request::{Property, Refused, Request, ShownPart, Side, TlsProperty};
pub use scope::{CgroupWish, DECLINED, Redirect, Said, Scope};
pub use script::{Cache, Script, Source};
pub use settings::{Budgets, Read, Reader, ServerClass, Settings, Waiting};
pub use shared::{Sensed, Shared};
pub use trial::{Files, Trial};
pub use wait::{Ask, Woken};
