//! Figures of other machines on the console: which pages have them, who sees them, and what is said without them.

use ipc::archive::question::{
    ArchiveCut, ArchiveFound, ArchiveQuestion, ArchiveRead, ArchivedMachine,
};
use ipc::archive::{ArchivedIncident, ArchivedSample, ArchivedSite, SITE_NUMBERS};
use ipc::console::{ConsoleAnswer, ConsoleScope, TenantSites};
use ipc::limit_figures::LimitCount;
use recorder::{ArchiveMoment, ConsoleMoment, Durations, answer, archive_question};
use serde_json::{Value, json};

use super::sample::{self, plainly};
use super::{Eyes, LIVE, OWNERS, PARTS, SITES, tenants};

const HOSTILE: &str = "<script>alert(1)</script>\"><img src=x>'\u{1b}\u{202e}";

/// How the archive answers.
type Saying = fn(&ArchiveQuestion) -> ArchiveRead;

/// The machines that ever sent.
pub(crate) fn machines() -> Vec<ArchivedMachine> {
    let machines = ["web1-secret-of-other", "web2-secret-of-other", HOSTILE];
    let machine = |name: &str| ArchivedMachine {
        name: name.into(),
        heard_s: i64::MAX,
    };
    machines.map(machine).into()
}

/// Everything of everybody, whatever is asked: the other end may be broken, too.
pub(crate) fn said(question: &ArchiveQuestion) -> ArchiveRead {
    let limit = LimitCount::Refused("full").name("tenant other/tenant");
    let names = [
        "cpu_pressure",
        "tenant.tea.cpu",
        "tenant.other.cpu",
        &*limit,
    ];
    let numbers = [
        [8; SITE_NUMBERS],
        [i64::MIN; SITE_NUMBERS],
        [i64::MAX; SITE_NUMBERS],
    ];
    let mut durations = Durations::default();
    durations.add(2_000, 8);
    let durations = postcard::to_stdvec(&durations).unwrap();
    let durations = [&u32::to_be_bytes(durations.len() as u32), &*durations].concat();
    let parts = question
        .sites
        .as_ref()
        .map_or(0, |it| it.edges.len() as i64 - 1);
    let sites = SITES.iter().flat_map(|site| {
        [0, parts - 1, parts + 7]
            .into_iter()
            .zip(numbers)
            .map(|(part, numbers)| ArchivedSite {
                site: (*site).into(),
                at_s: part,
                numbers,
                durations: [&*durations, &*durations, &[0, 0, 0, 9, 0xff]].concat(),
            })
    });
    let sample = |name: &str| ArchivedSample {
        name: name.into(),
        at_s: question.from_s,
        sums: [2.0, 5.0, 1.0, 4.0],
    };
    let mut samples: Vec<_> = names.into_iter().map(sample).collect();
    for wrong in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        samples.push(ArchivedSample {
            sums: [wrong; 4],
            ..sample("cpu_pressure")
        });
    }
    ArchiveRead::Found(Box::new(ArchiveFound {
        own: "web1-secret-of-other".into(),
        machines: machines(),
        names: names.map(str::to_owned).into(),
        samples,
        sites: sites.collect(),
        incidents: incidents(question.from_s),
        cut: ArchiveCut::default(),
    }))
}

/// What went wrong, and what is none of it.
fn incidents(at_s: i64) -> Vec<(String, ArchivedIncident)> {
    let owners = OWNERS.map(|(tenant, site)| (tenant.to_owned(), site.to_owned()));
    let of = |tenant: &str| sample::incident(tenant, &owners, plainly);
    let sound = ["other", "tea"].map(|it| (at_s, serde_json::to_string(&of(it)).unwrap()));
    let wrong = [(i64::MAX, "{}".into()), (at_s, "[".repeat(9_000))];
    let incidents = sound.into_iter().chain(wrong).map(|(at_s, content)| {
        let incident = ArchivedIncident {
            at_s,
            kind: 0,
            what: "x".into(),
            times: i64::MAX,
            content,
            owners: Vec::new(),
        };
        ("web2-secret-of-other".to_owned(), incident)
    });
    incidents.collect()
}

