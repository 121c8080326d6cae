//! Where the workers tell the recorder of requests, as the supervisor hands it to the server.

use std::os::fd::{AsFd, OwnedFd};

use ipc::recorder::RecorderNews;
use ipc::ring::RingWriter;

use super::ServerThreads;
use crate::recording::teller;
use crate::worker::commands::Command;

/// Shows how the recorder is, gives each worker its ring, and speaks over the link; without them they keep
/// those they have.
pub(super) fn take(server: &mut ServerThreads, news: RecorderNews) {
    let shared = &server.shared;
    shared.process.show_recorder((news.life, news.alerts));
    for (worker, [ring, cursor]) in news.rings.as_chunks().0.iter().enumerate() {
        match RingWriter::new(ring.as_fd(), cursor.as_fd()) {
            Ok(ring) => {
                shared.peers.tell(worker, Command::Record(Box::new(ring)));
            }
            Err(error) => {
                let error = config::reason(&error);
                tracing::error!(
                    worker,
                    error,
                    "nothing is recorded of this worker's requests"
                );
            }
        }
    }
    if let Some(link) = news.console {
        speak(server, link);
    }
}

/// Speaks with the recorder over this link from now on.
fn speak(server: &mut ServerThreads, link: OwnedFd) {
    if server.teller.is_none() {
        match teller::start(server.shared.clone()) {
            Ok(teller) => server.teller = Some(teller),
            Err(error) => {
                let error = config::reason(&error);
                tracing::error!(error, "the recorder is told no figures");
            }
        }
    }
    if let Some(teller) = &server.teller {
        teller.use_link(link);
    }
}
