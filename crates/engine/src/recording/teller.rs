//! The thread that speaks with the recorder: it tells figures each second, and carries what people at the
//! console ask, and are answered.
//!
//! The idea: it alone has the link, and no worker waits but for an answer it wants. The recorder is
//! taken as hostile: what it says has a bound, an answer to no question is dropped, and a message
//! that is none ends the link. When it goes, whoever waits is told so at once.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipc::codec;
use ipc::console::{
    ConsoleAnswer, FIGURES_MAX, FromConsole, Incoming, LOOKED_AT_MAX, Outgoing, TenantSites,
    ToConsole,
};
use ipc::directory::REASON_BYTES_MAX;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::console::AskedConsole;
use super::incidents::Watch;
use crate::figures::followed::{self, Followed, Told, ToldFigures};
use crate::figures::top::Looks;
use crate::io::register;
use crate::linked_thread::{LinkedThread, tell_lost};
use crate::worker::Shared;

/// How often figures are told.
const EVERY: Duration = Duration::from_secs(1);
/// How long it is from one look at everything to the next, at least.
const LOOK_EVERY: Duration = Duration::from_millis(900);
/// Questions whose answers are awaited, those that nobody waits for any more included.
const AWAITED_MAX: usize = 512;

/// Whom it speaks with.
const WITH: &str = "the recorder";

/// Starts the thread, without a link.
///
/// # Errors
/// When no thread or no runtime can be had.
pub(crate) fn start(shared: Shared) -> io::Result<LinkedThread<OwnedFd>> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .thread_name("recorder-look")
        .build()?;
    LinkedThread::start("recorder", WITH, move |links| {
        runtime.block_on(run(&shared, links));
        // A look that waits for the spawner need not hold up the end.
        runtime.shutdown_background();
    })
}

async fn run(shared: &Shared, mut links: mpsc::Receiver<OwnedFd>) {
    let Some(mut asked) = shared.console.take_receiver() else {
        return;
    };
    let mut followed = Following::Rests(Box::default());
    let mut next = links.recv().await;
    while let Some(link) = next {
        let spoken = match register(link, Interest::READABLE | Interest::WRITABLE) {
            Ok(link) => {
                shared.console.note_heard(true);
                let mut conversation = Conversation::new(shared, &link, &mut followed);
                let spoken = conversation.go_on(&mut links, &mut asked).await;
                shared.console.note_heard(false);
                spoken
            }
            Err(error) => Err(error),
        };
        // Nobody answers these any more.
        while asked.try_recv().is_ok() {}
        next = match spoken {
            Ok(link) => link,
            Err(error) => {
                tell_lost(WITH, &error);
                links.recv().await
            }
        };
    }
}

/// What is followed, which goes on over links; it is looked at beside what else is said.
enum Following {
    Rests(Box<Followed>),
    Looks(JoinHandle<(Told, Box<Followed>)>),
}

/// What is said over one link.
struct Conversation<'a> {
    shared: &'a Shared,
    link: &'a AsyncFd<OwnedFd>,
    followed: &'a mut Following,
    watch: Watch,
    incoming: Incoming<FromConsole>,
    outgoing: Outgoing,
    awaited: HashMap<u64, oneshot::Sender<ConsoleAnswer>>,
    next_id: u64,
    looks: Looks,
    look: Option<JoinHandle<(String, Looks)>>,
    /// The tenants whose people look, where nobody has been answered yet.
    looked_at: Option<String>,
    last_look: Option<Instant>,
    /// Whose sites there are, as it was told.
    owners: Option<Vec<TenantSites>>,
}

impl<'a> Conversation<'a> {
    fn new(shared: &'a Shared, link: &'a AsyncFd<OwnedFd>, followed: &'a mut Following) -> Self {
        Conversation {
            shared,
            link,
            followed,
            watch: Watch::default(),
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            awaited: HashMap::new(),
            next_id: 0,
            looks: Looks::default(),
            look: None,
            looked_at: None,
            last_look: None,
            owners: None,
        }
    }

