//! Figures of another machine, or of all: what is asked of the archive for a page, and the page.
//!
//! The idea: what was sent there is drawn by the pages that draw a machine's own. What never is sent, and what goes on
//! now, each machine tells alone: a page of it says so and leads there, and shows nothing under another's name. Names
//! of machines are the operator's: a tenant has this machine, and all.

use ipc::archive::question::{
    ARCHIVE_DAYS, ArchiveFound, ArchiveQuestion, ArchiveRead, ArchivedMachine, IncidentsWanted,
    SamplesWanted, SitesWanted,
};
use ipc::console::{ConsoleAnswer, ConsoleQuestion, ConsoleScope};
use ipc::limit_figures::LIMIT_FIGURES;
use jiff::Timestamp;
use report::{Document, Link, Tone};

use super::address::{MachineAsked, Page};
use super::history::{self, Span};
use super::live::{self, LivePage};
use super::site::SitePart;
use super::{Asking, ConsoleMoment, NoPage, frame, load};
use crate::store::{FigureStore, PartsOfTime, Tier};

/// Figures of tenants, and of limits, that are added up for a page.
const FIGURES_MAX: u32 = 2_000;
const HOUR_S: i64 = 3_600;

/// What is known of the archive.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveMoment<'a> {
    /// What this machine is called; empty while that is not known.
    pub own: &'a str,
    /// The machines that ever sent.
    pub machines: &'a [ArchivedMachine],
    /// What was asked for a page, and what came of it.
    pub said: Option<(&'a ArchiveQuestion, &'a ArchiveRead)>,
}

/// Whether a question is not about this machine alone.
pub(crate) fn is_of_archive(question: &ConsoleQuestion) -> bool {
    !ipc::query::Query(&question.query)
        .text("machine")
        .is_empty()
}

/// What a page needs of the archive; `None` where it needs nothing, or there is no such page for these eyes.
pub fn archive_question(
    question: &ConsoleQuestion,
    moment: &ConsoleMoment<'_>,
) -> Option<ArchiveQuestion> {
    let asking = Asking::of(question, &question.path, moment).ok()?;
    may_see(&asking).ok()?;
    wanted(&asking).ok()?.map(|(question, _)| question)
}

/// Whether there is such a page for these eyes.
fn may_see(asking: &Asking<'_>) -> Result<(), NoPage> {
    let is_operator = *asking.scope == ConsoleScope::All;
    let is_there = match &asking.address.page {
        Page::Site(site, _) => asking.scope.has_site(site),
        Page::Live(page) => page.is_shown_to(asking.scope),
        Page::Sites | Page::History | Page::Load => true,
    };
    let is_named = matches!(asking.address.asked.machine, MachineAsked::Named(_));
    match is_there && (is_operator || !is_named) {
        true => Ok(()),
        false => Err(NoPage::Unknown),
    }
}

/// What is asked for a page, and what the answer's times mean.
fn wanted(asking: &Asking<'_>) -> Result<Option<(ArchiveQuestion, PartsOfTime)>, NoPage> {
    let machine = match &asking.address.asked.machine {
        MachineAsked::This => return Ok(None),
        MachineAsked::All => None,
        MachineAsked::Named(name) => Some(name.clone()),
    };
    let (from, to) = asking.range()?;
    let tier = Span::of(asking, from, to).tier();
    // What is older is not there, and what is to come is not either.
    let first = from.max(asking.today().saturating_sub(ARCHIVE_DAYS));
    let last = to.min(asking.today()).max(first);
    let span = Span::of(asking, first, last);
    let mut question = ArchiveQuestion {
        machine,
        from_s: span.from_s.max(0),
        to_s: span.to_s.max(0),
        ..ArchiveQuestion::default()
    };
    let whole = SampleStep::of_seconds(question.to_s - question.from_s);
    let by_tier = SampleStep::of_seconds(tier.seconds());
    let days = (first, last);
    match &asking.address.page {
        Page::Sites => question.sites = Some(sites(asking, days, Parts::Days)),
        Page::Site(site, SitePart::Speed) => {
            question.sites = Some(SitesWanted {
                names: Some(vec![site.clone()]),
                filter: String::new(),
                ..sites(asking, days, Parts::Hours)
            });
            let begin = vec![format!("site.{site}.throttled")];
            question.samples = Some(by_tier.samples(begin, 1));
        }
        Page::History => question.samples = Some(of_history(asking, by_tier)),
        Page::Load => {
            question.sites = Some(SitesWanted {
                filter: String::new(),
                ..sites(asking, days, Parts::Whole)
            });
            question.samples = Some(whole.samples(tenants(asking.scope), FIGURES_MAX));
        }
        Page::Live(LivePage::Limits) => {
            question.samples = Some(SamplesWanted {
                filter: asking.filter.clone(),
                ..by_tier.samples(limits(asking.scope), FIGURES_MAX)
            });
            question.incidents = IncidentsWanted::Last;
        }
        Page::Site(..) | Page::Live(_) => return Ok(None),
    }
    let seconds = (question.from_s, question.to_s);
    let time = parts_of(asking, &question, tier, seconds);
    Ok(Some((question, time)))
}

