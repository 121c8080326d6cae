//! CGI (RFC 3875): a program started for the request, by the spawner, and ended with it.
//!
//! The worker makes three pipes, keeps an end of each and has the spawner run the resolved file
//! with the others ([`crate::programs`]). The request's body, taken beforehand unless the
//! rule says otherwise ([`crate::intake`]), goes in while the reply comes out ([`relay`]); what became of it is judged in [`verdict`]. However the exchange ends, nothing of
//! the program is left: it is killed with its whole group. The query never becomes arguments.
//! A program that answers with a local `Location` alone has the request served there, inside.

mod input;
mod relay;
mod verdict;

use std::rc::Rc;

use config::model::Cgi;
use wire::{FieldId, Framing, Method};

use self::relay::Relay;
use super::program;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::pipe::Pipes;
use crate::resolve::resolved::Resolved;
use crate::scripts::{self, Next};
use crate::spool::Spool;
use crate::stage::{Chosen, Routed};
use ipc::order::Run;

/// Has a program answer.
pub(super) async fn run(chosen: Chosen<'_>, exchange: &mut Exchange, cgi: &Cgi) -> Result<Next> {
    let Some(rule) = exchange.route.deciding_index() else {
        return Err(Error::new(Kind::Internal, "no_rule", String::new()));
    };
    let (routed, generation) = (*chosen, &chosen.serving.generation);
    let resolved = script(routed, exchange).await?;
    let spooled = exchange.spooled.take();
    let spooled_bytes = spooled.as_ref().map(Spool::len);
    let says_start = relay::is_start_awaited(exchange, spooled.as_ref());
    let params = &cgi.params;
    let environment = program::environment(
        routed,
        exchange,
        &resolved,
        None,
        params,
        spooled_bytes,
        true,
    )?;
    let (pipes, [stdin, stdout, stderr]) =
        Pipes::open().map_err(|error| Error::io(Kind::Full, "program_pipes", &error))?;
    let group = exchange.wished_group();
    let row = chosen.site.row.as_ref().and_then(|row| row.order.clone());
    let site = match row {
        Some(_) => chosen.site_index,
        None => resolved.tree,
    };
    let run = |id| Run {
        id,
        generation: generation.number,
        site,
        rule,
        row,
        group,
        script: resolved.relative().to_vec(),
        // Who waits to be asked for a body is not asked for the sake of a program that cannot run.
        says_start,
        environment: environment
            .iter()
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect(),
        stdin,
        stdout,
        stderr,
    };
    let programs_max = generation.process.caps.programs;
    let program = routed.worker.programs.run(programs_max, run).await?;
    let relay = Relay::new(routed, cgi, exchange, program, pipes, spooled);
    let ended = relay.run(exchange).await;
    if ended.is_err() {
        // Where it is suspended, that is why the program was killed.
        let suspension = &routed.worker.shared.suspension;
        suspension.check(&routed.site.tenant_name)?;
    }
    match ended? {
        Some(location) => go_on(routed, exchange, &location).await,
        None => Ok(Next::Answered),
    }
}

/// Has the request served at a path of the program's choice, as if its client had asked for that
/// (RFC 3875 §6.2.2): with GET or HEAD, without a body, past every rule and limit on the way.
async fn go_on(routed: Routed<'_>, exchange: &mut Exchange, location: &[u8]) -> Result<Next> {
    exchange.body.drain().await?;
    let head = &mut exchange.request.head;
    if head.method != Method::Head {
        head.rewrite_method(b"GET")?;
    }
    head.framing = Framing::None;
    head.fields.remove(FieldId::ContentLength);
    head.fields.remove(FieldId::ContentType);
    scripts::serve_locally(routed, exchange, location)
}

/// Refuses what is no program, whatever it would be told.
pub(super) async fn check(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    script(*chosen, exchange).await.map(drop)
}

async fn script(routed: Routed<'_>, exchange: &mut Exchange) -> Result<Rc<Resolved>> {
    let resolved = program::script(routed, exchange).await?;
    match crate::backups::is_backup(resolved.relative()) {
        true => Err(Error::refused(404, "backup")),
        false => Ok(resolved),
    }
}
