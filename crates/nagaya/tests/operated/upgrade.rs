//! `nagaya upgrade`: another program takes the place of the running one, or is refused.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use testkit::client::{Body, Outcome, reply};
use testkit::gateway::Gateway;
use testkit::processes::open_files;
use testkit::temp::TempDir;
use testkit::upstream::{ScriptedUpstream, Step};
use testkit::wait::eventually;

use super::reload_under_load::{Defer, Seen, ask_on, setting};
use super::supervisor::{ASK, PATIENCE, ask, body, config};

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");
const WEBSOCKET: &[u8] = b"GET /ws HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const CONTROL: &str = "[control]\nsocket = \"{dir}/control\"";

/// A place where a program is installed.
pub(super) struct Installed(TempDir);

impl Installed {
    pub(super) fn new() -> Installed {
        let installed = Installed(TempDir::new());
        symlink(BINARY, installed.path()).unwrap();
        installed
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path().join("nagaya")
    }

    fn remove(&self) {
        std::fs::remove_file(self.path()).unwrap();
    }

    /// Puts a script in its place, which is the program but for the cases it deals with.
    fn install_but(&self, cases: &str) {
        let path = self.path().display().to_string();
        let text =
            format!("#!/bin/bash\ncase \"$1\" in\n{cases}\nesac\nexec -a {path} {BINARY} \"$@\"\n");
        let new = self.0.write("new", text);
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }

    fn start(&self, config: &str) -> Gateway {
        let gateway = Gateway::with_config(self.path(), config).start();
        gateway.wait_for_message("ready: generation 1");
        gateway
    }
}

/// How an upstream says that it speaks another protocol from now on.
fn switching() -> Step {
    let head =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    Step::Send(head.into())
}

/// A configuration with a control socket, that answers with `body`.
fn controlled(body: &str) -> String {
    config(body, "", CONTROL)
}

