//! The questions to one process of a map's program: a queue that every worker may fill.
//!
//! The idea: what is to be written and who waits for the answers lie side by side under one lock,
//! so that the order of both is the same, whoever asks. The lock is held for as long as it takes
//! to copy a line, by whoever asks and by the host, and by nobody who waits. The host is woken once for
//! all questions that come before it looks.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::answers::Answer;
use super::protocol::Flood;

/// Bytes of questions that wait to be written.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// How long a program that is to go may still be asked, by requests of an earlier generation.
const LINGER: Duration = Duration::from_secs(2);
/// How long it may take to answer them, at most.
const LAST_ANSWERS: Duration = Duration::from_secs(30);
/// A program is taken to be behind for so long after somebody has waited in vain.
const BEHIND: Duration = Duration::from_secs(30);

/// The questions to one process.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    queue: Mutex<Queue>,
    /// Questions without an answer, for who chooses among processes.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    state: MailboxState,
    /// Lines that are to be written.
    unsent: Vec<u8>,
    /// Who asked, in the order of the lines.
    asked: VecDeque<QueuedQuestion>,
    /// How many of those at the front wait no more.
    expired: usize,
    /// Since when the first one has been the first.
    first_since: Option<Instant>,
    /// The host, while it waits.
    host: Option<Waker>,
    /// When the process is to end for good.
    ends: Option<Instant>,
    /// When somebody has waited in vain last, or was sent away so as not to.
    late_at: Option<Instant>,
    /// How long an answer takes, on average of the last ones.
    pace: Duration,
}

/// What a queue may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Questions without an answer.
    pub(super) waiting_max: usize,
    /// How long a question may take.
    pub(super) patience: Duration,
}

/// Who takes questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum MailboxState {
    /// Nobody yet; the host will be there soon.
    #[default]
    Unattended,
    /// The process, or the one that is being started.
    Open,
    /// Nobody for a while: the process has failed.
    Resting,
    /// Nobody any more.
    Ended,
}

/// Who is told an answer.
#[derive(Debug)]
pub(super) enum Whom {
    /// One request.
    One(oneshot::Sender<Answer>),
    /// Whoever waits for this key.
    All(Box<[u8]>),
}

#[derive(Debug)]
struct QueuedQuestion {
    /// `None` where nobody waits any more.
    whom: Option<Whom>,
    since: Instant,
}

/// What the host finds when it looks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Whether an answer is awaited.
    pub(super) is_busy: bool,
    /// When the process is to end for good.
    pub(super) ends: Option<Instant>,
}

impl Mailbox {
    /// Takes a question; `whom` comes back where it cannot be asked. The state is that of now.
    pub(super) fn ask(
        &self,
        key: &[u8],
        whom: Whom,
        bounds: Bounds,
        now: Instant,
    ) -> Result<MailboxState, Whom> {
        let mut queue = self.lock();
        let is_taken = matches!(queue.state, MailboxState::Unattended | MailboxState::Open);
        let is_full = queue.asked.len() >= bounds.waiting_max
            || queue.unsent.len() + key.len() >= UNSENT_BYTES_MAX;
        if !is_taken || is_full {
            return Err(whom);
        }
        if queue.is_hopeless(bounds.patience, now) {
            queue.late_at = Some(now);
            return Err(whom);
        }
        queue.unsent.extend_from_slice(key);
        queue.unsent.push(b'\n');
        queue.first_since.get_or_insert(now);
        let whom = Some(whom);
        queue.asked.push_back(QueuedQuestion { whom, since: now });
        self.waiting.store(queue.asked.len(), Relaxed);
        let (state, host) = (queue.state, queue.host.take());
        drop(queue);
        if let Some(host) = host {
            host.wake();
        }
        Ok(state)
    }

