//! Where the workers tell the recorder of requests, as the supervisor hands it to the server.

use std::os::fd::{AsFd, OwnedFd};

use ipc::ring::RingWriter;
use ipc::server::ProcessLife;

use crate::worker::commands::Command;
use crate::worker::shared::Shared;

/// Shows how the recorder is, and gives each worker its ring; without rings they keep those they have.
pub(super) fn take(shared: &Shared, life: ProcessLife, rings: &[OwnedFd]) {
    shared.process.show_recorder(life);
    for (worker, [ring, cursor]) in rings.as_chunks().0.iter().enumerate() {
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
}
