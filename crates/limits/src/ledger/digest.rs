//! Keyed 128-bit digests of keys: what a gate is found by, and what no client can aim.

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
    /// Digests a key of a limit.
    pub(crate) fn digest(self, limit: u64, kind: Kind, key: &[u8]) -> Digest {
        sip::<1, 3>(self.0, &[limit, kind as u64], key)
    }
}

/// SipHash-C-D-128 (Aumasson and Bernstein 2012) of some words and then some bytes.
fn sip<const C: u32, const D: u32>(key: [u64; 2], words: &[u64], bytes: &[u8]) -> Digest {
    let mut state = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    for word in words {
        absorb::<C>(&mut state, *word);
    }
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        absorb::<C>(&mut state, u64::from_le_bytes(*chunk));
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    let length = (words.len() * 8 + bytes.len()) as u64;
    absorb::<C>(&mut state, u64::from_le_bytes(last) | length << 56);
    state[2] ^= 0xee;
    rounds::<D>(&mut state);
    let first = state[0] ^ state[1] ^ state[2] ^ state[3];
    state[1] ^= 0xdd;
    rounds::<D>(&mut state);
    [first, state[0] ^ state[1] ^ state[2] ^ state[3]]
}

fn absorb<const C: u32>(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    rounds::<C>(state);
    state[0] ^= word;
}

fn rounds<const N: u32>(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    for _ in 0..N {
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32);
        c = c.wrapping_add(b);
        a = a.wrapping_add(d);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
    }
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(length: u8) -> Vec<u8> {
        let input: Vec<u8> = (0..length).collect();
        let digest = sip::<2, 4>([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908], &[], &input);
        digest.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn the_first_vectors_of_the_reference_come_out() {
        let expected: [[u8; 16]; 2] = [
            [
                0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
                0x02, 0x93,
            ],
            [
                0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22,
                0xfc, 0x45,
            ],
        ];
        for (length, bytes) in (0..).zip(expected) {
            assert_eq!(reference(length), bytes, "{length} bytes");
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
