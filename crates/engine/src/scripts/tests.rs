//! What scripts do to a request, on exchanges in memory.

use crate::exchange::Exchange;
use crate::fixture::{Fixture, reply};

/// A site with scripts, whose rules answer `/there` by a handler and `/elsewhere`.
fn site(scripts: &str, handler: &str) -> String {
    format!(
        r#"
[log]
access = "-"
format = "json"
[scripts]
cpu = "200ms"
[[sites]]
hosts = ["a"]
scripts = {{ {scripts} }}
rules = [
  {{ match = {{ path = "/there" }}, handler = {{ {handler} }} }},
  {{ match = {{ path = "/elsewhere" }}, handler = {{ respond = {{ body = "elsewhere $query $method" }} }} }},
]
"#
    )
}

pub(super) fn config(scripts: &str) -> String {
    site(scripts, "respond = { body = \"there $query\" }")
}

fn content(code: &str) -> String {
    site("", &format!("script = {{ code = {code:?} }}"))
}

fn code(phase: &str, code: &str) -> String {
    config(&format!("{phase} = {{ code = {code:?} }}"))
}

pub(super) fn ask(fixture: &Fixture) -> Exchange {
    fixture.ask("GET /there?q=1 HTTP/1.1\r\nHost: a\r\nX-Say: hello\r\n\r\n")
}

#[track_caller]
fn check(config: &str, status: u16, body: &str) {
    let fixture = Fixture::new(config);
    let (is, _, said) = reply(&ask(&fixture));
    assert_eq!(
        (is, said.contains(body)),
        (status, true),
        "{said}\n{config}"
    );
    let records = fixture.records();
    assert_eq!(records.lines().count(), 1, "{records}");
}

#[test]
fn what_a_script_says_before_the_handler_decides() {
    for phase in ["rewrite", "access"] {
        for (text, status, body) in [
            ("1", 200, "there q=1"),
            ("Nginx.return(Nginx::OK)", 200, "there q=1"),
            ("Nginx.return(Nginx::DECLINED)", 200, "there q=1"),
            ("Apache.return(Apache::DECLINED)", 200, "there q=1"),
            ("Nginx.return(503)", 503, "Service Unavailable"),
            ("Nginx.return(200)", 200, ""),
            ("Nginx.return(204)", 204, ""),
            ("Nginx.rputs('said')", 200, "said"),
            ("Nginx.rputs('said'); Nginx.return(403)", 403, "said"),
            (
                "Nginx.return(503); Nginx.return(Nginx::OK)",
                200,
                "there q=1",
            ),
            ("Nginx.return(700)", 500, "Internal Server Error"),
            ("Nginx.return(101)", 500, "Internal Server Error"),
            ("raise 'no'", 500, "Internal Server Error"),
            ("exit", 200, "there q=1"),
        ] {
            check(&code(phase, text), status, body);
        }
    }
}

#[test]
fn a_content_script_answers() {
    for (text, status, body) in [
        ("Nginx.rputs('said')", 200, "said"),
        ("1", 200, ""),
        ("Nginx.return(200)", 200, ""),
        ("Nginx.return(404)", 404, "Not Found"),
        ("Nginx.rputs('mine'); Nginx.return(404)", 404, "mine"),
        ("raise 'no'", 500, "Internal Server Error"),
        (
            "Nginx.rputs('half'); raise 'no'",
            500,
            "Internal Server Error",
        ),
        ("while true; end", 500, "Internal Server Error"),
        // No files are there to answer instead.
        ("Nginx.return(Nginx::DECLINED)", 404, "Not Found"),
    ] {
        check(&content(text), status, body);
    }
    let (_, fields, _) = reply(&ask(&Fixture::new(&content("Nginx.rputs('said')"))));
    assert!(
        fields.contains(&"Content-Type: text/plain; charset=utf-8".to_owned()),
        "{fields:?}"
    );
}

#[test]
fn a_raise_that_is_allowed_unsays_what_was_said() {
    let text = "Nginx.rputs('half'); Nginx.return(403); raise 'no'";
    for phase in ["rewrite", "access"] {
        let scripts = format!("{phase} = {{ code = {text:?}, on_error = \"allow\" }}");
        check(&config(&scripts), 200, "there q=1");
    }
}

