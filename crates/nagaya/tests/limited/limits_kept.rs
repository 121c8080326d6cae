//! Changes of limits that are kept: over a reload, a lost server and a restart, with a broken file,
//! with lines nobody needs any more, and forgotten again; and how what is typed wrong is told.

use std::path::PathBuf;

use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Gateway, PATIENCE, eventually, hold_still};

const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");
const FILE: &str = "nagaya.toml.overrides";

const CONFIG: &str = r#"
workers = 1
[control]
socket = "{dir}/control"
[[listen]]
address = "127.0.0.1:{port}"
[[sites]]
hosts = ["a.test"]
limits = [{ concurrent = 2, queue = 1 }, { key = "path", concurrent = 9 }]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

/// Text that is kept of the first limit.
const KEPT: &str = "[limits]\n\"site a.test/site\" = { concurrent = 7 }\n";

fn overrides(gateway: &Gateway) -> PathBuf {
    gateway.directory().path().join(FILE)
}

/// A gateway whose overrides file says `text` from the beginning.
fn started_with(text: &str) -> Gateway {
    let gateway = Gateway::with_config(NAGAYA, CONFIG);
    gateway.directory().write(FILE, text);
    ready(gateway.start())
}

/// A gateway without an overrides file.
fn started(config: &str) -> Gateway {
    ready(Gateway::with_config(NAGAYA, config).start())
}

/// Waits until the configuration is in force, which is a little after there is an address.
fn ready(gateway: Gateway) -> Gateway {
    gateway.wait_for_message("ready: generation 1 ");
    gateway
}

/// What a command that has to fail complains of.
fn complaint(gateway: &Gateway, words: &[&str]) -> String {
    let (status, out, err) = gateway.command(words);
    assert_ne!(status, Some(0), "{words:?}: {out}{err}");
    err
}

fn set(gateway: &Gateway, words: &[&str]) -> String {
    gateway.told(&[&["limits", "set", "site a.test/site"], words].concat())
}

/// The line of `limits list` about the first limit: what it is, and who says so.
fn listed(gateway: &Gateway) -> String {
    let list = gateway.told(&["limits", "list"]);
    let line = list
        .lines()
        .find(|line| line.starts_with("site a.test/site "));
    line.unwrap_or_else(|| panic!("{list}")).to_owned()
}

fn assert_listed(gateway: &Gateway, is: &str, from: &str) {
    let line = listed(gateway);
    let is_so = line.contains(&format!("  {is}  ")) && line.ends_with(from);
    assert!(is_so, "{is}, {from}: {line}");
}

/// Reloads, and waits until that is done.
fn reload(gateway: &mut Gateway, config: &str) {
    let before = reloads(gateway);
    gateway.reload(config);
    eventually(PATIENCE, "the reload", || {
        (reloads(gateway) > before).then_some(())
    });
}

/// Reloads so far, refused ones included.
fn reloads(gateway: &Gateway) -> usize {
    let log = gateway.stderr();
    log.matches("ready: generation").count() + log.matches("reload refused").count()
}

