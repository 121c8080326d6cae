//! The supervisor from outside: reloads, crashes, signals and what it tells the service manager.

use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::client::Outcome;
use testkit::gateway::{Builder, Gateway};
use testkit::processes::open_files;
use testkit::wait::{eventually, free_port, quick_once};

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");
const LOGGED: &str = "[log]\naccess = \"-\"";
/// Less than a drain lasts by default.
pub(super) const PATIENCE: Duration = Duration::from_secs(25);
pub(super) const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: example.jp\r\nConnection: close\r\n\r\n";

/// A configuration that answers with `body`; `top` and `more` are put before and after.
pub(super) fn config(body: &str, top: &str, more: &str) -> String {
    format!(
        r#"
        workers = 2
        {top}
        [[listen]]
        address = "127.0.0.1:{{port}}"
        {more}
        [[sites]]
        hosts = ["*"]
        rules = [{{ handler = {{ respond = {{ body = "{body}" }} }} }}]
        "#
    )
}

pub(super) fn builder(config: &str) -> Builder {
    Gateway::with_config(BINARY, config)
}

/// Starts, and waits until the supervisor knows that the server is ready.
pub(super) fn start(config: &str) -> Gateway {
    let gateway = builder(config).start();
    gateway.wait_for_message("ready: generation 1");
    gateway
}

pub(super) fn body(outcome: Outcome) -> String {
    match outcome {
        Outcome::Reply(reply) if reply.complete => String::from_utf8(reply.body).unwrap(),
        other => panic!("no whole reply: {other:?}"),
    }
}

pub(super) fn ask(gateway: &Gateway) -> String {
    body(gateway.ask(ASK))
}

fn await_body(gateway: &Gateway, wanted: &str) {
    eventually(PATIENCE, wanted, || (ask(gateway) == wanted).then_some(()));
}

fn kill_server(gateway: &Gateway) -> u32 {
    let server = gateway.server_pid();
    kill_process(pid(server), Signal::KILL).unwrap();
    server
}

pub(super) fn pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().unwrap()).unwrap()
}

pub(super) fn lives(number: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}

/// What the descriptors of a process lead to, without numbers that differ from socket to socket.
fn descriptors(number: u32) -> Vec<String> {
    let open = open_files(number).into_iter();
    let kinds = open.map(|file| {
        let file = file.to_string_lossy();
        file.split(['[', '(']).next().unwrap().to_owned()
    });
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort();
    kinds
}

/// The server's descriptors once it has written an access record, for which it opens its log.
fn descriptors_after_a_record(gateway: &Gateway) -> Vec<String> {
    let _answer = gateway.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually(PATIENCE, "an access record", || {
        (!gateway.stdout().is_empty()).then_some(())
    });
    descriptors(gateway.server_pid())
}

/// Waits until the server has no more descriptors than these, of any kind. There may be fewer:
/// when these were counted, the server may not have noticed yet that a client had gone.
fn await_descriptors(gateway: &Gateway, known: &[String]) {
    let start = Instant::now();
    loop {
        let open = descriptors(gateway.server_pid());
        let count = |all: &[String], kind| all.iter().filter(|one| *one == kind).count();
        if open
            .iter()
            .all(|kind| count(&open, kind) <= count(known, kind))
        {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{known:?} were\n{open:?}");
        std::thread::yield_now();
    }
}

/// Waits until the supervisor has these descriptors and no others.
fn await_supervisors_descriptors(gateway: &Gateway, known: &[String]) {
    eventually(PATIENCE, "the supervisor's descriptors as before", || {
        (descriptors(gateway.pid()) == known).then_some(())
    });
}

/// Counts how often stderr says `text`.
fn said(gateway: &Gateway, text: &str) -> usize {
    gateway.stderr().matches(text).count()
}

#[test]
fn a_reload_serves_the_new_configuration() {
    let mut gateway = start(&config("one", "", ""));
    assert_eq!(ask(&gateway), "one");
    let server = gateway.server_pid();
    gateway.reload(&config("two", "", ""));
    await_body(&gateway, "two");
    assert_eq!(gateway.server_pid(), server, "the server stays");
}

#[test]
fn whatever_is_wrong_the_old_configuration_serves_on() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("[[listen]]\naddress = \"{}\"", taken.local_addr().unwrap());
    let mut gateway = start(&config("one", "", LOGGED));
    let supervisor = descriptors(gateway.pid());
    let server = descriptors_after_a_record(&gateway);
    let table = [
        ("[[[".to_owned(), "nagaya.toml:"),
        (config("two", "wrokers = 1", ""), "wrokers"),
        (config("two", "", &taken), "another process listens there"),
        (
            config("two", "", "[log]\naccess = \"/nonexistent/log\""),
            "directory `/nonexistent`: no such file or directory",
        ),
        (
            config("two", "[control]\nsocket = \"/nonexistent/s\"", ""),
            "directory `/nonexistent`: no such file or directory",
        ),
        (
            config("two", "", "[[listen]]\naddress = \"192.0.2.1:80\""),
            "no such address",
        ),
        (
            config("two", "", "").replace("workers = 2", "workers = 3"),
            "workers cannot change from 2 to 3",
        ),
        (config("two", "user = \"daemon\"", ""), "user cannot change"),
    ];
    for (number, (config, complaint)) in table.into_iter().enumerate() {
        gateway.reload(&config);
        eventually(PATIENCE, complaint, || {
            (said(&gateway, "reload refused, the old configuration serves on") > number)
                .then_some(())
        });
        assert!(
            gateway.stderr().contains(complaint),
            "{complaint}:\n{}",
            gateway.stderr()
        );
        assert_eq!(ask(&gateway), "one", "{complaint}");
    }
    await_supervisors_descriptors(&gateway, &supervisor);
    await_descriptors(&gateway, &server);
    gateway.reload(&config("three", "", ""));
    await_body(&gateway, "three");
    // What was refused has used no number.
    gateway.wait_for_message("ready: generation 2 serves");
}

