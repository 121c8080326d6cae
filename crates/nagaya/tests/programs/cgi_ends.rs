//! How CGI programs end, and what is left of them: nothing.
//!
//! Clients that leave, programs that never end, that say nothing, that say what is no reply, and a
//! spawner that is killed.

use crate::fixtures::programs::{
    CONFIG, answer, await_gone, await_quiet, builder, builder_of, gateway, get, is_root, note,
    program, records, request, set_mode, tell,
};
use rustix::process::{Pid, Signal, kill_process};
use testkit::client::{Body, reply};
use testkit::processes::{children, open_files};
use testkit::{Gateway, Outcome, PATIENCE, eventually};

/// Has a child of its own, notes both, and never ends.
const STUCK: &str = "#!/bin/sh\nsleep 600 &\necho $$ $! >{notes}/$QUERY_STRING\nwait\n";
/// As [`STUCK`], in the middle of its reply.
const STUCK_BODY: &str = "#!/bin/sh\nprintf 'Content-Type: x\\n\\nhalf'\nsleep 600 &\necho $$ $! >{notes}/$QUERY_STRING\nwait\n";
const FINE: &str = "#!/bin/sh\nprintf 'Content-Type: x\\n\\nfine'\n";

/// Sends a request and leaves it to its fate.
fn begin(gateway: &Gateway, path: &str) -> testkit::RawClient {
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&request(&format!("GET {path}"), ""));
    client
}

/// Waits until the figures say so.
fn counted(gateway: &Gateway, reason: &str, count: u64) {
    let expected = format!("\"{reason}\":{count}");
    eventually(PATIENCE, &format!("figures with {expected}"), || {
        get(gateway, "/metrics")
            .text()
            .contains(&expected)
            .then_some(())
    });
}

#[test]
fn a_client_that_leaves_takes_its_program_and_all_its_children_along() {
    let programs = [
        ("stuck.cgi", STUCK),
        ("body.cgi", STUCK_BODY),
        ("fine.cgi", FINE),
    ];
    let gateway = gateway("", "", &programs);
    for (path, name) in [("/stuck.cgi?a", "a"), ("/body.cgi?b", "b")] {
        let client = begin(&gateway, path);
        let processes = note(&gateway, name);
        assert_eq!(processes.split(' ').count(), 2);
        drop(client);
        await_gone(&processes);
    }
    // One that leaves when it has begun to ask for more.
    let mut client = begin(&gateway, "/stuck.cgi?d");
    let processes = note(&gateway, "d");
    client.send(b"GET /fine.cgi HTTP/1.1\r\n");
    // Whoever was asked later has been answered: the gateway has seen what was sent before.
    assert_eq!(get(&gateway, "/fine.cgi").status, 200);
    drop(client);
    await_gone(&processes);
    // One that leaves when it has sent its body.
    let mut client = gateway.client();
    client.send(&request("POST /stuck.cgi?c", "Content-Length: 4\r\n"));
    client.send(b"full");
    let processes = note(&gateway, "c");
    drop(client);
    await_gone(&processes);
    counted(&gateway, "client", 4);
    await_quiet(&gateway);
    assert_eq!(get(&gateway, "/fine.cgi").status, 200);
}

#[test]
fn a_client_that_only_stops_sending_gets_its_programs_answer_unless_that_ends_it() {
    let wait = "#!/bin/sh\necho $$ >{notes}/$QUERY_STRING\nuntil [ -e {notes}/go ]; do sleep 0.02; done\nprintf 'Content-Length: 4\\n\\ndone'\n";
    let answers = gateway("", "", &[("wait.cgi", wait)]);
    let mut client = begin(&answers, "/wait.cgi?a");
    client.finish_sending();
    note(&answers, "a");
    assert_eq!(client.read_exactly(1), b"H");
    tell(&answers, "go");
    let (rest, _) = client.read_to_end();
    assert!(rest.starts_with(b"TTP/1.1 200 OK"), "{rest:?}");
    assert!(rest.ends_with(b"\r\n\r\ndone"), "{rest:?}");

    let ends = gateway("abort_on_close = true", "", &[("wait.cgi", wait)]);
    let mut client = begin(&ends, "/wait.cgi?a");
    let processes = note(&ends, "a");
    client.finish_sending();
    await_gone(&processes);
    assert_eq!(client.read_to_end(), (Vec::new(), Outcome::Eof));
    counted(&ends, "client", 1);
}

