//! Times, counted in fixed places, so that a share of them can be told without keeping them.

/// Parts of each doubling of time: what is told is off by at most 1/8, mostly by much less.
const PARTS: u32 = 8;
/// The shortest time told apart, 2^14 ns (16 us); shorter ones count as this.
const LEAST_LOG: u32 = 14;
/// Doublings from there, up to 2^38 ns (275 s); longer ones count as that.
const DOUBLINGS: u32 = 24;
const PLACES: usize = (DOUBLINGS * PARTS) as usize;

/// Counts of times.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    places: [u32; PLACES],
    count: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            places: [0; PLACES],
            count: 0,
        }
    }

    pub(crate) fn add(&mut self, nanos: u64) {
        let counted = &mut self.places[place(nanos)];
        *counted = counted.saturating_add(1);
        self.count += 1;
    }

    /// About the time that this share of all is not above; 0 if there are none.
    pub(crate) fn quantile_ns(&self, share: f64) -> f64 {
        let wanted = self.count as f64 * share;
        let mut below = 0.0;
        for (place, count) in self
            .places
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let count = f64::from(*count);
            if below + count >= wanted {
                let (low, high) = (lower_ns(place), lower_ns(place + 1));
                return low + (high - low) * (wanted - below) / count;
            }
            below += count;
        }
        0.0
    }
}

/// Where a time is counted: each doubling has [`PARTS`] equal parts.
fn place(nanos: u64) -> usize {
    let nanos = nanos.clamp(1 << LEAST_LOG, (1 << (LEAST_LOG + DOUBLINGS)) - 1);
    let log = nanos.ilog2();
    let part = (nanos >> (log - PARTS.ilog2())) as u32 % PARTS;
    ((log - LEAST_LOG) * PARTS + part) as usize
}

fn lower_ns(place: usize) -> f64 {
    let (doubling, part) = (place as u32 / PARTS, place as u32 % PARTS);
    (1_u64 << (LEAST_LOG + doubling)) as f64 * (1.0 + f64::from(part) / f64::from(PARTS))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_median_is_off_by_an_eighth_at_most(
            mut times in proptest::collection::vec(1_u64 << LEAST_LOG..1 << 37, 1..300),
        ) {
            let mut histogram = Histogram::new();
            times.iter().for_each(|nanos| histogram.add(*nanos));
            times.sort_unstable();
            let (low, high) = (times[(times.len() - 1) / 2] as f64, times[times.len() / 2] as f64);
            let median = histogram.quantile_ns(0.5);
            prop_assert!(low * 0.88 <= median && median <= high * 1.125, "{low} {median} {high}");
        }

        #[test]
        fn every_time_has_a_place_whose_bounds_hold_it(nanos in 1_u64 << LEAST_LOG..1 << 38) {
            let place = place(nanos);
            prop_assert!(place < PLACES);
            prop_assert!(lower_ns(place) <= nanos as f64 && (nanos as f64) < lower_ns(place + 1));
        }
    }

    #[test]
    fn the_shortest_and_the_longest_times_have_places_too() {
        assert_eq!(place(0), 0);
        assert_eq!(place(u64::MAX), PLACES - 1);
    }
}
