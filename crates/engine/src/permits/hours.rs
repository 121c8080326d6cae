//! When a limit holds: its windows of the week, on the clocks of its time zone.
//!
//! The answer changes at whole minutes, so it is worked out once a minute and kept, by whichever
//! worker asks first.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use config::model;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use limits::schedule::{self, Window};

use crate::error::{Error, Kind, Result};

/// The hours of a limit.
#[derive(Debug)]
pub(super) struct Hours {
    windows: Box<[Window]>,
    zone: TimeZone,
    /// The minute since 1970 that was looked at last, doubled, and 1 more where a window held.
    known: AtomicU64,
}

impl Hours {
    /// Compiles a `when`; `default` names the zone where it names none itself.
    ///
    /// # Errors
    /// When this machine does not know the time zone.
    pub(super) fn compile(when: &model::When, default: Option<&str>) -> Result<Self> {
        let zone = match when.zone.as_deref().or(default) {
            None => TimeZone::system(),
            Some(name) => TimeZone::get(name).map_err(|error| unknown(name, &error))?,
        };
        let windows = when.windows.iter().map(|window| Window {
            days: window.days,
            from_minute: window.from_minute,
            until_minute: window.until_minute,
        });
        Ok(Self {
            windows: windows.collect(),
            zone,
            known: AtomicU64::new(u64::MAX),
        })
    }

    /// Whether a window holds at this second since 1970.
    pub(super) fn hold(&self, unix_s: u64) -> bool {
        let minute = unix_s / 60;
        let known = self.known.load(Relaxed);
        if known >> 1 == minute {
            return known & 1 == 1;
        }
        let holds = self.look(unix_s);
        self.known.store(minute << 1 | u64::from(holds), Relaxed);
        holds
    }

    fn look(&self, unix_s: u64) -> bool {
        let moment = i64::try_from(unix_s).unwrap_or(i64::MAX);
        let Ok(moment) = Timestamp::from_second(moment) else {
            return false;
        };
        let local = self.zone.to_datetime(moment);
        // Neither is ever negative.
        let part = |value: i8| u8::try_from(value).unwrap_or_default();
        let weekday = part(local.weekday().to_monday_zero_offset());
        let minute = u16::from(part(local.hour())) * 60 + u16::from(part(local.minute()));
        schedule::holds(&self.windows, weekday, minute)
    }
}

fn unknown(name: &str, error: &jiff::Error) -> Error {
    let detail = format!(
        "time zone {name} of a limit's `when`: {error}: is the package tzdata installed here?"
    );
    Error::new(Kind::Internal, "time_zone", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mon to Fri, 20:00 to 02:00.
    fn evenings(zone: &str) -> Hours {
        let window = model::Window {
            days: 0b0001_1111,
            from_minute: 20 * 60,
            until_minute: 2 * 60,
        };
        let when = model::When {
            windows: vec![window],
            zone: Some(zone.to_owned()),
        };
        Hours::compile(&when, None).expect("a zone every machine knows")
    }

    fn check(zone: &str, local: &str, expected: bool) {
        let hours = evenings(zone);
        let local: jiff::civil::DateTime = local.parse().expect("a date");
        let moment = local.to_zoned(hours.zone.clone()).expect("it exists");
        let unix_s = u64::try_from(moment.timestamp().as_second()).expect("after 1970");
        for _ in 0..2 {
            assert_eq!(hours.hold(unix_s), expected, "{zone} {local}");
        }
    }

    #[test]
    fn hours_are_those_of_the_zone_and_run_past_midnight() {
        for zone in ["UTC", "Asia/Tokyo", "America/New_York"] {
            // 2026-11-20 is a Friday.
            check(zone, "2026-11-20T19:59:59", false);
            check(zone, "2026-11-20T20:00:00", true);
            check(zone, "2026-11-21T00:00:00", true);
            check(zone, "2026-11-21T01:59:59", true);
            check(zone, "2026-11-21T02:00:00", false);
            check(zone, "2026-11-21T20:00:00", false);
            check(zone, "2026-11-23T01:00:00", false);
            check(zone, "2026-11-23T09:05:00", false);
        }
    }

    #[test]
    fn an_answer_holds_no_longer_than_its_minute() {
        let hours = evenings("UTC");
        let eight = 1_795_204_800; // 2026-11-20T20:00:00Z
        assert!(!hours.hold(eight - 1));
        assert!(hours.hold(eight));
        assert!(!hours.hold(eight - 1));
    }

    #[test]
    fn an_unknown_zone_is_refused_with_what_to_try() {
        let when = model::When {
            windows: Vec::new(),
            zone: None,
        };
        let error = Hours::compile(&when, Some("Asia/Nowhere")).expect_err("no such place");
        assert!(error.detail.contains("Asia/Nowhere") && error.detail.contains("tzdata"));
    }
}
