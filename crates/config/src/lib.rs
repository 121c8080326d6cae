//! The configuration file: parsed with recovery, lowered to a model that cannot be wrong.
//!
//! `load` reads a file and its includes and returns either a [`model::Model`] or every problem
//! it found, each with file, line, column and what to do. Nobody else reads configuration.
#![forbid(unsafe_code)]

mod address;
mod alike;
mod diagnostics;
mod dump;
mod glob;
mod include;
mod keys;
mod library;
pub mod log_paths;
mod lower;
mod mentions;
pub mod model;
pub mod overrides;
mod packing;
mod reason;
mod reference;
mod sources;
mod units;

pub use address::split_port;
pub use diagnostics::{Colour, Diagnostics, Place, Problem};
pub use dump::{dump, quote};
pub use lower::limits::key::spell as spell_key;
pub use lower::{load, load_and_warn};
pub use reason::reason;
pub use reference::{reference, sensor_reference};
pub use sources::{Damaged, Sources};
pub use units::{duration, size};
