//! Scripts in shadow, on exchanges in memory: what is told, and that nothing else is other.

use crate::exchange::Exchange;
use crate::figures;
use crate::fixture::{Fixture, reply};
use crate::permits::questions;
use crate::scripts::tests::{ask, config};

/// A script of a phase in shadow.
fn tried(phase: &str, code: &str) -> String {
    config(&format!("{phase} = {}", script(code)))
}

fn script(code: &str) -> String {
    format!("{{ code = {code:?}, mode = \"shadow\" }}")
}

/// Status, fields and body, but for the request's id and what time makes of it.
fn seen(ended: &Exchange) -> (u16, Vec<String>, String) {
    let (status, mut fields, body) = reply(ended);
    fields.retain(|field| {
        !["X-Request-Id: ", "Date: "]
            .iter()
            .any(|it| field.starts_with(it))
    });
    (status, fields, body)
}

/// Asks with a script in shadow, and expects it to be told of and nothing else to be other.
#[track_caller]
fn check(phase: &str, code: &str, expected: Option<&str>) {
    let fixture = Fixture::new(&tried(phase, code));
    let ended = ask(&fixture);
    let plain = ask(&Fixture::new(&config("")));
    assert_eq!(seen(&ended), seen(&plain), "{phase}: {code}");
    let records = fixture.records();
    assert!(records.contains("\"reason\":null"), "{records}");
    match expected {
        None => assert!(!records.contains("shadow"), "{phase}: {code}\n{records}"),
        Some(said) => {
            let told = format!("\"shadow_said\":\"{said}\"");
            let reason = "\"shadow_reason\":\"script\",\"shadow_script\":";
            let is_told = records.contains(&told) && records.contains(reason);
            assert!(is_told, "{phase}: {code}\n{records}");
        }
    }
}

#[test]
fn what_a_script_says_before_the_handler_is_told_and_not_done() {
    for phase in ["rewrite", "access"] {
        for (code, said) in [
            ("1", None),
            ("Nginx.return(Nginx::OK)", None),
            ("Nginx.return(Nginx::DECLINED)", None),
            ("Nginx.return(503)", Some("answered 503")),
            ("Nginx.rputs('said')", Some("answered 200")),
            (
                "Nginx.rputs('said'); Nginx.return(403)",
                Some("answered 403"),
            ),
            ("sleep 0.001; Nginx.return(403)", Some("answered 403")),
            ("Nginx.return(444)", Some("closed without a reply")),
            ("Nginx.return(700)", Some("answered 500: script_status")),
            ("raise 'no'", Some("answered 500: script_raised")),
            (
                "Nginx.redirect('/elsewhere')",
                Some("sent elsewhere inside"),
            ),
            ("Nginx.redirect('https://b/', 301)", Some("answered 301")),
            (
                "Nginx::Request.new.headers_in['X-Say'] = 'bye'",
                Some("changed: request fields"),
            ),
            ("Nginx::Request.new.headers_in['X-Say'] = 'hello'", None),
            (
                "Nginx::Request.new.headers_out['X-A'] = 'b'",
                Some("changed: reply fields"),
            ),
            (
                "r = Nginx::Request.new; r.method = 'POST'; r.args = 'q=2'",
                Some("changed: method, query"),
            ),
            (
                "Apache::Request.new.reverse_proxy('127.0.0.1:9')",
                Some("changed: upstream"),
            ),
        ] {
            check(phase, code, said);
        }
    }
    let code = "Nginx::Request.new.uri = '/elsewhere'";
    check("rewrite", code, Some("changed: path"));
}

#[test]
fn what_a_filter_would_make_of_a_reply_is_told_and_not_done() {
    for phase in ["header_filter", "body_filter"] {
        for (code, said) in [
            ("1", None),
            ("Nginx.rputs('said')", None),
            (
                "Nginx::Request.new.headers_out['X-A'] = 'b'",
                Some("changed: reply fields"),
            ),
            ("Nginx.return(404)", Some("changed: status")),
            (
                "Nginx.redirect('https://b/', 302)",
                Some("changed: status, reply fields"),
            ),
            ("raise 'no'", Some("answered 500: script_raised")),
        ] {
            check(phase, code, said);
        }
    }
    let code = "Nginx::Filter.new.body = Nginx::Filter.new.body + '!'";
    check("body_filter", code, Some("changed: body"));
    check("body_filter", "Nginx::Filter.new.body", None);
}

#[test]
fn one_that_may_fail_would_have_changed_what_it_changed_before() {
    let code = "Nginx::Request.new.args = 'q=2'; Nginx.return(403); raise 'no'";
    let allowed = format!("{{ code = {code:?}, mode = \"shadow\", on_error = \"allow\" }}");
    let fixture = Fixture::new(&config(&format!("access = {allowed}")));
    let (status, _, body) = reply(&ask(&fixture));
    assert_eq!((status, body.as_str()), (200, "there q=1"));
    let records = fixture.records();
    assert!(
        records.contains("\"shadow_said\":\"changed: query\""),
        "{records}"
    );
}

