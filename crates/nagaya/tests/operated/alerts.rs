//! Alerts as an operator has them: raised by what really takes too much, told once by a program and once when
//! it is over; the program that posts them; and `nagaya capacity`.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use os::cgroup::{Controller, Host};
use recorder::{FigureStore, Sample, Sums};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::client::reply;
use testkit::{Gateway, TempDir, eventually, free_port, processes};

use super::readme::{blocks, root};
use crate::fixtures::tls;

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");
/// Figures of tenants are told every ten seconds.
const PATIENCE: Duration = Duration::from_secs(180);

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[recorder]
directory = "{dir}/figures"
[tenants.hog]
{cgroup}
[[sites]]
hosts = ["a.test"]
tenant = "hog"
root = "{dir}/site"
{user}
rules = [
  { match = { file = "*.cgi" }, handler = { cgi = true } },
  { handler = { respond = { body = "fine" } } },
]
{alerts}
"#;

/// Notes what it is told, and how many words it was called with.
const TELLS: &str =
    r#"["/bin/sh", "-c", "echo $# >> {dir}/log/words; cat >> {dir}/log/told", "it"]"#;

/// A gateway with these alerts, and a file that programs of anybody may write.
fn gateway(alerts: &str, cgroup: &str) -> Gateway {
    let builder = Gateway::with_config(BINARY, CONFIG);
    let directory = builder.directory().path().to_owned();
    let everybody = fs::Permissions::from_mode(0o777);
    for name in ["log", "site"] {
        fs::create_dir(directory.join(name)).unwrap();
    }
    fs::set_permissions(directory.join("log"), everybody).unwrap();
    let user = match rustix::process::geteuid().is_root() {
        true => "user = \"daemon\"",
        false => "",
    };
    if rustix::process::geteuid().is_root() {
        let owner = os::user::User::look_up("daemon").unwrap();
        chown(directory.join("site"), Some(owner.uid), None).unwrap();
    }
    let path = directory.display().to_string();
    let tells = TELLS.replace("{dir}", &path);
    let alerts = alerts.replace("{tells}", &tells).replace("{user}", user);
    let builder = builder.with("cgroup", cgroup).with("user", user);
    builder.with("alerts", alerts).start()
}

/// What a program was told.
fn told(gateway: &Gateway) -> Vec<Value> {
    let file = gateway.directory().path().join("log/told");
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn await_told(gateway: &Gateway, times: usize) -> Vec<Value> {
    eventually(PATIENCE, &format!("{times} times it is told"), || {
        Some(told(gateway)).filter(|told| told.len() >= times)
    })
}

/// Asks for a path again and again until this is over.
fn hog<T>(gateway: &Gateway, path: &str, until: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
            while !is_over.load(Relaxed) {
                assert_eq!(reply(gateway.ask(request.as_bytes())).status, 200);
            }
        });
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(until));
        is_over.store(true, Relaxed);
        seen.unwrap()
    })
}

