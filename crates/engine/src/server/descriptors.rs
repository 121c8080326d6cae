//! For how much there are descriptors.

use config::model::{Caps, Model};
use ipc::server::Configure;

use crate::error::{Error, Kind, Result};
use crate::generation::Generation;
use crate::room::{Needs, Room};

/// What a generation has room for.
pub(super) fn room(
    configure: &Configure,
    model: &Model,
    before: Option<&Generation>,
) -> Result<Room> {
    let needs = Needs::of(configure, model.workers, model.log.files_max);
    let allowed = os::process::nofile_max();
    let too_few = || {
        let detail = format!(
            "{allowed} descriptors are too few: raise the limit (LimitNOFILE, ulimit -Hn), for 1000 connections to {}",
            needs.for_connections(1_000)
        );
        Error::new(Kind::Internal, "descriptors", detail)
    };
    let room = Room::share_out(allowed, needs).ok_or_else(too_few)?;
    let configured = model.caps.connections;
    let is_told = before
        .is_some_and(|before| (before.process.caps.connections, before.room) == (configured, room));
    if configured > room.connections && !is_told {
        let told = format!(
            "caps.connections is {configured}, but there are descriptors for {}: further ones wait; raise the limit (LimitNOFILE, ulimit -Hn) to {}, or lower caps.connections",
            room.connections,
            needs.for_connections(configured as u64)
        );
        // Nobody has asked for so many.
        match configured == Caps::CONNECTIONS {
            true => tracing::info!(descriptors = allowed, "{told}"),
            false => tracing::warn!(descriptors = allowed, "{told}"),
        }
    }
    Ok(room)
}
