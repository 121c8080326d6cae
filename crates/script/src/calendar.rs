//! Times in words: `strftime` as Ruby has it.

use jiff::Zoned;

/// Longest text.
const BYTES_MAX: usize = 64 * 1_024;
/// Widest field.
const WIDTH_MAX: usize = 1_024;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// What stands between `%` and its letter.
#[derive(Default, Clone, Copy)]
struct FormatFlags {
    /// `-`, `0`, `_`: nothing, zeros or blanks before it.
    padding: Option<u8>,
    upper: bool,
    swap: bool,
    colons: usize,
    width: Option<usize>,
}

/// Writes `time` as `pattern` says; what is no directive stays as it is. `None` where the text
/// would be too long.
pub(crate) fn format(pattern: &[u8], time: &Zoned) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = pattern;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            out.push(*byte);
        } else {
            let (flags, after) = flags(rest);
            match after.split_first() {
                Some((letter, after)) if write(*letter, flags, time, &mut out) => rest = after,
                _ => out.push(b'%'),
            }
        }
        if out.len() > BYTES_MAX {
            return None;
        }
    }
    Some(out)
}

fn flags(mut rest: &[u8]) -> (FormatFlags, &[u8]) {
    let mut flags = FormatFlags::default();
    while let Some((byte, after)) = rest.split_first() {
        match byte {
            b'-' | b'_' => flags.padding = Some(*byte),
            b'0' if flags.width.is_none() => flags.padding = Some(b'0'),
            b'^' => flags.upper = true,
            b'#' => flags.swap = true,
            b':' => flags.colons += 1,
            b'0'..=b'9' => {
                let width = flags.width.unwrap_or(0) * 10 + usize::from(byte - b'0');
                flags.width = Some(width.min(WIDTH_MAX));
            }
            _ => break,
        }
        rest = after;
    }
    (flags, rest)
}

/// Whether the letter is known.
fn write(letter: u8, flags: FormatFlags, time: &Zoned, out: &mut Vec<u8>) -> bool {
    if let Some((number, width, padding)) = number(letter, time) {
        write_number(number, width, padding, flags, out);
        return true;
    }
    let text = match letter {
        b'L' | b'N' => fraction(letter, flags, time),
        b'z' => offset(flags, time),
        _ => match text(letter, time) {
            Some(text) => cased(text, letter, flags),
            None => match composed(letter) {
                Some(pattern) => {
                    let text = format(pattern, time).unwrap_or_default();
                    cased(String::from_utf8_lossy(&text).into_owned(), letter, flags)
                }
                None => return false,
            },
        },
    };
    let blanks = flags.width.unwrap_or(0).saturating_sub(text.len());
    let blank = match flags.padding {
        Some(b'0') => b'0',
        _ => b' ',
    };
    if flags.padding != Some(b'-') {
        out.extend(std::iter::repeat_n(blank, blanks));
    }
    out.extend_from_slice(text.as_bytes());
    true
}

/// A directive that is a number: its value, width and padding.
fn number(letter: u8, time: &Zoned) -> Option<(i64, usize, u8)> {
    let weekday = i64::from(time.weekday().to_sunday_zero_offset());
    let year = i64::from(time.year());
    let (yday, hour) = (i64::from(time.day_of_year()), i64::from(time.hour()));
    let hour12 = (hour + 11) % 12 + 1;
    let iso = time.date().iso_week_date();
    let zeros = |number: i64, width: usize| Some((number, width, b'0'));
    match letter {
        b'Y' => zeros(year, if year < 0 { 5 } else { 4 }),
        b'C' => zeros(year.div_euclid(100), 2),
        b'y' => zeros(year.rem_euclid(100), 2),
        b'm' => zeros(time.month().into(), 2),
        b'd' => zeros(time.day().into(), 2),
        b'e' => Some((time.day().into(), 2, b' ')),
        b'j' => zeros(yday, 3),
        b'H' => zeros(hour, 2),
        b'k' => Some((hour, 2, b' ')),
        b'I' => zeros(hour12, 2),
        b'l' => Some((hour12, 2, b' ')),
        b'M' => zeros(time.minute().into(), 2),
        b'S' => zeros(time.second().into(), 2),
        b's' => zeros(time.timestamp().as_second(), 1),
        b'u' => zeros((weekday + 6) % 7 + 1, 1),
        b'w' => zeros(weekday, 1),
        b'G' => zeros(iso.year().into(), 4),
        b'g' => zeros(i64::from(iso.year()).rem_euclid(100), 2),
        b'V' => zeros(iso.week().into(), 2),
        b'U' => zeros((yday + 6 - weekday) / 7, 2),
        b'W' => zeros((yday + 6 - (weekday + 6) % 7) / 7, 2),
        _ => None,
    }
}

