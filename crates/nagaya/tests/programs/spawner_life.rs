//! The spawner in the gateway's life: programs come and go by reload, and end with whoever they
//! were started for.

use crate::fixtures::programs;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use testkit::client::{Body, reply};
use testkit::processes;
use testkit::temp::TempDir;
use testkit::{Gateway, PATIENCE, eventually, wait::free_port};

use crate::fixtures::programs::{CONFIG, await_gone, gateway, get, note, program, request, tell};

const FINE: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nfine'\n";
/// Says who it and its child are, and stays.
const STAY: &str = "#!/bin/sh\nsleep 1000 &\necho $$ $! >{notes}/$QUERY_STRING\nwait\n";

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), Signal::KILL).expect("it is killed");
}

/// Without programs.
fn config_without_programs() -> String {
    let none = "handler = { respond = { status = 404, body = \"none\" } }";
    CONFIG
        .replace("handler = { cgi = { {options} } }", none)
        .replace("handler = { cgi = { timeout = \"300ms\" } }", none)
}

/// Waits until none of these processes runs.
fn await_ended(processes: &str) {
    processes
        .split_whitespace()
        .for_each(processes::await_ended);
}

fn reload(gateway: &mut Gateway, config: &str, generation: u32) {
    gateway.reload(config);
    gateway.wait_for_message(&format!("ready: generation {generation} "));
}

#[test]
fn programs_come_and_go_by_reload() {
    let mut gateway = gateway("", "", &[("fine.cgi", FINE)]);
    gateway.wait_for_message("ready: generation 1 ");
    assert_eq!(get(&gateway, "/fine.cgi").text(), "fine");
    let (server, spawner) = (gateway.server_pid(), gateway.spawner_pid());
    reload(&mut gateway, &config_without_programs(), 2);
    eventually(PATIENCE, "the program to be gone", || {
        (get(&gateway, "/fine.cgi").text() == "none").then_some(())
    });
    reload(&mut gateway, CONFIG, 3);
    eventually(PATIENCE, "the program again", || {
        (get(&gateway, "/fine.cgi").text() == "fine").then_some(())
    });
    assert_eq!(
        (gateway.server_pid(), gateway.spawner_pid()),
        (server, spawner)
    );
}

#[test]
fn programs_can_be_added_to_a_gateway_that_had_none() {
    let builder = programs::builder("", "", "");
    program(builder.directory().path(), "fine.cgi", FINE);
    let mut gateway = builder.start();
    reload(&mut gateway, &config_without_programs(), 2);
    kill(gateway.spawner_pid());
    gateway.wait_for_message("lost the spawner");
    reload(&mut gateway, CONFIG, 3);
    eventually(PATIENCE, "the program", || {
        (get(&gateway, "/fine.cgi").text() == "fine").then_some(())
    });
}

#[test]
fn programs_die_with_their_server_and_the_next_one_runs_others() {
    let gateway = gateway("", "", &[("stay.cgi", STAY), ("fine.cgi", FINE)]);
    let mut client = gateway.client();
    client.send(&request("GET /stay.cgi?noted", ""));
    let processes = note(&gateway, "noted");
    let spawner = gateway.spawner_pid();
    kill(gateway.server_pid());
    await_gone(&processes);
    eventually(PATIENCE, "the next server to run a program", || {
        let outcome = gateway.ask(&request("GET /fine.cgi", "Connection: close\r\n"));
        matches!(outcome, testkit::Outcome::Reply(reply) if reply.body == b"fine").then_some(())
    });
    assert_eq!(gateway.spawner_pid(), spawner, "the spawner stays");
}

#[test]
fn programs_die_with_the_supervisor_however_it_ends() {
    for signal in [Signal::KILL, Signal::TERM] {
        let mut gateway = gateway("", "drain = \"100ms\"", &[("stay.cgi", STAY)]);
        let mut client = gateway.client();
        client.send(&request("GET /stay.cgi?noted", ""));
        let processes = note(&gateway, "noted");
        let children = gateway.children();
        gateway.signal(signal);
        gateway.wait();
        await_ended(&processes);
        for child in children {
            await_ended(&child.to_string());
        }
    }
}

#[test]
fn a_spawner_that_dies_again_and_again_leaves_files_served() {
    let gateway = gateway("", "", &[("fine.cgi", FINE)]);
    gateway.directory().write("www/page.txt", "a page");
    let server = gateway.server_pid();
    for count in 1..=4 {
        kill(gateway.spawner_pid());
        eventually(PATIENCE, "the loss to be noticed", || {
            (gateway.stderr().matches("lost the spawner").count() == count).then_some(())
        });
        assert_eq!(get(&gateway, "/page.txt").text(), "a page");
    }
    // The rests grow; what comes meanwhile waits for the next spawner or is refused.
    gateway.wait_for_message("failures=4 rest_ms=400");
    eventually(PATIENCE, "programs to run again", || {
        (get(&gateway, "/fine.cgi").status == 200).then_some(())
    });
    assert_eq!(gateway.server_pid(), server);
}

