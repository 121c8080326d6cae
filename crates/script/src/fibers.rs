//! Fibers that wait for their next job.
//!
//! A fiber runs one script after another: making one costs more than a short script. One that is
//! parked when its request goes away is let go, and the collector frees it.

use std::cell::RefCell;

use mruby::{Error, Slot, Vm};

use crate::state::State;

/// Idle fibers kept.
const IDLE_MAX: usize = 256;

/// The fibers of one VM that have nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Fibers {
    idle: RefCell<Vec<Slot>>,
}

impl Fibers {
    /// A fiber that waits for a job.
    ///
    /// # Errors
    /// When none can be made.
    pub(crate) fn acquire(&self, vm: &mut Vm<State>) -> Result<Slot, Error> {
        match self.idle.borrow_mut().pop() {
            Some(fiber) => Ok(fiber),
            None => vm.fiber(),
        }
    }

    /// Keeps a fiber that has done its job.
    pub(crate) fn release(&self, fiber: Slot, vm: &mut Vm<State>) {
        let mut idle = self.idle.borrow_mut();
        match idle.len() < IDLE_MAX {
            true => idle.push(fiber),
            false => vm.let_go(fiber),
        }
    }

    /// Those of a VM that is gone.
    pub(crate) fn forget(&self) {
        self.idle.borrow_mut().clear();
    }
}
