//! A certificate for a name that a client asks for and a site covers: its map or row is asked, then the supervisor.
//!
//! What asks goes on when the handshake that began it has gone: others may wait for the same name.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ipc::certificates::{Certificate, Source};
use tokio::time::timeout;

use super::demands::{Demands, NOT_ACCEPTED, WAIT};
use super::teller::AskedName;
use crate::maps::Map;
use crate::maps::answers::Answer;
use crate::maps::cache::Look;
use crate::worker::Worker;

/// Why a handshake does not get the certificate that it would wait for: a stable word, and more.
pub(crate) type NotObtained = (&'static str, String);

/// Who accepts a name.
#[derive(Debug, Clone)]
pub(crate) enum Accepts {
    /// This map, if it has an answer.
    Map(Arc<Map>),
    /// Its row, of this tenant.
    Row(Arc<str>),
    /// Nobody any more: it has no row.
    Nobody,
}

impl Accepts {
    fn title(&self) -> String {
        match self {
            Accepts::Map(map) => format!("map {}", map.name()),
            Accepts::Row(_) | Accepts::Nobody => "its directory".to_owned(),
        }
    }
}

/// Waits until there is a certificate.
///
/// # Errors
/// Where none comes, or not within [`WAIT`].
pub(crate) async fn obtain(
    worker: &Rc<Worker>,
    by: &Accepts,
    name: &str,
    client: IpAddr,
) -> Result<(), NotObtained> {
    let demands = &worker.shared.demands;
    let full = || ("demands_full", String::new());
    let _place = Demands::place(demands, client).ok_or_else(full)?;
    let answer = match demands.look(name, Instant::now()).ok_or_else(full)? {
        Look::Fresh(answer) => answer,
        Look::Waits(heard) => wait(heard).await?,
        Look::Asks(heard) => {
            let (worker, by) = (Rc::clone(worker), by.clone());
            let name = name.to_owned();
            tokio::task::spawn_local(async move { demand(&worker, &by, &name, client).await });
            wait(heard).await?
        }
    };
    match answer {
        None => Ok(()),
        Some(why) if *why == *NOT_ACCEPTED.as_bytes() => {
            Err(("name_refused", format!("{} does not accept it", by.title())))
        }
        Some(why) => Err(("not_obtained", String::from_utf8_lossy(&why).into_owned())),
    }
}

type Heard = tokio::sync::oneshot::Receiver<Option<Arc<[u8]>>>;

async fn wait(heard: Heard) -> Result<Option<Arc<[u8]>>, NotObtained> {
    match timeout(WAIT, heard).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) | Err(_) => Err(("obtained_late", String::new())),
    }
}

/// Sees to one name, until it is refused, there, or has taken too long.
async fn demand(worker: &Rc<Worker>, by: &Accepts, name: &str, client: IpAddr) {
    let demands = &worker.shared.demands;
    demands.counts.asked.fetch_add(1, Relaxed);
    match accepts(worker, by, name, client).await {
        Some(true) => {}
        Some(false) => return demands.refuse(name, NOT_ACCEPTED, Instant::now()),
        None => return demands.put_off(name, &format!("{} gives no answer", by.title())),
    }
    demands.counts.accepted.fetch_add(1, Relaxed);
    if let Err(why) = tell(worker, by, name, (true, false)) {
        return demands.put_off(name, &why);
    }
    let Some(Look::Waits(heard)) = demands.join(name, Instant::now()) else {
        return;
    };
    if timeout(WAIT, heard).await.is_err() {
        demands.give_up(name);
    }
}

/// Whether a name's certificate does; of one that was ordered the supervisor is told that it is in use, and whether the
/// map still accepts the name.
pub(crate) fn note_use(
    worker: &Rc<Worker>,
    by: &Accepts,
    name: &str,
    client: IpAddr,
    certificate: &Certificate,
) -> bool {
    let is_own = certificate.names.iter().any(|known| known == name);
    if !is_own || !matches!(certificate.source, Source::Acme(_)) {
        return true;
    }
    let now = Instant::now();
    let now_s = worker.clock.unix_at(now).as_secs();
    let does = u64::try_from(certificate.not_after_s).is_ok_and(|until_s| until_s > now_s);
    if !does || !worker.shared.demands.is_news(name, now) {
        return does;
    }
    let (worker, by) = (Rc::clone(worker), by.clone());
    let name = name.to_owned();
    tokio::task::spawn_local(async move {
        let is_accepted = accepts(&worker, &by, &name, client).await;
        // A map that fails is asked again with the next handshake.
        let is_told = is_accepted.is_some_and(|it| tell(&worker, &by, &name, (it, true)).is_ok());
        let demands = &worker.shared.demands;
        demands.told(&name, is_told, Instant::now());
    });
    true
}

/// Whether a name is accepted: by a map an answer does that, none or an empty one does not. `None` where the map
/// fails, unless it has an answer for that (`on_error`).
async fn accepts(worker: &Worker, by: &Accepts, name: &str, client: IpAddr) -> Option<bool> {
    let map = match by {
        Accepts::Map(map) => map,
        // The handshake has looked: a row that serves on while it is asked for again counts, too.
        Accepts::Row(_) => return Some(true),
        Accepts::Nobody => return Some(false),
    };
    let key = match map.processes() {
        Some(_) => format!("{name} {}", client.to_canonical()),
        // White space ends the keys of a file.
        None => name.to_owned(),
    };
    let accepts = |answer: Answer| answer.is_some_and(|answer| !answer.is_empty());
    match map.ask(worker, key.as_bytes()).await {
        Ok(answer) => Some(accepts(answer)),
        Err(answer) => accepts(answer).then_some(true),
    }
}

fn tell(
    worker: &Worker,
    by: &Accepts,
    name: &str,
    (is_accepted, is_in_use): (bool, bool),
) -> Result<(), String> {
    worker.shared.orders.teller.put(AskedName {
        name: name.to_owned(),
        tenant: match by {
            Accepts::Row(tenant) => Some(tenant.to_string()),
            Accepts::Map(_) | Accepts::Nobody => None,
        },
        is_accepted,
        is_in_use,
    })
}
