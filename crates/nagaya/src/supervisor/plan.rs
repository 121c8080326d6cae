//! What the spawner is told of a configuration: the rules that run programs, and nothing else.

use config::model::{Handler, Model, Rule, Site, Symlinks};
use engine::programs::plan::{Plan, PlannedRule, PlannedSite};
use os::user::User;

/// Makes a generation's plan; the errors are what this process cannot do for it.
pub(super) fn of(model: &Model, generation: u64) -> Result<Plan, Vec<String>> {
    let mut problems = Vec::new();
    let mut sites = Vec::new();
    for (index, site) in (0..).zip(&model.sites) {
        let rules: Vec<_> = (0..).zip(&site.rules).filter_map(rule).collect();
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

fn rule((index, rule): (u32, &Rule)) -> Option<PlannedRule> {
    let Some(Handler::Cgi(cgi)) = &rule.handler else {
        return None;
    };
    let set = cgi.params.iter().filter(|(_, value)| value.is_some());
    Some(PlannedRule {
        index,
        names: set.map(|(name, _)| name.clone()).collect(),
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
