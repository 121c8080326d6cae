//! A tenant that is kept from processors: its requests wait before its programs, not in them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use os::cgroup::{Controller, Host};
use testkit::{PATIENCE, eventually};

use crate::fixtures::limited::ask;
use crate::fixtures::pools::{Bed, Wish, bed};

/// Takes 20 ms of a processor.
const PAGE: &str = r#"<?php
function taken() { $r = getrusage(); return $r['ru_utime.tv_sec'] * 1e6 + $r['ru_utime.tv_usec'] + $r['ru_stime.tv_sec'] * 1e6 + $r['ru_stime.tv_usec']; }
$begun = taken();
while (taken() - $begun < 20000) { for ($i = 0; $i < 1000; $i++) { $x = sqrt($i); } }
echo 'done';
"#;

const CLIENTS: usize = 12;

/// A number of the limit of the tenant's group.
fn number(bed: &Bed, name: &str) -> Option<u64> {
    let answer = ask(&bed.gateway, "limits list json");
    let (_, row) = answer.split_once("{\"limit\":\"tenant slow/cgroup.cpu\"")?;
    let row = row.split("{\"limit\":").next()?;
    let (_, rest) = row.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next()?.parse().ok()
}

/// A number of a record.
fn field(record: &str, name: &str) -> Option<u64> {
    let (_, rest) = record.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next()?.parse().ok()
}

#[test]
fn a_throttled_tenants_requests_wait_before_its_programs() {
    if let Err(lack) = Host::look().unwrap().place(Controller::Cpu) {
        return testkit::lacks("a controller", format!("cpu: {}", lack.reason()));
    }
    let wish = Wish {
        app: "tenant = \"slow\"",
        pool: ", processes = 12",
        sites: "[tenants.slow]\ncgroup = { cpu = \"20%\" }",
        files: &[("app/index.php", PAGE), ("app/light.txt", "light")],
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    assert_eq!(bed.get("/").text(), "done");
    let text = ask(&bed.gateway, "limits list");
    assert!(text.contains("concurrent -,"), "{text}");
    assert_eq!(number(&bed, "concurrent_now"), None);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    assert_eq!(bed.get("/").text(), "done");
                }
            });
        }
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // How few depends on what else the machine does: a model with a clock holds that.
            eventually(PATIENCE, "fewer pages at a time", || {
                let now = number(&bed, "concurrent_now")?;
                let is_waited = number(&bed, "queued") >= Some(1);
                (now < CLIENTS as u64 && is_waited).then_some(())
            });
            let text = ask(&bed.gateway, "limits list");
            assert!(text.contains(" (now "), "{text}");
            assert_eq!(bed.get("/light.txt").text(), "light", "it is no program's");
        }));
        is_over.store(true, Relaxed);
        seen.unwrap();
    });
    eventually(PATIENCE, "the record of a page that waited", || {
        let records = bed.records(CLIENTS);
        let pages = records.iter().filter(|it| it.contains("index.php"));
        let mut waits = pages.filter_map(|record| field(record, "waited_us"));
        waits.any(|waited_us| waited_us > 0).then_some(())
    });
    eventually(PATIENCE, "everybody is let in again", || {
        number(&bed, "concurrent_now").is_none().then_some(())
    });
    let log = bed.gateway.stderr();
    assert!(log.contains("fewer requests are let in at once"), "{log}");
}
