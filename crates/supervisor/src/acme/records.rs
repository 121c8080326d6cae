//! Records in the domain name system: put there by a program, and taken away by it.
//!
//! The idea: a record is in the store before the program is first run for it, and until it was run
//! to take it away, so that whoever goes on with the store does that, whichever process ended in
//! between. Each record has one state, and what is to be done next follows from that and from
//! whether somebody waits for it: the program is never run twice at once for one. One that it does
//! not take away is given up in the end, and said to be the operator's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use config::model::{Acme, AcmeDns};
use config::reason;
use ipc::acme::{Proof, ToAcme};

use super::store::Publication;
use super::{Authorities, Purpose};
use crate::{Supervisor, chores, surroundings};

/// Those that may be there at once: twice as many as the orders under way have names. The second
/// half are those that wait to be taken away, while others wait to be put there.
const RECORDS_MAX: usize = 5_000;
/// When a record that could not be taken away is tried again first, and when at the latest: that
/// far, half a day goes by.
const FIRST_REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(6 * 3_600);
/// What whoever orders is told of what went wrong, the end of it; all is in the error log.
const WHY_LETTERS_MAX: usize = 300;

/// What the program is run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Present,
    Cleanup,
}

impl Deed {
    fn word(self) -> &'static str {
        match self {
            Deed::Present => "present",
            Deed::Cleanup => "cleanup",
        }
    }
}

/// Those that may be there, by their values.
#[derive(Debug, Default)]
pub(super) struct Records(BTreeMap<String, Record>);

#[derive(Debug)]
struct Record {
    /// The name that is validated.
    name: String,
    /// The account whose store has it.
    account: String,
    /// Under which numbers the acme process wants it.
    wanted: Vec<u32>,
    state: State,
    /// How long it rests when it cannot be taken away.
    rest: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is not there.
    Absent,
    Running(Deed),
    /// It is there, or may be.
    There,
    /// It could not be taken away, and is to be tried again.
    Stuck {
        until: Instant,
    },
}

impl Record {
    fn new(account: &str, name: String, state: State) -> Record {
        Record {
            name,
            account: account.to_owned(),
            wanted: Vec::new(),
            state,
            rest: FIRST_REST,
        }
    }

    fn next(&self, now: Instant) -> Option<Deed> {
        match (self.state, !self.wanted.is_empty()) {
            (State::Absent | State::Stuck { .. }, true) => Some(Deed::Present),
            (State::There, false) => Some(Deed::Cleanup),
            (State::Stuck { until }, false) => (until <= now).then_some(Deed::Cleanup),
            (State::There, true) | (State::Absent, false) | (State::Running(_), _) => None,
        }
    }

    fn is_done(&self) -> bool {
        self.state == State::Absent && self.wanted.is_empty()
    }

    /// Notes that it could not be taken away.
    fn stick(&mut self, value: &str, now: Instant) {
        if self.rest == LONGEST_REST && self.wanted.is_empty() {
            return self.give_up(value);
        }
        let until = now + self.rest;
        self.state = State::Stuck { until };
        self.rest = (self.rest * 2).min(LONGEST_REST);
    }

    /// Leaves it to the operator.
    fn give_up(&mut self, value: &str) {
        let (account, name) = (&self.account, asked_name(&self.name));
        tracing::error!(
            account,
            name,
            value,
            "the program of `dns` does not take this record away, and is asked no more: remove it by hand"
        );
        self.state = State::Absent;
    }
}

impl Records {
    /// Whether there is room for another; where there is none, the one gives way that could not be
    /// taken away for longest.
    fn has_room(&mut self) -> bool {
        let open = self.0.values().filter(|record| !record.is_done());
        let count: usize = open.map(|record| record.wanted.len().max(1)).sum();
        if count < RECORDS_MAX {
            return true;
        }
        let is_stuck =
            |it: &Record| matches!(it.state, State::Stuck { .. }) && it.wanted.is_empty();
        let stuck = self.0.iter_mut().filter(|(_, record)| is_stuck(record));
        let longest = stuck.max_by_key(|(_, record)| record.rest);
        longest
            .map(|(value, record)| record.give_up(value))
            .is_some()
    }

    /// Has a record put there for the acme process.
    fn want(&mut self, number: u32, account: &str, name: String, value: String) {
        let new = || Record::new(account, name, State::Absent);
        let record = self.0.entry(value).or_insert_with(new);
        record.wanted.push(number);
        if !matches!(record.state, State::Running(_)) {
            record.state = State::Absent;
        }
    }

