//! The store's side of rates: of each key one instant, and who has asked for much of it lately.
//!
//! The idea: the generic cell rate algorithm in blocks. The instant is when the bucket is full again; a machine is given as much as
//! it wants of what is in it. Where machines want more than the rate brings, each is given what its part of the rate has
//! brought since it was last given something, so that whoever asks first does not have all. What a store cannot know, as it has
//! been quiet, counts as used up. Left out: when machines ask (`rate`).

use super::{RateClaim, RateGrant, divide};

/// Over how long demand is told, in microseconds: a rate brings four in that time, or more.
pub(super) const WINDOW_US: u64 = 50_000;
const WINDOW_MIN: u64 = 4;
/// How many windows a machine is remembered that asked for much.
const RECENT: u64 = 4;
/// For how many windows at the most what its part brings is kept for a machine, and for which part of one it is where it was not known.
const CREDIT: u64 = 2;
const FIRST_CREDIT: u64 = 2;
/// How many hundredths of a window's are kept in the bucket for others where machines compete, unless it would run over.
const KEPT: u64 = 30;
/// How long it takes at the most until a bucket is full of which nothing is known.
pub(super) const UNKNOWN_US: u64 = 60_000_000;
/// Demand as it is kept.
const DEMAND_MAX: u32 = 0xff_ffff;

/// What is known of one key.
#[derive(Debug, Clone, Default)]
pub(super) struct Bucket {
    /// When it is full.
    full_at_us: u64,
    askers: Vec<Asker>,
}

/// A machine that asked for much.
#[derive(Debug, Clone, Copy)]
struct Asker {
    id: u32,
    demand: u32,
    /// Since when what its part brings is its own.
    since_us: u64,
}

/// What decides beside a claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct BucketTerms {
    pub(super) now_us: u64,
    pub(super) quiet_until_us: u64,
    pub(super) id: u32,
    pub(super) turn: u64,
}

impl Bucket {
    /// Gives a machine of what there is.
    pub(super) fn draw(&mut self, terms: BucketTerms, claim: &RateClaim) -> RateGrant {
        let BucketTerms {
            now_us,
            quiet_until_us,
            id,
            turn,
        } = terms;
        let RateClaim {
            interval_ns,
            full_us,
            want,
            ..
        } = *claim;
        if now_us < quiet_until_us {
            let next_us = quiet_until_us - now_us;
            return RateGrant {
                count: 0,
                next_us,
                full_us,
            };
        }
        let unknown_us = quiet_until_us + full_us.min(UNKNOWN_US);
        let known_us = self.full_at_us.max(now_us).max(unknown_us);
        let spent_us = claim.spent_us.min(full_us);
        let full_at_us = (known_us + spent_us).min(now_us + full_us);
        let level = (now_us + full_us - full_at_us) * 1_000 / interval_ns;
        let window_us = window_us(interval_ns);
        let brought = window_us.saturating_mul(1_000) / interval_ns;
        let window = u32::try_from(brought).unwrap_or(u32::MAX);
        let demand = claim.demand.min(window).min(DEMAND_MAX);
        self.askers
            .retain(|it| it.since_us + window_us * RECENT > now_us && it.since_us <= now_us);
        let own = self.askers.iter().find(|it| it.id == id);
        let since_us = own.map_or(now_us.saturating_sub(window_us / FIRST_CREDIT), |it| {
            it.since_us
        });
        let since_us = since_us.max(now_us.saturating_sub(window_us * CREDIT));
        self.askers.retain(|it| it.id != id);
        let mut count = u64::from(want).min(level);
        if demand > 0 {
            self.askers.push(Asker {
                id,
                demand,
                since_us: now_us,
            });
            self.askers.sort_by_key(|it| it.id);
            let total: u64 = self.askers.iter().map(|it| u64::from(it.demand)).sum();
            if total > u64::from(window) {
                let part = self.part(id, window, turn);
                let own = (now_us - since_us) * part / window_us;
                let burst = full_us * 1_000 / interval_ns;
                let kept = (brought * KEPT / 100).min(burst.saturating_sub(1));
                count = count.min(own.max(level.saturating_sub(kept)));
                let spent_us = (count * window_us).checked_div(part).unwrap_or(0);
                self.set_since(id, (since_us + spent_us).min(now_us));
            }
        }
        self.full_at_us = full_at_us + (count * interval_ns).div_ceil(1_000);
        let next_us = self.full_at_us + interval_ns.div_ceil(1_000);
        RateGrant {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            next_us: next_us.saturating_sub(now_us + full_us),
            full_us: self.full_at_us - now_us,
        }
    }

    /// What a machine's part of the rate brings in a window, where all want more than there is.
    fn part(&self, id: u32, window: u32, turn: u64) -> u64 {
        let demands: Vec<_> = self.askers.iter().map(|it| (it.demand, 1)).collect();
        let parts = divide(window, &demands, turn);
        let mut parts = self.askers.iter().zip(parts);
        let own = parts.find(|(it, _)| it.id == id);
        own.map_or(0, |(_, part)| u64::from(part))
    }

    fn set_since(&mut self, id: u32, since_us: u64) {
        if let Some(own) = self.askers.iter_mut().find(|it| it.id == id) {
            own.since_us = since_us;
        }
    }
}

/// Over how long demand is told of a rate that takes so long for one.
pub(super) fn window_us(interval_ns: u64) -> u64 {
    (interval_ns.saturating_mul(WINDOW_MIN) / 1_000).max(WINDOW_US)
}
