//! What tenants and sites took over some days: requests, bytes, time, processors, memory.
//!
//! The idea: requests are those of the sites' days, exact, added up by whose sites they are now; what
//! programs and pools take is what was followed of their tenants. No figure is kept for this page alone.

use std::collections::BTreeMap;

use ipc::console::{ConsoleScope, TENANT_LOOK_S, TenantSites};
use report::units;
use report::{Cell, Column, Document, Picture, Table, Tone};

use super::address::Page;
use super::history::Span;
use super::site::SitePart;
use super::{Asking, ConsoleAnswer, NoPage, export, frame, site, sites};
use crate::day::Figures;
use crate::history::Sums;
use crate::store::FigureStore;

/// Figures of tenants that are looked at.
const FIGURES_MAX: usize = 20_000;
const OF_TENANTS: &str = "tenant.";

/// What a tenant took.
#[derive(Debug, Default)]
struct TenantLoad {
    /// `None` where nobody says which sites are its own.
    requests: Option<Figures>,
    cpu: Option<Sums>,
    memory: Option<Sums>,
}

impl TenantLoad {
    fn count(&self) -> u64 {
        self.requests.as_ref().map_or(0, |it| it.requests)
    }

    /// Seconds of processors: a look stands for the time until the next.
    fn cpu_s(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.sum * TENANT_LOOK_S as f64)
    }
}

/// The page.
pub(super) fn answer(store: &FigureStore, asking: &Asking<'_>) -> Result<ConsoleAnswer, NoPage> {
    let days = asking.range()?;
    let title = frame::LOAD.said_in(asking.language);
    let mut document = Document::new(title, sites::told_range(days.0, days.1));
    document.language = asking.language;
    let mut of_sites = BTreeMap::<String, Figures>::new();
    let known = super::sites_of(asking.question.scope, store)?;
    store.each_total(days, &known, |site, _, total, _| {
        of_sites.entry(site.to_owned()).or_default().merge(total);
    })?;
    let tenants = tenants(store, asking, &of_sites, days)?;
    let is_cut = tell_tenants(&mut document, asking, tenants);
    let is_cut = tell_sites(&mut document, asking, of_sites) || is_cut;
    if let Some(format) = asking.address.asked.format {
        return export::answer(asking, format, &document, "load", days);
    }
    site::link_lists(asking, &mut document, is_cut);
    Ok(frame::page(asking, None, &document, days))
}

/// Whose sites there are: the scope's own, or what the server says.
fn owners<'a>(asking: &Asking<'a>) -> &'a [TenantSites] {
    match asking.question.scope {
        ConsoleScope::All => asking.question.live.map_or(&[], |live| live.owners),
        ConsoleScope::Tenants(tenants) => tenants,
    }
}

fn tenants(
    store: &FigureStore,
    asking: &Asking<'_>,
    of_sites: &BTreeMap<String, Figures>,
    (from, to): (i32, i32),
) -> Result<BTreeMap<String, TenantLoad>, NoPage> {
    let mut tenants = BTreeMap::<String, TenantLoad>::new();
    for owner in owners(asking) {
        let mut requests = Figures::default();
        let figures = owner.sites.iter().filter_map(|site| of_sites.get(site));
        figures.for_each(|figures| requests.merge(figures));
        tenants.entry(owner.tenant.clone()).or_default().requests = Some(requests);
    }
    let span = Span::of(asking, from, to);
    let sums = store.sums(
        OF_TENANTS,
        span.tier(),
        (span.from_s, span.to_s),
        FIGURES_MAX,
    )?;
    for (name, sums) in sums {
        let of = name.strip_prefix(OF_TENANTS);
        let Some((tenant, what)) = of.and_then(|of| of.rsplit_once('.')) else {
            continue;
        };
        if !asking.question.scope.has_tenant(tenant) {
            continue;
        }
        match what {
            "cpu" => tenants.entry(tenant.into()).or_default().cpu = Some(sums),
            "memory" => tenants.entry(tenant.into()).or_default().memory = Some(sums),
            _ => {}
        }
    }
    Ok(tenants)
}

