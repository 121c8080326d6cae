//! What an operator and a test see of the ledger.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Books;
use super::entry::{Entry, Table};
use super::gate::{Gate, Standing};
use super::shard::Shard;
use super::wait_queue::WaiterState;
use crate::Time;
use crate::ask::LimitId;
use crate::look::{GateLook, LimitLook};

/// What lies in workers' cells of one limit.
#[derive(Debug, Clone, Copy, Default)]
struct InCells {
    free: u32,
    admitted: u64,
}

impl Books {
    /// Shows the busiest gates.
    pub(super) fn look(&self, now: Time, limit: Option<LimitId>, keys_max: usize) -> Vec<GateLook> {
        let (table, oldest) = self.with_wait_queue(Some(now), |wait_queue, now, _| {
            let oldest: HashMap<(u16, u32), Duration> = wait_queue
                .queues
                .iter()
                .filter_map(|(place, here)| {
                    Some(((place.shard, place.slot), now - here.queue.oldest()?))
                })
                .collect();
            (wait_queue.table.clone(), oldest)
        });
        let cells = self.in_cells(table.limits.len());
        let mut looks = Vec::new();
        for (index, shard) in (0..).zip(&self.shards) {
            let mut chunk = 0;
            loop {
                // A chunk at a time, so that nobody waits for more than that.
                let Some(gates) = shard.lock().chunk(chunk).map(<[Gate]>::to_vec) else {
                    break;
                };
                for (at, gate) in gates.iter().enumerate() {
                    let slot = Shard::slot_of(chunk, at);
                    let oldest = oldest.get(&(index, slot)).copied();
                    looks.extend(shown(&table, gate, limit, &cells, oldest));
                }
                chunk += 1;
                keep_busiest(&mut looks, keys_max, keys_max.saturating_mul(2));
            }
        }
        keep_busiest(&mut looks, keys_max, keys_max);
        looks
    }

    /// How long the oldest waiter has waited. Those who came first stand first, before them at most
    /// some whose wait is over and who have not looked yet.
    pub(super) fn oldest_wait(&self, now: Time) -> Option<Duration> {
        let wait_queue = self.wait_queue.lock();
        let mut records = wait_queue.records.values();
        let oldest = records.find(|record| matches!(record.state, WaiterState::Waiting(_)))?;
        Some(now - oldest.arrived)
    }

    /// Tells what each limit holds and has come to.
    pub(super) fn totals(&self) -> Vec<LimitLook> {
        // At the wait_queue, where a limit that is not in force any more takes over from its cells: so
        // nothing is counted twice, or not at all.
        let (cells, mut looks) = self.with_wait_queue(None, |wait_queue, _, _| {
            let cells = self.in_cells(wait_queue.table.limits.len());
            let limits = wait_queue.table.limits.iter().zip(&cells);
            let look = |(entry, cells): (&Option<Arc<Entry>>, &InCells)| {
                let entry = entry.as_ref().filter(|entry| !entry.retired)?;
                Some(entry.look(cells))
            };
            let looks: Vec<_> = limits.map(look).collect();
            (cells, looks)
        });
        for shard in &self.shards {
            let mut chunk = 0;
            // A chunk at a time, so that nobody waits for more than that.
            while let Some(gates) = shard.lock().chunk(chunk) {
                for gate in gates {
                    let look = looks.get_mut(gate.limit as usize);
                    if let Some(Some(look)) = look {
                        look.add(gate, &cells);
                    }
                }
                chunk += 1;
            }
        }
        looks.into_iter().flatten().collect()
    }

