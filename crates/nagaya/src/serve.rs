//! `nagaya serve`: the supervisor's life from its first line to its exit status.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use os::exec::Inherited;
use os::signal::Signals;
use supervisor::{Refused, Supervisor};

use crate::outcome::{Outcome, complain, wrong_config};

/// How long the last lines of the error log may take.
const FLUSH: Duration = Duration::from_secs(1);

/// Serves until told to stop; goes on with what is `inherited` from the program before.
pub(crate) fn run(config: &Path, inherited: Option<Inherited>) -> ExitCode {
    // First of all: threads to come inherit which signals wait to be read.
    let signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            let why = config::reason(&error);
            complain(&format!("nagaya: listen for signals: {why}\n"));
            return Outcome::Failed.into();
        }
    };
    error_log::start("supervisor");
    let started = match inherited {
        Some(inherited) => Supervisor::take_place(config, signals, inherited),
        None => Supervisor::start(config, signals),
    };
    let outcome = match started {
        Ok(supervisor) => supervisor.run(),
        Err(Refused::Config(problems)) => wrong_config(&problems).into(),
        Err(Refused::System(problems)) => {
            for problem in problems {
                tracing::error!("cannot start: {problem}");
            }
            Outcome::Failed.into()
        }
    };
    error_log::flush(FLUSH);
    outcome
}
