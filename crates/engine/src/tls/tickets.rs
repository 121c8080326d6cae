//! Tickets: sessions that clients keep for us, sealed with keys that the keeper makes.
//!
//! A policy has keys of its own (RFC 9325 §3.3; CVE-2025-23419): who was let in under one is not resumed under another.
//! The keeper makes new ones as time passes; here they are only used. A ticket is the key's name, a nonce, and the
//! session sealed by AES-256-GCM.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ipc::signing::{Answer, Asked, TicketKey};
use rustls::server::ProducesTickets;

use super::keeper::Keeper;

/// Bytes of a key's name.
const NAME_BYTES: usize = 16;
/// Longest ticket that is looked at: ours hold a client's certificates at most.
const TICKET_BYTES_MAX: usize = 64 * 1_024;
/// The longest a ticket may live (RFC 8446 §4.6.1).
const LIFETIME_MAX_S: u64 = 7 * 24 * 60 * 60;
/// How long nobody asks again after there was no answer.
const AGAIN_S: u64 = 1;
/// How long keys are used before they are asked for again: a reload may have brought another secret.
const KEPT_S: u64 = 10;

/// The ticket keys of one policy.
#[derive(Debug)]
pub(crate) struct Tickets {
    policy: [u8; 32],
    /// Held to copy or replace it.
    keys: Mutex<Arc<[SealingKey]>>,
    /// When the keeper is to be asked next: seconds since 1970.
    due_s: AtomicU64,
}

/// A key, ready to seal and open. The current one stands first.
#[derive(Debug)]
struct SealingKey {
    name: [u8; NAME_BYTES],
    accepted_until_s: u64,
    sealing: LessSafeKey,
}

impl Tickets {
    /// Those of a policy, by a hash of what it says; none until [`Tickets::refresh`].
    pub(crate) fn new(policy: [u8; 32]) -> Arc<Self> {
        Arc::new(Self {
            policy,
            keys: Mutex::new(Arc::from([])),
            due_s: AtomicU64::new(0),
        })
    }

    /// Asks the keeper for keys, on a handshake thread, where that is due.
    pub(crate) fn refresh(&self, keeper: &Keeper, thread: usize) {
        let now_s = unix_s();
        let due_s = self.due_s.load(Relaxed);
        if now_s < due_s || keeper.is_lost() {
            return;
        }
        // One asks; the others work with what there is.
        let (next_s, policy) = (now_s + AGAIN_S, self.policy);
        let is_mine = self.due_s.compare_exchange(due_s, next_s, Relaxed, Relaxed);
        if is_mine.is_ok()
            && let Ok(Answer::TicketKeys(keys)) = keeper.ask(thread, &Asked::TicketKeys { policy })
        {
            self.take(&keys, now_s);
        }
    }

    fn take(&self, told: &[TicketKey], now_s: u64) {
        let keys: Arc<[SealingKey]> = told.iter().filter_map(SealingKey::new).collect();
        if let Some(current) = told.first() {
            let due_s = current.issues_until_s.min(now_s + KEPT_S);
            self.due_s.store(due_s.max(now_s + AGAIN_S), Relaxed);
        }
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    fn keys(&self) -> Arc<[SealingKey]> {
        Arc::clone(&self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn seal(&self, session: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let keys = self.keys();
        let key = keys.first().filter(|key| key.accepted_until_s > now_s)?;
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut sealed = session.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        key.sealing
            .seal_in_place_append_tag(unique, Aad::from(key.name), &mut sealed)
            .ok()?;
        Some([&key.name[..], &nonce, &sealed].concat())
    }

    fn open(&self, ticket: &[u8], now_s: u64) -> Option<Vec<u8>> {
        if ticket.len() > TICKET_BYTES_MAX {
            return None;
        }
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys();
        // The name is no secret: every ticket shows it.
        let key = keys.iter().find(|key| key.name == *name)?;
        if key.accepted_until_s <= now_s {
            return None;
        }
        let mut session = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = key
            .sealing
            .open_in_place(nonce, Aad::from(*name), &mut session);
        let count = opened.ok()?.len();
        session.truncate(count);
        Some(session)
    }
}

impl SealingKey {
    fn new(key: &TicketKey) -> Option<Self> {
        let unbound = UnboundKey::new(&AES_256_GCM, &key.secret).ok()?;
        Some(Self {
            name: key.name,
            accepted_until_s: key.accepted_until_s,
            sealing: LessSafeKey::new(unbound),
        })
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        !self.keys().is_empty()
    }

    fn lifetime(&self) -> u32 {
        let keys = self.keys();
        let until_s = keys.first().map_or(0, |key| key.accepted_until_s);
        let left_s = until_s.saturating_sub(unix_s()).min(LIFETIME_MAX_S);
        u32::try_from(left_s).unwrap_or(0)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, unix_s())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, unix_s())
    }
}

fn unix_s() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use ipc::signing::{QUESTION_BYTES_MAX, Question};

