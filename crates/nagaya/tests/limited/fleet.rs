//! Limits that hold over several machines: three gateways, one real store, and what is in flight counted at the back end.
//!
//! What is asserted is the bound, and that nobody is refused. How much of the limit is used, and how soon, is told:
//! other tests may have the processors. Where this machine stood still, which is what the guide names, the bound is not
//! asserted either.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Gateway, PATIENCE, RedisServer, eventually};

use crate::fixtures::fleet::{CONFIG, ask, back_end, calls, kill, machine, three};

const LIMIT: u32 = 100;
const LEASE: Duration = Duration::from_secs(5);
/// How long the back end takes.
const SERVICE: Duration = Duration::from_millis(200);
/// Clients of each machine.
const CLIENTS: u32 = 150;
/// How long a thread may be kept from a processor.
const GAP_MAX: Duration = Duration::from_millis(250);
const TICK: Duration = Duration::from_millis(10);

/// A back end that counts what it has in flight.
#[derive(Default)]
struct Counted {
    now: AtomicU32,
    most: AtomicU32,
    served: AtomicU64,
    /// When there was too much.
    above: Mutex<Vec<Instant>>,
    /// When this machine stood still, and until when that may be felt.
    gaps: Mutex<Vec<(Instant, Instant)>>,
    ticked: AtomicU64,
}

impl Counted {
    fn start() -> (Arc<Self>, SocketAddr) {
        let counted = Arc::<Self>::default();
        let ours = Arc::clone(&counted);
        thread::spawn(move || ours.watch());
        let ours = Arc::clone(&counted);
        (counted, back_end(move || ours.serve()))
    }

    /// Sees when threads are kept from processors.
    fn watch(&self) {
        let mut before = Instant::now();
        loop {
            thread::sleep(TICK);
            let now = Instant::now();
            if now - before > GAP_MAX {
                self.gaps.lock().unwrap().push((before, now + LEASE * 2));
            }
            before = now;
            self.ticked.fetch_add(1, SeqCst);
        }
    }

    fn serve(&self) {
        let now = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
        if now > LIMIT {
            self.above.lock().unwrap().push(Instant::now());
        }
        thread::sleep(SERVICE);
        self.now.fetch_sub(1, SeqCst);
        self.served.fetch_add(1, SeqCst);
    }

    /// The share of the limit that was used while `during` went on, and how many were served.
    fn used(&self, during: impl FnOnce()) -> (f64, u64) {
        let (begun, before) = (Instant::now(), self.served.load(SeqCst));
        during();
        let served = self.served.load(SeqCst) - before;
        let could = begun.elapsed().as_secs_f64() / SERVICE.as_secs_f64() * f64::from(LIMIT);
        (served as f64 / could, served)
    }

    fn check(&self, what: &str) {
        // A gap is known when it is over.
        let ticked = self.ticked.load(SeqCst);
        eventually(PATIENCE, "the watch", || {
            (self.ticked.load(SeqCst) > ticked + 1).then_some(())
        });
        let (most, gaps) = (self.most.load(SeqCst), self.gaps.lock().unwrap());
        let is_felt = |at: &Instant| gaps.iter().any(|(from, to)| at >= from && at <= to);
        let above = self.above.lock().unwrap();
        let count = above.iter().filter(|at| !is_felt(at)).count();
        assert!(
            count == 0,
            "{what}: {most} in flight at once, of {LIMIT}, {count} times above"
        );
    }
}

/// Clients of a gateway that ask one thing after another, while they are wanted.
#[derive(Default)]
struct Crowd {
    /// How many are wanted.
    wanted: Mutex<u32>,
    changed: Condvar,
    ended: AtomicBool,
    served: AtomicU64,
    refused: AtomicU64,
    /// Clients that wait for a reply.
    busy: AtomicU32,
}

impl Crowd {
    fn start(address: SocketAddr) -> Arc<Self> {
        let crowd = Arc::<Self>::default();
        for client in 0..CLIENTS {
            let crowd = Arc::clone(&crowd);
            thread::spawn(move || crowd.ask(client, address));
        }
        crowd
    }

    fn ask(&self, client: u32, address: SocketAddr) {
        let mut stream = None;
        loop {
            let rests = |wanted: &mut u32| client >= *wanted && !self.ended.load(SeqCst);
            drop(self.changed.wait_while(self.wanted.lock().unwrap(), rests));
            if self.ended.load(SeqCst) {
                return;
            }
            self.busy.fetch_add(1, SeqCst);
            let status = ask(&mut stream, address);
            self.busy.fetch_sub(1, SeqCst);
            match status {
                Some(200) => {
                    self.served.fetch_add(1, SeqCst);
                    continue;
                }
                Some(_) => self.refused.fetch_add(1, SeqCst),
                // The gateway has gone.
                None => 0,
            };
            thread::sleep(TICK);
        }
    }

