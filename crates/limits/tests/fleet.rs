//! Limits that machines share, as their ledgers have them: the store is a model, and answers at once or not at all.

use std::time::Duration;

use limits::fleet::{FleetRules, FleetState, Holder, OnLoss, StoreModel};
use limits::{Admission, Definition, Mode, Permit, Ticket, Time, Why};

use crate::setting::{Setting, dynamic, fixed};

const LEASE: Duration = Duration::from_secs(5);

/// Machines with one limit each, and the store.
struct Machines {
    store: StoreModel,
    is_up: bool,
    machines: Vec<Setting>,
    now: Time,
}

impl Machines {
    fn new(count: usize, limit: &Definition) -> Self {
        let machines = (0..count).map(|_| {
            let mut machine = Setting::new(2, Vec::new());
            let lease = LEASE;
            let rules = FleetRules {
                lease,
                machines_min: 0,
            };
            machine.ledger.join_fleet(Some(rules));
            machine.define(vec![limit.clone()]);
            machine
        });
        let mut machines = Self {
            store: StoreModel::default(),
            is_up: true,
            machines: machines.collect(),
            now: Time(1_000_000_000),
        };
        machines.pass(LEASE + Duration::from_millis(500));
        machines
    }

    /// Lets time pass, in which all ask the store whatever they want to.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + Duration::from_millis(25);
            for (at, machine) in self.machines.iter_mut().enumerate() {
                machine.now = self.now;
                machine.ledger.tick(self.now);
                let Some(call) = machine.ledger.fleet_round(self.now) else {
                    continue;
                };
                let holder = Holder {
                    machine: format!("web{at}"),
                    run: 1,
                };
                let said = (call.seq, LEASE.as_millis() as u64);
                let now_ms = self.now.0 / 1_000_000;
                let reply = self
                    .is_up
                    .then(|| self.store.call((1, now_ms), &holder, said, &call.claims));
                machine
                    .ledger
                    .hear_fleet(self.now, call.seq, reply.flatten().as_ref());
            }
            for (at, machine) in self.machines.iter().enumerate() {
                while let Some(called) = self.store.listen(&format!("web{at}")) {
                    machine.ledger.call_fleet(self.now, &called);
                }
            }
        }
    }

    fn moment(&mut self) {
        self.pass(Duration::from_millis(100));
    }
}

fn leased(on_loss: OnLoss, queue: u32, limit: Definition) -> Definition {
    Definition {
        fleet: Some(on_loss),
        queue,
        wait: Duration::from_secs(10),
        ..limit
    }
}

fn granted(machine: &Setting, tickets: &mut [Ticket]) -> Vec<Permit> {
    let granted = tickets
        .iter_mut()
        .filter_map(|ticket| machine.poll(ticket)?.ok());
    granted.collect()
}

#[test]
fn a_permit_is_drawn_by_whoever_waits_and_lies_ready_afterwards() {
    for (limit, key) in [(fixed("site", 4), ""), (dynamic("file", 4), "/a")] {
        let mut all = Machines::new(2, &leased(OnLoss::Closed, 5, limit));
        let mut first = all.machines[0].waiting(0, &[key]);
        assert!(all.machines[0].ledger.take_draw() && !all.machines[0].ledger.take_draw());
        all.moment();
        drop(all.machines[0].granted(&mut first));
        // It is there for the next, for a while.
        drop(all.machines[0].admitted(1, &[key]));
        all.pass(Duration::from_secs(4));
        assert_eq!(all.store.keys(), 0, "nobody needs it any more");
        let _waits = all.machines[0].waiting(1, &[key]);
        assert_eq!(all.machines[0].ledger.drift(), 0);
    }
}

#[test]
fn machines_have_the_same_key_and_no_more_than_the_limit_together() {
    let mut all = Machines::new(2, &leased(OnLoss::Closed, 9, dynamic("file", 4)));
    let mut tickets = Vec::new();
    for at in [0, 0, 0, 0, 1, 1, 1] {
        tickets.push((at, all.machines[at].waiting(0, &["/a"])));
    }
    let mut held = Vec::new();
    for _ in 0..40 {
        all.moment();
        for (at, ticket) in &mut tickets {
            if let Some(Ok(permit)) = all.machines[*at].poll(ticket) {
                held.push(permit);
            }
        }
    }
    assert_eq!(held.len(), 4, "of seven");
    // Another key has permits of its own.
    let mut other = all.machines[1].waiting(0, &["/b"]);
    all.moment();
    drop(all.machines[1].granted(&mut other));
}

