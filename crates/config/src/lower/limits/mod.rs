//! `limits = [ … ]`, on the top level, a tenant, a site, a rule or an upstream.
//!
//! The idea: an entry that would count something other than it says, or never do anything, is
//! refused here, where it can be shown; once the gateway runs such a limit is only noticed by
//! what it does not hold back.

mod fleet;
mod handshake;
pub(crate) mod key;
pub(crate) mod reserve;
pub(crate) mod when;

use std::collections::HashSet;
use std::sync::Arc;

use super::conditions::{SiteFiles, conditions};
use super::context::{Spot, problem};
use super::files;
use super::table::Table;
use super::upstream::Upstreams;
use super::value::Value;
use crate::keys::{self, limit};
use crate::model::{
    Concurrent, Handler, LIMITS_PER_REQUEST_MAX, Limit, LimitKey, LimitOn, Rate, Rule,
};

pub(crate) use when::zone;

/// Longest name: no shorter than any that is made of keys.
const NAME_BYTES_MAX: usize = 512;

/// Where a limit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// The top level.
    Process,
    /// `[tenants.NAME]`.
    Tenant,
    /// `[[sites]]`.
    Site(SiteFiles),
    /// `[[sites.rules]]`.
    Rule(SiteFiles, Forwards),
    /// `[upstreams.NAME]`.
    Upstream,
}

/// Whether a rule's handler forwards to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forwards {
    /// It does, or it could not be read.
    Yes,
    /// It does not, or there is none.
    No,
}

/// An entry, and what it is called by hand.
struct Written {
    limit: Limit,
    name: Option<(String, Spot)>,
}

/// The limits of a level.
pub(crate) fn limits(value: Option<Value<'_>>, level: Level) -> Arc<[Limit]> {
    let Some(value) = value else {
        return Arc::default();
    };
    let entries = value.list().unwrap_or_default();
    if entries.len() > LIMITS_PER_REQUEST_MAX {
        let count = entries.len();
        value.report(format!(
            "{count} limits stand here, and a request can meet {LIMITS_PER_REQUEST_MAX} at most"
        ));
    }
    let written: Vec<Written> = entries
        .iter()
        .filter_map(|value| entry(value, level))
        .collect();
    if written.is_empty() {
        // An empty slice of its own would be an allocation for every site.
        return Arc::default();
    }
    named(&value, written).into()
}

/// Gives every limit a name of its own in its level.
fn named(value: &Value<'_>, written: Vec<Written>) -> Vec<Limit> {
    let mut taken: HashSet<String> = HashSet::new();
    let mut first_spots: Vec<&(String, Spot)> = Vec::new();
    for named in written.iter().filter_map(|written| written.name.as_ref()) {
        let (name, spot) = named;
        if taken.insert(name.clone()) {
            first_spots.push(named);
            continue;
        }
        let finding = problem(spot.clone(), format!("two limits are called `{name}`"));
        let first = first_spots.iter().find(|(first, _)| first == name);
        value.context.report(match first {
            Some((_, first)) => finding.other("the first", first.clone()),
            None => finding,
        });
    }
    let name = |written: Written| {
        let name = match written.name {
            Some((name, _)) => name,
            None => free_name(&written.limit, &mut taken),
        };
        Limit {
            name,
            ..written.limit
        }
    };
    written.into_iter().map(name).collect()
}

/// The name made of a limit's key, with a number where that is taken.
fn free_name(limit: &Limit, taken: &mut HashSet<String>) -> String {
    let words: Vec<String> = limit.key.iter().map(key::spell).collect();
    let base = match limit.on {
        LimitOn::Request => words.join("+"),
        LimitOn::Handshake => format!("handshake {}", words.join("+")),
    };
    let numbered = |number: usize| match number {
        1 => base.clone(),
        number => format!("{base} {number}"),
    };
    // One more than are taken: one of these is free.
    let mut names = (1..=taken.len() + 1).map(numbered);
    let name = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(name.clone());
    name
}

