//! Pools, from the spawner's side: when they start, what they are given, how they change hands.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::{Duration, Instant};

use ipc::manifest::{FromSpawner, Manifest, ToSpawner};
use ipc::message::Message;
use ipc::order::{Failure, Order, Report};
use ipc::pools::{
    PoolAnswer, PoolManifest, PoolProcess, PoolProgramManifest, PoolQuestion, PoolSite, PoolSocket,
    PoolState,
};
use rustix::process::Signal;
use testkit::wait::eventually;

use super::bed::{APP, Bed, kill, signal};
use super::{PATIENCE, Spawner, Worker};
use crate::fixtures::pools::runs;

#[test]
fn a_pool_starts_when_it_is_wanted_or_connected_to_and_its_end_is_told() {
    let bed = Bed::new();
    let spawner = bed.spawner(bed.plan(vec![bed.pool("a", &[])]), Vec::new());
    let mut worker = spawner.worker();
    assert_eq!(spawner.standing().state, PoolState::Cold);
    worker.is_warm();
    let master = spawner.hear_of_master();
    assert_eq!(bed.ask("a", "who"), format!("{} 1 own 0 1 2 3", master.pid));
    worker.is_warm();
    let standing = spawner.standing();
    assert_eq!(
        (standing.state, standing.pid, standing.starts),
        (PoolState::Warm, Some(master.pid), 1)
    );
    kill(master.pid);
    assert_eq!(spawner.hear_of_end(), master.pid);
    assert_eq!(worker.hear().unwrap(), Report::Cold { pool: "a".into() });
    // Nobody has ordered it: somebody connects.
    let next = bed.pid("a");
    assert_eq!(spawner.hear_of_master().pid, next);
    worker.is_warm();
    assert_eq!(
        spawner.question(PoolQuestion::Stop(vec!["a".into()])),
        PoolAnswer::Begun(1)
    );
    assert_eq!(worker.hear().unwrap(), Report::Cold { pool: "a".into() });
    assert_eq!(spawner.hear_of_end(), next);
    assert_eq!(spawner.standing().state, PoolState::Cold);
}

