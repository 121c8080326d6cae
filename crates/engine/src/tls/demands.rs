//! Names that clients ask for and nobody has a certificate for: who waits for one, and what came of it.
//!
//! The idea: of handshakes that ask for one name, one has the map asked and all wait for what becomes of it: a
//! certificate, or why there is none, which is remembered for a minute. What waits and what is remembered has a number
//! each, whatever clients make up. Of names in use that have a certificate, the supervisor is told once a day.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use config::model::MapCache;
use tokio::sync::oneshot;

use super::table::CertificateTable;
use crate::maps::cache::{Cache, Look};

/// How long a handshake waits for its certificate.
pub(crate) const WAIT: Duration = Duration::from_secs(10);
/// Handshakes that wait.
const WAITING_MAX: usize = 1_000;
/// Of these, those of one client: an address, or a /64 of IPv6.
const WAITING_PER_CLIENT_MAX: usize = 20;
/// Names that are being asked about at once.
const NAMES_MAX: usize = 200;
/// How long and how many refusals are remembered.
const REFUSALS: MapCache = MapCache {
    ms: 60_000,
    entries: 4_096,
    bytes: 2 << 20,
};
/// How long and how many names are known to be in use.
const IN_USE: MapCache = MapCache {
    ms: 86_400_000,
    entries: 20_000,
    bytes: 16 << 20,
};
/// What is remembered of a name that its map does not accept.
pub(crate) const NOT_ACCEPTED: &str = "the map does not accept it";

/// What is known of names that clients ask for.
#[derive(Debug)]
pub(crate) struct Demands {
    /// Held to look a name up, or to conclude one.
    names: Mutex<Cache>,
    /// The same, of names that have certificates.
    in_use: Mutex<Cache>,
    /// Whose handshakes wait. Held to add or take out one.
    waiting: Mutex<Vec<IpAddr>>,
    pub(crate) counts: DemandCounts,
}

/// What is counted of them.
#[derive(Debug, Default)]
pub(crate) struct DemandCounts {
    /// Names that a map was asked about.
    pub(crate) asked: AtomicU64,
    /// Names that the supervisor was asked for, in its map's name.
    pub(crate) accepted: AtomicU64,
    /// Certificates that came.
    pub(crate) obtained: AtomicU64,
}

/// A handshake's place among those that wait.
#[derive(Debug)]
pub(crate) struct WaitingPlace {
    demands: Arc<Demands>,
    client: IpAddr,
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let mut waiting = lock(&self.demands.waiting);
        if let Some(at) = waiting.iter().position(|client| *client == self.client) {
            waiting.swap_remove(at);
        }
    }
}

impl Default for Demands {
    fn default() -> Self {
        Self {
            names: Mutex::new(Cache::new(REFUSALS)),
            in_use: Mutex::new(Cache::new(IN_USE)),
            waiting: Mutex::default(),
            counts: DemandCounts::default(),
        }
    }
}

impl Demands {
    /// A place to wait; none where too many wait, or too many of this client.
    pub(crate) fn place(this: &Arc<Self>, client: IpAddr) -> Option<WaitingPlace> {
        let client = network(client);
        let mut waiting = lock(&this.waiting);
        let own = waiting.iter().filter(|other| **other == client).count();
        if waiting.len() >= WAITING_MAX || own >= WAITING_PER_CLIENT_MAX {
            return None;
        }
        waiting.push(client);
        drop(waiting);
        Some(WaitingPlace {
            demands: Arc::clone(this),
            client,
        })
    }

    /// Handshakes that wait.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.waiting).len()
    }

    /// What is known of a name; none where it is not known, and too many names are asked about already.
    pub(crate) fn look(&self, name: &str, now: Instant) -> Option<Look> {
        let mut names = lock(&self.names);
        let is_known = names.is_known(name.as_bytes(), now);
        (is_known || names.asked() < NAMES_MAX).then(|| names.look(name.as_bytes(), now))
    }

    /// What becomes of a name that is being asked about; none where that is over.
    pub(crate) fn join(&self, name: &str, now: Instant) -> Option<Look> {
        let mut names = lock(&self.names);
        let is_known = names.is_known(name.as_bytes(), now);
        is_known.then(|| names.look(name.as_bytes(), now))
    }

    /// Remembers why there is no certificate for a name, and tells who waits.
    pub(crate) fn refuse(&self, name: &str, why: &str, now: Instant) {
        let answer: Arc<[u8]> = why.as_bytes().into();
        let kept = Some(Arc::clone(&answer));
        let waiting = lock(&self.names).answer(name.as_bytes().into(), kept, now);
        tell(waiting, Some(answer));
    }

    /// Tells who waits for a name why there is no certificate for it; the next one asks again.
    pub(crate) fn put_off(&self, name: &str, why: &str) {
        let waiting = lock(&self.names).fail(name.as_bytes());
        tell(waiting, Some(why.as_bytes().into()));
    }

    /// Has whoever waits for a name wait no more; the next one asks again.
    pub(crate) fn give_up(&self, name: &str) {
        drop(lock(&self.names).fail(name.as_bytes()));
    }

    /// Has those wait no more for whose names there are certificates now.
    pub(crate) fn look_at(&self, table: &CertificateTable, now_s: i64) {
        let is_there = |name: &[u8]| {
            let name = std::str::from_utf8(name).ok();
            let found = name.and_then(|name| table.of_name(name, None, &[]));
            found.is_some_and(|it| it.not_after_s > now_s)
        };
        let obtained = lock(&self.names).fail_where(is_there);
        for waiting in obtained {
            self.counts.obtained.fetch_add(1, Relaxed);
            tell(waiting, None);
        }
    }

    /// Whether the supervisor is to be told that a name is in use.
    pub(crate) fn is_news(&self, name: &str, now: Instant) -> bool {
        let mut in_use = lock(&self.in_use);
        if in_use.is_known(name.as_bytes(), now) || in_use.asked() >= NAMES_MAX {
            return false;
        }
        matches!(in_use.look(name.as_bytes(), now), Look::Asks(_))
    }

    /// It was told, or will be another time.
    pub(crate) fn told(&self, name: &str, is_told: bool, now: Instant) {
        let mut in_use = lock(&self.in_use);
        match is_told {
            true => drop(in_use.answer(name.as_bytes().into(), None, now)),
            false => drop(in_use.fail(name.as_bytes())),
        }
    }
}

