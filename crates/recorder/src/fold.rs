//! The fold: requests become figures by site and time.
//!
//! The idea: a request comes as one record of fixed size, whose texts were told before, whoever sends
//! it. What it adds is put into a piece of its site's day; pieces are written every few seconds and
//! begin anew. No clock is read and no file: the time of a request is the one it carries.

use std::rc::Rc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::agent::{Agent, Browser};
use crate::day::{DayFigures, ListOf, Tally};
use crate::names::{ByHash, Meaning, Name, NameOf, Names, bare_host};
use crate::visits::{Before, OpenVisit, Viewed, Visits};

/// Sites that are told apart; requests of others are counted as not recorded.
pub const SITES_MAX: usize = 20_000;
/// Bits of a visitor's hash that are kept: of a million visitors two are taken for one once in 500 days.
const VISITOR_BITS: u32 = 48;
/// Stands for a duration that is not known.
pub const UNKNOWN_US: u32 = u32::MAX;
/// Seconds for which an offset from UTC is looked up once: no zone changes it within.
const QUARTER_S: i64 = 900;
const DAY_S: i64 = 86_400;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRecord {
    /// When it came in, microseconds after 1970.
    pub at_us: i64,
    /// Its site, as it was told.
    pub site: u64,
    /// Its path.
    pub path: u64,
    /// Where it says it comes from; 0 where it does not.
    pub referrer: u64,
    /// Its user agent.
    pub agent: u64,
    /// The campaign it came by, or 0.
    pub campaign: u64,
    /// What was searched for, or 0.
    pub search: u64,
    /// Who sent it: a salted hash of address and user agent.
    pub visitor: u64,
    /// Bytes of the reply's body.
    pub bytes: u64,
    /// How long it took, or [`UNKNOWN_US`].
    pub total_us: u32,
    /// How long it waited before its handler, or [`UNKNOWN_US`].
    pub queue_us: u32,
    /// How long a back end took, or [`UNKNOWN_US`].
    pub upstream_us: u32,
    /// How many requests it stands for; mostly 1.
    pub stands_for: u32,
    /// The reply's status.
    pub status: u16,
    /// Where the client is, as ISO 3166 has it, or zeros.
    pub country: [u8; 2],
    /// Whether it was a GET.
    pub is_get: bool,
}

/// Requests that are being folded.
#[derive(Debug)]
pub struct Fold {
    names: Names,
    zone: Zone,
    visits: Visits,
    sites: ByHash<u64, Rc<str>>,
    days: ByHash<(u64, i64), DayFigures>,
    /// Names in lists since pieces were last written.
    held: usize,
    /// Requests whose site was never told.
    not_recorded: u64,
}

impl Fold {
    /// Begins with nothing. Days are those of `zone`; what a referrer contains puts it into a group.
    pub fn new(zone: TimeZone, groups: Vec<(String, String)>) -> Fold {
        Fold {
            names: Names::new(groups),
            zone: Zone::new(zone),
            visits: Visits::default(),
            sites: ByHash::default(),
            days: ByHash::default(),
            held: 0,
            not_recorded: 0,
        }
    }

    /// Forgets texts where there are too many. For between two requests: what is forgotten is told
    /// again with the next that has it.
    pub fn make_room(&mut self) {
        self.names.make_room();
    }

    /// Whether a text was told, and not forgotten since.
    pub fn knows(&self, hash: u64) -> bool {
        self.names.knows(hash)
    }

    /// Tells what a hash stands for.
    pub fn tell(&mut self, hash: u64, of: NameOf, text: &str) {
        self.names.tell(hash, of, text);
    }

    /// Tells a site, once; there are at most [`SITES_MAX`].
    pub fn tell_site(&mut self, hash: u64, name: &str) {
        if self.sites.len() < SITES_MAX && !self.sites.contains_key(&hash) {
            self.sites.insert(hash, name.into());
        }
    }

    /// The local day of an instant, counted from 1970.
    pub fn day_of(&mut self, at_us: i64) -> i32 {
        self.zone.local(at_us).day
    }

    /// Takes a request.
    pub fn take(&mut self, record: &RequestRecord) {
        if !self.sites.contains_key(&record.site) {
            self.not_recorded = self.not_recorded.saturating_add(1);
            return;
        }
        let local = self.zone.local(record.at_us);
        let [path, agent] = [record.path, record.agent].map(|hash| self.names.get(hash));
        let request = KnownRequest {
            record,
            local,
            path,
            tally: tally(record),
        };
        let day = self.days.entry((record.site, local.day.into()));
        let day = day.or_default();
        let browser = match agent.map(|name| &name.meaning) {
            Some(Meaning::Agent(Agent::Person(browser))) => Some(browser),
            _ => None,
        };
        request.count(browser.is_none(), day);
        self.held += usize::from(request.list(browser.is_none(), day));
        match (browser, path) {
            (None, _) => {
                let name = match agent.map(|name| &name.meaning) {
                    Some(Meaning::Agent(Agent::Bot(name))) => name,
                    _ => "no name",
                };
                self.held += usize::from(day.list_mut(ListOf::Bots).add(name, &request.tally));
            }
            (Some(browser), Some(path)) if request.is_view() => {
                let browser = Rc::clone(browser);
                let path = Rc::clone(&path.text);
                self.view(record, local, &path, &browser);
            }
            _ => {}
        }
    }

