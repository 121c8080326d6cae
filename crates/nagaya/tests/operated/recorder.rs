//! Access logs read into figures, and reports of them, as an operator types it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use jiff::{Timestamp, ToSpan};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{PATIENCE, TempDir, eventually};

const CHROME: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36";

fn nagaya(figures: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
    command.args(words).arg("--directory").arg(figures);
    command.stdin(Stdio::null());
    command
}

/// What a command prints to standard output, and whether it ended with 0, 1 or 2.
fn said(mut command: Command) -> (String, i32) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    (text, output.status.code().unwrap())
}

/// Lines of `vhost_combined` of an hour ago.
fn lines(site: &str, numbers: std::ops::Range<usize>) -> String {
    let at = Timestamp::now() - 1.hour();
    let at = at.strftime("%d/%b/%Y:%H:%M:%S +0000");
    let line = |number: usize| {
        format!(
            "{site}:443 192.0.2.{} - - [{at}] \"GET /page/{} HTTP/1.1\" 200 10 \"https://www.google.com/\" \"{CHROME}\"\n",
            number % 50,
            number % 3,
        )
    };
    numbers.map(line).collect()
}

fn fact(report: &str, name: &str) -> Option<String> {
    let line = report.lines().find(|line| line.starts_with(name))?;
    Some(line[name.len()..].trim().to_owned())
}

#[test]
fn a_log_is_read_and_a_report_printed() {
    let directory = TempDir::new();
    let (figures, log) = (
        directory.path().join("figures"),
        directory.path().join("a.log"),
    );
    fs::write(&log, lines("www.a.example", 0..300)).unwrap();
    let import = || {
        said(nagaya(
            &figures,
            &["recorder", "import", log.to_str().unwrap()],
        ))
    };
    let (text, status) = import();
    assert_eq!((status, text.contains("300 counted")), (0, true), "{text}");
    let (text, _) = import();
    assert!(
        text.contains("0 counted") && text.contains("had been read before"),
        "{text}"
    );
    let (report, status) = said(nagaya(&figures, &["report", "www.a.example"]));
    assert_eq!(status, 0, "{report}");
    assert_eq!(
        fact(&report, "requests").as_deref(),
        Some("300"),
        "{report}"
    );
    assert_eq!(fact(&report, "visits  ").as_deref(), Some("50"), "{report}");
    for part in ["/page/2", "Google", "Chrome 120", "Windows 10"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let (page, _) = said(nagaya(&figures, &["report", "www.a.example", "--html"]));
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.contains("<svg"),
        "{page}"
    );
    let (text, status) = said(nagaya(&figures, &["report", "b.example"]));
    assert_eq!(
        (status, text.contains("there are www.a.example")),
        (2, true),
        "{text}"
    );
    let (_, status) = said(nagaya(&figures, &["recorder", "forget", "www.a.example"]));
    assert_eq!(status, 0);
    let (_, status) = said(nagaya(&figures, &["report", "www.a.example"]));
    assert_eq!(status, 2);
}

#[test]
fn figures_are_where_the_configuration_has_them_unless_a_directory_is_named() {
    let place = TempDir::new();
    let (figures, log) = (place.path().join("figures"), place.path().join("a.log"));
    let (config, bare) = (place.path().join("a.toml"), place.path().join("bare.toml"));
    fs::write(&log, lines("a.example", 0..30)).unwrap();
    let served = "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[sites]]\nhosts = [\"a.example\"]\n\
        rules = [{ handler = { respond = { body = \"fine\" } } }]\n";
    let recorder = format!("[recorder]\ndirectory = \"{}\"\n", figures.display());
    fs::write(&config, format!("{served}{recorder}")).unwrap();
    fs::write(&bare, served).unwrap();
    let of = |config: &Path, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
        command.arg("-c").arg(config).args(words);
        said(command)
    };
    let import = ["recorder", "import", log.to_str().unwrap()];
    let (text, status) = of(&config, &import);
    assert_eq!((status, text.contains("30 counted")), (0, true), "{text}");
    assert!(figures.join("figures.db").exists());
    let (text, status) = of(&config, &["report", "a.example"]);
    assert_eq!(fact(&text, "requests").as_deref(), Some("30"), "{text}");
    assert_eq!(status, 0);
    assert_eq!(of(&config, &["capacity", "--json"]).1, 0);
    let missing = place.path().join("none.toml");
    for words in [
        &import[..],
        &["report", "a.example"],
        &["capacity"],
        &["recorder", "serve"],
        &["recorder", "forget", "a.example"],
    ] {
        for (config, why) in [(&missing, "is not there"), (&bare, "has no `[recorder]`")] {
            let (text, status) = of(config, words);
            let is_told = text.contains(why) && text.contains("--directory");
            assert_eq!((status, is_told), (2, true), "{words:?}: {text}");
        }
    }
    let (text, status) = of(&config, &["recorder", "forget", "a.example"]);
    assert_eq!((status, &*text), (0, "a.example is forgotten\n"));
}