/// Takes note where the one before it is still there, and never ends.
const ALONE: &str = "#!/bin/sh\n[ -e {notes}/last ] && kill -0 $(cat {notes}/last) && echo >{notes}/two\necho $$ >{notes}/last\necho $$ >{notes}/$QUERY_STRING\nexec sleep 600\n";

#[test]
fn where_one_may_run_the_next_begins_when_nothing_is_left_of_the_one_before() {
    let limits = r#"limits = [{ concurrent = 1, queue = 9, wait = "600s" }]"#;
    let config = CONFIG.replace("env = { RULE = \"cgi\" }", limits);
    let builder = builder_of(&config, "", "", "");
    program(builder.directory().path(), "alone.cgi", ALONE);
    let gateway = builder.start();
    let mut last = begin(&gateway, "/alone.cgi?0");
    note(&gateway, "0");
    for number in 1..10 {
        let next = begin(&gateway, &format!("/alone.cgi?{number}"));
        drop(std::mem::replace(&mut last, next));
        note(&gateway, &number.to_string());
    }
    let two = gateway.directory().path().join("notes/two");
    assert!(!two.exists(), "two ran at once");
}

#[test]
fn a_client_that_leaves_with_its_whole_reply_lets_the_program_end() {
    let wait = "echo >{notes}/$QUERY_STRING\nuntil [ -e {notes}/go ]; do sleep 0.02; done\necho done >{notes}/$QUERY_STRING.end\n";
    let none = format!("#!/bin/sh\nprintf 'Status: 204\\n\\n'\n{wait}");
    let five = format!("#!/bin/sh\nprintf 'Content-Length: 5\\n\\nhello'\n{wait}");
    let gateway = gateway("", "", &[("none.cgi", &none), ("five.cgi", &five)]);
    for (path, name, status) in [("/none.cgi?a", "a", 204), ("/five.cgi?b", "b", 200)] {
        let mut client = begin(&gateway, path);
        let whole = reply(client.read_reply(Body::Framed));
        assert_eq!((whole.status, whole.complete), (status, true));
        note(&gateway, name);
    }
    // Both clients have gone. One that leaves without its reply has been noticed by now.
    program(gateway.directory().path(), "stuck.cgi", STUCK);
    let client = begin(&gateway, "/stuck.cgi?c");
    let processes = note(&gateway, "c");
    drop(client);
    await_gone(&processes);
    counted(&gateway, "client", 1);
    tell(&gateway, "go");
    assert_eq!(note(&gateway, "a.end"), "done");
    assert_eq!(note(&gateway, "b.end"), "done");
    let served = eventually(PATIENCE, "the programs' access records", || {
        let mut served = records(&gateway, 0);
        served.retain(|record| record.contains(".cgi?"));
        (served.len() == 3).then_some(served)
    });
    for record in served {
        let has_given_up = record.contains("/stuck.cgi");
        assert_eq!(record.contains("client_gone"), has_given_up, "{record}");
    }
}

#[test]
fn what_is_asked_while_a_program_runs_is_answered_after_it() {
    let wait = "#!/bin/sh\necho $$ >{notes}/began\nuntil [ -e {notes}/go ]; do sleep 0.02; done\nprintf 'Content-Type: x\\n\\nfirst'\n";
    let gateway = gateway("", "", &[("wait.cgi", wait), ("fine.cgi", FINE)]);
    let mut client = begin(&gateway, "/wait.cgi");
    note(&gateway, "began");
    // More than is read ahead, in pieces.
    let next = request(
        "GET /fine.cgi",
        &format!("X-Long: {}\r\n", "x".repeat(8_000)),
    );
    for piece in next.repeat(20).chunks(3_000) {
        client.send(piece);
    }
    tell(&gateway, "go");
    let first = answer(client.read_reply(Body::Framed));
    assert_eq!(first, (200, "first".into()));
    for _ in 0..20 {
        let next = answer(client.read_reply(Body::Framed));
        assert_eq!(next, (200, "fine".into()));
    }
}

