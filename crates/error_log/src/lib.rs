//! The error log: what the program has to say about itself, one line an event, on stderr.
//!
//! The idea: whoever logs must never wait for whoever reads. An event is put into words by its
//! own thread and handed to a queue of fixed length; one thread writes the queue out. What finds
//! the queue full is counted, and the count is said once there is room. Control characters are
//! escaped, so nothing a client sends can look like a line of its own.
//! Spans are not kept: events carry their fields themselves.
#![forbid(unsafe_code)]

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::model::LogLevel;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Lines that may wait for the writer.
const LINES_MAX: usize = 1_024;
/// Bytes of one line; the rest of a longer one is cut.
const LINE_BYTES_MAX: usize = 16 * 1024;

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Starts the error log of this process; `role` stands in each of its lines.
///
/// # Panics
/// When a log was started before, or no thread can be had: both at the very start only.
pub fn start(role: &'static str) {
    let (queue, lines) = sync_channel(LINES_MAX);
    let writer = std::thread::Builder::new().name("error log".into());
    writer
        .spawn(move || write_lines(role, &lines))
        .expect("a thread for the error log");
    tracing::subscriber::set_global_default(ErrorLog { role, queue }).expect("one error log");
}

/// Sets the least severe level that is written.
pub fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

/// Lines lost so far because the reader was too slow.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Waits until every line is written, but no longer than `patience`: for the process's end.
pub fn flush(patience: Duration) {
    let end = Instant::now() + patience;
    while WAITING.load(Ordering::Acquire) > 0 && Instant::now() < end {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

struct ErrorLog {
    role: &'static str,
    queue: SyncSender<String>,
}

impl Subscriber for ErrorLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= level()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(level())
    }

    fn event(&self, event: &Event<'_>) {
        let severity = match *event.metadata().level() {
            tracing::Level::ERROR => "error",
            tracing::Level::WARN => "warn",
            tracing::Level::INFO => "info",
            tracing::Level::DEBUG => "debug",
            tracing::Level::TRACE => "trace",
        };
        let mut words = Words::default();
        event.record(&mut words);
        let line = line(self.role, severity, &words);
        WAITING.fetch_add(1, Ordering::AcqRel);
        if self.queue.try_send(line).is_err() {
            WAITING.fetch_sub(1, Ordering::AcqRel);
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn level() -> LevelFilter {
    match LEVEL.load(Ordering::Relaxed) {
        0 => LevelFilter::ERROR,
        1 => LevelFilter::WARN,
        2 => LevelFilter::INFO,
        3 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// The writer's life. Nobody is there to hear of a failing stderr, so failures are passed over.
fn write_lines(role: &str, lines: &Receiver<String>) {
    let mut said = 0;
    for text in lines {
        let mut stderr = std::io::stderr().lock();
        let dropped = dropped();
        if dropped > said {
            let mut words = Words::default();
            let _ = write!(
                words.message,
                "error log was not read fast enough, lines were lost"
            );
            let _ = write!(words.fields, " lines={}", dropped - said);
            let _ = stderr.write_all(line(role, "warn", &words).as_bytes());
            said = dropped;
        }
        let _ = stderr.write_all(text.as_bytes());
        WAITING.fetch_sub(1, Ordering::AcqRel);
    }
}

fn line(role: &str, severity: &str, words: &Words) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut line = String::with_capacity(160);
    write_time(now, &mut line);
    let _ = write!(
        line,
        " {severity} {role}: {}{}",
        words.message, words.fields
    );
    if line.len() > LINE_BYTES_MAX {
        let mut end = LINE_BYTES_MAX;
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        line.truncate(end);
        line.push('…');
    }
    line.push('\n');
    line
}

/// `2026-11-21T20:45:00.123Z`
fn write_time(since_1970: Duration, out: &mut String) {
    let seconds = since_1970.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let millisecond = since_1970.subsec_millis();
    let _ = write!(
        out,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z"
    );
}

/// Year, month and day of a day counted from 1970. Years are taken to begin in March, so that
/// the leap day is the last; 146,097 days make 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// An event in words: its message, and its fields as ` name=value`.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Words {
    fn put(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            escape(value, &mut self.message);
        } else if value.is_empty()
            || value.contains([' ', '"', '='])
            || value.contains(char::is_control)
        {
            let _ = write!(self.fields, " {}=\"", field.name());
            escape(
                &value.replace('\\', "\\\\").replace('"', "\\\""),
                &mut self.fields,
            );
            self.fields.push('"');
        } else {
            let _ = write!(self.fields, " {}={value}", field.name());
        }
    }
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, &format!("{value:?}"));
    }
}

fn escape(value: &str, out: &mut String) {
    for character in value.chars() {
        if character.is_control() {
            let _ = write!(out, "{}", character.escape_default());
        } else {
            out.push(character);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_date() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_795_293_900, "2026-11-21T20:45:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            let mut text = String::new();
            write_time(Duration::from_secs(seconds), &mut text);
            assert_eq!(text, date);
        }
    }

    /// The line an event becomes, without its time.
    fn logged(emit: impl FnOnce()) -> String {
        let (queue, lines) = sync_channel(9);
        tracing::subscriber::with_default(
            ErrorLog {
                role: "server",
                queue,
            },
            emit,
        );
        let line = lines.recv().unwrap();
        line.split_once(' ').unwrap().1.to_owned()
    }

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let line =
            logged(|| tracing::warn!(host = "a b", tries = 3, path = %"/x", "upstream gone"));
        assert_eq!(
            line,
            "warn server: upstream gone host=\"a b\" tries=3 path=/x\n"
        );
        let forged = "x\n2026-01-01T00:00:00.000Z error server: all lost\u{7}\"\\";
        let line = logged(|| tracing::error!(forged, "odd {}", "a\r\nb"));
        assert_eq!(
            line,
            "error server: odd a\\r\\nb \
             forged=\"x\\n2026-01-01T00:00:00.000Z error server: all lost\\u{7}\\\"\\\\\"\n"
        );
    }

    #[test]
    fn a_line_too_long_is_cut() {
        let line = logged(|| tracing::info!("{}", "長".repeat(LINE_BYTES_MAX)));
        assert!(line.len() < LINE_BYTES_MAX + 10 && line.ends_with("…\n"));
    }

    #[test]
    fn a_full_queue_loses_lines_and_counts_them() {
        let (queue, lines) = sync_channel(1);
        let before = dropped();
        tracing::subscriber::with_default(
            ErrorLog {
                role: "server",
                queue,
            },
            || {
                for number in 0..10 {
                    tracing::info!(number, "again");
                }
            },
        );
        assert_eq!((lines.iter().count() as u64, dropped() - before), (1, 9));
    }
}
