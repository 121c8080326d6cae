//! A program's local `Location`: the request goes on inside, as if the client had asked for it.

use crate::fixtures::programs::{CONFIG, answer, builder_of, get, program, records, request};
use testkit::client::{Body, reply};
use testkit::{PATIENCE, ScriptedUpstream, Step};

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
