//! What Linux tells of the machine's state: load, pressure, memory, connections, descriptors.
//!
//! The idea: a file of `/proc` that is asked ten times a second stays open ([`KeptFile`]) and is
//! read again from its start; what stands in it is taken apart by functions of text alone, which
//! answer `None` to what they do not know. How often to ask, and what a value means, is the
//! callers' business.
//!
//! Pressure is read as the total of time lost, not waited for with the kernel's triggers: those
//! say that a threshold was passed, never that it is over, tell it once a window, and an
//! unprivileged process may only have windows of 2 s and more. Totals are brought up to date by
//! the very reading, so that two of them 100 ms apart know sooner.

mod conntrack;
mod descriptors;
mod kept;
mod load;
mod memory;
mod ports;
mod pressure;
mod sockets;

pub use conntrack::{ENTRY_BYTES, conntrack_number, conntrack_refused};
pub use descriptors::OpenDescriptors;
pub use kept::KeptFile;
pub use load::load_averages;
pub use memory::{Memory, memory, pages_swapped_in};
pub use ports::{PortRange, PortWalk, port_range};
pub use pressure::{Pressure, pressure};
pub use sockets::listen_overflows;
