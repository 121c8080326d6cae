//! What machines of a fleet say of themselves in the store, and what operators order there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use directory::FleetAsker;
use ipc::fleet::{DrainOrder, FleetSaid, MACHINES_MAX, MachineReport, REPORT_BYTES_MAX};
use testkit::RedisServer;

use crate::asking::run;
use crate::fleet::settings;

const REPORTS: &str = "nagaya{f}:m";
const ORDERS: &str = "nagaya{f}:o";

fn asker(store: &RedisServer, machine: usize) -> FleetAsker {
    FleetAsker::new(settings(store, machine, None)).unwrap()
}

async fn tell(asker: &FleetAsker, report: &str, is_drained: bool) -> bool {
    let answer = asker.tell(report, is_drained).await.unwrap();
    match answer.said {
        FleetSaid::Drain(is_drained) => is_drained,
        said => panic!("{said:?}"),
    }
}

/// The machines that are listed, after an order.
async fn list(
    asker: &FleetAsker,
    order: Option<(&str, bool)>,
) -> Result<Vec<MachineReport>, String> {
    let order = order.map(|(machine, is_drained)| DrainOrder {
        machine: machine.to_owned(),
        is_drained,
    });
    let mut machines = Vec::new();
    for answer in asker.list(7, order.as_ref()).await {
        assert_eq!(answer.seq, 7);
        match answer.said {
            FleetSaid::Machine(machine) => machines.push(machine),
            FleetSaid::Listed(listed) => return listed.map(|()| machines),
            said => panic!("{said:?}"),
        }
    }
    panic!("no end of {machines:?}");
}

#[test]
fn an_order_is_heard_kept_by_who_is_drained_and_forgotten_when_it_is_over() {
    let Some(store) = RedisServer::start(&[]) else {
        return;
    };
    run(async {
        let (web1, web2) = (asker(&store, 1), asker(&store, 2));
        assert!(list(&web2, None).await.unwrap().is_empty());
        let unknown = list(&web2, Some(("web1", true))).await;
        assert!(unknown.unwrap_err().contains("`web1`"));
        assert!(!tell(&web1, "{}", false).await);
        let listed = list(&web2, Some(("web1", true))).await.unwrap();
        assert_eq!(listed.len(), 1);
        let it = &listed[0];
        assert_eq!((it.machine.as_str(), it.report.as_str()), ("web1", "{}"));
        assert!(it.is_drained && !it.is_here && it.heard_ms.is_some());
        assert!(list(&web1, None).await.unwrap()[0].is_here);
        // It was started again, and has not heard of it yet.
        assert!(tell(&web1, "{}", false).await);
        assert_eq!(store.command(&["FLUSHALL"]), "OK");
        assert!(tell(&web1, "{}", true).await);
        assert!(list(&web2, None).await.unwrap()[0].is_drained);
        let undone = list(&web2, Some(("web1", false))).await.unwrap();
        assert!(!undone[0].is_drained);
        // An answer that is lost changes nothing.
        assert!(!tell(&web1, "{}", true).await);
        assert!(!tell(&web1, "{}", true).await);
        assert_eq!(store.command(&["HGET", ORDERS, "web1"]), "0");
        assert!(!tell(&web1, "{}", false).await);
        assert_eq!(store.command(&["EXISTS", ORDERS]), "0");
        assert_ne!(store.command(&["PTTL", REPORTS]), "-1");
    });
}

#[test]
fn what_others_have_written_is_bounded_and_no_machine() {
    let Some(store) = RedisServer::start(&[]) else {
        return;
    };
    let long = format!("1 {}", "x".repeat(REPORT_BYTES_MAX + 1));
    for (machine, value) in [
        ("web2", "no time"),
        ("web3", ""),
        ("web4", &long),
        ("a b", "9999999999999 {}"),
        ("x;y", "9999999999999 {}"),
        ("", "9999999999999 {}"),
        (&*"n".repeat(65), "9999999999999 {}"),
    ] {
        let _ = store.command(&["HSET", REPORTS, machine, value]);
    }
    run(async {
        let web1 = asker(&store, 1);
        assert!(!tell(&web1, "{}", false).await);
        let names = |listed: Vec<MachineReport>| -> Vec<String> {
            listed.into_iter().map(|it| it.machine).collect()
        };
        assert_eq!(names(list(&web1, None).await.unwrap()), ["web1"]);
        for number in 0..MACHINES_MAX + 10 {
            let name = format!("made-up-{number}");
            let _ = store.command(&["HSET", REPORTS, &name, "9999999999999 {}"]);
        }
        assert!(list(&web1, None).await.unwrap().len() <= MACHINES_MAX);
    });
}
