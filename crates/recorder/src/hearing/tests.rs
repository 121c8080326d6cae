//! The threads at one end of a pair, and a test that is the server at the other.

use std::time::Instant;

use control::Snapshot;
use ipc::console::{
    ConsoleAnswer, ConsoleQuestion, ConsoleScope, FromConsole, Outgoing, RequestInFlight,
};
use testkit::TempDir;

use super::*;
use crate::store::FigureStore;

/// The server's end, and the threads at the other one.
struct Served {
    link: OwnedFd,
    incoming: Incoming<FromConsole>,
    outgoing: Outgoing,
    heard: Arc<Heard>,
    hearing: Hearing,
    directory: TempDir,
}

impl Served {
    fn new() -> Served {
        let directory = TempDir::new();
        FigureStore::open(directory.path(), 0).expect("it opens");
        let heard = Arc::<Heard>::default();
        let path = directory.path().to_owned();
        let hearing = Hearing::start(path, Arc::clone(&heard)).expect("a thread");
        let (link, there) = os::fdpass::packet_pair().expect("a pair");
        hearing.use_link(there);
        Served {
            link,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            heard,
            hearing,
            directory,
        }
    }

    fn say(&mut self, message: &ToConsole) {
        assert!(self.outgoing.put(message).expect("plain"));
        self.outgoing.send(self.link.as_fd()).expect("room");
    }

    fn ask(&mut self, id: u64, path: &str, query: &str) {
        self.say(&ToConsole::Question(ConsoleQuestion {
            id,
            scope: ConsoleScope::All,
            base: "/".into(),
            path: path.into(),
            query: query.into(),
            accept_language: "en".into(),
        }));
    }

    fn hear(&mut self) -> FromConsole {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(message) = self.incoming.receive(self.link.as_fd()).expect("a link") {
                return message;
            }
            assert!(Instant::now() < until, "nothing is said");
            let wait = Some(Duration::from_millis(50));
            os::net::wait_readable(&[self.link.as_fd()], wait).expect("a link");
        }
    }

    fn answer(&mut self) -> ConsoleAnswer {
        match self.hear() {
            FromConsole::Answer(answer) => answer,
            other => panic!("it says {other:?}"),
        }
    }

    /// Says what goes on: the version, to be told from others.
    fn show(&mut self, load: f64) {
        let mut snapshot = Snapshot::default();
        let load1 = control::Sensor {
            value: Some(load),
            ..control::Sensor::default()
        };
        snapshot.sensors.sensors = [("load1", load1)].into_iter().collect();
        self.say(&ToConsole::Live(control::json(&snapshot)));
    }
}

fn figures(at_s: i64, values: &[(String, f64)]) -> ToConsole {
    ToConsole::Figures {
        at_s,
        looks: 1.0,
        values: values.to_vec(),
    }
}

#[test]
fn figures_that_are_heard_are_followed_but_of_tenants_only_the_first() {
    let mut served = Served::new();
    let tenants = (0..TENANT_FIGURES_MAX + 5).map(|it| (format!("tenant.{it}.cpu"), 1.0));
    let mut values: Vec<_> = tenants.collect();
    values.push(("load1".into(), 2.5));
    served.say(&figures(60, &values));
    served.say(&figures(61, &[("load1".into(), 3.5)]));
    // Answers come after what was said before.
    served.ask(1, "history", "");
    assert_eq!(served.answer().status, 200);
    let seconds = served
        .heard
        .look(|history| history.seconds("load1").collect::<Vec<_>>());
    assert_eq!(seconds, [(60, 2.5), (61, 3.5)]);
    let fresh = served.heard.fresh(62);
    assert_eq!(fresh.len(), TENANT_FIGURES_MAX + 1);
    served.heard.keep(fresh);
    assert_eq!(served.heard.fresh(62).len(), TENANT_FIGURES_MAX + 1);
}

#[test]
fn all_who_look_at_now_cost_the_server_one_answer() {
    let mut served = Served::new();
    for id in 0..20 {
        served.ask(id, "machine", "");
    }
    assert_eq!(served.hear(), FromConsole::Look(String::new()));
    served.show(4.25);
    let answers: Vec<_> = (0..20).map(|_| served.answer()).collect();
    assert!(answers.iter().map(|it| it.id).eq(0..20));
    assert!(
        answers
            .iter()
            .all(|it| it.status == 200 && it.body.contains("4.25"))
    );
    // Pages of what was recorded wait for nobody.
    served.ask(20, "", "");
    assert_eq!(
        (served.answer().id, served.hearing.has_ended()),
        (20, false)
    );
}

#[test]
fn figures_are_heard_though_nobody_draws_the_pages_that_were_asked_for() {
    let (here, there) = os::fdpass::packet_pair().expect("a pair");
    let (heard, mailbox) = (Heard::default(), ConsoleMailbox::default());
    let mut link = ServerLink::new(there, &mailbox);
    let mut outgoing = Outgoing::default();
    let question = ToConsole::Question(ConsoleQuestion::default());
    for at_s in 0..2_000 {
        for message in [&question, &figures(at_s, &[("load1".into(), 1.0)])] {
            assert!(outgoing.put(message).expect("plain"));
        }
    }
    while !outgoing.is_empty() {
        outgoing.send(here.as_fd()).expect("a link");
        link.hear(&heard, &mailbox).expect("a link");
    }
    while heard
        .look(|history| history.mean("load1", 1_999, 1))
        .is_none()
    {
        link.hear(&heard, &mailbox).expect("a link");
    }
}

