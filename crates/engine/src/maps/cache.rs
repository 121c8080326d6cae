//! Answers kept for a while, and questions that several wait for.
//!
//! The idea: every answer is kept equally long, so the order in which they came is the order in
//! which they go, and nothing is searched. A key that is being asked has a place already: who
//! comes with it meanwhile waits for the same answer.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use config::model::MapCache;
use tokio::sync::oneshot;

use super::answers::Answer;

/// What an entry takes beside its key (which it has twice) and its answer.
const ENTRY_BYTES: usize = 128;

/// The answers of one map.
#[derive(Debug)]
pub(crate) struct Cache {
    limits: MapCache,
    kept: HashMap<Box<[u8]>, CachedAnswer>,
    /// Keys in the order their answers came, with the answers' numbers: that of a key that has been
    /// answered again since differs.
    order: VecDeque<(Box<[u8]>, u64)>,
    next: u64,
    bytes: usize,
    /// Who waits for the answer to a key that was asked.
    waiting: HashMap<Box<[u8]>, Vec<oneshot::Sender<Answer>>>,
}

#[derive(Debug)]
struct CachedAnswer {
    answer: Answer,
    came: Instant,
    number: u64,
}

/// What is known of a key.
#[derive(Debug)]
pub(crate) enum Look {
    /// Its answer.
    Fresh(Answer),
    /// It was asked already: this hears the answer.
    Waits(oneshot::Receiver<Answer>),
    /// It is to be asked: this hears the answer.
    Asks(oneshot::Receiver<Answer>),
}

impl Cache {
    pub(crate) fn new(limits: MapCache) -> Self {
        Self {
            limits,
            kept: HashMap::new(),
            order: VecDeque::new(),
            next: 0,
            bytes: 0,
            waiting: HashMap::new(),
        }
    }

    /// Looks for a key's answer.
    pub(crate) fn look(&mut self, key: &[u8], now: Instant) -> Look {
        let life = Duration::from_millis(self.limits.ms);
        let is_fresh = |kept: &&CachedAnswer| now.saturating_duration_since(kept.came) < life;
        if let Some(kept) = self.kept.get(key).filter(is_fresh) {
            return Look::Fresh(kept.answer.clone());
        }
        let (hear, heard) = oneshot::channel();
        if let Some(waiting) = self.waiting.get_mut(key) {
            // Of whoever stopped waiting nothing is left to pile up; looked for seldom enough to
            // cost next to nothing.
            if waiting.len().is_power_of_two() {
                waiting.retain(|waiting| !waiting.is_closed());
            }
            waiting.push(hear);
            return Look::Waits(heard);
        }
        self.waiting.insert(key.into(), vec![hear]);
        Look::Asks(heard)
    }

    /// Keeps an answer, and tells who waits for it.
    pub(crate) fn answer(
        &mut self,
        key: Box<[u8]>,
        answer: Answer,
        now: Instant,
    ) -> Vec<oneshot::Sender<Answer>> {
        let waiting = self.waiting.remove(&key).unwrap_or_default();
        if let Some(before) = self.kept.remove(&key) {
            self.bytes -= size(&key, &before.answer);
        }
        let bytes = size(&key, &answer);
        if bytes <= self.limits.bytes {
            self.bytes += bytes;
            let number = self.next;
            self.next += 1;
            self.order.push_back((key.clone(), number));
            let kept = CachedAnswer {
                answer,
                came: now,
                number,
            };
            self.kept.insert(key, kept);
        }
        self.shrink(now);
        waiting
    }

    /// Gives up a key that was asked, and names who waits for it.
    pub(crate) fn fail(&mut self, key: &[u8]) -> Vec<oneshot::Sender<Answer>> {
        self.waiting.remove(key).unwrap_or_default()
    }

    /// Gives up the keys that were asked and are as this says, and names who waits for each.
    pub(crate) fn fail_where(
        &mut self,
        is_meant: impl Fn(&[u8]) -> bool,
    ) -> Vec<Vec<oneshot::Sender<Answer>>> {
        let meant = self.waiting.extract_if(|key, _| is_meant(key));
        meant.map(|(_, waiting)| waiting).collect()
    }

    /// Whether a key's answer is known, or was asked for.
    pub(crate) fn is_known(&self, key: &[u8], now: Instant) -> bool {
        let life = Duration::from_millis(self.limits.ms);
        let kept = self.kept.get(key);
        let is_fresh = kept.is_some_and(|kept| now.saturating_duration_since(kept.came) < life);
        is_fresh || self.waiting.contains_key(key)
    }

    /// Keys whose answers are awaited.
    pub(crate) fn asked(&self) -> usize {
        self.waiting.len()
    }