#[test]
fn a_program_that_runs_too_long_is_killed_and_its_client_told() {
    ends_in_time("timeout = \"8s\"", "", 503, "time_limit");
}

#[test]
fn a_program_that_says_nothing_is_killed_and_its_client_told() {
    ends_in_time("", "upstream_read = \"8s\"", 504, "upstream_silent");
}

/// Two programs that never end, one of them in the middle of its reply.
fn ends_in_time(options: &str, timeouts: &str, status: u16, reason: &str) {
    let programs = [("stuck.cgi", STUCK), ("body.cgi", STUCK_BODY)];
    let gateway = gateway(options, timeouts, &programs);
    let mut silent = begin(&gateway, "/stuck.cgi?a");
    let mut half = begin(&gateway, "/body.cgi?b");
    let processes = note(&gateway, "a") + " " + &note(&gateway, "b");
    let (got, page) = answer(silent.read_reply(Body::Framed));
    assert_eq!(got, status);
    // Which limit it was is told, and nothing of our own clocks.
    assert_eq!(page.contains(reason), status == 503, "{page}");
    // The head is out: nothing but the cut can tell the client.
    let cut = reply(half.read_reply(Body::Framed));
    assert_eq!(
        (cut.status, cut.complete, cut.text().as_str()),
        (200, false, "half")
    );
    await_gone(&processes);
    gateway.wait_for_message(&format!("reason={reason}"));
    counted(&gateway, reason, 2);
    await_quiet(&gateway);
}

#[test]
fn a_program_that_talks_is_not_silent() {
    let talk = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'\nfor i in 1 2 3 4 5 6 7 8 9; do sleep 1; printf $i; done\n";
    let gateway = gateway("", "upstream_read = \"8s\"", &[("talk.cgi", talk)]);
    let reply = get(&gateway, "/talk.cgi");
    assert!(reply.complete);
    assert_eq!(reply.text(), "123456789");
}

#[test]
fn what_is_no_reply_is_never_passed_on() {
    let say = "#!/bin/sh\ncat \"$DOCUMENT_ROOT/said/$QUERY_STRING\"\n";
    let builder = builder("", "", "");
    program(builder.directory().path(), "say.cgi", say);
    let long = format!("X-A: {}\n\n", "a".repeat(200_000));
    let many = "X-A: 1\n".repeat(5_000) + "\n";
    let cases: [(&str, &str, &str); 19] = [
        ("nothing", "", "program_no_head"),
        ("no_end", "Content-Type: x\n", "program_no_head"),
        ("half_line", "Content-Type", "program_no_head"),
        ("text", "hello, world\n\n", "no_colon"),
        ("nph", "HTTP/1.1 200 OK\nContent-Type: x\n\n.", "nph"),
        ("nph_late", "X-A: 1\nHTTP/1.0 200 OK\n\n.", "nph"),
        ("nul", "X-A: a\0b\n\n.", "bad_field_value"),
        ("cr", "X-A: a\rSet-Cookie: b\n\n.", "bad_field_value"),
        ("control", "X-A: \u{1b}[31m\n\n.", "bad_field_value"),
        ("name", "X A: b\n\n.", "bad_field_name"),
        ("folded", "X-A: b\n c\n\n.", ""),
        ("empty_name", ": b\n\n.", "bad_field_name"),
        ("status", "Status: fine\n\n.", "bad_status"),
        ("interim", "Status: 100\n\n.", "bad_status"),
        (
            "two_statuses",
            "Status: 200\nStatus: 404\n\n.",
            "second_status",
        ),
        ("length", "Content-Length: -1\n\n.", "bad_content_length"),
        (
            "longest",
            "Content-Length: 9223372036854775808\n\n.",
            "bad_content_length",
        ),
        ("long", &long, "head_too_long"),
        ("many", &many, "too_many_fields"),
    ];
    for (name, content, _) in cases {
        builder
            .directory()
            .write(&format!("www/said/{name}"), content);
    }
    let gateway = builder.start();
    for (name, _, reason) in cases {
        let answered = get(&gateway, &format!("/say.cgi?{name}"));
        assert_eq!((answered.status, answered.complete), (502, true), "{name}");
        let text = answered.text();
        assert!(
            !text.contains("hello") && (reason.is_empty() || !text.contains(reason)),
            "{text}"
        );
        let id = answered.head.field("x-request-id").expect("an id");
        gateway.wait_for_message(&format!("request_id={id}"));
        let log = gateway.stderr();
        let line = log.lines().find(|line| line.contains(id)).expect("a line");
        assert!(line.contains(&format!("reason={reason}")), "{name}: {line}");
        let told = match name {
            "text" => "hello, world",
            "nothing" => "exited with status 0",
            _ => "",
        };
        assert!(line.contains(told), "{name}: {line}");
    }
}

