//! What a configuration says of limits: what they count, when they hold, and what they are called.

use crate::written;
use std::sync::Arc;

use crate::written::{LISTEN, SITE, loaded, model};
use config::model::{Concurrent, Limit, LimitKey, LimitOn, Mode, OnLoss, Rate, When, Window};
use config::{Sources, load, load_and_warn};

fn problems(text: &str) -> String {
    written::problems(&Sources::from_text("nagaya.toml", text))
}

/// The limits of a site whose `limits` hold `entries`.
fn of_site(entries: &str) -> Arc<[Limit]> {
    let model = model(&format!("{LISTEN}{SITE}limits = [{entries}]\n"));
    Arc::clone(&model.sites[0].limits)
}

/// The windows of a limit that says `when`.
fn when(when: &str) -> When {
    let limits = of_site(&format!("{{ concurrent = 2, when = {when} }}"));
    limits[0].when.clone().expect("it says when")
}

fn names(limits: &[Limit]) -> Vec<&str> {
    limits.iter().map(|limit| limit.name.as_str()).collect()
}

#[test]
fn every_level_has_limits_that_count_by_it() {
    let text = format!(
        "limits = [{{ concurrent = 1 }}]\n{LISTEN}\
         [upstreams.app]\nservers = [\"127.0.0.1:9000\"]\nlimits = [{{ concurrent = 5 }}]\n\
         [tenants.example]\nlimits = [{{ concurrent = 2 }}]\n\
         {SITE}tenant = \"example\"\nlimits = [{{ concurrent = 3 }}]\n\
         [[sites.rules]]\nhandler = {{ proxy = \"app\" }}\nlimits = [{{ concurrent = 4 }}]\n"
    );
    let model = model(&text);
    let site = &model.sites[0];
    let levels = [
        (&model.limits, LimitKey::Process),
        (&model.tenants[0].limits, LimitKey::Tenant),
        (&site.limits, LimitKey::Site),
        (&site.rules[0].limits, LimitKey::Rule),
        (&model.upstreams[0].limits, LimitKey::Upstream),
    ];
    for ((limits, key), number) in levels.into_iter().zip(1..) {
        assert_eq!(limits[0].key, [key]);
        assert_eq!(limits[0].concurrent, Some(Concurrent::Fixed(number)));
    }
}

#[test]
fn an_entry_means_what_it_says_and_the_defaults() {
    let limits = of_site("{ concurrent = 2 }, { key = \"client\", rate = \"100/m\" }");
    let plain = Limit {
        name: "site".to_owned(),
        key: vec![LimitKey::Site],
        on: LimitOn::Request,
        concurrent: Some(Concurrent::Fixed(2)),
        queue: 0,
        wait_ms: 2_000,
        late_ms: 0,
        rate: None,
        when: None,
        conditions: Vec::new(),
        mode: Mode::Enforce,
        tunnels: true,
        reserves: Vec::new(),
        fleet: None,
        status: 503,
        page: None,
        kept: None,
    };
    assert_eq!(limits[0], plain);
    let rate = Rate {
        count: 100,
        per_ms: 60_000,
        burst: 100,
    };
    let of_clients = Limit {
        name: "client".to_owned(),
        key: vec![LimitKey::Client],
        concurrent: None,
        rate: Some(rate),
        status: 429,
        ..plain
    };
    assert_eq!(limits[1], of_clients);
}

#[test]
fn a_limit_of_handshakes_stands_on_process_tenant_or_site() {
    let text = format!(
        "limits = [{{ on = \"handshake\", key = \"client\", rate = \"5/s\" }}, {{ key = \"client\", rate = \"9/s\" }}]\n\
         {LISTEN}[tenants.example]\nlimits = [{{ on = \"handshake\", key = [\"site\", \"client\"], concurrent = 2 }}]\n\
         {SITE}tenant = \"example\"\nlimits = [{{ on = \"handshake\", rate = \"50/s\", burst = 200, mode = \"shadow\" }}]\n"
    );
    let model = model(&text);
    let named = |limits: &[Limit]| -> Vec<(String, LimitOn)> {
        limits.iter().map(|it| (it.name.clone(), it.on)).collect()
    };
    let of = |name: &str| (name.to_owned(), LimitOn::Handshake);
    let request = ("client".to_owned(), LimitOn::Request);
    assert_eq!(named(&model.limits), [of("handshake client"), request]);
    assert_eq!(
        named(&model.tenants[0].limits),
        [of("handshake site+client")]
    );
    assert_eq!(named(&model.sites[0].limits), [of("handshake site")]);
}

