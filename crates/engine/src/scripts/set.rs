//! The phase `set`: a script names the upstream of a request.
//!
//! What it ends with is the upstream's name, or an address within `allow` of its handler; what was
//! said by `reverse_proxy` or `Nginx::Upstream#server=` in other phases is judged in the same way,
//! just before the handler. Nobody is asked for anything where no upstream was chosen: that is a
//! 503, whatever kept the script from it.

use config::model::{Handler, Proxy};
use script::{Datum, Phase};

use super::next::Next;
use super::{outcome, phases};
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::permits;
use crate::stage::{Arrived, Chosen};
use crate::upstream::Destination;
use crate::upstream::named::{self, Refused};

/// Runs the script that names the upstream, where the handler has one.
///
/// # Errors
/// It named none, one that may not be used, or failed.
pub(crate) async fn set(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<Next> {
    match chosen.handler {
        Handler::Proxy(proxy) if proxy.script().is_some() => {
            // Boxed: few handlers have one.
            Box::pin(run(chosen, exchange, proxy)).await
        }
        Handler::Proxy(proxy) => match proxy.row() {
            Some(column) => by_row(chosen, exchange, proxy, column).await,
            None => Ok(Next::On),
        },
        _ => Ok(Next::On),
    }
}

async fn run(chosen: Chosen<'_>, exchange: &mut Exchange, proxy: &Proxy) -> Result<Next> {
    let used = chosen.rule.and_then(|rule| rule.script);
    let Some(used) = used else {
        return Err(none_chosen("no interpreter is open"));
    };
    let ended = phases::run(**chosen, exchange, Phase::Set, used).await?;
    let value =
        ended.map_err(|failure| Error::new(Kind::Full, failure.reason(), failure.to_string()))?;
    let next = outcome::settle(**chosen, exchange).await?;
    if next != Next::On {
        return Ok(next);
    }
    let said = match value {
        Datum::Bytes(said) | Datum::Symbol(said) if !said.is_empty() => said,
        // It may have been said in passing.
        _ => match exchange.scripted().scope.upstream.take() {
            Some(said) => said,
            None => {
                let plan = chosen.serving.generation.scripts.as_ref();
                let name = plan.map(|plan| plan.name_of(chosen.site.vm, used));
                let name = name.unwrap_or_default();
                return Err(none_chosen(&ended_with(&name, &value)));
            }
        },
    };
    exchange.scripted().scope.upstream = None;
    exchange.route.upstream = Some(judge(**chosen, proxy, &said).await?);
    permits::rates_of_upstream(chosen, exchange).await?;
    Ok(Next::On)
}

/// Sends the request to the address that its row says.
async fn by_row(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    proxy: &Proxy,
    column: &str,
) -> Result<Next> {
    let said = exchange.request.column(column);
    if said.is_empty() {
        let why = format!("the row says nothing in its column `{column}`");
        return Err(none_chosen(&why));
    }
    let (worker, serving) = (chosen.worker, chosen.serving);
    let led = match named::literal(worker, serving, &proxy.allow, said.as_bytes()) {
        Some(led) => led,
        // Boxed: few rows have names whose addresses are looked up.
        None => {
            let said = said.to_owned();
            Box::pin(named::by_row(
                worker,
                serving,
                &proxy.allow,
                said.as_bytes(),
            ))
            .await
        }
    };
    exchange.route.upstream = Some(led.map_err(|refused| match refused {
        Refused::No(why) => none_chosen(&format!("column `{column}` of the row: {why}")),
        Refused::Full(why) => Error::new(Kind::Full, "upstreams_full", why),
    })?);
    permits::rates_of_upstream(chosen, exchange).await?;
    Ok(Next::On)
}

/// The upstream that a script has named in passing and that nobody has judged yet.
///
/// # Errors
/// It may not be used, or the handler forwards nothing.
pub(crate) async fn take_named(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    let scripted = exchange.scripted.as_mut();
    let Some(said) = scripted.and_then(|scripted| scripted.scope.upstream.take()) else {
        return Ok(());
    };
    let Handler::Proxy(proxy) = chosen.handler else {
        let handler = exchange.record.handler;
        let said = said.escape_ascii();
        let why = format!(
            "a script named the upstream \"{said}\", and the handler `{handler}` forwards to none: write a rule with `handler = {{ proxy = … }}`"
        );
        return Err(none_chosen(&why));
    };
    // Boxed: it is seldom done.
    let upstream = Box::pin(judge(**chosen, proxy, &said)).await?;
    exchange.route.upstream = Some(upstream);
    Ok(())
}

async fn judge(arrived: Arrived<'_>, proxy: &Proxy, said: &[u8]) -> Result<Destination> {
    let (worker, serving) = (arrived.worker, arrived.serving);
    let named = named::choose(worker, serving, &proxy.allow, said).await;
    named.map_err(|refused| match refused {
        Refused::No(why) => none_chosen(&format!("a script named the upstream {why}")),
        Refused::Full(why) => Error::new(Kind::Full, "upstreams_full", why),
    })
}

fn none_chosen(why: &str) -> Error {
    Error::new(Kind::Full, "no_upstream", why)
}

fn ended_with(script: &str, value: &Datum) -> String {
    let what = match value {
        Datum::Nil => "nil",
        Datum::Bytes(_) | Datum::Symbol(_) => "an empty text",
        Datum::Bool(_) => "true or false",
        Datum::Int(_) | Datum::Float(_) => "a number",
        Datum::Array(_) => "an Array",
        Datum::Hash(_) => "a Hash",
        Datum::Class(_) | Datum::Time(..) | Datum::Other => "another object",
    };
    format!(
        "{script} ended with {what}: a `set` script's last line is to be an upstream's name, or HOST:PORT"
    )
}