#[test]
fn scripts_in_force_see_nothing_of_those_in_shadow() {
    let mark = script("Nginx::Var.new.mark = 'x'; Nginx::Request.new.args = 'q=2'");
    let marked = "Nginx.return(418) if Nginx::Var.new.mark; \
                  Nginx::Request.new.headers_out['X-Args'] = Nginx::Request.new.args";
    let count = "Cache.new(:namespace => 't').incr('marked') if Nginx::Var.new.mark";
    let read = "c = Cache.new(:namespace => 't').get('marked'); Nginx.rputs(c.to_s) if c";
    let fixture = Fixture::new(&config(&format!(
        "rewrite = {{ code = {read:?} }}, access = [{mark}, {{ code = {marked:?} }}, {}], log = {{ code = {count:?} }}",
        script(marked)
    )));
    let ended = ask(&fixture);
    let (status, fields, body) = reply(&ended);
    assert_eq!((status, body.as_str()), (200, "there q=1"));
    assert!(fields.contains(&"X-Args: q=1".to_owned()), "{fields:?}");
    let why = questions::answer(&fixture.shared, &format!("why {}", ended.request.id));
    let why = why.expect("an answer");
    let (first, second) = why.split_once("\n\n").expect("two parts");
    assert!(
        first.contains("would have been changed: query, but"),
        "{why}"
    );
    assert!(
        second.contains("would have been answered 418, but"),
        "{why}"
    );
    let records = fixture.records();
    assert!(
        records.contains("\"shadow_said\":\"answered 418\""),
        "{records}"
    );
    // The log script has seen the mark: nothing of the request can be other by it.
    assert_eq!(reply(&ask(&fixture)).2, "1");
}

#[test]
fn what_one_in_force_says_stands_beside_what_one_in_shadow_would() {
    let refuse = "Nginx.return(403)";
    let other = "Nginx.rputs('no'); Nginx.return(404)";
    let fixture = Fixture::new(&config(&format!(
        "access = [{}, {{ code = {other:?} }}]",
        script(refuse)
    )));
    let (status, _, body) = reply(&ask(&fixture));
    assert_eq!((status, body.as_str()), (404, "no"));
    let records = fixture.records();
    assert!(records.contains("\"reason\":\"script_said\""), "{records}");
    assert!(
        records.contains("\"shadow_said\":\"answered 403\""),
        "{records}"
    );
}

#[test]
fn a_permit_that_is_not_to_be_had_is_no_limit_that_refused() {
    let code = "Nginx.return(503) unless Nagaya::Limit.acquire('k', concurrent: 1) && \
                Nagaya::Limit.acquire('k', concurrent: 1)";
    let fixture = Fixture::new(&tried("access", code));
    assert_eq!(reply(&ask(&fixture)).0, 200);
    let records = fixture.records();
    assert!(
        records.contains("\"shadow_said\":\"answered 503\""),
        "{records}"
    );
    assert!(records.contains("\"limit\":null"), "{records}");
}

#[test]
fn figures_tell_what_each_script_in_shadow_would_have_done() {
    let code = "Nginx.return(403) if Nginx::Request.new.headers_in['X-Bad']; \
                Nginx::Request.new.args = 'q=2' if Nginx::Request.new.headers_in['X-Odd']";
    let fixture = Fixture::new(&tried("access", code));
    let zero = control::json(&figures::collect(&fixture.shared));
    assert!(zero.contains("\"phase\":\"access\",\"runs\":0,"), "{zero}");
    for field in [
        "",
        "X-Bad: 1\r\n",
        "X-Odd: 1\r\n",
        "X-Bad: 1\r\nX-Odd: 1\r\n",
    ] {
        let head = format!("GET /there?q=1 HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        assert_eq!(reply(&fixture.ask(&head)).2, "there q=1");
    }
    let figures = figures::collect(&fixture.shared);
    let json = control::json(&figures);
    let told = "\"phase\":\"access\",\"runs\":4,\"answered\":2,\"changed\":1}]";
    assert!(json.contains(told), "{json}");
    let prometheus = figures::prometheus(&figures);
    for (name, count) in [("runs", 4), ("answered", 2), ("changed", 1)] {
        let sample = prometheus
            .lines()
            .find(|line| line.starts_with(&format!("nagaya_script_shadow_{name}_total{{script=")))
            .expect(name);
        assert!(
            sample.ends_with(&format!("phase=\"access\"}} {count}")),
            "{sample}"
        );
    }
    let table = figures::table(&figures);
    assert!(table.contains("script in shadow"), "{table}");
}
