//! Scripts that name the upstream of a request: where it goes, and where it does not.

use std::net::SocketAddr;

use testkit::client::reply;
use testkit::gateway::Builder;
use testkit::{Gateway, PATIENCE, ScriptedUpstream, eventually};

const CONFIG: &str = r#"
workers = 1
[log]
access = "{dir}/access.log"
format = "json"
[scripts]
cpu = "1s"
{scripts}
[upstreams.app]
servers = ["{app}"]
limits = [{ concurrent = 1, queue = 10 }]
[[sites]]
hosts = ["app.test"]
  [[sites.rules]]
  match = { path = "/hello" }
  handler = { respond = { body = "hello" } }
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "json" }
  [[sites.rules]]
  match = { path = "/fixed/*" }
  handler = { proxy = "app" }
  [[sites.rules]]
  handler = { proxy = { script = "{dir}/route.rb", allow = [{allow}] } }
"#;

/// A gateway whose `set` script is this, before the upstream `app`.
fn builder(script: &str, app: SocketAddr) -> Builder {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("app", app)
        .with("allow", "\"127.0.0.0/8\"");
    builder.directory().write("route.rb", script);
    builder
}

fn gateway(script: &str, app: SocketAddr) -> Gateway {
    builder(script, app).with("scripts", "").start()
}

fn get(path: &str, to: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: app.test\r\nX-To: {to}\r\n\r\n").into_bytes()
}

/// Says whatever the client wants.
const ANY: &str = "Nginx::Request.new.headers_in['X-To']";

#[test]
fn a_request_goes_where_its_script_says_and_connections_are_kept() {
    let (app, other) = (
        ScriptedUpstream::fixed("app"),
        ScriptedUpstream::fixed("other"),
    );
    let gateway = gateway(ANY, app.address());
    let mut client = gateway.client();
    let other_at = other.address().to_string();
    for _ in 0..3 {
        for (to, body) in [("app", "app"), (&other_at, "other")] {
            let reply = reply(client.ask(&get("/x?y=1", to)));
            assert_eq!((reply.status, reply.text().as_str()), (200, body), "{to}");
        }
    }
    assert_eq!((app.connections(), other.connections()), (1, 1));
    let seen = other.next_seen();
    assert_eq!(seen.head.line, "GET /x?y=1 HTTP/1.1");
    assert_eq!(seen.head.field("Host"), Some("app.test"));
    let by_name = format!("localhost:{}", other.address().port());
    let named = reply(client.ask(&get("/", &by_name)));
    assert_eq!((named.status, named.text().as_str()), (200, "other"));
}

/// Waits until the error log says this.
fn told(gateway: &Gateway, why: &str) {
    eventually(PATIENCE, why, || {
        gateway.stderr().contains(why).then_some(())
    });
}

#[test]
fn what_may_not_be_chosen_is_answered_503_and_told() {
    let app = ScriptedUpstream::fixed("app");
    let gateway = gateway(ANY, app.address());
    let own = gateway.address();
    let mut client = gateway.client();
    for (to, why) in [
        ("", "ended with an empty text"),
        ("10.0.0.1:80", "10.0.0.1:80 is not in `allow`"),
        (&own.to_string(), "this gateway listens on"),
        (&format!("0.0.0.0:{}", own.port()), "is not in `allow`"),
        (
            &format!("[::ffff:127.0.0.1]:{}", own.port()),
            "[::ffff:127.0.0.1]:",
        ),
        (&format!("localhost:{}", own.port()), "localhost:"),
        (
            "unix:/run/app.sock",
            "Unix sockets are for the configuration",
        ),
        ("a b", "neither an upstream"),
    ] {
        let reply = reply(client.ask(&get("/", to)));
        assert_eq!(reply.status, 503, "{to}: {}", gateway.stderr());
        told(&gateway, why);
    }
    assert!(app.take_seen().is_empty());
    let refused = || gateway.stderr().matches("reason=no_upstream").count();
    eventually(PATIENCE, "eight refusals in the log", || {
        (refused() >= 8).then_some(())
    });
    assert_eq!(refused(), 8);
}