    fn want(&self, clients: u32) {
        *self.wanted.lock().unwrap() = clients;
        self.changed.notify_all();
    }

    /// Whether nobody asks who is not wanted.
    fn is_gone(&self) -> bool {
        *self.wanted.lock().unwrap() > 0 || self.busy.load(SeqCst) == 0
    }
}

/// Three machines with their clients, and the store.
struct Fleet {
    store: RedisServer,
    counted: Arc<Counted>,
    gateways: Vec<Gateway>,
    crowds: Vec<Arc<Crowd>>,
}

impl Fleet {
    fn start(on_loss: &str) -> Option<Self> {
        Self::start_by(on_loss, |store, _| store)
    }

    /// Each machine reaches the store by a way of its own.
    fn start_by(on_loss: &str, way: impl Fn(SocketAddr, usize) -> SocketAddr) -> Option<Self> {
        let store = RedisServer::start(&[])?;
        let (counted, upstream) = Counted::start();
        let limit = "concurrent = 100, queue = 500, wait = \"100s\", on_loss";
        let gateways = three(|number| {
            machine(
                CONFIG,
                way(store.address(), number),
                &format!("web{number}"),
            )
            .with("lease", "5s")
            .with("limit", format!("{limit} = \"{on_loss}\""))
            .with("handler", format!("proxy = \"http://{upstream}\""))
        });
        let crowds = gateways.iter().map(|it| Crowd::start(it.address()));
        Some(Self {
            crowds: crowds.collect(),
            store,
            counted,
            gateways,
        })
    }

    /// Has these ask, and nobody else.
    fn want(&self, machines: &[usize]) {
        for (at, crowd) in self.crowds.iter().enumerate() {
            crowd.want(if machines.contains(&at) { CLIENTS } else { 0 });
        }
    }

    /// Has a few of each machine ask, so that there is enough for all.
    fn want_few(&self) {
        self.crowds.iter().for_each(|crowd| crowd.want(LIMIT / 5));
    }

    /// How often the store was asked or listened to.
    fn asked(&self) -> u64 {
        calls(&self.store, "evalsha") + calls(&self.store, "blpop")
    }

    /// Waits until most of the limit, more than machines have that share it, is in flight of those who are wanted, and all
    /// before has ended: on a busy machine some of it is always between a gateway and the back end.
    fn await_whole(&self, deadline: Duration, what: &str) {
        let begun = Instant::now();
        eventually(deadline, what, || {
            let is_whole = self.counted.now.load(SeqCst) >= LIMIT * 7 / 10;
            let is_new = begun.elapsed() > 3 * SERVICE && self.crowds.iter().all(|it| it.is_gone());
            (is_whole && is_new).then_some(())
        });
        self.counted.check(what);
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for crowd in &self.crowds {
            crowd.ended.store(true, SeqCst);
            crowd.want(0);
        }
    }
}

fn lasting(time: Duration) -> impl Iterator<Item = Duration> {
    let begun = Instant::now();
    std::iter::from_fn(move || {
        thread::sleep(Duration::from_millis(20));
        Some(begun.elapsed()).filter(|passed| *passed < time)
    })
}

#[test]
fn demand_that_moves_among_machines_uses_the_limit_and_never_more() {
    let Some(fleet) = Fleet::start("share") else {
        return;
    };
    fleet.want(&[0]);
    fleet.await_whole(PATIENCE, "one machine has all");
    let (used, _) = fleet.counted.used(|| {
        for turn in 0..9 {
            fleet.want(&[turn % 3]);
            lasting(Duration::from_secs(1)).for_each(drop);
        }
    });
    println!("used {used:.3} of the limit while demand moved each second");
    let (shared, _) = fleet.counted.used(|| {
        fleet.want(&[0, 1, 2]);
        lasting(Duration::from_secs(3)).for_each(drop);
    });
    println!("used {shared:.3} while all competed");
    let asked = fleet.asked();
    let (_, served) = fleet.counted.used(|| {
        fleet.want_few();
        lasting(Duration::from_secs(6)).for_each(drop);
    });
    let asked = fleet.asked() - asked;
    println!("{asked} operations of the store for {served} requests at a steady load");
    fleet.counted.check("demand moves");
    let refused: u64 = fleet.crowds.iter().map(|it| it.refused.load(SeqCst)).sum();
    assert_eq!(refused, 0);
}

