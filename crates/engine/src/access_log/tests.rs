//! What records say, and that none is missing.

use crate::exchange::request::Peer;
use crate::fixture::{Fixture, exchange};

const SITES: &str = r#"
[log]
access = "-"
format = "{format}"
[[sites]]
hosts = ["www.example.jp", "*.example.jp"]
env = { TEAM = "outer", SITE = "$host" }
  [[sites.rules]]
  name = "hello"
  match = { path = "/hello" }
  env = { TEAM = "in \"ner\"\t$method" }
  handler = { respond = { status = 200, body = "hello, world\n" } }
  [[sites.rules]]
  match = { path = "/empty" }
  handler = { respond = { status = 200, body = "" } }
"#;

fn fixture(format: &str) -> Fixture {
    Fixture::new(&SITES.replace("{format}", format))
}

/// The record of one request, its time made `[T]`.
fn record(format: &str, request: &str) -> String {
    let fixture = fixture(format);
    fixture.ask(request);
    let record = fixture.records();
    assert_eq!(record.matches('\n').count(), 1, "{record}");
    match (record.find('['), record.find(']')) {
        (Some(from), Some(to)) if format.contains("combined") => {
            assert_eq!(to - from, 27, "{record}");
            record.replace(&record[from..=to], "[T]")
        }
        _ => record,
    }
}

#[test]
fn combined_is_apaches() {
    for (request, expected) in [
        (
            "GET /hello?a=\"b HTTP/1.1\r\nHost: www.example.jp\r\nReferer: http://a/\r\nUser-Agent: x\"y\\z\r\n\r\n",
            r#"192.0.2.7 - - [T] "GET /hello?a=\"b HTTP/1.1" 200 13 "http://a/" "x\"y\\z""#,
        ),
        (
            "HEAD /empty HTTP/1.0\r\nHost: www.example.jp\r\n\r\n",
            r#"192.0.2.7 - - [T] "HEAD /empty HTTP/1.0" 200 - "-" "-""#,
        ),
        (
            "GET /hello HTTP/1.1\r\nHost: www.example.jp\r\nUser-Agent: a\r\nUser-Agent: b\tc\r\nReferer: \r\n\r\n",
            r#"192.0.2.7 - - [T] "GET /hello HTTP/1.1" 200 13 "" "a, b\tc""#,
        ),
    ] {
        assert_eq!(record("combined", request), format!("{expected}\n"));
        let vhost = format!("www.example.jp:8080 {expected}\n");
        assert_eq!(record("vhost_combined", request), vhost);
    }
}

