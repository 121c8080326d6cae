//! Hosts of tenants of rows, for what these see of themselves.
//!
//! The idea: a host is noted when a site is made of its row, and stays so for as long as the row is known: neither a reload nor
//! a worker that lets go of the site forgets it. Whose it is now its row says (`eyes`).

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hosts of one tenant that are listed.
const LISTED_MAX: usize = 1_000;
/// Hosts that are looked at before others may look.
const AT_ONCE: usize = 500;
/// Tenants of which a list is kept for a moment; then all are made anew.
const LISTS_MAX: usize = 256;
/// For how long.
const LIST_MS: u64 = 1_000;

/// The hosts that are noted.
#[derive(Debug, Default)]
pub(crate) struct TenantHosts {
    /// By tenant and host, with a space between them, which no name has: how many hold it. Held for one look or change.
    noted: Mutex<BTreeMap<Arc<str>, usize>>,
    /// Held for one look or change.
    lists: Mutex<HashMap<Box<str>, KeptList>>,
    /// Whether it was said that not all are told of.
    is_said: AtomicBool,
}

/// A host of a tenant, noted until this is dropped.
#[derive(Debug)]
pub(super) struct NotedHost {
    hosts: Arc<TenantHosts>,
    key: Arc<str>,
}

/// The hosts of a tenant whose rows name it now.
#[derive(Debug, Default)]
pub(crate) struct HostList {
    /// Those that it may look at.
    pub(crate) seen: Vec<String>,
    /// Whether there is any at all.
    pub(super) is_known: bool,
}

#[derive(Debug)]
struct KeptList {
    generation: u64,
    made_ms: u64,
    list: Arc<HostList>,
}

impl TenantHosts {
    /// Notes a host of a tenant.
    pub(super) fn note(self: &Arc<Self>, tenant: &str, host: &str) -> NotedHost {
        let key = format!("{tenant} {host}");
        let mut noted = self.noted();
        let known = noted.get_key_value(&*key).map(|(key, _)| Arc::clone(key));
        let key = known.unwrap_or_else(|| key.into());
        *noted.entry(Arc::clone(&key)).or_default() += 1;
        let hosts = Arc::clone(self);
        NotedHost { hosts, key }
    }

    /// Hosts that were noted of a tenant, so many at most.
    pub(super) fn of(&self, tenant: &str) -> Vec<String> {
        let start = format!("{tenant} ");
        let noted = self.noted();
        let after = noted.range::<str, _>((Included(&*start), Unbounded));
        let hosts = after.map_while(|(key, _)| key.strip_prefix(&*start));
        hosts.take(LISTED_MAX).map(str::to_owned).collect()
    }

    /// All that were noted, by tenant; so many hosts at most, where those of who has many have to stand back.
    pub(crate) fn all(&self, most: usize) -> BTreeMap<String, Vec<String>> {
        let keys = self.keys();
        let mut tenants = BTreeMap::<&str, Vec<&str>>::new();
        for (tenant, host) in keys.iter().filter_map(|key| key.split_once(' ')) {
            tenants.entry(tenant).or_default().push(host);
        }
        let is_short = keys.len() > most;
        if is_short && !self.is_said.swap(true, Relaxed) {
            let known = keys.len();
            tracing::warn!("of {known} hosts of rows the recorder is told of {most}");
        }
        let mut tenants: Vec<_> = tenants.into_iter().collect();
        tenants.sort_by_key(|(_, hosts)| hosts.len());
        let (mut room, mut others) = (most, tenants.len());
        let shared = tenants.into_iter().map_while(|(tenant, mut hosts)| {
            // Who has fewer than an equal share leaves the rest of it to the others.
            hosts.truncate(room.div_ceil(others.max(1)));
            room -= hosts.len();
            others -= 1;
            let hosts: Vec<_> = hosts.into_iter().map(str::to_owned).collect();
            (!hosts.is_empty()).then(|| (tenant.to_owned(), hosts))
        });
        shared.collect()
    }

    /// All that is noted; between any two pieces others may look and change it.
    fn keys(&self) -> Vec<Arc<str>> {
        let mut keys = Vec::<Arc<str>>::new();
        loop {
            let noted = self.noted();
            let after = match keys.last() {
                Some(last) => noted.range::<str, _>((Excluded(&**last), Unbounded)),
                None => noted.range::<str, _>(..),
            };
            let piece: Vec<_> = after
                .take(AT_ONCE)
                .map(|(key, _)| Arc::clone(key))
                .collect();
            drop(noted);
            let is_last = piece.len() < AT_ONCE;
            keys.extend(piece);
            if is_last {
                return keys;
            }
        }
    }

