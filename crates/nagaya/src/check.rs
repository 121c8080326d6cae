//! `nagaya check`: the configuration read as `serve` would, and judged.

use std::collections::BTreeMap;
use std::path::Path;

use config::model::{Model, Root, Site};
use config::reason;
use ipc::groups::Shape;
use os::cgroup::Host;
use os::user::User;
use supervisor::load::{Loaded, load};
use supervisor::surroundings;

use crate::certificates;
use crate::cli::CheckOptions;
use crate::outcome::{Outcome, colour, complain, print, warn, wrong_config};
use crate::script;

/// Roots looked at, at most.
const ROOTS_MAX: usize = 10_000;

/// Says that a configuration is fine, or everything that is wrong with it.
pub(crate) fn run(config: &Path, options: &CheckOptions) -> Outcome {
    match load(config) {
        Err(problems) => wrong_config(&problems),
        Ok(loaded) if options.dump => {
            let aside = report_set_aside(&loaded);
            let printed = print(config::dump(&loaded.model).as_bytes());
            aside.unwrap_or(printed)
        }
        Ok(loaded) => {
            warn(&loaded.warnings);
            let aside = report_set_aside(&loaded);
            let model = loaded.model;
            let closed = unreachable_roots(&model);
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
            let certificates = certificates::judge(&model, options.at);
            for warning in &certificates.warnings {
                complain(&format!("warning: {warning}\n"));
            }
            for problem in &certificates.problems {
                complain(&format!("error: {problem}\n"));
            }
            if !(wrong.is_empty() && certificates.problems.is_empty()) {
                return Outcome::Wrong;
            }
            let sites = counted(model.sites.len(), "site");
            let listeners = counted(model.listeners.len(), "listener");
            let file = config.display();
            if let Some(outcome) = aside {
                complain(&format!(
                    "{file}: would be in force without the broken files ({sites}, {listeners})\n"
                ));
                return outcome;
            }
            let mut said = format!("{file}: fine ({sites}, {listeners})\n");
            if let Some(changed) = config::overrides::told(&model) {
                said.push_str(&format!("note: {changed}\n"));
            }
            print(said.as_bytes())
        }
    }
}

/// Reports files that would be set aside; an outcome means that there are some.
fn report_set_aside(loaded: &Loaded) -> Option<Outcome> {
    if let Some(why) = &loaded.last_good_unread {
        complain(&format!(
            "warning: the last good versions of files cannot be read here: {why}\n"
        ));
    }
    complain(&loaded.aside.render(colour()));
    (loaded.aside.files().len() > 0).then_some(Outcome::Wrong)
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

/// The roots that no request can open, a line each, for the user the server becomes.
fn unreachable_roots(model: &Model) -> Vec<String> {
    let mut roots = BTreeMap::new();
    for site in &model.sites {
        let mounts = site.mounts.iter().map(|mount| &mount.root);
        let all = site.root.iter().chain(mounts);
        for root in all.take(ROOTS_MAX.saturating_sub(roots.len())) {
            let key = (&root.path, &root.within, root.symlinks as u8);
            roots.entry(key).or_insert((site, root));
        }
    }
    let line = |(site, root): (&Site, &Root)| {
        let why = engine::resolve::unreachable(root)?;
        let (name, path) = (site.name(), root.path.display());
        Some(format!("site {name}: no request can open {path}: {why}"))
    };
    let look = || roots.into_values().filter_map(line).collect();
    let user = User::look_up(&model.user).or_else(|_| User::this_process());
    user.and_then(|user| user.act(look)).unwrap_or_default()
}
