//! The pools of upstreams that scripts and rows have named, on one worker and of one generation.
//!
//! A pool is made for a name together with the addresses that were judged for it: whoever may use
//! other addresses under the same name has another pool. There is a bounded number of them; one
//! that is idle makes room for the next. Figures tell of all of them together, since a script can
//! say more names than anybody would want to see.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use config::model::{self, Balance, Protocol, ProxyVersion, ServerAddress};

use super::Pool;
use super::dial::Names;
use crate::stats::UpstreamStats;
use crate::worker::resources::Resources;

/// Pools of one worker and generation.
const POOLS_MAX: usize = if cfg!(test) { 4 } else { 4_096 };
/// How many are given up at once where there is no room for another.
const GIVEN_UP: usize = if cfg!(test) { 1 } else { 256 };
/// Addresses of which is remembered whether they are this machine's, and for how long.
const ADDRESSES_MAX: usize = 4_096;
const ADDRESS_BELIEVED_MS: u64 = 10_000;
/// Names whose addresses are remembered.
const NAMES_MAX: usize = if cfg!(test) { 4 } else { 1_024 };
/// Connections kept to each server, as many as those of a configuration keep by default: scripts
/// that wait for one store go on together, and want as many at once.
const KEEPALIVE: usize = 256;
/// Failures in a row after which one of several servers rests, for how long at first and at most.
const FAILS: u32 = 3;
const BACK_OFF_MS: u64 = 1_000;
const BACK_OFF_MS_MAX: u64 = 60_000;
/// Servers tried for one request.
const TRIES: u32 = 2;
/// What figures call all of them: no upstream of a configuration can have this name.
const TOGETHER: (&str, &str) = ("(named by scripts)", "any");

/// Upstreams that scripts have named.
#[derive(Debug, Default)]
pub struct Dynamic {
    pools: RefCell<Pools>,
    names: RefCell<HashMap<Box<str>, Rc<Names>>>,
    /// Which addresses are this machine's, and when that was known.
    here: RefCell<HashMap<IpAddr, (bool, u64)>>,
    together: OnceCell<Arc<UpstreamStats>>,
    is_retired: Cell<bool>,
}

/// By what was said: few names mean several lists of addresses.
type Pools = HashMap<Box<str>, Vec<DynamicPool>>;

#[derive(Debug)]
struct DynamicPool {
    /// The addresses that were judged for the name.
    addresses: Box<[SocketAddr]>,
    pool: Rc<Pool>,
    used_ms: u64,
}

impl Dynamic {
    /// The pool of a name with these addresses; `None` when there are too many, and all at work.
    pub(super) fn pool(
        &self,
        resources: &Resources,
        name: &str,
        addresses: &[SocketAddr],
    ) -> Option<Rc<Pool>> {
        let made = || upstream(name, addresses);
        self.find(resources, (name, addresses), made)
    }

    /// The connections to the pool of a row, which listens there. None is kept: each would hold a process.
    pub(crate) fn at_socket(
        &self,
        resources: &Resources,
        id: &str,
        socket: &Path,
    ) -> Option<Rc<Pool>> {
        self.find(resources, (id, &[]), || model::Upstream {
            protocol: Protocol::FastCgi,
            servers: vec![model::Server {
                address: ServerAddress::Unix(socket.to_owned()),
                weight: 1,
            }],
            keepalive: 0,
            fails: 0,
            ..upstream(id, &[])
        })
    }

    fn find(
        &self,
        resources: &Resources,
        (name, addresses): (&str, &[SocketAddr]),
        upstream: impl FnOnce() -> model::Upstream,
    ) -> Option<Rc<Pool>> {
        let used_ms = resources.deadlines.now_ms();
        let mut pools = self.pools.borrow_mut();
        let known = pools.get_mut(name).into_iter().flatten();
        let known = known.filter(|entry| *entry.addresses == *addresses);
        if let Some(entry) = known.last() {
            entry.used_ms = used_ms;
            return Some(Rc::clone(&entry.pool));
        }
        if pools.values().map(Vec::len).sum::<usize>() >= POOLS_MAX {
            make_room(&mut pools)?;
        }
        let together = self.together.get_or_init(|| {
            let (upstream, server) = TOGETHER;
            resources.stats.upstream(upstream, &server.into())
        });
        let pool = Rc::new(Pool::dynamic(upstream(), together));
        if self.is_retired.get() {
            pool.retire();
        }
        let entry = DynamicPool {
            addresses: addresses.into(),
            pool: Rc::clone(&pool),
            used_ms,
        };
        pools.entry(name.into()).or_default().push(entry);
        Some(pool)
    }

    /// Whether a connection to this address would come to this machine.
    pub(super) fn is_of_this_machine(&self, resources: &Resources, address: SocketAddr) -> bool {
        let (ip, now_ms) = (address.ip(), resources.deadlines.now_ms());
        let mut here = self.here.borrow_mut();
        match here.get(&ip) {
            Some((is_here, at_ms)) if now_ms.saturating_sub(*at_ms) < ADDRESS_BELIEVED_MS => {
                *is_here
            }
            _ => {
                if here.len() >= ADDRESSES_MAX {
                    here.clear();
                }
                let is_here = super::named::is_of_this_machine(address);
                here.insert(ip, (is_here, now_ms));
                is_here
            }
        }
    }

