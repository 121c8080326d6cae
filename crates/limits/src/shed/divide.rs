//! Of a share of all that is asked for, each tenant's.
//!
//! The idea: water runs into vessels as wide as the tenants' weights and as tall as what they ask
//! for. Who asks for little is filled first and loses nothing; what is cut, those lose who ask for
//! most by their weight. Nobody within their fair share loses anything before everybody above it
//! was cut down to it (weighted max-min fairness).

/// The least of its requests that a tenant is let in with: who is shut out is never heard of again.
/// So small because a flood is many times what a machine can do, and a refusal costs next to nothing.
const ADMITTED_MIN: f64 = 0.005;
/// What exceeds the fair shares by less than this part of all is nobody's in particular.
const EXCESS_MIN: f64 = 0.1;
/// Fewer requests under way than this are none.
const NOTHING: f64 = 1e-6;
/// How much more than the largest of those within their shares the others keep.
const ROOM: f64 = 2.0;
/// Rounding makes no difference between heights.
const ROUNDING: f64 = 1e-9;

/// What a tenant asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// Requests it would have under way, were everything admitted.
    pub demand: f64,
    /// Its weight.
    pub weight: f64,
}

impl Claim {
    /// Whether it asks for anything.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.demand > NOTHING && self.weight > 0.0
    }

    /// What it asks for by its weight.
    fn height(&self) -> f64 {
        self.demand / self.weight
    }
}

/// The share of what all ask for that can be taken from those above their fair shares before
/// anybody else can lose something: until they have, by their weights, twice what the largest of the
/// others asks for, for what these ask for varies. 0 where hardly anybody is above.
///
/// A fair share is one of what is asked for, not of what can be done: in a flood it is far more than
/// the machine has. So those above are not left with theirs.
#[must_use]
pub fn excess(claims: &[Claim]) -> f64 {
    let active = || claims.iter().filter(|claim| claim.is_active());
    let demand: f64 = active().map(|claim| claim.demand).sum();
    let weight: f64 = active().map(|claim| claim.weight).sum();
    if demand <= NOTHING {
        return 0.0;
    }
    let above = |height: f64| {
        let above = |claim: &Claim| (claim.demand - height * claim.weight).max(0.0);
        active().map(above).sum::<f64>() / demand
    };
    let fair = demand / weight;
    let within = active()
        .map(Claim::height)
        .filter(|height| *height <= fair * (1.0 + ROUNDING));
    match above(fair) >= EXCESS_MIN {
        true => above((ROOM * within.fold(0.0, f64::max)).min(fair)),
        false => 0.0,
    }
}

/// The share of its requests that each is admitted with, in their order, where `share` of what all
/// ask for is.
#[must_use]
pub fn divide(share: f64, claims: &[Claim]) -> Vec<f64> {
    let level = level(share, claims);
    let admitted = |claim: &Claim| match claim.is_active() {
        true => (level / claim.height()).clamp(ADMITTED_MIN, 1.0),
        // Nothing is known of it yet: it is within any share.
        false => 1.0,
    };
    claims.iter().map(admitted).collect()
}

/// How high the water stands.
fn level(share: f64, claims: &[Claim]) -> f64 {
    let mut active: Vec<&Claim> = claims.iter().filter(|claim| claim.is_active()).collect();
    active.sort_by(|left, right| left.height().total_cmp(&right.height()));
    let mut water = share * active.iter().map(|claim| claim.demand).sum::<f64>();
    let mut weight: f64 = active.iter().map(|claim| claim.weight).sum();
    for claim in active {
        let level = water / weight;
        if claim.height() > level {
            return level;
        }
        water -= claim.demand;
        weight -= claim.weight;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(demands: &[(f64, f64)]) -> Vec<Claim> {
        let claim = |&(demand, weight)| Claim { demand, weight };
        demands.iter().map(claim).collect()
    }

    #[test]
    fn whoever_is_above_its_share_pays_first() {
        for (demands, share, expected) in [
            // One asks for twenty times as much as each of three others: half of all is cut.
            (
                &[(20.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0)][..],
                0.5,
                &[8.5 / 20.0, 1.0, 1.0, 1.0][..],
            ),
            // It has a weight of twenty: then all are at their share.
            (
                &[(20.0, 20.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0)],
                0.5,
                &[0.5; 4],
            ),
            // Nothing is left above any share: all pay alike.
            (&[(1.0, 1.0), (1.0, 1.0)], 0.25, &[0.25; 2]),
            // Nobody is shut out, and who asks for nothing is not known to ask for too much.
            (&[(10.0, 1.0), (0.0, 1.0)], 0.001, &[ADMITTED_MIN, 1.0]),
            (&[(3.0, 1.0)], 1.0, &[1.0]),
            (&[], 0.5, &[]),
        ] {
            let found = divide(share, &claims(demands));
            let is_near = |(left, right): (&f64, &f64)| (left - right).abs() < 1e-9;
            assert!(
                found.iter().zip(expected).all(is_near),
                "{demands:?}: {found:?}"
            );
        }
    }

    #[test]
    fn nobody_within_its_share_loses_anything_while_others_are_above_theirs() {
        let claims = claims(&[(20.0, 1.0), (9.0, 2.0), (0.8, 1.0), (0.1, 1.0)]);
        let (total, weight) = (29.9, 5.0);
        let whole = 1.0 - excess(&claims);
        for share in [0.99, 0.9, 0.8, whole] {
            let found = divide(share, &claims);
            for (claim, admitted) in claims.iter().zip(found) {
                let is_within = claim.demand <= total * claim.weight / weight;
                assert!(
                    !is_within || admitted > 1.0 - 1e-9,
                    "{share}: {claim:?} {admitted}"
                );
            }
        }
    }

    #[test]
    fn what_exceeds_the_shares_is_told() {
        let near = |demands: &[(f64, f64)], expected: f64| {
            let found = excess(&claims(demands));
            assert!((found - expected).abs() < 1e-9, "{demands:?}: {found}");
        };
        near(&[(3.0, 1.0), (1.0, 1.0)], 0.25);
        near(&[(9.0, 1.0), (1.0, 1.0)], 0.7);
        // A flood: twice what each of the others asks for is left to it, not a tenth of itself.
        let mut flood = vec![(3_820.0, 1.0)];
        flood.extend([(20.0, 1.0); 9]);
        near(&flood, 0.945);
        // Hardly anybody is above.
        near(&[(1.1, 1.0), (0.95, 1.0)], 0.0);
        near(&[(3.0, 3.0), (1.0, 1.0)], 0.0);
        near(&[(5.0, 1.0)], 0.0);
        near(&[(0.0, 1.0)], 0.0);
        near(&[], 0.0);
    }
}
