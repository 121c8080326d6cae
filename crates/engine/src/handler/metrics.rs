//! The process's own figures.

use std::rc::Rc;

use config::model::MetricsFormat;

use crate::error::Result;
use crate::exchange::Exchange;
use crate::worker::Worker;

/// Answers with every figure of the process.
pub(super) fn answer(
    _worker: &Rc<Worker>,
    exchange: &mut Exchange,
    _format: MetricsFormat,
) -> Result<()> {
    exchange.outgoing.status = 200;
    exchange.answer(b"");
    Ok(())
}