    /// Speaks until there is another link, which it gives, or the server ends.
    ///
    /// # Errors
    /// When the recorder has gone, or says what cannot be understood.
    async fn go_on(
        &mut self,
        links: &mut mpsc::Receiver<OwnedFd>,
        asked: &mut mpsc::Receiver<AskedConsole>,
    ) -> io::Result<Option<OwnedFd>> {
        let mut seconds = interval(EVERY);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let link = self.link;
        loop {
            let is_free = self.look.is_none() && self.outgoing.is_empty();
            let is_awaited = self.looked_at.is_some() && is_free;
            let due = self
                .last_look
                .map_or_else(Instant::now, |it| it + LOOK_EVERY);
            tokio::select! {
                next = links.recv() => return Ok(next),
                ready = link.readable() => match self.incoming.receive(link.get_ref().as_fd())? {
                    Some(message) => self.hear(message),
                    None => ready?.clear_ready(),
                },
                ready = link.writable(), if !self.outgoing.is_empty() => {
                    self.outgoing.send(link.get_ref().as_fd())?;
                    if !self.outgoing.is_empty() {
                        ready?.clear_ready();
                    }
                }
                Some(asked) = asked.recv() => self.ask(asked)?,
                _ = seconds.tick() => self.follow()?,
                told = told(self.followed) => self.tell(told)?,
                () = sleep_until(due.into()), if is_awaited => self.look(),
                looked = looked(&mut self.look) => self.show(looked)?,
            }
        }
    }

    fn hear(&mut self, message: FromConsole) {
        match message {
            FromConsole::Look(tenants) => {
                self.looked_at = Some(tenants);
                self.look();
            }
            FromConsole::Answer(answer) => {
                if let Some(asked) = self.awaited.remove(&answer.id) {
                    // Who does not wait any more has gone.
                    let _ = asked.send(answer);
                }
            }
            FromConsole::Unsent(mut why) => {
                codec::cut(&mut why, REASON_BYTES_MAX);
                *self.shared.console.unsent() = why;
            }
        }
    }

    /// Looks at what there is, where somebody wants it: one look at a time, however often that is, and none
    /// while what was said before is not taken.
    fn look(&mut self) {
        let was_lately = self.last_look.is_some_and(|it| it.elapsed() < LOOK_EVERY);
        if self.look.is_some() || was_lately || !self.outgoing.is_empty() {
            return;
        }
        let Some(tenants) = self.looked_at.take() else {
            return;
        };
        self.last_look = Some(Instant::now());
        let (shared, mut looks) = (self.shared.clone(), std::mem::take(&mut self.looks));
        self.look = Some(spawn_blocking(move || {
            let looked_at = tenants.lines().take(LOOKED_AT_MAX).map(str::to_owned);
            let told = followed::snapshot(&shared, &mut looks, looked_at.collect());
            (told, looks)
        }));
    }

    fn show(&mut self, looked: Option<(String, Looks)>) -> io::Result<()> {
        self.look = None;
        let Some((told, looks)) = looked else {
            return Ok(());
        };
        self.looks = looks;
        if !self.outgoing.put(&ToConsole::Live(told))? {
            tracing::warn!("there is too much to say of now: the console does not show it");
        }
        Ok(())
    }

    fn ask(&mut self, asked: AskedConsole) -> io::Result<()> {
        if self.awaited.len() >= AWAITED_MAX {
            self.awaited.retain(|_, answer| !answer.is_closed());
        }
        let AskedConsole {
            mut question,
            answer,
        } = asked;
        question.id = self.next_id;
        self.next_id += 1;
        // Where there is no room for it, dropping the answer's place tells who waits.
        if self.awaited.len() < AWAITED_MAX {
            let id = question.id;
            if self.outgoing.put(&ToConsole::Question(question))? {
                self.awaited.insert(id, answer);
            }
        }
        Ok(())
    }

    /// Says what has gone wrong, and looks at what there is, where the look before is over. Where a look is late, or
    /// there is none, the next one tells of the time since.
    fn follow(&mut self) -> io::Result<()> {
        // Of one that does not read nobody wants what is old by then.
        if !self.outgoing.is_empty() {
            return Ok(());
        }
        for incident in self.watch.next(self.shared, Instant::now(), now_s()) {
            self.outgoing.put(&ToConsole::Incident(incident))?;
        }
        if let Following::Rests(followed) = self.followed {
            let (shared, mut followed) = (self.shared.clone(), std::mem::take(followed));
            let is_new = self.owners.is_none();
            let look = spawn_blocking(move || (followed.next(&shared, is_new), followed));
            *self.followed = Following::Looks(look);
        }
        Ok(())
    }

