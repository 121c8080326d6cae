//! What a test does where a program it needs is missing: say so and pass, or fail.
//!
//! The idea: on anybody's machine a missing peer is no fault of the code, but in continuous
//! integration (`CI=true`) a test that looks green and did nothing is. What `scripts/bootstrap.sh
//! test` marks as required must be there; what a kernel or a user's rights lack is said by the tests
//! themselves.

use std::path::Path;

/// Says that a test is skipped for want of a program.
///
/// # Panics
/// In continuous integration, where tests require that program.
pub fn lacks_program(name: &str) {
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(
        !(in_ci && is_required(name)),
        "{name} is not installed, and this test may not be skipped here: scripts/bootstrap.sh test"
    );
    eprintln!("skipped: {name} is not installed");
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
            ("haproxy", false),
            ("", false),
        ] {
            assert_eq!(is_required(name), required, "{name}");
        }
    }
}
