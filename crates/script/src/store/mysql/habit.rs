//! Which statements are quick as a rule, so that others may wait behind them on a connection.
//!
//! A statement is known by its text. One that was answered quickly several times is trusted. Each
//! answer that was not takes some of what was gained, one that took long takes most of it; when it
//! is lost, the statement is not trusted for a while.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

/// An answer in such a time is a quick one.
pub(super) const QUICK: Duration = Duration::from_millis(2);
/// The same for one among others that are answered as quickly one after another: the server had to
/// come to it first.
const QUICK_IN_CROWD: Duration = Duration::from_millis(20);
/// An answer that takes longer is a slow one.
const SLOW: Duration = Duration::from_millis(100);
/// A statement that has lost its trust by a slow answer is not given it for so long.
const DISTRUST: Duration = Duration::from_secs(10);
/// The same for one that has lost it by answers that were not quite quick.
const DOUBT: Duration = Duration::from_secs(1);
/// Quick answers after which a statement is trusted.
const TRUSTED: u8 = 4;
/// Quick answers that are remembered.
const REMEMBERED: u8 = 64;
/// What one that was not quite quick takes from them.
const LOST: u8 = 8;
/// What a slow one leaves of them.
const LEFT_OF: u8 = 4;
/// Statements remembered; one more, and all are forgotten.
const TEXTS_MAX: usize = 256;
/// The longest text of one.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// A statement and how quick it was.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) sql: Rc<[u8]>,
    quick: Cell<u8>,
    slow_until: Cell<Option<Instant>>,
}

impl Text {
    /// Whether it is quick as a rule.
    pub(super) fn is_trusted(&self) -> bool {
        self.quick.get() >= TRUSTED
    }

    /// Notes how long an answer took among so many others.
    pub(super) fn note(&self, took: Took, now: Instant) {
        if self.slow_until.get().is_some_and(|until| now < until) {
            return;
        }
        if took.is_quick() {
            return self.note_quick();
        }
        let (quick, lasts) = match took.time <= SLOW + took.late {
            true => (self.quick.get().saturating_sub(LOST), DOUBT),
            false => (self.quick.get() / LEFT_OF, DISTRUST),
        };
        self.quick.set(quick);
        if quick < TRUSTED {
            self.quick.set(0);
            self.slow_until.set(Some(now + lasts));
        }
    }

    /// Notes a quick answer of one that is trusted.
    pub(super) fn note_quick(&self) {
        self.quick.set(REMEMBERED.min(self.quick.get() + 1));
    }
}

/// How long an answer took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    pub(super) time: Duration,
    /// How many the server was answering at that time.
    pub(super) among: usize,
    /// What of it the worker itself may have been late.
    pub(super) late: Duration,
}

impl Took {
    pub(super) fn is_quick(self) -> bool {
        let among = u32::try_from(self.among.max(1)).unwrap_or(u32::MAX);
        let in_crowd = self.time <= QUICK_IN_CROWD + self.late && self.time / among <= QUICK;
        self.time <= QUICK + self.late || in_crowd
    }
}

/// The statements of a login at a server.
#[derive(Debug, Default)]
pub(super) struct Texts {
    known: HashMap<Rc<[u8]>, Rc<Text>>,
}

impl Texts {
    /// A statement that is quick as a rule.
    pub(super) fn trusted(&self, sql: &[u8]) -> Option<&Rc<Text>> {
        self.known.get(sql).filter(|text| text.is_trusted())
    }

    /// A statement to note something of; `None` for one that is too long.
    pub(super) fn text(&mut self, sql: &[u8]) -> Option<Rc<Text>> {
        if let Some(text) = self.known.get(sql) {
            return Some(Rc::clone(text));
        }
        if sql.len() > TEXT_BYTES_MAX {
            return None;
        }
        if self.known.len() >= TEXTS_MAX {
            self.known.clear();
        }
        let text = Rc::new(Text {
            sql: sql.into(),
            quick: Cell::new(0),
            slow_until: Cell::new(None),
        });
        self.known.insert(Rc::clone(&text.sql), Rc::clone(&text));
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(time: Duration) -> Took {
        Took {
            time,
            among: 1,
            late: Duration::ZERO,
        }
    }

    fn text() -> Rc<Text> {
        Texts::default().text(b"SELECT 1").expect("short enough")
    }

    #[test]
    fn a_statement_is_trusted_after_some_quick_answers() {
        let (mut texts, now) = (Texts::default(), Instant::now());
        let text = texts.text(b"SELECT 1").expect("short enough");
        for _ in 0..TRUSTED {
            assert!(texts.trusted(b"SELECT 1").is_none());
            text.note(took(QUICK), now);
        }
        assert!(texts.trusted(b"SELECT 1").is_some());
        assert!(texts.trusted(b"SELECT 2").is_none());
        assert!(texts.text(&[b' '; TEXT_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn slow_answers_take_the_trust_for_a_while_and_the_first_is_forgiven_after_many_quick_ones() {
        let (text, now) = (text(), Instant::now());
        let quick = |times: u8, at| (0..times).for_each(|_| text.note(took(QUICK), at));
        let slow = || text.note(took(SLOW * 2), now);
        quick(TRUSTED, now);
        slow();
        quick(200, now);
        assert!(!text.is_trusted(), "it was trusted for a few answers only");
        quick(200, now + DISTRUST);
        let now = now + DISTRUST;
        text.note(took(SLOW * 2), now);
        assert!(text.is_trusted());
        (0..2).for_each(|_| text.note(took(SLOW * 2), now));
        quick(200, now);
        assert!(!text.is_trusted());
    }

    #[test]
    fn somewhat_slow_answers_take_it_only_when_they_are_many() {
        let (text, now) = (text(), Instant::now());
        (0..200).for_each(|_| text.note(took(QUICK), now));
        (0..7).for_each(|_| text.note(took(SLOW), now));
        assert!(text.is_trusted());
        (0..2).for_each(|_| text.note(took(SLOW), now));
        assert!(!text.is_trusted());
    }

    #[test]
    fn the_worker_itself_and_other_answers_are_not_held_against_a_statement() {
        let alone = took(QUICK * 9);
        assert!(!alone.is_quick());
        assert!(Took { among: 9, ..alone }.is_quick());
        let late = QUICK * 8;
        assert!(Took { late, ..alone }.is_quick());
        let long = took(QUICK_IN_CROWD * 2);
        assert!(!Took { among: 900, ..long }.is_quick());
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut texts = Texts::default();
        for number in 0..TEXTS_MAX * 2 {
            texts.text(number.to_string().as_bytes());
        }
        assert!(texts.known.len() <= TEXTS_MAX);
    }
}
