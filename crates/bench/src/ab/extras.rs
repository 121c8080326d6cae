//! What `--json`, `--html`, `--pid` and `--listen` add to ApacheBench's flags: the native mode's
//! files, and what the server spent, after the report.

use std::path::Path;

use super::flags::{Extras, Flags};
use super::refusal::{Refusal, refuse_plainly};
use super::request::Sent;
use super::target::Target;
use crate::native::{self, Asked, AskedUrl, PaceWord, Report, ServerRecord, Watched};
use load::Error;
use load::client::{Live, Outcome};
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
    (flags, target, sent): (&Flags, &Target, &Sent),
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
        write(flags, asked(flags, target, sent), outcome, server)?;
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

fn asked(flags: &Flags, target: &Target, sent: &Sent) -> Asked {
    let name = |field: &String| field.split(':').next().unwrap_or_default().to_owned();
    let ramp_ms = flags.ramp_ms.unwrap_or_default();
    Asked {
        urls: vec![AskedUrl {
            url: target.url.clone(),
            weight: 1,
        }],
        method: sent.method.clone(),
        http: "1.0".into(),
        header_names: flags.fields.iter().map(name).collect(),
        body_bytes: sent.body.len() as u64,
        pace: PaceWord::Closed,
        rate_per_second: None,
        arrivals: None,
        ramp_s: 0.0,
        connections: flags.connections as u64,
        open_over_s: (ramp_ms.saturating_mul(flags.connections as u64)) as f64 / 1000.0,
        requests_per_connection: (!flags.keep_alive).then_some(1),
        threads: flags.threads.min(flags.connections) as u64,
        cores: Vec::new(),
        duration_s: flags.time_limit.map(|limit| limit.as_secs_f64()),
        requests: Some(flags.requests),
        warm_up: "none".into(),
        timeout_s: flags.timeout.as_secs_f64(),
        any_status: true,
        seed: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_says_what_was_sent() {
        let target = Target::parse("http://a/").unwrap_or_else(|_| panic!("a URL"));
        let sent = Sent {
            method: "PUT".into(),
            head: String::new(),
            body: vec![b'x'; 12],
        };
        let asked = asked(&Flags::default(), &target, &sent);
        assert_eq!((asked.method.as_str(), asked.body_bytes), ("PUT", 12));
    }
}