#[test]
fn a_log_that_is_followed_counts_every_line_once_whatever_is_killed() {
    let directory = TempDir::new();
    let (figures, log) = (
        directory.path().join("figures"),
        directory.path().join("a.log"),
    );
    fs::write(&log, lines("a.example", 0..1_000)).unwrap();
    let requests = || {
        let (report, _) = said(nagaya(&figures, &["report", "a.example"]));
        fact(&report, "requests")
    };
    let words = ["recorder", "import", log.to_str().unwrap(), "--follow"];
    let mut following = nagaya(&figures, &words).spawn().unwrap();
    eventually(PATIENCE, "the log is read", || {
        requests().filter(|it| it == "1,000").map(drop)
    });
    let mut appended = OpenOptions::new().append(true).open(&log).unwrap();
    appended
        .write_all(lines("a.example", 1_000..1_500).as_bytes())
        .unwrap();
    following.kill().unwrap();
    following.wait().unwrap();
    let rotated = directory.path().join("a.log.1");
    fs::rename(&log, &rotated).unwrap();
    fs::write(&log, lines("a.example", 1_501..1_701)).unwrap();
    let logs = [rotated.to_str().unwrap(), log.to_str().unwrap()];
    let (text, status) = said(nagaya(&figures, &["recorder", "import", logs[0], logs[1]]));
    assert_eq!((status, text.contains("700 counted")), (0, true), "{text}");
    assert_eq!(requests().as_deref(), Some("1,700"));
}

#[test]
fn a_pipe_that_falls_silent_is_written_all_the_same() {
    let directory = TempDir::new();
    let figures = directory.path().join("figures");
    let mut command = nagaya(&figures, &["recorder", "import", "-", "--follow"]);
    let mut following = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = following.stdin.take().unwrap();
    pipe.write_all(lines("a.example", 0..7).as_bytes()).unwrap();
    eventually(PATIENCE, "the lines are in the figures", || {
        let (report, _) = said(nagaya(&figures, &["report", "a.example"]));
        fact(&report, "requests").filter(|it| it == "7").map(drop)
    });
    drop(pipe);
    assert!(following.wait().unwrap().success());
}

#[test]
fn a_pipe_loses_no_line_when_the_import_is_told_to_end() {
    let directory = TempDir::new();
    let figures = directory.path().join("figures");
    let mut command = nagaya(&figures, &["recorder", "import", "-", "--follow"]);
    let mut following = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = following.stdin.take().unwrap();
    pipe.write_all(lines("a.example", 0..7).as_bytes()).unwrap();
    let told = || {
        let (report, _) = said(nagaya(&figures, &["report", "a.example"]));
        fact(&report, "requests").filter(|it| it == "7").map(drop)
    };
    eventually(PATIENCE, "the first are in the figures", told);
    pipe.write_all(lines("a.example", 7..20).as_bytes())
        .unwrap();
    kill_process(Pid::from_child(&following), Signal::TERM).unwrap();
    assert!(following.wait().unwrap().success());
    let (report, _) = said(nagaya(&figures, &["report", "a.example"]));
    assert_eq!(fact(&report, "requests").as_deref(), Some("20"));
}

#[test]
fn an_import_that_waits_for_its_first_byte_ends_when_it_is_told_to() {
    let directory = TempDir::new();
    let figures = directory.path().join("figures");
    for begun in ["", "an endless line "] {
        let mut command = nagaya(&figures, &["recorder", "import", "-", "--follow"]);
        let mut following = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = following.stdin.take().unwrap();
        pipe.write_all(begun.repeat(5_000).as_bytes()).unwrap();
        let file = format!("/proc/{}/status", following.id());
        eventually(PATIENCE, "it listens for signals", || {
            let status = fs::read_to_string(&file).unwrap();
            let blocked = status.lines().find(|line| line.starts_with("SigBlk:"))?;
            (!blocked.ends_with("0000000000000000")).then_some(())
        });
        kill_process(Pid::from_child(&following), Signal::TERM).unwrap();
        eventually(PATIENCE, "it ends", || following.try_wait().unwrap());
    }
}

