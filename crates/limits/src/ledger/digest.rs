//! Keyed 128-bit digests of keys: what a gate is found by, and what no client can aim.

use std::hash::Hasher;

use siphasher::sip::SipHasher13 as Sip64;
use siphasher::sip128::{Hasher128, SipHasher13};

/// What a key is known by: SipHash-1-3 with 128 bits of result.
pub(crate) type Digest = [u64; 2];

/// The secret that digests are made with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secret(pub(crate) [u64; 2]);

/// What a digest stands for, so that a key never meets the bucket of another kind.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A key of a request.
    Key,
    /// What a tenant had no room for.
    Overflow,
}

impl Secret {
    /// Of digests that all machines of a fleet make alike.
    pub(crate) const FLEET: Self = Self([0x6e61_6761_7961, 0x0066_6c65_6574]);

    /// Turns a digest that all machines make into one that no client can aim; a permutation (Luby and Rackoff 1988).
    pub(crate) fn hide(self, digest: Digest) -> Digest {
        (0..4).fold(digest, |[left, right], round| {
            [right, left ^ self.word(round, right)]
        })
    }

    /// The digest that was hidden so.
    pub(crate) fn shown(self, digest: Digest) -> Digest {
        (0..4).rev().fold(digest, |[left, right], round| {
            [right ^ self.word(round, left), left]
        })
    }

    fn word(self, round: u64, half: u64) -> u64 {
        let [first, second] = self.0;
        let mut hasher = Sip64::new_with_keys(first, second);
        hasher.write_u64(round);
        hasher.write_u64(half);
        hasher.finish()
    }

    /// Digests a key of a limit.
    pub(crate) fn digest(self, limit: u64, kind: Kind, key: &[u8]) -> Digest {
        let [first, second] = self.0;
        let mut hasher = SipHasher13::new_with_keys(first, second);
        hasher.write_u64(limit);
        hasher.write_u64(kind as u64);
        hasher.write(key);
        let digest = hasher.finish128();
        [digest.h1, digest.h2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_its_words_and_bytes_in_a_row() {
        let digest = |key| Secret([1, 2]).digest(3, Kind::Key, key);
        let short = [0xee19_d262_a301_978f, 0x3876_09a5_c9de_426c];
        assert_eq!(digest(b"203.0.113.7"), short);
        let long = [0x414a_b014_7145_39c5, 0x8e8a_8330_013f_275f];
        assert_eq!(digest(b"an address and a path of 40 bytes or more"), long);
    }

    #[test]
    fn what_is_hidden_is_shown_again() {
        let secret = Secret([1, 2]);
        for digest in [[0, 0], [1, 0], [0, 1], [u64::MAX, 7]] {
            assert_ne!(secret.hide(digest), digest);
            assert_eq!(secret.shown(secret.hide(digest)), digest);
        }
    }

    #[test]
    fn limit_kind_key_and_secret_each_make_another_digest() {
        let secret = Secret([1, 2]);
        let digests = [
            secret.digest(1, Kind::Key, b"a"),
            secret.digest(2, Kind::Key, b"a"),
            secret.digest(1, Kind::Overflow, b"a"),
            secret.digest(1, Kind::Key, b"b"),
            secret.digest(1, Kind::Key, b"a\0"),
            Secret([1, 3]).digest(1, Kind::Key, b"a"),
        ];
        for (at, digest) in digests.iter().enumerate() {
            assert!(!digests[..at].contains(digest));
        }
    }
}
