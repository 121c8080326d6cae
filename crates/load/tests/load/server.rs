//! Servers looked at: live processes that this test starts.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use load::server::{Sampler, Server, Spent, TreeFigures, Which, cool_down};
use os::cgroup::{Controller, Host};
use rustix::process::{Pid, Signal, kill_process};
use testkit::wait::eventually;

const DEADLINE: Duration = Duration::from_secs(20);

/// A shell that does `script`, killed at the end of the test.
struct Shell(Child);

impl Shell {
    fn start(script: &str) -> Shell {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        Shell(child)
    }

    fn server(&self) -> Server {
        Server::find(&Which::Pid(self.0.id())).expect("it is there")
    }

    /// Lets a script go on that waits in `read`.
    fn go_on(&mut self) {
        let input = self.0.stdin.as_mut().expect("it is piped");
        input.write_all(b"\n").expect("it reads");
    }

    /// Lines the script writes, told by a thread that waits for them.
    fn lines(&mut self) -> Receiver<String> {
        let output = BufReader::new(self.0.stdout.take().expect("it is piped"));
        let (tell, told) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        told
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_busy_process_is_seen_to_work() {
    let shell = Shell::start("while :; do :; done");
    let mut server = shell.server();
    let before = server.read();
    let spent = eventually(DEADLINE, "CPU time", || {
        let spent = Spent::between(&before, &server.read_memory());
        (spent.cpu() > Duration::from_millis(100)).then_some(spent)
    });
    let tree = spent.tree.expect("a tree");
    assert_eq!(tree.processes, 1);
    assert!(tree.peak_bytes > 100_000, "{tree:?}");
    assert!(
        tree.pss_bytes.is_some_and(|bytes| bytes > 10_000),
        "{tree:?}"
    );
    assert!(spent.charged > Duration::ZERO);
}

#[test]
fn whoever_listens_on_a_port_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut server = Server::find(&Which::Listening(port)).expect("we listen");
    assert_eq!(server.roots(), [std::process::id()]);
    let tree = server.read().tree.expect("a tree");
    assert_eq!(tree.sockets.get("LISTEN"), Some(&1), "{tree:?}");
}

fn tree(server: &mut Server) -> TreeFigures {
    server.read().tree.expect("a server was named")
}

/// Seconds of a line of the shell's `times`: `0m1.250000s 0m0.030000s`.
fn seconds(line: &str) -> f64 {
    let part = |part: &str| {
        let (minutes, seconds) = part.trim_end_matches('s').split_once('m').expect("minutes");
        let number = |text: &str| text.parse::<f64>().expect("a number");
        number(minutes) * 60.0 + number(seconds)
    };
    line.split_ascii_whitespace().map(part).sum()
}

/// Runs a script between two looks, with more looks meanwhile, and compares with what its shell
/// says of itself and its children.
fn agrees_with_its_shell(work: &str) {
    let mut shell = Shell::start(&format!("read go; {work}; times; read stop"));
    let lines = shell.lines();
    let mut server = shell.server();
    let before = server.read();
    shell.go_on();
    let mut last = Duration::ZERO;
    let told: Vec<String> = eventually(DEADLINE * 3, "the script's end", || {
        let now = tree(&mut server).cpu;
        assert!(now >= last, "{now:?} after {last:?}");
        last = now;
        let line = lines.recv_timeout(Duration::from_millis(50)).ok()?;
        let next = lines
            .recv_timeout(DEADLINE)
            .expect("times writes two lines");
        Some(vec![line, next])
    });
    let spent = Spent::between(&before, &server.read()).cpu().as_secs_f64();
    let expected: f64 = told.iter().map(|line| seconds(line)).sum();
    let slack = 0.06 + expected * 0.03;
    eprintln!("read {spent:.3} s, the shell says {expected:.3} s");
    assert!(
        (spent - expected).abs() < slack,
        "read {spent} s, the shell says {expected} s"
    );
}

#[test]
fn a_server_that_forks_for_each_request_is_counted_whole() {
    agrees_with_its_shell(
        "i=0; while [ $i -lt 200 ]; do \
         sh -c 'j=0; while [ $j -lt 2000 ]; do j=$((j+1)); done'; i=$((i+1)); done",
    );
}

#[test]
fn grandchildren_and_children_side_by_side_are_counted_whole() {
    agrees_with_its_shell(
        "i=0; while [ $i -lt 20 ]; do for k in 1 2 3; do \
         sh -c 'sh -c \"j=0; while [ \\$j -lt 9000 ]; do j=\\$((j+1)); done\"; :' & done; \
         wait; i=$((i+1)); done",
    );
}

#[test]
fn what_an_ended_process_used_is_kept_and_not_counted_twice() {
    let mut shell = Shell::start(
        "read go; sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo up; read end'; \
         read stop",
    );
    let lines = shell.lines();
    let mut server = shell.server();
    shell.go_on();
    lines.recv_timeout(DEADLINE).expect("the child's work ends");
    let worked = tree(&mut server);
    assert_eq!(worked.processes, 2);
    assert!(worked.cpu > Duration::from_millis(30), "{worked:?}");
    shell.go_on();
    let after = eventually(DEADLINE, "the child's end", || {
        let tree = tree(&mut server);
        (tree.processes == 1).then_some(tree)
    });
    let later = tree(&mut server);
    for tree in [after, later] {
        assert!(tree.voluntary_switches >= worked.voluntary_switches);
        let more = tree
            .cpu
            .checked_sub(worked.cpu)
            .expect("it never goes backwards");
        assert!(more < worked.cpu / 2, "{more:?} after {:?}", worked.cpu);
    }
}

#[test]
fn orphans_stay_in_the_tree() {
    let mut shell = Shell::start("(sh -c 'sleep 60 & echo $!; read go') ; read stop");
    let lines = shell.lines();
    let mut server = shell.server();
    let sleeper: u32 = lines
        .recv_timeout(DEADLINE)
        .ok()
        .and_then(|line| line.parse().ok())
        .expect("a process number");
    server.read();
    assert!(server.processes().contains(&sleeper));
    shell.go_on();
    eventually(DEADLINE, "the parent's end", || {
        server.read();
        (server.processes().len() == 2).then_some(())
    });
    assert!(
        server.processes().contains(&sleeper),
        "{:?}",
        server.processes()
    );
    let pid = Pid::from_raw(sleeper as i32).expect("a number");
    kill_process(pid, Signal::KILL).expect("it is ours");
}

#[test]
fn a_server_that_ended_spends_nothing_more() {
    let shell = Shell::start("read stop");
    let mut server = shell.server();
    server.read();
    drop(shell);
    let before = server.read_memory();
    let spent = Spent::between(&before, &server.read_memory());
    let tree = spent.tree.clone().expect("a server was named");
    assert_eq!((tree.processes, tree.pss_bytes), (0, None));
    assert_eq!(spent.cpu(), Duration::ZERO);
}

#[test]
fn nobody_there_is_an_error_that_says_what_to_try() {
    let port = testkit::free_port();
    for (which, expected) in [
        (Which::Pid(1 << 29), "there is no such process"),
        (
            Which::Pids(vec![std::process::id(), 1 << 29]),
            "process number 536870912",
        ),
        (Which::Listening(port), "nobody listens there"),
    ] {
        let error = Server::find(&which).expect_err("there is none");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut machine = Server::find(&Which::MachineOnly).expect("there is always a machine");
    let reading = machine.read_memory();
    assert!(reading.tree.is_none() && reading.machine.cores > 0);
}

#[test]
fn sockets_are_counted_by_state_on_the_servers_ports() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let client = TcpStream::connect(address).expect("it listens");
    let (accepted, _) = listener.accept().expect("a connection");
    let mut server = Server::find(&Which::Pid(std::process::id())).expect("it is us");
    let established = |server: &mut Server| tree(server).sockets.get("ESTABLISHED").copied();
    assert!(established(&mut server) >= Some(1));
    drop(client);
    drop(accepted);
    drop(listener);
}

#[test]
fn samples_are_taken_until_they_are_enough() {
    let mut shell = Shell::start("echo up; while :; do :; done");
    let up = shell.lines().recv_timeout(DEADLINE);
    assert!(up.is_ok());
    let sampler = Sampler::start(shell.server(), Duration::from_millis(10));
    let mut other = shell.server();
    let from = tree(&mut other).cpu;
    eventually(DEADLINE, "some work", || {
        (tree(&mut other).cpu > from + Duration::from_millis(300)).then_some(())
    });
    let (mut server, samples) = sampler.stop();
    assert!(samples.len() >= 2, "{}", samples.len());
    let used: f64 = samples.iter().map(|sample| sample.cores_used).sum();
    assert!(used > 0.0 && samples.iter().any(|sample| sample.pss_bytes.is_some()));
    assert!(samples.is_sorted_by_key(|sample| sample.at));
    let cooling = cool_down(&mut server, Duration::from_secs(60), || true);
    assert!(cooling.len() >= 2);
    for end in [cooling.first(), cooling.last()].into_iter().flatten() {
        assert!(
            end.pss_bytes.is_some() && end.sockets.is_some(),
            "{cooling:?}"
        );
    }
}

/// Groups of version 1 or 2, made for a test and removed after it.
struct MadeGroup(std::path::PathBuf);

impl MadeGroup {
    /// Below this process's own group, or says why there is none.
    fn new(controller: Controller) -> Option<MadeGroup> {
        let host = Host::look().expect("/proc is to be read");
        let place = match host.place(controller) {
            Ok(place) => place,
            Err(lack) => {
                let name = controller.name();
                testkit::lacks("a controller", format!("{name}: {}", lack.reason()));
                return None;
            }
        };
        let name = format!("bench-{}-{}", controller.name(), std::process::id());
        let group = MadeGroup(place.directory.join(name));
        if let Err(error) = std::fs::create_dir(&group.0) {
            testkit::lacks("a controller", format!("no group is to be made: {error}"));
            return None;
        }
        Some(group)
    }

