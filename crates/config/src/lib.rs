//! The configuration file: parsed with recovery, lowered to a model that cannot be wrong.
//!
//! `load` reads a file and its includes and returns either a [`model::Model`] or every problem
//! it found, each with file, line, column and what to do. Nobody else reads configuration.
#![forbid(unsafe_code)]

mod address;
mod alike;
mod aside;
mod clients;
pub mod countries;
mod diagnostics;
mod digests;
mod dump;
mod glob;
mod include;
mod keys;
mod last_good;
mod library;
pub mod log_paths;
mod looks;
mod lower;
mod mentions;
pub mod model;
mod naming;
pub mod overrides;
mod packing;
mod reason;
mod reference;
mod sources;
mod units;

pub use address::split_port;
pub use aside::{Aside, SetAside, Stays, Wrong};
pub use clients::client_of_line;
pub use diagnostics::{Colour, Diagnostics, Place, Problem};
pub use digests::{digest, digests};
pub use dump::{dump, quote};
pub use include::expand;
pub use keys::nearest;
pub use last_good::{LastGood, Version};
pub use lower::fields::{is_changeable_field, is_variable_name};
pub use lower::hashes::is_borne as is_borne_hash;
pub use lower::limits::key::spell as spell_key;
pub use lower::upstream::POOL_PREFIX;
pub use lower::{judge, load, load_and_warn};
pub use mentions::AUTHORITIES;
pub use naming::Naming;
pub use reason::reason;
pub use reference::{reference, sensor_reference};
pub use sources::{Damaged, Sources};
pub use units::{duration, size};
