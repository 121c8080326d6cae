//! Why a request may not go on, with everything an operator wants to read about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ask::LimitId;
use crate::definition::{Mode, RateDefinition};

/// A request that may not go on, and the limit that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The limit.
    pub limit: LimitId,
    /// What the limit is called in messages.
    pub name: Arc<str>,
    /// What the limit's state is kept by.
    pub identity: Arc<str>,
    /// The request's key, cut and made printable; empty for a fixed limit, `(other)` where the
    /// tenant's keys were used up.
    pub key: String,
    /// Why.
    pub why: Why,
    /// Whether it really was refused; in shadow it only would have been.
    pub mode: Mode,
    /// Permits given out when it was decided.
    pub in_flight: u32,
    /// Permits there are.
    pub cap: u32,
    /// Requests that waited when it was decided.
    pub queued: u32,
    /// Requests that may wait.
    pub queue_max: u32,
    /// How long this one waited.
    pub waited: Duration,
    /// How long somebody who comes back should stay away, as predicted. The caller rounds up and
    /// spreads it.
    pub retry_after: Duration,
    /// How many may begin in a time, where the limit says so.
    pub rate: Option<RateDefinition>,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// No permit is free, and nobody may wait.
    Full,
    /// No permit is free, and as many wait as may.
    QueueFull,
    /// It would wait longer than it may, as predicted on arrival.
    WaitTooLong,
    /// It waited as long as it may.
    WaitedTooLong,
    /// The queue runs late, and it was too late in it (CoDel).
    Late,
    /// Too many began in too short a time.
    Rate,
}

impl Why {
    /// Every reason there is.
    pub const ALL: [Self; 6] = [
        Self::Full,
        Self::QueueFull,
        Self::WaitTooLong,
        Self::WaitedTooLong,
        Self::Late,
        Self::Rate,
    ];

    /// Names the reason with the word that stands in logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "limit_full",
            Self::QueueFull => "limit_queue_full",
            Self::WaitTooLong => "limit_wait_too_long",
            Self::WaitedTooLong => "limit_waited",
            Self::Late => "limit_late",
            Self::Rate => "limit_rate",
        }
    }
}

impl Refusal {
    /// Tells what would have let it pass, in the words of the configuration.
    #[must_use]
    pub fn admits_if(&self) -> String {
        let concurrent = self.in_flight.saturating_add(1);
        // In shadow more may be under way than there are permits: they would all have waited.
        let above = concurrent.saturating_sub(self.cap).max(1);
        match self.why {
            Why::Full => format!("concurrent >= {concurrent}, or queue >= {above}"),
            Why::QueueFull => {
                let queue = self.queue_max.saturating_add(1).max(above);
                format!("concurrent >= {concurrent}, or queue >= {queue}")
            }
            Why::WaitTooLong => {
                let wait_ms = self.retry_after.as_millis() + 1;
                format!("concurrent >= {concurrent}, or wait >= {wait_ms}ms")
            }
            Why::WaitedTooLong => {
                let wait_ms = self.waited.as_millis();
                format!(
                    "concurrent >= {concurrent}, or a wait longer than {wait_ms}ms, by how much nobody knows"
                )
            }
            Why::Late => format!("concurrent >= {concurrent}"),
            Why::Rate => match &self.rate {
                Some(rate) => format!("rate > {rate}, or burst > {}", rate.burst),
                None => "no rate".to_owned(),
            },
        }
    }
}

impl fmt::Display for Refusal {
    /// `limit file=/srv/a.php concurrent 2/2 queue 0/0`; a key that could be taken for something
    /// else, or change how the line looks, is quoted and escaped.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "limit {}", self.name)?;
        if !self.key.is_empty() {
            match is_plain(&self.key) {
                true => write!(formatter, "={}", self.key)?,
                false => write!(formatter, "={:?}", self.key)?,
            }
        }
        if let (Why::Rate, Some(rate)) = (self.why, &self.rate) {
            return write!(formatter, " rate {rate} burst {}", rate.burst);
        }
        let Self { in_flight, cap, .. } = self;
        write!(
            formatter,
            " concurrent {in_flight}/{cap} queue {}/{}",
            self.queued, self.queue_max
        )
    }
}

/// Whether a key can be told from what stands around it: letters of any script, digits and signs
/// of ASCII, without a space.
fn is_plain(key: &str) -> bool {
    key.chars().all(|character| match character {
        '"' | '\\' => false,
        _ => character.is_ascii_graphic() || character.is_alphanumeric(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_place_and_a_word_of_its_own() {
        let mut words: Vec<_> = Why::ALL.into_iter().map(Why::word).collect();
        for (at, why) in Why::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, at, "{why:?}");
        }
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Why::ALL.len());
    }

    #[test]
    fn a_key_cannot_be_taken_for_the_rest_of_a_line() {
        for (key, is_plain) in [
            ("/srv/htdocs/a-b_c.php", true),
            ("/srv/日本語.php", true),
            ("2001:db8::/64", true),
            ("x concurrent 2/2 queue 0/0: 9 refused", false),
            ("a\"b", false),
            ("a\\b", false),
            ("a\u{202e}b", false),
            ("a\u{1b}[31m", false),
        ] {
            assert_eq!(super::is_plain(key), is_plain, "{key:?}");
        }
    }
}
