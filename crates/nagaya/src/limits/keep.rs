//! `nagaya limits set … --keep` and `--forget`: the overrides file, written, and the gateway told.
//!
//! The order is such that nothing is kept that the gateway refuses: the new text is written to a
//! file beside the old one, then the gateway is asked to change the limit, then the new file takes
//! the old one's name, then the gateway is told the line.

use std::path::Path;

use crate::control::{Running, Where, printed};
use crate::outcome::{Outcome, complain, print};
use crate::overrides::{Store, now, wrong};

/// Changes a limit of the running gateway, and keeps that.
pub(super) fn keep(config: &Path, place: &Where, limit: &str, pairs: &[(&str, &str)]) -> Outcome {
    let keep = || -> Result<Outcome, Outcome> {
        let store = Store::open(config)?;
        let running = Running::find(config, place)?;
        let edited = store.overrides.keep(limit, pairs, &now());
        let edited = edited.map_err(|error| wrong(&error))?;
        let new = store.write(&edited)?;
        let changes = typed(pairs.iter().copied());
        running.done(&format!("limits keep {limit}\t{changes}"))?;
        new.take_place().inspect_err(|_| {
            complain("nagaya: the limit was changed, but that is not kept\n");
        })?;
        let (file, line) = (store.path.display(), edited.line);
        let changes = edited.changes.iter();
        let changes = typed(changes.map(|(name, value)| (*name, value.as_str())));
        let order = format!("limits kept {file}:{line}\t{limit}\t{changes}");
        Ok(printed(running.done(&order)))
    };
    keep().unwrap_or_else(|outcome| outcome)
}

/// Removes what was kept of a limit, which becomes what the configuration says.
pub(super) fn forget(config: &Path, place: &Where, limit: &str) -> Outcome {
    let forget = || -> Result<Outcome, Outcome> {
        let store = Store::open(config)?;
        let running = Running::find(config, place)?;
        let edited = store.overrides.forget(limit);
        let edited = edited.map_err(|error| wrong(&error))?;
        let line = edited.as_ref().map_or(0, |edited| edited.line);
        if let Some(edited) = edited {
            store.write(&edited)?.take_place()?;
            let file = store.path.display();
            print(format!("{limit}: removed from {file}, line {line}\n").as_bytes());
        }
        let order = format!("limits forget {line}\t{limit}");
        Ok(printed(running.done(&order)))
    };
    forget().unwrap_or_else(|outcome| outcome)
}

/// Changes as they are typed.
fn typed<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let typed: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    typed.join(" ")
}
