//! Which handlers want a request's body before they begin; what they would refuse anyway is refused
//! before the client has sent it.

use config::model::Handler;

use crate::error::Result;
use crate::exchange::Exchange;
use crate::intake;
use crate::stage::Chosen;

/// Takes the whole body, where there is one and the handler wants it first.
///
/// # Errors
/// Whatever ends an upload, and 413 or 503 where it can't be kept; what the handler refuses.
pub(crate) async fn beforehand(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    if exchange.body.is_ended() {
        return Ok(());
    }
    if is_wanted(chosen.handler, exchange.body.length()) {
        // Boxed: most exchanges take nothing beforehand and need not have room for it.
        let taken = Box::pin(async {
            super::check(chosen, exchange).await?;
            intake::take(**chosen, exchange).await
        });
        exchange.spooled = Some(taken.await?);
    }
    Ok(())
}

/// A program must be told the length, so a body without one is always taken first.
fn is_wanted(handler: &Handler, length: Option<u64>) -> bool {
    match handler {
        Handler::Proxy(proxy) => proxy.buffer_request,
        Handler::FastCgi(fastcgi) => fastcgi.buffer_request || length.is_none(),
        Handler::Cgi(cgi) => cgi.buffer_request || length.is_none(),
        Handler::Static
        | Handler::Respond(_)
        | Handler::Redirect(_)
        | Handler::Metrics(_)
        | Handler::Script(_) => false,
    }
}
