//! What `scripts/test.sh` makes of a run of tests: which failed, and which of them pass alone; and
//! what `scripts/count-lines.sh` counts.
//!
//! The idea: a cargo of our own says what cargo says, and names a program of our own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::tree::root;
use testkit::TempDir;

/// A program that passes alone.
const PASSES: &str = "echo 'test result: ok. 1 passed; 0 failed'";

/// A run of `scripts/test.sh`.
struct Run {
    is_fine: bool,
    said: String,
    /// What it listed as flaky.
    flaky: String,
}

#[test]
fn a_run_that_passes_lists_nothing() {
    let run = run("echo 'test result: ok. 3 passed'", "exit 1");
    assert!(run.is_fine, "{:?}", run.said);
    assert_eq!(run.flaky, "");
}

#[test]
fn what_passes_alone_is_listed_with_its_program_and_its_name() {
    let failed = [("--lib", &["a::b", "c"][..]), ("--test life", &["a::b"])];
    let run = run(&cargo(&failed), PASSES);
    assert!(run.is_fine, "{:?}", run.said);
    let listed = "-p testkit --lib a::b\n-p testkit --lib c\n-p testkit --test life a::b\n";
    assert_eq!(run.flaky, listed);
}

#[test]
fn more_than_three_that_pass_alone_are_too_many() {
    let run = run(&cargo(&[("--lib", &["a", "b", "c", "d"])]), PASSES);
    assert!(!run.is_fine, "{:?}", run.said);
    assert!(run.said.contains("at most 3 may"), "{:?}", run.said);
}

#[test]
fn what_fails_again_fails_the_run() {
    let only_a = format!("[ \"$*\" = '--exact a' ] && {PASSES}");
    let run = run(&cargo(&[("--lib", &["a", "b"])]), &only_a);
    assert!(!run.is_fine, "{:?}", run.said);
    assert!(run.said.contains("test: 1 failed"), "{:?}", run.said);
    assert_eq!(run.flaky, "-p testkit --lib a\n");
}

#[test]
fn a_test_that_is_not_found_again_has_not_passed() {
    let none = "echo 'test result: ok. 0 passed; 0 failed'";
    assert!(!run(&cargo(&[("--lib", &["a"])]), none).is_fine);
}

#[test]
fn a_program_that_ends_without_a_list_is_run_again_as_a_whole() {
    let run = run(&cargo(&[("--bin x", &[])]), "[ $# = 0 ]");
    assert!(run.is_fine, "{:?}", run.said);
    assert_eq!(run.flaky, "-p testkit --bin x (the whole program)\n");
}

#[test]
fn tests_of_documentation_are_run_again_by_cargo() {
    let again = "[ \"$*\" = 'test --locked -p testkit --doc' ] && exit 0\n";
    let failed = cargo(&[("--doc", &["src/lib.rs - x (line 3)"])]);
    let run = run(&(again.to_owned() + &failed), "exit 1");
    assert!(run.is_fine, "{:?}", run.said);
    assert_eq!(run.flaky, "-p testkit --doc (the whole program)\n");
}

#[test]
fn what_does_not_compile_fails_the_run() {
    let run = run("echo 'error: could not compile'; exit 101", PASSES);
    assert!(!run.is_fine);
    assert!(run.said.contains("before a test did"), "{:?}", run.said);
}

#[test]
fn lines_are_counted_less_the_tests() {
    let directory = TempDir::new();
    let script = fs::read_to_string(root().join("scripts/count-lines.sh")).unwrap();
    let script = directory.write("scripts/count-lines.sh", script);
    let test = "#[cfg(test)]\n";
    let within = format!("{test}mod tests {{\n    fn a() {{\n    }}\n}}\n");
    let items = format!("    {test}    fn b() {{\n    }}\n{test}use x::y;\n");
    for (name, text) in [
        (
            "a/src/lib.rs",
            format!("//! It.\n{within}mod b;\n{items}fn c() {{\n}}\n"),
        ),
        (
            "a/src/b.rs",
            format!("{test}mod tests;\n\n{test}#[path = \"x\"]\npub(crate) mod bed;\n"),
        ),
        ("a/src/b/tests.rs", "fn d() {}\n".to_owned()),
        ("a/src/b/bed/more.rs", "fn e() {}\n".to_owned()),
        ("a/shim/c.c", "int c;\n".to_owned()),
        ("b/src/main.rs", "fn main() {}\n".to_owned()),
    ] {
        directory.write(&format!("crates/{name}"), text);
    }
    let output = Command::new("bash").arg(script).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words, ["6", "a", "1", "b", "7", "in", "all"], "{output:?}");
}

/// A cargo whose programs fail, each with the names of its tests that did.
fn cargo(failed: &[(&str, &[&str])]) -> String {
    let mut text = "cat <<END\n".to_owned();
    for (words, names) in failed {
        let started = match *words {
            "--doc" => "   Doc-tests testkit",
            _ => "     Running tests/x.rs ($PROGRAM)",
        };
        let _ = writeln!(text, "{started}\n\nrunning 9 tests\ntest fine ... ok");
        if !names.is_empty() {
            let listed: String = names.iter().map(|name| format!("    {name}\n")).collect();
            let _ = writeln!(
                text,
                "\nfailures:\n\n---- said ----\n    of a test\n\n\nfailures:\n{listed}\n\
                 test result: FAILED. 1 passed; 1 failed"
            );
        }
        let _ = writeln!(
            text,
            "error: test failed, to rerun pass \\`-p testkit {words}\\`"
        );
    }
    text + "END\nexit 101\n"
}

/// Runs the script with these two programs, below a directory whose name has a blank.
fn run(cargo: &str, program: &str) -> Run {
    let directory = TempDir::new();
    let write = |name: &str, text: &str| -> PathBuf {
        let text = directory.write(&format!("{name}.text"), format!("#!/bin/sh\n{text}\n"));
        let file = directory.path().join(name);
        // Not written by this process: what another thread starts would have it open for a moment.
        let mut install = Command::new("install");
        let done = install.args(["-m", "755"]).args([&text, &file]).status();
        assert!(done.unwrap().success());
        file
    };
    let target = directory.path().join("tar get");
    let script = root().join("scripts/test.sh");
    let output = Command::new(script)
        .env("CARGO", write("car go", cargo))
        .env("PROGRAM", write("pro gram", program))
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    Run {
        is_fine: output.status.success(),
        said: String::from_utf8_lossy(&said).into_owned(),
        flaky: fs::read_to_string(target.join("flaky-tests")).unwrap(),
    }
}
