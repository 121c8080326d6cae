//! HTTP dates, as seconds since 1970.
//!
//! A thin wrapper around `httpdate`, which reads all three formats of RFC 9110 §5.6.7 and writes the first.

use std::{
    io::Write as _,
    str::FromStr as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use httpdate::HttpDate;

/// The last second of the year 9999, which is the last an HTTP date can name.
const LAST_SECOND: u64 = 253_402_300_799;

/// Writes a date such as `Sun, 06 Nov 1994 08:49:37 GMT`. Times after the year 9999 become its end.
pub fn format(unix_s: u64) -> [u8; 29] {
    let mut text = [b' '; 29];
    let time = UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_SECOND));
    let written = write!(text.as_mut_slice(), "{}", HttpDate::from(time));
    debug_assert!(written.is_ok(), "an HTTP date is 29 bytes long");
    text
}

/// Reads a date in any of the three formats; `None` before 1970 and for anything else.
pub fn parse(text: &[u8]) -> Option<u64> {
    let date = HttpDate::from_str(str::from_utf8(text).ok()?).ok()?;
    Some(
        SystemTime::from(date)
            .duration_since(UNIX_EPOCH)
            .ok()?
            .as_secs(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_survives_the_way_there_and_back() {
        for unix_s in [0, 1, 784_111_777, 1_709_164_800, 4_102_444_799, LAST_SECOND] {
            assert_eq!(parse(&format(unix_s)), Some(unix_s));
        }
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(format(u64::MAX), format(LAST_SECOND));
    }

    #[test]
    fn all_three_formats_are_read_and_nothing_else() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        for text in [
            "",
            "now",
            "1994-11-06T08:49:37Z",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Feb 1994 25:61:61 GMT",
            "\u{e9}",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
