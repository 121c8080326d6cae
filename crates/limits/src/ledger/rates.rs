//! Rates: all of a request are checked, then all are charged, or none.

use std::time::Duration;

use super::Books;
use super::attempt::Facts;
use super::cells::Cells;
use super::entry::Entry;
use super::gate::Gate;
use super::route::{Bits, FEW, Keys, Need};
use super::shadow::Shadow;
use crate::Time;
use crate::ask::{Ask, WANTS_MAX};
use crate::definition::Mode;
use crate::refusal::{Refusal, Why};

/// What came of looking at all rates at once.
#[derive(Debug)]
enum Charged {
    /// They are charged, but for these, in shadow, which would have refused.
    All(Bits),
    /// This one is exceeded, and nothing was charged.
    None(Box<Exceeded>),
}

/// A rate that a request exceeds.
#[derive(Debug)]
struct Exceeded {
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
    ) -> Result<Vec<Refusal>, Box<Refusal>> {
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
    ) -> Result<Vec<Refusal>, Box<Refusal>> {
        let mut keys = self.keys::<N>(worker, ask.wants);
        // Each need is met or replaced by a lesser one, so this ends after a few turns.
        loop {
            match self.charge(worker, now, ask, &keys) {
                Ok(Charged::All(over)) if over.is_empty() => return Ok(Vec::new()),
                Ok(Charged::All(over)) => {
                    return Ok(self.shadows(now, ask, &keys, over, Shadow::Rates));
                }
                Ok(Charged::None(exceeded)) => {
                    let Exceeded { facts, retry_after } = *exceeded;
                    let refusal = facts.refuse(Why::Rate, Duration::ZERO, Some(retry_after));
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
    ) -> Result<Charged, Need> {
        let mut own = self.cells[worker].lock();
        let Cells { table, cells, .. } = &mut *own;
        let rated = |entry: &Entry| entry.settings.rate.is_some();
        let mut route = self.route(table, ask.wants, keys, &[], rated);
        let mut shards = self.lock_shards(route.shards);
        self.find_gates(now, table, ask, keys, &mut route, &mut shards)?;
        let mut charged = [None; N];
        let mut over = Bits::default();
        for at in route.stops.iter() {
            let Some((entry, rate)) = route.entries[at].and_then(|it| Some((it, it.rate()?)))
            else {
                continue;
            };
            let gate = shards.gate(route.places[at]);
            match rate.check(gate.tat, now) {
                Ok(tat) => charged[at] = Some(tat),
                Err(_) if entry.settings.mode == Mode::Shadow => over.add(at),
                Err(retry_after) => {
                    let exceeded = Exceeded::at(now, entry.clone(), gate, retry_after);
                    return Ok(Charged::None(Box::new(exceeded)));
                }
            }
        }
        for at in route.stops.iter() {
            let Some(entry) = route.entries[at] else {
                continue;
            };
            let gate = shards.gate(route.places[at]);
            gate.tat = charged[at].unwrap_or(gate.tat);
            if over.has(at) {
                gate.note_shadow(entry);
                let (each, turns) = entry.turn(Why::Rate, gate.held());
                gate.note_lost(now, each, turns);
            }
            // One that counts permits as well counts whom it admits there.
            if entry.settings.concurrent.is_none()
                && let Some(cell) = cells.get_mut(entry.index() as usize)
            {
                gate.admitted += 1;
                cell.admitted += 1;
            }
        }
        Ok(Charged::All(over))
    }
}

impl Exceeded {
    fn at(now: Time, entry: std::sync::Arc<Entry>, gate: &mut Gate, retry_after: Duration) -> Self {
        gate.note_refusal(&entry, Why::Rate, now);
        let gate = gate.clone();
        Self {
            facts: Facts { entry, gate },
            retry_after,
        }
    }
}
