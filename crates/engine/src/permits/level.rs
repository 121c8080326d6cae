//! The limits of one level, and what is asked of the ledger where that is the same for all requests.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use limits::Want;

use super::limit::Limit;

/// The limits that stand on one thing, those by finer keys first.
#[derive(Debug, Default)]
pub struct Level {
    limits: Arc<[Limit]>,
    /// Those that count handshakes, in the same order; requests do not see them.
    pub(super) of_handshakes: Box<[Limit]>,
    /// For requests whose innermost limits these are. Made by the first of them: only then is the
    /// generation in force, and the ledger's names known.
    pub(super) prepared: OnceLock<Option<Box<Prepared>>>,
}

/// What is asked of the ledger in each phase.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) rates: Box<[Want<'static>]>,
    pub(super) permits: Box<[Want<'static>]>,
}

impl Level {
    /// The same limits, for requests of which others stand around them. Handshakes come before.
    pub(crate) fn again(&self) -> Self {
        Self {
            limits: Arc::clone(&self.limits),
            of_handshakes: Box::default(),
            prepared: OnceLock::new(),
        }
    }
}

impl From<Vec<Limit>> for Level {
    fn from(limits: Vec<Limit>) -> Self {
        Self {
            limits: limits.into(),
            of_handshakes: Box::default(),
            prepared: OnceLock::new(),
        }
    }
}

impl Deref for Level {
    type Target = [Limit];

    fn deref(&self) -> &[Limit] {
        &self.limits
    }
}