#[test]
fn a_body_that_is_not_as_long_as_said_is_cut() {
    let short = "#!/bin/sh\nprintf 'Content-Length: 9\\n\\nhello'\n";
    let over = "#!/bin/sh\nprintf 'Content-Length: 5\\n\\nhello, HTTP/1.1 200 OK'\n";
    let shot = "#!/bin/sh\nprintf 'Content-Type: x\\n\\nhello'\nkill -9 $$\n";
    let gateway = gateway(
        "",
        "",
        &[("short.cgi", short), ("over.cgi", over), ("shot.cgi", shot)],
    );
    for (path, is_whole, reason) in [
        ("/short.cgi", false, "body_too_short"),
        ("/over.cgi", true, "body_too_long"),
        ("/shot.cgi", false, "program_killed"),
    ] {
        let mut client = begin(&gateway, path);
        let cut = reply(client.read_reply(Body::Framed));
        assert_eq!(
            (cut.status, cut.complete, cut.text().as_str()),
            (200, is_whole, "hello"),
            "{path}"
        );
        // What came beyond is no reply to whatever is asked next.
        let (rest, end) = client.read_to_end();
        assert!(
            rest.is_empty() && matches!(end, Outcome::Eof | Outcome::Reset),
            "{path}: {end:?}"
        );
        gateway.wait_for_message(&format!("reason={reason}"));
    }
}

#[test]
fn a_failure_after_the_reply_is_only_logged() {
    let fail = "#!/bin/sh\nprintf 'Content-Type: x\\n\\nfine'\nexit 3\n";
    let early = "#!/bin/sh\nexit 3\n";
    let gateway = gateway("", "", &[("fail.cgi", fail), ("early.cgi", early)]);
    assert_eq!(get(&gateway, "/fail.cgi").text(), "fine");
    gateway.wait_for_message("a program failed after its reply");
    assert_eq!(get(&gateway, "/early.cgi").status, 502);
    gateway.wait_for_message("exited with status 3");
}

#[test]
fn nobody_waits_for_what_a_program_leaves_behind() {
    // One lives on without its output; of another a child holds the output open; a third has a
    // child in a session of its own that does.
    let lives = "#!/bin/sh\nprintf 'Content-Type: x\\n\\nfine'\nexec >&- 2>&-\necho $$ >{notes}/lives\nsleep 600\n";
    let child =
        "#!/bin/sh\nprintf 'Content-Type: x\\n\\nfine'\nsleep 600 &\necho $! >{notes}/child\n";
    let away = "#!/bin/sh\nprintf 'Content-Type: x\\n\\nfine'\nsetsid sleep 600 &\necho $! >{notes}/away\n";
    let gateway = gateway(
        "",
        "",
        &[
            ("lives.cgi", lives),
            ("child.cgi", child),
            ("away.cgi", away),
        ],
    );
    for name in ["lives", "child", "away"] {
        let reply = get(&gateway, &format!("/{name}.cgi"));
        assert_eq!(
            (reply.complete, reply.text().as_str()),
            (true, "fine"),
            "{name}"
        );
        let process = note(&gateway, name);
        if name != "away" {
            await_gone(&process);
        } else if let Some(process) = process.parse().ok().and_then(Pid::from_raw) {
            // Out of the group's reach; a control group would have it.
            let _ = kill_process(process, Signal::KILL);
        }
    }
    await_quiet(&gateway);
}

