//! Why a request may not go on, with everything an operator wants to read about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ask::LimitId;
use crate::definition::{Mode, RateDefinition};
use crate::fleet::OnLoss;

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
    /// Permits there are; while the store of a fleet is away, here.
    pub cap: u32,
    /// What the limit did on loss of the fleet's store, where that was away.
    pub away: Option<OnLoss>,
    /// Others that waited when it was decided.
    pub queued: u32,
    /// Requests that may wait.
    pub queue_max: u32,
    /// How long this one waited.
    pub waited: Duration,
    /// How long it might have.
    pub wait: Duration,
    /// From which wait on it was late.
    pub late: Option<Duration>,
    /// How long permits were held lately; zero: not measured.
    pub held: Duration,
    /// How many were refused, itself included, that would be under way, had they not been.
    pub lost: u32,
    /// How many were refused in a row, itself included: had they waited, all of them might still.
    pub lost_in_row: u32,
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
    /// It would wait longer than it may, as predicted on arrival where nobody shall be late.
    WaitTooLong,
    /// It waited as long as it may.
    WaitedTooLong,
    /// The queue runs late, and it was late in it (CoDel).
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
    /// Tells what would have let it pass, in the words of the configuration, had nobody else been refused
    /// lately either.
    #[must_use]
    pub fn admits_if(&self) -> String {
        let lost = self.lost.max(1);
        let concurrent = self
            .in_flight
            .saturating_add(self.queued)
            .saturating_add(lost);
        // In shadow more may be under way than there are permits: they would all have waited.
        let waiting = concurrent.saturating_sub(self.cap).max(1);
        match (self.away, self.cap) {
            (Some(OnLoss::Closed), _) => {
                return "the fleet's store answers: on_loss = \"closed\" lets nobody in until then"
                    .to_owned();
            }
            (Some(OnLoss::Share), _) if self.why == Why::Rate => {
                return "the fleet's store answers: on_loss = \"share\" has each machine count its part until then".to_owned();
            }
            (Some(OnLoss::Share), cap) => {
                return format!(
                    "the fleet's store answers: on_loss = \"share\" lets in {cap} at once until then"
                );
            }
            (Some(OnLoss::Open) | None, _) => {}
        }
        match self.why {
            Why::Full | Why::QueueFull => {
                let behind = self.queued.saturating_add(self.lost_in_row).max(waiting);
                let queue = behind.max(self.queue_max.saturating_add(1));
                let wait = match self.served_in(behind) {
                    None => " with a wait as long as they take".to_owned(),
                    Some(wait) if wait > self.wait => format!(" with wait >= {wait:?}"),
                    Some(_) => String::new(),
                };
                format!("concurrent >= {concurrent}, or queue >= {queue}{wait}")
            }
            Why::WaitTooLong => {
                let wait = self.served_in(waiting).unwrap_or_default();
                let wait = wait.max(whole(self.retry_after));
                format!("concurrent >= {concurrent}, or wait >= {wait:?} without late")
            }
            // As long as a full queue takes, for with such a wait it would have been longer.
            Why::WaitedTooLong => match self.served_in(waiting.max(self.queue_max)) {
                None => format!("concurrent >= {concurrent}, or a wait as long as they take"),
                Some(wait) => {
                    let wait = wait.max(whole(self.waited + self.held));
                    format!("concurrent >= {concurrent}, or wait >= {wait:?}")
                }
            },
            Why::Late => format!("concurrent >= {concurrent}"),
            Why::Rate => {
                let burst = self.rate.map_or(0, |rate| rate.burst);
                let burst = burst.saturating_add(self.lost_in_row.max(1));
                let later = self.retry_after.as_millis() + 1;
                format!("burst >= {burst}, or it had come {later}ms later")
            }
        }
    }

    /// In how many whole seconds so many are served, each as long as permits were held lately.
    fn served_in(&self, requests: u32) -> Option<Duration> {
        let rounds = requests.div_ceil(self.cap.max(1));
        (!self.held.is_zero()).then(|| whole(self.held.saturating_mul(rounds)))
    }
}

/// The next whole second.
fn whole(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs().saturating_add(1))
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
