//! Rates: all of a request are checked, then all are charged, or none.
//!
//! Of rates that machines share a request may have to wait for the store (`fleet_rates`); then nothing is charged, and all are
//! checked again.

use std::sync::Arc;
use std::time::Duration;

use super::Books;
use super::attempt::Facts;
use super::cells::Cells;
use super::entry::Entry;
use super::fleet_rates::{RateSaid, RateTicket, RateTurn};
use super::gate::Gate;
use super::handle::Handle;
use super::holds::Place;
use super::route::{Bits, FEW, Keys, Need};
use super::shadow::Shadow;
use crate::Time;
use crate::ask::{Ask, WANTS_MAX};
use crate::definition::Mode;
use crate::refusal::{Refusal, Why};

/// Whether the rates of a request let it begin.
#[derive(Debug)]
pub enum RateCheck {
    /// They do, and are charged; these in shadow would have refused it.
    Passed(Vec<Refusal>),
    /// One is exceeded, and nothing was charged.
    Refused(Box<Refusal>),
    /// The store is asked whether one is; nothing was charged.
    Waiting(RateTicket),
}

/// What came of looking at all rates at once.
#[derive(Debug)]
enum Charged<const N: usize> {
    /// They are charged, but for these, in shadow, which would have refused; and for these the store is asked afterwards.
    All(Bits, Bits, [Place; N]),
    /// This one is exceeded, and nothing was charged.
    None(Box<Exceeded>),
    /// The store is to be asked; at these gates the request is counted as waiting from now on.
    Ask(Bits, [Place; N]),
}

/// A rate that a request exceeds.
#[derive(Debug)]
struct Exceeded {
    facts: Facts,
    retry_after: Duration,
}

impl Books {
    /// Checks and charges the rates of a request, which may have waited for that.
    pub(super) fn check_rates(
        &self,
        handle: &Arc<Handle>,
        now: Time,
        ask: &Ask<'_>,
        ticket: Option<RateTicket>,
    ) -> RateCheck {
        let wants = ask.wants.get(..WANTS_MAX).unwrap_or(ask.wants);
        let ask = &Ask { wants, ..*ask };
        match wants.len() {
            ..=FEW => self.charge_or_refuse::<FEW>(handle, now, ask, ticket),
            _ => self.charge_or_refuse::<WANTS_MAX>(handle, now, ask, ticket),
        }
    }

    fn charge_or_refuse<const N: usize>(
        &self,
        handle: &Arc<Handle>,
        now: Time,
        ask: &Ask<'_>,
        mut ticket: Option<RateTicket>,
    ) -> RateCheck {
        let worker = handle.worker;
        let mut keys = self.keys::<N>(worker, ask.wants);
        let mut is_alone = false;
        // Each need is met or replaced by a lesser one, so this ends after a few turns.
        loop {
            let turn = match &ticket {
                _ if is_alone => RateTurn::Alone,
                None => RateTurn::First,
                Some(ticket) => ticket.turn(now),
            };
            match self.charge(worker, now, ask, &keys, turn) {
                Ok(Charged::All(over, later, places)) => {
                    if !later.is_empty() {
                        self.draw_later(now, &chosen(later, &places));
                    }
                    if over.is_empty() {
                        return RateCheck::Passed(Vec::new());
                    }
                    let shadows = self.shadows(now, ask, &keys, over, Shadow::Rates);
                    return RateCheck::Passed(shadows);
                }
                Ok(Charged::None(exceeded)) => {
                    let Exceeded { facts, retry_after } = *exceeded;
                    let refusal = facts.refuse(Why::Rate, Duration::ZERO, Some(retry_after));
                    return RateCheck::Refused(Box::new(refusal));
                }
                Ok(Charged::Ask(bits, places)) => {
                    let places = chosen(bits, &places);
                    match self.await_rates(handle, now, ticket.take(), places) {
                        Some(ticket) => return RateCheck::Waiting(ticket),
                        None => is_alone = true,
                    }
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
        turn: RateTurn<'_>,
    ) -> Result<Charged<N>, Need> {
        let mut own = self.cells[worker].lock();
        let Cells { table, cells, .. } = &mut *own;
        let rated = |entry: &Entry| entry.settings.rate.is_some();
        let mut route = self.route(table, ask.wants, keys, &[], rated);
        let mut shards = self.lock_shards(route.shards);
        self.find_gates(now, table, ask, keys, &mut route, &mut shards)?;
        let mut said = [None; N];
        let (mut over, mut asks) = (Bits::default(), Bits::default());
        for at in route.stops.iter() {
            let Some(entry) = route.entries[at] else {
                continue;
            };
            let place = route.places[at];
            let gate = shards.gate(place);
            said[at] = gate.ask_rate(entry, now, place, turn);
            let is_shadow = entry.settings.mode == Mode::Shadow;
            match said[at] {
                Some(RateSaid::Over(_)) if is_shadow => over.add(at),
                Some(RateSaid::Over(retry_after)) => {
                    let exceeded = Exceeded::at(now, entry.clone(), gate, retry_after);
                    return Ok(Charged::None(Box::new(exceeded)));
                }
                Some(RateSaid::Ask) if !is_shadow => asks.add(at),
                _ => {}
            }
        }
        if !asks.is_empty() {
            let mut counted = Bits::default();
            for at in asks.iter().filter(|at| !turn.has_waited(route.places[*at])) {
                shards.gate(route.places[at]).await_rate();
                counted.add(at);
            }
            return Ok(Charged::Ask(counted, route.places));
        }
        let mut later = Bits::default();
        for at in route.stops.iter() {
            let Some(entry) = route.entries[at] else {
                continue;
            };
            let gate = shards.gate(route.places[at]);
            if let Some(said) = said[at]
                && gate.begin(said, now)
            {
                later.add(at);
            }
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
        Ok(Charged::All(over, later, route.places))
    }
}

/// The places of these gates.
fn chosen(bits: Bits, places: &[Place]) -> Vec<Place> {
    let chosen = bits.iter().filter_map(|at| places.get(at).copied());
    chosen.collect()
}

impl Exceeded {
    fn at(now: Time, entry: Arc<Entry>, gate: &mut Gate, retry_after: Duration) -> Self {
        gate.note_refusal(&entry, Why::Rate, now);
        let gate = gate.clone();
        Self {
            facts: Facts { entry, gate },
            retry_after,
        }
    }
}
