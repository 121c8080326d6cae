//! Shedding, with exchanges in memory and sensors that say what a test wants.

use super::rows;
use crate::figures;
use crate::fixture::{Fixture, generation_after, generation_with_files, reply};
use crate::permits::questions;

const SITES: &str = r#"
[log]
access = "-"
format = "json"
{rules}
[tenants.big]
[tenants.small]
[[sites]]
hosts = ["a"]
tenant = "big"
{site}
rules = [
  { match = { path = "/health" }, handler = { respond = { body = "well" } } },
  { match = { path = "/metrics" }, handler = { metrics = "json" } },
  { handler = { respond = { body = "fine" } } },
]
[[sites]]
hosts = ["b"]
tenant = "small"
rules = [{ handler = { respond = { body = "fine" } } }]
"#;

/// The rule people know, but for its answer.
const KNOWN: &str = "[[shed]]\nsensor = \"load1\"\nenter = 3.0\nleave = 3.0\nscope = \"all\"\n";

fn config(rules: &str) -> String {
    SITES.replace("{rules}", rules).replace("{site}", "")
}

/// Steps the rules ten times a second, from one moment to another.
fn live(fixture: &Fixture, seconds: std::ops::Range<u64>, value: f64) {
    for now_ms in (seconds.start * 1_000..seconds.end * 1_000).step_by(100) {
        super::step(&fixture.shared, now_ms, |_| Some(value));
    }
}