fn entry(value: &Value<'_>, level: Level) -> Option<Written> {
    let table = value.table(&keys::LIMIT)?;
    let key = key::keys(&table, level);
    let concurrent = table.get("concurrent").and_then(|value| concurrent(&value));
    let on = table.choice("on");
    match (on, concurrent) {
        (LimitOn::Handshake, _) => handshake::judge(&table, level, &key),
        (LimitOn::Request, Some(Concurrent::Auto)) => judge_auto(&table, level, &key),
        (LimitOn::Request, _) => {}
    }
    let status = table.some_number("status");
    let default_status = match key.iter().any(LimitKey::tells_clients_apart) {
        true => 429,
        false => 503,
    };
    let limit = Limit {
        name: String::new(),
        on,
        concurrent,
        queue: table.count("queue") as u32,
        wait_ms: table.duration("wait"),
        late_ms: table.duration("late"),
        rate: rate(&table),
        when: table.get("when").and_then(|value| when::when(&value)),
        conditions: table
            .get("match")
            .map(|value| conditions(&value, level.files(), 0))
            .unwrap_or_default(),
        mode: table.choice("mode"),
        tunnels: table.flag("tunnels"),
        reserves: reserve::reserves(&table, (level, on, key.as_slice()), concurrent),
        fleet: fleet::fleet(&table, on, concurrent),
        status: status.map_or(default_status, |status| status as u16),
        page: table
            .get("page")
            .and_then(|value| files::error_page(&value))
            .map(Arc::new),
        kept: None,
        key,
    };
    judge(&table);
    Some(Written {
        limit,
        name: name(&table),
    })
}

fn name(table: &Table<'_>) -> Option<(String, Spot)> {
    let value = table.get("name")?;
    let name = value.text()?;
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if !fits {
        value.report("a limit's `name` must be a short text without control characters");
        return None;
    }
    Some((name.to_owned(), value.spot()))
}

pub(super) fn concurrent(value: &Value<'_>) -> Option<Concurrent> {
    if value.is_text() {
        let text = value.text()?;
        if text == "auto" {
            return Some(Concurrent::Auto);
        }
        if text.parse::<u64>().is_err() {
            let most = limit::REQUESTS_MAX;
            let message = format!("`concurrent` must be a number from 1 to {most}, or \"auto\"");
            let meant = keys::nearest(text, ["auto"].into_iter());
            let finding = problem(value.spot(), message);
            value.context.report(finding.meant(meant));
            return None;
        }
    }
    let count = value.count(1, limit::REQUESTS_MAX)?;
    Some(Concurrent::Fixed(count as u32))
}

/// Reports `"auto"` where there is nothing to measure, or more than one thing.
fn judge_auto(table: &Table<'_>, level: Level, key: &[LimitKey]) {
    if !matches!(level, Level::Process | Level::Upstream) {
        let value = table.get("concurrent");
        let spot = value.map_or_else(|| table.spot(), |value| value.spot());
        let finding = problem(
            spot,
            format!("a limit on {} cannot be `\"auto\"`", level.words()),
        );
        let help = "an upstream or the whole process is measured: put it on `[upstreams.NAME]` or the top level, or \
            give a number, which `nagaya limits propose` finds";
        table.context.report(finding.help(help));
        return;
    }
    if let Some(value) = table.get("key").filter(|_| key != [level.own_key()]) {
        value.report_help(
            "`key` cannot divide what `concurrent = \"auto\"` measures as a whole",
            "leave `key` out",
        );
    }
    if let Some(value) = table.get("rate") {
        value.report_help(
            "`rate` cannot stand beside `concurrent = \"auto\"`",
            "make it a limit of its own",
        );
    }
}

fn rate(table: &Table<'_>) -> Option<Rate> {
    let burst = table.some_number("burst");
    let (count, per_ms) = table.get("rate")?.rate(limit::REQUESTS_MAX)?;
    Some(Rate {
        count: count as u32,
        per_ms,
        burst: burst.unwrap_or(count) as u32,
    })
}

/// Reports keys that say nothing as the others stand.
fn judge(table: &Table<'_>) {
    let has = |name: &'static str| table.get(name).is_some() || table.has_misspelt(name);
    if !has("concurrent") && !has("rate") {
        let finding = problem(table.spot(), "the limit limits nothing");
        let help = "add `concurrent = 2` or `rate = \"10/s\"`";
        table.context.report(finding.help(help).absence());
        return;
    }
    if !has("concurrent") {
        for name in ["queue", "wait", "late", "tunnels"] {
            report_idle(
                table,
                name,
                "concurrent",
                "what exceeds a `rate` is refused at once",
            );
        }
    } else if !has("queue") {
        for name in ["wait", "late"] {
            if let Some(value) = table.get(name) {
                let message = format!("`{name}` says nothing without `queue`: nobody waits");
                let help = "add `queue = 10`: how many may wait";
                table
                    .context
                    .warn(problem(value.spot(), message).help(help));
            }
        }
    } else if let Some(value) = table.get("late")
        && table.duration("late") >= table.duration("wait")
    {
        let finding = problem(value.spot(), "`late` says nothing: `wait` ends before");
        let help = "make `late` shorter than `wait`, by half for example";
        table.context.warn(finding.help(help));
    }
    if !has("rate") {
        report_idle(
            table,
            "burst",
            "rate",
            "for requests that wait their turn take `queue`",
        );
    }
}

