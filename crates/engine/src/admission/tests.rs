//! Who comes in, level by level.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use limits::{Change, Concurrent};

use crate::fixture::{Fixture, block_on, exchange, generation_with_files, peer, reply};
use crate::pipeline;

const SITE: &str = r#"
[log]
access = "-"
[[sites]]
hosts = ["a"]
{site}
  [[sites.rules]]
  match = { path = "/in/*" }
  env = { SOME = "thing" }
  {rule}
  [[sites.rules]]
  handler = { respond = { status = 200, body = "in" } }
"#;

fn configuration(site: &str, rule: &str) -> String {
    SITE.replace("{site}", site).replace("{rule}", rule)
}

fn status(fixture: &Fixture, from: &str, path: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    fixture.ask_from(peer(from), &request).reply.status()
}

#[test]
fn deny_wins_and_every_level_must_let_in() {
    let (inside, outside, v6) = ("10.0.0.1:1", "192.0.2.1:1", "[2001:db8::1]:1");
    let ten = r#"allow = ["10.0.0.0/8"]"#;
    for (site, rule, from, path, expected) in [
        ("", "", outside, "/in/", 200),
        (ten, "", inside, "/", 200),
        (ten, "", outside, "/", 403),
        (ten, r#"allow = ["192.0.2.0/24"]"#, outside, "/in/", 403),
        (ten, r#"allow = ["10.0.0.1"]"#, inside, "/in/", 200),
        (ten, r#"allow = ["10.0.0.2"]"#, inside, "/in/", 403),
        (ten, r#"allow = ["10.0.0.2"]"#, inside, "/", 200),
        (
            "allow = [\"0.0.0.0/0\"]\ndeny = [\"192.0.2.1\"]",
            "",
            outside,
            "/",
            403,
        ),
        (
            "deny = [\"192.0.2.1\"]",
            "allow = [\"192.0.2.1\"]",
            outside,
            "/in/",
            403,
        ),
        ("", "deny = [\"2001:db8::/32\"]", v6, "/in/", 403),
        ("", "deny = [\"2001:db8::/32\"]", v6, "/", 200),
        ("deny = [\"0.0.0.0/0\"]", "", v6, "/", 200),
        // An IPv4 client on an IPv6 socket is an IPv4 client.
        (ten, "", "[::ffff:10.0.0.1]:1", "/", 200),
    ] {
        let fixture = Fixture::new(&configuration(site, rule));
        assert_eq!(
            status(&fixture, from, path),
            expected,
            "{site} {rule} {from} {path}"
        );
    }
}

/// A site that asks everybody, with another file inside `/in/`.
fn fixture(caps: &str) -> Fixture {
    let outer = r#"auth = { realm = "Staff only", file = "{dir}/outer" }"#;
    let inner = r#"auth = { realm = "Inner", file = "{dir}/inner" }"#;
    let files = [
        ("outer", "u:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"),
        (
            "inner",
            "v:$2y$04$kPr2tBuYEq3nTDBf8cWoxeqXq.WbFLgtfMtEc4T0SJru57lwjwrka\n",
        ),
    ];
    let text = format!("{caps}\n{}", configuration(outer, inner));
    Fixture::of(generation_with_files(&text, &files))
}

fn request(path: &str, pair: &str) -> String {
    let pair = STANDARD.encode(pair);
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {pair}\r\n\r\n")
}

#[test]
fn the_innermost_auth_asks() {
    let fixture = fixture("");
    for (path, pair, expected) in [
        ("/", "u:secret", 200),
        ("/", "u:wrong", 401),
        ("/", "v:secret", 401),
        ("/", "nobody:secret", 401),
        ("/in/", "v:secret", 200),
        ("/in/", "v:secret ", 401),
        ("/in/", "u:secret", 401),
    ] {
        let ended = fixture.ask(&request(path, pair));
        assert_eq!(ended.reply.status(), expected, "{path} {pair}");
        assert_eq!(ended.record.user, pair.split(':').next().unwrap());
    }
    let two = request("/", "u:secret").replace("\r\n\r\n", "\r\nAuthorization: Basic YTpi\r\n\r\n");
    assert_eq!(fixture.ask(&two).reply.status(), 401);
}

#[test]
fn who_is_in_no_group_that_is_let_in_is_asked_again() {
    let sha = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
    let users = format!("u:{sha}\nv:{sha}\nw:{sha}\n");
    let groups = "# who does what\nstaff: u nobody\n\nboard: w\nstaff:v\nothers: w\n";
    let files = [("users", &*users), ("groups", groups)];
    let file = r#"file = "{dir}/users", group_file = "{dir}/groups""#;
    let site = format!("auth = {{ {file}, require = [\"staff\", \"board\"] }}");
    let rule = format!("auth = {{ {file}, require = [\"staff\"] }}");
    let fixture = Fixture::of(generation_with_files(&configuration(&site, &rule), &files));
    for (path, pair, expected) in [
        ("/", "u:secret", ""),
        ("/", "v:secret", ""),
        ("/", "w:secret", ""),
        ("/in/", "u:secret", ""),
        ("/in/", "w:secret", "auth_not_in_group"),
        ("/in/", "w:wrong", "auth_wrong"),
        ("/in/", "nobody:secret", "auth_wrong"),
    ] {
        let ended = fixture.ask(&request(path, pair));
        let (status, fields, _) = reply(&ended);
        assert_eq!(ended.record.reason, expected, "{path} {pair}");
        assert_eq!(status, if expected.is_empty() { 200 } else { 401 });
        let is_asked = fields.iter().any(|it| it.starts_with("WWW-Authenticate: "));
        assert_eq!(is_asked, status == 401, "{path} {pair}");
    }
}

#[test]
fn who_is_asked_learns_the_realm_and_nothing_else() {
    let fixture = fixture("");
    let ended = fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (status, fields, body) = reply(&ended);
    assert_eq!((status, ended.record.reason), (401, "auth_missing"));
    let asked = r#"WWW-Authenticate: Basic realm="Staff only", charset="UTF-8""#;
    assert!(fields.iter().any(|field| field == asked), "{fields:?}");
    assert!(!body.contains("auth_missing"));
}

#[test]
fn a_denial_says_which_rule_it_is_of() {
    let deny = r#"deny = ["192.0.2.1"]"#;
    let named = "name = \"inner\"\nallow = [\"10.0.0.1\"]";
    let auth = "auth = { realm = \"Staff\", file = \"{dir}/users\" }";
    for (site, rule, reason, told) in [
        ("", deny, "client_denied", "\"rule 1\""),
        ("", named, "client_not_allowed", "\"inner\""),
        (deny, named, "client_denied", "null"),
        (deny, "", "client_denied", "null"),
        ("", auth, "auth_missing", "\"rule 1\""),
        (auth, "", "auth_missing", "null"),
    ] {
        let text = configuration(site, rule).replace("[log]", "[log]\nformat = \"json\"");
        let fixture = Fixture::of(generation_with_files(
            &text,
            &[("users", "u:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n")],
        ));
        let ended = fixture.ask_from(peer("192.0.2.1:1"), "GET /in/ HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(ended.record.reason, reason, "{site} {rule}");
        let record = fixture.records();
        assert!(
            record.contains(&format!("\"rule\":{told},")),
            "{told}: {record}"
        );
    }
}

/// Lets so many passwords be compared at once, and so many wait.
fn turns(fixture: &Fixture, concurrent: u32, queue: u32) {
    let generation = fixture.shared.generation().expect("a generation");
    let limits = &generation.limits;
    let mut known = limits.definitions().iter();
    let at = known.position(|it| it.name == "caps.auth_waiting");
    let id = limits.id(at.expect("a limit")).expect("in force");
    let limiter = &fixture.shared.limits;
    let now = limiter.time(Instant::now());
    let concurrent = Change::Concurrent(Some(Concurrent::Fixed(concurrent)));
    for change in [concurrent, Change::Queue(queue)] {
        limiter.ledger.change(now, id, &change);
    }
}

#[test]
fn a_good_answer_is_remembered_and_a_bad_one_is_not() {
    let fixture = fixture("");
    let ask = |pair| fixture.ask(&request("/in/", pair)).reply.status();
    assert_eq!((ask("v:wrong"), ask("v:secret")), (401, 200));
    // With nobody to compare, only what is known passes.
    turns(&fixture, 0, 0);
    assert_eq!((ask("v:secret"), ask("v:wrong")), (200, 503));
}

#[test]
fn more_checks_than_may_wait_are_told_to_come_again() {
    let fixture = fixture("[caps]\nauth_waiting = 1");
    turns(&fixture, 0, 1);
    block_on(async {
        let mut first = exchange(peer("192.0.2.1:1"), &request("/", "u:secret"));
        let mut second = exchange(peer("192.0.2.1:2"), &request("/", "u:secret"));
        let serving = pipeline::serve(&fixture.worker, &mut first);
        let refused = async {
            pipeline::serve(&fixture.worker, &mut second).await.unwrap();
            turns(&fixture, 1, 1);
        };
        tokio::join!(serving, refused).0.unwrap();
        let (status, fields, _) = reply(&second);
        assert_eq!((first.reply.status(), status), (200, 503));
        assert_eq!(second.record.reason, "limit_queue_full");
        let told = fields.iter().any(|it| it.starts_with("Retry-After: "));
        assert!(told, "{fields:?}");
    });
}
