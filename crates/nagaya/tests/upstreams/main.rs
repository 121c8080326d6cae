//! Back ends: forwarding, other servers of the trade, agents, bodies set aside, and work that goes on without its client.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod agents;
mod peers;
mod proxy;
mod spool;
mod stragglers;
