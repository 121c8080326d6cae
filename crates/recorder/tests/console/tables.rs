//! Tables of what goes on and went wrong: by their causes, whole or cut, with what stands in them.

use serde_json::json;

use super::{ConsoleScope, Eyes, LIVE, OWNERS, SITES, plainly, sample, tenants};

#[test]
fn incidents_stand_by_their_cause_which_leads_to_them_and_others_have_no_name() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let said = sample::said(&OWNERS, plainly);
    let all = Eyes::of(&store, Some(&said), ConsoleScope::All);
    let names = |eyes: &Eyes<'_>, address: &str| {
        let told = eyes.json(address);
        let rows = told["rows"].as_array().unwrap().iter();
        let names = rows.map(|row| row[0].as_str().unwrap().to_owned());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let causes = "limits?format=json&list=causes";
    let both = ["refused by tenant other", "refused by tenant tea"];
    assert_eq!(names(&all, causes), both.map(String::from).into());
    let few = format!("{causes}&filter=tea");
    assert_eq!(
        names(&all, &few),
        ["refused by tenant tea".to_owned()].into()
    );
    let before = format!("{causes}&from=2026-01-01&to=2026-01-02");
    assert_eq!(all.see(&before).status, 404, "there is no list");
    let one = all.see("limits?cause=limit+tenant+tea").body;
    assert!(one.contains("refused by tenant tea") && !one.contains("refused by tenant other"));
    let mine = Eyes {
        scope: tenants(&OWNERS[..1]),
        ..all
    };
    let told = ["refused by (elsewhere)", "refused by tenant tea"];
    assert_eq!(names(&mine, causes), told.map(String::from).into());
    let page = mine.see("limits").body;
    assert!(
        page.contains("/held: 2 holding, 1 waiting; elsewhere: 3"),
        "{page}"
    );
    let requests = "tea.example/slow.php 4.20 s answering; elsewhere: 1";
    assert!(page.contains(requests), "{page}");
    for cause in ["limit+tenant+other", "limit", "nothing+tenant+tea"] {
        let page = mine.see(&format!("limits?cause={cause}"));
        assert_eq!(page.status, 404, "{cause}");
    }
}

#[test]
fn what_tables_of_now_name_leads_to_pages_that_there_are_and_a_filter_finds_it() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let said = sample::said(&OWNERS, plainly);
    for scope in [ConsoleScope::All, tenants(&OWNERS[..1])] {
        let eyes = Eyes::of(&store, Some(&said), scope);
        let mut led = std::collections::BTreeSet::new();
        for page in LIVE {
            let body = eyes.see(page).body;
            for row in body.split("<tbody>").skip(1) {
                let table = row.split("</tbody>").next().unwrap();
                let links = table.split("href=\"/console/").skip(1);
                led.extend(links.map(|it| it.split('"').next().unwrap().replace("&amp;", "&")));
            }
        }
        let wanted = ["site/tea.example/visits", "history?filter=tenant.tea."];
        for wanted in wanted
            .into_iter()
            .chain(["limits?filter=tenant%20tea/tenant"])
        {
            assert!(led.contains(wanted), "{wanted}: {led:?}");
        }
        for address in &led {
            assert_eq!(eyes.see(address).status, 200, "{address}");
        }
    }
    let eyes = Eyes::of(&store, Some(&said), ConsoleScope::All);
    let names = |address: &str| {
        let told = eyes.json(address);
        let rows = told["rows"].as_array().unwrap().iter();
        let names = rows.map(|row| row[0].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let found = names("machine?format=json&list=sensors&filter=CPU_PRES");
    assert_eq!(found, ["cpu_pressure"]);
    for page in LIVE {
        assert!(eyes.see(page).body.contains("name=\"filter\""), "{page}");
    }
}

#[test]
fn a_table_that_is_cut_says_so_and_whole_it_is_had_too() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let mut said = sample::said(&OWNERS, plainly);
    let one = said.now.tenants[0].clone();
    said.now.tenants.resize(150, one);
    let eyes = Eyes::of(&store, Some(&said), ConsoleScope::All);
    assert!(eyes.see("now").body.contains("100 of 150."));
    assert!(!eyes.see("now?rows=all").body.contains("of 150."));
    let told = eyes.json("now?format=json&list=tenants");
    assert_eq!(told["rows"].as_array().unwrap().len(), 150);
}

#[test]
fn all_rules_of_alerts_are_listed_with_their_values_and_bounds() {
    let (_directory, store) = sample::store(&SITES, plainly);
    let mut said = sample::said(&OWNERS, plainly);
    let mut calm = said.alerts[0].clone();
    calm.rule.name = "calm".into();
    (calm.state, calm.value) = (recorder::AlertState::Calm, None);
    said.alerts.push(calm);
    let eyes = Eyes::of(&store, Some(&said), ConsoleScope::All);
    let told = eyes.json("alerts?format=json&list=alerts");
    let rows = told["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!([&rows[0][1], &rows[0][3]], [&json!("raised"), &json!(0.91)]);
    assert_eq!([&rows[1][0], &rows[1][1]], ["calm", "calm"]);
    assert_eq!(rows[1][5], rows[0][5]);
}