    /// Somebody sees a page.
    fn view(&mut self, record: &RequestRecord, local: Local, page: &Rc<str>, browser: &Browser) {
        let visitor = record.visitor & ((1 << VISITOR_BITS) - 1);
        let of = (record.site, visitor);
        let viewed = self.visits.view(of, record.at_us, local.day, page);
        let Some(site) = self.sites.get(&record.site) else {
            return;
        };
        let sources = self.sources(record, bare_host(site));
        let before_day = match &viewed {
            Viewed::Further(before) if before.page != *page => Some(before.day),
            _ => None,
        };
        if let (Some(before_day), Viewed::Further(before)) = (before_day, &viewed) {
            let day = self.days.entry((record.site, before_day.into()));
            let exits = day.or_default().list_mut(ListOf::Exits);
            exits.add(&before.page, &Tally::times(-1));
        }
        let day = self.days.entry((record.site, local.day.into()));
        let day = day.or_default();
        let figures = day.minute(local.minute());
        figures.views = figures.views.saturating_add(record.stands_for.into());
        day.visitors.insert(visitor);
        day.step(visitor, local.second, page);
        let mut held = 1;
        match viewed {
            Viewed::First => {
                figures_of_visit(day, local, 1);
                let [browser_name, system, device] =
                    [&browser.name, &browser.system, &browser.device].map(|it| &**it);
                let country = std::str::from_utf8(&record.country).unwrap_or_default();
                let is_known = record.country.iter().all(u8::is_ascii_uppercase);
                for (of, name) in [
                    (ListOf::Entries, Some(&**page)),
                    (ListOf::Exits, Some(&**page)),
                    (ListOf::Browsers, Some(browser_name)),
                    (ListOf::Systems, Some(system)),
                    (ListOf::Devices, Some(device)),
                    (ListOf::Countries, is_known.then_some(country)),
                    (ListOf::Referrers, Some(&*sources.group)),
                    (ListOf::ReferringPages, sources.page.as_deref()),
                    (ListOf::Campaigns, sources.campaign.as_deref()),
                ] {
                    let is_new = |name| day.list_mut(of).add(name, &Tally::times(1));
                    held += usize::from(name.is_some_and(is_new));
                }
            }
            Viewed::Further(before) => held += further(day, local, &before, page),
        }
        if let Some(search) = &sources.search {
            held += usize::from(day.list_mut(ListOf::Searches).add(search, &Tally::times(1)));
        }
        self.held += held;
    }

    /// Where a view came from, and by what.
    fn sources(&self, record: &RequestRecord, host: &str) -> Sources {
        let text = |hash: u64| self.names.get(hash).map(|name| Rc::clone(&name.text));
        let referrer = self.names.get(record.referrer).map(|name| &name.meaning);
        let (group, page) = match referrer {
            Some(Meaning::Referrer(referrer)) if *referrer.host == *host => {
                ("(own pages)".into(), None)
            }
            Some(Meaning::Referrer(referrer)) => {
                (Rc::clone(&referrer.group), Some(Rc::clone(&referrer.page)))
            }
            _ => ("(none)".into(), None),
        };
        Sources {
            group,
            page,
            campaign: text(record.campaign),
            search: text(record.search),
        }
    }

    /// What came together since the last [`Fold::written`]: site, day, piece.
    pub fn pieces(&self) -> impl Iterator<Item = (&str, i32, &DayFigures)> {
        self.days.iter().filter_map(|((site, day), piece)| {
            let name = self.sites.get(site)?;
            Some((&**name, i32::try_from(*day).ok()?, piece))
        })
    }

    /// Forgets the pieces: they are on disk.
    pub fn written(&mut self) {
        self.days.clear();
        self.held = 0;
    }

    /// About how many names and minutes the pieces hold.
    pub fn held(&self) -> usize {
        self.held + self.days.len()
    }

    /// Requests of sites beyond [`SITES_MAX`].
    pub fn not_recorded(&self) -> u64 {
        self.not_recorded
    }

    /// Visits under way.
    pub fn visits_under_way(&self) -> usize {
        self.visits.len()
    }

    /// Visits under way, for the next run.
    pub fn open_visits(&self) -> Vec<OpenVisit> {
        let site = |hash: u64| self.sites.get(&hash).cloned();
        self.visits.under_way(site).collect()
    }

    /// Goes on with visits of an earlier run, whose site is told by this hash.
    pub fn resume(&mut self, site: u64, visit: &OpenVisit) {
        self.tell_site(site, &visit.site);
        self.visits.resume(site, visit);
    }
}

