//! The ledger: who holds which permits, for all workers.

use crate::Time;
use crate::ask::{Ask, LimitId};
use crate::definition::{Change, Defined, Definition, TenantDefinition};
use crate::look::GateLook;
use crate::permit::Permit;
use crate::refusal::Refusal;
use crate::ticket::Ticket;

/// All limits of a process and what is counted at them. Workers share one.
#[derive(Debug)]
pub struct Ledger {}

/// What the ledger says to a request.
#[derive(Debug)]
pub enum Admission {
    /// It may go on, and holds a permit at each of its gates.
    Admitted(Permit),
    /// It waits at one gate and holds nothing.
    Waiting(Ticket),
    /// It may not go on.
    Refused(Box<Refusal>),
}

impl Ledger {
    /// Makes a ledger without limits for a number of workers, with a secret for hashing keys.
    #[must_use]
    pub fn new(workers: usize, seed: [u64; 4]) -> Self {
        let _ = (workers, seed);
        Self {}
    }

    /// Puts a generation's limits in force. One whose identity was there keeps its state.
    pub fn define(
        &self,
        now: Time,
        limits: &[Definition],
        tenants: &[TenantDefinition],
    ) -> Defined {
        let _ = (now, limits, tenants);
        Defined {
            limits: Vec::new(),
            tenants: Vec::new(),
        }
    }

    /// Changes a limit at once. Nobody is evicted; what a change frees is handed out.
    pub fn change(&self, now: Time, limit: LimitId, change: &Change) {
        let _ = (now, limit, change);
    }

    /// Checks the rates of all limits of a request, and charges all, or none.
    ///
    /// # Errors
    /// One is exceeded.
    pub fn check_rates(&self, now: Time, ask: &Ask<'_>) -> Result<(), Box<Refusal>> {
        let _ = (now, ask);
        Ok(())
    }

    /// Takes a permit at every gate of a request, or at none.
    pub fn admit(&self, now: Time, ask: &Ask<'_>) -> Admission {
        let _ = (now, ask);
        Admission::Admitted(Permit::nothing())
    }

    /// Does what time asks for: ends waits, forgets idle keys, settles. A few times a second.
    pub fn tick(&self, now: Time) {
        let _ = now;
    }

    /// Shows the gates of one limit or of all, at most `keys_max`.
    #[must_use]
    pub fn look(&self, now: Time, limit: Option<LimitId>, keys_max: usize) -> Vec<GateLook> {
        let _ = (now, limit, keys_max);
        Vec::new()
    }

    /// Tells by how much the permits out differ from what the gates count: 0, or there is a bug.
    ///
    /// Walks all keys with everything locked: for tests and the curious, not for every second.
    #[must_use]
    pub fn drift(&self) -> u64 {
        0
    }
}