    /// What is remembered of a name's addresses; `None` when too many names are being looked up.
    pub(super) fn names(&self, resources: &Resources, place: &str) -> Option<Rc<Names>> {
        let mut names = self.names.borrow_mut();
        if let Some(known) = names.get(place) {
            return Some(Rc::clone(known));
        }
        if names.len() >= NAMES_MAX {
            let now_ms = resources.deadlines.now_ms();
            names.retain(|_, names| !names.is_forgettable(now_ms));
        }
        if names.len() >= NAMES_MAX {
            return None;
        }
        let fresh = Rc::<Names>::default();
        names.insert(place.into(), Rc::clone(&fresh));
        Some(fresh)
    }

    /// Closes connections that were idle for too long, and forgets pools nobody has used for as
    /// long.
    pub(crate) fn sweep(&self, now_ms: u64, idle_ms: u64) {
        let is_kept = |entry: &DynamicPool| {
            entry.pool.sweep(now_ms, idle_ms);
            let is_used = Rc::strong_count(&entry.pool) > 1 || !entry.pool.is_forgettable();
            is_used || now_ms.saturating_sub(entry.used_ms) < idle_ms
        };
        self.pools.borrow_mut().retain(|_, of_name| {
            of_name.retain(is_kept);
            !of_name.is_empty()
        });
    }

    /// Keeps no connection from now on: another generation serves.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
        for entry in self.pools.borrow().values().flatten() {
            entry.pool.retire();
        }
    }
}

/// Gives up pools that nobody has used for longest: many at once, so that few look for them; `None` when all are in
/// use.
fn make_room(pools: &mut Pools) -> Option<()> {
    let is_idle = |entry: &DynamicPool| Rc::strong_count(&entry.pool) == 1 && !entry.pool.is_busy();
    let idle = pools.values().flatten().filter(|entry| is_idle(entry));
    let mut used: Vec<u64> = idle.map(|entry| entry.used_ms).collect();
    used.sort_unstable();
    let mut left = GIVEN_UP;
    let until_ms = *used.get(GIVEN_UP - 1).or(used.last())?;
    pools.retain(|_, of_name| {
        of_name.retain(|entry| {
            let goes = left > 0 && entry.used_ms <= until_ms && is_idle(entry);
            left -= usize::from(goes);
            !goes
        });
        !of_name.is_empty()
    });
    Some(())
}

fn upstream(name: &str, addresses: &[SocketAddr]) -> model::Upstream {
    let server = |address: &SocketAddr| model::Server {
        address: ServerAddress::Tcp(*address),
        weight: 1,
    };
    model::Upstream {
        agent_port: None,
        proxy_protocol: ProxyVersion::Off,
        tls: None,
        name: name.to_owned(),
        protocol: Protocol::Http,
        servers: addresses.iter().map(server).collect(),
        keepalive: KEEPALIVE,
        balance: Balance::RoundRobin,
        fails: FAILS,
        back_off_ms: BACK_OFF_MS,
        back_off_max_ms: BACK_OFF_MS_MAX,
        tries: TRIES,
        limits: [].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::upstream::server::InFlight;

    const CONFIG: &str = r#"
[[sites]]
hosts = ["a"]
rules = [{ handler = { respond = { status = 200, body = "" } } }]
"#;

    fn pool(dynamic: &Dynamic, fixture: &Fixture, port: u16) -> Option<Rc<Pool>> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        dynamic.pool(&fixture.worker, &address.to_string(), &[address])
    }

    #[test]
    fn an_idle_pool_makes_room_and_a_busy_one_does_not() {
        let (fixture, dynamic) = (Fixture::new(CONFIG), Dynamic::default());
        let first = pool(&dynamic, &fixture, 1).expect("room");
        let again = pool(&dynamic, &fixture, 1).expect("it is there");
        assert!(Rc::ptr_eq(&first, &again), "pools are reused");
        drop((first, again));
        let at_work: Vec<_> = (1..=4)
            .map(|port| {
                InFlight::new(
                    &pool(&dynamic, &fixture, port).expect("room").servers()[0],
                    0,
                )
            })
            .collect();
        assert!(pool(&dynamic, &fixture, 5).is_none(), "all are at work");
        drop(at_work);
        assert!(pool(&dynamic, &fixture, 5).is_some());
        assert_eq!(dynamic.pools.borrow().len(), 4);
        let told = fixture.worker.stats.upstreams();
        assert_eq!(told.len(), 1, "figures tell of all together: {told:?}");
        assert_eq!(
            told[0].requests.load(std::sync::atomic::Ordering::Relaxed),
            4
        );
    }

    #[test]
    fn the_same_name_with_other_addresses_is_another_pool() {
        let (fixture, dynamic) = (Fixture::new(CONFIG), Dynamic::default());
        let of = |last| {
            let address = SocketAddr::from(([10, 0, 0, last], 80));
            dynamic.pool(&fixture.worker, "app.test", &[address])
        };
        let (one, other) = (of(1).expect("room"), of(2).expect("room"));
        assert!(!Rc::ptr_eq(&one, &other));
        drop((one, other));
        dynamic.sweep(0, 1_000);
        let count = || dynamic.pools.borrow().values().flatten().count();
        assert_eq!(count(), 2, "used just now");
        dynamic.sweep(1_000_000, 1_000);
        assert_eq!(count(), 0);
    }
}
