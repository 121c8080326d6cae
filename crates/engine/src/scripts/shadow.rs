//! Scripts in shadow: they run with the request as it is, what they say of it is told, and nothing
//! of it comes to pass.
//!
//! What a script can change of a request, or of its reply, is copied before it runs and put back
//! afterwards, however the run ended. In between it is compared: so a script need not know that it is
//! in shadow, and whatever a word means in force is what is told of it. What a script does outside
//! of the request, and what it holds, stays.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use script::{Datum, Failure, Phase, Redirect, Said};
use wire::{Fields, RequestHead};

use super::filters::settle_head;
use super::outcome::{self, CLOSE, Spoken};
use super::phases;
use super::plan::Use;
use super::scripted::Filtered;
use super::tried::{self, Remembered, Word};
use crate::error::Result;
use crate::exchange::Exchange;
use crate::exchange::reply::Outgoing;
use crate::exchange::route::Lookup;
use crate::stage::Arrived;

/// Why the record of a request has something to tell.
const REASON: &str = "script";

/// Runs a script for a request, tells what it would have done, and has nothing done.
///
/// # Errors
/// The client has gone.
pub(super) async fn run(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    phase: Phase,
    used: Use,
) -> Result<()> {
    let mut aside = Aside::begin(exchange);
    let ended = phases::run(arrived, aside.exchange, phase, used).await?;
    let word = aside.word(arrived, phase, used, ended);
    drop(aside);
    let script = phases::name_of(arrived, exchange, used);
    let tried = &arrived.worker.shared.tried;
    match word {
        None => tried.count(&script, phase),
        Some(word) => {
            note(exchange, &script, &word);
            let site = arrived.site(&exchange.route);
            tried.note(Remembered {
                id: exchange.request.id,
                at: arrived.worker.clock.unix_at(exchange.request.received),
                site: site.map_or_else(|| Arc::from(""), |site| Arc::clone(&site.name)),
                path: tried::beginning(exchange.request.head.path()),
                script,
                phase,
                word,
            });
        }
    }
    Ok(())
}

/// The record tells the first word that would have ended it, or else the first.
fn note(exchange: &mut Exchange, script: &Arc<str>, word: &Word) {
    let shadow = exchange.record.shadow(REASON);
    if shadow
        .script
        .as_ref()
        .is_none_or(|said| word.ends() && !said.ends)
    {
        shadow.script = Some(crate::exchange::shadow::Said {
            script: Arc::clone(script),
            word: word.to_string(),
            ends: word.ends(),
        });
    }
}

/// An exchange that a script in shadow runs with, until dropped.
struct Aside<'a> {
    exchange: &'a mut Exchange,
    /// As it was. Taken when it is put back.
    before: Option<Box<Before>>,
}

/// What a script can change.
struct Before {
    head: RequestHead,
    lookup: Lookup,
    outgoing: Outgoing,
    fields_out: Fields,
    body: Option<Filtered>,
    said: Said,
    limit: Option<Arc<str>>,
}

impl<'a> Aside<'a> {
    fn begin(exchange: &'a mut Exchange) -> Self {
        let scripted = exchange.scripted();
        let (fields_out, body) = (scripted.fields_out.clone(), scripted.body.clone());
        let said = scripted.scope.set_aside();
        let before = Before {
            head: exchange.request.head.clone(),
            lookup: exchange.route.lookup(),
            outgoing: exchange.outgoing.clone(),
            fields_out,
            body,
            said,
            limit: exchange.record.limit.clone(),
        };
        Self {
            exchange,
            before: Some(Box::new(before)),
        }
    }

