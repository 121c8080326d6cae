//! Directories as an operator has them: their process, and what is looked for in their tables.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Gateway, TempDir, eventually, processes};

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[directories.customers]
source = "file:{dir}/rows.csv"
[[sites]]
hosts = ["*"]
tenant = "own"
rules = [{ handler = { respond = { body = "fine" } } }]
"#;

#[test]
fn the_directory_process_is_another_after_it_died_and_gone_with_its_directories() {
    let mut gateway = Gateway::with_config(BINARY, CONFIG).start();
    // One that dies before it was given its settings was never there.
    eventually(
        PATIENCE,
        "a directory process that was told what to do",
        || {
            let said = gateway.stderr();
            said.contains("directory process started").then_some(())
        },
    );
    let first = gateway.child_called("directory");
    let pid = Pid::from_raw(i32::try_from(first).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    processes::await_ended(first);
    let second = gateway.child_called("directory");
    assert_ne!(first, second);
    let without = CONFIG.replace(
        "[directories.customers]\nsource = \"file:{dir}/rows.csv\"\n",
        "",
    );
    gateway.reload(&without);
    processes::await_ended(second);
    assert!(
        gateway.stderr().contains("lost the directory process"),
        "{}",
        gateway.stderr()
    );
}

#[test]
fn every_wrong_row_is_listed_and_tables_are_asked_for_that() {
    let directory = TempDir::new();
    let rows =
        "host,tenant\na.example,anna\nb.example,own\nc.example,../x\nd.example,x\nd.example,y\n";
    directory.write("rows.csv", rows);
    let text = CONFIG.replace("{dir}", directory.path().to_str().unwrap());
    let config = directory.write("nagaya.toml", text.replace("{port}", "1"));
    let checked = |words: &[&str]| {
        let config = config.to_str().unwrap();
        let command = Command::new(BINARY)
            .args(["directory", "check", "-c", config])
            .args(words)
            .output();
        let output = command.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    assert_eq!(checked(&[]), (Some(0), "customers: answers\n".to_owned()));
    let (status, said) = checked(&["--all"]);
    assert_eq!(status, Some(1), "{said}");
    for wrong in [
        "rows 5, wrong 3",
        "b.example: its tenant",
        "c.example: column `tenant`",
        "d.example: there are two rows",
    ] {
        assert!(said.contains(wrong), "{wrong}: {said}");
    }
    std::fs::remove_file(directory.path().join("rows.csv")).unwrap();
    eventually(PATIENCE, "a missing table to be told", || {
        let (status, said) = checked(&[]);
        (status == Some(1) && said.contains("no such file")).then_some(())
    });
}
