//! Measures the gateway beside its peers, on the same machine, in the same minutes.
//!
//! The idea: a busy machine spoils wall-clock rates, but not the CPU time a server spends on a
//! request. So every server gets one worker on core 0, the generator and the back end get core 1,
//! slices of load go round the servers in turn, and the figure is requests per second of server
//! CPU time; medians and ranges come out, never a best run. Real binaries are started and spoken
//! to over loopback: nothing here links the gateway, so nothing here can favour it.

mod bed;
mod http;
mod idle;
mod latency;
mod options;
mod peer;
mod peer_config;
mod process;
mod progress;
mod report;
mod sites;
mod stats;
mod throughput;
mod usage;
mod work;
mod workers;
mod wrk;

use std::path::Path;

use crate::error::Error;

pub use options::Options;

use bed::Bed;
use peer::Peer;
use report::Report;

/// Runs what `options` asks for and writes the report; returns its text.
pub fn run(options: &Options) -> Result<String, Error> {
    progress::catch_interrupts()?;
    process::raise_descriptor_limit();
    let (peers, missing) = Peer::find_all(options);
    let bed = Bed::new()?;
    let mut report = Report::new(options, &peers, &missing);
    for log in options.logs() {
        let table = throughput::run(&bed, &peers, options, *log)?;
        report.throughput(*log, &table);
        if *log == bed::Log::Off && options.wants("half load") {
            report.latency(&latency::run(&bed, &peers, options, &table)?);
        }
    }
    if options.wants("idle") {
        report.idle(&idle::run(&bed, &peers, options)?);
    }
    if options.wants("two workers") {
        report.workers(&workers::run(&bed, &peers, options)?);
    }
    if options.wants("10,000 sites") {
        report.sites(&sites::run(&bed, &peers, options)?);
    }
    let text = report.finish();
    write_report(&options.output, &text)?;
    if let Some(readme) = &options.readme {
        let read = std::fs::read_to_string(readme);
        let old = read.map_err(|e| Error::new(format!("read {}", readme.display()), e))?;
        write_report(readme, &replace_figures(&old, &report.short())?)?;
    }
    Ok(text)
}

/// The document with other text between its marks.
fn replace_figures(document: &str, figures: &str) -> Result<String, Error> {
    const MARKS: (&str, &str) = ("<!-- figures -->\n", "<!-- /figures -->");
    let parts = document.split_once(MARKS.0).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(MARKS.1)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| Error::new("find the figures' place", "no marks"))?;
    Ok([before, MARKS.0, figures, MARKS.1, after].concat())
}

fn write_report(path: &Path, text: &str) -> Result<(), Error> {
    let write = || {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::write(path, text)
    };
    write().map_err(|e| Error::new(format!("write {}", path.display()), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_replaced_between_their_marks_only() {
        let document = "a\n<!-- figures -->\nold\n<!-- /figures -->\nb\n";
        let replaced = replace_figures(document, "new\n").expect("the marks are there");
        assert_eq!(replaced, "a\n<!-- figures -->\nnew\n<!-- /figures -->\nb\n");
        assert!(replace_figures("no marks", "new").is_err());
    }
}
