//! `nagaya limits simulate` and `propose`, run over logs whose answers can be told by hand.

use std::fmt::Write;
use std::process::Command;

use testkit::Gateway;
use testkit::temp::TempDir;

const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");

/// Three requests a second apart, each of three seconds, of one page; and a quick one beside them.
fn ours() -> String {
    let mut log = String::new();
    for second in 0..3 {
        let _ = writeln!(
            log,
            r#"{{"time":"2026-11-21T20:45:0{second}.000000Z","site":"a.jp","client":"192.0.2.7","target":"/sleep.php?n={second}","status":200,"upstream":"unix:/php.sock","queue_us":0,"upstream_us":3000000,"total_us":3100000}}"#
        );
    }
    log + r#"{"time":"2026-11-21T20:45:02.500000Z","site":"a.jp","client":"192.0.2.8","target":"/quick.php","status":200,"upstream":null,"queue_us":0,"upstream_us":null,"total_us":1000}"#
}

/// A hundred requests in a second of one page, each of a tenth of one, as nginx logs them.
fn nginxs() -> String {
    let line = |number: u32| {
        format!(
            "192.0.2.{number} - - [21/Nov/2026:20:45:10 +0000] \"GET /page.php HTTP/1.1\" 200 9 \"-\" \"-\" 0.100\n"
        )
    };
    (0..200).map(line).collect()
}

fn run(log: impl AsRef<[u8]>, arguments: &[&str]) -> (Option<i32>, String, String) {
    let directory = TempDir::new();
    let file = directory.write("access.log", log);
    let mut command = Command::new(NAGAYA);
    command.arg("limits").args(arguments).arg("--log").arg(file);
    let output = command.output().expect("run the gateway's binary");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), out, err)
}

/// What `check` says to a site with these lines.
fn checked(lines: &str) -> (bool, String) {
    let config = format!(
        "[[listen]]\naddress = \"127.0.0.1:1\"\n[[sites]]\nhosts = [\"*\"]\nroot = \"{{dir}}\"\n{lines}\n"
    );
    let (status, _, err) = Gateway::with_config(NAGAYA, &config).run(&["check"]);
    (status.success(), err)
}

/// The lines proposed.
fn proposed(out: &str) -> Vec<&str> {
    let is_line = |line: &&str| line.starts_with("limits = ");
    out.lines().filter(is_line).collect()
}

#[test]
fn a_limit_is_tried_on_our_own_log() {
    for (limit, told) in [
        (
            "file concurrent=2",
            [
                "3 at once",
                "1 refused (1 limit_full)",
                "concurrent = 3, and nobody would have waited with 3",
            ],
        ),
        (
            "file concurrent=2 queue=1 wait=5s",
            ["3 at once", "the longest 1.00 s", "concurrent = 2"],
        ),
        (
            "file concurrent=3",
            ["4 at once", "0 refused", "concurrent = 3"],
        ),
        ("client rate=1/m", ["2 at once", "2 refused", "rate"]),
    ] {
        let (status, out, err) = run(ours(), &["simulate", "--limit", limit]);
        assert_eq!(status, Some(0), "{limit}: {err}");
        for part in told {
            assert!(out.contains(part), "{limit}: {part} is missing in:\n{out}");
        }
    }
}

#[test]
fn keys_and_paths_are_told_and_can_be_left_out() {
    let limits = ["simulate", "--limit", "file concurrent=1"];
    let (_, out, _) = run(ours(), &limits);
    assert!(
        out.contains("a.jp/sleep.php") && out.contains("4 requests, 2026-11-21 20:45:00"),
        "{out}"
    );
    let (_, out, _) = run(ours(), &[&limits[..], &["--only", "/quick*"]].concat());
    assert!(
        out.starts_with("1 requests") && out.contains("0 refused"),
        "{out}"
    );
}

#[test]
fn a_log_of_whole_seconds_is_read_with_a_warning() {
    let (status, out, err) = run(nginxs(), &["simulate", "--limit", "file concurrent=100"]);
    assert_eq!(status, Some(0), "{err}");
    assert!(
        out.contains("whole seconds") && out.contains("200 at once"),
        "{out}"
    );
}

#[test]
fn what_is_proposed_is_an_entry_of_a_configuration() {
    let (status, out, err) = run(nginxs(), &["propose"]);
    assert_eq!(status, Some(0), "{err}");
    for line in proposed(&out) {
        let (fine, err) = checked(line);
        assert!(fine, "{line}: {err}");
    }
    assert_eq!(proposed(&out).len(), 1, "{out}");
}

