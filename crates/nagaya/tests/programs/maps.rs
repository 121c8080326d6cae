//! Maps: programs and files that answer, as requests, operators and the machine see them.
//!
//! Every program here is a real one, started by the real gateway.

use std::time::{Duration, Instant};

use testkit::client::{Body, reply};
use testkit::gateway::Builder;
use testkit::{Gateway, PATIENCE, Reply, eventually};

const CONFIG: &str = r#"
workers = 2
{maps}
[[sites]]
hosts = ["maps.test"]
[[sites.rules]]
match = { path = "/metrics" }
handler = { metrics = "json" }
[[sites.rules]]
match = { path = "/plain" }
handler = { respond = { status = 200, body = "plain" } }
{rules}
[[sites.rules]]
handler = { respond = { status = 200, body = "served" } }
"#;

/// Redirects where the rule holds.
fn redirects(conditions: &str) -> String {
    format!(
        "[[sites.rules]]\nmatch = {{ {conditions} }}\nhandler = {{ redirect = \"http://sorry.test/\" }}\n"
    )
}

/// Answers with what the map says to the query.
fn tells(map: &str) -> String {
    format!(
        "[[sites.rules]]\nmatch = {{ path = \"/{map}\" }}\n\
         handler = {{ respond = {{ status = 200, body = \"${{{map}:$query|none}}\" }} }}\n"
    )
}

/// How long a question may take where a test is not about that: a machine may stand still longer
/// than the gateway waits by itself.
const LONG: &str = "timeout = \"20s\"";

/// A map whose program is this script.
fn shell(name: &str, script: &str, more: &str) -> String {
    let long = if more.contains("timeout") { "" } else { LONG };
    format!("[maps.{name}]\nprogram = [\"sh\", \"-c\", '{script}']\n{long}\n{more}\n")
}

fn builder(maps: &str, rules: &str) -> Builder {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config(maps, rules))
}

fn config(maps: &str, rules: &str) -> String {
    CONFIG.replace("{maps}", maps).replace("{rules}", rules)
}

fn get(gateway: &Gateway, path: &str) -> Reply {
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(request(path).as_bytes());
    reply(client.read_reply(Body::Framed))
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: maps.test\r\n\r\n")
}

fn status(gateway: &Gateway, path: &str) -> u16 {
    get(gateway, path).status
}

fn body(gateway: &Gateway, path: &str) -> String {
    get(gateway, path).text()
}

