//! The access log from outside: every exchange once, in Apache's own bytes, whatever the disk does.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::client::{Body, reply};
use testkit::gateway::Builder;
use testkit::processes::open_files;
use testkit::{
    Gateway, Outcome, PATIENCE, RawClient, ScriptedUpstream, Step, TempDir, eventually, free_port,
};

const CONFIG: &str = r#"
workers = 2
[log]
access = "{access}"
format = "{format}"
files_max = 2
[caps]
target_bytes = "1KiB"
[timeouts]
header = "500ms"
[[sites]]
hosts = ["www.example.jp", "a.example.jp", "*.example.org"]
  [[sites.rules]]
  match = { path = "/empty" }
  handler = { respond = { status = 200, body = "" } }
  [[sites.rules]]
  match = { path = "/nothing" }
  handler = { respond = { status = 204, body = "" } }
  [[sites.rules]]
  handler = { respond = { status = 200, body = "hello, world\n" } }
"#;

fn gateway(access: &str, format: &str) -> Builder {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("access", access)
        .with("format", format)
}

/// Waits for so many lines that hold `part`.
fn lines(read: impl Fn() -> String, part: &str, count: usize) -> Vec<String> {
    let found = || -> Vec<String> {
        let text = read();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().filter(|line| line.contains(part));
        lines.map(str::to_owned).collect()
    };
    eventually(PATIENCE, &format!("{count} lines with `{part}`"), || {
        (found().len() >= count).then_some(())
    });
    let found = found();
    assert_eq!(found.len(), count, "{found:#?}");
    found
}

fn file(gateway: &Gateway, name: &str) -> String {
    fs::read_to_string(gateway.directory().path().join(name)).unwrap_or_default()
}

fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn a_missing_file_says_why() {
    let config = r#"
        [log]
        access = "-"
        format = "json"
        [[sites]]
        hosts = ["a"]
        root = "{dir}/www"
        [[sites]]
        hosts = ["b"]
        root = "{dir}/www"
        try = ["$path", "$path/", "=404"]
    "#;
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config);
    let directory = builder.directory();
    for file in ["www/.env", "www/empty/file", "outside"] {
        directory.write(file, "");
    }
    let www = directory.path().join("www");
    symlink("../outside", www.join("outside")).unwrap();
    symlink("loop", www.join("loop")).unwrap();
    symlink("gone", www.join("dangling")).unwrap();
    symlink(".env", www.join("dressed")).unwrap();
    let gateway = builder.start();
    for (path, reason) in [
        ("/none", "no_file"),
        ("/empty/none/", "no_file"),
        ("/empty/file/more/", "path_info"),
        ("/empty/", "no_index"),
        ("/empty", "no_index"),
        ("/.env", "dotfile"),
        ("/dressed", "dotfile"),
        ("/outside", "symlink_outside"),
        ("/loop", "symlink_refused"),
        ("/dangling", "symlink_dangling"),
    ] {
        // An answer of its own behind all that is tried hides nothing.
        for host in ["a", "b"] {
            assert_eq!(reply(gateway.ask(get(path, host).as_bytes())).status, 404);
        }
        let reason = format!(r#""reason":"{reason}""#);
        for record in lines(|| gateway.stdout(), &format!(r#""target":"{path}","#), 2) {
            assert!(record.contains(&reason), "{reason}: {record}");
        }
    }
}

#[test]
fn every_exchange_is_recorded_once() {
    let mut gateway = gateway("-", "json").start();
    let client = || gateway.client();
    // Fifty on one connection, sent in one go.
    let mut pipelined = client();
    for _ in 0..50 {
        pipelined.send(get("/pipelined", "www.example.jp").as_bytes());
    }
    for _ in 0..50 {
        assert!(matches!(
            pipelined.read_reply(Body::Framed),
            Outcome::Reply(_)
        ));
    }
    // Refused: by the parser, for its length, for its host, for being slow.
    let _ = gateway.ask(b"GET /refused HTTP/1.1\nHost: www.example.jp\r\n\r\n");
    let _ =
        gateway.ask(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(2_000)).as_bytes());
    let _ = gateway.ask(get("/elsewhere", "elsewhere.example").as_bytes());
    let mut slow = client();
    slow.send(b"GET /slow HTTP/1.1\r\nHost: ");
    assert!(matches!(slow.read_reply(Body::Framed), Outcome::Reply(_)));
    // The client breaks off in its body; nobody reads it, so the answer is as ever.
    let mut gone = client();
    gone.send(b"POST /gone HTTP/1.1\r\nHost: www.example.jp\r\nContent-Length: 100\r\n\r\nx");
    drop(gone);
    lines(|| gateway.stdout(), "\"/gone\"", 1);
    assert!(gateway.stop().success());
    // Now nothing more can come.
    let all = gateway.stdout();
    let count = |part: &str| all.matches(part).count();
    assert_eq!(count("\"target\":\"/pipelined\""), 50);
    for part in [
        "\"reason\":\"bare_lf\"",
        "\"reason\":\"target_too_long\"",
        "\"reason\":\"client_slow\"",
        "\"target\":\"/gone\"",
        "\"target\":\"/elsewhere\",\"version\":\"HTTP/1.1\",\"status\":421",
    ] {
        assert_eq!(count(part), 1, "{part} in {all}");
    }
    assert!(
        all.lines()
            .all(|line| line.starts_with("{\"time\":\"2") && line.ends_with("}}"))
    );
}