fn command(gateway: &Gateway, word: &str) -> Command {
    let mut command = Command::new(BINARY);
    let config = gateway.directory().path().join("nagaya.toml");
    command.arg(word).arg("-c").arg(config);
    command
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn upgrade(gateway: &Gateway) -> (Option<i32>, String, String) {
    said(&command(gateway, "upgrade").output().unwrap())
}

pub(super) fn upgraded(gateway: &Gateway) {
    let (status, out, err) = upgrade(gateway);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
}

#[test]
fn another_program_takes_over_with_the_configuration_of_now() {
    let installed = Installed::new();
    let gateway = installed.start(&controlled("one"));
    let supervisor = gateway.pid();
    for (number, body) in [(2, "two"), (3, "three")] {
        let server = gateway.server_pid();
        gateway.place(&controlled(body));
        let (status, out, err) = upgrade(&gateway);
        assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
        assert!(
            out.starts_with(&format!("generation {number} serves 1 site")),
            "{out}"
        );
        await_body(&gateway, body);
        assert_eq!(gateway.pid(), supervisor);
        await_other_server(&gateway, server);
    }
}

/// Waits until the first server to be found is another one.
fn await_other_server(gateway: &Gateway, server: u32) {
    eventually(PATIENCE, "another server", || {
        let servers = gateway.children();
        servers.iter().any(|child| *child > server).then_some(())
    });
}

#[test]
fn whatever_is_wrong_with_the_new_program_the_old_one_serves_on() {
    let installed = Installed::new();
    let gateway = installed.start(&controlled("one"));
    let (server, spawner) = (gateway.server_pid(), gateway.spawner_pid());
    gateway.place(&controlled("two"));
    for (cases, complaint) in [
        (
            "successor) exit 3",
            "ended (exit status: 3) before its server was ready",
        ),
        (
            "successor) kill -9 $$",
            "ended (signal: 9 (SIGKILL)) before its server was ready",
        ),
        ("successor) echo x >&0; exit", "before its server was ready"),
        (
            &format!("successor) exec {BINARY} successor --format 999"),
            "this upgrade takes a restart",
        ),
        ("spawner) exit 1", "the spawner does not answer"),
        ("spawner) kill -9 $$", "the spawner does not answer"),
        (
            "server) exit 1",
            "the new server was lost before it was ready",
        ),
        (
            "server) kill -9 $$",
            "the new server was lost before it was ready",
        ),
        (
            "server) exec sleep 600",
            "the new server was not ready in time",
        ),
        (
            "serve) n=${NAGAYA_HANDOVER#* }; export NAGAYA_HANDOVER=\"$$ 0 ${n#* }\"",
            "the new program could not go on",
        ),
    ] {
        installed.install_but(&format!("{cases};;"));
        refused(&gateway, 1, complaint);
        // A new server that was ready finishes what it has accepted.
        await_body(&gateway, "one");
        let known = [server, spawner];
        eventually(PATIENCE, "the new program's processes to end", || {
            let lives = |child: &u32| known.contains(child) || super::supervisor::lives(*child);
            let living = gateway.children().into_iter().filter(lives).count();
            (living == 2).then_some(())
        });
        assert_eq!(
            (gateway.server_pid(), gateway.spawner_pid()),
            (server, spawner)
        );
    }
}

#[test]
fn a_file_that_is_no_program_and_a_wrong_configuration_are_told() {
    let installed = Installed::new();
    let gateway = installed.start(&controlled("one"));
    installed.remove();
    refused(&gateway, 1, "no such file");
    let text = installed.0.write("nagaya", "no program");
    refused(&gateway, 1, "start ");
    std::fs::set_permissions(text, std::fs::Permissions::from_mode(0o755)).unwrap();
    refused(&gateway, 1, "start ");
    installed.install_but("");
    gateway.place(&controlled("two").replace("workers", "wrokers"));
    refused(&gateway, 2, "nagaya.toml:2:");
    let (_, out, _) = said(&command(&gateway, "status").output().unwrap());
    let path = installed.path().display().to_string();
    assert!(
        out.contains(&format!(
            "installed: another program at {path}; nagaya upgrade"
        )),
        "{out}"
    );
    assert_eq!(ask(&gateway), "one");
    gateway.place(&controlled("two"));
    upgraded(&gateway);
    await_body(&gateway, "two");
}

fn refused(gateway: &Gateway, code: i32, complaint: &str) {
    let (status, out, err) = upgrade(gateway);
    assert_eq!(
        (status, out.as_str()),
        (Some(code), ""),
        "{complaint}: {err}"
    );
    assert!(err.contains(complaint), "{complaint}: {err}");
    assert!(
        err.ends_with("upgrade refused, the old program serves on\n"),
        "{err}"
    );
}

fn await_body(gateway: &Gateway, wanted: &str) {
    eventually(PATIENCE, wanted, || (ask(gateway) == wanted).then_some(()));
}

#[test]
fn twenty_upgrades_under_load_fail_no_request_and_leak_nothing() {
    let installed = Installed::new();
    let text = controlled("served");
    let gateway = installed.start(&text);
    let (supervisor, seen) = (gateway.pid(), Seen::default());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| ask_on(gateway.address(), &done, &seen));
        }
        let _ends_the_load = Defer(&done);
        let mut open = None;
        for _ in 0..setting("NAGAYA_UPGRADES", 20) {
            let asked = seen.asked.load(Ordering::Relaxed);
            upgraded(&gateway);
            eventually(PATIENCE, "the server before to end", || {
                (gateway.children().len() == 2).then_some(())
            });
            // After the first one nothing is added.
            let most = *open.get_or_insert_with(|| open_files(supervisor).len());
            eventually(PATIENCE, "the supervisor's descriptors as before", || {
                (open_files(supervisor).len() <= most).then_some(())
            });
            assert!(
                seen.asked.load(Ordering::Relaxed) > asked,
                "the load was no load"
            );
        }
    });
    let (asked, failed) = (seen.asked.into_inner(), seen.failed.into_inner());
    println!("{asked} requests during upgrades, {failed} failed");
    assert_eq!(failed, 0, "of {asked} requests");
}

#[test]
fn signals_that_come_meanwhile_are_heard_by_the_program_that_is_there_then() {
    let installed = Installed::new();
    let mut gateway = installed.start(&controlled("one"));
    // Whatever comes first, the other follows, and twice is as good as once more.
    installed.install_but("server) sleep 1;;");
    gateway.signal(Signal::USR2);
    gateway.wait_for_message("the new program is tried");
    gateway.signal(Signal::USR2);
    gateway.signal(Signal::USR2);
    assert_eq!(ask(&gateway), "one");
    let (status, out, _) = said(&command(&gateway, "status").output().unwrap());
    assert_eq!(status, Some(0), "{out}");
    gateway.reload(&controlled("two"));
    gateway.wait_for_message("ready: generation 2 serves 1 site with 2 workers; the program");
    gateway.wait_for_message("generation=3");
    gateway.wait_for_message("ready: generation 4 serves 1 site with 2 workers; the program");
    await_body(&gateway, "two");
    let log = gateway.stderr();
    assert_eq!(log.matches("the new program is tried").count(), 2, "{log}");
    // A reload under way is finished first.
    let slow = format!("{CONTROL}\n[scripts]\nworker_init = {{ code = \"sleep 1\" }}");
    gateway.reload(&config("three", "", &slow));
    let (status, out, err) = upgrade(&gateway);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("generation 6 "), "{out}");
    await_body(&gateway, "three");
    assert!(gateway.stop().success());
}

