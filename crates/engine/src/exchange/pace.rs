//! How long a client may make us wait, whatever carries its exchange.
//!
//! The one idea: progress counts, not activity. A client that moves fewer bytes than the least rate uses up its
//! patience although something always happens. What carries the bytes is not known here.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::deadline::{Deadline, Deadlines};

/// How long a client may make us wait.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    /// Longest silence, and how far it may fall behind the least rate, in milliseconds.
    pub silence_ms: u64,
    /// Fewest bytes per second; 0 asks for none.
    pub rate_min: u64,
}

/// What holds for a reply, and for its connection afterwards.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    /// How long the client may make us wait while it takes the reply.
    pub pace: Pace,
    /// Whether the request is the last that its connection carries.
    pub is_last: bool,
    /// How long the next request may be awaited.
    pub idle_ms: u64,
}

/// Whether a connection that may carry so many requests ends with this one; 0 is as many as come.
pub(crate) fn is_last(number: u64, requests_max: u64) -> bool {
    requests_max != 0 && number >= requests_max
}

/// How far a client is behind its least rate.
///
/// Only time in which we wait for it counts: how long others take says nothing of its pace.
/// Bytes make up for time past and buy none ahead, so a quick start does not pay for a drip.
#[derive(Debug, Default)]
struct Arrears {
    behind_us: u64,
    since_ms: Option<u64>,
}

impl Arrears {
    /// The client is waited for; says for how much longer it may be, in milliseconds.
    fn patience_ms(&mut self, pace: Pace, now_ms: u64) -> u64 {
        let waited_ms = now_ms - *self.since_ms.get_or_insert(now_ms);
        let behind_ms = self.behind_us / 1_000 + waited_ms;
        pace.silence_ms.saturating_sub(behind_ms)
    }

    /// The client moved so many bytes.
    fn pay(&mut self, bytes: usize, pace: Pace, now_ms: u64) {
        if let Some(since_ms) = self.since_ms.take() {
            self.behind_us += (now_ms - since_ms) * 1_000;
        }
        let made_up_us = (bytes as u64 * 1_000_000).checked_div(pace.rate_min);
        self.behind_us = self
            .behind_us
            .saturating_sub(made_up_us.unwrap_or(u64::MAX));
    }
}

/// What is left of the time that a client may make us wait.
#[derive(Debug)]
pub(crate) struct Patience {
    deadline: Deadline,
    arrears: Arrears,
    /// What the kernel held for the client when the wait for it began.
    untaken_bytes: u64,
}

impl Patience {
    /// All of it.
    pub(crate) fn new(deadlines: &Rc<Deadlines>) -> Self {
        Self {
            deadline: deadlines.register(),
            arrears: Arrears::default(),
            untaken_bytes: 0,
        }
    }

    /// Begins anew.
    pub(crate) fn begin(&mut self) {
        self.deadline.clear();
        self.arrears = Arrears::default();
    }

    /// So much of it is left, whatever moves.
    pub(crate) fn set(&mut self, patience_ms: u64) {
        self.deadline.set(patience_ms);
    }

    /// Nobody waits for anybody.
    pub(crate) fn rest(&self) {
        self.deadline.rest();
    }

    /// The client moved so many bytes.
    pub(crate) fn note_moved(&mut self, bytes: usize, pace: Pace) {
        self.deadline.clear();
        self.arrears.pay(bytes, pace, self.deadline.now_ms());
    }

    /// The client moves nothing just now: ready with `TimedOut` when that has gone on for too long. What it takes of the
    /// bytes that the kernel holds for it, by `untaken_bytes`, counts as moved.
    pub(crate) fn poll_over(
        &mut self,
        cx: &mut Context<'_>,
        pace: Pace,
        untaken_bytes: impl Fn() -> u64,
    ) -> Poll<io::Error> {
        loop {
            let patience_ms = self.arrears.patience_ms(pace, self.deadline.now_ms());
            if self.deadline.set_if_clear(patience_ms) {
                self.untaken_bytes = untaken_bytes();
            }
            ready!(self.deadline.poll_expired(cx));
            let taken = self.untaken_bytes.saturating_sub(untaken_bytes());
            if taken == 0 {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.note_moved(usize::try_from(taken).unwrap_or(usize::MAX), pace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        silence_ms: 10_000,
        rate_min: 100,
    };

    /// Waits for `bytes` so long; says what patience is left then.
    fn wait(arrears: &mut Arrears, from_ms: u64, to_ms: u64, bytes: usize) -> u64 {
        arrears.patience_ms(PACE, from_ms);
        arrears.pay(bytes, PACE, to_ms);
        arrears.patience_ms(PACE, to_ms)
    }

    #[test]
    fn a_drip_uses_up_patience_and_a_quick_start_does_not_pay_for_it() {
        let mut arrears = Arrears::default();
        assert_eq!(wait(&mut arrears, 0, 0, 1 << 20), 10_000);
        for second in 0..10 {
            let left_ms = wait(&mut arrears, second * 1_000, (second + 1) * 1_000, 1);
            assert_eq!(left_ms, 10_000 - (second + 1) * 990);
        }
        assert_eq!(wait(&mut arrears, 10_000, 11_000, 1_090), 10_000);
    }

    #[test]
    fn bytes_that_follow_at_once_make_up_for_the_same_wait() {
        let mut arrears = Arrears::default();
        assert_eq!(wait(&mut arrears, 0, 9_000, 100), 2_000);
        arrears.pay(400, PACE, 9_000);
        arrears.pay(400, PACE, 9_000);
        assert_eq!(arrears.patience_ms(PACE, 9_000), 10_000);
    }

    #[test]
    fn time_in_which_nobody_waits_for_the_client_does_not_count() {
        let mut arrears = Arrears::default();
        arrears.pay(1, PACE, 600_000);
        assert_eq!(arrears.patience_ms(PACE, 700_000), 10_000);
        assert_eq!(arrears.patience_ms(PACE, 703_000), 7_000);
        arrears.pay(0, PACE, 704_000);
        assert_eq!(arrears.patience_ms(PACE, 900_000), 6_000);
    }

    #[test]
    fn without_a_least_rate_only_silence_counts() {
        let mut arrears = Arrears::default();
        let pace = Pace {
            rate_min: 0,
            ..PACE
        };
        for minute in 0..60 {
            arrears.patience_ms(pace, minute * 60_000);
            arrears.pay(1, pace, minute * 60_000 + 9_999);
        }
        assert_eq!(arrears.patience_ms(pace, 3_600_000), 10_000);
    }
}