/// A visit goes on.
fn further(day: &mut DayFigures, local: Local, before: &Before, page: &Rc<str>) -> usize {
    let figures = day.minute(local.minute());
    figures.visit_s = figures.visit_s.saturating_add(before.since_s);
    figures.bounces -= i64::from(before.was_first_page);
    if before.page == *page {
        return 0;
    }
    let pair = format!("{} → {page}", before.page);
    let exits = day.list_mut(ListOf::Exits);
    let exit_is_new = exits.add(page, &Tally::times(1));
    let pairs = day.list_mut(ListOf::NextPages);
    usize::from(exit_is_new) + usize::from(pairs.add(&pair, &Tally::times(1)))
}

fn figures_of_visit(day: &mut DayFigures, local: Local, visits: u64) {
    let figures = day.minute(local.minute());
    figures.visits = figures.visits.saturating_add(visits);
    figures.bounces += 1;
}

struct Sources {
    group: Rc<str>,
    page: Option<Rc<str>>,
    campaign: Option<Rc<str>>,
    search: Option<Rc<str>>,
}

/// A request with what is known of it.
struct KnownRequest<'a> {
    record: &'a RequestRecord,
    local: Local,
    path: Option<&'a Name>,
    tally: Tally,
}

impl KnownRequest<'_> {
    fn is_view(&self) -> bool {
        let is_page = matches!(self.path.map(|it| &it.meaning), Some(Meaning::Page));
        is_page && self.record.is_get && matches!(self.record.status, 200..=299 | 304)
    }

    /// Adds to the figures of its minute.
    fn count(&self, is_bot: bool, day: &mut DayFigures) {
        let record = self.record;
        let times = u64::from(record.stands_for);
        let figures = day.minute(self.local.minute());
        figures.requests = figures.requests.saturating_add(times);
        figures.bytes = figures.bytes.saturating_add(bytes(record));
        if is_bot {
            figures.bots = figures.bots.saturating_add(times);
        }
        let class = usize::from(record.status / 100).wrapping_sub(1);
        if let Some(count) = figures.statuses.get_mut(class) {
            *count = count.saturating_add(times);
        }
        let known = |us: u32| match us {
            UNKNOWN_US => 0,
            us => u64::from(us).saturating_mul(times),
        };
        figures.queue_us = figures.queue_us.saturating_add(known(record.queue_us));
        figures.upstream_us = figures
            .upstream_us
            .saturating_add(known(record.upstream_us));
        if record.total_us != UNKNOWN_US {
            figures.durations.add(record.total_us.into(), times);
        }
    }

    /// Adds to the lists that count requests; says whether a name is new.
    fn list(&self, is_bot: bool, day: &mut DayFigures) -> bool {
        let status = self.record.status;
        let digits = [status / 100, status / 10 % 10, status % 10];
        let digits = digits.map(|digit| b'0' + u8::try_from(digit % 10).unwrap_or(0));
        let code = std::str::from_utf8(&digits).unwrap_or_default();
        day.list_mut(ListOf::Statuses).add(code, &self.tally);
        let path = self.path.map_or("(unknown)", |name| &*name.text);
        let (of, name) = match status {
            404 | 410 => (ListOf::Missing, path),
            500.. => {
                let name = format!("{code} {path}");
                return day.list_mut(ListOf::Errors).add(&name, &self.tally);
            }
            _ if is_bot => return false,
            _ if self.is_view() => (ListOf::Pages, path),
            200..=399 => (ListOf::Files, path),
            _ => return false,
        };
        day.list_mut(of).add(name, &self.tally)
    }
}

fn tally(record: &RequestRecord) -> Tally {
    let (us, timed) = match record.total_us {
        UNKNOWN_US => (0, 0),
        us => (us.into(), 1),
    };
    Tally {
        count: record.stands_for.into(),
        bytes: bytes(record),
        us,
        timed,
    }
}

/// Of all requests that the record stands for.
fn bytes(record: &RequestRecord) -> u64 {
    record.bytes.saturating_mul(record.stands_for.into())
}

/// A local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Local {
    /// Days after 1970.
    day: i32,
    second: u32,
}

impl Local {
    fn minute(self) -> u16 {
        u16::try_from(self.second / 60).unwrap_or(0)
    }
}

/// A time zone, with the offset that was looked up last.
#[derive(Debug)]
struct Zone {
    zone: TimeZone,
    quarter: i64,
    offset_s: i64,
}

impl Zone {
    fn new(zone: TimeZone) -> Zone {
        Zone {
            zone,
            quarter: i64::MIN,
            offset_s: 0,
        }
    }

    fn local(&mut self, at_us: i64) -> Local {
        let utc_s = at_us.div_euclid(1_000_000);
        let quarter = utc_s.div_euclid(QUARTER_S);
        if quarter != self.quarter {
            let at = Timestamp::from_second(quarter * QUARTER_S).unwrap_or_default();
            self.offset_s = self.zone.to_offset(at).seconds().into();
            self.quarter = quarter;
        }
        let local_s = utc_s + self.offset_s;
        Local {
            day: i32::try_from(local_s.div_euclid(DAY_S)).unwrap_or(0),
            second: u32::try_from(local_s.rem_euclid(DAY_S)).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests;
