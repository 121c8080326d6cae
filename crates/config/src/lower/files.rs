//! Files that keys name: password files and error pages; scripts are in `script`.
//!
//! The idea: each file is judged once, however many sites name it, and shared by all of them;
//! a problem is reported where the file was first named.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::context::{Context, problem};
use super::value::Value;
use crate::model::{Auth, ErrorPage, Guarded, Model, Script};
use crate::{keys, lower::values};

/// Largest error page.
const PAGE_BYTES_MAX: usize = 256 << 10;
/// Cost of a bcrypt hash at most; each step doubles the time a check takes.
const BCRYPT_COST_MAX: u32 = 16;

/// `auth = { … }`.
pub(crate) fn auth(value: &Value<'_>) -> Option<Auth> {
    let table = value.table(&keys::AUTH)?;
    let realm = table.text("realm");
    if let Some(value) = table.get("realm").filter(|_| !values::is_plain(&realm)) {
        value.report("`realm` must be printable ASCII");
    }
    let named = table.required("file")?;
    let file = values::path(&named)?;
    let cache = &value.context.files.users;
    let known = cache.borrow().get(&file).cloned();
    let users = known.unwrap_or_else(|| {
        let users = content(&named, &file).and_then(|bytes| users(&named, &file, bytes));
        let users = users.map(Arc::new);
        cache.borrow_mut().insert(file.clone(), users.clone());
        users
    })?;
    Some(Auth { realm, users, file })
}

/// The files of a model's scripts, passwords and keys, under all their names.
pub(crate) fn guarded(context: &Context<'_>, model: &Model) -> Arc<[Guarded]> {
    let users = context.files.users.borrow();
    let named = users.keys().map(PathBuf::as_path);
    let required = model.scripts.lib.iter().flat_map(|library| &library.files);
    let sites = model.sites.iter();
    let upstreams = model.upstreams.iter().filter_map(|it| it.tls.as_ref());
    let files = sites.filter_map(|site| site.tls.files.as_ref());
    let files = files.chain(upstreams.filter_map(|tls| tls.certificate.as_ref()));
    let keys = files.map(|files| files.key.as_path());
    let named = named.chain(required.map(|file| file.path.as_path()));
    let named = named.chain(keys);
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
    let cache = &value.context.files.pages;
    let known = cache.borrow().get(&file).cloned();
    let body = known.unwrap_or_else(|| {
        let body = page(value, &file);
        cache.borrow_mut().insert(file.clone(), body.clone());
        body
    })?;
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
    if is_bcrypt(hash) || is_sha(hash) || is_apr1(hash) {
        return Ok((name, hash));
    }
    Err(format!(
        "the hash of `{name}` is neither bcrypt ($2y$), SHA ({{SHA}}) nor apr1 ($apr1$)"
    ))
}

fn is_bcrypt(hash: &str) -> bool {
    let versions = ["$2y$", "$2b$", "$2a$"];
    let Some(rest) = versions
        .iter()
        .find_map(|version| hash.strip_prefix(version))
    else {
        return false;
    };
    let Some((cost, digest)) = rest.split_once('$') else {
        return false;
    };
    let cost_fits = cost.len() == 2
        && cost
            .parse()
            .is_ok_and(|cost| (4..=BCRYPT_COST_MAX).contains(&cost));
    cost_fits && digest.len() == 53 && digest.bytes().all(is_crypt64)
}

fn is_sha(hash: &str) -> bool {
    let digest = hash
        .strip_prefix("{SHA}")
        .and_then(|rest| rest.strip_suffix('='));
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    digest.is_some_and(|digest| digest.len() == 27 && digest.bytes().all(base64))
}

fn is_apr1(hash: &str) -> bool {
    let parts = hash
        .strip_prefix("$apr1$")
        .and_then(|rest| rest.split_once('$'));
    parts.is_some_and(|(salt, digest)| {
        (1..=8).contains(&salt.len()) && digest.len() == 22 && digest.bytes().all(is_crypt64)
    })
}

fn is_crypt64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"./".contains(&byte)
}