    /// By how much permits and counts differ.
    pub(super) fn drift(&self) -> u64 {
        let wait_queue = self.wait_queue.lock();
        let all: Vec<_> = self.cells.iter().map(|cells| cells.lock()).collect();
        let mut permits = wait_queue.holds;
        let mut free = HashMap::<u32, i64>::new();
        for cells in &all {
            permits += cells.holds;
            for (limit, cell) in (0..).zip(&cells.cells) {
                *free.entry(limit).or_default() += i64::from(cell.free);
            }
        }
        let mut drift = 0;
        let mut counted = 0;
        for shard in &self.shards {
            let shard = shard.lock();
            for gate in (0..).map_while(|at| shard.chunk(at)).flatten() {
                let in_cells = match gate.standing {
                    Standing::Fixed => free.get(&gate.limit).copied().unwrap_or(0),
                    _ => 0,
                };
                let out = i64::from(gate.in_flight) - in_cells;
                counted += out;
                drift += u64::try_from(-out).unwrap_or(0);
            }
        }
        drift + counted.abs_diff(permits)
    }

    fn in_cells(&self, limits: usize) -> Vec<InCells> {
        let mut sum = vec![InCells::default(); limits];
        for cells in &self.cells {
            for (sum, cell) in sum.iter_mut().zip(&cells.lock().cells) {
                sum.free += cell.free;
                sum.admitted += cell.admitted;
            }
        }
        sum
    }
}

impl Entry {
    /// What it has come to, without its gates.
    fn look(&self, cells: &InCells) -> LimitLook {
        LimitLook {
            limit: self.id,
            keys: 0,
            in_flight: 0,
            in_flight_most: 0,
            queued: 0,
            cap: self.settings.concurrent.map(|_| self.cap()),
            totals: self.life.counters.totals(cells.admitted),
        }
    }
}

impl LimitLook {
    fn add(&mut self, gate: &Gate, cells: &[InCells]) {
        let free = match gate.standing {
            Standing::Vacant => return,
            Standing::Fixed => cells.get(gate.limit as usize).map_or(0, |it| it.free),
            Standing::Key | Standing::Overflow => 0,
        };
        self.keys += 1;
        let in_flight = u64::from(gate.in_flight.saturating_sub(free));
        self.in_flight += in_flight;
        self.in_flight_most = self.in_flight_most.max(in_flight);
        self.queued += u64::from(gate.waiting);
    }
}

fn shown(
    table: &Table,
    gate: &Gate,
    limit: Option<LimitId>,
    cells: &[InCells],
    oldest: Option<Duration>,
) -> Option<GateLook> {
    let entry = table.at(gate.limit).filter(|entry| !entry.retired)?;
    if gate.standing == Standing::Vacant || limit.is_some_and(|limit| limit != entry.id) {
        return None;
    }
    let in_cells = match gate.standing {
        Standing::Fixed => cells.get(gate.limit as usize).copied().unwrap_or_default(),
        _ => InCells::default(),
    };
    Some(GateLook {
        limit: entry.id,
        name: entry.name.clone(),
        identity: entry.identity.clone(),
        key: gate.shown(),
        overflow: gate.standing == Standing::Overflow,
        in_flight: gate.in_flight.saturating_sub(in_cells.free),
        cap: entry.settings.concurrent.map(|_| match entry.fleet {
            None => entry.cap(),
            Some(_) => gate.leased,
        }),
        queued: gate.waiting,
        queue_max: entry.settings.queue,
        admitted: match gate.standing {
            Standing::Fixed => entry.life.counters.totals(in_cells.admitted).admitted,
            _ => gate.admitted,
        },
        refused: gate.refused.into(),
        shadow_refused: gate.shadow_refused.into(),
        waited: gate.waited.into(),
        oldest,
    })
}

/// Shortens a list of more than `looks_max` to the `keep` busiest.
fn keep_busiest(looks: &mut Vec<GateLook>, keep: usize, looks_max: usize) {
    if looks.len() > looks_max {
        looks.sort_by_key(|look| {
            let refused = look.refused + look.shadow_refused;
            std::cmp::Reverse((look.queued, look.in_flight, refused, look.admitted))
        });
        looks.truncate(keep);
    }
}