#[test]
fn records_of_the_last_moment_are_written_before_the_end() {
    let mut gateway = gateway("-", "combined").start();
    let _ = gateway.ask(get("/last", "www.example.jp").as_bytes());
    assert!(gateway.stop().success());
    assert_eq!(gateway.stdout().matches("/last").count(), 1);
}

/// Forwards to an upstream that takes its time.
const SLOW: &str = r#"
workers = 1
[log]
access = "-"
format = "json"
[timeouts]
drain = "300ms"
[upstreams.app]
servers = ["{upstream}"]
[[sites]]
hosts = ["a"]
rules = [{ handler = { proxy = "app" } }]
"#;

#[test]
fn whoever_does_not_wait_for_the_answer_is_recorded_once() {
    let upstream = ScriptedUpstream::start(|_| vec![Step::Idle(PATIENCE), Step::Close]);
    let mut gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), SLOW)
        .with("upstream", upstream.address())
        .start();
    let ask = |path: &str| {
        let mut client = gateway.client();
        client.send(get(path, "a").as_bytes());
        assert!(upstream.next_seen().head.line.contains(path));
        client
    };
    drop(ask("/left"));
    let left = &lines(|| gateway.stdout(), "\"/left\"", 1)[0];
    let told = "\"status\":499,\"bytes\":0";
    assert!(
        left.contains(told) && left.contains("\"reason\":\"client_gone\""),
        "{left}"
    );
    // The gateway ends before the upstream answers.
    let _waiting = ask("/cut");
    assert!(gateway.stop().success());
    let all = gateway.stdout();
    let cut: Vec<_> = all
        .lines()
        .filter(|line| line.contains("\"/cut\""))
        .collect();
    assert_eq!(cut.len(), 1, "{all}");
    assert!(cut[0].contains("\"reason\":\"cut_off\""), "{}", cut[0]);
    let upstream = format!("\"upstream\":\"{}\"", upstream.address());
    assert!(cut[0].contains(&upstream), "{}", cut[0]);
}

