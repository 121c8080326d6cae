//! `proxy_redirect`: what of a back end's replies stands for something else here.
//!
//! The idea: what is looked for is spelt as it will be compared, so that an entry that could never
//! fit is a mistake.

use super::context::problem;
use super::table::Table;
use super::template::{Purpose, leads_somewhere, template};
use crate::keys;
use crate::model::{ProxyRedirects, Template, TemplatePart};

/// Most entries of each table: a reply's fields are held against all of them.
const REWRITES_MAX: usize = 32;

/// `proxy_redirect`; `None` where nothing is rewritten.
pub(crate) fn redirects(table: &Table<'_>) -> Option<Box<ProxyRedirects>> {
    let Some(value) = table.get("proxy_redirect") else {
        return Some(Box::default());
    };
    match value.as_flag() {
        Some(true) => return Some(Box::default()),
        Some(false) => return None,
        None if value.is_table() => {}
        None => {
            value.mistyped("`false` or a table");
            return None;
        }
    }
    let table = value.table(&keys::PROXY_REDIRECT)?;
    let location = rewrites(&table, "location", |from, to| {
        if !is_location(from) {
            return Err("this must be a path or a URL, such as `/v2` or `http://app.internal/`");
        }
        match leads_somewhere(to) {
            true => Ok(from.to_owned()),
            false => Err("what stands instead must be a path or a URL"),
        }
    });
    let cookie_domain = rewrites(&table, "cookie_domain", |from, _| {
        let domain = from.strip_prefix('.').unwrap_or(from);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        match !domain.is_empty() && domain.bytes().all(fits) {
            true => Ok(domain.to_owned()),
            false => Err("this must be a domain, such as `app.internal`"),
        }
    });
    let cookie_path = rewrites(&table, "cookie_path", |from, to| {
        let leads = leads_somewhere(to) && !begins_with_url(to);
        match (is_location(from) && from.starts_with('/'), leads) {
            (true, true) => Ok(from.to_owned()),
            (false, _) => Err("this must be a path, such as `/v2`"),
            (_, false) => Err("what stands instead must be a path"),
        }
    });
    Some(Box::new(ProxyRedirects {
        location,
        cookie_domain,
        cookie_path,
    }))
}

/// What stands instead of what; `judge` says what is wrong with an entry, or spells it.
fn rewrites(
    table: &Table<'_>,
    name: &'static str,
    judge: impl Fn(&str, &Template) -> Result<String, &'static str>,
) -> Vec<(String, Template)> {
    let entries = table.entries(name);
    if let Some(entry) = entries.get(REWRITES_MAX) {
        let message = format!("`{name}` may hold at most {REWRITES_MAX} entries");
        table
            .context
            .report(problem(entry.name_spot.clone(), message));
    }
    let judged = entries.into_iter().filter_map(|entry| {
        let to = template(&entry.value, Purpose::Target)?;
        match judge(entry.name, &to) {
            Ok(from) => Some((from, to)),
            Err(message) => {
                table.context.report(problem(entry.name_spot, message));
                None
            }
        }
    });
    judged.collect()
}

/// Whether a reply's `Location` could begin like this.
fn is_location(from: &str) -> bool {
    let urls = ["http://", "https://"].into_iter();
    let path = match urls.filter_map(|scheme| from.strip_prefix(scheme)).next() {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
            if authority.is_empty() || !authority.bytes().all(fits) {
                return false;
            }
            path
        }
        None if from.starts_with('/') => from,
        None => return false,
    };
    let fits = |byte: u8| byte > b' ' && byte != 0x7f && !b"\"<>\\?#;".contains(&byte);
    path.bytes().all(fits) && !path.contains("//")
}

fn begins_with_url(to: &Template) -> bool {
    match to.parts.first() {
        Some(TemplatePart::Text(text)) => !text.starts_with('/'),
        Some(TemplatePart::Scheme) => true,
        _ => false,
    }
}
