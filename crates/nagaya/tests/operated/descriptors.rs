//! What happens when descriptors run out: whoever is here is served, nobody is cut off, and what
//! cannot be taken is said.

use crate::fixtures::programs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::fixtures::programs::{program, set_mode};
use rustix::process::{Pid, Signal};
use testkit::PATIENCE;
use testkit::client::{Body, Outcome, RawClient, reply};
use testkit::gateway::{Builder, Gateway};
use testkit::wait::eventually;

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");

const CONFIG: &str = r#"
workers = {workers}
[control]
socket = "{dir}/control"
[log]
access = "{dir}/access.log"
[timeouts]
idle = "120s"
header = "120s"
[[sites]]
hosts = ["*"]
root = "{dir}/www"
  [[sites.rules]]
  match = { file = "*.cgi" }
  handler = { cgi = {} }
"#;

fn builder(workers: usize) -> Builder {
    let builder = Gateway::with_config(BINARY, CONFIG).with("workers", workers);
    std::fs::create_dir(builder.directory().path().join("www")).unwrap();
    builder
}

/// Has it started with so many descriptors, at most.
fn limited(builder: Builder, descriptors: usize) -> Builder {
    let script = format!("#!/bin/sh\nulimit -n {descriptors}\nexec '{BINARY}' \"$@\"\n");
    let path = builder.directory().write_program("limited", script);
    builder.through(path)
}

fn file(builder: &Builder, at: usize) {
    builder.directory().write(&format!("www/{at}"), "x");
}

fn request(path: &str) -> Vec<u8> {
    format!("GET /{path} HTTP/1.1\r\nHost: a.test\r\n\r\n").into_bytes()
}

