//! What the recorder follows of this server over time, and what it shows to who looks at the server now.
//!
//! The idea: both are made of what operators are answered, so that a chart, a page and `nagaya status` say
//! the same. Figures have the names that alerts know; what takes a look at every group or server is
//! told less often.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use config::POOL_PREFIX;
use config::model::ServerFigure;
use control::{Snapshot, TenantNow};
use ipc::console::{LimitOwner, TENANT_LOOK_S, TenantSites};

use super::limit_counts::LimitCounts;
use super::owners::{self, SiteOwners};
use super::quotas::{KeptFrom, Quotas};
use super::taken::TenantLook;
use super::top::Looks;
use super::{certificates, certs, collect_first, fleet, handshakes, standing, workers};
use crate::directory::tenants::RowTenant;
use crate::generation::Generation;
use crate::permits::questions::listed_keys;
use crate::sensors::view::{self, Report};
use crate::site::Site;
use crate::worker::Shared;

/// Tenants that are told of, those with most first, beside those that an alert is about.
const TENANTS_MAX: usize = 64;
/// Sites that are told of, those that were kept from processors most.
const SITES_MAX: usize = 1_000;
/// Rows that somebody who looks is shown of keys, tenants and certificates, and of each tenant looked at.
const SHOWN_MAX: usize = 500;
const SHOWN_OF_TENANT_MAX: usize = 100;
const DAY_S: f64 = 86_400.0;

/// What is followed.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    limits: LimitCounts,
    quotas: Quotas,
    /// What there was when it was looked last at what is told less often, however long ago that is.
    looked: Option<TenantLook>,
    handshakes: Option<[(ServerFigure, u64); 3]>,
    /// The generation whose sites were told of.
    generation: Option<u64>,
    times: u64,
}

/// What is told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) figures: Vec<ToldFigures>,
    /// Whose sites there are, where that may have changed.
    pub(crate) owners: Option<Vec<TenantSites>>,
}

/// Figures, by the names that alerts know.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToldFigures {
    /// For how many [looks](TENANT_LOOK_S) each stands, so that sums over any time are right.
    pub(crate) looks: f64,
    pub(crate) values: Vec<(String, f64)>,
}

impl Followed {
    /// What there is now, and whose sites there are where somebody does not know. Called once a second, and it does
    /// no harm where that is late.
    pub(crate) fn next(&mut self, shared: &Shared, is_new: bool) -> Told {
        let mut told = Told::default();
        let mut values = view::values(shared);
        self.limits.note_keys(shared);
        if let Some(generation) = shared.generation() {
            let is_due = self.times.is_multiple_of(TENANT_LOOK_S);
            if is_due {
                values.extend(self.limits.next(shared));
                values.extend(days_left(shared));
                values.extend(servers_up(shared, &generation));
                values.extend(of_fleet(shared));
                told.figures.push(self.rates(shared, &generation));
            }
            let known = self.generation.replace(generation.number);
            if is_new || is_due || known != Some(generation.number) {
                told.owners = Some(owners::owners(shared, &generation));
            }
        }
        self.times += 1;
        told.figures.insert(0, ToldFigures { looks: 1.0, values });
        told
    }

    /// What came in a second since this was last asked, and stands for all of that time.
    fn rates(&mut self, shared: &Shared, generation: &Generation) -> ToldFigures {
        let rows = shared.rows.tenants.all();
        let look = TenantLook::take(generation, &rows, Instant::now());
        let before = self.looked.as_ref();
        let passed_s = before.map(|before| look.seconds_since(before));
        let tenants = look.since(before);
        self.looked = Some(look);
        let kept = self.quotas.look(generation, &rows, passed_s);
        let mut values = self.handshakes(shared, passed_s);
        values.extend(sites(generation, &kept));
        // Last: of these the first are the busiest.
        values.extend(of_tenants(generation, &rows, &kept, tenants));
        let looks = passed_s.map_or(1.0, |passed_s| passed_s / TENANT_LOOK_S as f64);
        ToldFigures { looks, values }
    }

    /// How many handshakes came to what, a second.
    fn handshakes(&mut self, shared: &Shared, passed_s: Option<f64>) -> Vec<(String, f64)> {
        let now = handshakes::counts(shared);
        let before = std::mem::replace(&mut self.handshakes, now);
        let (Some(now), Some(before), Some(passed_s)) = (now, before, passed_s) else {
            return Vec::new();
        };
        let rates = now.iter().zip(before).map(|((figure, now), (_, before))| {
            let more = now.saturating_sub(before) as f64;
            (figure.name().to_owned(), more / passed_s)
        });
        rates.collect()
    }
}

