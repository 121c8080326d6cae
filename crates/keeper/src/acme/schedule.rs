//! When a certificate is ordered, and what of it.
//!
//! The idea: a [`Course`] is all that is remembered of a certificate, and time comes in. A
//! certificate is due when a third of its life is left, or within the window that its authority
//! suggests (ARI, RFC 9773); which moment exactly follows from its name, so that thousands that were
//! ordered in one night are not renewed in one. A failure is told from the first one on. What fails
//! is tried again after a minute, then after twice as long each time, up to six hours; after every
//! third failure the next authority has its turn. A name that does not validate waits likewise, on
//! its own, while the others of its certificate are ordered.

use std::collections::BTreeMap;
use std::hash::Hasher;

use ipc::acme::{CertificateState, Held};
use siphasher::sip::SipHasher13;

/// The share of its life that a certificate has left when it is due: one of so many parts.
const LEFT_SHARE: i64 = 3;
/// How far moments are spread: one of so many parts of a life.
const SPREAD_SHARE: i64 = 20;
/// Rest after the first failure.
const FIRST_REST_S: i64 = 60;
/// The longest rest after a failure.
const LONGEST_REST_S: i64 = 6 * 3_600;
/// The longest rest that an authority can ask for.
const ASKED_REST_MAX_S: i64 = 7 * 24 * 3_600;
/// Failures until the next authority has its turn.
const FAILURES_AN_AUTHORITY: u32 = 3;

/// When an authority suggests that a certificate be renewed: seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start_s: i64,
    pub(super) end_s: i64,
}

/// A number from 0 up to `below` that a name always gets.
fn place(name: &str, below: i64) -> i64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(name.as_bytes());
    let below = u64::try_from(below).unwrap_or(0).max(1);
    i64::try_from(hasher.finish() % below).unwrap_or(0)
}

/// When a certificate is due.
pub(super) fn due_s(name: &str, held: &Held, window: Option<Window>) -> i64 {
    if let Some(window) = window.filter(|window| window.start_s < window.end_s) {
        return window.start_s + place(name, window.end_s.saturating_sub(window.start_s));
    }
    let life_s = held.not_after_s.saturating_sub(held.not_before_s).max(0);
    let latest_s = held.not_after_s.saturating_sub(life_s / LEFT_SHARE);
    latest_s.saturating_sub(place(name, life_s / SPREAD_SHARE))
}

/// The rest after so many failures in a row; at least what the authority asked for.
pub(super) fn rest_s(failures: u32, asked_s: i64) -> i64 {
    let doublings = failures.saturating_sub(1).min(16);
    let rest_s = (FIRST_REST_S << doublings).min(LONGEST_REST_S);
    rest_s.max(asked_s.min(ASKED_REST_MAX_S))
}

/// A name that does not validate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LeftOut {
    failures: u32,
    until_s: i64,
    why: String,
}

/// How it goes with one certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Course {
    window: Option<Window>,
    failures: u32,
    tries: u32,
    issued: u32,
    rehearsals: u32,
    rehearsal: String,
    last_try_s: i64,
    /// Not tried before.
    rests_until_s: i64,
    error: String,
    left_out: BTreeMap<String, LeftOut>,
    is_wanted_now: bool,
}

impl Course {
    /// When the certificate is ordered next.
    pub(super) fn next_s(&self, name: &str, names: &[String], held: Option<&Held>) -> i64 {
        let due_s = match held {
            _ if self.is_wanted_now => 0,
            None => 0,
            Some(held) => {
                let missing = names.iter().filter(|name| !held.names.contains(name));
                let until_s = |name: &String| self.left_out.get(name).map_or(0, |out| out.until_s);
                let missing_s = missing.map(until_s).min().unwrap_or(i64::MAX);
                due_s(name, held, self.window).min(missing_s)
            }
        };
        due_s.max(self.rests_until_s)
    }