    use super::*;

    fn key(number: u8, issues_until_s: u64, accepted_until_s: u64) -> TicketKey {
        TicketKey {
            name: [number; 16],
            secret: [number; 32],
            issues_until_s,
            accepted_until_s,
        }
    }

    fn tickets(keys: &[TicketKey]) -> Arc<Tickets> {
        let tickets = Tickets::new([1; 32]);
        tickets.take(keys, 0);
        tickets
    }

    #[test]
    fn a_ticket_is_opened_as_long_as_its_key_is_accepted() {
        let before = tickets(&[key(1, 100, 300)]);
        let ticket = before.seal(b"a session", 50).expect("a ticket");
        assert_eq!(
            before.open(&ticket, 299).as_deref(),
            Some(&b"a session"[..])
        );
        assert_eq!(before.open(&ticket, 300), None);
        let after = tickets(&[key(2, 200, 400), key(1, 100, 300)]);
        assert_eq!(after.open(&ticket, 150).as_deref(), Some(&b"a session"[..]));
        assert_eq!(
            after.seal(b"", 150).expect("a ticket")[0],
            2,
            "by the current key"
        );
        assert_ne!(
            before.seal(b"a", 1),
            before.seal(b"a", 1),
            "each with its own nonce"
        );
        assert_eq!(before.seal(b"a", 300), None, "a key nobody accepts");
    }

    #[test]
    fn a_changed_cut_or_foreign_ticket_opens_nothing() {
        let ours = tickets(&[key(1, 100, 300)]);
        let ticket = ours.seal(b"a session", 1).expect("a ticket");
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(ours.open(&changed, 1), None, "byte {at}");
            assert_eq!(ours.open(&ticket[..at], 1), None, "{at} bytes");
        }
        assert_eq!(ours.open(&vec![1; TICKET_BYTES_MAX + 1], 1), None);
        let mut other_policy = key(1, 100, 300);
        other_policy.secret = [9; 32];
        assert_eq!(tickets(&[other_policy]).open(&ticket, 1), None);
    }

    #[test]
    fn without_keys_there_are_no_tickets_and_the_keeper_is_asked_once() {
        let tickets = Tickets::new([5; 32]);
        assert!(!tickets.enabled() && tickets.encrypt(b"a").is_none());
        let keeper = Keeper::default();
        tickets.refresh(&keeper, 0);
        let (here, there) = os::fdpass::packet_pair().expect("a link");
        keeper.replace(vec![here]);
        let answering = std::thread::spawn(move || {
            let mut buffer = [0; QUESTION_BYTES_MAX];
            let question = Question::recv(there.as_fd(), &mut buffer).expect("a question");
            let keys = vec![key(3, u64::MAX, unix_s() + 1_000)];
            let answer = Answer::TicketKeys(keys);
            answer
                .try_send(question.number, there.as_fd())
                .expect("sent");
            (question.what, there)
        });
        tickets.refresh(&keeper, 0);
        let (asked, there) = answering.join().expect("no panic");
        assert_eq!(asked, Asked::TicketKeys { policy: [5; 32] });
        assert!(tickets.enabled());
        assert!((900..=1_000).contains(&tickets.lifetime()));
        tickets.refresh(&keeper, 0);
        let again = os::net::wait_readable(&[there.as_fd()], Some(Duration::ZERO));
        assert_eq!(again.expect("looked"), [false], "nothing is due");
    }
}
