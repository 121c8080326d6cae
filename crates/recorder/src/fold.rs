//! The fold: requests become figures by site and time.
//!
//! The idea: a request comes as one record of fixed size, whose texts were told before, whoever sends
//! it. What it adds is put into a piece of its site's day; pieces are written every few seconds and
//! begin anew. No clock is read and no file: the time of a request is the one it carries.

use std::rc::Rc;

use ipc::ring::{RingRecord, TextOf, UNKNOWN_US};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::agent::{Agent, Browser};
use crate::day::{ListOf, Tally};
use crate::names::{ByHash, Meaning, Name, Names, bare_host};
use crate::piece::Piece;
use crate::visits::{Before, OpenVisit, Page, Viewed, Visits};

/// Sites that are told apart; requests of others are counted as not recorded.
pub const SITES_MAX: usize = 20_000;
/// Bits of a visitor's hash that are kept: of a million visitors two are taken for one once in 500 days.
const VISITOR_BITS: u32 = 48;
/// Seconds for which an offset from UTC is looked up once: no zone changes it within.
const QUARTER_S: i64 = 900;
const DAY_S: i64 = 86_400;

/// Requests that are being folded.
#[derive(Debug)]
pub struct Fold {
    names: Names,
    zone: Zone,
    visits: Visits,
    sites: ByHash<u64, Rc<str>>,
    days: ByHash<(u64, i64), Piece>,
    /// What the pieces hold.
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
    /// again with the next that has it. Whether it did.
    pub fn make_room(&mut self) -> bool {
        self.names.make_room()
    }

    /// Whether a text or a site was told, and not forgotten since.
    pub fn knows(&self, hash: u64) -> bool {
        self.names.knows(hash) || self.sites.contains_key(&hash)
    }

    /// Tells what a hash stands for.
    pub fn tell(&mut self, hash: u64, of: TextOf, text: &str) {
        self.names.tell(hash, of, text);
    }

    /// Tells a site, once; there are at most [`SITES_MAX`].
    pub fn tell_site(&mut self, hash: u64, name: &str) {
        if self.sites.len() < SITES_MAX && !self.sites.contains_key(&hash) {
            self.sites.insert(hash, name.into());
        }
    }

    /// The clock was put back by so much: visits under way go on, as if no time had passed.
    pub fn clock_went_back(&mut self, by_us: i64) {
        self.visits.clock_went_back(by_us);
    }

    /// The local day of an instant, counted from 1970.
    pub fn day_of(&mut self, at_us: i64) -> i32 {
        self.zone.local(at_us).day
    }

    /// Takes a request.
    pub fn take(&mut self, record: &RingRecord) {
        let Some(site) = self.sites.get(&record.site) else {
            self.not_recorded = self.not_recorded.saturating_add(1);
            return;
        };
        let local = self.zone.local(record.at_us);
        let [path, agent] = [record.path, record.agent].map(|hash| self.names.get(hash));
        let piece = self.days.entry((record.site, local.day.into()));
        let piece = piece.or_default();
        let held_before = piece.held();
        let agent = agent.map(|name| &name.meaning);
        let browser = match agent {
            Some(Meaning::Agent(Agent::Person(browser))) => Some(browser),
            _ => None,
        };
        let request = KnownRequest {
            record,
            local,
            path,
            tally: tally(record),
        };
        request.count(browser.is_none(), piece);
        request.list(browser.is_none(), piece);
        request.list_load(&self.names, piece);
        let mut left = None;
        match (browser, path) {
            (None, _) => piece.add(ListOf::Bots, record.agent, &request.tally, || match agent {
                Some(Meaning::Agent(Agent::Bot(name))) => Rc::clone(name),
                _ => "no name".into(),
            }),
            (Some(browser), Some(path)) if request.is_view() => {
                let visitor = record.visitor & ((1 << VISITOR_BITS) - 1);
                let page = Page {
                    hash: record.path,
                    text: Rc::clone(&path.text),
                };
                let of = (record.site, visitor);
                let viewed = self.visits.view(of, record.at_us, local.day, &page);
                let view = View {
                    record,
                    local,
                    visitor,
                    page,
                    browser,
                    sources: Sources::of(&self.names, record, site),
                };
                left = view.count(viewed, piece);
            }
            _ => {}
        }
        self.held += piece.held().saturating_sub(held_before);
        // The visit ends elsewhere now, perhaps on another day than before.
        if let Some(Before { day, page, .. }) = left {
            let piece = self.days.entry((record.site, day.into())).or_default();
            piece.add(ListOf::Exits, page.hash, &Tally::times(-1), || page.text);
        }
    }

