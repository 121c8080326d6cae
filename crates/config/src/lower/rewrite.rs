//! `rewrite`: what is asked for in the place of what was.
//!
//! The idea: an entry says a target as clients write one, so what no client could ask for is found
//! here as far as it can be seen.

use super::conditions::SiteFiles;
use super::context::problem;
use super::expressions::expression;
use super::names::Named;
use super::table::Table;
use super::template::{Purpose, template};
use super::value::Value;
use crate::keys;
use crate::model::{Condition, QueryChange, Rewrite, Rule, Template, TemplatePart, TryEntry};

/// Most entries of one list: a request is held against all of them.
const REWRITES_MAX: usize = 256;
/// What of a rule keeps clients out, or counts them.
const KEEPING: [&str; 4] = ["deny", "allow", "auth", "limits"];

/// The entries of a site or a rule, in order.
pub(crate) fn rewrites(table: &Table<'_>, files: SiteFiles) -> Vec<Rewrite> {
    let values = table.list("rewrite");
    if let Some(beyond) = values.get(REWRITES_MAX) {
        beyond.report(format!("`rewrite` may hold at most {REWRITES_MAX} entries"));
    }
    let entries = values.iter();
    entries.filter_map(|value| rewrite(value, files)).collect()
}

fn rewrite(value: &Value<'_>, files: SiteFiles) -> Option<Rewrite> {
    let table = value.table(&keys::REWRITE)?;
    let from = table.required("from").and_then(|value| expression(&value));
    // Groups of an expression that is wrong would only be reported once more.
    let to = table.required("to").filter(|_| from.is_some());
    let to = to.and_then(|value| {
        let context = value.context;
        context.where_groups_are_of(from.as_deref(), || target(&value))
    });
    let query = query(&table, to.as_ref());
    let [unless_file, unless_directory] = unless(&table, files);
    Some(Rewrite {
        from: from?,
        to: to?,
        query,
        unless_file,
        unless_directory,
        last: table.flag("last"),
    })
}

