//! Real threads at one ledger: nothing is exceeded, nobody is forgotten, everything comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use limits::{
    Admission, Ask, Concurrent, Definition, Keyed, Ledger, LimitId, Outcome, Permit,
    TenantDefinition, TenantId, Ticket, Time, Used, Want,
};

const THREADS: usize = 4;
const FILES: usize = 3;
const FILE_CAP: u32 = 2;
const SITE_CAP: u32 = 9;
/// Far longer than anything here takes on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Wakes a thread, and counts.
struct Waking {
    thread: Thread,
    count: AtomicU64,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

struct Stage {
    ledger: Ledger,
    limits: Vec<LimitId>,
    tenant: TenantId,
    begun: Instant,
    files: [AtomicU32; FILES],
    site: AtomicU32,
    admitted: AtomicU64,
    waited: AtomicU64,
    refused: AtomicU64,
}

#[test]
fn four_threads_exceed_nothing_and_leave_nothing() {
    let requests = requests();
    let stage = Stage::new();
    // A quarter of the permits ends on another thread than the one that got them.
    let (give, take) = mpsc::sync_channel::<(usize, Permit)>(8);
    std::thread::scope(|scope| {
        for own in 0..THREADS {
            let (give, stage) = (give.clone(), &stage);
            scope.spawn(move || {
                let mut random = Rng::with_seed(own as u64);
                for _ in 0..requests {
                    stage.request(own % 2, &mut random, &give);
                }
            });
        }
        drop(give);
        let stage = &stage;
        scope.spawn(move || {
            for (file, permit) in take {
                stage.end(file, permit);
            }
        });
    });
    let sum = [&stage.admitted, &stage.refused].map(|count| count.load(Ordering::SeqCst));
    let waited = stage.waited.load(Ordering::SeqCst);
    assert!(sum[0] > 0 && waited > 0, "{sum:?} {waited}");
    assert_eq!(stage.ledger.drift(), 0);
    let looks = stage.ledger.look(stage.now(), None, 100);
    assert!(
        looks
            .iter()
            .all(|look| (look.in_flight, look.queued) == (0, 0)),
        "{looks:#?}"
    );
    let site = looks
        .iter()
        .find(|look| &*look.name == "site")
        .map(|look| look.admitted);
    assert!(site >= Some(sum[0]), "{site:?} {sum:?}");
}

impl Stage {
    fn new() -> Self {
        let ledger = Ledger::new(2, [1, 2, 3, 4]);
        let limits = [
            definition("file", Keyed::Dynamic, FILE_CAP),
            definition("site", Keyed::Fixed, SITE_CAP),
        ];
        let tenant = TenantDefinition {
            name: "example".to_owned(),
            weight: 1,
            keys_max: 100,
        };
        let defined = ledger.define(Time::ZERO, &limits, &[tenant]);
        Self {
            ledger,
            limits: defined.limits,
            tenant: defined.tenants[0],
            begun: Instant::now(),
            files: Default::default(),
            site: AtomicU32::new(0),
            admitted: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.begun.elapsed()
    }

    fn request(&self, worker: usize, random: &mut Rng, give: &mpsc::SyncSender<(usize, Permit)>) {
        let file = random.usize(..FILES);
        let name = [b'a' + file as u8];
        let wants = [(0, Some(&name[..])), (1, None)].map(|(at, key)| Want {
            limit: self.limits[at],
            key,
        });
        let ask = Ask::of(
            worker,
            self.tenant,
            [10, 0, random.u8(..4), 1].into(),
            &wants,
        );
        let permit = match self.ledger.admit(self.now(), &ask) {
            Admission::Admitted(permit) => permit,
            Admission::Waiting(ticket) => match self.wait(ticket, random) {
                Some(permit) => permit,
                None => return,
            },
            Admission::Refused(_) => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                return;
            }
        };
        self.begin(file);
        if random.u8(..4) == 0 {
            give.send((file, permit)).expect("somebody takes it");
        } else {
            std::thread::yield_now();
            self.end(file, permit);
        }
    }

    fn begin(&self, file: usize) {
        self.admitted.fetch_add(1, Ordering::SeqCst);
        let before = self.files[file].fetch_add(1, Ordering::SeqCst);
        assert!(before < FILE_CAP, "{before} before this one at file {file}");
        let before = self.site.fetch_add(1, Ordering::SeqCst);
        assert!(before < SITE_CAP, "{before} before this one at the site");
    }

    fn end(&self, file: usize, permit: Permit) {
        self.files[file].fetch_sub(1, Ordering::SeqCst);
        self.site.fetch_sub(1, Ordering::SeqCst);
        permit.end(self.now(), Used::Measured(1000), Outcome::Fine);
    }

    /// Sleeps until it is woken; now and then it gives up at once or after a while.
    fn wait(&self, mut ticket: Ticket, random: &mut Rng) -> Option<Permit> {
        let waking = Arc::new(Waking {
            thread: std::thread::current(),
            count: AtomicU64::new(0),
        });
        let waker = Waker::from(waking.clone());
        let aborts = random.u8(..5) == 0;
        let begun = Instant::now();
        loop {
            let polled = ticket.poll_wait(self.now(), &mut Context::from_waker(&waker));
            if let Poll::Ready(outcome) = polled {
                self.waited.fetch_add(1, Ordering::SeqCst);
                assert!(
                    waking.count.load(Ordering::SeqCst) <= 1,
                    "woken once at most"
                );
                return outcome.ok();
            }
            if aborts && random.bool() {
                return None;
            }
            assert!(begun.elapsed() < PATIENCE, "nobody was woken");
            std::thread::park_timeout(PATIENCE);
        }
    }
}

fn definition(name: &str, keyed: Keyed, concurrent: u32) -> Definition {
    Definition {
        keyed,
        concurrent: Some(Concurrent::Fixed(concurrent)),
        queue: 16,
        wait: PATIENCE,
        ..Definition::of(name)
    }
}

/// Requests of each thread.
fn requests() -> u64 {
    let events = std::env::var("NAGAYA_EVENTS").ok();
    events
        .and_then(|text| text.parse().ok())
        .map_or(2_000, |events: u64| events / 4)
}
