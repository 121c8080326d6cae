//! The console as its readers meet it: what is on its pages, who sees what, what names do to it, and
//! how a real browser shows it.

mod archived;
mod live;
mod rows;
mod sample;
mod tables;

use ipc::console::{ConsoleAnswer, ConsoleQuestion, ConsoleScope, TenantSites};
use jiff::Zoned;
use jiff::civil::date;
use jiff::tz::TimeZone;
use recorder::{
    ArchiveMoment, ConsoleMoment, FigureStore, SaltPeriod, Sample, Sums, answer, archive_question,
    fragment,
};
use sample::{Said, VISITOR, hostilely, plainly};
use serde_json::{Value, json};
use testkit::chromium::{self, Colours};

const OWNERS: [(&str, &str); 2] = [("tea", "tea.example"), ("other", "other.example")];
const SITES: [&str; 2] = ["tea.example", "other.example"];
const PARTS: [&str; 8] = [
    "visits", "pages", "sources", "visitors", "devices", "bots", "errors", "speed",
];
const LIVE: [&str; 8] = [
    "now",
    "limits",
    "machine",
    "programs",
    "back-ends",
    "directories",
    "certificates",
    "alerts",
];
/// A desk and a telephone.
const WIDTHS: [u32; 2] = [1280, 390];
/// Contrast of words to what they stand on that accessibility asks for.
const CONTRAST_MIN: f64 = 4.5;

fn now() -> Zoned {
    let now = date(2026, 11, 27).at(21, 40, 0, 0);
    now.to_zoned(TimeZone::UTC).unwrap()
}

fn tenants(names: &[(&str, &str)]) -> ConsoleScope {
    let tenants = names.iter().map(|(tenant, site)| TenantSites {
        tenant: (*tenant).into(),
        sites: vec![(*site).into()],
    });
    ConsoleScope::Tenants(tenants.collect())
}

/// Who asks, for what is said.
struct Eyes<'a> {
    store: &'a FigureStore,
    said: Option<&'a Said>,
    scope: ConsoleScope,
}

impl<'a> Eyes<'a> {
    fn of(store: &'a FigureStore, said: Option<&'a Said>, scope: ConsoleScope) -> Eyes<'a> {
        Eyes { store, said, scope }
    }

    fn asked(&self, address: &str) -> ConsoleQuestion {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        ConsoleQuestion {
            scope: self.scope.clone(),
            base: "/console/".into(),
            path: path.into(),
            query: query.into(),
            ..ConsoleQuestion::default()
        }
    }

    fn at<T>(&self, ask: impl FnOnce(&ConsoleMoment<'_>) -> T) -> T {
        let live = self.said.map(Said::live);
        ask(&ConsoleMoment {
            now: now(),
            salt: SaltPeriod::Month,
            live: live.as_ref(),
            heard: None,
            outlook: None,
            archive: Some(ArchiveMoment {
                own: "web1",
                machines: &archived::machines(),
                said: None,
            }),
        })
    }

    /// What is answered, where the archive has everything of everybody.
    fn answered(&self, question: &ConsoleQuestion) -> ConsoleAnswer {
        self.at(|moment| {
            let asked = archive_question(question, moment);
            let said = asked.as_ref().map(archived::said);
            let mut moment = moment.clone();
            if let Some(archive) = &mut moment.archive {
                archive.said = asked.as_ref().zip(said.as_ref());
            }
            answer(self.store, question, &moment)
        })
    }

    fn see(&self, address: &str) -> ConsoleAnswer {
        self.answered(&self.asked(address))
    }

    fn changing(&self, address: &str) -> Option<String> {
        self.at(|moment| fragment(&self.asked(address), moment))
    }

    fn json(&self, address: &str) -> Value {
        let answer = self.see(address);
        assert_eq!(
            (answer.status, &*answer.content_type),
            (200, "application/json"),
            "{address}"
        );
        serde_json::from_str(&answer.body).unwrap()
    }
}

