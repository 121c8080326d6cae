//! Paths of access logs and sites' error logs: which ones a configuration may write.
//!
//! The idea: a template (`/var/log/nagaya/$host.log`) is filled with the hosts a configuration
//! names, never with what a client asks for, so the set of paths is known before the first
//! request. The server fills in and asks; the supervisor, which opens, knows the same set.

use std::collections::{HashMap, HashSet};

use crate::model::{HostPattern, LogTarget, Model, Site};

/// A host as part of a file name: `example.jp`, `_.example.jp` for `*.example.jp`, and `_` for
/// the default site. A configured host holds no `/`.
pub fn host_name(host: &HostPattern) -> String {
    match host {
        HostPattern::Exact(host) => host.clone(),
        HostPattern::Below(host) => format!("_.{host}"),
        HostPattern::Any => "_".to_owned(),
    }
}

/// The path of a log for an exchange that came to `site` by `host`, one of its patterns.
pub fn fill(template: &str, site: &Site, host: &HostPattern) -> String {
    if !is_template(template) {
        return template.to_owned();
    }
    // Hosts of rows are not known beforehand: they have one log.
    let host = match &site.rows {
        Some(_) => "$site".to_owned(),
        None => host_name(host),
    };
    fill_for_site(&template.replace("$host", &host), site)
}

/// The path of a log that has `$site` at most in its name. No host holds a `$`.
pub fn fill_for_site(template: &str, site: &Site) -> String {
    let first = match &site.rows {
        Some(rows) => format!("_{}", rows.name),
        None => site.hosts.first().map(host_name).unwrap_or_default(),
    };
    template.replace("$site", &first)
}

/// The path of a log for an exchange that came to no site: its request could not be understood.
pub fn fill_without_site(template: &str) -> String {
    template.replace("$host", "_").replace("$site", "_")
}

/// Whether a path is filled in per site.
pub fn is_template(path: &str) -> bool {
    path.contains("$host") || path.contains("$site")
}

/// The paths a configuration logs to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LogPaths {
    /// Written whatever comes: opened beforehand. Sorted.
    pub fixed: Vec<String>,
    /// From templates: opened when needed.
    pub filled: HashSet<String>,
    /// The users who may read one: those of sites with an error log.
    pub readers: HashMap<String, String>,
}

impl LogPaths {
    /// All of a configuration's.
    pub fn of(model: &Model) -> LogPaths {
        let mut paths = LogPaths::default();
        match &model.log.access {
            LogTarget::File(template) if is_template(template) => {
                paths.filled.insert(fill_without_site(template));
            }
            target => paths.add_fixed(target),
        }
        for site in &model.sites {
            match &site.log {
                LogTarget::File(template) if is_template(template) => {
                    paths
                        .filled
                        .extend(site.hosts.iter().map(|host| fill(template, site, host)));
                    if site.rows.is_some() {
                        paths.filled.insert(fill(template, site, &HostPattern::Any));
                    }
                }
                target => paths.add_fixed(target),
            }
            for target in site.rules.iter().filter_map(|rule| rule.log.as_ref()) {
                paths.add_of_site(target, site);
            }
            if let Some(template) = &site.error_log {
                paths.add_of_site(&LogTarget::File(template.clone()), site);
                if site.has_own_user {
                    let path = fill_for_site(template, site);
                    paths.readers.entry(path).or_insert(site.user.clone());
                }
            }
        }
        paths.fixed.sort_unstable();
        paths.fixed.dedup();
        paths
    }

    /// Adds a log that is the same for all hosts of its site.
    fn add_of_site(&mut self, target: &LogTarget, site: &Site) {
        match target {
            LogTarget::File(template) if is_template(template) => {
                self.filled.insert(fill_for_site(template, site));
            }
            target => self.add_fixed(target),
        }
    }

    fn add_fixed(&mut self, target: &LogTarget) {
        match target {
            LogTarget::File(path) if !is_template(path) => self.fixed.push(path.clone()),
            _ => {}
        }
    }
}