    /// What came together since the last [`Fold::written`]: site, day, piece.
    pub fn pieces(&self) -> impl Iterator<Item = (&str, i32, &Piece)> {
        let full = self.days.iter().filter(|(_, piece)| !piece.is_empty());
        full.filter_map(|((site, day), piece)| {
            let name = self.sites.get(site)?;
            Some((&**name, i32::try_from(*day).ok()?, piece))
        })
    }

    /// Forgets the pieces: they are on disk. Who had none keeps no room for the next.
    pub fn written(&mut self) {
        self.days.retain(|_, piece| {
            let stays = !piece.is_empty();
            piece.clear();
            stays
        });
        self.held = 0;
    }

    /// About how many names the pieces hold, or things as large.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Requests of sites beyond [`SITES_MAX`].
    pub fn not_recorded(&self) -> u64 {
        self.not_recorded
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

/// Somebody sees a page.
struct View<'a> {
    record: &'a RingRecord,
    local: Local,
    visitor: u64,
    page: Page,
    browser: &'a Rc<Browser>,
    sources: Sources<'a>,
}

impl View<'_> {
    /// Counts it; gives what the visit has ended with until now and does no longer.
    fn count(self, viewed: Viewed, piece: &mut Piece) -> Option<Before> {
        let figures = piece.minute(self.local.minute());
        figures.views = figures.views.saturating_add(self.record.stands_for.into());
        match &viewed {
            Viewed::First => {
                figures.visits = figures.visits.saturating_add(1);
                figures.bounces += 1;
            }
            Viewed::Further(before) => {
                figures.visit_s = figures.visit_s.saturating_add(before.since_s);
                figures.bounces -= i64::from(before.was_first_page);
            }
            Viewed::Late => {}
        }
        piece.step(self.visitor, self.local.second, &self.page.text);
        let search = self.sources.search;
        name(piece, ListOf::Searches, self.record.search, search);
        match viewed {
            Viewed::First => {
                self.begins(piece);
                None
            }
            Viewed::Late => None,
            Viewed::Further(before) => {
                let (from, to) = (&before.page, &self.page);
                let is_same = from.text == to.text;
                if is_same && before.day == self.local.day {
                    return None;
                }
                name(piece, ListOf::Exits, to.hash, Some(&to.text));
                if !is_same {
                    let pair = || format!("{} → {}", from.text, to.text).into();
                    let hash = from.hash.rotate_left(29) ^ to.hash;
                    piece.add(ListOf::NextPages, hash, &Tally::times(1), pair);
                }
                Some(before)
            }
        }
    }

    /// Counts what is counted once a visit.
    fn begins(&self, piece: &mut Piece) {
        let record = self.record;
        let page = Some(&self.page.text);
        for (of, hash, text) in [
            (ListOf::Entries, record.path, page),
            (ListOf::Exits, record.path, page),
            (ListOf::Browsers, record.agent, Some(&self.browser.name)),
            (ListOf::Systems, record.agent, Some(&self.browser.system)),
            (ListOf::Devices, record.agent, Some(&self.browser.device)),
            (ListOf::ReferringPages, record.referrer, self.sources.page),
            (ListOf::Campaigns, record.campaign, self.sources.campaign),
        ] {
            name(piece, of, hash, text);
        }
        let one = Tally::times(1);
        match self.sources.group {
            ViewOrigin::Own => piece.add(ListOf::Referrers, 1, &one, || "(own pages)".into()),
            ViewOrigin::Untold => piece.add(ListOf::Referrers, 0, &one, || "(none)".into()),
            ViewOrigin::Group(group) => {
                name(piece, ListOf::Referrers, record.referrer, Some(group))
            }
        }
        if record.country.iter().all(u8::is_ascii_uppercase) {
            let hash = u16::from_be_bytes(record.country).into();
            let country = || String::from_utf8_lossy(&record.country).into();
            piece.add(ListOf::Countries, hash, &one, country);
        }
    }
}

/// Counts a name once, where there is one.
fn name(piece: &mut Piece, of: ListOf, hash: u64, text: Option<&Rc<str>>) {
    if let Some(text) = text {
        piece.add(of, hash, &Tally::times(1), || Rc::clone(text));
    }
}