#[test]
fn what_a_handshake_cannot_tell_is_refused_in_a_limit_of_handshakes() {
    for (entry, expected) in [
        (
            "key = \"path\", rate = \"5/s\"",
            "a limit of handshakes cannot count by `path`",
        ),
        (
            "key = [\"client\", \"header:x\"], rate = \"5/s\"",
            "cannot count by `header:x`",
        ),
        (
            "concurrent = 2, queue = 10",
            "`queue` says nothing beside `on = \"handshake\"`",
        ),
        (
            "rate = \"5/s\", match = { method = \"GET\" }",
            "`match` says nothing beside",
        ),
        (
            "rate = \"5/s\", status = 429",
            "`status` says nothing beside",
        ),
        (
            "concurrent = 2, tunnels = false",
            "`tunnels` says nothing beside",
        ),
        (
            "concurrent = \"auto\"",
            "`concurrent` of handshakes is a number",
        ),
    ] {
        let limits = format!("limits = [{{ on = \"handshake\", {entry} }}]\n");
        let told = problems(&format!("{limits}{LISTEN}{SITE}"));
        assert!(told.contains(expected), "{entry}: {told}");
    }
    let rule = "[[sites.rules]]\nhandler = { respond = { body = \"ok\" } }\n\
                limits = [{ on = \"handshake\", rate = \"5/s\" }]\n";
    let told = problems(&format!("{LISTEN}{SITE}{rule}"));
    assert!(
        told.contains("a limit on a rule cannot count handshakes"),
        "{told}"
    );
}

#[test]
fn a_refusal_is_the_clients_matter_where_the_key_tells_clients_apart() {
    for (key, expected) in [
        ("\"file\"", 503),
        ("\"path\"", 503),
        ("\"const:x\"", 503),
        ("\"client\"", 429),
        ("\"header:X-Api-Key\"", 429),
        ("[\"file\", \"cookie:session\"]", 429),
    ] {
        let limits = of_site(&format!("{{ key = {key}, concurrent = 1 }}"));
        assert_eq!(limits[0].status, expected, "{key}");
        let own = of_site(&format!("{{ key = {key}, concurrent = 1, status = 420 }}"));
        assert_eq!(own[0].status, 420);
    }
}

#[test]
fn names_come_from_keys_and_are_never_shared() {
    let limits = of_site(
        "{ key = \"file\", concurrent = 1 }, { key = \"file\", rate = \"1/s\" }, \
         { concurrent = 3, name = \"file 2\" }, { key = [\"client\", \"header:X-Key\"], rate = \"1/s\" }",
    );
    let expected = ["file", "file 3", "file 2", "client+header:x-key"];
    assert_eq!(names(&limits), expected);
}

#[test]
fn the_longest_names_made_of_keys_are_printed_so_that_they_load() {
    let text = |kind: &str, letter: &str| format!("\"{kind}:{}\"", letter.repeat(64));
    let keys = [
        text("const", "a"),
        text("const", "b"),
        text("header", "c"),
        text("cookie", "d"),
    ];
    let limits = of_site(&format!(
        "{{ key = [{}], concurrent = 1 }}",
        keys.join(", ")
    ));
    assert!(limits[0].name.len() > 256);
}

#[test]
fn windows_past_midnight_keep_the_day_they_begin_on() {
    let window = |days, from_minute, until_minute| Window {
        days,
        from_minute,
        until_minute,
    };
    for (text, expected) in [
        ("\"mon-fri 20:00-02:00\"", vec![window(0x1f, 1_200, 120)]),
        ("\"mon,wed\"", vec![window(0b101, 0, 1_440)]),
        ("\"daily\"", vec![window(0x7f, 0, 1_440)]),
        ("\"9:05-17:30\"", vec![window(0x7f, 545, 1_050)]),
        ("\"22:00-00:00\"", vec![window(0x7f, 1_320, 1_440)]),
        (
            "\"sat, sun 08:00-12:00, 13:00-24:00\"",
            vec![window(0x60, 480, 720), window(0x60, 780, 1_440)],
        ),
        (
            "\"mon 20:00-02:00, sat,sun\"",
            vec![window(1, 1_200, 120), window(0x60, 0, 1_440)],
        ),
        (
            "[\"sat\", \"fri-mon 20:00-02:00\"]",
            vec![window(0x20, 0, 1_440), window(0x71, 1_200, 120)],
        ),
    ] {
        let when = when(text);
        assert_eq!((when.windows, when.zone), (expected, None), "{text}");
    }
}