/// Every page of a site, and every other.
fn addresses(site: &str) -> Vec<String> {
    let mut all = vec![String::new(), "?sort=errors".into()];
    all.extend(PARTS.map(|part| format!("site/{site}/{part}")));
    all.push(format!("site/{site}/pages?page=/menu"));
    all.push(format!("site/{site}/pages?filter=menu&from=2026-11-27"));
    all.push(format!("site/{site}/visits?from=2025-11-27"));
    all.push(format!("site/{site}/visitors?visitor={VISITOR:x}"));
    all.extend(["history", "history?from=2026-11-27", "history?filter=tea"].map(String::from));
    all.extend(["load", "load?from=2026-11-27", "limits?from=2026-11-26"].map(String::from));
    all.push("limits?from=2026-09-01&list=refused-keys".into());
    let of_archive = ["", "load", "history", "limits", "now"];
    all.extend(of_archive.map(|page| format!("{page}?machine=*&from=2026-11-26")));
    all.extend(["speed", "pages"].map(|part| format!("site/{site}/{part}?machine=*")));
    all.push("load?machine=web2-secret-of-other".into());
    all.extend(LIVE.map(String::from));
    all
}

fn with_language(address: &str, language: &str) -> String {
    let mark = if address.contains('?') { '&' } else { '?' };
    format!("{address}{mark}lang={language}")
}

