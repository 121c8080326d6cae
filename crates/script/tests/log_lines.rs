//! What scripts write to the error log.

use std::cell::Cell;
use std::fmt::{Debug, Write as _};
use std::future::ready;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::bed::{code, interpreter, on_a_worker, run, settings};
use script::{Cache, Interpreter, Phase, Read, Reader, Script, Source, Trial, Waiting};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the lines of scripts up to a level: `LEVEL MESSAGE name=value`.
struct Kept {
    level: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.into())
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = event.metadata().level();
        let line = format!("{level} {}{}", line.message, line.fields);
        self.lines.lock().expect("no test panics here").push(line);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.fields, " {}={value}", field.name());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => {
                let _ = write!(self.fields, " {name}={value:?}");
            }
        }
    }
}

/// What keeps lines up to `level`, and the lines it will have kept.
fn kept(level: Level) -> (Kept, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Kept {
        level,
        lines: Arc::clone(&lines),
    };
    (kept, lines)
}

/// The lines a script writes while lines up to `level` are let through.
fn lines(level: Level, phase: Phase, text: &str) -> Vec<String> {
    let (kept, lines) = kept(level);
    tracing::subscriber::with_default(kept, || {
        on_a_worker(async {
            let mut request = Trial::get("/a.php");
            let ran = match phase {
                Phase::Init => interpreter().run(phase, &code(text), None).await,
                _ => run(&interpreter(), text, &mut request).await,
            };
            ran.expect("the script runs");
        });
    });
    let lines = lines.lock().expect("no test panics here");
    lines.clone()
}

#[test]
fn a_line_has_its_message_unchanged_and_says_which_request_and_script() {
    let text = "r = get_server_class::Request.new
        Nginx.errlogger(Nginx::LOG_NOTICE, \"access_limiter: file:#{r.filename} counter:3\")";
    assert_eq!(
        lines(Level::INFO, Phase::Access, text),
        [
            "INFO access_limiter: file:/srv/www/a.php counter:3 script=script.rb \
              request_id=0000000000000001"
        ]
    );
}

/// Files that are there once, and then are not.
#[derive(Default)]
struct Gone {
    reads: Cell<usize>,
}

impl Reader for Gone {
    fn read(&self, _: &Path, _: usize) -> Waiting<io::Result<Read>> {
        let count = self.reads.replace(self.reads.get() + 1);
        let first = Read {
            changed: SystemTime::UNIX_EPOCH,
            bytes: b"1".to_vec(),
        };
        let read = match count {
            0 => Ok(first),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        Box::pin(ready(read))
    }

    fn changed(&self, _: &Path) -> Waiting<io::Result<SystemTime>> {
        Box::pin(ready(Err(io::ErrorKind::NotFound.into())))
    }
}

#[test]
fn a_file_that_is_gone_is_told_once_however_often_it_is_looked_at() {
    let (kept, lines) = kept(Level::WARN);
    tracing::subscriber::with_default(kept, || {
        on_a_worker(async {
            let reader = Rc::new(Gone::default());
            let mut settings = settings();
            settings.reader = reader.clone();
            let interpreter = Interpreter::open(settings, Arc::default()).expect("it opens");
            let source = Source::File {
                path: PathBuf::from("/gone.rb"),
                text: None,
                cache: Cache::Mtime,
            };
            let script = Script::new(Arc::from("gone.rb"), source);
            let deadline = Instant::now() + Duration::from_secs(60);
            while reader.reads.get() < 4 {
                assert!(Instant::now() < deadline, "it is not looked at");
                let ran = interpreter.run(Phase::Access, &script, None).await;
                ran.expect("the last one stays in use");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    });
    let lines = lines.lock().expect("no test panics here");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("script not readable"), "{lines:?}");
}

#[test]
fn levels_are_those_of_each_server() {
    let nginx = "(0..8).each { |level| Nginx.errlogger(level, level) }";
    let apache = "(0..7).each { |level| Apache.log(level, level) }";
    let levels = |text| -> Vec<String> {
        let lines = lines(Level::TRACE, Phase::Init, text);
        let first = lines.iter().filter_map(|line| line.split(' ').next());
        first.map(str::to_owned).collect()
    };
    let [error, warn, info, debug] = ["ERROR", "WARN", "INFO", "DEBUG"];
    assert_eq!(
        levels(nginx),
        [error, error, error, error, error, warn, info, info, debug]
    );
    assert_eq!(
        levels(apache),
        [error, error, error, error, warn, info, info, debug]
    );
}

#[test]
fn lines_below_the_level_are_not_written() {
    let text = "Nginx.errlogger(Nginx::LOG_INFO, 'x'); Nginx.errlogger(Nginx::LOG_WARN, 'y')";
    let lines = lines(Level::WARN, Phase::Init, text);
    assert_eq!(lines, ["WARN y script=script.rb"]);
}

#[test]
fn a_store_that_is_not_there_is_told_once_and_not_for_every_request() {
    let server = format!("127.0.0.1:{}", testkit::free_port());
    // A machine that stands still for a second between two of them may see it told again.
    let text = format!("40.times {{ Memcached.new('{server}').get('a') }}");
    let lines = lines(Level::WARN, Phase::Access, &text);
    let told = lines.iter().filter(|line| line.contains(&server)).count();
    assert!((1..40).contains(&told), "{lines:?}");
    let first = lines.first().map(String::as_str).unwrap_or_default();
    let expected = format!(
        "WARN a script goes on without its store error=connect to memcached {server}: refused"
    );
    assert_eq!(first, expected);
}
