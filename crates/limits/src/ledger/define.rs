//! Puts limits in force: a generation's, and what is changed while running.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Books;
use super::cells::{Cell, Counted};
use super::entry::{Entry, KeyCount, Table, Tenant};
use super::gate::Standing;
use super::holds::{Hold, Place};
use super::wait_queue::{WaitQueue, Wakers};
use crate::Time;
use crate::adaptive::Adaptive;
use crate::ask::{LimitId, TenantId};
use crate::definition::{Change, Concurrent, Defined, Definition, Keyed, TenantDefinition};

/// What those need who put limits in force: only the one who has it replaces the table.
#[derive(Debug, Default)]
pub(super) struct Register {
    /// Where limits are that are configured or not yet forgotten.
    by_identity: HashMap<Arc<str>, u32>,
    /// The version of the limit added last.
    last_version: u32,
    /// Where a place is looked for that may be lent.
    pub(super) lent_at: usize,
    /// How many are lent.
    pub(super) lent: Arc<AtomicUsize>,
}

impl Books {
    /// Puts a generation's limits in force. They are made ready while all others go on.
    pub(super) fn define(
        &self,
        now: Time,
        limits: &[Definition],
        tenants: &[TenantDefinition],
    ) -> Defined {
        let mut register = self.register.lock();
        let mut table = (*self.in_force()).clone();
        let tenants = table.set_tenants(tenants);
        for shard in &self.shards {
            shard.lock().set_tenants(table.tenants.len());
        }
        let mut vacant = table.vacant();
        let limits: Vec<LimitId> = limits
            .iter()
            .map(|definition| self.place_limit(&mut register, &mut table, &mut vacant, definition))
            .collect();
        let named: HashSet<LimitId> = limits.iter().copied().collect();
        for entry in table.limits.iter_mut().flatten() {
            if !named.contains(&entry.id) && !entry.retired {
                let retired = true;
                *entry = Arc::new(Entry {
                    retired,
                    ..(**entry).clone()
                });
            }
        }
        self.put_in_force(now, table);
        Defined { limits, tenants }
    }

    /// Changes one limit.
    pub(super) fn change(&self, now: Time, limit: LimitId, change: &Change) {
        let _register = self.register.lock();
        let before = self.in_force();
        let Some(entry) = before.limit(limit) else {
            return;
        };
        let settings = entry.settings.with(change);
        let entry = Entry {
            settings,
            ..(**entry).clone()
        };
        let mut table = (*before).clone();
        if let Some(place) = table.limits.get_mut(limit.index as usize) {
            *place = Some(Arc::new(entry));
        }
        self.put_in_force(now, table);
    }

    pub(super) fn in_force(&self) -> Arc<Table> {
        self.wait_queue.lock().table.clone()
    }

    pub(super) fn put_in_force(&self, now: Time, table: Table) {
        let before = self.with_wait_queue(Some(now), |wait_queue, now, wakers| {
            self.replace(wait_queue, now, table, wakers)
        });
        // Thousands of limits may go with it: here nobody waits for that.
        drop(before);
    }

    /// Forgets limits that are not configured any more and have no permit out.
    pub(super) fn forget_retired(
        &self,
        register: &mut Register,
        wait_queue: &mut WaitQueue,
        now: Time,
        wakers: &mut Wakers,
    ) {
        let gone: Vec<Arc<Entry>> = wait_queue
            .table
            .limits
            .iter()
            .flatten()
            .filter(|entry| entry.retired && self.is_unused(now, entry))
            .cloned()
            .collect();
        if gone.is_empty() {
            return;
        }
        let mut table = (*wait_queue.table).clone();
        for entry in &gone {
            if let Some(place) = table.limits.get_mut(entry.index() as usize) {
                *place = None;
            }
            if register.by_identity.get(&*entry.identity) == Some(&entry.index()) {
                register.by_identity.remove(&*entry.identity);
            }
        }
        self.replace(wait_queue, now, table, wakers);
        for entry in gone.iter().filter(|entry| entry.is_fixed()) {
            let Place { shard, slot } = entry.place;
            self.shards[usize::from(shard)].lock().vacate(slot);
        }
    }

    fn is_unused(&self, now: Time, entry: &Entry) -> bool {
        if !entry.is_fixed() {
            return entry.life.gates.load(Ordering::Relaxed) == 0;
        }
        let Place { shard, slot } = entry.place;
        self.shards[usize::from(shard)]
            .lock()
            .gate(slot)
            .is_idle(now)
    }

    /// Finds the limit of a definition, or makes it.
    fn place_limit(
        &self,
        register: &mut Register,
        table: &mut Table,
        vacant: &mut Vec<usize>,
        definition: &Definition,
    ) -> LimitId {
        let known = register
            .by_identity
            .get(definition.identity.as_str())
            .and_then(|index| table.at(*index));
        let counters = known.map(|entry| entry.life.counters.clone());
        if let Some(entry) = known.filter(|it| it.is_keyed_as(definition)) {
            let id = entry.id;
            if let Some(entry) = entry.redefined(definition) {
                table.limits[id.index as usize] = Some(Arc::new(entry));
            }
            return id;
        }
        let index = vacant.pop().unwrap_or_else(|| {
            table.limits.push(None);
            table.limits.len() - 1
        });
        register.last_version = register.last_version.wrapping_add(1) & !LimitId::LEASED;
        let leased = definition.fleet.map_or(0, |_| LimitId::LEASED);
        let id = LimitId {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            version: register.last_version | leased,
        };
        let place = match definition.keyed {
            Keyed::Fixed => self.fixed_gate(id.index),
            Keyed::Dynamic => Place::default(),
        };
        // With the counts of the one that had its identity before, if there was one.
        let entry = Entry::of((id, place), definition, counters.unwrap_or_default());
        let identity = entry.identity.clone();
        register.by_identity.insert(identity, id.index);
        table.limits[index] = Some(Arc::new(entry));
        id
    }