    fn take(&self, shell: &Shell) -> bool {
        let moved = std::fs::write(self.0.join("cgroup.procs"), shell.0.id().to_string());
        if let Err(error) = &moved {
            testkit::lacks(
                "a controller",
                format!("no process is to be moved: {error}"),
            );
        }
        moved.is_ok()
    }

    /// A tenth of a core, where the group has the controller for it.
    fn limit(&self) -> bool {
        let v1 = std::fs::write(self.0.join("cpu.cfs_quota_us"), "10000");
        let limited = v1.or_else(|_| std::fs::write(self.0.join("cpu.max"), "10000 100000"));
        if let Err(error) = &limited {
            testkit::lacks("a controller", format!("no quota is to be set: {error}"));
        }
        limited.is_ok()
    }
}

impl Drop for MadeGroup {
    fn drop(&mut self) {
        // It may take a moment until an ended process has left it.
        eventually(DEADLINE, "an empty group", || {
            std::fs::remove_dir(&self.0).ok()
        });
    }
}

#[test]
fn of_those_that_hold_a_socket_the_topmost_is_the_server() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let inherited = listener.try_clone().expect("a second descriptor");
    // The script's own shell and the one below it both hold the socket as standard input.
    let child = Command::new("sh")
        .args(["-c", "sh -c 'sleep 60; :'; :"])
        .stdin(Stdio::from(OwnedFd::from(inherited)))
        .spawn()
        .expect("a shell starts");
    let shell = Shell(child);
    let found = Server::find(&Which::Listening(port)).expect("we listen");
    assert_eq!(found.roots(), [std::process::id()]);
    drop(listener);
    // Other tests' children may hold it until they have become what they are to be.
    let mut server = eventually(DEADLINE, "the shell alone", || {
        let server = Server::find(&Which::Listening(port)).ok()?;
        (server.roots() == [shell.0.id()]).then_some(server)
    });
    eventually(DEADLINE, "the whole tree", || {
        server.read();
        (server.processes().len() == 3).then_some(())
    });
    for pid in server.processes() {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let _ = kill_process(pid.expect("a number"), Signal::KILL);
    }
    drop(shell);
}

