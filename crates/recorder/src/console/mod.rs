//! The console: what is recorded, as pages, for eyes that may see all of it or a part.
//!
//! The idea: a page is an answer to a question, and nothing else goes in. Who may see what is in the
//! question's scope, which the server's configuration gives; a name in an address only chooses among
//! what the scope has, and what is outside of it does not exist. Pages are reports in a frame, useful
//! without scripts, and may load nothing.
//!
//! Not here: who asks (the server lets in whom its configuration says), and how questions come.

mod address;
mod export;
mod frame;
mod history;
mod incidents;
mod live;
mod load;
mod machines;
mod refused;
mod site;
mod sites;

use std::collections::BTreeSet;

use ipc::console::{ConsoleAnswer, ConsoleQuestion, ConsoleScope};
use jiff::Zoned;
use report::{Document, Language};

use crate::hearing::Heard;
use crate::outlook::KeptOutlook;
use crate::page::Telling;
use crate::salts::{SaltPeriod, civil, day_number};
use crate::store::{FigureStore, StoreError};
use address::{Address, MachineAsked, Page, PageQuery};
pub use live::Live;
pub(crate) use machines::is_of_archive;
pub use machines::{ArchiveMoment, archive_question};

/// Below which what changes of pages is asked for.
pub(crate) const EVENTS: &str = "events";
/// Rows of a list on a page that does not show all.
const ROWS: usize = 50;

/// The sites of a scope, of those that have figures or that it names.
fn sites_of(asking: &Asking<'_>, store: &FigureStore) -> Result<BTreeSet<String>, StoreError> {
    let told =
        || -> Result<BTreeSet<String>, StoreError> { Ok(store.sites()?.into_iter().collect()) };
    let ConsoleScope::Tenants(tenants) = asking.scope else {
        return told();
    };
    let named = tenants.iter().flat_map(|it| it.sites.clone()).collect();
    Ok(match asking.is_of_archive() {
        // There may be the busiest alone.
        true => &named & &told()?,
        false => named,
    })
}

/// When somebody asks, and what is known then.
#[derive(Debug, Clone)]
pub struct ConsoleMoment<'a> {
    /// The time, in the zone of the figures' days.
    pub now: Zoned,
    /// How long the figures' visitors are known.
    pub salt: SaltPeriod,
    /// What the server says of now, where it is heard.
    pub live: Option<&'a Live<'a>>,
    /// What figures were in the seconds of the last hour, where these are held.
    pub heard: Option<&'a Heard>,
    /// Where it is kept how full the machine is, if anywhere.
    pub outlook: Option<&'a KeptOutlook>,
    /// What is known of other machines, where figures are sent to an archive.
    pub archive: Option<ArchiveMoment<'a>>,
}

/// Why there is no page.
#[derive(Debug)]
enum NoPage {
    /// There is none of this address, for these eyes.
    Unknown,
    /// A part of the address is wrong.
    Wrong(&'static str),
    /// The figures cannot be read.
    Unreadable(StoreError),
}

impl From<StoreError> for NoPage {
    fn from(error: StoreError) -> NoPage {
        NoPage::Unreadable(error)
    }
}

/// A question with what its address means.
struct Asking<'a> {
    scope: &'a ConsoleScope,
    moment: &'a ConsoleMoment<'a>,
    address: Address<'a>,
    language: Language,
    /// The filter as names are compared with it.
    filter: String,
    /// What is missing of what was sent, where that is shown.
    missing: Option<Vec<&'static str>>,
}

impl<'a> Asking<'a> {
    fn of(
        question: &'a ConsoleQuestion,
        path: &str,
        moment: &'a ConsoleMoment<'a>,
    ) -> Result<Asking<'a>, NoPage> {
        let page = Page::of_path(path).ok_or(NoPage::Unknown)?;
        let asked = PageQuery::of_query(&question.query).map_err(NoPage::Wrong)?;
        Ok(Asking {
            scope: &question.scope,
            moment,
            language: language(question),
            filter: asked.filter.to_lowercase(),
            missing: None,
            address: Address {
                base: &question.base,
                page,
                asked,
            },
        })
    }

    /// Whether it is not about this machine alone.
    fn is_of_archive(&self) -> bool {
        self.address.asked.machine != MachineAsked::This
    }

    fn today(&self) -> i32 {
        day_number(self.moment.now.date())
    }

    /// The days that are asked for: the last 28 where none are named.
    fn range(&self) -> Result<(i32, i32), NoPage> {
        let range = self.address.asked.range(self.today());
        range.map_err(NoPage::Wrong)
    }

    /// An empty page over some days.
    fn document(&self, title: &str, (from, to): (i32, i32)) -> Document {
        let days = match from == to {
            true => civil(to).to_string(),
            false => format!("{} – {}", civil(from), civil(to)),
        };
        let days = match self.whose() {
            Some(whose) => format!("{whose} · {days}"),
            None => days,
        };
        Document {
            language: self.language,
            ..Document::new(title, days)
        }
    }

    fn telling(&self) -> Telling<'_> {
        let asked = &self.address.asked;
        let shows_all = asked.has_all_rows || asked.format.is_some();
        Telling {
            language: self.language,
            salt: self.moment.salt,
            rows: if shows_all { usize::MAX } else { ROWS },
            filter: &self.filter,
        }
    }
}

