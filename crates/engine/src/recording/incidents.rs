//! What goes wrong, as the recorder is told: a limit refuses, a rule sheds, a program hits its bounds, a
//! server of an upstream falls.
//!
//! The idea: once a second counters are compared with those of before, on the thread that speaks with the
//! recorder; only where something went wrong is looked who holds what. Of one cause there is one
//! incident in ten seconds, which says how often it happened since. Nothing in it says who a client is.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use config::POOL_PREFIX;
use config::model::sensor::{Gauge, Sensor};
use ipc::console::{Incident, IncidentKind, LimitOwner};
use limits::LimitId;

use super::kills::PoolGroups;
use crate::figures::workers;
use crate::permits::holders;
use crate::shedding;
use crate::worker::Shared;

/// How long nothing more is told of a cause.
const EVERY: Duration = Duration::from_secs(10);
/// Causes that are told apart; of others nothing is told until some of these are forgotten.
const CAUSES_MAX: usize = 1_024;
/// Owners of limits that many have apart which are told by name at a time; of the others all are told together.
const APART_MAX: usize = 64;

/// A cause: what kind of thing it is, and which.
type Cause = (IncidentKind, String);

/// What was counted before.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When the last refusal was that has been seen, since 1970.
    refused: Option<Duration>,
    shed: HashMap<String, u64>,
    pools: PoolGroups,
    /// Upstreams and their servers.
    down: Option<HashSet<(String, String)>>,
    /// When each cause was last told, and what happened since.
    told: BTreeMap<Cause, (Option<Instant>, Happened)>,
}

/// How often something happened, and why it did first.
#[derive(Debug, Default, Clone)]
struct Happened {
    times: u64,
    why: String,
    /// The limit, where one refused.
    limit: Option<LimitId>,
}

impl Watch {
    /// What is to be told now; `at_s` is seconds after 1970.
    pub(super) fn next(&mut self, shared: &Shared, now: Instant, at_s: i64) -> Vec<Incident> {
        let mut happened = self.refusals(shared, now);
        let others = self.shedding(shared).into_iter();
        let others = others.chain(self.programs(shared));
        let others = others.chain(self.upstreams(shared));
        happened.extend(others.map(|(cause, times, why)| {
            let limit = None;
            (cause, Happened { times, why, limit })
        }));
        for (cause, more) in happened {
            if self.told.len() >= CAUSES_MAX && !self.told.contains_key(&cause) {
                let is_due = |last: &Instant| now.duration_since(*last) >= EVERY;
                self.told.retain(|_, (last, since)| {
                    since.times > 0 || !last.as_ref().is_none_or(is_due)
                });
            }
            if self.told.len() >= CAUSES_MAX && !self.told.contains_key(&cause) {
                continue;
            }
            let (_, since) = self.told.entry(cause).or_default();
            let times = since.times + more.times;
            if since.why.is_empty() {
                *since = more;
            }
            since.times = times;
        }
        let due = |(last, since): &(Option<Instant>, Happened)| {
            since.times > 0 && last.is_none_or(|last| now.duration_since(last) >= EVERY)
        };
        if !self.told.values().any(due) {
            return Vec::new();
        }
        let held = holders::look(shared);
        let in_flight = shared.sensors.value(&Sensor::Here(Gauge::InFlight));
        let due = self.told.iter_mut().filter(|(_, it)| due(it));
        let incidents = due.map(|((kind, what), (last, since))| {
            *last = Some(now);
            let Happened { times, why, limit } = std::mem::take(since);
            Incident {
                at_s,
                kind: *kind,
                what: what.clone(),
                why,
                times,
                in_flight: in_flight.map_or(0, |count| count as u64),
                held: held.clone(),
                requests: holders::oldest(shared, limit, now),
            }
        });
        incidents.collect()
    }

