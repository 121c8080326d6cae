//! What is asked for instead, and what of a rule's match its texts hold.

use crate::fixture::{Fixture, reply};
use crate::permits::questions;

/// One site with these keys and rules; what no rule answers says what it was asked.
fn fixture(text: &str) -> Fixture {
    let rest = "[[sites.rules]]\nhandler = { respond = { body = \"$path?$query\" } }\n";
    Fixture::new(&format!(
        "[[listen]]\naddress = \"127.0.0.1:1\"\n[[sites]]\nhosts = [\"a\"]\n{text}\n{rest}"
    ))
}

/// The status, and the body or, of an error, why.
fn ask_with(fixture: &Fixture, target: &str, fields: &str) -> (u16, String) {
    let ended = fixture.ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let (status, _, body) = reply(&ended);
    match status {
        200 => (status, body),
        _ => (status, ended.record.reason.to_owned()),
    }
}

fn ask(fixture: &Fixture, target: &str) -> (u16, String) {
    ask_with(fixture, target, "")
}

/// The field of a reply.
fn field(fixture: &Fixture, target: &str, name: &str) -> Option<String> {
    let ended = fixture.ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let (_, fields, _) = reply(&ended);
    let mut fields = fields.iter().filter_map(|field| field.split_once(": "));
    fields
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.to_owned())
}

#[test]
fn entries_are_gone_through_in_order_and_the_query_is_as_they_say() {
    let fixture = fixture(
        r#"rewrite = [
            { from = '^/media/(.+)$', to = "/show.php?media=$1" },
            { from = '^/keep/(.*)', to = "/kept/$1" },
            { from = '^/add/(.*)', to = "/added?a=$1", query = "append" },
            { from = '^/drop/', to = "/dropped", query = "drop" },
            { from = '^/none/', to = "/no-query?" },
            { from = '^/one$', to = "/two" },
            { from = '^/two$', to = "/three", last = true },
            { from = '^/three$', to = "/four" },
            { from = '^/(?<first>[a-z])/(?<second>[0-9])?$', to = "/named-${second}$2-${first}x" },
            { from = '^(/.+)\.html$', to = "$1" },
        ]"#,
    );
    for (asked, expected) in [
        ("/media/a%20b%3Fc?x=1", "/show.php?media=a%20b%3Fc"),
        ("/keep/a?x=1", "/kept/a?x=1"),
        ("/keep/a", "/kept/a?"),
        ("/add/b&c=d?x=1", "/added?a=b%26c%3Dd&x=1"),
        ("/add/b", "/added?a=b"),
        ("/drop/x?y=1", "/dropped?"),
        ("/none/x?y=1", "/no-query?"),
        ("/one", "/three?"),
        ("/two?q", "/three?q"),
        ("/three", "/four?"),
        ("/b/7", "/named-77-bx?"),
        ("/b/", "/named--bx?"),
        ("/x/y.html?z", "/x/y?z"),
        ("/other?x", "/other?x"),
    ] {
        assert_eq!(ask(&fixture, asked), (200, expected.to_owned()), "{asked}");
    }
}

#[test]
fn a_question_mark_in_a_path_begins_no_query() {
    let fixture = fixture(r#"rewrite = [{ from = '^/f/(.*)$', to = "/files/$1" }]"#);
    let asked = ask(&fixture, "/f/a%3fb=c%26d%23e%25f");
    assert_eq!(asked, (200, "/files/a%3Fb=c&d%23e%25f?".to_owned()));
}

#[test]
fn no_group_leads_out_of_the_directory_it_is_put_in() {
    let fixture = fixture(
        r#"rewrite = [
            { from = '^/x(.*)$', to = "/files/$1" },
            { from = '^/(y.*)$', to = "$1" },
        ]"#,
    );
    assert_eq!(ask(&fixture, "/xa"), (200, "/files/a?".to_owned()));
    for asked in ["/x../secret", "/x%2e%2e/secret", "/x..", "/x..;/a", "/ya"] {
        let answer = (404, "rewritten_nowhere".to_owned());
        assert_eq!(ask(&fixture, asked), answer, "{asked}");
    }
}

const AGAIN: &str = r#"
[[sites.rules]]
match = { path = "/new/hidden" }
deny = "all"
[[sites.rules]]
match = { path = "/old/closed" }
deny = "all"
[[sites.rules]]
match = { path = "/old/*" }
reply_headers = { set = { X-Was = "old" } }
rewrite = [{ from = '^/old/(.*)$', to = "/new/$1" }]
[[sites.rules]]
match = { path = "/new/secret" }
deny = "all"
"#;