    /// The names that are ordered now: all but those that rest.
    pub(super) fn names<'a>(&self, names: &'a [String], now_s: i64) -> Vec<&'a String> {
        let rests = |name: &str| {
            let out = self.left_out.get(name);
            out.is_some_and(|out| out.until_s > now_s)
        };
        names.iter().filter(|name| !rests(name)).collect()
    }

    /// How often a name did not validate since it last did.
    pub(super) fn failures_of(&self, name: &str) -> u32 {
        self.left_out.get(name).map_or(0, |out| out.failures)
    }

    /// When it was last tried.
    pub(super) fn last_try_s(&self) -> i64 {
        self.last_try_s
    }

    /// Whether an operator wants it now.
    pub(super) fn is_wanted_now(&self) -> bool {
        self.is_wanted_now
    }

    /// Until when the certificate of one name rests, and why, if it does.
    pub(super) fn rest(&self, name: &str, now_s: i64) -> Option<(i64, &str)> {
        let out = self.left_out.get(name);
        let out = out.map(|out| (out.until_s, out.why.as_str()));
        let whole = (self.rests_until_s, self.error.as_str());
        let last = out
            .into_iter()
            .chain([whole])
            .max_by_key(|(until_s, _)| *until_s);
        last.filter(|(until_s, _)| *until_s > now_s)
    }

    /// When the first of the names that rest may be tried.
    pub(super) fn first_name_s(&self) -> i64 {
        let until = self.left_out.values().map(|out| out.until_s);
        until.min().unwrap_or(0)
    }

    /// Which of so many authorities has its turn.
    pub(super) fn authority(&self, count: usize) -> usize {
        (self.failures / FAILURES_AN_AUTHORITY) as usize % count.max(1)
    }

    /// An operator wants it now, whatever it rests for.
    pub(super) fn want_now(&mut self) {
        self.is_wanted_now = true;
        self.rests_until_s = 0;
        for out in self.left_out.values_mut() {
            out.until_s = 0;
        }
    }

    /// The authority suggests this.
    pub(super) fn suggest(&mut self, window: Window) {
        self.window = Some(window);
    }

    /// Whether the authority has suggested something.
    pub(super) fn is_suggested(&self) -> bool {
        self.window.is_some()
    }

    /// Begins a try.
    pub(super) fn begin(&mut self, now_s: i64) {
        self.last_try_s = now_s;
        self.tries = self.tries.saturating_add(1);
        self.is_wanted_now = false;
    }

    /// It was issued for these names.
    pub(super) fn succeed(&mut self, names: &[String]) {
        self.left_out.retain(|name, _| !names.contains(name));
        self.window = None;
        self.issued = self.issued.saturating_add(1);
        // Whoever wanted it meanwhile has it.
        self.is_wanted_now = false;
        self.failures = 0;
        self.rests_until_s = 0;
        self.error.clear();
    }

    /// It failed as a whole.
    pub(super) fn fail(&mut self, now_s: i64, asked_s: i64, why: String) {
        self.failures = self.failures.saturating_add(1);
        self.rests_until_s = now_s.saturating_add(rest_s(self.failures, asked_s));
        self.error = why;
    }

    /// A rehearsal has ended, and what was wrong in it, if anything.
    pub(super) fn rehearsed(&mut self, why: String) {
        self.rehearsals = self.rehearsals.saturating_add(1);
        self.rehearsal = why;
    }

    /// A name of it did not validate.
    pub(super) fn leave_out(&mut self, name: &str, now_s: i64, why: String) {
        let failures = self.left_out.get(name).map_or(0, |out| out.failures) + 1;
        let until_s = now_s.saturating_add(rest_s(failures, 0));
        let out = LeftOut {
            failures,
            until_s,
            why,
        };
        self.left_out.insert(name.to_owned(), out);
    }

    /// Forgets names that are not wanted any more.
    pub(super) fn keep_names(&mut self, names: &[String]) {
        self.left_out.retain(|name, _| names.contains(name));
    }

    /// It, for whoever asks.
    pub(super) fn state(&self, certificate: &str, next_try_s: i64) -> CertificateState {
        let left_out = self.left_out.iter();
        CertificateState {
            certificate: certificate.to_owned(),
            last_try_s: self.last_try_s,
            next_try_s,
            tries: self.tries,
            issued: self.issued,
            rehearsals: self.rehearsals,
            rehearsal: self.rehearsal.clone(),
            failures: self.failures,
            error: self.error.clone(),
            left_out: left_out
                .map(|(name, out)| (name.clone(), out.why.clone()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ipc::certificates::Blob;
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 86_400;

    fn held(names: &[&str], not_before_s: i64, not_after_s: i64) -> Held {
        Held {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            not_before_s,
            not_after_s,
            leaf: Blob::default(),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    proptest! {
        #[test]
        fn a_certificate_is_due_with_a_third_to_two_fifths_of_its_life_left(
            name in "[a-z]{1,20}", from_s in 0_i64..2_000_000_000, life_s in 60_i64..400 * DAY,
        ) {
            let held = held(&[], from_s, from_s + life_s);
            let left_s = held.not_after_s - due_s(&name, &held, None);
            prop_assert!(left_s * 3 + 3 >= life_s && left_s * 5 <= life_s * 2 + 5);
        }

        #[test]
        fn an_authoritys_window_holds_whatever_the_life_is(
            name in "[a-z]{1,20}", start_s in 0_i64..2_000_000_000, long_s in 1_i64..100 * DAY,
        ) {
            let window = Window { start_s, end_s: start_s + long_s };
            let due_s = due_s(&name, &held(&[], 0, 90 * DAY), Some(window));
            prop_assert!((start_s..start_s + long_s).contains(&due_s));
        }

        #[test]
        fn whatever_happens_no_two_tries_are_nearer_than_a_minute_and_none_later_than_six_hours(
            waits in proptest::collection::vec(0_i64..DAY, 1..60),
        ) {
            let (mut course, mut now_s) = (Course::default(), 1_000_000);
            for wait_s in waits {
                now_s = now_s.max(course.next_s("a", &names(&["a"]), None)) + wait_s;
                course.begin(now_s);
                course.fail(now_s, 0, "no".into());
                let rest_s = course.next_s("a", &names(&["a"]), None) - now_s;
                prop_assert!((60..=6 * 3_600).contains(&rest_s));
            }
        }
    }

    #[test]
    fn ten_thousand_of_one_night_are_spread_over_days() {
        let held = held(&[], 0, 90 * DAY);
        let mut by_hour = BTreeMap::new();
        for site in 0..10_000 {
            let hour = due_s(&format!("site{site}.example"), &held, None) / 3_600;
            *by_hour.entry(hour).or_insert(0) += 1;
        }
        // 4.5 days: 108 hours.
        assert!(by_hour.len() >= 107, "{}", by_hour.len());
        assert!(by_hour.values().all(|count| *count < 200));
    }

    #[test]
    fn rests_double_from_a_minute_to_six_hours_and_keep_to_what_was_asked() {
        let rests: Vec<_> = (1..=11).map(|failures| rest_s(failures, 0) / 60).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360]);
        assert_eq!(rest_s(u32::MAX, 0), 6 * 3_600);
        assert_eq!(rest_s(1, 3_600), 3_600);
        assert_eq!(rest_s(11, 3_600), 6 * 3_600);
        assert_eq!(rest_s(1, i64::MAX), 7 * DAY);
    }

    #[test]
    fn the_next_authority_has_its_turn_after_every_third_failure() {
        let mut course = Course::default();
        let mut turns = Vec::new();
        for _ in 0..8 {
            turns.push(course.authority(2));
            course.fail(0, 0, String::new());
        }
        assert_eq!(turns, [0, 0, 0, 1, 1, 1, 0, 0]);
        course.succeed(&[]);
        assert_eq!(course.authority(2), 0);
        assert_eq!(course.authority(0), 0);
    }

    #[test]
    fn a_name_that_does_not_validate_is_left_out_and_the_others_go_on() {
        let wanted = names(&["a", "b"]);
        let mut course = Course::default();
        course.leave_out("b", 1_000, "no such name".into());
        assert_eq!(course.names(&wanted, 1_000), [&wanted[0]]);
        let half = held(&["a"], 0, 90 * DAY);
        course.succeed(&half.names);
        // The other one has its own rest, and then both are ordered.
        assert_eq!(course.next_s("a", &wanted, Some(&half)), 1_060);
        assert_eq!(course.names(&wanted, 1_060).len(), 2);
        course.leave_out("b", 1_060, "no such name".into());
        assert_eq!(course.next_s("a", &wanted, Some(&half)), 1_180);
        let state = course.state("a", 1_180);
        assert_eq!(state.left_out, [("b".into(), "no such name".into())]);
        let whole = held(&["a", "b"], 0, 90 * DAY);
        course.succeed(&whole.names);
        assert!(course.state("a", 0).left_out.is_empty());
    }

    #[test]
    fn a_failure_is_told_at_once_and_forgotten_with_the_next_success() {
        let mut course = Course::default();
        course.begin(500);
        course.fail(500, 0, "connection refused".into());
        let state = course.state("a", course.next_s("a", &names(&["a"]), None));
        assert_eq!(
            (state.failures, state.last_try_s, state.next_try_s),
            (1, 500, 560)
        );
        assert_eq!(state.error, "connection refused");
        course.succeed(&names(&["a"]));
        assert_eq!(course.state("a", 0).failures, 0);
        assert_eq!(course.state("a", 0).error, "");
    }

    #[test]
    fn what_an_operator_wants_is_due_at_once_and_once() {
        let wanted = names(&["a"]);
        let fresh = held(&["a"], 0, 90 * DAY);
        let mut course = Course::default();
        course.fail(0, 0, "no".into());
        course.want_now();
        assert_eq!(course.next_s("a", &wanted, Some(&fresh)), 0);
        course.begin(10);
        course.want_now();
        course.succeed(&wanted);
        assert!(course.next_s("a", &wanted, Some(&fresh)) > 50 * DAY);
    }
}
