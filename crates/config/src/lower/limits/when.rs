//! `when = "mon-fri 20:00-02:00 Asia/Tokyo"`, and time zones.
//!
//! The idea: a text is read word by word, and each kind of word is known by its looks: days are
//! three letters, times begin with a digit, what is left is a time zone. Days hold until times
//! have followed them; then further days begin anew.

use std::ops::Range;

use crate::keys;
use crate::lower::context::problem;
use crate::lower::value::Value;
use crate::model::{When, Window};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// All days.
const DAILY: u8 = 0x7f;
/// Minutes of a day.
const DAY_MINUTES: u16 = 24 * 60;
/// Windows of one limit, to be looked through for each request.
const WINDOWS_MAX: usize = 64;
/// Longest name of a time zone; the longest there is has 32.
const ZONE_BYTES_MAX: usize = 64;
/// What is understood.
const HELP: &str = "days, times and a time zone are understood, as in `mon-fri 20:00-02:00`, `sat,sun` or \
    `daily 09:00-17:30 Asia/Tokyo`";

/// What people write for days, and the days meant.
const OTHERS: &[(&[&str], &str)] = &[
    (&["weekday", "weekdays", "workdays"], "mon-fri"),
    (&["weekend", "weekends"], "sat,sun"),
    (&["always", "everyday", "all", "*"], "daily"),
    (&["nightly", "night"], "daily 22:00-06:00"),
];

/// When a limit holds; `None` if it could not be read.
pub(super) fn when(value: &Value<'_>) -> Option<When> {
    let mut all = Reading::default();
    let found_before = value.context.found();
    let texts = value.one_or_list();
    for text in &texts {
        all.text(text);
    }
    if texts.is_empty() {
        value.report_help("`when` is empty", HELP);
    } else if all.windows.len() > WINDOWS_MAX {
        value.report(format!("`when` has more than {WINDOWS_MAX} windows"));
    }
    (value.context.found() == found_before).then_some(When {
        windows: all.windows,
        zone: all.zone,
    })
}

/// How it is written: a text for each window.
pub(crate) fn spell(when: &When) -> Vec<String> {
    let zone = when.zone.as_ref().map(|zone| format!(" {zone}"));
    let zone = zone.unwrap_or_default();
    let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
    let text = |window: &Window| {
        let days = spell_days(window.days);
        let (from, until) = (clock(window.from_minute), clock(window.until_minute));
        format!("{days} {from}-{until}{zone}")
    };
    when.windows.iter().map(text).collect()
}

/// The days of a mask, three and more in a row as `mon-fri`.
fn spell_days(mask: u8) -> String {
    if mask & DAILY == DAILY {
        return "daily".to_owned();
    }
    let holds = |day: usize| day < DAYS.len() && mask & (1 << day) != 0;
    let mut spelt: Vec<String> = Vec::new();
    let mut day = 0;
    while let Some(first) = DAYS.get(day) {
        let run = (day..).take_while(|day| holds(*day)).count();
        match DAYS.get(day + run.max(1) - 1) {
            Some(last) if run > 2 => spelt.push(format!("{first}-{last}")),
            Some(last) if run == 2 => spelt.push(format!("{first},{last}")),
            Some(_) if run == 1 => spelt.push((*first).to_owned()),
            _ => {}
        }
        day += run.max(1);
    }
    spelt.join(",")
}

/// What the texts have said so far.
#[derive(Default)]
struct Reading {
    windows: Vec<Window>,
    zone: Option<String>,
}

/// Days that the times to come belong to.
#[derive(Clone, Copy)]
struct Days {
    mask: u8,
    has_times: bool,
}

impl Reading {
    /// Takes in one text; what is wrong with it is reported.
    fn text(&mut self, value: &Value<'_>) {
        let Some(text) = value.text() else {
            return;
        };
        let mut days: Option<Days> = None;
        let mut rest = words(text).into_iter();
        for (range, word) in rest.by_ref() {
            if word.starts_with(|c: char| c.is_ascii_digit()) {
                let Some((from_minute, until_minute)) = times(value, range, word) else {
                    return;
                };
                let open = days.get_or_insert(Days {
                    mask: DAILY,
                    has_times: false,
                });
                open.has_times = true;
                let days = open.mask;
                self.windows.push(Window {
                    days,
                    from_minute,
                    until_minute,
                });
            } else if let Some(mask) = read_days(word) {
                let open = days.filter(|days| !days.has_times);
                let before = open.map_or(0, |days| days.mask);
                days = Some(Days {
                    mask: before | mask,
                    has_times: false,
                });
            } else {
                if !self.zone(value, range, word) {
                    return;
                }
                break;
            }
        }
        if let Some((range, _)) = rest.next() {
            let message = "nothing stands behind the time zone";
            value
                .context
                .report(problem(value.part(range), message).help(HELP));
            return;
        }
        match days {
            None => value.report_help(
                format!("`{}` names neither days nor times", value.name),
                HELP,
            ),
            Some(Days {
                has_times: true, ..
            }) => {}
            Some(Days { mask: days, .. }) => self.windows.push(Window {
                days,
                from_minute: 0,
                until_minute: DAY_MINUTES,
            }),
        }
    }