#[test]
fn a_proposed_limit_counts_what_the_log_was_searched_for() {
    let of_files = of_a_front_controller(r#""file":"/srv/a/index.php","#);
    let without_files = of_a_front_controller("");
    for (log, only, condition) in [
        (
            &of_files,
            "*.php",
            r#"key = "file", match = { file = "*.php" }"#,
        ),
        (
            &of_files,
            "/article/*",
            r#"key = "file", match = { path = "/article/*" }"#,
        ),
        (
            &without_files,
            "/article/*",
            r#"key = "site", match = { path = "/article/*" }"#,
        ),
        (
            &nginxs(),
            "*.php",
            r#"key = "site", match = { path = "*.php" }"#,
        ),
    ] {
        let (status, out, err) = run(log, &["propose", "--only", only]);
        assert_eq!(status, Some(0), "{only}: {err}");
        let lines = proposed(&out);
        let [line] = lines.as_slice() else {
            panic!("one line: {out}")
        };
        assert!(line.contains(condition), "{condition}: {line}");
        let whereto = ["[[sites]]", "or to a rule"];
        assert!(whereto.iter().all(|part| out.contains(part)), "{out}");
        let (fine, err) = checked(line);
        assert!(fine, "{line}: {err}");
        let rule = format!("[[sites.rules]]\n{line}");
        let (fine, err) = checked(&rule);
        assert!(fine, "{rule}: {err}");
    }
}

#[test]
fn what_a_proposed_limit_would_not_count_is_left_out_and_told() {
    let log = of_a_front_controller(r#""file":"/srv/a/index.php","#);
    // To these a limit with `match = { file = "*.php" }` would be blind.
    let elsewhere: String = (0..60)
        .map(|_| {
            r#"{"time":"2026-11-21T20:45:40Z","site":"a.jp","target":"/x.php","file":null,"total_us":900000}"#
                .to_owned()
                + "\n"
        })
        .collect();
    let (status, out, err) = run(log + &elsewhere, &["propose", "--only", "*.php"]);
    assert_eq!(status, Some(0), "{err}");
    for part in [
        "a.jp: 260 requests",
        "60 of these match --only, but not by their file",
        "waited with 10",
    ] {
        assert!(out.contains(part), "{part} is missing in:\n{out}");
    }
}

#[test]
fn refused_requests_are_searched_by_the_file_of_their_path() {
    let mut log = of_a_front_controller(r#""file":"/srv/a/index.php","#);
    for _ in 0..100 {
        let _ = writeln!(
            log,
            r#"{{"time":"2026-11-21T20:45:15.100000Z","site":"a.jp","target":"/article/3","file":null,"reason":"limit_full","total_us":90}}"#
        );
    }
    let (status, out, err) = run(&log, &["propose", "--only", "*.php"]);
    assert_eq!(status, Some(0), "{err}");
    for part in [
        "# (100 of 300 requests were refused by a limit and took no time",
        "a.jp: 300 requests (100 of them refused then)",
        "waited with 110",
    ] {
        assert!(out.contains(part), "{part} is missing in:\n{out}");
    }
}

/// Ten pages asked for at once, each for 0.9 seconds, again and again; all of them one `index.php`.
fn of_a_front_controller(file: &str) -> String {
    let mut log = String::new();
    for (second, page) in (10..30).flat_map(|second| (0..10).map(move |page| (second, page))) {
        let _ = writeln!(
            log,
            r#"{{"time":"2026-11-21T20:45:{second}.000000Z","site":"a.jp","client":"192.0.2.7","target":"/article/{page}","status":200,{file}"queue_us":0,"upstream_us":900000,"total_us":900000}}"#
        );
    }
    log
}

#[test]
fn pages_of_a_front_controller_count_as_one_file() {
    let log = of_a_front_controller(r#""file":"/srv/a/index.php","#);
    let (status, out, err) = run(&log, &["propose", "--only", "*.php"]);
    assert_eq!(status, Some(0), "{err}");
    for part in ["key = \"file\"", "nobody would have waited with 10"] {
        assert!(out.contains(part), "{part} is missing in:\n{out}");
    }
    let (_, out, _) = run(&log, &["simulate", "--limit", "file concurrent=2"]);
    assert!(out.contains("a.jp /srv/a/index.php"), "{out}");
}

#[test]
fn where_files_are_not_told_nothing_is_proposed_by_file_unless_it_is_asked_for() {
    let log = of_a_front_controller("");
    let (status, out, err) = run(&log, &["propose"]);
    assert_eq!(status, Some(0), "{err}");
    for part in ["key = \"site\"", "does not tell files", "waited with 10"] {
        assert!(out.contains(part), "{part} is missing in:\n{out}");
    }
    let (_, out, _) = run(&log, &["propose", "--limit", "file queue=10"]);
    assert!(out.contains("paths stand in for them"), "{out}");
    let (_, out, _) = run(&log, &["simulate", "--limit", "path concurrent=1"]);
    assert!(!out.contains("paths stand in"), "{out}");
}

#[test]
fn a_log_written_under_a_limit_does_not_make_any_number_look_fine() {
    let mut log = ours();
    for client in 0..7 {
        let _ = write!(
            log,
            "\n{}",
            format_args!(
                r#"{{"time":"2026-11-21T20:45:02.100000Z","site":"a.jp","client":"192.0.2.{client}","target":"/sleep.php","status":503,"reason":"limit_full","queue_us":null,"upstream_us":null,"total_us":90}}"#
            )
        );
    }
    let (status, out, err) = run(&log, &["simulate", "--limit", "file concurrent=3"]);
    assert_eq!(status, Some(0), "{err}");
    for part in [
        "7 of 11 requests were refused by a limit",
        "7 refused (7 limit_full)",
    ] {
        assert!(out.contains(part), "{part} is missing in:\n{out}");
    }
}

#[test]
fn apaches_whole_seconds_are_not_taken_for_microseconds() {
    let log = nginxs().replace("0.100", "3");
    let (status, _, err) = run(&log, &["simulate", "--limit", "file concurrent=1"]);
    assert_ne!(status, Some(0));
    assert!(err.contains("%T") && err.contains("log %D"), "{err}");
}

#[test]
fn too_little_and_what_cannot_be_read_is_said() {
    for (log, arguments, told) in [
        (ours(), &["propose"][..], "no site has 100 requests"),
        (
            nginxs(),
            &["propose", "--only", "php"],
            "200 requests, none matches --only 'php'",
        ),
        (nginxs(), &["propose", "--only", "php"], "'*.php'"),
        (nginxs(), &["propose", "--only", "[a"], "bad glob"),
        (
            nginxs(),
            &["propose", "--limit", "client rate=10/s"],
            "nagaya limits simulate",
        ),
        (nginxs(), &["propose", "--limit", "tenant"], "`client`"),
        (
            nginxs(),
            &["simulate", "--limit", "upstream concurrent=1"],
            "no upstreams",
        ),
        (
            "h - - [21/Nov/2026:20:45:10 +0000] \"GET / HTTP/1.1\" 200 9 \"-\" \"-\"\n".to_owned(),
            &["propose"],
            "or, for Nagaya's own log, format = \"json\" or \"ltsv\"",
        ),
        (
            "no log\n".to_owned(),
            &["simulate", "--limit", "file concurrent=1"],
            "not one request",
        ),
        (
            "a - - [21/Nov/2026:20:45:10 +0000] \"GET / HTTP/1.1\" 200 9 \"-\" \"-\"\n".to_owned(),
            &["simulate", "--limit", "file concurrent=1"],
            "%D",
        ),
        (
            ours(),
            &["simulate", "--limit", "colour concurrent=1"],
            "colour",
        ),
        (
            ours(),
            &["simulate", "--limit", "cookie:id concurrent=1"],
            "shadow",
        ),
    ] {
        let (status, _, err) = run(&log, arguments);
        assert!(
            status != Some(0) && err.contains(told),
            "{told} is missing in: {err}"
        );
    }
}

#[test]
fn a_packed_log_is_told_from_one_that_cannot_be_read() {
    let packed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\n\n\n";
    let (status, _, err) = run(packed, &["propose"]);
    assert_eq!(status, Some(1), "{err}");
    let advice = "access.log | nagaya limits propose --log -";
    assert!(
        err.contains("compressed: zcat") && err.contains(advice),
        "{err}"
    );
}

#[test]
fn times_are_told_as_the_log_has_them() {
    let tokyo = nginxs().replace("21/Nov/2026:20:45:10 +0000", "22/Nov/2026:05:45:10 +0900");
    for (log, told) in [
        (tokyo, "2026-11-22 05:45:09 +0900"),
        (nginxs(), "2026-11-21 20:45:09 UTC"),
    ] {
        let (_, out, err) = run(log, &["simulate", "--limit", "file concurrent=1"]);
        assert!(out.contains(told), "{told} is missing in:\n{out}{err}");
    }
}

#[test]
fn a_configuration_is_neither_offered_nor_read() {
    let limit = ["simulate", "--limit", "file concurrent=1"];
    for command in [&["propose"][..], &limit] {
        let name = command[0];
        let (status, out, _) = run(ours(), &[name, "--help"]);
        assert_eq!(status, Some(0), "{out}");
        let example = format!("nagaya limits {name} --log access.log");
        assert!(out.contains(&example) && !out.contains("--config"), "{out}");
        let (status, _, err) = run(ours(), &[command, &["-c", "/nope"]].concat());
        assert_eq!(status, Some(2), "{name}: {err}");
        assert!(err.contains("leave `-c` out"), "{err}");
    }
    let mut before = Command::new(NAGAYA);
    before.args(["-c", "/nope", "limits", "propose", "--log", "/nope"]);
    let output = before.output().expect("run the gateway's binary");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn the_help_of_list_says_where_keys_are() {
    let mut help = Command::new(NAGAYA);
    let output = help.args(["limits", "list", "--help"]).output();
    let output = output.expect("run the gateway's binary");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        out.contains("nagaya limits top") && !out.contains("keys in use"),
        "{out}"
    );
}