#[test]
fn combined_ends_in_the_reason_where_it_is_asked_for() {
    for format in ["combined", "vhost_combined"] {
        let format = format!("{format}\"\nreason = true # ");
        for (path, end) in [
            ("/empty", r#" 200 - "-" "a" "-""#),
            ("/none", r#" "-" "a" "no_root""#),
        ] {
            let fields = "Host: www.example.jp\r\nUser-Agent: a\r\n";
            let record = record(&format, &format!("GET {path} HTTP/1.1\r\n{fields}\r\n"));
            assert!(record.ends_with(&format!("{end}\n")), "{record}");
        }
    }
}

#[test]
fn json_says_everything() {
    let request =
        "GET /hello?q=1 HTTP/1.1\r\nHost: a.Example.jp:80\r\nUser-Agent: \u{1}\"長\r\n\r\n";
    let request = request.replace('\u{1}', "\\");
    let record = record("json", &request);
    for part in [
        r#"{"time":"2"#,
        r#""site":"www.example.jp","host":"a.example.jp","client":"192.0.2.7","peer":"192.0.2.7","port":8080"#,
        r#""method":"GET","target":"/hello?q=1","version":"HTTP/1.1","status":200,"bytes":13,"bytes_in":0"#,
        r#""handler":"respond","rule":"hello","file":null,"upstream":null,"upstream_status":null,"queue_us":"#,
        r#""upstream_us":null,"total_us":"#,
        r#","program_cpu_us":null,"program_peak_bytes":null,"reason":null,"limit":null,"limit_key":null,"user":null,"referer":null,"user_agent":"\\\"長""#,
        r#""env":{"SITE":"a.example.jp","TEAM":"in \"ner\"\tGET"}}"#,
    ] {
        assert!(record.contains(part), "{part} is not in {record}");
    }
}

#[test]
fn ltsv_says_the_same_under_the_same_names() {
    let request = "GET /hello HTTP/1.1\r\nHost: a.example.jp\r\nUser-Agent: a\tb\\\r\n\r\n";
    let line = record("ltsv", request);
    let fields: Vec<(&str, &str)> = line
        .trim_end()
        .split('\t')
        .map(|field| field.split_once(':').unwrap())
        .collect();
    for expected in [
        ("site", "www.example.jp"),
        ("target", "/hello"),
        ("status", "200"),
        ("user_agent", r"a\tb\\"),
        ("referer", "-"),
        ("env.TEAM", r#"in "ner"\tGET"#),
    ] {
        assert!(fields.contains(&expected), "{expected:?} is not in {line}");
    }
    let json = record("json", request);
    for (name, _) in &fields {
        let name = name.trim_start_matches("env.");
        assert!(json.contains(&format!("\"{name}\":")), "{name} in {json}");
    }
}

#[test]
fn a_record_tells_the_file_that_limits_count_by() {
    let root = std::env::temp_dir().join(format!("nagaya-record-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("index \"1\".html"), "x").unwrap();
    let root = root.canonicalize().unwrap();
    let text = SITES.replace("{format}", "json").replace(
        "env = { TEAM = \"outer\"",
        &format!("root = {root:?}\nindex = ['index \"1\".html']\nenv = {{ TEAM = \"outer\""),
    );
    let fixture = Fixture::new(&text);
    let name = format!("{}/index \\\"1\\\".html", root.display());
    for (path, told) in [("/", format!("\"{name}\"")), ("/hello", "null".to_owned())] {
        fixture.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: www.example.jp\r\n\r\n"
        ));
        let record = fixture.records();
        let told = format!("\"file\":{told},\"upstream\"");
        assert!(record.contains(&told), "{told} is not in {record}");
    }
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn an_unknown_host_is_recorded_without_a_site() {
    let request = "GET / HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n";
    let record = record("vhost_combined", request);
    assert!(
        record.starts_with("-:8080 192.0.2.7 - - [T] \"GET / HTTP/1.1\" 421 "),
        "{record}"
    );
}

#[test]
fn a_client_without_an_address_is_a_dash() {
    let fixture = fixture("combined");
    fixture.ask_from(
        Peer::LOCAL,
        "GET /hello HTTP/1.1\r\nHost: www.example.jp\r\n\r\n",
    );
    assert!(fixture.records().starts_with("- - - ["));
}

#[test]
fn bytes_that_are_no_request_are_recorded_with_the_reason() {
    let fixture = fixture("json");
    let mut exchange = exchange(Peer::LOCAL, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let caps = wire::HeadCaps {
        head_bytes: 100,
        target_bytes: 100,
        fields: 9,
    };
    let refusal = exchange
        .request
        .head
        .parse(b"GET / HTTP/1.1\nHost: a\r\n\r\n", &caps)
        .unwrap_err();
    let refused = crate::pipeline::refuse(&fixture.worker, &mut exchange, refusal.into());
    crate::fixture::block_on(refused).unwrap();
    let record = fixture.records();
    assert!(
        record.contains(r#""method":null,"target":null,"version":null,"status":400"#),
        "{record}"
    );
    assert!(record.contains(r#""reason":"bare_lf""#), "{record}");
}

#[test]
fn a_reload_leaves_no_trace_in_the_text() {
    let fixture = fixture("combined");
    for _ in 0..3 {
        fixture.ask("GET /hello HTTP/1.1\r\nHost: www.example.jp\r\n\r\n");
        fixture.worker.swap(crate::fixture::generation(
            2,
            &SITES.replace("{format}", "combined"),
        ));
    }
    assert_eq!(fixture.records().lines().count(), 3);
}
