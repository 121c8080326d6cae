//! Scripts on the way of requests: what they answer, what they wait for, what they cost others.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::fixtures::files::{ask, field, get};
use testkit::client::{Body, reply};
use testkit::{Gateway, Outcome, PATIENCE, eventually};

const CONFIG: &str = r#"
workers = 1
[log]
access = "-"
format = "json"
level = "info"
[scripts]
cpu = "1s"
log_wall = "60s"
wall = "600s"
log = { code = "Nginx.errlogger Nginx::LOG_ERR, 'logged ' + Nginx::Request.new.unparsed_uri" }

[[sites]]
hosts = ["a.test"]
root = "{dir}/www"
request_headers = { add = { X-Way = "site" } }
scripts = { rewrite = "hooks/rewrite.rb", access = "hooks/access.rb" }
  [[sites.rules]]
  match = { path = "/denied" }
  deny = ["0.0.0.0/0"]
  [[sites.rules]]
  match = { path = "/app" }
  handler = { script = "hooks/app.rb" }
  [[sites.rules]]
  match = { path = "/allowed" }
  scripts = { access = { code = "raise 'never mind'", on_error = "allow" } }
  handler = { respond = { body = "all the same" } }
  [[sites.rules]]
  match = { path = "/logs-slowly" }
  scripts = { log = { code = "sleep 50" } }
  handler = { respond = { body = "at once" } }
  [[sites.rules]]
  match = { path = "/measured" }
  scripts = { log = { code = """
v = Nginx::Var.new
Nginx.errlogger Nginx::LOG_ERR, "measured #{v.request_length} in, #{v.bytes_sent} out, #{v.body_bytes_sent} of body, connection #{v.connection.to_i > 0}"
""" } }
  handler = { script = { code = "Nginx::Request.new.body; Nginx.rputs 'of nine b'" } }
  [[sites.rules]]
  match = { path = "/added" }
  request_headers = { add = { X-Way = "added" } }
  handler = { script = { code = "Nginx.redirect '/said'" } }
  [[sites.rules]]
  match = { path = "/said" }
  request_headers = { add = { X-Way = "said" } }
  handler = { script = { code = "Nginx.rputs Nginx::Var.new.http_x_way" } }
  [[sites.rules]]
  match = { path = "/asks-inside" }
  handler = { script = { code = "Nginx::Async::HTTP.sub_request('/waits-inside')" } }
  [[sites.rules]]
  match = { path = "/waits-inside" }
  handler = { script = { code = "Nginx.errlogger Nginx::LOG_ERR, 'inside waits'; sleep 500" } }
  [[sites.rules]]
  match = { path = "/inside" }
  handler = { respond = { body = "inside $query" } }
"#;

const REWRITE: &str = r#"
r = Nginx::Request.new
r.uri = "/hello.txt" if r.uri == "/old.txt"
r.args = "rewritten=1" if r.uri == "/inside"
Nginx.redirect "/hello.txt" if r.uri == "/sent"
Nginx.redirect "https://b.test/x", 301 if r.uri == "/moved"
"#;

const ACCESS: &str = r#"
r = Nginx::Request.new
r.headers_out["X-Before"] = "set"
case r.uri
when "/forbidden" then Nginx.return 403
when "/raises" then raise "broken on purpose"
when "/spins" then while true; end
when "/sleeps" then sleep 1
when "/sleeps-long" then sleep 500
when "/round" then Nginx.redirect "/round"
when "/around" then Nginx.redirect "/inside?b=2"
when "/closes" then Nginx.return 444
when "/status" then Nginx.return r.args.to_i
when "/apache-status" then Apache.return r.args.to_i
when "/splits" then r.headers_out["X-Split"] = "a\r\nX-Evil: 1"
end
"#;

const APP: &str = r#"
r = Nginx::Request.new
r.content_type = "text/html"
Nginx.echo "hello, #{r.headers_in["X-Name"]} at #{r.filename}"
"#;

