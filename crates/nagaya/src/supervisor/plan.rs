//! What the spawner is told of a configuration: the rules that run programs, and nothing else.

use std::collections::BTreeSet;

use config::model::{Cgi, Handler, Model, Rule, Site, Symlinks};
use engine::programs::plan::{Plan, PlannedRule, PlannedSite};
use os::user::User;

/// Makes a generation's plan; the errors are what this process cannot do for it.
pub(super) fn of(model: &Model, generation: u64) -> Result<Plan, Vec<String>> {
    let mut problems = Vec::new();
    let mut sites = Vec::new();
    for (index, site) in (0..).zip(&model.sites) {
        let rules: Vec<_> = (0..)
            .zip(&site.rules)
            .filter_map(|(index, rule)| planned(site, index, rule))
            .collect();
        if rules.is_empty() {
            continue;
        }
        let Some(root) = &site.root else {
            continue;
        };
        match user(site, model) {
            Ok(user) => sites.push(PlannedSite {
                index,
                name: name(site),
                root: root.path.clone(),
                within: root.within.clone(),
                symlinks: match root.symlinks {
                    Symlinks::Deny => os::file::Symlinks::Deny,
                    Symlinks::Owner => os::file::Symlinks::Owner,
                    Symlinks::Allow => os::file::Symlinks::Allow,
                },
                user,
                rules,
            }),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        Ok(Plan {
            generation,
            programs_max: model.caps.programs as u64,
            sites,
            ..Plan::default()
        })
    } else {
        Err(problems)
    }
}

fn planned(site: &Site, index: u32, rule: &Rule) -> Option<PlannedRule> {
    let Some(Handler::Cgi(cgi)) = &rule.handler else {
        return None;
    };
    Some(PlannedRule {
        index,
        names: names(site, cgi),
        limits: os::spawn::Limits {
            cpu_s: cgi.limits.cpu_s,
            memory_bytes: cgi.limits.memory_bytes,
            files: cgi.limits.files,
            processes: cgi.limits.processes,
            file_size_bytes: cgi.limits.file_size_bytes,
        },
        group: None,
    })
}

/// The variables that a program may get beside the usual ones: those its rule sets, and `env` of
/// the site and of any rule that may have matched before.
fn names(site: &Site, cgi: &Cgi) -> Vec<String> {
    let levels = site.rules.iter().map(|rule| &rule.settings);
    let levels = std::iter::once(&site.settings).chain(levels);
    let env = levels.flat_map(|settings| settings.env.iter().map(|(name, _)| name));
    let params = cgi.params.iter();
    let set = params.filter_map(|(name, value)| value.is_some().then_some(name));
    let names: BTreeSet<&String> = env.chain(set).collect();
    names.into_iter().cloned().collect()
}

/// Whom a site's programs run as. Only root can become somebody else.
fn user(site: &Site, model: &Model) -> Result<Option<String>, String> {
    if os::process::is_root() {
        return Ok(Some(site.user.clone()));
    }
    // Started by anybody else, the gateway stays who it is, whatever its own `user` says.
    if site.user == model.user {
        return Ok(None);
    }
    let found = User::look_up(&site.user);
    if found.is_ok_and(|user| user.uid == os::process::user_id()) {
        return Ok(None);
    }
    let (name, user, own) = (name(site), &site.user, os::process::user_id());
    Err(format!(
        "site {name}: its programs cannot run as {user}, since only root can become others and \
         this is user {own}: start as root, or leave out the site's `user`"
    ))
}

fn name(site: &Site) -> String {
    site.hosts
        .first()
        .map(ToString::to_string)
        .unwrap_or_default()
}
