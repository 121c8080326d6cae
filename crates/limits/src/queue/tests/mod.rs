//! Tests of the queue: what it promises, by a simulated server and by calls in any order.
//!
//! `NAGAYA_EVENTS` says how many requests a simulation takes (default 20,000); `make soak` wants more.

mod any_order;
mod basics;
mod classes;
mod fairness;
mod lateness;
mod memory;
mod neighbours;
mod prediction;
mod promise;
mod simulation;

use std::time::Duration;

use crate::ask::Class;
use crate::queue::{Prefix, Waiter};
use crate::time::Time;

/// How many requests a simulation takes.
fn events() -> usize {
    let wanted = std::env::var("NAGAYA_EVENTS")
        .ok()
        .and_then(|text| text.parse().ok());
    wanted.unwrap_or(20_000)
}

fn at_ms(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

/// The client network number `number`.
fn network(number: u32) -> Prefix {
    Prefix::of(std::net::Ipv4Addr::from(number << 8).into())
}

/// Somebody of weight 1 who waits ten seconds.
fn waiter(id: u64, arrived_ms: u64, tenant: u32, client: u32) -> Waiter {
    let arrived = at_ms(arrived_ms);
    Waiter {
        id,
        arrived,
        until: arrived + Duration::from_secs(10),
        tenant,
        weight: 1,
        class: Class::NONE,
        client: network(client),
    }
}
