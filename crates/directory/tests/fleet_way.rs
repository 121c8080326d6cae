//! The way to the store of a fleet: over TLS, and where Sentinels say that it is.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use directory::{FleetAsker, check_fleet};
use ipc::fleet::{FleetSaid, FleetSettings};
use limits::fleet::{Claim, FleetKey};
use testkit::{RedisServer, TempDir, a_redis, free_port};

use crate::asking::run;
use crate::databases::certificate;
use crate::fleet::{question, settings};

/// How long it may take: a Sentinel whose machine stood still does nothing for half a minute.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn a_store_is_spoken_to_by_tls_and_only_with_a_certificate_that_is_believed() {
    let directory = TempDir::new();
    let (pem, [chain, key]) = certificate(&directory);
    let port = free_port();
    let number = port.to_string();
    let tls = ["--tls-port", &number, "--tls-auth-clients", "no"];
    let files = ["--tls-cert-file", &chain, "--tls-key-file", &key];
    let password = ["--requirepass", "secret"];
    let Some(store) = RedisServer::start(&[&tls[..], &files, &password].concat()) else {
        return;
    };
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let other = other.unwrap().cert.pem();
    let secured = |authorities: &str| FleetSettings {
        places: vec![("127.0.0.1".to_owned(), Some(port))],
        tls: Some(authorities.into()),
        ..settings(&store, 1, Some("secret"))
    };
    run(async {
        let unknown = FleetAsker::new(secured(&other)).unwrap();
        let said = unknown.ask(question(1, 2_000, &[])).await.said;
        let is_told = matches!(&said, FleetSaid::Down(why) if why.contains("certificate"));
        assert!(is_told, "{said:?}");
        let asker = FleetAsker::new(secured(&pem)).unwrap();
        for seq in 1..4 {
            let said = asker.ask(question(seq, 2_000, &[])).await.said;
            assert!(matches!(said, FleetSaid::Granted { .. }), "{said:?}");
        }
    });
    assert!(FleetAsker::new(secured("nobody")).is_err());
    // TLS where none is spoken, and none where it is.
    let mistaken = [
        FleetSettings {
            places: settings(&store, 1, None).places,
            lease_ms: 6_000,
            ..secured(&pem)
        },
        FleetSettings {
            tls: None,
            ..secured(&pem)
        },
    ];
    for (settings, hint) in mistaken.into_iter().zip(["TLS there", "add `tls=on`"]) {
        run(async {
            let asker = FleetAsker::new(settings).unwrap();
            await_said(&asker, is_told(hint)).await;
        });
    }
    // One that Sentinels name instead of one that has answered was never heard, either.
    let sentinel = RedisServer::start_sentinel(&store).unwrap();
    let watched = FleetSettings {
        places: vec![("127.0.0.1".to_owned(), Some(sentinel.address().port()))],
        sentinel: Some("main".to_owned()),
        lease_ms: 6_000,
        ..settings(&store, 1, Some("secret"))
    };
    run(async {
        let asker = following(watched);
        let is_granted = |said: &FleetSaid| matches!(said, FleetSaid::Granted { .. });
        await_said(&asker, is_granted).await;
        assert_eq!(sentinel.command(&["SENTINEL", "REMOVE", "main"]), "OK");
        let monitor = ["SENTINEL", "MONITOR", "main", "127.0.0.1", &number, "1"];
        assert_eq!(sentinel.command(&monitor), "OK");
        await_said(&asker, is_told("add `tls=on`")).await;
    });
}

/// Whether it tells what helps.
fn is_told(hint: &str) -> impl Fn(&FleetSaid) -> bool {
    move |said| matches!(said, FleetSaid::Down(why) if why.contains(hint))
}

