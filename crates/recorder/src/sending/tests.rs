//! What is sent, to an archive that a test plays.

use std::collections::BTreeMap;

use ipc::archive::{ArchivedIncident, ArchivedSample, ArchivedSite};
use ipc::console::Incident;
use testkit::TempDir;

use super::*;
use crate::day::{Figures, PartsWanted};
use crate::durations::Durations;
use crate::history::{Sample, Sums};
use crate::piece::Piece;
use crate::store::KeptIncident;

/// What a database would have.
#[derive(Debug, Default)]
struct PlayedArchive {
    samples: BTreeMap<(String, i64), ArchivedSample>,
    sites: BTreeMap<(String, i64), ArchivedSite>,
    incidents: BTreeMap<(i64, i16, String), ArchivedIncident>,
    batches: usize,
}

impl PlayedArchive {
    fn take(&mut self, rows: ArchiveRows) {
        self.batches += 1;
        let samples = rows.samples.into_iter();
        self.samples
            .extend(samples.map(|it| ((it.name.clone(), it.at_s), it)));
        let sites = rows.sites.into_iter();
        self.sites
            .extend(sites.map(|it| ((it.site.clone(), it.at_s), it)));
        let incidents = rows.incidents.into_iter();
        self.incidents
            .extend(incidents.map(|it| ((it.at_s, it.kind, it.what.clone()), it)));
    }

    fn requests(&self) -> i64 {
        self.sites.values().map(|it| it.numbers[0]).sum()
    }
}

/// The directory process, played.
struct PlayedDirectory {
    link: OwnedFd,
    end: ArchiveEnd<ToArchive>,
}

impl PlayedDirectory {
    fn of(sending: &Sending) -> PlayedDirectory {
        let (link, theirs) = os::fdpass::packet_pair().expect("a link");
        sending.use_link(theirs);
        let end = ArchiveEnd::default();
        PlayedDirectory { link, end }
    }

    /// The next batch.
    fn hear(&mut self) -> ToArchive {
        soon("a batch comes", || {
            self.end.receive(self.link.as_fd()).expect("a batch")
        })
    }

    fn say(&mut self, id: u64, said: ArchiveSaid) {
        self.end.put(&FromArchive { id, said }).expect("room");
        assert!(self.end.send(self.link.as_fd()).expect("it hears"));
    }

    /// Answers what comes until all is there that is wanted.
    fn serve(&mut self, kept: &mut PlayedArchive, is_all: impl Fn(&PlayedArchive) -> bool) {
        while !is_all(kept) {
            let heard = self.hear();
            kept.take(heard.rows);
            self.say(heard.id, ArchiveSaid::Written);
        }
    }
}

/// What there is at last.
fn soon<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    testkit::eventually(Duration::from_secs(60), what, probe)
}

fn now_s() -> i64 {
    Timestamp::now().as_second()
}

/// A database whose minutes are sent, with days of UTC.
fn store(directory: &TempDir) -> FigureStore {
    let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
    store.mark_unsent().expect("a table");
    store.set_setting("zone", "UTC").expect("a setting");
    store
}

fn sample(name: &str, at_s: i64, value: f64) -> Sample {
    Sample {
        name: name.into(),
        at_s,
        sums: Sums::of(value),
    }
}

/// Writes requests of a minute that took so long.
fn request(store: &mut FigureStore, at_s: i64, durations_us: &[u64]) {
    let (day, minute) = (at_s.div_euclid(86_400), at_s.rem_euclid(86_400) / 60);
    let day = i32::try_from(day).expect("a day");
    let mut piece = Piece::default();
    let figures = piece.minute(u16::try_from(minute).expect("a minute"));
    figures.requests = durations_us.len() as u64;
    figures.statuses[1] = figures.requests;
    durations_us
        .iter()
        .for_each(|us| figures.durations.add(*us, 1));
    let pieces = [("a.example", day, &piece)];
    store.write(pieces.into_iter(), None, day).expect("written");
}

fn waiting(store: &FigureStore) -> u64 {
    store.unsent().expect("read").waiting
}

