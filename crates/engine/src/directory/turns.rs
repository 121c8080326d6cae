//! Who is asked for next, of the names that nobody knows yet: networks of clients take turns.
//!
//! The idea: a name waits in the turns of the network that came for it first, in order, and networks are
//! served in a ring. So whoever makes up names waits behind its own, and a network that comes for one is next.
//! Lists are bounded, in all and by network. Where there is no room in all, the network with most names gives one
//! up; beyond that, the newest is refused.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

/// Names that wait in all, and of one network.
const WAITING_MAX: usize = 8_192;
const OF_NETWORK_MAX: usize = 256;

/// What became of a name that was to wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PushedName {
    /// It waits.
    Waits,
    /// It waits, and this one waits no more.
    InPlaceOf(Box<str>),
    /// There is no room for it.
    Refused,
}

/// The names that wait.
#[derive(Debug, Default)]
pub(super) struct Turns {
    networks: HashMap<IpAddr, VecDeque<Box<str>>>,
    /// How many each network has, in order.
    counts: BTreeSet<(usize, IpAddr)>,
    ring: VecDeque<IpAddr>,
    waiting: usize,
}

impl Turns {
    /// Has a name wait.
    pub(super) fn push(&mut self, network: IpAddr, name: &str) -> PushedName {
        let own = self.networks.get(&network).map_or(0, VecDeque::len);
        let mut turn = PushedName::Waits;
        if own >= OF_NETWORK_MAX {
            return PushedName::Refused;
        }
        if self.waiting >= WAITING_MAX {
            let most = self.counts.last().filter(|(count, _)| *count > own + 1);
            let Some(given_up) = most.copied().and_then(|(_, of)| self.give_up(of)) else {
                return PushedName::Refused;
            };
            turn = PushedName::InPlaceOf(given_up);
        }
        let names = self.networks.entry(network).or_default();
        if names.is_empty() {
            self.ring.push_back(network);
        }
        names.push_back(name.into());
        self.note_count(network, own, own + 1);
        turn
    }

    /// The last name of a network that has several.
    fn give_up(&mut self, network: IpAddr) -> Option<Box<str>> {
        let names = self.networks.get_mut(&network)?;
        let (count, name) = (names.len(), names.pop_back());
        self.note_count(network, count, count - 1);
        name
    }

    fn note_count(&mut self, network: IpAddr, before: usize, now: usize) {
        self.counts.remove(&(before, network));
        if now > 0 {
            self.counts.insert((now, network));
        }
        self.waiting = (self.waiting + now).saturating_sub(before);
    }

    /// The next name.
    pub(super) fn pop(&mut self) -> Option<Box<str>> {
        let network = self.ring.pop_front()?;
        let names = self.networks.get_mut(&network)?;
        let (count, name) = (names.len(), names.pop_front());
        match names.is_empty() {
            true => {
                self.networks.remove(&network);
            }
            false => self.ring.push_back(network),
        }
        self.note_count(network, count, count.saturating_sub(1));
        name
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(last: u8) -> IpAddr {
        IpAddr::from([192, 0, last, 0])
    }

    #[test]
    fn a_network_that_comes_for_one_name_is_next_whoever_comes_for_many() {
        let mut turns = Turns::default();
        for at in 0..1_000 {
            let turn = turns.push(network(1), &format!("x{at}"));
            assert_eq!(turn == PushedName::Waits, at < OF_NETWORK_MAX);
        }
        assert_eq!(turns.push(network(2), "new"), PushedName::Waits);
        let order: Vec<_> = (0..3).filter_map(|_| turns.pop()).collect();
        assert_eq!(
            order.iter().map(|name| &**name).collect::<Vec<_>>(),
            ["x0", "new", "x1"]
        );
        assert_eq!(turns.len(), OF_NETWORK_MAX - 2);
        while turns.pop().is_some() {}
        assert!(turns.networks.is_empty() && turns.ring.is_empty() && turns.len() == 0);
        assert!(turns.counts.is_empty());
    }

    #[test]
    fn there_is_a_bound_in_all() {
        let mut turns = Turns::default();
        let networks = (0..=u8::MAX).map(network);
        let pushed = networks.flat_map(|it| (0..OF_NETWORK_MAX).map(move |at| (it, at)));
        for (network, at) in pushed {
            turns.push(network, &format!("{network}-{at}"));
        }
        assert_eq!(turns.len(), WAITING_MAX);
    }

    #[test]
    fn whoever_comes_for_one_name_has_a_turn_though_a_few_networks_have_all() {
        let mut turns = Turns::default();
        for (from, at) in (0..32).flat_map(|it| (0..OF_NETWORK_MAX).map(move |at| (it, at))) {
            assert_eq!(
                turns.push(network(from), &format!("{from}-{at}")),
                PushedName::Waits
            );
        }
        let last = format!("31-{}", OF_NETWORK_MAX - 1);
        assert_eq!(
            turns.push(network(99), "new"),
            PushedName::InPlaceOf(last.into())
        );
        assert_eq!(turns.push(network(0), "more"), PushedName::Refused);
        assert_eq!(turns.len(), WAITING_MAX);
        let round: Vec<_> = (0..33).filter_map(|_| turns.pop()).collect();
        assert!(round.iter().any(|name| &**name == "new"));
        while turns.pop().is_some() {}
        assert!(turns.counts.is_empty() && turns.len() == 0);
    }
}