    fn refusals(&mut self, shared: &Shared, now: Instant) -> Vec<(Cause, Happened)> {
        let refusals = &shared.limits.refusals;
        // Nobody is told of what was before.
        let Some(since) = self.refused else {
            self.refused = Some(refusals.last().unwrap_or_default());
            return Vec::new();
        };
        let mut room = None;
        let mut counts = BTreeMap::<String, Happened>::new();
        let last = refusals.since(since, |it| {
            let refusal = &it.refusal;
            let mut what = LimitOwner::of_key(&refusal.identity, &refusal.key);
            if let Cow::Owned(apart) = &what
                && !counts.contains_key(apart)
                && !self.is_told_apart(apart, now)
            {
                let room = room.get_or_insert_with(|| self.room_apart(now));
                match room.checked_sub(1) {
                    Some(left) => *room = left,
                    None => what = (&*refusal.identity).into(),
                }
            }
            let counted = counts.entry(what.into_owned()).or_default();
            counted.times += 1;
            counted.why = refusal.why.word().to_owned();
            counted.limit = Some(refusal.limit);
        });
        self.refused = Some(last);
        let counts = counts.into_iter();
        counts
            .map(|(limit, happened)| ((IncidentKind::Limit, limit), happened))
            .collect()
    }

    /// Whether this owner's part of a limit has its place among those that are told of.
    fn is_told_apart(&self, apart: &str, now: Instant) -> bool {
        let told = self.told.get(&(IncidentKind::Limit, apart.to_owned()));
        told.is_some_and(|it| is_told(it, now))
    }

    /// How many more owners of limits that many have apart may be told of.
    fn room_apart(&self, now: Instant) -> usize {
        let of_limits = self.told.iter().filter(|((kind, what), it)| {
            let is_apart = *kind == IncidentKind::Limit && LimitOwner::is_part(what);
            is_apart && is_told(it, now)
        });
        APART_MAX.saturating_sub(of_limits.count())
    }

    fn shedding(&mut self, shared: &Shared) -> Vec<(Cause, u64, String)> {
        let rules = shedding::rows::collect(shared).0;
        let counts = rules.iter().map(|rule| (rule.rule.clone(), rule.shed));
        let counts: HashMap<_, _> = counts.collect();
        let before = std::mem::replace(&mut self.shed, counts);
        let shed = rules.into_iter().filter_map(|rule| {
            // A rule that is new has shed nothing that was not counted by another.
            let before = before.get(&rule.rule)?;
            let times = rule.shed.checked_sub(*before).filter(|times| *times > 0)?;
            Some(((IncidentKind::Shedding, rule.rule), times, rule.sensor))
        });
        shed.collect()
    }

    fn programs(&mut self, shared: &Shared) -> Vec<(Cause, u64, String)> {
        let hit = shared.hit_programs.take();
        let rows = shared.program_pools.rows();
        let of_pools = self.pools.look(shared.generation(), &rows, hit.refused);
        let bounced = hit.bounced.into_iter().chain(of_pools);
        bounced
            .map(|(what, times, why)| ((IncidentKind::Program, what), times, why))
            .collect()
    }

    fn upstreams(&mut self, shared: &Shared) -> Vec<(Cause, u64, String)> {
        let known = workers::upstreams(&shared.stats, shared.process.started.elapsed());
        // Pools tell by themselves how they are.
        let served = known
            .into_iter()
            .filter(|it| !it.upstream.starts_with(POOL_PREFIX));
        let down = served.filter(|it| !it.is_up());
        let down: HashSet<_> = down.map(|it| (it.upstream, it.server)).collect();
        let before = self.down.replace(down.clone()).unwrap_or(down.clone());
        let fallen = down.difference(&before);
        fallen
            .map(|(upstream, server)| {
                let cause = (IncidentKind::Upstream, upstream.clone());
                (cause, 1, server.clone())
            })
            .collect()
    }
}