/// What these eyes see where the archive says this.
fn seen(eyes: &Eyes<'_>, address: &str, said: Saying) -> ConsoleAnswer {
    let question = eyes.asked(address);
    eyes.at(|moment| {
        let asked = archive_question(&question, moment);
        let said = asked.as_ref().map(said);
        let machines = machines();
        let archive = ArchiveMoment {
            own: "web1-secret-of-other",
            machines: &machines,
            said: asked.as_ref().zip(said.as_ref()),
        };
        let moment = ConsoleMoment {
            archive: Some(archive),
            ..moment.clone()
        };
        answer(eyes.store, &question, &moment)
    })
}

fn rows(answer: &ConsoleAnswer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(told["machine"], "web2-secret-of-other");
    told["rows"].clone()
}

#[test]
fn pages_of_what_is_sent_show_what_another_machine_sent_and_nothing_of_this_one() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let data = sample::said(&OWNERS, plainly);
    let eyes = Eyes::of(&store, Some(&data), ConsoleScope::All);
    let list = |address: &str| {
        let mark = if address.contains('?') { '&' } else { '?' };
        let address = format!("{address}{mark}format=json&machine=web2-secret-of-other");
        rows(&seen(&eyes, &address, said))
    };
    let days = "from=2026-11-26";
    let row = json!(["cpu_pressure", 2.5, 1, 4]);
    assert_eq!(list(&format!("history?{days}")), json!([row]));
    let sites = list(&format!("?{days}"));
    // Views, visits, requests and errors; of the last day the least there is of a number.
    assert_eq!(sites[0].as_array().unwrap().len(), 6);
    for (place, expected) in [(1, 8), (2, 8), (3, 8), (4, 8)] {
        assert_eq!(sites[0][place], expected, "{sites}");
    }
    let p95 = sites[0][5].as_f64().unwrap();
    assert!((p95 - 2_000.0).abs() < 40.0, "{sites}");
    let load = list(&format!("load?{days}&list=tenants"));
    assert_eq!(
        (&load[0][1], &load[0][5]),
        (&json!(8), &json!(45)),
        "{load}"
    );
    let speed = list(&format!("site/tea.example/speed?{days}"));
    assert_eq!(
        (&speed[0][0], &speed[0][1]),
        (&json!("2026-11-26"), &json!(8))
    );
    let incidents = list(&format!("limits?{days}&list=incidents"));
    assert_eq!(incidents.as_array().unwrap().len(), 2, "{incidents}");
    assert_eq!(incidents[0][1], "web2-secret-of-other");
    let refused = list(&format!("limits?{days}&list=refused"));
    assert_eq!(refused, json!([["tenant other/tenant", 0, 5, "full 5"]]));
    let page = seen(&eyes, &format!("load?{days}&machine=*"), said).body;
    for part in [
        "all machines · 2026-11-26",
        "<option value=\"*\" selected>",
        "this machine (web1-secret-of-other)",
        "web2-secret-of-other, heard 2026-11-27",
        "As it was sent",
        "from=2026-11-26&amp;machine=%2A",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn what_is_never_sent_is_said_to_be_each_machines_own() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let data = sample::said(&OWNERS, plainly);
    let eyes = Eyes::of(&store, Some(&data), ConsoleScope::All);
    let parts = PARTS.iter().filter(|it| **it != "speed");
    let parts = parts.map(|part| format!("site/tea.example/{part}"));
    let live = LIVE
        .iter()
        .filter(|it| **it != "limits")
        .map(|it| (*it).to_owned());
    for page in parts.chain(live) {
        let answer = seen(&eyes, &format!("{page}?machine=web2-secret-of-other"), said);
        assert_eq!(answer.status, 200, "{page}");
        assert!(answer.body.contains("kept by each machine alone"), "{page}");
        assert!(
            answer.body.contains(&format!("href=\"/console/{page}\"")),
            "{page}: {}",
            answer.body
        );
        for own in ["<table", "<dl", "data-events"] {
            assert!(
                !answer.body.contains(own),
                "{own} of {page}: {}",
                answer.body
            );
        }
        let list = seen(&eyes, &format!("{page}?machine=*&format=csv"), said);
        assert_eq!(list.status, 404, "{page}");
        assert!(
            list.body.starts_with("This is kept by each machine alone"),
            "{page}: {}",
            list.body
        );
    }
    let events = seen(&eyes, "events?page=now&machine=*", said);
    assert_eq!(events.status, 404);
}

