//! Figures by period, and names with their tallies, as columns of numbers.
//!
//! The idea: what is alike stands together, so that it packs well: all counts, then all bytes, and of
//! histograms how far a bucket is from the one before. Names are sorted, and each tells what it does not
//! share with the one before it. Whatever is read may be broken, and is none then.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::day::{FIGURES, Figures, Tally, TopList};
use crate::durations::Durations;

/// Figures of minutes or hours.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct StoredPeriods {
    /// How far each period is from the one before.
    at: Vec<u64>,
    /// A column for each figure.
    figures: Vec<Vec<u64>>,
    /// How many buckets each has, how far these are from one another, and what is in them.
    lengths: Vec<u16>,
    steps: Vec<u16>,
    counts: Vec<u64>,
}

impl StoredPeriods {
    pub(super) fn of<K: Copy + Into<u64>>(periods: &BTreeMap<K, Figures>) -> StoredPeriods {
        let mut stored = StoredPeriods {
            figures: vec![Vec::new(); FIGURES],
            ..StoredPeriods::default()
        };
        let mut before = 0;
        for (at, figures) in periods {
            let at = (*at).into();
            stored.at.push(at - before);
            before = at;
            for (column, value) in stored.figures.iter_mut().zip(figures.numbers()) {
                column.push(value);
            }
            let buckets = figures.durations.buckets();
            stored.lengths.push(buckets.len() as u16);
            let mut before = 0;
            for (bucket, count) in buckets {
                stored.steps.push(bucket - before);
                stored.counts.push(*count);
                before = *bucket;
            }
        }
        stored
    }

    pub(super) fn periods<K: TryFrom<u64> + Ord>(self) -> Option<BTreeMap<K, Figures>> {
        let mut buckets = self.steps.into_iter().zip(self.counts);
        let mut at = 0_u64;
        let periods = self.at.iter().zip(self.lengths).enumerate();
        let periods = periods.map(|(place, (step, length))| {
            at = at.checked_add(*step)?;
            let mut bucket = 0_u16;
            let held = buckets.by_ref().take(length.into()).map(|(step, count)| {
                bucket = bucket.checked_add(step)?;
                Some((bucket, count))
            });
            let durations = Durations::of_buckets(held.collect::<Option<_>>()?);
            let mut numbers = [0; FIGURES];
            for (number, column) in numbers.iter_mut().zip(&self.figures) {
                *number = *column.get(place)?;
            }
            Some((
                K::try_from(at).ok()?,
                Figures::of_numbers(numbers, durations),
            ))
        });
        periods.collect()
    }
}

/// A list.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredNames<'a> {
    /// Bytes that each name shares with the one before, and how many others it has.
    shared: Vec<u16>,
    lengths: Vec<u16>,
    /// These others.
    text: &'a str,
    counts: Vec<i64>,
    /// How many of these have no duration.
    untimed: Vec<i64>,
    bytes: Vec<u64>,
    us: Vec<u64>,
    other: Tally,
}

impl StoredNames<'_> {
    /// What a list is stored as, packed by this.
    pub(super) fn packed<T>(list: &TopList, pack: impl FnOnce(&StoredNames<'_>) -> T) -> T {
        let mut names: Vec<_> = list.names().collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        let (mut shared, mut lengths, mut text) = (Vec::new(), Vec::new(), String::new());
        let mut before = "";
        for (name, _) in &names {
            let same = before.bytes().zip(name.bytes()).take_while(|(a, b)| a == b);
            let mut same = same.count();
            while !name.is_char_boundary(same) {
                same -= 1;
            }
            let rest = name.get(same..).unwrap_or_default();
            // Names are cut.
            shared.push(same as u16);
            lengths.push(rest.len() as u16);
            text.push_str(rest);
            before = name;
        }
        let tallies = || names.iter().map(|(_, tally)| tally);
        pack(&StoredNames {
            shared,
            lengths,
            text: &text,
            counts: tallies().map(|it| it.count).collect(),
            untimed: tallies()
                .map(|it| it.count.wrapping_sub_unsigned(it.timed))
                .collect(),
            bytes: tallies().map(|it| it.bytes).collect(),
            us: tallies().map(|it| it.us).collect(),
            other: list.other(),
        })
    }

    pub(super) fn add_to(&self, list: &mut TopList) -> Option<()> {
        let (mut name, mut text) = (String::new(), self.text);
        for (place, shared) in self.shared.iter().enumerate() {
            let shared = usize::from(*shared);
            let (rest, others) = text.split_at_checked(usize::from(*self.lengths.get(place)?))?;
            text = others;
            name.truncate(name.is_char_boundary(shared).then_some(shared)?);
            name.push_str(rest);
            let count = *self.counts.get(place)?;
            let timed = count.wrapping_sub(*self.untimed.get(place)?);
            let tally = Tally {
                count,
                bytes: *self.bytes.get(place)?,
                us: *self.us.get(place)?,
                timed: timed.cast_unsigned(),
            };
            list.add(&name, &tally);
        }
        list.add_other(&self.other);
        Some(())
    }
}
