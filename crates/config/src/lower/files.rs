//! Files that keys name: files of passwords and groups, and error pages; scripts are in `script`.
//!
//! The idea: each file is judged once, however many sites name it, and shared by all of them;
//! a problem is reported where the file was first named.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::context::{Context, problem};
use super::file_cache::Groups;
use super::hashes;
use super::table::Table;
use super::value::Value;
use crate::model::{Auth, AuthGroups, ErrorPage, Guarded, Handler, Model, Script};
use crate::{keys, lower::values};

/// Largest error page.
const PAGE_BYTES_MAX: usize = 256 << 10;

/// `auth = { … }`.
pub(crate) fn auth(value: &Value<'_>) -> Option<Auth> {
    let table = value.table(&keys::AUTH)?;
    let realm = table.text("realm");
    if let Some(value) = table.get("realm").filter(|_| !values::is_plain(&realm)) {
        value.report("`realm` must be printable ASCII");
    }
    let named = table.required("file")?;
    let file = values::path(&named)?;
    let users = once(&value.context.files.users, &file, || {
        users(&named, &file, content(&named, &file)?).map(Arc::new)
    });
    let groups = groups(&table);
    Some(Auth {
        realm,
        users: users?,
        file,
        groups,
    })
}

/// The groups that `require` names, and who is in them.
fn groups(table: &Table<'_>) -> Option<AuthGroups> {
    let (file, required) = (table.get("group_file"), table.get("require"));
    let (named, required) = match (file, required) {
        (Some(file), Some(required)) => (file, required),
        (None, None) => return None,
        (Some(one), None) => return refuse_alone(table, &one, "require"),
        (None, Some(one)) => return refuse_alone(table, &one, "group_file"),
    };
    let file = values::path(&named)?;
    let known = once(&named.context.files.groups, &file, || {
        members(&named, &file, content(&named, &file)?).map(Arc::new)
    })?;
    let values = required.list().unwrap_or_default();
    if values.is_empty() && required.is_list() {
        required.report_help(
            "`require` is empty: nobody is let in",
            "name a group, or leave it out",
        );
    }
    let (mut names, mut members) = (Vec::new(), BTreeSet::new());
    for value in &values {
        let name = value.text()?;
        match known.get(name) {
            Some(users) => members.extend(users.iter().cloned()),
            None => {
                let message = format!("there is no group `{name}` in `{}`", file.display());
                let meant = keys::nearest(name, known.keys().map(String::as_str));
                value
                    .context
                    .report(problem(value.spot(), message).meant(meant));
            }
        }
        names.push(name.to_owned());
    }
    Some(AuthGroups {
        file,
        required: names,
        members: Arc::new(members),
    })
}

fn refuse_alone(table: &Table<'_>, one: &Value<'_>, other: &str) -> Option<AuthGroups> {
    if !table.has_misspelt(other) {
        let message = format!("`{}` says nothing without `{other}`", one.name);
        let help = "`group_file` says who is in which group, `require` which of these are let in";
        let finding = problem(one.spot(), message).help(help);
        one.context.report(finding.absence());
    }
    None
}

/// What a file was judged to be, the first time that it is named; `None` once that was reported.
fn once<T: Clone>(
    cache: &RefCell<BTreeMap<PathBuf, Option<T>>>,
    file: &Path,
    judge: impl FnOnce() -> Option<T>,
) -> Option<T> {
    let known = cache.borrow().get(file).cloned();
    known.unwrap_or_else(|| {
        let judged = judge();
        cache.borrow_mut().insert(file.to_owned(), judged.clone());
        judged
    })
}

