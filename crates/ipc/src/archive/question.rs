//! What the console asks of the archive: what one machine, or all of them, came to over some time.
//!
//! The idea: a question says what a page needs and how finely, the database adds it up, and the answer is rows as they
//! are sent: what draws a machine's own figures draws them. All in it has a bound, which who reads holds it to: rows may
//! be another machine's, and that one broken.
//!
//! Left out: which page needs what (`recorder`), and the statements (`directory`).

use serde::{Deserialize, Serialize};

use super::{ArchivedIncident, ArchivedSample, ArchivedSite};
use crate::codec;
use crate::directory::REASON_BYTES_MAX;

/// Days for which minutes and incidents are there.
pub const ARCHIVE_DAYS: i32 = 31;
/// Machines that are told of, and the bytes of a machine's name.
pub const MACHINES_MAX: usize = 1_000;
/// See [`MACHINES_MAX`].
pub const MACHINE_BYTES_MAX: usize = 255;
/// Rows of figures over time, two long days of all charts by the minute, and of sites, in an answer; of more those of
/// the busiest.
pub const SAMPLES_MAX: usize = 72_000;
/// See [`SAMPLES_MAX`].
pub const SITES_MAX: usize = 30_000;
/// Bytes of durations in an answer, at most; of more there are none.
pub const DURATIONS_BYTES_MAX: usize = 8 << 20;
/// Incidents in an answer, the last there were, and their bytes.
pub const INCIDENTS_MAX: usize = 3_000;
/// See [`INCIDENTS_MAX`].
pub const INCIDENTS_BYTES_MAX: usize = 2 << 20;
/// Names of figures that are looked at; of more the first.
pub const NAMES_MAX: usize = 20_000;
/// Parts of time that sites are told by.
pub const PARTS_MAX: usize = 1_000;
/// Bytes of an answer, about: somewhat less than a message may have.
const FOUND_BYTES_MAX: usize = 15 << 20;
/// Bytes of a row beside its texts, at most.
const SAMPLE_BYTES: usize = 48;
const SITE_BYTES: usize = 180;
/// Texts in a question, and the bytes of each: the sites of whoever may ask for a page, three times.
const TEXTS_MAX: usize = 100_000;
const TEXT_BYTES_MAX: usize = 1_024;

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveQuestion {
    /// Its number; it grows.
    pub id: u64,
    /// Whose figures; `None`: all machines' together.
    pub machine: Option<String>,
    /// From this second.
    pub from_s: i64,
    /// To before this one.
    pub to_s: i64,
    /// Which figures over time, if any.
    pub samples: Option<SamplesWanted>,
    /// What sites came to, if that.
    pub sites: Option<SitesWanted>,
    /// What of what went wrong, if that.
    pub incidents: Option<IncidentsWanted>,
}

/// Which figures over time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplesWanted {
    /// Those that begin like one of these; all where there is none.
    pub begin: Vec<String>,
    /// Those of whom this is all but what is measured, such as `tenant.example` and `limit.site www.example`; of
    /// everybody's where this is `None`.
    pub of: Option<Vec<String>>,
    /// And like none of these.
    pub unlike: Vec<String>,
    /// And have this in them, in small letters.
    pub filter: String,
    /// Of so many of them, in the order of their names, there are sums.
    pub summed_max: u32,
    /// Each part of time, in seconds: they begin at its multiples, as on a machine's own disk.
    pub step_s: u32,
}

/// What sites came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SitesWanted {
    /// Which; all where this is `None`.
    pub names: Option<Vec<String>>,
    /// Those that have this in them, in small letters.
    pub filter: String,
    /// When parts of time begin, in order; the last is when the last one ends.
    pub edges: Vec<i64>,
}

/// What of what went wrong; of that there is the last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentsWanted {
    /// What concerns one of these; everybody where this is `None`.
    pub owners: Option<Vec<String>>,
    /// What is called so; everything where this is `None`.
    pub what: Option<String>,
    /// And has this in it, in small letters.
    pub filter: String,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchiveAnswer {
    /// The question's number.
    pub id: u64,
    /// What there is.
    pub said: ArchiveRead,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ArchiveRead {
    /// This is there.
    Found(Box<ArchiveFound>),
    /// It is more than one page may have.
    TooMuch,
    /// It took too long.
    Late,
    /// The database cannot be reached for now. At most [`REASON_BYTES_MAX`].
    Down(String),
    /// The database refuses this question. At most [`REASON_BYTES_MAX`].
    Failed(String),
}

/// What there is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArchiveFound {
    /// What the machine is called that is asked.
    pub own: String,
    /// The machines that ever sent, in order.
    pub machines: Vec<ArchivedMachine>,
    /// Names of all figures that were asked for.
    pub names: Vec<String>,
    /// Figures over time, each at the beginning of its part.
    pub samples: Vec<ArchivedSample>,
    /// Sites; a row's time is the number of its part, from 0. Durations are those of minutes, one after the other,
    /// each behind its length, of four bytes.
    pub sites: Vec<ArchivedSite>,
    /// What went wrong, the last first: the machine, and what.
    pub incidents: Vec<(String, ArchivedIncident)>,
    /// What there is more of.
    pub cut: ArchiveCut,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedMachine {
    /// Its name.
    pub name: String,
    /// When it last sent something, seconds after 1970.
    pub heard_s: i64,
}

/// What is left out of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveCut {
    /// Names of figures, but the first.
    pub names: bool,
    /// Figures, but those that came to most.
    pub samples: bool,
    /// Sites, but those that were asked most.
    pub sites: bool,
    /// Durations of sites: there are too many.
    pub durations: bool,
    /// Incidents, the oldest.
    pub incidents: bool,
}

