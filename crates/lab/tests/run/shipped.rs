//! The experiments that ship, run with a handful of requests: everything starts, the variants answer
//! alike, nothing fails, and a report is left. What the figures say is for `make lab`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use testkit::temp::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs an experiment in short, and returns the lines of its data.
fn run(name: &str, more: &[&str]) -> Vec<String> {
    let directory = TempDir::new();
    let output = directory.path().to_str().unwrap();
    let ran = super::nagaya_lab()
        .current_dir(root())
        .args(["run", name, "--blocks", "1", "--output", output])
        .args(more)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{name}: {said}");
    let results = directory.path().join(name);
    for report in ["report.html", "report.md"] {
        assert!(
            results.join(report).metadata().unwrap().len() > 0,
            "{report}"
        );
    }
    let data = std::fs::read_to_string(results.join("data.jsonl")).unwrap();
    data.lines().map(str::to_owned).collect()
}

/// Rows of the experiment's file, as they are named there.
fn rows(name: &str) -> Vec<String> {
    let lab = root().join("lab");
    let file = [format!("{name}.toml"), format!("{name}/experiment.toml")]
        .map(|file| lab.join(file))
        .into_iter()
        .find(|file| file.exists());
    let text = std::fs::read_to_string(file.unwrap()).unwrap();
    let rows = text.split("[[rows]]").skip(1);
    let named = |row: &str| {
        row.lines()
            .find_map(|line| line.strip_prefix("name = ").map(str::to_owned))
    };
    rows.filter_map(named).collect()
}

fn check(name: &str) {
    let data = run(name, &["--requests", "20"]);
    let rows = rows(name);
    assert!(rows.len() > 1, "{name}: {rows:?}");
    for row in &rows {
        let slices = data.iter().filter(|line| {
            line.contains("\"kind\":\"slice\"") && line.contains(&format!("\"row\":{row}"))
        });
        let slices: Vec<&String> = slices.collect();
        let ours = "\"variant\":\"nagaya";
        assert!(
            slices.iter().any(|line| line.contains(ours)),
            "{name}: no slice of ours in {row}"
        );
        for slice in slices {
            assert!(slice.contains("\"failed\":0.0"), "{name}: {slice}");
        }
    }
}

#[test]
fn a_page_as_a_file_out_of_php_and_counted() {
    check("static-and-php");
}

#[test]
fn requests_that_are_recorded() {
    check("recorder");
}

#[test]
fn a_page_that_is_compressed() {
    check("compression");
}

#[test]
fn full_and_resumed_handshakes() {
    check("tls-handshakes");
}

#[test]
fn kept_connections_over_tls() {
    check("tls-kept");
}

#[test]
fn redirects_and_fields_in_php_and_in_the_configuration() {
    check("php-or-config");
}

#[test]
fn redirects_while_the_load_is_high() {
    let rows = [
        "nothing",
        "a program that does nothing",
        "the rule's verdict",
    ];
    let only: Vec<&str> = rows.iter().flat_map(|row| ["--only", row]).collect();
    let data = run(
        "load-redirect",
        &[&["--requests", "20"], &only[..]].concat(),
    );
    let verdict = |variant: &str| {
        let variant = format!("\"variant\":\"{variant}\"");
        let mut slices = data
            .iter()
            .filter(|line| line.contains("\"kind\":\"slice\"") && line.contains("\"wrong\""));
        slices.find(|line| line.contains(&variant)).cloned()
    };
    let (ours, apache) = (verdict("nagaya"), verdict("apache"));
    assert!(ours.is_some_and(|line| line.contains("\"wrong\":0")));
    // Shorter texts and those that begin with a smaller digit are "less" there.
    assert!(apache.is_none_or(|line| line.contains("\"wrong\":5")));
}

#[test]
fn conditions_that_do_not_match() {
    check("rule-cost");
}

#[test]
#[ignore = "needs php-fpm and nginx: make soak"]
fn pools_from_zero_and_warm() {
    for (name, row) in [
        ("pools", "hello.php, from zero"),
        ("pools-warm", "hello.php, with PHP"),
    ] {
        let data = run(name, &["--only", row]);
        let slices = data
            .iter()
            .filter(|line| line.contains("\"kind\":\"slice\""));
        let ours = |line: &String| line.contains("\"variant\":\"nagaya\"");
        assert_eq!(slices.filter(|line| ours(line)).count(), 1, "{name}");
    }
}

