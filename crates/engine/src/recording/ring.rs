//! One worker's end of its ring to the recorder.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use config::countries::{Country, CountryFile, KnownCountries};
use ipc::ring::{Dropped, RingRecord, RingWriter};

use crate::stats::{RecordingStats, bump};

/// One worker's end of its ring; without one nothing is recorded.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Taken for the length of one record.
    ring: RefCell<Option<RingWriter>>,
    /// Taken for the length of one look.
    countries: RefCell<KnownCountries>,
}

impl Recording {
    /// Tells requests by this ring from now on.
    pub(crate) fn use_ring(&self, ring: RingWriter) {
        *self.ring.borrow_mut() = Some(ring);
    }

    /// Tells of a request, which `put` puts into words, or counts why not.
    pub(crate) fn tell(
        &self,
        stats: &RecordingStats,
        put: impl FnOnce(&mut RingWriter, &mut RingRecord),
    ) {
        let ring = &mut *self.ring.borrow_mut();
        let begun = match ring {
            Some(ring) => ring.begin(),
            None => Err(Dropped::NoReader),
        };
        match (ring, begun) {
            (Some(ring), Ok(())) => {
                let mut record = RingRecord::default();
                put(ring, &mut record);
                ring.push(&record);
                bump(&stats.told, 1);
            }
            (_, Err(Dropped::Full)) => bump(&stats.full, 1),
            _ => bump(&stats.unread, 1),
        }
    }

    /// The country of a client.
    pub(crate) fn country(&self, file: &Arc<CountryFile>, client: IpAddr) -> Country {
        self.countries.borrow_mut().country(file, client)
    }

    /// Shows what the recorder says of itself. Called once a tick.
    pub(crate) fn tick(&self, stats: &RecordingStats) {
        let ring = self.ring.borrow();
        let Some(ring) = ring.as_ref() else {
            return;
        };
        let said = ring.reader();
        stats.untold.store(ring.untold(), Relaxed);
        stats.seen_us.store(said.seen_us, Relaxed);
        stats.written_us.store(said.written_us, Relaxed);
        stats.cpu_us.store(said.cpu_us, Relaxed);
        for (stat, word) in stats.sent.iter().zip(said.sent.words()) {
            stat.store(word, Relaxed);
        }
    }
}