#[test]
fn a_tree_with_a_group_of_its_own_is_counted_by_it() {
    let Some(group) = MadeGroup::new(Controller::CpuTime) else {
        return;
    };
    let mut shell = Shell::start("read go; while :; do sh -c :; done");
    if !group.take(&shell) {
        return;
    }
    let mut server = shell.server();
    let before = server.read();
    let used = || {
        let v1 = std::fs::read_to_string(group.0.join("cpuacct.usage")).ok();
        let v1 = v1
            .and_then(|text| text.trim().parse().ok())
            .map(Duration::from_nanos);
        v1.or_else(|| {
            let text = std::fs::read_to_string(group.0.join("cpu.stat")).ok()?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("usage_usec "))?;
            Some(Duration::from_micros(line.parse().ok()?))
        })
        .expect("the group tells its time")
    };
    let from = used();
    shell.go_on();
    eventually(DEADLINE, "some work", || {
        (used() > from + Duration::from_millis(300)).then_some(())
    });
    let least = used() - from;
    let spent = Spent::between(&before, &server.read()).cpu();
    let most = used();
    drop(shell);
    assert!(
        spent >= least && spent <= most,
        "{least:?} {spent:?} {most:?}"
    );
}

#[test]
fn a_quota_is_seen_to_throttle() {
    let Some(group) = MadeGroup::new(Controller::Cpu) else {
        return;
    };
    let mut shell = Shell::start("read go; while :; do :; done");
    if !group.limit() || !group.take(&shell) {
        return;
    }
    let mut server = shell.server();
    let before = server.read();
    shell.go_on();
    let throttling = eventually(DEADLINE, "a throttled period", || {
        let spent = Spent::between(&before, &server.read());
        let throttling = spent.tree?.throttling.expect("there is a quota");
        (throttling.throttled >= 2 && !throttling.time.is_zero()).then_some(throttling)
    });
    drop(shell);
    assert!(throttling.periods >= throttling.throttled);
}