/// Where a view came from, and by what.
struct Sources<'a> {
    group: ViewOrigin<'a>,
    page: Option<&'a Rc<str>>,
    campaign: Option<&'a Rc<str>>,
    search: Option<&'a Rc<str>>,
}

enum ViewOrigin<'a> {
    /// Another page of the site.
    Own,
    Untold,
    Group(&'a Rc<str>),
}

impl<'a> Sources<'a> {
    fn of(names: &'a Names, record: &RingRecord, site: &str) -> Sources<'a> {
        let text = |hash: u64| names.get(hash).map(|name| &name.text);
        let referrer = names.get(record.referrer).map(|name| &name.meaning);
        let (group, page) = match referrer {
            Some(Meaning::Referrer(referrer)) if *referrer.host == *bare_host(site) => {
                (ViewOrigin::Own, None)
            }
            Some(Meaning::Referrer(referrer)) => {
                (ViewOrigin::Group(&referrer.group), Some(&referrer.page))
            }
            _ => (ViewOrigin::Untold, None),
        };
        Sources {
            group,
            page,
            campaign: text(record.campaign),
            search: text(record.search),
        }
    }
}

/// A request with what is known of it.
struct KnownRequest<'a> {
    record: &'a RingRecord,
    local: Local,
    path: Option<&'a Name>,
    tally: Tally,
}

impl KnownRequest<'_> {
    fn is_view(&self) -> bool {
        let is_page = matches!(self.path.map(|it| &it.meaning), Some(Meaning::Page));
        is_page && self.record.is_look && matches!(self.record.status, 200..=299 | 304)
    }

    /// Adds to the figures of its minute.
    fn count(&self, is_bot: bool, piece: &mut Piece) {
        let record = self.record;
        let times = u64::from(record.stands_for);
        let figures = piece.minute(self.local.minute());
        figures.requests = figures.requests.saturating_add(times);
        figures.bytes = figures.bytes.saturating_add(bytes(record));
        if is_bot {
            figures.bots = figures.bots.saturating_add(times);
        }
        if record.is_after_handshake {
            figures.handshakes = figures.handshakes.saturating_add(times);
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

    /// Adds to the lists of what answered, and why not.
    fn list_load(&self, names: &Names, piece: &mut Piece) {
        let record = self.record;
        let took = |us: u32| Tally {
            us: if us == UNKNOWN_US { 0 } else { us.into() },
            timed: u64::from(us != UNKNOWN_US),
            ..self.tally
        };
        let (of_upstream, of_program) = (took(record.upstream_us), took(record.program_us));
        let program = match record.program_us {
            UNKNOWN_US => 0,
            _ => record.rule,
        };
        for (of, hash, tally) in [
            (ListOf::Rules, record.rule, &self.tally),
            (ListOf::BackEnds, record.upstream, &of_upstream),
            (ListOf::Reasons, record.reason, &self.tally),
            (ListOf::Programs, program, &of_program),
        ] {
            if let Some(name) = names.get(hash) {
                piece.add(of, hash, tally, || Rc::clone(&name.text));
            }
        }
    }

    /// Adds to the lists that count requests.
    fn list(&self, is_bot: bool, piece: &mut Piece) {
        let status = self.record.status;
        let tally = &self.tally;
        piece.add(ListOf::Statuses, status.into(), tally, || {
            code(status).into()
        });
        let path = || match self.path {
            Some(name) => Rc::clone(&name.text),
            None => "(unknown)".into(),
        };
        let of = match status {
            404 | 410 => ListOf::Missing,
            500.. => {
                let hash = self.record.path ^ u64::from(status).rotate_left(48);
                let name = || format!("{} {}", code(status), path()).into();
                return piece.add(ListOf::Errors, hash, tally, name);
            }
            _ if is_bot => return,
            _ if self.is_view() => ListOf::Pages,
            200..=399 => ListOf::Files,
            _ => return,
        };
        piece.add(of, self.record.path, tally, path);
    }
}

/// Three digits.
fn code(status: u16) -> String {
    format!("{:03}", status % 1_000)
}

fn tally(record: &RingRecord) -> Tally {
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
fn bytes(record: &RingRecord) -> u64 {
    record.bytes_out.saturating_mul(record.stands_for.into())
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