impl ArchiveQuestion {
    /// Whether it is one that may be asked.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let machine = self.machine.iter().map(String::len);
        let samples = self.samples.iter();
        let steps = samples.clone().map(|it| i64::from(it.step_s));
        let of = samples.clone().flat_map(|it| &it.of).flatten();
        let begin = samples.flat_map(|it| it.begin.iter().chain(&it.unlike).chain([&it.filter]));
        let names = self.sites.iter().flat_map(|it| &it.names).flatten();
        let filters = self.sites.iter().map(|it| &it.filter);
        let incidents = self.incidents.iter();
        let incidents = incidents.flat_map(|it| {
            it.owners
                .iter()
                .flatten()
                .chain(&it.what)
                .chain([&it.filter])
        });
        let texts = of.chain(begin).chain(names).chain(filters).chain(incidents);
        let mut texts = texts.map(String::len);
        let mut edges = self.sites.iter().map(|it| &it.edges);
        let is_sorted = |edges: &Vec<i64>| {
            (2..=PARTS_MAX + 1).contains(&edges.len()) && edges.is_sorted_by(|one, two| one < two)
        };
        machine.sum::<usize>() <= MACHINE_BYTES_MAX
            && self.from_s >= 0
            && self.to_s >= self.from_s
            && steps.min().is_none_or(|step| step > 0)
            && texts.clone().count() <= TEXTS_MAX
            && texts.all(|bytes| bytes <= TEXT_BYTES_MAX)
            && edges.all(is_sorted)
    }
}

impl ArchiveRead {
    /// As much as there may be of it; more than that is [`TooMuch`](ArchiveRead::TooMuch).
    #[must_use]
    pub fn bounded(mut self) -> ArchiveRead {
        match &mut self {
            ArchiveRead::Found(found) if !found.fits() => return ArchiveRead::TooMuch,
            ArchiveRead::Failed(why) | ArchiveRead::Down(why) => {
                codec::cut(why, REASON_BYTES_MAX);
            }
            ArchiveRead::Found(_) | ArchiveRead::TooMuch | ArchiveRead::Late => {}
        }
        self
    }
}

impl ArchiveFound {
    /// Bytes of durations that may come to what else there is.
    #[must_use]
    pub fn durations_bytes_max(&self) -> usize {
        DURATIONS_BYTES_MAX.min(FOUND_BYTES_MAX.saturating_sub(self.bytes()))
    }

    /// Bytes of its rows, about.
    fn bytes(&self) -> usize {
        let samples = self.samples.iter().map(|it| it.name.len() + SAMPLE_BYTES);
        let sites = self.sites.iter();
        let sites = sites.map(|it| it.site.len() + it.durations.len() + SITE_BYTES);
        let names = self.names.iter().map(|it| it.len() + SAMPLE_BYTES);
        let incidents = self.incidents.iter();
        let incidents =
            incidents.map(|(machine, it)| machine.len() + it.what.len() + it.content.len());
        samples.chain(sites).chain(names).chain(incidents).sum()
    }