#[test]
fn every_other_end_of_a_set_script_is_answered_as_it_says() {
    let app = ScriptedUpstream::fixed("app");
    for (script, status, why) in [
        ("nil", 503, "ended with nil"),
        ("17", 503, "ended with a number"),
        ("raise 'no way'", 503, "no way (RuntimeError)"),
        ("x = (", 0, ""),
        ("Nginx.return 503; 'app'", 503, ""),
        ("Nginx.return Nginx::DECLINED; 'app'", 200, ""),
        (":app", 200, ""),
        (
            "Nginx.return -> do\n return Nginx::DECLINED\nend.call\n'app'",
            200,
            "",
        ),
        ("Nginx.redirect 'http://elsewhere.test/'", 302, ""),
        ("Nginx.redirect '/hello'", 200, ""),
        ("Nginx.rputs 'said'", 200, ""),
    ] {
        // A script that is no Ruby refuses the start.
        if status == 0 {
            continue;
        }
        let gateway = gateway(script, app.address());
        let reply = reply(gateway.ask(&get("/", "")));
        assert_eq!(reply.status, status, "{script}: {}", gateway.stderr());
        told(&gateway, why);
        let body = reply.text();
        match script {
            "Nginx.redirect '/hello'" => assert_eq!(body, "hello"),
            "Nginx.rputs 'said'" => assert_eq!(body, "said"),
            _ if status == 200 => assert_eq!(body, "app"),
            _ => {}
        }
    }
}

/// Names an upstream in passing, before the handler of the rule that the path chooses.
const IN_PASSING: &str = r#"access = { code = """
to = Nginx::Request.new.headers_in['X-Pass']
Apache::Request.new.reverse_proxy(to) if to
""" }"#;

#[test]
fn an_upstream_named_in_passing_is_judged_by_the_handler() {
    let (app, other) = (
        ScriptedUpstream::fixed("app"),
        ScriptedUpstream::fixed("other"),
    );
    let gateway = builder("'app'", app.address())
        .with("scripts", IN_PASSING)
        .start();
    let ask = |path: &str, to: &str| {
        let to = format!("GET {path} HTTP/1.1\r\nHost: app.test\r\nX-Pass: {to}\r\n\r\n");
        let reply = reply(gateway.ask(to.as_bytes()));
        (reply.status, reply.text())
    };
    let at = format!("http://{}/", other.address());
    assert_eq!(
        ask("/", &at),
        (200, "other".to_owned()),
        "{}",
        gateway.stderr()
    );
    assert_eq!(ask("/", "10.0.0.1:80").0, 503);
    // That handler allows no address, and the names of the configuration.
    assert_eq!(ask("/fixed/a", &at).0, 503);
    assert_eq!(ask("/fixed/a", "app"), (200, "app".to_owned()));
    assert_eq!(ask("/hello", "app").0, 503);
    told(&gateway, "the handler `respond` forwards to none");
}

#[test]
fn a_handler_without_a_script_allows_what_other_phases_name() {
    let (app, other) = (
        ScriptedUpstream::fixed("app"),
        ScriptedUpstream::fixed("other"),
    );
    let script = r#"access = { code = """
to = Nginx::Request.new.headers_in['X-To']
Nginx::Upstream.new('app').server = to if to
""" }"#;
    let config = CONFIG.replace(
        r#"script = "{dir}/route.rb", allow"#,
        r#"upstream = "app", allow"#,
    );
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config)
        .with("app", app.address())
        .with("allow", format!("\"{}\"", other.address()))
        .with("scripts", script)
        .start();
    let ask = |path: &str, to: &str| {
        let reply = reply(gateway.ask(&get(path, to)));
        (reply.status, reply.text())
    };
    let at = other.address().to_string();
    assert_eq!(
        ask("/", &at),
        (200, "other".to_owned()),
        "{}",
        gateway.stderr()
    );
    assert_eq!(ask("/", "app"), (200, "app".to_owned()));
    assert_eq!(ask("/", "127.0.0.9:80").0, 503);
    told(&gateway, "127.0.0.9:80 is not in `allow`");
    // That handler allows no address.
    assert_eq!(ask("/fixed/a", &at).0, 503);
}

#[test]
fn figures_tell_of_all_named_servers_together() {
    let (app, other) = (
        ScriptedUpstream::fixed("app"),
        ScriptedUpstream::fixed("other"),
    );
    let gateway = gateway(ANY, app.address());
    for port in 1..20 {
        let unreachable = format!("127.0.0.2:{port}");
        let reply = reply(gateway.ask(&get("/", &unreachable)));
        assert_eq!(reply.status, 502, "{}", gateway.stderr());
    }
    let named = reply(gateway.ask(&get("/", &other.address().to_string())));
    assert_eq!(named.status, 200);
    let figures = reply(gateway.ask(&get("/metrics", ""))).text();
    assert_eq!(
        figures.matches("(named by scripts)").count(),
        1,
        "{figures}"
    );
    assert!(!figures.contains("127.0.0.2"), "{figures}");
    let log = || std::fs::read_to_string(gateway.directory().path().join("access.log"));
    let upstream = format!("\"upstream\":\"{}\"", other.address());
    eventually(PATIENCE, "the record", || {
        log().ok()?.contains(&upstream).then_some(())
    });
}