/// How long a part of time is that figures are added up over.
#[derive(Clone, Copy)]
struct SampleStep(u32);

impl SampleStep {
    fn of_seconds(seconds: i64) -> SampleStep {
        SampleStep(u32::try_from(seconds).unwrap_or(u32::MAX).max(1))
    }

    fn samples(self, begin: Vec<String>, summed_max: u32) -> SamplesWanted {
        SamplesWanted {
            begin,
            summed_max,
            step_s: self.0,
            ..SamplesWanted::default()
        }
    }
}

/// By which parts of time sites are told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    Whole,
    Days,
    Hours,
}

/// How figures begin of the tenants of a scope.
fn tenants(scope: &ConsoleScope) -> Vec<String> {
    match scope {
        ConsoleScope::All => vec![load::OF_TENANTS.to_owned()],
        ConsoleScope::Tenants(tenants) => {
            let names = tenants.iter().map(|it| it.tenant.as_str());
            // No tenant is called by nothing: whose scope is empty has no figure.
            let names = names.chain(tenants.is_empty().then_some(""));
            names
                .map(|name| format!("{}{name}.", load::OF_TENANTS))
                .collect()
        }
    }
}

/// How figures begin of the limits of a scope, and of limits that tenants have parts of.
fn limits(scope: &ConsoleScope) -> Vec<String> {
    let ConsoleScope::Tenants(tenants) = scope else {
        return vec![LIMIT_FIGURES.to_owned()];
    };
    let shared = ["plan ", "site directory:", "rule directory:"].map(str::to_owned);
    let own = tenants.iter().map(|it| format!("tenant {}", it.tenant));
    let sites = tenants.iter().flat_map(|it| &it.sites);
    let sites = sites.flat_map(|site| ["site", "rule"].map(|level| format!("{level} {site}")));
    let all = shared.into_iter().chain(own).chain(sites);
    all.map(|limit| format!("{LIMIT_FIGURES}{limit}")).collect()
}

fn of_history(asking: &Asking<'_>, step: SampleStep) -> SamplesWanted {
    let mut unlike = vec![LIMIT_FIGURES.to_owned()];
    let mut begin = Vec::new();
    match asking.scope {
        ConsoleScope::All if asking.filter.is_empty() => {
            unlike.extend(history::OWNED.map(str::to_owned));
        }
        ConsoleScope::All => {}
        scope => begin = tenants(scope),
    }
    SamplesWanted {
        unlike,
        filter: asking.filter.clone(),
        ..step.samples(begin, history::CHARTS_MAX as u32)
    }
}

fn sites(asking: &Asking<'_>, (first, last): (i32, i32), by: Parts) -> SitesWanted {
    let begin = |day: i32| Span::of(asking, day, day).from_s;
    let mut edges = Vec::new();
    for day in first..=last {
        match by {
            Parts::Whole if day > first => {}
            Parts::Whole | Parts::Days => edges.push(begin(day)),
            Parts::Hours => {
                let next = begin(day.saturating_add(1));
                edges.extend((begin(day)..next).step_by(HOUR_S as usize));
            }
        }
    }
    edges.push(begin(last.saturating_add(1)));
    SitesWanted {
        names: match asking.scope {
            ConsoleScope::All => None,
            ConsoleScope::Tenants(tenants) => {
                Some(tenants.iter().flat_map(|it| it.sites.clone()).collect())
            }
        },
        filter: asking.filter.clone(),
        edges,
    }
}

