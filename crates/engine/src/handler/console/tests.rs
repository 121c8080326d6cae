//! Who comes to a console, and what of a recorder's answer goes on.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use testkit::PATIENCE;
use testkit::wait::eventually;

use super::*;
use crate::fixture::{self, Fixture, exchange, generation_with_files, peer};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const CONFIG: &str = r#"
recorder = { directory = "{dir}/figures" }
[[sites]]
hosts = ["shop.example"]
tenant = "shop"
root = "{dir}"
[[sites]]
hosts = ["own.example"]
tenant = "shop"
  [[sites.rules]]
  match = { path = ["/c", "/c/*"] }
  allow = ["127.0.0.1"]
  handler = { console = "$tenant" }
[[sites]]
hosts = ["panel.example", "other.example"]
  [[sites.rules]]
  match = { path = "/c/*" }
  handler = { console = { tenants = ["shop", "panel.example"], link_secret = "{dir}/key" } }
"#;

fn fixture() -> Fixture {
    Fixture::of(generation_with_files(CONFIG, &[("key", SECRET)]))
}

/// Status, fields and reason of what is answered to a request with these lines.
fn asked(
    fixture: &Fixture,
    line: &str,
    host: &str,
    lines: &str,
) -> (u16, Vec<String>, &'static str) {
    let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
    let exchange = fixture.ask_from(peer("127.0.0.1:40000"), &request);
    let (status, fields, _) = fixture::reply(&exchange);
    (status, fields, exchange.record.reason)
}

fn field<'a>(fields: &'a [String], name: &str) -> Option<&'a str> {
    let start = format!("{name}: ");
    fields.iter().find_map(|line| line.strip_prefix(&start))
}

/// A link that holds for so many seconds from now, or began before.
fn link(host: &str, tenant: &str, nonce: &str, seconds: i64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock");
    let until = now.as_secs().saturating_add_signed(seconds);
    let signed = format!("{host}\n/c/\n{tenant}\nalice\n{until}\n{nonce}");
    let tag = hmac::sign(&Key::new(HMAC_SHA256, SECRET.as_bytes()), signed.as_bytes());
    let digits: String = tag.as_ref().iter().map(|it| format!("{it:02x}")).collect();
    format!("GET /c/?user=alice&tenant={tenant}&until={until}&nonce={nonce}&sig={digits}")
}

#[test]
fn a_console_only_shows_and_says_when_no_recorder_is_heard() {
    let fixture = fixture();
    let (status, fields, _) = asked(&fixture, "POST /c/", "own.example", "Content-Length: 0\r\n");
    assert_eq!((status, field(&fields, "Allow")), (405, Some("GET, HEAD")));
    for line in ["GET /c/", "GET /c/events?page=now", "HEAD /c/site/a/visits"] {
        let (status, _, reason) = asked(&fixture, line, "own.example", "");
        assert_eq!((status, reason), (503, "console_unheard"), "{line}");
    }
    let (status, fields, _) = asked(&fixture, "GET /c", "own.example", "");
    assert_eq!((status, field(&fields, "Location")), (301, Some("/c/")));
}

