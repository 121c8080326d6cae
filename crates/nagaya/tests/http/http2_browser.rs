//! A page of many small files in a browser, over HTTP/2 and beside it over HTTP/1.1.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::eventually;

use crate::fixtures::tls::PATIENCE;
use crate::tls::gateway_with;
use crate::tls_clients::{chromium, shown_by};

const FILES: usize = 200;

/// Asks for all files at once, and says how the last came when each is there.
fn page() -> String {
    let script = format!(
        "const files = [...Array({FILES}).keys()].map(it => fetch(`/${{it}}.txt`).then(it => it.text()));\n\
         Promise.all(files).then(all => {{\n\
         const how = performance.getEntriesByType('resource').at(-1).nextHopProtocol;\n\
         document.body.textContent = `${{new Set(all).size}} files over ${{how}}`; }})"
    );
    format!("<!doctype html><body>begun<script>{script}</script>")
}

/// What a browser shows, how many records say this version, and the milliseconds between the first file and the last.
fn loaded(browser: &str, protocols: &str, version: &str) -> (String, usize, i64) {
    let sites = "[log]\naccess = \"{dir}/access.log\"\nformat = \"json\"\n\
                 [[sites]]\nhosts = [\"a.example\"]\nroot = \"{dir}/www\"\n";
    let listen = format!("true\nprotocols = {protocols}");
    let (gateway, to) = gateway_with(&listen, sites, |directory| {
        let www = directory.join("www");
        std::fs::create_dir(&www).expect("a directory");
        std::fs::write(www.join("index.html"), page()).expect("a file");
        for number in 0..FILES {
            let text = format!("{number}").repeat(200);
            std::fs::write(www.join(format!("{number}.txt")), text).expect("a file");
        }
    });
    let shown = shown_by(browser, to, "a.example");
    let file = gateway.directory().path().join("access.log");
    let records: Vec<Value> = eventually(PATIENCE, "a record of each file", || {
        let text = std::fs::read_to_string(&file).ok()?;
        let records = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let records: Vec<Value> = records
            .filter(|it: &Value| it["target"].as_str().is_some_and(|it| it.ends_with(".txt")))
            .collect();
        let targets: BTreeSet<_> = records.iter().map(|it| it["target"].to_string()).collect();
        (targets.len() == FILES).then_some(records)
    });
    let is_so = |it: &&Value| it["version"] == version && it["status"] == 200;
    let same = records.iter().filter(is_so).count();
    let times = records.iter().filter_map(|it| it["time"].as_str());
    let times: Vec<i64> = times.map(milliseconds).collect();
    let (first, last) = (times.iter().min(), times.iter().max());
    (shown, same, last.unwrap_or(&0) - first.unwrap_or(&0))
}

/// Of the hour, as a record's time has them.
fn milliseconds(time: &str) -> i64 {
    let clock = time.split('T').nth(1).unwrap_or_default();
    let number = |part: &str| part.parse::<f64>().unwrap_or(0.0);
    let mut parts = clock.trim_end_matches('Z').split(':').skip(1);
    let (minutes, seconds) = (
        parts.next().map_or(0.0, number),
        parts.next().map_or(0.0, number),
    );
    ((minutes * 60.0 + seconds) * 1_000.0) as i64
}

#[test]
fn a_page_of_two_hundred_small_files_loads_over_either_version() {
    let Some(browser) = chromium() else {
        return;
    };
    for (protocols, version, how) in [
        ("[\"http/1.1\", \"h2\"]", "HTTP/2.0", "h2"),
        ("\"http/1.1\"", "HTTP/1.1", "http/1.1"),
    ] {
        let (shown, records, took) = loaded(browser, protocols, version);
        assert!(
            shown.contains(&format!("{FILES} files over {how}")),
            "{shown}"
        );
        assert!(records >= FILES, "{records} records");
        println!("{version}: {took} ms from the first file to the last");
    }
}
