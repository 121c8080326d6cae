//! What machines of a fleet say of themselves in the store, and what operators order there.

use std::cell::Cell;
use std::ops::Deref;

use directory::{FleetAsker, check_fleet};
use ipc::fleet::{
    DrainOrder, FleetSaid, FleetSettings, MACHINES_MAX, MachineReport, OrderOutcome,
    REPORT_BYTES_MAX,
};
use testkit::{RedisServer, a_redis};

use crate::asking::run;
use crate::fleet::settings;

const REPORTS: &str = "nagaya{f}:m";
const ORDERS: &str = "nagaya{f}:o";

/// A machine that obeys what it hears.
struct Machine {
    asker: FleetAsker,
    order: Cell<u64>,
}

impl Deref for Machine {
    type Target = FleetAsker;

    fn deref(&self) -> &FleetAsker {
        &self.asker
    }
}

impl Machine {
    fn new(settings: FleetSettings) -> Self {
        let (asker, order) = (FleetAsker::new(settings).unwrap(), Cell::default());
        Self { asker, order }
    }

    /// Says that it obeys this order; the order it hears, and whether there are several of its name.
    async fn say(&self, obeyed: u64) -> (u64, bool) {
        match self.asker.tell("{}", obeyed).await.unwrap().said {
            FleetSaid::Told {
                order,
                instead_of,
                has_namesake,
                ..
            } => {
                assert!(instead_of == 0 || instead_of == obeyed && order < obeyed);
                let is_instead = instead_of == self.order.get();
                self.order.set(self.order.get() * u64::from(!is_instead));
                (order, has_namesake)
            }
            said => panic!("{said:?}"),
        }
    }

    /// Says what it obeys, and obeys what it hears: whether it is drained then, and whether there are several of its name.
    async fn tell(&self) -> (bool, bool) {
        let (order, has_namesake) = self.say(self.order.get()).await;
        self.order.set(order.max(self.order.get()));
        (self.order.get() % 2 == 1, has_namesake)
    }

    async fn is_drained(&self) -> bool {
        self.tell().await.0
    }
}

fn machine(store: &RedisServer, number: usize) -> Machine {
    Machine::new(settings(store, number, None))
}

/// The machines that are listed, after an order.
async fn list(
    asker: &FleetAsker,
    order: Option<(&str, bool)>,
) -> Result<Vec<MachineReport>, String> {
    list_all(asker, order).await.map(|(machines, _)| machines)
}

/// And what became of the order.
async fn list_all(
    asker: &FleetAsker,
    order: Option<(&str, bool)>,
) -> Result<(Vec<MachineReport>, OrderOutcome), String> {
    let order = order.map(|(machine, is_drained)| DrainOrder {
        machine: machine.to_owned(),
        is_drained,
    });
    let mut machines = Vec::new();
    for answer in asker.list(7, order.as_ref()).await {
        assert_eq!(answer.seq, 7);
        match answer.said {
            FleetSaid::Machine(machine) => machines.push(machine),
            FleetSaid::Listed(listed) => return listed.map(|it| (machines, it)),
            said => panic!("{said:?}"),
        }
    }
    panic!("no end of {machines:?}");
}

#[test]
fn an_order_is_heard_kept_by_who_is_drained_and_holds_until_a_later_one() {
    let Some(store) = a_redis() else { return };
    run(async {
        let (web1, web2) = (machine(&store, 1), machine(&store, 2));
        assert!(list(&web2, None).await.unwrap().is_empty());
        for is_drained in [true, false] {
            let unknown = list_all(&web2, Some(("web1", is_drained))).await.unwrap();
            assert_eq!(unknown, (Vec::new(), OrderOutcome::Unknown));
        }
        assert!(!web1.is_drained().await);
        let listed = list(&web2, Some(("web1", true))).await.unwrap();
        assert_eq!(listed.len(), 1);
        let it = &listed[0];
        assert_eq!((it.machine.as_str(), it.report.as_str()), ("web1", "{}"));
        assert!(it.is_drained && !it.is_here && it.heard_ms.is_some());
        assert!(list(&web1, None).await.unwrap()[0].is_here);
        assert!(web1.is_drained().await);
        // It was started again, and has not heard of it yet.
        let drained = web1.order.take();
        assert!(web1.is_drained().await && web1.order.get() == drained);
        assert_eq!(store.command(&["FLUSHALL"]), "OK");
        assert!(web1.is_drained().await);
        assert!(list(&web2, None).await.unwrap()[0].is_drained);
        let undone = list(&web2, Some(("web1", false))).await.unwrap();
        assert!(!undone[0].is_drained);
        // What was said before and comes late changes nothing, also in a store that has lost it all.
        let serves = web1.say(0).await.0;
        assert!(serves > drained && serves % 2 == 0);
        for _ in 0..2 {
            assert_eq!(web1.say(drained).await.0, serves);
            assert!(!web1.is_drained().await);
            assert_eq!(web1.say(drained).await.0, serves);
            assert!(!list(&web2, None).await.unwrap()[0].is_drained);
            assert_eq!(store.command(&["FLUSHALL"]), "OK");
            assert!(!web1.is_drained().await);
        }
        assert_ne!(store.command(&["PTTL", REPORTS]), "-1");
        // Orders of one moment come one after the other.
        let mut before = serves;
        for is_drained in [true, false].repeat(20) {
            list(&web2, Some(("web1", is_drained))).await.unwrap();
            assert_eq!(web1.is_drained().await, is_drained);
            assert!(web1.order.get() > before);
            before = web1.order.get();
        }
        // So does one that was given where it stands, of which the store has not heard.
        list(&web2, Some(("web1", true))).await.unwrap();
        assert!(web1.is_drained().await);
        web1.order.set(web1.order.get() + 1);
        assert!(!web1.is_drained().await);
        assert!(!list(&web2, None).await.unwrap()[0].is_drained);
    });
}