#[test]
fn a_tenant_that_asks_too_much_is_told_once_and_once_when_it_is_over_though_the_recorder_dies() {
    let alerts = r#"
[[alerts]]
name = "a \"busy\" tenant"
figure = "tenant.hog.requests"
above = 3
leave = 1
for = "1s"
run = {tells}
{user}
[[alerts]]
figure = "load1"
above = 100000
for = "0s"
run = {tells}
{user}
"#;
    let gateway = gateway(alerts, "");
    let raised = hog(&gateway, "/", || {
        let raised = await_told(&gateway, 1).remove(0);
        // One that dies between telling and keeping that it did would have it told again.
        eventually(PATIENCE, "it is kept that it was told", || {
            let figures = gateway.directory().path().join("figures");
            let kept = FigureStore::open_existing(&figures).ok()?.setting("alerts");
            kept.ok()?.filter(|kept| kept != "[]")
        });
        let recorder = gateway.child_called("recorder");
        let pid = Pid::from_raw(i32::try_from(recorder).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        processes::await_ended(recorder);
        raised
    });
    assert_eq!(raised["alert"], "a \"busy\" tenant");
    assert_eq!(raised["figure"], "tenant.hog.requests");
    assert_eq!(raised["state"], "raised");
    assert!(raised["value"].as_f64().unwrap() > 3.0, "{raised}");
    let text = raised["text"].as_str().unwrap();
    assert!(text.contains("tenant.hog.requests is "), "{text}");
    let over = await_told(&gateway, 2).remove(1);
    assert_eq!(
        (&over["alert"], &over["state"]),
        (&raised["alert"], &"over".into())
    );
    assert!(over["value"].as_f64().unwrap() <= 1.0, "{over}");
    assert!(over["worst"].as_f64().unwrap() > 3.0, "{over}");
    assert_eq!(over["since"], raised["since"]);
    assert_eq!(told(&gateway).len(), 2, "each once");
    let words = fs::read_to_string(gateway.directory().path().join("log/words"));
    assert_eq!(words.unwrap(), "0\n0\n", "facts are no arguments");
    let log = gateway.stderr();
    assert!(log.contains("tenant.hog.requests is back at"), "{log}");
    assert!(!log.contains("load1 is"), "{log}");
}

#[test]
fn a_program_that_burns_a_processor_raises_the_alert_of_its_tenant() {
    if let Err(lack) = Host::look().unwrap().place(Controller::Cpu) {
        return testkit::lacks("a controller", format!("cpu: {}", lack.reason()));
    }
    let alerts = r#"
[[alerts]]
figure = "tenant.hog.cpu"
above = 0.05
leave = 0.02
for = "0s"
run = {tells}
{user}
"#;
    let gateway = gateway(alerts, "cgroup = { cpu = \"90%\" }");
    let program = gateway.directory().path().join("site/burn.cgi");
    let text = "#!/bin/sh\ni=0\nwhile [ $i -lt 200000 ]; do i=$((i+1)); done\nprintf 'Content-Type: text/plain\\n\\ndone'\n";
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let owner = fs::metadata(program.parent().unwrap()).unwrap().uid();
    chown(&program, Some(owner), None).unwrap();
    let raised = hog(&gateway, "/burn.cgi", || await_told(&gateway, 1).remove(0));
    assert_eq!(raised["alert"], "tenant.hog.cpu");
    assert!(raised["value"].as_f64().unwrap() > 0.05, "{raised}");
    let over = await_told(&gateway, 2).remove(1);
    assert_eq!(over["state"], "over", "{over}");
}

#[test]
fn a_sensor_and_days_of_a_certificate_are_watched_and_a_program_that_fails_is_named() {
    let port = free_port();
    let alerts = r#"
[[alerts]]
name = "memory of this machine"
figure = "memory_available"
below = 0.9999
for = "2s"
run = ["/bin/sh", "-c", "echo no pager here >&2; exit 3"]
{user}
[[alerts]]
figure = "certificates.days_left"
below = 90
for = "0s"
run = {tells}
{user}
[[listen]]
address = "127.0.0.1:{tls}"
tls = true
[tls]
certificates = ["{dir}/a.pem"]
[[sites]]
hosts = ["m.test"]
rules = [{ handler = { metrics = "prometheus" } }]
[[sites]]
hosts = ["c.test"]
rules = [{ allow = ["127.0.0.1"], handler = { console = true } }]
"#;
    let builder = TempDir::new();
    tls::certificate(&builder.path().join("a.pem"), &["a.test"]);
    let pem = builder.path().join("a.pem").display().to_string();
    let alerts = alerts
        .replace("{tls}", &port.to_string())
        .replace("{dir}/a.pem", &pem);
    let gateway = gateway(&alerts, "");
    gateway.wait_for_message("memory of this machine: memory_available is ");
    gateway.wait_for_message("its program: it ended with status 3: no pager here");
    for (host, path, part) in [
        ("m.test", "/", "\nnagaya_recorder_alerts_untold 1\n"),
        (
            "c.test",
            "/alerts",
            "memory of this machine: its program has failed (",
        ),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        eventually(PATIENCE, part, || {
            let told = reply(gateway.ask(request.as_bytes())).text();
            told.contains(part).then_some(())
        });
    }
    let raised = await_told(&gateway, 1).remove(0);
    assert_eq!(raised["figure"], "certificates.days_left");
    let days = raised["value"].as_f64().unwrap();
    assert!((28.0..=30.5).contains(&days), "{raised}");
}

#[test]
fn the_alerts_of_the_guide_are_right() {
    let directory = TempDir::new();
    let figures = directory.path().join("figures").display().to_string();
    let shown = blocks("docs/guide/capacity.md", "toml").remove(0);
    let shown = shown.replace("/var/lib/nagaya/recorder", &figures);
    let rest = "[[listen]]\naddress = \"127.0.0.1:1\"\n[[sites]]\nhosts = [\"*\"]\ntenant = \"example\"\nrules = [{ handler = { respond = {} } }]\n";
    let config = directory.write("nagaya.toml", format!("{shown}\n{rest}"));
    let mut check = Command::new(BINARY);
    let output = check.args(["check", "-c"]).arg(config).output().unwrap();
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{told}");
}

/// One request as it came, answered so.
fn answering(listener: &TcpListener, status: &str) -> String {
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut request, mut buffer) = (Vec::new(), [0; 4_096]);
    loop {
        let read = peer.read(&mut buffer).unwrap();
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let (_, length) = head.split_once("content-length: ").unwrap();
        let length = length.lines().next().unwrap().trim();
        if read == 0 || body.len() >= length.parse::<usize>().unwrap() {
            break;
        }
    }
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    peer.write_all(answer.as_bytes()).unwrap();
    String::from_utf8(request).unwrap()
}

