//! Handlers: exactly one answers each request.

mod cgi;
mod delivery;
mod fastcgi;
mod metrics;
mod program;
mod proxy;
mod redirect;
mod respond;
mod source;
pub(crate) mod static_file;
mod straggler;
mod upload;

use std::rc::Rc;

use config::model::Handler;

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::scripts::{self, Next};
use crate::worker::Worker;
pub(crate) use static_file::compress_filtered;

/// Runs the handler the route chose.
///
/// # Errors
/// Whatever kept it from answering.
pub async fn run(worker: &Rc<Worker>, exchange: &mut Exchange) -> Result<Next> {
    let Some(serving) = exchange.route.serving.clone() else {
        return Err(Error::refused(421, "no_generation"));
    };
    let handler = exchange.route.handler_in(&serving);
    exchange.record.handler = name(handler);
    scripts::take_named(worker, &serving, exchange).await?;
    scripts::ask_for_identity(exchange);
    let answered = match handler {
        Handler::Static => static_file::serve(worker, &serving, exchange).await,
        Handler::Proxy(proxy) => proxy::forward(worker, exchange, proxy).await,
        // Boxed, as the next: a connection that runs no program need not have room for one.
        Handler::FastCgi(fastcgi) => Box::pin(fastcgi::serve(worker, exchange, fastcgi)).await,
        Handler::Cgi(cgi) => return Box::pin(cgi::run(worker, exchange, cgi)).await,
        Handler::Respond(respond) => respond::answer(exchange, respond).await,
        Handler::Redirect(redirect) => redirect::answer(exchange, redirect).await,
        Handler::Metrics(format) => metrics::answer(worker, exchange, *format).await,
        Handler::Script(_) => match scripts::content(worker, &serving, exchange).await? {
            Next::On => static_file::serve(worker, &serving, exchange).await,
            over => return Ok(over),
        },
    };
    answered.map(|()| Next::Answered)
}

/// Refuses what the chosen handler will refuse whatever the request's body says.
///
/// # Errors
/// As [`run`].
pub async fn check(worker: &Rc<Worker>, exchange: &mut Exchange) -> Result<()> {
    let Some(serving) = exchange.route.serving.clone() else {
        return Err(Error::refused(421, "no_generation"));
    };
    match exchange.route.handler_in(&serving) {
        Handler::Proxy(_) => proxy::check(exchange),
        Handler::FastCgi(_) => fastcgi::check(worker, exchange).await,
        Handler::Cgi(_) => cgi::check(worker, exchange).await,
        Handler::Static
        | Handler::Respond(_)
        | Handler::Redirect(_)
        | Handler::Metrics(_)
        | Handler::Script(_) => Ok(()),
    }
}

/// The word for a handler in records.
pub(crate) fn name(handler: &Handler) -> &'static str {
    match handler {
        Handler::Static => "static",
        Handler::Proxy(_) => "proxy",
        Handler::FastCgi(_) => "fastcgi",
        Handler::Cgi(_) => "cgi",
        Handler::Respond(_) => "respond",
        Handler::Redirect(_) => "redirect",
        Handler::Metrics(_) => "metrics",
        Handler::Script(_) => "script",
    }
}
