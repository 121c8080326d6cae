//! Durations as seconds in what is written and read again; nonsense is read as nothing.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(from)?;
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
