//! What a row makes of the site that stands for all rows: judged, and stamped.
//!
//! The idea: nothing that a row says reaches further than its own site. A column in a path is one name, the
//! root must be the row's user's, its tenant is nobody's who is written, and a plan is one of those there are.
//! A row that breaks this is out alone, and the log says which it is.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::model::{self, Model, RowRoot, SiteRows, Template, TemplatePart};
use ipc::directory::Row;
use ipc::rows::component;

use super::entry::HostEntry;
use super::programs::RowOwner;
use super::site_row::SiteRow;
use crate::generation::Generation;
use crate::site::Site;
use crate::worker::Worker;

/// Stamps the site of a host.
///
/// # Errors
/// What is wrong with the row.
pub(super) fn stamp(
    worker: &Worker,
    generation: &Generation,
    (template, index, number): (&Site, u32, u32),
    (host, entry): (&str, &Arc<HostEntry>),
) -> Result<Site, String> {
    let (Some(rows), Some(row)) = (&template.rows, entry.row()) else {
        return Err("no row makes this site".to_owned());
    };
    let RowOutline { tenant, plan, root } = outline(generation, rows, (host, row))?;
    let found = plan.and_then(|at| generation.plans.get(at));
    let plan_name = found.map(|plan| &*plan.name);
    let weight = found.map_or(1, |plan| plan.weight);
    let keys_max = generation.process.caps.limit_keys;
    let lease = generation.limits.needs_tenants().then(|| {
        let limiter = &worker.shared.limits;
        limiter.lend(&tenant, weight, u32::try_from(keys_max).unwrap_or(u32::MAX))
    });
    let (mut order, mut pool) = (None, None);
    if let (Some(terms), Some((root, _))) = (generation.row_programs.get(&index), &root) {
        let owner = RowOwner {
            host,
            row,
            tenant: &tenant,
            plan: plan_name,
            root: &root.path,
        };
        let told = terms.order(generation.number, owner);
        pool = terms.pool(&worker.shared.program_pools, &told, owner)?;
        order = Some(Box::new(told));
    }
    let of_row = SiteRow {
        entry: Arc::clone(entry),
        lease,
        tenant: worker.shared.rows.tenants.of(&tenant, plan_name),
        plan: plan.and_then(|at| u32::try_from(at).ok()),
        order,
        pool,
    };
    Ok(template.stamped(
        host,
        (&tenant, weight),
        root.map(|(root, owner)| (number, root, owner)),
        of_row,
    ))
}

/// What a row says of the site that it makes.
#[derive(Debug)]
pub(crate) struct RowOutline {
    pub(crate) tenant: String,
    /// The plan's index.
    pub(crate) plan: Option<usize>,
    /// The root, and its owner's uid.
    pub(crate) root: Option<(model::Root, u32)>,
}

/// Judges a row.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn outline(
    generation: &Generation,
    rows: &SiteRows,
    (host, row): (&str, &Row),
) -> Result<RowOutline, String> {
    let terms = generation
        .directories
        .iter()
        .find(|it| it.name == rows.name);
    let plans = generation.plans.iter().map(|plan| &*plan.name);
    let terms = RowTerms {
        uid_min: terms.map_or(1, |terms| terms.uid_min),
        is_written: |tenant: &str| generation.written_tenants.contains(tenant),
        plans,
    };
    terms.outline(rows, (host, row))
}

/// What rows are judged by.
struct RowTerms<P, W> {
    uid_min: u32,
    /// The names of plans, in order.
    plans: P,
    /// Whether a tenant is the configuration's.
    is_written: W,
}

impl<'p, P: Iterator<Item = &'p str>, W: Fn(&str) -> bool> RowTerms<P, W> {
    fn outline(mut self, rows: &SiteRows, (host, row): (&str, &Row)) -> Result<RowOutline, String> {
        let tenant = fill(&rows.tenant, row)?;
        ipc::rows::tenant(&tenant)?;
        if (self.is_written)(&tenant) {
            return Err(format!("tenant `{tenant}` is one of the configuration's"));
        }
        let plan = match &rows.plan {
            Some(plan) => self.plan(&fill(plan, row)?)?,
            None => None,
        };
        if let Some(host) = row.column("redirect").filter(|host| !host.is_empty()) {
            check_host(host)?;
        }
        let root = rows.root.as_ref();
        let root = root.map(|root| root_of(self.uid_min, root, (host, row)));
        Ok(RowOutline {
            tenant,
            plan,
            root: root.transpose()?,
        })
    }

    fn plan(&mut self, name: &str) -> Result<Option<usize>, String> {
        if name.is_empty() {
            return Ok(None);
        }
        let found = self.plans.position(|plan| plan == name);
        let unknown = || format!("there is no plan {name:.80?}");
        found.map(Some).ok_or_else(unknown)
    }
}

/// Judges rows of a directory before anybody is served by them.
#[derive(Debug)]
pub struct RowJudge<'a> {
    model: &'a Model,
    site: &'a model::Site,
    uid_min: u32,
}

