//! The zone whose days figures are kept by: settled when they were begun, the machine's where nothing is said.

use jiff::tz::TimeZone;

use crate::store::{FigureStore, StoreError};

/// The zone of this machine, by name where it has one.
pub fn machine_zone() -> String {
    let zone = TimeZone::system();
    zone.iana_name().unwrap_or("UTC").to_owned()
}

/// The zone of a database's days.
///
/// # Errors
/// Where it cannot be read.
pub fn zone_of(store: &mut FigureStore) -> Result<TimeZone, StoreError> {
    let zone = store.setting("zone")?.unwrap_or_else(machine_zone);
    Ok(TimeZone::get(&zone).unwrap_or(TimeZone::UTC))
}