#[test]
fn what_is_kept_holds_over_reloads_and_a_lost_server_until_it_is_forgotten() {
    let mut gateway = started(CONFIG);
    let answer = set(&gateway, &["concurrent=4", "--keep"]);
    assert!(
        answer.contains("concurrent 4, queue 1, wait 2s (configured: concurrent 2"),
        "{answer}"
    );
    let text = std::fs::read_to_string(overrides(&gateway)).unwrap();
    let entry = text
        .lines()
        .position(|line| line.starts_with("\"site a.test/site\" = { concurrent = 4,"));
    let line = entry.unwrap() + 1;
    let place = format!("kept, line {line}");
    assert_listed(&gateway, "concurrent 4, queue 1, wait 2s", &place);
    set(&gateway, &["queue=3"]);
    assert_listed(&gateway, "concurrent 4, queue 3, wait 2s", &place);
    let both = format!("  set; {place}");
    assert!(listed(&gateway).ends_with(&both), "{}", listed(&gateway));
    reload(&mut gateway, CONFIG);
    assert_listed(&gateway, "concurrent 4, queue 3, wait 2s", &place);
    // The configuration changes the limit: what was set ends, what was kept stays.
    reload(
        &mut gateway,
        &CONFIG.replace("concurrent = 2", "concurrent = 1"),
    );
    assert_listed(&gateway, "concurrent 4, queue 1, wait 2s", &place);
    set(&gateway, &["queue=8", "--keep"]);
    let server = Pid::from_raw(i32::try_from(gateway.server_pid()).unwrap()).unwrap();
    let before = reloads(&gateway);
    kill_process(server, Signal::KILL).unwrap();
    eventually(PATIENCE, "another server", || {
        // What it says when it is ready must not count as the next reload.
        (gateway.command(&["limits", "list"]).0 == Some(0)
            && gateway.server_pid() != server.as_raw_nonzero().get().unsigned_abs()
            && reloads(&gateway) > before)
            .then_some(())
    });
    assert_listed(&gateway, "concurrent 4, queue 8, wait 2s", &place);
    let dump = gateway.told(&["check", "--dump"]);
    assert!(
        dump.contains("concurrent = 4, queue = 8") && dump.contains(&format!("{FILE}:{line} ")),
        "{dump}"
    );
    let (_, answer, told) = gateway.command(&["limits", "set", "site a.test/site", "--forget"]);
    assert!(
        answer.starts_with("site a.test/site: removed from ")
            && answer.contains("concurrent 1, queue 1, wait 2s, as configured"),
        "{answer}"
    );
    assert_eq!(told, "");
    assert_listed(&gateway, "concurrent 1, queue 1, wait 2s", "config");
    reload(&mut gateway, CONFIG);
    assert_listed(&gateway, "concurrent 2, queue 1, wait 2s", "config");
}

#[test]
fn a_start_reads_what_was_kept_and_a_line_that_goes_moves_the_others() {
    let text = KEPT.replace(
        "[limits]\n",
        "[limits]\n\"site a.test/path\" = { concurrent = 8 }\n",
    );
    let gateway = started_with(&text);
    assert_listed(&gateway, "concurrent 7, queue 1, wait 2s", "kept, line 3");
    gateway.told(&["limits", "set", "site a.test/path", "--forget"]);
    assert_listed(&gateway, "concurrent 7, queue 1, wait 2s", "kept, line 2");
    assert_eq!(std::fs::read_to_string(overrides(&gateway)).unwrap(), KEPT);
}

#[test]
fn a_broken_file_refuses_a_reload_and_is_not_written_over() {
    let mut gateway = started_with(KEPT);
    let broken = format!("{KEPT}\"site a.test/path\" = {{ concurrent = 0 }}\n");
    std::fs::write(overrides(&gateway), &broken).unwrap();
    let complaint_of = |words: &[&str]| complaint(&gateway, words);
    let place = format!("{FILE}:3:");
    assert!(complaint_of(&["check"]).contains(&place));
    let told = complaint_of(&["limits", "set", "site a.test/site", "queue=5", "--keep"]);
    assert!(told.contains(&place) && told.contains("mend"), "{told}");
    assert_eq!(
        std::fs::read_to_string(overrides(&gateway)).unwrap(),
        broken
    );
    reload(&mut gateway, &CONFIG.replace("fine", "other"));
    assert!(gateway.stderr().contains(&place), "{}", gateway.stderr());
    assert_listed(&gateway, "concurrent 7, queue 1, wait 2s", "kept, line 2");
}

#[test]
fn a_start_goes_on_without_a_broken_file_and_a_reload_takes_the_mended_one() {
    let mut gateway = started_with("[limits]\n\"site a.test/site\" = { concurrent =\n");
    gateway.wait_for_message("limits start as configured");
    assert!(
        gateway.stderr().contains(&format!("{FILE}:2:")),
        "{}",
        gateway.stderr()
    );
    assert_listed(&gateway, "concurrent 2, queue 1, wait 2s", "config");
    std::fs::write(overrides(&gateway), KEPT).unwrap();
    reload(&mut gateway, CONFIG);
    assert_listed(&gateway, "concurrent 7, queue 1, wait 2s", "kept, line 2");
}

