//! `htaccess` of a site: what its files may say, which PHP the handlers that they name mean, and
//! what the configuration says in their words.
//!
//! The idea: a section is understood here as it will be when requests come, so that what would
//! refuse these is refused with the configuration.

use std::sync::Arc;

use htaccess::overrides::Unknown;
use htaccess::{Overrides, PROBLEMS_MAX, SectionContext, compile_section};

use super::context::problem;
use super::table::Table;
use super::tops::Tops;
use super::upstream::Upstreams;
use super::value::{Entry, Value};
use crate::keys;
use crate::model::{
    DirectorySection, FastCgi, Handler, Protocol, Rule, SiteHtaccess, UnknownLines,
};

/// Names of handlers of a site: each may be a pool.
const HANDLERS_MAX: usize = 16;
/// Sections of a site: each request looks through them.
const SECTIONS_MAX: usize = 256;
/// Sections that may hold for one directory.
const SECTIONS_OF_DIRECTORY_MAX: usize = 64;
/// Bytes of these together.
const SECTIONS_BYTES_MAX: usize = 512 * 1024;

/// How many bytes of what is known of files are kept.
pub(super) fn cached_bytes(tops: &Tops<'_>) -> usize {
    let table = tops.table("htaccess", &keys::HTACCESS);
    if let Some(value) = table.get("cached").filter(|value| !value.is_text()) {
        let help = "it was a number of files: leave it out, or write \"64MiB\"";
        value.report_help("`cached` is a size, with its unit", help);
        return 0;
    }
    usize::try_from(table.size("cached")).unwrap_or(usize::MAX)
}

/// What a site says of its `.htaccess` files; `None` where they count for nothing.
pub(super) fn of_site(
    site: &Table<'_>,
    rules: (&[Rule], &[Value<'_>]),
    upstreams: &mut Upstreams,
) -> Option<Arc<SiteHtaccess>> {
    let value = site.get("htaccess")?;
    let table = value.table(&keys::SITE_HTACCESS)?;
    let unknown = table.choice("unknown");
    let directories = sections(&table, unknown);
    let words = table.required("override")?.list()?;
    let (words, overrides) = overrides(&words, unknown)?;
    let files = SiteHtaccess {
        words,
        unknown,
        overrides,
        handlers: handlers(&table, rules, upstreams),
        directories,
    };
    if site.get("root").or(site.get("mounts")).is_none() && !files.says_server() {
        value.report("`htaccess` says nothing: the site has no files");
    }
    Some(Arc::new(files))
}

/// The words, and what they allow; `None` once one of them was reported.
fn overrides(words: &[Value<'_>], unknown: UnknownLines) -> Option<(Vec<String>, Overrides)> {
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
    let words = words.iter().filter_map(Value::text);
    let overrides = Overrides::new(words.clone(), unknown).ok()?;
    Some((words.map(str::to_owned).collect(), overrides))
}

/// The sections of a site, in the order in which they are merged.
fn sections(table: &Table<'_>, unknown: UnknownLines) -> Vec<DirectorySection> {
    let values = table.list("directories");
    if let Some(beyond) = values.get(SECTIONS_MAX) {
        let message = format!("`directories` may hold at most {SECTIONS_MAX} sections");
        beyond.report(message);
    }
    let values = values.iter().take(SECTIONS_MAX);
    let sections = values.filter_map(|value| Some((value, section(value, unknown)?)));
    let sections: Vec<_> = sections.collect();
    judge_together(&sections);
    let mut sections: Vec<_> = sections.into_iter().map(|(_, section)| section).collect();
    let levels = |section: &DirectorySection| section.directory.matches('/').count();
    sections.sort_by_key(|it| (it.context != SectionContext::Server, levels(it)));
    sections
}

fn section(value: &Value<'_>, unknown: UnknownLines) -> Option<DirectorySection> {
    let table = value.table(&keys::DIRECTORY_SECTION)?;
    let context = table.choice("context");
    let directory = table.required("path").and_then(|value| directory(&value));
    let text = table.get("text").map(|value| {
        let text = value.text()?;
        judge(&value, text, context);
        Some(text.to_owned())
    });
    let words = table.get("override");
    if text.is_none() && words.is_none() {
        value.report_help(
            "the section says nothing",
            "it has a `text`, or an `override`",
        );
    }
    let words = words.map(|value| overrides(&value.list()?, unknown));
    Some(DirectorySection {
        directory: directory?,
        // What was reported is nothing, as what is not there.
        overrides: words.flatten(),
        context,
        text: text.flatten().unwrap_or_default(),
    })
}

fn directory(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let names = text.strip_suffix('/').unwrap_or(text);
    let is_name = |name: &str| !["", ".", ".."].contains(&name);
    let is_absolute = text.starts_with('/');
    let mut below = names.strip_prefix('/').into_iter();
    let is_odd = |c: char| c.is_control();
    let is_open = |class: &str| !class.contains(']');
    let is_open = text.split('[').skip(1).any(is_open);
    if is_open
        || !is_absolute
        || !below.all(|names| names.split('/').all(is_name))
        || text.contains(is_odd)
    {
        let help =
            "one looks like `/srv/site/wiki`; a section is for one directory and all below it";
        value.report_help(format!("`{text}` is no directory"), help);
        return None;
    }
    Some(format!("{names}/"))
}

/// Reports what in a text would refuse requests, and warns of what is left out.
fn judge(value: &Value<'_>, text: &str, context: SectionContext) {
    let program = compile_section(text.as_bytes(), context);
    for wrong in &program.problems {
        let message = format!("line {} of the text: {}", wrong.line, wrong.text);
        let finding = problem(value.line(wrong.line), message);
        match wrong.refuses {
            true => value.context.report(finding),
            false => value.context.warn(finding),
        }
    }
    if program.problems.len() >= PROBLEMS_MAX {
        value.report("so much of the text is not understood that the rest is not told");
    }
}

/// Reports where so much holds for one directory that requests would be refused.
fn judge_together(sections: &[(&Value<'_>, DirectorySection)]) {
    for (value, section) in sections {
        let is_above = |other: &DirectorySection| {
            let is_server = other.context == SectionContext::Server;
            is_server || other.is_pattern() || other.holds(section.directory.as_bytes())
        };
        let above = sections.iter().map(|(_, other)| other);
        let above = above.filter(|other| is_above(other));
        let (count, bytes) = above.fold((0, 0), |(count, bytes), other| {
            (count + 1, bytes + other.text.len())
        });
        if count > SECTIONS_OF_DIRECTORY_MAX || bytes > SECTIONS_BYTES_MAX {
            value.report(format!(
                "{count} sections of {bytes} bytes hold for this directory: at most {SECTIONS_OF_DIRECTORY_MAX} of {SECTIONS_BYTES_MAX} may"
            ));
            return;
        }
    }
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
