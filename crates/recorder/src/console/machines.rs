//! Figures of another machine, or of all: what is asked of the archive for a page, and the page.
//!
//! The idea: what was sent there is drawn by the pages that draw a machine's own. What never is sent, and what goes on
//! now, each machine tells alone: a page of it says so and leads there, and shows nothing under another's name. Names
//! of machines are the operator's: a tenant has this machine, and all.

use ipc::archive::question::{
    ARCHIVE_DAYS, ArchiveCut, ArchiveFound, ArchiveQuestion, ArchiveRead, ArchivedMachine,
    IncidentsWanted, SamplesWanted, SitesWanted,
};
use ipc::console::{ConsoleAnswer, ConsoleQuestion, ConsoleScope};
use ipc::limit_figures::LIMIT_FIGURES;
use jiff::Timestamp;
use report::{Document, Link, Tone};

use super::address::{MachineAsked, Page};
use super::history::{self, Span};
use super::live::{self, LivePage};
use super::site::SitePart;
use super::{Asking, ConsoleMoment, NoPage, export, frame, load, refused};
use crate::store::{FigureStore, PartsOfTime, Tier, owners_in};

const HOUR_S: i64 = 3_600;
/// Machines that are named where somebody asks for none of them.
const KNOWN_SHOWN_MAX: usize = 20;

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
    let span = Span::of(asking, from, to);
    let tier = match asking.address.page {
        Page::Live(_) => refused::tier(asking, &span),
        _ => span.tier(),
    };
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
            question.samples = Some(by_tier.samples(begin));
        }
        Page::History => question.samples = Some(of_history(asking, by_tier)),
        Page::Load => {
            question.sites = Some(SitesWanted {
                filter: String::new(),
                ..sites(asking, days, Parts::Whole)
            });
            question.samples = Some(SamplesWanted {
                of: tenants(asking.scope),
                ..whole.samples(vec![load::OF_TENANTS.to_owned()])
            });
        }
        Page::Live(LivePage::Limits) => {
            question.samples = Some(SamplesWanted {
                of: limits(asking.scope),
                filter: asking.filter.clone(),
                ..by_tier.samples(vec![LIMIT_FIGURES.to_owned()])
            });
            let cause = asking.address.asked.cause.split_once(' ');
            question.incidents = Some(IncidentsWanted {
                owners: owners_in(asking.scope),
                what: cause.map(|(_, what)| what.to_owned()),
                filter: asking.filter.clone(),
            });
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

    fn samples(self, begin: Vec<String>) -> SamplesWanted {
        SamplesWanted {
            begin,
            summed_max: u32::MAX,
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

/// What the figures of a scope's tenants are of; everybody's where there is none.
fn tenants(scope: &ConsoleScope) -> Option<Vec<String>> {
    let ConsoleScope::Tenants(tenants) = scope else {
        return None;
    };
    let names = tenants.iter().map(|it| &it.tenant);
    Some(
        names
            .map(|name| format!("{}{name}", load::OF_TENANTS))
            .collect(),
    )
}

/// What the figures of a scope's limits are of. Limits that tenants have parts of are nobody's: what their keys count
/// is not sent.
fn limits(scope: &ConsoleScope) -> Option<Vec<String>> {
    let owners = owners_in(scope)?.into_iter().flat_map(|owner| {
        let of_rules = owner
            .strip_prefix("site ")
            .map(|site| format!("rule {site}"));
        [Some(owner), of_rules]
    });
    let owners = owners.flatten();
    Some(
        owners
            .map(|owner| format!("{LIMIT_FIGURES}{owner}"))
            .collect(),
    )
}

fn of_history(asking: &Asking<'_>, step: SampleStep) -> SamplesWanted {
    let mut unlike = vec![LIMIT_FIGURES.to_owned()];
    if *asking.scope == ConsoleScope::All && asking.filter.is_empty() {
        unlike.extend(history::OWNED.map(str::to_owned));
    }
    SamplesWanted {
        unlike,
        of: tenants(asking.scope),
        filter: asking.filter.clone(),
        summed_max: history::CHARTS_MAX as u32,
        ..step.samples(Vec::new())
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
pub(super) fn answer(store: &FigureStore, asking: &Asking<'_>) -> Result<ConsoleAnswer, NoPage> {
    may_see(asking)?;
    let archive = asking.moment.archive.ok_or(NoPage::Unknown)?;
    let Some((wanted, time)) = wanted(asking)? else {
        return kept_alone(asking);
    };
    let found = match archive.said {
        // The day may have changed since it was asked.
        Some((asked, ArchiveRead::Found(found))) if is_same(asked, &wanted) => found,
        Some((_, read)) => return away(asking, read),
        None => return away(asking, &ArchiveRead::Late),
    };
    if let Some(machine) = &wanted.machine
        && !found.machines.iter().any(|it| it.name == *machine)
    {
        return unknown(asking, &found.machines);
    }
    let store = store.of_archive(found, &time)?;
    let moment = ConsoleMoment {
        heard: None,
        ..asking.moment.clone()
    };
    let asking = Asking {
        moment: &moment,
        missing: Some(missing(asking, found)),
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

/// What is not among the figures.
fn missing(asking: &Asking<'_>, found: &ArchiveFound) -> Vec<&'static str> {
    let telling = asking.telling();
    let is_old = asking
        .range()
        .is_ok_and(|(from, _)| from < asking.today().saturating_sub(ARCHIVE_DAYS));
    let ArchiveCut {
        names,
        samples,
        sites,
        durations,
        incidents,
    } = found.cut;
    let all = [
        (
            is_old,
            "Of what was sent 31 days are kept.",
            "送信された記録は 31 日間保存されます。",
        ),
        (
            names,
            "Only the first 20,000 figures are looked at, there are more: ask for some by name.",
            "項目が多すぎるため、最初の 20,000 件だけを調べています。名前で絞ってください。",
        ),
        (
            samples,
            "Only the figures that came to most are counted, there are too many: ask for fewer days or names.",
            "項目が多すぎるため、値の大きいものだけを数えています。日数か名前を絞ってください。",
        ),
        (
            sites,
            "Only the busiest sites are counted, there are too many: ask for fewer days or names.",
            "サイトが多すぎるため、アクセスの多いものだけを数えています。日数か名前を絞ってください。",
        ),
        (
            durations,
            "Response times are left out, there are too many: ask for fewer days.",
            "応答時間は多すぎるため省きました。日数を減らしてください。",
        ),
        (
            incidents,
            "Only the last incidents are counted, there are too many: ask for fewer days.",
            "出来事が多すぎるため、最近の分だけを数えています。日数を減らしてください。",
        ),
    ];
    all.into_iter()
        .filter(|(is_so, ..)| *is_so)
        .map(|(_, english, japanese)| telling.say(english, japanese))
        .collect()
}

/// A page of a machine that there is not: the operator's, as all names are.
fn unknown(asking: &Asking<'_>, known: &[ArchivedMachine]) -> Result<ConsoleAnswer, NoPage> {
    let mut told = asking
        .telling()
        .say(
            "There is no machine of this name. Known are: ",
            "この名前のマシンはありません。登録済み: ",
        )
        .to_owned();
    let names = known.iter().take(KNOWN_SHOWN_MAX).map(|it| &*it.name);
    let more = (known.len() > KNOWN_SHOWN_MAX).then_some("…");
    told.push_str(&names.chain(more).collect::<Vec<_>>().join(", "));
    notice(asking, 404, told)
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
    if let Some(format) = asking.address.asked.format {
        // There is a page that says so, but no list.
        let status = if status == 200 { 404 } else { status };
        return Ok(export::refusal(format, status, &told));
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
