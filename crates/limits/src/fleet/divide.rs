//! How permits are shared among machines that want more than there are.

/// Divides `limit` among wants, each with a weight: nobody has more than it wants, and among those who want more than
/// their part the parts are as the weights are. What cannot be divided goes to one after another, from `turn` on, so that with
/// fewer permits than machines each has its turn.
#[must_use]
pub fn divide(limit: u32, wants: &[(u32, u32)], turn: u64) -> Vec<u32> {
    let mut parts = vec![0; wants.len()];
    let mut open: Vec<usize> = (0..wants.len()).collect();
    open.retain(|at| wants.get(*at).is_some_and(|(want, _)| *want > 0));
    let mut left = u64::from(limit);
    loop {
        let weights: u64 = open.iter().map(|at| weight(wants, *at)).sum();
        let (content, rest): (Vec<usize>, Vec<usize>) = open
            .iter()
            .partition(|at| want(wants, **at) * weights <= left * weight(wants, **at));
        open = rest;
        for at in &content {
            left -= want(wants, *at);
            set(&mut parts, *at, want(wants, *at));
        }
        if content.is_empty() || open.is_empty() {
            break;
        }
    }
    let weights: u64 = open.iter().map(|at| weight(wants, *at)).sum();
    let all = left;
    for at in &open {
        let part = all * weight(wants, *at) / weights.max(1);
        left -= part;
        set(&mut parts, *at, part);
    }
    let len = open.len().max(1) as u64;
    let first = usize::try_from(turn % len).unwrap_or(0);
    let (before, from) = open.split_at(first.min(open.len()));
    let takers = from.iter().chain(before);
    for at in takers.take(usize::try_from(left).unwrap_or(usize::MAX)) {
        if let Some(part) = parts.get_mut(*at) {
            *part += 1;
        }
    }
    parts
}

fn want(wants: &[(u32, u32)], at: usize) -> u64 {
    wants.get(at).map_or(0, |(want, _)| u64::from(*want))
}

fn weight(wants: &[(u32, u32)], at: usize) -> u64 {
    wants
        .get(at)
        .map_or(1, |(_, weight)| u64::from((*weight).max(1)))
}

fn set(parts: &mut [u32], at: usize, part: u64) {
    if let Some(place) = parts.get_mut(at) {
        *place = u32::try_from(part).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_follow_wants_and_weights_and_turns() {
        for (limit, wants, turn, parts) in [
            (100, &[(10, 1), (20, 1)][..], 0, &[10, 20][..]),
            (100, &[(200, 1), (200, 1)], 0, &[50, 50]),
            (100, &[(200, 3), (200, 1)], 0, &[75, 25]),
            (100, &[(200, 1), (5, 1), (0, 1)], 0, &[95, 5, 0]),
            (2, &[(9, 1), (9, 1), (9, 1)], 0, &[1, 1, 0]),
            (2, &[(9, 1), (9, 1), (9, 1)], 1, &[0, 1, 1]),
            (2, &[(9, 1), (9, 1), (9, 1)], 2, &[1, 0, 1]),
            (0, &[(9, 1)], 7, &[0]),
            (9, &[], 7, &[]),
        ] {
            assert_eq!(
                divide(limit, wants, turn),
                parts,
                "{limit} {wants:?} {turn}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_more_is_given_than_there_is_and_nothing_is_left_that_is_wanted(
            limit in 0_u32..1_000_000,
            wants in proptest::collection::vec((0_u32..1_000_000, 1_u32..1_000_000), 0..12),
            turn in any::<u64>(),
        ) {
            let parts = divide(limit, &wants, turn);
            let sum: u64 = parts.iter().map(|part| u64::from(*part)).sum();
            let wanted: u64 = wants.iter().map(|(want, _)| u64::from(*want)).sum();
            prop_assert_eq!(sum, wanted.min(u64::from(limit)));
            for (part, (want, _)) in parts.iter().zip(&wants) {
                prop_assert!(part <= want);
            }
        }
    }
}