#[test]
fn an_archive_that_says_nothing_costs_its_own_pages_alone() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let eyes = |scope| Eyes::of(&store, None, scope);
    let down = |_: &ArchiveQuestion| ArchiveRead::Down("connection refused at <10.0.0.5>".into());
    let cases: [(Saying, &str); 3] = [
        (down, "cannot be read"),
        (|_| ArchiveRead::Late, "takes too long"),
        (|_| ArchiveRead::TooMuch, "more than one page may have"),
    ];
    for (said, words) in cases {
        for page in ["", "history", "load", "limits", "site/tea.example/speed"] {
            for (query, media_type) in [
                ("machine=*", "text/html; charset=utf-8"),
                ("machine=*&format=csv", "text/plain; charset=utf-8"),
                ("machine=*&format=json", "application/json"),
            ] {
                let answer = seen(&eyes(ConsoleScope::All), &format!("{page}?{query}"), said);
                let told = (answer.status, &*answer.content_type);
                assert_eq!(told, (503, media_type), "{page}");
                assert!(answer.body.contains(words), "{page}: {}", answer.body);
            }
            assert_eq!(
                seen(&eyes(ConsoleScope::All), page, said).status,
                200,
                "{page}"
            );
        }
    }
    let told = seen(&eyes(ConsoleScope::All), "load?machine=*", down).body;
    assert!(
        told.contains("connection refused at &lt;10.0.0.5&gt;"),
        "{told}"
    );
    let told = seen(&eyes(tenants(&OWNERS[..1])), "load?machine=*", down).body;
    assert!(!told.contains("refused"), "{told}");
    // Where nothing is sent there is no choice, and no such page.
    let without = eyes(ConsoleScope::All);
    let see = |address: &str| {
        without.at(|moment| {
            let moment = ConsoleMoment {
                archive: None,
                ..moment.clone()
            };
            answer(&store, &without.asked(address), &moment)
        })
    };
    assert_eq!(see("load?machine=*").status, 404);
    assert_eq!(see("now?machine=*").status, 404);
    assert!(!see("load").body.contains("<select"));
}

#[test]
fn a_tenant_has_all_machines_together_and_no_machines_name() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let eyes = Eyes::of(&store, None, tenants(&OWNERS[..1]));
    let unknown = seen(&eyes, "site/nobody.example/speed", said);
    for page in [
        "",
        "history",
        "load",
        "limits",
        "now",
        "site/tea.example/speed",
    ] {
        for name in ["web2-secret-of-other", "none"] {
            let answer = seen(&eyes, &format!("{page}?machine={name}"), said);
            assert_eq!(answer, unknown, "{page}");
        }
        let all = seen(&eyes, &format!("{page}?machine=*"), said);
        assert_eq!(all.status, 200, "{page}");
        assert!(
            all.body
                .contains("<option value=\"*\" selected>all machines"),
            "{page}"
        );
        assert!(
            !all.body.contains("secret-of-other"),
            "{page}: {}",
            all.body
        );
    }
    let operator = Eyes {
        scope: ConsoleScope::All,
        ..eyes
    };
    for (page, media_type) in [
        ("load?machine=none", "text/html; charset=utf-8"),
        ("load?machine=none&format=csv", "text/plain; charset=utf-8"),
        ("load?machine=none&format=json", "application/json"),
    ] {
        let none = seen(&operator, page, said);
        assert_eq!((none.status, &*none.content_type), (404, media_type));
        for part in ["no machine of this name", "web2-secret-of-other"] {
            assert!(none.body.contains(part), "{part}: {}", none.body);
        }
    }
}

