//! Handshakes that came to nothing: the last few thousand, for `nagaya why --tls`, and how many for which reason.
//!
//! The idea: what fails before a request has no access record, and a client that does not like a certificate says so
//! in one byte. Both are kept here, bounded, and told to whoever asks by name or address. What a client said is
//! shown as text that holds no control characters.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::Named;

/// Failures that are remembered.
pub(crate) const FAILURES_MAX: usize = 4_096;
/// Longest name and longest detail that are kept.
const TEXT_BYTES_MAX: usize = 255;
/// Versions of TLS that a failure tells at most.
const OFFERED_MAX: usize = 5;

/// A handshake that came to nothing.
#[derive(Debug, Clone)]
pub(crate) struct FailedHandshake {
    /// When, since 1970.
    pub(crate) at: Duration,
    /// The client.
    pub(crate) client: IpAddr,
    /// The name it asked for, if it came to say one.
    pub(crate) name: Option<Box<str>>,
    /// The stable word for why.
    pub(crate) reason: &'static str,
    /// The alert with which the client ended it (RFC 8446 §6.2).
    pub(crate) client_alert: Option<u8>,
    /// The versions it offered, as its hello numbers them.
    pub(crate) offered: Vec<u16>,
    /// More, where there is more to say.
    pub(crate) detail: String,
}

/// Handshakes that came to nothing.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Held for the length of one failure, or of one look at all of them.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    last: VecDeque<FailedHandshake>,
    /// By reason, of which the code has only so many.
    by_reason: BTreeMap<&'static str, u64>,
    /// By number, of which there are 256.
    by_alert: BTreeMap<u8, u64>,
}

/// Whose failures are wanted.
pub(crate) enum Whose<'a> {
    /// Of this client.
    Client(IpAddr),
    /// For this name.
    Name(&'a str),
}

impl Failures {
    /// Takes note of a failure.
    pub(crate) fn record(&self, mut failure: FailedHandshake) {
        cut(&mut failure.detail);
        failure.offered.truncate(OFFERED_MAX);
        failure.name = failure.name.take().map(|name| {
            let mut name = name.into_string();
            cut(&mut name);
            name.into()
        });
        let mut known = self.lock();
        *known.by_reason.entry(failure.reason).or_default() += 1;
        if let Some(alert) = failure.client_alert {
            *known.by_alert.entry(alert).or_default() += 1;
        }
        let forgotten = match known.last.len() {
            FAILURES_MAX.. => known.last.pop_front(),
            _ => None,
        };
        known.last.push_back(failure);
        drop(known);
        drop(forgotten);
    }

    /// How many there were, by reason and by the alert of the client.
    pub(crate) fn counted(&self) -> (Named<u64>, Named<u64>) {
        let known = self.lock();
        let by_reason = known
            .by_reason
            .iter()
            .map(|(reason, count)| (*reason, *count));
        let by_alert = known.by_alert.iter();
        let by_alert = by_alert.map(|(alert, count)| (alert_name(*alert), *count));
        (by_reason.collect(), by_alert.collect())
    }

    /// Those of a name or a client, the newest first.
    pub(crate) fn find(&self, asked: &Whose<'_>) -> Vec<FailedHandshake> {
        let known = self.lock();
        let found = known
            .last
            .iter()
            .rev()
            .filter(|failure| asked.fits(failure));
        found.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shortens a text to what is kept of it.
fn cut(text: &mut String) {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(fits);
    text.truncate(end.unwrap_or(0));
}

impl Whose<'_> {
    /// What an operator means by a name or an address.
    pub(crate) fn of(text: &str) -> Whose<'_> {
        match text.parse::<IpAddr>() {
            Ok(client) => Whose::Client(client.to_canonical()),
            Err(_) => Whose::Name(text.trim_end_matches('.')),
        }
    }

    fn fits(&self, failure: &FailedHandshake) -> bool {
        match self {
            Whose::Client(client) => failure.client.to_canonical() == *client,
            Whose::Name(name) => {
                let said = failure.name.as_deref();
                said.is_some_and(|said| said.eq_ignore_ascii_case(name))
            }
        }
    }
}

/// The registered name of an alert (IANA, TLS Alerts).
pub(crate) fn alert_name(number: u8) -> &'static str {
    match number {
        0 => "close_notify",
        10 => "unexpected_message",
        20 => "bad_record_mac",
        22 => "record_overflow",
        40 => "handshake_failure",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        49 => "access_denied",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        90 => "user_canceled",
        109 => "missing_extension",
        110 => "unsupported_extension",
        112 => "unrecognized_name",
        113 => "bad_certificate_status_response",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        120 => "no_application_protocol",
        _ => "unknown",
    }
}

/// What a version is called; `None` for what is none, as those are that browsers make up (RFC 8701).
pub(crate) fn version_name(number: u16) -> Option<&'static str> {
    match number {
        0x0300 => Some("SSL 3"),
        0x0301 => Some("1.0"),
        0x0302 => Some("1.1"),
        0x0303 => Some("1.2"),
        0x0304 => Some("1.3"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_are_remembered_and_all_are_counted() {
        let failures = Failures::default();
        for _ in 0..FAILURES_MAX + 10 {
            let mut long = FailedHandshake {
                at: Duration::ZERO,
                client: [192, 0, 2, 7].into(),
                name: Some("é".repeat(400).into()),
                reason: "client_gone",
                client_alert: None,
                offered: vec![0x0304; 100],
                detail: String::new(),
            };
            long.detail = "x".repeat(10_000);
            failures.record(long);
        }
        let known = failures.lock();
        assert_eq!(known.last.len(), FAILURES_MAX);
        let last = known.last.back().expect("one");
        assert!(last.detail.len() <= TEXT_BYTES_MAX);
        assert!(
            last.name
                .as_deref()
                .is_some_and(|name| name.len() <= TEXT_BYTES_MAX)
        );
        drop(known);
        let (reasons, _) = failures.counted();
        assert_eq!(
            reasons.get("client_gone"),
            Some(&(FAILURES_MAX as u64 + 10))
        );
    }
}
