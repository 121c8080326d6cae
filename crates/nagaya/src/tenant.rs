//! `nagaya tenant`: a tenant suspended, resumed, or all that runs of it killed.
//!
//! Who is suspended stands in the overrides file, which is read at each start and reload; the
//! running gateway is told beside that, so that it holds at once and needs no reload.

use std::path::Path;

use clap::{Args, Subcommand};

use crate::control::{Running, Where, carry_out, printed};
use crate::outcome::{Outcome, complain};
use crate::overrides::{Store, now, wrong};

/// What is done to a tenant.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Refuse the requests of a tenant with 503, those that wait too, and run nothing of it, until
    /// it is resumed
    ///
    /// Its pools finish what they have begun and end, its CGI programs are killed. It is written to the
    /// overrides file as well, beside the configuration: a reload, an upgrade and a restart change nothing.
    Suspend(TenantOptions),
    /// Serve a tenant again that was suspended
    Resume(TenantOptions),
    /// Kill all that runs of a tenant now: its pools, CGI programs, and what is in its control groups
    ///
    /// The next request starts it again.
    Kill(TenantOptions),
}

/// Which tenant.
#[derive(Debug, Args)]
pub(crate) struct TenantOptions {
    /// As its sites name it; one that names none is its first host's
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: Where,
}

/// Runs `nagaya tenant …`.
pub(crate) fn run(config: &Path, command: &TenantCommand) -> Outcome {
    let (TenantCommand::Suspend(options)
    | TenantCommand::Resume(options)
    | TenantCommand::Kill(options)) = command;
    let name = &options.name;
    if name.is_empty() || name.contains(|it: char| it.is_whitespace() || it.is_control()) {
        let name = name.escape_debug();
        complain(&format!("nagaya: `{name}` is no name of a tenant\n"));
        return Outcome::Wrong;
    }
    let done = match command {
        TenantCommand::Suspend(_) => suspend(config, &options.place, name),
        TenantCommand::Resume(_) => resume(config, &options.place, name),
        TenantCommand::Kill(_) => {
            return carry_out(config, &options.place, &format!("tenant-kill {name}"));
        }
    };
    done.unwrap_or_else(|outcome| outcome)
}

/// Nothing is kept that the gateway refuses.
fn suspend(config: &Path, place: &Where, name: &str) -> Result<Outcome, Outcome> {
    let store = Store::open(config)?;
    let running = Running::find(config, place)?;
    let edited = store.overrides.suspend(name, &now());
    let edited = edited.map_err(|error| wrong(&error))?;
    let new = edited.map(|edited| store.write(&edited)).transpose()?;
    let done = running.done(&format!("tenant-suspend {name}"))?;
    if let Some(new) = new {
        new.take_place().inspect_err(|_| {
            complain("nagaya: it is suspended until the next reload: that is not kept\n");
        })?;
    }
    Ok(printed(Ok(done)))
}

fn resume(config: &Path, place: &Where, name: &str) -> Result<Outcome, Outcome> {
    let store = Store::open(config)?;
    let running = Running::find(config, place)?;
    let edited = store.overrides.resume(name);
    if let Some(edited) = edited.map_err(|error| wrong(&error))? {
        store.write(&edited)?.take_place()?;
    }
    Ok(printed(running.done(&format!("tenant-resume {name}"))))
}
