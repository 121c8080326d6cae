//! Lines of logs that nobody thought of.

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

proptest! {
    #[test]
    fn any_bytes_are_lines(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        properties::log_lines(&bytes);
    }
}
