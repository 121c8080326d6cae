//! What the spawner runs, what it refuses, and that nothing a worker says or leaves unsaid harms
//! anybody else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{chown, symlink};
use std::time::Duration;

use ipc::manifest::{Manifest, NamedProgram, SiteManifest, ToSpawner};
use ipc::message::Message;
use ipc::order::{End, Failure, LimitHit, Order, Report, RunChore};
use os::file::Symlinks;
use os::spawn::Limits;
use testkit::processes::await_ended;
use testkit::slow_mount::SlowMount;
use testkit::wait::eventually;

use super::{Came, FINE, PATIENCE, Spawner, Tenant, Worker, fine, read, read_line};

#[test]
fn a_program_gets_what_it_was_sent_and_nothing_of_the_spawners() {
    let tenant = Tenant::new();
    tenant.program(
        "show",
        "#!/bin/sh\ntr '\\0' '\\n' </proc/$$/environ\necho --\nls /proc/self/fd\necho --\npwd -P\numask\nid -u\n",
    );
    let spawner = Spawner::start(tenant.plan());
    let mut worker = spawner.worker();
    let environment = [
        ("QUERY_STRING", "-x"),
        ("HTTP_A", "\u{1}"),
        ("APP", "of the rule"),
    ];
    let (run, output) = worker.order("show", &environment);
    let Came::Ran(said, End::Exit(0), None) = worker.came(run, output) else {
        panic!("it did not run");
    };
    let parts: Vec<_> = said.split("--\n").collect();
    let variables: BTreeMap<_, _> = parts[0]
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let mut wanted = BTreeMap::from(environment);
    wanted.insert("PATH", "/usr/local/bin:/usr/bin:/bin");
    assert_eq!(variables, wanted);
    assert_eq!(parts[1].split_whitespace().count(), 4, "{}", parts[1]);
    let place: Vec<_> = parts[2].lines().collect();
    assert_eq!(place[0], tenant.path("site/www").display().to_string());
    assert_eq!(place[1], "0022");
    let user = if os::process::is_root() {
        os::user::User::look_up("nobody").unwrap().uid
    } else {
        os::process::user_id()
    };
    assert_eq!(place[2], user.to_string());
}

#[test]
fn only_what_is_safe_to_run_as_the_user_is_run() {
    let tenant = Tenant::new();
    for (name, mode) in [
        ("plain", 0o644),
        ("group", 0o775),
        ("others", 0o757),
        ("setuid", 0o4755),
        ("setgid", 0o2755),
    ] {
        tenant.script(&format!("site/www/{name}"), FINE, mode);
    }
    tenant.program("lost", "#!/nonexistent/interpreter\n");
    tenant.program("text", "hello\n");
    tenant.program("open/fine", FINE);
    tenant.mode("site/www/open", 0o777);
    tenant.program("deep/er/fine", FINE);
    let pipe = rustix::fs::CWD;
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    rustix::fs::mkfifoat(pipe, tenant.path("site/www/pipe"), mode).unwrap();
    let mut table = vec![
        ("fine", fine()),
        ("deep/er/fine", fine()),
        ("plain", Came::Refused(Failure::NotExecutable)),
        ("group", Came::Refused(Failure::WritableByOthers)),
        ("others", Came::Refused(Failure::WritableByOthers)),
        ("open/fine", Came::Refused(Failure::WritableByOthers)),
        ("setuid", Came::Refused(Failure::SetuidFile)),
        ("setgid", Came::Refused(Failure::SetuidFile)),
        ("lost", Came::Refused(Failure::InterpreterMissing)),
        ("text", Came::Refused(Failure::NotAProgram)),
        ("pipe", Came::Refused(Failure::NotRegular)),
        ("deep", Came::Refused(Failure::NotRegular)),
        ("absent", Came::Refused(Failure::NotFound)),
        ("fine/x", Came::Refused(Failure::NotFound)),
    ];
    if os::process::is_root() {
        for (name, owner) in [("user", 65_534), ("another", 1), ("theirs/fine", 65_534)] {
            tenant.program(name, FINE);
            chown(tenant.path(&format!("site/www/{name}")), Some(owner), None).unwrap();
        }
        chown(tenant.path("site/www/theirs"), Some(1), None).unwrap();
        tenant.script("site/www/owners", FINE, 0o700);
        // In the class of its group a user has that class's rights, and no others'.
        tenant.script("site/www/grouped", FINE, 0o705);
        chown(tenant.path("site/www/grouped"), Some(0), Some(65_534)).unwrap();
        tenant.program("closed/fine", FINE);
        tenant.mode("site/www/closed", 0o700);
        table.extend([
            ("user", fine()),
            ("another", Came::Refused(Failure::OwnerMismatch)),
            ("theirs/fine", Came::Refused(Failure::OwnerMismatch)),
            ("owners", Came::Refused(Failure::NotExecutable)),
            ("grouped", Came::Refused(Failure::NotExecutable)),
            ("closed/fine", Came::Refused(Failure::NotExecutable)),
        ]);
    } else {
        eprintln!("without root: files of others are not tried");
    }
    let spawner = Spawner::start(tenant.plan());
    let mut worker = spawner.worker();
    for (script, wanted) in table {
        assert_eq!(worker.run(script), wanted, "{script}");
    }
    spawner.await_no_children();
}

