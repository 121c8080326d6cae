//! Who waits for a process of a FastCGI server, so that idle connections give theirs up.
//!
//! A server such as php-fpm has so many processes, and each serves one connection until that is
//! closed. A connection kept idle by one worker can so keep another worker's request waiting for
//! ever. The rule: a fresh connection that has heard nothing for [`PATIENCE`] counts as waiting
//! ([`Waiting`]); while anybody waits, connections to that server are closed when they are done
//! with, and those that are idle are closed at once, on every worker. A request answered within
//! that time disturbs nobody, so under the usual load connections are kept all the same.
//!
//! Where nobody is answered any more, all processes may be stuck in pages that never end: that is
//! told once, with what php-fpm has against it.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Requests without an answer, one after the other or at once, that speak of stuck processes.
const STUCK_REQUESTS: u64 = 2;
/// How long they may wait before their time is over.
const STUCK_MS: u64 = 60_000;
/// How long nothing is said of a server after something was.
const TOLD_MS: u64 = 60_000;

/// How long a fresh connection waits before others make room for it.
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);

/// The processes of one server, as far as anybody here waits for them.
#[derive(Debug)]
pub struct Slots {
    server: Arc<str>,
    waiting: AtomicUsize,
    /// When it last began to answer anybody, by the workers' clock.
    answered_ms: AtomicU64,
    /// Requests that were given up since then without having heard a byte.
    unheard: AtomicU64,
    /// When the error log last heard that it answers nobody; 0 for never.
    told_ms: AtomicU64,
}

/// The slots of every FastCGI server by its address, for all workers and generations.
#[derive(Debug, Default)]
pub struct AllSlots {
    /// Held to look one up when pools are made.
    known: Mutex<SlotsByName>,
}

#[derive(Debug, Default)]
struct SlotsByName {
    slots: HashMap<Arc<str>, Weak<Slots>>,
    /// How many there may be before those that nobody has any more are looked for.
    tidy_at: usize,
}

/// Counts as waiting until dropped.
#[derive(Debug)]
pub struct Waiting(Arc<Slots>);

impl AllSlots {
    /// The slots of a server.
    pub fn of(&self, server: &Arc<str>) -> Arc<Slots> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slots) = known.slots.get(server).and_then(Weak::upgrade) {
            return slots;
        }
        if known.slots.len() >= known.tidy_at {
            known.slots.retain(|_, slots| slots.strong_count() > 0);
            known.tidy_at = 2 * known.slots.len();
        }
        let slots = Arc::new(Slots {
            server: Arc::clone(server),
            waiting: AtomicUsize::new(0),
            answered_ms: AtomicU64::new(0),
            unheard: AtomicU64::new(0),
            told_ms: AtomicU64::new(0),
        });
        let place = Arc::clone(server);
        known.slots.insert(place, Arc::downgrade(&slots));
        slots
    }
}

impl Slots {
    /// Whether somebody waits for a process.
    pub fn are_wanted(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// It has begun to answer somebody. Written at most once a tick, so that workers do not contend.
    pub fn note_answer(&self, now_ms: u64) {
        if self.answered_ms.load(Relaxed) < now_ms {
            self.answered_ms.store(now_ms, Relaxed);
        }
        if self.unheard.load(Relaxed) > 0 {
            self.unheard.store(0, Relaxed);
        }
    }

    /// A request that began then was given up without having heard a byte.
    pub fn note_silence(&self, since_ms: u64, now_ms: u64) {
        // The clock goes in ticks: a request may be answered in the one in which it began.
        if self.answered_ms.load(Relaxed) >= since_ms {
            return;
        }
        let unheard = self.unheard.fetch_add(1, Relaxed) + 1;
        if unheard >= STUCK_REQUESTS {
            self.tell(unheard, now_ms.saturating_sub(since_ms), now_ms);
        }
    }

    /// When it last began to answer anybody.
    pub fn answered_ms(&self) -> u64 {
        self.answered_ms.load(Relaxed)
    }

    /// So many requests that a worker sent since it last answered have heard nothing, the oldest
    /// since then: tells of it where nobody seems to be answered.
    pub fn look(&self, unheard: u64, oldest_ms: u64, now_ms: u64) {
        let silence_ms = now_ms.saturating_sub(oldest_ms);
        if unheard >= STUCK_REQUESTS && silence_ms >= STUCK_MS {
            self.tell(unheard, silence_ms, now_ms);
        }
    }

    /// Tells of it once, and again only when it has answered in between; says whether it did.
    fn tell(&self, requests: u64, silence_ms: u64, now_ms: u64) -> bool {
        let told_ms = self.told_ms.load(Relaxed);
        let is_news = self.answered_ms.load(Relaxed) > told_ms && now_ms >= told_ms + TOLD_MS;
        if told_ms > 0 && !is_news {
            return false;
        }
        let taken = self
            .told_ms
            .compare_exchange(told_ms, now_ms.max(1), Relaxed, Relaxed);
        if taken.is_ok() {
            let silence = config::duration(silence_ms);
            tracing::warn!(server = %self.server, requests, silence, "upstream server answers nobody: its processes may all be stuck; `request_terminate_timeout` in php-fpm's pool, or `time` of a `pool` that the gateway starts, ends those that run for too long");
        }
        taken.is_ok()
    }

    /// Waits from now on. Idle connections to [`Self::server`] are to be closed next
    /// ([`Worker::release_everywhere`](crate::worker::Worker::release_everywhere)).
    pub fn wait(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, SeqCst);
        Waiting(Arc::clone(self))
    }