/// Answers a question. What changes of a page is asked for below `events`, and comes as one event: who
/// streams sends more of them.
pub fn answer(
    store: &FigureStore,
    question: &ConsoleQuestion,
    moment: &ConsoleMoment<'_>,
) -> ConsoleAnswer {
    answer_and_why(store, question, moment).0
}

/// Answers a question; where figures could not be read also why, which is not for everybody's eyes.
pub(crate) fn answer_and_why(
    store: &FigureStore,
    question: &ConsoleQuestion,
    moment: &ConsoleMoment<'_>,
) -> (ConsoleAnswer, Option<StoreError>) {
    let answered = match question.path == EVENTS {
        true => fragment(question, moment)
            .map(|changing| frame::event(&changing))
            .ok_or(NoPage::Unknown),
        false => {
            Asking::of(question, &question.path, moment).and_then(|asking| page(store, &asking))
        }
    };
    match answered {
        Ok(answer) => (answer, None),
        Err(why) => {
            let answer = frame::no_page(question, language(question), &why);
            let unread = match why {
                NoPage::Unreadable(error) => Some(error),
                NoPage::Unknown | NoPage::Wrong(_) => None,
            };
            (answer, unread)
        }
    }
}

/// Whether what is told at this path, decoded, goes on now.
pub(crate) fn is_of_now(path: &str) -> bool {
    // Whose sites there are the server says, too.
    path == EVENTS || matches!(Page::of_path(path), Some(Page::Live(_) | Page::Load))
}

fn page(store: &FigureStore, asking: &Asking<'_>) -> Result<ConsoleAnswer, NoPage> {
    match asking.address.asked.machine {
        MachineAsked::This => drawn(store, asking),
        MachineAsked::All | MachineAsked::Named(_) => machines::answer(store, asking),
    }
}

/// A page of what is in this database.
fn drawn(store: &FigureStore, asking: &Asking<'_>) -> Result<ConsoleAnswer, NoPage> {
    match &asking.address.page {
        Page::Sites => sites::answer(store, asking),
        Page::Site(site, part) => {
            // A name that nobody has and one that others have are the same.
            let is_known = match asking.scope {
                // Of the archive's there is what is of these days alone.
                ConsoleScope::All => asking.is_of_archive() || store.has_site(site)?,
                scope => scope.has_site(site),
            };
            match is_known {
                true => site::answer(store, asking, site, *part),
                false => Err(NoPage::Unknown),
            }
        }
        Page::History => history::answer(store, asking),
        Page::Load => load::answer(store, asking),
        Page::Live(page) => live::answer(store, asking, *page),
    }
}

/// The part of a page that changes while it is looked at, as events bring it; none where there is no such
/// page for these eyes. The page is the question's, or below `events` what its query names.
pub fn fragment(question: &ConsoleQuestion, moment: &ConsoleMoment<'_>) -> Option<String> {
    let page = ipc::query::Query(&question.query).value("page");
    let path = match &*question.path {
        EVENTS => &page,
        path => path,
    };
    let mut asking = Asking::of(question, path, moment).ok()?;
    asking.address.asked.seen.clear();
    if asking.is_of_archive() {
        // What goes on now is this machine's.
        return None;
    }
    match asking.address.page {
        Page::Live(page) => live::fragment(&asking, page),
        Page::Sites | Page::Site(..) | Page::History | Page::Load => None,
    }
}

/// What a page is told in: what its address says, or what the client likes best of what we speak.
fn language(question: &ConsoleQuestion) -> Language {
    let asked = ipc::query::Query(&question.query).value("lang");
    let named = |tag: &str| Language::ALL.into_iter().find(|it| it.tag() == tag);
    if let Some(language) = named(&asked) {
        return language;
    }
    let mut best = (0.0, Language::English);
    for wanted in question.accept_language.split(',').take(LANGUAGES_MAX) {
        let (tag, weight) = wanted.split_once(";q=").unwrap_or((wanted, "1"));
        let weight = weight.trim().parse().unwrap_or(0.0);
        let tag = tag.trim().split('-').next().unwrap_or_default();
        match named(&tag.to_ascii_lowercase()) {
            Some(language) if weight > best.0 => best = (weight, language),
            _ => {}
        }
    }
    best.1
}

/// Languages of a client that are looked at.
const LANGUAGES_MAX: usize = 16;