    /// Questions without an answer.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Whether nobody will be asked here any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().state == MailboxState::Ended
    }

    /// Goes into another state, unless it has ended; those who wait no more come back.
    pub(super) fn enter(&self, state: MailboxState) -> Vec<Whom> {
        let mut queue = self.lock();
        if queue.state == MailboxState::Ended {
            return Vec::new();
        }
        queue.state = state;
        match state {
            MailboxState::Unattended | MailboxState::Open => Vec::new(),
            MailboxState::Resting | MailboxState::Ended => self.give_up(&mut queue),
        }
    }

    /// Nobody answers what was asked so far.
    pub(super) fn fail(&self) -> Vec<Whom> {
        let mut queue = self.lock();
        self.give_up(&mut queue)
    }

    fn give_up(&self, queue: &mut Queue) -> Vec<Whom> {
        queue.unsent = Vec::new();
        (queue.expired, queue.first_since) = (0, None);
        (queue.late_at, queue.pace) = (None, Duration::ZERO);
        self.waiting.store(0, Relaxed);
        let asked = std::mem::take(&mut queue.asked);
        asked.into_iter().filter_map(|asked| asked.whom).collect()
    }

    /// Has the process end for good soon.
    pub(super) fn retire(&self, now: Instant) {
        let mut queue = self.lock();
        queue.ends.get_or_insert(now + LINGER);
        let host = queue.host.take();
        drop(queue);
        if let Some(host) = host {
            host.wake();
        }
    }

    /// When the process is to end for good, if it is to.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.lock().ends
    }

    /// Whether the process is to end for good now: nobody waits for an answer any more, or has
    /// waited for as long as a question may take, or as is waited at most.
    pub(super) fn is_over(&self, patience: Duration, now: Instant) -> bool {
        let queue = self.lock();
        let last = match queue.asked.is_empty() {
            true => Duration::ZERO,
            false => patience.min(LAST_ANSWERS),
        };
        queue.ends.is_some_and(|ends| ends + last <= now)
    }

    /// What is to be written goes into `writing` where that is empty; the host is woken when
    /// there is more.
    pub(super) fn attend(&self, cx: &Context<'_>, writing: &mut Vec<u8>) -> Look {
        let mut queue = self.lock();
        if writing.is_empty() {
            std::mem::swap(writing, &mut queue.unsent);
        }
        let knows = queue.host.as_ref();
        if !knows.is_some_and(|host| host.will_wake(cx.waker())) {
            queue.host = Some(cx.waker().clone());
        }
        Look {
            is_busy: !queue.asked.is_empty(),
            ends: queue.ends,
        }
    }

    /// Gives each answer to who asked for it: both come back in pairs.
    pub(super) fn deliver(
        &self,
        answers: &mut Vec<Answer>,
        told: &mut Vec<(Whom, Answer)>,
        now: Instant,
    ) -> Result<(), Flood> {
        let mut queue = self.lock();
        let mut result = Ok(());
        queue.note_pace(answers.len(), now);
        for answer in answers.drain(..) {
            let Some(asked) = queue.asked.pop_front() else {
                result = Err(Flood::Unasked);
                break;
            };
            queue.expired = queue.expired.saturating_sub(1);
            told.extend(asked.whom.map(|whom| (whom, answer)));
        }
        queue.first_since = (!queue.asked.is_empty()).then_some(now);
        self.waiting.store(queue.asked.len(), Relaxed);
        result
    }

    /// Those who have waited for as long as a question may take, and whether the process has
    /// answered nobody for so long.
    pub(super) fn expire(&self, patience: Duration, now: Instant) -> (Vec<Whom>, bool) {
        let mut queue = self.lock();
        let is_late = |since: Instant| now.saturating_duration_since(since) >= patience;
        let is_silent = queue.first_since.is_some_and(is_late);
        let mut late = Vec::new();
        let expired = queue.expired;
        for asked in queue.asked.iter_mut().skip(expired) {
            if !is_late(asked.since) {
                break;
            }
            late.push(asked.whom.take());
        }
        queue.expired += late.len();
        if !late.is_empty() {
            queue.late_at = Some(now);
        }
        (late.into_iter().flatten().collect(), is_silent)
    }

    /// Held for a moment, by who asks and by the host.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Whether one more would be answered too late, and keep others from being answered in time:
    /// the program has let somebody wait in vain lately, and so many wait that it needs half the
    /// time a question may take for them. Else, once it is asked more than it can answer, it would
    /// do nothing but answer whoever has stopped waiting.
    fn is_hopeless(&self, patience: Duration, now: Instant) -> bool {
        let is_behind = |at: Instant| now.saturating_duration_since(at) < BEHIND;
        let ahead = u32::try_from(self.asked.len()).unwrap_or(u32::MAX);
        self.late_at.is_some_and(is_behind) && self.pace.saturating_mul(ahead) > patience / 2
    }

    /// Learns from so many answers how long one takes.
    fn note_pace(&mut self, answers: usize, now: Instant) {
        let answers = u32::try_from(answers).unwrap_or(u32::MAX);
        let busy = self
            .first_since
            .map(|since| now.saturating_duration_since(since));
        if let Some(each) = busy.and_then(|busy| busy.checked_div(answers)) {
            self.pace = match self.pace {
                Duration::ZERO => each,
                pace => (pace * 7 + each) / 8,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    fn ask(mailbox: &Mailbox, key: &str, now: Instant) -> Option<oneshot::Receiver<Answer>> {
        let (hear, heard) = oneshot::channel();
        let bounds = Bounds {
            waiting_max: 3,
            patience: PATIENCE,
        };
        let asked = mailbox.ask(key.as_bytes(), Whom::One(hear), bounds, now);
        asked.ok().map(|_| heard)
    }

    fn unsent(mailbox: &Mailbox) -> String {
        let mut writing = Vec::new();
        mailbox.attend(&Context::from_waker(Waker::noop()), &mut writing);
        String::from_utf8(writing).expect("text")
    }

    fn deliver(mailbox: &Mailbox, answers: &[&str], now: Instant) -> Result<usize, Flood> {
        let answer = |text: &&str| Some(Arc::from(text.as_bytes()));
        let (mut answers, mut told) = (answers.iter().map(answer).collect(), Vec::new());
        let result = mailbox.deliver(&mut answers, &mut told, now);
        let count = told.len();
        for (whom, answer) in told {
            let Whom::One(hear) = whom else {
                panic!("no key is shared");
            };
            // Whoever has gone hears nothing.
            let _ = hear.send(answer);
        }
        result.map(|()| count)
    }

    #[test]
    fn answers_go_to_who_asked_in_the_order_of_the_lines() {
        let (mailbox, now) = (Mailbox::default(), Instant::now());
        let first = ask(&mailbox, "a", now).expect("room");
        let second = ask(&mailbox, "", now).expect("room");
        assert_eq!(unsent(&mailbox), "a\n\n");
        assert_eq!(deliver(&mailbox, &["1"], now), Ok(1));
        let third = ask(&mailbox, "c", now).expect("room");
        assert_eq!(unsent(&mailbox), "c\n");
        assert_eq!(deliver(&mailbox, &["2", "3"], now), Ok(2));
        for (heard, expected) in [(first, "1"), (second, "2"), (third, "3")] {
            let answer = heard.blocking_recv().expect("told").expect("an answer");
            assert_eq!(&*answer, expected.as_bytes());
        }
        assert_eq!(deliver(&mailbox, &["4"], now), Err(Flood::Unasked));
    }

    #[test]
    fn questions_are_refused_where_too_many_wait_or_nobody_answers() {
        let (mailbox, now) = (Mailbox::default(), Instant::now());
        let held: Vec<_> = (0..3).map(|_| ask(&mailbox, "k", now)).collect();
        assert!(held.iter().all(Option::is_some) && ask(&mailbox, "k", now).is_none());
        assert_eq!(mailbox.enter(MailboxState::Resting).len(), 3);
        assert_eq!((mailbox.waiting(), unsent(&mailbox)), (0, String::new()));
        assert!(ask(&mailbox, "k", now).is_none());
        mailbox.enter(MailboxState::Open);
        assert!(ask(&mailbox, "k", now).is_some());
        assert_eq!(mailbox.enter(MailboxState::Ended).len(), 1);
        mailbox.enter(MailboxState::Open);
        assert!(ask(&mailbox, "k", now).is_none(), "the end is the end");
    }

    #[test]
    fn who_waited_long_is_told_and_the_answer_that_comes_then_is_nobodys() {
        let (mailbox, now) = (Mailbox::default(), Instant::now());
        let second = Duration::from_secs(1);
        let held = [ask(&mailbox, "a", now), ask(&mailbox, "b", now + second)];
        assert_eq!(held.iter().flatten().count(), 2);
        let (late, is_silent) = mailbox.expire(PATIENCE, now + second);
        assert!(late.is_empty() && !is_silent);
        assert_eq!(deliver(&mailbox, &["1"], now + second), Ok(1));
        let third = ask(&mailbox, "c", now + second * 2);
        let (late, is_silent) = mailbox.expire(PATIENCE, now + second * 3);
        assert_eq!(
            (late.len(), is_silent),
            (1, true),
            "b waited 2 s, and nothing was said"
        );
        assert_eq!(deliver(&mailbox, &["2"], now + second * 3), Ok(0));
        let (late, is_silent) = mailbox.expire(PATIENCE, now + second * 4);
        assert_eq!(
            (late.len(), is_silent),
            (1, false),
            "c waited 2 s, but b was answered"
        );
        // Whoever holds the other end says nothing more.
        drop(late);
        assert_eq!(deliver(&mailbox, &["3"], now + second * 4), Ok(0));
        assert!(third.is_some_and(|third| third.blocking_recv().is_err()));
    }

    #[test]
    fn a_program_that_is_to_go_may_be_asked_for_a_moment() {
        let (mailbox, now) = (Mailbox::default(), Instant::now());
        mailbox.retire(now);
        mailbox.retire(now + LINGER);
        assert_eq!(mailbox.ends(), Some(now + LINGER));
        assert!(!mailbox.is_over(PATIENCE, now) && mailbox.is_over(PATIENCE, now + LINGER));
        assert!(ask(&mailbox, "k", now).is_some());
    }

    #[test]
    fn a_program_that_is_to_go_answers_first_what_it_was_asked() {
        let (mailbox, now) = (Mailbox::default(), Instant::now());
        let held = ask(&mailbox, "k", now);
        mailbox.retire(now);
        let ends = now + LINGER;
        assert!(held.is_some() && !mailbox.is_over(PATIENCE, ends));
        assert!(
            mailbox.is_over(PATIENCE, ends + PATIENCE),
            "but not for ever"
        );
        assert_eq!(deliver(&mailbox, &["1"], ends), Ok(1));
        assert!(mailbox.is_over(PATIENCE, ends));
    }

    /// Asks so many questions a second of a program that answers ten, for two minutes; how many
    /// of its answers came in time.
    fn answered_in_time(asked_per_second: u64) -> usize {
        let (mailbox, began) = (Mailbox::default(), Instant::now());
        let bounds = Bounds {
            waiting_max: 1_000,
            patience: PATIENCE,
        };
        let (mut heard, mut in_time) = (Vec::new(), 0);
        for now_ms in 0..120_000 {
            let now = began + Duration::from_millis(now_ms);
            if now_ms % (1_000 / asked_per_second) == 0 {
                let (hear, hears) = oneshot::channel();
                heard.push(hears);
                // Refused, it is told at once.
                let _ = mailbox.ask(b"k", Whom::One(hear), bounds, now);
            }
            if now_ms % 100 == 99 && mailbox.waiting() > 0 {
                in_time += deliver(&mailbox, &["v"], now).expect("asked");
            }
            if now_ms % 250 == 0 {
                let _ = mailbox.expire(PATIENCE, now);
            }
        }
        in_time
    }

    #[test]
    fn a_program_that_is_asked_too_much_answers_most_of_what_it_can_in_time() {
        assert_eq!(answered_in_time(5), 600, "all");
        for too_many in [12, 20, 100] {
            let in_time = answered_in_time(too_many);
            assert!(
                in_time > 800,
                "{in_time} of 1,200, asked {too_many} a second"
            );
        }
    }
}