#[test]
fn minutes_are_sent_once_they_are_over_and_again_as_a_whole_when_they_have_changed() {
    let directory = TempDir::new();
    let mut store = store(&directory);
    let minute_s = now_s() - 600 - now_s().rem_euclid(60);
    store
        .write_samples(&[
            sample("load1", minute_s, 1.0),
            sample("load1", now_s() + 3_600, 9.0),
        ])
        .expect("written");
    request(&mut store, minute_s, &[1_000, 1_000, 1_000]);
    let incident = |times| {
        let incident = Incident {
            at_s: minute_s,
            what: "tenant a/few".into(),
            times,
            ..Incident::default()
        };
        KeptIncident::new(incident, Vec::new())
    };
    store
        .write_incidents(&[incident(1), incident(2)])
        .expect("written");
    let sending = Sending::start(directory.path().to_owned(), Arc::default()).expect("a thread");
    let mut played = PlayedDirectory::of(&sending);
    let mut kept = PlayedArchive::default();
    let is_all =
        |kept: &PlayedArchive| kept.samples.len() + kept.sites.len() + kept.incidents.len() == 3;
    played.serve(&mut kept, is_all);
    soon("marks go", || (waiting(&store) == 1).then_some(()));
    assert_eq!(kept.batches, 1, "{kept:?}");
    assert_eq!(kept.incidents.values().next().map(|it| it.times), Some(3));
    // What comes late.
    store
        .write_samples(&[sample("load1", minute_s, 3.0)])
        .expect("written");
    request(&mut store, minute_s, &[9_000_000]);
    played.serve(&mut kept, |kept| {
        kept.requests() == 4 && {
            let sample = kept.samples.values().next();
            sample.is_some_and(|it| it.sums == [2.0, 4.0, 1.0, 3.0])
        }
    });
    let of_site = kept.sites.values().next().expect("a site");
    let sent: Durations = postcard::from_bytes(&of_site.durations).expect("durations");
    let mut of_disk = Figures::default();
    let day = i32::try_from(minute_s.div_euclid(86_400)).expect("a day");
    let read = store.each_day("a.example", (day, day), PartsWanted::MINUTES, |_, day| {
        day.minutes.values().for_each(|it| of_disk.merge(it));
    });
    read.expect("read");
    assert_eq!(sent, of_disk.durations);
    assert_eq!(sent.quantile_us(0.99), of_disk.durations.quantile_us(0.99));
    soon("all but what is not over is sent", || {
        (sending.state().standing == GOES && waiting(&store) == 1).then_some(())
    });
}

#[test]
fn what_is_not_answered_is_sent_again_over_the_next_link_and_by_the_next_recorder() {
    let directory = TempDir::new();
    let mut store = store(&directory);
    let minute_s = now_s() - 600 - now_s().rem_euclid(60);
    request(&mut store, minute_s, &[1_000]);
    let shown = Arc::<Heard>::default();
    let start = || Sending::start(directory.path().to_owned(), Arc::clone(&shown));
    let sending = start().expect("a thread");
    let mut first = PlayedDirectory::of(&sending);
    first.hear();
    drop(first);
    let mut second = PlayedDirectory::of(&sending);
    let heard = second.hear();
    second.say(heard.id, ArchiveSaid::Down("it is away".into()));
    soon("it stands still", || {
        let is_shown = shown.unsent() == "it is away";
        (is_shown && sending.state().standing == STANDS_STILL).then_some(())
    });
    drop(sending);
    assert_eq!((waiting(&store), shown.unsent()), (1, String::new()));
    let sending = start().expect("a thread");
    let mut kept = PlayedArchive::default();
    PlayedDirectory::of(&sending).serve(&mut kept, |kept| kept.requests() == 1);
    soon("the mark goes", || {
        (waiting(&store) == 0 && shown.unsent().is_empty()).then_some(())
    });
}

#[test]
fn a_row_that_is_refused_is_lost_alone_and_a_large_minute_comes_in_batches() {
    let directory = TempDir::new();
    let mut store = store(&directory);
    let minute_s = now_s() - 600 - now_s().rem_euclid(60);
    let all: Vec<_> = (0..2_500)
        .map(|number| sample(&format!("tenant.{number}.cpu"), minute_s, 1.0))
        .collect();
    store.write_samples(&all).expect("written");
    let sending = Sending::start(directory.path().to_owned(), Arc::default()).expect("a thread");
    let mut played = PlayedDirectory::of(&sending);
    let mut kept = PlayedArchive::default();
    while kept.samples.len() < all.len() - 1 {
        let heard = played.hear();
        let is_bad = |it: &ArchivedSample| it.name == "tenant.1234.cpu";
        let said = match heard.rows.samples.iter().any(is_bad) {
            true => ArchiveSaid::Refused("no".into()),
            false => {
                kept.take(heard.rows);
                ArchiveSaid::Written
            }
        };
        played.say(heard.id, said);
    }
    // The bad one may come last.
    soon("all is done", || {
        if let Some(heard) = played.end.receive(played.link.as_fd()).expect("a batch") {
            played.say(heard.id, ArchiveSaid::Refused("no".into()));
        }
        (waiting(&store) == 0 && sending.state().lost == 1).then_some(())
    });
}

