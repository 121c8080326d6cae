//! Forwarding to an upstream.

use std::rc::Rc;

use config::model::Proxy;

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::worker::Worker;

/// Forwards the request and its reply.
pub(super) async fn forward(
    _worker: &Rc<Worker>,
    _exchange: &mut Exchange,
    _proxy: &Proxy,
) -> Result<()> {
    Err(Error::refused(502, "no_upstream"))
}
