//! One process's CPU time, and the part of its ended children's that nobody has counted yet.
//!
//! The idea: a parent that waits for a child is told all that child used, in ticks. What is known
//! of the child already (its clock was read while it lived) is taken off; the rest is new. Ticks
//! are cut off, so the rest may come out a little short and is made good later: the largest rest so
//! far is what counts, and counters never go backwards.

use super::clock::TICK_NS;

/// User and system time are cut off to ticks each.
const SLACK_NS: u64 = 2 * TICK_NS;

/// What is counted of a process and its ended children.
#[derive(Debug, Default)]
pub(super) struct Account {
    own_ns: u64,
    /// Of the ended children's time, what was counted by their own clocks.
    buried_ns: u64,
    /// Of the ended children's time, what was counted because the parent was told of it.
    told_ns: u64,
}

impl Account {
    /// Of a process whose time before now is none of the tree's.
    pub(super) fn from_now_on(own_ns: u64, reaped_ns: u64) -> Account {
        Account {
            own_ns,
            buried_ns: reaped_ns,
            told_ns: 0,
        }
    }

    /// What has been counted here; all of it is told to whoever waits for this process.
    pub(super) fn counted_ns(&self) -> u64 {
        self.own_ns
            .saturating_add(self.buried_ns)
            .saturating_add(self.told_ns)
    }

    /// Takes a look: its own clock, where it has one yet; what it was told of its children; how
    /// much of its children's time was counted by their own clocks and they are gone now. Returns
    /// what is new.
    pub(super) fn look(&mut self, own_ns: Option<u64>, reaped_ns: u64, buried_ns: u64) -> u64 {
        let own_ns = own_ns.unwrap_or(self.own_ns).max(self.own_ns);
        let own_gain = own_ns - self.own_ns;
        self.own_ns = own_ns;
        // Children that nobody waited for are in no parent's time; a look later that is certain,
        // and they no longer hide what others used.
        let known_ns = self.buried_ns.saturating_add(self.told_ns);
        let missing_ns = known_ns.saturating_sub(reaped_ns.saturating_add(SLACK_NS));
        self.buried_ns = self.buried_ns.saturating_sub(missing_ns);
        self.buried_ns = self.buried_ns.saturating_add(buried_ns);
        let rest_ns = reaped_ns.saturating_sub(self.buried_ns);
        let told_gain = rest_ns.saturating_sub(self.told_ns);
        self.told_ns = self.told_ns.saturating_add(told_gain);
        own_gain.saturating_add(told_gain)
    }
}
