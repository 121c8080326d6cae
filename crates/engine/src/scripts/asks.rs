//! What a script waits for that only the engine can do: the request's body, a permit, a request of
//! its own to the same site.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::time::Duration;

use script::{Ask, Datum, Phase, Woken};
use tokio::time::timeout;

use super::sub_request;
use crate::error::Result;
use crate::exchange::Exchange;
use crate::intake;
use crate::permits::gates::Asked;
use crate::spool::{Room, Spool};
use crate::stage::Arrived;
use crate::worker::Worker;

/// Does what is asked.
pub(super) async fn perform(exchange: &mut Exchange, ask: Ask) -> Woken {
    let Some((worker, serving)) = exchange.scripted().served().cloned() else {
        return Woken::error("the request has ended");
    };
    let row = exchange.route.row.clone();
    let arrived = Arrived {
        worker: &worker,
        serving: &serving,
        row: Some(&row),
    };
    match ask {
        Ask::Body { bytes_max } => body(arrived, exchange, bytes_max).await,
        Ask::Acquire {
            key,
            concurrent,
            queue,
            wait_ms,
        } => {
            let wait = Duration::from_millis(wait_ms);
            acquire(&worker, exchange, &key, (concurrent, queue), wait).await
        }
        Ask::SubRequest { target } => sub_request::perform(arrived, exchange, &target).await,
    }
}

/// The whole body, which the handler still gets afterwards.
async fn body(arrived: Arrived<'_>, exchange: &mut Exchange, bytes_max: usize) -> Woken {
    let phase = exchange.scripted().phase;
    if matches!(phase, Phase::HeaderFilter | Phase::BodyFilter | Phase::Log) {
        return Woken::error(format!(
            "the request's body has gone to its handler: it cannot be read in {phase}"
        ));
    }
    let too_long = || {
        Woken::error(format!(
            "the request's body is longer than {bytes_max} bytes"
        ))
    };
    if exchange
        .body
        .length()
        .is_some_and(|length| length > bytes_max as u64)
    {
        return too_long();
    }
    if let Err(error) = intake::whole(arrived, exchange).await {
        return Woken::error(format!("the request's body did not come: {error}"));
    }
    let Some(spool) = exchange.spooled.take() else {
        return Woken::Value(Datum::Bytes(Vec::new()));
    };
    if spool.len() > bytes_max as u64 {
        exchange.spooled = Some(spool);
        return too_long();
    }
    match copy(arrived, spool).await {
        Ok((bytes, spool)) => {
            exchange.spooled = Some(spool);
            Woken::Value(Datum::Bytes(bytes))
        }
        Err(error) => Woken::error(format!("the request's body was lost: {error}")),
    }
}

/// What a spool holds, and another that holds the same.
async fn copy(arrived: Arrived<'_>, mut spool: Spool) -> Result<(Vec<u8>, Spool)> {
    let (worker, serving) = (arrived.worker, arrived.serving);
    let mut bytes = Vec::new();
    while !spool.is_empty() {
        poll_fn(|cx| spool.poll_fill(cx)).await?;
        let data = spool.data();
        let count = data.len();
        bytes.extend_from_slice(data);
        spool.consume(count);
    }
    let owner = spool.owner();
    drop(spool);
    let mut again = worker.spool(serving, owner);
    let mut left = bytes.as_slice();
    while !left.is_empty() {
        let Room::Bytes(room) = poll_fn(|cx| again.poll_room(cx)).await? else {
            return Err(intake::no_room(&again, serving));
        };
        let (now, later) = left.split_at(room.min(left.len()));
        again.push(now);
        left = later;
    }
    Ok((bytes, again))
}

/// A permit of a gate the script has made up, held until the request ends.
async fn acquire(
    worker: &Worker,
    exchange: &mut Exchange,
    key: &[u8],
    (concurrent, queue): (u32, u32),
    wait: Duration,
) -> Woken {
    let permit = match worker.shared.limits.gates.ask(key, concurrent, queue) {
        Asked::Admitted(permit) => Some(permit),
        Asked::Refused => None,
        Asked::Waits(turn) => {
            match exchange.while_client_stays(timeout(wait, turn)).await {
                Some(turn) => turn.ok().flatten(),
                // Nobody is left to go on for: that is no refusal.
                None => return Woken::Value(Datum::Bool(false)),
            }
        }
    };
    let Some(permit) = permit else {
        let name = format!("script:{}", String::from_utf8_lossy(key));
        exchange.record.limit.get_or_insert(name.into());
        return Woken::Value(Datum::Bool(false));
    };
    match exchange.scripted().scope.hold(Box::new(permit)) {
        Some(_) => Woken::Value(Datum::Bool(true)),
        None => Woken::error("the request holds too many locks and permits already"),
    }
}