#[test]
fn a_time_zone_named_once_holds_for_all_windows() {
    for text in [
        "\"mon 20:00-02:00 asia/tokyo\"",
        "[\"mon 20:00-02:00 Asia/Tokyo\", \"tue\"]",
        "[\"mon Asia/Tokyo\", \"tue Asia/Tokyo\"]",
    ] {
        assert_eq!(when(text).zone.as_deref(), Some("Asia/Tokyo"), "{text}");
    }
    let text = format!("time_zone = \"europe/berlin\"\n{LISTEN}{SITE}");
    assert_eq!(model(&text).time_zone.as_deref(), Some("Europe/Berlin"));
}

#[test]
fn what_is_measured_is_an_upstream_or_the_process() {
    let text = format!(
        "limits = [{{ concurrent = \"auto\", key = \"process\" }}, {{ rate = \"10/s\" }}]\n{LISTEN}\
         [upstreams.app]\nservers = [\"127.0.0.1:9000\"]\nlimits = [{{ concurrent = \"auto\", queue = 10 }}]\n{SITE}"
    );
    let model = model(&text);
    assert_eq!(model.limits[0].concurrent, Some(Concurrent::Auto));
    let upstream = &model.upstreams[0].limits[0];
    assert_eq!(
        (upstream.concurrent, upstream.queue),
        (Some(Concurrent::Auto), 10)
    );
}

#[test]
fn a_limit_of_a_rule_may_count_by_the_upstream_that_it_forwards_to() {
    for (handler, fine) in [
        ("handler = { proxy = \"http://127.0.0.1:1\" }", true),
        ("handler = { fastcgi = \"127.0.0.1:1\" }", true),
        ("handler = { cgi = true }", false),
        ("", false),
    ] {
        let limits = "limits = [{ key = \"upstream\", concurrent = 2 }]";
        let text = format!("{LISTEN}{SITE}[[sites.rules]]\n{handler}\n{limits}\n");
        let loaded = load(&Sources::from_text("nagaya.toml", &text));
        assert_eq!(loaded.is_ok(), fine, "{handler}");
    }
}

#[test]
fn an_upstream_that_stands_for_an_address_has_no_limits() {
    let rule = "[[sites.rules]]\nhandler = { proxy = \"http://127.0.0.1:1\" }\n";
    let model = model(&format!("{LISTEN}{SITE}{rule}"));
    assert!(model.upstreams[0].limits.is_empty());
}

#[test]
fn a_wait_that_nobody_waits_is_warned_of() {
    let warned = |entry: &str| {
        let text = format!("{LISTEN}{SITE}limits = [{{ concurrent = 2, {entry} }}]\n");
        let (_, warnings) = load_and_warn(&Sources::from_text("nagaya.toml", &text)).expect(entry);
        warnings.to_string()
    };
    let told = warned("wait = \"5s\"");
    assert!(
        told.contains("`wait` says nothing without `queue`"),
        "{told}"
    );
    let told = warned("late = \"1s\"");
    assert!(
        told.contains("`late` says nothing without `queue`"),
        "{told}"
    );
    let told = warned("queue = 1, late = \"2s\"");
    assert!(told.contains("`late` says nothing: `wait` ends"), "{told}");
    assert_eq!(warned("wait = \"5s\", queue = 1, late = \"1s\""), "");
    assert_eq!(warned("wait = \"5s\", queue = 1"), "");
    // Who writes the 0 may mean to raise it while the gateway runs.
    assert_eq!(warned("wait = \"5s\", queue = 0"), "");
}

/// A configuration with so many limits on the top level, the site, a rule that adds, a rule that
/// forwards, one that answers, and the upstream.
fn crowded(counts: [usize; 6]) -> String {
    let limits = |count: usize| {
        let entries = vec!["{ concurrent = 1 }"; count];
        format!("limits = [{}]\n", entries.join(", "))
    };
    let [process, site, adding, forwarding, answering, upstream] = counts.map(limits);
    format!(
        "{process}{LISTEN}[upstreams.app]\nservers = [\"127.0.0.1:1\"]\n{upstream}{SITE}{site}\
         [[sites.rules]]\nenv = {{ A = \"b\" }}\n{adding}\
         [[sites.rules]]\nmatch = {{ path = \"/x\" }}\nhandler = {{ proxy = \"app\" }}\n{forwarding}\
         [[sites.rules]]\nhandler = {{ redirect = \"/\" }}\n{answering}"
    )
}

