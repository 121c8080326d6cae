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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Takes looks at a parent and tells the sum counted, in milliseconds. Each look: own time,
    /// time told of children, time of children that were known and are gone.
    fn counted_ms(looks: &[(u64, u64, u64)]) -> u64 {
        let mut account = Account::default();
        let gains = looks
            .iter()
            .map(|(own, told, buried)| account.look(Some(own * MS), told * MS, buried * MS));
        gains.sum::<u64>() / MS
    }

    #[test]
    fn the_time_of_ended_children_is_counted_once() {
        for (what, looks, expected) in [
            ("no children", &[(5, 0, 0), (9, 0, 0)][..], 9),
            ("a child nobody saw", &[(5, 0, 0), (5, 40, 0)], 45),
            // 30 ms were counted by the child's own clock, and are not in this account's sum.
            ("a child seen in part", &[(5, 0, 0), (5, 40, 30)], 15),
            (
                "it is gone first, and told of a look later",
                &[(5, 0, 30), (5, 40, 0)],
                15,
            ),
            (
                "told of a look before it is gone",
                &[(5, 40, 0), (5, 40, 0)],
                45,
            ),
            (
                "ticks are cut off and made good later",
                &[(0, 10, 15), (0, 30, 0), (0, 50, 0)],
                35,
            ),
            (
                "nobody waits for the first, but for the second",
                &[(0, 0, 500), (0, 0, 0), (0, 80, 0)],
                60,
            ),
            (
                "the books never shrink",
                &[(0, 50, 0), (0, 20, 0), (0, 50, 0)],
                50,
            ),
            (
                "the clock never goes back",
                &[(50, 0, 0), (20, 0, 0), (60, 0, 0)],
                60,
            ),
        ] {
            assert_eq!(counted_ms(looks), expected, "{what}");
        }
    }

    #[test]
    fn what_an_account_counted_is_what_its_heir_was_told() {
        let mut account = Account::default();
        account.look(Some(5 * MS), 40 * MS, 30 * MS);
        assert_eq!(account.counted_ns(), 45 * MS);
        let adopted = Account::from_now_on(7 * MS, 100 * MS);
        assert_eq!(adopted.counted_ns(), 107 * MS);
    }

    #[test]
    fn an_adopted_process_counts_from_its_adoption() {
        let mut account = Account::from_now_on(7 * MS, 100 * MS);
        assert_eq!(account.look(Some(7 * MS), 100 * MS, 0), 0);
        assert_eq!(account.look(Some(8 * MS), 110 * MS, 0), 11 * MS);
    }

    #[test]
    fn a_process_that_is_gone_and_numbers_out_of_all_bounds_are_no_harm() {
        let mut account = Account::default();
        assert_eq!(account.look(None, 0, 0), 0);
        account.look(Some(u64::MAX), u64::MAX, u64::MAX);
        assert_eq!(account.look(Some(u64::MAX), u64::MAX, u64::MAX), 0);
        assert_eq!(account.counted_ns(), u64::MAX);
    }
}