#[test]
fn a_line_for_a_limit_that_is_gone_is_a_warning_and_can_be_removed() {
    let mut gateway = started_with(KEPT);
    let other = CONFIG.replace("{ concurrent = 2, queue = 1 }, ", "");
    reload(&mut gateway, &other);
    let told = "there is no limit `site a.test/site`";
    assert!(gateway.stderr().contains(told), "{}", gateway.stderr());
    let (status, _, said) = gateway.command(&["check"]);
    assert!(status == Some(0) && said.contains(told), "{said}");
    let answer = set(&gateway, &["--forget"]);
    assert!(answer.contains("no limit is called so"), "{answer}");
    assert_eq!(
        std::fs::read_to_string(overrides(&gateway)).unwrap(),
        "[limits]\n"
    );
}

#[test]
fn what_the_gateway_refuses_is_not_kept() {
    let gateway = started(CONFIG);
    for (limit, change, told) in [
        (
            "site b.test/site",
            "queue=1",
            "is `site a.test/site` meant?",
        ),
        ("site a.test/site", "rate=1/s", "cannot be set"),
        ("site a.test/site", "colour=red", "`colour` cannot be set"),
        ("site a.test/site", "queue=many", "must be a number"),
    ] {
        let told_is = complaint(&gateway, &["limits", "set", limit, change, "--keep"]);
        assert!(told_is.contains(told), "{told_is}");
    }
    let names = std::fs::read_dir(gateway.directory().path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let kept: Vec<String> = names.filter(|name| name.contains("overrides")).collect();
    assert_eq!(kept, [format!("{FILE}.lock")]);
}

#[test]
fn one_command_writes_at_a_time_and_what_another_left_behind_is_no_hindrance() {
    let gateway = started_with(KEPT);
    let new = gateway.directory().path().join(format!("{FILE}.new"));
    std::fs::write(&new, "half a fi").unwrap();
    // Who may only read the directory cannot hold up anybody.
    let directory = std::fs::File::open(gateway.directory().path()).unwrap();
    rustix::fs::flock(&directory, FlockOperation::LockExclusive).unwrap();
    let lock = gateway.directory().path().join(format!("{FILE}.lock"));
    let lock = std::fs::File::create(lock).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    let words = ["limits", "set", "site a.test/site", "queue=5", "--keep"];
    assert!(complaint(&gateway, &words).contains("try again"));
    assert_eq!(std::fs::read_to_string(overrides(&gateway)).unwrap(), KEPT);
    drop(lock);
    gateway.told(&words);
    assert!(!new.exists());
    assert_listed(&gateway, "concurrent 7, queue 5, wait 2s", "kept, line 2");
}

#[test]
fn a_name_as_it_stands_in_the_table_is_kept_to_the_letter() {
    let mut gateway = started(CONFIG);
    let words = [
        "limits",
        "set",
        " site a.test/site  ",
        "concurrent=4",
        "--keep",
    ];
    gateway.told(&words);
    let error = complaint(
        &gateway,
        &[
            "limits",
            "set",
            "site a.test/site queue=3",
            "concurrent=5",
            "--keep",
        ],
    );
    assert!(error.contains("there is no limit"), "{error}");
    reload(&mut gateway, CONFIG);
    assert_listed(&gateway, "concurrent 4, queue 1, wait 2s", "kept, line 6");
}

#[test]
fn a_link_to_what_is_not_there_is_not_written_over() {
    let gateway = started(CONFIG);
    let link = overrides(&gateway);
    std::os::unix::fs::symlink("/nonexistent/limits.toml", &link).unwrap();
    let words = ["limits", "set", "site a.test/site", "queue=5", "--keep"];
    assert!(complaint(&gateway, &words).contains("nagaya: follow "));
    assert!(link.is_symlink());
}

#[test]
fn what_is_kept_while_a_reload_is_under_way_is_read_after_it() {
    let mut gateway = started(CONFIG);
    let server = gateway.server_pid();
    hold_still(server);
    let second = "[[listen]]\naddress = \"unix:{dir}/second\"";
    gateway.reload(&format!(
        "limits_overrides = \"{{dir}}/kept\"\n{CONFIG}{second}\n"
    ));
    // A listener is bound when all files have been read.
    let second = gateway.directory().path().join("second");
    eventually(PATIENCE, "the listener", || second.exists().then_some(()));
    gateway.directory().write("kept", KEPT);
    let server = Pid::from_raw(i32::try_from(server).unwrap()).unwrap();
    kill_process(server, Signal::CONT).unwrap();
    gateway.wait_for_message("ready: generation 3 ");
    assert_listed(&gateway, "concurrent 7, queue 1, wait 2s", "kept, line 2");
    assert!(gateway.told(&["limits", "list"]).ends_with("/kept\n"));
}

#[test]
fn check_and_the_log_tell_that_limits_are_changed() {
    let mut gateway = started_with(KEPT);
    let file = overrides(&gateway).display().to_string();
    let told = format!("1 limit is changed by {file} (line 2)");
    let checked = gateway.told(&["check"]);
    assert!(checked.ends_with(&format!("\nnote: {told}\n")), "{checked}");
    gateway.wait_for_message(&format!("with 1 workers; {told}"));
    reload(&mut gateway, &CONFIG.replace("fine", "other"));
    let log = gateway.stderr();
    let ready = log
        .lines()
        .find(|line| line.contains("ready: generation 2"));
    assert!(ready.is_some_and(|line| line.contains(&told)), "{log}");
    set(&gateway, &["--forget"]);
    assert!(!gateway.told(&["check"]).contains("note"));
}

#[test]
fn what_is_typed_wrong_is_told_in_a_line_and_ends_with_two() {
    let gateway = started(CONFIG);
    for (limit, change, told) in [
        ("site a.test/site", "concurrent=0", "`concurrent` must be"),
        ("site a.test/site", "wait=2d", "from 1ms to 1h"),
        ("site a.test/site", "colour=red", "`colour` cannot be set"),
        ("site b.test/site", "queue=1", "there is no limit"),
    ] {
        for keep in [&[][..], &["--keep"]] {
            let words = [&["limits", "set", limit, change], keep].concat();
            let (status, _, told_is) = gateway.command(&words);
            assert_eq!(status, Some(2), "{told_is}");
            let is_a_line = told_is.lines().count() == 1 && !told_is.contains("error:");
            assert!(is_a_line && told_is.contains(told), "{told_is}");
        }
    }
}

#[test]
fn a_change_of_a_rule_without_a_name_is_set_and_not_kept() {
    let text = CONFIG.replace("rules = [{", "rules = [{ limits = [{ concurrent = 2 }],");
    let gateway = started(&text);
    let words = ["limits", "set", "rule a.test/rule 1/rule", "concurrent=4"];
    let told = complaint(&gateway, &[&words[..], &["--keep"]].concat());
    assert!(told.contains("rule 1 of a.test has no name"), "{told}");
    assert!(!overrides(&gateway).exists());
    assert!(gateway.told(&words).contains("concurrent 4"));
    let entry = "[limits]\n\"rule a.test/rule 1/rule\" = { concurrent = 7 }\n";
    gateway.directory().write(FILE, entry);
    let (status, _, told) = gateway.command(&["check"]);
    assert!(status == Some(0) && told.contains("has no name"), "{told}");
}

#[test]
fn a_mistake_in_the_configuration_on_disk_locks_nobody_out_of_the_gateway_that_runs() {
    let gateway = started(CONFIG);
    let config = gateway.directory().path().join("nagaya.toml");
    let sound = std::fs::read_to_string(&config).unwrap();
    let broken = format!("{sound}\n[[sites]]\nhosts = [\"b.test\"]\nroot = \"/nonexistent\"\n");
    std::fs::write(&config, &broken).unwrap();
    for words in [
        &["status"][..],
        &["limits", "list"],
        &["limits", "top"],
        &["limits", "set", "site a.test/site", "queue=3"],
    ] {
        let (status, out, told) = gateway.command(words);
        assert_eq!(status, Some(0), "{out}{told}");
        let is_a_line = told.lines().count() == 1 && told.contains("nagaya check -c");
        assert!(is_a_line && !out.is_empty(), "{words:?}: {told}");
    }
    assert!(complaint(&gateway, &["why", "0"]).contains("no refusal of request 0"));
    let words = ["limits", "set", "site a.test/site", "queue=5", "--keep"];
    let told = complaint(&gateway, &words);
    assert!(
        told.contains("/nonexistent") && told.contains("without --keep"),
        "{told}"
    );
    std::fs::write(&config, broken.replace("[control]", "[kontrol]")).unwrap();
    let told = complaint(&gateway, &["limits", "list"]);
    assert!(told.contains("--socket PATH"), "{told}");
    let socket = gateway.directory().path().join("control");
    let words = ["limits", "list", "--socket", socket.to_str().unwrap()];
    assert!(gateway.told(&words).contains("queue 3"));
}
