//! Runs an order: the load on threads of its own, progress and signals on this one, then the
//! reports.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use load::Error;
use load::client::{self, Live, Outcome, Plan};
use report::{Document, Paint, Tone, terminal_width};

use super::order::{Order, Task};
use super::progress::Progress;
use super::record::Report;
use super::watch::{ServerRecord, Watched};
use super::{notes, page, text, until, versus};

/// Between two looks at a running load.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between two looks that are shown: a short load is waited for hardly longer than it takes.
const SHOW_EVERY: Duration = Duration::from_millis(20);
/// What a shell calls a process that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Does what was ordered, reports it, and says the exit status.
pub(crate) fn run(order: &Order) -> Result<u8, Error> {
    let files = [&order.options.json, &order.options.html];
    files
        .into_iter()
        .flatten()
        .try_for_each(|file| try_out(file))?;
    let interrupted = catch_signals()?;
    match &order.task {
        Task::Load => load(order, &interrupted),
        Task::Versus(versus) => versus::run(order, versus, &interrupted),
        Task::Until(options) => until::run(order, options, &interrupted),
    }
}

/// 1 where it was cut short, or not one whole reply came.
fn load(order: &Order, interrupted: &AtomicBool) -> Result<u8, Error> {
    let (outcome, server) = measured(order, interrupted)?;
    let report = Report::of(&order.asked, &outcome, server);
    publish(
        order,
        &|paint| text::text(&report, terminal_width().unwrap_or(usize::MAX), paint),
        &report.to_json(),
        &|| page::document(&report),
    )?;
    if is_for_program(order) {
        warn(&report);
    }
    Ok(u8::from(report.cut_short || report.completed == 0))
}

/// Says what speaks against the figures to whoever started the program that reads them.
fn warn(report: &Report) {
    let bad = notes::notes(report).into_iter();
    for (_, text) in bad.filter(|(tone, _)| *tone == Tone::Bad) {
        eprintln!("nagaya bench: {text}");
    }
}

/// Whether standard output takes JSON and nothing else.
fn is_for_program(order: &Order) -> bool {
    order.options.json.as_deref() == Some(Path::new("-"))
}

/// The first signal sets the flag; the second ends the process.
fn catch_signals() -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(|e| Error::new("catch signals", e))?;
    }
    Ok(flag)
}

fn measured(
    order: &Order,
    interrupted: &AtomicBool,
) -> Result<(Outcome, Option<ServerRecord>), Error> {
    let watched = order.watch().as_ref().map(Watched::start).transpose()?;
    let live = Live::new();
    let mut progress = Progress::new(order);
    let outcome = watch_load(&order.plan, &live, &mut progress, interrupted)?;
    let Some(watched) = watched else {
        return Ok((outcome, None));
    };
    if let Some(time) = order.options.cooldown.filter(|_| !live.stopped()) {
        progress.say(&format!(
            "The load is over; watching the server for {} s.",
            time.as_secs_f64()
        ));
    }
    let server = thread::scope(|scope| {
        let cooling = scope.spawn(|| watched.finish(&outcome, order.options.cooldown, &live));
        while !cooling.is_finished() {
            stop_if(interrupted, &live);
            thread::sleep(LOOK_EVERY);
        }
        joined(cooling.join())
    });
    Ok((outcome, Some(server)))
}

/// Runs a plan, shows how it goes, and ends it early when a signal came.
fn watch_load(
    plan: &Plan,
    live: &Live,
    progress: &mut Progress,
    interrupted: &AtomicBool,
) -> Result<Outcome, Error> {
    thread::scope(|scope| {
        let load = scope.spawn(|| client::run(plan, live));
        while !load.is_finished() {
            stop_if(interrupted, live);
            progress.show(&live.look());
            thread::sleep(SHOW_EVERY);
        }
        joined(load.join())
    })
}

pub(super) fn stop_if(interrupted: &AtomicBool, live: &Live) {
    if interrupted.load(Ordering::Relaxed) {
        live.stop();
    }
}

pub(super) fn joined<T>(result: thread::Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Writes the text, or the JSON in its place, and the files that were asked for.
pub(super) fn publish(
    order: &Order,
    text: &dyn Fn(Paint) -> String,
    json: &str,
    page: &dyn Fn() -> Document,
) -> Result<(), Error> {
    let is_for_program = is_for_program(order);
    if !is_for_program {
        let paint = match std::io::stdout().is_terminal() {
            true => Paint::Colours,
            false => Paint::Never,
        };
        print(&text(paint))?;
    }
    if let Some(path) = &order.options.json {
        let json = format!("{json}\n");
        match is_for_program {
            true => print(&json)?,
            false => write(path, &json)?,
        }
    }
    match &order.options.html {
        Some(path) => write(path, &page().to_html()),
        None => Ok(()),
    }
}

fn print(text: &str) -> Result<(), Error> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        // `nagaya bench … | head` is no failure.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Error::new("print the report", e)),
        _ => Ok(()),
    }
}

/// Finds out before a load, and not after it, that a file cannot be written. Leaves no trace.
pub(crate) fn try_out(path: &Path) -> Result<(), Error> {
    let failed = |e| Error::new(format!("write {}", path.display()), e);
    let is_new = match path.metadata() {
        // Whoever reads a pipe would take this for its end.
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => return Ok(()),
        Ok(_) => false,
        Err(_) if path == Path::new("-") => return Ok(()),
        Err(_) => true,
    };
    let mut options = std::fs::OpenOptions::new();
    options
        .append(true)
        .create(true)
        .open(path)
        .map_err(failed)?;
    match is_new {
        true => std::fs::remove_file(path).map_err(failed),
        false => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|e| Error::new(format!("write {}", path.display()), e))
}