    fn fixed_gate(&self, limit: u32) -> Place {
        let index = limit as usize % self.shards.len();
        let index = u16::try_from(index).unwrap_or(0);
        if !self.shards[usize::from(index)].lock().has_room() {
            self.make_room(index);
        }
        let mut shard = self.shards[usize::from(index)].lock();
        Place {
            shard: index,
            // Only who has the register adds fixed gates, but a key may have taken the room meanwhile.
            slot: if shard.has_room() {
                shard.occupy(limit, 0, Standing::Fixed)
            } else {
                drop(shard);
                return self.fixed_gate(limit);
            },
        }
    }

    /// Puts another table in force, everywhere at once, and serves whom it lets pass. The one
    /// before comes back.
    fn replace(
        &self,
        wait_queue: &mut WaitQueue,
        now: Time,
        table: Table,
        wakers: &mut Wakers,
    ) -> Arc<Table> {
        let before = wait_queue.table.clone();
        let changed: Vec<Arc<Entry>> = table
            .limits
            .iter()
            .flatten()
            .filter(|entry| before.is_news(entry))
            .cloned()
            .collect();
        for entry in &changed {
            if wait_queue.is_open(entry.index()) {
                self.close(wait_queue, Hold::new(entry.index(), entry.place, true));
            }
        }
        let table = Arc::new(table);
        let limits = table.limits.len();
        wait_queue.open.resize(limits, false);
        // What every worker counts with changes under the locks of all of them, once a reload.
        let mut all: Vec<_> = self.cells.iter().map(|cells| cells.lock()).collect();
        for entry in &changed {
            entry.apply(now);
        }
        for cells in &mut all {
            cells.table = table.clone();
            cells.cells.resize(limits, Cell::default());
            for entry in &changed {
                let cell = &mut cells.cells[entry.index() as usize];
                if before.is_new(entry) {
                    *cell = Cell::of(entry);
                }
                if entry.retired {
                    entry.life.counters.take_over(&mut cell.admitted);
                }
                cell.counted = Counted::without_cells(entry);
            }
        }
        drop(all);
        wait_queue.table = table;
        for entry in &changed {
            if !entry.suits_cells(self.cells.len()) {
                continue;
            }
            if before.is_new(entry) {
                self.open(wait_queue, entry.index());
            } else {
                // Counted in cells again when it has settled.
                wait_queue.unsettled.insert(entry.index(), None);
            }
        }
        for here in wait_queue.queues.values_mut() {
            let entry = wait_queue.table.at(here.limit);
            here.queue
                .set_late(entry.and_then(|entry| entry.settings.late));
        }
        let places: Vec<Place> = wait_queue.queues.keys().copied().collect();
        for place in places {
            self.serve(wait_queue, now, place, wakers);
        }
        before
    }
}

impl Entry {
    /// Makes the settings' numbers the ones that are counted with.
    fn apply(&self, now: Time) {
        let adaptive = &mut *self.life.adaptive.lock();
        let cap = match self.settings.concurrent {
            None => u32::MAX,
            Some(Concurrent::Fixed(cap)) => cap,
            Some(Concurrent::Auto { ceiling, .. }) if !self.is_fixed() => ceiling,
            Some(Concurrent::Auto { floor, ceiling }) => {
                let adaptive =
                    adaptive.get_or_insert_with(|| Box::new(Adaptive::new(floor, ceiling, now)));
                adaptive.set_bounds(floor, ceiling);
                adaptive.limit()
            }
        };
        if !self.is_auto() {
            *adaptive = None;
        }
        self.set_cap(cap);
    }
}

impl Table {
    /// Places of limits that were forgotten.
    fn vacant(&self) -> Vec<usize> {
        let places = self.limits.iter().enumerate();
        places
            .filter(|(_, entry)| entry.is_none())
            .map(|(at, _)| at)
            .collect()
    }

    /// Whether an entry is not the one in force.
    fn is_news(&self, entry: &Arc<Entry>) -> bool {
        self.at(entry.index())
            .is_none_or(|was| !Arc::ptr_eq(was, entry))
    }

    /// Whether an entry's limit was not there.
    fn is_new(&self, entry: &Entry) -> bool {
        self.at(entry.index()).is_none_or(|was| was.id != entry.id)
    }

    fn set_tenants(&mut self, definitions: &[TenantDefinition]) -> Vec<TenantId> {
        let named: HashSet<&str> = definitions.iter().map(|tenant| &*tenant.name).collect();
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut vacant = Vec::new();
        let all = Arc::make_mut(&mut self.tenants);
        for (at, tenant) in all.iter_mut().enumerate() {
            if named.contains(&*tenant.name) {
                known.insert(tenant.name.clone(), at);
                continue;
            }
            if !tenant.name.is_empty() {
                *tenant = Arc::new(tenant.left());
            }
            if tenant.is_gone() {
                vacant.push(at);
            }
        }
        definitions
            .iter()
            .map(|definition| {
                let at = known
                    .get(&definition.name)
                    .copied()
                    .or_else(|| vacant.pop());
                let keys = at
                    .and_then(|at| all.get(at))
                    .map_or_else(Arc::<KeyCount>::default, |tenant| tenant.keys.clone());
                let tenant = Arc::new(Tenant::named(definition, keys));
                let at = at.unwrap_or(all.len());
                match all.get_mut(at) {
                    Some(place) => *place = tenant,
                    None => all.push(tenant),
                }
                known.insert(definition.name.clone(), at);
                TenantId(u32::try_from(at).unwrap_or(u32::MAX))
            })
            .collect()
    }
}
