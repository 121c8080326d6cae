//! `nagaya directory`: the tables that say which sites there are, asked as the gateway would ask them.
//!
//! The idea: the configuration is read as `serve` would, and each source asked from here, so that a wrong table is
//! known before a request meets it. Nothing is changed.

use std::path::Path;

use clap::{Args, Subcommand};
use supervisor::load::load;

use crate::outcome::{Outcome, complain, print, wrong_config};

/// What is done with directories.
#[derive(Debug, Subcommand)]
pub(crate) enum DirectoryCommand {
    /// Connect to the source of each directory and ask it once; with --all, list every row that is wrong
    ///
    /// It asks from here, as whoever types this, and needs no running gateway. `nagaya check` and a reload never
    /// connect. The exit status is 1 where something is wrong.
    Check(DirectoryCheckOptions),
}

/// What is looked at.
#[derive(Debug, Args)]
pub(crate) struct DirectoryCheckOptions {
    /// Look at every row that `all` lists, or the file has
    #[arg(long)]
    all: bool,
}

/// Runs `nagaya directory …`.
pub(crate) fn run(config: &Path, command: &DirectoryCommand) -> Outcome {
    let DirectoryCommand::Check(options) = command;
    let model = match load(config) {
        Ok(loaded) => loaded.model,
        Err(problems) => return wrong_config(&problems),
    };
    if model.directories.is_empty() {
        complain("nagaya: the configuration has no `[directories.NAME]`\n");
        return Outcome::Wrong;
    }
    let settings = match supervisor::directory_settings(&model) {
        Ok(settings) => settings,
        Err(why) => {
            complain(&format!("nagaya: {why}\n"));
            return Outcome::Failed;
        }
    };
    let tenants = supervisor::written_tenants(&model);
    let mut outcome = Outcome::Fine;
    for settings in settings {
        let name = settings.name.clone();
        let checked = ::directory::check(settings, &tenants, options.all);
        for wrong in &checked.wrong {
            complain(&format!("{name}: {wrong}\n"));
        }
        let line = match (checked.wrong.len(), options.all) {
            (0, false) => format!("{name}: answers\n"),
            (wrong, _) => format!("{name}: rows {}, wrong {wrong}\n", checked.rows),
        };
        let printed = print(line.as_bytes());
        if !checked.wrong.is_empty() {
            outcome = Outcome::Failed;
        } else if printed != Outcome::Fine {
            return printed;
        }
    }
    outcome
}
