//! The directory process: it asks databases which sites there are.
//!
//! The idea: a server asks for a host and gets one answer, in bounded time, whatever the source does. What the
//! source said last is kept in a snapshot, which answers where the source does not ([`process`], [`asker`]).
//! Rows come as texts by column ([`source`]) and are judged one by one ([`judge`]): a wrong one is out alone.
//!
//! Left out: how long rows are believed and who waits for them (the server does that).
#![forbid(unsafe_code)]

mod archive;
mod asker;
mod changes;
mod check;
mod counts;
mod fleet;
mod judge;
mod memcached;
mod process;
mod snapshot;
mod source;
mod users;

pub use archive::Archive;
pub use asker::{Asker, Word};
pub use check::{Checked, RowCheck, check};
pub use fleet::{FleetAsker, FleetChecked, check_fleet};
pub use process::run;
