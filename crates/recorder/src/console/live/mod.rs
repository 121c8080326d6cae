//! What goes on now, as the server says it, and what it came to since it started.
//!
//! The idea: these pages are drawn of the answers that operators get on their socket, so that both say
//! the same. Without them the page says that the server is not heard. A tenant sees of them what
//! bears its name or that of a site of its own.

mod directories;
mod machine;
mod now;

use std::collections::HashSet;

use control::{Snapshot, Status};
use ipc::console::{ConsoleAnswer, ConsoleScope, TenantSites};
use maud::html;
use report::{Document, Language, Phrase, Tone};

use super::address::{Address, Page, Titled};
use super::site::SitePart;
use super::{Asking, NoPage, export, frame, history, incidents, load, refused, site};
use crate::alert::AlertStanding;
use crate::outlook::{KeptOutlook, outlook, resources};
use crate::page::RowTable;
use crate::store::FigureStore;

/// Rows that a page shows which does not show all.
const ROWS_MAX: usize = 100;

/// What the server says.
#[derive(Debug, Clone)]
pub struct Live<'a> {
    /// What it says.
    pub now: &'a Snapshot,
    /// What it counted a while ago, and how many seconds that is: rates are of the time between.
    pub before: Option<(&'a Status, f64)>,
    /// What somebody wants to be told of, and how that stands.
    pub alerts: &'a [AlertStanding],
    /// Whose sites there are, of those that are recorded.
    pub owners: &'a [TenantSites],
}

/// A page of what goes on now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LivePage {
    Now,
    Limits,
    Machine,
    Programs,
    BackEnds,
    Directories,
    Certificates,
    Alerts,
}

impl Titled for LivePage {
    const ALL: &'static [(LivePage, &'static str, Phrase)] = &[
        (LivePage::Now, "now", Phrase::new("Now", "現在")),
        (LivePage::Limits, "limits", Phrase::new("Limits", "制限")),
        (
            LivePage::Machine,
            "machine",
            Phrase::new("Machine", "マシン"),
        ),
        (
            LivePage::Programs,
            "programs",
            Phrase::new("Programs and pools", "プログラムとプール"),
        ),
        (
            LivePage::BackEnds,
            "back-ends",
            Phrase::new("Back ends", "バックエンド"),
        ),
        (
            LivePage::Directories,
            "directories",
            Phrase::new("Directories", "ディレクトリ"),
        ),
        (
            LivePage::Certificates,
            "certificates",
            Phrase::new("Certificates", "証明書"),
        ),
        (LivePage::Alerts, "alerts", Phrase::new("Alerts", "警告")),
    ];
}

impl LivePage {
    /// What people call it.
    pub(super) fn title_in(self, language: Language) -> String {
        self.title().said_in(language).to_owned()
    }

    /// Whether anything on it may be a tenant's.
    pub(super) fn is_shown_to(self, scope: &ConsoleScope) -> bool {
        let is_everybodys = matches!(
            self,
            LivePage::Now | LivePage::Limits | LivePage::Programs | LivePage::Certificates
        );
        is_everybodys || *scope == ConsoleScope::All
    }
}

/// A page, where these eyes have it.
pub(super) fn answer(
    store: &FigureStore,
    asking: &Asking<'_>,
    page: LivePage,
) -> Result<ConsoleAnswer, NoPage> {
    let mut document = document(asking, page).ok_or(NoPage::Unknown)?;
    let (mut below, days) = match page {
        LivePage::Machine => {
            let mut below = capacity(store, asking)?;
            below
                .sections
                .extend(history::of_server(store, asking)?.sections);
            (Some(below), Some(asking.range()?))
        }
        LivePage::Programs => (Some(load::taken(store, asking)?), Some(asking.range()?)),
        LivePage::Limits => (Some(went_wrong(store, asking)?), Some(asking.range()?)),
        _ => (None, None),
    };
    if let Some(format) = asking.address.asked.format {
        let below = below.into_iter().flat_map(|below| below.sections);
        document.sections.extend(below);
        let today = asking.today();
        let days = days.unwrap_or((today, today));
        return export::answer(asking, format, &document, page.id(), days);
    }
    site::link_lists(asking, &mut document);
    if let Some(below) = &mut below {
        site::link_lists(asking, below);
    }
    let changing = changing(&document);
    Ok(frame::live_page(
        asking,
        &document,
        &changing,
        below.as_ref(),
        days,
    ))
}

/// What was refused, and what went wrong, on the days that are asked for.
pub(super) fn went_wrong(store: &FigureStore, asking: &Asking<'_>) -> Result<Document, NoPage> {
    let mut document = refused::document(store, asking)?;
    incidents::tell(&mut document, store, asking)?;
    Ok(document)
}