#[test]
fn who_has_waited_elsewhere_waits_for_the_store_without_a_queue() {
    let files = leased(OnLoss::Closed, 0, dynamic("file", 1));
    let mut all = Machines::new(2, &files);
    let site = Definition {
        queue: 5,
        wait: Duration::from_secs(10),
        ..fixed("site", 1)
    };
    all.machines[0].define(vec![site, files]);
    let mut before = all.machines[0].waiting(0, &["", "/y"]);
    all.moment();
    drop(all.machines[0].granted(&mut before));
    let mut first = all.machines[0].waiting(0, &["", "/x"]);
    all.moment();
    let first = all.machines[0].granted(&mut first);
    // The permit for it lies ready here, until another machine needs it.
    let mut guest = all.machines[0].waiting(0, &["", "/y"]);
    let mut theirs = all.machines[1].waiting(0, &["/y"]);
    for _ in 0..5 {
        all.moment();
    }
    let theirs = all.machines[1].granted(&mut theirs);
    drop(first);
    all.moment();
    assert!(all.machines[0].poll(&mut guest).is_none());
    drop(theirs);
    for _ in 0..5 {
        all.moment();
    }
    drop(all.machines[0].granted(&mut guest));
}

#[test]
fn nobody_is_taken_for_late_who_waits_for_what_the_store_has() {
    let limit = Definition {
        late: Some(Duration::from_secs(2)),
        ..leased(OnLoss::Closed, 200, fixed("site", 100))
    };
    let mut all = Machines::new(2, &limit);
    for _ in 0..5 {
        let mut one = all.machines[0].waiting(0, &[""]);
        all.moment();
        let permit = all.machines[0].granted(&mut one);
        all.pass(Duration::from_secs(2));
        drop(permit);
        all.pass(Duration::from_secs(3));
    }
    let mut burst: Vec<_> = (0..60).map(|_| all.machines[0].waiting(0, &[""])).collect();
    all.moment();
    all.moment();
    assert_eq!(granted(&all.machines[0], &mut burst).len(), 60);
}

#[test]
fn a_refusal_while_the_store_is_away_tells_what_the_limit_does_then() {
    for (on_loss, here) in [(OnLoss::Closed, 0), (OnLoss::Share, 2)] {
        let mut all = Machines::new(3, &leased(on_loss, 0, fixed("site", 6)));
        all.is_up = false;
        all.pass(LEASE * 2);
        let held: Vec<_> = (0..here)
            .map(|_| all.machines[0].admitted(0, &[""]))
            .collect();
        let refusal = all.machines[0].refused(0, &[""]);
        assert_eq!((refusal.in_flight, refusal.cap), (here, here));
        assert_eq!(refusal.away, Some(on_loss));
        let told = refusal.admits_if();
        assert!(told.starts_with("the fleet's store answers"), "{told}");
        drop(held);
    }
}

#[test]
fn without_a_queue_one_waits_for_the_store_alone_and_is_refused_for_what_others_hold() {
    let mut all = Machines::new(2, &leased(OnLoss::Closed, 0, fixed("site", 2)));
    let mut tickets = vec![
        all.machines[0].waiting(0, &[""]),
        all.machines[0].waiting(1, &[""]),
    ];
    all.moment();
    let held = granted(&all.machines[0], &mut tickets);
    assert_eq!(held.len(), 2);
    let mut third = all.machines[1].waiting(0, &[""]);
    all.moment();
    let refused = all.machines[1]
        .poll(&mut third)
        .expect("an end")
        .expect_err("none is left");
    assert_eq!(
        (refused.why, refused.in_flight, refused.cap),
        (Why::Full, 2, 2)
    );
    // And at once while that is known.
    let refused = all.machines[1].refused(0, &[""]);
    assert_eq!(refused.why, Why::Full);
    drop(held);
    all.pass(Duration::from_secs(2));
    let mut again = all.machines[1].waiting(0, &[""]);
    all.moment();
    drop(all.machines[1].granted(&mut again));
}

#[test]
fn in_shadow_everybody_passes_and_only_what_the_store_does_not_have_is_told() {
    let limit = Definition {
        mode: Mode::Shadow,
        ..leased(OnLoss::Closed, 0, dynamic("file", 2))
    };
    let mut all = Machines::new(2, &limit);
    let mut held = Vec::new();
    for at in [0, 0, 1] {
        let mut permit = all.machines[at].admitted(0, &["/a"]);
        assert!(permit.take_shadows().is_empty());
        held.push(permit);
        all.moment();
    }
    let mut fourth = all.machines[1].admitted(0, &["/a"]);
    assert_eq!(fourth.take_shadows().len(), 1);
}

