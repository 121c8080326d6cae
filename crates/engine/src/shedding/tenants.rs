//! Tenants as shedding sees them: what each uses, and with which share of its requests it is let in.
//!
//! What counts is how long its requests stay: from the look of shedding until their handler has had its last
//! word, but for the time they wait for their bodies and their turn, in which nobody works for them. Or,
//! where the control groups of all tell it, what their programs take of processors and disks.
//! Each worker has counters of its own, which nobody else writes. How many stay and since
//! when in all lies in one word, so that whoever reads sees both of one moment.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use config::model::{self, Handler, Model, SHED_RULES_MAX, ShedScope};
use limits::shed::{self, Claim, Meter, State};
use os::cgroup::{Controller, Layout, Usage};

use super::rule::Rule;
use crate::stats::bump;
use ipc::groups::Owner;

/// The share of nobody.
pub(super) const NOBODY: u16 = 0;
/// The share of somebody who is let in whole.
pub(super) const WHOLE: u16 = shed::WHOLE;

/// Bits of a counter's word that count microseconds, over and over again: half a year.
const TIME_BITS: u32 = 44;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// What a request is taken to use at least: its head, its record and the writing of its reply.
const LEAST_US: u64 = 10;
/// Groups whose figures are read each time.
const GROUPS_MAX: usize = 1_000;
/// What a disk does in a microsecond, for whom reading and writing is compared with computing: 100 MB and
/// 10,000 reads or writes a second.
const IO_BYTES_A_US: u64 = 100;
const IO_US: u64 = 100;

/// All tenants of a generation.
#[derive(Debug)]
pub(super) struct Tenants {
    list: Box<[Tenant]>,
    /// Indexes into [`Self::list`], by site.
    of_sites: Box<[u32]>,
}

/// A tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) load: Arc<Load>,
    weight: f64,
    /// The groups its programs are in, none within another, where these tell all: nobody else works
    /// for it.
    groups: Option<Vec<Vec<String>>>,
    /// By rule: the share of its requests that is let in.
    shares: [AtomicU16; SHED_RULES_MAX],
}

/// What a tenant does. It outlives a generation.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) name: Arc<str>,
    started: Instant,
    /// By worker, from its first request on.
    by_worker: OnceLock<Box<[OnceLock<Arc<Counters>>]>>,
    /// Held by the thread that measures.
    measured: Mutex<Measured>,
}

#[derive(Debug)]
struct Measured {
    at: Instant,
    /// Of how long its requests stay.
    meter: Meter,
    /// Of its programs' time at processors and disks, where their groups tell it, and how much that was.
    cpu: Option<(Meter, u64)>,
}

/// What one worker has counted of a tenant, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Counters {
    started: Instant,
    /// How many requests stay, and below that how long others have stayed, less when those began
    /// that stay still.
    word: AtomicU64,
    begun: AtomicU64,
    shed: AtomicU64,
    /// Requests that a rule in shadow would have shed. They count as begun.
    shadow_shed: AtomicU64,
    /// Processor time of handshakes after which a request came, in microseconds.
    handshakes_us: AtomicU64,
    /// By rule: what is left over of shares.
    left_over: [AtomicU16; SHED_RULES_MAX],
    /// What was seen when it was measured last, by the thread that does.
    seen: [AtomicU64; 4],
}

/// A request's stay. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Stay {
    counters: Arc<Counters>,
    /// Whether its time does not count now.
    is_paused: bool,
}