impl<'a> RowJudge<'a> {
    /// Whoever judges the rows of the directory of this name; `None` where no site is made of them.
    #[must_use]
    pub fn of(model: &'a Model, directory: &str) -> Option<Self> {
        let is_of = |site: &&model::Site| site.rows.as_ref().is_some_and(|it| it.name == directory);
        let terms = model.directories.iter().find(|it| it.name == directory);
        Some(Self {
            model,
            site: model.sites.iter().find(is_of)?,
            uid_min: terms?.uid_min,
        })
    }

    /// Whether a row makes a site that can be served: with its plan and PHP, and its root there and its user's.
    ///
    /// # Errors
    /// What it lacks.
    pub fn judge(&self, host: &str, row: &Row) -> Result<(), String> {
        let Some(rows) = &self.site.rows else {
            return Ok(());
        };
        let terms = RowTerms {
            uid_min: self.uid_min,
            plans: self.model.plans.iter().map(|plan| &*plan.name),
            // Whoever reads rows has looked at that.
            is_written: |_: &str| false,
        };
        let outline = terms.outline(rows, (host, row))?;
        if let Some(column) = self.site.pool.php_column() {
            let version = row.column(column).unwrap_or_default();
            let mut known = self.model.php.iter();
            if !version.is_empty() && !known.any(|php| php.version == version) {
                return Err(format!("column `{column}`: there is no PHP {version:.80?}"));
            }
        }
        match outline.root {
            Some((root, owner)) => is_there(&root.path, owner),
            None => Ok(()),
        }
    }
}

/// Whether a directory is there, and of this user.
fn is_there(root: &Path, owner: u32) -> Result<(), String> {
    let shown = root.display();
    match std::fs::metadata(root) {
        Ok(facts) if !facts.is_dir() => Err(format!("its root `{shown}` is no directory")),
        Ok(facts) if facts.uid() != owner => {
            let whose = facts.uid();
            Err(format!(
                "its root `{shown}` is uid {whose}'s, not {owner}'s"
            ))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(format!("its root `{shown}`: {}", config::reason(&error))),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    match host.len() <= ipc::directory::HOST_BYTES_MAX && host.bytes().all(fits) {
        true => Ok(()),
        false => Err(format!("column `redirect`: {host:.80?} is no host")),
    }
}

/// The root, and whose it must be.
fn root_of(
    least: u32,
    root: &RowRoot,
    (host, row): (&str, &Row),
) -> Result<(model::Root, u32), String> {
    let owner = row
        .uid
        .ok_or("column `user` names no user of this machine")?;
    if owner == 0 || owner < least || owner == os::process::user_id() {
        return Err(format!(
            "column `user`: uid {owner} may own no site of a row"
        ));
    }
    let path = path(&root.path, host, row)?;
    let within = self::path(&root.within, host, row)?;
    if !path.starts_with(&within) {
        return Err(format!(
            "`{}` does not lie beneath `{}`",
            path.display(),
            within.display()
        ));
    }
    let symlinks = root.symlinks;
    Ok((
        model::Root {
            path,
            within,
            symlinks,
        },
        owner,
    ))
}

fn path(template: &Template, host: &str, row: &Row) -> Result<PathBuf, String> {
    let mut path = String::new();
    for part in &template.parts {
        match part {
            TemplatePart::Text(text) => path.push_str(text),
            TemplatePart::Host => path.push_str(component("host", host)?),
            TemplatePart::Row(name) => {
                path.push_str(component(name, row.column(name).unwrap_or_default())?);
            }
            _ => return Err("a path of rows has columns alone".to_owned()),
        }
    }
    Ok(path.into())
}

/// A text of nothing but columns and text.
fn fill(template: &Template, row: &Row) -> Result<String, String> {
    let mut out = String::new();
    for part in &template.parts {
        match part {
            TemplatePart::Text(text) => out.push_str(text),
            TemplatePart::Row(name) => out.push_str(row.column(name).unwrap_or_default()),
            _ => return Err("a name of rows has columns alone".to_owned()),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_in_a_path_is_one_name() {
        for text in [
            "",
            ".",
            "..",
            ".ssh",
            "a/b",
            "/",
            "a\0b",
            "a\nb",
            &"x".repeat(256),
        ] {
            assert!(component("user", text).is_err(), "{text:?}");
        }
        for text in ["a", "a.b", "a b", "ü", "..."]
            .iter()
            .filter(|text| !text.starts_with('.'))
        {
            assert_eq!(component("user", text).as_deref(), Ok(*text));
        }
    }

    #[test]
    fn a_redirect_names_a_host_and_nothing_else() {
        for host in ["a.example", "xn--a.example"] {
            assert_eq!(check_host(host), Ok(()));
        }
        for host in ["a/b", "a@b", "a:80", "a\r\nb", "a b", "%2f"] {
            assert!(check_host(host).is_err(), "{host:?}");
        }
    }
}
