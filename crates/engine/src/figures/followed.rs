//! What the recorder follows of this server over time, and what it shows to who looks at the server now.
//!
//! The idea: both are made of what operators are answered, so that a chart, a page and `nagaya status` say
//! the same. Figures have the names that alerts know; what takes a look at every group or server is
//! told less often.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use config::POOL_PREFIX;
use control::{Snapshot, TenantNow};
use ipc::console::{TENANT_LOOK_S, TenantSites};

use super::limit_counts::LimitCounts;
use super::top::Looks;
use super::{certificates, certs, collect_first, standing, workers};
use crate::generation::Generation;
use crate::permits::questions::listed_keys;
use crate::sensors::view::{self, Report};
use crate::site::Site;
use crate::worker::Shared;

/// Tenants that are told of, those with most first, beside those that an alert is about.
const TENANTS_MAX: usize = 1_000;
/// Rows that somebody who looks is shown of keys, tenants and certificates, and of each tenant looked at.
const SHOWN_MAX: usize = 500;
const SHOWN_OF_TENANT_MAX: usize = 100;
const DAY_S: f64 = 86_400.0;

/// What is followed.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    looks: Looks,
    limits: LimitCounts,
    times: u64,
}

impl Followed {
    /// What there is now, by name. Called once a second.
    pub(crate) fn next(&mut self, shared: &Shared) -> Vec<(String, f64)> {
        let mut values = view::values(shared);
        self.limits.note_keys(shared);
        // Two looks at tenants are at most ten seconds apart.
        if self.times.is_multiple_of(TENANT_LOOK_S)
            && let Some(generation) = shared.generation()
        {
            values.extend(self.limits.next(shared));
            values.extend(days_left(shared));
            values.extend(servers_up(shared, &generation));
            // Last: of these the first are the busiest.
            values.extend(self.tenants(shared, &generation));
        }
        self.times += 1;
        values
    }

    /// Of those who have a site that is recorded.
    fn tenants(&mut self, shared: &Shared, generation: &Generation) -> Vec<(String, f64)> {
        let recorded = generation.sites.iter().filter(|site| site.is_recorded);
        let mut recorded: HashSet<&str> = recorded.map(|site| &*site.tenant_name).collect();
        let of_rows = shared.rows.tenants.all();
        let has_rows = |site: &Site| site.rows.is_some() && site.is_recorded;
        if generation.sites.iter().any(has_rows) {
            recorded.extend(of_rows.iter().map(|it| &*it.name));
        }
        let mut tenants = self.looks.busiest(shared, usize::MAX);
        tenants.retain(|it| recorded.contains(it.tenant.as_str()));
        let tenants = first_tenants(tenants, &generation.watched_tenants);
        let figures = tenants.flat_map(|it| {
            let of = |what: &str, value: Option<f64>| {
                value.map(|value| (format!("tenant.{}.{what}", it.tenant), value))
            };
            let memory = it.memory_bytes.map(|bytes| bytes as f64);
            let figures = [
                of("cpu", it.cpu_cores),
                of("memory", memory),
                of("requests", it.requests_per_s),
            ];
            figures.into_iter().flatten()
        });
        figures.collect()
    }
}

/// Those with most of processors, of memory and of requests, in turn: who has no group of its own has
/// requests all the same. After them the others that an alert is about.
fn first_tenants(
    tenants: Vec<TenantNow>,
    watched: &BTreeSet<Box<str>>,
) -> impl Iterator<Item = TenantNow> {
    let keys: [fn(&TenantNow) -> f64; 3] = [
        |it| it.cpu_cores.unwrap_or(0.0),
        |it| it.memory_bytes.map_or(0.0, |bytes| bytes as f64),
        |it| it.requests_per_s.unwrap_or(0.0),
    ];
    let orders = keys.map(|key| {
        let mut order: Vec<(usize, f64)> = tenants.iter().map(key).enumerate().collect();
        order.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        order
    });
    let mut tenants: Vec<_> = tenants.into_iter().map(Some).collect();
    let mut in_turn = Vec::with_capacity(tenants.len());
    for place in 0..tenants.len() {
        let next = orders.iter().filter_map(|order| order.get(place));
        let next = next.filter_map(|(at, _)| tenants.get_mut(*at)?.take());
        in_turn.extend(next);
    }
    let told = in_turn.into_iter().enumerate();
    let told =
        told.filter(|(place, it)| *place < TENANTS_MAX || watched.contains(it.tenant.as_str()));
    told.map(|(_, it)| it)
}