#[test]
fn what_left_its_session_dies_with_the_spawner_and_a_stranger_does_not() {
    let leave = "#!/bin/sh\nsetsid sh -c 'echo $$ >{notes}/fugitive; exec sleep 1000' >/dev/null 2>&1 &\n\
                 until [ -s {notes}/fugitive ]; do sleep 0.02; done\nprintf 'Content-Type: x\\n\\nleft'\n";
    let builder = programs::builder("", "", "");
    program(builder.directory().path(), "leave.cgi", leave);
    program(builder.directory().path(), "fine.cgi", FINE);
    // As the entry point of a container starts something beside the gateway.
    let entry = builder.directory().write_program(
        "entry",
        format!(
            "#!/bin/sh\nsleep 1000 &\necho $! >{}/notes/stranger\nexec '{}' \"$@\"\n",
            builder.directory().path().display(),
            env!("CARGO_BIN_EXE_nagaya")
        ),
    );
    let gateway = builder.through(&entry).start();
    let stranger = note(&gateway, "stranger");
    assert_eq!(get(&gateway, "/leave.cgi").text(), "left");
    let fugitive = note(&gateway, "fugitive");
    kill(gateway.spawner_pid());
    await_gone(&fugitive);
    assert_eq!(get(&gateway, "/fine.cgi").text(), "fine");
    let stranger_lives = std::fs::exists(format!("/proc/{stranger}")).expect("/proc");
    assert!(stranger_lives, "it is none of the gateway's");
    kill(stranger.parse().expect("a process"));
}

#[test]
fn only_root_can_run_programs_as_somebody_else() {
    if testkit::lacks_root("to start a gateway as somebody else") {
        return;
    }
    let directory = TempDir::new();
    let place = directory.path().display().to_string();
    let check = |user: &str| {
        let config = format!(
            "[[listen]]\naddress = \"127.0.0.1:{}\"\n[[sites]]\nhosts = [\"own.test\"]\n\
             root = \"{place}\"\nuser = \"{user}\"\nrules = [{{ handler = {{ cgi = true }} }}]\n",
            free_port()
        );
        directory.write("nagaya.toml", config);
        // Its path may be closed to this user; what is open is not.
        let binary = File::open(env!("CARGO_BIN_EXE_nagaya")).expect("the binary");
        let binary = OwnedFd::from(binary);
        fcntl_setfd(&binary, FdFlags::empty()).expect("it may be inherited");
        let mut gateway = Command::new("setpriv")
            .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
            .arg(format!("/proc/self/fd/{}", binary.as_raw_fd()))
            .args(["serve", "-c"])
            .arg(directory.path().join("nagaya.toml"))
            .current_dir("/")
            .stdin(Stdio::null())
            .stderr(File::create(directory.path().join("stderr")).expect("a file"))
            .spawn()
            .expect("setpriv runs");
        let said = || std::fs::read_to_string(directory.path().join("stderr")).unwrap_or_default();
        let came = eventually(PATIENCE, "the gateway to start or not", || {
            let ready = said().contains("ready: generation 1 ").then_some(true);
            let ended = gateway.try_wait().expect("a child").map(|_| false);
            ready.or(ended)
        });
        let _ = gateway.kill();
        let _ = gateway.wait();
        (came, said())
    };
    let (came, said) = check("nobody");
    assert!(came, "{said}");
    let (came, said) = check("daemon");
    assert!(!came, "{said}");
    for words in [
        "site own.test",
        "daemon",
        "only root",
        "take `user` out of the site",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn an_upgrade_finishes_programs_that_run_and_leaves_none_behind() {
    const WAIT: &str = "#!/bin/sh\necho $$ >{notes}/$QUERY_STRING\n\
        until [ -e {notes}/go ]; do sleep 0.02; done\n\
        printf 'Content-Type: text/plain\\n\\nfinished'\n";
    let gateway = gateway(
        "",
        "",
        &[("fine.cgi", FINE), ("wait.cgi", WAIT), ("stay.cgi", STAY)],
    );
    gateway.wait_for_message("ready: generation 1 ");
    let (server, spawner) = (gateway.server_pid(), gateway.spawner_pid());
    let mut waits = gateway.client().with_deadline(PATIENCE);
    waits.send(&request("GET /wait.cgi?wait", ""));
    let mut left = gateway.client().with_deadline(PATIENCE);
    left.send(&request("GET /stay.cgi?stay", ""));
    let programs = note(&gateway, "wait") + " " + &note(&gateway, "stay");
    gateway.signal(Signal::USR2);
    gateway.wait_for_message("the program is a new one generation=2");
    // The next ones are started by another spawner, while this one waits for its last.
    assert_eq!(get(&gateway, "/fine.cgi").text(), "fine");
    assert!(processes::children(gateway.pid()).contains(&spawner));
    tell(&gateway, "go");
    assert_eq!(reply(waits.read_reply(Body::Framed)).text(), "finished");
    // Its reply said that the connection is kept, and so the server that retires does.
    drop(waits);
    drop(left);
    await_gone(&format!("{programs} {server} {spawner}"));
    assert_eq!(get(&gateway, "/fine.cgi").text(), "fine");
}
