//! Scripts in shadow end to end: what they would have done is told, and no client sees any of it.

use testkit::client::{Body, reply};
use testkit::{Gateway, PATIENCE, Reply, eventually};

const CONFIG: &str = r#"
workers = 1
[control]
socket = "{dir}/control"
[log]
access = "{dir}/access.log"
format = "json"
[scripts]
cpu = "1s"
[[sites]]
hosts = ["app.test"]
root = "{dir}/www"
scripts = { rewrite = { file = "{dir}/move.rb", mode = "{mode}" }, access = { file = "{dir}/refuse.rb", mode = "{mode}" }, header_filter = { file = "{dir}/mark.rb", mode = "{mode}" }, body_filter = { file = "{dir}/fill.rb", mode = "{mode}" } }
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "prometheus" }
"#;

const SCRIPTS: [(&str, &str); 4] = [
    (
        "move.rb",
        "r = Nginx::Request.new\nr.uri = '/other.txt' if r.uri == '/moved.txt'",
    ),
    (
        "refuse.rb",
        "Nginx.return 403 if Nginx::Request.new.headers_in['X-Bad']\nsleep 0.01",
    ),
    (
        "mark.rb",
        "Nginx::Request.new.headers_out['X-Marked'] = 'yes'",
    ),
    ("fill.rb", "f = Nginx::Filter.new\nf.body = f.body.upcase"),
];

/// A gateway whose scripts are in this mode.
fn gateway(mode: &str) -> Gateway {
    start(&CONFIG.replace("{mode}", mode))
}

fn start(config: &str) -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config);
    let directory = builder.directory();
    std::fs::create_dir(directory.path().join("www")).unwrap();
    for name in ["moved.txt", "other.txt"] {
        directory.write(&format!("www/{name}"), format!("this is {name}"));
    }
    directory.write("www/long.txt", "this is long\n".repeat(300));
    for (name, text) in SCRIPTS {
        directory.write(name, text);
    }
    builder.start()
}

fn ask(gateway: &Gateway, method: &str, path: &str, fields: &str) -> Reply {
    let mut client = gateway.client().with_deadline(PATIENCE);
    let head = format!("{method} {path} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n");
    client.send(head.as_bytes());
    let body = match method {
        "HEAD" => Body::Never,
        _ => Body::Framed,
    };
    reply(client.read_reply(body))
}

#[test]
fn what_scripts_in_shadow_would_do_is_told_and_no_client_sees_it() {
    let gateway = gateway("shadow");
    let passed = ask(&gateway, "GET", "/moved.txt", "X-Bad: 1\r\n");
    assert_eq!(
        (passed.status, passed.text()),
        (200, "this is moved.txt".to_owned())
    );
    assert_eq!(passed.head.field("X-Marked"), None);
    let id = passed.head.field("X-Request-Id").unwrap();
    let log = gateway.directory().path().join("access.log");
    let record = eventually(PATIENCE, "the record", || {
        let records = std::fs::read_to_string(&log).unwrap_or_default();
        let record = records.lines().find(|line| line.contains(id));
        record.map(str::to_owned)
    });
    for part in [
        r#""status":200"#,
        r#""reason":null"#,
        r#""shadow_reason":"script""#,
        r#"/refuse.rb","shadow_said":"answered 403""#,
    ] {
        assert!(record.contains(part), "{part}: {record}");
    }
    let why = crate::fixtures::limited::ask(&gateway, &format!("why {id}"));
    for said in [
        "changed: path",
        "answered 403",
        "changed: reply fields",
        "changed: body",
    ] {
        let told = format!("passed: would have been {said}, but the script is in shadow");
        assert!(why.contains(&told), "{said}: {why}");
    }
    for said in [
        "refuse.rb in access: 1 would be answered 403 (shadow)",
        "move.rb in rewrite: 1 would be changed: path (shadow)",
    ] {
        gateway.wait_for_message(said);
    }
    let metrics = ask(&gateway, "GET", "/metrics", "");
    let metrics = metrics.text();
    let counted = metrics.lines().any(|line| {
        line.starts_with("nagaya_script_shadow_answered_total{")
            && line.contains("/refuse.rb\",phase=\"access\"} 1")
    });
    assert!(counted, "{metrics}");
}

#[test]
fn parts_heads_and_codings_are_those_that_were_asked_for() {
    let scripts = CONFIG.lines().find(|line| line.starts_with("scripts = "));
    let (tried, plain) = (
        gateway("shadow"),
        start(&CONFIG.replace(scripts.unwrap(), "")),
    );
    for (method, fields) in [
        ("GET", ""),
        ("HEAD", ""),
        ("GET", "Range: bytes=5-6\r\n"),
        ("GET", "Accept-Encoding: gzip\r\n"),
        ("GET", "Accept-Encoding: gzip\r\nRange: bytes=0-3\r\n"),
    ] {
        let of = |gateway: &Gateway| {
            let reply = ask(gateway, method, "/long.txt", fields);
            let field = |name: &str| reply.head.field(name).map(str::to_owned);
            let of_head = ["Content-Encoding", "Content-Range", "Vary"].map(field);
            let is_weak = field("ETag").is_some_and(|tag| tag.starts_with("W/"));
            // A body that was kept back is compressed afterwards: to other bytes of the same text.
            let is_plain = of_head[0].is_none();
            let body = || (field("Content-Length"), is_weak, reply.body.clone());
            (reply.status, of_head.clone(), is_plain.then(body))
        };
        assert_eq!(of(&tried), of(&plain), "{method} {fields}");
    }
}

#[test]
fn put_in_force_by_a_reload_they_have_their_way() {
    let mut gateway = gateway("shadow");
    assert_eq!(
        ask(&gateway, "GET", "/moved.txt", "X-Bad: 1\r\n").status,
        200
    );
    gateway.reload(&CONFIG.replace("{mode}", "enforce"));
    eventually(PATIENCE, "the new generation", || {
        let refused = ask(&gateway, "GET", "/moved.txt", "X-Bad: 1\r\n").status;
        (refused == 403).then_some(())
    });
    let moved = ask(&gateway, "GET", "/moved.txt", "");
    assert_eq!(
        (moved.status, moved.text()),
        (200, "THIS IS OTHER.TXT".to_owned())
    );
    assert_eq!(moved.head.field("X-Marked"), Some("yes"));
}