/// Whose sites there are, of those that are recorded.
pub(crate) fn owners(generation: &Generation) -> Vec<TenantSites> {
    let mut owners = BTreeMap::<&str, Vec<String>>::new();
    for site in generation.sites.iter().filter(|site| site.is_recorded) {
        let sites = owners.entry(&site.tenant_name).or_default();
        sites.push(site.name.to_string());
    }
    let owners = owners.into_iter().map(|(tenant, sites)| TenantSites {
        tenant: tenant.to_owned(),
        sites,
    });
    owners.collect()
}

/// How long it is until the first certificate ends.
fn days_left(shared: &Shared) -> Option<(String, f64)> {
    let certificates = certificates::collect(shared)?;
    let (_, end_s) = certificates.first_to_end.first()?;
    let left_s = end_s.saturating_sub(certificates::now_s()) as f64;
    Some(("certificates.days_left".into(), left_s / DAY_S))
}

/// How many servers of each upstream that has a name are up.
fn servers_up(shared: &Shared, generation: &Generation) -> Vec<(String, f64)> {
    let known = workers::upstreams(&shared.stats, shared.process.started.elapsed());
    let named = generation.upstreams.iter();
    // A colon is in addresses alone, and in what stands for a pool.
    debug_assert!(POOL_PREFIX.contains(':'));
    let named = named.filter(|upstream| !upstream.name.contains(':'));
    let up = named.map(|upstream| {
        let down = known.iter();
        let down = down.filter(|it| it.upstream == upstream.name && !it.is_up());
        let up = upstream.servers.len().saturating_sub(down.count());
        (format!("upstream.{}.up", upstream.name), up as f64)
    });
    up.collect()
}

/// Everything of now, as JSON, with the rows of these tenants whoever comes first. It waits for the spawner
/// where there are pools: not for a worker.
pub(crate) fn snapshot(shared: &Shared, looks: &mut Looks, looked_at: Vec<String>) -> String {
    let generation = shared.generation();
    let mut owners = HashMap::new();
    if !looked_at.is_empty() {
        let sites = generation.iter().flat_map(|it| &it.sites);
        owners.extend(sites.map(|site| (&*site.name, &*site.tenant_name)));
    }
    let keys = listed_keys(shared, |gates| {
        let mut shown = Shown::new(&looked_at);
        gates.retain(|gate| shown.has(owner_of(&gate.identity, &owners)));
    });
    let mut tenants = looks.busiest(shared, usize::MAX);
    let mut some = Shown::new(&looked_at);
    tenants.retain(|it| some.has([it.tenant.as_str()]));
    let mut certificates = certs::look(shared);
    let mut some = Shown::new(&looked_at);
    certificates.retain(|it| some.has(it.tenants.iter().map(String::as_str)));
    control::json(&Snapshot {
        status: collect_first(shared, &looked_at),
        sensors: Report::of_server(shared).answered(),
        keys,
        tenants,
        pools: standing::look(shared),
        certificates,
        looked_at,
    })
}

/// The tenant that a limit is of, by what its state is kept by.
fn owner_of<'a>(limit: &'a str, owners: &HashMap<&'a str, &'a str>) -> Option<&'a str> {
    let (level, rest) = limit.split_once(' ')?;
    let name = rest.split('/').next()?;
    match level {
        "tenant" => Some(name),
        "site" | "rule" => owners.get(name).copied(),
        _ => None,
    }
}

/// Which rows of a table are shown: the first, and the first of each tenant that somebody looks at.
struct Shown<'a> {
    all: usize,
    of_tenants: HashMap<&'a str, usize>,
}

