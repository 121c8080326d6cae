//! What an exchange knows of its being shed.

use std::sync::Arc;

use config::model::ErrorPage;

use super::standing::Standing;

/// What the exchange knows of its being shed.
#[derive(Debug)]
pub(crate) struct Note {
    /// The rule.
    pub(crate) rule: Arc<Standing>,
    pub(super) location: Option<Vec<u8>>,
    pub(super) page: Option<Arc<ErrorPage>>,
    pub(super) retry_after_s: u16,
}