#[test]
fn after_a_rule_has_rewritten_all_are_tried_and_what_matched_stays() {
    let fixture = fixture(AGAIN);
    assert_eq!(ask(&fixture, "/old/a?b"), (200, "/new/a?b".to_owned()));
    assert_eq!(field(&fixture, "/old/a", "X-Was").as_deref(), Some("old"));
    assert_eq!(field(&fixture, "/new/a", "X-Was"), None);
    for asked in ["/old/hidden", "/old/closed", "/old/secret", "/new/secret"] {
        assert_eq!(ask(&fixture, asked).0, 403, "{asked}");
    }
}

#[test]
fn a_rule_that_rewrites_and_has_a_handler_answers_what_it_has_rewritten() {
    let fixture = fixture(
        r#"
        [[sites.rules]]
        match = { path_regex = '^/user/([a-z]+)' }
        rewrite = [{ from = '^/user/(.*)', to = "/profile?name=$1" }]
        handler = { respond = { body = "$1 at $path?$query" } }
        "#,
    );
    let answer = (200, "ann at /profile?name=ann".to_owned());
    assert_eq!(ask(&fixture, "/user/ann"), answer);
    assert_eq!(ask(&fixture, "/user/7"), (200, "/user/7?".to_owned()));
}

#[test]
fn rules_that_rewrite_in_circles_come_to_an_end_and_it_is_told() {
    let circle = fixture(
        r#"
        [[sites.rules]]
        match = { path = "/a" }
        rewrite = [{ from = '^/a$', to = "/b" }]
        [[sites.rules]]
        match = { path = "/b" }
        rewrite = [{ from = '^/b$', to = "/a" }]
        "#,
    );
    assert_eq!(ask(&circle, "/a"), (200, "/a?".to_owned()));
    assert_eq!(ask(&circle, "/b"), (200, "/b?".to_owned()));
    let ended = circle.ask("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let question = format!("why {}", ended.request.id);
    let told = questions::answer(&circle.shared, &question).expect("an answer");
    assert!(
        told.ends_with(
            "site        a\nrewritten   /a to /b, by rule 1\nrewritten   /b to /a, by rule 2\n"
        ),
        "{told}"
    );
    let rule = |number: usize| {
        let next = number + 1;
        format!("[[sites.rules]]\nrewrite = [{{ from = '^/{number}$', to = \"/{next}\" }}]\n")
    };
    let long: String = (1..=11).rev().map(rule).collect();
    let long = fixture(&long);
    assert_eq!(ask(&long, "/2"), (200, "/12?".to_owned()));
    assert_eq!(ask(&long, "/1"), (500, "rewrite_loop".to_owned()));
}

#[test]
fn a_rule_rewrites_only_paths_that_it_matches() {
    let fixture = fixture(
        r#"
        [[sites.rules]]
        match = { path = "/a/*" }
        rewrite = [{ from = '^(.*)[.]html$', to = "$1.php" }]
        [[sites.rules]]
        match = { path = "/a/x" }
        rewrite = [{ from = '^/a/x$', to = "/b/x.html" }]
        "#,
    );
    assert_eq!(ask(&fixture, "/a/x"), (200, "/b/x.html?".to_owned()));
    assert_eq!(ask(&fixture, "/a/y.html"), (200, "/a/y.php?".to_owned()));
}

#[test]
fn a_path_that_is_rewritten_to_itself_is_not() {
    let fixture = fixture(
        r#"
        rewrite = [{ from = '^/a', to = "/a" }]
        [[sites.rules]]
        rewrite = [{ from = '^/(.*)$', to = "/$1" }]
        "#,
    );
    let ended = fixture.ask("GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(reply(&ended).2, "/a?b");
    assert!(ended.record.rewritten.is_empty());
    assert_eq!(ended.route.rewrites, 0);
}

#[test]
fn an_expression_that_takes_too_many_steps_is_given_up_and_lets_nobody_past() {
    let fixture = fixture(
        r#"
        rewrite = [{ from = '^/r(?!x)(a+)+\1*$', to = "/b" }]
        [[sites.rules]]
        match = { not = { header = { User-Agent = { regex = '^(?!x)(a+)+\1*$' } } } }
        deny = "all"
        "#,
    );
    let evil = format!("{}!", "a".repeat(40));
    let too_many = (500, "regex_steps".to_owned());
    assert_eq!(ask(&fixture, &format!("/r{evil}")), too_many);
    let field = |value: &str| format!("User-Agent: {value}\r\n");
    assert_eq!(ask_with(&fixture, "/", &field(&evil)), too_many);
    assert_eq!(ask_with(&fixture, "/", &field("aaa")).0, 200);
    assert_eq!(ask_with(&fixture, "/", &field("bbb")).0, 403);
}

#[test]
fn no_limit_and_no_variable_is_decided_by_an_expression_that_was_given_up() {
    let evil = format!("User-Agent: {}!\r\n", "a".repeat(40));
    let agent = r"header = { User-Agent = { regex = '^(?!x)(a+)+\1*$' } }";
    let fixture = Fixture::new(&format!(
        r#"
        [log]
        access = "-"
        format = "json"
        [[sites]]
        hosts = ["a"]
        env = {{ TRUSTED = {{ value = "1", match = {{ not = {{ {agent} }} }} }} }}
        [[sites.rules]]
        match = {{ path = "/limited" }}
        limits = [{{ match = {{ {agent} }}, rate = "100/s" }}]
        [[sites.rules]]
        handler = {{ respond = {{ body = "ok" }} }}
        "#
    ));
    let trusted = r#""env":{"TRUSTED":"1"}"#;
    assert_eq!(ask(&fixture, "/limited").0, 200);
    assert!(fixture.records().contains(trusted));
    let limited = ask_with(&fixture, "/limited", &evil);
    assert_eq!(limited, (500, "regex_steps".to_owned()));
    assert_eq!(ask_with(&fixture, "/", &evil).0, 200);
    let records = fixture.records();
    assert!(!records.contains(trusted), "{records}");
}

#[test]
fn groups_of_a_rule_stand_in_its_redirect_and_fields() {
    let fixture = fixture(
        r#"
        [[sites.rules]]
        match = { path_regex = '^/(?<kind>old|tmp)/' }
        reply_headers = { set = { X-Kind = "${kind}", X-All = "[$0]" } }
        [[sites.rules]]
        match = { path_regex = '^/old/(?<rest>.*?)(\.html)?$' }
        handler = { redirect = "https://$host/new/${rest}$2?from=$1" }
        "#,
    );
    for (asked, location) in [
        ("/old/a%20b.html", "https://a/new/a%20b.html?from=a%20b"),
        ("/old/x&y", "https://a/new/x&y?from=x%26y"),
        ("/old/a%0d%0ab", ""),
        ("/old/", "https://a/new/?from="),
    ] {
        let found = field(&fixture, asked, "Location").unwrap_or_default();
        assert_eq!(found, location, "{asked}");
    }
    assert_eq!(field(&fixture, "/old/a", "X-Kind").as_deref(), Some("old"));
    assert_eq!(
        field(&fixture, "/tmp/a", "X-All").as_deref(),
        Some("[/tmp/]")
    );
}

#[test]
fn a_redirect_that_begins_with_a_group_stays_on_its_host() {
    let fixture = fixture(
        r#"slashes = "keep"
        [[sites.rules]]
        match = { path_regex = '^/go(.*)$' }
        handler = { redirect = "$1" }
        [[sites.rules]]
        match = { path_regex = '^/to(.*)$' }
        handler = { redirect = "/$1" }
        [[sites.rules]]
        match = { path_regex = '^/in/(?:([a-z]{2})/)?(.*)$' }
        handler = { redirect = "/$1/$2" }
        "#,
    );
    for asked in [
        "/go//evil.test",
        "/go/evil.test",
        "/to//evil.test",
        "/to/evil.test",
        "/in/evil.test",
    ] {
        let location = field(&fixture, asked, "Location");
        assert_eq!(location.as_deref(), Some("/evil.test"), "{asked}");
    }
    assert_eq!(
        ask(&fixture, "/goevil.test"),
        (404, "redirect_nowhere".to_owned())
    );
}

#[test]
fn no_group_and_no_path_ends_the_text_of_a_page_it_stands_in() {
    let fixture = fixture(
        r#"
        [[sites.rules]]
        match = { path_regex = '^/u/(.*)$' }
        handler = { respond = { body = "<a href='/u/$1?$query'>$path</a>", content_type = "text/html" } }
        "#,
    );
    let page = ask(&fixture, "/u/x'-alert(1)-&apos;?a=b&c='d").1;
    assert_eq!(
        page,
        "<a href='/u/x%27-alert%281%29-%26apos%3B?a=b&c=%27d'>/u/x%27-alert(1)-&apos;</a>"
    );
}

#[test]
fn what_the_client_asked_for_is_known_after_it_was_rewritten() {
    let fixture = fixture(
        r#"
        rewrite = [{ from = '^/(.*)$', to = "/index.php?route=$1" }]
        [[sites.rules]]
        handler = { redirect = "https://www.example.jp$request_uri" }
        "#,
    );
    for (asked, told) in [("/a%20b/../c?d=e", "/c?d=e"), ("/", "/")] {
        let location = field(&fixture, asked, "Location");
        let expected = format!("https://www.example.jp{told}");
        assert_eq!(location, Some(expected), "{asked}");
    }
}

#[test]
fn a_limit_counts_by_a_group_of_its_rule() {
    let fixture = fixture(
        r#"
        [[sites.rules]]
        match = { path_regex = '^/~([a-z]+)/' }
        limits = [{ key = "$1", rate = "1/h" }]
        "#,
    );
    assert_eq!(ask(&fixture, "/~ann/a").0, 200);
    assert_eq!(ask(&fixture, "/~bob/a").0, 200);
    assert_eq!(ask(&fixture, "/~ann/b").0, 503);
    assert_eq!(ask(&fixture, "/other").0, 200);
}

#[test]
fn values_are_matched_by_expressions() {
    let fixture = fixture(
        r#"
        [[sites.rules]]
        match = { header = { User-Agent = { regex = '(?i)bot\b' } } }
        handler = { respond = { body = "header" } }
        [[sites.rules]]
        match = { query = { id = { regex = '^[0-9]+$' } } }
        handler = { respond = { body = "query" } }
        [[sites.rules]]
        match = { cookie = { beta = "1*", session = { regex = '^(?!none$)' } } }
        handler = { respond = { body = "cookie" } }
        [[sites.rules]]
        match = { path_regex = '^/(?!wp-)[a-z]+\.php$' }
        handler = { respond = { body = "path" } }
        "#,
    );
    for (target, fields, expected) in [
        ("/", "User-Agent: GoogleBOT/2\r\n", "header"),
        ("/", "User-Agent: Robotic\r\n", "/?"),
        ("/?id=%37", "", "query"),
        ("/?id=7a", "", "/?id=7a"),
        ("/?x=1&id=7", "", "query"),
        ("/", "Cookie: beta=12; session=s\r\n", "cookie"),
        ("/", "Cookie: beta=12\r\nCookie: session=s\r\n", "cookie"),
        ("/", "Cookie: beta=12; session=none\r\n", "/?"),
        ("/", "Cookie: beta=2; session=s\r\n", "/?"),
        ("/index.php", "", "path"),
        ("/wp-login.php", "", "/wp-login.php?"),
    ] {
        let answer = ask_with(&fixture, target, fields);
        assert_eq!(answer, (200, expected.to_owned()), "{target} {fields}");
    }
}

#[test]
fn variables_depend_on_the_request_and_can_be_taken_away() {
    let text = r#"
        env = { KIND = ["page", { value = "bot", match = { header = { User-Agent = { regex = 'bot' } } } }], GONE = "x" }
        [[sites.rules]]
        match = { path_regex = '^/a/(.*)' }
        env = { GONE = false, PART = "$1" }
    "#;
    let rest = "[[sites.rules]]\nhandler = { respond = { body = \"ok\" } }\n";
    let fixture = Fixture::new(&format!(
        "[[listen]]\naddress = \"127.0.0.1:1\"\n[log]\naccess = \"-\"\nformat = \"json\"\n\
         [[sites]]\nhosts = [\"a\"]\n{text}\n{rest}"
    ));
    for (target, agent, expected) in [
        ("/", "curl", r#""env":{"KIND":"page","GONE":"x"}"#),
        ("/", "a bot", r#""env":{"KIND":"bot","GONE":"x"}"#),
        ("/a/b", "curl", r#""env":{"KIND":"page","PART":"b"}"#),
    ] {
        ask_with(&fixture, target, &format!("User-Agent: {agent}\r\n"));
        let records = fixture.records();
        assert!(records.contains(expected), "{records}");
    }
}
