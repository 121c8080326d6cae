//! What changes of a page, each second for as long as somebody looks at it.
//!
//! The idea: an event is asked for when the one before has been written, so that who reads slowly gets
//! fewer of them and nothing gathers. The recorder draws one for all who look at the same. Whose figures these are is settled
//! anew for each.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::{Duration, Instant};

use config::model::Console;
use ipc::console::{ConsoleAnswer, ConsoleQuestion};

use super::session::Guest;
use super::{EVENT_STREAM, ask, pass_on, scope};
use crate::directory::find;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::reply::BodySize;
use crate::stage::Chosen;
use crate::{permits, reply_head};

/// Between two events.
const EVERY: Duration = Duration::from_secs(1);
/// The longest that a stream goes on.
const LASTS: Duration = Duration::from_secs(600);

/// Sends events until the client has gone, the worker drains or has another configuration, the row that makes the site is
/// another, whoever looks may not any more, or the recorder is not heard: the page asks again then, under the rules of then.
///
/// No permit is held meanwhile: who watches waits for nothing, and how many may is bounded.
///
/// # Errors
/// As of any page for the first one, and 503 where too many watch.
pub(super) async fn stream(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    (console, guest): (&Console, Option<&Guest>),
    mut question: ConsoleQuestion,
) -> Result<()> {
    let guests = &chosen.worker.shared.guests;
    let full = || Error::new(Kind::Full, "console_viewers", String::new());
    let _viewer = guests.watch(&question.scope).ok_or_else(full)?;
    let first = ask(**chosen, question.clone()).await?;
    let goes_on = is_event(&first) && !exchange.reply.is_head_only();
    let mut event = pass_on(exchange, first)?;
    // Each event is to leave at once: it is not compressed, nor kept back.
    exchange.outgoing.is_settled = true;
    let size = match goes_on {
        true => BodySize::Unknown,
        false => BodySize::Length(event.len() as u64),
    };
    reply_head::send(**chosen, exchange, size).await?;
    permits::end(chosen.worker, exchange, limits::Outcome::Ignored);
    let begun = Instant::now();
    loop {
        exchange.reply.write(event.as_bytes()).await?;
        if !goes_on {
            return Ok(());
        }
        poll_fn(|cx| exchange.reply.poll_flush(cx)).await?;
        let rest = tokio::time::sleep(EVERY);
        if exchange.while_client_stays(rest).await.is_none() {
            return Err(Error::new(Kind::ClientGone, "client_gone", String::new()));
        }
        let is_over = chosen.worker.is_draining() || begun.elapsed() >= LASTS;
        if is_over || !Rc::ptr_eq(&chosen.worker.serving(), chosen.serving) {
            return Ok(());
        }
        question.scope = match scope(*chosen, console, guest) {
            Ok(scope) if stands(chosen, exchange).await => scope,
            _ => return Ok(()),
        };
        event = match ask(**chosen, question.clone()).await {
            Ok(next) if is_event(&next) => next.body,
            _ => return Ok(()),
        };
    }
}

/// Whether the site is what it was: its tenant is not suspended, and its row says what it said.
async fn stands(chosen: Chosen<'_>, exchange: &mut Exchange) -> bool {
    let shared = &chosen.worker.shared;
    if shared.suspension.check(&chosen.site.tenant_name).is_err() {
        return false;
    }
    let Some(row) = &chosen.site.row else {
        return true;
    };
    let asking = find::Asking {
        worker: chosen.worker,
        serving: chosen.serving,
        client: exchange.request.client,
    };
    let now = find::early(asking, exchange.request.head.host()).await;
    let now = now.ok().flatten();
    let now = now.as_ref().and_then(|(_, site)| site.row.as_ref());
    now.is_some_and(|now| now.is_like(row))
}

fn is_event(answer: &ConsoleAnswer) -> bool {
    answer.status == 200 && answer.content_type == EVENT_STREAM
}