/// The status of the next reply, which is read whole.
fn status(stream: &mut TcpStream) -> u16 {
    let mut bytes = Vec::new();
    let mut block = [0; 4_096];
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    while !bytes.ends_with(b"\r\n\r\nx") {
        match stream.read(&mut block).unwrap() {
            0 => break,
            count => bytes.extend_from_slice(&block[..count]),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.unwrap_or_else(|| panic!("{text}"))
}

/// Whether something can be read, the end of the stream included.
fn is_readable(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    !matches!(stream.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

fn server(gateway: &Gateway) -> Pid {
    Pid::from_raw(gateway.server_pid().try_into().unwrap()).unwrap()
}

/// Leaves a running server no descriptor beyond those it has; says so as the server's user.
fn starve(server: Pid) {
    let mut words = vec!["prlimit".to_owned(), "--nofile=3:3".to_owned()];
    words.push(format!("--pid={}", server.as_raw_nonzero()));
    if programs::is_root() {
        let become_nobody = [
            "setpriv",
            "--reuid=nobody",
            "--regid=nogroup",
            "--clear-groups",
        ];
        words.splice(0..0, become_nobody.map(str::to_owned));
    }
    let status = std::process::Command::new(&words[0])
        .args(&words[1..])
        .status();
    assert!(status.unwrap().success(), "{words:?}");
}

fn ask(client: &mut RawClient) -> u16 {
    client.send(&request("0"));
    match client.read_reply(Body::Framed) {
        Outcome::Reply(reply) => reply.status,
        other => panic!("{other:?}"),
    }
}

/// Processor time of a process, in hundredths of a second.
fn ticks(process: Pid) -> u64 {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = rest.split(' ').collect();
    [11, 12]
        .map(|at: usize| fields[at].parse::<u64>().unwrap())
        .iter()
        .sum()
}

#[test]
fn with_every_place_taken_each_admitted_is_served_and_no_signal_cuts_anybody_off() {
    const CLIENTS: usize = 200;
    let builder = builder(2);
    (0..CLIENTS).for_each(|at| file(&builder, at));
    let gateway = limited(builder, 256).start();
    gateway.wait_for_message("ready: generation 1");
    let server = server(&gateway);
    let told = "info server: caps.connections is 65536, but there are descriptors for ";
    assert!(gateway.stderr().contains(told), "nobody has asked for them");
    let mut waiting: Vec<_> = (0..CLIENTS)
        .map(|at| {
            let mut stream = TcpStream::connect(gateway.address()).unwrap();
            stream.write_all(&request(&at.to_string())).unwrap();
            stream
        })
        .collect();
    gateway.wait_for_message("as many as there may be (caps.connections): further ones wait");
    let mut here = Vec::new();
    eventually(PATIENCE, "those admitted to be served", || {
        let (come, left) = std::mem::take(&mut waiting)
            .into_iter()
            .partition(is_readable);
        waiting = left;
        let come: Vec<TcpStream> = come;
        here.extend(come.into_iter().map(|mut stream| {
            assert_eq!(status(&mut stream), 200);
            stream
        }));
        (here.len() >= 70).then_some(())
    });
    let table = gateway.told(&["status"]);
    assert!(table.starts_with("nagaya "), "{table}");

    let log = gateway.directory().path().join("access.log");
    std::fs::rename(&log, log.with_extension("1")).unwrap();
    gateway.signal(Signal::USR1);
    gateway.wait_for_message("logs opened again");
    gateway.signal(Signal::HUP);
    gateway.wait_for_message("ready: generation 2");
    for (at, stream) in here.iter_mut().enumerate() {
        assert!(!is_readable(stream), "cut off");
        stream
            .write_all(&request(&at.to_string()))
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(status(stream), 200);
    }
    let records = || {
        std::fs::read_to_string(&log)
            .unwrap_or_default()
            .lines()
            .count()
    };
    eventually(PATIENCE, "records in the new log", || {
        (records() >= here.len()).then_some(())
    });
    // Whose turn it was not yet, has it when others leave.
    drop(here);
    for stream in &mut waiting {
        stream.set_nonblocking(false).unwrap();
        assert_eq!(status(stream), 200);
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    }
    assert_eq!(server, self::server(&gateway));
}

#[test]
fn a_server_with_no_room_for_a_descriptor_keeps_logs_and_configuration_and_says_so() {
    let builder = builder(2);
    file(&builder, 0);
    let gateway = builder.start();
    gateway.wait_for_message("ready: generation 1");
    let mut client = gateway.client().with_deadline(PATIENCE);
    assert_eq!(ask(&mut client), 200);
    let server = server(&gateway);
    starve(server);

    gateway.signal(Signal::USR1);
    gateway.wait_for_message(
        "those open until now are written on: the server may open no more descriptors",
    );
    gateway.signal(Signal::HUP);
    gateway.wait_for_message("reload refused, the old configuration serves on");
    let said = gateway.stderr();
    assert!(
        said.contains("refuses the generation: its listeners and logs find no room"),
        "{said}"
    );
    assert_eq!(ask(&mut client), 200);
    let log = gateway.directory().path().join("access.log");
    let records = || std::fs::read_to_string(&log).unwrap();
    eventually(PATIENCE, "the second record", || {
        (records().matches("GET /0 ").count() == 2).then_some(())
    });

    // Who asks at the control socket, or connects, waits; nobody runs in a circle for it.
    let _asking =
        std::os::unix::net::UnixStream::connect(gateway.directory().path().join("control"));
    let _connecting = TcpStream::connect(gateway.address()).unwrap();
    let (before, since) = (ticks(server), Instant::now());
    eventually(PATIENCE, "two seconds", || {
        (since.elapsed() >= Duration::from_secs(2)).then_some(())
    });
    let (used, passed) = (ticks(server) - before, since.elapsed().as_millis() / 10);
    assert!(u128::from(used) < passed / 2, "{used} of {passed} ticks");
    assert_eq!(server, self::server(&gateway));
}

#[test]
fn whoever_needs_more_descriptors_than_others_keeps_newcomers_out_but_nobody_unserved() {
    let builder = builder(1);
    file(&builder, 0);
    let held = "#!/bin/sh\necho x >>../notes/started\nread go <../notes/gate\nprintf 'Status: 200\\nContent-Length: 1\\n\\nx'\n";
    std::fs::create_dir(builder.directory().path().join("notes")).unwrap();
    for directory in ["", "notes"] {
        set_mode(&builder.directory().path().join(directory), 0o777);
    }
    program(builder.directory().path(), "held.cgi", held);
    let gateway = limited(builder, 256).start();
    let notes = gateway.directory().path().join("notes");
    let gate = notes.join("gate");
    std::process::Command::new("mkfifo")
        .args(["-m", "666"])
        .arg(&gate)
        .status()
        .unwrap();
    let started = || {
        std::fs::read_to_string(notes.join("started"))
            .unwrap_or_default()
            .lines()
            .count()
    };
    let is_full = || {
        gateway
            .stderr()
            .contains("the descriptors that are left are for those who are here")
    };

    let mut clients = Vec::new();
    while !is_full() {
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&request("held.cgi"));
        clients.push(client);
        let all = clients.len();
        assert!(all < 200, "descriptors without end");
        eventually(PATIENCE, "a program", || {
            (started() == all || is_full()).then_some(())
        });
    }
    // Open for both, so that none of them waits for the other end.
    let gate = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&gate)
        .unwrap();
    (&gate)
        .write_all(&b"go\n".repeat(clients.len() + 4))
        .unwrap();
    for client in &mut clients {
        assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    }
}
