//! `[[sites.mounts]]`: roots of their own below paths of a site.
//!
//! The idea: a mount says what a site says of its root, so it is read by the same functions. Where
//! it has a user of its own, each rule with PHP leads to that user's pool below it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::conditions::SiteFiles;
use super::context::{Spot, problem};
use super::rewrite::{judge_unless, rewrites, warn_of_passed};
use super::site::{index, resolve, root};
use super::table::Table;
use super::upstream::Upstreams;
use super::user::{Role, wrong_user};
use super::value::Value;
use crate::keys;
use crate::model::{FastCgi, Handler, Mount, Protocol, Rule};

/// Mounts of a site: requests look through them.
const MOUNTS_MAX: usize = 64;

/// The mounts of a site whose rules are known, the longest paths first.
pub(crate) fn mounts(
    site: &Table<'_>,
    site_index: &Arc<Vec<String>>,
    rules: (&[Rule], &[Value<'_>]),
    upstreams: &mut Upstreams,
) -> Vec<Mount> {
    let values = site.list("mounts");
    if let Some(value) = values.get(MOUNTS_MAX) {
        value.report(format!(
            "there are more than {MOUNTS_MAX} mounts in this site"
        ));
    }
    let mut spots: BTreeMap<String, Spot> = BTreeMap::new();
    let mut mounts: Vec<Mount> = Vec::new();
    for value in values.iter().take(MOUNTS_MAX) {
        let Some(mount) = mount(value, site_index, rules, upstreams) else {
            continue;
        };
        if let Some(first) = spots.insert(mount.path.clone(), value.spot()) {
            value.report_again(format!("`{}` is mounted twice", mount.path), first);
        }
        mounts.push(mount);
    }
    mounts.sort_by_key(|mount| Reverse(mount.path.len()));
    mounts
}

fn mount(
    value: &Value<'_>,
    site_index: &Arc<Vec<String>>,
    rules: (&[Rule], &[Value<'_>]),
    upstreams: &mut Upstreams,
) -> Option<Mount> {
    let table = value.table(&keys::MOUNT)?;
    let path = table.required("path").and_then(|value| path(&value));
    let root = table.required("root").and_then(|_| root(&table));
    let index = match table.get("index") {
        Some(_) => Arc::new(index(&table)),
        None => Arc::clone(site_index),
    };
    let user = table.get("user").and_then(|value| user(&value, rules.0));
    let handlers = match &user {
        Some(user) => handlers(user, rules, upstreams),
        None => Vec::new(),
    };
    let (tried, rewrites) = (resolve(&table), rewrites(&table, SiteFiles::Rooted));
    judge_unless(&table, &tried, rewrites.iter());
    let below = path.as_deref().unwrap_or_default();
    warn_of_passed(&table, (below, &rewrites), rules);
    Some(Mount {
        path: path?,
        root: root?,
        index,
        rewrites,
        resolve: Arc::new(tried),
        user,
        handlers,
    })
}

fn path(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let path = text.strip_suffix('/').unwrap_or(text);
    let is_name = |name: &str| !["", ".", ".."].contains(&name);
    let names = path.strip_prefix('/');
    let is_path = names.is_some_and(|names| names.split('/').all(is_name));
    let is_odd = |c: char| c.is_control() || ['?', '#', '%', '*'].contains(&c);
    if !is_path || path.contains(is_odd) {
        let help = "one looks like `/wiki`; what is below `/` is the site's own `root`";
        value.report_help(format!("`{text}` is no path to mount at"), help);
        return None;
    }
    Some(path.to_owned())
}

fn user(value: &Value<'_>, rules: &[Rule]) -> Option<String> {
    let name = value.text()?;
    let runs = |rule: &Rule| match &rule.handler {
        Some(Handler::Cgi(_)) => true,
        Some(Handler::FastCgi(fastcgi)) => fastcgi.pool.is_some(),
        _ => false,
    };
    let role = match rules.iter().any(runs) {
        true => Role::Programs,
        false => {
            let message = "`user` says nothing: no rule of this site starts programs";
            let help = "`cgi` and `php` run as it; a FastCGI server runs as whoever started it";
            let finding = problem(value.spot(), message).help(help);
            value.context.warn(finding);
            Role::Nobody
        }
    };
    if let Some((message, help)) = wrong_user(value.context.sources, role, name) {
        value.report_help(message, help);
    }
    Some(name.to_owned())
}

/// What answers in place of the rules' handlers, where it is to run as this user.
fn handlers(
    user: &str,
    (rules, values): (&[Rule], &[Value<'_>]),
    upstreams: &mut Upstreams,
) -> Vec<(usize, Handler)> {
    // A rule that could not be read has been reported, and the numbers of the others are not theirs.
    if rules.len() != values.len() {
        return Vec::new();
    }
    let site_user = upstreams.pools.become_user(Some(user.to_owned()));
    let mut handlers = Vec::new();
    for (at, (rule, value)) in rules.iter().zip(values).enumerate() {
        let php = value.member("handler").and_then(|it| it.member("php"));
        let (Some(Handler::FastCgi(fastcgi)), Some(php)) = (&rule.handler, php) else {
            continue;
        };
        let pool = upstreams.pools.php(&php);
        let led = pool.and_then(|pool| upstreams.lead(&php, pool, Protocol::FastCgi));
        if let Some(led) = led {
            let own = FastCgi {
                upstream: led.upstream,
                pool: Some(led.pool),
                ..fastcgi.clone()
            };
            handlers.push((at, Handler::FastCgi(own)));
        }
    }
    upstreams.pools.become_user(site_user);
    handlers
}