fn target(value: &Value<'_>) -> Option<Template> {
    let to = template(value, Purpose::Target)?;
    let texts = to.parts.iter().filter_map(|part| match part {
        TemplatePart::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let begins = match to.parts.first() {
        Some(TemplatePart::Text(text)) => text.starts_with('/'),
        Some(TemplatePart::Path | TemplatePart::Capture(_)) => true,
        _ => false,
    };
    if texts.clone().any(|text| text.contains('#')) {
        value.report("a `#` is nothing that is asked for: browsers keep it");
    } else if to.lookups().next().is_some() {
        let help = "a `redirect` may ask one";
        value.report_help("no map is asked where a path is rewritten", help);
    } else if to.parts.iter().any(holds_query) {
        let help = "write `$path`; `query = \"append\"` keeps it";
        value.report_help("`$uri` and `$request_uri` hold the client's query", help);
    } else if !begins {
        let help = "it begins with `/`, `$path` or a group; for another host there is `redirect`";
        value.report_help("`to` must be a path", help);
    } else {
        return Some(to);
    }
    None
}

fn holds_query(part: &TemplatePart) -> bool {
    matches!(part, TemplatePart::Uri | TemplatePart::RequestUri)
}

fn has_query(to: &Template) -> bool {
    let mut parts = to.parts.iter();
    parts.any(|part| matches!(part, TemplatePart::Text(text) if text.contains('?')))
}

/// What is said of the query, or follows from what `to` has.
fn query(table: &Table<'_>, to: Option<&Template>) -> QueryChange {
    let said = table.get("query").and_then(|value| value.choice());
    said.unwrap_or(match to.is_some_and(has_query) {
        true => QueryChange::Replace,
        false => QueryChange::Keep,
    })
}

/// Whether it is left alone where a file, and where a directory stands.
fn unless(table: &Table<'_>, files: SiteFiles) -> [bool; 2] {
    let Some(value) = table.get("unless") else {
        return [false, false];
    };
    if files == SiteFiles::Rootless {
        let finding = problem(value.spot(), "`unless` needs a `root` in the site");
        value.context.report(finding.absence());
    }
    let mut found = [false, false];
    let elements = value.one_or_list();
    if elements.is_empty() {
        value.report("`unless` is empty: leave it out");
    }
    for element in &elements {
        match element.text() {
            Some("file") => found[0] = true,
            Some("directory") => found[1] = true,
            Some(other) => {
                let finding = problem(
                    element.spot(),
                    format!("`{other}` is nothing that stands at a path: `file` or `directory` is"),
                );
                let meant = keys::nearest(other, ["file", "directory"].into_iter());
                element.context.report(finding.meant(meant));
            }
            None => {}
        }
    }
    found
}

/// Reports a site whose `try` does not look for what `unless` asks about.
pub(crate) fn judge_unless<'r>(
    table: &Table<'_>,
    tried: &[TryEntry],
    mut all: impl Iterator<Item = &'r Rewrite> + Clone,
) {
    for (word, entry, asks) in [
        ("file", TryEntry::Path, all.clone().any(|it| it.unless_file)),
        (
            "directory",
            TryEntry::Directory,
            all.any(|it| it.unless_directory),
        ),
    ] {
        if asks && !tried.contains(&entry) {
            let what = if word == "file" { "$path" } else { "$path/" };
            table.report_at(
                &["try"],
                format!(
                    "`unless = \"{word}\"` of a `rewrite` asks what `{what}` comes to, which `try` leaves out"
                ),
            );
        }
    }
}

/// Warns of a rule for some paths that keeps clients out or counts them, and that a request may pass
/// because an entry of the site, or of the mount at `below`, has led it elsewhere before.
pub(crate) fn warn_of_passed(
    table: &Table<'_>,
    (below, rewrites): (&str, &[Rewrite]),
    (rules, values): (&[Rule], &[Value<'_>]),
) {
    // A rule that could not be read has been reported, and the numbers of the others are not theirs.
    let (Some(entries), true) = (table.get("rewrite"), rules.len() == values.len()) else {
        return;
    };
    let begins = rewrites.iter().map(|it| regex_begins(&it.from));
    let begins = begins.filter(|begin| overlap(begin, below));
    let begins: Vec<_> = begins
        .map(|begin| match begin.len() < below.len() {
            true => below.to_owned(),
            false => begin,
        })
        .collect();
    let passed = rules.iter().zip(values).find_map(|(rule, value)| {
        let key = KEEPING.into_iter().find(|key| value.has_member(key))?;
        let mut begins = begins.iter();
        let is_passed = begins.any(|begin| are_for_path(&rule.conditions, begin));
        is_passed.then_some((&rule.name, key, value))
    });
    if let Some((name, key, value)) = passed {
        let message = format!(
            "this is done before rules are tried: what it leads elsewhere never meets `{name}`, whose `{key}` is for its path"
        );
        let help =
            "put it on a rule of its own below: what a request has met before stays in force there";
        let finding = problem(entries.spot(), message).help(help);
        table.context.warn(finding.other("the rule", value.spot()));
    }
}

/// Whether conditions go by the path, and may hold for one that begins so.
fn are_for_path(conditions: &[Condition], begin: &str) -> bool {
    let mut are_for_path = false;
    for condition in conditions {
        let begins = match condition {
            Condition::Path(globs) => globs.iter().map(|it| glob_begins(&it.0)).collect(),
            Condition::PathRegex(source) => vec![regex_begins(source)],
            Condition::Not(inner) if inner.iter().any(Condition::goes_by_path) => {
                vec![String::new()]
            }
            _ => continue,
        };
        if !begins.iter().any(|own| overlap(own, begin)) {
            return false;
        }
        are_for_path = true;
    }
    are_for_path
}

/// Whether a path may begin with both.
fn overlap(one: &str, other: &str) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// What every path begins with that a glob matches.
fn glob_begins(glob: &str) -> String {
    let plain = glob.split(['*', '?', '[']).next();
    let plain = plain.filter(|plain| plain.starts_with('/'));
    plain.unwrap_or_default().to_owned()
}

/// What every path begins with in which a regular expression is found, as far as it is plain text.
fn regex_begins(source: &str) -> String {
    let mut begin = String::new();
    let Some(rest) = source.strip_prefix('^').filter(|rest| !has_branches(rest)) else {
        return begin;
    };
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => chars.next().filter(char::is_ascii_punctuation),
            _ => Some(c).filter(|c| !".[]()*+?{}|^$".contains(*c)),
        };
        match (plain, chars.peek()) {
            // What is repeated may not be there at all.
            (None, _) | (Some(_), Some('*' | '?' | '{')) => break,
            (Some(c), _) => begin.push(c),
        }
    }
    begin
}

/// Whether an expression is one or another, outside of groups.
fn has_branches(source: &str) -> bool {
    let (mut depth, mut is_escaped) = (0_i32, false);
    source.chars().any(|c| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' => return depth == 0,
            _ => {}
        }
        false
    })
}

/// How what becomes of the query is written; `None` where nothing is.
pub(crate) fn spell_query(query: QueryChange) -> Option<&'static str> {
    (query != QueryChange::Keep).then(|| query.name())
}
