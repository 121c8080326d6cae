//! What limits in shadow would have refused, told with the figures a refusal has.
//!
//! Under the locks of a request's gates it is only marked which of them would have said no; the
//! words are found afterwards, when nobody waits for them. The figures are those of that moment,
//! without the request itself, and never less than what made the limit say no.

use std::time::Duration;

use super::Books;
use super::attempt::Facts;
use super::entry::Entry;
use super::route::{Bits, Keys};
use crate::Time;
use crate::ask::Ask;
use crate::refusal::{Refusal, Why};

impl Books {
    /// What the limits in shadow among `over`, numbered as the request's wants, would have said.
    pub(super) fn shadows<const N: usize>(
        &self,
        now: Time,
        ask: &Ask<'_>,
        keys: &Keys<N>,
        over: Bits,
        shadow: Shadow,
    ) -> Vec<Refusal> {
        let own = ask.worker % self.cells.len();
        let table = self.cells[own].lock().table.clone();
        let told = over.iter().filter_map(|at| {
            let want = ask.wants.get(at)?;
            let entry = table.limit(want.limit)?.clone();
            let gate = self.gate_of(&entry, keys, at)?;
            Some(Facts { entry, gate }.shadow(now, shadow))
        });
        told.collect()
    }
}

/// What a limit in shadow was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shadow {
    /// For a permit, which the request has by now.
    Permits,
    /// Whether requests come too fast.
    Rates,
}

impl Facts {
    /// Puts into words what would have been refused.
    pub(super) fn shadow(mut self, now: Time, shadow: Shadow) -> Refusal {
        let (why, retry_after) = match shadow {
            Shadow::Rates => (Why::Rate, self.next_allowed(now)),
            Shadow::Permits => {
                let Self { entry, gate } = &mut self;
                let cap = match entry.fleet {
                    None => entry.cap(),
                    Some(_) => gate.leased,
                };
                let least = cap.saturating_add(entry.settings.queue);
                gate.in_flight = gate.in_flight.saturating_sub(1).max(least);
                (entry.shadow_why(), None)
            }
        };
        self.refuse(why, Duration::ZERO, retry_after)
    }

    fn next_allowed(&self, now: Time) -> Option<Duration> {
        if self.entry.shares_rate() {
            return Some(self.gate.stock.spent(now));
        }
        self.entry.rate()?.check(self.gate.tat, now).err()
    }
}

impl Entry {
    fn shadow_why(&self) -> Why {
        match self.settings.queue {
            0 => Why::Full,
            _ => Why::QueueFull,
        }
    }
}
