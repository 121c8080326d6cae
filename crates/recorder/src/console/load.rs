//! What tenants and sites took over some days: requests, bytes, time, processors, memory.
//!
//! The idea: requests are those of the sites' days, exact, added up by whose sites they are now; what
//! programs and pools take is what was followed of their tenants. No figure is kept for this page alone.

use std::collections::BTreeMap;

use ipc::console::{ConsoleAnswer, ConsoleScope, TENANT_LOOK_S, TenantSites};
use report::units::{self, Unit};
use report::{Cell, Document, Picture, Tone};

use super::address::Page;
use super::history::Span;
use super::site::SitePart;
use super::{Asking, NoPage, frame};
use crate::day::Figures;
use crate::history::Sums;
use crate::page::{MaybeFigure, RowTable, toned};
use crate::store::FigureStore;

/// Figures of tenants that are looked at: as many as there can be.
const FIGURES_MAX: usize = 200_000;
pub(super) const OF_TENANTS: &str = "tenant.";

/// What a tenant took.
#[derive(Debug, Default)]
struct TenantLoad {
    /// `None` where nobody says which sites are its own.
    requests: Option<Figures>,
    cpu: Option<Sums>,
    memory: Option<Sums>,
    throttled: Option<Sums>,
    killed: Option<Sums>,
}

impl TenantLoad {
    fn count(&self) -> u64 {
        self.requests.as_ref().map_or(0, |it| it.requests)
    }

    /// Adds a figure of a tenant, by what it is called.
    fn add(&mut self, what: &str, sums: Sums) {
        let figure = match what {
            "cpu" => &mut self.cpu,
            "memory" => &mut self.memory,
            "throttled" => &mut self.throttled,
            "killed" => &mut self.killed,
            _ => return,
        };
        *figure = Some(sums);
    }
}

/// How much something came to that was told a second: a look stands for the time until the next.
pub(super) fn in_all(rates: &Sums) -> f64 {
    rates.sum * TENANT_LOOK_S as f64
}

/// The page.
pub(super) fn answer(store: &FigureStore, asking: &Asking<'_>) -> Result<ConsoleAnswer, NoPage> {
    let days = asking.range()?;
    let mut document = asking.document(frame::LOAD.said_in(asking.language), days);
    let mut of_sites = BTreeMap::<String, Figures>::new();
    let known = super::sites_of(asking, store)?;
    store.each_total(days, &known, |site, _, total, _| {
        of_sites.entry(site.to_owned()).or_default().merge(total);
    })?;
    tell_tenants(
        &mut document,
        asking,
        tenants(store, asking, &of_sites, days)?,
    );
    tell_sites(&mut document, asking, of_sites);
    frame::given(asking, document, "load", None, days)
}

/// Whose sites there are: the scope's own, or what the server says.
fn owners<'a>(asking: &Asking<'a>) -> &'a [TenantSites] {
    match asking.scope {
        ConsoleScope::All => asking.moment.live.map_or(&[], |live| live.owners),
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
        let mut figures = owner
            .sites
            .iter()
            .filter_map(|site| of_sites.get(site))
            .peekable();
        let is_others = asking.is_of_archive() && *asking.scope == ConsoleScope::All;
        if is_others && figures.peek().is_none() {
            // Who is here may be nobody there.
            continue;
        }
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
        if !asking.scope.has_tenant(tenant) {
            continue;
        }
        tenants.entry(tenant.into()).or_default().add(what, sums);
    }
    Ok(tenants)
}

/// Adds the table of tenants.
fn tell_tenants(
    document: &mut Document,
    asking: &Asking<'_>,
    tenants: BTreeMap<String, TenantLoad>,
) {
    let telling = asking.telling();
    let mut tenants: Vec<_> = tenants.into_iter().collect();
    tenants.sort_by_key(|(_, it)| std::cmp::Reverse(it.count()));
    let all = tenants.iter().map(|(_, it)| it.count()).sum::<u64>().max(1) as f64;
    let mut table = telling.table(tenants);
    table.name("tenant", "テナント", |it| &it.0);
    table.numbers("requests", "リクエスト", |(_, it)| {
        let requests = it.requests.as_ref().map(|it| it.requests);
        let share = Picture::Share(it.count() as f64 / all);
        requests.cell(Unit::Count).with(share)
    });
    table.figure("sent", "送信量", Unit::Bytes, |(_, it)| {
        it.requests.as_ref().map(|it| it.bytes)
    });
    table.numbers("5xx", "5xx", |(_, it)| match &it.requests {
        Some(requests) => failed(requests),
        None => Cell::from(units::NONE),
    });
    table.figure(
        "handshakes",
        "ハンドシェイク",
        Unit::Count,
        |(_, it)| it.requests.as_ref().map(|it| it.handshakes),
    );
    add_taken(&mut table);
    let nothing = telling.say("There are none.", "ありません。");
    let section = table.end(
        document,
        "tenants",
        telling.say("Tenants", "テナント"),
        nothing,
    );
    if asking.moment.live.is_none() && *asking.scope == ConsoleScope::All {
        section.text(telling.say(
            "The server is not heard: whose sites these are is not known.",
            "サーバの応答がないため、サイトの所有者は分かりません。",
        ));
    }
    if asking.is_of_archive() && *asking.scope == ConsoleScope::All {
        section.text(telling.say(
            "Whose sites these are is as this machine has it.",
            "サイトの所有者はこのマシンの設定によります。",
        ));
    }
    section.text(telling.say(
        "Processors and memory are those of control groups, while a tenant was among the 64 busiest. Sites count for whom they belong to now.",
        "プロセッサとメモリは、上位 64 テナントにあった間のコントロールグループの値です。サイトは現在の所有者の分として数えます。",
    ));
}

