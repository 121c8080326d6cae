//! The keys that session tickets are sealed with: made here, rotated, lent to the server.
//!
//! The idea: one secret at a time is made by chance, and every policy's key is derived of it, so
//! that whoever changes what a policy says has other keys, and nothing is kept for policies. Secrets
//! live as long as this process: a server that dies resumes its sessions, a keeper that dies leaves
//! none to be resumed. Machines that share a secret derive the same keys of it and of the time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::rand;
use ipc::certificates::Blob;
use ipc::keeper::Settings;
use ipc::signing::{TICKET_KEYS_MAX, TicketKey};

/// What is derived: a name and a key.
const DERIVED_BYTES: usize = 16 + 32;
/// What the derivation is for.
const PURPOSE: &[u8] = b"nagaya session tickets";

/// Secrets of tickets, the latest first.
#[derive(Debug)]
pub(crate) struct Tickets(Mutex<Rotation>);

struct Rotation {
    settings: Settings,
    /// Made by chance, and kept while a shared one counts.
    secrets: VecDeque<Secret>,
}

impl std::fmt::Debug for Rotation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.secrets.len())
    }
}

struct Secret {
    bytes: [u8; 32],
    made_s: u64,
}

impl Default for Tickets {
    fn default() -> Tickets {
        let settings = Settings {
            tickets_rotate_s: 8 * 3_600,
            tickets_before: 2,
            ticket_secret: Blob::default(),
        };
        Tickets(Mutex::new(Rotation {
            settings,
            secrets: VecDeque::new(),
        }))
    }
}

impl Tickets {
    /// Rotates by these from now on.
    pub(crate) fn set(&self, settings: Settings) {
        let mut rotation = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rotation.settings = settings;
    }

    /// The keys of a policy at this time, the current one first.
    ///
    /// # Errors
    /// When there is no chance to be had.
    pub(crate) fn keys(
        &self,
        policy: &[u8; 32],
        now_s: u64,
    ) -> Result<Vec<TicketKey>, Unspecified> {
        let mut rotation = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = &rotation.settings;
        if !settings.ticket_secret.0.is_empty() {
            let derive = |made_s| derived(&settings.ticket_secret.0, made_s, policy, settings);
            return shared_steps(settings, now_s).map(derive).collect();
        }
        rotation.rotate(now_s)?;
        let (secrets, settings) = (rotation.secrets.iter(), &rotation.settings);
        let derive = |it: &Secret| derived(&it.bytes, it.made_s, policy, settings);
        secrets.map(derive).collect()
    }
}

impl Rotation {
    /// Forgets what is too old, and makes a secret where there is no current one.
    fn rotate(&mut self, now_s: u64) -> Result<(), Unspecified> {
        let (rotate_s, lives) = (rotate_s(&self.settings), lives_s(&self.settings));
        let is_alive = |secret: &Secret| now_s < secret.made_s.saturating_add(lives);
        self.secrets.retain(is_alive);
        let current = self.secrets.front();
        // A clock that was set back makes none.
        if current.is_none_or(|secret| now_s >= secret.made_s.saturating_add(rotate_s)) {
            let mut bytes = [0; 32];
            rand::fill(&mut bytes)?;
            let made_s = now_s;
            self.secrets.push_front(Secret { bytes, made_s });
        }
        let kept = usize::from(self.settings.tickets_before) + 1;
        self.secrets.truncate(kept.min(TICKET_KEYS_MAX));
        Ok(())
    }
}

fn rotate_s(settings: &Settings) -> u64 {
    settings.tickets_rotate_s.max(1)
}

/// How long tickets of a key are taken.
fn lives_s(settings: &Settings) -> u64 {
    rotate_s(settings).saturating_mul(u64::from(settings.tickets_before) + 1)
}

/// When the steps of time begin of which keys of a shared secret count now: this one, the next, as another machine's
/// clock may be ahead, and those before.
fn shared_steps(settings: &Settings, now_s: u64) -> impl Iterator<Item = u64> {
    let rotate_s = rotate_s(settings);
    let now = now_s / rotate_s;
    let before = (1..=u64::from(settings.tickets_before)).filter_map(move |it| now.checked_sub(it));
    let steps = [now, now.saturating_add(1)].into_iter().chain(before);
    let steps = steps.take(TICKET_KEYS_MAX);
    steps.map(move |step| step.saturating_mul(rotate_s))
}

struct Derived;

impl KeyType for Derived {
    fn len(&self) -> usize {
        DERIVED_BYTES
    }
}