/// What tenants take who have a site that is recorded, and all of these together.
fn of_tenants(
    generation: &Generation,
    rows: &[Arc<RowTenant>],
    kept: &KeptFrom,
    mut tenants: Vec<TenantNow>,
) -> Vec<(String, f64)> {
    let recorded = generation.sites.iter().filter(|site| site.is_recorded);
    let mut recorded: HashSet<&str> = recorded.map(|site| &*site.tenant_name).collect();
    let has_rows = |site: &Site| site.rows.is_some() && site.is_recorded;
    if generation.sites.iter().any(has_rows) {
        recorded.extend(rows.iter().map(|it| &*it.name));
    }
    tenants.retain(|it| recorded.contains(it.tenant.as_str()));
    let mut all = BTreeMap::<&str, f64>::new();
    for (what, value) in tenants.iter().flat_map(|it| figures_of(it, kept)) {
        *all.entry(what).or_default() += value;
    }
    let all = all.into_iter();
    let all = all.map(|(what, sum)| (format!("tenants.{what}"), sum));
    let first = first_tenants(tenants, kept, &generation.watched_tenants);
    let each = first.flat_map(|it| {
        let figures = figures_of(&it, kept);
        figures.map(move |(what, value)| (format!("tenant.{}.{what}", it.tenant), value))
    });
    all.chain(each).collect()
}

/// What is followed of a tenant.
fn figures_of(
    of: &TenantNow,
    kept: &KeptFrom,
) -> impl Iterator<Item = (&'static str, f64)> + use<> {
    let figures = [
        ("cpu", of.cpu_cores),
        ("memory", of.memory_bytes.map(|bytes| bytes as f64)),
        ("requests", of.requests_per_s),
        ("throttled", kept.of_tenant(&of.tenant)),
        ("handshakes", of.handshakes_per_s),
        ("killed", of.killed_per_s),
    ];
    let figures = figures.into_iter();
    figures.filter_map(|(what, value)| Some((what, value?)))
}

/// What sites with programs and pools of their own were kept from.
fn sites(generation: &Generation, kept: &KeptFrom) -> Vec<(String, f64)> {
    let recorded = generation.sites.iter().filter(|site| site.is_recorded);
    let recorded: HashSet<&str> = recorded.map(|site| &*site.name).collect();
    let sites = kept.of_sites().filter(|(site, _)| recorded.contains(site));
    let mut sites: Vec<_> = sites.collect();
    sites.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    sites.truncate(SITES_MAX);
    let named = |(site, cores)| (format!("site.{site}.throttled"), cores);
    sites.into_iter().map(named).collect()
}

