//! CGI programs as clients and as the programs themselves see them (RFC 3875).
//!
//! Every program here is a real one, run by the real gateway.

use crate::fixtures::programs;
use std::collections::BTreeMap;

use crate::fixtures::programs::{
    CONFIG, PATIENCE, answer, builder, builder_of, gateway, get, is_root, note, pipes, program,
    records, request, tell,
};
use testkit::client::{Body, reply};
use testkit::{RawClient, Reply, ScriptedUpstream, Step, eventually};

const ENV: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nexec env\n";
const ECHO: &str =
    "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\necho \"[$CONTENT_LENGTH]\"\nexec cat\n";

/// What a program that says its environment was told.
fn environment(reply: &Reply) -> BTreeMap<String, String> {
    let text = reply.text();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    // A shell adds these itself.
    let own = ["PWD", "OLDPWD", "SHLVL", "_"];
    pairs
        .filter(|(name, _)| !own.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn a_program_is_told_what_the_rfc_says_and_nothing_of_ours() {
    let builder = builder(
        "params = { set = { APP = \"$method of $host\" }, remove = [\"DOCUMENT_URI\"] }",
        "",
        "",
    );
    program(builder.directory().path(), "dir/env.cgi", ENV);
    let root = builder.directory().path().join("www").display().to_string();
    let gateway = builder.env("SECRET_OF_THE_OPERATOR", "x").start();
    let port = gateway.address().port().to_string();
    let fields = "Accept: text/*\r\nX-Two: 1\r\nX-Two: 2\r\nProxy: http://evil.test/\r\n\
                  Connection: X-Hop\r\nX-Hop: 1\r\nCookie: a=1\r\nContent-Type: text/x\r\n\
                  X-Forwarded-For: 192.0.2.1\r\nTE: trailers\r\n";
    let line = "GET /dir/env.cgi/extra/p%41th?-d+a=b&c=%20";
    let reply = reply(gateway.ask(&request(line, fields)));
    assert_eq!(reply.status, 200);
    let mut told = environment(&reply);
    assert_eq!(
        told.remove("REMOTE_PORT")
            .map(|port| port.parse::<u16>().is_ok()),
        Some(true)
    );
    let id = reply.head.field("x-request-id").expect("an id").to_owned();
    let expected = [
        ("APP", "GET of cgi.test"),
        ("CONTENT_LENGTH", ""),
        ("CONTENT_TYPE", "text/x"),
        ("DOCUMENT_ROOT", &root),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTP_ACCEPT", "text/*"),
        ("HTTP_COOKIE", "a=1"),
        ("HTTP_HOST", "cgi.test"),
        ("HTTP_X_REQUEST_ID", &id),
        ("HTTP_X_TWO", "1, 2"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("PATH_INFO", "/extra/pAth"),
        ("PATH_TRANSLATED", &format!("{root}/extra/pAth")),
        ("QUERY_STRING", "-d+a=b&c=%20"),
        ("REDIRECT_STATUS", "200"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_SCHEME", "http"),
        ("REQUEST_URI", "/dir/env.cgi/extra/pAth?-d+a=b&c=%20"),
        ("RULE", "cgi"),
        ("SCRIPT_FILENAME", &format!("{root}/dir/env.cgi")),
        ("SCRIPT_NAME", "/dir/env.cgi"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_NAME", "cgi.test"),
        ("SERVER_PORT", &port),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", "nagaya"),
        ("STAGE", "test of cgi.test"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(told, BTreeMap::from(expected));
}

#[test]
fn a_rewritten_path_leaves_request_uri_as_the_client_sent_it() {
    let script = "scripts = { rewrite = { code = \"Nginx::Request.new.uri = '/env.cgi/new'\" } }";
    let config = CONFIG.replace("env = { STAGE", &format!("{script}\nenv = {{ STAGE"));
    let builder = builder_of(&config, "", "", "");
    program(builder.directory().path(), "env.cgi", ENV);
    let gateway = builder.start();
    let told = environment(&reply(gateway.ask(&request("GET /old/%20?q=1", ""))));
    let of = |name: &str| told.get(name).map(String::as_str);
    assert_eq!(of("REQUEST_URI"), Some("/old/%20?q=1"));
    assert_eq!(of("PATH_INFO"), Some("/new"));
}

#[test]
fn a_query_never_becomes_arguments() {
    let args = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'\necho \"$# of $0\"\n";
    let gateway = gateway("", "", &[("args.cgi", args)]);
    for query in ["", "?-d+allow_url_include=1", "?one+two", "?%2Ds"] {
        let reply = get(&gateway, &format!("/args.cgi{query}"));
        assert!(
            reply.text().starts_with("0 of "),
            "{query}: {}",
            reply.text()
        );
    }
}

#[test]
fn a_program_begins_in_its_directory_with_nothing_of_ours_open() {
    let look =
        "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'\npwd\numask\nls /proc/self/fd | tr '\\n' ' '\n";
    let gateway = gateway("", "", &[("dir/look.cgi", look)]);
    let reply = get(&gateway, "/dir/look.cgi");
    let root = gateway.directory().path().join("www/dir");
    // The last descriptor is the one `ls` reads the directory by.
    assert_eq!(reply.text(), format!("{}\n0022\n0 1 2 3 ", root.display()));
}

#[test]
fn a_program_runs_as_the_sites_user() {
    let who = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'\nid -u\nid -G\n";
    let gateway = gateway("", "", &[("who.cgi", who)]);
    let expected = match is_root() {
        true => "65534\n65534\n".to_owned(),
        false => {
            let own = |option| {
                std::process::Command::new("id")
                    .arg(option)
                    .output()
                    .expect("id")
                    .stdout
            };
            [own("-u"), own("-G")]
                .map(|text| String::from_utf8(text).expect("numbers"))
                .concat()
        }
    };
    assert_eq!(get(&gateway, "/who.cgi").text(), expected);
}

#[test]
fn each_sites_programs_run_as_its_own_user_and_leave_others_alone() {
    if testkit::lacks_root("to become others") {
        return;
    }
    let config = CONFIG.replacen("env = {", "user = \"www-data\"\nenv = {", 1);
    let builder = builder_of(&config, "", "", "");
    let directory = builder.directory().path().to_owned();
    let who = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'\nid -un\nid -Gn\ncat {notes}/secret 2>&1 | grep -c denied\n";
    program(&directory, "who.cgi", who);
    let secret = builder.directory().write("notes/secret", "x");
    programs::set_mode(&secret, 0o600);
    std::os::unix::fs::chown(&secret, Some(65_534), None).expect("root may");
    // Its own file is as good as root's.
    let own = directory.join("www/who.cgi");
    std::os::unix::fs::chown(&own, Some(33), Some(33)).expect("root may");
    let gateway = builder.start();
    let expected = "www-data\nwww-data\n1\n";
    assert_eq!(get(&gateway, "/who.cgi").text(), expected);
}

#[test]
fn a_program_only_its_user_may_read_is_run_and_never_shown() {
    if testkit::lacks_root("to become others") {
        return;
    }
    let config = CONFIG.replacen("env = {", "user = \"www-data\"\nenv = {", 1);
    let builder = builder_of(&config, "", "", "");
    let directory = builder.directory().path().to_owned();
    let hello = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'; printf %s \"$PATH_INFO\"\n";
    program(&directory, "own.cgi", hello);
    let own = directory.join("www/own.cgi");
    programs::set_mode(&own, 0o700);
    let letter = builder.directory().write("www/letter.txt", "x");
    programs::set_mode(&letter, 0o600);
    for file in [&own, &letter] {
        std::os::unix::fs::chown(file, Some(33), Some(33)).expect("root may");
    }
    let gateway = builder.start();
    assert_eq!(get(&gateway, "/own.cgi/more").text(), "/more");
    assert_eq!(get(&gateway, "/letter.txt").status, 403);
}

#[test]
fn a_body_goes_in_and_comes_back_however_it_is_framed() {
    let gateway = gateway("", "", &[("echo.cgi", ECHO)]);
    for length in [0, 1, 5_000, 70_000, 300_000] {
        let body = "x".repeat(length);
        let expected = format!("[{length}]\n{body}");
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&request(
            "POST /echo.cgi",
            &format!("Content-Length: {length}\r\n"),
        ));
        client.send(body.as_bytes());
        let (status, echoed) = answer(client.read_reply(Body::Framed));
        assert!((status, &echoed) == (200, &expected), "{length}: {status}");
        // CGI has no other way to say how long a body is: it is taken first.
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&request("POST /echo.cgi", "Transfer-Encoding: chunked\r\n"));
        for piece in body.as_bytes().chunks(10_000) {
            client.send(&[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
        }
        client.send(b"0\r\n\r\n");
        let (status, echoed) = answer(client.read_reply(Body::Framed));
        assert!(
            (status, &echoed) == (200, &expected),
            "{length} in chunks: {status}"
        );
    }
}

#[test]
fn a_body_nobody_reads_is_no_error() {
    let deaf = "#!/bin/sh\nexec <&-\nprintf 'Content-Type: x\\n\\n'\necho deaf\n";
    let gateway = gateway("", "", &[("deaf.cgi", deaf)]);
    for length in [10, 3_000_000] {
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&request(
            "POST /deaf.cgi",
            &format!("Content-Length: {length}\r\n"),
        ));
        client.send(&vec![b'x'; length]);
        assert_eq!(
            answer(client.read_reply(Body::Framed)),
            (200, "deaf\n".into())
        );
    }
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let gateway = gateway("", "", &[("echo.cgi", ECHO)]);
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&request(
        "POST /echo.cgi",
        "Content-Length: 3\r\nExpect: 100-continue\r\n",
    ));
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(client.read_exactly(interim.len()), interim);
    client.send(b"abc");
    assert_eq!(
        answer(client.read_reply(Body::Framed)),
        (200, "[3]\nabc".into())
    );
}

#[test]
fn ten_megabytes_go_both_ways_and_leave_memory_alone() {
    const LENGTH: usize = 10 << 20;
    let mirror = "#!/bin/sh\nprintf 'Content-Length: %s\\n\\n' \"$CONTENT_LENGTH\"\nexec cat\n";
    let gateway = gateway("", "", &[("mirror.cgi", mirror)]);
    let ask = |length: usize| {
        let body: Vec<u8> = (0..length).map(|at| (at * 7 / 3) as u8).collect();
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&request(
            "PUT /mirror.cgi",
            &format!("Content-Length: {length}\r\n"),
        ));
        client.send(&body);
        let reply = reply(client.read_reply(Body::Framed));
        assert!(
            reply.complete && reply.body == body,
            "{length}: {}",
            reply.status
        );
    };
    ask(1 << 20);
    let before = gateway.server_peak_bytes();
    ask(LENGTH);
    let grown = gateway.server_peak_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more for a body of {LENGTH}");
}

#[test]
fn a_slow_reader_does_not_hold_the_program() {
    let large = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'\nhead -c 4000000 /dev/zero\necho $$ >{notes}/done\n";
    let gateway = gateway("", "", &[("large.cgi", large)]);
    let server = gateway.server_pid();
    let before = pipes(server);
    let mut client = RawClient::connect_narrow(gateway.address()).with_deadline(PATIENCE);
    client.send(&request("GET /large.cgi", ""));
    let process = note(&gateway, "done");
    programs::await_gone(&process);
    eventually(PATIENCE, "the program's pipes to be closed", || {
        (pipes(server) == before).then_some(())
    });
    let reply = reply(client.read_reply(Body::Framed));
    assert!(reply.complete);
    assert_eq!(reply.body.len(), 4_000_000);
}

#[test]
fn without_a_buffer_the_programs_pace_is_its_clients() {
    let large = "#!/bin/sh\nprintf 'Content-Length: 9000000\\n\\n'\nhead -c 9000000 /dev/zero\necho $$ >{notes}/done\n";
    let gateway = gateway("buffer_reply = false", "", &[("large.cgi", large)]);
    let mut client = RawClient::connect_narrow(gateway.address()).with_deadline(PATIENCE);
    client.send(&request("GET /large.cgi", ""));
    let head = client.read_exactly(100);
    assert!(head.starts_with(b"HTTP/1.1 200 "));
    assert!(!gateway.directory().path().join("notes/done").exists());
    let rest = client.read_exactly(9_000_000);
    assert!(rest.len() > 8_999_000, "{}", rest.len());
    note(&gateway, "done");
}

#[test]
fn what_a_program_says_reaches_the_client_before_it_ends() {
    let slow = "#!/bin/sh\nprintf 'Content-Type: x\\n\\nfirst'\nuntil [ -e {notes}/go ]; do sleep 0.02; done\nprintf second\n";
    let gateway = gateway("", "", &[("slow.cgi", slow)]);
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&request("GET /slow.cgi", ""));
    let mut seen = Vec::new();
    while !seen.ends_with(b"5\r\nfirst\r\n") {
        let more = client.read_exactly(1);
        assert!(!more.is_empty(), "{}", String::from_utf8_lossy(&seen));
        seen.extend(more);
    }
    tell(&gateway, "go");
    assert_eq!(client.read_exactly(11 + 5), b"6\r\nsecond\r\n0\r\n\r\n");
}

/// What a program says; then the status, a field and its value, and the body that come of it.
const HEADS: [(&str, &str, u16, &str, &str, &str); 12] = [
    (
        "plain",
        "Content-Type: text/x\n\nhello",
        200,
        "content-type",
        "text/x",
        "hello",
    ),
    (
        "crlf",
        "Content-Type: text/x\r\n\r\nhello",
        200,
        "content-type",
        "text/x",
        "hello",
    ),
    (
        "status",
        "Status: 404 Not Here\nContent-Type: x\n\nno",
        404,
        "content-type",
        "x",
        "no",
    ),
    (
        "bare",
        "Status: 418\n\n",
        418,
        "transfer-encoding",
        "chunked",
        "",
    ),
    (
        "place",
        "Location: http://a.test/x\n\n",
        302,
        "location",
        "http://a.test/x",
        "",
    ),
    (
        "local_and_more",
        "Set-Cookie: a=1\nLocation: /x?y\n\n",
        302,
        "location",
        "/x?y",
        "",
    ),
    (
        "both",
        "Status: 301\nLocation: /x\n\n",
        301,
        "location",
        "/x",
        "",
    ),
    (
        "length",
        "Content-Length: 5\n\nhello",
        200,
        "content-length",
        "5",
        "hello",
    ),
    (
        "two",
        "Set-Cookie: a=1\nSet-Cookie: b=2\n\n.",
        200,
        "set-cookie",
        "a=1",
        ".",
    ),
    ("none", "Status: 204\n\n", 204, "content-length", "", ""),
    (
        "hop",
        "Connection: close\nKeep-Alive: x\nX-A: 1\n\n.",
        200,
        "keep-alive",
        "",
        ".",
    ),
    (
        "accel",
        "X-Sendfile: /etc/passwd\nX-Accel-Redirect: /x\n\n.",
        200,
        "x-sendfile",
        "",
        ".",
    ),
];

#[test]
fn a_head_decides_status_place_and_length() {
    let say = "#!/bin/sh\ncat \"$DOCUMENT_ROOT/heads/$QUERY_STRING\"\n";
    let builder = builder("", "", "");
    program(builder.directory().path(), "say.cgi", say);
    for (name, content, ..) in HEADS {
        builder
            .directory()
            .write(&format!("www/heads/{name}"), content);
    }
    let gateway = builder.start();
    for (name, _, status, field, value, body) in HEADS {
        let reply = get(&gateway, &format!("/say.cgi?{name}"));
        assert_eq!(reply.status, status, "{name}");
        assert_eq!(reply.head.field(field).unwrap_or_default(), value, "{name}");
        assert_eq!(
            (reply.text().as_str(), reply.complete),
            (body, true),
            "{name}"
        );
    }
    let cookies = get(&gateway, "/say.cgi?two").head.count("set-cookie");
    assert_eq!(cookies, 2);
}

/// Answers with where the query says.
const GO: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: x\\nLocation: %s\\n\\nnobody sees this' \"$QUERY_STRING\"\n";
/// Says how it was asked.
const ASKED: &str = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n%s %s %s [%s]' \"$REQUEST_METHOD\" \"$SCRIPT_NAME\" \"$QUERY_STRING\" \"$CONTENT_LENGTH$CONTENT_TYPE\"\n";
/// Goes round and round, and counts.
const ROUND: &str = "#!/bin/sh\necho >>{notes}/round\nprintf 'Location: /round.cgi\\n\\n'\n";

#[test]
fn a_local_location_is_served_inside_as_if_the_client_had_asked_for_it() {
    let rules = r#"  [[sites.rules]]
  match = { path = "/private/*" }
  deny = ["0.0.0.0/0"]
  [[sites.rules]]
  match = { file = "*.cgi" }
  limits = [{ concurrent = 1 }]
"#;
    let first = "  [[sites.rules]]\n";
    let config = CONFIG.replacen(first, &format!("{rules}{first}"), 1);
    let builder = builder_of(&config, "", "", "");
    let directory = builder.directory();
    for (name, text) in [("go.cgi", GO), ("asked.cgi", ASKED), ("round.cgi", ROUND)] {
        program(directory.path(), name, text);
    }
    directory.write("www/plain.txt", "a file");
    directory.write("www/private/key.txt", "a secret");
    let gateway = builder.start();
    let mut client = gateway.client().with_deadline(PATIENCE);
    let post = "Content-Type: text/x\r\nContent-Length: 3\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (line, fields, body, status, text) in [
        ("GET /go.cgi?/plain.txt", "", "", 200, "a file"),
        (
            "GET /go.cgi?/asked.cgi?a=b",
            "",
            "",
            200,
            "GET /asked.cgi a=b []",
        ),
        ("GET /go.cgi?/go.cgi?/plain.txt", "", "", 200, "a file"),
        (
            "POST /go.cgi?/asked.cgi",
            post,
            "abc",
            200,
            "GET /asked.cgi  []",
        ),
        (
            "POST /go.cgi?/asked.cgi",
            chunked,
            "3\r\nabc\r\n0\r\n\r\n",
            200,
            "GET /asked.cgi  []",
        ),
        ("HEAD /go.cgi?/plain.txt", "", "", 200, ""),
        // Every rule on the way holds.
        ("GET /go.cgi?/private/key.txt", "", "", 403, ""),
        ("GET /go.cgi?/../etc/passwd", "", "", 500, ""),
        ("GET /go.cgi?/absent.txt", "", "", 404, ""),
        ("GET /round.cgi", "", "", 500, ""),
    ] {
        client.send(&request(line, fields));
        client.send(body.as_bytes());
        let how = match line.starts_with("HEAD") {
            true => Body::Never,
            false => Body::Framed,
        };
        let told = reply(client.read_reply(how));
        assert_eq!(told.status, status, "{line}");
        assert_eq!(told.head.count("location"), 0, "{line}");
        let body = String::from_utf8_lossy(&told.body);
        assert!(status != 200 || body == text, "{line}: {body}");
        assert!(
            !body.contains("secret") && !body.contains("nobody"),
            "{body}"
        );
    }
    gateway.wait_for_message("local_location");
    let rounds = std::fs::read_to_string(gateway.directory().path().join("notes/round"));
    assert_eq!(rounds.expect("notes").lines().count(), 11);
    // One record each, and no permit is left behind.
    assert_eq!(records(&gateway, 10).len(), 10);
    assert_eq!(get(&gateway, "/asked.cgi").text(), "GET /asked.cgi  []");
}

#[test]
fn a_program_inside_sees_the_user_that_the_first_one_saw() {
    let rule = r#"  [[sites.rules]]
  match = { file = "*.cgi" }
  auth = { realm = "Staff", file = "{dir}/users" }
"#;
    let first = "  [[sites.rules]]\n";
    let config = CONFIG.replacen(first, &format!("{rule}{first}"), 1);
    let builder = builder_of(&config, "", "", "");
    let directory = builder.directory();
    directory.write("users", "bob:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n");
    let user = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n%s' \"$REMOTE_USER\"\n";
    for (name, text) in [("go.cgi", GO), ("user.cgi", user)] {
        program(directory.path(), name, text);
    }
    let gateway = builder.start();
    let mut client = gateway.client().with_deadline(PATIENCE);
    let fields = "Authorization: Basic Ym9iOnRlc3Q=\r\n";
    client.send(&request("GET /go.cgi?/user.cgi", fields));
    let told = answer(client.read_reply(Body::Framed));
    assert_eq!(told, (200, "bob".to_owned()));
}

#[test]
fn a_program_that_sent_its_request_to_a_back_end_has_given_its_place_back() {
    let (upstream, turn) = ScriptedUpstream::held(vec![Step::reply(200, "slow")]);
    let rule = r#"  [[sites.rules]]
  match = { path = "/slow" }
  handler = { proxy = "app" }
"#;
    let first = "  [[sites.rules]]\n";
    let config = CONFIG.replacen(first, &format!("{rule}{first}"), 1)
        + "[upstreams.app]\nservers = [\"{server}\"]\n";
    let builder = builder_of(&config, "", "", "programs = 1");
    for (name, text) in [("go.cgi", GO), ("asked.cgi", ASKED)] {
        program(builder.directory().path(), name, text);
    }
    let gateway = builder.with("server", upstream.address()).start();
    let mut slow = gateway.client().with_deadline(PATIENCE);
    slow.send(&request("GET /go.cgi?/slow", ""));
    turn.wait();
    assert_eq!(get(&gateway, "/asked.cgi").text(), "GET /asked.cgi  []");
    turn.wait();
    let slow = answer(slow.read_reply(Body::Framed));
    assert_eq!(slow, (200, "slow".to_owned()));
}

#[test]
fn a_program_that_sent_its_request_to_a_script_that_waits_has_given_its_place_back() {
    let rule = r#"  [[sites.rules]]
  match = { path = "/slow" }
  handler = { proxy = { script = { code = "Nagaya.log(:error, 'waits'); sleep 60" } } }
"#;
    let first = "  [[sites.rules]]\n";
    let config =
        CONFIG.replacen(first, &format!("{rule}{first}"), 1) + "[scripts]\nwall = \"120s\"\n";
    let builder = builder_of(&config, "", "", "programs = 1");
    for (name, text) in [("go.cgi", GO), ("asked.cgi", ASKED)] {
        program(builder.directory().path(), name, text);
    }
    let gateway = builder.start();
    let mut slow = gateway.client().with_deadline(PATIENCE);
    slow.send(&request("GET /go.cgi?/slow", ""));
    gateway.wait_for_message("waits");
    assert_eq!(get(&gateway, "/asked.cgi").text(), "GET /asked.cgi  []");
}

#[test]
fn an_answer_to_head_has_no_body_and_the_connection_goes_on() {
    let say = "#!/bin/sh\nprintf 'Content-Length: 5\\n\\nhello'\n";
    let gateway = gateway("", "", &[("say.cgi", say)]);
    let mut client = gateway.client().with_deadline(PATIENCE);
    for _ in 0..3 {
        client.send(&request("HEAD /say.cgi", ""));
        let head = reply(client.read_reply(Body::Never));
        assert_eq!(
            (head.status, head.head.field("content-length")),
            (200, Some("5"))
        );
        assert_eq!(
            answer(client.ask(&request("GET /say.cgi", ""))),
            (200, "hello".into())
        );
    }
}

#[test]
fn only_files_that_are_there_are_run() {
    let gateway = gateway("", "", &[("real.cgi", ECHO), ("dir.cgi/x.cgi", ECHO)]);
    for (path, status) in [
        ("/real.cgi", 200),
        ("/no.cgi", 404),
        ("/no.cgi/x", 404),
        ("/dir.cgi/x.cgi", 200),
        ("/dir.cgi/", 404),
    ] {
        assert_eq!(get(&gateway, path).status, status, "{path}");
    }
}

#[test]
fn a_record_says_what_the_program_took() {
    let busy = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'\ni=0; while [ $i -lt 60000 ]; do i=$((i+1)); done\n";
    let gateway = gateway("", "", &[("busy.cgi", busy)]);
    assert_eq!(get(&gateway, "/busy.cgi").status, 200);
    let record = records(&gateway, 1).remove(0);
    let number = |name: &str| -> u64 {
        let (_, rest) = record
            .split_once(&format!("\"{name}\":"))
            .expect("the field");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits
            .parse()
            .unwrap_or_else(|_| panic!("{name} in {record}"))
    };
    assert!(number("program_cpu_us") >= 1_000, "{record}");
    assert!(number("program_peak_bytes") >= 100_000, "{record}");
    assert!(record.contains(r#""handler":"cgi""#), "{record}");
    let told = r#""programs":{"running":0,"started":1,"failed":0,"killed":{"memory_limit":0,"#;
    eventually(PATIENCE, "one program in the figures", || {
        get(&gateway, "/metrics")
            .text()
            .contains(told)
            .then_some(())
    });
}

#[test]
fn no_more_programs_run_than_may() {
    let wait = "#!/bin/sh\necho $$ >{notes}/$QUERY_STRING\nuntil [ -e {notes}/go ]; do sleep 0.02; done\nprintf 'Content-Type: x\\n\\ndone'\n";
    let builder = builder("", "", "programs = 2");
    program(builder.directory().path(), "wait.cgi", wait);
    let gateway = builder.start();
    let begin = |name: &str| {
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&request(&format!("GET /wait.cgi?{name}"), ""));
        client
    };
    let mut waiting = [begin("a"), begin("b")];
    note(&gateway, "a");
    note(&gateway, "b");
    // As many may wait for a place, though not for long.
    let _in_turn = [begin("c"), begin("d")];
    let refused = eventually(PATIENCE, "a refusal", || {
        let reply = get(&gateway, "/wait.cgi?e");
        (reply.status == 503).then_some(reply)
    });
    assert!(refused.head.field("retry-after").is_some());
    gateway.wait_for_message("limit caps.programs concurrent 2/2");
    assert!(!gateway.directory().path().join("notes/e").exists());
    assert!(
        !refused.text().contains("programs"),
        "no detail for clients"
    );
    tell(&gateway, "go");
    for client in &mut waiting {
        assert_eq!(
            answer(client.read_reply(Body::Framed)),
            (200, "done".into())
        );
    }
    eventually(PATIENCE, "a free place", || {
        (get(&gateway, "/wait.cgi?f").status == 200).then_some(())
    });
}

#[test]
fn an_environment_too_large_is_refused() {
    let builder = builder("", "", "env_bytes = \"4KiB\", head_bytes = \"32KiB\"");
    program(builder.directory().path(), "env.cgi", ENV);
    let gateway = builder.start();
    let ask = |length: usize| {
        let fields = format!("X-Long: {}\r\n", "a".repeat(length));
        reply(gateway.ask(&request("GET /env.cgi", &fields))).status
    };
    assert_eq!([ask(1_000), ask(8_000), ask(1_000)], [200, 431, 200]);
}

#[test]
fn what_a_program_complains_of_is_logged_under_the_requests_id() {
    // Opened by name, as scripts do; whoever runs them is not who made the pipe.
    let complain = "#!/bin/sh\nprintf 'Content-Type: x\\n\\nfine'\necho 'it is \"bad\" \u{1b}[31m' >&2\necho again >/dev/stderr\nprintf 'no end' >&2\n";
    let gateway = gateway("", "", &[("complain.cgi", complain)]);
    let reply = get(&gateway, "/complain.cgi");
    assert_eq!((reply.status, reply.text().as_str()), (200, "fine"));
    let id = reply.head.field("x-request-id").expect("an id").to_owned();
    gateway.wait_for_message("text=\"no end\"");
    let log = gateway.stderr();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("standard error"))
        .collect();
    assert_eq!(lines.len(), 3, "{log}");
    for line in &lines {
        assert!(
            line.contains(&format!("request_id={id}")) && line.contains("complain.cgi"),
            "{line}"
        );
    }
    assert!(
        lines[0].contains(r#"text="it is \"bad\" \u{1b}[31m""#),
        "{}",
        lines[0]
    );
}

#[test]
fn a_flood_of_complaints_is_cut_and_the_same_is_said_once() {
    let flood =
        "#!/bin/sh\nyes 'help me' | head -c 2000000 >&2\nprintf 'Content-Type: x\\n\\nfine'\n";
    let gateway = gateway("", "", &[("flood.cgi", flood)]);
    assert_eq!(get(&gateway, "/flood.cgi").text(), "fine");
    gateway.wait_for_message("standard error was cut");
    assert_eq!(get(&gateway, "/flood.cgi").text(), "fine");
    let log = gateway.stderr();
    let counts = ["help me", "was cut"].map(|part| log.matches(part).count());
    assert_eq!(counts, [1, 1], "the same once a minute: {log}");
}

#[test]
fn what_editors_leave_behind_is_never_run() {
    let everything = "match = { path = \"/*\" }";
    let config = CONFIG.replacen("match = { file = \"*.cgi\" }", everything, 1);
    let builder = builder_of(&config, "", "", "");
    let say = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nran'\n";
    let left = ["a.cgi~", "a.cgi.bak", "a.OLD", "a.orig", "a.save", "a.swp"];
    for name in left.into_iter().chain(["a", "a.backup"]) {
        program(builder.directory().path(), name, say);
    }
    let gateway = builder.start();
    for name in left {
        assert_eq!(get(&gateway, &format!("/{name}")).status, 404, "{name}");
    }
    for name in ["a", "a.backup"] {
        assert_eq!(get(&gateway, &format!("/{name}")).text(), "ran", "{name}");
    }
}