/// Reports `name` where `needed` is not set.
fn report_idle(table: &Table<'_>, name: &'static str, needed: &str, help: &str) {
    if let Some(value) = table.get(name) {
        let finding = problem(
            value.spot(),
            format!("`{name}` says nothing without `{needed}`"),
        );
        table.context.report(finding.help(help).absence());
    }
}

/// How many limits a request meets before it comes to a site.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outer {
    pub(crate) process: usize,
    pub(crate) tenant: usize,
}

/// Reports a site where a request could meet more limits than one can hold.
pub(crate) fn judge_site(
    table: &Table<'_>,
    outer: Outer,
    site: &[Limit],
    rules: &[Rule],
    upstreams: &Upstreams,
) {
    let (process, tenant, site) = (outer.process, outer.tenant, site.len());
    let (rules, upstream) = most_in_rules(rules, upstreams);
    let most = process + tenant + site + rules + upstream;
    if most <= LIMITS_PER_REQUEST_MAX {
        return;
    }
    let parts = [
        (process, "of the top level"),
        (tenant, "of the tenant"),
        (site, "of the site"),
        (rules, "of its rules"),
        (upstream, "of an upstream"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, of)| format!("{count} {of}")).collect();
    let message = format!(
        "a request to this site could meet {most} limits, and {LIMITS_PER_REQUEST_MAX} are the most: {}",
        parts.join(", ")
    );
    table.report_at(&["limits"], message);
}

/// The most limits of rules, and of an upstream behind them, that one request can meet: it passes
/// all rules without a handler, and stops at one with. Where a path is rewritten it begins again, and
/// may have passed those below.
fn most_in_rules(rules: &[Rule], upstreams: &Upstreams) -> (usize, usize) {
    let begins_again = rules.iter().any(|rule| !rule.rewrites.is_empty());
    let passing = rules.iter().filter(|rule| rule.handler.is_none());
    let mut passed = match begins_again {
        true => passing.map(|rule| rule.limits.len()).sum(),
        false => 0,
    };
    let mut most = (passed, 0);
    for rule in rules {
        let met = passed + rule.limits.len();
        let upstream = match &rule.handler {
            None if begins_again => continue,
            None => {
                passed = met;
                0
            }
            Some(Handler::Proxy(proxy)) => match proxy.upstream() {
                Some(upstream) => upstreams.limits_of(upstream),
                None => upstreams.most_limits(),
            },
            Some(Handler::FastCgi(fastcgi)) => upstreams.limits_of(fastcgi.upstream),
            Some(_) => 0,
        };
        if met + upstream > most.0 + most.1 {
            most = (met, upstream);
        }
    }
    most
}

impl Forwards {
    /// What a rule's handler says.
    pub(crate) fn of(table: &Table<'_>, handler: Option<&Handler>) -> Forwards {
        let unread = handler.is_none() && table.get("handler").is_some();
        match handler {
            Some(Handler::Proxy(_) | Handler::FastCgi(_)) => Forwards::Yes,
            _ if unread || table.has_misspelt("handler") => Forwards::Yes,
            _ => Forwards::No,
        }
    }
}

impl Level {
    fn words(self) -> &'static str {
        match self {
            Level::Process => "the top level",
            Level::Tenant => "a tenant",
            Level::Site(_) => "a site",
            Level::Rule(..) => "a rule",
            Level::Upstream => "an upstream",
        }
    }

    /// The key of a limit that names none.
    fn own_key(self) -> LimitKey {
        match self {
            Level::Process => LimitKey::Process,
            Level::Tenant => LimitKey::Tenant,
            Level::Site(_) => LimitKey::Site,
            Level::Rule(..) => LimitKey::Rule,
            Level::Upstream => LimitKey::Upstream,
        }
    }

    /// Whether requests that pass here can have files.
    fn files(self) -> SiteFiles {
        match self {
            Level::Site(files) | Level::Rule(files, _) => files,
            Level::Process | Level::Tenant | Level::Upstream => SiteFiles::Rooted,
        }
    }
}