    /// Whether it has no more than it may have.
    fn fits(&self) -> bool {
        let machines = self.machines.iter().map(|it| &it.name).chain([&self.own]);
        let longest = machines.map(String::len).max();
        self.names.len() <= NAMES_MAX
            && self.samples.len() <= SAMPLES_MAX
            && self.sites.len() <= SITES_MAX
            && self.incidents.len() <= INCIDENTS_MAX
            && self.machines.len() <= MACHINES_MAX
            && longest.is_none_or(|it| it <= MACHINE_BYTES_MAX)
            && self.bytes() <= FOUND_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::super::SITE_NUMBERS;
    use super::*;

    fn question() -> ArchiveQuestion {
        ArchiveQuestion {
            id: 1,
            machine: Some("web2".into()),
            from_s: 0,
            to_s: 7_200,
            samples: Some(SamplesWanted {
                begin: vec!["tenant.".into()],
                step_s: 60,
                ..SamplesWanted::default()
            }),
            sites: Some(SitesWanted {
                names: Some(vec!["a.example".into()]),
                edges: vec![0, 3_600, 7_200],
                ..SitesWanted::default()
            }),
            incidents: Some(IncidentsWanted::default()),
        }
    }

    fn found() -> ArchiveFound {
        ArchiveFound {
            own: "web1".into(),
            machines: vec![ArchivedMachine::default()],
            names: vec!["load1".into()],
            samples: vec![ArchivedSample {
                name: "load1".into(),
                at_s: 60,
                sums: [1.0; 4],
            }],
            sites: vec![ArchivedSite {
                site: "a.example".into(),
                at_s: 0,
                numbers: [1; SITE_NUMBERS],
                durations: vec![0; 4],
            }],
            incidents: Vec::new(),
            cut: ArchiveCut::default(),
        }
    }

    #[test]
    fn a_question_beyond_its_bounds_is_none() {
        assert!(question().is_bounded() && ArchiveQuestion::default().is_bounded());
        let wrong: [fn(&mut ArchiveQuestion); 11] = [
            |it| it.machine = Some("x".repeat(MACHINE_BYTES_MAX + 1)),
            |it| it.from_s = -1,
            |it| it.to_s = -1,
            |it| it.samples.as_mut().unwrap().step_s = 0,
            |it| it.samples.as_mut().unwrap().filter = "x".repeat(TEXT_BYTES_MAX + 1),
            |it| it.samples.as_mut().unwrap().of = Some(vec!["x".repeat(TEXT_BYTES_MAX + 1)]),
            |it| it.incidents.as_mut().unwrap().owners = Some(vec![String::new(); TEXTS_MAX]),
            |it| it.sites.as_mut().unwrap().names = Some(vec![String::new(); TEXTS_MAX]),
            |it| it.sites.as_mut().unwrap().edges = vec![0],
            |it| it.sites.as_mut().unwrap().edges = vec![0, 0],
            |it| it.sites.as_mut().unwrap().edges = (0..=PARTS_MAX as i64 + 1).collect(),
        ];
        for (number, change) in wrong.into_iter().enumerate() {
            let mut question = question();
            change(&mut question);
            assert!(!question.is_bounded(), "{number}");
        }
    }

    #[test]
    fn an_answer_beyond_its_bounds_is_too_much() {
        let said = |found: ArchiveFound| ArchiveRead::Found(found.into()).bounded();
        assert_eq!(said(found()), ArchiveRead::Found(found().into()));
        let wrong: [fn(&mut ArchiveFound); 5] = [
            |it| it.own = "x".repeat(MACHINE_BYTES_MAX + 1),
            |it| it.machines = vec![ArchivedMachine::default(); MACHINES_MAX + 1],
            |it| it.samples = vec![it.samples[0].clone(); SAMPLES_MAX + 1],
            |it| it.sites[0].durations = vec![0; FOUND_BYTES_MAX],
            |it| it.sites[0].site = "x".repeat(FOUND_BYTES_MAX),
        ];
        for (number, change) in wrong.into_iter().enumerate() {
            let mut found = found();
            change(&mut found);
            assert_eq!(said(found), ArchiveRead::TooMuch, "{number}");
        }
        // As many durations as there is room for.
        let mut full = found();
        full.names = vec!["x".repeat(300); NAMES_MAX];
        full.samples = vec![full.samples[0].clone(); SAMPLES_MAX];
        full.sites[0].durations = Vec::new();
        let room = full.durations_bytes_max();
        assert!((1..DURATIONS_BYTES_MAX).contains(&room), "{room}");
        full.sites[0].durations = vec![0; room];
        assert!(full.fits() && full.durations_bytes_max() == 0);
        let down = ArchiveRead::Down("x".repeat(2 * REASON_BYTES_MAX)).bounded();
        assert_eq!(down, ArchiveRead::Down("x".repeat(REASON_BYTES_MAX)));
    }

    #[test]
    fn mangled_questions_and_answers_are_refused_or_something_else() {
        crate::codec::tests::mangled(&codec::encode(&question()).unwrap(), |bytes| {
            let _ = codec::decode::<ArchiveQuestion>(bytes, Vec::new()).map(|it| it.is_bounded());
        });
        let answer = ArchiveAnswer {
            id: 1,
            said: ArchiveRead::Found(found().into()),
        };
        crate::codec::tests::mangled(&codec::encode(&answer).unwrap(), |bytes| {
            let _ = codec::decode::<ArchiveAnswer>(bytes, Vec::new()).map(|it| it.said.bounded());
        });
    }
}
