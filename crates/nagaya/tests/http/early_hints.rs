//! `103 Early Hints` of back ends: who gets them, what of them, and that nobody else sees a thing.

use testkit::client::{Body, reply};
use testkit::{Gateway, Reply, ScriptedUpstream, Step};

const CONFIG: &str = r#"
workers = 1
{more}
[log]
level = "warn"
[[sites]]
hosts = ["app.test"]
{site}
rules = [{ handler = { proxy = { upstream = "http://{upstream}", {keys} } } }]
"#;

const HINT: &str = "HTTP/1.1 103 Early Hints\r\nX-Secret: 1\r\nLink: </a.css>; rel=preload\r\n\
                    Set-Cookie: a=b\r\n\r\n";
const PASSED: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
const FINAL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nLink: </a.css>\r\n\r\nok";
const NAVIGATES: &str = "Sec-Fetch-Mode: navigate\r\n";

fn says(said: &[&str]) -> ScriptedUpstream {
    let bytes = said.concat().into_bytes();
    ScriptedUpstream::start(move |_| vec![Step::ReadBody, Step::Send(bytes.clone())])
}

fn gateway(upstream: &ScriptedUpstream, keys: &str, site: &str, more: &str) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address())
        .with("keys", keys)
        .with("site", site)
        .with("more", more)
        .start()
}

fn get(version: &str, fields: &str) -> Vec<u8> {
    format!("GET / HTTP/{version}\r\nHost: app.test\r\n{fields}\r\n").into_bytes()
}

fn asked(gateway: &Gateway, request: &[u8]) -> Reply {
    let answer = reply(gateway.ask(request));
    assert_eq!((answer.status, &*answer.text()), (200, "ok"));
    answer
}

#[test]
fn a_hint_is_there_before_the_reply_is() {
    // The back end answers when it has the body, and the client sends it when it has the hint.
    let upstream = ScriptedUpstream::start(|_| {
        let send = |bytes: &str| Step::Send(bytes.as_bytes().to_vec());
        vec![send(HINT), Step::ReadBody, send(FINAL)]
    });
    let gateway = gateway(&upstream, "early_hints = \"all\"", "", "");
    let mut client = gateway.client();
    for _ in 0..2 {
        client.send(b"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\n");
        client.await_bytes(PASSED.as_bytes());
        client.send(b"hi");
        let answer = reply(client.read_reply(Body::Framed));
        assert_eq!((answer.status, &*answer.interim), (200, &[103][..]));
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn hints_go_to_whom_they_are_meant_for() {
    let upstream = says(&[HINT, FINAL]);
    let other = |mode: &str| format!("Sec-Fetch-Mode: {mode}\r\n");
    let through = |field: &str| format!("{NAVIGATES}{field}\r\n");
    for (whom, version, fields, expected) in [
        ("browsers", "1.1", NAVIGATES.to_owned(), 1),
        ("browsers", "1.1", String::new(), 0),
        ("browsers", "1.1", other("cors"), 0),
        ("browsers", "1.1", through("Via: 1.1 cache"), 0),
        ("browsers", "1.1", through("X-Forwarded-For: 192.0.2.1"), 0),
        ("browsers", "1.1", through("Forwarded: for=192.0.2.1"), 0),
        ("browsers", "1.0", NAVIGATES.to_owned(), 0),
        ("all", "1.1", String::new(), 1),
        ("all", "1.1", through("Via: 1.1 cache"), 1),
        ("all", "1.0", NAVIGATES.to_owned(), 0),
        ("none", "1.1", NAVIGATES.to_owned(), 0),
    ] {
        let keys = format!("early_hints = \"{whom}\"");
        let gateway = gateway(&upstream, &keys, "", "");
        let answer = asked(&gateway, &get(version, &fields));
        assert_eq!(answer.interim.len(), expected, "{whom} {version} {fields}");
    }
    // Without a word, as for browsers; but not through a proxy that is known.
    let plain = gateway(&upstream, "", "", "");
    assert_eq!(asked(&plain, &get("1.1", NAVIGATES)).interim, [103]);
    let behind = gateway(&upstream, "", "", "trusted_proxies = [\"127.0.0.0/8\"]");
    assert!(asked(&behind, &get("1.1", NAVIGATES)).interim.is_empty());
}

#[test]
fn no_hint_says_what_the_reply_would_not() {
    let upstream = says(&[HINT, FINAL]);
    let keys = "early_hints = \"all\"";
    for site in [
        "reply_headers = { remove = [\"link\"] }",
        "reply_headers = { set = { Link = \"</b.css>\" } }",
        "scripts = { access = { code = 'Nginx::Headers_out.new[\"Link\"] = \"</b.css>\"' } }",
        "scripts = { header_filter = { code = 'Nginx::Headers_out.new[\"Link\"] = \"</b.css>\"' } }",
    ] {
        let gateway = gateway(&upstream, keys, site, "");
        let answer = asked(&gateway, &get("1.1", ""));
        assert!(answer.interim.is_empty(), "{site}: {answer:?}");
        assert_ne!(answer.head.field("link"), Some("</a.css>"), "{site}");
    }
    let process = gateway(
        &upstream,
        keys,
        "",
        "reply_headers = { remove = [\"Link\"] }",
    );
    assert!(asked(&process, &get("1.1", "")).interim.is_empty());
}

#[test]
fn hints_are_bounded_and_others_are_not_passed_on() {
    let keys = "early_hints = \"all\"";
    let long = format!(
        "HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n",
        "a".repeat(6_000)
    );
    let useless = "HTTP/1.1 103 Early Hints\r\nX-Y: z\r\n\r\n";
    let hop = "HTTP/1.1 103 Early Hints\r\nConnection: link\r\nLink: </hop>\r\n\r\n";
    for (said, expected) in [
        (vec![HINT; 16], 16),
        (vec![&*long; 4], 2),
        (vec![useless, HINT], 1),
        (vec![hop], 0),
        (vec!["HTTP/1.1 102 Processing\r\n\r\n", HINT], 1),
        (vec!["HTTP/1.1 100 Continue\r\nLink: </a.css>\r\n\r\n"], 0),
    ] {
        let upstream = says(&[said.concat().as_str(), FINAL]);
        let gateway = gateway(&upstream, keys, "", "");
        let answer = asked(&gateway, &get("1.1", ""));
        assert_eq!(answer.interim, vec![103; expected], "{}", said[0]);
    }
    let upstream = says(&[HINT; 17]);
    let gateway = gateway(&upstream, keys, "", "");
    let answer = reply(gateway.ask(&get("1.1", "")));
    assert_eq!((answer.status, answer.interim.len()), (502, 16));
}
