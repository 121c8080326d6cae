//! Orders and reports on their way over a link.

use super::*;

fn run() -> Order {
    let memory = |content: &str| os::file::memfd("test", content.as_bytes()).unwrap();
    Order::Run(Run {
        id: 1,
        generation: 2,
        site: 3,
        rule: 4,
        row: None,
        group: Some(Box::new(wish("a/b c", Limits::default()))),
        script: b"cgi-bin/hello.cgi".to_vec(),
        says_start: true,
        environment: vec![
            (b"QUERY_STRING".to_vec(), b"a=\xff".to_vec()),
            (b"EMPTY".to_vec(), Vec::new()),
        ],
        stdin: memory("in"),
        stdout: memory("out"),
        stderr: memory("err"),
    })
}

fn reports() -> Vec<Report> {
    let ended = |end, limit| {
        Report::Ended(Ended {
            id: 9,
            end,
            cpu_us: 1_500,
            peak_rss_bytes: 1 << 20,
            limit,
        })
    };
    let group = || "tenant/site/rule".to_owned();
    let mut reports = vec![
        Report::Started {
            id: u64::MAX,
            pid: 77,
        },
        ended(End::Exit(3), None),
        ended(
            End::Signal(9),
            Some(LimitHit::Memory {
                group: group(),
                bytes: 5,
            }),
        ),
        ended(
            End::Exit(0),
            Some(LimitHit::Pids {
                group: group(),
                pids: 6,
            }),
        ),
        ended(End::Signal(24), Some(LimitHit::CpuTime { seconds: 7 })),
        ended(End::Signal(25), Some(LimitHit::FileSize { bytes: 8 })),
    ];
    let pool = || "a-1".to_owned();
    reports.extend([
        Report::Warming { id: 1, wait_ms: 2 },
        Report::Warm { id: 3 },
        Report::NotWarm {
            id: 4,
            failure: Failure::PoolFailed,
            detail: pool(),
            retry_ms: 5,
        },
        Report::Cold { pool: pool() },
        Report::Counts {
            pool: pool(),
            counts: PoolCounts {
                masters: 1,
                masters_us: u64::MAX,
                mails: 2,
                mails_unsent: 0,
            },
        },
        Report::HandedOver { pool: pool() },
        Report::Costs {
            tenant: pool(),
            costs: vec![FileCost {
                file: "/srv/a.php".to_owned(),
                runs: 20,
                cpu_us: 1_000_000,
            }],
        },
    ]);
    reports.extend(Failure::ALL.map(|(failure, word)| Report::Failed {
        id: 5,
        failure,
        detail: word.into(),
    }));
    reports
}

