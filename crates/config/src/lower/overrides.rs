//! What operators have changed and kept, applied to what the configuration says: limits, and
//! tenants that are suspended.
//!
//! The idea: a limit stays what its own line says, and beside it lies what the overrides file says
//! instead ([`Kept`]), so that whoever asks can be told both. An entry that finds no limit, or
//! nothing to change in it, is a warning: the configuration may have moved on, and nobody shall
//! be kept from reloading by what was right last month. What is wrong in itself is an error.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeTable;

use super::context::{Context, Spot, problem, problem_overall};
use super::limits::concurrent;
use super::syntax;
use super::table::Table;
use super::tops::Tops;
use super::value::Entry as Member;
use super::values;
use crate::keys::{self, limit};
use crate::model::{
    Concurrent, Kept, Limit, LimitIdentities, LimitKey, LimitPlace, Mode, Model, Rate, Site,
};
use crate::sources::Overrides;

/// Changes of limits in an overrides file.
const ENTRIES_MAX: usize = 1_000;
/// Tenants that it suspends.
const SUSPENDED_MAX: usize = 10_000;

/// An entry of the overrides file.
pub(crate) struct OverrideEntry<'a> {
    /// The limit, as `limits list` names it.
    pub(crate) identity: &'a str,
    /// Where its name stands.
    pub(crate) name_spot: Spot,
    /// Where what it says ends.
    pub(crate) end: usize,
    table: Table<'a>,
    concurrent: Option<Concurrent>,
    queue: Option<u32>,
    wait_ms: Option<u64>,
    late_ms: Option<u64>,
    rate: Option<(u32, u64)>,
    burst: Option<u32>,
    mode: Option<Mode>,
}

/// A tenant that the overrides file suspends.
pub(crate) struct SuspendedEntry<'a> {
    pub(crate) tenant: &'a str,
    /// Where its name stands.
    pub(crate) name_spot: Spot,
    /// Where the date ends.
    pub(crate) end: usize,
    /// Since when, as it is written.
    pub(crate) since: String,
}

/// What an overrides file says.
#[derive(Default)]
pub(crate) struct Entries<'a> {
    pub(crate) limits: Vec<OverrideEntry<'a>>,
    pub(crate) suspended: Vec<SuspendedEntry<'a>>,
}

/// Where changes are kept: as configured, or beside the configuration.
pub(crate) fn path(tops: &Tops<'_>) -> PathBuf {
    let value = tops.single("limits_overrides");
    let path = value.and_then(|value| {
        let path = values::path(&value)?;
        values::require_directory(&value, &path);
        Some(path)
    });
    path.unwrap_or_else(|| tops.context.sources.default_overrides())
}

/// Applies the overrides file to a model.
pub(crate) fn apply(context: &Context<'_>, model: &mut Model) {
    let sources = context.sources;
    let file = match &sources.overrides {
        Overrides::Absent => return,
        Overrides::Unread(name, why) => {
            let finding =
                problem_overall(format!("cannot read the overrides file `{name}`: {why}"));
            return context.report(finding.help(MEND));
        }
        Overrides::Read(file) => file,
    };
    let number = sources.files.len();
    let document = syntax::parse(context, number);
    let entries = entries(context, number, &document);
    suspend(context, model, &entries.suspended);
    let mut wanted: HashMap<&str, &OverrideEntry<'_>> = entries
        .limits
        .iter()
        .map(|entry| (entry.identity, entry))
        .collect();
    let name: Arc<str> = file.name.as_str().into();
    let line = |spot: &Spot| {
        let before = file.text.get(..spot.start).unwrap_or_default();
        before.matches('\n').count() + 1
    };
    each(model, |place, identity, limit| {
        let entry = wanted.remove(identity)?;
        entry.warn_of_idle(place, limit);
        entry.warn_of_unnamed(place);
        let line = line(&entry.name_spot);
        Some(entry.applied_to(place, limit, Arc::clone(&name), line))
    });
    for entry in wanted.into_values() {
        let identity = entry.identity;
        let finding = problem(
            entry.name_spot.clone(),
            format!("there is no limit `{identity}`: this change of it does nothing"),
        );
        context.warn(finding.help(format!(
            "`nagaya limits list` names them; to remove the line: nagaya limits set '{identity}' --forget"
        )));
    }
}

