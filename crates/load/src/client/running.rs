//! A load on a thread of its own, which ends with its owner.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::{Live, Outcome, Plan, run};
use crate::error::Error;

/// A load that goes on until it is over, told to stop, or dropped.
#[derive(Debug)]
pub struct Running {
    live: Arc<Live>,
    thread: Option<JoinHandle<Result<Outcome, Error>>>,
}

impl Running {
    /// Begins to load.
    pub fn start(plan: Plan) -> Running {
        let live = Arc::new(Live::new());
        let own = Arc::clone(&live);
        let thread = std::thread::spawn(move || run(&plan, &own));
        Running {
            live,
            thread: Some(thread),
        }
    }

    /// How it goes, and what stops it.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Whether all that was to be sent has come to an end.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end, and says what it came to.
    ///
    /// # Errors
    /// When the plan cannot be run, or this was asked before.
    pub fn outcome(&mut self) -> Result<Outcome, Error> {
        let missing = || Error::new("load the server", "the generator panicked");
        let joined = self.thread.take().ok_or_else(missing)?.join();
        joined.unwrap_or_else(|_| Err(missing()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.live.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