/// Asks until this is said.
async fn await_said(asker: &FleetAsker, is_it: impl Fn(&FleetSaid) -> bool) {
    let until = Instant::now() + PATIENCE;
    for seq in 1.. {
        let said = asker.ask(question(seq, 2_000, &[])).await.said;
        if is_it(&said) {
            return;
        }
        assert!(Instant::now() < until, "{said:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An asker that follows Sentinels, as it does in the process.
fn following(settings: FleetSettings) -> Rc<FleetAsker> {
    let asker = Rc::new(FleetAsker::new(settings).unwrap());
    let followed = Rc::clone(&asker);
    tokio::task::spawn_local(async move { followed.follow_sentinels().await });
    asker
}

/// Asks until the store answers, and it is this one.
async fn await_store(asker: &FleetAsker, seq: &mut u64, store: &RedisServer) {
    let until = Instant::now() + PATIENCE;
    loop {
        *seq += 1;
        let said = asker.ask(question(*seq, 2_000, &[])).await.said;
        let is_granted = matches!(said, FleetSaid::Granted { .. });
        let is_primary = || store.command(&["ROLE"]).starts_with("master");
        let has_it = || !store.command(&["HGET", "nagaya{f}:", "e"]).is_empty();
        if is_granted && is_primary() && has_it() {
            return;
        }
        assert!(Instant::now() < until, "the store is not found: {said:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn sentinels_say_where_the_store_is_and_where_another_has_taken_its_place() {
    let Some(mut first) = a_redis() else { return };
    let primary = first.address().port().to_string();
    let second = RedisServer::start(&["--replicaof", "127.0.0.1", &primary]).unwrap();
    let mut sentinel = RedisServer::start_sentinel(&first).unwrap();
    let nobody = free_port();
    let watched = FleetSettings {
        places: [nobody, sentinel.address().port()]
            .map(|port| ("127.0.0.1".to_owned(), Some(port)))
            .into(),
        sentinel: Some("main".to_owned()),
        lease_ms: 2_000,
        ..settings(&first, 1, None)
    };
    let unknown = FleetSettings {
        sentinel: Some("other".to_owned()),
        // A Sentinel may take long.
        lease_ms: 60_000,
        ..watched.clone()
    };
    run(async {
        let unknown = following(unknown);
        let until = Instant::now() + PATIENCE;
        loop {
            let said = unknown.ask(question(1, 2_000, &[])).await.said;
            if matches!(&said, FleetSaid::Down(why) if why.contains("knows `other`")) {
                break;
            }
            assert!(Instant::now() < until, "{said:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let asker = following(watched);
        let mut seq = 0;
        await_store(&asker, &mut seq, &first).await;
        // A replica that Sentinel does not know yet cannot take the place.
        let until = Instant::now() + PATIENCE;
        while sentinel
            .command(&["SENTINEL", "REPLICAS", "main"])
            .is_empty()
            || !second
                .command(&["INFO", "replication"])
                .contains("master_link_status:up")
        {
            assert!(Instant::now() < until, "a replica that keeps up");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        first.stop();
        await_store(&asker, &mut seq, &second).await;
        // The first is a replica of the second by now; it is asked no more.
        first.restart();
        await_store(&asker, &mut seq, &second).await;
        // Nobody who knows the store needs Sentinels.
        sentinel.stop();
        assert_eq!(second.command(&["SCRIPT", "FLUSH"]), "OK");
        await_store(&asker, &mut seq, &second).await;
    });
}

const LIMIT: u32 = 10;
const LEASE: Duration = Duration::from_secs(5);

/// A machine that wants all permits of a key, and holds what it was given until a fifth before the end of the lease.
struct Machine {
    asker: Rc<FleetAsker>,
    seq: u64,
    held: u32,
    part: u32,
    until: Instant,
}

impl Machine {
    fn new(settings: FleetSettings) -> Self {
        Self {
            asker: following(settings),
            seq: 0,
            held: 0,
            part: 0,
            until: Instant::now(),
        }
    }

    fn held(&self) -> u32 {
        if Instant::now() < self.until {
            self.held
        } else {
            0
        }
    }

    async fn claim(&mut self) {
        self.seq += 1;
        // What is beyond its part is given back.
        self.held = self.held().min(self.part);
        let claim = Claim {
            key: FleetKey([1, 2]),
            limit: LIMIT,
            used: 0,
            keep: self.held,
            need: LIMIT,
            want: LIMIT,
            weight: 1,
        };
        let asked = Instant::now();
        let lease_ms = u64::try_from(LEASE.as_millis()).unwrap();
        let answer = self.asker.ask(question(self.seq, lease_ms, &[claim])).await;
        if let FleetSaid::Granted { grants, .. } = answer.said {
            (self.held, self.part) = (grants[0].held, grants[0].part);
            self.until = asked + LEASE - LEASE / 5;
        }
    }
}

#[test]
fn a_planned_failover_that_machines_hear_of_one_after_the_other_keeps_the_bound() {
    let Some(first) = a_redis() else { return };
    let primary = first.address().port().to_string();
    let second = RedisServer::start(&["--replicaof", "127.0.0.1", &primary]).unwrap();
    let sentinel = RedisServer::start_sentinel(&first).unwrap();
    let watched = |machine| FleetSettings {
        places: vec![("127.0.0.1".to_owned(), Some(sentinel.address().port()))],
        sentinel: Some("main".to_owned()),
        lease_ms: u64::try_from(LEASE.as_millis()).unwrap(),
        ..settings(&first, machine, None)
    };
    run(async {
        let mut machines = vec![Machine::new(watched(1))];
        // Out of step: each asks ten times a lease where the store is.
        tokio::time::sleep(LEASE / 20).await;
        machines.push(Machine::new(watched(2)));
        let called = called(&machines[0].asker);
        let until = Instant::now() + PATIENCE;
        let (mut asked_for, mut before, mut excused) = (None, Instant::now(), Instant::now());
        let mut is_whole_again = false;
        while !is_whole_again {
            assert!(Instant::now() < until, "the store is whole again");
            for machine in &mut machines {
                machine.claim().await;
                let now = Instant::now();
                if now - before > LEASE / 4 {
                    // This machine stood still, so that one may have heard of nothing for long.
                    excused = now + LEASE * 2;
                }
                before = now;
            }
            let held: u32 = machines.iter().map(Machine::held).sum();
            assert!(held <= LIMIT || before < excused, "{held} held of {LIMIT}");
            let is_whole = held == LIMIT;
            match asked_for {
                None if is_whole => {
                    let order = ["SENTINEL", "FAILOVER", "main"];
                    // There may be no replica that it knows of yet.
                    if sentinel.command(&order) == "OK" {
                        asked_for = Some(Instant::now());
                    }
                }
                Some(asked) if asked.elapsed() > LEASE * 2 => {
                    let has_it = second.command(&["ROLE"]).starts_with("master");
                    is_whole_again = is_whole && has_it;
                }
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // It is listened to where the store is now.
        let call = ["RPUSH", "nagaya{f}:wweb1", "0123456789abcdef"];
        assert!(!second.command(&call).starts_with('-'));
        let call = tokio::time::timeout(PATIENCE, called).await;
        assert!(matches!(call, Ok(Ok(FleetSaid::Called(keys))) if keys.len() == 1));
    });
}

/// The next call of the store, wherever that is.
fn called(asker: &Rc<FleetAsker>) -> tokio::task::JoinHandle<FleetSaid> {
    let asker = Rc::clone(asker);
    tokio::task::spawn_local(async move {
        loop {
            match asker.listen().await {
                // Calls of before are for what was held then.
                Ok(Some(call)) if is_ours(&call.said) => return call.said,
                Ok(_) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    })
}

fn is_ours(said: &FleetSaid) -> bool {
    let ours = [*b"01234567", *b"89abcdef"].map(u64::from_be_bytes);
    matches!(said, FleetSaid::Called(keys) if keys.contains(&ours))
}

#[test]
fn a_store_that_may_not_be_listened_to_says_so() {
    let Some(store) = RedisServer::start(&["--rename-command", "BLPOP", ""]) else {
        return;
    };
    run(async {
        let asker = FleetAsker::new(settings(&store, 1, None)).unwrap();
        let refused = asker.listen().await.unwrap_err();
        assert!(refused.contains("unknown command"), "{refused}");
        let said = asker.ask(question(1, 60_000, &[])).await.said;
        assert!(matches!(said, FleetSaid::Granted { .. }), "{said:?}");
    });
    let sentinel = RedisServer::start_sentinel(&store).unwrap();
    let watched = FleetSettings {
        places: vec![("127.0.0.1".to_owned(), Some(sentinel.address().port()))],
        sentinel: Some("main".to_owned()),
        ..settings(&store, 1, None)
    };
    let refused = check_fleet(watched.clone()).unwrap_err();
    assert!(refused.contains("BLPOP"), "{refused}");
    let shut = ["ACL", "SETUSER", "default", "resetpass", ">secret"];
    assert_eq!(sentinel.command(&shut), "OK");
    let refused = check_fleet(watched).unwrap_err();
    let told = "the Sentinels want a password, ";
    assert!(refused.starts_with(told), "{refused}");
}

#[test]
fn a_store_that_has_lost_the_script_is_asked_on_while_it_is_listened_to() {
    let Some(store) = a_redis() else { return };
    // Each connection says which database it is for.
    let watched = FleetSettings {
        database: 1,
        ..settings(&store, 1, None)
    };
    run(async {
        let asker = Rc::new(FleetAsker::new(watched).unwrap());
        let ended = Rc::new(Cell::new(0));
        let (listening, counted) = (Rc::clone(&asker), Rc::clone(&ended));
        tokio::task::spawn_local(async move {
            while listening.listen().await.is_ok() {
                counted.set(counted.get() + 1);
            }
        });
        let mut is_answered_meanwhile = false;
        for seq in 1..6 {
            let before = ended.get();
            assert_eq!(store.command(&["SCRIPT", "FLUSH"]), "OK");
            let said = asker.ask(question(seq, 60_000, &[])).await.said;
            assert!(matches!(said, FleetSaid::Granted { .. }), "{said:?}");
            is_answered_meanwhile |= ended.get() == before;
        }
        assert!(is_answered_meanwhile, "each answer waited for the listener");
    });
}
