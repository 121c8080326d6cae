//! The store's side of leases, as a function: what the script does that runs in the store.
//!
//! The idea: all decisions are made here, at one instant of the store's clock. Where a machine needs more than there is for it,
//! those are **called** that may have something to give, and it is called itself when they have given it: a call is
//! a hint to claim, heard by whoever listens, and changes nothing of what is held. Whoever changes this changes the script
//! (`directory/src/fleet/store.lua`) too; a test runs both on the same words.

use std::collections::BTreeMap;

use super::bucket::{Bucket, BucketTerms};
use super::{Claim, FleetKey, Grant, RateClaim, StoreReply, divide};

/// How long a holder is remembered that is not heard of, in milliseconds: what it said earlier and comes late is not believed.
const FORGET_MS: u64 = 3_600_000;
/// For how long a machine gives back what it needs no more, after it has heard that there is less than is wanted, in
/// milliseconds: a little less than machines do.
const CALM_MS: u64 = 400;
/// Keys in one call.
const CALL_KEYS_MAX: usize = 64;
/// Calls of a machine that are kept until it hears them: the newest.
const CALLS_MAX: usize = 8;

/// A machine's run of the gateway: one that has started again holds nothing of what it did.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// What the machine is called.
    pub machine: String,
    /// A number that no other run has.
    pub run: u64,
}

/// What a store knows.
#[derive(Debug, Clone, Default)]
pub struct StoreModel {
    life: Option<StoreLife>,
    holders: BTreeMap<Holder, KnownHolder>,
    keys: BTreeMap<FleetKey, Vec<HeldRecord>>,
    buckets: BTreeMap<FleetKey, Bucket>,
    last_id: u32,
    /// By machine, the keys of each. In the store they end with a lease.
    calls: BTreeMap<String, Vec<Vec<FleetKey>>>,
}

#[derive(Debug, Clone, Copy)]
struct StoreLife {
    /// Which run of the store it was.
    run: u64,
    quiet_until_ms: u64,
    /// When anybody was heard last.
    heard_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct KnownHolder {
    id: u32,
    /// The number of its last word.
    seq: u64,
    seen_ms: u64,
    /// The longest lease it has asked for lately, and when it did so last.
    lease_ms: u64,
    lease_at_ms: u64,
    /// When it was heard first.
    since_ms: u64,
}

/// What one holder has of one key.
#[derive(Debug, Clone, Copy)]
struct HeldRecord {
    id: u32,
    held: u32,
    need: u32,
    want: u32,
    weight: u32,
    /// Whether there was less than is wanted.
    is_contended: bool,
    until_ms: u64,
}

/// What decides beside a claim.
#[derive(Debug, Clone, Copy)]
struct Terms {
    now_ms: u64,
    is_quiet: bool,
    /// The longest lease of any machine.
    longest_ms: u64,
    /// Who claims, and for how long.
    id: u32,
    lease_ms: u64,
}

impl StoreModel {
    /// Hears a holder at an instant of the clock of a run of the store. `None`: it has heard a later word of that holder.
    pub fn call(
        &mut self,
        (run, now_us): (u64, u64),
        holder: &Holder,
        (seq, lease_ms): (u64, u64),
        (claims, rates): (&[Claim], &[RateClaim]),
    ) -> Option<StoreReply> {
        let now_ms = now_us / 1_000;
        let known = self.holders.get(holder).copied();
        if known.is_some_and(|known| seq <= known.seq) {
            return None;
        }
        let id = known.map_or(self.last_id + 1, |known| known.id);
        self.last_id = self.last_id.max(id);
        let known = KnownHolder::heard(known, id, seq, (now_ms, lease_ms));
        self.holders.insert(holder.clone(), known);
        let longest_ms = self.longest_ms(now_ms);
        let life = StoreLife::next(self.life, run, now_ms, longest_ms);
        self.life = Some(life);
        self.holders
            .retain(|_, it| now_ms.saturating_sub(it.seen_ms) <= FORGET_MS);
        let calls = self.calls.remove(&holder.machine).unwrap_or_default();
        let called = calls.into_iter().flatten().collect();
        let terms = Terms {
            now_ms,
            is_quiet: now_ms < life.quiet_until_ms,
            longest_ms,
            id,
            lease_ms,
        };
        let mut made = BTreeMap::new();
        let grants = claims
            .iter()
            .map(|claim| self.grant(terms, claim, &mut made))
            .collect();
        self.keep_calls(made);
        let terms = BucketTerms {
            now_us,
            quiet_until_us: life.quiet_until_ms * 1_000,
            id,
            turn: turn(now_ms, longest_ms),
        };
        let rates = rates.iter();
        let rates = rates.map(|claim| {
            self.buckets
                .entry(claim.key)
                .or_default()
                .draw(terms, claim)
        });
        let rates = rates.collect();
        let machines = self.machines(now_ms, longest_ms);
        Some(StoreReply {
            quiet_ms: life.quiet_until_ms.saturating_sub(now_ms),
            machines,
            called,
            grants,
            rates,
        })
    }

