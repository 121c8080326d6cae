//! What tenants of rows see: the server counts their hosts as no sites, and keeps their limits by plan and directory.

use control::Key;
use ipc::console::{ConsoleScope, Incident, TenantSites};
use ipc::limit_figures::LimitCount;
use recorder::{KeptIncident, Sample, Sums};
use serde_json::Value;

use super::sample::{self, TODAY, plainly};
use super::{Eyes, OWNERS, SITES, tenants};

const PLAN: &str = "plan small/pages";
const SITE: &str = "site directory:d/path";

/// A column of a list.
fn column(eyes: &Eyes<'_>, address: &str, place: usize) -> Vec<String> {
    let told = eyes.json(address);
    let rows = told["rows"].as_array().unwrap().iter();
    let cell = |row: &Value| row[place].as_str().unwrap_or_default().to_owned();
    rows.map(cell).collect()
}

#[test]
fn a_tenant_of_rows_sees_its_own_figures_keys_and_incidents() {
    let (_directory, mut store) = sample::store(&SITES[..1], plainly);
    let mut said = sample::said(&OWNERS, plainly);
    said.now.status.sites.clear();
    let like = said.now.keys[0].clone();
    let keys = [
        (PLAN, "tea"),
        (PLAN, "other /tea"),
        (SITE, "tea.example /x"),
        (SITE, "other.example /tea.example"),
    ];
    let key = |(limit, key): (&str, &str)| Key {
        limit: limit.into(),
        key: key.into(),
        ..like.clone()
    };
    said.now.keys = keys.map(key).into();
    let at_s = i64::from(TODAY) * 86_400 + 60;
    let refused = keys.map(|(limit, key)| Sample {
        name: LimitCount::Key(key).name(limit).into(),
        at_s,
        sums: Sums::of(7.0),
    });
    store.write_samples(&refused).unwrap();
    for tenant in ["tea", "other"] {
        let incident = Incident {
            at_s,
            what: format!("{PLAN}\t{tenant}"),
            times: 1,
            ..Incident::default()
        };
        let sensors = Vec::new();
        store
            .write_incidents(&[KeptIncident {
                incident,
                sensors,
                machine: String::new(),
            }])
            .unwrap();
    }
    let eyes = Eyes::of(&store, Some(&said), tenants(&OWNERS[..1]));
    let now = eyes.see("now").body;
    let (_, fact) = now.split_once("requests a second").unwrap();
    assert!(fact[..80].contains("41"), "{}", &fact[..80]);
    assert_eq!(eyes.see("now?format=json&list=sites").status, 404);
    let own = ["tea", "tea.example /x"];
    assert_eq!(column(&eyes, "limits?format=json&list=keys", 1), own);
    let today = "limits?format=json&from=2026-11-27&rows=all";
    let refused = column(&eyes, &format!("{today}&list=refused-keys"), 1);
    assert!(own.iter().all(|it| refused.contains(&(*it).to_owned())));
    assert!(!refused.iter().any(|it| it.starts_with("other")));
    let causes = column(&eyes, &format!("{today}&list=causes"), 0);
    let is_told = |cause: &str| causes.iter().any(|it| it == cause);
    assert!(is_told("refused by plan small/pages tea"), "{causes:?}");
    assert!(!causes.iter().any(|it| it.ends_with("pages other")));
    let operator = Eyes {
        scope: ConsoleScope::All,
        ..eyes
    };
    assert_eq!(
        column(&operator, "limits?format=json&list=keys", 1).len(),
        4
    );
}

#[test]
fn a_host_of_rows_leads_to_its_pages_where_it_is_known_whose_it_is() {
    let (_directory, store) = sample::store(&SITES[..1], plainly);
    for (host, is_linked) in [("slow.example", true), ("other.example", false)] {
        let mut said = sample::said(&OWNERS[..1], plainly);
        said.owners = vec![TenantSites {
            tenant: "tea".into(),
            sites: vec![host.into()],
        }];
        let eyes = Eyes::of(&store, Some(&said), ConsoleScope::All);
        let page = eyes.see("directories").body;
        let is_found = page.contains("/console/site/slow.example/visits");
        assert_eq!(is_found, is_linked, "{page}");
    }
}
