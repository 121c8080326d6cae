//! What is answered in which order, and what is kept.

use ipc::archive::ArchiveEnd;
use ipc::archive::question::{ArchiveAnswer, ArchiveFound, ArchiveQuestion, ArchiveRead};
use ipc::console::{ConsoleScope, TenantSites};
use testkit::TempDir;

use super::kept::KEPT_AGE_MAX;
use super::*;

/// One who answers over a link that ends here.
struct AskedRespondent {
    respondent: Respondent,
    mailbox: Arc<ConsoleMailbox>,
    _link: Arc<OwnedFd>,
    here: OwnedFd,
    _directory: TempDir,
}

impl AskedRespondent {
    fn new() -> AskedRespondent {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        store.mark_unsent().expect("written");
        let mailbox = Arc::<ConsoleMailbox>::default();
        let (heard, path) = (Arc::<Heard>::default(), directory.path().to_owned());
        let (here, there) = os::fdpass::packet_pair().expect("a pair");
        let link = Arc::new(there);
        mailbox.use_link(Arc::downgrade(&link));
        AskedRespondent {
            respondent: Respondent::new(path, heard, Arc::clone(&mailbox)),
            mailbox,
            _link: link,
            here,
            _directory: directory,
        }
    }

    /// Answers all that can be.
    fn answer_all(&mut self) {
        loop {
            assert!(self.respondent.take_news());
            self.respondent.turn().expect("a link");
            if self.respondent.next().is_none() {
                return;
            }
        }
    }

    /// For whom was looked or what else was told, and numbers of questions that were answered.
    fn said(&self) -> (Vec<String>, Vec<u64>) {
        let mut incoming = ipc::console::Incoming::<FromConsole>::default();
        let (mut looks, mut ids) = (Vec::new(), Vec::new());
        while let Some(message) = incoming.receive(self.here.as_fd()).expect("a link") {
            match message {
                FromConsole::Look(tenants) => looks.push(tenants),
                FromConsole::Answer(answer) => ids.push(answer.id),
                FromConsole::Unsent(why) => looks.push(why),
            }
        }
        (looks, ids)
    }
}

fn question(id: u64, path: &str, query: &str) -> ConsoleQuestion {
    ConsoleQuestion {
        id,
        scope: ConsoleScope::All,
        path: path.into(),
        query: query.into(),
        ..ConsoleQuestion::default()
    }
}

#[test]
fn the_server_is_told_once_why_nothing_can_be_sent() {
    let mut asked = AskedRespondent::new();
    for why in ["away", ""] {
        asked.respondent.heard.show_unsent(why);
        asked.answer_all();
        asked.answer_all();
        assert_eq!(asked.said().0, [why]);
    }
}

#[test]
fn where_no_figures_can_be_read_nobody_waits_for_those_of_all_machines() {
    let mut asked = AskedRespondent::new();
    std::fs::remove_file(asked._directory.path().join("figures.db")).expect("it is there");
    asked.mailbox.ask(question(1, "history", "machine=*"));
    asked.answer_all();
    assert_eq!(asked.said().1, [1]);
}

#[test]
fn an_event_is_drawn_once_for_all_who_see_the_same_and_anew_for_the_next_second() {
    let mut asked = AskedRespondent::new();
    let live = control::json(&Snapshot::default());
    for id in 0..50 {
        asked.mailbox.ask(question(id, "events", "page=now"));
    }
    asked.mailbox.ask(question(50, "events", "page=limits"));
    asked.mailbox.show(live.clone());
    asked.answer_all();
    assert_eq!(asked.respondent.kept.answers.len(), 2);
    asked.respondent.see(Instant::now(), &live);
    assert!(asked.respondent.kept.answers.is_empty());
}

#[test]
fn an_event_is_drawn_anew_after_a_second_though_the_server_says_nothing() {
    let mut asked = AskedRespondent::new();
    asked.mailbox.ask(question(1, "events", "page=now"));
    asked.mailbox.show(control::json(&Snapshot::default()));
    asked.answer_all();
    assert_eq!(asked.respondent.kept.answers.len(), 1);
    let long_ago = Instant::now().checked_sub(KEPT_AGE_MAX);
    asked.respondent.kept.since = long_ago.expect("this machine runs for longer");
    assert_eq!(
        asked
            .respondent
            .kept
            .get(&question(0, "events", "page=now")),
        None
    );
}

