//! A gateway that runs programs, how to write them, and how to see what is left of them.
#![allow(dead_code, reason = "not every test looks in every way")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use testkit::client::{Body, reply};
use testkit::gateway::Builder;
use testkit::{Gateway, Outcome, Reply, eventually};

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const CONFIG: &str = r#"
workers = 2
timeouts = { {timeouts} }
caps = { {caps} }
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = "{dir}/access.log"
format = "json"
[[sites]]
hosts = ["cgi.test"]
root = "{dir}/www"
env = { STAGE = "test of $host" }
  [[sites.rules]]
  match = { file = "*/short/*.cgi" }
  handler = { cgi = { timeout = "300ms" } }
  [[sites.rules]]
  match = { file = "*.cgi" }
  env = { RULE = "cgi" }
  handler = { cgi = { {options} } }
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "json" }
"#;

/// A gateway that is not started yet: what stands in `cgi = { … }`, `timeouts` and `caps`.
pub(crate) fn builder(options: &str, timeouts: &str, caps: &str) -> Builder {
    builder_of(CONFIG, options, timeouts, caps)
}

/// As [`builder`], of another configuration.
pub(crate) fn builder_of(config: &str, options: &str, timeouts: &str, caps: &str) -> Builder {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config)
        .with("options", options)
        .with("timeouts", timeouts)
        .with("caps", caps);
    let directory = builder.directory().path();
    for name in ["www", "notes"] {
        std::fs::create_dir(directory.join(name)).expect("a fresh directory");
    }
    // Programs may run as another user, who takes notes.
    set_mode(directory, 0o755);
    set_mode(&directory.join("www"), 0o755);
    set_mode(&directory.join("notes"), 0o777);
    builder
}

/// A running gateway with these programs.
pub(crate) fn gateway(options: &str, timeouts: &str, programs: &[(&str, &str)]) -> Gateway {
    let builder = builder(options, timeouts, "");
    for (name, text) in programs {
        program(builder.directory().path(), name, text);
    }
    builder.start()
}

/// Writes a program below the root; `{notes}` becomes the directory it may write to.
pub(crate) fn program(directory: &Path, name: &str, text: &str) {
    let path = directory.join("www").join(name);
    let parent = path.parent().expect("below the root");
    std::fs::create_dir_all(parent).expect("a directory");
    set_mode(parent, 0o755);
    let notes = directory.join("notes").display().to_string();
    std::fs::write(&path, text.replace("{notes}", &notes)).expect("a program");
    set_mode(&path, 0o755);
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
}

/// A request for a program.
pub(crate) fn request(line: &str, fields: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nHost: cgi.test\r\n{fields}\r\n").into_bytes()
}

pub(crate) fn get(gateway: &Gateway, path: &str) -> Reply {
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&request(&format!("GET {path}"), ""));
    reply(client.read_reply(Body::Framed))
}

pub(crate) fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

/// Status and text of whatever came back.
pub(crate) fn answer(outcome: Outcome) -> (u16, String) {
    let reply = reply(outcome);
    (reply.status, text(&reply))
}

/// A note a program has taken, once it has.
pub(crate) fn note(gateway: &Gateway, name: &str) -> String {
    let path = gateway.directory().path().join("notes").join(name);
    eventually(PATIENCE, &format!("the note {name}"), || {
        let text = std::fs::read_to_string(&path).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    })
}

/// Tells the programs something.
pub(crate) fn tell(gateway: &Gateway, name: &str) {
    gateway.directory().write(&format!("notes/{name}"), "\n");
}

/// Waits until none of these processes is left, not even as a zombie.
pub(crate) fn await_gone(processes: &str) {
    for id in processes.split_whitespace() {
        eventually(PATIENCE, &format!("the end of process {id}"), || {
            (!Path::new(&format!("/proc/{id}")).exists()).then_some(())
        });
    }
}

/// The process that runs the programs.
pub(crate) fn spawner_pid(gateway: &Gateway) -> u32 {
    eventually(PATIENCE, "a spawner", || {
        let is_spawner = |id: &&u32| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == b"spawner")
        };
        gateway.children().iter().find(is_spawner).copied()
    })
}

/// Children of a process, zombies included.
pub(crate) fn children(id: u32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    text.unwrap_or_default().split_whitespace().count()
}

pub(crate) fn descriptors(id: u32) -> usize {
    let list = std::fs::read_dir(format!("/proc/{id}/fd"));
    list.expect("a process").count()
}

/// Ends of pipes that a process holds.
pub(crate) fn pipes(id: u32) -> usize {
    let list = std::fs::read_dir(format!("/proc/{id}/fd")).expect("a process");
    list.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("pipe:"))
        .count()
}

/// Waits until nothing of any program is left.
pub(crate) fn await_quiet(gateway: &Gateway) {
    let spawner = spawner_pid(gateway);
    eventually(PATIENCE, "the spawner to have no children", || {
        (children(spawner) == 0).then_some(())
    });
}

/// The access records so far, once there are as many.
pub(crate) fn records(gateway: &Gateway, count: usize) -> Vec<String> {
    let path = gateway.directory().path().join("access.log");
    eventually(PATIENCE, "the access records", || {
        let text = std::fs::read_to_string(&path).ok()?;
        // The last may be half of one.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines: Vec<_> = whole
            .lines()
            .filter(|line| line.contains("\"cgi.test\""))
            .map(str::to_owned)
            .collect();
        (lines.len() >= count).then_some(lines)
    })
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
