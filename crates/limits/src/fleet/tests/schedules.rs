//! Machines of a fleet under every schedule: what is claimed, let in and given to others at the same time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::fleet::{FleetRules, Holder, OnLoss, StoreModel};
use crate::interleave::{definition, run, seeds, turn_when};
use crate::{
    Admission, Ask, Definition, Keyed, Ledger, LimitId, TenantDefinition, TenantId, Time, Want,
};

const LIMIT: u32 = 2;
const LEASE: Duration = Duration::from_secs(5);
/// Looks at a ticket before its owner leaves.
const LOOKS_MAX: u32 = 30;

/// Two machines and their store.
struct Machines {
    machines: [(Ledger, LimitId, TenantId); 2],
    store: Mutex<StoreModel>,
    now: AtomicU64,
    in_flight: AtomicU32,
}

impl Machines {
    /// The first machine holds all permits, as it has needed them just now.
    fn new() -> Self {
        let machine = |seed| {
            let ledger = Ledger::new(2, [seed, 2, 3, 4]);
            ledger.join_fleet(Some(FleetRules {
                lease: LEASE,
                machines_min: 0,
            }));
            let limit = Definition {
                fleet: Some(OnLoss::Closed),
                ..definition("site", Keyed::Fixed, LIMIT, 8)
            };
            let tenant = TenantDefinition {
                name: "t".to_owned(),
                weight: 1,
                keys_max: 10,
            };
            let defined = ledger.define(Time(1), &[limit], &[tenant]);
            (ledger, defined.limits[0], defined.tenants[0])
        };
        let machines = Self {
            machines: [machine(1), machine(2)],
            store: Mutex::default(),
            now: AtomicU64::new(1_000_000_000),
            in_flight: AtomicU32::new(0),
        };
        let end = machines.time() + LEASE * 2;
        while machines.time() < end {
            machines.ask(0);
            machines.ask(1);
        }
        let tickets: Vec<_> = (0..LIMIT).map(|_| machines.admit(0, 0)).collect();
        machines.ask(0);
        machines.ask(0);
        drop(tickets);
        machines
    }

    fn time(&self) -> Time {
        Time(self.now.load(Ordering::SeqCst))
    }

    fn admit(&self, machine: usize, worker: usize) -> Admission {
        let (ledger, limit, tenant) = &self.machines[machine];
        let wants = [Want {
            limit: *limit,
            key: None,
        }];
        let ask = Ask {
            worker,
            tenant: *tenant,
            class: crate::Class::NONE,
            client: [127, 0, 0, 1].into(),
            wants: &wants,
        };
        ledger.admit(self.time(), &ask)
    }

    /// A machine asks the store what there is to be asked, a round later.
    fn ask(&self, machine: usize) {
        let now_ns = self.now.fetch_add(30_000_000, Ordering::SeqCst) + 30_000_000;
        let (now, (ledger, ..)) = (Time(now_ns), &self.machines[machine]);
        let holder = |at| Holder {
            machine: format!("web{at}"),
            run: 1,
        };
        let store = || self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = ledger.fleet_round(now) {
            let said = (call.seq, LEASE.as_millis() as u64);
            let reply = store().call(
                (1, now_ns / 1_000),
                &holder(machine),
                said,
                (&call.claims, &call.rates),
            );
            turn_when(|| true);
            ledger.hear_fleet(now, call.seq, reply.as_ref());
        }
        let called = store().listen(&holder(machine).machine);
        ledger.call_fleet(now, &called.unwrap_or_default());
    }

    fn request(&self, seed: u64, (machine, worker): (usize, usize), turns: u32) -> bool {
        let permit = match self.admit(machine, worker) {
            Admission::Admitted(permit) => Some(permit),
            Admission::Waiting(mut ticket) => (0..LOOKS_MAX)
                .find_map(|_| {
                    turn_when(|| true);
                    let mut context = Context::from_waker(Waker::noop());
                    match ticket.poll_wait(self.time(), &mut context) {
                        Poll::Ready(outcome) => Some(outcome.ok()),
                        Poll::Pending => None,
                    }
                })
                .flatten(),
            Admission::Refused(_) => None,
        };
        let is_admitted = permit.is_some();
        if is_admitted {
            let before = self.in_flight.fetch_add(1, Ordering::SeqCst);
            assert!(before < LIMIT, "seed {seed}: the fleet has {LIMIT} permits");
            // Long enough for the other machine to ask, and to let somebody in.
            (0..turns).for_each(|_| turn_when(|| true));
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
        is_admitted
    }
}

#[test]
fn no_schedule_of_claims_and_requests_lets_machines_exceed_a_limit_together() {
    let admitted = [const { AtomicU32::new(0) }; 2];
    for seed in 0..seeds() * 4 {
        let machines = Machines::new();
        run(seed, 6, |own, random| match own {
            0 | 1 => (0..12).for_each(|_| machines.ask(own)),
            _ => (0..4).for_each(|_| {
                (0..random.u32(0..60)).for_each(|_| turn_when(|| true));
                let is_admitted =
                    machines.request(seed, (own % 2, own / 2 - 1), random.u32(0..150));
                admitted[own % 2].fetch_add(is_admitted.into(), Ordering::SeqCst);
            }),
        });
    }
    let admitted = admitted.map(|it| it.load(Ordering::SeqCst));
    assert!(admitted.iter().all(|it| *it > 0), "{admitted:?}");
}