#[test]
fn people_of_other_languages_share_an_event_whose_address_says_its_own() {
    let mut asked = AskedRespondent::new();
    for (id, language) in ["en", "ja", ""].into_iter().enumerate() {
        asked.mailbox.ask(ConsoleQuestion {
            accept_language: language.into(),
            ..question(id as u64, "events", "page=now&lang=ja")
        });
    }
    asked.mailbox.show(control::json(&Snapshot::default()));
    asked.answer_all();
    assert_eq!(asked.respondent.kept.answers.len(), 1);
    assert_eq!(asked.said().1, [0, 1, 2]);
}

#[test]
fn who_asks_much_waits_behind_others_and_the_operator_comes_first() {
    let mut asked = AskedRespondent::new();
    let of = |id: u64, tenant: &str| ConsoleQuestion {
        scope: ConsoleScope::Tenants(vec![ipc::console::TenantSites {
            tenant: tenant.into(),
            // One whose hosts come and go is no other.
            sites: vec![format!("{id}.example")],
        }]),
        ..question(id, "", "")
    };
    for id in 0..4 {
        asked.mailbox.ask(of(id, "noisy"));
    }
    for id in 4..7 {
        asked.mailbox.ask(of(id, "other"));
    }
    asked.mailbox.ask(of(7, "quiet"));
    asked.mailbox.ask(question(8, "", ""));
    asked.answer_all();
    assert_eq!(asked.said().1, [8, 0, 4, 7, 1, 5, 2, 6, 3]);
}

#[test]
fn questions_that_are_too_long_or_too_much_together_do_not_wait() {
    let mut asked = AskedRespondent::new();
    let long = "x".repeat(ipc::console::QUESTION_BYTES_MAX);
    asked.mailbox.ask(question(0, "", &long));
    assert!(asked.respondent.take_news());
    assert!(asked.respondent.waiting.is_empty());
    let half = "x".repeat(ipc::console::QUESTION_BYTES_MAX / 2);
    for id in 0..100 {
        asked.mailbox.ask(question(id, "", &half));
    }
    assert!(asked.respondent.take_news());
    assert!((20..=32).contains(&asked.respondent.waiting.len()));
}

#[test]
fn a_tenants_page_is_drawn_of_a_look_that_has_its_rows() {
    let mut asked = AskedRespondent::new();
    let look = |looked_at: &[&str]| {
        control::json(&Snapshot {
            looked_at: looked_at.iter().map(|it| (*it).to_owned()).collect(),
            ..Snapshot::default()
        })
    };
    asked.mailbox.show(look(&[]));
    asked.answer_all();
    let of_shop = ConsoleQuestion {
        scope: ConsoleScope::Tenants(vec![TenantSites {
            tenant: "shop".into(),
            sites: Vec::new(),
        }]),
        ..question(1, "limits", "")
    };
    asked.mailbox.ask(of_shop);
    asked.mailbox.ask(question(2, "limits", ""));
    asked.answer_all();
    let (looks, answered) = asked.said();
    assert_eq!((looks, answered), (vec!["shop".to_owned()], vec![2]));
    asked.mailbox.show(look(&["shop"]));
    asked.answer_all();
    assert_eq!(asked.said().1, [1]);
    // It will ask again.
    assert_eq!(asked.respondent.looked_at(), "shop");
    assert_eq!(asked.respondent.looked_at(), "");
}

#[test]
fn what_nobody_waits_for_any_more_is_not_drawn() {
    let mut asked = AskedRespondent::new();
    assert!(asked.respondent.take_news());
    let long_ago = Instant::now().checked_sub(ANSWER_PATIENCE);
    let late = WaitingQuestion {
        came: long_ago.expect("this machine runs for longer"),
        ..WaitingQuestion::new(question(1, "", ""))
    };
    take_on(&mut asked.respondent.waiting, [late]);
    asked.mailbox.ask(question(2, "", ""));
    assert!(asked.respondent.take_news());
    assert_eq!(asked.respondent.waiting.len(), 1);
    asked.respondent.turn().expect("a link");
    assert_eq!(asked.said().1, [2]);
}

