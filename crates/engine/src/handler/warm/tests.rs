//! Requests that come to pools, and a spawner that says what the test wants.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use tokio::task::{LocalSet, yield_now};

use super::*;
use crate::error_reply::status_of;
use crate::fixture::{self, Fixture, block_on, generation_after, peer};
use crate::programs::recent::told;
use ipc::order::{Failure, Order, Report};

const CONFIG: &str = r#"
timeouts = { upstream_read = "{read}" }
[pools]
directory = "/run/p"
[[sites]]
hosts = ["a"]
user = "backup"
{site}
rules = [{ handler = { app = { command = ["/bin/true"], directory = "/srv" } } }]
"#;

/// How long a request was there that cannot have begun.
const SOON: Duration = Duration::ZERO;
/// A time that does not pass here.
const LONG: &str = "10m";

/// A worker, and the spawner's end of its link.
struct Scene {
    fixture: Fixture,
    spawner: OwnedFd,
}

impl Scene {
    /// `read` is how long an upstream may be silent, `site` further keys of the site.
    fn new(read: &str, site: &str) -> Self {
        Self::of(&CONFIG.replace("{read}", read).replace("{site}", site))
    }

    fn of(config: &str) -> Self {
        let fixture = Fixture::new(config);
        let spawner = link(&fixture);
        Self { fixture, spawner }
    }

    /// One whose pool is of PHP, with a page that has 10 s.
    fn of_php() -> Self {
        let app = "app = { command = [\"/bin/true\"], directory = \"/srv\" }";
        let config = CONFIG.replace(app, "php = true").replace("{read}", LONG);
        let site = "root = \"/srv\"\npool = { php = \"8.2\", time = \"10s\" }";
        let config = config.replace("{site}", site);
        Self::of(&format!(
            "{config}\n[php.\"8.2\"]\nprogram = \"/bin/true\"\n"
        ))
    }

    fn pool(&self) -> Arc<ProgramPool> {
        Arc::clone(&self.fixture.shared.program_pools.in_force()[0])
    }

    fn exchange() -> Exchange {
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut exchange = fixture::exchange(peer("192.0.2.7:40000"), request);
        exchange.route.site_index = Some(0);
        exchange
    }

    async fn enter(&self, exchange: &mut Exchange) -> Result<u64> {
        let serving = self.fixture.worker.serving();
        let routed = self.fixture.arrived(&serving).routed(&exchange.route);
        let chosen = routed.expect("a site").chosen(&exchange.route);
        let entered = enter(chosen, exchange, Some(0)).await?;
        Ok(entered.expect("a pool").ends)
    }

    /// The next order's number.
    async fn asked(&self) -> u64 {
        let (id, is_latest) = self.asked_how().await;
        assert!(!is_latest, "whatever it runs as");
        id
    }

    /// The next order's number, and whether the pool is to be as the latest manifest says.
    async fn asked_how(&self) -> (u64, bool) {
        let mut buffer = Vec::new();
        loop {
            match Order::try_recv(self.spawner.as_fd(), &mut buffer) {
                Ok(Ok(Order::Warm {
                    id,
                    pool,
                    is_latest,
                })) if pool == *self.pool().id => return (id, is_latest),
                Ok(other) => panic!("another order: {other:?}"),
                Err(_) => yield_now().await,
            }
        }
    }

    /// What comes of a wait, while the spawner starts the pool that it asks for.
    async fn with_start<T>(&self, wait: impl Future<Output = T>) -> T {
        let start = async {
            let id = self.asked().await;
            self.say(&Report::Warm { id });
        };
        tokio::join!(wait, start).0
    }

    fn is_asked(&self) -> bool {
        Order::try_recv(self.spawner.as_fd(), &mut Vec::new()).is_ok()
    }

    fn refuse(&self, id: u64, failure: Failure) {
        self.say(&Report::NotWarm {
            id,
            failure,
            detail: String::new(),
            retry_ms: 6_500,
        });
    }

