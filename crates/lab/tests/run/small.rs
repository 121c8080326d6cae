//! `nagaya-lab` from outside: small experiments, and what is left when they end, well or not.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{TempDir, eventually};

const PATIENCE: Duration = Duration::from_secs(180);

const GATEWAY: &str = r#"
workers = @workers@
[[listen]]
address = "127.0.0.1:@port@"
[log]
access = ""
level = "warn"
[[sites]]
hosts = ["*"]
root = "@site@"
[[sites.rules]]
match = { path = "/respond" }
handler = { respond = { status = 200, body = "@body@" } }
"#;

const HEAD: &str = r#"
title = "Small"
question = "Is it there? It is."
[values]
body = "hello"
[files]
"hello.txt" = "hello"
[load]
connections = 4
blocks = 2
[[variants]]
name = "one"
nagaya = "gateway.conf"
[[variants]]
name = "two"
nagaya = "gateway.conf"
values = { body = "@greeting@" , greeting = "hello" }
"#;

/// A directory with `lab/small.toml`, and a place for temporary directories of its own.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new(experiment: &str) -> Place {
        let directory = TempDir::new();
        for name in ["lab", "temporary"] {
            std::fs::create_dir(directory.path().join(name)).expect("a fresh directory");
        }
        directory.write("lab/gateway.conf", GATEWAY);
        directory.write("lab/small.toml", experiment);
        Place { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = super::nagaya_lab();
        command
            .args(words)
            .current_dir(self.directory.path())
            .env("TMPDIR", self.path("temporary"))
            .stdin(Stdio::null());
        command
    }

    fn lab(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = self.command(words).output().expect("nagaya-lab starts");
        let left = std::fs::read_dir(self.path("temporary")).expect("it is there");
        assert_eq!(left.count(), 0, "temporary directories are left");
        (output.status.code(), said(&output))
    }
}

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Command lines that hold this text.
fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("proc").flatten();
    let lines = entries.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(text)).collect()
}