/// Prints what looks cost, in CPU time of this process.
fn print_costs(what: &str, server: Server) {
    const LOOKS: u32 = 20;
    let mut server = server;
    let mut cost = |look: &mut dyn FnMut(&mut Server)| {
        let before = os::cpu::process_cpu_ns();
        (0..LOOKS).for_each(|_| look(&mut server));
        Duration::from_nanos(os::cpu::process_cpu_ns() - before) / LOOKS
    };
    let read = cost(&mut |server| drop(server.read()));
    let memory = cost(&mut |server| drop(server.read_memory()));
    let (began, before) = (Instant::now(), os::cpu::process_cpu_ns());
    let sampler = Sampler::start(server, Duration::from_millis(100));
    // Nobody tells anything: polling would cost as much as what is measured.
    let (_keep, never) = channel::<()>();
    let _ = never.recv_timeout(Duration::from_secs(5));
    let (_, samples) = sampler.stop();
    let used = Duration::from_nanos(os::cpu::process_cpu_ns() - before);
    let share = used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    let count = samples.len();
    eprintln!(
        "{what}: read {read:?}, with memory {memory:?}, {count} samples {share:.2} % of a core"
    );
}

#[test]
#[ignore = "prints what looking costs; there is nothing to check"]
fn what_a_look_costs() {
    let shell = Shell::start("read stop");
    print_costs(
        "nothing",
        Server::find(&Which::MachineOnly).expect("a machine"),
    );
    print_costs("one process", shell.server());
    let mut hundred =
        Shell::start("i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done; echo up; wait");
    let up = hundred.lines().recv_timeout(DEADLINE);
    assert!(up.is_ok());
    let server = hundred.server();
    let children = server.processes();
    print_costs("a hundred children", server);
    for pid in children.into_iter().filter(|pid| *pid != hundred.0.id()) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let _ = kill_process(pid.expect("a number"), Signal::KILL);
    }
}