impl Tenants {
    pub(super) fn compile(
        model: &Model,
        groups: &[(Vec<String>, Owner)],
        before: Option<&Self>,
    ) -> Self {
        let mut own: HashMap<&str, Vec<Vec<String>>> = HashMap::new();
        for (path, owner) in groups.iter().filter(|(path, _)| path.len() == 1) {
            own.entry(&owner.tenant).or_default().push(path.clone());
        }
        let known = before.map_or(&[][..], |before| &before.list).iter();
        let known: HashMap<&str, &Arc<Load>> = known
            .map(|tenant| (&*tenant.load.name, &tenant.load))
            .collect();
        let mut list: Vec<Tenant> = Vec::new();
        let mut indexes: HashMap<&str, u32> = HashMap::new();
        let mut of_sites = Vec::with_capacity(model.sites.len());
        for site in &model.sites {
            let name = site.tenant.as_str();
            let index = *indexes.entry(name).or_insert_with(|| {
                let said = site.tenant_index.and_then(|index| model.tenants.get(index));
                let load = known.get(name).map(|load| Arc::clone(load));
                list.push(Tenant {
                    load: load.unwrap_or_else(|| Arc::new(Load::new(name))),
                    weight: f64::from(said.map_or(1, |tenant| tenant.weight)),
                    groups: own.remove(name),
                    shares: std::array::from_fn(|_| AtomicU16::new(WHOLE)),
                });
                u32::try_from(list.len() - 1).unwrap_or(u32::MAX)
            });
            let said = site.tenant_index.and_then(|at| model.tenants.get(at));
            let is_bound = said.is_some_and(|it| it.cgroup.is_some()) || site.cgroup.is_some();
            if works_elsewhere(site, is_bound)
                && let Some(tenant) = list.get_mut(index as usize)
            {
                tenant.groups = None;
            }
            of_sites.push(index);
        }
        Self {
            list: list.into(),
            of_sites: of_sites.into(),
        }
    }

    pub(super) fn of_site(&self, site: u32) -> Option<&Tenant> {
        let index = self.of_sites.get(usize::try_from(site).ok()?)?;
        self.list.get(usize::try_from(*index).ok()?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tenant> {
        self.list.iter()
    }

    /// What each does now.
    pub(super) fn measure(&self, now: Instant, layout: &Layout) {
        let mut count = 0;
        for tenant in self.list.iter().filter(|tenant| tenant.load.is_known()) {
            let groups = tenant.groups.as_ref().filter(|_| count < GROUPS_MAX);
            count += groups.map_or(0, Vec::len);
            let used_us = groups.and_then(|groups| used_us(layout, groups));
            tenant.load.measure(now, used_us);
        }
    }

    /// What each asks for: processor time where that is known of all who ask, or else requests
    /// under way. The two cannot be compared with each other.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let claims = |demand: fn(&Measured) -> f64| -> Vec<Claim> {
            let claim = |tenant: &Tenant| Claim {
                demand: demand(&tenant.load.lock()),
                weight: tenant.weight,
            };
            self.list.iter().map(claim).collect()
        };
        let stays = claims(|measured| measured.meter.demand());
        let mut asking = self
            .list
            .iter()
            .zip(&stays)
            .filter(|(_, it)| it.is_active());
        match asking.all(|(tenant, _)| tenant.load.lock().cpu.is_some()) {
            true => claims(|it| it.cpu.map_or(0.0, |(meter, _)| meter.demand())),
            false => stays,
        }
    }

    /// Lets each in with its share of what a rule admits.
    pub(super) fn divide(&self, rule: usize, admitted: f64, claims: &[Claim]) {
        let shares = shed::divide(admitted, claims);
        for (tenant, share) in self.list.iter().zip(shares) {
            if let Some(known) = tenant.shares.get(rule) {
                known.store(shed::share(share), Relaxed);
            }
        }
    }
}

/// Whether others than programs in groups work for a site: back ends, scripts of this very process, or
/// programs that nothing bounds.
fn works_elsewhere(site: &model::Site, is_bound: bool) -> bool {
    site.rules.iter().any(|rule| match &rule.handler {
        Some(handler @ (Handler::Proxy(_) | Handler::FastCgi(_))) => !handler.has_pool(),
        Some(Handler::Script(_)) => true,
        Some(Handler::Cgi(_)) => !is_bound && rule.cgroup.is_none(),
        _ => false,
    })
}

/// How long processors and disks have worked for groups, where the machine tells; one that is not there has
/// used nothing.
fn used_us(layout: &Layout, groups: &[Vec<String>]) -> Option<u64> {
    let counters = [Controller::CpuTime, Controller::Cpu];
    counters.iter().find_map(|it| layout.of(*it))?;
    let of = |group: &Vec<String>| {
        let io = Usage::by(Controller::Io, layout, group);
        let bytes_us = io.io_bytes.unwrap_or(0) / IO_BYTES_A_US;
        let ops_us = io.io_ops.unwrap_or(0).saturating_mul(IO_US);
        let cpu_us = Usage::cpu_us(layout, group).unwrap_or(0);
        cpu_us.saturating_add(bytes_us.max(ops_us))
    };
    Some(groups.iter().map(of).fold(0, u64::saturating_add))
}

