//! `nagaya status`: one question to the control socket, its answer printed, and below it that another
//! program is installed than the one that runs.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::cli::StatusOptions;
use crate::control::{Running, printed};
use crate::outcome::{Outcome, print};

/// Asks the running gateway how it is.
pub(crate) fn run(config: &Path, options: &StatusOptions) -> Outcome {
    let running = match Running::find(config, &options.place) {
        Ok(running) => running,
        Err(outcome) => return outcome,
    };
    if options.json {
        return printed(running.answer("status json"));
    }
    match printed(running.answer("status")) {
        Outcome::Fine => print(told(&running).unwrap_or_default().as_bytes()),
        outcome => outcome,
    }
}

/// What is installed at the path by which the running program was started, where that is another
/// one, and can be seen from here. Nothing is run to know.
fn told(running: &Running) -> Option<String> {
    let pid = running.process().ok()?;
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let path = words.split(|byte| *byte == 0).next()?;
    let path = Path::new(OsStr::from_bytes(path));
    let runs = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    if !path.is_absolute() {
        return None;
    }
    let shown = path.display();
    let Ok(installed) = std::fs::metadata(path) else {
        return Some(format!("installed: no program at {shown} any more\n"));
    };
    if is_same(&installed, &runs) {
        return None;
    }
    let own = std::fs::metadata("/proc/self/exe").ok();
    let version = match own.is_some_and(|own| is_same(&own, &installed)) {
        true => concat!(", version ", env!("CARGO_PKG_VERSION")),
        false => "",
    };
    Some(format!(
        "installed: another program at {shown}{version}; nagaya upgrade has it take over\n"
    ))
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}