#[test]
fn the_packages_program_posts_the_facts_where_a_file_says_that_others_cannot_read() {
    if Command::new("curl").arg("--version").output().is_err() {
        return testkit::lacks("curl", "the package suggests it");
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let directory = TempDir::new();
    let file = directory.write(
        "hook",
        format!(
            "url = \"http://127.0.0.1:{port}/hooks/SECRET\"\nheader = \"Authorization: Bearer b\"\n"
        ),
    );
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let facts = "{\"alert\":\"load1\",\"text\":\"web1: load1 is 9\"}\n";
    let run = || {
        let mut command = Command::new("sh");
        command
            .arg(root().join("packaging/alert-webhook"))
            .arg(&file);
        command.env("no_proxy", "*");
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let mut stdin = program.stdin.take().unwrap();
        // One that refuses does not read it.
        let _ = stdin.write_all(facts.as_bytes());
        program
    };
    mode(0o644);
    let refused = run().wait_with_output().unwrap();
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && why.contains("others may read it"),
        "{why}"
    );
    mode(0o600);
    let program = run();
    let request = answering(&listener, "200 OK");
    assert!(program.wait_with_output().unwrap().status.success());
    assert!(
        request.starts_with("POST /hooks/SECRET HTTP/1.1\r\n"),
        "{request}"
    );
    for part in [
        "Content-Type: application/json\r\n",
        "Authorization: Bearer b\r\n",
    ] {
        assert!(request.contains(part), "{part}: {request}");
    }
    assert!(request.ends_with(facts), "{request}");
    let program = run();
    answering(&listener, "404 Not Found");
    let failed = program.wait_with_output().unwrap();
    let why = String::from_utf8(failed.stderr).unwrap();
    assert!(!failed.status.success() && why.contains("404"), "{why}");
}

/// Figures of so many days, by the busy hour of each.
fn figures(directory: &Path, days: i64) {
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let today_s = i64::try_from(now_s / 86_400 * 86_400).unwrap();
    let (mut store, _) = FigureStore::open(directory, now_s).unwrap();
    let mut samples = Vec::new();
    for day in 0..days {
        let at_s = today_s - (days - day) * 86_400 + 43_200;
        let grown = day as f64 / 100.0;
        for (name, value) in [
            ("memory_available", 0.6 - grown),
            ("tenant.big.memory", 3e9),
            ("tenant.small.memory", 1e9),
        ] {
            let (name, sums) = (name.into(), Sums::of(value));
            samples.push(Sample { name, at_s, sums });
        }
    }
    store.write_samples(&samples).unwrap();
}

fn capacity(directory: &Path, words: &[&str]) -> (String, i32) {
    let mut command = Command::new(BINARY);
    command
        .arg("capacity")
        .args(words)
        .arg("--directory")
        .arg(directory);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        String::from_utf8(text).unwrap(),
        output.status.code().unwrap(),
    )
}

#[test]
fn capacity_tells_when_something_is_full_whose_it_is_and_what_would_help() {
    let directory = TempDir::new();
    let figures_of = directory.path().join("figures");
    figures(&figures_of, 20);
    let (text, status) = capacity(&figures_of, &[]);
    assert_eq!(status, 0, "{text}");
    for part in ["memory_available", "big", "75 %", "full if it moves"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (json, _) = capacity(&figures_of, &["--json"]);
    let told: Value = serde_json::from_str(&json).unwrap();
    let memory = &told["resources"][0];
    assert_eq!(
        (&memory["resource"], &memory["days"]),
        (&"memory_available".into(), &20.into())
    );
    // 0.41 on the last day, and 0.1 at least: in 31 days.
    let on: jiff::civil::Date = memory["full"]["on"].as_str().unwrap().parse().unwrap();
    let yesterday = jiff::Timestamp::now()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .date();
    let days = (on - yesterday).get_days();
    assert!((29..=31).contains(&days), "{days}: {memory}");
    assert_eq!(memory["tenants"][0]["tenant"], "big");
    assert!(
        capacity(&figures_of, &["--html"])
            .0
            .starts_with("<!DOCTYPE html>")
    );
}

#[test]
fn capacity_foretells_nothing_of_less_than_two_weeks_and_says_so() {
    let directory = TempDir::new();
    let few = directory.path().join("few");
    figures(&few, 13);
    let (text, status) = capacity(&few, &[]);
    assert_eq!(status, 0);
    assert!(
        text.contains("Nothing is foretold: it takes 14 days with figures, and there are 13"),
        "{text}"
    );
    let (json, _) = capacity(&few, &["--json"]);
    let told: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(told["resources"][0]["full"], Value::Null);
    let (text, status) = capacity(&directory.path().join("none"), &[]);
    assert!(status == 1 && text.starts_with("nagaya: "), "{text}");
}