/// The files of a model's scripts, passwords and keys, under all their names.
pub(crate) fn guarded(context: &Context<'_>, model: &Model) -> Arc<[Guarded]> {
    let users = context.files.users.borrow();
    let groups = context.files.groups.borrow();
    let named = users.keys().chain(groups.keys()).map(PathBuf::as_path);
    let required = model.scripts.lib.iter().flat_map(|library| &library.files);
    let sites = model.sites.iter();
    let upstreams = model.upstreams.iter().filter_map(|it| it.tls.as_ref());
    let files = sites.filter_map(|site| site.tls.files.as_ref());
    let files = files.chain(upstreams.filter_map(|tls| tls.certificate.as_ref()));
    let keys = files.map(|files| files.key.as_path());
    let named = named.chain(required.map(|file| file.path.as_path()));
    let named = named.chain(keys);
    let rules = model.sites.iter().flat_map(|site| &site.rules);
    let secrets = rules.filter_map(|rule| match rule.handler.as_ref()? {
        Handler::Console(console) => Some(console.secret.as_ref()?.file.as_path()),
        _ => None,
    });
    let named = named.chain(secrets);
    let mut files = BTreeMap::new();
    for path in model.all_scripts().filter_map(Script::path).chain(named) {
        if !files.contains_key(path) {
            let identity = context.sources.identities.get(path).copied();
            let canonical = context.sources.canonical.get(path).cloned();
            files.extend(canonical.map(|path| (path, identity)));
            files.insert(path.to_owned(), identity);
        }
    }
    let guarded = |(path, identity)| Guarded { path, identity };
    files.into_iter().map(guarded).collect()
}

/// A file of `error_pages`.
pub(crate) fn error_page(value: &Value<'_>) -> Option<ErrorPage> {
    let file = values::path(value)?;
    let content_type = match file.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("txt") => "text/plain; charset=utf-8",
        _ => {
            value.report("an error page must be an `.html`, `.json`, `.svg` or `.txt` file");
            return None;
        }
    };
    let body = once(&value.context.files.pages, &file, || page(value, &file))?;
    Some(ErrorPage {
        body,
        file,
        content_type: content_type.to_owned(),
    })
}

fn page(value: &Value<'_>, file: &Path) -> Option<Arc<[u8]>> {
    let bytes = content(value, file)?;
    if bytes.len() > PAGE_BYTES_MAX {
        value.report(format!("`{}` is larger than 256KiB", file.display()));
        return None;
    }
    Some(Arc::from(bytes))
}

pub(super) fn content<'a>(value: &Value<'a>, file: &Path) -> Option<&'a [u8]> {
    match value.context.sources.data.get(file) {
        Some(Ok(bytes)) => return Some(bytes),
        Some(Err(why)) => value.report(format!("cannot read `{}`: {why}", file.display())),
        None => value.report(format!(
            "cannot read `{}`: no such file or directory",
            file.display()
        )),
    }
    None
}

/// The users of a password file; `None` once a line of it was reported.
fn users(value: &Value<'_>, file: &Path, bytes: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut users = BTreeMap::new();
    let mut fine = true;
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii_end();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let added = user(line).and_then(|(name, hash)| {
            match users.insert(name.to_owned(), hash.to_owned()) {
                None => Ok(()),
                Some(_) => Err(format!("user `{name}` stands there twice")),
            }
        });
        if let Err(why) = added {
            fine = false;
            let message = format!("password file `{}:{}`: {why}", file.display(), index + 1);
            let help = "`htpasswd -B FILE USER` writes a line that is understood";
            value
                .context
                .report(problem(value.spot(), message).help(help));
        }
    }
    fine.then_some(users)
}

fn user(line: &[u8]) -> Result<(&str, &str), String> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    let (name, hash) = line.split_once(':').ok_or("no `:` between user and hash")?;
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err("no user before the `:`".to_owned());
    }
    match hashes::check(hash) {
        Ok(()) => Ok((name, hash)),
        Err(why) => Err(format!("the hash of `{name}` {why}")),
    }
}

/// The users of each group, as Apache reads them: what a group has on several lines is added up.
/// `None` once a line was reported.
fn members(value: &Value<'_>, file: &Path, bytes: &[u8]) -> Option<Groups> {
    let mut groups = Groups::new();
    let mut fine = true;
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match group(line) {
            Ok((name, users)) => {
                let users = users.split_ascii_whitespace().map(str::to_owned);
                groups.entry(name.to_owned()).or_default().extend(users);
            }
            Err(why) => {
                fine = false;
                let message = format!("group file `{}:{}`: {why}", file.display(), index + 1);
                let help = "a line looks like `staff: alice bob`";
                value
                    .context
                    .report(problem(value.spot(), message).help(help));
            }
        }
    }
    fine.then_some(groups)
}

fn group(line: &[u8]) -> Result<(&str, &str), &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8")?;
    let (name, users) = line.split_once(':').ok_or("no `:` behind the group")?;
    let is_name = |c: char| !c.is_control() && !c.is_whitespace();
    match !name.is_empty() && name.chars().all(is_name) {
        true => Ok((name, users)),
        false => Err("no group before the `:`"),
    }
}