    /// Nobody waits for it any more.
    pub(super) fn withdraw(&mut self, number: u32) {
        for record in self.0.values_mut() {
            record.wanted.retain(|wanted| *wanted != number);
        }
    }

    /// Nobody waits for any of them.
    pub(super) fn withdraw_all(&mut self) {
        self.0.values_mut().for_each(|record| record.wanted.clear());
    }

    /// Those of a store are somebody else's now.
    pub(super) fn forget(&mut self, account: &str) {
        self.0.retain(|_, record| record.account != account);
    }

    /// What may be there of a run before this one.
    pub(super) fn inherit(&mut self, account: &str, left: Vec<(String, String)>) {
        for (name, value) in left {
            let new = || Record::new(account, name, State::There);
            self.0.entry(value).or_insert_with(new);
        }
    }

    /// When one that could not be taken away is tried again.
    pub(super) fn until(&self) -> Option<Instant> {
        let stuck = self.0.values().filter_map(|record| match record.state {
            State::Stuck { until } if record.wanted.is_empty() => Some(until),
            _ => None,
        });
        stuck.min()
    }

    /// Notes how the program ended; tells the numbers that are to be answered.
    fn end(&mut self, value: &str, went_well: bool, now: Instant) -> Vec<u32> {
        let Some(record) = self.0.get_mut(value) else {
            return Vec::new();
        };
        match record.state {
            State::Running(Deed::Present) => {
                record.state = State::There;
                let told = record.wanted.clone();
                if !went_well {
                    // Something may be there nevertheless: it is taken away.
                    record.wanted.clear();
                }
                return told;
            }
            _ if went_well => record.state = State::Absent,
            _ => record.stick(value, now),
        }
        Vec::new()
    }
}

impl Authorities {
    /// Has a record put there; it is answered when that has been done.
    pub(super) fn present(
        &mut self,
        number: u32,
        certificate: &str,
        publication: Publication,
    ) -> Result<(), String> {
        let Publication {
            name,
            proof: Proof::Dns { value },
        } = &publication
        else {
            return Err("no record shows it".into());
        };
        if !self.records.has_room() {
            return Err("too many records are there".into());
        }
        let (index, store) = self.store_of(certificate)?;
        let published = store.publish(&publication);
        published.map_err(|error| format!("keep the record: {}", reason(&error)))?;
        let account = self.wishes.accounts.get(index);
        let account = account.map_or("", |acme| acme.name.as_str());
        let (name, value) = (name.clone(), value.clone());
        self.records.want(number, account, name, value);
        Ok(())
    }

    /// What a run before this one may have left in the store of an account.
    pub(super) fn inherit_records(&mut self, index: usize) {
        let Some(acme) = self.wishes.accounts.get(index) else {
            return;
        };
        let store = self.stores.get(index).and_then(Option::as_ref);
        let Some(store) = store.filter(|store| store.is_held()) else {
            return self.records.forget(&acme.name);
        };
        match store.records() {
            Ok(left) => self.records.inherit(&acme.name, left),
            Err(error) => tracing::error!(error = reason(&error), "records that may be left"),
        }
    }

    /// The program that an account's records are put there with: its own, or that of the first
    /// account that stands in for it.
    fn dns<'a>(&'a self, acme: &'a Acme) -> Option<&'a AcmeDns> {
        let others = acme.fallback.iter();
        let mut others = others.filter_map(|index| self.wishes.accounts.get(*index));
        let own = acme.dns.as_ref();
        own.or_else(|| others.find_map(|other| other.dns.as_ref()))
    }