#[test]
fn a_killed_spawner_fails_its_requests_and_the_next_one_works() {
    let programs = [
        ("stuck.cgi", STUCK),
        ("body.cgi", STUCK_BODY),
        ("fine.cgi", FINE),
    ];
    let gateway = gateway("", "", &programs);
    for round in 0..2 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let mut waiting = begin(&gateway, &format!("/stuck.cgi?{a}"));
        let mut half = begin(&gateway, &format!("/body.cgi?{b}"));
        let leaders: Vec<_> = [note(&gateway, &a), note(&gateway, &b)]
            .iter()
            .filter_map(|note| note.split(' ').next().map(str::to_owned))
            .collect();
        // What the gateway has not read by then it could not pass on.
        half.await_bytes(b"half");
        let spawner = gateway.spawner_pid();
        let id = i32::try_from(spawner)
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process");
        kill_process(id, Signal::KILL).expect("the spawner is killed");
        assert_eq!(answer(waiting.read_reply(Body::Framed)).0, 502);
        let cut = reply(half.read_reply(Body::Framed));
        assert_eq!((cut.status, cut.complete), (200, false));
        eventually(PATIENCE, "another spawner", || {
            (gateway.spawner_pid() != spawner).then_some(())
        });
        let next = get(&gateway, "/fine.cgi");
        assert_eq!((next.status, next.text().as_str()), (200, "fine"));
        leaders.iter().for_each(|leader| await_gone(leader));
    }
    gateway.wait_for_message("reason=spawner_lost");
}

#[test]
fn a_program_under_way_outlives_a_reload() {
    let wait = "#!/bin/sh\necho $$ >{notes}/began\nuntil [ -e {notes}/go ]; do sleep 0.02; done\nprintf 'Content-Type: x\\n\\nold'\n";
    let mut gateway = gateway("", "", &[("wait.cgi", wait), ("fine.cgi", FINE)]);
    let mut client = begin(&gateway, "/wait.cgi");
    note(&gateway, "began");
    for generation in 2..8 {
        gateway.reload(CONFIG);
        gateway.wait_for_message(&format!("ready: generation {generation} "));
        assert_eq!(get(&gateway, "/fine.cgi").status, 200);
    }
    tell(&gateway, "go");
    assert_eq!(answer(client.read_reply(Body::Framed)), (200, "old".into()));
}

#[test]
fn a_drain_lets_programs_finish_and_kills_those_that_do_not() {
    let wait = "#!/bin/sh\necho $$ >{notes}/began\nuntil [ -e {notes}/go ]; do sleep 0.02; done\nprintf 'Content-Type: x\\n\\nlast'\n";
    let programs = [("wait.cgi", wait), ("stuck.cgi", STUCK)];
    let mut gateway = gateway("", "drain = \"8s\"", &programs);
    let mut waiting = begin(&gateway, "/wait.cgi");
    let mut stuck = begin(&gateway, "/stuck.cgi?stuck");
    note(&gateway, "began");
    let processes = note(&gateway, "stuck");
    gateway.signal(Signal::TERM);
    gateway.wait_for_message("no longer listening");
    tell(&gateway, "go");
    let last = answer(waiting.read_reply(Body::Framed));
    assert_eq!(last, (200, "last".into()));
    assert!(gateway.wait().success());
    assert!(matches!(
        stuck.read_reply(Body::Framed),
        Outcome::Eof | Outcome::Reset
    ));
    await_gone(&processes);
}

#[test]
fn what_could_be_somebody_elses_is_not_run() {
    let files = [
        "group.cgi",
        "others.cgi",
        "setuid.cgi",
        "plain.cgi",
        "odd/x.cgi",
        "lost.cgi",
        "text.cgi",
        "owner.cgi",
    ];
    let programs = files.map(|name| (name, FINE));
    let gateway = gateway("", "", &programs);
    let www = gateway.directory().path().join("www");
    program(
        gateway.directory().path(),
        "lost.cgi",
        "#!/no/such/interpreter\n",
    );
    program(gateway.directory().path(), "text.cgi", "just text\n");
    for (name, mode) in [
        ("group.cgi", 0o775),
        ("others.cgi", 0o757),
        ("setuid.cgi", 0o4755),
        ("plain.cgi", 0o644),
        ("odd", 0o777),
    ] {
        set_mode(&www.join(name), mode);
    }
    let mut cases = vec![
        ("group.cgi", "writable_by_others", "chmod go-w /"),
        ("others.cgi", "writable_by_others", "chmod go-w /"),
        ("setuid.cgi", "setuid_file", "chmod u-s,g-s /"),
        ("plain.cgi", "not_executable", "+x /"),
        ("odd/x.cgi", "writable_by_others", "chmod go-w /"),
        ("lost.cgi", "interpreter_missing", "head -1 /"),
        ("text.cgi", "not_a_program", "#! line"),
    ];
    if is_root() {
        std::os::unix::fs::chown(www.join("owner.cgi"), Some(12_345), None).expect("root may");
        cases.push(("owner.cgi", "owner_mismatch", "chown "));
    }
    for (name, reason, remedy) in cases {
        let refused = get(&gateway, &format!("/{name}"));
        assert_eq!(refused.status, 500, "{name}");
        assert!(
            !refused.text().contains(reason) && !refused.text().contains("www"),
            "{name}"
        );
        let id = refused
            .head
            .field("x-request-id")
            .expect("an id")
            .to_owned();
        gateway.wait_for_message(&format!("request_id={id}"));
        let log = gateway.stderr();
        let line = log.lines().find(|line| line.contains(&id)).expect("a line");
        assert!(line.contains(&format!("reason={reason}")), "{name}: {line}");
        assert!(line.contains(remedy), "{name}: {line}");
    }
}