#[test]
fn a_batch_that_takes_too_long_comes_by_halves_and_the_next_are_no_larger() {
    let directory = TempDir::new();
    let mut store = store(&directory);
    let minute_s = now_s() - 600 - now_s().rem_euclid(60);
    let all: Vec<_> = (0..2_500)
        .map(|number| sample(&format!("tenant.{number}.cpu"), minute_s, 1.0))
        .collect();
    store.write_samples(&all).expect("written");
    let sending = Sending::start(directory.path().to_owned(), Arc::default()).expect("a thread");
    assert_eq!(sending.state().standing, UNTRIED);
    let mut played = PlayedDirectory::of(&sending);
    let mut kept = PlayedArchive::default();
    let mut sizes = Vec::new();
    while kept.samples.len() < all.len() {
        let heard = played.hear();
        sizes.push(heard.rows.len());
        let said = match heard.rows.len() > 600 {
            true => ArchiveSaid::Late("it does not answer in time".into()),
            false => {
                kept.take(heard.rows);
                ArchiveSaid::Written
            }
        };
        played.say(heard.id, said);
    }
    assert_eq!(sizes, [2_000, 1_000, 500, 500, 1_000, 500, 500, 500]);
    soon("the mark goes", || {
        (waiting(&store) == 0 && sending.state().standing == GOES).then_some(())
    });
    assert_eq!(sending.state().lost, 0);
}

#[test]
fn minutes_that_are_not_there_as_a_whole_any_more_are_not_sent() {
    let directory = TempDir::new();
    let mut store = store(&directory);
    let old_s = now_s() - 14 * 86_400;
    store
        .write_samples(&[sample("load1", old_s, 1.0)])
        .expect("written");
    request(&mut store, old_s, &[1]);
    assert_eq!(waiting(&store), 0, "nothing waits, so nothing is lost");
    store
        .write_samples(&[sample("load1", now_s() - 600, 1.0)])
        .expect("written");
    let taken = |now_s: i64| {
        let (utc_s, local_s) = (now_s, now_s);
        let over = OverUntil { utc_s, local_s };
        let (marks, _) = store.take_unsent(over, &TimeZone::UTC).expect("read");
        marks.len()
    };
    assert_eq!((taken(now_s()), taken(now_s() + 14 * 86_400)), (1, 0));
}

#[test]
fn of_too_much_that_waits_the_oldest_is_lost_and_counted() {
    let directory = TempDir::new();
    let mut store = store(&directory);
    let minute_s = now_s() - now_s().rem_euclid(60) - 6_000;
    let all: Vec<_> = (0..50)
        .map(|number| sample("load1", minute_s + 60 * number, 1.0))
        .collect();
    store.write_samples(&all).expect("written");
    assert_eq!(store.thin_unsent(now_s(), 40).expect("thinned"), 10);
    let unsent = store.unsent().expect("read");
    let first_s = minute_s + 600;
    assert_eq!((unsent.waiting, unsent.oldest_s), (40, Some(first_s)));
    let later_s = minute_s + 15 * 86_400;
    assert_eq!(store.thin_unsent(later_s, 40).expect("thinned"), 40);
}

#[test]
fn where_nothing_is_sent_there_is_no_table_and_what_was_marked_is_forgotten() {
    let directory = TempDir::new();
    let mut marked = store(&directory);
    request(&mut marked, now_s(), &[1]);
    marked.set_aside(1).expect("set aside");
    request(&mut marked, now_s(), &[1]);
    assert_eq!(waiting(&marked), 1, "a new file marks on");
    marked.forget_unsent().expect("forgotten");
    request(&mut marked, now_s(), &[1]);
    assert!(marked.unsent().is_err());
    drop(marked);
    let mut again = store(&directory);
    assert_eq!(waiting(&again), 0);
    again.forget("a.example").expect("forgotten");
}
