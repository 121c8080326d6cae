//! Pools: php-fpm that the gateway starts itself, with the first request, as the site's user.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::client::{Body, reply};
use testkit::{Outcome, PATIENCE, RawClient, eventually};

use crate::fixtures::limited;
use crate::fixtures::pools::{
    Bed, CONFIG, WHO, Who, Wish, bed, bed_of, kill, plain_bed, request, runs, who,
};

/// A text of a record's field.
fn field<'a>(record: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = record.split_once(&format!("\"{name}\":"))?;
    Some(rest.split(&[',', '}'][..]).next()?.trim_matches('"'))
}

#[test]
fn the_first_request_starts_a_pool_and_the_second_finds_it_warm() {
    let Some(bed) = plain_bed() else { return };
    assert_eq!(bed.masters(), [0; 0], "nobody has asked");
    let first = bed.who();
    assert_eq!(bed.masters(), [first.master]);
    assert_eq!(bed.who().master, first.master);
    let records = bed.records(2);
    // Each worker writes its own: the second may come first.
    let waited = records.iter().filter_map(|it| field(it, "pool_wait_us"));
    let waited: Vec<u64> = waited.map(|it| it.parse().unwrap()).collect();
    assert!(matches!(*waited, [only] if only > 1_000), "{records:?}");
    let warm = "\"state\":\"warm\",\"waiting\":0,\"starts\":1,\"failures\":0,\"waited\":1,";
    // Its start is counted when it was told, which may be after its first reply.
    eventually(PATIENCE, warm, || {
        let status = limited::ask(&bed.gateway, "status json");
        status.contains(warm).then_some(())
    });
    let table = limited::ask(&bed.gateway, "status");
    assert!(
        table.contains("app.test") && table.contains("  warm  "),
        "{table}"
    );
}

#[test]
fn what_is_no_program_starts_no_pool() {
    let Some(bed) = plain_bed() else { return };
    for path in ["/none.php", "/none.php/x", "/.index.php"] {
        assert_eq!(bed.get(path).status, 404, "{path}");
    }
    assert_eq!(bed.masters(), [0; 0]);
}

#[test]
fn many_who_come_to_a_cold_pool_wait_for_one_start_and_all_are_answered() {
    let Some(bed) = plain_bed() else { return };
    let mut clients: Vec<_> = (0..40)
        .map(|_| bed.gateway.client().with_deadline(PATIENCE))
        .collect();
    for client in &mut clients {
        client.send(&request("app.test", "/"));
    }
    let masters = clients.iter_mut().map(|client| {
        let answer = reply(client.read_reply(Body::Framed));
        assert_eq!(answer.status, 200, "{}", answer.text());
        who(&answer.text()).master
    });
    let mut masters: Vec<_> = masters.collect();
    masters.dedup();
    assert_eq!(masters, bed.masters(), "one master");
}

#[test]
fn a_body_that_comes_to_a_cold_pool_arrives_whole() {
    let files = [(
        "app/index.php",
        "<?php echo strlen(file_get_contents('php://input'));",
    )];
    let Some(bed) = bed_of(&files) else { return };
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    client.send(b"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 300000\r\n\r\n");
    client.send(&[b'a'; 300_000]);
    let answer = reply(client.read_reply(Body::Framed));
    assert_eq!((answer.status, answer.text().as_str()), (200, "300000"));
}