#[test]
fn scripts_run_level_by_level_and_the_first_answer_ends_them() {
    let text = r#"
[scripts]
access = [{ code = "Nginx.rputs('')" }, { code = "$said = 'process '" }]
[tenants.t]
scripts = { access = { code = "$said += 'tenant '" } }
[[sites]]
hosts = ["a"]
tenant = "t"
scripts = { access = { code = "$said += 'site '" } }
  [[sites.rules]]
  scripts = { access = { code = "Nginx.rputs($said + 'rule')" } }
  [[sites.rules]]
  scripts = { access = { code = "raise 'never'" } }
  handler = { respond = { body = "x" } }
"#;
    check(text, 200, "process tenant site rule");
}

#[test]
fn a_connection_is_closed_without_a_reply_by_444() {
    let fixture = Fixture::new(&code("access", "Nginx.return(444)"));
    let ended = ask(&fixture);
    assert_eq!(reply(&ended), (0, Vec::new(), String::new()));
    let record = fixture.records();
    assert!(record.contains("\"status\":444"), "{record}");
}

#[test]
fn the_log_phase_runs_once_whatever_became_of_the_request() {
    let scripts = "rewrite = { code = \"$logged = 0 unless $logged\" }, \
                   log = { code = \"$logged += 1\" }, \
                   access = { code = \"Nginx.return(503) if $logged == 1; raise 'no' if $logged == 2\" }";
    let fixture = Fixture::new(&config(scripts));
    let said: Vec<_> = (0..4).map(|_| reply(&ask(&fixture)).0).collect();
    assert_eq!(said, [200, 503, 500, 200]);
    let count = |phase| fixture.worker.stats.scripts.of(phase);
    assert_eq!(count(script::Phase::Log), (4, 0));
    assert_eq!(count(script::Phase::Access), (3, 1));
}

#[test]
fn an_unknown_host_is_logged_by_the_scripts_of_the_process() {
    let text = "[[listen]]\naddress = '127.0.0.1:1'\n[scripts]\nlog = { code = '1' }\n\
                [[sites]]\nhosts = ['a']\nrules = [{ handler = { respond = { body = 'x' } } }]\n";
    let fixture = Fixture::new(text);
    assert_eq!(
        reply(&fixture.ask("GET / HTTP/1.1\r\nHost: b\r\n\r\n")).0,
        421
    );
    assert_eq!(fixture.worker.stats.scripts.of(script::Phase::Log), (1, 0));
}

#[test]
fn a_generation_without_scripts_opens_no_interpreter() {
    let fixture = Fixture::new(&config(""));
    assert!(fixture.worker.opened.borrow().is_empty());
    assert!(fixture.worker.serving().scripts.is_none());
    assert!(ask(&fixture).scripted.is_none());
}

#[test]
fn rates_by_the_upstream_count_what_a_script_has_named() {
    let [of_upstream, of_rule] = [
        ("limits = [{ rate = '1/d', burst = 1 }]", ""),
        (
            "",
            "limits = [{ key = 'upstream', rate = '1/d', burst = 1 }]",
        ),
    ]
    .map(|(of_upstream, of_rule)| {
        format!(
            "[[listen]]\naddress = '127.0.0.1:1'\n\
             [upstreams.one]\nservers = ['127.0.0.1:1']\n{of_upstream}\n\
             [upstreams.other]\nservers = ['127.0.0.1:1']\n\
             [[sites]]\nhosts = ['a']\n[[sites.rules]]\n{of_rule}\n\
             handler = {{ proxy = {{ script = {{ code = 'Nginx::Var.new.args' }} }} }}\n"
        )
    });
    for config in [of_upstream, of_rule] {
        let fixture = Fixture::new(&config);
        let is_refused = |name| {
            let ended = fixture.ask(&format!("GET /?{name} HTTP/1.1\r\nHost: a\r\n\r\n"));
            ended.record.reason == "limit_rate"
        };
        let refused = ["one", "other", "one"].map(is_refused);
        assert_eq!(refused, [false, false, true], "{config}");
    }
}