/// Suspends tenants.
fn suspend(context: &Context<'_>, model: &mut Model, entries: &[SuspendedEntry<'_>]) {
    for entry in entries {
        let tenant = entry.tenant;
        // Whom rows name nobody knows here.
        let may_be = |site: &Site| site.tenant == tenant || site.rows.is_some();
        if model.sites.iter().any(may_be) {
            model.suspended.insert(tenant.to_owned());
            continue;
        }
        let message =
            format!("no site has the tenant `{tenant}`: that it is suspended does nothing");
        let help = format!("to remove the line: nagaya tenant resume {tenant}");
        context.warn(problem(entry.name_spot.clone(), message).help(help));
    }
}

/// What to do about an overrides file that cannot be read.
const MEND: &str = "mend it, or move it away: it is what `nagaya limits set … --keep` and `nagaya tenant suspend` wrote";

/// Lets `change` say for every limit what was kept of it.
fn each(model: &mut Model, mut change: impl FnMut(LimitPlace<'_>, &str, &Limit) -> Option<Kept>) {
    let mut identities = LimitIdentities::default();
    let mut level = |place: LimitPlace<'_>, limits: &mut Arc<[Limit]>| {
        let change = |limit: &Limit| change(place, &identities.next(place, &limit.name), limit);
        let kept: Vec<Option<Kept>> = limits.iter().map(change).collect();
        if kept.iter().all(Option::is_none) {
            return;
        }
        // Sites that are alike share their limits: this one is no longer.
        for (limit, kept) in Arc::make_mut(limits).iter_mut().zip(kept) {
            limit.kept = kept.map(Box::new);
        }
    };
    level(LimitPlace::Process, &mut model.limits);
    for upstream in &mut model.upstreams {
        level(LimitPlace::Upstream(&upstream.name), &mut upstream.limits);
    }
    for tenant in &mut model.tenants {
        level(LimitPlace::Tenant(&tenant.name), &mut tenant.limits);
    }
    for plan in &mut model.plans {
        level(LimitPlace::Plan(&plan.name), &mut plan.limits);
    }
    for site in &mut model.sites {
        let host = site.name();
        level(LimitPlace::Site(&host), &mut site.limits);
        for rule in &mut site.rules {
            let mut limits = std::mem::take(&mut rule.limits);
            level(rule.limit_place(&host), &mut limits);
            rule.limits = limits;
        }
    }
}

/// The entries of an overrides file, in their order. What is wrong with them is reported.
pub(crate) fn entries<'a>(
    context: &'a Context<'a>,
    file: usize,
    document: &'a Spanned<DeTable<'a>>,
) -> Entries<'a> {
    let span = document.span();
    let top = Table::open(context, file, &keys::OVERRIDES, document.get_ref(), span);
    let members = |name, most| {
        let members = top.entries(name);
        let count = members.len();
        if let Some(first) = members.first().filter(|_| count > most) {
            let message = format!("{count} lines stand here, and {most} are the most");
            let help = "put them into the configuration itself, and remove them here";
            context.report(problem(first.name_spot.clone(), message).help(help));
        }
        members.into_iter().take(most)
    };
    let suspended = members("suspended", SUSPENDED_MAX);
    Entries {
        limits: members("limits", ENTRIES_MAX)
            .filter_map(OverrideEntry::read)
            .collect(),
        suspended: suspended.filter_map(SuspendedEntry::read).collect(),
    }
}

