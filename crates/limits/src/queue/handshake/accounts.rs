//! What is known of clients, tenants and classes of steps in the queue of handshakes.

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
/// In what order those go that were let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Short steps.
    Short,
    /// Full ones.
    Full,
    /// One of a client that has paid beyond the round, let in out of its turn.
    Beyond,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) client: u64,
    pub(super) tenant: u64,
    pub(super) kind: StepKind,
    pub(super) until: Time,
    /// When it was let in, as a number, and among whom; `None`: not yet.
    pub(super) inside: Option<(u64, Class)>,
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
    /// By class.
    pub(super) accounts: [Account; Class::ALL.len()],
    pub(super) inside: [BTreeSet<(u64, u64)>; Class::ALL.len()],
    /// All that waits.
    pub(super) waiting: BTreeSet<(StepKind, u64)>,
}

/// What steps of a kind take.
#[derive(Debug)]
pub(super) struct Cost {
    pub(super) measured: Average,
    guess_ns: u64,
}

impl Cost {
    pub(super) fn new(kind: StepKind) -> Self {
        Self {
            measured: Average::default(),
            guess_ns: match kind {
                StepKind::Short => SHORT_NS,
                StepKind::Full => FULL_NS,
            },
        }
    }

    pub(super) fn ns(&self) -> u64 {
        self.measured.value_ns().unwrap_or(self.guess_ns)
    }
}

impl Class {
    /// In the order of their numbers.
    pub(super) const ALL: [Self; 3] = [Self::Short, Self::Full, Self::Beyond];

    pub(super) fn of(kind: StepKind) -> Self {
        match kind {
            StepKind::Short => Self::Short,
            StepKind::Full => Self::Full,
        }
    }

    /// The class that a ring of classes knows by this number.
    pub(super) fn at(number: u64) -> Self {
        match number {
            0 => Self::Short,
            1 => Self::Full,
            _ => Self::Beyond,
        }
    }

    /// Its part of the time, while all wait.
    pub(super) fn weight(self) -> u32 {
        match self {
            Self::Short => 27,
            Self::Full => 9,
            Self::Beyond => 1,
        }
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
