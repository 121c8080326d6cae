//! That nothing but a site's own errors goes into its error log, which may be made its user's.
//!
//! The idea: a log is known by the path it is filled to, however it is written. Left out is the
//! access log of the process, of which each site knows.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::context::{Spot, problem};
use super::value::Value;
use crate::log_paths::{fill, fill_for_site};
use crate::model::{LogTarget, Site};

/// A site that writes to a log, by its number, and what.
struct Writer<'a> {
    site: usize,
    lines: Lines<'a>,
}

/// What is written to a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines<'a> {
    Access,
    /// Errors, for this user to read if the log is made theirs.
    Errors(Option<&'a str>),
}

/// Reports error logs to which something else is written.
pub(crate) fn judge(sites: &[(&Value<'_>, Site)]) {
    if sites.iter().all(|(_, site)| site.error_log.is_none()) {
        return;
    }
    let mut known = HashMap::new();
    for (number, (value, site)) in sites.iter().enumerate() {
        for (path, lines) in written(site) {
            let writer = Writer {
                site: number,
                lines,
            };
            match known.entry(path) {
                Entry::Vacant(place) => drop(place.insert(writer)),
                Entry::Occupied(first) => {
                    let other = sites.get(first.get().site);
                    let other = other.map(|(value, _)| log_spot(value));
                    report(value, first.key(), (&writer, first.get()), other);
                }
            }
        }
    }
}

/// Every log of a site, with what goes there.
fn written(site: &Site) -> impl Iterator<Item = (String, Lines<'_>)> {
    let of_hosts = site.hosts.iter();
    let of_hosts = of_hosts.filter_map(|host| Some(fill(template(&site.log)?, site, host)));
    let rules = site.rules.iter().filter_map(|rule| rule.log.as_ref());
    let of_rules = rules.filter_map(|log| Some(fill_for_site(template(log)?, site)));
    let user = site.has_own_user.then_some(&*site.user);
    let errors = site.error_log.as_ref();
    let errors = errors.map(|log| (fill_for_site(log, site), Lines::Errors(user)));
    let access = of_hosts.chain(of_rules).map(|path| (path, Lines::Access));
    access.chain(errors)
}

fn template(target: &LogTarget) -> Option<&str> {
    match target {
        LogTarget::File(template) => Some(template),
        LogTarget::Off | LogTarget::Stdout => None,
    }
}

fn report(
    value: &Value<'_>,
    path: &str,
    (writer, first): (&Writer<'_>, &Writer<'_>),
    other: Option<Spot>,
) {
    let readers = [first, writer].map(|it| match it.lines {
        Lines::Errors(user) => user,
        Lines::Access => None,
    });
    let reader = readers.into_iter().flatten().next();
    let message = match (writer.site == first.site, reader) {
        _ if writer.lines == first.lines => return,
        (true, _) => "`access` and `error` are one file".to_owned(),
        (false, Some(user)) => {
            format!("`{path}` is user `{user}`'s to read, and another site writes there")
        }
        (false, None) => return,
    };
    let help = "give each its own file: `$site` in its name is the first host";
    let finding = problem(log_spot(value), message).help(help);
    value.context.report(match other {
        Some(spot) if writer.site != first.site => finding.other("the other site", spot),
        _ => finding,
    });
}

/// Where a site says what its logs are.
fn log_spot(value: &Value<'_>) -> Spot {
    value.member("log").as_ref().unwrap_or(value).spot()
}