#[test]
fn no_request_can_meet_more_limits_than_one_can_hold() {
    for fine in [
        [0; 6],
        [4, 4, 4, 2, 4, 2],
        [1, 1, 1, 12, 13, 1],
        [0, 0, 0, 16, 16, 0],
    ] {
        loaded(&crowded(fine));
    }
    for (crowd, most) in [
        (
            [4, 4, 4, 2, 5, 2],
            "could meet 17 limits, and 16 are the most: 4 of the top level, 4 of the site, 9 of its rules",
        ),
        (
            [4, 4, 4, 3, 0, 2],
            "could meet 17 limits, and 16 are the most: 4 of the top level, 4 of the site, 7 of its rules, 2 of an upstream",
        ),
    ] {
        let told = problems(&crowded(crowd));
        assert!(told.contains(most), "{told}");
    }
    let told = problems(&crowded([17, 0, 0, 0, 0, 0]));
    assert!(told.contains("17 limits stand here"), "{told}");
}

#[test]
fn a_tenants_limits_count_for_its_sites() {
    let entries = ["{ concurrent = 1 }"; 9].join(", ");
    let text = format!(
        "{LISTEN}[tenants.example]\nlimits = [{entries}]\n{SITE}limits = [{entries}]\ntenant = \"example\"\n"
    );
    let told = problems(&text);
    assert!(told.contains("9 of the tenant, 9 of the site"), "{told}");
}

#[test]
fn levels_without_limits_share_one_empty_list_and_equal_lists_are_kept_once() {
    let site = |host: &str, limits: &str| {
        format!(
            "[[sites]]\nhosts = [\"{host}\"]\nroot = \"/srv\"\n{limits}\
             [[sites.rules]]\nhandler = {{ static = true }}\n{limits}"
        )
    };
    let some = "limits = [{ concurrent = 2 }]\n";
    let text: String = [("a", some), ("b", ""), ("c", some)]
        .map(|(host, limits)| site(host, limits))
        .concat();
    let model = model(&format!("{LISTEN}{text}"));
    let [a, b, c] = model.sites.as_slice() else {
        panic!("three sites");
    };
    assert!(Arc::ptr_eq(&a.limits, &c.limits));
    assert!(Arc::ptr_eq(&a.rules[0].limits, &c.rules[0].limits));
    assert!(b.limits.is_empty() && b.rules[0].limits.is_empty());
}

#[test]
fn a_limit_of_a_fleet_with_fewer_permits_than_machines_is_warned_of_where_each_has_its_share() {
    let warned = |entry: &str| {
        let limit = format!("limits = [{{ concurrent = 2, scope = \"fleet\"{entry} }}]\n");
        let fleet = "[fleet]\nstore = \"redis://127.0.0.1\"\nmachines = 3\n";
        let text = format!("{LISTEN}{SITE}{limit}{fleet}");
        let (_, warnings) = load_and_warn(&Sources::from_text("nagaya.toml", &text)).expect(entry);
        warnings.to_string()
    };
    let told = warned("");
    assert!(
        told.contains("has fewer permits than there are machines"),
        "{told}"
    );
    let told = warned(", on_loss = \"closed\"");
    assert!(!told.contains("fewer permits"), "{told}");
}

#[test]
fn over_a_fleet_a_limit_counts_requests_at_once_or_their_rate() {
    let loaded = |limit: &str| {
        let limits = format!("limits = [{{ {limit}, scope = \"fleet\" }}]\n");
        let text = format!("{LISTEN}{SITE}{limits}[fleet]\nstore = \"redis://127.0.0.1\"\n");
        load(&Sources::from_text("nagaya.toml", &text)).map_err(|problems| problems.to_string())
    };
    let model = loaded("rate = \"10/s\", burst = 3").expect("a rate");
    assert_eq!(model.sites[0].limits[0].fleet, Some(OnLoss::Share));
    let told = loaded("concurrent = 2, rate = \"10/s\"").expect_err("both");
    assert!(told.contains("counts `concurrent` or `rate`"), "{told}");
}
