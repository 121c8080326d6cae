//! The store of a fleet: the script in a real one decides as the model does, whatever time does, and it comes and goes.

use std::rc::Rc;
use std::time::{Duration, Instant};

use directory::FleetAsker;
use fastrand::Rng;
use ipc::fleet::{FleetClaim, FleetQuestion, FleetRateClaim, FleetSaid, FleetSettings};
use limits::fleet::{Claim, FleetKey, Grant, Holder, RateClaim, RateGrant, StoreModel, StoreReply};
use testkit::{PATIENCE, RedisServer, a_redis};

use crate::asking::run;

/// Longer than the tests take, though the machine stands still: each step towards an answer may take a sixth.
const LEASE_MS: u64 = 240_000;
const RUN: u64 = 7;
/// What the script calls its keys.
const KEY: &str = "nagaya{f}:";
/// Calls of a history, and histories; `NAGAYA_HISTORIES` says another number of these.
const CALLS: usize = 400;
const HISTORIES: u64 = 12;
const KEYS: u64 = 5_000;

pub(crate) fn settings(
    store: &RedisServer,
    machine: usize,
    password: Option<&str>,
) -> FleetSettings {
    FleetSettings {
        places: vec![("127.0.0.1".to_owned(), Some(store.address().port()))],
        sentinel: None,
        tls: None,
        user: None,
        password: password.map(str::to_owned),
        database: 0,
        machine: format!("web{machine}"),
        lease_ms: LEASE_MS,
        gateway: machine as u64,
    }
}

pub(crate) fn question(seq: u64, lease_ms: u64, claims: &[Claim]) -> FleetQuestion {
    let claims = claims.iter().map(|it| FleetClaim {
        key: it.key.0,
        limit: it.limit,
        used: it.used,
        keep: it.keep,
        need: it.need,
        want: it.want,
        weight: it.weight,
    });
    FleetQuestion {
        run: RUN,
        seq,
        lease_ms,
        claims: claims.collect(),
        rates: Vec::new(),
    }
}

/// A question about rates.
fn of_rates(seq: u64, rates: &[RateClaim]) -> FleetQuestion {
    let rates = rates.iter().map(|it| FleetRateClaim {
        key: it.key.0,
        interval_ns: it.interval_ns,
        full_us: it.full_us,
        want: it.want,
        demand: it.demand,
        spent_us: it.spent_us,
    });
    FleetQuestion {
        rates: rates.collect(),
        ..question(seq, LEASE_MS, &[])
    }
}

/// A key that is text, as the tests' client wants words to be.
fn key(number: u64) -> (String, FleetKey) {
    let text = format!("key-{number:012}");
    let halves = text.as_bytes().chunks(8);
    let mut halves = halves.map(|half| u64::from_be_bytes(half.try_into().unwrap()));
    let key = FleetKey(std::array::from_fn(|_| halves.next().unwrap()));
    (text, key)
}

/// A claim and its key as text.
type Named<T> = (String, T);

/// The script in a real store, with a clock and runs of the store as the test says.
struct TimedScript {
    store: RedisServer,
    name: String,
}

impl TimedScript {
    fn start() -> Option<Self> {
        let store = RedisServer::start(&[])?;
        let mut text = include_str!("../src/fleet/store.lua").to_owned();
        for (from, to) in [
            (
                "local time = redis.call('TIME')\nlocal now_us = time[1] * 1000000 + time[2]\n",
                "local now_us = tonumber(ARGV[#ARGV - 1])\n",
            ),
            (
                "string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')",
                "ARGV[#ARGV]",
            ),
            // Time of the store's own is not the test's.
            ("string.format('%.0f', ends - now)", "100000000"),
            ("string.format('%.0f', longest))", "100000000)"),
            ("string.format('%.0f', math.ceil(keep / 1000))", "100000000"),
        ] {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            text = text.replace(from, to);
        }
        let name = store.command(&["SCRIPT", "LOAD", &text]);
        assert_eq!(name.len(), 40, "{name}");
        Some(Self { store, name })
    }

