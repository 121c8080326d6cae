//! CGI programs as clients and as the programs themselves see them (RFC 3875).
//!
//! Every program here is a real one, run by the real gateway.

use crate::fixtures::programs;
use std::collections::BTreeMap;

use crate::fixtures::programs::{
    CONFIG, answer, builder, builder_of, gateway, get, is_root, note, program, records, request,
    tell,
};
use testkit::client::{Body, reply};
use testkit::{PATIENCE, Reply, eventually};

const ENV: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nexec env\n";
pub(super) const ECHO: &str =
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
fn a_sites_own_error_log_hears_its_programs_and_the_process_does_not() {
    let own = "hosts = [\"cgi.test\"]\nlog = { error = \"{dir}/error.log\" }";
    let config = CONFIG.replace("hosts = [\"cgi.test\"]", own);
    let builder = builder_of(&config, "", "", "");
    let say = "#!/bin/sh\necho 'it is bad' >&2\nprintf 'Content-Type: x\\n\\nfine'\n";
    program(builder.directory().path(), "say.cgi", say);
    program(builder.directory().path(), "end.cgi", "#!/bin/sh\nexit 3\n");
    let gateway = builder.start();
    assert_eq!(get(&gateway, "/say.cgi").text(), "fine");
    assert_eq!(get(&gateway, "/end.cgi").status, 502);
    let log = gateway.directory().path().join("error.log");
    let own = eventually(PATIENCE, "what the programs did", || {
        let own = std::fs::read_to_string(&log).unwrap_or_default();
        let all = ["text=\"it is bad\"", "request failed"];
        all.iter().all(|part| own.contains(part)).then_some(own)
    });
    assert_eq!(own.matches("it is bad").count(), 1, "{own}");
    let ours = gateway.stderr();
    assert!(
        !ours.contains("it is bad") && !ours.contains("request failed"),
        "{ours}"
    );
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