#[test]
fn a_log_that_cannot_be_read_keeps_no_other_from_being_counted() {
    let directory = TempDir::new();
    let at = |name: &str| directory.path().join(name);
    let figures = at("figures");
    fs::write(at("a.log"), lines("a.example", 0..7)).unwrap();
    fs::write(at("broken.gz"), b"\x1f\x8b\x08 cut").unwrap();
    let pipe = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(pipe.success());
    let logs = ["pipe", "broken.gz", "nowhere", "a.log"].map(|name| at(name).display().to_string());
    let mut words = vec!["recorder", "import"];
    words.extend(logs.iter().map(String::as_str));
    let (text, status) = said(nagaya(&figures, &words));
    assert_eq!((status, text.contains("7 counted")), (1, true), "{text}");
    for log in ["pipe: it is no file", "broken.gz: ", "nowhere: "] {
        assert!(text.contains(log), "{text}");
    }
}

#[test]
fn markup_in_every_field_of_a_log_stays_text_in_the_page() {
    let directory = TempDir::new();
    let (figures, log) = (
        directory.path().join("figures"),
        directory.path().join("a.log"),
    );
    let mark = "<img src=x onerror=alert(1)>&\u{1b}[31m";
    let record = |path: &str, referrer: &str, agent: &str| {
        let time = (Timestamp::now() - 1.hour()).to_string();
        let quoted = |text: &str| text.replace('\u{1b}', "\\u001b");
        format!(
            "{{\"time\":\"{time}\",\"site\":\"a.example\",\"client\":\"192.0.2.7{}\",\"method\":\"GET\",\"target\":\"{}\",\"status\":200,\"referer\":\"{}\",\"user_agent\":\"{}\"}}\n",
            quoted(mark),
            quoted(path),
            quoted(referrer),
            quoted(agent)
        )
    };
    let target = format!("/{mark}?q={mark}&utm_source={mark}");
    let content = [
        record(
            &target,
            &format!("https://b.example/{mark}"),
            &format!("{CHROME} {mark}"),
        ),
        record("/b", "", &format!("{CHROME} {mark}")),
        record(&target, "", &format!("{mark}bot/1")),
    ];
    fs::write(&log, content.concat()).unwrap();
    let (text, status) = said(nagaya(
        &figures,
        &["recorder", "import", log.to_str().unwrap()],
    ));
    assert_eq!((status, text.contains("3 counted")), (0, true), "{text}");
    let (page, _) = said(nagaya(&figures, &["report", "a.example", "--html"]));
    assert!(page.contains("&lt;img src=x"), "{page}");
    assert!(!page.contains("<img") && !page.contains('\u{1b}'), "{page}");
    let (report, _) = said(nagaya(&figures, &["report", "a.example"]));
    assert!(!report.contains('\u{1b}'), "{report}");
}

#[test]
fn what_cannot_be_done_is_said_with_what_to_do() {
    let directory = TempDir::new();
    let (figures, log) = (
        directory.path().join("figures"),
        directory.path().join("a.log"),
    );
    let line = lines("a.example", 0..1);
    let (_, combined) = line.split_once(' ').unwrap();
    fs::write(&log, combined).unwrap();
    let log = log.to_str().unwrap();
    for (words, status, told) in [
        (&["report", "a.example"][..], 1, "figures.db"),
        (&["recorder", "import", log][..], 1, "(--site does)"),
        (
            &["recorder", "import", log, "--site", "<b>"][..],
            2,
            "no name of a site",
        ),
        (
            &["recorder", "import", "/nowhere.log"][..],
            1,
            "/nowhere.log",
        ),
        (
            &["recorder", "import", log, "--salt", "week"][..],
            2,
            "--salt day",
        ),
        (
            &["recorder", "import", log, "--zone", "Nowhere"][..],
            2,
            "--zone",
        ),
        (
            &["recorder", "import", log, log, "--follow"][..],
            2,
            "one log can be followed",
        ),
        (&["report", "a.example"][..], 2, "there are none as yet"),
    ] {
        let (text, ended) = said(nagaya(&figures, words));
        assert_eq!(
            (ended, text.contains(told)),
            (status, true),
            "{words:?}: {text}"
        );
    }
}
