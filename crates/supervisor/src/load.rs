//! A configuration as this machine has it: its files, and the users it names.

use std::path::Path;

use config::model::Model;
use config::{Diagnostics, Sources};

/// A configuration that can be served.
#[derive(Debug)]
pub struct Loaded {
    /// Its bytes.
    pub sources: Sources,
    /// What they mean.
    pub model: Model,
    /// What in them is hardly meant.
    pub warnings: Diagnostics,
}

/// Reads a configuration and all it consists of.
pub fn load(config: &Path) -> Result<Loaded, Diagnostics> {
    understand(read(config)?)
}

/// As [`load`], where nothing serves yet: does without the overrides file if nothing else is wrong
/// but that, and hands out what is wrong with it.
pub fn load_to_start(config: &Path) -> Result<(Loaded, Option<Diagnostics>), Diagnostics> {
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
pub fn load_without_overrides(config: &Path) -> Result<Loaded, Diagnostics> {
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
