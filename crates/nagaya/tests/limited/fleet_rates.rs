//! A rate over three gateways and one real store, counted at the back end: a machine is killed, and the store goes and comes back empty.
//!
//! What is asserted is the bound, which holds however long this machine stands still: no more is on its way to the back end than
//! there are clients. How much of the rate comes about is told, and asserted of a second in which the processors were there.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Gateway, PATIENCE, RedisServer, eventually};

use crate::fixtures::fleet::{CONFIG, ask, back_end, kill, machine, three};

const RATE: usize = 1_000;
/// What may begin at once: a burst that is no less than what the rate brings between two draws, and what was drawn within a tenth of a
/// second.
const AT_ONCE: usize = 35 + 100;
/// Clients of each machine.
const CLIENTS: usize = 10;
/// How long who was refused stays away.
const REST: Duration = Duration::from_millis(8);

/// Three machines with their clients, the store and the back end.
struct Rates {
    store: RedisServer,
    gateways: Vec<Gateway>,
    came: Arc<Mutex<Vec<Instant>>>,
    ended: Arc<AtomicBool>,
}

impl Rates {
    fn start() -> Option<Self> {
        let store = RedisServer::start(&[])?;
        let came = Arc::<Mutex<Vec<Instant>>>::default();
        let seen = Arc::clone(&came);
        let upstream = back_end(move || seen.lock().unwrap().push(Instant::now()));
        let gateways = three(|number| {
            machine(CONFIG, store.address(), &format!("web{number}"))
                .with("lease", "2s")
                .with("limit", "rate = \"1000/s\", burst = 10")
                .with("handler", format!("proxy = \"http://{upstream}\""))
        });
        let ended = Arc::<AtomicBool>::default();
        for gateway in &gateways {
            for _ in 0..CLIENTS {
                let (address, ended) = (gateway.address(), Arc::clone(&ended));
                thread::spawn(move || {
                    let mut kept = None;
                    while !ended.load(SeqCst) {
                        if ask(&mut kept, address) != Some(200) {
                            thread::sleep(REST);
                        }
                    }
                });
            }
        }
        Some(Self {
            store,
            gateways,
            came,
            ended,
        })
    }

    fn count(&self) -> usize {
        self.came.lock().unwrap().len()
    }

    /// Waits until so much of the rate came about in a second.
    fn await_rate(&self, least: usize, what: &str) {
        let begun = Instant::now();
        eventually(PATIENCE, what, || {
            let before = self.count();
            thread::sleep(Duration::from_secs(1));
            (self.count() - before >= least).then_some(())
        });
        println!("{what}: after {:.1} s", begun.elapsed().as_secs_f64());
    }

    /// No stretch of time has more than the rate brings, and what may begin at once or was on its way.
    fn check(&self, what: &str) {
        let came = self.came.lock().unwrap().clone();
        let (mut level, mut most, mut before) = (0.0_f64, 0.0_f64, None);
        for at in &came {
            let since = before.map_or(0.0, |before| at.duration_since(before).as_secs_f64());
            level = (level - since * RATE as f64).max(0.0) + 1.0;
            (most, before) = (most.max(level), Some(*at));
        }
        println!("{what}: {most:.0} beyond what the rate brings, at most");
        let bound = (AT_ONCE + CLIENTS * self.gateways.len()) as f64;
        assert!(most <= bound, "{what}: {most} at once");
    }
}

impl Drop for Rates {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
    }
}

/// The most that came in any second.
fn most_in_a_second(came: &[Instant]) -> usize {
    let until = |at: Instant| came.partition_point(|it| *it < at + Duration::from_secs(1));
    let counts = came
        .iter()
        .enumerate()
        .map(|(first, at)| until(*at) - first);
    counts.max().unwrap_or(0)
}

#[test]
fn three_machines_let_in_no_more_than_a_rate_whatever_becomes_of_the_store() {
    let Some(mut fleet) = Rates::start() else {
        return;
    };
    fleet.await_rate(RATE * 7 / 10, "the rate is there");
    let from = fleet.count();
    let begun = Instant::now();
    thread::sleep(Duration::from_secs(5));
    let took = begun.elapsed().as_secs_f64();
    let came = fleet.came.lock().unwrap().get(from..).unwrap().to_vec();
    let (each_s, most) = (came.len() as f64 / took, most_in_a_second(&came));
    println!("{each_s:.0} a second, at most {most} in one");
    fleet.check("three machines");

    kill(&fleet.gateways[2]);
    fleet.await_rate(RATE * 7 / 10, "the others have all of it");
    fleet.store.stop();
    for gateway in &fleet.gateways[..2] {
        gateway.wait_for_message("nothing is to be had of the fleet's store");
    }
    // Each has a part, the machine that was killed too as long as it is remembered.
    fleet.await_rate(RATE / 3, "each has its part");
    fleet.check("without the store");
    fleet.store.restart();
    fleet.await_rate(RATE * 7 / 10, "the store is back");
    fleet.check("all of it");
}