fn write_number(number: i64, width: usize, padding: u8, flags: FormatFlags, out: &mut Vec<u8>) {
    let padding = match flags.padding {
        Some(b'_') => b' ',
        Some(other) => other,
        None => padding,
    };
    let width = flags.width.unwrap_or(width);
    let text = match padding {
        b'-' => number.to_string(),
        b' ' => format!("{number:width$}"),
        _ => format!("{number:0width$}"),
    };
    out.extend_from_slice(text.as_bytes());
}

/// A directive that is a word.
fn text(letter: u8, time: &Zoned) -> Option<String> {
    let month = usize::try_from(time.month() - 1).ok();
    let month = || month.and_then(|at| MONTHS.get(at)).copied();
    let day = usize::try_from(time.weekday().to_sunday_zero_offset()).ok();
    let day = || day.and_then(|at| DAYS.get(at)).copied();
    let half = || if time.hour() < 12 { "AM" } else { "PM" };
    Some(match letter {
        b'B' => month()?.to_owned(),
        b'b' | b'h' => month()?.get(..3)?.to_owned(),
        b'A' => day()?.to_owned(),
        b'a' => day()?.get(..3)?.to_owned(),
        b'p' => half().to_owned(),
        b'P' => half().to_lowercase(),
        b'Z' => match time.time_zone() {
            zone if *zone == jiff::tz::TimeZone::UTC => "UTC".to_owned(),
            zone => {
                let offset = zone.to_offset_info(time.timestamp());
                offset.abbreviation().to_owned()
            }
        },
        b'n' => "\n".to_owned(),
        b't' => "\t".to_owned(),
        b'%' => "%".to_owned(),
        _ => return None,
    })
}

/// A directive that stands for others.
fn composed(letter: u8) -> Option<&'static [u8]> {
    Some(match letter {
        b'c' => b"%a %b %e %H:%M:%S %Y",
        b'D' | b'x' => b"%m/%d/%y",
        b'F' => b"%Y-%m-%d",
        b'T' | b'X' => b"%H:%M:%S",
        b'R' => b"%H:%M",
        b'r' => b"%I:%M:%S %p",
        b'v' => b"%e-%^b-%Y",
        b'+' => b"%a %b %e %H:%M:%S %Z %Y",
        _ => return None,
    })
}

fn cased(text: String, letter: u8, flags: FormatFlags) -> String {
    match (flags.upper, flags.swap, letter) {
        (_, true, b'p') => text.to_lowercase(),
        (true, ..) | (_, true, _) => text.to_uppercase(),
        _ => text,
    }
}

/// Digits of the second's fraction: 3 or 9, or as many as the width says.
fn fraction(letter: u8, flags: FormatFlags, time: &Zoned) -> String {
    let usual = if letter == b'L' { 3 } else { 9 };
    let digits = flags.width.unwrap_or(usual).max(1);
    let text = format!("{:09}", time.subsec_nanosecond());
    let given = text.get(..digits.min(9)).unwrap_or_default();
    format!("{given:0<digits$}")
}

/// `+0900`, `+09:00` or `+09:00:00`.
fn offset(flags: FormatFlags, time: &Zoned) -> String {
    let seconds = time.offset().seconds();
    let sign = if seconds < 0 { '-' } else { '+' };
    let (hours, minutes) = (seconds.abs() / 3_600, seconds.abs() / 60 % 60);
    match flags.colons {
        0 => format!("{sign}{hours:02}{minutes:02}"),
        1 => format!("{sign}{hours:02}:{minutes:02}"),
        _ => format!("{sign}{hours:02}:{minutes:02}:{:02}", seconds.abs() % 60),
    }
}