/// The key of a policy that a secret gives from then on.
fn derived(
    secret: &[u8],
    made_s: u64,
    policy: &[u8; 32],
    settings: &Settings,
) -> Result<TicketKey, Unspecified> {
    let secret = Salt::new(HKDF_SHA256, &[]).extract(secret);
    let mut derived = [0; DERIVED_BYTES];
    secret
        .expand(&[PURPOSE, policy, &made_s.to_be_bytes()], Derived)?
        .fill(&mut derived)?;
    let (name, secret) = derived.split_first_chunk().ok_or(Unspecified)?;
    Ok(TicketKey {
        name: *name,
        secret: secret.try_into().map_err(|_| Unspecified)?,
        issues_until_s: made_s.saturating_add(rotate_s(settings)),
        accepted_until_s: made_s.saturating_add(lives_s(settings)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: [u8; 32] = [1; 32];

    fn names(keys: &[TicketKey]) -> Vec<[u8; 16]> {
        keys.iter().map(|key| key.name).collect()
    }

    fn tickets() -> Tickets {
        sharing(b"")
    }

    fn sharing(secret: &[u8]) -> Tickets {
        let tickets = Tickets::default();
        tickets.set(Settings {
            tickets_rotate_s: 100,
            tickets_before: 2,
            ticket_secret: Blob::from(secret),
        });
        tickets
    }

    #[test]
    fn keys_rotate_and_old_ones_are_accepted_for_a_while() {
        let tickets = tickets();
        let first = tickets.keys(&POLICY, 1_000).unwrap();
        assert_eq!(first.len(), 1);
        assert_eq!(
            (first[0].issues_until_s, first[0].accepted_until_s),
            (1_100, 1_300)
        );
        assert_eq!(tickets.keys(&POLICY, 1_099).unwrap(), first);
        let second = tickets.keys(&POLICY, 1_100).unwrap();
        assert_eq!(second[1..], first);
        let third = tickets.keys(&POLICY, 1_250).unwrap();
        assert_eq!(names(&third)[1..], names(&second));
        let fourth = tickets.keys(&POLICY, 1_350).unwrap();
        assert_eq!(names(&fourth)[1..], names(&third)[..2]);
        let long_after = tickets.keys(&POLICY, 100_000).unwrap();
        assert_eq!(long_after.len(), 1);
        assert!(!names(&fourth).contains(&long_after[0].name));
    }

    #[test]
    fn another_policy_has_other_keys_and_the_same_has_the_same() {
        let tickets = tickets();
        let one = tickets.keys(&POLICY, 1_000).unwrap();
        let other = tickets.keys(&[2; 32], 1_000).unwrap();
        assert!(one[0].name != other[0].name && one[0].secret != other[0].secret);
        assert_eq!(one, tickets.keys(&POLICY, 1_001).unwrap());
    }

    #[test]
    fn a_clock_set_back_makes_no_key() {
        let tickets = tickets();
        let now = tickets.keys(&POLICY, 1_000).unwrap();
        assert_eq!(tickets.keys(&POLICY, 10).unwrap(), now);
    }

    #[test]
    fn another_keeper_has_other_keys() {
        let one = tickets().keys(&POLICY, 1_000).unwrap();
        let other = tickets().keys(&POLICY, 1_000).unwrap();
        assert_ne!(one[0].secret, other[0].secret);
    }

    #[test]
    fn keepers_that_share_a_secret_open_each_others_tickets_though_their_clocks_differ() {
        let (one, other) = (sharing(&[7; 32]), sharing(&[7; 32]));
        for (now_s, theirs_s) in [
            (1_000, 1_000),
            (1_050, 1_149),
            (1_150, 1_051),
            (1_000, 1_199),
        ] {
            let ours = one.keys(&POLICY, now_s).unwrap();
            assert!(ours.len() == 4 && ours[0].issues_until_s > now_s);
            let current = ours.first().unwrap();
            assert!(
                other.keys(&POLICY, theirs_s).unwrap().contains(current),
                "{now_s} {theirs_s}"
            );
        }
        assert_ne!(
            one.keys(&POLICY, 1_000).unwrap(),
            sharing(&[8; 32]).keys(&POLICY, 1_000).unwrap()
        );
        // At the beginning of time, too.
        assert_eq!(one.keys(&POLICY, 0).unwrap().len(), 2);
    }

    #[test]
    fn a_shared_secret_that_comes_and_goes_leaves_those_made_by_chance() {
        let one = tickets();
        let alone = one.keys(&POLICY, 1_000).unwrap();
        let set = |secret: &[u8]| {
            one.set(Settings {
                tickets_rotate_s: 100,
                tickets_before: 2,
                ticket_secret: Blob::from(secret),
            });
        };
        set(&[7; 32]);
        let shared = one.keys(&POLICY, 1_000).unwrap();
        assert_eq!(shared, sharing(&[7; 32]).keys(&POLICY, 1_000).unwrap());
        assert!(!names(&shared).contains(&alone[0].name));
        set(&[8; 32]);
        let replaced = one.keys(&POLICY, 1_000).unwrap();
        assert!(!names(&replaced).contains(&shared[0].name));
        set(b"");
        assert_eq!(one.keys(&POLICY, 1_001).unwrap(), alone);
    }
}