    /// The server whose processes these are.
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::UpstreamStats;

    fn slots() -> Arc<Slots> {
        AllSlots::default().of(&Arc::from("unix:/run/php.sock"))
    }

    /// Requests that began then and have heard nothing.
    fn asked(began_ms: &[u64]) -> UpstreamStats {
        let stats = UpstreamStats::new("", &Arc::from("a"));
        for since_ms in began_ms {
            stats.begin(*since_ms);
        }
        stats
    }

    fn look(slots: &Slots, stats: &UpstreamStats, now_ms: u64) {
        let (unheard, oldest_ms) = stats.unheard(slots.answered_ms());
        slots.look(unheard, oldest_ms.unwrap_or(now_ms), now_ms);
    }

    fn has_told(slots: &Slots) -> bool {
        slots.told_ms.swap(0, SeqCst) > 0
    }

    #[test]
    fn a_server_is_stuck_when_nobody_was_answered_while_two_waited_in_vain() {
        let slots = slots();
        slots.note_silence(1_000, 2_000);
        assert!(!has_told(&slots), "one page may be slow");
        slots.note_silence(1_100, 2_100);
        assert!(has_told(&slots));
        slots.note_answer(3_000);
        slots.note_silence(2_000, 4_000);
        slots.note_silence(2_000, 4_000);
        assert!(!has_told(&slots), "another was answered meanwhile");
        slots.note_silence(3_100, 4_100);
        slots.note_answer(4_200);
        slots.note_silence(4_300, 5_300);
        assert!(!has_told(&slots), "never two in a row");
    }

    #[test]
    fn requests_that_wait_for_a_minute_tell_of_it_before_their_time_is_over() {
        for (began_ms, answered_ms, expected) in [
            (&[1_000, 30_000][..], 0, true),
            (&[1_000], 0, false),
            (&[2_000, 30_000], 0, false),
            (&[1_000, 30_000], 20_000, false),
            (&[1_000, 500, 700], 600, true),
            (&[], 0, false),
        ] {
            let slots = slots();
            slots.note_answer(answered_ms);
            let stats = asked(began_ms);
            look(&slots, &stats, 61_000);
            assert_eq!(has_told(&slots), expected, "{began_ms:?} {answered_ms}");
        }
    }

    #[test]
    fn streams_that_began_after_the_last_first_byte_are_no_silence() {
        let slots = slots();
        slots.note_answer(500);
        let stats = asked(&[1_000, 1_000, 1_000, 1_000]);
        (0..3).for_each(|flight| stats.note_heard(flight));
        look(&slots, &stats, 100_000);
        assert!(!has_told(&slots), "one page may be slow");
        stats.begin(1_000);
        look(&slots, &stats, 100_000);
        assert!(has_told(&slots));
    }

    #[test]
    fn requests_answered_in_the_tick_in_which_they_began_do_not_count_as_unheard() {
        let slots = slots();
        slots.note_answer(1_000);
        look(&slots, &asked(&[1_000, 1_000]), 100_000);
        slots.note_silence(1_000, 100_000);
        slots.note_silence(1_000, 100_000);
        assert!(!has_told(&slots));
    }

    #[test]
    fn a_stuck_server_is_told_of_once_and_again_when_it_has_answered_in_between() {
        let slots = slots();
        assert!(slots.tell(2, 1_000, 5_000));
        assert!(!slots.tell(3, 1_000, 5_100));
        assert!(
            !slots.tell(900, 90_000, 900_000),
            "it has not answered since"
        );
        slots.note_answer(5_200);
        assert!(!slots.tell(2, 1_000, 6_000), "within the minute");
        assert!(slots.tell(2, 1_000, 65_000));
        assert!(!slots.tell(2, 1_000, 165_000));
    }

    #[test]
    fn a_server_has_one_count_however_often_it_is_named() {
        let all = AllSlots::default();
        let (one, other) = (Arc::from("unix:/a"), Arc::from("unix:/b"));
        let slots = all.of(&one);
        assert!(Arc::ptr_eq(&slots, &all.of(&Arc::from("unix:/a"))));
        assert!(!Arc::ptr_eq(&slots, &all.of(&other)));
        for number in 0..100 {
            all.of(&Arc::from(format!("unix:/{number}")));
        }
        let known = all.known.lock().expect("nobody panicked");
        assert!(known.slots.len() < 5, "servers nobody has are forgotten");
        assert!(known.slots.contains_key(&one), "and others are not");
    }
}
