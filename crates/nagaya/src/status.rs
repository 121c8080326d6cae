//! `nagaya status`: one question to the control socket, its answer printed.

use std::path::Path;

use crate::cli::StatusOptions;
use crate::control;
use crate::outcome::Outcome;

/// Asks the running gateway how it is.
pub(crate) fn run(config: &Path, options: &StatusOptions) -> Outcome {
    let question = if options.json {
        "status json"
    } else {
        "status"
    };
    control::show(config, &options.place, question)
}