#[test]
fn no_path_and_no_link_leads_out_of_the_site() {
    let tenant = Tenant::new();
    tenant.script("outside/evil", FINE, 0o755);
    tenant.script("site/beside", FINE, 0o755);
    let link = |to: &str, name: &str| symlink(to, tenant.path("site/www").join(name)).unwrap();
    link("../../outside/evil", "out");
    link("../../outside", "outside");
    link(
        &tenant.path("outside/evil").display().to_string(),
        "absolute",
    );
    link("fine", "inside");
    link("../beside", "beside");
    let mut open = fs::create_dir(tenant.path("site/open")).map(|()| "site/open/fine");
    tenant.script(open.as_mut().unwrap(), FINE, 0o755);
    tenant.mode("site/open", 0o777);
    link("../open/fine", "linked-open");
    let spawner = Spawner::start(tenant.plan());
    let mut worker = spawner.worker();
    let mut run_in = |site: u32, script: &str| {
        let (mut run, output) = worker.order(script, &[]);
        run.site = site;
        worker.came(run, output)
    };
    for site in 0..3 {
        for script in [
            "../beside",
            "../../outside/evil",
            "/bin/true",
            "//bin/true",
            "./fine",
            "deep/../fine",
            "fine/",
            "",
            ".",
            "..",
            "fi\0ne",
        ] {
            let outside = Came::Refused(Failure::OutsideRoot);
            assert_eq!(run_in(site, script), outside, "{script:?} of {site}");
        }
        for script in ["out", "outside/evil", "absolute"] {
            let came = run_in(site, script);
            let refused = [Failure::OutsideRoot, Failure::SymlinkRefused].map(Came::Refused);
            assert!(refused.contains(&came), "{script} of {site}: {came:?}");
        }
    }
    let refused = Came::Refused(Failure::SymlinkRefused);
    assert_eq!(run_in(0, "inside"), refused);
    assert_eq!(run_in(1, "inside"), fine());
    assert_eq!(run_in(2, "inside"), fine());
    // Still within the site's boundary.
    assert_eq!(run_in(2, "beside"), fine());
    // Where a link leads is where others may write.
    let writable = Came::Refused(Failure::WritableByOthers);
    assert_eq!(run_in(2, "linked-open"), writable);
}

