//! Durations, counted in buckets that merge: the percentiles of a year are those of its requests, not
//! a mean of minutes' percentiles.
//!
//! The idea: each doubling has 32 equal buckets, so that what is told is off by at most 1.6 %; only
//! buckets with something in them are kept, for a minute of most sites has few.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Buckets of a doubling, as a logarithm.
const PARTS_LOG: u32 = 5;
const PARTS: u64 = 1 << PARTS_LOG;
/// The longest duration told apart, 71 minutes; a longer one counts as this.
const MICROS_MAX: u64 = (1 << 32) - 1;
/// Behind the last bucket.
const BUCKETS_END: u16 = 896;

/// Counts of durations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// Bucket and count, by bucket.
    buckets: Vec<(u16, u64)>,
}

impl Durations {
    /// Counts a duration in microseconds so many times.
    pub fn add(&mut self, us: u64, times: u64) {
        let bucket = bucket(us);
        match self.buckets.binary_search_by_key(&bucket, |(it, _)| *it) {
            Ok(at) => {
                if let Some((_, count)) = self.buckets.get_mut(at) {
                    *count = count.saturating_add(times);
                }
            }
            Err(at) => self.buckets.insert(at, (bucket, times)),
        }
    }

    /// Adds those of another period.
    pub fn merge(&mut self, other: &Durations) {
        let own = std::mem::take(&mut self.buckets);
        self.buckets
            .reserve_exact(own.len().max(other.buckets.len()));
        let mut others = other.buckets.iter().copied().peekable();
        for (bucket, count) in own {
            while let Some(before) = others.next_if(|(it, _)| *it < bucket) {
                self.buckets.push(before);
            }
            let same = others.next_if(|(it, _)| *it == bucket);
            let sum = count.saturating_add(same.map_or(0, |(_, count)| count));
            self.buckets.push((bucket, sum));
        }
        self.buckets.extend(others);
    }

    /// Buckets in order, with what is in them.
    pub(crate) fn buckets(&self) -> &[(u16, u64)] {
        &self.buckets
    }

    /// These buckets, which are in order.
    pub(crate) fn of_buckets(buckets: Vec<(u16, u64)>) -> Durations {
        Durations { buckets }
    }

    /// What other machines counted in their minutes, each behind its length: of what cannot be understood nothing.
    pub(crate) fn of_archive(mut bytes: &[u8]) -> Durations {
        // Minutes may be many, and each have little.
        let mut sums = BTreeMap::<u16, u64>::new();
        while let Some((length, rest)) = bytes.split_first_chunk() {
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            let Some((minute, rest)) = rest.split_at_checked(length) else {
                break;
            };
            bytes = rest;
            let minute = postcard::from_bytes::<Durations>(minute).unwrap_or_default();
            let is_known = |(bucket, _): &(u16, u64)| *bucket < BUCKETS_END;
            for (bucket, count) in minute.buckets.into_iter().filter(is_known) {
                let sum = sums.entry(bucket).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        Durations::of_buckets(sums.into_iter().collect())
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        let counts = self.buckets.iter().map(|(_, count)| *count);
        counts.fold(0, u64::saturating_add)
    }

    /// The duration in microseconds that this share of all does not exceed; none where none is known.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0);
        let mut below = 0.0;
        for (bucket, count) in &self.buckets {
            below += *count as f64;
            if below >= wanted {
                let (low, high) = (lower_us(*bucket), lower_us(bucket.saturating_add(1)));
                return Some(low + (high - low) / 2);
            }
        }
        None
    }
}

/// Where a duration is counted: short ones exactly, others in a part of their doubling.
fn bucket(us: u64) -> u16 {
    let us = us.min(MICROS_MAX);
    let place = match us {
        0..PARTS => us,
        _ => {
            let log = us.ilog2() - PARTS_LOG;
            u64::from(log) * PARTS + (us >> log)
        }
    };
    u16::try_from(place).unwrap_or(u16::MAX)
}

fn lower_us(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    match bucket {
        0..PARTS => bucket,
        _ => (bucket % PARTS + PARTS) << (bucket / PARTS - 1).min(u64::from(u32::BITS)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_duration_lies_in_its_bucket(us in 0_u64..=MICROS_MAX) {
            let bucket = bucket(us);
            prop_assert!(lower_us(bucket) <= us && us < lower_us(bucket + 1), "{us} in {bucket}");
        }

        #[test]
        fn percentiles_of_merged_periods_are_those_of_all_their_requests(
            periods in proptest::collection::vec(
                proptest::collection::vec(1_u64..=MICROS_MAX, 1..40), 1..8),
            share in 0.0..1.0_f64,
        ) {
            let mut merged = Durations::default();
            for period in &periods {
                let mut durations = Durations::default();
                period.iter().for_each(|us| durations.add(*us, 1));
                merged.merge(&durations);
            }
            let mut all: Vec<u64> = periods.concat();
            all.sort_unstable();
            let rank = ((all.len() as f64 * share).ceil() as usize).clamp(1, all.len());
            let (exact, told) = (all[rank - 1] as f64, merged.quantile_us(share));
            let told = told.expect("there are some") as f64;
            prop_assert!((told - exact).abs() <= exact * 0.016 + 1.0, "{told} for {exact}");
            prop_assert_eq!(merged.count(), all.len() as u64);
        }
    }

    #[test]
    fn what_other_machines_counted_adds_up_and_what_none_did_is_nothing() {
        let [mut one, mut two] = [Durations::default(), Durations::default()];
        one.add(100, 3);
        two.add(5_000, 1);
        let framed = |it: &[u8]| [&u32::to_be_bytes(it.len() as u32), it].concat();
        let bytes = |it: &Durations| framed(&postcard::to_stdvec(it).expect("memory"));
        let unknown = bytes(&Durations::of_buckets(vec![(BUCKETS_END, 1)]));
        // What one machine's minute says wrong is no end of another's.
        let broken = framed(&[9, 0xff]);
        let all = [bytes(&one), broken, unknown, bytes(&two)].concat();
        let cut = [&*all, &[0, 0, 0, 9, 0xff]].concat();
        one.merge(&two);
        assert_eq!(Durations::of_archive(&all), one);
        assert_eq!(Durations::of_archive(&cut), one);
        assert_eq!(Durations::of_archive(&[0xff; 7]), Durations::default());
    }

    #[test]
    fn the_longest_durations_have_a_bucket_and_nothing_has_no_percentile() {
        assert_eq!(bucket(u64::MAX), bucket(MICROS_MAX));
        assert_eq!(bucket(MICROS_MAX) + 1, BUCKETS_END);
        assert_eq!(Durations::default().quantile_us(0.99), None);
    }
}
