//! Replays the fuzzing corpus through the property it was found with.

use crate::properties;
use testkit::replay;

#[test]
fn config() {
    replay("config", properties::config);
}
