//! Lines of logs, and questions, that nobody thought of.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod console;
mod properties;

use proptest::prelude::*;

#[test]
fn log_lines() {
    testkit::corpus::replay("log_lines", properties::log_lines);
}

#[test]
fn log_lines_changed_by_chance() {
    testkit::corpus::mutate("log_lines", properties::log_lines);
}

#[test]
fn console_question() {
    testkit::corpus::replay("console_question", properties::console_question);
}

proptest! {
    #[test]
    fn any_bytes_are_a_question(
        path in "(|load|history|limits|machine|programs|site/tea.example/[a-z]{4,8}|events|.{0,20})",
        query in "((from|to|filter|page|visitor|list|format|sort|rows|lang|cause)=[!-~]{0,12}&?){0,4}.{0,20}",
        rest in ".{0,20}",
    ) {
        properties::console_question(format!("{path}\n{query}\n{rest}").as_bytes());
    }

    #[test]
    fn any_bytes_are_lines(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        properties::log_lines(&bytes);
    }
}
