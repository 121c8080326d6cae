//! From a host that no site names to the site that its row makes.
//!
//! What a worker has stamped serves at once while it is fresh. Else the shared table is asked, and where nothing is
//! known there the request waits, holding nothing, for the directory's `wait` at most: then it is answered 503,
//! never by another site.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entry::{EntryState, HostEntry};
use super::kept::KeptSite;
use super::row;
use super::site_row::SiteRow;
use super::table::{GaveUp, Look};
use crate::address;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::route::OF_ROW;
use crate::generation::{Destination, Generation};
use crate::reply_head;
use crate::site::Site;
use crate::stage::{Arrived, Routed};
use crate::suspension;
use crate::worker::Worker;
use crate::worker::serving::Serving;

/// When somebody may come again who was not asked for in time.
const BUSY_RETRY_S: u16 = 2;

/// The site that this worker has stamped of a fresh row.
fn known(arrived: Arrived<'_>, exchange: &Exchange) -> Option<(Destination, Arc<Site>)> {
    let request = &exchange.request;
    let now_ms = arrived.worker.shared.rows.now_ms(request.received);
    arrived.serving.rows.fresh(request.head.host(), now_ms)
}

/// Where a request goes by the row of its host, whose site is put where the request has it; the default site where
/// there is none.
///
/// # Errors
/// There is a row that is not known in time, or cannot be used.
pub(crate) async fn lead(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
) -> Result<Option<Destination>> {
    let found = match known(arrived, exchange) {
        Some(found) => Some(found),
        // Boxed: most rows are known, and need not have room for a wait.
        None => {
            let host = exchange.request.head.host().to_owned();
            let asking = Asking {
                worker: arrived.worker,
                serving: arrived.serving,
                client: exchange.request.client,
            };
            Box::pin(find(asking, &host, Some(exchange))).await?
        }
    };
    let Some((destination, site)) = found else {
        return Ok(arrived.serving.generation.any_site());
    };
    if let Some(cell) = arrived.row {
        exchange.request.row = site.row.clone();
        exchange.route.row = OnceCell::from(Arc::clone(&site));
        // It is set once for each request.
        let _ = cell.set(site);
    }
    Ok(Some(Destination {
        site: destination.site | OF_ROW,
        ..destination
    }))
}

/// Refuses the requests of a tenant whom the row suspends.
///
/// # Errors
/// It does.
pub(crate) fn check(row: &SiteRow, tenant: &str) -> Result<()> {
    if !row.is_suspended() {
        return Ok(());
    }
    let detail = format!("the row says that tenant {tenant} is suspended");
    Err(Error::new(Kind::Refused(503), suspension::REASON, detail))
}

/// Sends the client to the host that the row names, with the path and query it came with.
///
/// # Errors
/// As of any answer.
pub(crate) async fn redirect(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    host: &str,
) -> Result<()> {
    let scheme = exchange.request.scheme_word();
    let head = &exchange.request.head;
    let mut target = [scheme, b"://", host.as_bytes(), head.path_wire()].concat();
    if let Some(query) = head.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    exchange.outgoing.status = 301;
    exchange
        .outgoing
        .fields
        .push_known(wire::FieldId::Location, &target);
    reply_head::answer(*routed, exchange, b"").await
}

/// Whether a handshake for a canonical host needs its row: for its certificate, or to have one ordered.
pub(crate) fn is_needed_early(generation: &Generation, host: &str) -> bool {
    let sites = generation.row_sites.iter();
    let mut sites = sites.filter_map(|it| generation.sites.get(it.site as usize));
    let needs = |site: &Site| {
        let column = site.rows.as_ref().and_then(|it| it.certificate.as_ref());
        column.is_some() || site.acceptor.is_some()
    };
    sites.any(needs) && generation.may_be_row(host)
}

/// The site of a host's row, for a client that has not asked for anything yet.
///
/// # Errors
/// As [`lead`].
pub(crate) async fn early(
    asking: Asking<'_>,
    host: &str,
) -> Result<Option<(Destination, Arc<Site>)>> {
    let now_ms = asking.worker.shared.rows.now_ms(Instant::now());
    match asking.serving.rows.fresh(host, now_ms) {
        Some(found) => Ok(Some(found)),
        None => Box::pin(find(asking, host, None)).await,
    }
}

/// Who wants to know of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) serving: &'a Serving,
    pub(crate) client: IpAddr,
}