#[test]
fn a_log_first_written_to_after_term_is_opened_and_gets_its_record() {
    let (upstream, turn) = ScriptedUpstream::held(vec![Step::reply(200, "late")]);
    let config = SLOW
        .replace("access = \"-\"", "access = \"{dir}/$site.log\"")
        .replace("300ms", "20s");
    let mut gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config)
        .with("upstream", upstream.address())
        .start();
    let mut client = gateway.client();
    client.send(get("/late", "a").as_bytes());
    turn.wait();
    gateway.signal(Signal::TERM);
    gateway.wait_for_message(" signal=TERM");
    assert_eq!(file(&gateway, "a.log"), "", "it is not open yet");
    turn.wait();
    let reply = reply(client.read_reply(Body::Framed));
    assert_eq!((reply.status, &reply.body[..]), (200, &b"late"[..]));
    assert!(gateway.wait().success());
    let all = file(&gateway, "a.log");
    assert_eq!(all.matches("\"/late\"").count(), 1, "{all}");
}

#[test]
fn each_host_has_its_file_and_few_are_open() {
    let gateway = gateway("{dir}/$host.log", "combined").start();
    for round in 0..3 {
        for host in [
            "www.example.jp",
            "a.example.jp",
            "b.example.org",
            "c.example.org",
            "x.invalid",
        ] {
            let _ = gateway.ask(get(&format!("/{round}"), host).as_bytes());
        }
    }
    for (name, count) in [
        ("www.example.jp.log", 3),
        ("a.example.jp.log", 3),
        ("_.example.org.log", 6),
    ] {
        lines(|| file(&gateway, name), "GET /", count);
    }
    // The gateway's own first question of the test kit came without a known host, too.
    lines(|| file(&gateway, "_.log"), "GET /", 3);
    let open = open_files(gateway.server_pid()).into_iter();
    let logs = open.filter(|file| file.extension().is_some_and(|end| end == "log"));
    assert!(logs.count() <= 2);
}

#[test]
fn after_a_rotation_records_go_to_a_new_file() {
    let gateway = gateway("{dir}/access.log", "combined").start();
    let _ = gateway.ask(get("/before", "www.example.jp").as_bytes());
    lines(|| file(&gateway, "access.log"), "/before", 1);
    let directory = gateway.directory().path();
    fs::rename(directory.join("access.log"), directory.join("access.log.1")).unwrap();
    gateway.signal(Signal::USR1);
    eventually(PATIENCE, "a record in the new file", || {
        let _ = gateway.ask(get("/after", "www.example.jp").as_bytes());
        file(&gateway, "access.log")
            .contains("/after")
            .then_some(())
    });
    assert!(!file(&gateway, "access.log").contains("/before"));
}

#[test]
fn a_full_disk_stops_no_request_and_is_said() {
    let gateway = gateway("/dev/full", "combined").start();
    for _ in 0..100 {
        let Outcome::Reply(reply) = gateway.ask(get("/x", "www.example.jp").as_bytes()) else {
            panic!("no reply");
        };
        assert_eq!(reply.status, 200);
    }
    gateway.wait_for_message("access log not written");
    gateway.wait_for_message("records were lost");
}

#[test]
fn a_stuck_reader_stops_no_request_and_is_said() {
    let builder = gateway("{dir}/pipe", "combined");
    let pipe = builder.directory().path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let mut reader = fs::File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(&pipe)
        .unwrap();
    let gateway = builder.start();
    let mut client = gateway.client();
    // Far more than a pipe and the records on their way hold.
    let request = get(&format!("/{}", "x".repeat(1_000)), "www.example.jp");
    let (turns, mut slow) = (30_000, 0);
    for turn in 0..turns {
        if turn % 900 == 0 {
            client = gateway.client();
        }
        let started = Instant::now();
        assert!(matches!(client.ask(request.as_bytes()), Outcome::Reply(_)));
        slow += u32::from(started.elapsed() > Duration::from_secs(1));
    }
    // The reader holds up all that come once the pipe is full, a busy machine only some.
    assert!(slow < turns / 100, "{slow} were slow");
    gateway.wait_for_message("records were lost");
    // The reader wakes up and finds whole lines.
    let mut text = Vec::new();
    let mut block = [0; 65_536];
    while let Ok(count @ 1..) = reader.read(&mut block) {
        text.extend_from_slice(&block[..count]);
    }
    let text = String::from_utf8(text).unwrap();
    assert!(text.len() > 4_096 && text.lines().all(|line| line.ends_with("\"-\" \"-\"")));
}