impl<'a> Shown<'a> {
    fn new(looked_at: &'a [String]) -> Shown<'a> {
        let tenants = looked_at
            .iter()
            .map(|it| (it.as_str(), SHOWN_OF_TENANT_MAX));
        Shown {
            all: SHOWN_MAX,
            of_tenants: tenants.collect(),
        }
    }

    /// Whether there is room for a row of these tenants, which it takes.
    fn has<'b>(&mut self, tenants: impl IntoIterator<Item = &'b str>) -> bool {
        let is_first = self.all > 0;
        self.all = self.all.saturating_sub(1);
        let mut is_shown = is_first;
        for tenant in tenants {
            if let Some(room) = self.of_tenants.get_mut(tenant).filter(|room| **room > 0) {
                *room -= 1;
                is_shown = true;
            }
        }
        is_shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const SITES: &str = r#"
[[listen]]
address = "127.0.0.1:8080"
[upstreams.app]
servers = ["127.0.0.1:1", "127.0.0.1:2"]
[[sites]]
hosts = ["a"]
tenant = "shop"
rules = [
  { match = { path = "/app/*" }, handler = { proxy = { upstream = "app" } } },
  { handler = { respond = { status = 200, body = "fine" } } },
]
[tenants.shop]
"#;

    #[test]
    fn figures_have_the_names_that_alerts_know() {
        let fixture = Fixture::new(SITES);
        let shared = &fixture.shared;
        shared
            .sensors
            .publish(&crate::sensors::sampling::Here::look().sample());
        fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut followed = Followed::default();
        let first = followed.next(shared);
        let value = |of: &str| first.iter().find(|(name, _)| name == of).map(|(_, it)| *it);
        assert_eq!(value("upstream.app.up"), Some(2.0));
        assert!(value("load1").is_some(), "{first:?}");
        assert_eq!(value("certificates.days_left"), None, "nobody speaks TLS");
        let second = followed.next(shared);
        assert!(
            second.iter().all(|(name, _)| !name.contains('.')),
            "{second:?}"
        );
    }

    #[test]
    fn who_is_watched_is_told_of_however_many_others_there_are() {
        let now = |tenant: String, cpu_cores, requests_per_s| TenantNow {
            tenant,
            cpu_cores,
            requests_per_s,
            ..TenantNow::default()
        };
        // All of them with a group, and idle; then one without, that is asked all the time.
        let mut tenants: Vec<_> = (0..3 * TENANTS_MAX)
            .map(|number| now(format!("idle{number:04}"), Some(0.0), Some(0.0)))
            .collect();
        tenants.push(now("asked".into(), None, Some(600.0)));
        tenants.push(now("zealous".into(), Some(0.7), Some(1.0)));
        tenants.push(now("watched".into(), None, None));
        let watched = BTreeSet::from(["watched".into(), "gone".into()]);
        let told = first_tenants(tenants, &watched).map(|it| it.tenant);
        let told: Vec<_> = told.collect();
        assert_eq!(told.len(), TENANTS_MAX + 1);
        for busy in ["zealous", "asked"] {
            let place = told.iter().position(|it| it == busy);
            assert!(place.is_some_and(|place| place < 4), "{busy}: {place:?}");
        }
        assert_eq!(told.last().map(String::as_str), Some("watched"));
    }

    #[test]
    fn who_looks_is_shown_what_operators_are_answered() {
        let fixture = Fixture::new(SITES);
        fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let told = snapshot(&fixture.shared, &mut Looks::default(), Vec::new());
        let read = Snapshot::of_json(&told).expect("a snapshot");
        assert_eq!(read.status.sites[0].replies.count(), 1);
        assert_eq!(read.tenants[0].tenant, "shop");
        assert!(read.sensors.sensors.get("load1").is_some());
    }

    #[test]
    fn a_tenant_that_looks_has_its_rows_whoever_comes_first() {
        let looked_at = ["late".to_owned()];
        let mut shown = Shown::new(&looked_at);
        let busy = (0..SHOWN_MAX + 5).filter(|_| shown.has(["busy"]));
        assert_eq!(busy.count(), SHOWN_MAX);
        let late = (0..SHOWN_MAX).filter(|_| shown.has(["late"]));
        assert_eq!(late.count(), SHOWN_OF_TENANT_MAX);
        let owners = HashMap::from([("a.example", "late")]);
        for (limit, owner) in [
            ("tenant late/1", Some("late")),
            ("site a.example/1", Some("late")),
            ("rule a.example/2/1", Some("late")),
            ("site b.example/1", None),
            ("process", None),
        ] {
            assert_eq!(owner_of(limit, &owners), owner, "{limit}");
        }
    }

    #[test]
    fn a_certificate_is_of_whose_hosts_all_its_names_are() {
        let text = SITES.replace(
            "hosts = [\"a\"]",
            "hosts = [\"a\", \"shop.example\", \"*.shop.example\"]",
        );
        let of_next = |host: &str| {
            let rules = "[{ handler = { respond = { status = 200, body = \"fine\" } } }]";
            format!("[[sites]]\nhosts = [\"{host}\"]\ntenant = \"next\"\nrules = {rules}\n")
        };
        let others = of_next("other") + &of_next("*") + "[tenants.next]\n";
        let fixture = Fixture::new(&(text + &others));
        let generation = fixture.shared.generation().expect("one");
        for (name, tenant) in [
            ("a", Some("shop")),
            ("shop.example", Some("shop")),
            ("*.shop.example", Some("shop")),
            ("www.shop.example", Some("shop")),
            ("other", Some("next")),
            ("*.example", None),
            ("unknown", None),
        ] {
            assert_eq!(generation.tenant_of(name), tenant, "{name}");
        }
    }
}