impl Tenant {
    /// The share of its requests that a rule lets in.
    pub(super) fn share(&self, index: usize, rule: &Rule) -> u16 {
        match rule.scope {
            ShedScope::All if rule.standing.state() == State::Green => WHOLE,
            ShedScope::All => NOBODY,
            ShedScope::OverShare => self.own_share(index),
        }
    }

    pub(super) fn own_share(&self, index: usize) -> u16 {
        let share = self.shares.get(index);
        share.map_or(WHOLE, |share| share.load(Relaxed))
    }
}

impl Load {
    fn new(name: &str) -> Self {
        let started = Instant::now();
        Self {
            name: Arc::from(name),
            started,
            by_worker: OnceLock::new(),
            measured: Mutex::new(Measured {
                at: started,
                meter: Meter::default(),
                cpu: None,
            }),
        }
    }

    pub(super) fn counters(&self, worker: usize, workers: usize) -> Option<&Arc<Counters>> {
        let by_worker = self
            .by_worker
            .get_or_init(|| (0..workers).map(|_| OnceLock::new()).collect());
        let counters = by_worker.get(worker)?;
        Some(counters.get_or_init(|| Arc::new(Counters::new(self.started))))
    }

    fn all_counters(&self) -> impl Iterator<Item = &Counters> {
        let by_worker = self.by_worker.get().into_iter().flatten();
        by_worker.filter_map(|counters| counters.get().map(|counters| &**counters))
    }

    /// Requests shed so far.
    pub(super) fn shed(&self) -> u64 {
        self.all_counters()
            .map(|counters| counters.shed.load(Relaxed))
            .sum()
    }

    /// Requests so far that a rule in shadow would have shed.
    pub(super) fn shadow_shed(&self) -> u64 {
        self.all_counters()
            .map(|counters| counters.shadow_shed.load(Relaxed))
            .sum()
    }

    /// Whether a request of it has ever come.
    fn is_known(&self) -> bool {
        self.by_worker.get().is_some()
    }