/// A counter of the first map.
fn counter(gateway: &Gateway, name: &str) -> u64 {
    let figures = body(gateway, "/metrics");
    let (_, maps) = figures.split_once("\"maps\":").expect("maps");
    let (_, value) = maps.split_once(&format!("\"{name}\":")).expect("a counter");
    let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

fn has_process(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    // Whoever has ended and is not reaped yet has ended.
    status.is_ok_and(|status| !status.contains(") Z "))
}

fn gone(pid: &str) {
    eventually(PATIENCE, &format!("the end of {pid}"), || {
        (!has_process(pid)).then_some(())
    });
}

const ECHO: &str = r#"while read -r k; do echo "$k"; done"#;

#[test]
fn answers_are_compared_as_numbers() {
    let rule = redirects("map = \"load\", key = \"$query\", above = 3.0");
    let gateway = builder(&shell("load", ECHO, ""), &rule).start();
    // Compared as text, "10.00" and "9.9" would not be more than "3.00".
    for load in ["3.01", "3.5", "4", "9.9", "10.00", "10.5", "12", "1e3"] {
        assert_eq!(status(&gateway, &format!("/?{load}")), 302, "{load}");
    }
    for load in [
        "3.00", "3", "2.99", "0.42", "-10", "NULL", "many", "", "inf",
    ] {
        assert_eq!(status(&gateway, &format!("/?{load}")), 200, "{load}");
    }
    gateway.wait_for_message("a map's answer is no number");
    let told = gateway.stderr();
    assert!(told.contains("rule=\"rule 3 of site maps.test\""), "{told}");
}

#[test]
fn every_comparison_does_what_it_says() {
    let rule = |path: &str, conditions: &str| {
        redirects(&format!(
            "path = \"/{path}\", map = \"m\", key = \"$query\", {conditions}"
        ))
    };
    let rules = [
        rule("below", "below = 2"),
        rule("between", "above = 1, below = 2.5"),
        rule("equals", "equals = \"blue\""),
        rule("answered", "answered = true"),
        rule("silent", "answered = false"),
        redirects("path = \"/not\", not = { map = \"m\", key = \"$query\", equals = \"a\" }"),
    ];
    let gateway = builder(&shell("m", ECHO, ""), &rules.concat()).start();
    for (path, yes, no) in [
        ("below", "1.9", "2"),
        ("between", "2.4", "2.5"),
        ("equals", "blue", "Blue"),
        ("answered", "", "null"),
        ("silent", "NULL", "x"),
        ("not", "b", "a"),
    ] {
        assert_eq!(status(&gateway, &format!("/{path}?{yes}")), 302, "{path}");
        assert_eq!(status(&gateway, &format!("/{path}?{no}")), 200, "{path}");
    }
}

#[test]
fn the_load_average_comes_from_programs_as_operators_wrote_them() {
    let perl = r#"#!/usr/bin/perl
$| = 1;
while (<STDIN>) {
    my ($one) = `uptime` =~ /load average:\s+([.0-9]+)/;
    print $one + 0, "\n";
}
"#;
    let sh = "#!/bin/sh\nwhile read i\ndo\nuptime | sed -e 's/.*load average: \\([.0-9]*\\).*/\\1/'\ndone\n";
    let blank = "#!/usr/bin/perl\n$| = 1;\nwhile (<STDIN>) { print \"0.00\\n\"; }\n";
    let module = "use Sys::Statistics::Linux::LoadAVG;\n$| = 1;\nwhile (<STDIN>) { print Sys::Statistics::Linux::LoadAVG->new->get->{avg_1}, \"\\n\"; }\n";
    let mut programs = vec![("blank", blank), ("perl", perl), ("sh", sh)];
    let has_module = std::process::Command::new("perl")
        .args(["-MSys::Statistics::Linux::LoadAVG", "-e", "1"])
        .stderr(std::process::Stdio::null())
        .status();
    if has_module.is_ok_and(|status| status.success()) {
        programs.push(("module", module));
    } else {
        testkit::lacks_program("LoadAVG.pm");
    }
    let maps = programs.iter().map(|(name, _)| match *name {
        "module" => format!("[maps.module]\nprogram = [\"perl\", \"module\"]\n{LONG}\n"),
        name => format!("[maps.{name}]\nprogram = [\"./{name}\"]\n{LONG}\n"),
    });
    let rules = programs.iter().map(|(name, _)| {
        let matched = |path: &str, test| {
            redirects(&format!(
                "path = \"/{name}/{path}\", map = \"{name}\", {test}"
            ))
        };
        matched("low", "above = -1") + &matched("high", "above = 1000000")
    });
    let builder = builder(&maps.collect::<String>(), &rules.collect::<String>());
    for (name, text) in &programs {
        builder.directory().write_program(name, text);
    }
    let gateway = builder.start();
    for (name, _) in programs {
        assert_eq!(status(&gateway, &format!("/{name}/low")), 302, "{name}");
        assert_eq!(status(&gateway, &format!("/{name}/high")), 200, "{name}");
    }
}

#[test]
fn texts_take_answers_and_defaults() {
    let rules = r#"
[[sites.rules]]
match = { path = "/moved/*", map = "echo", key = "$path", answered = true }
handler = { redirect = "${echo:$path}", status = 301 }
[[sites.rules]]
match = { path = "/default" }
handler = { redirect = "${null:$path|/fallback$uri}" }
[[sites.rules]]
match = { path = "/nowhere" }
handler = { redirect = "${null:}" }
[[sites.rules]]
match = { path = "/field" }
reply_headers = { set = { X-Map = "<${echo:$query}>", X-None = "<${null:a}>" } }
handler = { respond = { status = 200, body = "${echo:a$$${method}}" } }
"#;
    let maps = shell("echo", ECHO, "") + &shell("null", "while read k; do echo NULL; done", "");
    let gateway = builder(&maps, rules).start();
    let location = |path: &str| {
        let reply = get(&gateway, path);
        let to = reply.head.field("location").map(str::to_owned);
        (reply.status, to)
    };
    assert_eq!(location("/moved/a%20b"), (301, Some("/moved/a%20b".into())));
    let fallback = Some("/fallback/default?x=1".to_owned());
    assert_eq!(location("/default?x=1"), (302, fallback));
    assert_eq!(location("/nowhere"), (404, None));
    let reply = get(&gateway, "/field?one");
    assert_eq!(reply.head.field("x-map"), Some("<one>"));
    assert_eq!(reply.head.field("x-none"), Some("<>"));
    assert_eq!(reply.text(), "a$GET");
}

#[test]
fn each_of_many_requests_at_once_hears_its_own_answer() {
    for more in ["", "processes = 3", "cache = \"1h\""] {
        let gateway = builder(&shell("echo", ECHO, more), &tells("echo")).start();
        std::thread::scope(|scope| {
            for client in 0..20 {
                let gateway = &gateway;
                scope.spawn(move || {
                    let mut connection = gateway.client().with_deadline(PATIENCE);
                    for turn in 0..20 {
                        let key = format!("{client}-{turn}");
                        connection.send(request(&format!("/echo?{key}")).as_bytes());
                        let reply = reply(connection.read_reply(Body::Framed));
                        assert_eq!(reply.text(), key, "{more}");
                    }
                });
            }
        });
        assert_eq!(counter(&gateway, "questions"), 400);
        assert_eq!(counter(&gateway, "errors"), 0);
    }
}

#[test]
fn an_answer_is_kept_for_its_time_by_key() {
    let count = "n=0; while read k; do n=$((n+1)); echo $n; done";
    let maps = shell("kept", count, "cache = \"1h\"") + &shell("asked", count, "");
    let gateway = builder(&maps, &(tells("kept") + &tells("asked"))).start();
    let all = [
        "/kept?a", "/kept?a", "/kept?b", "/kept?a", "/asked?a", "/asked?a",
    ];
    let answers = all.map(|path| body(&gateway, path));
    assert_eq!(answers, ["1", "1", "2", "1", "1", "2"]);
    assert_eq!(counter(&gateway, "questions"), 4);
    assert_eq!(counter(&gateway, "cached"), 2);
}

#[test]
fn a_program_that_dies_costs_its_questions_a_defined_answer_and_is_started_again() {
    let dies = "echo no more of this >&2; read k; exit 3";
    let maps = shell("dies", dies, "on_error = \"sorry\"");
    let gateway = builder(&maps, &tells("dies")).start();
    for _ in 0..3 {
        assert_eq!(body(&gateway, "/dies?a"), "sorry");
        assert_eq!(body(&gateway, "/plain"), "plain");
    }
    gateway.wait_for_message("it ended with status 3; its last words: no more of this");
    gateway.wait_for_message("a map program's standard error");
    assert!(counter(&gateway, "errors") >= 3);
    let log = gateway.stderr();
    let said = log
        .lines()
        .filter(|line| line.contains("a map program's standard error"));
    assert_eq!(said.count(), 1, "the same words of every start: {log}");
    // Once each, with rests in between: not as fast as it can.
    let restarts = counter(&gateway, "restarts");
    assert!((1..50).contains(&restarts), "{restarts}");
}

#[test]
fn a_program_that_answers_once_and_ends_answers_again_later() {
    let once = shell("once", "read k; echo \"$k\"", "");
    let gateway = builder(&once, &tells("once")).start();
    for key in ["a", "b", "c"] {
        eventually(PATIENCE, "an answer", || {
            (body(&gateway, &format!("/once?{key}")) == key).then_some(())
        });
    }
    gateway.wait_for_message("it ended with status 0");
}

#[test]
fn a_program_that_hangs_holds_up_nobody_for_long() {
    let maps = shell("hangs", "exec sleep 1000", "timeout = \"500ms\"");
    let gateway = builder(&maps, &tells("hangs")).start();
    let mut waits = gateway.client().with_deadline(PATIENCE);
    waits.send(request("/hangs?a").as_bytes());
    // More connections than workers: each worker serves others while one waits.
    for _ in 0..8 {
        assert_eq!(body(&gateway, "/plain"), "plain");
    }
    assert_eq!(reply(waits.read_reply(Body::Framed)).text(), "none");
    gateway.wait_for_message("it answered nothing for as long as a question may take");
    assert!(counter(&gateway, "restarts") >= 1);
}

#[test]
fn what_a_program_has_read_it_may_answer_after_it_has_closed_its_input() {
    let closes = "read -r k; exec <&-; echo closed >&2; sleep 2; echo \"$k\"";
    let maps = shell("closes", closes, "timeout = \"20s\"");
    let gateway = builder(&maps, &tells("closes")).start();
    let ask = |path: &str| {
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(request(path).as_bytes());
        client
    };
    let mut first = ask("/closes?a");
    gateway.wait_for_message("text=closed");
    // Nobody will read this one.
    let mut second = ask("/closes?b");
    assert_eq!(reply(first.read_reply(Body::Framed)).text(), "a");
    assert_eq!(reply(second.read_reply(Body::Framed)).text(), "none");
}

#[test]
fn all_who_share_a_question_are_counted_when_it_fails() {
    let maps = shell(
        "hangs",
        "exec sleep 1000",
        "timeout = \"500ms\"\ncache = \"1h\"",
    );
    let gateway = builder(&maps, &tells("hangs")).start();
    let clients = (0..5).map(|_| {
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(request("/hangs?a").as_bytes());
        client
    });
    for mut client in clients.collect::<Vec<_>>() {
        assert_eq!(reply(client.read_reply(Body::Framed)).text(), "none");
    }
    assert_eq!(counter(&gateway, "questions"), 5);
    assert_eq!(counter(&gateway, "errors"), 5);
}

#[test]
fn a_question_that_takes_too_long_is_given_up_and_its_answer_is_nobodys() {
    // It answers all the time, but always late: half a second each.
    let late = "while read -r k; do sleep 0.5; echo \"$k\"; done";
    let maps = shell("late", late, "timeout = \"2s\"\nwaiting = 6");
    let gateway = builder(&maps, &tells("late")).start();
    let mut clients: Vec<_> = (0..10)
        .map(|at| {
            let mut client = gateway.client().with_deadline(PATIENCE);
            client.send(request(&format!("/late?{at}")).as_bytes());
            (at, client)
        })
        .collect();
    let answers: Vec<_> = clients
        .iter_mut()
        .map(|(at, client)| (*at, reply(client.read_reply(Body::Framed)).text()))
        .collect();
    // Whoever hears anything hears what it asked.
    for (at, answer) in &answers {
        assert!(*answer == at.to_string() || answer == "none", "{answers:?}");
    }
    let none = answers
        .iter()
        .filter(|(_, answer)| answer == "none")
        .count();
    assert!(none >= 4, "six wait at most: {answers:?}");
    eventually(PATIENCE, "an answer to a later question", || {
        (body(&gateway, "/late?again") == "again").then_some(())
    });
}

#[test]
fn a_program_that_floods_is_ended() {
    let long = "read k; printf %100000d 7; sleep 1000";
    let maps = shell("yes", "exec yes", "") + &shell("long", long, "");
    let gateway = builder(&maps, &(tells("yes") + &tells("long"))).start();
    gateway.wait_for_message("it said something nobody had asked for");
    assert_eq!(body(&gateway, "/long?a"), "none");
    gateway.wait_for_message("it said a line longer than an answer may be");
    assert_eq!(body(&gateway, "/plain"), "plain");
}

#[test]
fn a_program_that_is_not_there_is_told_and_asked_in_vain() {
    let maps = "[maps.gone]\nprogram = [\"./gone.pl\"]\non_error = \"0\"\n\
                [maps.nowhere]\nprogram = [\"no-such-program-anywhere\"]\n";
    let gateway = builder(maps, &(tells("gone") + &tells("nowhere"))).start();
    assert_eq!(body(&gateway, "/gone?a"), "0");
    assert_eq!(body(&gateway, "/nowhere?a"), "none");
    gateway.wait_for_message("a map program cannot be started; tried again at once: ");
    gateway.wait_for_message("gone.pl: no such file");
    gateway.wait_for_message("no program `no-such-program-anywhere` in /usr/local/bin");
}

#[test]
fn a_reload_keeps_what_is_as_it_was_and_ends_what_is_not() {
    let pid = "while read k; do echo $$; done";
    let rules = tells("kept") + &tells("changed");
    let before = shell("kept", pid, "") + &shell("changed", pid, "");
    let mut gateway = builder(&before, &rules).start();
    let (kept, changed) = (body(&gateway, "/kept"), body(&gateway, "/changed"));
    assert!(has_process(&kept) && has_process(&changed));
    let after = shell("changed", pid, "timeout = \"25s\"") + &shell("kept", pid, "");
    gateway.reload(&config(&after, &rules));
    gateway.wait_for_message("generation 2 serves");
    assert_eq!(body(&gateway, "/kept"), kept);
    let new = body(&gateway, "/changed");
    assert!(new != changed && has_process(&new), "{new}");
    gone(&changed);
    gateway.reload(&config("", ""));
    gateway.wait_for_message("generation 3 serves");
    gone(&kept);
    gone(&new);
}

#[test]
fn a_reload_waits_for_the_answers_that_are_under_way() {
    let slow = "while read -r k; do echo asked >&2; sleep 4; echo \"$k\"; done";
    let mut gateway = builder(&shell("slow", slow, "timeout = \"30s\""), &tells("slow")).start();
    let mut waits = gateway.client().with_deadline(PATIENCE);
    waits.send(request("/slow?a").as_bytes());
    gateway.wait_for_message("text=asked");
    let other = shell("slow", "while read -r k; do echo new; done", "");
    gateway.reload(&config(&other, &tells("slow")));
    gateway.wait_for_message("generation 2 serves");
    assert_eq!(body(&gateway, "/slow?b"), "new");
    assert_eq!(reply(waits.read_reply(Body::Framed)).text(), "a");
    gateway.wait_for_message("a map program has ended: its map has gone");
}

#[test]
fn an_upgrade_has_questions_answered_by_the_program_that_was_asked() {
    let slow = shell("slow", "while read -r k; do sleep 1; echo $$; done", "");
    let gateway = builder(&slow, &tells("slow")).start();
    gateway.wait_for_message("ready: generation 1 ");
    let first = body(&gateway, "/slow?a");
    let mut waits = gateway.client().with_deadline(PATIENCE);
    waits.send(request("/slow?b").as_bytes());
    gateway.wait_for_message("ready: generation 1 ");
    gateway.signal(rustix::process::Signal::USR2);
    gateway.wait_for_message("the program is a new one generation=2");
    assert_eq!(reply(waits.read_reply(Body::Framed)).text(), first);
    assert_ne!(body(&gateway, "/slow?c"), first);
    gone(&first);
}

#[test]
fn nothing_of_a_program_outlives_the_gateway() {
    let leaves = "sleep 1000 & while read k; do echo $! $$; done";
    let stubborn = "trap \"\" TERM HUP; while true; do read k; echo $$; done 2>/dev/null";
    let maps = shell("leaves", leaves, "") + &shell("stubborn", stubborn, "");
    let mut gateway = builder(&maps, &(tells("leaves") + &tells("stubborn"))).start();
    let pids = body(&gateway, "/leaves") + " " + &body(&gateway, "/stubborn");
    assert_eq!(pids.split_whitespace().count(), 3, "{pids}");
    assert!(gateway.stop().success());
    pids.split_whitespace().for_each(gone);
}

#[test]
fn a_lost_spawner_or_server_takes_its_programs_along_and_others_come() {
    let maps = shell("pid", "while read k; do echo $$; done", "");
    let gateway = builder(&maps, &tells("pid")).start();
    let first = body(&gateway, "/pid");
    let kill = |pid: u32| {
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("signalled");
    };
    let next = |before: &str| {
        eventually(PATIENCE, "another process", || {
            let client = std::net::TcpStream::connect(gateway.address()).ok()?;
            drop(client);
            let pid = body(&gateway, "/pid");
            (pid != before && pid != "none").then_some(pid)
        })
    };
    kill(gateway.spawner_pid());
    let second = next(&first);
    gone(&first);
    kill(gateway.server_pid());
    gone(&second);
    let third = next(&second);
    assert!(has_process(&third));
}

#[test]
fn a_program_runs_as_the_servers_user_or_its_own_and_never_as_root() {
    if testkit::lacks_root("to become others") {
        return;
    }
    let id = "while read k; do id -u; done";
    let maps = shell("server", id, "") + &shell("own", id, "user = \"daemon\"");
    let gateway = builder(&maps, &(tells("server") + &tells("own"))).start();
    assert_eq!(body(&gateway, "/server"), "65534");
    assert_eq!(body(&gateway, "/own"), "1");
    let root = builder(&shell("root", id, "user = \"root\""), "");
    let (status, _, stderr) = root.run(&["check"]);
    assert!(
        !status.success() && stderr.contains("must not run as root"),
        "{stderr}"
    );
}

#[test]
fn a_file_answers_and_is_read_again_when_it_changes() {
    let rules = tells("file") + &redirects("map = \"file\", key = \"$query\", equals = \"go\"");
    let builder = builder("[maps.file]\nfile = \"map.txt\"\n", &rules);
    builder
        .directory()
        .write("map.txt", "# names\na one # first\nb go\nlonely\n");
    let gateway = builder.start();
    assert_eq!(body(&gateway, "/file?a"), "one");
    assert_eq!(body(&gateway, "/file?c"), "none");
    assert_eq!(
        (status(&gateway, "/?a"), status(&gateway, "/?b")),
        (200, 302)
    );
    gateway.wait_for_message("a key without a value");
    assert!(gateway.stderr().contains("line=4"), "{}", gateway.stderr());
    gateway.directory().write("map.txt", "c three\n");
    eventually(PATIENCE, "the file to be read again", || {
        (body(&gateway, "/file?c") == "three").then_some(())
    });
    assert_eq!(body(&gateway, "/file?a"), "none");
    std::fs::remove_file(gateway.directory().path().join("map.txt")).expect("removed");
    gateway.wait_for_message("a map's file cannot be read again");
    assert_eq!(body(&gateway, "/file?c"), "three");
}

#[test]
fn a_file_that_cannot_be_read_refuses_the_configuration() {
    let mut gateway = builder("", "").start();
    gateway.reload(&config("[maps.file]\nfile = \"missing.txt\"\n", ""));
    gateway.wait_for_message("cannot read the map's file");
    assert_eq!(body(&gateway, "/"), "served");
}

#[test]
fn a_limit_counts_only_what_a_map_says() {
    let limits = r#"
[[sites.rules]]
limits = [{ name = "few", key = "const:all", rate = "1/d", match = { map = "echo", key = "$query", equals = "bot" } }]
"#;
    let gateway = builder(&shell("echo", ECHO, ""), limits).start();
    let statuses = ["/?me", "/?bot", "/?bot", "/?me"].map(|path| status(&gateway, path));
    assert_eq!(statuses, [200, 200, 503, 200]);
}

#[test]
fn requests_without_a_map_wait_for_none() {
    let maps = shell(
        "slow",
        "while read k; do sleep 5; echo a; done",
        "timeout = \"20s\"",
    );
    let rule = redirects("path = \"/slow\", map = \"slow\", answered = true");
    let gateway = builder(&maps, &rule).start();
    let began = Instant::now();
    let mut waits = gateway.client().with_deadline(PATIENCE);
    waits.send(request("/slow").as_bytes());
    assert_eq!(body(&gateway, "/other"), "served");
    assert_eq!(reply(waits.read_reply(Body::Framed)).status, 302);
    assert!(began.elapsed() >= Duration::from_secs(5));
    assert_eq!(counter(&gateway, "questions"), 1, "only what needed it");
}
