//! `htaccess` of a site: what its files may say, and which PHP the handlers that they name mean.

use std::sync::Arc;

use htaccess::Overrides;
use htaccess::overrides::Unknown;

use super::context::problem;
use super::table::Table;
use super::tops::Tops;
use super::upstream::Upstreams;
use super::value::{Entry, Value};
use crate::keys;
use crate::model::{FastCgi, Handler, Protocol, Rule, SiteHtaccess, UnknownLines};

/// Names of handlers of a site: each may be a pool.
const HANDLERS_MAX: usize = 16;

/// How many files are kept parsed.
pub(super) fn cached(tops: &Tops<'_>) -> usize {
    tops.table("htaccess", &keys::HTACCESS).count("cached") as usize
}

/// What a site says of its `.htaccess` files; `None` where they count for nothing.
pub(super) fn of_site(
    site: &Table<'_>,
    rules: (&[Rule], &[Value<'_>]),
    upstreams: &mut Upstreams,
) -> Option<Arc<SiteHtaccess>> {
    let value = site.get("htaccess")?;
    let table = value.table(&keys::SITE_HTACCESS)?;
    if site.get("root").or(site.get("mounts")).is_none() {
        value.report("`htaccess` says nothing: the site has no files");
    }
    let unknown = table.choice("unknown");
    let words = table.required("override")?.list()?;
    let overrides = overrides(&words, unknown)?;
    let words = words.iter().filter_map(Value::text).map(str::to_owned);
    Some(Arc::new(SiteHtaccess {
        words: words.collect(),
        unknown,
        overrides,
        handlers: handlers(&table, rules, upstreams),
    }))
}

/// What the words allow; `None` once one of them was reported.
fn overrides(words: &[Value<'_>], unknown: UnknownLines) -> Option<Overrides> {
    let unknown = match unknown {
        UnknownLines::Log => Unknown::Log,
        UnknownLines::Error => Unknown::Error,
    };
    for value in words {
        if let Err(why) = Overrides::new(value.text(), unknown) {
            let help = "`All`, `AuthConfig`, `FileInfo`, `Indexes`, `Limit`, `Options` and names of directives are understood";
            value.report_help(why, help);
            return None;
        }
    }
    Overrides::new(words.iter().filter_map(Value::text), unknown).ok()
}

fn handlers(
    table: &Table<'_>,
    (rules, values): (&[Rule], &[Value<'_>]),
    upstreams: &mut Upstreams,
) -> Vec<(String, String, Handler)> {
    let entries = table.entries("handlers");
    let mut php = rules.iter().zip(values).filter_map(|(rule, value)| {
        let fastcgi = match &rule.handler {
            Some(Handler::FastCgi(fastcgi)) if fastcgi.pool.is_some() => fastcgi,
            _ => return None,
        };
        Some((fastcgi, value.member("handler")?.member("php")?))
    });
    let Some(first) = entries.first() else {
        return Vec::new();
    };
    // A rule that could not be read has been reported, and the numbers of the others are not theirs.
    if rules.len() != values.len() {
        return Vec::new();
    }
    let Some((fastcgi, _)) = php.next() else {
        let message = "`handlers` says nothing: no rule of this site has `php`";
        let finding = problem(first.value.spot(), message);
        table.context.report(finding.absence());
        return Vec::new();
    };
    if let Some(beyond) = entries.get(HANDLERS_MAX) {
        let message = format!("there are more than {HANDLERS_MAX} handlers in this site");
        beyond.value.report(message);
    }
    let named = entries.iter().take(HANDLERS_MAX);
    named
        .filter_map(|entry| handler(entry, fastcgi, upstreams))
        .collect()
}

fn handler(
    entry: &Entry<'_>,
    like: &FastCgi,
    upstreams: &mut Upstreams,
) -> Option<(String, String, Handler)> {
    let version = entry.value.text()?;
    let pool = upstreams.pools.php_of(&entry.value, version)?;
    let led = upstreams.lead(&entry.value, pool, Protocol::FastCgi)?;
    let own = FastCgi {
        upstream: led.upstream,
        pool: Some(led.pool),
        ..like.clone()
    };
    let name = entry.name.to_ascii_lowercase();
    Some((name, version.to_owned(), Handler::FastCgi(own)))
}