#[test]
fn orders_arrive_with_their_descriptors_in_order() {
    let (here, there) = os::fdpass::packet_pair().unwrap();
    let mut buffer = Vec::new();
    run().try_send(here.as_fd()).unwrap();
    let pool = "php-82-a".to_owned();
    let warm = Order::Warm {
        id: 7,
        pool,
        is_latest: true,
    };
    warm.try_send(here.as_fd()).unwrap();
    Order::Kill { id: 8 }.try_send(here.as_fd()).unwrap();
    let Ok(Order::Run(arrived)) = Order::try_recv(there.as_fd(), &mut buffer).unwrap() else {
        panic!("another order arrived");
    };
    let Order::Run(sent) = run() else {
        unreachable!();
    };
    assert_eq!(
        (arrived.id, arrived.generation, arrived.site, arrived.rule),
        (1, 2, 3, 4)
    );
    assert_eq!(arrived.script, sent.script);
    assert_eq!(arrived.environment, sent.environment);
    for (fd, content) in [
        (arrived.stdin, "in"),
        (arrived.stdout, "out"),
        (arrived.stderr, "err"),
    ] {
        let found = os::file::read_whole(fd.as_fd(), 100).unwrap();
        assert_eq!(found, content.as_bytes());
    }
    let next = Order::try_recv(there.as_fd(), &mut buffer).unwrap();
    assert!(matches!(next, Ok(Order::Warm { id: 7, pool, is_latest: true }) if pool == "php-82-a"));
    let next = Order::try_recv(there.as_fd(), &mut buffer).unwrap();
    assert!(matches!(next, Ok(Order::Kill { id: 8 })));
    let none = Order::try_recv(there.as_fd(), &mut buffer).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn reports_arrive() {
    let (here, there) = os::fdpass::packet_pair().unwrap();
    for report in reports() {
        os::fdpass::try_send(here.as_fd(), &report.to_bytes().unwrap(), &[]).unwrap();
        assert_eq!(Report::try_recv(there.as_fd()).unwrap(), report);
    }
}

#[test]
fn the_largest_order_passes_and_a_larger_one_is_refused_before_it_is_sent() {
    let (here, there) = os::fdpass::packet_pair().unwrap();
    let Order::Run(mut run) = run() else {
        unreachable!();
    };
    run.environment[1].1 = vec![b'x'; 100_000];
    let order = Order::Run(run);
    // As many bytes say how long it is.
    let room = 100_000 + ORDER_BYTES_MAX - codec::encode(&order).unwrap().len();
    let Order::Run(mut run) = order else {
        unreachable!();
    };
    run.environment[1].1 = vec![b'x'; room];
    let mut order = Order::Run(run);
    order.try_send(here.as_fd()).unwrap();
    let arrived = Order::try_recv(there.as_fd(), &mut Vec::new()).unwrap();
    assert!(matches!(arrived, Ok(Order::Run(run)) if run.environment[1].1.len() == room));
    if let Order::Run(run) = &mut order {
        run.environment[1].1.push(b'x');
    }
    let error = order.try_send(here.as_fd()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn details_too_long_are_cut_at_a_character() {
    let long = "遅".repeat(10_000);
    let limit = LimitHit::Memory {
        group: long.clone(),
        bytes: 1,
    };
    for report in [
        Report::Failed {
            id: 1,
            failure: Failure::SpawnFailed,
            detail: long,
        },
        Report::Ended(Ended {
            id: 1,
            end: End::Exit(0),
            cpu_us: 0,
            peak_rss_bytes: 0,
            limit: Some(limit),
        }),
    ] {
        let bytes = report.to_bytes().unwrap();
        assert!(bytes.len() <= REPORT_BYTES_MAX, "{}", bytes.len());
        codec::decode::<Report>(&bytes, Vec::new()).unwrap();
    }
}

#[test]
fn every_failure_has_a_word_of_its_own() {
    let words: std::collections::BTreeSet<_> = Failure::ALL
        .iter()
        .map(|(failure, _)| failure.word())
        .collect();
    assert_eq!(words.len(), Failure::ALL.len());
}

#[test]
fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
    let order = run();
    let Order::Run(sent) = &order else {
        unreachable!();
    };
    let sound = codec::encode(&order).unwrap();
    let fds = || -> Vec<OwnedFd> {
        let copies = sent.fds().map(|fd| fd.try_clone_to_owned().unwrap());
        copies.into()
    };
    for length in 0..sound.len() {
        let cut = sound.get(..length).unwrap();
        assert!(Order::decode(cut, fds()).is_err(), "{length}");
    }
    for missing in 1..=3 {
        let few = fds().into_iter().skip(missing).collect();
        assert!(Order::decode(&sound, few).is_err());
    }
    let many = fds().into_iter().chain(fds()).collect();
    assert!(Order::decode(&sound, many).is_err());
    let reports = reports().into_iter();
    let messages: Vec<_> = reports.map(|it| it.to_bytes().unwrap()).collect();
    for bytes in messages.iter().chain([&sound]) {
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 3, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                let _ = Order::decode(&bytes, fds());
                let _ = codec::decode::<Report>(&bytes, Vec::new());
                let _ = Unheld::decode(&bytes);
            }
        }
    }
}

#[test]
fn a_group_that_no_script_may_name_is_refused() {
    for path in [
        &["rule-a"][..],
        &["script-a/b"],
        &["script-a", "script-b"],
        &[],
        &["script-.."],
    ] {
        let Order::Run(mut sent) = run() else {
            unreachable!();
        };
        sent.group = Some(Box::new(Group {
            path: path.iter().map(|&name| name.to_owned()).collect(),
            limits: Limits::default(),
        }));
        let fds = sent.fds().map(|fd| fd.try_clone_to_owned().unwrap());
        let bytes = codec::encode(&Order::Run(sent)).unwrap();
        let arrived = Order::decode(&bytes, fds.into());
        let is_fine = path == ["script-.."];
        assert_eq!(arrived.is_ok(), is_fine, "{path:?}");
    }
}