fn tell(waiting: Vec<oneshot::Sender<Option<Arc<[u8]>>>>, answer: Option<Arc<[u8]>>) {
    for handshake in waiting {
        // Who has gone hears nothing.
        let _ = handshake.send(answer.clone());
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whom an address counts for.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn so_many_wait_and_so_many_of_one_client() {
        let demands = Arc::<Demands>::default();
        let own: Vec<_> = (0..WAITING_PER_CLIENT_MAX + 5)
            .filter_map(|_| Demands::place(&demands, ONE))
            .collect();
        assert_eq!(own.len(), WAITING_PER_CLIENT_MAX);
        let of = |bits: u128| Demands::place(&demands, Ipv6Addr::from_bits(bits).into());
        let same: Vec<_> = (0..100).filter_map(|low| of(1 << 125 | low)).collect();
        assert_eq!(same.len(), WAITING_PER_CLIENT_MAX);
        let others: Vec<_> = (2..2_000).filter_map(|high| of(high << 64)).collect();
        assert_eq!(own.len() + same.len() + others.len(), WAITING_MAX);
        drop((own, same, others));
        assert_eq!(demands.waiting(), 0);
    }

    #[test]
    fn a_hundred_thousand_names_are_remembered_in_bounded_memory() {
        let (demands, now) = (Demands::default(), Instant::now());
        for index in 0..100_000 {
            let name = format!("n{index}.example.jp");
            assert!(matches!(demands.look(&name, now), Some(Look::Asks(_))));
            demands.refuse(&name, NOT_ACCEPTED, now);
            let known = demands.look(&name, now);
            let expected = Some(NOT_ACCEPTED.as_bytes());
            assert!(matches!(known, Some(Look::Fresh(Some(why))) if Some(&*why) == expected));
        }
        assert!(lock(&demands.names).kept() <= REFUSALS.entries);
        assert!(matches!(
            demands.look("n0.example.jp", now),
            Some(Look::Asks(_))
        ));
        let later = now + Duration::from_millis(REFUSALS.ms);
        let last = demands.look("n99999.example.jp", later);
        assert!(matches!(last, Some(Look::Asks(_))));
    }

    #[test]
    fn so_many_names_are_asked_about_at_once_and_who_comes_later_waits_for_the_same() {
        let (demands, now) = (Demands::default(), Instant::now());
        let names: Vec<_> = (0..NAMES_MAX).map(|index| format!("n{index}.jp")).collect();
        for name in &names {
            assert!(matches!(demands.look(name, now), Some(Look::Asks(_))));
        }
        assert!(demands.look("one.more.jp", now).is_none());
        let Some(Look::Waits(mut heard)) = demands.look(&names[0], now) else {
            panic!("it is being asked about");
        };
        demands.refuse(&names[0], "because", now);
        assert_eq!(heard.try_recv().unwrap().as_deref(), Some(&b"because"[..]));
        assert!(demands.look("one.more.jp", now).is_some());
        let Some(Look::Waits(mut heard)) = demands.look(&names[1], now) else {
            panic!("it is being asked about");
        };
        demands.give_up(&names[1]);
        assert!(heard.try_recv().is_err());
        let Some(Look::Asks(mut heard)) = demands.look(&names[1], now) else {
            panic!("it is asked about anew");
        };
        demands.put_off(&names[1], "not yet");
        assert_eq!(heard.try_recv().unwrap().as_deref(), Some(&b"not yet"[..]));
        // Whose name is there no more asks nothing anew by joining.
        assert!(demands.join(&names[1], now).is_none());
        assert!(matches!(demands.join(&names[2], now), Some(Look::Waits(_))));
    }

    #[test]
    fn of_a_name_in_use_is_told_once_a_day() {
        let (demands, now) = (Demands::default(), Instant::now());
        let day = Duration::from_millis(IN_USE.ms);
        assert!(demands.is_news("a.jp", now) && !demands.is_news("a.jp", now));
        demands.told("a.jp", false, now);
        assert!(demands.is_news("a.jp", now));
        demands.told("a.jp", true, now);
        assert!(!demands.is_news("a.jp", now + day / 2));
        assert!(demands.is_news("a.jp", now + day));
    }
}