    /// Takes in a word that is neither days nor times. Whether it is a time zone that can be.
    fn zone(&mut self, value: &Value<'_>, range: Range<usize>, word: &str) -> bool {
        let Some(name) = known_zone(word) else {
            report_stray(value, range, word);
            return false;
        };
        if let Some(other) = self.zone.as_ref().filter(|other| **other != name) {
            let message = format!(
                "`{}` names two time zones, `{other}` and `{name}`",
                value.name
            );
            let help = "make it two limits, one for each";
            value
                .context
                .report(problem(value.part(range), message).help(help));
            return false;
        }
        self.zone = Some(name);
        true
    }
}

/// The words of a text and where they stand: what spaces and commas leave.
fn words(text: &str) -> Vec<(Range<usize>, &str)> {
    let is_between = |c: char| c.is_whitespace() || c == ',';
    let mut words = Vec::new();
    let mut at = 0;
    for part in text.split_inclusive(is_between) {
        let word = part.trim_end_matches(is_between);
        if !word.is_empty() {
            words.push((at..at + word.len(), word));
        }
        at += part.len();
    }
    words
}

/// Days such as `mon`, `mon-fri` (over the week's end as well) and `daily`.
fn read_days(word: &str) -> Option<u8> {
    let word = word.to_ascii_lowercase();
    if word == "daily" {
        return Some(DAILY);
    }
    let day = |name: &str| DAYS.iter().position(|day| *day == name);
    let Some((first, last)) = word.split_once('-') else {
        return day(&word).map(|day| 1 << day);
    };
    let (first, last) = (day(first)?, day(last)?);
    let count = (last + DAYS.len() - first) % DAYS.len() + 1;
    let days = (first..first + count).map(|day| 1 << (day % DAYS.len()));
    Some(days.fold(0, |mask, day: u8| mask | day))
}

/// The minutes of `20:00-02:00`.
fn times(value: &Value<'_>, range: Range<usize>, word: &str) -> Option<(u16, u16)> {
    let read = word.split_once('-').and_then(|(from, until)| {
        let from = minute(from).filter(|from| *from < DAY_MINUTES)?;
        Some((from, minute(until)?))
    });
    let refuse = |message: String, help: &str| {
        value
            .context
            .report(problem(value.part(range.clone()), message).help(help));
        None
    };
    match read {
        None => refuse(
            format!("`{word}` is no time of day"),
            "write hours and minutes from and until, without spaces: `09:00-17:30`",
        ),
        Some((from, until)) if from == until => refuse(
            format!("`{word}` ends when it begins"),
            "a whole day is `00:00-24:00`, or its name alone",
        ),
        // The next day's first minute is this day's end.
        Some((from, 0)) => Some((from, DAY_MINUTES)),
        found => found,
    }
}

/// The minute of the day that a clock shows as `20:00`; `24:00` is the end of the day.
fn minute(clock: &str) -> Option<u16> {
    let (hour, minute) = clock.split_once(':')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hour) || !digits(minute) || !(1..=2).contains(&hour.len()) || minute.len() != 2 {
        return None;
    }
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let total = hour * 60 + minute;
    (minute < 60 && total <= DAY_MINUTES).then_some(total)
}

/// `time_zone`: a zone of the tz database, as that spells it.
pub(crate) fn zone(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let zone = known_zone(text);
    if zone.is_none() {
        let finding = problem(value.spot(), format!("there is no time zone `{text}`"));
        value.context.report(match meant_zone(text) {
            Some(meant) => finding.meant(Some(&meant)),
            None => finding.help(
                "its names are those of the tz database, such as `Asia/Tokyo` or `UTC`; the machine's own zone needs none",
            ),
        });
    }
    zone
}

