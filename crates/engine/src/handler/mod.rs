//! Handlers: exactly one answers each request.

mod cgi;
mod console;
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
mod warm;

use config::model::Handler;

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::intake;
use crate::scripts::{self, Next};
use crate::stage::Chosen;

/// Runs the handler the route chose.
///
/// # Errors
/// Whatever kept it from answering.
pub(crate) async fn run(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<Next> {
    let handler = chosen.handler;
    exchange.record.handler = handler.word();
    exchange.aborts_on_close = handler.aborts_on_close();
    scripts::take_named(chosen, exchange).await?;
    scripts::ask_for_identity(**chosen, exchange);
    let answered = match handler {
        Handler::Static => static_file::serve(chosen, exchange).await,
        Handler::Proxy(proxy) => proxy::forward(chosen, exchange, proxy).await,
        // Boxed, as the next: a connection that runs no program need not have room for one.
        Handler::FastCgi(fastcgi) => Box::pin(fastcgi::serve(chosen, exchange, fastcgi)).await,
        Handler::Cgi(cgi) => return Box::pin(cgi::run(chosen, exchange, cgi)).await,
        Handler::Respond(respond) => respond::answer(**chosen, exchange, respond).await,
        Handler::Redirect(redirect) => redirect::answer(**chosen, exchange, redirect).await,
        Handler::Metrics(format) => metrics::answer(**chosen, exchange, *format).await,
        // Boxed, as above.
        Handler::Console(console) => Box::pin(console::answer(chosen, exchange, console)).await,
        Handler::Script(_) => match scripts::content(chosen, exchange).await? {
            Next::On => static_file::serve(chosen, exchange).await,
            over => return Ok(over),
        },
    };
    answered.map(|()| Next::Answered)
}

/// Why nothing is found. A directory without a page is refused, as Apache has it, for those who keep
/// `.htaccess` files.
fn missing(exchange: &Exchange, why: &'static str) -> Error {
    let is_refused = why == "no_index" && exchange.route.htaccess.is_some();
    Error::refused(if is_refused { 403 } else { 404 }, why)
}

/// Takes the whole body, where there is one and the handler wants it first. What the handler would
/// refuse anyway is refused before the client has sent it.
///
/// # Errors
/// Whatever ends an upload, and 413 or 503 where it can't be kept; what the handler refuses.
pub(crate) async fn take_body(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    let body = &exchange.body;
    if !body.is_ended() && chosen.handler.takes_body_first(body.length()) {
        // Boxed: most exchanges take nothing beforehand and need not have room for it.
        let taken = Box::pin(async {
            check(chosen, exchange).await?;
            intake::receive(**chosen, exchange).await
        });
        exchange.spooled = Some(taken.await?);
    }
    Ok(())
}

/// Refuses what the chosen handler will refuse whatever the request's body says.
async fn check(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    match chosen.handler {
        Handler::Proxy(_) => proxy::check(exchange),
        Handler::FastCgi(_) => fastcgi::check(chosen, exchange).await,
        Handler::Cgi(_) => cgi::check(chosen, exchange).await,
        _ => Ok(()),
    }
}