/// What programs and pools took over the days that are asked for, as a section.
pub(super) fn taken(store: &FigureStore, asking: &Asking<'_>) -> Result<Document, NoPage> {
    let days = asking.range()?;
    let telling = asking.telling();
    let mut document = asking.document("", days);
    let mut rows: Vec<_> = tenants(store, asking, &BTreeMap::new(), days)?
        .into_iter()
        .collect();
    rows.retain(|(_, it)| it.cpu.is_some() || it.throttled.is_some());
    let cpu = |it: &TenantLoad| it.cpu.map_or(0.0, |it| it.sum);
    rows.sort_by(|(_, one), (_, other)| cpu(other).total_cmp(&cpu(one)));
    let mut table = telling.table(rows);
    table.name("tenant", "テナント", |it| &it.0);
    table.leads(|(tenant, _)| {
        let address = &asking.address;
        Some(address.of_now(Page::History, |asked| {
            (asked.from, asked.to) = (address.asked.from, address.asked.to);
            asked.filter = format!("{OF_TENANTS}{tenant}.");
        }))
    });
    add_taken(&mut table);
    let heading = telling.say("Taken", "使用量");
    let heading = format!("{heading}, {}", std::mem::take(&mut document.subtitle));
    let nothing = telling.say("Nothing was recorded.", "記録はありません。");
    table.end(&mut document, "taken", &heading, nothing);
    Ok(document)
}

/// Adds what programs and pools took.
fn add_taken(table: &mut RowTable<'_, (String, TenantLoad)>) {
    table.figure(
        "processor time",
        "プロセッサ時間",
        Unit::Seconds,
        |it| it.1.cpu.as_ref().map(in_all),
    );
    table.figure("cores at most", "コア（最大）", Unit::Count, |it| {
        it.1.cpu.map(|it| it.high)
    });
    table.figure(
        "kept from processors",
        "抑制された時間",
        Unit::Seconds,
        |it| it.1.throttled.as_ref().map(in_all),
    );
    table.figure("killed", "強制終了", Unit::Count, |it| {
        it.1.killed.as_ref().map(|it| in_all(it).round())
    });
    table.figure(
        "memory at most",
        "メモリ（最大）",
        Unit::Bytes,
        |it| it.1.memory.map(|it| it.high),
    );
}

/// What failed of requests.
fn failed(figures: &Figures) -> Cell {
    let [.., failed] = figures.statuses;
    toned(failed, Tone::Bad)
}

/// Adds the table of sites.
fn tell_sites(document: &mut Document, asking: &Asking<'_>, of_sites: BTreeMap<String, Figures>) {
    let telling = asking.telling();
    let mut of_sites: Vec<_> = of_sites.into_iter().collect();
    of_sites.sort_by_key(|(_, it)| std::cmp::Reverse(it.requests));
    let mut table = telling.table(of_sites);
    table.name("site", "サイト", |it| &it.0);
    table.leads(|(site, _)| {
        let page = Page::Site(site.clone(), SitePart::Speed);
        Some(asking.address.to(page))
    });
    table.count("requests", "リクエスト", |it| it.1.requests);
    table.figure("sent", "送信量", Unit::Bytes, |it| it.1.bytes);
    table.numbers("5xx", "5xx", |it| failed(&it.1));
    table.count("handshakes", "ハンドシェイク", |it| it.1.handshakes);
    table.figure("waiting, in all", "待ち（合計）", Unit::Micros, |it| {
        it.1.queue_us
    });
    table.figure(
        "back ends, in all",
        "バックエンド（合計）",
        Unit::Micros,
        |it| it.1.upstream_us,
    );
    table.figure("95 % within", "95 % の応答", Unit::Micros, |it| {
        it.1.durations.quantile_us(0.95)
    });
    let nothing = telling.say("There are none.", "ありません。");
    table.end(document, "sites", telling.say("Sites", "サイト"), nothing);
}
