//! What the recorder's end of a ring hears of requests.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use ipc::ring::{CURSOR_WORDS, RING_WORDS, RingKeys, RingReader, RingRecord};

use super::*;
use crate::fixture::{Fixture, peer};
use crate::generation::Generation;

const SITES: &str = r#"
[[listen]]
address = "127.0.0.1:8080"
[recorder]
directory = "/var/lib/figures"
exclude = ["198.51.100.0/24"]
exclude_cookie = "not-me"
do_not_track = true
[[sites]]
hosts = ["a.example"]
  [[sites.rules]]
  match = { path = "/figures/*" }
  allow = ["127.0.0.1"]
  handler = { console = { tenants = ["a.example"] } }
  [[sites.rules]]
  name = "all"
  handler = { respond = { status = 200, body = "hello" } }
[[sites]]
hosts = ["b.example"]
record = false
  [[sites.rules]]
  handler = { respond = { status = 200, body = "hello" } }
"#;

/// A worker, and the recorder's end of its ring.
struct Heard {
    fixture: Fixture,
    reader: RingReader,
    texts: HashMap<u64, String>,
}

impl Heard {
    fn new() -> Heard {
        Heard::with(SITES)
    }

    fn with(config: &str) -> Heard {
        let ring = os::shared::memory("ring", RING_WORDS).expect("memory");
        let page = os::shared::memory("cursor", CURSOR_WORDS).expect("memory");
        let writer = RingWriter::new(ring.0.as_fd(), page.1.as_fd()).expect("a writer");
        let fixture = Fixture::new(config);
        fixture.worker.recording.use_ring(writer);
        Heard {
            fixture,
            reader: RingReader::new(ring.1.as_fd(), page.0.as_fd()).expect("a reader"),
            texts: HashMap::new(),
        }
    }

    fn begun() -> Heard {
        Heard::new().tell_anew()
    }

    fn tell_anew(self) -> Heard {
        self.reader.tell_anew(&RingKeys {
            names: [1, 2],
            salt: [3, 4],
        });
        self
    }

    fn ask(&mut self, address: &str, request: &str) -> Vec<RingRecord> {
        self.fixture.ask_from(peer(address), request);
        let mut records = Vec::new();
        let texts = &mut self.texts;
        let told = |hash, bytes: &[u8]| (hash, String::from_utf8_lossy(bytes).into_owned());
        self.reader.read(
            |text| texts.extend([told(text.hash, text.bytes)]),
            |record| records.push(*record),
        );
        records
    }

    fn one(&mut self, lines: &str) -> RingRecord {
        let request = format!("{lines}\r\nHost: a.example\r\n\r\n");
        let records = self.ask("192.0.2.7:4000", &request);
        assert_eq!(records.len(), 1, "{request}");
        records[0]
    }

    fn text(&self, hash: u64) -> &str {
        self.texts.get(&hash).map_or("", String::as_str)
    }
}

#[test]
fn who_looks_at_the_console_makes_no_figures_of_its_site() {
    let mut heard = Heard::begun();
    let look = "GET /figures/ HTTP/1.1\r\nHost: a.example\r\n\r\n";
    for address in ["127.0.0.1:4000", "192.0.2.7:4000"] {
        assert!(heard.ask(address, look).is_empty(), "{address}");
    }
    let excluded = &heard.fixture.worker.stats.recording.excluded;
    assert_eq!(excluded.load(Relaxed), 2);
    heard.one("GET /figures HTTP/1.1");
}

#[test]
fn a_request_is_told_without_address_and_query() {
    let mut heard = Heard::begun();
    let record = heard.one(
        "GET /a?q=Tea+cup&secret=1&utm_source=news HTTP/1.1\r\nUser-Agent: Browser\r\n\
         Referer: https://b.example/c?token=2",
    );
    let names = [
        record.site,
        record.path,
        record.referrer,
        record.agent,
        record.campaign,
    ];
    assert_eq!(
        names.map(|hash| heard.text(hash)),
        [
            "a.example",
            "/a",
            "https://b.example/c",
            "Browser",
            "news / - / -"
        ]
    );
    assert_eq!(
        (heard.text(record.search), heard.text(record.rule)),
        ("tea cup", "all")
    );
    assert_eq!(
        (record.status, record.bytes_out, record.stands_for),
        (200, 5, 1)
    );
    assert!(record.is_look && record.at_us > 1_600_000_000_000_000);
    assert!(record.total_us < UNKNOWN_US && record.upstream_us == UNKNOWN_US);
    let told: String = heard.texts.values().cloned().collect();
    for kept_back in ["192.0.2.7", "secret", "token", "?"] {
        assert!(!told.contains(kept_back), "{told}");
    }
}

