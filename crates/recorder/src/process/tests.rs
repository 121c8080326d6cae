//! The loop with times that are given to it, and a ring that a test writes.

use ipc::ring::{CURSOR_WORDS, RING_WORDS, RingWriter};
use testkit::TempDir;

use super::*;
use crate::day::PartsWanted;

/// A recorder with one worker.
struct Worked {
    recorder: Recorder,
    ring: RingWriter,
    directory: TempDir,
}

impl Worked {
    fn new() -> Worked {
        let directory = TempDir::new();
        let settings = RecorderSettings {
            directory: directory.path().to_owned(),
            salt: "day".into(),
            zone: Some("UTC".into()),
            groups: Vec::new(),
            nice: 0,
            alerts: Vec::new(),
            is_sent: false,
        };
        let mut recorder = Recorder::new(settings).expect("it begins");
        let ring = os::shared::memory("test ring", RING_WORDS).expect("memory");
        let cursor = os::shared::memory("test cursor", CURSOR_WORDS).expect("memory");
        let writer = RingWriter::new(ring.0.as_fd(), cursor.1.as_fd()).expect("a writer");
        recorder.use_rings(&[ring.1, cursor.0]);
        Worked {
            recorder,
            ring: writer,
            directory,
        }
    }

    /// A request comes at this time, and is read then.
    fn request(&mut self, at_us: i64) {
        push(&mut self.ring, at_us);
        self.recorder.look(at_us);
        self.recorder.write_when_due(at_us);
    }
}

fn push(ring: &mut RingWriter, at_us: i64) {
    ring.begin().expect("room");
    let site = ring.text(TextOf::Site, b"a.example");
    let path = ring.text(TextOf::Path, b"/");
    ring.push(&RingRecord {
        at_us,
        site,
        path,
        status: 200,
        ..RingRecord::default()
    });
}

fn counted(directory: &TempDir) -> u64 {
    let store = FigureStore::open_existing(directory.path()).expect("it is there");
    let (mut requests, days) = (0, (0, i32::MAX));
    let read = store.each_day("a.example", days, PartsWanted::TOTALS, |_, day| {
        requests += day.total.requests;
    });
    read.expect("it is read");
    requests
}

#[test]
fn a_clock_that_goes_back_loses_no_request_and_no_figure() {
    const HOUR_US: i64 = 3_600_000_000;
    let mut worked = Worked::new();
    let begun_us = now_us();
    for at_us in [begun_us, begun_us + 1_000_000, begun_us - HOUR_US] {
        worked.request(at_us);
        let at_s = at_us.div_euclid(1_000_000);
        let heard = &worked.recorder.heard;
        heard.note(at_s, "load1", 1.0, Detail::Seconds);
        worked.recorder.write(at_us);
    }
    assert_eq!(counted(&worked.directory), 3);
    worked.recorder.samples_s = 0;
    worked.recorder.write(begun_us - HOUR_US);
    let store = FigureStore::open_existing(worked.directory.path()).expect("it is there");
    let samples = store
        .samples("load1", Tier::Minute, 0, i64::MAX)
        .expect("read");
    assert_eq!(samples.iter().map(|(_, sums)| sums.count).sum::<f64>(), 3.0);
}

#[test]
fn what_busy_sites_are_asked_in_each_second_is_held_for_who_looks_at_the_last_hour() {
    let mut worked = Worked::new();
    let minute_us = Tier::Minute.begin(now_us().div_euclid(1_000_000)) * 1_000_000;
    // It is followed from where the first minute is over.
    for second in [0, 61, 122, 123, 124] {
        let at_us = minute_us + second * 1_000_000;
        push(&mut worked.ring, at_us);
        push(&mut worked.ring, at_us);
        worked.request(at_us);
        worked.recorder.write(at_us);
    }
    let held = worked.recorder.heard.seconds("site.a.example.requests");
    let values = held.iter().map(|(_, value)| *value);
    assert_eq!(values.collect::<Vec<_>>(), [3.0; 4]);
    worked.recorder.look(minute_us + 125_000_000);
    let held = worked.recorder.heard.seconds("site.a.example.requests");
    assert_eq!(held.last(), Some(&(minute_us / 1_000_000 + 124, 0.0)));
}