#[test]
fn what_is_told_is_what_was_recorded() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let eyes = Eyes::of(&store, None, ConsoleScope::All);
    let told = eyes.json("history?format=json&from=2026-11-27");
    assert_eq!(told["rows"], json!([["cpu_pressure", 0.5, 0.25, 0.75]]));
    let told = eyes.json("history?format=json&filter=tenant.tea.");
    assert_eq!(told["rows"][0][0], "tenant.tea.cpu");
    let sites = eyes.json("?format=json");
    assert_eq!(sites["rows"].as_array().unwrap().len(), 2);
    assert_eq!(sites["rows"][0][0], "tea.example");
    let days = eyes.json("site/tea.example/visits?format=json&list=days");
    let rows = days["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &days["from"]), (28, &json!("2026-10-31")));
    let views: i64 = rows.iter().map(|row| row[1].as_i64().unwrap()).sum();
    assert_eq!(sites["rows"][0][1], views);
    let pages = eyes.json("site/tea.example/pages?format=json&filter=MENU");
    let names: Vec<_> = pages["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row[0].clone())
        .collect();
    assert_eq!(names, ["/menu", "/menu/tea", "/menu/coffee"]);
    let csv = eyes.see("site/tea.example/speed?format=csv&list=slowest&rows=all");
    assert!(
        csv.body.starts_with("page,mean time (µs),views\r\n/news,"),
        "{}",
        csv.body
    );
    let page = eyes.see("site/tea.example/pages?page=/menu").body;
    for part in [
        "Came from",
        "Went on to",
        "/menu/coffee",
        "Trails of visitors",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let trail = eyes.json(&format!(
        "site/tea.example/visitors?visitor={:x}&format=json&from=2026-11-27",
        VISITOR + 2
    ));
    let rows = trail["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0][3]), (3, &json!(47)));
}

#[test]
fn load_is_told_by_tenant_and_site_and_refusals_by_limit_and_key() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let said = sample::said(&OWNERS, plainly);
    let all = Eyes::of(&store, Some(&said), ConsoleScope::All);
    let sites = all.json("?format=json");
    let load = all.json("load?format=json");
    assert_eq!(load["list"], "tenants");
    for place in 0..2 {
        assert_eq!(load["rows"][place][1], sites["rows"][place][4]);
    }
    let tea = &load["rows"][0];
    assert_eq!((&tea[0], &tea[5]), (&json!("tea"), &json!(48 * 9)));
    assert_eq!((&tea[6], &tea[9]), (&json!(0.75), &json!(0.75)));
    assert_eq!(load["rows"][1][9], "–");
    let of_sites = all.json("load?format=json&list=sites&filter=other");
    let other = &of_sites["rows"][0];
    assert_eq!(
        [&other[0], &other[1]],
        [&sites["rows"][1][0], &sites["rows"][1][4]]
    );
    for days in ["", "from=2026-11-26", "from=2026-01-01"] {
        let told = all.json(&format!("limits?format=json&list=refused&{days}"));
        let row = json!(["tenant other/tenant", 48, 48, "limit_queue_full 48"]);
        assert_eq!(told["rows"][0], row, "{days}");
    }
    for days in ["", "from=2026-11-26", "from=2026-01-01"] {
        let told = all.json(&format!("limits?format=json&list=refused-keys&{days}"));
        let row = json!(["tenant other/tenant", "/srv/index.php", 48]);
        assert_eq!(told["rows"][0], row, "{days}");
    }
    let page = all.see("limits?from=2026-11-26").body;
    assert!(page.contains("Refused, by the minute") && page.contains("data-events"));
    let unheard = Eyes { said: None, ..all };
    let told = unheard.json("load?format=json");
    assert_eq!([&told["rows"][0][0], &told["rows"][0][1]], ["other", "–"]);
    let mine = Eyes {
        scope: tenants(&OWNERS[..1]),
        ..unheard
    };
    let told = mine.json("load?format=json");
    assert_eq!(told["rows"][0][1], tea[1]);
    let speed = mine.json("site/tea.example/speed?format=json&list=programs");
    assert_eq!(speed["rows"][0][0], "*.cgi");
    let speed = mine.see("site/tea.example/speed").body;
    for part in ["Programs by rule", "/reserve/*", "127.0.0.1:9000"] {
        assert!(speed.contains(part), "{part}: {speed}");
    }
}

#[test]
fn handshakes_and_what_was_kept_from_processors_are_told_over_time() {
    let (_directory, mut store) = sample::store(&SITES, plainly);
    let figures = [
        ("handshakes.full", 40.0),
        ("tenants.throttled", 0.5),
        ("tenant.tea.throttled", 0.5),
        ("tenant.tea.killed", 0.22),
        ("tenant.other.throttled", 0.25),
        ("site.tea.example.throttled", 2.0),
    ];
    let samples = figures.map(|(name, value)| Sample {
        name: name.into(),
        at_s: i64::from(sample::TODAY) * 86_400,
        sums: Sums::of(value),
    });
    store.write_samples(&samples).unwrap();
    let said = sample::said(&OWNERS, plainly);
    let all = Eyes::of(&store, Some(&said), ConsoleScope::All);
    for days in ["from=2026-11-27", "from=2026-11-26", "from=2026-01-01"] {
        let told = all.json(&format!("machine?format=json&list=over-time&{days}"));
        let full = json!(["handshakes.full", 40, 40, 40]);
        let kept = json!(["tenants.throttled", 0.5, 0.5, 0.5]);
        assert_eq!(told["rows"], json!([full, kept]), "{days}");
        let told = all.json(&format!("programs?format=json&list=taken&{days}"));
        let kept = told["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| (&row[0], &row[3]));
        let kept: Vec<_> = kept.collect();
        assert!(kept.contains(&(&json!("tea"), &json!(4.5))), "{told}");
        assert!(kept.contains(&(&json!("other"), &json!(2.25))), "{told}");
        let speed = all.see(&format!("site/tea.example/speed?{days}")).body;
        assert!(
            speed.contains("kept from processors") && speed.contains("18 s"),
            "{speed}"
        );
    }
    let sites = all.json("load?format=json&list=sites");
    let tenants_load = all.json("load?format=json");
    assert_eq!(sites["rows"][0][4], tenants_load["rows"][0][4]);
    assert!(sites["rows"][0][4].as_i64() > Some(0), "{sites}");
    let mine = Eyes {
        scope: tenants(&OWNERS[..1]),
        ..all
    };
    let told = mine.json("programs?format=json&list=taken");
    assert_eq!(told["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn the_page_of_directories_says_how_each_stands_and_what_took_long() {
    let (_directory, store) = sample::store(&SITES[..1], plainly);
    let said = sample::said(&OWNERS, plainly);
    let eyes = Eyes::of(&store, Some(&said), ConsoleScope::All);
    let of = |language: &str| eyes.see(&format!("directories?lang={language}")).body;
    let (english, japanese) = (of("en"), of("ja"));
    for part in [
        "answers",
        "does not answer",
        "99",
        "12,000",
        "connection refused",
        "slow.example",
        "81.0 ms",
    ] {
        assert!(english.contains(part), "{part}: {english}");
    }
    for part in ["応答なし", "即時応答の割合", "slow.example"] {
        assert!(japanese.contains(part), "{part}: {japanese}");
    }
    let told = eyes.json("directories?format=json&list=directory-errors");
    let row = &told["rows"][0];
    assert_eq!([&row[0], &row[1]], ["partners", "connection refused"]);
}

#[test]
fn the_page_of_the_machine_says_how_full_it_is_and_whose_that_is() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let eyes = Eyes::of(&store, None, ConsoleScope::All);
    let told = [
        ("machine", "full on", "and there are 1."),
        ("machine?lang=ja", "上限に達する日", "14 日分が必要です"),
    ];
    for (address, column, answer) in told {
        let page = eyes.see(address).body;
        for part in [column, answer, "cpu_pressure", "tea", "50 %"] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

#[test]
fn a_page_that_changes_goes_on_to_show_what_was_asked_for() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let said = sample::said(&OWNERS, plainly);
    let eyes = Eyes::of(&store, Some(&said), ConsoleScope::All);
    let page = eyes.see("now?filter=tea.e%26x&rows=all").body;
    let events = "events?filter=tea.e%26x&amp;page=now&amp;rows=all&amp;lang=en\"";
    assert!(page.contains(events), "{page}");
    assert!(page.contains("value=\"tea.e&amp;x\""), "{page}");
    let first = eyes.see("events?page=now&lang=en").body;
    let next = eyes.see("events?filter=other&page=now&lang=en").body;
    assert!(first.contains("tea.example") && first.contains("other.example"));
    assert!(
        !next.contains("tea.example") && next.contains("other.example"),
        "{next}"
    );
}

#[test]
fn what_is_uncertain_is_said_on_the_page() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let eyes = Eyes::of(&store, None, ConsoleScope::All);
    let page = eyes.see("site/tea.example/visits?from=2026-10-01").body;
    for told in [
        "sum of 2 months",
        "Today counts until 21:40",
        "figures of 35 of these 58 days",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    let page = eyes
        .see("site/tea.example/visits?from=2020-01-01&to=2020-01-02")
        .body;
    assert!(page.contains("Nothing was recorded"), "{page}");
    let page = eyes.see("now").body;
    assert!(page.contains("The server is not heard"), "{page}");
}

#[test]
fn what_is_not_asked_well_is_refused_in_words() {
    let (_directory, store) = sample::store(&SITES[..1], plainly);
    let eyes = Eyes::of(&store, None, ConsoleScope::All);
    for (address, status) in [
        ("site/tea.example", 404),
        ("site/tea.example/pages/", 404),
        ("site//visits", 404),
        ("events?page=visits", 404),
        ("events", 404),
        ("nothing", 404),
        ("site/tea.example/pages?list=none&format=csv", 404),
        ("site/tea.example/visitors?visitor=1", 404),
        ("site/tea.example/visitors?visitor=x", 400),
        ("site/tea.example/pages?format=xml", 400),
        ("?sort=x", 400),
        ("?from=yesterday", 400),
        ("?from=2026-11-27&to=2026-11-26", 400),
    ] {
        let answer = eyes.see(address);
        let media_type = match address.contains("format=csv") {
            true => "text/plain; charset=utf-8",
            false => "text/html; charset=utf-8",
        };
        assert_eq!(
            (answer.status, &*answer.content_type),
            (status, media_type),
            "{address}"
        );
    }
    let asked = |accept: &str| {
        let question = ConsoleQuestion {
            accept_language: accept.into(),
            ..eyes.asked("")
        };
        eyes.answered(&question).body.contains("lang=\"ja\">")
    };
    assert!(
        asked("ja") && asked("en;q=0.5, ja-JP;q=0.9") && !asked("en, ja;q=0.4") && !asked("fr")
    );
}

/// Names of others in every place of an address.
fn others(address: &str) -> [String; 6] {
    let with = |parameter: &str| {
        let mark = if address.contains('?') { '&' } else { '?' };
        format!("{address}{mark}{parameter}")
    };
    [
        address.replace("tea", "other"),
        with("filter=other.example&tenant=other&site=other.example"),
        with("page=/secret-of-other"),
        with("list=other.example"),
        with("machine=other.example"),
        with("machine=*&filter=other"),
    ]
}

#[test]
fn nobody_sees_what_is_anothers_whatever_is_asked() {
    let name: sample::Naming = |name| match name {
        "/contact" | "/wp-login.php" | "GPTBot" | "JP" => format!("{name}-secret-of-other"),
        name => name.to_owned(),
    };
    let (_directory, store) = sample::store(&["other.example"], name);
    let said = sample::said(&OWNERS[1..], name);
    let mine = sample::said(&OWNERS, plainly);
    let eyes = |said| Eyes::of(&store, said, tenants(&OWNERS[..1]));
    let unknown = ["", "format=csv", "format=json"].map(|format| {
        let unknown = eyes(None).see(&format!("site/nobody.example/visits?{format}"));
        assert_eq!(unknown.status, 404);
        unknown
    });
    for address in addresses("tea.example") {
        for said in [None, Some(&said), Some(&mine)] {
            let asked = [address.clone()].into_iter().chain(others(&address));
            for address in asked.flat_map(|it| {
                ["", "format=csv", "format=json"].map(|format| {
                    let mark = if it.contains('?') { '&' } else { '?' };
                    format!("{it}{mark}{format}")
                })
            }) {
                let answer = eyes(said).see(&address);
                let echoed = address.contains("filter=other")
                    || address.contains("page=/secret")
                    || address.contains("list=other")
                    || address.contains("machine=web2");
                let body = match echoed {
                    // What is only said back is in the form and in links to the same page.
                    true => answer
                        .body
                        .replace("other.example", "")
                        .replace("secret-of-other", ""),
                    false => answer.body.clone(),
                };
                assert!(
                    !body.contains("other.example") && !body.contains("secret-of-other"),
                    "{address}: {body}"
                );
                assert!(!body.contains("tenant other"), "{address}");
                assert!(!body.contains("tenant.other"), "{address}");
                if address.starts_with("site/other") {
                    assert!(unknown.contains(&answer), "{address}");
                }
            }
            let streamed = eyes(said).changing(&address).unwrap_or_default();
            assert!(!streamed.contains("other"), "{address}: {streamed}");
        }
    }
    for page in [
        "machine",
        "back-ends",
        "directories",
        "alerts",
        "events?page=machine",
        "events?page=directories",
    ] {
        assert_eq!(eyes(Some(&mine)).see(page), unknown[0], "{page}");
        assert_eq!(eyes(Some(&mine)).changing(page), None, "{page}");
    }
    let limits = eyes(Some(&mine)).see("limits").body;
    assert!(limits.contains("tenant tea/tenant") && limits.contains("site tea.example/client"));
}

#[test]
fn markup_in_any_name_stays_text() {
    let (_directory, store) = sample::store(&SITES, hostilely);
    let said = sample::said(&OWNERS, hostilely);
    let eyes = Eyes::of(&store, Some(&said), ConsoleScope::All);
    let mark = "%3Cscript%3E%22%3E%3Cimg+src=x%3E%27%1B%00%E2%80%AE";
    for address in addresses("tea.example") {
        let hostile = format!("{mark}&page={mark}&sort={mark}&list={mark}");
        for query in [
            "lang=en".to_owned(),
            format!("filter={mark}"),
            format!("filter={hostile}"),
        ] {
            let joint = if address.contains('?') { '&' } else { '?' };
            let answer = eyes.see(&format!("{address}{joint}{query}"));
            let body = match address.as_str() {
                page if LIVE.contains(&page.split('?').next().unwrap())
                    && answer.status == 200
                    && !page.contains("machine=") =>
                {
                    let (before, after) = answer.body.rsplit_once("<script>").expect("ours");
                    assert!(after.contains("EventSource"));
                    before.to_owned()
                }
                _ => answer.body,
            };
            for never in [
                "<script",
                "<img",
                "\"><img",
                "onerror=alert(1)>",
                "\u{1b}",
                "\0",
                "\u{202e}",
                "\u{2066}",
            ] {
                assert!(
                    !body.contains(never),
                    "{never:?} in {address}{joint}{query}: {body}"
                );
            }
        }
        let streamed = eyes.changing(&address).unwrap_or_default();
        assert!(
            !streamed.contains("<script") && !streamed.contains("<img"),
            "{address}"
        );
    }
}

#[test]
fn no_page_may_load_anything() {
    let (_directory, store) = sample::store(&SITES[..1], plainly);
    let eyes = Eyes::of(&store, None, ConsoleScope::All);
    for address in [
        "",
        "site/tea.example/visits",
        "now",
        "nothing",
        "site/tea.example/pages?format=csv",
    ] {
        let answer = eyes.see(address);
        let field = |name: &str| {
            let found = answer.fields.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let policy = field("Content-Security-Policy");
        assert!(
            policy.starts_with("default-src 'none'; style-src 'sha256-")
                && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(
            policy.contains("script-src 'sha256-"),
            address == "now",
            "{policy}"
        );
        assert!(!answer.body.contains(" style=") && !answer.body.contains(" onclick"));
    }
    assert!(eyes.see("now").body.contains("http-equiv=\"refresh\""));
}

/// A page as it is shown, with its policy inside, which a file has nowhere else.
fn standing_alone(answer: &ConsoleAnswer) -> String {
    let (_, policy) = &answer.fields[0];
    let policy: Vec<&str> = policy
        .split("; ")
        .filter(|it| !it.starts_with("frame-ancestors") && !it.starts_with("script-src"))
        .collect();
    let meta = format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\"><meta name=\"viewport\"",
        policy.join("; ")
    );
    let page = answer.body.replacen("<meta name=\"viewport\"", &meta, 1);
    // What runs is tested where there is a server.
    let script = page.find("<script>").zip(page.find("</script>"));
    script.map_or(page.clone(), |(from, to)| {
        format!("{}{}", &page[..from], &page[to + 9..])
    })
}

fn looked_at(kind: &str, pages: &[(String, String)], colours: Colours) {
    let Some(browser) = chromium::installed() else {
        testkit::lacks("Chromium", "scripts/bootstrap.sh test");
        return;
    };
    if let Some(directory) = std::env::var_os("NAGAYA_SAMPLES") {
        for (address, page) in pages {
            let name = address.replace(['/', '?', '&', '='], "_");
            let file = std::path::Path::new(&directory).join(format!("console-{kind}-{name}.html"));
            std::fs::write(file, page).unwrap();
        }
    }
    let texts: Vec<&str> = pages.iter().map(|(_, page)| page.as_str()).collect();
    let answers = chromium::probed(&browser, &texts, &WIDTHS, colours);
    let shown = pages
        .iter()
        .flat_map(|(address, _)| WIDTHS.map(|width| (address, width)));
    for (said, (address, width)) in answers.iter().zip(shown) {
        assert_eq!(said["complaints"], json!([]), "{address}");
        assert_eq!(said["loaded"], json!([]), "{address}");
        assert_eq!(
            (&said["images"], &said["headings"]),
            (&json!(0), &json!(1)),
            "{address}"
        );
        assert_eq!(said["width"], width, "{address}");
        assert!(
            said["overflow"].as_f64() <= Some(0.0),
            "{address} at {width}: {}",
            said["overflow"]
        );
        assert!(said["contrast"].as_f64() >= Some(CONTRAST_MIN), "{address}");
        for chart in said["charts"].as_array().unwrap() {
            for none in ["outside", "overlapping", "faint"] {
                assert_eq!(chart[none], json!([]), "{none} in {address} at {width}");
            }
        }
    }
}

fn shown_in_a_browser(kind: &str, name: sample::Naming, language: &str, colours: Colours) {
    let (_directory, store) = sample::store(&SITES, name);
    let said = sample::said(&OWNERS, name);
    let eyes = Eyes::of(&store, Some(&said), ConsoleScope::All);
    let mut pages: Vec<(String, String)> = Vec::new();
    for address in addresses("tea.example")
        .into_iter()
        .chain(["nothing".into()])
    {
        let address = with_language(&address, language);
        let answer = eyes.see(&address);
        if answer.content_type.starts_with("text/html") {
            pages.push((address, standing_alone(&answer)));
        }
    }
    let unheard = Eyes { said: None, ..eyes };
    pages.push((
        "unheard".into(),
        standing_alone(&unheard.see(&with_language("now", language))),
    ));
    looked_at(kind, &pages, colours);
}

#[test]
fn pages_are_legible_in_english_on_a_desk_and_a_telephone() {
    shown_in_a_browser("plain", plainly, "en", Colours::Light);
}

#[test]
fn pages_are_legible_in_japanese_and_in_the_dark() {
    shown_in_a_browser("plain", plainly, "ja", Colours::Dark);
}

#[test]
fn the_worst_names_stay_text_and_within_their_pages() {
    shown_in_a_browser("worst", hostilely, "en", Colours::Light);
}