/// Those with most of processors, of memory and of requests, and those that were kept from most, in turn: who
/// has no group of its own has requests all the same. After them the others that an alert is about.
fn first_tenants(
    tenants: Vec<TenantNow>,
    kept: &KeptFrom,
    watched: &BTreeSet<Box<str>>,
) -> impl Iterator<Item = TenantNow> {
    let keys: [&dyn Fn(&TenantNow) -> f64; 4] = [
        &|it| it.cpu_cores.unwrap_or(0.0),
        &|it| it.memory_bytes.map_or(0.0, |bytes| bytes as f64),
        &|it| it.requests_per_s.unwrap_or(0.0),
        &|it| kept.of_tenant(&it.tenant).unwrap_or(0.0),
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

/// How long it is until the first certificate ends.
fn days_left(shared: &Shared) -> Option<(String, f64)> {
    let certificates = certificates::collect(shared)?;
    let (_, end_s) = certificates.first_to_end.first()?;
    let left_s = end_s.saturating_sub(certificates::now_s()) as f64;
    let name = ServerFigure::CertificateDays.name();
    Some((name.to_owned(), left_s / DAY_S))
}

/// Whether the store that machines share answers, and how many of them there are.
fn of_fleet(shared: &Shared) -> impl Iterator<Item = (String, f64)> {
    let of = fleet::collect(shared).into_iter();
    let figures = of.flat_map(|it| {
        let up = f64::from(u8::from(it.store == "answers"));
        let machines = f64::from(it.machines);
        [
            (ServerFigure::FleetUp, up),
            (ServerFigure::FleetMachines, machines),
        ]
    });
    figures.map(|(figure, value)| (figure.name().to_owned(), value))
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
    let owners = match &generation {
        Some(generation) => SiteOwners::of(shared, generation, &looked_at),
        None => SiteOwners::default(),
    };
    let keys = listed_keys(shared, |gates| {
        let mut shown = Shown::new(&looked_at);
        gates.retain(|gate| {
            let limit = LimitOwner::of_key(&gate.identity, &gate.key);
            shown.has(owners.of_limit(&limit))
        });
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

    fn values(told: Told) -> Vec<(String, f64)> {
        let figures = told.figures.into_iter();
        figures.flat_map(|it| it.values).collect()
    }

    #[test]
    fn what_is_told_of_tenants_adds_up_to_what_they_took_however_late_a_look_is() {
        let fixture = Fixture::new(SITES);
        let shared = &fixture.shared;
        let mut followed = Followed::default();
        let (mut asked, mut told) = (0, 0.0);
        // The first look has nothing before it.
        for late_s in [0, 30, 0, 3_600, 12, 0] {
            for _ in 0..TENANT_LOOK_S {
                let looked = followed.looked.as_mut();
                let late = std::time::Duration::from_secs(late_s);
                // As if it had been looked so much earlier.
                if let Some(looked) = looked {
                    looked.at = looked.at.checked_sub(late).unwrap_or(looked.at);
                }
                for ToldFigures { looks, values } in followed.next(shared, false).figures {
                    let of_all = values.iter().find(|(name, _)| name == "tenants.requests");
                    let own = values
                        .iter()
                        .find(|(name, _)| name == "tenant.shop.requests");
                    assert_eq!(of_all.map(|it| it.1), own.map(|it| it.1));
                    told += own.map_or(0.0, |(_, rate)| rate * looks * TENANT_LOOK_S as f64);
                }
                fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                asked += 1;
            }
        }
        // Those of the last round are not told yet.
        assert_eq!(told.round() as u64, asked - TENANT_LOOK_S);
    }

    #[test]
    fn figures_have_the_names_that_alerts_know() {
        let fixture = Fixture::new(SITES);
        let shared = &fixture.shared;
        shared
            .sensors
            .publish(&crate::sensors::sampling::Here::look().sample());
        fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut followed = Followed::default();
        let first = values(followed.next(shared, false));
        let value = |of: &str| first.iter().find(|(name, _)| name == of).map(|(_, it)| *it);
        assert_eq!(value("upstream.app.up"), Some(2.0));
        assert!(value("load1").is_some(), "{first:?}");
        assert_eq!(value("certificates.days_left"), None, "nobody speaks TLS");
        let second = values(followed.next(shared, false));
        assert!(
            second.iter().all(|(name, _)| !name.contains('.')),
            "{second:?}"
        );
    }

    #[test]
    fn tenants_of_rows_are_followed_where_their_site_is_recorded() {
        let rows = |more: &str| {
            format!(
                "{SITES}[directories.d]\nsource = \"sqlite:/tmp/rows.db\"\n\
                 query = \"SELECT * FROM t WHERE host = $host\"\n[[sites]]\nhosts = {{ directory = \"d\" }}\n\
                 tenant = \"$row.tenant\"\n{more}rules = [{{ handler = {{ respond = {{ body = \"fine\" }} }} }}]\n"
            )
        };
        let is_followed = |text: &str| {
            let fixture = Fixture::new(text);
            let shared = &fixture.shared;
            let sample = crate::sensors::sampling::Here::look().sample();
            shared.sensors.publish(&sample);
            let anna = shared.rows.tenants.of("anna", None);
            fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut followed = Followed::default();
            let told =
                testkit::eventually(std::time::Duration::from_secs(60), "a second look", || {
                    let counts = &anna.counts;
                    counts
                        .requests
                        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let told = values(followed.next(shared, false));
                    let names: Vec<String> = told.into_iter().map(|(name, _)| name).collect();
                    let is_second = names.iter().any(|name| name == "tenant.shop.requests");
                    is_second.then_some(names)
                });
            told.iter().any(|name| name == "tenant.anna.requests")
        };
        assert!(is_followed(&rows("")));
        assert!(!is_followed(&rows("record = false\n")));
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
        let mut tenants: Vec<_> = (0..30 * TENANTS_MAX)
            .map(|number| now(format!("idle{number:04}"), Some(0.0), Some(0.0)))
            .collect();
        tenants.push(now("asked".into(), None, Some(600.0)));
        tenants.push(now("zealous".into(), Some(0.7), Some(1.0)));
        tenants.push(now("watched".into(), None, None));
        let watched = BTreeSet::from(["watched".into(), "gone".into()]);
        let kept = KeptFrom::default();
        let told = first_tenants(tenants, &kept, &watched).map(|it| it.tenant);
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