#[test]
fn all_problems_are_said_at_once() {
    let mut gateway = start(&config("one", "", ""));
    gateway.reload(&config("two", "wrokers = 1\nusre = \"x\"", "[lgo]"));
    gateway.wait_for_message("reload refused");
    for key in ["wrokers", "usre", "lgo"] {
        assert!(gateway.stderr().contains(key), "{key}");
    }
    let twice = "[[sites]]\nhosts = [\"x.test\"]\nrules = [{ handler = { metrics = \"json\" } }]\n";
    gateway.reload(&config("two", "", &twice.repeat(2)));
    gateway.wait_for_message(" other=\"first named here: ");
}

#[test]
fn a_killed_server_is_back_within_a_second_and_no_connection_is_refused() {
    quick_once(Duration::from_secs(1), "a killed server to be back", || {
        let gateway = start(&config("one", "", ""));
        let server = kill_server(&gateway);
        let killed = Instant::now();
        // Connections that were accepted by the dying server may end without an answer; none may
        // be refused, which `ask` would panic at.
        eventually(PATIENCE, "an answer of the next server", || {
            match gateway.ask(ASK) {
                Outcome::Reply(reply) if reply.body == b"one" => {
                    (gateway.server_pid() != server).then_some(())
                }
                _ => None,
            }
        });
        killed.elapsed()
    });
}

#[test]
fn a_connection_made_while_there_is_no_server_is_answered_by_the_next() {
    let gateway = start(&config("one", "", ""));
    // The second end in a row is followed by a rest of 100 ms, in which nobody accepts.
    for _ in 0..2 {
        kill_server(&gateway);
        eventually(PATIENCE, "another answer", || match gateway.ask(ASK) {
            Outcome::Reply(_) => Some(()),
            _ => None,
        });
    }
    assert_eq!(ask(&gateway), "one");
}

#[test]
fn a_crash_loop_backs_off_and_says_so() {
    let gateway = start(&config("one", "", ""));
    let mut server = gateway.server_pid();
    for number in 1..=5 {
        kill_process(pid(server), Signal::KILL).unwrap();
        eventually(PATIENCE, "the next server to be ready", || {
            (said(&gateway, "ready: generation 1") > number).then_some(())
        });
        server = gateway.server_pid();
    }
    let stderr = gateway.stderr();
    let rests: Vec<_> = stderr
        .lines()
        .filter(|line| line.contains("is started again"))
        .collect();
    assert_eq!(rests.len(), 5);
    for (line, rest) in rests.iter().zip([0, 100, 200, 400, 800]) {
        assert!(line.contains(&format!("rest_ms={rest}")), "{line}");
    }
    assert!(
        rests[4].contains("restarts=5") && rests[4].contains("failures=5"),
        "{}",
        rests[4]
    );
    assert_eq!(ask(&gateway), "one");
}

#[test]
fn a_reload_cuts_a_rest_short() {
    quick_once(
        Duration::from_millis(1_200),
        "a reload in a rest",
        reload_in_a_rest,
    );
}