#[test]
fn a_visitor_is_the_same_on_one_site_with_one_agent_and_another_elsewhere() {
    let mut heard = Heard::begun();
    let first = heard.one("GET / HTTP/1.1\r\nUser-Agent: Browser").visitor;
    assert_eq!(
        heard.one("GET /b HTTP/1.1\r\nUser-Agent: Browser").visitor,
        first
    );
    assert_ne!(
        heard.one("GET / HTTP/1.1\r\nUser-Agent: Other").visitor,
        first
    );
    let request = "GET / HTTP/1.1\r\nUser-Agent: Browser\r\nHost: a.example\r\n\r\n";
    assert_ne!(heard.ask("192.0.2.8:4000", request)[0].visitor, first);
}

#[test]
fn what_is_not_looked_at_is_told_as_such() {
    let mut heard = Heard::begun();
    for (lines, is_look) in [
        ("GET / HTTP/1.1", true),
        ("HEAD / HTTP/1.1", false),
        ("POST / HTTP/1.1\r\nContent-Length: 0", false),
        ("GET / HTTP/1.1\r\nSec-Purpose: prefetch;prerender", false),
        ("GET / HTTP/1.1\r\nPurpose: prefetch", false),
    ] {
        assert_eq!(heard.one(lines).is_look, is_look, "{lines}");
    }
}

#[test]
fn nothing_is_told_of_the_operators_own_of_who_refuses_and_of_sites_without_a_record() {
    let mut heard = Heard::begun();
    let with = |field: &str| format!("GET / HTTP/1.1\r\nHost: a.example\r\n{field}\r\n\r\n");
    for (address, request) in [
        ("198.51.100.9:1", with("X-A: b")),
        ("192.0.2.7:1", with("Cookie: a=b; not-me=1")),
        ("192.0.2.7:1", with("Cookie: not-me")),
        ("192.0.2.7:1", with("DNT: 1")),
        ("192.0.2.7:1", with("Sec-GPC: 1")),
    ] {
        assert_eq!(heard.ask(address, &request), [], "{request}");
    }
    let other = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";
    assert_eq!(heard.ask("192.0.2.7:1", other), []);
    assert_eq!(
        heard
            .ask("192.0.2.7:1", &with("Cookie: not-me-too=1"))
            .len(),
        1
    );
    assert_eq!(
        heard.fixture.worker.stats.recording.excluded.load(Relaxed),
        5
    );
    assert_eq!(heard.fixture.worker.stats.recording.told.load(Relaxed), 1);
}

#[test]
fn without_a_reader_or_room_requests_go_on_and_are_counted() {
    let mut heard = Heard::new();
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(heard.ask("192.0.2.7:1", request), []);
    heard.reader.tell_anew(&RingKeys::default());
    for _ in 0..ipc::ring::RECORDS_MAX + 3 {
        heard.fixture.ask(request);
    }
    let stats = &heard.fixture.worker.stats.recording;
    assert_eq!(
        (stats.unread.load(Relaxed), stats.full.load(Relaxed)),
        (1, 3)
    );
    heard.fixture.worker.recording.tick(stats);
    assert_eq!(stats.untold.load(Relaxed), 0);
}

#[test]
fn the_country_of_a_client_is_told_where_a_file_says_it() {
    let directory = testkit::TempDir::new();
    let file = directory.path().join("countries.mmdb");
    let with = format!("do_not_track = true\ncountries = \"{}\"", file.display());
    let config = SITES.replace("do_not_track = true", &with);
    let network = ([192, 0, 2, 0], 24, "JP");
    let bytes = testkit::countries::country_file(&[network]);
    for (bytes, country) in [(&bytes[..], *b"JP"), (b"<html>", [0; 2])] {
        std::fs::write(&file, bytes).expect("written");
        let mut heard = Heard::with(&config).tell_anew();
        assert_eq!(heard.one("GET /x HTTP/1.1").country, country);
        let elsewhere = heard.ask(
            "203.0.113.7:4000",
            "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        );
        assert_eq!(elsewhere[0].country, [0; 2]);
    }
}

#[test]
fn a_file_of_countries_that_is_half_written_leaves_the_one_before_in_use() {
    let directory = testkit::TempDir::new();
    let file = directory.path().join("countries.mmdb");
    let with = format!("do_not_track = true\ncountries = \"{}\"", file.display());
    let config = SITES.replace("do_not_track = true", &with);
    let networks = [([192, 0, 2, 0], 24, "JP"), ([203, 0, 113, 0], 24, "FR")];
    let bytes = testkit::countries::country_file(&networks[..1]);
    let next = |bytes: &[u8], before: Option<&Generation>| {
        std::fs::write(&file, bytes).expect("written");
        let sources = config::Sources::from_text("nagaya.toml", &config);
        let model = config::load(&sources).expect("a model");
        Generation::compile(1, &model, before).expect("a generation")
    };
    let countries = |it: &Generation| it.process.countries.as_ref().map(std::sync::Arc::as_ptr);
    let first = next(&bytes, None);
    let second = next(&bytes[..bytes.len() / 4], Some(&first));
    assert!(countries(&first).is_some());
    assert_eq!(countries(&second), countries(&first));
    let larger = testkit::countries::country_file(&networks);
    let third = next(&larger, Some(&second));
    assert!(countries(&third).is_some_and(|it| Some(it) != countries(&first)));
}