#[test]
fn users_and_rules_that_are_not_there_and_variables_nobody_planned_are_refused() {
    let tenant = Tenant::new();
    let mut plan = tenant.plan();
    let mut of_user = |index, user: &str| {
        let mut site = tenant.site(index, Symlinks::Deny);
        site.user = Some(user.into());
        plan.sites.push(site);
    };
    of_user(7, "no such user");
    of_user(8, "root");
    let spawner = Spawner::start(plan);
    let mut worker = spawner.worker();
    for (generation, site, rule) in [
        (0, 0, 3),
        (2, 0, 3),
        (1, 3, 3),
        (1, 0, 0),
        (u64::MAX, u32::MAX, u32::MAX),
    ] {
        let (mut run, output) = worker.order("fine", &[]);
        (run.generation, run.site, run.rule) = (generation, site, rule);
        let unknown = Came::Refused(Failure::UnknownRule);
        assert_eq!(worker.came(run, output), unknown);
    }
    let mut users = vec![(7, Failure::UserUnknown)];
    if os::process::is_root() {
        users.push((8, Failure::UserIsRoot));
    }
    for (site, failure) in users {
        let (mut run, output) = worker.order("fine", &[]);
        run.site = site;
        assert_eq!(worker.came(run, output), Came::Refused(failure));
    }
    for name in [
        "LD_PRELOAD",
        "HTTP_PROXY",
        "PATH",
        "BASH_ENV",
        "",
        "A=B",
        "HTTP_a",
    ] {
        let (run, output) = worker.order("fine", &[(name, "x")]);
        let refused = Came::Refused(Failure::EnvironmentRefused);
        assert_eq!(worker.came(run, output), refused, "{name}");
    }
}