/// The day of each of a question's parts, and the minute at which its hour begins.
fn parts_of(
    asking: &Asking<'_>,
    question: &ArchiveQuestion,
    tier: Tier,
    seconds: (i64, i64),
) -> PartsOfTime {
    let zone = asking.moment.now.time_zone();
    let edges = question.sites.iter().flat_map(|it| &it.edges);
    let parts = edges.map(|at_s| {
        let at = Timestamp::from_second(*at_s).unwrap_or_default();
        let at = at.to_zoned(zone.clone());
        let hour = u16::try_from(at.hour()).unwrap_or(0);
        (crate::salts::day_number(at.date()), 60 * hour)
    });
    PartsOfTime {
        tier,
        seconds,
        parts: parts.collect(),
    }
}

/// A page of what was sent to the archive, or why there is none.
pub(super) fn answer(asking: &Asking<'_>) -> Result<ConsoleAnswer, NoPage> {
    may_see(asking)?;
    let Some((wanted, time)) = wanted(asking)? else {
        return kept_alone(asking);
    };
    let archive = asking.moment.archive.ok_or(NoPage::Unknown)?;
    let found = match archive.said {
        // The day may have changed since it was asked.
        Some((asked, ArchiveRead::Found(found))) if is_same(asked, &wanted) => found,
        Some((_, read)) => return away(asking, read),
        None => return away(asking, &ArchiveRead::Late),
    };
    if let Some(machine) = &wanted.machine
        && !found.machines.iter().any(|it| it.name == *machine)
    {
        return Err(NoPage::Unknown);
    }
    let store = FigureStore::of_archive(found, &time)?;
    let moment = ConsoleMoment {
        heard: None,
        ..asking.moment.clone()
    };
    let asking = Asking {
        moment: &moment,
        notes: notes(asking, &wanted, found),
        address: asking.address.clone(),
        filter: asking.filter.clone(),
        ..*asking
    };
    match asking.address.page {
        Page::Live(_) => {
            let mut document = live::went_wrong(&store, &asking)?;
            document.title = LivePage::Limits.title_in(asking.language);
            frame::given(&asking, document, "limits", None, asking.range()?)
        }
        _ => super::drawn(&store, &asking),
    }
}

fn is_same(asked: &ArchiveQuestion, wanted: &ArchiveQuestion) -> bool {
    ArchiveQuestion {
        id: wanted.id,
        ..asked.clone()
    } == *wanted
}

/// What the figures are, and what is not among them.
fn notes(asking: &Asking<'_>, wanted: &ArchiveQuestion, found: &ArchiveFound) -> Vec<&'static str> {
    let telling = asking.telling();
    let summed = wanted.samples.as_ref().map(|it| it.summed_max as usize);
    // History says by itself of how many figures it shows some.
    let is_summed_in_part = asking.address.page != Page::History
        && summed.is_some_and(|summed| found.names.len() > summed);
    let is_old = asking
        .range()
        .is_ok_and(|(from, _)| from < asking.today().saturating_sub(ARCHIVE_DAYS));
    let all = [
        (
            true,
            telling.say(
                "As it was sent: minutes that are over, up to two minutes ago.",
                "送信済みの記録です（2 分ほど前までの、終わった分）。",
            ),
        ),
        (
            is_old,
            telling.say(
                "Of what was sent 31 days are kept.",
                "送信された記録は 31 日間保存されます。",
            ),
        ),
        (
            is_summed_in_part,
            telling.say(
                "Not all figures are counted, there are too many.",
                "項目が多すぎるため、一部だけを数えています。",
            ),
        ),
        (
            found.cut.durations,
            telling.say(
                "Response times are left out, there are too many: ask for fewer days.",
                "応答時間は多すぎるため省きました。日数を減らしてください。",
            ),
        ),
        (
            found.cut.incidents,
            telling.say(
                "Only the last incidents are counted, there are too many: ask for fewer days.",
                "出来事が多すぎるため、最近の分だけを数えています。日数を減らしてください。",
            ),
        ),
    ];
    all.into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, note)| note)
        .collect()
}

/// A page of what each machine keeps alone.
fn kept_alone(asking: &Asking<'_>) -> Result<ConsoleAnswer, NoPage> {
    let told = asking.telling().say(
        "This is kept by each machine alone and sent nowhere.",
        "これは各マシンだけが記録し、送信されません。",
    );
    notice(asking, 200, told.to_owned())
}