#[test]
fn a_server_that_says_nothing_of_now_is_waited_for_a_second() {
    let mut served = Served::new();
    served.ask(1, "now", "");
    assert_eq!(served.hear(), FromConsole::Look(String::new()));
    let answer = served.answer();
    assert!(
        answer.body.contains("The server is not heard"),
        "{}",
        answer.body
    );
    served.say(&ToConsole::Live("{".into()));
    served.ask(2, "now", "");
    assert_eq!(served.hear(), FromConsole::Look(String::new()));
    served.show(1.0);
    assert_eq!(served.answer().id, 2);
}

#[test]
fn a_server_that_makes_no_sense_is_left_and_the_next_one_heard() {
    let mut served = Served::new();
    os::fdpass::try_send(served.link.as_fd(), &[9], &[]).expect("room");
    let until = Instant::now() + Duration::from_secs(60);
    while served.incoming.receive(served.link.as_fd()).is_ok() {
        assert!(Instant::now() < until, "it is still heard");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (link, there) = os::fdpass::packet_pair().expect("a pair");
    served.hearing.use_link(there);
    served.link = link;
    served.ask(7, "", "");
    assert_eq!(served.answer().id, 7);
    // Figures that are not there are no reason to end.
    std::fs::remove_file(served.directory.path().join("figures.db")).expect("it was there");
    let (link, there) = os::fdpass::packet_pair().expect("a pair");
    served.hearing.use_link(there);
    served.link = link;
    served.ask(8, "", "");
    assert_eq!(served.answer().id, 8);
}

#[test]
fn an_incident_is_kept_with_the_minute_before_and_shown_once_it_is_on_disk() {
    let mut served = Served::new();
    let now_s = now_s();
    for (at_s, value) in [(now_s - 109, 9.0), (now_s - 59, 1.0), (now_s, 3.0)] {
        served.say(&figures(at_s, &[("load1".into(), value)]));
    }
    let held = HeldPlace {
        limit: "tenant other/tenant".into(),
        in_flight: 2,
        ..HeldPlace::default()
    };
    let request = RequestInFlight {
        path: "x".repeat(1_000),
        ..RequestInFlight::default()
    };
    served.say(&ToConsole::Incident(Incident {
        at_s: now_s,
        what: "tenant tea/tenant".into(),
        held: vec![held; HELD_MAX + 5],
        requests: vec![request; INCIDENT_REQUESTS_MAX + 5],
        ..Incident::default()
    }));
    served.ask(1, "", "");
    assert_eq!(served.answer().id, 1);
    let kept = served.heard.incidents();
    assert_eq!(kept.len(), 1);
    let held = &kept[0].incident.held;
    assert_eq!((held.len(), &*held[HELD_MAX].limit), (HELD_MAX + 1, ""));
    assert_eq!(held[HELD_MAX].in_flight, 2 * 5, "the others are one");
    let requests = &kept[0].incident.requests;
    assert_eq!(requests.len(), INCIDENT_REQUESTS_MAX);
    assert_eq!(requests[0].path.len(), 256);
    assert_eq!(kept[0].sensors, [("load1".to_owned(), [1.0, 2.0, 3.0])]);
    let mut store = FigureStore::open_existing(served.directory.path()).expect("it is there");
    store.write_incidents(&kept).expect("written");
    served.ask(2, "limits", "");
    assert_eq!(served.hear(), FromConsole::Look(String::new()));
    served.show(1.0);
    assert!(served.answer().body.contains("tenant tea/tenant"));
}

#[test]
fn keys_of_limits_beyond_those_of_a_day_count_for_one() {
    let heard = Heard::default();
    let key = |key: &str| LimitCount::Key(key).name("site a/paths");
    for number in 0..LIMIT_KEYS_MAX + 5 {
        heard.take(60, 1.0, &[(key(&number.to_string()), 2.0)]);
    }
    heard.take(61, 1.0, &[(key("0"), 1.0)]);
    let fresh = heard.fresh(70);
    assert_eq!(fresh.len(), LIMIT_KEYS_MAX + 1);
    let sum = |of: &str| {
        let name = key(of);
        let found = fresh.iter().find(|sample| *sample.name == *name);
        found.map(|sample| sample.sums.sum)
    };
    assert_eq!((sum(OTHER_KEYS), sum("0")), (Some(10.0), Some(3.0)));
    heard.take(86_400, 1.0, &[(key("new"), 1.0)]);
    let fresh = heard.fresh(86_401);
    assert!(fresh.iter().any(|sample| *sample.name == *key("new")));
}

#[test]
fn what_a_server_says_of_incidents_is_bounded_in_time_length_and_number() {
    let heard = Heard::default();
    let long = Incident {
        at_s: i64::MIN,
        what: "é".repeat(100_000),
        why: "x".repeat(100_000),
        ..Incident::default()
    };
    for _ in 0..MINUTE_INCIDENTS_MAX + 50 {
        heard.take_incident(long.clone(), 10_000);
    }
    let kept = heard.incidents();
    assert_eq!(kept.len(), MINUTE_INCIDENTS_MAX as usize);
    let Incident {
        at_s, what, why, ..
    } = &kept[0].incident;
    assert_eq!(*at_s, 10_000 - INCIDENT_AGE_S);
    assert!(what.len() <= 256 && why.len() <= 256 && !what.is_empty());
    heard.take_incident(long, 10_060);
    assert_eq!(heard.incidents().len(), 1);
}