#[test]
fn limits_of_a_process_bind_it() {
    let busy = "#!/bin/sh\nwhile :; do :; done\n";
    let limits = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'\nulimit -n\nulimit -t\nulimit -c\n";
    let gateway = gateway(
        "cpu_time = \"1s\", files = 64",
        "",
        &[("busy.cgi", busy), ("limits.cgi", limits)],
    );
    assert_eq!(get(&gateway, "/limits.cgi").text(), "64\n1\n0\n");
    assert_eq!(get(&gateway, "/busy.cgi").status, 503);
    gateway.wait_for_message("reason=cpu_time_limit");
    counted(&gateway, "cpu_time_limit", 1);
}

/// `NAGAYA_PROGRAMS` says how many requests; the long run of `make soak` sends many more.
#[test]
fn after_many_requests_nothing_is_left() {
    let count: usize = std::env::var("NAGAYA_PROGRAMS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(120);
    let stuck = "#!/bin/sh\nsleep 600 &\nwait\n";
    let large = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'\nexec head -c 3000000 /dev/zero\n";
    let gateway = gateway(
        "",
        "",
        &[
            ("fine.cgi", FINE),
            ("short/stuck.cgi", stuck),
            ("stuck.cgi", stuck),
            ("large.cgi", large),
        ],
    );
    let (server, spawner) = (gateway.server_pid(), gateway.spawner_pid());
    let round = |count: usize| {
        std::thread::scope(|scope| {
            // Five, so that each has some of all eight kinds.
            for part in 0..5 {
                let gateway = &gateway;
                scope.spawn(move || (part..count).step_by(5).for_each(|turn| one(gateway, turn)));
            }
        });
        await_quiet(&gateway);
    };
    round(40);
    let held = || (open_files(server).len(), open_files(spawner).len());
    let (server_before, spawner_before) = held();
    round(count);
    // A few may be kept for what comes next; none for each request.
    eventually(PATIENCE, "descriptors to be given back", || {
        let (server_now, spawner_now) = held();
        let given = server_now <= server_before + 8 && spawner_now <= spawner_before + 8;
        (given && children(spawner).is_empty()).then_some(())
    });
    assert_eq!(
        (gateway.server_pid(), gateway.spawner_pid()),
        (server, spawner)
    );
    counted(&gateway, "running", 0);
}

/// One request of many kinds: served, timed out, left alone, left in the middle.
fn one(gateway: &Gateway, turn: usize) {
    match turn % 8 {
        0 => {
            let mut client = begin(gateway, "/short/stuck.cgi");
            assert_eq!(answer(client.read_reply(Body::Framed)).0, 503);
        }
        1 | 2 => drop(begin(gateway, "/stuck.cgi")),
        3 => {
            let mut client = begin(gateway, "/large.cgi");
            assert!(!client.read_exactly(1_000).is_empty());
        }
        4 => {
            let mut client = gateway.client();
            client.send(&request("POST /fine.cgi", "Content-Length: 100000\r\n"));
            client.send(b"not all of it");
        }
        _ => assert_eq!(get(gateway, "/fine.cgi").status, 200),
    }
}
