//! Rates: all of a request are checked, then all are charged, or none.

use std::time::Duration;

use super::Books;
use super::attempt::Facts;
use super::entry::Entry;
use super::gate::Gate;
use super::route::{FEW, Keys, Need};
use crate::Time;
use crate::ask::{Ask, WANTS_MAX};
use crate::definition::Mode;
use crate::refusal::{Refusal, Why};

/// A rate that a request exceeds.
#[derive(Debug)]
struct Exceeded {
    want: usize,
    facts: Facts,
    retry_after: Duration,
}

impl Books {
    /// Checks and charges the rates of a request.
    pub(super) fn check_rates(
        &self,
        worker: usize,
        now: Time,
        ask: &Ask<'_>,
    ) -> Result<(), Box<Refusal>> {
        let wants = ask.wants.get(..WANTS_MAX).unwrap_or(ask.wants);
        let ask = &Ask { wants, ..*ask };
        match wants.len() {
            ..=FEW => self.charge_or_refuse::<FEW>(worker, now, ask),
            _ => self.charge_or_refuse::<WANTS_MAX>(worker, now, ask),
        }
    }

    fn charge_or_refuse<const N: usize>(
        &self,
        worker: usize,
        now: Time,
        ask: &Ask<'_>,
    ) -> Result<(), Box<Refusal>> {
        let mut keys = self.keys::<N>(ask.wants);
        // Each need is met or replaced by a lesser one, so this ends after a few turns.
        loop {
            match self.charge(worker, now, ask, &keys) {
                Ok(None) => return Ok(()),
                Ok(Some(exceeded)) => {
                    let key = ask.wants.get(exceeded.want).and_then(|want| want.key);
                    let Exceeded {
                        facts, retry_after, ..
                    } = exceeded;
                    let refusal = facts.refuse(Why::Rate, key, Duration::ZERO, Some(retry_after));
                    return Err(Box::new(refusal));
                }
                Err(need) => {
                    let table = self.cells[worker].lock().table.clone();
                    self.provide(now, ask, &table, &mut keys, need);
                }
            }
        }
    }

    fn charge<const N: usize>(
        &self,
        worker: usize,
        now: Time,
        ask: &Ask<'_>,
        keys: &Keys<N>,
    ) -> Result<Option<Exceeded>, Need> {
        let own = self.cells[worker].lock();
        let table = &own.table;
        let rated = |entry: &Entry| entry.settings.rate.is_some();
        let mut route = self.route(table, ask.wants, keys, &[], rated);
        let mut shards = self.lock_shards(route.shards);
        self.find_gates(now, table, ask, keys, &mut route, &mut shards)?;
        let mut charged = [None; N];
        for at in route.stops.iter() {
            let Some((entry, rate)) = route.entries[at].and_then(|it| Some((it, it.rate()?)))
            else {
                continue;
            };
            let gate = shards.gate(route.places[at]);
            match rate.check(gate.tat, now) {
                Ok(tat) => charged[at] = Some(tat),
                Err(_) if entry.settings.mode == Mode::Shadow => {
                    charged[at] = Some(gate.tat);
                }
                Err(retry_after) => {
                    return Ok(Some(Exceeded::at(at, entry.clone(), gate, retry_after)));
                }
            }
        }
        for at in route.stops.iter() {
            if let Some(tat) = charged[at] {
                let entry = route.entries[at];
                shards
                    .gate(route.places[at])
                    .charge(tat, entry.map(|entry| &**entry));
            }
        }
        Ok(None)
    }
}

impl Exceeded {
    fn at(
        want: usize,
        entry: std::sync::Arc<Entry>,
        gate: &mut Gate,
        retry_after: Duration,
    ) -> Self {
        gate.refused = gate.refused.saturating_add(1);
        let gate = gate.clone();
        Self {
            want,
            facts: Facts { entry, gate },
            retry_after,
        }
    }
}

impl Gate {
    /// Moves the rate's instant on; one that stays says that a shadow would have refused.
    fn charge(&mut self, tat: Time, entry: Option<&Entry>) {
        if let Some(entry) = entry
            && self.tat == tat
        {
            self.would_refuse(entry);
        }
        self.tat = tat;
    }
}
