//! A day in parts, as they lie in the database: each is kept for its own time.
//!
//! The idea: lists and minutes are mostly text and zeros, so they are packed; visitors lie as
//! differences of sorted hashes, which leaves of each what the number of them does not say.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{HOURS_DAYS, MINUTES_DAYS, VISITORS_DAYS};
use crate::day::DayFigures;

/// Bytes a part may have when it is unpacked.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;

/// A part of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DayPart {
    Total = 0,
    Hours = 1,
    Minutes = 2,
    Lists = 3,
    Visitors = 4,
    Trails = 5,
}

impl DayPart {
    pub(super) const ALL: [DayPart; 6] = [
        DayPart::Total,
        DayPart::Hours,
        DayPart::Minutes,
        DayPart::Lists,
        DayPart::Visitors,
        DayPart::Trails,
    ];

    /// For how many days it is kept.
    pub(super) fn days(self) -> i32 {
        match self {
            DayPart::Total | DayPart::Lists => i32::MAX,
            DayPart::Hours => HOURS_DAYS,
            DayPart::Minutes | DayPart::Trails => MINUTES_DAYS,
            DayPart::Visitors => VISITORS_DAYS,
        }
    }

    /// What is stored of a day.
    pub(super) fn content(self, figures: &DayFigures) -> Vec<u8> {
        match self {
            DayPart::Total => plain(&(&figures.total, figures.visitor_count())),
            DayPart::Hours => packed(&figures.hours),
            DayPart::Minutes => packed(&figures.minutes),
            DayPart::Lists => packed(&figures.lists),
            DayPart::Visitors => {
                let mut before = 0;
                let differences = figures.visitors.iter().map(|visitor| {
                    let difference = visitor - before;
                    before = *visitor;
                    difference
                });
                plain(&differences.collect::<Vec<u64>>())
            }
            DayPart::Trails => packed(&figures.trails),
        }
    }

    /// Puts what was stored into a day; none where it cannot be understood.
    pub(super) fn take(self, content: &[u8], figures: &mut DayFigures) -> Option<()> {
        match self {
            DayPart::Total => {
                (figures.total, figures.visitors_forgotten) = postcard::from_bytes(content).ok()?;
            }
            DayPart::Hours => figures.hours = unpacked(content)?,
            DayPart::Minutes => figures.minutes = unpacked(content)?,
            DayPart::Lists => figures.lists = unpacked(content)?,
            DayPart::Visitors => {
                let differences: Vec<u64> = postcard::from_bytes(content).ok()?;
                let mut visitor = 0_u64;
                figures.visitors.extend(differences.into_iter().map(|it| {
                    visitor = visitor.wrapping_add(it);
                    visitor
                }));
            }
            DayPart::Trails => figures.trails = unpacked(content)?,
        }
        Some(())
    }
}

/// What of ours is written always can be: there is no length and no map that is not known.
fn plain(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap_or_default()
}

fn packed(value: &impl Serialize) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(&plain(value));
    // Memory takes whatever is written to it.
    written.and_then(|()| encoder.finish()).unwrap_or_default()
}

fn unpacked<T: DeserializeOwned>(content: &[u8]) -> Option<T> {
    let mut bytes = Vec::new();
    let mut decoder = ZlibDecoder::new(content).take(UNPACKED_BYTES_MAX);
    decoder.read_to_end(&mut bytes).ok()?;
    postcard::from_bytes(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::day::{ListOf, Tally};

    #[test]
    fn a_day_is_read_as_it_was_stored() {
        let mut piece = DayFigures::default();
        piece.minute(61).requests = 7;
        piece.minute(61).durations.add(1_500, 7);
        piece.list_mut(ListOf::Pages).add("/", &Tally::times(3));
        piece.visitors.extend([5, 900, (1 << 48) - 1]);
        piece.step(5, 3_660, "/");
        let mut day = DayFigures::default();
        day.absorb(piece);
        let mut read = DayFigures::default();
        for part in DayPart::ALL {
            part.take(&part.content(&day), &mut read)
                .expect("it was stored");
        }
        day.visitors_forgotten = 3;
        assert_eq!(read, day);
    }

    #[test]
    fn what_is_broken_is_told() {
        for part in DayPart::ALL {
            let taken = part.take(&[0xff; 7], &mut DayFigures::default());
            assert_eq!(taken, None, "{part:?}");
        }
    }
}
