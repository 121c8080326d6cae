//! What a row makes of the site that stands for all rows: judged, and stamped.
//!
//! The idea: nothing that a row says reaches further than its own site. A column in a path is one name, the
//! root must be the row's user's, its tenant is nobody's who is written, and a plan is one of those there are.
//! A row that breaks this is out alone, and the log says which it is.

use std::path::PathBuf;
use std::sync::Arc;

use config::model::{self, RowRoot, Template, TemplatePart};
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
    let tenant = tenant(generation, &rows.tenant, row)?;
    let plan = match &rows.plan {
        Some(plan) => plan_of(generation, &fill(plan, row)?)?,
        None => None,
    };
    if let Some(host) = row.column("redirect").filter(|host| !host.is_empty()) {
        check_host(host)?;
    }
    let root = match &rows.root {
        Some(root) => Some(root_of(generation, root, (host, row), &rows.name)?),
        None => None,
    };
    let found = plan.and_then(|at| generation.plans.get(at));
    let plan_name = found.map(|plan| &*plan.name);
    let weight = found.map_or(1, |plan| plan.weight);
    let keys_max = generation.process.caps.limit_keys;
    let lease = generation.limits.needs_tenants().then(|| {
        let limiter = &worker.shared.limits;
        limiter.lend(&tenant, weight, u32::try_from(keys_max).unwrap_or(u32::MAX))
    });
    let plan = plan.and_then(|at| u32::try_from(at).ok());
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
        plan,
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

fn tenant(generation: &Generation, template: &Template, row: &Row) -> Result<String, String> {
    let tenant = fill(template, row)?;
    ipc::rows::tenant(&tenant)?;
    match generation.written_tenants.contains(&*tenant) {
        true => Err(format!("tenant `{tenant}` is one of the configuration's")),
        false => Ok(tenant),
    }
}

fn plan_of(generation: &Generation, name: &str) -> Result<Option<usize>, String> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = generation.plans.iter().position(|plan| &*plan.name == name);
    let unknown = || format!("there is no plan {name:.80?}");
    found.map(Some).ok_or_else(unknown)
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
    generation: &Generation,
    root: &RowRoot,
    (host, row): (&str, &Row),
    directory: &str,
) -> Result<(model::Root, u32), String> {
    let terms = generation
        .directories
        .iter()
        .find(|it| it.name == directory);
    let least = terms.map_or(1, |terms| terms.uid_min);
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