#[test]
fn an_order_far_ahead_is_none_and_who_obeys_it_is_ordered_otherwise_again() {
    let Some(store) = a_redis() else { return };
    run(async {
        let (web1, web2) = (machine(&store, 1), machine(&store, 2));
        assert!(!web1.is_drained().await);
        for at in ["999999999999999", "9999999999999999", &*"9".repeat(400)] {
            let _ = store.command(&["HSET", ORDERS, "web1", &format!("1 {at}")]);
            assert!(!web1.is_drained().await);
            assert!(!list(&web2, None).await.unwrap()[0].is_drained);
        }
        // One of a clock that is ahead counts as given now, after what is known.
        let ahead = 999_999_999_999_999 * 2;
        list(&web2, Some(("web1", true))).await.unwrap();
        for obeyed in [ahead, ahead + 1] {
            web1.order.set(obeyed);
            for _ in 0..2 {
                assert_eq!(web1.is_drained().await, obeyed % 2 == 1);
                assert!(web1.order.get() < ahead / 2);
            }
        }
        assert!(list(&web2, None).await.unwrap()[0].is_drained);
        // One that is a little ahead stands, and the next comes after it.
        let little = web1.order.get() + 2 * 20 * 86_400_000;
        web1.order.set(little);
        assert!(web1.is_drained().await && web1.order.get() == little);
        list(&web2, Some(("web1", false))).await.unwrap();
        assert!(!web1.is_drained().await && web1.order.get() == little + 1);
        // One that ended a drain long ago is not kept anew.
        let old = (little / 2 - 60 * 86_400_000) * 2;
        assert_eq!(store.command(&["DEL", ORDERS]), "1");
        assert_eq!(web1.say(old).await.0, 0);
        assert_eq!(store.command(&["EXISTS", ORDERS]), "0");
    });
}

#[test]
fn what_others_have_written_is_bounded_and_no_machine() {
    let Some(store) = a_redis() else { return };
    let long = format!("9999999999999 1 0 {}", "x".repeat(REPORT_BYTES_MAX + 1));
    for (machine, value) in [
        ("web2", "no time"),
        ("web3", ""),
        ("web4", &long),
        ("a b", "9999999999999 1 0 {}"),
        ("x;y", "9999999999999 1 0 {}"),
        ("", "9999999999999 1 0 {}"),
        (&*"n".repeat(65), "9999999999999 1 0 {}"),
    ] {
        let _ = store.command(&["HSET", REPORTS, machine, value]);
    }
    run(async {
        let web1 = machine(&store, 1);
        assert!(!web1.is_drained().await);
        let names = |listed: Vec<MachineReport>| -> Vec<String> {
            listed.into_iter().map(|it| it.machine).collect()
        };
        assert_eq!(names(list(&web1, None).await.unwrap()), ["web1"]);
        for number in 0..MACHINES_MAX + 10 {
            let name = format!("made-up-{number}");
            let _ = store.command(&["HSET", REPORTS, &name, "9999999999999 1 0 {}"]);
        }
        assert!(list(&web1, None).await.unwrap().len() <= MACHINES_MAX);
    });
}

/// The machine of this number, run by that gateway.
fn gateway(store: &RedisServer, machine: usize, gateway: u64) -> FleetSettings {
    FleetSettings {
        gateway,
        ..settings(store, machine, None)
    }
}