#[test]
fn a_stop_ends_an_upgrade_and_no_upgrade_begins_in_a_drain() {
    let installed = Installed::new();
    installed.install_but("server) [ -e \"$0.slow\" ] && sleep 600;;");
    let mut gateway = Gateway::with_config(BINARY, &controlled("one"))
        .through(installed.path())
        .start();
    gateway.wait_for_message("ready: generation 1");
    let mut client = gateway.client();
    let (begin, end) = ASK.split_at(20);
    client.send(begin);
    assert_eq!(ask(&gateway), "one");
    let (_, out, err) = upgrade(&gateway);
    assert!(out.starts_with("generation 2 "), "{err}");
    // The server before still has a request under way, and so it does while all ends.
    gateway.signal(Signal::TERM);
    gateway.wait_for_message("signal=TERM");
    gateway.signal(Signal::USR2);
    gateway.wait_for_message("signal=USR2");
    assert_eq!(body(client.ask(end)), "one");
    assert!(gateway.wait().success());
    assert!(gateway.stderr().matches("is tried").count() == 1);
}

#[test]
fn what_is_under_way_is_finished_by_who_began_it() {
    let upstream = ScriptedUpstream::start(|_| vec![switching(), Step::Echo]);
    let installed = Installed::new();
    let text = format!(
        "{}\n[upstreams.back]\nservers = [\"{}\"]\n[[sites]]\nhosts = [\"app.test\"]\nrules = [{{ handler = {{ proxy = \"back\" }} }}]",
        controlled("one"),
        upstream.address()
    );
    let gateway = installed.start(&text);
    let mut socket = gateway.client();
    socket.send(WEBSOCKET);
    let switched = reply(socket.read_reply(Body::Never));
    assert_eq!(switched.status, 101);
    let mut idle = gateway.client();
    let kept = b"GET / HTTP/1.1\r\nHost: example.jp\r\n\r\n";
    assert_eq!(body(idle.ask(kept)), "one");
    let mut begun = gateway.client();
    begun.send(&kept[..20]);
    let server = gateway.server_pid();
    upgraded(&gateway);
    await_other_server(&gateway, server);
    socket.send(b"still here");
    assert_eq!(socket.read_exactly(10), b"still here");
    // A kept connection may send one more request, and is told that it is the last.
    let Outcome::Reply(reply) = idle.ask(kept) else {
        panic!("an idle connection was closed");
    };
    assert_eq!(reply.head.field("connection"), Some("close"));
    assert_eq!(body(begun.ask(&kept[20..])), "one");
    assert!(super::supervisor::lives(server));
    // A second upgrade leaves all of that alone.
    upgraded(&gateway);
    socket.send(b"even now");
    assert_eq!(socket.read_exactly(8), b"even now");
    drop(socket);
    eventually(PATIENCE, "the first server to end", || {
        (!super::supervisor::lives(server)).then_some(())
    });
}

#[test]
fn the_service_manager_hears_of_an_upgrade_as_of_a_reload() {
    let installed = Installed::new();
    let directory = TempDir::new();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let gateway = Gateway::with_config(installed.path(), &controlled("one"));
    let gateway = gateway.env("NOTIFY_SOCKET", &path).start();
    let heard = || {
        let mut bytes = [0; 4096];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    assert!(heard().starts_with("READY=1"));
    upgraded(&gateway);
    let (reloading, ready) = (heard(), heard());
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert!(
        ready.starts_with("READY=1\nSTATUS=generation 2 "),
        "{ready}"
    );
    installed.install_but("successor) exit 1;;");
    refused(&gateway, 1, "before its server was ready");
    let (_, ready) = (heard(), heard());
    assert!(
        ready.starts_with("READY=1\nSTATUS=upgrade refused"),
        "{ready}"
    );
}

#[test]
fn sockets_in_files_logs_and_counts_go_from_hand_to_hand() {
    let installed = Installed::new();
    let more = "[log]\naccess = \"{dir}/access.log\"\n[[listen]]\naddress = \"unix:{dir}/http\"";
    let text = |body: &str| config(body, "", &format!("{CONTROL}\n{more}"));
    let mut gateway = installed.start(&text("one"));
    gateway.reload(&text("one"));
    gateway.wait_for_message("ready: generation 2");
    let moved = more.replace("/http", "/other");
    upgraded(&gateway);
    let socket = gateway.directory().path().join("http");
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    gateway.place(&config("two", "", &format!("{CONTROL}\n{moved}")));
    upgraded(&gateway);
    await_body(&gateway, "two");
    assert!(!socket.exists());
    let other = gateway.directory().path().join("other");
    assert!(std::os::unix::net::UnixStream::connect(&other).is_ok());
    let (_, out, _) = said(&command(&gateway, "status").output().unwrap());
    assert!(out.contains("generation 4"), "{out}");
    let log = gateway.directory().path().join("access.log");
    std::fs::rename(&log, log.with_extension("old")).unwrap();
    gateway.signal(Signal::USR1);
    eventually(PATIENCE, "the log to be opened anew", || {
        log.exists().then_some(())
    });
    assert!(gateway.stop().success());
    assert!(!other.exists());
}