#[test]
fn so_many_questions_wait_and_those_of_another_server_do_not() {
    let mut asked = AskedRespondent::new();
    for id in 0..WAITING_MAX as u64 + 5 {
        asked.mailbox.ask(question(id, "", ""));
    }
    assert_eq!(asked.mailbox.wait(IDLE).questions.len(), WAITING_MAX);
    assert!(asked.respondent.take_news());
    assert_eq!(asked.respondent.waiting.len(), WAITING_MAX);
    asked.mailbox.use_link(Weak::new());
    assert!(asked.respondent.take_news());
    assert_eq!(asked.respondent.waiting.len(), 0);
}

/// What the archive is asked next, if anything.
fn asked_of_archive(
    link: &OwnedFd,
    end: &mut ArchiveEnd<ArchiveQuestion>,
) -> Option<ArchiveQuestion> {
    end.receive(link.as_fd()).expect("a link")
}

#[test]
fn own_pages_are_answered_while_the_archive_is_asked_and_one_that_is_away_is_remembered() {
    let mut asked = AskedRespondent::new();
    let (here, there) = os::fdpass::packet_pair().expect("a pair");
    let mut end = ArchiveEnd::<ArchiveQuestion>::default();
    asked.mailbox.use_archive(there);
    asked.mailbox.ask(question(1, "history", "machine=*"));
    asked.mailbox.ask(question(2, "history", ""));
    asked.answer_all();
    assert_eq!(asked.said().1, [2]);
    let first = asked_of_archive(&here, &mut end).expect("a question");
    assert_eq!((first.machine.clone(), first.is_bounded()), (None, true));
    let mut say = |id: u64, said: ArchiveRead| {
        end.put(&ArchiveAnswer { id, said }).expect("room");
        assert!(end.send(here.as_fd()).expect("a link"));
    };
    // What was not asked is not heard.
    say(first.id + 7, ArchiveRead::TooMuch);
    asked.answer_all();
    assert!(asked.said().1.is_empty());
    say(first.id, ArchiveRead::Down("away".into()));
    asked.answer_all();
    assert_eq!(asked.said().1, [1]);
    asked.mailbox.ask(question(3, "history", "machine=web2"));
    asked.answer_all();
    assert_eq!(asked.said().1, [3]);
    assert_eq!(asked_of_archive(&here, &mut end), None);
}

#[test]
fn what_the_archive_says_is_shown_and_a_link_that_goes_is_said_to_have_gone() {
    let mut asked = AskedRespondent::new();
    for goes in [false, true] {
        let (here, there) = os::fdpass::packet_pair().expect("a pair");
        let mut end = ArchiveEnd::<ArchiveQuestion>::default();
        asked.mailbox.use_archive(there);
        asked.mailbox.ask(question(1, "history", "machine=*"));
        asked.answer_all();
        let question = asked_of_archive(&here, &mut end).expect("a question");
        if !goes {
            let found = ArchiveFound {
                own: "web1".into(),
                ..ArchiveFound::default()
            };
            let said = ArchiveRead::Found(found.into());
            let id = question.id;
            end.put(&ArchiveAnswer { id, said }).expect("room");
            assert!(end.send(here.as_fd()).expect("a link"));
        }
        drop(here);
        asked.answer_all();
        assert_eq!(asked.said().1, [1]);
        assert_eq!(asked.respondent.archive.machines().0, "web1");
    }
}

#[test]
fn what_nobody_answers_is_late() {
    let mut asked = AskedRespondent::new();
    let (_here, there) = os::fdpass::packet_pair().expect("a pair");
    asked.mailbox.use_archive(there);
    asked.mailbox.ask(question(1, "history", "machine=*"));
    asked.answer_all();
    assert!(asked.said().1.is_empty());
    let long_ago = Instant::now().checked_sub(ARCHIVE_PATIENCE);
    asked.respondent.waiting[0].came = long_ago.expect("this machine runs for longer");
    asked.answer_all();
    assert_eq!(asked.said().1, [1]);
}