/// Three gateways that say they are the same machine.
fn three(store: &RedisServer) -> [Machine; 3] {
    [7, 8, 9].map(|id| Machine::new(gateway(store, 1, id)))
}

#[test]
fn gateways_of_one_name_are_told_and_none_is_drained_but_one_may_follow_another() {
    let Some(store) = a_redis() else { return };
    run(async {
        let [first, second, third] = three(&store);
        for asker in [&first, &first, &second, &second, &third, &third] {
            assert_eq!(asker.tell().await, (false, false));
        }
        assert!(!list(&third, None).await.unwrap()[0].has_namesake);
        // One that was there before is there still.
        assert_eq!(second.tell().await, (false, true));
        assert_eq!(third.tell().await, (false, true));
        let (machines, outcome) = list_all(&third, Some(("web1", true))).await.unwrap();
        assert_eq!(outcome, OrderOutcome::Several);
        assert!(machines[0].has_namesake && !machines[0].is_drained);
        assert_eq!(third.tell().await, (false, true));
        let undone = list_all(&third, Some(("web1", false))).await.unwrap();
        assert_eq!(undone.1, OrderOutcome::Kept);
        assert_eq!(second.tell().await, (false, true));
    });
    let checked = check_fleet(gateway(&store, 1, 8)).unwrap();
    assert!(checked.has_namesake);
    assert!(!check_fleet(gateway(&store, 2, 8)).unwrap().has_namesake);
}

#[test]
fn three_gateways_of_one_name_that_take_turns_are_told() {
    let Some(store) = a_redis() else { return };
    run(async {
        let three = three(&store);
        for is_told in [false, true, true] {
            for (place, asker) in three.iter().enumerate() {
                assert_eq!(asker.tell().await, (false, is_told), "{place}");
            }
        }
    });
}

#[test]
fn a_drain_under_several_gateways_of_one_name_reaches_no_other_and_is_undone_for_all() {
    let Some(store) = a_redis() else { return };
    run(async {
        let [first, second, _] = three(&store);
        // It was drained while it was alone.
        assert!(!first.is_drained().await);
        let ordered = list_all(&first, Some(("web1", true))).await.unwrap();
        assert_eq!(ordered.1, OrderOutcome::Kept);
        assert_eq!(first.tell().await, (true, false));
        assert_eq!(second.tell().await, (true, false));
        assert_eq!(first.tell().await, (true, true));
        assert_eq!(second.tell().await, (true, true));
        let undone = list_all(&first, Some(("web1", false))).await.unwrap();
        assert_eq!(undone.1, OrderOutcome::Kept);
        for asker in [&first, &first, &second, &first] {
            assert_eq!(asker.tell().await, (false, true));
        }
        // One was drained where it stands while the store was away, which has come back empty.
        for order in [[&first, &second], [&second, &first]] {
            assert_eq!(store.command(&["FLUSHALL"]), "OK");
            let before = first.order.get();
            first.order.set(before + 2 + (before + 1) % 2);
            for _ in 0..3 {
                for asker in order {
                    let is_first = std::ptr::eq(asker, &first);
                    assert_eq!(asker.is_drained().await, is_first);
                }
            }
        }
        // Also by an order of a clock that is far ahead.
        first.order.set(999_999_999_999_999);
        for asker in [&first, &second, &first] {
            let is_first = std::ptr::eq(asker, &first);
            assert_eq!(asker.is_drained().await, is_first);
        }
    });
}

#[test]
fn an_order_of_who_is_drained_and_says_so_never_grows_old() {
    let Some(store) = a_redis() else { return };
    run(async {
        let web1 = machine(&store, 1);
        assert!(!web1.is_drained().await);
        list(&web1, Some(("web1", true))).await.unwrap();
        let given = || {
            let order = store.command(&["HGET", ORDERS, "web1"]);
            order.strip_prefix("1 ").unwrap().parse::<u64>().unwrap()
        };
        let now = given();
        for (days, is_kept_anew) in [(0, false), (2, true), (29, true)] {
            let at = now - days * 86_400_000;
            let _ = store.command(&["HSET", ORDERS, "web1", &format!("1 {at}")]);
            // Who has not heard of it yet leaves it as it is.
            assert_eq!(web1.say(0).await.0, at * 2 + 1);
            assert_eq!(given(), at);
            let order = web1.say(at * 2 + 1).await.0;
            assert_eq!(order, given() * 2 + 1);
            assert_eq!(given() >= now, is_kept_anew || days == 0, "{days}");
        }
    });
}