async fn find(
    asking: Asking<'_>,
    host: &str,
    mut exchange: Option<&mut Exchange>,
) -> Result<Option<(Destination, Arc<Site>)>> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if host.len() > ipc::directory::HOST_BYTES_MAX || !host.bytes().all(is_name) {
        return Ok(None);
    }
    let generation = &asking.serving.generation;
    for destination in &generation.row_sites {
        let Some(template) = asking.serving.site(destination.site) else {
            continue;
        };
        if let Some(exchange) = &mut exchange {
            // What is answered before there is a row is the site's that stands for all.
            exchange.route.site_index = Some(destination.site);
            exchange.route.log = destination.log;
        }
        let entry = ask(asking, exchange.as_deref_mut(), template, host).await?;
        match &entry.state {
            EntryState::Row(_) => {
                let site = made(asking, (template, *destination), (host, &entry))?;
                return Ok(Some((*destination, site)));
            }
            EntryState::Missing => {}
            EntryState::Wrong(why) => return Err(wrong(host, why)),
        }
    }
    if let Some(exchange) = exchange {
        exchange.route.site_index = None;
        exchange.route.log = generation.logs.without_site();
    }
    Ok(None)
}

/// What is known of a host; waits for it.
async fn ask(
    asking: Asking<'_>,
    mut exchange: Option<&mut Exchange>,
    template: &Site,
    host: &str,
) -> Result<Arc<HostEntry>> {
    let rows = &asking.worker.shared.rows;
    let generation = &asking.serving.generation;
    let name = template.rows.as_ref().map_or("", |rows| &rows.name);
    let terms = generation.directories.iter().find(|it| it.name == name);
    let wait = Duration::from_millis(terms.map_or(0, |terms| terms.wait_ms));
    let until = tokio::time::Instant::now() + wait;
    let network = address::network(asking.client);
    loop {
        let now_ms = rows.now_ms(Instant::now());
        let (waiting, rest_ms) = match rows.directories.look(name, host, network, now_ms) {
            Look::Known(entry) => return Ok(entry),
            Look::Asked(waiting) => (Some(waiting), 0),
            Look::Down(rest_ms) => (None, rest_ms),
            Look::Busy => return Err(busy(host)),
            Look::Nowhere => return Err(down(host, "the directory is not known yet")),
        };
        let answered = tokio::time::timeout_at(until, async {
            match waiting {
                // The other end is dropped with the answer.
                Some(mut waiting) => while waiting.changed().await.is_ok() {},
                None => tokio::time::sleep(Duration::from_millis(rest_ms)).await,
            }
        });
        let answered = match &mut exchange {
            Some(exchange) => exchange.while_client_stays(answered).await,
            None => Some(answered.await),
        };
        match answered {
            None => return Err(Error::new(Kind::ClientGone, "client_gone", String::new())),
            Some(Ok(())) if tokio::time::Instant::now() < until => {}
            Some(_) => {
                let now_ms = rows.now_ms(Instant::now());
                return match rows.directories.give_up(name, host, now_ms) {
                    GaveUp::Known(entry) => Ok(entry),
                    GaveUp::Busy => Err(busy(host)),
                    GaveUp::Down => Err(down(host, "there was no answer in time")),
                };
            }
        }
    }
}

/// The site of a row, as this worker has it or makes it.
fn made(
    asking: Asking<'_>,
    (template, destination): (&Site, Destination),
    (host, entry): (&str, &Arc<HostEntry>),
) -> Result<Arc<Site>> {
    let sites = &asking.serving.rows;
    if let Some(kept) = sites.of(host, entry) {
        return Ok(kept.site);
    }
    let number = sites.next_tree();
    let generation = &asking.serving.generation;
    let site = row::stamp(
        asking.worker,
        generation,
        (template, destination.site, number),
        (host, entry),
    );
    let site = Arc::new(site.map_err(|why| wrong(host, &why))?);
    let kept = KeptSite {
        entry: Arc::clone(entry),
        destination,
        site: Arc::clone(&site),
    };
    sites.keep(host, kept);
    Ok(site)
}

fn busy(host: &str) -> Error {
    let kind = Kind::OverLimit {
        status: 503,
        retry_after_s: BUSY_RETRY_S,
    };
    let detail = format!("`{host}` was not asked for in time: see `questions` of the directory");
    Error::new(kind, "directory_busy", detail)
}

fn down(host: &str, why: &str) -> Error {
    Error::new(Kind::Full, "directory_down", format!("`{host}`: {why}"))
}

fn wrong(host: &str, why: &str) -> Error {
    Error::new(
        Kind::Full,
        "directory_wrong",
        format!("the row of `{host}`: {why}"),
    )
}