#[test]
fn a_signed_link_lets_in_once_and_a_cookie_from_then_on() {
    let fixture = fixture();
    let host = "panel.example";
    let reason = |line: &str, host: &str, lines: &str| asked(&fixture, line, host, lines).2;
    assert_eq!(reason("GET /c/", host, ""), "console_no_session");
    let line = link(host, "shop", "n1", 60);
    assert_eq!(reason(&line, "other.example", ""), "console_link_wrong");
    let tampered = line.replace("tenant=shop", "tenant=panel.example");
    assert_eq!(reason(&tampered, host, ""), "console_link_wrong");
    // In its first second none holds: it may be from before.
    let (line, fields) = eventually(PATIENCE, "a link holds", || {
        let line = link(host, "shop", "n1", 60);
        let (status, fields, _) = asked(&fixture, &line, host, "");
        (status == 200).then_some((line, fields))
    });
    let cookie = field(&fields, "Set-Cookie").expect("a cookie");
    for part in ["Path=/c/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "it came without TLS: {cookie}");
    assert_eq!(reason(&line, host, ""), "console_link_used");
    for (nonce, seconds) in [("n2", -1), ("n3", 62)] {
        let line = link(host, "shop", nonce, seconds);
        assert_eq!(reason(&line, host, ""), "console_link_expired");
    }
    let stranger = link(host, "nobody", "n4", 60);
    assert_eq!(reason(&stranger, host, ""), "console_other_tenant");
    let value = cookie.split(';').next().expect("a value");
    let sent = |value: &str| format!("Cookie: a=b; {value}\r\n");
    assert_eq!(reason("GET /c/now", host, &sent(value)), "console_unheard");
    assert_eq!(
        reason("GET /c/now", "other.example", &sent(value)),
        "console_no_session"
    );
    let forged = value.replacen('.', "A.", 1);
    assert_eq!(
        reason("GET /c/now", host, &sent(&forged)),
        "console_no_session"
    );
}

#[test]
fn whose_figures_are_seen_is_said_by_the_rule_and_the_guest() {
    let fixture = fixture();
    let seen = |host: &str, tenant: Option<&str>| seen(&fixture, host, tenant);
    let tenants = |names: &[(&str, &[&str])]| {
        let tenants = names.iter().map(|(tenant, sites)| TenantSites {
            tenant: (*tenant).to_owned(),
            sites: sites.iter().map(|it| (*it).to_owned()).collect(),
        });
        Ok(ConsoleScope::Tenants(tenants.collect()))
    };
    let shop = ("shop", &["shop.example", "own.example"][..]);
    assert_eq!(seen("own.example", None), tenants(&[shop]));
    let all = [shop, ("panel.example", &["panel.example"])];
    assert_eq!(seen("panel.example", None), tenants(&all));
    assert_eq!(seen("panel.example", Some("shop")), tenants(&[shop]));
    assert_eq!(seen("panel.example", Some("")), tenants(&all));
    assert_eq!(
        seen("panel.example", Some("x")),
        Err("console_other_tenant")
    );
}

const ROWS: &str = r#"
recorder = { directory = "{dir}/figures" }
[directories.d]
source = "sqlite:{dir}/rows.db"
query = "SELECT tenant, plan FROM t WHERE host = $host"
[plans.small]
console = {small}
[[sites]]
hosts = { directory = "d" }
tenant = "$row.tenant"
plan = "$row.plan"
rules = [{ handler = { respond = { body = "x" } } }]
[[sites]]
hosts = ["panel.example"]
tenant = "panel"
  [[sites.rules]]
  match = { path = "/c/*" }
  handler = { console = { link_secret = "{dir}/key" } }
"#;

#[test]
fn a_tenant_of_rows_that_nobody_knows_has_no_eyes_where_a_plan_gives_none() {
    for (small, expected) in [("true", None), ("false", Some("console_not_in_plan"))] {
        let text = ROWS.replace("{small}", small);
        let fixture = Fixture::of(generation_with_files(&text, &[("key", SECRET)]));
        let stranger = seen(&fixture, "panel.example", Some("stranger"));
        assert_eq!(stranger.err(), expected);
        let written = seen(&fixture, "panel.example", Some("panel"));
        assert_eq!(written.err(), None);
    }
}

/// Whose figures are seen at a host, by a guest of a tenant.
fn seen(
    fixture: &Fixture,
    host: &str,
    tenant: Option<&str>,
) -> std::result::Result<ConsoleScope, &'static str> {
    let serving = fixture.worker.serving();
    let request = format!("GET /c/?tenant=other HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut exchange = exchange(peer("127.0.0.1:40000"), &request);
    let arrived = fixture.arrived(&serving);
    let generation = &arrived.serving.generation;
    let site = generation.destination_of(host).expect("a site");
    exchange.route.site_index = Some(site.site);
    let routed = arrived.routed(&exchange.route).expect("a site");
    let rule = routed.site.rules.first().expect("a rule");
    let Some(config::model::Handler::Console(console)) = &rule.handler else {
        panic!("{rule:?}");
    };
    let guest = tenant.map(|tenant| Guest {
        user: "alice".to_owned(),
        tenant: Some(tenant.to_owned()).filter(|it| !it.is_empty()),
    });
    scope(routed, console, guest.as_ref()).map_err(|error| error.reason)
}

#[test]
fn of_an_answer_only_what_is_known_goes_on() {
    let answer = |status, content_type: &str| ConsoleAnswer {
        status,
        content_type: content_type.to_owned(),
        body: "<p>".to_owned(),
        fields: [
            ("Content-Security-Policy", "default-src 'none'"),
            ("Content-Disposition", "attachment; filename=\"a.csv\""),
            ("content-disposition", "inline"),
            ("Set-Cookie", "a=b"),
            ("Location", "https://elsewhere.example/"),
            ("Allow", "GET\r\nSet-Cookie: a=b"),
            ("Strict-Transport-Security", "max-age=0"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        ..ConsoleAnswer::default()
    };
    let mut passed = exchange(peer("127.0.0.1:40000"), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let body = pass_on(&mut passed, answer(200, "text/html; charset=utf-8"));
    assert_eq!(body.ok().as_deref(), Some("<p>"));
    let names = passed.outgoing.fields.iter();
    let names: Vec<_> = names
        .map(|it| String::from_utf8_lossy(it.name).into_owned())
        .collect();
    assert_eq!(
        names,
        [
            "Content-Type",
            "Content-Security-Policy",
            "X-Content-Type-Options",
            "Referrer-Policy",
            "Cross-Origin-Resource-Policy",
            "Cache-Control",
            "Content-Security-Policy",
            "Content-Disposition",
        ]
    );
    for (status, content_type) in [
        (302, "text/html; charset=utf-8"),
        (101, "text/plain; charset=utf-8"),
        (200, "text/html"),
        (200, "application/javascript"),
        (200, "text/html; charset=utf-8\r\nSet-Cookie: a=b"),
    ] {
        let mut refused = exchange(peer("127.0.0.1:40000"), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let error = pass_on(&mut refused, answer(status, content_type)).expect_err(content_type);
        assert_eq!(error.reason, "console_answer");
        assert!(refused.outgoing.fields.is_empty());
    }
}
