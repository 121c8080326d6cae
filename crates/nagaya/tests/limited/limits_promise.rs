//! `wait` is a promise: behind a busy page of PHP everybody is served for whom there is room, in turn.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::fixtures::php::{Wish, bed, get};
use testkit::client::{Body, reply};
use testkit::{Gateway, PATIENCE};

/// The limits of the first configuration of the guide.
fn of_the_guide() -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/limits.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let mut lines = guide.lines();
    let limits = lines.find_map(|line| line.trim().strip_prefix("limits = "));
    let limits = limits.expect("a limit in the guide");
    assert!(limits.contains("concurrent = 2, queue = 8, wait = \"20s\""));
    limits.to_owned()
}

/// What came of clients that asked for the page again and again, until so many replies were there.
struct Outcome {
    /// Replies of 200, by client.
    served: Vec<usize>,
    refused: Vec<String>,
}

/// Lets so many clients ask for a page that takes `ms`, each as soon as it has a reply. `None` without php-fpm.
fn crowd(limits: &str, clients: usize, ms: u32, replies: usize) -> Option<Outcome> {
    let page = format!("<?php usleep({ms}000); echo 'done';");
    let rules = format!("[[sites.rules]]\nmatch = {{ file = \"*.php\" }}\nlimits = {limits}\n");
    let bed = bed(&Wish {
        processes: 4,
        workers: 2,
        rules: &rules,
        files: &[("index.php", &page)],
        ..Wish::default()
    })?;
    let count = AtomicUsize::new(0);
    let ask = |gateway: &Gateway| {
        let (mut served, mut refused) = (0, Vec::new());
        let mut client = gateway.client().with_deadline(PATIENCE);
        while count.fetch_add(1, Ordering::Relaxed) < replies {
            client.send(&get("/index.php"));
            let answer = reply(client.read_reply(Body::Framed));
            match answer.status {
                200 => served += 1,
                _ => refused.push(answer.text()),
            }
        }
        (served, refused)
    };
    let all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|_| scope.spawn(|| ask(&bed.gateway)))
            .collect();
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let (served, refused): (Vec<usize>, Vec<Vec<String>>) = all.into_iter().unzip();
    Some(Outcome {
        served,
        refused: refused.concat(),
    })
}

#[test]
fn the_first_example_of_the_guide_refuses_nobody_while_there_is_room() {
    let Some(outcome) = crowd(&of_the_guide(), 10, 100, 120) else {
        return;
    };
    assert_eq!(outcome.refused, Vec::<String>::new());
    assert_eq!(outcome.served.iter().sum::<usize>(), 120);
}

#[test]
fn ten_clients_of_one_place_are_all_served_and_four_are_served_alike() {
    let limits = "[{ concurrent = 1, queue = 100, wait = \"60s\" }]";
    let Some(ten) = crowd(limits, 10, 50, 100) else {
        return;
    };
    assert_eq!(ten.refused, Vec::<String>::new());
    let Some(four) = crowd(limits, 4, 100, 60) else {
        return;
    };
    assert_eq!(four.refused, Vec::<String>::new());
    let (most, least) = (four.served.iter().max(), four.served.iter().min());
    assert!(
        *most.unwrap() * 2 <= *least.unwrap() * 3,
        "{:?}",
        four.served
    );
}