fn gateway() -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory();
    directory.write("www/hello.txt", "hello, world!\n");
    directory.write("hooks/rewrite.rb", REWRITE);
    directory.write("hooks/access.rb", ACCESS);
    directory.write("hooks/app.rb", APP);
    builder.start()
}

#[test]
fn scripts_answer_change_and_refuse_requests() {
    let gateway = gateway();
    for (path, status, body) in [
        ("/hello.txt", 200, "hello, world!\n"),
        ("/old.txt", 200, "hello, world!\n"),
        ("/sent", 200, "hello, world!\n"),
        ("/around", 200, "inside b=2"),
        ("/inside", 200, "inside rewritten=1"),
        ("/said", 200, "site, said"),
        ("/added", 200, "site, added, said"),
        ("/allowed", 200, "all the same"),
        ("/forbidden", 403, "Forbidden"),
        ("/denied", 403, "Forbidden"),
        ("/raises", 500, "Internal Server Error"),
        ("/spins", 500, "Internal Server Error"),
        ("/round", 500, "Internal Server Error"),
        ("/splits", 500, "Internal Server Error"),
    ] {
        let reply = get(&gateway, "a.test", path);
        assert_eq!(reply.status, status, "{path}");
        assert!(reply.text().contains(body), "{path}: {}", reply.text());
        assert_eq!(reply.head.count("X-Evil"), 0, "{path}");
    }
    let moved = get(&gateway, "a.test", "/moved");
    assert_eq!(
        (moved.status, field(&moved, "Location").as_str()),
        (301, "https://b.test/x")
    );
    let closed = gateway.ask(b"GET /closes HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(closed, Outcome::Eof);
    let app = ask(&gateway, "a.test", "GET /app", "X-Name: tenant\r\n");
    assert!(
        app.text().starts_with("hello, tenant at /"),
        "{}",
        app.text()
    );
    assert_eq!(field(&app, "Content-Type"), "text/html");
    assert_eq!(field(&app, "X-Before"), "set");
    gateway.wait_for_message("broken on purpose");
    let log = gateway.stderr();
    let told = log.lines().find(|line| line.contains("broken on purpose"));
    let told = told.expect("just seen");
    assert!(told.contains("hooks/access.rb:6"), "{told}");
    assert_eq!(log.matches("broken on purpose").count(), 1, "{log}");
    assert!(log.contains("script failed, the request goes on"), "{log}");
}

#[test]
fn a_status_that_is_none_lets_nobody_in() {
    let gateway = gateway();
    for (path, status) in [
        ("/status?0", 404),
        ("/status?-5", 404),
        ("/status?-1", 500),
        ("/status?-2", 500),
        ("/status?-4", 500),
        ("/status?1", 500),
        ("/status?99", 500),
        ("/status?199", 500),
        ("/status?600", 500),
        ("/status?403", 403),
        ("/apache-status?0", 404),
        ("/apache-status?-1", 404),
        ("/apache-status?-2", 500),
        ("/apache-status?403", 403),
    ] {
        assert_eq!(get(&gateway, "a.test", path).status, status, "{path}");
    }
    gateway.wait_for_message("a script returned -4");
}

#[test]
fn the_record_of_a_request_that_a_script_refused_says_so() {
    let gateway = gateway();
    assert_eq!(get(&gateway, "a.test", "/forbidden").status, 403);
    assert_eq!(get(&gateway, "a.test", "/hello.txt").status, 200);
    let record = |path: &str| {
        eventually(PATIENCE, path, || {
            let lines = gateway.stdout();
            let line = lines.lines().find(|line| line.contains(path));
            line.map(str::to_owned)
        })
    };
    let refused = record("/forbidden");
    assert!(refused.contains("\"reason\":\"script_said\""), "{refused}");
    let served = record("/hello.txt");
    assert!(!served.contains("script_said"), "{served}");
}

#[test]
fn a_log_script_knows_what_came_and_what_was_sent() {
    let gateway = gateway();
    let request = b"POST /measured HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\
                    Connection: close\r\n\r\nabc";
    let mut client = TcpStream::connect(gateway.address()).expect("the gateway listens");
    client.write_all(request).expect("it reads");
    let mut reply = Vec::new();
    client.read_to_end(&mut reply).expect("it answers");
    gateway.wait_for_message(&format!(
        "measured {} in, {} out, 9 of body, connection true",
        request.len(),
        reply.len()
    ));
}

#[test]
fn scripts_that_sleep_hold_up_nobody() {
    let gateway = gateway();
    let sleeping: Vec<_> = (0..100)
        .map(|_| {
            let mut client = gateway.client().with_deadline(PATIENCE);
            client.send(b"GET /sleeps HTTP/1.1\r\nHost: a.test\r\n\r\n");
            client
        })
        .collect();
    let mut for_long = gateway.client();
    for_long.send(b"GET /sleeps-long HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(get(&gateway, "a.test", "/hello.txt").status, 200);
    // One after the other they would take longer than each is waited for.
    for mut client in sleeping {
        assert_eq!(reply(client.read_reply(Body::Framed)).status, 404);
    }
    drop(for_long);
    gateway.wait_for_message("logged /sleeps-long");
}

#[test]
fn a_request_inside_ends_with_the_client_of_the_one_outside() {
    let gateway = gateway();
    let mut leaves = gateway.client();
    leaves.send(b"GET /asks-inside HTTP/1.1\r\nHost: a.test\r\n\r\n");
    gateway.wait_for_message("inside waits");
    drop(leaves);
    gateway.wait_for_message("logged /asks-inside");
}

#[test]
fn every_request_is_logged_once_whatever_became_of_it() {
    let gateway = gateway();
    for path in ["/hello.txt", "/forbidden", "/denied", "/raises", "/missing"] {
        get(&gateway, "a.test", path);
    }
    assert_eq!(get(&gateway, "unknown.test", "/nobody").status, 421);
    let closed = gateway.ask(b"GET /closes HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(closed, Outcome::Eof);
    let mut leaves = gateway.client();
    leaves.send(b"GET /sleeps-long HTTP/1.1\r\nHost: a.test\r\n\r\n");
    leaves.finish_sending();
    drop(leaves);
    let paths = [
        "/hello.txt",
        "/forbidden",
        "/denied",
        "/raises",
        "/missing",
        "/nobody",
        "/closes",
        "/sleeps-long",
    ];
    for path in paths {
        gateway.wait_for_message(&format!("logged {path}"));
    }
    let counted = |path| gateway.stderr().matches(&format!("logged {path}")).count();
    for path in paths {
        assert_eq!(counted(path), 1, "{path}");
    }
    let records = eventually(PATIENCE, "an access record of each", || {
        let records = gateway.stdout();
        let has = |path| records.contains(&format!("\"target\":\"{path}\""));
        paths.into_iter().all(has).then_some(records)
    });
    for path in paths {
        let target = format!("\"target\":\"{path}\"");
        assert_eq!(records.matches(&target).count(), 1, "{path}: {records}");
    }
    assert!(
        records.contains("\"reason\":\"script_raised\""),
        "{records}"
    );
    assert!(records.contains("\"status\":444"), "{records}");
}

#[test]
fn a_log_script_that_waits_holds_up_neither_record_nor_connection() {
    let gateway = gateway();
    let mut client = gateway.client();
    for _ in 0..2 {
        client.send(b"GET /logs-slowly HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert_eq!(reply(client.read_reply(Body::Framed)).body, b"at once");
    }
    eventually(PATIENCE, "two records", || {
        (gateway
            .stdout()
            .matches("\"target\":\"/logs-slowly\"")
            .count()
            == 2)
            .then_some(())
    });
}