    fn measure(&self, now: Instant, cpu_us: Option<u64>) {
        let [mut used_us, mut begun, mut shed, mut handshakes_us] = [0; 4];
        for counters in self.all_counters() {
            let since = counters.measure(now);
            used_us += since[0];
            begun += since[1];
            shed += since[2];
            handshakes_us += since[3];
        }
        let mut measured = self.lock();
        let time = now.saturating_duration_since(measured.at);
        measured.at = now;
        let least_us = begun * LEAST_US + handshakes_us;
        let used = Duration::from_micros(used_us + least_us);
        let used_s = used.as_secs_f64();
        measured.meter.note(time, used_s, begun + shed, begun);
        measured.cpu = cpu_us.map(|cpu_us| {
            let (mut meter, before_us) = measured.cpu.unwrap_or((Meter::default(), cpu_us));
            let programs_us = cpu_us.saturating_sub(before_us);
            let used = Duration::from_micros(programs_us + least_us);
            meter.note(time, used.as_secs_f64(), begun + shed, begun);
            (meter, cpu_us)
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counters {
    fn new(started: Instant) -> Self {
        Self {
            started,
            word: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            shadow_shed: AtomicU64::new(0),
            handshakes_us: AtomicU64::new(0),
            // The first request is let in, however small the share.
            left_over: std::array::from_fn(|_| AtomicU16::new(WHOLE - 1)),
            seen: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Whether the next request is let in at this share.
    pub(super) fn lets_in(&self, rule: usize, share: u16) -> bool {
        let Some(left_over) = self.left_over.get(rule) else {
            return true;
        };
        let (is_let_in, rest) = shed::next(left_over.load(Relaxed), share);
        left_over.store(rest, Relaxed);
        is_let_in
    }

    pub(super) fn count_shed(&self) {
        bump(&self.shed, 1);
    }

    /// Charges the handshake of a connection whose first request has come.
    pub(super) fn charge_handshake(&self, cpu_us: u64) {
        bump(&self.handshakes_us, cpu_us);
    }

    pub(super) fn count_shadow_shed(&self) {
        bump(&self.shadow_shed, 1);
    }

    /// Counts a request that begins to stay at this moment (1), or ends (-1).
    fn turn(&self, by: i64, moment: Instant) {
        let word = self.word.load(Relaxed);
        let (staying, time_us) = (word >> TIME_BITS, word & TIME_MASK);
        let moment_us = self.micros(moment);
        let time_us = match by > 0 {
            true => time_us.wrapping_sub(moment_us),
            false => time_us.wrapping_add(moment_us),
        };
        let staying = staying.wrapping_add_signed(by);
        self.word
            .store(staying << TIME_BITS | time_us & TIME_MASK, Relaxed);
    }

    /// How long requests have stayed, requests begun, requests shed and what handshakes took since it was measured
    /// last.
    fn measure(&self, now: Instant) -> [u64; 4] {
        let word = self.word.load(Relaxed);
        let staying = word >> TIME_BITS;
        let used_us = word.wrapping_add(staying.wrapping_mul(self.micros(now))) & TIME_MASK;
        let seen = |at: usize, now: u64| self.seen[at].swap(now, Relaxed);
        let used_us = used_us.wrapping_sub(seen(0, used_us)) & TIME_MASK;
        let (begun, shed) = (self.begun.load(Relaxed), self.shed.load(Relaxed));
        let handshakes_us = self.handshakes_us.load(Relaxed);
        // What ended an instant after `now` was read makes the time go back: that is none.
        let is_forward = used_us < TIME_MASK / 2;
        [
            if is_forward { used_us } else { 0 },
            begun.wrapping_sub(seen(1, begun)),
            shed.wrapping_sub(seen(2, shed)),
            handshakes_us.wrapping_sub(seen(3, handshakes_us)),
        ]
    }

    fn micros(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.started);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Stay {
    pub(super) fn begin(counters: &Arc<Counters>, moment: Instant) -> Self {
        bump(&counters.begun, 1);
        counters.turn(1, moment);
        Self {
            counters: Arc::clone(counters),
            is_paused: false,
        }
    }

    /// From this moment on it waits for something that costs nobody anything.
    pub(crate) fn pause(&mut self, moment: Instant) {
        if !self.is_paused {
            self.is_paused = true;
            self.counters.turn(-1, moment);
        }
    }

    /// From this moment on it counts again.
    pub(crate) fn go_on(&mut self, moment: Instant) {
        if self.is_paused {
            self.is_paused = false;
            self.counters.turn(1, moment);
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if !self.is_paused {
            self.counters.turn(-1, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_knows_how_long_requests_stayed_whenever_it_is_asked() {
        let counters = Counters::new(Instant::now());
        let at = |ms: u64| counters.started + Duration::from_millis(ms);
        let used_ms = |ms: u64| counters.measure(at(ms))[0] / 1_000;
        assert_eq!(used_ms(50), 0);
        counters.turn(1, at(100));
        counters.turn(1, at(150));
        assert_eq!(used_ms(200), 150);
        counters.turn(-1, at(300));
        assert_eq!(used_ms(400), 300);
        assert_eq!(used_ms(390), 0, "asked with a moment that is over");
        counters.turn(-1, at(400));
        assert_eq!(
            (used_ms(500), counters.word.load(Relaxed) >> TIME_BITS),
            (10, 0)
        );
        assert_eq!(used_ms(600), 0);
    }

    #[test]
    fn a_handshake_is_charged_once_a_request_has_come_and_once() {
        let load = Load::new("t");
        let counters = load.counters(0, 1).unwrap();
        counters.charge_handshake(300_000);
        let second = load.started + Duration::from_secs(1);
        load.measure(second, Some(5));
        let demand = load.lock().meter.demand();
        assert!(demand > 0.0);
        assert!(
            load.lock()
                .cpu
                .is_some_and(|(meter, _)| meter.demand() == demand)
        );
        load.measure(second + Duration::from_secs(60), Some(5));
        assert!(load.lock().meter.demand() < demand / 1_000.0);
    }

    #[test]
    fn the_first_request_is_let_in_at_any_share_and_one_in_twenty_after_it() {
        let counters = Counters::new(Instant::now());
        let share = shed::share(0.05);
        let let_in = (0..41).filter(|_| counters.lets_in(0, share)).count();
        assert!(Counters::new(Instant::now()).lets_in(3, share));
        assert_eq!(let_in, 3);
        assert!(!Counters::new(Instant::now()).lets_in(0, NOBODY));
    }

    /// Whether the groups of a tenant with these rules tell all that it uses.
    fn groups_tell_all(tenant: &str, rules: &str) -> bool {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:8080\"\n[tenants.t]\n{tenant}\n\
             [php.\"8.2\"]\nprogram = \"/bin/true\"\n[[sites]]\nhosts = [\"a\"]\ntenant = \"t\"\nroot = \"/srv\"\nuser = \"nobody\"\n\
             rules = [{{ match = {{ file = \"*.cgi\" }}, handler = {{ cgi = true }} }}, {rules}]\n"
        );
        let model = config::load(&config::Sources::from_text("test.toml", &text));
        let model = model.unwrap_or_else(|problems| panic!("{problems}"));
        let groups = ipc::groups::Shape::of(&model).groups.into_iter();
        let groups: Vec<_> = groups.map(|group| (group.path, group.owner)).collect();
        let tenants = Tenants::compile(&model, &groups, None);
        tenants.iter().all(|tenant| tenant.groups.is_some())
    }

    #[test]
    fn groups_tell_all_where_nobody_works_outside_of_them() {
        let bound = "cgroup = { pids = 9 }";
        for (tenant, handler, expected) in [
            (bound, "static = true", true),
            (bound, "respond = { body = \"\" }", true),
            (bound, "proxy = \"http://127.0.0.1:9000\"", false),
            (bound, "fastcgi = \"127.0.0.1:9000\"", false),
            (bound, "script = { code = \"Nginx.rputs 'hi'\" }", false),
            (
                bound,
                "app = { command = [\"/bin/true\"], directory = \"/srv\" }",
                true,
            ),
            ("", "static = true", false),
        ] {
            let rule = format!("{{ handler = {{ {handler} }} }}");
            assert_eq!(groups_tell_all(tenant, &rule), expected, "{handler}");
        }
    }

    #[test]
    fn what_is_read_and_written_counts_beside_what_is_computed() {
        let root = std::env::temp_dir().join(format!("nagaya-shares-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        write("a/cpu.stat", "usage_usec 2000000\n");
        write(
            "a/io.stat",
            "8:0 rbytes=100000000 wbytes=100000000 rios=3 wios=4 dbytes=9 dios=9\n",
        );
        write("b/cpu.stat", "usage_usec 1000000\n");
        write(
            "b/io.stat",
            "8:0 rbytes=1 wbytes=0 rios=10000 wios=0\n8:16 rbytes=0 wbytes=9 rios=0 wios=5000\n",
        );
        let layout = |controllers: &[Controller]| Layout {
            hierarchies: vec![os::cgroup::Hierarchy {
                version: os::cgroup::Version::V2,
                controllers: controllers.iter().copied().collect(),
                directory: root.clone(),
            }],
        };
        let both = layout(&[Controller::Cpu, Controller::Io]);
        let groups = |names: &[&str]| -> Vec<Vec<String>> {
            names.iter().map(|name| vec![(*name).to_owned()]).collect()
        };
        assert_eq!(used_us(&both, &groups(&["a"])), Some(4_000_000));
        assert_eq!(used_us(&both, &groups(&["b"])), Some(2_500_000));
        assert_eq!(
            used_us(&both, &groups(&["a", "b", "none"])),
            Some(6_500_000)
        );
        let cpu = layout(&[Controller::Cpu]);
        assert_eq!(used_us(&cpu, &groups(&["a", "b"])), Some(3_000_000));
        assert_eq!(used_us(&layout(&[Controller::Pids]), &groups(&["a"])), None);
        std::fs::remove_dir_all(&root).expect("the directory");
    }

    #[test]
    fn what_a_request_waits_for_its_turn_is_no_use() {
        let counters = Arc::new(Counters::new(Instant::now()));
        let at = |ms: u64| counters.started + Duration::from_millis(ms);
        let mut stay = Stay::begin(&counters, at(100));
        stay.pause(at(150));
        stay.pause(at(160));
        assert_eq!(counters.measure(at(10_000)), [50_000, 1, 0, 0]);
        stay.go_on(at(20_000));
        stay.go_on(at(20_010));
        assert_eq!(counters.measure(at(20_030)), [30_000, 0, 0, 0]);
        stay.pause(at(20_040));
        drop(stay);
        assert_eq!(counters.measure(at(90_000)), [10_000, 0, 0, 0]);
    }

    #[test]
    fn a_stay_ends_when_it_is_dropped() {
        let load = Load::new("a");
        let counters = load.counters(0, 1).expect("a counters");
        let stay = Stay::begin(counters, Instant::now());
        assert_eq!(counters.word.load(Relaxed) >> TIME_BITS, 1);
        drop(stay);
        assert_eq!(counters.word.load(Relaxed) >> TIME_BITS, 0);
        assert!(load.counters(1, 1).is_none());
    }
}