#[test]
fn one_that_is_in_use_is_not_ended_however_little_it_does() {
    let bed = Bed::new();
    let mut pool = bed.pool("a", &[]);
    pool.idle_ms = Some(1_000);
    let spawner = bed.spawner(bed.plan(vec![pool]), Vec::new());
    let mut worker = spawner.worker();
    worker.is_warm();
    let master = spawner.hear_of_master().pid;
    let (begun, mut said) = (Instant::now(), Instant::now());
    while begun.elapsed() < Duration::from_secs(5) {
        let pool = "a".to_owned();
        worker.send(&Order::Used { pool });
        let standing = spawner.standing();
        if said.elapsed() > Duration::from_secs(1) {
            // The machine stood still: it may have ended with right.
            return;
        }
        said = Instant::now();
        assert_eq!(standing.pid, Some(master));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(spawner.hear_of_end(), master);
    assert_eq!(worker.hear().unwrap(), Report::Cold { pool: "a".into() });
    // To say so starts nothing.
    let pool = "a".to_owned();
    worker.send(&Order::Used { pool });
    assert_eq!(spawner.standing().state, PoolState::Cold);
}

#[test]
fn a_pool_that_stays_is_had_however_old_the_request_is_that_wants_it() {
    let bed = Bed::new();
    let plan = bed.plan(vec![bed.pool("a", &[])]);
    let spawner = bed.spawner(plan.clone(), Vec::new());
    let mut worker = spawner.worker();
    for generation in 2..9 {
        spawner.tell(Manifest {
            generation,
            ..plan.clone()
        });
    }
    worker.is_warm();
    let report = worker.warm_of("nobodys");
    assert!(
        matches!(&report, Report::NotWarm { failure: Failure::UnknownRule, detail, .. }
            if detail.contains("nobodys")),
        "{report:?}"
    );
}

#[test]
fn one_that_does_not_start_is_told_with_its_last_words_and_rests() {
    let bed = Bed::new();
    bed.tenant
        .program("app", "#!/bin/sh\necho the reason >&2\nexit 9\n");
    let spawner = bed.spawner(bed.plan(vec![bed.pool("a", &[])]), Vec::new());
    let mut worker = spawner.worker();
    for at_least in [1, 1] {
        match worker.warm() {
            Report::NotWarm {
                failure: Failure::PoolFailed,
                detail,
                retry_ms,
                ..
            } => {
                assert!(detail.contains("status 9"), "{detail}");
                assert!(detail.contains("the reason"), "{detail}");
                assert!((at_least..=1_000).contains(&retry_ms), "{retry_ms}");
            }
            other => panic!("{other:?}"),
        }
    }
    let pid = spawner.hear_of_master().pid;
    assert_eq!(spawner.hear_of_end(), pid);
    let standing = spawner.standing();
    assert_eq!(
        (standing.state, standing.starts_failed),
        (PoolState::Failed, 1)
    );
    bed.tenant.program("app", APP);
    eventually(PATIENCE, "the end of its rest", || {
        matches!(worker.warm(), Report::Warm { .. }).then_some(())
    });
    assert_eq!(bed.ask("a", "who").split(' ').count(), 7);
}

#[test]
fn masters_outlive_a_spawner_that_is_killed_and_the_next_goes_on_with_them() {
    let bed = Bed::new();
    let plan = bed.plan(vec![bed.pool("a", &[])]);
    let socket = [bed.bind("a")];
    let first = bed.spawner_with(plan.clone(), Vec::new(), &socket);
    first.worker().is_warm();
    let master = first.hear_of_master();
    let pid = master.pid;
    drop(first);
    assert_eq!(bed.pid("a"), pid);
    let second = bed.spawner_with(plan.clone(), vec![master.try_clone().unwrap()], &socket);
    let mut worker = second.worker();
    worker.is_warm();
    assert_eq!(second.standing().pid, Some(pid));
    assert_eq!(bed.pid("a"), pid);
    // A manifest that does not name it has it end.
    let stray = PoolProcess {
        id: "nobody's".into(),
        ..master
    };
    ToSpawner::LetGo.send(second.link().as_fd()).unwrap();
    let told = second.hear_of_master();
    assert_eq!((told.id.as_str(), told.pid), ("a", pid));
    assert!(matches!(second.hear_of_pools(), FromSpawner::LetGo));
    worker.is_warm();
    drop(second);
    assert_eq!(bed.pid("a"), pid);
    let third = bed.spawner_with(plan, vec![stray], &socket);
    assert_eq!(third.hear_of_end(), pid);
    assert_ne!(bed.pid("a"), pid);
    kill(third.hear_of_master().pid);
}

#[test]
fn what_was_started_with_other_settings_is_handed_over_by_the_next_spawner() {
    let bed = Bed::new();
    let plan = bed.plan(vec![bed.pool("a", &[])]);
    let socket = [bed.bind("a")];
    let first = bed.spawner_with(plan.clone(), Vec::new(), &socket);
    first.worker().is_warm();
    let master = first.hear_of_master();
    drop(first);
    // Nobody was there when the settings changed.
    let plan = bed.plan(vec![bed.pool("a", &[""])]);
    let second = bed.spawner_with(plan.clone(), vec![master.try_clone().unwrap()], &socket);
    let next = second.hear_of_master();
    assert_eq!(second.hear_of_end(), master.pid);
    assert_ne!(next.settings, master.settings);
    drop(second);
    let third = bed.spawner_with(plan, vec![next.try_clone().unwrap()], &socket);
    third.worker().is_warm();
    assert_eq!(third.standing().state, PoolState::Warm, "it is the same");
    assert_eq!(bed.pid("a"), next.pid);
}

#[test]
fn a_restart_hands_over_without_a_refusal() {
    let bed = Bed::new();
    let spawner = bed.spawner(bed.plan(vec![bed.pool("a", &[])]), Vec::new());
    let mut worker = spawner.worker();
    worker.is_warm();
    let first = spawner.hear_of_master().pid;
    let restart = PoolQuestion::Restart(vec!["a".into(), "unknown".into()]);
    assert_eq!(spawner.question(restart), PoolAnswer::Begun(1));
    let second = spawner.hear_of_master().pid;
    eventually(PATIENCE, "the one that takes over", || {
        let pid = bed.pid("a");
        assert!([first, second].contains(&pid));
        worker.is_warm();
        os::net::wait_readable(&[spawner.link().as_fd()], Some(Duration::ZERO))
            .unwrap()
            .contains(&true)
            .then_some(())
    });
    assert_eq!(spawner.hear_of_end(), first);
    assert_eq!(bed.pid("a"), second);
    // Another command is another run.
    let mut plan = bed.plan(vec![bed.pool("a", &[""])]);
    plan.generation = 2;
    ToSpawner::Manifest(Box::new(plan))
        .send(spawner.link().as_fd())
        .unwrap();
    let mut third = None;
    let mut is_ready = false;
    while third.is_none() || !is_ready {
        match spawner.hear_of_pools() {
            FromSpawner::PoolProcess(master) => third = Some(master.pid),
            FromSpawner::Ready { generation: 2 } => is_ready = true,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(spawner.hear_of_end(), second);
    assert_eq!(Some(bed.pid("a")), third);
}

/// Answers over HTTP; notes when it begins to, which may be late.
const SLOW: &str = r#"#!/usr/bin/perl
use IO::Socket::UNIX;
my $place = shift;
select(undef, undef, undef, 4) if -e "$place/slow";
my $listener = IO::Socket::UNIX->new_from_fd(3, '+<');
open(my $note, '>', "$place/accepts-$$") or die "$place: $!";
$SIG{TERM} = sub { exit 0 };
while (1) {
    my $client = $listener->accept or next;
    while (my $line = <$client>) { last if $line =~ /^\r?$/ }
    print $client "HTTP/1.0 200 OK\r\n\r\n$$\n";
}
"#;

#[test]
fn one_that_is_asked_whether_it_is_ready_takes_over_when_it_has_answered_itself() {
    let bed = Bed::new();
    bed.tenant.program("app", SLOW);
    let place = bed.tenant.path("pools/a");
    let mut pool = bed.pool("a", &[&place.display().to_string()]);
    if let PoolProgramManifest::App { ready, .. } = &mut pool.program {
        *ready = Some("/up".into());
    }
    let spawner = bed.spawner(bed.plan(vec![pool]), Vec::new());
    spawner.worker().is_warm();
    let first = spawner.hear_of_master().pid;
    fs::write(place.join("slow"), "").unwrap();
    let restart = PoolQuestion::Restart(vec!["a".into()]);
    assert_eq!(spawner.question(restart), PoolAnswer::Begun(1));
    let second = spawner.hear_of_master().pid;
    assert_eq!(spawner.hear_of_end(), first);
    assert!(place.join(format!("accepts-{second}")).exists());
    assert_eq!(spawner.standing().pid, Some(second));
}

#[test]
fn one_that_binds_its_socket_itself_is_found_at_the_known_one() {
    let bed = Bed::new();
    let spawner = bed.spawner(bed.plan(vec![bed.pool("a", &["$socket"])]), Vec::new());
    let mut worker = spawner.worker();
    worker.is_warm();
    let master = spawner.hear_of_master().pid;
    assert_eq!(bed.ask("a", "who"), format!("{master} 0 other 0 1 2 3"));
    let mode = fs::metadata(bed.socket_path("a"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    kill(master);
    assert_eq!(worker.hear().unwrap(), Report::Cold { pool: "a".into() });
    assert_eq!(spawner.hear_of_end(), master);
    worker.is_warm();
    assert_ne!(bed.pid("a"), master);
}

#[test]
fn a_socket_that_a_program_has_shut_is_asked_for_anew() {
    let bed = Bed::new();
    let spawner = bed.spawner(bed.plan(vec![bed.pool("a", &[])]), Vec::new());
    let mut worker = spawner.worker();
    worker.is_warm();
    let master = spawner.hear_of_master().pid;
    bed.ask("a", "shut");
    let pool = "a".to_owned();
    worker.send(&Order::Warm {
        id: 99,
        pool,
        is_latest: false,
    });
    let (mut is_deaf, mut has_ended) = (false, false);
    while !(is_deaf && has_ended) {
        match spawner.hear_of_pools() {
            FromSpawner::Deaf { id } => is_deaf = id == "a",
            FromSpawner::PoolProcessEnded { pid } => has_ended = pid == master,
            other => panic!("{other:?}"),
        }
    }
    let anew = PoolSocket {
        id: "a".into(),
        socket: bed.bind("a"),
    };
    ToSpawner::Sockets(vec![anew])
        .send(spawner.link().as_fd())
        .unwrap();
    let report = loop {
        match worker.hear().unwrap() {
            Report::Warming { .. } | Report::Cold { .. } => {}
            report => break report,
        }
    };
    assert_eq!(report, Report::Warm { id: 99 });
    assert_ne!(bed.pid("a"), master);
}

#[test]
fn who_wants_the_latest_is_answered_when_nobody_else_accepts() {
    let bed = Bed::new();
    let spawner = bed.spawner(bed.plan(vec![bed.pool("a", &[])]), Vec::new());
    let mut worker = spawner.worker();
    worker.is_warm();
    let first = spawner.hear_of_master().pid;
    let mut plan = bed.plan(vec![bed.pool("a", &[""])]);
    plan.generation = 2;
    ToSpawner::Manifest(Box::new(plan))
        .send(spawner.link().as_fd())
        .unwrap();
    let pool = "a".to_owned();
    worker.send(&Order::Warm {
        id: 98,
        pool,
        is_latest: true,
    });
    let mut was_handed_over = false;
    loop {
        match worker.hear().unwrap() {
            Report::Warming { .. } => {}
            Report::HandedOver { .. } => was_handed_over = true,
            report => {
                assert_eq!(report, Report::Warm { id: 98 });
                break;
            }
        }
    }
    assert!(was_handed_over, "before it is let in");
    assert_ne!(bed.pid("a"), first);
}

#[test]
fn who_wants_the_latest_before_a_spawner_has_pools_in_its_charge_waits_for_that() {
    let bed = Bed::new();
    let socket = [bed.bind("a")];
    let first = bed.spawner_with(bed.plan(vec![bed.pool("a", &[])]), Vec::new(), &socket);
    first.worker().is_warm();
    let master = first.hear_of_master().pid;
    let second = Spawner::begin();
    let link = second.link().as_fd();
    let known = PoolSocket {
        id: "a".into(),
        socket: socket[0].try_clone().unwrap(),
    };
    ToSpawner::Sockets(vec![known]).send(link).unwrap();
    second.tell(Manifest {
        generation: 2,
        is_beside: true,
        ..bed.plan(vec![bed.pool("a", &[""])])
    });
    let mut worker = second.worker();
    let (id, pool) = (98, "a".to_owned());
    worker.send(&Order::Warm {
        id,
        pool,
        is_latest: true,
    });
    let report = worker.warm();
    assert!(
        matches!(report, Report::Warm { id } if id != 98),
        "{report:?}"
    );
    ToSpawner::LetGo.send(first.link().as_fd()).unwrap();
    let told = first.hear_of_master();
    assert!(matches!(first.hear_of_pools(), FromSpawner::LetGo));
    ToSpawner::PoolProcesses(vec![told]).send(link).unwrap();
    let report = loop {
        match worker.hear().unwrap() {
            Report::Warming { .. } | Report::HandedOver { .. } => {}
            report => break report,
        }
    };
    assert_eq!(report, Report::Warm { id: 98 });
    assert_ne!(bed.pid("a"), master);
}

#[test]
fn a_tenant_is_suspended_while_its_pools_change_hands() {
    let bed = Bed::new();
    let spawner = bed.spawner(bed.plan(vec![bed.pool("a", &[])]), Vec::new());
    let mut worker = spawner.worker();
    worker.is_warm();
    let master = spawner.hear_of_master().pid;
    ToSpawner::LetGo.send(spawner.link().as_fd()).unwrap();
    let told = spawner.hear_of_master();
    assert!(matches!(spawner.hear_of_pools(), FromSpawner::LetGo));
    let restart = PoolQuestion::Restart(vec!["a".into()]);
    let refused = spawner.question(restart);
    assert!(matches!(refused, PoolAnswer::Refused(_)), "{refused:?}");
    let (pools, programs) = (0, 0);
    assert_eq!(
        spawner.question(PoolQuestion::Suspend("tenant".into())),
        PoolAnswer::Tenant { pools, programs }
    );
    assert_eq!(bed.pid("a"), master, "it is another's to end");
    // It comes back, and nothing of the tenant is to run.
    ToSpawner::PoolProcesses(vec![told])
        .send(spawner.link().as_fd())
        .unwrap();
    assert_eq!(worker.hear().unwrap(), Report::Cold { pool: "a".into() });
    assert_eq!(spawner.hear_of_end(), master);
    let report = worker.warm();
    assert!(
        matches!(
            report,
            Report::NotWarm {
                failure: Failure::TenantSuspended,
                ..
            }
        ),
        "{report:?}"
    );
    assert_eq!(spawner.standing().state, PoolState::Suspended);
    spawner.question(PoolQuestion::Resume("tenant".into()));
    worker.is_warm();
    assert_eq!(bed.pid("a"), spawner.hear_of_master().pid);
}

#[test]
fn pools_end_with_a_supervisor_that_ends_after_its_link() {
    let bed = Bed::new();
    bed.tenant.program("stays", "#!/bin/sh\nexec sleep 600\n");
    let plan = bed.plan(vec![bed.pool("a", &[])]);
    // Where this test is late, the spawner has given it up with right: then it tries again.
    eventually(PATIENCE, "an end in time", || {
        let socket = [bed.bind("a")];
        let begun = Spawner::begin_below_another();
        let mut spawner = Bed::in_charge(begun, plan.clone(), Vec::new(), &socket);
        let mut worker = spawner.worker();
        worker.is_warm();
        let master = spawner.hear_of_master();
        let (_, program, _output) = worker.stay("stays");
        let closed = Instant::now();
        spawner.link = None;
        eventually(PATIENCE, "that the spawner has noticed", || {
            (!runs(program)).then_some(())
        });
        assert!(runs(master.pid), "its supervisor lives");
        drop(spawner);
        let is_timely = closed.elapsed() < Duration::from_millis(400);
        if is_timely {
            eventually(PATIENCE, "the end of its pools", || {
                (!runs(master.pid)).then_some(())
            });
        } else {
            kill(master.pid);
        }
        is_timely.then_some(())
    });
}

#[test]
fn pools_live_on_where_the_supervisor_does() {
    let bed = Bed::new();
    let plan = bed.plan(vec![bed.pool("a", &[])]);
    let socket = [bed.bind("a")];
    let begun = Spawner::begin_below_another();
    let mut spawner = Bed::in_charge(begun, plan, Vec::new(), &socket);
    spawner.worker().is_warm();
    let master = spawner.hear_of_master().pid;
    let pid = testkit::processes::children(spawner.pid())[0];
    spawner.link = None;
    eventually(PATIENCE, "the end of the spawner", || {
        (!runs(pid)).then_some(())
    });
    assert_eq!(bed.pid("a"), master);
}

/// A master that tells on signals what requests have cost.
fn fake_fpm(bed: &Bed) -> String {
    let (root, place) = (bed.tenant.path("site/www"), bed.tenant.path("pools/a"));
    let (root, place) = (root.display(), place.display());
    format!(
        "#!/usr/bin/perl\n\
         select(STDERR); $| = 1;\n\
         sub cost {{ my $name = shift;\n\
           print STDERR \"nagaya-cost 100.00 1000 {root}/$name.php\\n\";\n\
           open(my $note, '>', \"{place}/$name\"); }}\n\
         $SIG{{USR1}} = sub {{ cost('first') }};\n\
         $SIG{{USR2}} = sub {{ cost('second') }};\n\
         $SIG{{QUIT}} = sub {{ exit 0 }};\n\
         print STDERR \"NOTICE: ready to handle connections\\n\";\n\
         sleep 600 while 1;\n"
    )
}

#[test]
fn costs_that_nobody_reads_are_dropped_and_later_ones_told() {
    let bed = Bed::new();
    bed.tenant.program("app", &fake_fpm(&bed));
    let root = bed.tenant.path("site/www");
    let site = PoolSite {
        name: "tenant.test".into(),
        root: root.clone(),
    };
    let pool = PoolManifest {
        program: PoolProgramManifest::Php {
            program: root.join("app"),
            processes: 1,
            requests: 1,
            time_ms: 1_000,
            ini: Vec::new(),
            admin: Vec::new(),
            sites: vec![site],
        },
        ..bed.pool("a", &[])
    };
    let cache = pool.directory.join("cache");
    fs::create_dir(&cache).unwrap();
    if os::process::is_root() {
        let nobody = os::user::User::look_up("nobody").unwrap();
        chown(&cache, Some(nobody.uid), Some(nobody.gid)).unwrap();
    }
    let place = pool.directory.clone();
    let spawner = bed.spawner(bed.plan(vec![pool]), Vec::new());
    let mut worker = spawner.worker();
    worker.is_warm();
    let master = spawner.hear_of_master();
    let answers = fill(&mut worker, &spawner);
    signal(master.pid, Signal::USR1);
    eventually(PATIENCE, "what costs were told", || {
        let is_said = place.join("first").exists();
        let waits = os::net::wait_readable(&[master.words.as_fd()], Some(Duration::ZERO));
        (is_said && waits.unwrap() == [false]).then_some(())
    });
    for _ in 0..answers {
        let report = worker.hear().unwrap();
        assert!(matches!(report, Report::NotWarm { .. }), "{report:?}");
    }
    signal(master.pid, Signal::USR2);
    let Report::Costs { tenant, costs } = worker.hear().unwrap() else {
        panic!("no costs");
    };
    assert_eq!(tenant, "tenant");
    let [cost] = &costs[..] else {
        panic!("{costs:?}");
    };
    let second = root.join("second.php").display().to_string();
    assert_eq!((&cost.file, cost.runs, cost.cpu_us), (&second, 1, 1_000));
}

/// Has the spawner say more than the worker reads: how many answers wait.
fn fill(worker: &mut Worker, spawner: &Spawner) -> usize {
    let mut answers = 0;
    loop {
        let (id, pool) = (worker.next, "nobodys".repeat(100));
        let order = Order::Warm {
            id,
            pool,
            is_latest: false,
        };
        // It takes no more as long as its answers wait, however many turns it has.
        let is_taken = (0..4).any(|_| {
            spawner.standing();
            order.try_send(worker.link.as_fd()).is_ok()
        });
        if !is_taken {
            return answers;
        }
        worker.next += 1;
        answers += 1;
    }
}
