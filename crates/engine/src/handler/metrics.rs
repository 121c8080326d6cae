//! The process's own figures.

use config::model::MetricsFormat;

use crate::error::Result;
use crate::exchange::Exchange;
use crate::helper::Lane;
use crate::stage::Arrived;
use crate::{figures, reply_head};

/// Answers with every figure of the process.
///
/// Collecting may touch ten thousand sites: that is a helper's work, one at a time.
///
/// # Errors
/// When too many ask at once.
pub(super) async fn answer(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    format: MetricsFormat,
) -> Result<()> {
    let shared = arrived.worker.shared.clone();
    let work = move || {
        let figures = figures::collect(&shared);
        match format {
            MetricsFormat::Prometheus => figures::prometheus(&figures),
            MetricsFormat::Json => control::json(&figures),
        }
    };
    let text = arrived.worker.helpers.run(Lane::Figures, work).await?;
    let content_type: &[u8] = match format {
        MetricsFormat::Prometheus => b"text/plain; version=0.0.4; charset=utf-8",
        MetricsFormat::Json => b"application/json",
    };
    exchange.outgoing.status = 200;
    let fields = &mut exchange.outgoing.fields;
    fields.push(b"Content-Type", content_type);
    fields.push(b"Cache-Control", b"no-store");
    reply_head::answer(arrived, exchange, text.as_bytes()).await
}
