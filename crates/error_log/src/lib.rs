//! The error log: what the program has to say about itself, one line an event, on stderr.
//!
//! The idea: whoever logs must never wait for whoever reads. An event is put into words by its
//! own thread and handed to a queue of fixed length; one thread writes the queue out. What finds
//! the queue full is counted, and the count is said once there is room. Control characters are
//! escaped, so nothing a client sends can look like a line of its own.
//! Spans are not kept: events carry their fields themselves.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use config::model::LogLevel;

/// Lines that may wait for the writer.
const LINES_MAX: usize = 1_024;
/// Bytes of one line; the rest of a longer one is cut.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// A library that has something to say about each frame, which is no news to anybody.
const HTTP2: &str = "h2::";

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

thread_local! {
    /// Where the lines of this thread go instead of the queue.
    static KEPT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The lines that `emit` would have this thread write, with their line feeds; they are not written.
pub fn lines_of(emit: impl FnOnce()) -> String {
    let _before = Before(KEPT.replace(Some(String::new())));
    emit();
    KEPT.take().unwrap_or_default()
}

/// What was kept before, and is kept again when this goes, be it by a panic: else nothing that the
/// thread has to say would be written any more.
struct Before(Option<String>);

impl Drop for Before {
    fn drop(&mut self) {
        KEPT.replace(self.0.take());
    }
}

struct ErrorLog {
    role: &'static str,
    queue: SyncSender<String>,
}

impl Subscriber for ErrorLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= level() && !metadata.target().starts_with(HTTP2)
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
        let is_kept =
            KEPT.with_borrow_mut(|kept| kept.as_mut().map(|kept| kept.push_str(&line)).is_some());
        if is_kept {
            return;
        }
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
    let mut line = String::with_capacity(160);
    let now = Timestamp::now();
    let _ = write!(
        line,
        "{now:.3} {severity} {role}: {}{}",
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
    fn a_line_begins_with_its_time_to_the_millisecond() {
        let before = Timestamp::now();
        let line = line("server", "info", &Words::default());
        let (time, _) = line.split_once(' ').unwrap();
        assert_eq!((time.len(), time.get(10..11)), (24, Some("T")));
        let found: Timestamp = time.parse().unwrap();
        assert!(found.duration_since(before).abs().as_secs() < 60);
        let zero = Timestamp::from_millisecond(951_782_400_000).unwrap();
        assert_eq!(format!("{zero:.3}"), "2000-02-29T00:00:00.000Z");
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
    fn lines_that_are_asked_for_are_not_written() {
        let mut kept = String::new();
        let written = logged(|| {
            kept = lines_of(|| {
                tracing::warn!("one");
                tracing::info!("two");
            });
            tracing::info!("three");
        });
        let words: Vec<_> = kept
            .lines()
            .filter_map(|line| line.split_once(' '))
            .collect();
        let words: Vec<_> = words.into_iter().map(|(_, words)| words).collect();
        assert_eq!(words, ["warn server: one", "info server: two"]);
        assert_eq!(written, "info server: three\n");
    }

    #[test]
    fn lines_are_written_again_after_a_panic_in_those_that_were_asked_for() {
        let written = logged(|| {
            let panicked = std::panic::catch_unwind(|| lines_of(|| panic!("on purpose")));
            assert!(panicked.is_err());
            tracing::info!("after");
        });
        assert_eq!(written, "info server: after\n");
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
