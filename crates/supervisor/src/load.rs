//! A configuration as this machine has it: its files, and the users it names.
//!
//! The idea: what is wrong with a file that may be set aside costs that file. It is read again as
//! its last good version, or as nothing, and the whole is judged anew; how often is bounded.

use std::io;
use std::panic::resume_unwind;
use std::path::Path;

use config::model::Model;
use config::{Aside, Diagnostics, LastGood, Sources};

use crate::last_good;

/// How often a configuration is judged: once, and again after files were set aside. What is wrong
/// with one may show only then, or be the consequence of another's absence.
const ROUNDS_MAX: usize = 8;
/// The stack of who reads one: that of a process's first thread.
const STACK_BYTES: usize = 8 << 20;
/// What the allocator keeps of its memory at most.
const KEPT_BYTES_MAX: i32 = 128 << 10;

/// A configuration that can be served.
#[derive(Debug)]
pub struct Loaded {
    /// Its bytes.
    pub sources: Sources,
    /// What they mean.
    pub model: Model,
    /// What in them is hardly meant.
    pub warnings: Diagnostics,
    /// The files that are set aside.
    pub aside: Aside,
    /// The last good versions that were known.
    pub last_good: LastGood,
    /// Why those that were stored are not known.
    pub last_good_unread: Option<String>,
}

/// Whether changes of limits that were kept count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limits {
    AsKept,
    AsConfigured,
}

/// Reads a configuration and all it consists of.
pub fn load(config: &Path) -> Result<Loaded, Diagnostics> {
    settle(config, None, Limits::AsKept)
}

/// As [`load`], where a generation serves, whose last good versions these are.
pub(crate) fn load_beside(config: &Path, last_good: &LastGood) -> Result<Loaded, Diagnostics> {
    settle(config, Some(last_good), Limits::AsKept)
}

/// As [`load`], where nothing serves yet: does without the overrides file if nothing else is wrong
/// but that, and hands out what is wrong with it.
pub fn load_to_start(config: &Path) -> Result<(Loaded, Option<Diagnostics>), Diagnostics> {
    match load(config) {
        Ok(loaded) => Ok((loaded, None)),
        Err(problems) => match load_without_overrides(config) {
            Ok(loaded) => Ok((loaded, Some(problems))),
            Err(_) => Err(problems),
        },
    }
}

/// As [`load`], without the overrides file, for those to whom limits are nothing.
pub fn load_without_overrides(config: &Path) -> Result<Loaded, Diagnostics> {
    settle(config, None, Limits::AsConfigured)
}

/// Judges a configuration, and sets aside what may be, until nothing is wrong.
fn settle(config: &Path, known: Option<&LastGood>, limits: Limits) -> Result<Loaded, Diagnostics> {
    let mut aside = Aside::default();
    let mut last_good = known.cloned();
    let mut last_good_unread = None;
    let mut round = 1;
    loop {
        let mut sources = read(config, &aside)?;
        if limits == Limits::AsConfigured {
            sources.set_overrides_aside();
        }
        if last_good.is_none()
            && let Some(path) = sources.last_good()
        {
            last_good = Some(last_good::read(&path).unwrap_or_else(|why| {
                last_good_unread = Some(format!("{}: {why}", path.display()));
                LastGood::default()
            }));
        }
        let unknown = LastGood::default();
        let versions = last_good.as_ref().unwrap_or(&unknown);
        match config::judge(&sources, versions) {
            Ok((model, warnings)) => {
                return Ok(Loaded {
                    sources,
                    model,
                    warnings,
                    aside,
                    last_good: last_good.unwrap_or_default(),
                    last_good_unread,
                });
            }
            Err(wrong) if round == ROUNDS_MAX => return Err(aside.with_problems_of(wrong.all)),
            Err(wrong) => aside.add(wrong, versions)?,
        }
        round += 1;
    }
}

fn read(config: &Path, aside: &Aside) -> Result<Sources, Diagnostics> {
    let mut sources = Sources::read_beside(config, aside)?;
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

/// Has a thread of its own read a configuration.
///
/// The allocator gives each thread memory of its own: what is kept here of a configuration then does not lie
/// amid what it took to read it, and all of that goes back to the kernel with the model.
///
/// # Errors
/// There is no room for another thread.
pub(crate) fn apart<T: Send>(read: impl FnOnce() -> T + Send) -> io::Result<T> {
    os::process::release_memory_beyond(KEPT_BYTES_MAX);
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("read".to_owned());
        let thread = builder.stack_size(STACK_BYTES).spawn_scoped(scope, read)?;
        Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
