//! Who is asked for next, of the names that nobody knows yet: networks of clients take turns.
//!
//! The idea: a name waits in the turns of the network that came for it first, in order, and networks are
//! served in a ring. So whoever makes up names waits behind its own, and a network that comes for one is next.
//! Lists are bounded, in all and by network; beyond, the newest is refused.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Names that wait in all, and of one network.
const WAITING_MAX: usize = 8_192;
const OF_NETWORK_MAX: usize = 256;

/// The names that wait.
#[derive(Debug, Default)]
pub(super) struct Turns {
    networks: HashMap<IpAddr, VecDeque<Box<str>>>,
    ring: VecDeque<IpAddr>,
    waiting: usize,
}

impl Turns {
    /// Has a name wait; `false` where there is no room for it.
    pub(super) fn push(&mut self, network: IpAddr, name: &str) -> bool {
        let own = self.networks.get(&network).map_or(0, VecDeque::len);
        if own >= OF_NETWORK_MAX || self.waiting >= WAITING_MAX {
            return false;
        }
        self.waiting += 1;
        let names = self.networks.entry(network).or_default();
        if names.is_empty() {
            self.ring.push_back(network);
        }
        names.push_back(name.into());
        true
    }

    /// The next name.
    pub(super) fn pop(&mut self) -> Option<Box<str>> {
        let network = self.ring.pop_front()?;
        let names = self.networks.get_mut(&network)?;
        let name = names.pop_front();
        match names.is_empty() {
            true => {
                self.networks.remove(&network);
            }
            false => self.ring.push_back(network),
        }
        self.waiting = self.waiting.saturating_sub(1);
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
            assert_eq!(
                turns.push(network(1), &format!("x{at}")),
                at < OF_NETWORK_MAX
            );
        }
        assert!(turns.push(network(2), "new"));
        let order: Vec<_> = (0..3).filter_map(|_| turns.pop()).collect();
        assert_eq!(
            order.iter().map(|name| &**name).collect::<Vec<_>>(),
            ["x0", "new", "x1"]
        );
        assert_eq!(turns.len(), OF_NETWORK_MAX - 2);
        while turns.pop().is_some() {}
        assert!(turns.networks.is_empty() && turns.ring.is_empty() && turns.len() == 0);
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
}