/// How long a reload takes that comes when a rest of 1.6 s has begun.
fn reload_in_a_rest() -> Duration {
    let mut gateway = start(&config("one", "", ""));
    let mut server = gateway.server_pid();
    for number in 1..=6 {
        kill_process(pid(server), Signal::KILL).unwrap();
        if number < 6 {
            eventually(PATIENCE, "the next server to be ready", || {
                (said(&gateway, "ready: generation 1") > number).then_some(())
            });
            server = gateway.server_pid();
        }
    }
    gateway.wait_for_message("rest_ms=1600");
    let began = Instant::now();
    gateway.reload(&config("two", "", ""));
    gateway.wait_for_message("ready: generation 2");
    let took = began.elapsed();
    assert_eq!(ask(&gateway), "two");
    took
}

#[test]
fn reloads_on_top_of_reloads_end_with_the_last_configuration() {
    let mut gateway = start(&config("body0", "", ""));
    for number in 1..=30 {
        gateway.reload(&config(&format!("body{number}"), "", ""));
    }
    await_body(&gateway, "body30");
    assert!(said(&gateway, "ready: generation") <= 31);
}

#[test]
fn term_during_a_reload_ends() {
    let mut gateway = start(&config("one", "", ""));
    gateway.reload(&config("two", "", ""));
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
}

#[test]
fn listeners_come_and_go_by_reload() {
    let other = free_port();
    let more = format!("{LOGGED}\n[[listen]]\naddress = \"127.0.0.1:{other}\"");
    let with = config("with", "", &more);
    let without = config("without", "", LOGGED);
    let mut gateway = start(&without);
    let (supervisor, server) = (
        descriptors(gateway.pid()),
        descriptors_after_a_record(&gateway),
    );
    for _ in 0..3 {
        gateway.reload(&with);
        await_body(&gateway, "with");
        TcpStream::connect(("127.0.0.1", other)).unwrap();
        gateway.reload(&without);
        await_body(&gateway, "without");
        eventually(PATIENCE, "the removed listener to close", || {
            TcpStream::connect(("127.0.0.1", other))
                .is_err()
                .then_some(())
        });
    }
    await_supervisors_descriptors(&gateway, &supervisor);
    await_descriptors(&gateway, &server);
}

#[test]
fn a_port_only_root_may_bind_can_be_added_after_the_server_gave_up_being_root() {
    if testkit::lacks_root("to bind a port below 1024") {
        return;
    }
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let low = (600..1024).rev().find(free).unwrap();
    let mut gateway = start(&config("one", "", ""));
    gateway.reload(&config(
        "two",
        "",
        &format!("[[listen]]\naddress = \"127.0.0.1:{low}\""),
    ));
    await_body(&gateway, "two");
    let mut client = testkit::client::RawClient::connect(([127, 0, 0, 1], low).into());
    assert_eq!(body(client.ask(ASK)), "two");
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.server_pid())).unwrap();
    assert!(
        status.contains("Uid:\t65534\t65534\t65534\t65534"),
        "{status}"
    );
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
}

#[test]
fn the_file_of_a_unix_listener_lives_as_long_as_the_listener() {
    use std::os::unix::fs::PermissionsExt;
    let with = config(
        "one",
        "[control]\nsocket = \"{dir}/control\"",
        "[[listen]]\naddress = \"unix:{dir}/listener\"",
    );
    let mut gateway = start(&with);
    let path = |name: &str| gateway.directory().path().join(name);
    let (listener, control) = (path("listener"), path("control"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&listener), mode(&control)), (0o666, 0o600));
    gateway.reload(&config("two", "", ""));
    await_body(&gateway, "two");
    eventually(PATIENCE, "both files to go", || {
        (!listener.exists() && !control.exists()).then_some(())
    });
    gateway.reload(&with);
    await_body(&gateway, "one");
    gateway.wait_for_message("ready: generation 3");
    assert!(listener.exists() && control.exists());
    kill_server(&gateway);
    eventually(PATIENCE, "the next server", || {
        (said(&gateway, "ready: generation 3") == 2).then_some(())
    });
    assert!(listener.exists());
    gateway.stop();
    assert!(!listener.exists() && !control.exists());
}

#[test]
fn usr1_opens_logs_again_where_they_were() {
    let gateway = start(&config("one", "", "[log]\naccess = \"{dir}/access.log\""));
    let log = gateway.directory().path().join("access.log");
    let moved = log.with_extension("log.1");
    std::fs::rename(&log, &moved).unwrap();
    gateway.signal(Signal::USR1);
    gateway.wait_for_message("logs opened again");
    let held = open_files(gateway.pid());
    assert!(held.contains(&log) && !held.contains(&moved), "{held:?}");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&log).unwrap());
    assert_eq!(mode & 0o7777, 0o640);
}

