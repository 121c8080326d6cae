//! What a row makes of the site that stands for all rows: judged, and stamped.
//!
//! The idea: nothing that a row says reaches further than its own site. A column in a path is one name, the
//! root must be the row's user's, its tenant is nobody's who is written, and a plan is one of those there are.
//! A row that breaks this is out alone, and the log says which it is.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::model::{self, Handler, Model, RowRoot, SiteRows, Template, TemplatePart};
use ipc::directory::Row;
use ipc::rows::component;

use super::entry::HostEntry;
use super::programs::RowOwner;
use super::site_row::SiteRow;
use crate::generation::{self, Generation};
use crate::site::Site;
use crate::upstream::named::by_literal_row;
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
    let known = &worker.shared.rows;
    if template.is_recorded {
        entry.note(&known.hosts, &tenant, host);
    }
    let of_row = SiteRow {
        entry: Arc::clone(entry),
        lease,
        tenant: known.tenants.of(&tenant, plan_name),
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
    known: RowsMayName<'a>,
}

/// What rows may name, and what not.
#[derive(Debug, Clone, Copy)]
pub struct RowsMayName<'a> {
    /// Tenants of the configuration, which they may not.
    pub written_tenants: &'a [String],
    /// What certificates of `[tls]` are called.
    pub certificates: &'a BTreeSet<String>,
}

impl<'a> RowJudge<'a> {
    /// Whoever judges the rows of the directory of this name; `None` where no site is made of them.
    #[must_use]
    pub fn of(model: &'a Model, directory: &str, known: RowsMayName<'a>) -> Option<Self> {
        let is_of = |site: &&model::Site| site.rows.as_ref().is_some_and(|it| it.name == directory);
        let terms = model.directories.iter().find(|it| it.name == directory);
        Some(Self {
            model,
            site: model.sites.iter().find(is_of)?,
            uid_min: terms?.uid_min,
            known,
        })
    }

    /// Whether a row makes a site that can be served: with its plan, PHP and certificate, an upstream within `allow` as far as
    /// no name is looked up, and its root there and its user's.
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
            is_written: |tenant: &str| self.known.written_tenants.iter().any(|it| it == tenant),
        };
        let outline = terms.outline(rows, (host, row))?;
        if let Some(column) = self.site.pool.php_column() {
            let version = row.column(column).unwrap_or_default();
            let mut known = self.model.php.iter();
            if !version.is_empty() && !known.any(|php| php.version == version) {
                return Err(format!("column `{column}`: there is no PHP {version:.80?}"));
            }
        }
        let certificate = rows.certificate.as_deref();
        let certificate = certificate.and_then(|column| row.column(column));
        if let Some(name) = certificate.filter(|name| !self.known.certificates.contains(*name)) {
            return Err(format!("none of [tls] certificates is called {name:.80?}"));
        }
        self.judge_upstreams(row)?;
        match outline.root {
            Some((root, owner)) => is_there(&root.path, owner),
            None => Ok(()),
        }
    }

    /// Judges addresses to forward to. Which rule is a request's only the request says: it is enough that one leads there.
    fn judge_upstreams(&self, row: &Row) -> Result<(), String> {
        let handlers = self
            .site
            .rules
            .iter()
            .filter_map(|rule| rule.handler.as_ref());
        let listeners = generation::listeners(self.model);
        let mut outcome = Ok(());
        for handler in handlers {
            let Handler::Proxy(proxy) = handler else {
                continue;
            };
            let said = proxy.row().and_then(|column| row.column(column));
            let judged = said.map(|said| by_literal_row(&listeners, &proxy.allow, said));
            match judged {
                Some(Ok(())) => return Ok(()),
                Some(Err(why)) => outcome = Err(why),
                None => {}
            }
        }
        outcome
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
    fn rows_that_make_no_site_are_known_before_they_are_asked_for() {
        let text = r#"
[[listen]]
address = "127.0.0.1:8080"
[[listen]]
address = "127.0.0.1:8443"
tls = true
[tls]
certificates = ["/etc/certs/*.pem"]
[directories.d]
source = "sqlite:/tmp/rows.db"
query = "SELECT * FROM t WHERE host = $host"
[[sites]]
hosts = { directory = "d" }
tenant = "c-$row.id"
tls = { certificate = "$row.certificate" }
rules = [{ handler = { proxy = "$row.upstream", allow = ["10.0.0.0/8"] } }]
"#;
        let sources = config::Sources::from_text("nagaya.toml", text);
        let model = config::load(&sources).unwrap_or_else(|problems| panic!("{problems}"));
        let known = RowsMayName {
            written_tenants: &["c-own".to_owned()],
            certificates: &BTreeSet::from(["ann".to_owned()]),
        };
        let judge = RowJudge::of(&model, "d", known).expect("a site");
        let judged = |id: &str, certificate: &str, upstream: &str| {
            let columns = [
                ("id", id),
                ("certificate", certificate),
                ("upstream", upstream),
            ];
            let columns = columns.map(|(name, text)| (name.to_owned(), text.to_owned()));
            let row = Row {
                seal: 1,
                columns: columns.into(),
                uid: None,
                from: ipc::directory::RowFrom::Source,
            };
            judge.judge("a.example", &row)
        };
        for upstream in ["10.1.2.3:80", "http://10.1.2.3:80/", "app.internal:80"] {
            assert_eq!(judged("ann", "ann", upstream), Ok(()));
        }
        for (id, certificate, upstream, why) in [
            ("own", "ann", "10.1.2.3:80", "one of the configuration's"),
            ("ann", "bob", "10.1.2.3:80", "is called \"bob\""),
            ("ann", "ann", "192.0.2.1:80", "not in `allow`"),
            ("ann", "ann", "127.0.0.1:80", "not in `allow`"),
        ] {
            let wrong = judged(id, certificate, upstream).expect_err(why);
            assert!(wrong.contains(why), "{wrong}");
        }
    }

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