#[test]
fn a_request_from_before_the_clock_went_back_is_of_now() {
    const HOUR_US: i64 = 3_600_000_000;
    let mut worked = Worked::new();
    let begun_us = now_us();
    worked.request(begun_us);
    push(&mut worked.ring, begun_us + 1_000);
    worked.request(begun_us - HOUR_US);
    worked.recorder.write(begun_us - HOUR_US);
    assert_eq!(counted(&worked.directory), 3);
    assert_eq!(worked.recorder.broken, 0);
}

#[test]
fn what_was_folded_is_written_though_the_link_makes_no_sense() {
    let worked = Worked::new();
    let (mut ring, recorder) = (worked.ring, worked.recorder);
    push(&mut ring, now_us());
    let (here, there) = os::fdpass::pair().expect("a pair");
    os::fdpass::send(here.as_fd(), &[9], &[]).expect("room");
    let path = worked.directory.path().to_owned();
    let hearing = Hearing::start(path, Arc::clone(&recorder.heard)).expect("a thread");
    assert!(recorder.serve(&there, &hearing).is_err());
    assert_eq!(counted(&worked.directory), 1);
}

#[test]
fn an_alert_that_nobody_could_be_told_of_is_not_kept_as_told() {
    let mut worked = Worked::new();
    let rule = ipc::recorder::AlertRule {
        name: "load".into(),
        figure: "load1".into(),
        side: ipc::recorder::Side::Above,
        bound: 10.0,
        leave: 8.0,
        for_s: 0,
    };
    worked.recorder.watch = Watch::new(&[rule]);
    let kept = |directory: &TempDir| {
        let mut store = FigureStore::open_existing(directory.path()).expect("it is there");
        store.setting(ALERTS).expect("read").unwrap_or_default()
    };
    let at_us = now_us();
    let at_s = at_us.div_euclid(1_000_000);
    worked
        .recorder
        .heard
        .note(at_s, "load1", 20.0, Detail::Seconds);
    worked.recorder.look(at_us);
    worked.recorder.write(at_us);
    assert_eq!(kept(&worked.directory), "", "it is told first");
    let (supervisor, link) = os::fdpass::pair().expect("a pair");
    let other_end = supervisor.try_clone().expect("a descriptor");
    worked.recorder.tell_news(&link).expect("somebody listens");
    assert!(
        FromRecorder::try_recv(other_end.as_fd())
            .expect("a link")
            .is_some()
    );
    let told = kept(&worked.directory);
    assert!(told.contains("Raised"), "{told}");
    worked
        .recorder
        .heard
        .note(at_s + 1, "load1", -20.0, Detail::Seconds);
    worked.recorder.look(at_us + 1_000_000);
    drop((supervisor, other_end));
    assert!(worked.recorder.tell_news(&link).is_err());
    worked.recorder.write(at_us + 1_000_000);
    assert_eq!(
        kept(&worked.directory),
        told,
        "that it is over nobody heard"
    );
}

#[test]
fn incidents_of_a_broken_database_go_into_a_new_one_though_nothing_was_asked_for() {
    let mut worked = Worked::new();
    let recorder = &mut worked.recorder;
    recorder.write(now_us());
    let incident = ipc::console::Incident {
        at_s: now_us().div_euclid(1_000_000),
        ..ipc::console::Incident::default()
    };
    let incident = crate::store::KeptIncident::new(incident, Vec::new());
    recorder.heard.keep_incidents(vec![incident]);
    let files = recorder.files.as_mut().expect("they are open");
    files.store.break_incidents();
    recorder.write(now_us());
    let store = FigureStore::open_existing(worked.directory.path()).expect("it is there");
    assert_eq!(store.incidents(0, i64::MAX, 9).expect("read").len(), 1);
    let names = std::fs::read_dir(worked.directory.path()).expect("a directory");
    let names = names.map(|it| {
        it.expect("a name")
            .file_name()
            .into_string()
            .expect("plain")
    });
    assert!(names.into_iter().any(|it| it.contains(".broken-")));
}