#[test]
fn orders_of_machines_that_never_come_back_vanish() {
    let Some(store) = a_redis() else { return };
    run(async {
        let (web1, web2) = (machine(&store, 1), machine(&store, 2));
        assert!(!web1.is_drained().await);
        for old in ["gone", "broken"] {
            let value = if old == "gone" { "1 1000" } else { "1" };
            let _ = store.command(&["HSET", ORDERS, old, value]);
        }
        let listed = list(&web2, Some(("web1", true))).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(store.command(&["HKEYS", ORDERS]), "web1");
        // As a whole they end when no order was given for as long.
        let ends_ms: i64 = store.command(&["PTTL", ORDERS]).parse().unwrap();
        assert!((1..=30 * 86_400_000).contains(&ends_ms), "{ends_ms}");
        // Whoever is drained and is there says so again.
        assert!(web1.is_drained().await);
        let _ = store.command(&["HSET", ORDERS, "web1", "1 1000"]);
        assert!(web1.is_drained().await);
        assert!(list(&web2, None).await.unwrap()[0].is_drained);
    });
}

#[test]
fn a_store_that_evicts_keys_says_so_and_one_that_says_nothing_is_no_error() {
    let policy = |memory: &str, policy: &str| {
        let words = ["--maxmemory", memory, "--maxmemory-policy", policy];
        RedisServer::start(&words)
    };
    for (memory, name, evicts) in [
        ("100mb", "allkeys-lru", true),
        ("100mb", "volatile-ttl", true),
        ("100mb", "noeviction", false),
        ("0", "allkeys-lru", false),
    ] {
        let Some(store) = policy(memory, name) else {
            return;
        };
        let checked = check_fleet(settings(&store, 1, None)).unwrap();
        assert_eq!(checked.evicts, Some(evicts), "{memory} {name}");
        run(async {
            let said = machine(&store, 1).asker.tell("{}", 0).await.unwrap().said;
            let is_told =
                matches!(said, FleetSaid::Told { is_evicting, .. } if is_evicting == evicts);
            assert!(is_told, "{said:?}");
        });
    }
}

#[test]
fn a_check_names_all_commands_that_the_account_lacks_and_leaves_nothing_behind() {
    let Some(store) = a_redis() else { return };
    let user = |rights: &[&str]| {
        let all = [
            "ACL",
            "SETUSER",
            "fleet",
            "reset",
            "on",
            ">secret",
            "~nagaya{f}:*",
        ];
        assert_eq!(store.command(&[&all[..], rights].concat()), "OK");
        let settings = FleetSettings {
            user: Some("fleet".to_owned()),
            ..settings(&store, 1, Some("secret"))
        };
        check_fleet(settings)
    };
    assert!(!user(&["+@all"]).unwrap().has_namesake);
    let told_no_more = user(&["+@all", "-info", "+info|server"]).unwrap();
    assert_eq!(told_no_more.evicts, None);
    assert_eq!(store.command(&["DBSIZE"]), "0");
    let lacking = user(&["+@all", "-hdel", "-ltrim", "-time", "-hget"]).unwrap_err();
    let named = "may not use HDEL, HGET, LTRIM, TIME:";
    assert!(lacking.contains(named), "{lacking}");
    for right in ["-blpop", "-evalsha", "-script", "-eval"] {
        let lacking = user(&["+@all", right]).unwrap_err();
        assert!(lacking.contains("forbids what is needed"), "{lacking}");
        assert!(lacking.contains(&right[1..]), "{lacking}");
        assert!(!lacking.contains("fleet check"), "{lacking}");
    }
    // What the guide lists is enough.
    let guide = include_str!("../../../docs/guide/fleet.md");
    let listed = guide.split("an account of its own needs ").nth(1).unwrap();
    let listed = listed
        .split('.')
        .next()
        .unwrap()
        .split('`')
        .skip(1)
        .step_by(2);
    let listed: Vec<String> = listed
        .map(|it| format!("+{}", it.to_lowercase().replace(' ', "|")))
        .collect();
    assert!(listed.len() > 15, "{listed:?}");
    let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
    assert!(user(&listed).is_ok(), "{listed:?}");
}

#[test]
fn each_command_of_a_script_is_tried() {
    let tried = include_str!("../src/fleet/check.lua");
    for script in [
        include_str!("../src/fleet/store.lua"),
        include_str!("../src/fleet/machines.lua"),
    ] {
        for call in script.split("redis.call('").skip(1) {
            let command = call.split('\'').next().unwrap();
            assert!(tried.contains(&format!("{{'{command}'")), "{command}");
        }
    }
}
