//! `.htaccess` files: how many lines of them are not obeyed, and how many files where they do not
//! count at all.

use std::cmp::Reverse;

use config::model::{Model, Site};
use engine::htaccess::survey::{Surveyed, sections, survey};

use super::{Finding, finding};

/// Sites that are named.
const NAMED_MAX: usize = 5;

/// Looks through the roots of all sites.
pub(super) fn look(model: &Model) -> Vec<Finding> {
    let surveyed = |is_meant: fn(&Site) -> bool, said: fn(&Site) -> Vec<Surveyed>| {
        let sites = model.sites.iter().filter(|site| is_meant(site));
        sites.map(|site| (site, said(site))).collect::<Vec<_>>()
    };
    let mut findings = Vec::new();
    let obeyed = surveyed(|site| site.htaccess.is_some(), obeyed);
    if !obeyed.is_empty() {
        findings.push(lines(&obeyed));
    }
    findings.extend(ignored(&surveyed(|site| !site.obeys_files(), survey)));
    findings
}

/// The files that a site lets count, and the sections of its configuration.
fn obeyed(site: &Site) -> Vec<Surveyed> {
    let mut said = sections(site);
    if site.obeys_files() {
        said.extend(survey(site));
    }
    said
}

/// Lines that are not obeyed, of files and sections that count.
fn lines(sites: &[(&Site, Vec<Surveyed>)]) -> Finding {
    let files: usize = sites.iter().map(|(_, files)| files.len()).sum();
    let count = |files: &[Surveyed]| -> usize { files.iter().map(|it| it.problems.len()).sum() };
    let by_site = most(sites, count);
    let all: usize = by_site.iter().map(|(_, lines)| lines).sum();
    let detail = match all {
        0 => format!("{files} files and sections, all of whose lines are obeyed"),
        _ => format!(
            "{files} files and sections; lines that are not obeyed: {all} ({})",
            named(&by_site)
        ),
    };
    finding(
        "lines of .htaccess files",
        all == 0,
        &detail,
        "nagaya check tells them all",
    )
}

/// Files that do not count.
fn ignored(sites: &[(&Site, Vec<Surveyed>)]) -> Option<Finding> {
    let by_site = most(sites, <[Surveyed]>::len);
    let all: usize = by_site.iter().map(|(_, files)| files).sum();
    let detail = format!("files that do not count: {all} ({})", named(&by_site));
    let remedy = "htaccess = { override = [\"All\"] } of the site, if they are to";
    (all > 0).then(|| finding(".htaccess where it is off", false, &detail, remedy))
}

/// What there is of a kind by site, the most first.
fn most(
    sites: &[(&Site, Vec<Surveyed>)],
    count: impl Fn(&[Surveyed]) -> usize,
) -> Vec<(String, usize)> {
    let counted = sites
        .iter()
        .map(|(site, files)| (site.name(), count(files)));
    let mut counted: Vec<_> = counted.filter(|(_, number)| *number > 0).collect();
    counted.sort_by_key(|(_, number)| Reverse(*number));
    counted
}

fn named(by_site: &[(String, usize)]) -> String {
    let shown = by_site.iter().take(NAMED_MAX);
    let mut shown: Vec<_> = shown
        .map(|(site, number)| format!("{site}: {number}"))
        .collect();
    if let Some(more) = by_site
        .len()
        .checked_sub(NAMED_MAX)
        .filter(|more| *more > 0)
    {
        shown.push(format!("{more} sites more"));
    }
    shown.join(", ")
}
