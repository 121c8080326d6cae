//! What is known of clients, tenants and kinds of steps in the queue of handshakes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::queue::pace::Average;
use crate::queue::ring::Account;
use crate::time::Time;

use super::StepKind;

/// What a full handshake takes before any was measured.
const FULL_NS: u64 = 1_000_000;
/// The same of what is short.
const SHORT_NS: u64 = 200_000;
/// Of the time, while both wait, short steps get so many parts for each that full ones get.
const SHORT_WEIGHT: u32 = 3;

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) client: u64,
    pub(super) tenant: u64,
    pub(super) kind: StepKind,
    pub(super) until: Time,
    /// When it was let in, as a number; `None`: not yet.
    pub(super) inside: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) account: Account,
    /// Whether it has something inside.
    pub(super) is_inside: bool,
    /// Whether it has said short what was not.
    pub(super) is_distrusted: bool,
    /// What has not been let in.
    pub(super) waiting: BTreeSet<(StepKind, u64)>,
}

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) weight: u32,
    /// By kind.
    pub(super) accounts: [Account; 2],
    pub(super) inside: [BTreeSet<(u64, u64)>; 2],
    /// All that waits.
    pub(super) waiting: BTreeSet<(StepKind, u64)>,
}

#[derive(Debug)]
pub(super) struct KindAccount {
    pub(super) account: Account,
    pub(super) cost: Average,
    pub(super) guess_ns: u64,
}

impl KindAccount {
    pub(super) fn new(kind: StepKind) -> Self {
        Self {
            account: Account::new(Time::ZERO, weight_of(kind)),
            cost: Average::default(),
            guess_ns: match kind {
                StepKind::Short => SHORT_NS,
                StepKind::Full => FULL_NS,
            },
        }
    }

    pub(super) fn cost_ns(&self) -> u64 {
        self.cost.value_ns().unwrap_or(self.guess_ns)
    }
}

impl Client {
    pub(super) fn length(&self) -> u64 {
        self.waiting.len() as u64 + u64::from(self.is_inside)
    }
}

impl Tenant {
    /// How long its queue is for its weight, were there so many more in it.
    pub(super) fn length(&self, more: usize) -> u64 {
        length((self.waiting.len() + more) as u64, self.weight)
    }
}

/// How long a queue of so many is for a weight.
pub(super) fn length(count: u64, weight: u32) -> u64 {
    (count << 20) / u64::from(weight.max(1))
}

pub(super) fn lengthen(lengths: &mut BTreeSet<(u64, u64)>, number: u64, before: u64, after: u64) {
    if before > 0 {
        lengths.remove(&(before, number));
    }
    if after > 0 {
        lengths.insert((after, number));
    }
}

pub(super) fn kind_of(at: u64) -> StepKind {
    match at {
        0 => StepKind::Short,
        _ => StepKind::Full,
    }
}

pub(super) fn weight_of(kind: StepKind) -> u32 {
    match kind {
        StepKind::Short => SHORT_WEIGHT,
        StepKind::Full => 1,
    }
}

/// The client an address stands for. One of IPv4 takes the place of one that is no address of a client: the first
/// byte of those is for groups.
pub(super) fn client_number(address: IpAddr) -> u64 {
    const GROUPS: u64 = 0xff << 56;
    let of_four = |address: Ipv4Addr| GROUPS | u64::from(u32::from(address));
    let of_six = |address: Ipv6Addr| (address.to_bits() >> 64) as u64;
    match address {
        IpAddr::V4(address) => of_four(address),
        IpAddr::V6(address) => address
            .to_ipv4_mapped()
            .map_or_else(|| of_six(address), of_four),
    }
}
