//! What the VMs of one worker and generation have together: memory, places to wait, clients of
//! stores, and lines in the error log.
//!
//! Each of these has a number, which holds for all of them: a worker asks a store over as many
//! connections and writes as many lines however many tenants have VMs of their own.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use mruby::Memory;

use crate::clients::Clients;
use crate::log_lines::LogLines;
use crate::settings::Budgets;

/// What VMs have together.
pub(crate) struct Together {
    pub(crate) memory: Rc<Memory>,
    /// Lines in the error log.
    pub(crate) lines: RefCell<LogLines>,
    /// Made when a script first uses a store.
    clients: OnceCell<Rc<Clients>>,
    parked: Cell<usize>,
    parked_max: usize,
}

impl Together {
    pub(crate) fn new(budgets: &Budgets) -> Rc<Self> {
        Rc::new(Self {
            memory: Memory::of(budgets.memory_bytes),
            lines: RefCell::default(),
            clients: OnceCell::new(),
            parked: Cell::new(0),
            parked_max: budgets.parked,
        })
    }

    /// The clients of stores.
    pub(crate) fn clients(&self, budgets: &Budgets) -> Rc<Clients> {
        let clients = self.clients.get_or_init(|| Rc::new(Clients::new(budgets)));
        Rc::clone(clients)
    }

    /// Counts one more script that waits, of a VM in which `own` do already. As memory is divided, so
    /// are places: a VM above its share has none of the last quarter.
    ///
    /// # Errors
    /// There is no place for it; how many wait.
    pub(crate) fn park(&self, own: usize) -> Result<(), usize> {
        let (all, most, vms) = (self.parked.get(), self.parked_max, self.memory.vms());
        let is_above = vms > 1 && own >= most / vms && all >= most - most / 4;
        if all >= most || is_above {
            return Err(all);
        }
        self.parked.set(all + 1);
        Ok(())
    }

    /// One of them goes on.
    pub(crate) fn unpark(&self) {
        self.parked.set(self.parked.get().saturating_sub(1));
    }
}