/// Whether a cause is to be told, or was a moment ago.
fn is_told((last, since): &(Option<Instant>, Happened), now: Instant) -> bool {
    since.times > 0 || last.is_some_and(|last| now.duration_since(last) < EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::stats::{Health, Killed};

    const SITES: &str = r#"
[upstreams.app]
servers = ["127.0.0.1:1"]
[[limits]]
name = "few"
key = "client"
rate = "1/d"
burst = 2
[[sites]]
hosts = ["a"]
rules = [
  { match = { path = "/app/*" }, handler = { proxy = { upstream = "app" } } },
  { match = { path = "/inline/*" }, handler = { proxy = "http://127.0.0.1:2" } },
  { handler = { respond = { status = 200, body = "fine" } } },
]
"#;

    fn told(
        watch: &mut Watch,
        fixture: &Fixture,
        now: Instant,
    ) -> Vec<(IncidentKind, String, u64)> {
        let incidents = watch.next(&fixture.shared, now, 60).into_iter();
        incidents.map(|it| (it.kind, it.what, it.times)).collect()
    }

    #[test]
    fn a_limit_that_refuses_is_told_once_in_ten_seconds_with_how_often() {
        let fixture = Fixture::new(SITES);
        let (mut watch, begun) = (Watch::default(), Instant::now());
        let ask = |times: usize| {
            let statuses = (0..times).map(|_| {
                let asked = fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                asked.status()
            });
            statuses.filter(|status| *status != 200).count() as u64
        };
        assert_eq!(told(&mut watch, &fixture, begun), []);
        let refused = ask(10);
        assert!(refused > 0);
        let first = told(&mut watch, &fixture, begun);
        assert_eq!(
            first,
            [(IncidentKind::Limit, "process/few".to_owned(), refused)]
        );
        let again = ask(3);
        let at = |s: u64| begun + Duration::from_secs(s);
        assert_eq!(told(&mut watch, &fixture, at(9)), []);
        let later = told(&mut watch, &fixture, at(10));
        assert_eq!(
            later,
            [(IncidentKind::Limit, "process/few".to_owned(), again)]
        );
        assert_eq!(told(&mut watch, &fixture, at(30)), []);
    }

    #[test]
    fn a_back_end_that_falls_is_told_and_again_only_when_it_has_come_back() {
        for (name, server) in [
            ("app", "127.0.0.1:1"),
            ("http://127.0.0.1:2", "127.0.0.1:2"),
        ] {
            check_falling(name, server);
        }
    }

    fn check_falling(name: &str, server: &str) {
        let fixture = Fixture::new(SITES);
        let generation = fixture.shared.generation().expect("one is in force");
        assert!(generation.upstreams.iter().any(|it| it.name == name));
        let (mut watch, begun) = (Watch::default(), Instant::now());
        let health = |health| {
            let stats = fixture.worker.stats.upstream(name, &server.into());
            stats.note_health(3, health);
            stats
        };
        let _held = health(Health::Up);
        assert_eq!(told(&mut watch, &fixture, begun), []);
        health(Health::Failing);
        let down = [(IncidentKind::Upstream, name.to_owned(), 1)];
        assert_eq!(told(&mut watch, &fixture, begun), down);
        assert_eq!(told(&mut watch, &fixture, begun + EVERY), []);
        health(Health::Up);
        assert_eq!(told(&mut watch, &fixture, begun + EVERY), []);
        health(Health::Out);
        assert_eq!(told(&mut watch, &fixture, begun + EVERY), down);
    }

    #[test]
    fn a_program_that_hits_its_bounds_is_told_with_whose_and_which() {
        let fixture = Fixture::new(SITES);
        let (mut watch, begun) = (Watch::default(), Instant::now());
        let hit = &fixture.shared.hit_programs;
        for site in ["a", "b", "a"] {
            hit.note((site, "t"), Killed::Memory, b"/greedy.cgi");
        }
        let incidents = watch.next(&fixture.shared, begun, 60);
        let told = incidents.iter().map(|it| (&*it.what, it.times, &*it.why));
        let why = "memory_limit: /greedy.cgi";
        let expected = [("site a", 2, why), ("site b", 1, why)];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert!(incidents.iter().all(|it| it.kind == IncidentKind::Program));
    }
}