    /// The list of a tenant as it was made within the last second by this generation, or else is made now.
    pub(super) fn list(
        &self,
        tenant: &str,
        (generation, now_ms): (u64, u64),
        make: impl FnOnce() -> HostList,
    ) -> Arc<HostList> {
        if let Some(kept) = self.lists().get(tenant)
            && kept.generation == generation
            && now_ms.saturating_sub(kept.made_ms) < LIST_MS
        {
            return Arc::clone(&kept.list);
        }
        let list = Arc::new(make());
        let mut lists = self.lists();
        if lists.len() >= LISTS_MAX {
            lists.clear();
        }
        let kept = KeptList {
            generation,
            made_ms: now_ms,
            list: Arc::clone(&list),
        };
        lists.insert(tenant.into(), kept);
        list
    }

    fn noted(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, usize>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lists(&self) -> MutexGuard<'_, HashMap<Box<str>, KeptList>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NotedHost {
    /// Whether it is this tenant's.
    pub(super) fn is_of(&self, tenant: &str) -> bool {
        let host = self.key.strip_prefix(tenant);
        host.is_some_and(|host| host.starts_with(' '))
    }
}

impl Drop for NotedHost {
    fn drop(&mut self) {
        let mut noted = self.hosts.noted();
        if let Some(count) = noted.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                noted.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_its_tenants_as_long_as_somebody_holds_it() {
        let hosts = Arc::new(TenantHosts::default());
        let held = ["a.jp", "a.jp", "b.jp"].map(|host| hosts.note("anna", host));
        assert!(held[0].is_of("anna") && !held[0].is_of("ann"));
        assert_eq!(hosts.of("anna"), ["a.jp", "b.jp"]);
        assert!(hosts.of("ann").is_empty() && hosts.of("bob").is_empty());
        let listed = |hosts: &[&str]| {
            (
                "anna".to_owned(),
                hosts.iter().map(|it| (*it).into()).collect(),
            )
        };
        assert_eq!(hosts.all(9), BTreeMap::from([listed(&["a.jp", "b.jp"])]));
        assert_eq!(hosts.all(1), BTreeMap::from([listed(&["a.jp"])]));
        drop(held);
        assert!(hosts.of("anna").is_empty());
        let many: Vec<_> = (0..2 * LISTED_MAX)
            .map(|at| hosts.note("anna", &at.to_string()))
            .collect();
        assert_eq!(hosts.of("anna").len(), LISTED_MAX);
        assert_eq!(hosts.all(usize::MAX)["anna"].len(), 2 * LISTED_MAX);
        drop(many);
    }

    #[test]
    fn who_has_many_hosts_hides_nobody_elses() {
        let hosts = Arc::new(TenantHosts::default());
        let many = (0..100).map(|at| hosts.note("anna", &at.to_string()));
        let mut held: Vec<_> = many.collect();
        held.extend(["a.jp", "b.jp"].map(|host| hosts.note("bob", host)));
        held.push(hosts.note("zoe", "z.jp"));
        let told = |most| {
            let all = hosts.all(most);
            ["anna", "bob", "zoe"].map(|tenant| all.get(tenant).map_or(0, Vec::len))
        };
        assert_eq!(told(20), [17, 2, 1]);
        assert_eq!(told(6), [3, 2, 1]);
        assert_eq!(told(3), [1, 1, 1]);
        assert_eq!(told(2).iter().sum::<usize>(), 2);
        assert_eq!(told(103), [100, 2, 1]);
    }

    #[test]
    fn a_list_is_made_once_a_second_and_anew_for_another_configuration() {
        let hosts = TenantHosts::default();
        let made = |generation, now_ms, host: &str| {
            let make = || HostList {
                seen: vec![host.to_owned()],
                is_known: true,
            };
            hosts.list("anna", (generation, now_ms), make).seen[0].clone()
        };
        assert_eq!(made(1, 1_000, "a.jp"), "a.jp");
        assert_eq!(made(1, 1_999, "b.jp"), "a.jp");
        assert_eq!(made(1, 2_000, "b.jp"), "b.jp");
        assert_eq!(made(2, 2_000, "c.jp"), "c.jp");
    }
}
