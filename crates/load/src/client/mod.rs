//! The load generator: prebuilt bytes out, replies scanned and counted, one event loop a thread.
//!
//! The idea: everything that can be decided is decided before the load begins (`plan`), and what
//! it came to is a value (`outcome`) that threads and slices merge. In between nothing is
//! allocated per request.

mod connection;
mod generator;
mod http2;
mod io;
mod key_bits;
mod live;
mod numbers;
mod order;
mod outcome;
mod plan;
mod pulse;
mod recorder;
mod reply;
mod request;
mod run;
mod running;
mod schedule;
mod series;
mod shared;
mod tls;
mod url;

pub use live::*;
pub use outcome::*;
pub use plan::*;
#[doc(hidden)]
pub use reply::replies_are_the_same_however_cut;
pub use request::{HttpVersion, Persistence, RequestBuilder};
pub use run::run;
pub use running::Running;
pub use series::{BUSY_MAX, GENERATOR_LATE_MAX_US};
pub use tls::Secured;
pub use url::{Scheme, Url, split_authority};