/// Adds the table of tenants; whether there are more.
fn tell_tenants(
    document: &mut Document,
    asking: &Asking<'_>,
    tenants: BTreeMap<String, TenantLoad>,
) -> bool {
    let telling = asking.telling();
    let tenants = tenants.into_iter();
    let mut tenants: Vec<_> = tenants.filter(|(name, _)| telling.shows(name)).collect();
    tenants.sort_by_key(|(_, it)| std::cmp::Reverse(it.count()));
    let all = tenants.iter().map(|(_, it)| it.count()).sum::<u64>().max(1) as f64;
    let mut table = Table::new([
        Column::left(telling.say("tenant", "テナント")),
        Column::right(telling.say("requests", "リクエスト")),
        Column::right(telling.say("sent", "送信量")).in_unit("bytes"),
        Column::right("5xx"),
        Column::right(telling.say("processor time", "プロセッサ時間")).in_unit("s"),
        Column::right(telling.say("cores at most", "コア（最大）")),
        Column::right(telling.say("memory at most", "メモリ（最大）")).in_unit("bytes"),
    ]);
    let or_none = |value: Option<f64>, write: fn(f64) -> String| {
        value.map_or(Cell::from(units::NONE), |it| Cell::figure(write(it), it))
    };
    for (name, it) in tenants.iter().take(telling.rows) {
        let [requests, sent, failed] = match &it.requests {
            Some(figures) => requests(figures),
            None => [units::NONE; 3].map(Cell::from),
        };
        let share = it.count() as f64 / all;
        table.row([
            Cell::name(&**name),
            requests.with(Picture::Share(share)),
            sent,
            failed,
            or_none(it.cpu_s(), units::seconds),
            or_none(it.cpu.map(|it| it.high), units::figure),
            or_none(it.memory.map(|it| it.high), units::bytes),
        ]);
    }
    let section = document.section(telling.say("Tenants", "テナント"));
    section.id = "tenants";
    if table.rows.is_empty() {
        section.text(telling.say("There are none.", "ありません。"));
    } else {
        section.table(table);
    }
    if asking.question.live.is_none() && *asking.question.scope == ConsoleScope::All {
        section.text(telling.say(
            "The server is not heard: whose sites these are is not known.",
            "サーバの応答がないため、サイトの所有者は分かりません。",
        ));
    }
    section.text(telling.say(
        "Processors and memory are those of control groups, while a tenant was among the 64 busiest. Sites count for whom they belong to now.",
        "プロセッサとメモリは、上位 64 テナントにあった間のコントロールグループの値です。サイトは現在の所有者の分として数えます。",
    ));
    tenants.len() > telling.rows
}

/// Requests, bytes and 5xx.
fn requests(figures: &Figures) -> [Cell; 3] {
    let [.., failed] = figures.statuses;
    let mut errors = Cell::count(failed);
    if failed > 0 {
        errors.tone = Tone::Bad;
    }
    let sent = figures.bytes as f64;
    [
        Cell::count(figures.requests),
        Cell::figure(units::bytes(sent), sent),
        errors,
    ]
}

/// Adds the table of sites; whether there are more.
fn tell_sites(
    document: &mut Document,
    asking: &Asking<'_>,
    of_sites: BTreeMap<String, Figures>,
) -> bool {
    let telling = asking.telling();
    let of_sites = of_sites.into_iter();
    let mut of_sites: Vec<_> = of_sites.filter(|(name, _)| telling.shows(name)).collect();
    of_sites.sort_by_key(|(_, it)| std::cmp::Reverse(it.requests));
    let mut table = Table::new([
        Column::left(telling.say("site", "サイト")),
        Column::right(telling.say("requests", "リクエスト")),
        Column::right(telling.say("sent", "送信量")).in_unit("bytes"),
        Column::right("5xx"),
        Column::right(telling.say("waiting, in all", "待ち（合計）")).in_unit("µs"),
        Column::right(telling.say("back ends, in all", "バックエンド（合計）")).in_unit("µs"),
        Column::right(telling.say("95 % within", "95 % の応答")).in_unit("µs"),
    ]);
    let us = |us: u64| Cell::figure(units::micros(us as f64), us as f64);
    for (site, it) in of_sites.iter().take(telling.rows) {
        let mut name = Cell::name(&**site);
        let page = Page::Site(site.clone(), SitePart::Speed);
        name.link = Some(asking.address.to(page));
        let p95 = it.durations.quantile_us(0.95);
        let p95 = p95.map_or(Cell::from(units::NONE), us);
        let cells = [name].into_iter().chain(requests(it));
        table.row(cells.chain([us(it.queue_us), us(it.upstream_us), p95]));
    }
    let section = document.section(telling.say("Sites", "サイト"));
    section.id = "sites";
    match table.rows.is_empty() {
        true => section.text(telling.say("There are none.", "ありません。")),
        false => section.table(table),
    }
    of_sites.len() > telling.rows
}