#[test]
fn a_pool_without_work_ends_and_starts_again() {
    let wish = Wish {
        pools: "idle = \"1s\"",
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let first = bed.who();
    bed.await_masters(0);
    assert!(!runs(first.child));
    let second = bed.who();
    assert_ne!(first.master, second.master);
}

#[test]
fn a_pool_is_not_idle_while_a_page_runs() {
    let files = [
        ("app/index.php", WHO),
        ("app/slow.php", "<?php sleep(4); echo 'slept';"),
    ];
    let wish = Wish {
        pools: "idle = \"1s\"",
        files: &files,
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    assert_eq!(bed.get("/slow.php").text(), "slept");
    let record = bed.records(1).remove(0);
    assert_eq!(field(&record, "status"), Some("200"), "{record}");
}

#[test]
fn a_killed_masters_pool_serves_the_next_request() {
    let Some(bed) = plain_bed() else { return };
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    for _ in 0..5 {
        let before = bed.who();
        kill(before.master);
        let asked = Instant::now();
        client.send(&request("app.test", "/"));
        let answer = reply(client.read_reply(Body::Framed));
        // What was under way for longer may have ended its processes, and is not tried again.
        assert!(
            answer.status == 200 || asked.elapsed() >= Duration::from_millis(900),
            "{}\n{}",
            answer.text(),
            bed.gateway.stderr()
        );
        eventually(PATIENCE, "nothing of the old master", || {
            (!runs(before.child)).then_some(())
        });
        assert_ne!(bed.who().master, before.master);
    }
}

/// Kills a master; its children may answer until they are killed, too.
fn await_another(bed: &Bed, before: &Who) {
    kill(before.master);
    eventually(PATIENCE, "another master", || {
        (bed.who().master != before.master).then_some(())
    });
}

#[test]
fn a_warm_pool_serves_on_when_the_spawner_is_lost() {
    let Some(bed) = plain_bed() else { return };
    let before = bed.who();
    for count in 1..=2 {
        kill(bed.gateway.spawner_pid());
        for _ in 0..20 {
            assert_eq!(bed.who().master, before.master);
        }
        eventually(PATIENCE, "the loss to be noticed", || {
            let lost = bed.gateway.stderr().matches("lost the spawner").count();
            (lost == count).then_some(())
        });
        assert_eq!(bed.who().master, before.master);
    }
    // The next spawner knows it: one that is killed under it is started anew.
    eventually(PATIENCE, "the next spawner", || {
        let started = bed.gateway.stderr().matches("spawner started").count();
        (started == 3).then_some(())
    });
    let spawner = bed.gateway.spawner_pid();
    await_another(&bed, &before);
    assert_eq!(bed.gateway.spawner_pid(), spawner);
}

#[test]
fn a_cold_pools_request_waits_for_the_next_spawner() {
    let Some(bed) = plain_bed() else { return };
    kill(bed.gateway.spawner_pid());
    assert_eq!(bed.get("/").status, 200, "{}", bed.gateway.stderr());
}

#[test]
fn a_master_that_is_started_by_one_spawner_ends_idle_under_the_next() {
    let wish = Wish {
        pools: "idle = \"2s\"",
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let before = bed.who();
    kill(bed.gateway.spawner_pid());
    eventually(PATIENCE, "its end", || (!runs(before.master)).then_some(()));
    bed.await_masters(0);
    assert_ne!(bed.who().master, before.master);
}

/// Asks the first site without end on a few connections while something is done; how many asked,
/// and every answer but 200.
fn under_load(address: SocketAddr, work: impl FnOnce()) -> (usize, Vec<String>) {
    let is_over = AtomicBool::new(false);
    let ask = || {
        let connect = || RawClient::connect(address).with_deadline(PATIENCE);
        let (mut count, mut wrong, mut client) = (0, Vec::new(), connect());
        while !is_over.load(Ordering::Acquire) {
            client.send(&request("app.test", "/"));
            count += 1;
            match client.read_reply(Body::Framed) {
                Outcome::Reply(reply) if reply.status == 200 => {
                    if reply.head.field("Connection") != Some("close") {
                        continue;
                    }
                }
                Outcome::Reply(reply) => wrong.push(format!("{} {}", reply.status, reply.text())),
                other => wrong.push(format!("{other:?}")),
            }
            client = connect();
        }
        (count, wrong)
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        let worked = catch_unwind(AssertUnwindSafe(work));
        is_over.store(true, Ordering::Release);
        if let Err(panic) = worked {
            resume_unwind(panic);
        }
        let answers = clients.into_iter().map(|client| client.join().unwrap());
        answers.fold((0, Vec::new()), |(sum, mut all), (count, wrong)| {
            all.extend(wrong);
            (sum + count, all)
        })
    })
}

fn reload(bed: &mut Bed, config: &str, generation: u32) {
    bed.gateway.reload(config);
    bed.gateway
        .wait_for_message(&format!("ready: generation {generation} "));
}

#[test]
fn a_reload_keeps_a_pool() {
    let Some(mut bed) = plain_bed() else { return };
    let before = bed.who();
    for generation in 2..5 {
        reload(&mut bed, CONFIG, generation);
        assert_eq!(bed.who().master, before.master);
    }
}

#[test]
fn changed_settings_start_another_pool_and_lose_no_request() {
    let wish = Wish {
        pool: ", admin = { memory_limit = \"64M\" }",
        ..Wish::default()
    };
    let Some(mut bed) = bed(&wish) else { return };
    let before = bed.who();
    assert_eq!(before.memory_limit, "64M");
    let (count, wrong) = under_load(bed.gateway.address(), || {
        for at in 1..=5 {
            let settings = format!(", admin = {{ memory_limit = \"{}M\" }}", 64 + at);
            reload(&mut bed, &CONFIG.replace("{pool}", &settings), at + 1);
            let limit = format!("{}M", 64 + at);
            eventually(PATIENCE, "the new settings", || {
                (bed.who().memory_limit == limit).then_some(())
            });
        }
    });
    assert!(
        count > 10 && wrong.is_empty(),
        "of {count}: {wrong:?}\n{}",
        bed.gateway.stderr()
    );
    // The others' work is done, and nothing of them is left.
    bed.await_masters(1);
}

#[test]
fn an_upgrade_keeps_a_pool_and_loses_no_request() {
    let Some(bed) = plain_bed() else { return };
    let before = bed.who();
    let (count, wrong) = under_load(bed.gateway.address(), || {
        bed.gateway.signal(Signal::USR2);
        bed.gateway.wait_for_message("the program is a new one");
        for _ in 0..20 {
            assert_eq!(bed.who().master, before.master);
        }
    });
    assert!(
        count > 10 && wrong.is_empty(),
        "of {count}: {wrong:?}\n{}",
        bed.gateway.stderr()
    );
    await_another(&bed, &before);
}

#[test]
fn settings_of_one_site_are_never_anothers() {
    let wish = Wish {
        pool: ", admin = { memory_limit = \"64M\" }",
        other: ", admin = { memory_limit = \"32M\" }",
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let new_clients = || [(); 2].map(|()| bed.gateway.client().with_deadline(PATIENCE));
    let mut clients = new_clients();
    let sites = [("app.test", "64M"), ("other.test", "32M")];
    let mut masters = Vec::new();
    let count = std::env::var("NAGAYA_MIXED").map_or(600, |count| count.parse().unwrap());
    for at in 0..count {
        let (host, limit) = sites[at * 7_usize / 3 % 2];
        if at % 500 == 499 {
            // A connection carries so many requests and no more.
            clients = new_clients();
        }
        let client = &mut clients[at % 2];
        client.send(&request(host, "/index.php"));
        let Who {
            master,
            memory_limit,
            ..
        } = who(&reply(client.read_reply(Body::Framed)).text());
        assert_eq!(memory_limit, limit, "{host}");
        if !masters.contains(&(host, master)) {
            masters.push((host, master));
        }
    }
    assert_eq!(masters.len(), 2, "one of each: {masters:?}");
}

#[test]
fn a_php_that_does_not_start_is_told_with_its_words_and_tried_again_later() {
    let scratch = testkit::TempDir::new();
    let broken = "#!/bin/sh\nif [ -e {dir}/fine ]; then exec {php} \"$@\"; fi\n\
                  echo 'such a php: no \x1b[1mluck' >&2\nexit 78\n";
    let dir = scratch.path().display().to_string();
    let program = scratch.path().join("fpm");
    let pools = format!(
        "see = [\"{dir}\"]\n[php.\"odd\"]\nprogram = \"{}\"",
        program.display()
    );
    let wish = Wish {
        pools: &pools,
        version: Some("odd"),
        ..Wish::default()
    };
    let Some(php) = testkit::php::find_php_fpm() else {
        return;
    };
    let text = broken
        .replace("{dir}", &dir)
        .replace("{php}", &php.display().to_string());
    scratch.write_program("fpm", text);
    let Some(bed) = bed(&wish) else { return };
    let answer = bed.get("/");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("pool_failed"), "{}", answer.text());
    let after: u64 = answer.head.field("Retry-After").unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    bed.gateway.wait_for_message("such a php: no ");
    let ended = format!(
        "{} exited with status 78; it said last: ",
        program.display()
    );
    bed.gateway.wait_for_message(&ended);
    assert!(!bed.gateway.stderr().contains('\x1b'));
    let record = bed.records(1).remove(0);
    assert_eq!(field(&record, "reason"), Some("pool_failed"), "{record}");
    let why = limited::ask(
        &bed.gateway,
        &format!("why {}", field(&record, "request_id").unwrap()),
    );
    assert!(
        why.contains("reason      pool_failed\n") && why.contains("app.test"),
        "{why}"
    );
    let metrics = limited::ask(&bed.gateway, "status json");
    assert!(metrics.contains("\"pool_failed\":1,"), "{metrics}");
    eventually(PATIENCE, "a rest that is ended", || {
        assert_eq!(bed.get("/").status, 503);
        let told = limited::ask(&bed.gateway, "pools-restart app.test");
        (told == "1\n").then_some(())
    });
    assert_eq!(bed.get("/").status, 503, "it was tried at once");
    scratch.write("fine", "");
    limited::ask(&bed.gateway, "pools-restart app.test");
    assert_eq!(bed.get("/").status, 200, "it is tried at once");
}

#[test]
fn who_may_not_wait_as_long_as_a_start_takes_is_told_when_to_come_back() {
    let scratch = testkit::TempDir::new();
    let Some(php) = testkit::php::find_php_fpm() else {
        return;
    };
    let text = format!("#!/bin/sh\nsleep 2\nexec {} \"$@\"\n", php.display());
    let program = scratch.write_program("fpm", text);
    let dir = scratch.path().display();
    let pools = format!(
        "see = [\"{dir}\"]\n[php.\"slow\"]\nprogram = \"{}\"",
        program.display()
    );
    let wish = Wish {
        pools: &pools,
        version: Some("slow"),
        app: "limits = [{ concurrent = 5, queue = 5, wait = \"200ms\" }]",
        pool: ", waiting_page = true",
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let began = Instant::now();
    let mut browser = bed.gateway.client().with_deadline(PATIENCE);
    browser.send(b"GET / HTTP/1.1\r\nHost: app.test\r\nAccept: text/html\r\n\r\n");
    let page = reply(browser.read_reply(Body::Framed));
    if page.status == 503 {
        assert_eq!(page.head.field("Refresh"), page.head.field("Retry-After"));
        assert!(page.text().contains("loads again"), "{}", page.text());
    }
    let answer = bed.get("/");
    if began.elapsed() < Duration::from_secs(2) {
        assert_eq!(answer.status, 503, "{}", answer.text());
    }
    if answer.status == 503 {
        assert!(answer.text().contains("pool_starting"), "{}", answer.text());
        assert!(answer.head.field("Retry-After").is_some());
        let record = bed.records(1).remove(0);
        let id = field(&record, "request_id").unwrap();
        let why = limited::ask(&bed.gateway, &format!("why {id}"));
        assert!(why.contains("reason      pool_starting\n"), "{why}");
    }
    // It starts all the same.
    eventually(PATIENCE, "its start", || {
        (bed.get("/").status == 200).then_some(())
    });
    assert_eq!(bed.masters().len(), 1);
    // Whose limits let him wait longer does.
    assert_eq!(bed.get_of("other.test", "/index.php").status, 200);
}

/// Looks for what it should not see: another's home, its processes, its socket, its `/tmp`.
const SPY: &str = r#"<?php
header('Content-Type: text/plain');
$other = $_GET['other'];
echo 'home ', json_encode(@scandir($other)), "\n";
echo 'file ', json_encode(@file_get_contents("$other/secret.txt")), "\n";
echo 'link ', json_encode(@file_get_contents(__DIR__ . '/link.txt')), "\n";
echo 'passwd ', json_encode(is_readable('/etc/shadow')), "\n";
echo 'sockets ', json_encode(@scandir($_GET['pools'])), "\n";
$seen = [];
foreach (scandir('/proc') as $name) {
  if (!ctype_digit($name)) continue;
  $status = @file_get_contents("/proc/$name/status");
  if ($status !== false && !preg_match('/^Uid:\s+' . posix_geteuid() . '\s/m', $status)) $seen[] = $name;
}
echo 'processes ', json_encode($seen), "\n";
$tmp = array_filter(scandir('/tmp'), fn($name) => preg_match('/^seen-by-none-/', $name));
echo 'tmp ', json_encode(count($tmp)), "\n";
touch('/tmp/note-' . getmypid());
$status = file_get_contents('/proc/self/status');
preg_match('/^NoNewPrivs:\s+(\d)/m', $status, $privileges);
preg_match('/^Seccomp:\s+(\d)/m', $status, $seccomp);
preg_match('/^CapEff:\s+(\w+)/m', $status, $capabilities);
echo "privileges $privileges[1] $seccomp[1] $capabilities[1]\n";
$open = array_filter(scandir('/proc/self/fd'), fn($fd) => ctype_digit($fd) && $fd > 2);
echo 'open ', json_encode(array_map(fn($fd) => @readlink("/proc/self/fd/$fd"), array_values($open))), "\n";
"#;

#[test]
fn two_users_see_nothing_of_each_other() {
    if testkit::lacks_root("to run pools as two users") {
        return;
    }
    let files = [
        ("app/index.php", WHO),
        ("other/index.php", SPY),
        ("app/secret.txt", "secret"),
        ("app/spy.php", SPY),
    ];
    let Some(bed) = bed_of(&files) else { return };
    let site = bed.site.path();
    std::os::unix::fs::symlink(site.join("app/secret.txt"), site.join("other/link.txt")).unwrap();
    bed.who();
    let pools = bed.gateway.directory().path().join("pools");
    // The sites are below `/tmp`, too.
    let seen = format!("/tmp/seen-by-none-{}", std::process::id());
    std::fs::write(&seen, "").unwrap();
    let path = format!(
        "/index.php?other={}/app&pools={}",
        site.display(),
        pools.display()
    );
    let answer = bed.get_of("other.test", &path);
    let text = answer.text();
    std::fs::remove_file(&seen).unwrap();
    assert_eq!(answer.status, 200, "{text}\n{}", bed.gateway.stderr());
    let said = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines
            .into_iter()
            .find(|(it, _)| *it == name)
            .map(|(_, rest)| rest.to_owned())
    };
    for name in ["home", "file", "link", "passwd"] {
        assert_eq!(said(name).as_deref(), Some("false"), "{name}\n{text}");
    }
    assert_eq!(said("processes").as_deref(), Some("[]"), "{text}");
    assert_eq!(said("tmp").as_deref(), Some("0"), "{text}");
    assert!(!said("sockets").unwrap().contains(".sock"), "{text}");
    assert_eq!(
        said("privileges").as_deref(),
        Some("1 2 0000000000000000"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
    let notes = std::fs::read_dir("/tmp").unwrap().flatten();
    let notes = notes.filter(|it| it.file_name().to_string_lossy().starts_with("note-"));
    assert_eq!(notes.count(), 0, "its /tmp is its own");
    // One's own is seen.
    let own = bed
        .get(&format!(
            "/spy.php?other={}/app&pools=/none",
            site.display()
        ))
        .text();
    assert!(
        own.contains("home [") && own.contains("file \"secret\""),
        "{own}"
    );
}

#[test]
fn nothing_is_left_when_the_gateway_ends() {
    let Some(mut bed) = plain_bed() else { return };
    let who = bed.who();
    assert!(bed.gateway.stop().success());
    assert!(!runs(who.master) && !runs(who.child));
}

/// Answers with who it is; listens at the path that it is told, or the descriptor it is given.
const APPLICATION: &str = r#"
import os, socket, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
if os.path.exists('slow'): time.sleep(1)
class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        text = f"{os.getpid()} {os.environ.get('STAGE')} {os.environ.get('LISTEN_FDS')}".encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def address_string(self): return 'client'
server = ThreadingHTTPServer(('', 0), Handler, bind_and_activate=False)
if sys.argv[1:]:
    server.socket = socket.socket(socket.AF_UNIX)
    server.socket.bind(sys.argv[1])
    server.socket.listen()
else: server.socket = socket.socket(fileno=3)
print('words of an application', file=sys.stderr, flush=True)
server.serve_forever()
"#;

const APPLICATION_CONFIG: &str = r#"
[[sites]]
hosts = ["python.test"]
root = "{site}/app"
{user0}
  [[sites.rules]]
  handler = { app = { command = ["/usr/bin/python3", "application.py"], directory = "{site}/app", env = { STAGE = "test" } } }
"#;

/// A site with the application; `None` where it cannot run.
fn application(sites: &str, pools: &str) -> Option<Bed> {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        testkit::lacks_program("python3");
        return None;
    }
    let files = [
        ("app/application.py", APPLICATION),
        ("other/index.php", WHO),
    ];
    let wish = Wish {
        files: &files,
        sites,
        pools,
        ..Wish::default()
    };
    bed(&wish)
}

#[test]
fn who_comes_as_an_application_ends_that_binds_its_socket_itself_is_answered_by_the_next() {
    let words = r#"["/usr/bin/python3", "application.py""#;
    let sites = APPLICATION_CONFIG.replace(words, &format!("{words}, \"$socket\""));
    let Some(bed) = application(&sites, "") else {
        return;
    };
    for _ in 0..5 {
        let answer = bed.get_of("python.test", "/");
        let text = answer.text();
        assert_eq!(answer.status, 200, "{text}\n{}", bed.gateway.stderr());
        assert!(text.ends_with(" None"), "{text}");
        kill(text.split(' ').next().unwrap().parse().unwrap());
    }
}

#[test]
fn an_application_is_started_by_its_first_request_and_again_when_it_was_killed() {
    let Some(bed) = application(APPLICATION_CONFIG, "") else {
        return;
    };
    let ask = || {
        let answer = bed.get_of("python.test", "/");
        assert_eq!(
            answer.status,
            200,
            "{}\n{}",
            answer.text(),
            bed.gateway.stderr()
        );
        answer.text()
    };
    let first = ask();
    assert!(first.ends_with(" test 1"), "{first}");
    assert_eq!(ask(), first);
    bed.gateway.wait_for_message("words of an application");
    kill(first.split(' ').next().unwrap().parse().unwrap());
    assert_ne!(ask(), first);
}
