//! Replays every file of the fuzzing corpus of patterns through the property it was found with.

use crate::properties;
use testkit::replay;

#[test]
fn pattern() {
    replay("pattern", properties::pattern);
}
