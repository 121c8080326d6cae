//! `nagaya check`: the configuration read as `serve` would, and judged.

use std::path::Path;

use crate::cli::CheckOptions;
use crate::outcome::{Outcome, load, print, wrong_config};

/// Says that a configuration is fine, or everything that is wrong with it.
pub(crate) fn run(config: &Path, options: &CheckOptions) -> Outcome {
    match load(config) {
        Err(problems) => wrong_config(&problems),
        Ok((_, model)) if options.dump => print(config::dump(&model).as_bytes()),
        Ok((_, model)) => {
            let sites = counted(model.sites.len(), "site");
            let listeners = counted(model.listeners.len(), "listener");
            let file = config.display();
            print(format!("{file}: fine ({sites}, {listeners})\n").as_bytes())
        }
    }
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}