#[test]
fn a_tenant_who_spoils_a_log_stops_neither_start_nor_reload() {
    if testkit::lacks_root("to give a directory away") {
        return;
    }
    for log in ["logs/all.log", "logs/$host.log"] {
        let text = config(
            "one",
            "",
            &format!("[log]\naccess = \"{{dir}}/tenant/{log}\""),
        );
        let builder = builder(&text);
        let tenant = builder.directory().path().join("tenant");
        std::fs::create_dir(&tenant).unwrap();
        let checks = || builder.run(&["check"]).0.success();
        assert!(!checks(), "an operator's directory is missing");
        std::os::unix::fs::chown(&tenant, Some(65_534), None).unwrap();
        assert!(checks());
        let mut gateway = builder.start();
        gateway.wait_for_message("ready: generation 1");
        gateway.reload(&text.replace("one", "two"));
        await_body(&gateway, "two");
        gateway.wait_for_message("its directory must exist");
        std::fs::create_dir(tenant.join("logs")).unwrap();
        gateway.signal(Signal::USR1);
        gateway.wait_for_message("logs opened again");
        let written = tenant.join(log.replace("$host", "_"));
        eventually(PATIENCE, "a record", || {
            ask(&gateway);
            std::fs::metadata(&written)
                .is_ok_and(|log| log.len() > 0)
                .then_some(())
        });
    }
}

#[test]
fn the_service_manager_is_told() {
    let directory = testkit::temp::TempDir::new();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut datagram = [0; 4096];
        let length = manager.recv(&mut datagram).unwrap();
        String::from_utf8(datagram[..length].to_vec()).unwrap()
    };
    let mut gateway = builder(&config("one", "", ""))
        .env("NOTIFY_SOCKET", &path)
        .start();
    let ready = next();
    assert!(
        ready.starts_with("READY=1\nSTATUS=generation 1 serves 1 site"),
        "{ready}"
    );
    for (body, wanted) in [("two", "generation 2 serves"), ("\"", "reload refused")] {
        gateway.reload(&config(body, "", ""));
        let reloading = next();
        let clock = reloading
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .unwrap();
        clock.parse::<u64>().unwrap();
        let ready = next();
        assert!(
            ready.starts_with("READY=1\nSTATUS=") && ready.contains(wanted),
            "{ready}"
        );
    }
    kill_server(&gateway);
    assert!(next().starts_with("STATUS=server lost"));
    assert!(next().starts_with("READY=1"));
    gateway.stop();
    assert!(next().starts_with("STOPPING=1\n"));
}

#[test]
fn a_second_gateway_at_the_same_address_does_not_start() {
    let gateway = start(&config("one", "", ""));
    let (status, _, said) = gateway.command(&["serve"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("another process listens there"), "{said}");
    assert_eq!(ask(&gateway), "one");
}

#[test]
fn the_level_of_the_error_log_follows_the_configuration() {
    let refused = |gateway: &Gateway| {
        let outcome = gateway.ask(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
        assert!(matches!(outcome, Outcome::Reply(reply) if reply.status == 400));
    };
    let mut gateway = start(&config("one", "", ""));
    refused(&gateway);
    gateway.reload(&config("two", "", "[log]\nlevel = \"debug\""));
    gateway.wait_for_message("ready: generation 2");
    assert_eq!(said(&gateway, " debug server: "), 0);
    refused(&gateway);
    gateway.wait_for_message(" debug server: ");
    gateway.reload(&config("three", "", "[log]\nlevel = \"error\""));
    await_body(&gateway, "three");
    gateway.reload("[[[");
    gateway.wait_for_message("reload refused");
    assert_eq!(said(&gateway, "ready: generation 3"), 0, "that is info");
}

#[test]
fn a_blocked_error_log_stops_nothing() {
    let gateway = builder(&config("one", "", "[log]\nlevel = \"trace\""));
    let file = gateway.directory().path().join("nagaya.toml");
    let port = free_port();
    let text = config("one", "", "[log]\nlevel = \"trace\"").replace("{port}", &port.to_string());
    std::fs::write(&file, text).unwrap();
    let mut serve = Command::new(BINARY);
    serve
        .arg("serve")
        .arg("-c")
        .arg(&file)
        .stderr(std::process::Stdio::piped());
    let mut process = serve.spawn().unwrap();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    eventually(PATIENCE, "an answer", || TcpStream::connect(address).ok());
    // Every bad request is a line of some hundred bytes; the pipe holds 64 KiB.
    for _ in 0..2_000 {
        let mut client = testkit::client::RawClient::connect(address);
        let _ = client.ask(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    }
    let mut client = testkit::client::RawClient::connect(address);
    assert_eq!(body(client.ask(ASK)), "one");
    process.kill().unwrap();
    process.wait().unwrap();
}
