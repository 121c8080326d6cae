//! `nagaya check`: the configuration read as `serve` would, and judged.

use std::path::Path;

use config::model::Model;
use config::{Diagnostics, Naming, Sources, reason};
use ipc::groups::Shape;
use os::cgroup::Host;
use supervisor::load::{Loaded, load};
use supervisor::surroundings;

use crate::certificates::{self, judge_named};
use crate::cli::{CONFIG, CheckOptions};
use crate::control::unreadable;
use crate::outcome::{Outcome, colour, complain, print, warn, wrong_config};
use crate::{htaccess, paths, script};

/// Says that a configuration is fine, or everything that is wrong with it.
pub(crate) fn run(config: &Path, options: &CheckOptions) -> Outcome {
    if config == Path::new(CONFIG) && !config.exists() {
        complain(&format!("nagaya: {}\n", unreadable(config, false)));
        return Outcome::Wrong;
    }
    match load(config) {
        Err(problems) => {
            let sources = Sources::read(config).ok();
            let certificates = sources.map(|sources| judge_named(&Naming::of(&sources)));
            wrong_config(&problems.and(certificates.unwrap_or_default()))
        }
        Ok(loaded) if options.dump => {
            let aside = report_set_aside(&loaded);
            let printed = print(config::dump(&loaded.model).as_bytes());
            aside.unwrap_or(printed)
        }
        Ok(loaded) => judge(config, &loaded, options),
    }
}

/// Judges what stands around a configuration that can be understood.
fn judge(config: &Path, loaded: &Loaded, options: &CheckOptions) -> Outcome {
    warn(&loaded.warnings);
    let aside = report_set_aside(loaded);
    let (model, naming) = (&loaded.model, Naming::of(&loaded.sources));
    for warning in surroundings::warnings(model) {
        complain(&format!("warning: {warning}\n"));
    }
    warn(&Diagnostics::warnings(paths::doubts(model, &naming)));
    for doubt in htaccess::doubts(model) {
        complain(&format!("warning: {doubt}\n"));
    }
    // The service is started by root, whoever this command is typed by.
    for problem in surroundings::unbecomable(model) {
        complain(&format!("warning: started from here: {problem}\n"));
    }
    let groups = report_groups(model);
    let scripts = script::problems(model);
    for problem in &scripts {
        complain(&format!("error: {problem}"));
    }
    let certificates = certificates::judge(model, &naming, options.at);
    warn(&Diagnostics::warnings(certificates.warnings));
    let mut wrong = (!scripts.is_empty()).then_some(Outcome::Wrong);
    if !certificates.problems.is_empty() {
        wrong = Some(wrong_config(&Diagnostics::errors(certificates.problems)));
    }
    groups
        .or(wrong)
        .unwrap_or_else(|| report_fine(config, model, aside))
}

/// Says what a configuration comes to that nothing is wrong with, or nothing but the files that
/// would be set aside.
fn report_fine(config: &Path, model: &Model, aside: Option<Outcome>) -> Outcome {
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
    if let Some(changed) = config::overrides::told(model) {
        said.push_str(&format!("note: {changed}\n"));
    }
    print(said.as_bytes())
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