#[test]
fn what_is_missing_is_told_on_pages_and_in_lists() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let eyes = Eyes {
        store: &store,
        said: None,
        scope: ConsoleScope::All,
    };
    let cut: Saying = |question| {
        let mut said = said(question);
        if let ArchiveRead::Found(found) = &mut said {
            found.cut = ArchiveCut {
                names: true,
                samples: true,
                sites: true,
                durations: true,
                incidents: true,
            };
        }
        said
    };
    for page in ["", "load", "history", "limits"] {
        let told = seen(&eyes, &format!("{page}?machine=*"), cut).body;
        let csv = seen(&eyes, &format!("{page}?machine=*&format=csv"), cut).body;
        let json = seen(&eyes, &format!("{page}?machine=*&format=json"), cut).body;
        let json: Value = serde_json::from_str(&json).unwrap();
        let missing = json["missing"].as_array().unwrap();
        assert_eq!(missing.len(), 5, "{json}");
        for it in missing {
            let it = it.as_str().unwrap();
            assert!(
                told.contains(it) && csv.contains(&format!("# {it}")),
                "{it}: {csv}"
            );
        }
        let whole = seen(&eyes, &format!("{page}?machine=*&format=csv"), said).body;
        assert!(!whole.contains('#'), "{whole}");
    }
}

#[test]
fn of_another_machine_only_tenants_are_listed_that_were_there() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let data = sample::said(&OWNERS, plainly);
    let eyes = Eyes {
        store: &store,
        said: Some(&data),
        scope: ConsoleScope::All,
    };
    let of_tea: Saying = |question| {
        let mut said = said(question);
        if let ArchiveRead::Found(found) = &mut said {
            found.samples.clear();
            found.sites.retain(|it| it.site == "tea.example");
        }
        said
    };
    let list = "load?machine=web2-secret-of-other&from=2026-11-26&format=json&list=tenants";
    let listed = rows(&seen(&eyes, list, of_tea));
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|it| &it[0]).collect();
    assert_eq!(names, ["tea"]);
}

#[test]
fn what_is_asked_is_what_concerns_who_looks() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let asked = |scope: &ConsoleScope, address: &str| {
        let eyes = Eyes {
            store: &store,
            said: None,
            scope: scope.clone(),
        };
        let question = eyes.asked(address);
        eyes.at(|moment| archive_question(&question, moment))
            .unwrap()
    };
    let few = tenants(&OWNERS[..1]);
    let limits = asked(
        &few,
        "limits?machine=*&cause=limit+tenant+tea/few&filter=few",
    );
    let incidents = limits.incidents.unwrap();
    let owners = incidents.owners.unwrap();
    assert_eq!(owners, ["site tea.example", "tenant tea"]);
    assert_eq!(incidents.what.as_deref(), Some("tenant tea/few"));
    assert_eq!(incidents.filter, "few");
    let of = |question: ArchiveQuestion| question.samples.unwrap().of;
    let of_limits = [
        "limit.site tea.example",
        "limit.rule tea.example",
        "limit.tenant tea",
    ];
    let samples = limits.samples.unwrap();
    assert_eq!(samples.of.unwrap(), of_limits);
    let day = asked(&few, "limits?machine=*&from=2026-11-26&to=2026-11-26");
    assert_eq!(day.samples.unwrap().step_s, 3_600);
    for page in ["load", "history"] {
        let all = asked(&ConsoleScope::All, &format!("{page}?machine=*"));
        assert_eq!(of(all), None);
        let own = of(asked(&few, &format!("{page}?machine=*")));
        assert_eq!(own.unwrap(), ["tenant.tea"]);
        let nobodys = asked(&ConsoleScope::default(), &format!("{page}?machine=*"));
        assert_eq!(of(nobodys).unwrap(), [""; 0]);
    }
    // As many sites as may ask for a page.
    let sites = (0..20_000).map(|it| format!("{it}.example")).collect();
    let tenant = "tea".to_owned();
    let many = ConsoleScope::Tenants(vec![TenantSites { tenant, sites }]);
    for page in ["", "load", "history", "limits"] {
        assert!(
            asked(&many, &format!("{page}?machine=*")).is_bounded(),
            "{page}"
        );
    }
}