/// A page of which there is nothing for now.
fn away(asking: &Asking<'_>, read: &ArchiveRead) -> Result<ConsoleAnswer, NoPage> {
    let telling = asking.telling();
    let told = match read {
        ArchiveRead::Down(why) | ArchiveRead::Failed(why) if *asking.scope == ConsoleScope::All => {
            let told = telling.say(
                "The database that machines send figures to cannot be read",
                "マシンの記録の送信先データベースを読めません",
            );
            format!("{told}: {why}")
        }
        ArchiveRead::Down(_) | ArchiveRead::Failed(_) => telling
            .say(
                "Figures of all machines cannot be read for now: try again later.",
                "全マシンの記録を現在読めません。しばらくしてから再度お試しください。",
            )
            .to_owned(),
        ArchiveRead::TooMuch => telling
            .say(
                "This is more than one page may have: ask for fewer days or names.",
                "1 ページに収まりません。日数か名前を絞ってください。",
            )
            .to_owned(),
        ArchiveRead::Late | ArchiveRead::Found(_) => telling
            .say(
                "This takes too long to be read: ask for fewer days.",
                "読み取りに時間がかかりすぎます。日数を減らしてください。",
            )
            .to_owned(),
    };
    notice(asking, 503, told)
}

fn notice(asking: &Asking<'_>, status: u16, told: String) -> Result<ConsoleAnswer, NoPage> {
    if asking.address.asked.format.is_some() && status == 200 {
        return Err(NoPage::Unknown);
    }
    let days = asking.range()?;
    let (title, tabs) = match &asking.address.page {
        Page::Sites => (frame::SITES.said_in(asking.language).to_owned(), None),
        Page::Site(site, part) => (site.clone(), Some((site.as_str(), *part))),
        Page::History => (frame::HISTORY.said_in(asking.language).to_owned(), None),
        Page::Load => (frame::LOAD.said_in(asking.language).to_owned(), None),
        Page::Live(page) => (page.title_in(asking.language), None),
    };
    let mut document: Document = asking.document(&title, days);
    let section = document.section("");
    section.note(Tone::Warn, told);
    section.links.push(Link {
        text: asking
            .telling()
            .say("This machine's", "このマシンの記録")
            .into(),
        address: asking
            .address
            .with(|asked| asked.machine = MachineAsked::This),
    });
    Ok(ConsoleAnswer {
        status,
        ..frame::page(asking, tabs, &document, days)
    })
}

impl Asking<'_> {
    /// Whose figures a page is of, in words; nothing of this machine's alone.
    pub(super) fn whose(&self) -> Option<String> {
        match &self.address.asked.machine {
            MachineAsked::This => None,
            MachineAsked::All => Some(self.telling().say("all machines", "全マシン").into()),
            MachineAsked::Named(name) => Some(name.clone()),
        }
    }

    /// The machines that may be chosen on this page: what addresses call each, and its name in words.
    pub(super) fn choices(&self) -> Vec<(MachineAsked, String)> {
        let telling = self.telling();
        let is_chosen = self.address.asked.machine != MachineAsked::This;
        let is_of_archive = matches!(
            self.address.page,
            Page::Sites
                | Page::Site(_, SitePart::Speed)
                | Page::History
                | Page::Load
                | Page::Live(LivePage::Limits)
        );
        let archive = self.moment.archive.filter(|_| is_chosen || is_of_archive);
        let Some(ArchiveMoment { own, machines, .. }) = archive else {
            return Vec::new();
        };
        let is_operator = *self.scope == ConsoleScope::All;
        let this = telling.say("this machine", "このマシン");
        let this = match own {
            own if is_operator && !own.is_empty() => format!("{this} ({own})"),
            _ => this.to_owned(),
        };
        let all = telling.say("all machines", "全マシン").to_owned();
        let mut choices = vec![(MachineAsked::This, this), (MachineAsked::All, all)];
        let now_s = self.moment.now.timestamp().as_second();
        let others = machines.iter().filter(|it| is_operator && it.name != own);
        choices.extend(others.map(|it| {
            let heard = crate::page::instant(it.heard_s.clamp(0, now_s));
            let name = format!("{}, {} {heard}", it.name, telling.say("heard", "受信"));
            (MachineAsked::Named(it.name.clone()), name)
        }));
        let asked = &self.address.asked.machine;
        if !choices.iter().any(|(it, _)| it == asked) {
            choices.push((asked.clone(), asked.id().to_owned()));
        }
        choices
    }
}