/// How full the machine is, and when it will be.
fn capacity(store: &FigureStore, asking: &Asking<'_>) -> Result<Document, NoPage> {
    let live = asking.moment.live;
    let advice = live.map_or(&[][..], |live| &live.now.sensors.advice);
    let raised_by = |figure: &str| {
        let advice = advice.iter().find(|it| it.sensor == figure);
        advice.map_or_else(Vec::new, |it| it.commands.clone())
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let now = &asking.moment.now;
    let look = || outlook(store, resources(processors, raised_by), now);
    let none = KeptOutlook::default();
    let kept = asking.moment.outlook.unwrap_or(&none);
    let mut document = kept.document(now, asking.language, look)?;
    if let Some((tone, answer)) = document.answer.take() {
        document.section("").note(tone, answer);
    }
    Ok(document)
}

/// What changes of a page.
pub(super) fn fragment(asking: &Asking<'_>, page: LivePage) -> Option<String> {
    let mut document = document(asking, page)?;
    site::link_lists(asking, &mut document);
    Some(changing(&document))
}

fn changing(document: &Document) -> String {
    let changing = html! { (document.facts()) (document.body()) };
    changing.into_string()
}

fn document(asking: &Asking<'_>, page: LivePage) -> Option<Document> {
    if !page.is_shown_to(asking.scope) {
        return None;
    }
    let title = page.title().said_in(asking.language);
    let mut document = Document::new(title, "");
    document.language = asking.language;
    let mut telling = asking.telling();
    telling.rows = telling.rows.max(ROWS_MAX);
    let Some(live) = asking.moment.live else {
        let unheard = telling.say(
            "The server is not heard: what goes on now cannot be told. What was recorded stands below Sites.",
            "サーバの応答がないため、現在の状況は分かりません。記録は「サイト」で見られます。",
        );
        document.section("").note(Tone::Warn, unheard);
        return Some(document);
    };
    let recorded = match asking.scope {
        ConsoleScope::All => live.owners,
        ConsoleScope::Tenants(tenants) => tenants,
    };
    let recorded = recorded.iter().flat_map(|it| &it.sites);
    let told = LiveTelling {
        live,
        telling,
        scope: asking.scope,
        address: &asking.address,
        recorded: recorded.map(String::as_str).collect(),
    };
    match page {
        LivePage::Now => now::now(&mut document, &told),
        LivePage::Limits => now::limits(&mut document, &told),
        LivePage::Machine => machine::machine(&mut document, &told),
        LivePage::Programs => machine::programs(&mut document, &told),
        LivePage::BackEnds => machine::back_ends(&mut document, &told),
        LivePage::Directories => directories::directories(&mut document, &told),
        LivePage::Certificates => machine::certificates(&mut document, &told),
        LivePage::Alerts => machine::alerts(&mut document, &told),
    }
    Some(document)
}

/// What is told, how, and to whom.
struct LiveTelling<'a> {
    live: &'a Live<'a>,
    telling: super::Telling<'a>,
    scope: &'a ConsoleScope,
    address: &'a Address<'a>,
    /// Sites that have pages.
    recorded: HashSet<&'a str>,
}

impl LiveTelling<'_> {
    /// Where a site's pages are, if it has any.
    fn site(&self, site: &str) -> Option<String> {
        let is_recorded = self.recorded.contains(site);
        let page = || Page::Site(site.to_owned(), SitePart::Visits);
        is_recorded.then(|| self.address.of_now(page(), |_| ()))
    }

    /// Where a figure is over time, or those that begin so.
    fn history(&self, figure: &str) -> Option<String> {
        Some(self.filtered(Page::History, figure))
    }

    /// Where a tenant's figures are over time.
    fn tenant(&self, tenant: &str) -> Option<String> {
        self.history(&format!("tenant.{tenant}."))
    }

    /// Where it stands what a limit did.
    fn limit(&self, limit: &str) -> Option<String> {
        Some(self.filtered(Page::Live(LivePage::Limits), limit))
    }

    fn filtered(&self, page: Page, name: &str) -> String {
        self.address
            .of_now(page, |asked| asked.filter = name.to_owned())
    }

    fn say(&self, english: &'static str, japanese: &'static str) -> &'static str {
        self.telling.say(english, japanese)
    }

    /// Adds a table.
    fn end<T>(
        &self,
        table: RowTable<'_, T>,
        document: &mut Document,
        id: &'static str,
        english: &'static str,
        japanese: &'static str,
    ) {
        let nothing = self.say("None at present.", "現在はありません。");
        table.end(document, id, self.say(english, japanese), nothing);
    }

    /// Whether a site of now is shown.
    fn has_site(&self, site: &str) -> bool {
        *self.scope == ConsoleScope::All || self.recorded.contains(site)
    }
}