/// Starts Apache with this configuration, if there is one, and waits until it listens.
pub(crate) fn apache(directory: &TempDir, config: &str, port: u16) -> Option<Child> {
    let binary = ["/usr/sbin/apache2", "/usr/sbin/httpd"];
    let binary = binary.iter().find(|path| Path::new(path).exists())?;
    let config = directory.write("apache.conf", config);
    let child = Command::new(binary)
        .arg("-DFOREGROUND")
        .arg("-f")
        .arg(config)
        .env("TZ", "UTC")
        .stderr(Stdio::null())
        // As some end all of their group.
        .process_group(0)
        .spawn()
        .ok()?;
    let address = ([127, 0, 0, 1], port).into();
    eventually(PATIENCE, "Apache to listen", || {
        RawClient::try_connect(address).ok()
    });
    Some(child)
}

/// Ends a server that was started.
pub(crate) fn end(child: &mut Child) {
    let id = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process(id, Signal::TERM);
    let _ = child.wait();
}

/// Apache with the same logs, if there is one.
struct Apache {
    child: Child,
    directory: TempDir,
    port: u16,
}

impl Apache {
    fn start() -> Option<Apache> {
        let (directory, port) = (TempDir::new(), free_port());
        let at = directory.path().display();
        for (name, body) in [("hello", "hello, world\n"), ("empty", "")] {
            directory.write(&format!("root/{name}"), body);
        }
        let modules = "/usr/lib/apache2/modules";
        let text = format!(
            "ServerRoot {at}\nPidFile {at}/pid\nListen 127.0.0.1:{port}\n\
             LoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
             LoadModule authz_core_module {modules}/mod_authz_core.so\n\
             ServerName www.example.jp:{port}\nDocumentRoot {at}/root\nErrorLog {at}/error.log\n\
             LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" combined\n\
             LogFormat \"%v:%p %h %l %u %t \\\"%r\\\" %>s %b \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" vhost_combined\n\
             CustomLog {at}/combined combined\nCustomLog {at}/vhost_combined vhost_combined\n"
        );
        let child = apache(&directory, &text, port)?;
        Some(Apache {
            child,
            directory,
            port,
        })
    }