/// Rows of short loads: everything starts and answers alike. Clients are refused, and that is no failure.
#[test]
#[ignore = "needs php-fpm, haproxy, apache2 and two minutes: make soak"]
fn loads_above_what_a_back_end_can_do() {
    let rows = [
        "half of what it can do",
        "ten times as much",
        "php-fpm, twice as much",
        "ten tenants, one at 20 times its share",
        "auto: 100 ms more on every reply",
    ];
    let only: Vec<&str> = rows.iter().flat_map(|row| ["--only", row]).collect();
    let data = run("overload", &[&["--requests", "60"], &only[..]].concat());
    for row in rows {
        let row = format!("\"row\":\"{row}\"");
        assert!(data.iter().any(|line| line.contains(&row)), "{row}");
    }
    assert!(
        data.iter()
            .any(|line| line.contains("\"goodput_in.later\"")),
        "a part of a slice has a goodput of its own"
    );
}

#[test]
fn a_limit_that_refuses_nobody_and_one_that_refuses_all() {
    let rows = [
        "direct reply, one limit",
        "direct reply, nginx",
        "three limits, nginx",
        "refusal: the limit is full",
        "refusal: the rate is spent",
        "static page of 42 KB",
        "phpinfo()",
        "direct reply, scripts that count",
        "direct reply, limiter scripts",
        "PHP page of 2 ms, scripts compiled at each request",
    ];
    let only: Vec<&str> = rows.iter().flat_map(|row| ["--only", row]).collect();
    let data = run(
        "access-limiter",
        &[&["--requests", "20"], &only[..]].concat(),
    );
    for row in rows {
        let row = format!("\"row\":\"{row}\"");
        let slices = data
            .iter()
            .filter(|line| line.contains(&row) && line.contains("slice"));
        assert!(slices.count() > 1, "{row}");
    }
}

#[test]
#[ignore = "fills a hundred thousand keys: make soak"]
fn a_limit_with_many_keys() {
    let only = [
        "--only",
        "three limits, 100,000 keys",
        "--only",
        "memory of a key",
    ];
    let data = run(
        "access-limiter",
        &[&["--requests", "20"], &only[..]].concat(),
    );
    assert!(data.iter().any(|line| line.contains("key_bytes")));
}

#[test]
#[ignore = "needs memcached, MariaDB, nginx's Lua and h2o: make soak"]
fn scripts_that_count_and_scripts_that_ask_stores() {
    let counting = ["Lua that counts", "three that count"];
    let asking = ["connection kept", "connection made per request"];
    let waiting = ["request that sleeps", "wait in MySQL"];
    for (name, rows, slices_min) in [
        ("access-limiter", counting, 8),
        ("connection-reuse", asking, 15),
        ("script-waits", waiting, 3),
    ] {
        let only: Vec<&str> = rows.iter().flat_map(|row| ["--only", row]).collect();
        let data = run(name, &[&["--requests", "20"], &only[..]].concat());
        let missing = data.iter().find(|line| line.contains("not measured"));
        assert_eq!(missing, None, "{name}");
        let slices = data.iter().filter(|line| line.contains("slice"));
        assert!(slices.count() >= slices_min, "{name}");
    }
}

#[test]
#[ignore = "needs control groups, apache2, fcgiwrap and a minute: make soak"]
fn programs_and_control_groups() {
    let rows = [
        "runaway",
        "two at once",
        "a static file",
        "hello",
        "taken apart",
        "10,000",
    ];
    let only: Vec<&str> = rows.iter().flat_map(|row| ["--only", row]).collect();
    // Programs of ours that it measures with, where they are built.
    let examples = Path::new(env!("CARGO_BIN_EXE_nagaya-lab")).with_file_name("examples");
    let built = ["birth", "attach"].map(|name| (name, examples.join(name)));
    let built = built.iter().filter(|(_, path)| path.is_file());
    let peers: Vec<String> = built
        .map(|(name, path)| format!("--peer={name}={}", path.display()))
        .collect();
    let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
    let data = run(
        "cgroup",
        &[&["--seconds", "0.5"], &only[..], &peers[..]].concat(),
    );
    assert!(
        data.iter()
            .any(|line| line.contains("used_of_a_core_share")),
        "{data:?}"
    );
}
