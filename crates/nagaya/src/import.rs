//! `nagaya import`: moving in from another server.

use std::path::Path;

use clap::Subcommand;

use crate::outcome::Outcome;
use crate::verify::{self, VerifyOptions};

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Ask both servers what an access log says people asked, and tell where they differ
    ///
    /// Only GET and HEAD are asked, and nothing that may do something (--list says what is left out).
    /// What differs between two replies of the old server is noise. The configuration (-c) is read
    /// to tell the line of the rule that answered, where --record is given.
    Verify(Box<VerifyOptions>),
}

/// Runs `nagaya import`.
pub(crate) fn run(config: &Path, command: &ImportCommand) -> Outcome {
    match command {
        ImportCommand::Verify(options) => verify::run(config, options),
    }
}