    fn log(&self, format: &str) -> String {
        fs::read_to_string(self.directory.path().join(format)).unwrap_or_default()
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Requests both servers answer with 13 bytes, or with none.
const QUESTIONS: [&str; 12] = [
    "GET /hello HTTP/1.1\r\nHost: www.example.jp\r\n",
    "GET /hello?a=b&c=%20d HTTP/1.1\r\nHost: www.example.jp:80\r\nReferer: http://x/?y\r\n",
    "HEAD /hello HTTP/1.1\r\nHost: www.example.jp\r\nUser-Agent: plain/1.0 (x; y)\r\n",
    "GET /empty HTTP/1.1\r\nHost: www.example.jp\r\nUser-Agent: say \"what\"\r\n",
    "GET /hello HTTP/1.1\r\nHost: www.example.jp\r\nUser-Agent: back\\slash\\\r\n",
    "GET /hello HTTP/1.1\r\nHost: www.example.jp\r\nUser-Agent: tab\there\r\n",
    "GET /hello HTTP/1.1\r\nHost: www.example.jp\r\nReferer: \r\nUser-Agent:\r\n",
    "GET /hello HTTP/1.1\r\nHost: www.example.jp\r\nUser-Agent: 長屋 \u{80}\u{ff}\r\n",
    "GET /hello HTTP/1.1\r\nHost: www.example.jp\r\nReferer: a\r\nReferer: b\"\r\n",
    "GET http://www.example.jp/hello HTTP/1.1\r\nHost: www.example.jp\r\n",
    "GET /%68ello HTTP/1.0\r\nHost: www.example.jp\r\n",
    "GET /hello HTTP/1.0\r\nHost: www.example.jp\r\nuser-agent: a;b=\"'`$(x)\r\n",
];

#[test]
fn the_combined_pair_is_apaches_byte_for_byte() {
    let Some(apache) = Apache::start() else {
        return testkit::lacks_program("apache2");
    };
    for (round, format) in ["combined", "vhost_combined"].into_iter().enumerate() {
        let mut gateway = gateway("-", format).start();
        for address in [gateway.address(), ([127, 0, 0, 1], apache.port).into()] {
            for question in QUESTIONS {
                let request = format!("{question}Connection: close\r\n\r\n");
                let mut client = RawClient::connect(address);
                client.send(request.as_bytes());
                let (bytes, _) = client.read_to_end();
                assert!(bytes.starts_with(b"HTTP/1.1 200 "), "{question}");
            }
        }
        assert!(gateway.stop().success());
        let mut ours = plain(&gateway.stdout(), gateway.address().port());
        let theirs = eventually(PATIENCE, "Apache's log", || {
            let theirs = plain(&apache.log(format), apache.port);
            (theirs.len() == QUESTIONS.len() * (round + 1)).then_some(theirs)
        });
        let mut theirs = theirs[theirs.len() - QUESTIONS.len()..].to_vec();
        // Several workers share a log: neighbouring records may change places.
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "{format}");
    }
}

/// The lines of a log, without what must differ: the time and the server's port.
fn plain(log: &str, port: u16) -> Vec<String> {
    let questions = log
        .lines()
        .filter(|line| line.contains("ello") || line.contains("empty"));
    questions
        .map(|line| {
            let (from, to) = (line.find('[').unwrap(), line.find(']').unwrap());
            let time = &line[from..=to];
            assert!(time.len() == 28 && time.ends_with(" +0000]"), "{time}");
            line.replace(time, "[T]")
                .replace(&format!(":{port} "), ":P ")
        })
        .collect()
}

#[test]
fn a_rule_turns_records_off_or_sends_them_elsewhere() {
    let config = r#"
        [log]
        access = "{dir}/all.log"
        [[sites]]
        hosts = ["a", "b"]
          [[sites.rules]]
          match = { header = { User-Agent = "*bot*" } }
          log = { access = "{dir}/bots-$site.log" }
          [[sites.rules]]
          match = { path = ["/health", "/assets/*"] }
          log = { access = "" }
          [[sites.rules]]
          match = { path = "/assets/loud" }
          log = { access = "{dir}/loud.log" }
          [[sites.rules]]
          handler = { respond = { status = 200, body = "" } }
        [[sites]]
        hosts = ["figures"]
        log = { access = "" }
        rules = [{ handler = { metrics = "prometheus" } }]
    "#;
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config).start();
    let mut client = gateway.client();
    for (path, host, agent) in [
        ("/health", "a", "probe"),
        ("/assets/x", "a", "robot"),
        ("/assets/loud", "a", "probe"),
        ("/page", "b", "robot"),
        ("/last", "a", "probe"),
    ] {
        let fields = format!("Host: {host}\r\nUser-Agent: {agent}\r\n");
        let request = format!("GET {path} HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(reply(client.ask(request.as_bytes())).status, 200);
    }
    // One connection is one worker, whose records are written in their order.
    for (name, path) in [
        ("all.log", "/last"),
        ("bots-a.log", "/page"),
        ("loud.log", "/assets/loud"),
    ] {
        let told = lines(|| file(&gateway, name), "GET", 1);
        assert!(told[0].contains(path), "{name}: {told:?}");
    }
    let metrics = reply(client.ask(get("/metrics", "figures").as_bytes())).text();
    assert!(
        metrics.contains("nagaya_requests_total{site=\"a\",status=\"2xx\"} 5"),
        "{metrics}"
    );
}