    /// What would have become of the request; `None` where that is nothing else.
    fn word(
        &mut self,
        arrived: Arrived<'_>,
        phase: Phase,
        used: Use,
        ended: std::result::Result<Datum, Failure>,
    ) -> Option<Word> {
        if let Err(failure) = ended
            && let Err(error) =
                outcome::failed(arrived, self.exchange, phase, used.on_error, &failure)
        {
            return Some(Word::Denied {
                reason: error.reason,
                detail: error.detail.clone(),
            });
        }
        let word = match phase {
            Phase::HeaderFilter | Phase::BodyFilter => {
                settle_head(self.exchange);
                None
            }
            _ => self.spoken(),
        };
        word.or_else(|| self.changed(phase))
    }

    /// What it said before the handler.
    fn spoken(&mut self) -> Option<Word> {
        let status = self.exchange.outgoing.status;
        let denied = |reason| Word::Denied {
            reason,
            detail: "no reply can be like that".to_owned(),
        };
        Some(match outcome::spoken(&mut self.exchange.scripted().scope) {
            Spoken::Nothing => return None,
            Spoken::Output if status == 0 => Word::Answered(200),
            Spoken::Output => Word::Answered(status),
            Spoken::Status(CLOSE) => Word::Closed,
            Spoken::Status(status) => match outcome::reply_status(status) {
                Some(status) => Word::Answered(status),
                None => denied("script_status"),
            },
            Spoken::Redirect(Redirect::Inside { .. }) => Word::Elsewhere,
            Spoken::Redirect(Redirect::Outside { status, location }) => {
                match outcome::is_redirect(status, &location) {
                    true => Word::Answered(status),
                    false => denied("script_redirects"),
                }
            }
        })
    }

    /// What of the request or its reply it made another.
    fn changed(&mut self, phase: Phase) -> Option<Word> {
        let before = self.before.as_deref()?;
        let (head, was) = (&self.exchange.request.head, &before.head);
        let lookup = self.exchange.route.lookup();
        let outgoing = &self.exchange.outgoing;
        let scripted = self.exchange.scripted.as_deref()?;
        let is_filter = matches!(phase, Phase::HeaderFilter | Phase::BodyFilter);
        let is_other = |is, was| sorted(is) != sorted(was);
        let (upstream, group) = before.said.differs_from(&scripted.scope);
        let changes = [
            ("method", head.method_bytes() != was.method_bytes()),
            ("path", head.path() != was.path()),
            ("query", head.query() != was.query()),
            ("file", lookup.at != before.lookup.at),
            ("request fields", is_other(&head.fields, &was.fields)),
            ("upstream", upstream),
            ("group", group),
            (
                "status",
                is_filter && outgoing.status != before.outgoing.status,
            ),
            (
                "reply fields",
                is_other(&outgoing.fields, &before.outgoing.fields)
                    || is_other(&scripted.fields_out, &before.fields_out),
            ),
            (
                "body",
                scripted.body.as_ref().is_some_and(|body| body.is_changed)
                    && before.body.as_ref().is_some_and(|body| !body.is_changed),
            ),
        ];
        let changed = changes.into_iter().filter(|(_, is_changed)| *is_changed);
        let names: Vec<&str> = changed.map(|(name, _)| name).collect();
        (!names.is_empty()).then(|| Word::Changed(names.join(", ")))
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else {
            return;
        };
        let exchange = &mut *self.exchange;
        // Whether the client was told to send its body is no doing of the script's.
        let expect_continue = exchange.request.head.expect_continue;
        exchange.request.head = before.head;
        exchange.request.head.expect_continue = expect_continue;
        exchange.route.look_up_again(before.lookup);
        exchange.outgoing = before.outgoing;
        exchange.record.limit = before.limit;
        let scripted = exchange.scripted();
        scripted.fields_out = before.fields_out;
        scripted.body = before.body;
        scripted.scope.take_back(before.said);
    }
}

/// In whichever order they stand, they say the same.
fn sorted(fields: &Fields) -> Vec<(&[u8], &[u8])> {
    let mut all: Vec<_> = fields
        .iter()
        .map(|field| (field.name, field.value))
        .collect();
    all.sort_unstable();
    all
}
