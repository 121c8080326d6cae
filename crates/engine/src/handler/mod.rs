//! Handlers: exactly one answers each request.

mod beforehand;
mod cgi;
mod delivery;
mod fastcgi;
mod metrics;
pub(crate) mod program;
mod proxy;
mod redirect;
mod respond;
mod source;
mod static_file;
mod straggler;
mod upload;

use config::model::Handler;

use crate::error::Result;
use crate::exchange::Exchange;
use crate::scripts::{self, Next};
use crate::stage::Chosen;
pub(crate) use beforehand::beforehand;

/// Runs the handler the route chose.
///
/// # Errors
/// Whatever kept it from answering.
pub(crate) async fn run(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<Next> {
    let handler = chosen.handler;
    exchange.record.handler = chosen.handler_word();
    exchange.aborts_on_close = aborts_on_close(handler);
    scripts::take_named(chosen, exchange).await?;
    scripts::ask_for_identity(**chosen, exchange);
    let answered = match handler {
        Handler::Static => static_file::serve(*chosen, exchange).await,
        Handler::Proxy(proxy) => proxy::forward(chosen, exchange, proxy).await,
        // Boxed, as the next: a connection that runs no program need not have room for one.
        Handler::FastCgi(fastcgi) => Box::pin(fastcgi::serve(chosen, exchange, fastcgi)).await,
        Handler::Cgi(cgi) => return Box::pin(cgi::run(chosen, exchange, cgi)).await,
        Handler::Respond(respond) => respond::answer(**chosen, exchange, respond).await,
        Handler::Redirect(redirect) => redirect::answer(**chosen, exchange, redirect).await,
        Handler::Metrics(format) => metrics::answer(**chosen, exchange, *format).await,
        Handler::Script(_) => match scripts::content(chosen, exchange).await? {
            Next::On => static_file::serve(*chosen, exchange).await,
            over => return Ok(over),
        },
    };
    answered.map(|()| Next::Answered)
}

/// Refuses what the chosen handler will refuse whatever the request's body says.
///
/// # Errors
/// As [`run`].
pub(crate) async fn check(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    match chosen.handler {
        Handler::Proxy(_) => proxy::check(exchange),
        Handler::FastCgi(_) => fastcgi::check(chosen, exchange).await,
        Handler::Cgi(_) => cgi::check(chosen, exchange).await,
        Handler::Static
        | Handler::Respond(_)
        | Handler::Redirect(_)
        | Handler::Metrics(_)
        | Handler::Script(_) => Ok(()),
    }
}

fn aborts_on_close(handler: &Handler) -> bool {
    match handler {
        Handler::Cgi(cgi) => cgi.abort_on_close,
        Handler::FastCgi(fastcgi) => fastcgi.abort_on_close,
        _ => false,
    }
}