#[test]
fn a_store_that_is_killed_and_comes_back_empty_never_lets_more_in() {
    let Some(mut fleet) = Fleet::start("share") else {
        return;
    };
    fleet.want(&[0, 1, 2]);
    fleet.await_whole(PATIENCE, "three machines compete");
    // Until then one that has just come has no share.
    lasting(LEASE / 2).for_each(drop);
    fleet.store.stop();
    for gateway in &fleet.gateways {
        gateway.wait_for_message("nothing is to be had of the fleet's store");
    }
    fleet.counted.check("the store has gone");
    // Each has its part, which is the whole limit.
    let (used, _) = fleet.counted.used(|| lasting(LEASE * 2).for_each(drop));
    println!("used {used:.3} without the store");
    fleet.store.restart();
    fleet.want(&[1]);
    let begun = Instant::now();
    fleet.await_whole(PATIENCE, "one machine has all when the store is back");
    println!(
        "whole again {:.1} s after the store was back, empty",
        begun.elapsed().as_secs_f64()
    );
    // One that comes back at once.
    fleet.want(&[0, 1, 2]);
    fleet.store.restart();
    lasting(LEASE * 2).for_each(drop);
    fleet.await_whole(PATIENCE, "three machines after a restart");
    // One that stands still for longer than a lease.
    fleet.store.pause();
    lasting(LEASE * 2).for_each(drop);
    fleet.store.resume();
    lasting(LEASE).for_each(drop);
    fleet.await_whole(PATIENCE, "three machines after a stall");
    let refused: u64 = fleet.crowds.iter().map(|it| it.refused.load(SeqCst)).sum();
    assert_eq!(refused, 0);
}

#[test]
fn what_a_lost_machine_held_is_free_after_a_lease() {
    let Some(fleet) = Fleet::start("closed") else {
        return;
    };
    fleet.want(&[0]);
    fleet.await_whole(PATIENCE, "one machine has all");
    kill(&fleet.gateways[0]);
    let begun = Instant::now();
    fleet.want(&[1, 2]);
    fleet.await_whole(PATIENCE, "the others have all");
    println!(
        "free again {:.1} s after the machine was killed",
        begun.elapsed().as_secs_f64()
    );
    fleet.counted.check("a machine was killed");
}

/// A way to a store, by which nothing may get through for a while.
#[derive(Default)]
struct Way {
    mode: AtomicU8,
}

/// What becomes of what goes by a [`Way`].
const PASSES: u8 = 0;
/// It arrives later than a lease is long.
const LATE: u8 = 1;
/// Connections are closed, old and new.
const CUT: u8 = 2;
/// It does not arrive, and nobody hears of it.
const STALLED: u8 = 3;

impl Way {
    fn to(self: &Arc<Self>, store: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::clone(self);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(store) else {
                    continue;
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let way = Arc::clone(&way);
                    thread::spawn(move || way.carry(from, to));
                }
            }
        });
        address
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 16_384];
        from.set_read_timeout(Some(TICK)).unwrap();
        loop {
            let read = match from.read(&mut bytes) {
                Ok(read @ 1..) => read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
                _ => break,
            };
            let begun = Instant::now();
            while self.mode.load(SeqCst) == STALLED
                || (self.mode.load(SeqCst) == LATE && read > 0 && begun.elapsed() < LEASE * 2)
            {
                thread::sleep(TICK);
            }
            if self.mode.load(SeqCst) == CUT || to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

#[test]
fn a_way_to_the_store_that_is_late_cut_or_stalled_lets_nobody_in_beyond_the_limit() {
    let way = Arc::<Way>::default();
    let by = |store, machine| match machine {
        1 => way.to(store),
        _ => store,
    };
    let Some(fleet) = Fleet::start_by("closed", by) else {
        return;
    };
    for (mode, what) in [(LATE, "late"), (CUT, "cut"), (STALLED, "stalled")] {
        fleet.want(&[0]);
        fleet.await_whole(PATIENCE, "the machine has all");
        way.mode.store(mode, SeqCst);
        // What it held is the others' when its lease is over; its own clients wait.
        fleet.want(&[0, 1, 2]);
        lasting(LEASE).for_each(drop);
        let served_by = |crowd: &Arc<Crowd>| crowd.served.load(SeqCst);
        let before: Vec<u64> = fleet.crowds.iter().map(served_by).collect();
        eventually(PATIENCE, what, || {
            let served = fleet.crowds.iter().zip(&before).skip(1);
            let served: u64 = served
                .map(|(crowd, before)| served_by(crowd) - before)
                .sum();
            (served > u64::from(LIMIT) * 5).then_some(())
        });
        let let_in = served_by(&fleet.crowds[0]) - before[0];
        assert!(
            let_in <= u64::from(LIMIT),
            "{what}: {let_in} beside those that were in flight"
        );
        fleet.counted.check(what);
        way.mode.store(PASSES, SeqCst);
        fleet.want(&[0]);
        let begun = Instant::now();
        fleet.await_whole(PATIENCE, "it has all again");
        println!(
            "{what}: whole again after {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    }
}