    /// Has the program run wherever it is time to.
    pub(super) fn advance_records(&mut self, now: Instant) {
        let mut records = std::mem::take(&mut self.records);
        records.0.retain(|value, record| {
            let mut accounts = self.wishes.accounts.iter();
            let index = accounts.position(|acme| acme.name == record.account);
            let found = index.and_then(|at| Some((at, self.wishes.accounts.get(at)?)));
            let Some((index, acme)) = found else {
                return false;
            };
            if record.is_done() {
                let publication = Publication {
                    name: record.name.clone(),
                    proof: Proof::Dns {
                        value: value.clone(),
                    },
                };
                let store = self.stores.get_mut(index).and_then(Option::as_mut);
                if let Some(Err(error)) = store.map(|store| store.withdraw(&publication)) {
                    tracing::debug!(error = reason(&error), "a record stays in the store");
                }
                return false;
            }
            let Some(deed) = record.next(now) else {
                return true;
            };
            let Some(dns) = self.dns(acme) else {
                let (account, name) = (&acme.name, &record.name);
                tracing::error!(
                    account,
                    name,
                    "a record stays: the account has no `dns` any more"
                );
                return false;
            };
            record.state = State::Running(deed);
            let whose = format!("account {}", acme.name);
            let user = surroundings::user_of_chore(&dns.program, ("account", &acme.name));
            let asked = asked_name(&record.name);
            let more = [deed.word(), &asked, value];
            let program = chores::program(&dns.program, whose, user.ok().flatten(), &more);
            let limit = Duration::from_millis(dns.timeout_ms);
            self.chores
                .add(Purpose::Record(value.clone()), program, limit);
            true
        });
        self.records = records;
    }
}

/// Where the authority asks: of a wildcard, where it asks of what stands behind it.
fn asked_name(name: &str) -> String {
    format!(
        "_acme-challenge.{}.",
        name.strip_prefix("*.").unwrap_or(name)
    )
}

impl Supervisor {
    /// Goes on with a record that the program has ended for.
    pub(super) fn on_record(&mut self, value: &str, outcome: chores::ChoreEnd) {
        let Authorities { records, .. } = &mut self.authorities;
        let known = records.0.get(value);
        let told = known.map(|it| (it.account.clone(), it.name.clone(), it.state));
        let numbers = records.end(value, outcome.is_ok(), Instant::now());
        if let (Some((account, name, State::Running(deed))), Err(why)) = (told, &outcome) {
            let deed = deed.word();
            tracing::error!(account, name, action = deed, "the program of `dns`: {why}");
        }
        let result = outcome.map_err(|why| {
            let surplus = why.chars().count().saturating_sub(WHY_LETTERS_MAX);
            let end: String = why.chars().skip(surplus).collect();
            let cut = if surplus > 0 { "…" } else { "" };
            format!("the program of `dns`: {cut}{end}")
        });
        for number in numbers {
            let result = result.clone();
            self.authorities.say(&ToAcme::Published { number, result });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has a record come into the state that follows from how the program ends; whether it was run.
    fn run(records: &mut Records, value: &str, went_well: bool, now: Instant) -> bool {
        let record = records.0.get_mut(value).expect("known");
        let Some(deed) = record.next(now) else {
            return false;
        };
        record.state = State::Running(deed);
        records.end(value, went_well, now);
        true
    }

    /// Records that nobody wants.
    fn left(count: usize) -> Records {
        let mut records = Records::default();
        let left = (0..count).map(|value| ("a.example".into(), value.to_string()));
        records.inherit("le", left.collect());
        records
    }

    #[test]
    fn a_record_that_is_never_taken_away_is_given_up_after_half_a_day() {
        let mut records = left(1);
        let begun = Instant::now();
        let (mut now, mut tries) = (begun, 0);
        while !records.0["0"].is_done() {
            assert!(run(&mut records, "0", false, now));
            tries += 1;
            now = records.until().unwrap_or(now);
        }
        assert_eq!(tries, 13);
        let hours = (now - begun).as_secs() / 3_600;
        assert_eq!(hours, 11);
        // One that is wanted meanwhile is put there again.
        records.want(1, "le", "a.example".into(), "0".into());
        assert!(run(&mut records, "0", true, now));
        assert_eq!(records.0["0"].state, State::There);
    }

    #[test]
    fn what_cannot_be_taken_away_makes_room_and_what_waits_to_be_does_not() {
        let mut records = left(RECORDS_MAX);
        let now = Instant::now();
        assert!(!records.has_room());
        assert!(run(&mut records, "1", false, now) && run(&mut records, "2", false, now));
        let later = records.until().expect("both are stuck");
        assert!(run(&mut records, "2", false, later));
        records.want(1, "le", "a.example".into(), "3".into());
        assert!(records.has_room(), "2 has been tried for longest");
        assert!(records.0["2"].is_done() && !records.0["1"].is_done());
        for number in 2..100 {
            let value = format!("w{number}");
            if records.has_room() {
                records.want(number, "le", "b.example".into(), value);
            }
        }
        let open = records.0.values().filter(|record| !record.is_done());
        assert_eq!(open.count(), RECORDS_MAX);
        assert!(records.0["1"].is_done() && !records.has_room());
    }
}