    /// The spawner ends, and there is another before anybody looks.
    fn lose_spawner(&mut self) {
        self.spawner = link(&self.fixture);
    }

    fn say(&self, report: &Report) {
        let bytes = report.to_bytes().expect("plain");
        os::fdpass::try_send(self.spawner.as_fd(), &bytes, &[]).expect("room");
    }
}

/// Gives a worker a spawner.
fn link(fixture: &Fixture) -> OwnedFd {
    let (ours, theirs) = os::fdpass::packet_pair().expect("a pair");
    fixture.worker.programs.use_link(ours).expect("registered");
    theirs
}

fn test(body: impl AsyncFnOnce()) {
    block_on(LocalSet::new().run_until(body()));
}

fn told_of(error: &Error) -> (Option<u16>, &'static str, u16) {
    let Kind::NotWarm { retry_after_s } = error.kind else {
        panic!("{error}");
    };
    (status_of(error.kind), error.reason, retry_after_s)
}

/// What is counted of refusals.
fn refusals(scene: &Scene) -> Vec<(&'static str, u64)> {
    let pool = scene.pool();
    let counted = pool.stats.refused.iter().map(|it| it.load(Relaxed));
    let each = REFUSALS.into_iter().zip(counted);
    each.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn refusals_are_counted_by_their_reasons() {
    test(async || {
        let scene = Scene::new(LONG, "");
        for (failure, reason) in [
            (Failure::PoolsFull, "pools_full"),
            (Failure::UnknownRule, "unknown_rule"),
            (Failure::PoolFailed, "pool_failed"),
        ] {
            let mut exchange = Scene::exchange();
            let (entered, ()) = tokio::join!(scene.enter(&mut exchange), async {
                let id = scene.asked().await;
                scene.refuse(id, failure);
            });
            assert_eq!(entered.expect_err("it is refused").reason, reason);
            scene.pool().note_rested(None);
        }
        let expected = [("pool_failed", 1), ("pools_full", 1), ("unknown_rule", 1)];
        assert_eq!(refusals(&scene), expected);
    });
}

#[test]
fn a_site_that_joins_a_pool_waits_until_it_is_in_and_nobody_else_does() {
    test(async || {
        let site = "tenant = \"t\"\nroot = \"/srv\"";
        let scene = Scene::new(LONG, site);
        let entered = scene.with_start(scene.enter(&mut Scene::exchange())).await;
        entered.expect("it runs");
        let first = CONFIG.replace("{read}", LONG).replace("{site}", site);
        let (_, second) = first.split_once("[[sites]]").expect("a site");
        let second = second.replace("[\"a\"]", "[\"b\"]");
        let second = second.replace("root = \"/srv\"", "root = \"/usr\"");
        let both = format!("{first}[[sites]]{second}");
        let reload = || {
            let before = scene.fixture.shared.generation().expect("one");
            scene.fixture.reload(generation_after(&before, &both));
        };
        let joins = || {
            let mut exchange = Scene::exchange();
            exchange.route.site_index = Some(1);
            exchange.route.tree = Some(1);
            exchange
        };
        reload();
        for _ in 0..2 {
            let mut joining = joins();
            let (refused, ()) = tokio::join!(scene.enter(&mut joining), async {
                let (id, is_latest) = scene.asked_how().await;
                assert!(is_latest);
                let others = scene.enter(&mut Scene::exchange()).await;
                others.expect("it runs");
                scene.refuse(id, Failure::PoolFailed);
            });
            let refused = refused.expect_err("nobody sees its files");
            assert_eq!(told_of(&refused).1, "pool_failed");
            let others = scene.enter(&mut Scene::exchange()).await;
            others.expect("it runs");
            let generation = scene.fixture.shared.generation().expect("one");
            let newcomer = generation.newcomers.get(&(0, 1)).expect("it waits");
            scene.pool().note_rested(Some(newcomer));
            // It is one as long as it is not in.
            reload();
        }
        let mut joining = joins();
        let (entered, ()) = tokio::join!(scene.enter(&mut joining), async {
            let (id, _) = scene.asked_how().await;
            scene.say(&Report::Warm { id });
        });
        entered.expect("it is in");
        assert!(joining.record.pool_wait_us.is_some());
        let mut late = joins();
        scene.enter(&mut late).await.expect("it is in");
        assert!(late.record.pool_wait_us.is_none() && !scene.is_asked());
        reload();
        let generation = scene.fixture.shared.generation().expect("one");
        assert!(generation.newcomers.is_empty());
    });
}

#[test]
fn who_comes_to_a_cold_pool_waits_for_one_start() {
    test(async || {
        let scene = Rc::new(Scene::new(LONG, ""));
        let come = || {
            let scene = Rc::clone(&scene);
            tokio::task::spawn_local(async move {
                let mut exchange = Scene::exchange();
                scene.enter(&mut exchange).await.expect("it runs");
                exchange.record.pool_wait_us
            })
        };
        let waiting = [come(), come(), come()];
        let id = scene.asked().await;
        scene.say(&Report::Warming { id, wait_ms: 50 });
        while scene.pool().waiting() < 3 || scene.pool().known(Instant::now()) == Known::Cold {
            yield_now().await;
        }
        assert!(!scene.is_asked(), "it was asked for");
        scene.say(&Report::Warm { id });
        for one in waiting {
            assert!(one.await.expect("no panic").is_some());
        }
        let mut late = Scene::exchange();
        scene.enter(&mut late).await.expect("it runs");
        assert_eq!(late.record.pool_wait_us, None);
        let stats = &scene.pool().stats;
        let counted = [&stats.started, &stats.waited, &stats.failed].map(|it| it.load(Relaxed));
        assert_eq!((counted, scene.pool().waiting()), ([1, 3, 0], 0));
    });
}

#[test]
fn a_pool_is_in_use_as_long_as_a_request_for_it_is_under_way() {
    test(async || {
        let scene = Scene::new(LONG, "");
        let mut exchange = Scene::exchange();
        let serving = scene.fixture.worker.serving();
        let routed = scene.fixture.arrived(&serving).routed(&exchange.route);
        let chosen = routed.expect("a site").chosen(&exchange.route);
        let entered = scene
            .with_start(enter(chosen, &mut exchange, Some(0)))
            .await;
        let told = |now_ms| {
            scene.fixture.worker.programs.tell_use(now_ms);
            let order = Order::try_recv(scene.spawner.as_fd(), &mut Vec::new());
            matches!(order, Ok(Ok(Order::Used { pool })) if pool == *scene.pool().id)
        };
        let minute_ms = 60_000;
        assert!(told(10 * minute_ms) && !told(10 * minute_ms), "by one");
        assert!(told(20 * minute_ms));
        drop(entered);
        assert!(told(30 * minute_ms) && !told(40 * minute_ms));
    });
}

#[test]
fn a_start_that_fails_refuses_those_who_wait_and_those_who_come_until_it_may_be_tried_again() {
    test(async || {
        let scene = Scene::new(LONG, "");
        let mut first = Scene::exchange();
        let (refused, ()) = tokio::join!(scene.enter(&mut first), async {
            let id = scene.asked().await;
            scene.say(&Report::NotWarm {
                id,
                failure: Failure::NotFound,
                detail: "no such file\n".to_owned(),
                retry_ms: 6_500,
            });
        });
        let refused = refused.expect_err("it does not run");
        assert_eq!(told_of(&refused), (Some(503), "pool_failed", 7));
        assert_eq!(refused.detail, "program_not_found: no such file\n");
        let mut second = Scene::exchange();
        let refused = scene.enter(&mut second).await.expect_err("not yet");
        assert_eq!(told_of(&refused).1, "pool_failed");
        assert!(!scene.is_asked());
        let found = scene
            .fixture
            .shared
            .program_pools
            .recent
            .find(second.request.id.as_bytes());
        let told = told(&found.expect("remembered"), "then");
        assert!(
            told.contains("found       program_not_found: no such file\\n\n"),
            "{told}"
        );
    });
}

#[test]
fn a_start_that_takes_longer_than_who_comes_may_wait_is_not_waited_for() {
    test(async || {
        let wait = "limits = [{ concurrent = 1, queue = 1, wait = \"2s\" }]";
        let scene = Scene::new(LONG, wait);
        let mut first = Scene::exchange();
        let (refused, ()) = tokio::join!(scene.enter(&mut first), async {
            let id = scene.asked().await;
            scene.say(&Report::Warming {
                id,
                wait_ms: 89_500,
            });
        });
        let refused = refused.expect_err("it would take too long");
        assert_eq!(told_of(&refused), (Some(503), "pool_starting", 90));
        let mut second = Scene::exchange();
        let refused = scene.enter(&mut second).await.expect_err("still");
        assert_eq!(told_of(&refused).1, "pool_starting");
        assert_eq!(refusals(&scene), [("pool_starting", 2)]);
    });
}

#[test]
fn patience_ends_where_nobody_says_how_long_it_will_take() {
    test(async || {
        let scene = Scene::new("20ms", "");
        let refused = scene.enter(&mut Scene::exchange()).await;
        let refused = refused.expect_err("nobody answers");
        assert_eq!(told_of(&refused), (Some(503), "pool_starting", 1));
        assert_eq!(scene.pool().waiting(), 0);
    });
}

#[test]
fn a_spawner_that_is_lost_is_not_asked_in_vain_and_what_ran_is_not_waited_for() {
    test(async || {
        let mut scene = Scene::new(LONG, "");
        let mut exchange = Scene::exchange();
        scene.lose_spawner();
        let entered = scene.with_start(scene.enter(&mut exchange)).await;
        entered.expect("it runs");
        // The next spawner may know better, and says so while requests go on.
        scene.lose_spawner();
        let mut late = Scene::exchange();
        scene.enter(&mut late).await.expect("it ran");
        let id = scene.asked().await;
        scene.enter(&mut late).await.expect("it ran");
        assert!(!scene.is_asked(), "once");
        scene.say(&Report::Warm { id });
        while !scene.pool().is_warm() {
            yield_now().await;
        }
    });
}

#[test]
fn a_connection_that_closes_is_tried_again_once_if_its_pool_has_ended() {
    test(async || {
        let scene = Scene::new(LONG, "");
        let mut exchange = Scene::exchange();
        let serving = scene.fixture.worker.serving();
        let routed = scene.fixture.arrived(&serving).routed(&exchange.route);
        let chosen = routed.expect("a site").chosen(&exchange.route);
        let entered = scene
            .with_start(enter(chosen, &mut exchange, Some(0)))
            .await;
        let mut entered = entered.expect("it runs").expect("a pool");
        let closed = Error::new(Kind::UpstreamBroken, "upstream_closed", "");
        assert!(
            !entered
                .again(&mut exchange, &closed, SOON)
                .await
                .expect("it runs"),
            "it lives"
        );
        let pool = scene.pool().id.to_string();
        let (again, ()) = tokio::join!(entered.again(&mut exchange, &closed, SOON), async {
            scene.say(&Report::Cold { pool: pool.clone() });
            let id = scene.asked().await;
            scene.say(&Report::Warm { id });
        });
        assert!(again.expect("it runs again"));
        scene.say(&Report::Cold { pool });
        while scene.pool().is_warm() {
            yield_now().await;
        }
        assert!(
            !entered
                .again(&mut exchange, &closed, SOON)
                .await
                .expect("no wait"),
            "once"
        );
    });
}

#[test]
fn what_was_with_processes_that_ended_for_long_is_tried_again_only_if_they_have_handed_over() {
    let closed = Error::new(Kind::UpstreamBroken, "upstream_closed", "");
    let cold: fn(String) -> Report = |pool| Report::Cold { pool };
    let handed_over: fn(String) -> Report = |pool| Report::HandedOver { pool };
    let app: fn() -> Scene = || Scene::new(LONG, "");
    for (make, report, ran_ms, expected) in [
        (app, handed_over, 899, true),
        (app, handed_over, 900, false),
        (Scene::of_php, handed_over, 899, true),
        (Scene::of_php, handed_over, 9_000, true),
        (Scene::of_php, handed_over, 9_100, false),
        (Scene::of_php, cold, 900, false),
        (app, cold, 900, false),
    ] {
        test(async || {
            let (scene, mut exchange) = (make(), Scene::exchange());
            let serving = scene.fixture.worker.serving();
            let routed = scene.fixture.arrived(&serving).routed(&exchange.route);
            let chosen = routed.expect("a site").chosen(&exchange.route);
            let entered = scene
                .with_start(enter(chosen, &mut exchange, Some(0)))
                .await;
            let mut entered = entered.expect("it runs").expect("a pool");
            let ran = Duration::from_millis(ran_ms);
            scene.say(&report(scene.pool().id.to_string()));
            let again = entered.again(&mut exchange, &closed, ran).await;
            assert_eq!(again.expect("no wait"), expected, "{ran_ms}");
        });
    }
}

#[test]
fn a_socket_that_refuses_is_tried_again_once_its_pool_is_heard_to_have_ended() {
    test(async || {
        let scene = Scene::new(LONG, "");
        let mut exchange = Scene::exchange();
        let serving = scene.fixture.worker.serving();
        let routed = scene.fixture.arrived(&serving).routed(&exchange.route);
        let chosen = routed.expect("a site").chosen(&exchange.route);
        let entered = scene
            .with_start(enter(chosen, &mut exchange, Some(0)))
            .await;
        let mut entered = entered.expect("it runs");
        let refused = || Error::new(Kind::UpstreamDown, UNREACHABLE, "");
        let pool = scene.pool().id.to_string();
        let (again, ()) =
            tokio::join!(reach_again(&mut entered, &mut exchange, refused()), async {
                // Its end is noticed late.
                tokio::time::sleep(END_LOOK * 2).await;
                scene.say(&Report::Cold { pool });
                let id = scene.asked().await;
                scene.say(&Report::Warm { id });
            });
        again.expect("it runs again");
        let full = Error::new(Kind::Full, "upstream_queue_full", "");
        for error in [full, refused()] {
            let reason = error.reason;
            let again = reach_again(&mut entered, &mut exchange, error).await;
            assert_eq!(again.expect_err("no more").reason, reason);
        }
    });
}

#[test]
fn what_ran_for_long_is_not_asked_again_for_a_hand_over_of_before_or_a_pool_that_has_ended_since() {
    let closed = Error::new(Kind::UpstreamBroken, "upstream_closed", "");
    for is_before in [true, false] {
        test(async || {
            let (scene, mut exchange) = (Scene::of_php(), Scene::exchange());
            let serving = scene.fixture.worker.serving();
            let routed = scene.fixture.arrived(&serving).routed(&exchange.route);
            let chosen = routed.expect("a site").chosen(&exchange.route);
            let entered = scene
                .with_start(enter(chosen, &mut exchange, Some(0)))
                .await;
            let mut entered = entered.expect("it runs").expect("a pool");
            let pool = scene.pool().id.to_string();
            scene.say(&Report::HandedOver { pool: pool.clone() });
            while scene.pool().hand_overs() == 0 {
                yield_now().await;
            }
            match is_before {
                true => entered.hand_overs = 1,
                false => scene.say(&Report::Cold { pool }),
            }
            let ran = Duration::from_secs(3);
            let again = entered.again(&mut exchange, &closed, ran).await;
            assert!(!again.expect("no wait"), "{is_before}");
        });
    }
}
