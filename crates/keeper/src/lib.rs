//! The processes that hold keys: the keeper of private keys, and the one that asks authorities for
//! certificates.
#![forbid(unsafe_code)]

pub mod acme;
mod judge;
mod keys;
mod links;
mod making;
mod process;
mod sandbox;
mod tickets;

pub use judge::{Pair, judge};
pub use process::run;
