//! Limits that machines share, as their ledgers have them: the store is a model, and answers at once or not at all.

use std::task::Waker;
use std::time::Duration;

use limits::fleet::{FleetRules, FleetState, Holder, OnLoss, StoreModel};
use limits::{
    Admission, Definition, Mode, Permit, RateCheck, RateDefinition, RateTicket, Shared,
    TenantDefinition, Ticket, Time, Why,
};

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
        let machines = (0..count).map(|_| joined(limit));
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
                let now_us = self.now.0 / 1_000;
                let claims = (&*call.claims, &*call.rates);
                let reply = self
                    .is_up
                    .then(|| self.store.call((1, now_us), &holder, said, claims));
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

/// A machine that has just begun.
fn joined(limit: &Definition) -> Setting {
    let mut machine = Setting::new(2, Vec::new());
    let lease = LEASE;
    let rules = FleetRules {
        lease,
        machines_min: 0,
    };
    machine.ledger.join_fleet(Some(rules));
    machine.define(vec![limit.clone()]);
    machine
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

fn rated(on_loss: OnLoss, count: u32, burst: u32) -> Definition {
    let limit = dynamic("client", 1);
    Definition {
        fleet: Some(on_loss),
        concurrent: None,
        rate: Some(RateDefinition {
            count,
            per: Duration::from_secs(1),
            burst,
        }),
        ..limit
    }
}

/// What came of requests of a key at a machine, one after the other; some may wait.
fn begin(machine: &mut Setting, key: &str, requests: u32) -> (u32, u32, Vec<RateTicket>) {
    let (mut passed, mut refused, mut waiting) = (0, 0, Vec::new());
    for _ in 0..requests {
        match machine.check_shared(key, None) {
            RateCheck::Passed(_) => passed += 1,
            RateCheck::Refused(_) => refused += 1,
            RateCheck::Waiting(ticket) => waiting.push(ticket),
        }
    }
    (passed, refused, waiting)
}

/// How many of those who waited pass, and how many are refused.
fn end(machine: &mut Setting, key: &str, waiting: Vec<RateTicket>) -> (u32, u32) {
    let (mut passed, mut refused) = (0, 0);
    for mut ticket in waiting {
        let is_called = ticket.poll_answer(machine.now, Waker::noop()).is_ready();
        assert!(is_called, "it was heard");
        match machine.check_shared(key, Some(ticket)) {
            RateCheck::Passed(_) => passed += 1,
            RateCheck::Refused(refusal) => {
                assert_eq!(refusal.why, Why::Rate);
                refused += 1;
            }
            RateCheck::Waiting(_) => panic!("there is an answer"),
        }
    }
    (passed, refused)
}

#[test]
fn machines_count_one_burst_of_a_rate_together_and_say_when_there_is_more() {
    let mut all = Machines::new(2, &rated(OnLoss::Closed, 2, 3));
    all.pass(Duration::from_secs(2));
    let (passed, refused, waiting) = begin(&mut all.machines[0], "a", 2);
    assert_eq!((passed, refused, waiting.len()), (0, 0, 2));
    assert!(all.machines[0].ledger.take_draw());
    all.moment();
    assert_eq!(end(&mut all.machines[0], "a", waiting), (2, 0));
    // One is left of the burst, wherever the client goes.
    let (.., waiting) = begin(&mut all.machines[1], "a", 2);
    all.moment();
    assert_eq!(end(&mut all.machines[1], "a", waiting), (1, 1));
    let RateCheck::Refused(refusal) = all.machines[1].check_shared("a", None) else {
        panic!("there is no more");
    };
    let next = refusal.retry_after;
    assert!(
        next <= Duration::from_millis(500) && next > Duration::from_millis(200),
        "{next:?}"
    );
    assert_eq!(refusal.in_flight, 0);
    // Another key has a burst of its own, and the first one more in time.
    let (.., waiting) = begin(&mut all.machines[1], "b", 3);
    all.moment();
    assert_eq!(end(&mut all.machines[1], "b", waiting), (3, 0));
    all.pass(next);
    let (.., waiting) = begin(&mut all.machines[0], "a", 1);
    all.moment();
    assert_eq!(end(&mut all.machines[0], "a", waiting), (1, 0));
    assert_eq!(all.machines[0].ledger.drift(), 0);
}

#[test]
fn a_quick_rate_is_drawn_ahead_and_nobody_waits_for_what_lies_there() {
    let mut all = Machines::new(2, &rated(OnLoss::Closed, 1_000, 100));
    let mut waited = 0;
    for _ in 0..200 {
        let (.., waiting) = begin(&mut all.machines[0], "a", 10);
        waited += waiting.len();
        all.pass(Duration::from_millis(25));
        end(&mut all.machines[0], "a", waiting);
    }
    // Who comes first does, and what was drawn lasts afterwards.
    assert!(waited < 100, "{waited} of 2,000 waited");
    all.pass(Duration::from_secs(2));
    let (.., waiting) = begin(&mut all.machines[0], "a", 1);
    assert_eq!(waiting.len(), 1, "what is not used is lost");
}

#[test]
fn a_rate_is_shared_by_parts_while_the_store_is_away_and_without_a_burst_when_it_is_back() {
    for (on_loss, least, most) in [
        (OnLoss::Closed, 0, 0),
        (OnLoss::Share, 90, 101),
        (OnLoss::Open, 190, 201),
    ] {
        let mut all = Machines::new(2, &rated(on_loss, 20, 20));
        all.pass(LEASE);
        all.is_up = false;
        all.pass(LEASE);
        let mut passed = 0;
        for _ in 0..400 {
            passed += begin(&mut all.machines[0], "a", 2).0;
            all.pass(Duration::from_millis(25));
        }
        // Ten seconds, and what came together before anybody asked.
        let extra = if least > 0 { 20 } else { 0 };
        assert!(
            (least..=most + extra).contains(&passed),
            "{on_loss:?}: {passed}"
        );
        all.is_up = true;
        all.pass(LEASE + Duration::from_millis(500));
        let mut back = 0;
        for _ in 0..40 {
            let (passed, _, waiting) = begin(&mut all.machines[1], "a", 2);
            all.pass(Duration::from_millis(25));
            back += passed + end(&mut all.machines[1], "a", waiting).0;
        }
        // A second of the rate, and a little of before.
        assert!(
            (18..=34).contains(&back),
            "{on_loss:?}: {back} when it is back"
        );
    }
}

#[test]
fn a_machine_that_begins_refuses_nobody_before_it_has_asked() {
    let mut all = Machines::new(1, &rated(OnLoss::Closed, 1, 3));
    all.pass(Duration::from_secs(3));
    let mut machine = joined(&rated(OnLoss::Closed, 1, 3));
    machine.now = all.now;
    all.machines.push(machine);
    let (.., waiting) = begin(&mut all.machines[1], "a", 3);
    assert_eq!(waiting.len(), 3);
    all.moment();
    assert_eq!(end(&mut all.machines[1], "a", waiting), (3, 0));
}

#[test]
fn an_answer_that_is_lost_takes_no_burst_of_which_nothing_was_used() {
    let mut all = Machines::new(2, &rated(OnLoss::Share, 1, 5));
    all.pass(Duration::from_secs(5));
    let (.., waiting) = begin(&mut all.machines[0], "a", 1);
    all.moment();
    assert_eq!(end(&mut all.machines[0], "a", waiting), (1, 0));
    all.is_up = false;
    // It is asked once a fifth of a lease.
    all.pass(LEASE / 4);
    let (passed, ..) = begin(&mut all.machines[0], "a", 2);
    assert_eq!(passed, 0, "its part begins without a burst");
    all.is_up = true;
    all.pass(LEASE / 4);
    let (.., waiting) = begin(&mut all.machines[0], "a", 1);
    all.moment();
    assert_eq!(end(&mut all.machines[0], "a", waiting), (1, 0));
    let (.., waiting) = begin(&mut all.machines[1], "a", 5);
    all.moment();
    assert!(end(&mut all.machines[1], "a", waiting).0 >= 4);
}

#[test]
fn a_rate_in_shadow_lets_everybody_pass_and_tells_what_the_store_does_not_have() {
    let limit = Definition {
        mode: Mode::Shadow,
        ..rated(OnLoss::Closed, 1, 2)
    };
    let mut all = Machines::new(2, &limit);
    all.pass(Duration::from_secs(3));
    let mut told = 0;
    for _ in 0..4 {
        let RateCheck::Passed(shadows) = all.machines[0].check_shared("a", None) else {
            panic!("in shadow");
        };
        told += shadows.len();
        all.moment();
    }
    assert_eq!(
        told, 1,
        "the third was drawn in vain, and the fourth is told"
    );
}

#[test]
fn who_does_not_wait_for_an_answer_any_more_leaves_nothing_behind() {
    let mut all = Machines::new(1, &rated(OnLoss::Closed, 1, 1));
    all.pass(Duration::from_secs(2));
    let (.., waiting) = begin(&mut all.machines[0], "a", 5);
    drop(waiting);
    all.pass(Duration::from_secs(4));
    let look = all.machines[0].ledger.look(all.now, None, 10);
    assert!(look.iter().all(|it| it.queued == 0), "{look:?}");
    // Nobody answers, and nobody waits for longer than a second.
    all.is_up = false;
    let (.., mut waiting) = begin(&mut all.machines[0], "a", 1);
    all.machines[0].now = waiting[0].deadline();
    let ticket = waiting.pop();
    assert!(matches!(
        all.machines[0].check_shared("a", ticket),
        RateCheck::Refused(_)
    ));
}

#[test]
fn a_rate_without_a_store_is_counted_by_the_machine() {
    let mut alone = Setting::new(1, vec![rated(OnLoss::Closed, 1, 3)]);
    alone.now = Time(1_000_000_000);
    assert_eq!(begin(&mut alone, "a", 5).0, 3);
}

#[test]
fn ten_tenants_unevenly_spread_over_three_machines_have_equal_parts_of_a_limit() {
    const PERMITS: u32 = 30;
    let limit = Definition {
        shared: Shared::Tenants,
        ..leased(OnLoss::Closed, 500, fixed("process", PERMITS))
    };
    let mut all = Machines::new(3, &limit);
    let tenants = (0..10).map(|at| TenantDefinition {
        name: format!("tenant {at}"),
        weight: 1,
        keys_max: 10,
    });
    let tenants: Vec<_> = tenants.collect();
    // Six on the first, three on the second, one on the third.
    let of = |tenant: usize| usize::from(tenant > 5) + usize::from(tenant > 8);
    let machines = all.machines.iter();
    let ids: Vec<_> = machines
        .map(|it| it.ledger.define(it.now, &it.definitions, &tenants).tenants)
        .collect();
    let mut waiting: Vec<Vec<Ticket>> = (0..10).map(|_| Vec::new()).collect();
    let mut held: Vec<(Time, Permit)> = Vec::new();
    let mut served = [0_u32; 10];
    for step in 0..1_400 {
        for tenant in 0..10 {
            let machine = &mut all.machines[of(tenant)];
            machine.tenant = ids[of(tenant)][tenant];
            while waiting[tenant].len() < 9 {
                match machine.say(0, &[""]) {
                    Admission::Waiting(ticket) => waiting[tenant].push(ticket),
                    Admission::Admitted(permit) => {
                        held.push((all.now + Duration::from_millis(200), permit));
                    }
                    Admission::Refused(refusal) => panic!("{refusal:?}"),
                }
            }
        }
        all.pass(Duration::from_millis(25));
        held.retain(|(end, _)| *end > all.now);
        for tenant in 0..10 {
            let machine = &all.machines[of(tenant)];
            let now_ns = all.now.0;
            let mut began = |ticket: &mut Ticket| {
                let permit = machine.poll(ticket)?.expect("nobody is refused");
                // Not all end at once.
                let end = Duration::from_millis(150 + now_ns / 25_000_000 * 7 % 100);
                held.push((all.now + end, permit));
                served[tenant] += u32::from(step >= 200);
                Some(())
            };
            waiting[tenant].retain_mut(|ticket| began(ticket).is_none());
        }
        assert!(held.len() <= PERMITS as usize);
    }
    let sum: f64 = served.iter().map(|it| f64::from(*it)).sum();
    let squares: f64 = served.iter().map(|it| f64::from(*it).powi(2)).sum();
    let jain = sum * sum / (10.0 * squares);
    println!("{served:?}: Jain {jain:.4}");
    assert!(jain >= 0.95, "{served:?}: {jain:.3}");
    assert!(sum > 0.85 * 30.0 / 0.225 * 30.0, "{sum} were served");
}
