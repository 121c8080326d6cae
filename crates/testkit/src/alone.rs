//! A test in a process of its own, where it changes what all threads of a process share: users,
//! limits, signals, descriptors, children.
//!
//! The idea: the test program starts itself again for that one test, so that such tests may stand
//! beside others. Left out: which of them may run at the same time, for that changes nothing of ours.

use std::any::type_name;
use std::env;
use std::process::Command;

/// Set where the work is done.
const MARK: &str = "NAGAYA_TEST_ALONE";

/// Runs `body`, a closure of the calling test, in a fresh process of this test program.
///
/// # Panics
/// When it fails there.
pub fn alone(body: impl FnOnce()) {
    alone_with(&[], body);
}

/// The same with more variables in the environment of that process.
///
/// # Panics
/// When `body` fails there.
pub fn alone_with<F: FnOnce()>(variables: &[(&str, &str)], body: F) {
    if env::var_os(MARK).is_some() {
        return body();
    }
    let inner = Command::new(env::current_exe().expect("a process knows its program"))
        .args(["--exact", test_of(type_name::<F>()), "--nocapture"])
        .env(MARK, "1")
        .envs(variables.iter().copied())
        .output()
        .expect("a test program starts");
    let said = String::from_utf8_lossy(&inner.stdout);
    print!("{said}");
    eprint!("{}", String::from_utf8_lossy(&inner.stderr));
    // A name that is none would pass as well: no test of it fails.
    let has_passed = inner.status.success() && said.contains("1 passed");
    assert!(has_passed, "alone: {}", inner.status);
}

/// The name of the test that a closure stands in: `module::test` of
/// `program::module::test::{{closure}}`.
fn test_of(closure: &str) -> &str {
    let (_, path) = closure.split_once("::").expect("it is in a crate");
    path.trim_end_matches("::{{closure}}")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_test_alone_has_its_own_process_and_variables() {
        let outside = std::process::id().to_string();
        alone_with(&[("OUTSIDE", &outside)], || {
            let other = env::var("OUTSIDE").expect("it was set");
            assert_ne!(other, std::process::id().to_string());
        });
    }

    #[test]
    fn what_fails_alone_fails() {
        if env::var_os(MARK).is_some() {
            panic!("as it should");
        }
        assert!(catch_unwind(|| alone(|| ())).is_err());
        assert_eq!(test_of("os::spawn::ends::{{closure}}"), "spawn::ends");
    }
}
