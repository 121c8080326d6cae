//! From a canonical path to a file: once per request, before its rules.

use std::rc::Rc;

use crate::error::Result;
use crate::exchange::Exchange;
use crate::worker::Worker;

/// What a path came to.
#[derive(Debug, Default)]
pub struct Resolved {
    name: Vec<u8>,
    exists: bool,
}

impl Resolved {
    /// Whether there is such a file.
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// Its full name below the root, root included.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}

/// Resolves the path where a rule will look at the result.
pub async fn before_rules(_worker: &Rc<Worker>, _exchange: &mut Exchange) -> Result<()> {
    Ok(())
}
