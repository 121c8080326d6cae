//! `nagaya check`: the configuration read as `serve` would, and judged.

use std::path::Path;

use config::model::Model;
use config::reason;
use engine::programs::groups::Shape;
use os::cgroup::Host;

use crate::cli::CheckOptions;
use crate::outcome::{Outcome, complain, load, print, warn, wrong_config};
use crate::{script, surroundings};

/// Says that a configuration is fine, or everything that is wrong with it.
pub(crate) fn run(config: &Path, options: &CheckOptions) -> Outcome {
    match load(config) {
        Err(problems) => wrong_config(&problems),
        Ok(loaded) if options.dump => print(config::dump(&loaded.model).as_bytes()),
        Ok(loaded) => {
            warn(&loaded.warnings);
            let model = loaded.model;
            let closed = surroundings::unreachable_roots(&model);
            for warning in surroundings::warnings(&model).iter().chain(&closed) {
                complain(&format!("warning: {warning}\n"));
            }
            // The service is started by root, whoever this command is typed by.
            for problem in surroundings::unbecomable(&model) {
                complain(&format!("warning: started from here: {problem}\n"));
            }
            if let Some(outcome) = report_groups(&model) {
                return outcome;
            }
            let wrong = script::problems(&model);
            for problem in &wrong {
                complain(&format!("error: {problem}"));
            }
            if !wrong.is_empty() {
                return Outcome::Wrong;
            }
            let sites = counted(model.sites.len(), "site");
            let listeners = counted(model.listeners.len(), "listener");
            let file = config.display();
            let mut said = format!("{file}: fine ({sites}, {listeners})\n");
            if let Some(changed) = config::overrides::told(&model) {
                said.push_str(&format!("note: {changed}\n"));
            }
            print(said.as_bytes())
        }
    }
}

/// Reports limits that cannot be had; an outcome means that the gateway would refuse to start.
fn report_groups(model: &Model) -> Option<Outcome> {
    let shape = Shape::of(model);
    if shape.groups.is_empty() {
        return None;
    }
    let verdict = match Host::look() {
        Ok(host) => shape.judge(&host, os::cgroup::device_of),
        Err(error) => {
            let why = reason(&error);
            complain(&format!("nagaya: look for control groups: {why}\n"));
            return Some(Outcome::Failed);
        }
    };
    for warning in &verdict.warnings {
        complain(&format!("warning: {warning}\n"));
    }
    let mut outcome = None;
    for lacking in &verdict.problems {
        let message = &lacking.message;
        // The service has a group of its own, whatever group this command was typed in.
        if lacking.is_of_this_place {
            complain(&format!("warning: started from here: {message}\n"));
        } else {
            complain(&format!("error: {message}\n"));
            outcome = Some(Outcome::Wrong);
        }
    }
    outcome
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}