    fn tell(&mut self, told: Told) -> io::Result<()> {
        if let Some(owners) = told.owners
            && self.owners.as_ref() != Some(&owners)
        {
            let tenants = ToConsole::Tenants(owners.clone());
            // What finds no room is told again the next time.
            if self.outgoing.put(&tenants)? {
                self.owners = Some(owners);
            }
        }
        let at_s = now_s();
        for ToldFigures { looks, values } in told.figures {
            for values in values.chunks(FIGURES_MAX) {
                let values = values.to_vec();
                let figures = ToConsole::Figures {
                    at_s,
                    looks,
                    values,
                };
                self.outgoing.put(&figures)?;
            }
        }
        Ok(())
    }
}

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// What is followed, when that was looked at.
async fn told(following: &mut Following) -> Told {
    let (told, followed) = match following {
        Following::Looks(look) => look.await.unwrap_or_default(),
        Following::Rests(_) => std::future::pending().await,
    };
    *following = Following::Rests(followed);
    told
}

/// What somebody was shown, when that is there; `None` where the look came to nothing.
async fn looked(look: &mut Option<JoinHandle<(String, Looks)>>) -> Option<(String, Looks)> {
    match look {
        Some(look) => look.await.ok(),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::fixture::{Fixture, block_on};
    use ipc::console::ConsoleQuestion;

    const SITES: &str = r#"
[[sites]]
hosts = ["a"]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

    /// The recorder's end.
    struct Recorder {
        link: OwnedFd,
        incoming: Incoming<ToConsole>,
        outgoing: Outgoing,
    }

    impl Recorder {
        fn new(link: OwnedFd) -> Recorder {
            Recorder {
                link,
                incoming: Incoming::default(),
                outgoing: Outgoing::default(),
            }
        }

        /// The next message of which `wanted` makes something.
        fn hear<T>(&mut self, wanted: impl Fn(ToConsole) -> Option<T>) -> T {
            let until = Instant::now() + Duration::from_secs(60);
            while Instant::now() < until {
                let heard = self.incoming.receive(self.link.as_fd()).expect("a link");
                if let Some(heard) = heard.and_then(&wanted) {
                    return heard;
                }
                let wait = Some(Duration::from_millis(50));
                os::net::wait_readable(&[self.link.as_fd()], wait).expect("a link");
            }
            panic!("it is never said");
        }

        fn say(&mut self, message: &FromConsole) {
            assert!(self.outgoing.put(message).expect("plain"));
            self.outgoing.send(self.link.as_fd()).expect("room");
        }
    }

    fn question(of: ToConsole) -> Option<ConsoleQuestion> {
        match of {
            ToConsole::Question(question) => Some(question),
            _ => None,
        }
    }

    fn started(fixture: &Fixture) -> (LinkedThread<OwnedFd>, Recorder) {
        // Without sensors there is nothing to tell.
        let sample = crate::sensors::sampling::Here::look().sample();
        fixture.shared.sensors.publish(&sample);
        let teller = start(fixture.shared.clone()).expect("a thread");
        let (here, there) = os::fdpass::packet_pair().expect("a pair");
        teller.use_link(here);
        let mut recorder = Recorder::new(there);
        // It is spoken with.
        recorder.hear(|it| matches!(it, ToConsole::Figures { .. }).then_some(()));
        (teller, recorder)
    }

    /// Asks on another thread: what it is answered.
    fn asking(fixture: &Fixture, path: &str) -> std::thread::JoinHandle<Result<String, Error>> {
        let (console, path) = (
            std::sync::Arc::clone(&fixture.shared.console),
            path.to_owned(),
        );
        std::thread::spawn(move || {
            let question = ConsoleQuestion {
                path,
                ..ConsoleQuestion::default()
            };
            block_on(console.ask(question)).map(|answer| answer.body)
        })
    }

    fn answer(id: u64, body: &str) -> FromConsole {
        FromConsole::Answer(ConsoleAnswer {
            id,
            body: body.into(),
            ..ConsoleAnswer::default()
        })
    }

    #[test]
    fn answers_find_who_asked_and_others_nobody() {
        let fixture = Fixture::new(SITES);
        let (_teller, mut recorder) = started(&fixture);
        let (one, other) = (asking(&fixture, "one"), asking(&fixture, "other"));
        let mut questions = [recorder.hear(question), recorder.hear(question)];
        questions.sort_by_key(|it| std::cmp::Reverse(it.id));
        recorder.say(&answer(77, "nobody's"));
        for asked in &questions {
            recorder.say(&answer(asked.id, &asked.path));
            recorder.say(&answer(asked.id, "again"));
        }
        assert_eq!(one.join().unwrap().unwrap(), "one");
        assert_eq!(other.join().unwrap().unwrap(), "other");
    }

    #[test]
    fn who_waits_is_told_at_once_that_the_recorder_has_gone_and_the_next_one_hears() {
        let fixture = Fixture::new(SITES);
        let unheard = asking(&fixture, "").join().unwrap().unwrap_err();
        assert_eq!(unheard.reason, "console_unheard", "there is none yet");
        let (teller, mut recorder) = started(&fixture);
        let waiting = asking(&fixture, "one");
        recorder.hear(question);
        drop(recorder);
        assert_eq!(
            waiting.join().unwrap().unwrap_err().reason,
            "console_unheard"
        );
        let (here, there) = os::fdpass::packet_pair().unwrap();
        teller.use_link(here);
        let mut recorder = Recorder::new(there);
        recorder.hear(|it| matches!(it, ToConsole::Figures { .. }).then_some(()));
        let waiting = asking(&fixture, "two");
        let asked = recorder.hear(question);
        recorder.say(&answer(asked.id, "fine"));
        assert_eq!(waiting.join().unwrap().unwrap(), "fine");
    }

    #[test]
    fn what_is_no_message_ends_the_link_and_nothing_else() {
        let fixture = Fixture::new(SITES);
        let (_teller, mut recorder) = started(&fixture);
        let waiting = asking(&fixture, "one");
        recorder.hear(question);
        os::fdpass::try_send(recorder.link.as_fd(), &[9, 9, 9], &[]).unwrap();
        assert_eq!(
            waiting.join().unwrap().unwrap_err().reason,
            "console_unheard"
        );
        assert!(fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status() == 200);
    }

    #[test]
    fn why_figures_cannot_be_sent_is_known_in_few_words_until_the_recorder_goes() {
        let fixture = Fixture::new(SITES);
        let (_teller, mut recorder) = started(&fixture);
        recorder.say(&FromConsole::Unsent("x".repeat(9_000)));
        let console = &fixture.shared.console;
        let patience = Duration::from_secs(60);
        let is_told = |bytes: usize| (console.unsent().len() == bytes).then_some(());
        testkit::eventually(patience, "why", || is_told(REASON_BYTES_MAX));
        drop(recorder);
        testkit::eventually(patience, "nothing of it", || is_told(0));
    }

    #[test]
    fn who_looks_is_shown_the_server() {
        let fixture = Fixture::new(SITES);
        let (_teller, mut recorder) = started(&fixture);
        recorder.say(&FromConsole::Look(String::new()));
        let live = recorder.hear(|it| match it {
            ToConsole::Live(live) => Some(live),
            _ => None,
        });
        let shown = control::Snapshot::of_json(&live).expect("a snapshot");
        assert_eq!(shown.status.sites_configured, 1);
    }

    #[test]
    fn who_looks_all_the_time_is_shown_no_more_than_one_look_in_900_ms() {
        let fixture = Fixture::new(SITES);
        let (_teller, mut recorder) = started(&fixture);
        let begun = Instant::now();
        for shown in 0..4 {
            for _ in 0..50 {
                recorder.say(&FromConsole::Look(String::new()));
            }
            recorder.hear(|it| matches!(it, ToConsole::Live(_)).then_some(()));
            assert!(begun.elapsed() >= LOOK_EVERY * shown);
        }
    }
}
