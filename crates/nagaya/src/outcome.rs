//! How a subcommand ended, and what the user is told about it.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use config::model::Model;
use config::{Colour, Diagnostics, Sources};

/// How a subcommand ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As asked.
    Fine,
    /// Something failed while running.
    Failed,
    /// Wrong use, or a wrong configuration.
    Wrong,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        match outcome {
            Outcome::Fine => ExitCode::SUCCESS,
            Outcome::Failed => ExitCode::from(1),
            Outcome::Wrong => ExitCode::from(2),
        }
    }
}

/// A configuration that can be served.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Its bytes.
    pub(crate) sources: Sources,
    /// What they mean.
    pub(crate) model: Model,
    /// What in them is hardly meant.
    pub(crate) warnings: Diagnostics,
}

/// Reads a configuration and all it consists of.
pub(crate) fn load(config: &Path) -> Result<Loaded, Diagnostics> {
    understand(read(config)?)
}

/// As [`load`], where nothing serves yet: does without the overrides file if nothing else is wrong
/// but that, and hands out what is wrong with it.
pub(crate) fn load_to_start(config: &Path) -> Result<(Loaded, Option<Diagnostics>), Diagnostics> {
    let mut sources = read(config)?;
    match understand(sources.clone()) {
        Ok(loaded) => Ok((loaded, None)),
        Err(problems) if sources.set_overrides_aside() => match understand(sources) {
            Ok(loaded) => Ok((loaded, Some(problems))),
            Err(_) => Err(problems),
        },
        Err(problems) => Err(problems),
    }
}

/// As [`load`], without the overrides file, for those to whom limits are nothing.
pub(crate) fn load_without_overrides(config: &Path) -> Result<Loaded, Diagnostics> {
    let mut sources = read(config)?;
    sources.set_overrides_aside();
    understand(sources)
}

fn read(config: &Path) -> Result<Sources, Diagnostics> {
    let mut sources = Sources::read(config)?;
    // Started by anybody else, the server stays who it is.
    if os::process::is_root() {
        sources.look_up_users(|name| {
            os::process::check_user(name).map_err(|error| config::reason(&error))
        });
    } else {
        sources.look_up_named_users(|name| {
            let user = os::user::User::look_up(name);
            user.map(drop).map_err(|error| config::reason(&error))
        });
    }
    sources.excuse_logs(os::log::is_in_others_hands);
    Ok(sources)
}

fn understand(sources: Sources) -> Result<Loaded, Diagnostics> {
    let (model, warnings) = config::load_and_warn(&sources)?;
    Ok(Loaded {
        sources,
        model,
        warnings,
    })
}

/// Shows what is hardly meant.
pub(crate) fn warn(warnings: &Diagnostics) {
    complain(&warnings.render(colour()));
}

/// Shows the problems of a configuration.
pub(crate) fn wrong_config(problems: &Diagnostics) -> Outcome {
    complain(&problems.render(colour()));
    Outcome::Wrong
}

fn colour() -> Colour {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if colours {
        Colour::Always
    } else {
        Colour::Never
    }
}

/// Writes to stdout. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(bytes: &[u8]) -> Outcome {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Outcome::Fine,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Outcome::Fine,
        Err(error) => {
            let why = config::reason(&error);
            complain(&format!("nagaya: write to standard output: {why}\n"));
            Outcome::Failed
        }
    }
}

/// Writes to stderr; nobody is left to hear of it when that fails.
pub(crate) fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
