//! What `--json`, `--html`, `--pid` and `--listen` add to ApacheBench's flags: the native mode's
//! files, and what the server spent, after the report.

use std::path::Path;

use super::flags::{Extras, Flags};
use super::refusal::{Refusal, refuse_plainly};
use crate::native::{self, Asked, Report, ServerRecord, Watched};
use load::Error;
use load::client::{Live, Outcome, Plan};
use load::server::Which;
use report::Paint;

/// Finds out before the load that a file cannot be written.
pub(crate) fn try_out(extras: &Extras) -> Result<(), Refusal> {
    let files = [&extras.json, &extras.html];
    let tried = files
        .into_iter()
        .flatten()
        .try_for_each(|file| native::try_out(file));
    tried.or_else(|error| refuse_plainly(1, error.to_string()))
}

/// Begins to watch the server that was named, if one was.
pub(crate) fn watch(extras: &Extras) -> Result<Option<Watched>, Refusal> {
    let which = match (extras.pid, extras.listen) {
        (Some(pid), _) => Which::Pid(pid),
        (None, Some(port)) => Which::Listening(port),
        (None, None) => return Ok(None),
    };
    match Watched::start(&which) {
        Ok(watched) => Ok(Some(watched)),
        Err(error) => refuse_plainly(1, error.to_string()),
    }
}

/// What the server spent, in words; and the files.
pub(crate) fn report(
    flags: &Flags,
    (plan, method): (&Plan, &str),
    outcome: &Outcome,
    watched: Option<Watched>,
) -> Result<String, Refusal> {
    let server = watched.map(|watched| watched.finish(outcome, None, &Live::new()));
    let told = match &server {
        Some(server) => format!("\n{}", native::server_table(server).to_text(Paint::Never)),
        None => String::new(),
    };
    let Extras { json, html, .. } = &flags.extras;
    if json.is_some() || html.is_some() {
        let name = |field: &String| field.split(':').next().unwrap_or_default().to_owned();
        let fields = flags.fields.iter().map(name).collect();
        let asked = Asked::of(plan, method, "1.0", fields, 0);
        write(flags, asked, outcome, server)?;
    }
    Ok(told)
}

fn write(
    flags: &Flags,
    asked: Asked,
    outcome: &Outcome,
    server: Option<ServerRecord>,
) -> Result<(), Refusal> {
    let report = Report::of(&asked, outcome, server);
    if let Some(file) = &flags.extras.json {
        written(file, &format!("{}\n", report.to_json()))?;
    }
    match &flags.extras.html {
        Some(file) => written(file, &native::document(&report).to_html()),
        None => Ok(()),
    }
}

fn written(file: &Path, text: &str) -> Result<(), Refusal> {
    match std::fs::write(file, text) {
        Ok(()) => Ok(()),
        Err(error) => {
            let error = Error::new(format!("write {}", file.display()), error);
            refuse_plainly(1, error.to_string())
        }
    }
}
