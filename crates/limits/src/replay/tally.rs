//! What a replay counts, by key, in bounded memory.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use super::report::{KeyReport, Report};
use super::{Arrival, RUNNING_MAX};
use crate::histogram::Histogram;
use crate::{Keyed, Time, Why};

/// Keys told apart; the first that come.
pub const KEYS_MAX: usize = 4_096;
/// What keys beyond these are called together.
pub const OTHER: &str = "(other)";

/// Of a longer key no more is shown.
const KEY_CHARACTERS_MAX: usize = 256;

/// The counts of all keys.
pub(super) struct Tally {
    keyed: Keyed,
    places: HashMap<Box<[u8]>, usize>,
    /// All together, then each key; at last, if there is, those beyond [`KEYS_MAX`].
    counts: Vec<Counts>,
    /// When each request would have ended without a limit, and its key.
    unlimited: BinaryHeap<Reverse<(Time, usize)>>,
    from: Option<Time>,
    until: Time,
}

#[derive(Default)]
struct Counts {
    report: KeyReport,
    waits: Option<Box<Histogram>>,
    in_flight: u32,
    in_flight_unlimited: u32,
}

/// Where all keys are counted together.
const TOTAL: usize = 0;

impl Tally {
    pub(super) fn new(keyed: Keyed) -> Self {
        Self {
            keyed,
            places: HashMap::new(),
            counts: vec![Counts::default()],
            unlimited: BinaryHeap::new(),
            from: None,
            until: Time::ZERO,
        }
    }

    /// Counts an arrival, and tells by which number its key is known.
    pub(super) fn arrive(&mut self, arrival: &Arrival) -> usize {
        self.from.get_or_insert(arrival.arrived);
        self.until = self.until.max(arrival.arrived);
        let key = match self.keyed {
            Keyed::Fixed => self.place(&[]),
            Keyed::Dynamic => self.place(&arrival.key),
        };
        while let Some(Reverse((ends, ended))) = self.unlimited.peek().copied() {
            if ends > arrival.arrived && self.unlimited.len() < RUNNING_MAX {
                break;
            }
            self.unlimited.pop();
            self.both(ended, |counts| counts.in_flight_unlimited -= 1);
        }
        self.unlimited
            .push(Reverse((arrival.arrived + arrival.held, key)));
        self.both(key, |counts| {
            counts.in_flight_unlimited += 1;
            counts.report.wanted = counts.report.wanted.max(counts.in_flight_unlimited);
        });
        key
    }

    fn place(&mut self, key: &[u8]) -> usize {
        if let Some(place) = self.places.get(key) {
            return *place;
        }
        if self.places.len() >= KEYS_MAX {
            if self.counts.len() == KEYS_MAX + 1 {
                self.counts.push(Counts::of(OTHER.to_owned()));
            }
            return KEYS_MAX + 1;
        }
        self.counts.push(Counts::of(printable(key)));
        self.places.insert(key.into(), self.counts.len() - 1);
        self.counts.len() - 1
    }

    pub(super) fn admitted(&mut self, key: usize, waited: Duration) {
        self.both(key, |counts| counts.admitted(waited));
    }

    pub(super) fn ended(&mut self, key: usize) {
        self.both(key, |counts| counts.in_flight -= 1);
    }

    pub(super) fn refused(&mut self, key: usize, why: Why) {
        self.both(key, |counts| counts.refused(why));
    }

    fn both(&mut self, key: usize, count: impl Fn(&mut Counts)) {
        for place in [TOTAL, key] {
            self.counts.get_mut(place).into_iter().for_each(&count);
        }
    }

    pub(super) fn report(self) -> Report {
        let mut keys = self.counts.into_iter().map(Counts::report);
        let total = keys.next().unwrap_or_default();
        let mut keys: Vec<_> = keys.collect();
        keys.sort_by_key(|key| Reverse((key.refused_total(), key.waited, key.admitted)));
        Report {
            from: self.from.unwrap_or_default(),
            until: self.until,
            keys,
            total,
        }
    }
}

/// A key as it may be shown on a terminal.
fn printable(key: &[u8]) -> String {
    let shown = String::from_utf8_lossy(key);
    let characters = shown.chars().take(KEY_CHARACTERS_MAX);
    characters
        .map(|character| {
            if character.is_control() {
                '\u{fffd}'
            } else {
                character
            }
        })
        .collect()
}

impl Counts {
    fn of(key: String) -> Self {
        Self {
            report: KeyReport {
                key,
                ..KeyReport::default()
            },
            ..Self::default()
        }
    }

    fn admitted(&mut self, waited: Duration) {
        self.in_flight += 1;
        let report = &mut self.report;
        report.admitted += 1;
        report.peak = report.peak.max(self.in_flight);
        if waited > Duration::ZERO {
            report.waited += 1;
            report.wait_max = report.wait_max.max(waited);
            let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            self.waits
                .get_or_insert_with(|| Box::new(Histogram::new()))
                .add(nanos);
        }
    }

    fn refused(&mut self, why: Why) {
        let refused = &mut self.report.refused;
        match refused.iter_mut().find(|(known, _)| *known == why) {
            Some((_, count)) => *count += 1,
            None => refused.push((why, 1)),
        }
    }

    fn report(self) -> KeyReport {
        let mut report = self.report;
        report.refused.sort_by_key(|(_, count)| Reverse(*count));
        if let Some(waits) = self.waits {
            let longest = report.wait_max;
            let quantile =
                |share| Duration::from_nanos(waits.quantile_ns(share) as u64).min(longest);
            (report.wait_p50, report.wait_p99) = (quantile(0.5), quantile(0.99));
        }
        report
    }
}