fn ask(fixture: &Fixture, host: &str, path: &str) -> (u16, Vec<String>, String) {
    reply(&fixture.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")))
}

fn status(fixture: &Fixture, host: &str, path: &str) -> u16 {
    ask(fixture, host, path).0
}

fn has(fields: &[String], wanted: &str) -> bool {
    fields.iter().any(|field| field.starts_with(wanted))
}

#[test]
fn while_the_load_is_above_three_everybody_is_sent_elsewhere() {
    let target = "respond = { redirect = \"http://b/sorry.html?from=$host\" }\n";
    let fixture = Fixture::new(&config(&format!("{KNOWN}{target}")));
    for (now_s, load, expected) in [
        (0, 3.0, 200),
        (1, 3.01, 302),
        (2, 12.0, 302),
        (3, 3.5, 302),
        (4, 3.0, 200),
    ] {
        live(&fixture, now_s..now_s + 1, load);
        assert_eq!(status(&fixture, "a", "/"), expected, "{load}");
        assert_eq!(status(&fixture, "b", "/sorry.html"), 200, "{load}");
        assert_eq!(status(&fixture, "a", "/health"), 200, "{load}");
        assert_eq!(status(&fixture, "a", "/metrics"), 200, "{load}");
        assert_eq!(status(&fixture, "nobody", "/"), 421, "{load}");
    }
    live(&fixture, 5..6, 9.0);
    let (_, fields, body) = ask(&fixture, "a", "/page");
    assert!(
        has(&fields, "Location: http://b/sorry.html?from=a"),
        "{fields:?}"
    );
    assert!(has(&fields, "Cache-Control: no-store") && !has(&fields, "Retry-After"));
    assert_eq!(body, "");
    assert_eq!(status(&fixture, "b", "/other.html"), 302);
}

#[test]
fn those_who_are_shed_see_the_whale_and_are_told_when_to_come_back() {
    let fixture = Fixture::new(&config(KNOWN));
    live(&fixture, 0..1, 4.0);
    let ended = fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (status, fields, body) = reply(&ended);
    assert_eq!(status, 503);
    let small = format!("<small>{}</small>\n", ended.request.id);
    assert!(body.ends_with(&small), "{body}");
    assert!(
        has(&fields, "Content-Type: text/html; charset=utf-8"),
        "{fields:?}"
    );
    assert!(
        body.contains("<svg ") && body.contains("A whale that has come up"),
        "{body}"
    );
    let after = fields
        .iter()
        .find_map(|field| field.strip_prefix("Retry-After: "));
    let after: u32 = after.expect("a time").parse().expect("seconds");
    assert!((10..=15).contains(&after), "{after}");
    let json = fixture.ask("GET / HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\n\r\n");
    let (status, _, body) = reply(&json);
    assert_eq!(status, 503);
    let id = json.request.id;
    let told = format!(
        "{{\"status\":503,\"error\":\"Service Unavailable\",\"reason\":\"shed\",\"request_id\":\"{id}\"}}\n"
    );
    assert_eq!(body, told);
    assert_eq!(
        reply(&fixture.ask("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")).0,
        503
    );
}

#[test]
fn a_page_of_the_rule_or_of_the_site_takes_the_whales_place() {
    for (respond, site, expected) in [
        (
            "respond = { page = \"{dir}/busy.svg\" }\n",
            "",
            "image/svg+xml",
        ),
        (
            "",
            "error_pages = { 503 = \"{dir}/503.txt\" }",
            "text/plain; charset=utf-8",
        ),
    ] {
        let rules = format!("{KNOWN}{respond}");
        let text = SITES.replace("{rules}", &rules).replace("{site}", site);
        let files = [("busy.svg", "ours"), ("503.txt", "ours")];
        let fixture = Fixture::of(generation_with_files(&text, &files));
        live(&fixture, 0..1, 4.0);
        let (status, fields, body) = ask(&fixture, "a", "/");
        assert_eq!((status, body.as_str()), (503, "ours"));
        assert!(
            has(&fields, &format!("Content-Type: {expected}")),
            "{fields:?}"
        );
        assert!(has(&fields, "Retry-After: "), "{fields:?}");
    }
}

#[test]
fn only_what_matches_is_shed() {
    let fixture = Fixture::new(&config(&format!(
        "{KNOWN}match = {{ not = {{ path = \"/admin/*\" }} }}\n"
    )));
    live(&fixture, 0..1, 4.0);
    assert_eq!(
        [
            status(&fixture, "a", "/"),
            status(&fixture, "a", "/admin/x")
        ],
        [503, 200]
    );
}

#[test]
fn whoever_is_above_its_share_pays() {
    // A busy machine may hold up one request of the small tenant for as long as all of the big one
    // take: then it is the small one that is above its share.
    assert!((0..5).any(|_| is_the_small_tenant_spared()));
}

/// Has one tenant ask a hundred times as often as the other while there is too much to do.
fn is_the_small_tenant_spared() -> bool {
    let fixture = Fixture::new(&config("[[shed]]\nsensor = \"cpu_pressure\"\n"));
    let (mut of_big, mut of_small) = (0, 0);
    for now_s in 0..12 {
        for _ in 0..100 {
            of_big += u64::from(status(&fixture, "a", "/") == 503);
        }
        of_small += u64::from(status(&fixture, "b", "/") == 503);
        live(&fixture, now_s..now_s + 1, 0.9);
    }
    let (rules, tenants) = rows::collect(&fixture.shared);
    let [rule] = &rules[..] else {
        panic!("{rules:?}");
    };
    assert_eq!((&*rule.state, rule.shed), ("red", of_big + of_small));
    assert!(rule.admitted_share < 0.8, "{rule:?}");
    live(&fixture, 12..72, 0.0);
    for host in ["a", "b"].repeat(20) {
        assert_eq!(status(&fixture, host, "/"), 200, "{host}");
    }
    let tenants: Vec<_> = tenants.iter().map(|it| (&*it.tenant, it.shed)).collect();
    let is_told = tenants == [("big", of_big)];
    of_small == 0 && is_told && (100..1_100).contains(&of_big)
}

#[test]
fn a_reload_keeps_how_a_rule_stands_if_it_looks_at_the_same() {
    let fixture = Fixture::new(&config(KNOWN));
    live(&fixture, 0..1, 4.0);
    assert_eq!(status(&fixture, "a", "/"), 503);
    let before = fixture.worker.serving().generation.clone();
    let other_answer = format!("{KNOWN}respond = {{ redirect = \"/sorry\" }}\n");
    let same = generation_after(&before, &config(&other_answer));
    fixture.reload(same.clone());
    assert_eq!(status(&fixture, "a", "/"), 302, "without a further step");
    assert_eq!(rows::collect(&fixture.shared).0[0].shed, 2);
    let other = config(&KNOWN.replace("3.0", "3.5"));
    fixture.reload(generation_after(&same, &other));
    assert_eq!(status(&fixture, "a", "/"), 200, "it begins in green");
    live(&fixture, 1..2, 4.0);
    assert_eq!(status(&fixture, "a", "/"), 503);
}

#[test]
fn a_reload_keeps_what_a_tenant_is_let_in_with() {
    let text = config("[[shed]]\nsensor = \"cpu_pressure\"\n");
    let fixture = Fixture::new(&text);
    for now_s in 0..30 {
        assert!([200, 503].contains(&status(&fixture, "a", "/")));
        live(&fixture, now_s..now_s + 1, 0.9);
    }
    let before = fixture.worker.serving().generation.clone();
    fixture.reload(generation_after(&before, &text));
    let shed = (0..100)
        .filter(|_| status(&fixture, "a", "/") == 503)
        .count();
    assert!(shed >= 94, "without a further step: {shed} of 100");
}

#[test]
fn however_many_rules_are_red_one_request_of_twenty_is_let_in() {
    let rules = ["cpu_pressure", "io_pressure", "loop_lag"];
    let rules = rules.map(|sensor| format!("[[shed]]\nsensor = \"{sensor}\"\n"));
    let fixture = Fixture::new(&config(&rules.concat()));
    for now_s in 0..30 {
        assert!([200, 503].contains(&status(&fixture, "a", "/")));
        live(&fixture, now_s..now_s + 1, 0.9);
    }
    let let_in = (0..400)
        .filter(|_| status(&fixture, "a", "/") == 200)
        .count();
    assert!((19..=21).contains(&let_in), "{let_in} of 400");
}

#[test]
fn two_rules_never_send_a_request_round() {
    let to = |target: &str| format!("respond = {{ redirect = \"{target}\" }}\n");
    let rules = [to("/busy"), to("http://b/sorry/"), String::new()];
    let rules = rules.map(|respond| format!("{KNOWN}{respond}"));
    let [busy, sorry, whale] = &rules;
    let fixture = Fixture::new(&config(&format!("{busy}{sorry}")));
    live(&fixture, 0..1, 4.0);
    for (host, path, expected) in [
        ("a", "/", 302),
        ("a", "/busy", 200),
        ("b", "/busy/", 200),
        ("b", "/sorry", 200),
        ("a", "/sorry", 302),
    ] {
        assert_eq!(status(&fixture, host, path), expected, "{host}{path}");
    }
    let fixture = Fixture::new(&config(&format!("{busy}{whale}")));
    live(&fixture, 0..1, 4.0);
    assert_eq!(status(&fixture, "a", "/busy"), 503, "that is no round");
}

#[test]
fn nobody_is_shed_once_nobody_steps() {
    let rules = format!("{KNOWN}[[shed]]\nsensor = \"cpu_pressure\"\n");
    let fixture = Fixture::new(&config(&rules));
    live(&fixture, 0..30, 4.0);
    assert_eq!(status(&fixture, "a", "/"), 503);
    super::let_go(&fixture.shared);
    let before = fixture.worker.serving().generation.clone();
    for _ in 0..20 {
        assert_eq!(status(&fixture, "a", "/"), 200);
    }
    fixture.reload(generation_after(&before, &config(&rules)));
    assert_eq!(status(&fixture, "a", "/"), 200);
}

#[test]
fn a_health_check_is_known_behind_rules_that_look_at_files() {
    let of_files = "{ match = { file = \"*\" }, handler = { respond = { body = \"file\" } } },\n  \
                    { match = { path = \"/health\" }";
    let root = format!("root = {:?}", std::env::temp_dir());
    let text = SITES
        .replace("{rules}", KNOWN)
        .replace("{site}", &root)
        .replacen("{ match = { path = \"/health\" }", of_files, 1);
    let fixture = Fixture::new(&text);
    for (now_s, load) in [(0, 1.0), (1, 4.0)] {
        live(&fixture, now_s..now_s + 1, load);
        let (status, _, body) = ask(&fixture, "a", "/health");
        assert_eq!((status, body.as_str()), (200, "well"), "{load}");
    }
}

#[test]
fn a_path_that_is_rewritten_is_no_health_check() {
    let of = |from: &str| format!("rewrite = [{{ from = '{from}', to = \"/page\" }}]");
    let posted = format!("match = {{ method = \"POST\" }}, {}", of("^/he"));
    for (site, rule, expected) in [
        (of("^/(.*)$"), of("^/none"), 503),
        (of("^/(?!health$)"), of("^/none"), 200),
        (String::new(), of("^/he"), 503),
        (String::new(), posted, 200),
    ] {
        let text = SITES.replace("{rules}", KNOWN).replace("{site}", &site);
        let rule = format!("rules = [\n{{ {rule} }},");
        let fixture = Fixture::new(&text.replacen("rules = [", &rule, 1));
        live(&fixture, 0..1, 4.0);
        assert_eq!(status(&fixture, "a", "/health"), expected, "{site}{rule}");
    }
}

#[test]
fn a_file_says_who_is_spared() {
    let file = std::env::temp_dir().join(format!("nagaya-friends-{}", std::process::id()));
    std::fs::write(&file, "192.0.2.7 yes\n").expect("a file");
    let fixture = Fixture::new(&config(&format!(
        "{KNOWN}match = {{ map = \"friends\", key = \"$client\", answered = false }}\n\
         [maps.friends]\nfile = {file:?}\n"
    )));
    std::fs::remove_file(&file).expect("removed");
    live(&fixture, 0..1, 4.0);
    assert_eq!(status(&fixture, "a", "/"), 200, "192.0.2.7 is a friend");
    let stranger = crate::fixture::peer("192.0.2.8:40000");
    let ended = fixture.ask_from(stranger, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(reply(&ended).0, 503);
}

#[test]
fn why_says_that_what_is_not_too_much_still_eases() {
    let rule = KNOWN.replace("leave = 3.0", "leave = 1.0");
    let fixture = Fixture::new(&config(&rule));
    for (value, expected) in [
        (4.0, "load1 was 4.00; too much is above 3.00\n"),
        (
            3.0,
            "load1 was 3.00; too much is above 3.00, still easing: leaves at 1.00\n",
        ),
    ] {
        live(&fixture, 0..1, value);
        let id = fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").request.id;
        let why = questions::answer(&fixture.shared, &format!("why {id}")).expect("an answer");
        assert!(why.contains(expected), "{why}");
    }
    let page = figures::table(&figures::collect(&fixture.shared));
    assert!(page.contains("  3.00, too much above 3.00  "), "{page}");
}

#[test]
fn record_figures_and_why_say_what_was_shed() {
    let fixture = Fixture::new(&config(&format!("{KNOWN}name = \"whale\"\n")));
    live(&fixture, 0..1, 4.25);
    let (_, fields, _) = ask(&fixture, "a", "/");
    let id = fields
        .iter()
        .find_map(|field| field.strip_prefix("X-Request-Id: "));
    let why = questions::answer(&fixture.shared, &format!("why {}", id.expect("an id")));
    let why = why.expect("an answer");
    for line in [
        "site        a\npath        /\n",
        "tenant      big",
        "shed by     whale",
        "state       red",
        "sensor      load1 was 4.25; too much is above 3.00\n",
        "admitted    0% of all requests",
    ] {
        assert!(why.contains(line), "{line}\n{why}");
    }
    let records = fixture.records();
    assert!(records.contains("\"reason\":\"shed\""), "{records}");
    assert!(records.contains("\"shed\":\"whale\""), "{records}");
    let figures = figures::collect(&fixture.shared);
    let table = figures::table(&figures);
    assert!(table.contains("load1 4.25, too much above 3.00"), "{table}");
    let json = control::json(&figures);
    assert!(
        json.contains("\"rule\":\"whale\",\"sensor\":\"load1\",\"enter\":3,"),
        "{json}"
    );
    assert!(
        json.contains("\"shed_by_tenant\":[{\"tenant\":\"big\",\"shed\":1,\"shadow_shed\":0}]"),
        "{json}"
    );
    let prometheus = figures::prometheus(&figures);
    for sample in [
        "nagaya_shedding_state{rule=\"whale\"} 2",
        "nagaya_shedding_admitted_share{rule=\"whale\"} 0",
        "nagaya_shed_total{rule=\"whale\"} 1",
        "nagaya_tenant_shed_total{tenant=\"big\"} 1",
    ] {
        assert!(prometheus.contains(sample), "{sample}\n{prometheus}");
    }
}

/// A site whose scripts say in a field that they have run.
fn scripted(rules: &str) -> String {
    let says = |field: &str| format!("Nginx::Request.new.headers_out['{field}'] = 'here'");
    let site = format!(
        "scripts = {{ access = [{{ code = {:?}, optional = true }}, {{ code = {:?} }}], \
         header_filter = {{ code = {:?} }} }}",
        says("X-Optional"),
        says("X-Needed"),
        says("X-Filtered"),
    );
    SITES.replace("{rules}", rules).replace("{site}", &site)
}

#[test]
fn optional_scripts_are_left_out_while_there_is_too_much_to_do() {
    let fixture = Fixture::new(&scripted(&format!(
        "{KNOWN}degrade = [\"optional_scripts\"]\n"
    )));
    for (now_s, load, is_optional_run) in [(0, 1.0, true), (1, 4.0, false), (2, 1.0, true)] {
        live(&fixture, now_s..now_s + 1, load);
        let (status, fields, _) = ask(&fixture, "a", "/health");
        assert_eq!(status, 200);
        assert_eq!(has(&fields, "X-Optional: "), is_optional_run, "{fields:?}");
        assert!(
            has(&fields, "X-Needed: ") && has(&fields, "X-Filtered: "),
            "{fields:?}"
        );
    }
}

#[test]
fn no_script_sees_what_is_shed() {
    let fixture = Fixture::new(&scripted(KNOWN));
    live(&fixture, 0..1, 4.0);
    let (status, fields, _) = ask(&fixture, "a", "/");
    assert_eq!(status, 503);
    assert!(
        !has(&fields, "X-Needed: ") && !has(&fields, "X-Filtered: "),
        "{fields:?}"
    );
}

#[test]
fn a_request_inside_of_another_is_not_shed() {
    let code = "r = Nginx::Async::HTTP.sub_request('/page'); Nginx.rputs r.status";
    let rule = format!(
        "{{ match = {{ path = \"/script\" }}, handler = {{ script = {{ code = {code:?} }} }} }},\n  {{ match = {{ path = \"/health\" }}"
    );
    let not_script = format!("{KNOWN}match = {{ not = {{ path = \"/script\" }} }}\n");
    let text = config(&not_script).replacen("{ match = { path = \"/health\" }", &rule, 1);
    let fixture = Fixture::new(&text);
    live(&fixture, 0..1, 4.0);
    assert_eq!(status(&fixture, "a", "/page"), 503);
    let (_, _, body) = ask(&fixture, "a", "/script");
    assert_eq!(body, "200");
}

#[test]
fn a_rule_in_shadow_sends_nobody_away_and_tells_whom_it_would_have() {
    let rule = format!("{KNOWN}name = \"whale\"\nmode = \"shadow\"\n");
    let fixture = Fixture::new(&config(&rule));
    live(&fixture, 0..1, 4.25);
    for path in ["/health", "/metrics"] {
        assert_eq!(status(&fixture, "a", path), 200);
    }
    assert_eq!(rows::collect(&fixture.shared).0[0].shadow_shed, 0);
    let ended = fixture.ask("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    let (status, _, body) = reply(&ended);
    assert_eq!((status, body.as_str()), (200, "fine"));
    let id = ended.request.id;
    let why = questions::answer(&fixture.shared, &format!("why {id}")).expect("an answer");
    for line in [
        "path        /page\n",
        "shed by     whale\n",
        "outcome     passed: would have been shed, but the rule is in shadow\n",
    ] {
        assert!(why.contains(line), "{line}\n{why}");
    }
    let records = fixture.records();
    let told = "\"shadow_reason\":\"shed\",\"shadow_shed\":\"whale\",\"user\"";
    assert_eq!(records.matches(told).count(), 1, "{records}");
    assert!(!records.contains("\"reason\":\"shed\""), "{records}");
    let figures = figures::collect(&fixture.shared);
    let table = figures::table(&figures);
    assert!(table.contains("red (shadow)"), "{table}");
    let json = control::json(&figures);
    for part in [
        "\"mode\":\"shadow\",\"shed\":0,\"shadow_shed\":1,",
        "\"shed_by_tenant\":[{\"tenant\":\"big\",\"shed\":0,\"shadow_shed\":1}]",
    ] {
        assert!(json.contains(part), "{json}");
    }
    let prometheus = figures::prometheus(&figures);
    for sample in [
        "nagaya_shedding_shadow{rule=\"whale\"} 1",
        "nagaya_shed_total{rule=\"whale\"} 0",
        "nagaya_shed_shadow_total{rule=\"whale\"} 1",
        "nagaya_tenant_shed_shadow_total{tenant=\"big\"} 1",
    ] {
        assert!(prometheus.contains(sample), "{sample}\n{prometheus}");
    }
}

#[test]
fn a_request_that_one_rule_sheds_and_another_would_is_told_of_both() {
    let tried = format!("{KNOWN}name = \"tried\"\nmode = \"shadow\"\n");
    for rules in [format!("{tried}{KNOWN}"), format!("{KNOWN}{tried}")] {
        let fixture = Fixture::new(&config(&rules));
        live(&fixture, 0..1, 4.0);
        let ended = fixture.ask("GET / HTTP/1.1\r\nHost: b\r\n\r\n");
        assert_eq!(reply(&ended).0, 503);
        let id = ended.request.id;
        let why = questions::answer(&fixture.shared, &format!("why {id}")).expect("an answer");
        let (shed, tried) = why.split_once("\n\n").expect("two parts");
        assert!(shed.contains("shed by     load1\n") && !shed.contains("passed"));
        assert!(tried.contains("shed by     tried\n") && tried.contains("passed"));
        let records = fixture.records();
        assert!(records.contains("\"reason\":\"shed\""), "{records}");
        let told = "\"shed\":\"load1\",\"shadow_reason\":\"shed\",\"shadow_shed\":\"tried\"";
        assert!(records.contains(told), "{records}");
        let (rules, tenants) = rows::collect(&fixture.shared);
        let of = |name: &str| {
            let rule = rules.iter().find(|it| it.rule == name).expect("a rule");
            (rule.shed, rule.shadow_shed)
        };
        assert_eq!((of("load1"), of("tried")), ((1, 0), (0, 1)));
        assert_eq!((tenants[0].shed, tenants[0].shadow_shed), (1, 1));
    }
}

#[test]
fn rules_in_shadow_are_each_judged_alone_and_take_nothing_from_those_in_force() {
    let all = "[[shed]]\nsensor = \"load1\"\nenter = 0.5\nscope = \"all\"\nmode = \"shadow\"\n";
    let shares = "[[shed]]\nsensor = \"cpu_pressure\"\nmode = \"shadow\"\n";
    let enforced = "[[shed]]\nsensor = \"io_pressure\"\n";
    let fixture = Fixture::new(&config(&format!("{all}{shares}{enforced}")));
    for now_s in 0..30 {
        assert!([200, 503].contains(&status(&fixture, "a", "/")));
        live(&fixture, now_s..now_s + 1, 0.9);
    }
    let before = rows::collect(&fixture.shared).0;
    let let_in = (0..400)
        .filter(|_| status(&fixture, "a", "/") == 200)
        .count();
    assert!((19..=21).contains(&let_in), "{let_in} of 400");
    let after = rows::collect(&fixture.shared).0;
    let since = |rule: usize| after[rule].shadow_shed - before[rule].shadow_shed;
    assert_eq!(since(0), 400, "{after:?}");
    assert!((379..=381).contains(&since(1)), "{after:?}");
    assert_eq!((since(2), after[0].shed, after[1].shed), (0, 0, 0));
}

#[test]
fn a_rule_that_is_put_in_force_begins_in_green() {
    let tried = format!("{KNOWN}mode = \"shadow\"\n");
    let fixture = Fixture::new(&config(&tried));
    live(&fixture, 0..1, 4.0);
    assert_eq!(rows::collect(&fixture.shared).0[0].state, "red");
    let before = fixture.worker.serving().generation.clone();
    let same = generation_after(&before, &config(&format!("{tried}degrade = []\n")));
    fixture.reload(same.clone());
    assert_eq!(rows::collect(&fixture.shared).0[0].state, "red");
    fixture.reload(generation_after(&same, &config(KNOWN)));
    assert_eq!(status(&fixture, "a", "/"), 200);
    live(&fixture, 1..2, 4.0);
    assert_eq!(status(&fixture, "a", "/"), 503);
}

#[test]
fn a_rule_in_shadow_leaves_out_no_script_and_spares_no_place() {
    let degrade = "degrade = [\"optional_scripts\"]\n";
    let tried =
        format!("{KNOWN}mode = \"shadow\"\nrespond = {{ redirect = \"/busy\" }}\n{degrade}");
    let fixture = Fixture::new(&scripted(&tried));
    live(&fixture, 0..1, 4.0);
    let (code, fields, _) = ask(&fixture, "a", "/page");
    assert_eq!(code, 200);
    for field in ["X-Optional: ", "X-Needed: ", "X-Filtered: "] {
        assert!(has(&fields, field), "{fields:?}");
    }
    let to_sorry = format!("{KNOWN}respond = {{ redirect = \"http://b/sorry\" }}\n");
    let fixture = Fixture::new(&config(&format!("{tried}{to_sorry}")));
    live(&fixture, 0..1, 4.0);
    assert_eq!(status(&fixture, "a", "/busy"), 302);
    let told = rows::collect(&fixture.shared).0;
    assert_eq!((told[0].shadow_shed, told[1].shed), (0, 1), "{told:?}");
    assert_eq!(status(&fixture, "b", "/sorry"), 200);
    assert_eq!(rows::collect(&fixture.shared).0[0].shadow_shed, 0);
}
