//! What a test does where something it needs is missing: say so and pass, or fail.
//!
//! The idea: on anybody's machine a missing peer, right or kernel is no fault of the code, but in
//! continuous integration (`CI=true`) a test that looks green and did nothing is. So tests ask here,
//! and only what is listed, or is optional in `scripts/bootstrap.sh test`, may be missing there.
//! Left out: tests marked `ignore`, which say themselves why.

use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a machine of continuous integration may lack, and why nobody can do anything about it.
const MAY_LACK: [(&str, &str); 3] = [
    (
        "connection tracking",
        "the kernel's table may serve the whole machine; scripts/test-cgroup2.sh has one to fill",
    ),
    (
        "a controller",
        "a kernel has each in version 1 or 2, or not at all; scripts/test-cgroup2.sh has version 2",
    ),
    (
        "a kernel's feature",
        "whoever builds the kernel chooses: ListenOverflows, quotas with bursts, throttled disks",
    ),
];
/// Names, with commas, what may be lacking nowhere this variable is set.
const NEEDED: &str = "NAGAYA_TEST_NEEDED";

/// Says that a test is skipped for want of something, and what exactly there is not.
///
/// # Panics
/// In continuous integration, unless that may be lacking there; and where it is needed by name.
pub fn lacks(what: &str, why: impl Display) {
    let is_needed = std::env::var(NEEDED).is_ok_and(|list| list.split(',').any(|it| it == what));
    let may_lack = MAY_LACK.iter().any(|(name, _)| *name == what);
    skip(what, &why, !is_needed && (may_lack || !in_ci()));
}

/// Says that a test is skipped for want of a program.
///
/// # Panics
/// In continuous integration, where `scripts/bootstrap.sh test` installs that program.
pub fn lacks_program(name: &str) {
    skip(
        name,
        &"it is not installed: scripts/bootstrap.sh test",
        !(in_ci() && is_required(name)),
    );
}

/// Returns whether this process is not root; says so where a test is skipped for that.
///
/// # Panics
/// In continuous integration, which is root.
pub fn lacks_root(what_for: &str) -> bool {
    let own = std::fs::metadata("/proc/self").expect("/proc is mounted");
    if own.uid() == 0 {
        return false;
    }
    lacks("root", what_for);
    true
}

fn skip(what: &str, why: &dyn Display, may_lack: bool) {
    assert!(
        may_lack,
        "no {what} here, and this test may not be skipped: {why}"
    );
    eprintln!("skipped: no {what}: {why}");
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Whether tests require a program, by the list of what is installed for them.
fn is_required(name: &str) -> bool {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/bootstrap.sh");
    let text = std::fs::read_to_string(&script).unwrap_or_default();
    let list = text.split_once("\ntest_tools=(\n").map(|(_, rest)| rest);
    let list = list.and_then(|rest| rest.split_once("\n)"));
    let (list, _) = list.expect("scripts/bootstrap.sh lists what tests need");
    list.lines().any(|line| {
        let what = line.trim().strip_suffix(":required");
        let path = what.and_then(|what| what.split(':').next());
        let file = path.and_then(|path| path.rsplit('/').next());
        file.is_some_and(|file| file.trim_end_matches('*') == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_require_is_what_bootstrap_installs_for_them() {
        for (name, required) in [
            ("php-fpm", true),
            ("nginx", true),
            ("htpasswd", true),
            ("redis-server", true),
            ("chromium", false),
            ("apache2", true),
            ("haproxy", true),
            ("", false),
        ] {
            assert_eq!(is_required(name), required, "{name}");
        }
    }

    #[test]
    fn what_may_not_be_lacking_fails_its_test() {
        let skipped = |may| std::panic::catch_unwind(move || skip("moon", &"too far", may));
        assert!(skipped(true).is_ok());
        let said = skipped(false).expect_err("it fails");
        let said = said.downcast_ref::<String>().expect("words");
        assert_eq!(
            said,
            "no moon here, and this test may not be skipped: too far"
        );
    }
}
