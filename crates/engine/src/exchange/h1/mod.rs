//! An exchange carried by an HTTP/1.1 connection (RFC 9112).
//!
//! Both halves share one stream and outlive the request: a connection takes an exchange when it
//! has something to say, attaches both halves to its stream, and gives it back when it falls idle. Framing is decided in `wire`; here
//! it meets the socket. When a connection may be kept is decided in `listener/connection.rs`.

pub(crate) mod body;
pub(crate) mod reply;

pub(crate) use body::H1Body;
pub(crate) use reply::H1Reply;

use std::ops::Deref;
use std::rc::Rc;

use crate::io::Io;

/// The connection of a half, which has none while its exchange is at rest.
#[derive(Debug)]
struct Attached(Option<Rc<Io>>);

impl Deref for Attached {
    type Target = Io;

    fn deref(&self) -> &Io {
        self.0.as_deref().expect("a half at rest is not used")
    }
}

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