impl<'a> SuspendedEntry<'a> {
    fn read(member: Member<'a>) -> Option<SuspendedEntry<'a>> {
        Some(SuspendedEntry {
            tenant: member.name,
            since: member.value.date()?,
            end: member.value.spot().end,
            name_spot: member.name_spot,
        })
    }
}

impl<'a> OverrideEntry<'a> {
    fn read(member: Member<'a>) -> Option<OverrideEntry<'a>> {
        let table = member.value.table(&keys::OVERRIDE)?;
        let small = |count: Option<u64>| count.and_then(|count| u32::try_from(count).ok());
        let rate = table.get("rate");
        let rate = rate.and_then(|value| value.rate(limit::REQUESTS_MAX));
        Some(OverrideEntry {
            identity: member.name,
            end: member.value.spot().end,
            concurrent: table.get("concurrent").and_then(|it| concurrent(&it)),
            queue: small(table.some_number("queue")),
            wait_ms: table.some_number("wait"),
            late_ms: table.some_number("late"),
            rate: rate.and_then(|(count, per_ms)| Some((u32::try_from(count).ok()?, per_ms))),
            burst: small(table.some_number("burst")),
            mode: table.get("mode").and_then(|value| value.choice()),
            name_spot: member.name_spot,
            table,
        })
    }

    /// What it changes, as it would be typed after `limits set`.
    pub(crate) fn typed(&self) -> Vec<(&'static str, String)> {
        let names = limit::KEYS.iter();
        let typed = |name: &&'static str| Some((*name, self.table.get(name)?.typed()?));
        names.filter_map(typed).collect()
    }

    /// Tells of what it says and the limit has nothing of.
    fn warn_of_idle(&self, place: LimitPlace<'_>, limit: &Limit) {
        let idle = [
            (limit.concurrent.is_none(), "concurrent", "concurrent"),
            (limit.concurrent.is_none(), "queue", "concurrent"),
            (limit.concurrent.is_none(), "wait", "concurrent"),
            (limit.concurrent.is_none(), "late", "concurrent"),
            (limit.rate.is_none(), "rate", "rate"),
            (limit.rate.is_none(), "burst", "rate"),
        ];
        let identity = self.identity;
        for (is_idle, name, needed) in idle {
            if let Some(value) = self.table.get(name).filter(|_| is_idle) {
                let message = format!(
                    "`{name}` does nothing: the limit `{identity}` is configured without `{needed}`"
                );
                let help = format!("add `{needed}` there, or remove `{name}` here");
                value.warn_help(message, help);
            }
        }
        if self.is_auto_in_vain(place, limit) {
            let finding = problem(
                self.name_spot.clone(),
                format!("the limit `{identity}` cannot be `\"auto\"`: it stays as configured"),
            );
            let help = "an upstream or the whole process is measured; give a number";
            self.table.context.warn(finding.help(help));
        }
    }

    /// Tells that the limit it means may be another one after the next change of the configuration.
    fn warn_of_unnamed(&self, place: LimitPlace<'_>) {
        let LimitPlace::UnnamedRule(host, rule) = place else {
            return;
        };
        let message = format!(
            "{rule} of {host} has no name: this change is another rule's once one is put above it"
        );
        let help = format!(
            "give it `name = \"…\"` in the configuration, and write that here in place of `{rule}`"
        );
        let finding = problem(self.name_spot.clone(), message);
        self.table.context.warn(finding.help(help));
    }

    /// Whether it says `"auto"` where nothing is measured.
    fn is_auto_in_vain(&self, place: LimitPlace<'_>, limit: &Limit) -> bool {
        let own_key = match place {
            LimitPlace::Process => Some(LimitKey::Process),
            LimitPlace::Upstream(_) => Some(LimitKey::Upstream),
            _ => None,
        };
        let is_measured = own_key.is_some_and(|own| limit.key == [own]) && limit.rate.is_none();
        self.concurrent == Some(Concurrent::Auto)
            && limit.concurrent.is_some_and(|it| it != Concurrent::Auto)
            && !is_measured
    }

    fn applied_to(
        &self,
        place: LimitPlace<'_>,
        limit: &Limit,
        file: Arc<str>,
        line: usize,
    ) -> Kept {
        let has_permits = limit.concurrent.is_some();
        let said = self.concurrent.filter(|_| has_permits);
        let said = said.filter(|_| !self.is_auto_in_vain(place, limit));
        let rate = limit.rate.map(|rate| {
            let (count, per_ms) = self.rate.unwrap_or((rate.count, rate.per_ms));
            Rate {
                count,
                per_ms,
                burst: self.burst.unwrap_or(rate.burst),
            }
        });
        Kept {
            identity: self.identity.to_owned(),
            file,
            line,
            concurrent: said.or(limit.concurrent),
            queue: self.queue.filter(|_| has_permits).unwrap_or(limit.queue),
            wait_ms: self
                .wait_ms
                .filter(|_| has_permits)
                .unwrap_or(limit.wait_ms),
            late_ms: self
                .late_ms
                .filter(|_| has_permits)
                .unwrap_or(limit.late_ms),
            rate,
            mode: self.mode.unwrap_or(limit.mode),
        }
    }
}