/// A time zone as the database spells it.
///
/// The system's database is looked into, or else the one that comes with the gateway: the same
/// as the limits are kept by.
fn known_zone(text: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte);
    if text.is_empty() || text.len() > ZONE_BYTES_MAX || !text.bytes().all(fits) {
        return None;
    }
    let zone = jiff::tz::db().get(text).ok()?;
    let known = !zone.is_unknown();
    zone.iana_name().filter(|_| known).map(str::to_owned)
}

/// The zone meant by one misspelt, or by its city alone. Abbreviations are never guessed at.
fn meant_zone(text: &str) -> Option<String> {
    let known: Vec<String> = jiff::tz::db()
        .available()
        .map(|name| name.to_string())
        .collect();
    let city = |zone: &&String| {
        let city = zone.rsplit('/').next();
        zone.contains('/') && city.is_some_and(|city| city.eq_ignore_ascii_case(text))
    };
    if !text.contains('/') {
        return known.iter().find(city).cloned();
    }
    keys::nearest(text, known.iter().map(String::as_str)).map(str::to_owned)
}

/// Reports a word that is neither days, times nor a time zone.
fn report_stray(value: &Value<'_>, range: Range<usize>, word: &str) {
    let spot = value.part(range);
    let finding = problem(
        spot,
        format!("`{word}` is neither days, times nor a time zone"),
    );
    let lower = word.to_ascii_lowercase();
    let others = OTHERS.iter().find(|(words, _)| words.contains(&&*lower));
    let long = DAYS
        .iter()
        .find(|day| lower.starts_with(**day) && lower.ends_with("day"));
    let meant = match (others, long) {
        (Some((_, meant)), _) => Some((*meant).to_owned()),
        (None, Some(day)) => Some((*day).to_owned()),
        (None, None) => meant_zone(word),
    };
    value.context.report(match meant {
        Some(meant) => finding.meant(Some(&meant)),
        None => finding.help(HELP),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_over_the_weeks_end() {
        for (word, expected) in [
            ("mon", Some(0b000_0001)),
            ("sun", Some(0b100_0000)),
            ("Mon-Fri", Some(0b001_1111)),
            ("fri-mon", Some(0b111_0001)),
            ("mon-sun", Some(DAILY)),
            ("tue-mon", Some(DAILY)),
            ("wed-wed", Some(0b000_0100)),
            ("daily", Some(DAILY)),
            ("mon-", None),
            ("mon-fri-sun", None),
            ("monday", None),
            ("", None),
        ] {
            assert_eq!(read_days(word), expected, "{word:?}");
        }
    }

    #[test]
    fn days_are_written_as_they_are_read() {
        for mask in 1..=DAILY {
            let spelt = spell_days(mask);
            let read = spelt
                .split(',')
                .map(|word| read_days(word).unwrap_or_default());
            assert_eq!(read.fold(0, |all, days| all | days), mask, "{spelt}");
        }
        assert_eq!(spell_days(0b001_1111), "mon-fri");
        assert_eq!(spell_days(0b110_0101), "mon,wed,sat,sun");
    }

    #[test]
    fn clocks_are_read_strictly() {
        for (clock, expected) in [
            ("00:00", Some(0)),
            ("9:05", Some(545)),
            ("09:05", Some(545)),
            ("23:59", Some(1_439)),
            ("24:00", Some(DAY_MINUTES)),
            ("24:01", None),
            ("99:00", None),
            ("12:60", None),
            ("12:5", None),
            ("12", None),
            ("+1:00", None),
            (":00", None),
            ("012:00", None),
        ] {
            assert_eq!(minute(clock), expected, "{clock:?}");
        }
    }

    #[test]
    fn words_know_where_they_stand() {
        let text = " mon,\u{3000}tue  20:00-02:00,";
        for (range, word) in words(text) {
            assert_eq!(text.get(range), Some(word));
        }
        assert_eq!(words(text).len(), 3);
    }

    #[test]
    fn zones_are_those_of_the_database_in_its_spelling() {
        for (text, expected) in [
            ("asia/tokyo", Some("Asia/Tokyo")),
            ("UTC", Some("UTC")),
            ("Etc/Unknown", None),
            ("JST", None),
            ("../../etc/passwd", None),
            ("/etc/localtime", None),
            ("", None),
        ] {
            assert_eq!(known_zone(text).as_deref(), expected, "{text:?}");
        }
        assert_eq!(meant_zone("Asia/Tokio").as_deref(), Some("Asia/Tokyo"));
        assert_eq!(meant_zone("tokyo").as_deref(), Some("Asia/Tokyo"));
        assert_eq!(meant_zone("JST"), None);
    }
}