#[test]
fn what_holds_while_the_store_is_away_is_what_the_limit_says() {
    for (on_loss, soon, later) in [
        (OnLoss::Closed, 0, 0),
        (OnLoss::Share, 0, 3),
        (OnLoss::Open, 6, 6),
    ] {
        let mut all = Machines::new(2, &leased(on_loss, 0, fixed("site", 6)));
        all.is_up = false;
        all.pass(LEASE);
        let state = all.machines[0].ledger.fleet_state(all.now);
        assert_eq!(state.map(|(state, _)| state), Some(FleetState::Lost));
        let admitted = |machine: &mut Setting| {
            let said: Vec<_> = (0..9).map(|_| machine.say(0, &[""])).collect();
            let held = said
                .iter()
                .filter(|it| matches!(it, Admission::Admitted(_)));
            held.count()
        };
        assert_eq!(admitted(&mut all.machines[0]), soon, "{on_loss:?}");
        all.pass(LEASE);
        assert_eq!(admitted(&mut all.machines[0]), later, "{on_loss:?}");
        all.is_up = true;
        all.pass(LEASE * 2);
        let mut back = all.machines[0].waiting(0, &[""]);
        all.moment();
        drop(all.machines[0].granted(&mut back));
    }
}

#[test]
fn a_machine_that_is_stopped_as_a_whole_lets_nobody_in_on_a_lease_that_is_over() {
    let mut all = Machines::new(1, &leased(OnLoss::Closed, 5, fixed("site", 4)));
    let mut ticket = all.machines[0].waiting(0, &[""]);
    all.moment();
    drop(all.machines[0].granted(&mut ticket));
    drop(all.machines[0].admitted(0, &[""]));
    // Nobody has looked at anything for that long.
    all.machines[0].now = all.machines[0].now + LEASE;
    let _waits = all.machines[0].waiting(0, &[""]);
}

#[test]
fn without_a_queue_nobody_is_refused_for_what_lies_idle_elsewhere() {
    let mut all = Machines::new(2, &leased(OnLoss::Closed, 0, dynamic("client", 4)));
    let mut first: Vec<_> = (0..3)
        .map(|_| all.machines[0].waiting(0, &["203.0.113.7"]))
        .collect();
    all.moment();
    assert_eq!(granted(&all.machines[0], &mut first).len(), 3);
    all.pass(Duration::from_millis(400));
    let mut second: Vec<_> = (0..3)
        .map(|_| all.machines[1].waiting(0, &["203.0.113.7"]))
        .collect();
    all.moment();
    assert_eq!(granted(&all.machines[1], &mut second).len(), 3);
}

#[test]
fn a_limit_that_leaves_the_fleet_and_comes_back_is_leased_anew() {
    let limit = leased(OnLoss::Closed, 5, dynamic("file", 4));
    let mut all = Machines::new(1, &limit);
    let mut ticket = all.machines[0].waiting(0, &["/a"]);
    all.moment();
    drop(all.machines[0].granted(&mut ticket));
    all.machines[0].ledger.join_fleet(None);
    assert!(all.machines[0].ledger.fleet_round(all.now).is_none());
    let alone = Definition {
        fleet: None,
        ..limit.clone()
    };
    all.machines[0].define(vec![alone]);
    drop(all.machines[0].admitted(0, &["/a"]));
    all.machines[0].ledger.join_fleet(Some(FleetRules {
        lease: LEASE,
        machines_min: 0,
    }));
    all.machines[0].define(vec![limit]);
    all.pass(LEASE * 2);
    let mut again = all.machines[0].waiting(0, &["/a"]);
    all.moment();
    drop(all.machines[0].granted(&mut again));
    assert_eq!(all.machines[0].ledger.drift(), 0);
}

#[test]
fn many_keys_that_wait_do_not_let_leases_of_others_end() {
    let mut all = Machines::new(1, &leased(OnLoss::Closed, 9_000, dynamic("client", 1)));
    let mut steady: Vec<_> = (0..8)
        .map(|at| all.machines[0].waiting(0, &[&format!("steady {at}")]))
        .collect();
    all.moment();
    let held = granted(&all.machines[0], &mut steady);
    assert_eq!(held.len(), 8);
    // Each of these has one in flight, and one that waits.
    let names: Vec<String> = (0..2_500).map(|at| format!("waits {at}")).collect();
    let mut crowd: Vec<_> = names
        .iter()
        .flat_map(|it| [it, it])
        .map(|it| all.machines[0].waiting(1, &[it]))
        .collect();
    all.pass(Duration::from_secs(1));
    let busy = granted(&all.machines[0], &mut crowd);
    assert_eq!(busy.len(), 2_500);
    all.pass(LEASE * 2);
    let look = all.machines[0].ledger.fleet_look(all.now).expect("a fleet");
    assert_eq!(look.leases[0].held, 2_508, "all leases are renewed in time");
    drop((held, busy));
}
