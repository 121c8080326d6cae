//! Durations as seconds in what is written.

use std::time::Duration;

use serde::Serializer;

pub(crate) fn seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}