    /// Answers that are kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Lets go of what is stale, and of the oldest while there is too much.
    fn shrink(&mut self, now: Instant) {
        let life = Duration::from_millis(self.limits.ms);
        while let Some((key, number)) = self.order.front() {
            let kept = self.kept.get(key).filter(|kept| kept.number == *number);
            let is_latest = kept.is_some();
            let is_stale =
                kept.is_some_and(|kept| now.saturating_duration_since(kept.came) >= life);
            let is_full = self.kept.len() > self.limits.entries || self.bytes > self.limits.bytes;
            if is_latest && !is_stale && !is_full {
                return;
            }
            let Some((key, _)) = self.order.pop_front() else {
                return;
            };
            if is_latest && let Some(kept) = self.kept.remove(&key) {
                self.bytes -= size(&key, &kept.answer);
            }
        }
    }
}

fn size(key: &[u8], answer: &Answer) -> usize {
    ENTRY_BYTES + 2 * key.len() + answer.as_ref().map_or(0, |answer| answer.len())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn cache(entries: usize, bytes: usize) -> Cache {
        Cache::new(MapCache {
            ms: 1_000,
            entries,
            bytes,
        })
    }

    fn text(text: &str) -> Answer {
        Some(Arc::from(text.as_bytes()))
    }

    fn fresh(cache: &mut Cache, key: &str, now: Instant) -> Option<Answer> {
        match cache.look(key.as_bytes(), now) {
            Look::Fresh(answer) => Some(answer),
            Look::Waits(_) | Look::Asks(_) => {
                cache.waiting.clear();
                None
            }
        }
    }

    #[test]
    fn an_answer_is_used_for_its_time_and_asked_once_however_many_want_it() {
        let (mut cache, now) = (cache(9, 9_999), Instant::now());
        let Look::Asks(first) = cache.look(b"k", now) else {
            panic!("nothing is known");
        };
        let Look::Waits(second) = cache.look(b"k", now) else {
            panic!("it was asked");
        };
        for waiting in cache.answer(b"k"[..].into(), text("v"), now) {
            waiting.send(text("v")).expect("somebody waits");
        }
        assert_eq!(first.blocking_recv().expect("told"), text("v"));
        assert_eq!(second.blocking_recv().expect("told"), text("v"));
        let almost = now + SECOND - Duration::from_millis(1);
        assert_eq!(fresh(&mut cache, "k", almost), Some(text("v")));
        assert_eq!(fresh(&mut cache, "k", now + SECOND), None);
        assert_eq!(fresh(&mut cache, "other", now), None);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let (mut cache, now) = (cache(9, 9_999), Instant::now());
        assert!(matches!(cache.look(b"k", now), Look::Asks(_)));
        assert_eq!(cache.fail(b"k").len(), 1);
        assert!(matches!(cache.look(b"k", now), Look::Asks(_)));
    }

    #[test]
    fn no_answer_is_kept_as_well() {
        let (mut cache, now) = (cache(9, 9_999), Instant::now());
        cache.answer(b"k"[..].into(), None, now);
        assert_eq!(fresh(&mut cache, "k", now), Some(None));
    }

    #[test]
    fn the_oldest_go_where_there_are_too_many_or_too_large_ones() {
        let (mut cache, now) = (cache(2, 9_999), Instant::now());
        for key in ["a", "b", "c"] {
            cache.answer(key.as_bytes().into(), text("v"), now);
        }
        assert_eq!(fresh(&mut cache, "a", now), None);
        assert!(fresh(&mut cache, "b", now).is_some() && fresh(&mut cache, "c", now).is_some());
        cache.answer(b"d"[..].into(), text(&"x".repeat(10_000)), now);
        assert_eq!(fresh(&mut cache, "d", now), None, "larger than all may be");
    }

    proptest! {
        #[test]
        fn it_never_holds_more_than_it_may(
            steps in prop::collection::vec((0_u8..8, 0_usize..600, 0_u64..1_500), 0..200)
        ) {
            let (mut cache, mut now) = (cache(4, 1_200), Instant::now());
            for (key, length, later_ms) in steps {
                now += Duration::from_millis(later_ms);
                cache.answer([key][..].into(), text(&"x".repeat(length)), now);
                let sizes = cache.kept.iter().map(|(key, kept)| size(key, &kept.answer));
                prop_assert_eq!(sizes.sum::<usize>(), cache.bytes);
                prop_assert!(cache.kept.len() <= 4 && cache.bytes <= 1_200);
                let known = cache.order.iter().filter(|(key, number)| {
                    cache.kept.get(key).is_some_and(|kept| kept.number == *number)
                });
                prop_assert_eq!(known.count(), cache.kept.len());
                prop_assert!(cache.order.len() <= 200);
            }
        }
    }
}