    /// What a machine hears that listens: the first call to it.
    pub fn listen(&mut self, machine: &str) -> Option<Vec<FleetKey>> {
        let calls = self.calls.get_mut(machine)?;
        let call = calls.remove(0);
        if calls.is_empty() {
            self.calls.remove(machine);
        }
        Some(call)
    }

    /// Forgets everything, as a store that is started again without its data.
    pub fn empty(&mut self) {
        *self = Self::default();
    }

    /// Permits held of a key by anybody.
    #[must_use]
    pub fn held(&self, key: FleetKey, now_ms: u64) -> u32 {
        let records = self.keys.get(&key).map_or(&[][..], Vec::as_slice);
        let held = records.iter().filter(|it| it.until_ms > now_ms);
        held.map(|it| it.held).sum()
    }

    /// Keys that something is known of.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The longest lease that anybody may have: one that nobody has asked for during two such leases is over.
    fn longest_ms(&self, now_ms: u64) -> u64 {
        let recent = self.holders.values();
        let recent = recent.filter(|it| it.is_long_since(now_ms));
        recent.map(|it| it.lease_ms).max().unwrap_or(1)
    }

    /// How many machines there are: runs of one name that are heard by turns are of several machines, as one that has ended
    /// says nothing any more.
    fn machines(&self, now_ms: u64, longest_ms: u64) -> u32 {
        let seen = self.holders.iter();
        let seen: Vec<_> = seen
            .filter(|(_, it)| now_ms.saturating_sub(it.seen_ms) <= longest_ms)
            .collect();
        let is_counted = |(holder, it): &(&Holder, &KnownHolder)| {
            let before = seen.iter().filter(|(other, its)| {
                other.machine == holder.machine && (its.since_ms, its.id) < (it.since_ms, it.id)
            });
            let mut before = before.peekable();
            before.peek().is_none() || before.any(|(_, its)| its.seen_ms > it.since_ms)
        };
        let count = seen.iter().filter(|it| is_counted(it)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn grant(
        &mut self,
        terms: Terms,
        claim: &Claim,
        made: &mut BTreeMap<u32, Vec<FleetKey>>,
    ) -> Grant {
        let Terms { now_ms, id, .. } = terms;
        let Claim {
            limit,
            used,
            keep,
            want,
            ..
        } = *claim;
        let mut records = self.keys.remove(&claim.key).unwrap_or_default();
        for record in &mut records {
            // A clock that was put back lets nothing be held for longer.
            record.until_ms = record.until_ms.min(now_ms + terms.longest_ms);
        }
        records.retain(|record| record.until_ms > now_ms);
        let before = records.iter().find(|it| it.id == id);
        let before = before.map_or(0, |it| it.held);
        records.retain(|record| record.id != id);
        let others: u32 = records.iter().map(|record| record.held).sum();
        let total = records.iter().map(|it| u64::from(it.want)).sum::<u64>() + u64::from(want);
        let is_contended = total > u64::from(limit);
        records.push(HeldRecord {
            id,
            held: 0,
            need: claim.need,
            want,
            weight: claim.weight.min(u32::from(u16::MAX)),
            is_contended,
            until_ms: now_ms + terms.lease_ms,
        });
        records.sort_by_key(|record| record.id);
        let parts = parts(limit, &records, turn(now_ms, terms.longest_ms));
        let own = records.iter().position(|it| it.id == id).unwrap_or(0);
        let part = parts.get(own).copied().unwrap_or(0);
        let held = match terms.is_quiet {
            true => keep.max(used),
            false => {
                let free = limit.saturating_sub(others);
                let sure = keep.min(before.max(free));
                used.max(sure).max(want.min(part).min(free))
            }
        };
        if let Some(own) = records.get_mut(own) {
            own.held = held;
        }
        let mut is_coming = false;
        let others = records.iter().zip(&parts).filter(|(it, _)| it.id != id);
        let own_part = part;
        for (it, part) in others {
            let is_calm = !it.is_contended || now_ms + terms.longest_ms - it.until_ms >= CALM_MS;
            let may_be_idle = it.held > it.need || it.held > 0 && is_calm;
            let is_lacking = may_be_idle && held < claim.need && !terms.is_quiet;
            is_coming |= is_lacking;
            let may_give = is_lacking || it.held > *part && held < want.min(own_part);
            let may_take = held < before && it.held < it.need.min(*part);
            if (may_give || may_take) && !terms.is_quiet {
                let call: &mut Vec<FleetKey> = made.entry(it.id).or_default();
                if call.len() < CALL_KEYS_MAX {
                    call.push(claim.key);
                }
            }
        }
        records.retain(|it| it.id != id || it.held > 0 || it.want > 0);
        if !records.is_empty() {
            self.keys.insert(claim.key, records);
        }
        Grant {
            held,
            part,
            is_contended,
            is_coming,
        }
    }

    /// Keeps calls for the machines of holders until they are heard.
    fn keep_calls(&mut self, made: BTreeMap<u32, Vec<FleetKey>>) {
        for (id, call) in made {
            let Some((holder, _)) = self.holders.iter().find(|(_, it)| it.id == id) else {
                continue;
            };
            let calls = self.calls.entry(holder.machine.clone()).or_default();
            calls.push(call);
            let gone = calls.len().saturating_sub(CALLS_MAX);
            calls.drain(..gone);
        }
    }
}

/// Whose turn it is where there is less than one for each.
fn turn(now_ms: u64, longest_ms: u64) -> u64 {
    now_ms / (longest_ms / 10).max(100)
}

/// The parts of all, by what they need, and what is left of the limit by what they would like beyond.
fn parts(limit: u32, records: &[HeldRecord], turn: u64) -> Vec<u32> {
    let needs: Vec<_> = records.iter().map(|it| (it.need, it.weight)).collect();
    let parts = divide(limit, &needs, turn);
    let left = limit - parts.iter().sum::<u32>();
    let beyond = records
        .iter()
        .map(|it| (it.want.saturating_sub(it.need), it.weight));
    let beyond = divide(left, &beyond.collect::<Vec<_>>(), turn);
    parts
        .iter()
        .zip(beyond)
        .map(|(one, two)| one + two)
        .collect()
}

impl KnownHolder {
    fn heard(known: Option<Self>, id: u32, seq: u64, (now_ms, lease_ms): (u64, u64)) -> Self {
        let longer = known.filter(|it| it.lease_ms > lease_ms && it.is_long_since(now_ms));
        let (lease_ms, lease_at_ms) =
            longer.map_or((lease_ms, now_ms), |it| (it.lease_ms, it.lease_at_ms));
        Self {
            id,
            seq,
            seen_ms: now_ms,
            lease_ms,
            lease_at_ms,
            since_ms: known.map_or(now_ms, |it| it.since_ms),
        }
    }

    /// Whether its longest lease may not be over.
    fn is_long_since(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.lease_at_ms) <= self.lease_ms * 2
    }
}

impl StoreLife {
    /// Quiet for a lease where the store is another, or has heard of nobody for half of one, when each machine says something in
    /// a fifth: whoever holds something says so in the meantime, and a clock that was put forward frees nothing.
    fn next(before: Option<Self>, run: u64, now_ms: u64, longest_ms: u64) -> Self {
        let is_known = before
            .filter(|it| it.run == run && now_ms.saturating_sub(it.heard_ms) * 2 <= longest_ms);
        let quiet_until_ms = now_ms + longest_ms;
        Self {
            run,
            quiet_until_ms: is_known
                .map_or(quiet_until_ms, |it| it.quiet_until_ms.min(quiet_until_ms)),
            heard_ms: now_ms,
        }
    }
}