#[test]
fn an_experiment_is_run_drawn_again_and_compared() {
    let place = Place::new(&format!(
        "{HEAD}
[[variants]]
name = \"absent\"
needs = \"no-such-server\"
command = [\"@program@\"]
[[rows]]
name = \"respond\"
path = \"/respond\"
read = [\"memory\", \"processes\", \"switches\", \"run_queue\", \"throttling\", \"sockets\", \"load\"]
reported = 91.38
targets = [{{ than = \"two\", at_least = 0.001 }}, {{ than = \"absent\", at_least = 9 }}]
after_slice = \"echo own_figure 7 things\"
[[rows]]
name = \"file\"
path = \"/hello.txt\"
[[rows]]
name = \"idle\"
path = \"/respond\"
hold = 20
settle_seconds = 0.05
[[rows]]
name = \"said\"
command = \"echo answer_ms 42 ms\"
figures = [\"answer_ms\"]
"
    ));
    let (status, text) = place.lab(&["run", "small", "--requests", "200", "--seed", "5"]);
    assert_eq!(status, Some(0), "{text}");
    for part in [
        "absent is skipped",
        "no-such-server",
        "All 1 targets are met",
        "one, again",
        "own figure",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let results = place.path("lab/results/small");
    let (html, markdown) = (results.join("report.html"), results.join("report.md"));
    let first = (read(&html), read(&markdown));
    assert!(first.1.contains("91.38"), "{}", first.1);
    std::fs::remove_file(&html).expect("it was there");
    let (status, text) = place.lab(&["draw", "lab/results/small"]);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!((read(&html), read(&markdown)), first, "drawn again");
    let data = read(&results.join("data.jsonl"));
    for row in ["respond", "file", "idle", "said"] {
        let slices = data.lines().filter(|line| {
            line.starts_with("{\"kind\":\"slice\"") && line.contains(&format!("\"row\":\"{row}\""))
        });
        assert!(slices.count() >= 4, "{row}: {data}");
    }
    let [data, summary] = ["data", "summary"].map(|name| format!("lab/results/small/{name}.jsonl"));
    let (status, text) = place.lab(&["compare", &data, &summary]);
    assert_eq!(status, Some(0), "{text}");
    assert!(
        text.contains("1.00 (") && !text.contains("different machines"),
        "{text}"
    );
    std::fs::remove_file(results.join("data.jsonl")).expect("it was there");
    let (status, text) = place.lab(&["draw", "lab/results/small"]);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(read(&markdown), first.1, "drawn from the summary");
    let (status, text) = place.lab(&["list"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(
        text.contains("Small: Is it there?") && text.contains("missing here: no-such-server"),
        "{text}"
    );
}

#[test]
fn a_row_that_is_run_apart_stands_among_the_stored_ones() {
    let rows = ["hello", "hello again", "hello at last"];
    let tables = rows.map(|row| format!("[[rows]]\nname = \"{row}\"\npath = \"/respond\"\n"));
    let place = Place::new(&format!("{HEAD}{}", tables.concat()));
    let run = |more: &[&str]| {
        let all = [&["run", "small", "--requests", "20", "--blocks", "1"], more].concat();
        let (status, said) = place.lab(&all);
        assert_eq!(status, Some(0), "{said}");
        let data = read(&place.path("lab/results/small/data.jsonl"));
        let has = |row: &&str| data.contains(&format!("\"kind\":\"slice\",\"row\":\"{row}\""));
        rows.into_iter().filter(has).collect::<Vec<_>>()
    };
    assert_eq!(
        run(&["--only", "hello", "--only", "at last"]),
        [rows[0], rows[2]]
    );
    assert_eq!(run(&["--only", "hello again", "--add"]), rows);
    // Without the flag the rows that were run are all there is.
    assert_eq!(run(&["--only", "hello again"]), ["hello again"]);
}

#[test]
fn variants_that_answer_differently_are_not_measured() {
    let place = Place::new(&format!(
        "{}
[[rows]]
name = \"respond\"
path = \"/respond\"
[[rows]]
name = \"respond, whatever it says\"
path = \"/respond\"
alike = [\"status\"]
",
        HEAD.replace("greeting = \"hello\"", "greeting = \"goodbye\"")
    ));
    let (status, text) = place.lab(&["run", "small", "--requests", "50", "--blocks", "1"]);
    assert_eq!(status, Some(1), "{text}");
    let differing = "one and two answer /respond differently: body of 5 bytes (\"hello\") and of 7 (\"goodbye\")";
    assert!(text.contains(differing), "{text}");
    let data = read(&place.path("lab/results/small/data.jsonl"));
    assert!(
        data.contains("\"row\":\"respond, whatever it says\",\"variant\""),
        "{data}"
    );
    assert!(!data.contains("\"row\":\"respond\",\"variant\""), "{data}");
}

#[test]
fn a_server_that_dies_is_left_out_with_its_words() {
    let place = Place::new(&format!(
        "{HEAD}
[[variants]]
name = \"dying\"
command = [\"sh\", \"-c\", \"echo no disk left >&2; exit 3\"]
[[rows]]
name = \"respond\"
path = \"/respond\"
"
    ));
    let (status, text) = place.lab(&["run", "small", "--requests", "50", "--blocks", "1"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("dying is left out"), "{text}");
    assert!(
        text.contains("it ended (exit status: 3); it said: no disk left"),
        "{text}"
    );
    let data = read(&place.path("lab/results/small/data.jsonl"));
    assert!(data.contains("\"variant\":\"two\""), "{data}");
}

#[test]
fn mistakes_are_told_before_anything_is_started() {
    let place = Place::new(&HEAD.replace("connections", "conections"));
    let (status, text) = place.lab(&["run", "small"]);
    assert_eq!(status, Some(2), "{text}");
    for part in ["did you mean `connections`?", "`rows` is missing"] {
        assert!(text.contains(part), "{text}");
    }
    let (status, text) = place.lab(&["run", "smal"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("did you mean `small`?"), "{text}");
}

#[test]
fn an_interrupt_in_the_middle_leaves_the_blocks_that_were_done() {
    let place = Place::new(&format!(
        "{HEAD}
[[rows]]
name = \"short\"
path = \"/respond\"
load = {{ requests = 50 }}
[[rows]]
name = \"endless\"
path = \"/respond\"
load = {{ seconds = 300 }}
"
    ));
    let older = place.path("lab/results/small/data.jsonl");
    std::fs::create_dir_all(older.parent().expect("a directory")).expect("it is made");
    std::fs::write(&older, "older").expect("it is written");
    let mut command = place.command(&["run", "small"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nagaya-lab starts");
    let temporary = place.path("temporary").display().to_string();
    // The gateways, each with its config below the temporary directory, and what was done so far.
    let cut = place.path("lab/results/small.unfinished");
    eventually(PATIENCE, "the first row's blocks", || {
        let data = std::fs::read_to_string(cut.join("data.jsonl")).unwrap_or_default();
        let is_later = data.contains("\"name\":\"endless\"");
        (is_later && processes_with(&temporary).len() >= 3).then_some(())
    });
    interrupt(&child);
    let status = eventually(PATIENCE, "the end", || child.try_wait().expect("our child"));
    assert_eq!(status.code(), Some(1));
    assert_eq!(processes_with(&temporary), Vec::<String>::new());
    let left = std::fs::read_dir(place.path("temporary")).expect("it is there");
    assert_eq!(left.count(), 0, "temporary directories are left");
    let data = read(&cut.join("data.jsonl"));
    let slices = data
        .lines()
        .filter(|line| line.contains("\"kind\":\"slice\""));
    assert!(slices.count() >= 6, "two blocks of three: {data}");
    let report = read(&cut.join("report.md"));
    assert!(report.contains("The run was cut short"), "{report}");
    assert_eq!(read(&older), "older", "results of an older run");
}

#[test]
fn loads_beside_tenants_shares_and_restarts_have_their_figures() {
    let place = Place::new(&format!(
        "{HEAD}
[[rows]]
name = \"beside\"
alike = [\"status\"]
load = {{ seconds = 1, warm_up_seconds = 0.1 }}
requests = [{{ path = \"/respond\", tenant = \"large\", weight = 3 }}, {{ path = \"/missing\", tenant = \"refused\" }}]
background = [{{ path = \"/hello.txt\", tenant = \"small\", rate = 200 }}]
[[rows]]
name = \"shared\"
path = \"/respond\"
load = {{ rate = {{ share = 0.1 }}, seconds = 1, restart_blocks = 1 }}
figures = [\"p50_us\"]
before_slice = \"echo $LAB_PID >> pids\"
"
    ));
    let (status, text) = place.lab(&["run", "small"]);
    assert_ne!(status, Some(2), "{text}");
    assert!(text.contains("requests a second for all"), "{text}");
    let data = read(&place.path("lab/results/small/data.jsonl"));
    let slices = || {
        data.lines()
            .filter(|line| line.contains("\"kind\":\"slice\""))
    };
    let beside = || slices().filter(|line| line.contains("\"row\":\"beside\""));
    // On a busy machine a second may pass without a reply.
    let heard = |slice: &&str| !slice.contains("\"completed\":0.0");
    for slice in beside().filter(heard) {
        for name in ["large", "small", "refused"] {
            assert!(slice.contains(&format!("\"goodput.{name}\":")), "{slice}");
        }
        assert!(slice.contains("\"goodput.refused\":0.0"), "{slice}");
        assert!(slice.contains("\"jain\":0."), "{slice}");
    }
    assert!(beside().any(|slice| heard(&slice)), "{data}");
    let somebody = |what: &str| beside().any(|slice| !slice.contains(what));
    assert!(somebody("\"refused.refused\":0.0"), "{data}");
    assert!(somebody("\"goodput.small\":0.0"), "{data}");
    let shared = slices().filter(|line| line.contains("\"row\":\"shared\""));
    let shared: Vec<&str> = shared.collect();
    assert!(shared.len() >= 6, "{data}");
    assert!(
        shared.iter().all(|slice| slice.contains("\"late_share\"")),
        "an open loop: {data}"
    );
    let pids = read(&place.path("lab/pids"));
    let different: std::collections::BTreeSet<&str> = pids.lines().collect();
    assert_eq!(different.len(), shared.len(), "afresh for every block");
}

fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a pid"), Signal::INT).expect("it runs");
}