    fn call(
        &self,
        (run, now_us): (u64, u64),
        holder: &Holder,
        (seq, lease_ms): (u64, u64),
        claims: &[Named<Claim>],
        rates: &[Named<RateClaim>],
    ) -> Option<StoreReply> {
        let mut words = vec!["EVALSHA".to_owned(), self.name.clone()];
        words.push((claims.len() + rates.len() + 1).to_string());
        words.push(KEY.to_owned());
        words.extend(claims.iter().map(|(key, _)| format!("{KEY}{key}")));
        words.extend(rates.iter().map(|(key, _)| format!("{KEY}r{key}")));
        words.push(holder.machine.clone());
        words.push(format!("{:x}", holder.run));
        words.extend([seq, lease_ms, claims.len() as u64].map(|it| it.to_string()));
        for (_, it) in claims {
            let all = [it.limit, it.used, it.keep, it.need, it.want, it.weight];
            words.extend(all.map(|it| it.to_string()));
        }
        for (_, it) in rates {
            let (want, demand) = (it.want.into(), it.demand.into());
            let all = [it.interval_ns, it.full_us, want, demand, it.spent_us];
            words.extend(all.map(|it| it.to_string()));
        }
        words.push(now_us.to_string());
        words.push(format!("{run:x}"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = self.store.command(&words);
        if reply == "-1" {
            return None;
        }
        assert!(!reply.starts_with('-'), "{reply}");
        let lines: Vec<&str> = reply.split('\n').collect();
        let (head, grants) = lines.split_at(3);
        let number = |text: &str| text.parse::<u64>().unwrap();
        let (grants, rates) = grants.split_at(claims.len() * 4);
        let rates = rates.chunks(3).map(|of| RateGrant {
            count: number(of[0]) as u32,
            next_us: number(of[1]),
            full_us: number(of[2]),
        });
        let grants = grants.chunks(4).map(|of| Grant {
            held: number(of[0]) as u32,
            part: number(of[1]) as u32,
            is_contended: number(of[2]) > 0,
            is_coming: number(of[3]) > 0,
        });
        Some(StoreReply {
            quiet_ms: number(head[0]),
            machines: number(head[1]) as u32,
            called: keys(head[2]),
            grants: grants.collect(),
            rates: rates.collect(),
        })
    }

    /// What a machine hears that listens.
    fn listen(&self, machine: &str) -> Option<Vec<FleetKey>> {
        let said = self.store.command(&["LPOP", &format!("{KEY}w{machine}")]);
        (!said.is_empty()).then(|| keys(&said))
    }
}

/// Keys, one after the other.
fn keys(text: &str) -> Vec<FleetKey> {
    let keys = text.as_bytes().chunks(16);
    keys.map(|it| {
        let half = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
        FleetKey([half(&it[..8]), half(&it[8..])])
    })
    .collect()
}

/// Machines of a history, and what time it is.
struct History {
    rng: Rng,
    now_us: u64,
    run: u64,
    /// The runs of machines, and the number of the last word of each.
    holders: Vec<(Holder, u64)>,
    lease_ms: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let run = rng.u64(1..1 << 40);
        let holders = (0..4).map(|at| {
            let machine = ["web1", "web2", "web3.example.jp", "web2"][at];
            let machine = machine.to_owned();
            let run = rng.u64(..);
            (Holder { machine, run }, 0)
        });
        Self {
            holders: holders.collect(),
            now_us: 1_000_000_000_000_000,
            run,
            lease_ms: [1_000, 5_000, 7_777][rng.usize(0..3)],
            rng,
        }
    }

    fn claims(&mut self) -> Vec<(String, Claim)> {
        let rng = &mut self.rng;
        let many = match rng.u32(0..40) {
            0 => 300,
            _ => rng.u64(0..4),
        };
        let claim = |number: u64| {
            let (text, key) = key(number);
            let limit = rng.u32(1..14);
            let used = rng.u32(0..4);
            let want = rng.u32(0..14);
            let claim = Claim {
                key,
                limit,
                used,
                keep: rng.u32(0..6).max(used),
                need: rng.u32(0..=want),
                want,
                weight: rng.u32(1..4),
            };
            (text, claim)
        };
        (0..many).map(claim).collect()
    }

    fn rates(&mut self) -> Vec<(String, RateClaim)> {
        let many = self.rng.u64(0..3);
        let claim = |number: u64| {
            let rng = &mut self.rng;
            let (text, key) = key(number);
            // From a million a second to one a day.
            let interval_ns = [1_000, 3_334, 20_000_000, 333_334_000, 86_400_000_000_000];
            let interval_ns = interval_ns[rng.usize(0..5)];
            let claim = RateClaim {
                key,
                interval_ns,
                full_us: (interval_ns * rng.u64(1..60)).div_ceil(1_000).max(1_000),
                want: rng.u32(0..9) << rng.u32(0..9),
                demand: rng.u32(0..9) << rng.u32(0..20),
                spent_us: [0, 0, 0, rng.u64(0..60_000_000)][rng.usize(0..4)],
            };
            (text, claim)
        };
        (0..many).map(claim).collect()
    }

    /// Time passes, mostly a little; it may be put back, or forward by more than anybody is remembered.
    fn pass(&mut self) {
        self.now_us = match self.rng.u32(0..400) {
            0 => self.now_us + 8_000_000_000,
            1..4 => self.now_us - self.rng.u64(0..20_000_000),
            4..20 => self.now_us + self.rng.u64(0..2_000 * self.lease_ms),
            20..60 => self.now_us + self.lease_ms * 500,
            60..200 => self.now_us + self.rng.u64(0..30_000),
            _ => self.now_us + self.rng.u64(0..300_000),
        };
    }
}

fn histories() -> u64 {
    let said = std::env::var("NAGAYA_HISTORIES").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(HISTORIES)
}

#[test]
fn the_script_decides_as_the_model_does_whatever_time_does() {
    let Some(script) = TimedScript::start() else {
        return;
    };
    let (mut granted, mut drawn, mut called) = (0_u64, 0, 0);
    for seed in 0..histories() {
        let _ = script.store.command(&["FLUSHALL"]);
        let (mut history, mut model) = (History::new(seed), StoreModel::default());
        for step in 0..CALLS {
            history.pass();
            let at = history.rng.usize(0..history.holders.len());
            match history.rng.u32(0..200) {
                0 => history.run += 1,
                1 => {
                    let _ = script.store.command(&["FLUSHALL"]);
                    model.empty();
                }
                2 => history.holders[at].0.run = history.rng.u64(..),
                3 => history.lease_ms = history.rng.u64(500..30_000),
                _ => {}
            }
            let is_stale = history.rng.u32(0..50) == 0;
            history.holders[at].1 += u64::from(!is_stale);
            let claims = history.claims();
            let rates = history.rates();
            let (holder, seq) = &history.holders[at];
            let (now, said) = ((history.run, history.now_us), (*seq, history.lease_ms));
            let plain: Vec<Claim> = claims.iter().map(|(_, claim)| *claim).collect();
            let of_rates: Vec<RateClaim> = rates.iter().map(|(_, claim)| *claim).collect();
            let expected = model.call(now, holder, said, (&plain, &of_rates));
            let found = script.call(now, holder, said, &claims, &rates);
            let what = format!("history {seed}, step {step}: {claims:?} {rates:?}");
            assert_eq!(found, expected, "{what}");
            let rates = found.iter().flat_map(|it| &it.rates);
            drawn += rates.map(|it| u64::from(it.count)).sum::<u64>();
            let grants = found.iter().flat_map(|it| &it.grants);
            granted += grants.map(|it| u64::from(it.held)).sum::<u64>();
            if history.rng.u32(0..3) == 0 {
                let machine = &history.holders[history.rng.usize(0..4)].0.machine;
                let heard = script.listen(machine);
                assert_eq!(heard, model.listen(machine), "history {seed}, step {step}");
                called += heard.map_or(0, |it| it.len());
            }
        }
    }
    assert!(granted > 0 && drawn > 0 && called > 0);
}

#[test]
fn a_machine_that_has_what_another_waits_for_hears_of_it() {
    let Some(store) = a_redis() else { return };
    let askers: Vec<_> = (0..2)
        .map(|at| Rc::new(FleetAsker::new(settings(&store, at, None)).unwrap()))
        .collect();
    let (_, key) = key(1);
    // The first has three that it does not need, the second needs all.
    let claim = |need: u32| Claim {
        key,
        limit: 4,
        used: 0,
        keep: 3 - need.min(3),
        need,
        want: need.max(3),
        weight: 1,
    };
    run(async {
        let begun = Instant::now();
        let mut seq = 0;
        loop {
            seq += 1;
            // One after the other, until the store is quiet no more and the first has been called.
            let mut is_called = false;
            for (asker, need) in askers.iter().zip([0, 4]) {
                let answer = asker.ask(question(seq, 2_000, &[claim(need)])).await;
                let FleetSaid::Granted { grants, .. } = &answer.said else {
                    panic!("{answer:?}");
                };
                is_called = grants[0].is_coming;
            }
            // What is lost where the machine stood still is called again.
            if is_called && let Ok(Some(call)) = askers[0].listen().await {
                assert_eq!(call.said, FleetSaid::Called(vec![key.0]));
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(begun.elapsed() < PATIENCE, "nobody was called");
        }
    });
}

#[test]
fn a_store_with_a_password_is_asked_again_when_it_has_started_again() {
    let Some(mut store) = RedisServer::start(&["--requirepass", "secret"]) else {
        return;
    };
    let wrong = FleetAsker::new(settings(&store, 1, Some("guess"))).unwrap();
    let asker = FleetAsker::new(settings(&store, 1, Some("secret"))).unwrap();
    run(async {
        let answer = wrong.ask(question(1, LEASE_MS, &[])).await.said;
        assert!(
            matches!(&answer, FleetSaid::Down(why) if !why.contains("guess")),
            "{answer:?}"
        );
        for seq in 1..4 {
            let answer = asker.ask(question(seq, LEASE_MS, &[])).await.said;
            let is_quiet = matches!(
                answer,
                FleetSaid::Granted {
                    quiet_ms: 1..,
                    machines: 1,
                    ..
                }
            );
            assert!(is_quiet, "{answer:?}");
            store.stop();
            let answer = asker.ask(question(seq, LEASE_MS, &[])).await.said;
            assert!(matches!(answer, FleetSaid::Down(_)), "{answer:?}");
            store.restart();
        }
    });
}

#[test]
fn what_does_not_pass_by_itself_is_told_with_what_helps() {
    let store = |words: &[&str]| RedisServer::start(words);
    let (Some(open), Some(shut)) = (store(&[]), store(&["--requirepass", "secret"])) else {
        return;
    };
    let plain = |store, password| settings(store, 1, password);
    let of_sentinels = |store| FleetSettings {
        sentinel: Some("main".to_owned()),
        ..plain(store, None)
    };
    let of_database = FleetSettings {
        database: 99,
        ..plain(&open, None)
    };
    for (settings, means) in [
        (
            plain(&shut, Some("guess")),
            "the store refuses the password in ",
        ),
        (plain(&shut, None), "the store wants a password: "),
        (plain(&open, Some("secret")), "the store has no password: "),
        (of_database, "the store refuses the database "),
        (of_sentinels(&open), "what answers is no Sentinel: "),
    ] {
        let begun = Instant::now();
        let why = directory::check_fleet(settings.clone()).unwrap_err();
        assert!(why.starts_with(means) && !why.contains("guess"), "{why}");
        assert!(begun.elapsed() < PATIENCE);
        run(async {
            let asker = Rc::new(FleetAsker::new(settings).unwrap());
            let followed = Rc::clone(&asker);
            tokio::task::spawn_local(async move { followed.follow_sentinels().await });
            loop {
                let said = asker.ask(question(1, LEASE_MS, &[])).await.said;
                match said {
                    FleetSaid::Down(told) if told.starts_with(means) => break,
                    said => assert!(begun.elapsed() < PATIENCE, "{said:?}"),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
}

#[test]
fn a_key_takes_few_bytes_of_the_store_and_none_when_it_is_idle() {
    let Some(store) = a_redis() else { return };
    let asker = FleetAsker::new(settings(&store, 1, None)).unwrap();
    let (many, used) = (keys_told(), || used(&store));
    let claims = |first: u64, want: u32| {
        let claims = (first..(first + 1_000).min(many)).map(|number| Claim {
            key: FleetKey([number, 1]),
            limit: 5,
            used: want,
            keep: want,
            need: want,
            want,
            weight: 1,
        });
        claims.collect::<Vec<_>>()
    };
    run(async {
        assert!(matches!(
            asker.ask(question(1, LEASE_MS, &[])).await.said,
            FleetSaid::Granted { .. }
        ));
        let before = used();
        let mut seq = 1;
        for want in [2, 0] {
            for first in (0..many).step_by(1_000) {
                seq += 1;
                let said = asker
                    .ask(question(seq, LEASE_MS, &claims(first, want)))
                    .await
                    .said;
                assert!(matches!(said, FleetSaid::Granted { .. }), "{said:?}");
            }
            let keys: u64 = store.command(&["DBSIZE"]).trim().parse().unwrap();
            match want {
                0 => assert_eq!(keys, 1),
                _ => {
                    let bytes = used().saturating_sub(before) / many;
                    println!("{bytes} bytes a key of {many}");
                    assert!(
                        keys == many + 1 && bytes <= 200,
                        "{keys} keys, {bytes} bytes each"
                    );
                }
            }
        }
    });
}

/// Keys that a store is filled with; `NAGAYA_KEYS` says another number.
fn keys_told() -> u64 {
    let said = std::env::var("NAGAYA_KEYS").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(KEYS)
}

/// Bytes that a store uses.
fn used(store: &RedisServer) -> u64 {
    let info = store.command(&["INFO", "memory"]);
    let mut lines = info.lines();
    let line = lines.find_map(|line| line.strip_prefix("used_memory:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_key_of_a_rate_takes_few_bytes_of_the_store_and_none_when_its_bucket_is_full() {
    let Some(store) = a_redis() else { return };
    let asker = FleetAsker::new(settings(&store, 1, None)).unwrap();
    let keys = keys_told();
    let count = || store.command(&["DBSIZE"]).trim().parse::<u64>().unwrap();
    // Some a second, and a day until all have come: none ends meanwhile.
    let claims = |first: u64, full_us: u64| {
        let claims = (first..(first + 1_000).min(keys)).map(|number| RateClaim {
            key: FleetKey([number, 1]),
            interval_ns: 1_000_000,
            full_us,
            want: 1,
            demand: 50,
            spent_us: full_us / 2,
        });
        claims.collect::<Vec<_>>()
    };
    run(async {
        let lease_ms = 1_000;
        let begun = Instant::now();
        let mut seq = 0;
        // Quiet for a lease.
        loop {
            seq += 1;
            let said = asker.ask(question(seq, lease_ms, &[])).await.said;
            if matches!(said, FleetSaid::Granted { quiet_ms: 0, .. }) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{said:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let before = used(&store);
        // One that has heard of nobody for a moment is quiet, and notes nothing.
        let mut ask_all = async |full_us| {
            for first in (0..keys).step_by(1_000) {
                loop {
                    seq += 1;
                    let mut question = of_rates(seq, &claims(first, full_us));
                    question.lease_ms = lease_ms;
                    match asker.ask(question).await.said {
                        FleetSaid::Granted { quiet_ms: 0, .. } => break,
                        FleetSaid::Granted { .. } => {}
                        said => panic!("{said:?}"),
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        ask_all(86_400_000_000).await;
        let bytes = used(&store).saturating_sub(before) / keys;
        println!("{bytes} bytes a key of {keys}");
        assert!(count() == keys + 1 && bytes <= 200, "{bytes} bytes each");
        // The same in a moment: then they are full.
        ask_all(100_000).await;
        let ended = Instant::now();
        while count() > 1 {
            assert!(ended.elapsed() < PATIENCE, "{} are left", count());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}