#[test]
fn what_is_no_order_closes_its_link_and_no_other() {
    let tenant = Tenant::new();
    tenant.program("stay", "#!/bin/sh\nexec sleep 1000\n");
    let spawner = Spawner::start(tenant.plan());
    let mut honest = spawner.worker();
    let (_, honest_pid, _output) = honest.stay("stay");
    let send = |worker: &Worker, bytes: &[u8], fds: usize| {
        let fds = vec![worker.link.as_fd(); fds];
        os::fdpass::try_send(worker.link.as_fd(), bytes, &fds).unwrap();
    };
    let encoded = |order: &Order| {
        let (here, there) = os::fdpass::packet_pair().unwrap();
        order.try_send(here.as_fd()).unwrap();
        let mut bytes = vec![0; 4096];
        let (length, _fds) = os::fdpass::try_recv(there.as_fd(), &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    };
    let (run, _output) = honest.order("fine", &[]);
    let (run, kill) = (encoded(&Order::Run(run)), encoded(&Order::Kill { id: 0 }));
    let cases: Vec<(Vec<u8>, usize)> = vec![
        (b"garbage".to_vec(), 0),
        (vec![0xff; 4096], 3),
        (run.clone(), 2),
        (run.clone(), 0),
        (run[..run.len() - 1].to_vec(), 3),
        (run[..run.len() / 2].to_vec(), 3),
        ([run.as_slice(), b"x"].concat(), 3),
        (vec![2], 0),
        (kill[..1].to_vec(), 0),
        (kill, 1),
        (vec![9; 130 * 1024], 0),
    ];
    for (bytes, fds) in cases {
        let mut worker = spawner.worker();
        let (_, pid, _output) = worker.stay("stay");
        send(&worker, &bytes, fds);
        worker.is_dropped();
        await_ended(pid);
    }
    // Two programs of one number; what one of them does cannot be told from the other.
    let mut worker = spawner.worker();
    let (id, pid, _output) = worker.stay("stay");
    let (mut twice, _output) = worker.order("fine", &[]);
    twice.id = id;
    worker.send(&Order::Run(twice));
    worker.is_dropped();
    await_ended(pid);
    // To kill what has ended, or never was, is no crime.
    honest.send(&Order::Kill { id: 77 });
    assert_eq!(honest.run("fine"), fine());
    assert!(fs::exists(format!("/proc/{honest_pid}")).unwrap());
    drop(honest);
    await_ended(honest_pid);
    spawner.await_no_children();
}

#[test]
fn every_cut_and_many_changes_of_an_order_harm_nobody() {
    let tenant = Tenant::new();
    let spawner = Spawner::start(tenant.plan());
    let mut honest = spawner.worker();
    let (run, _output) = honest.order("fine", &[("HTTP_A", "b")]);
    let (here, there) = os::fdpass::packet_pair().unwrap();
    Order::Run(run).try_send(here.as_fd()).unwrap();
    let mut bytes = vec![0; 4096];
    let (length, fds) = os::fdpass::try_recv(there.as_fd(), &mut bytes).unwrap();
    let fds = fds.unwrap();
    bytes.truncate(length);
    for at in 0..bytes.len() {
        let worker = spawner.worker();
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        os::fdpass::try_send(worker.link.as_fd(), &changed, &fds).unwrap();
        if at > 0 {
            let _ = os::fdpass::try_send(worker.link.as_fd(), &bytes[..at], &fds);
        }
    }
    assert_eq!(honest.run("fine"), fine());
    spawner.await_no_children();
}

#[test]
fn a_kill_takes_the_whole_group_and_is_told() {
    let tenant = Tenant::new();
    tenant.program(
        "stay",
        "#!/bin/sh\nsleep 1000 &\necho $!\nexec sleep 1000\n",
    );
    let spawner = Spawner::start(tenant.plan());
    let mut worker = spawner.worker();
    let (id, pid, output) = worker.stay("stay");
    let child = read_line(&output);
    worker.send(&Order::Kill { id });
    let ended = worker.hear_ended();
    assert_eq!(
        (ended.id, ended.end, ended.limit),
        (id, End::Signal(9), None)
    );
    await_ended(pid);
    await_ended(child);
    spawner.await_no_children();
}

#[test]
fn no_more_programs_run_than_the_plan_allows() {
    let tenant = Tenant::new();
    tenant.program("stay", "#!/bin/sh\nexec sleep 1000\n");
    let spawner = Spawner::start(tenant.plan());
    let mut worker = spawner.worker();
    let mut other = spawner.worker();
    let staying: Vec<_> = (0..8).map(|_| worker.stay("stay")).collect();
    let full = Came::Refused(Failure::ProgramsFull);
    assert_eq!(worker.run("fine"), full);
    assert_eq!(other.run("fine"), full);
    worker.send(&Order::Kill { id: staying[3].0 });
    assert_eq!(worker.hear_ended().id, staying[3].0);
    assert_eq!(other.run("fine"), fine());
    // The latest plan says how many.
    let more = Manifest {
        generation: 2,
        programs_max: 9,
        ..tenant.plan()
    };
    spawner.tell(more);
    worker.stay("stay");
    worker.stay("stay");
    assert_eq!(other.run("fine"), full);
}

#[test]
fn a_limit_of_its_own_that_ended_a_program_is_told() {
    let tenant = Tenant::new();
    tenant.program("busy", "#!/bin/sh\nwhile :; do :; done\n");
    tenant.program("write", "#!/bin/sh\nexec head -c 5000 /dev/zero >big\n");
    let mut plan = tenant.plan();
    plan.sites[0].rules[0].limits = Limits {
        cpu_s: Some(1),
        file_size_bytes: Some(4096),
        ..Limits::default()
    };
    if os::process::is_root() {
        chown(tenant.path("site/www"), Some(65_534), None).unwrap();
    }
    let spawner = Spawner::start(plan);
    let mut worker = spawner.worker();
    let cpu = LimitHit::CpuTime { seconds: 1 };
    let busy = Came::Ran(String::new(), End::Signal(24), Some(cpu));
    assert_eq!(worker.run("busy"), busy);
    let size = LimitHit::FileSize { bytes: 4096 };
    let write = Came::Ran(String::new(), End::Signal(25), Some(size));
    assert_eq!(worker.run("write"), write);
}

#[test]
fn a_worker_that_does_not_read_holds_up_nobody_and_misses_nothing() {
    let tenant = Tenant::new();
    let spawner = Spawner::start(tenant.plan());
    let mut deaf = spawner.worker();
    let mut other = spawner.worker();
    // From now on the spawner knows what it is asked, and answers at once.
    assert_eq!(deaf.run("absent"), Came::Refused(Failure::NotFound));
    let (first, mut sent, mut held) = (deaf.next, 0, None);
    // Until the spawner takes no more: its reports fill the way back first.
    for _ in 0..20_000 {
        let (run, _output) = deaf.order("absent", &[]);
        let order = Order::Run(run);
        let link = deaf.link.as_fd();
        let full = eventually(PATIENCE, "an order to be taken, or none", || {
            match order.try_send(link) {
                Ok(()) => Some(false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // It may only be slow.
                    (other.run("fine") == fine() && other.run("fine") == fine())
                        .then(|| order.try_send(link).is_err())
                }
                Err(error) => panic!("{error}"),
            }
        });
        if full {
            held = Some(order);
            break;
        }
        sent += 1;
    }
    assert!(held.is_some(), "{sent} orders were taken unread");
    assert_eq!(other.run("fine"), fine());
    let mut told = BTreeSet::new();
    for _ in 0..sent {
        let report = deaf.hear().unwrap();
        let Report::Failed { id, .. } = report else {
            panic!("{report:?}");
        };
        assert!(told.insert(id), "{id} was told twice");
    }
    assert_eq!(told, (first..first + sent).collect());
    assert_eq!(deaf.run("fine"), fine());
}

#[test]
fn a_disk_that_hangs_holds_up_none_but_those_who_ask_it() {
    let tenant = Tenant::new();
    let slow = tenant.path("site/www/slow");
    fs::create_dir(&slow).unwrap();
    let mounted = match SlowMount::at(&slow, 1, Duration::from_secs(3_600)) {
        Ok(mounted) => mounted,
        Err(error) => {
            return testkit::lacks("FUSE", error);
        }
    };
    let mut spawner = Spawner::start(tenant.plan());
    let mut worker = spawner.worker();
    let mut other = spawner.worker();
    // All of the plan's places but one: some have a thread, some wait for one.
    let mut hanging = Vec::new();
    for _ in 0..7 {
        let (run, output) = worker.order("slow/big", &[]);
        hanging.push((run.id, output));
        worker.send(&Order::Run(run));
    }
    // Another site's, since this one's threads hang: as the first look needs one of them.
    let elsewhere = Tenant::new();
    let mut plan = tenant.plan();
    plan.generation = 2;
    plan.sites.push(SiteManifest {
        index: 7,
        ..elsewhere.site(7, Symlinks::Deny)
    });
    spawner.tell(plan);
    let run = |worker: &mut Worker| {
        let (mut run, output) = worker.order("fine", &[]);
        (run.generation, run.site) = (2, 7);
        worker.came(run, output)
    };
    for _ in 0..20 {
        assert_eq!(run(&mut other), fine());
    }
    // Those that are looked for count.
    let (last, _output) = worker.order("slow/big", &[]);
    worker.send(&Order::Run(last));
    eventually(PATIENCE, "no place to be left", || {
        (run(&mut other) == Came::Refused(Failure::ProgramsFull)).then_some(())
    });
    for (id, _) in &hanging {
        worker.send(&Order::Kill { id: *id });
        let report = worker.hear().unwrap();
        assert!(
            matches!(report, Report::Failed { id: told, .. } if told == *id),
            "{report:?}"
        );
    }
    assert_eq!(run(&mut other), fine());
    drop(spawner.link.take());
    other.is_dropped();
    drop(mounted);
    let ended = || spawner.process.try_wait().unwrap();
    eventually(PATIENCE, "the spawner to end", ended);
}

#[test]
fn what_is_on_a_slow_disk_is_found_in_the_end() {
    let tenant = Tenant::new();
    let slow = tenant.path("site/www/slow");
    fs::create_dir(&slow).unwrap();
    let mounted = match SlowMount::at(&slow, 1, Duration::from_millis(100)) {
        Ok(mounted) => mounted,
        Err(error) => {
            return testkit::lacks("FUSE", error);
        }
    };
    let spawner = Spawner::start(tenant.plan());
    let mut worker = spawner.worker();
    for _ in 0..2 {
        // The one file there is not executable.
        let refused = Came::Refused(Failure::NotExecutable);
        assert_eq!(worker.run("slow/big"), refused);
        let absent = Came::Refused(Failure::NotFound);
        assert_eq!(worker.run("slow/absent"), absent);
    }
    assert_eq!(worker.run("fine"), fine());
    drop(mounted);
}

#[test]
fn an_order_that_does_not_ask_for_the_start_hears_of_the_end_alone() {
    let tenant = Tenant::new();
    tenant.program("text", "no program\n");
    let spawner = Spawner::start(tenant.plan());
    let mut worker = spawner.worker();
    let (mut run, output) = worker.order("fine", &[]);
    let id = run.id;
    run.says_start = false;
    worker.send(&Order::Run(run));
    let ended = worker.hear_ended();
    assert_eq!((ended.id, ended.end), (id, End::Exit(0)));
    assert_eq!(read(output), "");
    let (mut run, _output) = worker.order("text", &[]);
    run.says_start = false;
    worker.send(&Order::Run(run));
    let failed = worker.hear().unwrap();
    let failure = Failure::NotAProgram;
    assert!(
        matches!(failed, Report::Failed { failure: told, .. } if told == failure),
        "{failed:?}"
    );
}

#[test]
fn a_thousand_programs_leave_the_spawner_as_it_was() {
    let tenant = Tenant::new();
    tenant.program(
        "child",
        "#!/bin/sh\nsleep 1000 >/dev/null 2>&1 </dev/null &\n",
    );
    let spawner = Spawner::start(tenant.plan());
    let mut worker = spawner.worker();
    let mut round = |count| {
        for at in 0..count {
            let script = if at % 10 == 0 { "child" } else { "fine" };
            assert_eq!(worker.run(script), fine());
        }
        spawner.await_no_children();
    };
    round(50);
    let (descriptors, resident) = (spawner.descriptors(), spawner.resident_kb());
    round(1_000);
    eventually(PATIENCE, "no descriptor more than before", || {
        (spawner.descriptors() <= descriptors).then_some(())
    });
    let now = spawner.resident_kb();
    assert!(now <= resident + 1_024, "{resident} kB were {now} kB");
}

#[test]
fn the_spawner_ends_with_its_link_and_takes_everything_along() {
    let tenant = Tenant::new();
    // One that stays in its group, and one that leaves its session and forgets its parents.
    tenant.program(
        "stay",
        "#!/bin/sh\nsetsid sh -c 'echo $$; exec sleep 1000' &\nexec sleep 1000\n",
    );
    tenant.program(
        "leave",
        // It ends once that one has closed its output: in a session of its own by then.
        "#!/bin/sh\nfugitive=$(setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' &)\necho $fugitive\n",
    );
    let mut spawner = Spawner::start(tenant.plan());
    let mut worker = spawner.worker();
    let (_, pid, output) = worker.stay("stay");
    let child = read_line(&output);
    let Came::Ran(fugitive, End::Exit(0), None) = worker.run("leave") else {
        panic!("it did not run");
    };
    drop(spawner.link.take());
    let status = eventually(PATIENCE, "the spawner to end", || {
        spawner.process.try_wait().unwrap()
    });
    assert!(status.success(), "{status}");
    for pid in [pid.to_string(), child, fugitive.trim().to_owned()] {
        await_ended(pid);
    }
}

/// A chore that ends well, with its output.
fn chore(id: u64) -> (Order, OwnedFd) {
    let (output, stdout) = os::pipe::from_program().unwrap();
    let (_, stdin) = os::pipe::to_program().unwrap();
    let program = NamedProgram {
        whose: "a test".into(),
        command: ["sh", "-c", "echo done"].map(str::to_owned).to_vec(),
        directory: "/".into(),
        user: None,
        may_be_root: false,
    };
    let order = Order::RunChore(RunChore {
        id,
        program,
        stdin,
        stderr: stdout.try_clone().unwrap(),
        stdout,
    });
    (order, output)
}

#[test]
fn a_chore_is_run_for_the_supervisor_and_for_nobody_else() {
    let tenant = Tenant::new();
    let spawner = Spawner::start(tenant.plan());
    let worker = spawner.worker();
    let (order, _output) = chore(1);
    worker.send(&order);
    worker.is_dropped();
    let chores = || {
        let (link, its) = os::fdpass::packet_pair().unwrap();
        let chores = ToSpawner::Chores { link: its };
        chores.send(spawner.link().as_fd()).unwrap();
        Worker { link, next: 1 }
    };
    let supervisor = chores();
    if os::process::is_root() {
        // Where no user is named the spawner itself would be it.
        let (order, _output) = chore(7);
        supervisor.send(&order);
        let report = supervisor.hear().unwrap();
        let refused = Failure::UserIsRoot;
        assert!(matches!(report, Report::Failed { failure, .. } if failure == refused));
    } else {
        let (order, output) = chore(7);
        supervisor.send(&order);
        drop(order);
        assert_eq!(supervisor.hear_ended().end, End::Exit(0));
        assert_eq!(read(output), "done\n");
    }
    let _next = chores();
    supervisor.is_dropped();
}
