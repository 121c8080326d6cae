//! Files below a site's root.

use std::rc::Rc;

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::worker::Worker;

/// Serves the resolved file.
pub(super) async fn serve(_worker: &Rc<Worker>, _exchange: &mut Exchange) -> Result<()> {
    Err(Error::refused(404, "no_file"))
}
