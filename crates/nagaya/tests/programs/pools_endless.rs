//! Pages that never end: what becomes of them, and what is told of them meanwhile and afterwards.

use std::time::{Duration, Instant};

use testkit::client::{Body, reply};
use testkit::processes::children;
use testkit::{PATIENCE, eventually};

use crate::fixtures::limited;
use crate::fixtures::pools::{Bed, WHO, Wish, bed, request, runs};

/// A page that tells that it has begun, and never ends.
const LOOP: &str = "<?php file_put_contents(__DIR__ . '/begun', 'x', FILE_APPEND); while (true) ;";

/// A bed with such a page, and two processes, which have two seconds for a page.
fn endless() -> Option<Bed> {
    let files = [
        ("app/index.php", WHO),
        ("app/loop.php", LOOP),
        ("app/crash.php", "<?php posix_kill(getmypid(), 9);"),
    ];
    bed(&Wish {
        pool: ", processes = 2, time = \"2s\"",
        files: &files,
        ..Wish::default()
    })
}

/// How often the page has begun.
fn begun(bed: &Bed) -> usize {
    let marks = std::fs::read(bed.site.path().join("app/begun"));
    marks.map_or(0, |marks| marks.len())
}

#[test]
fn a_page_without_end_is_killed_in_its_time_and_others_are_answered() {
    let Some(bed) = endless() else { return };
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    client.send(&request("app.test", "/loop.php"));
    let before = bed.who();
    let answer = reply(client.read_reply(Body::Framed));
    assert_eq!(answer.status, 504, "{}", answer.text());
    // One that nobody waits for ends all the same.
    let mut left = bed.gateway.client();
    left.send(&request("app.test", "/loop.php"));
    let loops = || {
        let children = children(before.master).into_iter();
        children
            .filter(|pid| *pid != before.child && runs(*pid))
            .count()
    };
    eventually(PATIENCE, "the loop", || (loops() == 1).then_some(()));
    drop(left);
    assert_eq!(bed.who().master, before.master);
    eventually(PATIENCE, "the end of the loop", || {
        let log = bed.gateway.stderr();
        (log.matches("execution timed out").count() >= 2).then_some(())
    });
    assert_eq!(bed.who().master, before.master);
}

#[test]
fn a_page_without_end_on_a_kept_connection_runs_once_and_is_told_why_it_ended() {
    let Some(bed) = endless() else { return };
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    // The second request finds the connection of the first.
    client.send(&request("app.test", "/"));
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    client.send(&request("app.test", "/loop.php"));
    let answer = reply(client.read_reply(Body::Framed));
    assert_eq!((answer.status, begun(&bed)), (504, 1), "{}", answer.text());
    let id = answer.head.field("X-Request-Id").unwrap();
    let why = limited::ask(&bed.gateway, &format!("why {id}"));
    for said in [
        "reason      pool_time\n",
        " ms: a page has 2s (pool.time)\n",
        "had run     ",
    ] {
        assert!(why.contains(said), "{said}\n{why}");
    }
    client.send(&request("app.test", "/crash.php"));
    let answer = reply(client.read_reply(Body::Framed));
    assert_eq!(answer.status, 502, "{}", answer.text());
    let id = answer.head.field("X-Request-Id").unwrap();
    let why = limited::ask(&bed.gateway, &format!("why {id}"));
    assert!(why.contains("reason      pool_process_ended\n"), "{why}");
}

#[test]
fn the_time_that_a_connection_was_idle_is_not_taken_from_a_page() {
    let Some(bed) = endless() else { return };
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    client.send(&request("app.test", "/"));
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    // php-fpm has by now used up most of the two seconds of whoever comes on that connection.
    std::thread::sleep(Duration::from_millis(1_500));
    let asked = Instant::now();
    client.send(&request("app.test", "/loop.php"));
    let answer = reply(client.read_reply(Body::Framed));
    assert!(asked.elapsed() > Duration::from_millis(1_800));
    assert_eq!((answer.status, begun(&bed)), (504, 1), "{}", answer.text());
}

#[test]
fn what_runs_and_waits_is_told_while_no_process_is_left_to_say_so() {
    let files = [("app/index.php", WHO), ("app/long.php", "<?php sleep(60);")];
    let wish = Wish {
        pool: ", processes = 2",
        files: &files,
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let clients = [(); 5].map(|()| {
        let mut client = bed.gateway.client();
        client.send(&request("app.test", "/long.php"));
        client
    });
    let pools = eventually(PATIENCE, "all that was asked", || {
        let pools = limited::ask(&bed.gateway, "pools json");
        let asked = pools.contains("\"waiting\":3,\"under_way\":5,");
        let runs = pools.contains("\"processes\":2,\"processes_max\":2");
        (asked && runs).then_some(pools)
    });
    assert!(pools.contains("\"longest_ms\":"), "{pools}");
    assert!(pools.contains("app/long.php\""), "{pools}");
    let table = limited::ask(&bed.gateway, "pools");
    assert!(table.contains("2 of 2"), "{table}");
    assert!(!bed.gateway.stderr().contains("max_children"));
    drop(clients);
}
