//! Ways out of a pool's walls: all that are known here are tried, and none leads anywhere.

use std::fs::{Permissions, copy, rename, set_permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use testkit::PATIENCE;

use crate::fixtures::pools::{Bed, WHO, bed_of};

const WAYS: &str = include_str!("escapes.py");
const PYTHON: &str = "/usr/bin/python3";

/// Runs what it is told to, and shows what that says.
const PAGE: &str = "<?php echo shell_exec($_GET['run'] . ' 2>&1');";

/// The words after the program's name, seen from the second site.
fn words(bed: &Bed, place: &str, own: &Path) -> Vec<String> {
    let master = bed.who().master;
    let directory = bed.gateway.directory().path();
    let home = bed.site.path().join("app");
    let sockets = std::fs::read_dir(directory.join("pools")).unwrap();
    let mut sockets = sockets.map(|it| it.unwrap().path());
    let is_first = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("php-app-test-") && name.ends_with(".sock")
    };
    let socket = sockets.find(is_first).expect("the first site's socket");
    let paths = [
        home.clone(),
        home.join("secret.txt"),
        socket,
        directory.join("control"),
        directory.join("nagaya.toml"),
    ];
    let paths = paths.iter().map(|path| path.display().to_string());
    let pids = [master, bed.gateway.pid()].map(|pid| pid.to_string());
    let first = [place.to_owned()].into_iter();
    let own = own.display().to_string();
    first.chain(paths).chain(pids).chain([own]).collect()
}

#[test]
fn no_way_leads_out_of_a_pools_walls() {
    if testkit::lacks_root("to run pools as two users") {
        return;
    }
    if !Path::new(PYTHON).exists() {
        testkit::lacks_program("python3");
        return;
    }
    let files = [
        ("app/index.php", WHO),
        ("app/secret.txt", "secret"),
        ("other/index.php", PAGE),
        ("other/ways.py", WAYS),
    ];
    let Some(bed) = bed_of(&files) else { return };
    let own = bed.site.path().join("other");
    copy("/usr/bin/id", own.join("setuid")).unwrap();
    set_permissions(own.join("setuid"), Permissions::from_mode(0o4755)).unwrap();
    // Where there are no walls each leads somewhere, or it would be no test.
    let outside = Command::new(PYTHON)
        .arg(own.join("ways.py"))
        .args(words(&bed, "outside", &own))
        .output()
        .unwrap();
    let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
    let is_led = |line: &&str| line.starts_with("in: ");
    let count = outside.lines().filter(is_led).count();
    assert!(outside.ends_with("tried\n"), "{outside}");
    assert_eq!(count, outside.lines().count() - 1, "{outside}");
    let run = [PYTHON, "ways.py"].into_iter().map(str::to_owned);
    let run: Vec<_> = run.chain(words(&bed, "inside", &own)).collect();
    let answer = bed.get_of("other.test", &format!("/index.php?run={}", run.join("%20")));
    let inside = answer.text();
    assert!(inside.ends_with("tried\n"), "{inside}");
    let led: Vec<_> = inside.lines().filter(is_led).collect();
    let tried = inside.lines().count() - 1;
    assert!(
        led.is_empty() && tried > 55,
        "of {tried}: {led:?}\n{inside}"
    );
    eprintln!("0 of {tried} ways lead out");
}

#[test]
fn a_page_that_is_swapped_for_a_link_shows_nothing_of_anothers() {
    if testkit::lacks_root("to run pools as two users") {
        return;
    }
    let files = [
        ("app/index.php", WHO),
        ("app/secret.php", "secret"),
        ("other/index.php", "own"),
    ];
    let Some(bed) = bed_of(&files) else { return };
    let at = |name: &str| bed.site.path().join(name);
    let swap = || {
        symlink(at("app/secret.php"), at("other/next")).unwrap();
        rename(at("other/next"), at("other/index.php")).unwrap();
        std::fs::write(at("other/next"), "own").unwrap();
        rename(at("other/next"), at("other/index.php")).unwrap();
    };
    let ask = || -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        let mut answers = Vec::new();
        let is_enough =
            |answers: &Vec<String>| answers.len() >= 500 && answers.iter().any(|it| it == "own");
        while !is_enough(&answers) && Instant::now() < until {
            answers.push(bed.get_of("other.test", "/index.php").text());
        }
        answers
    };
    let answers = std::thread::scope(|scope| {
        let asking = scope.spawn(ask);
        while !asking.is_finished() {
            swap();
        }
        asking.join().unwrap()
    });
    assert!(answers.iter().any(|it| it == "own"), "{answers:?}");
    assert!(!answers.iter().any(|it| it.contains("secret")));
}
