//! A server's RSA key, and a password sealed with it (PKCS #1 2.2: RSAES-OAEP with SHA-1).
//!
//! `caching_sha2_password` wants it over TCP, where a server does not remember the account yet. The
//! key is the server's word and nobody else's, as everything else without TLS: it keeps the
//! password from those who only listen.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use num_bigint::BigUint;
use sha1::{Digest, Sha1};

/// The shortest and the longest modulus taken: 1024 to 8192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 128..=1_024;
/// The longest exponent taken; 65537 has three bytes.
const EXPONENT_BYTES_MAX: usize = 4;
/// The longest text of a key looked at.
const STATEMENT_BYTES_MAX: usize = 8 * 1024;
const HASH_BYTES: usize = 20;

/// Tags of DER.
const INTEGER: u8 = 2;
const BIT_STRING: u8 = 3;
const SEQUENCE: u8 = 0x30;

/// The public half of a key.
#[derive(Debug)]
pub(super) struct PublicKey {
    modulus: BigUint,
    exponent: BigUint,
    /// As long as what is sealed with it.
    bytes: usize,
}

impl PublicKey {
    /// Reads a key as servers send it: in PEM, as they are written by OpenSSL.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let text = text.get(..STATEMENT_BYTES_MAX).unwrap_or(text);
        let text = std::str::from_utf8(text).ok()?;
        let between = |begin: &str, end: &str| {
            let (_, rest) = text.split_once(begin)?;
            let (body, _) = rest.split_once(end)?;
            let digits: Vec<u8> = body
                .bytes()
                .filter(|it| !it.is_ascii_whitespace())
                .collect();
            STANDARD.decode(digits).ok()
        };
        let bare = between(
            "-----BEGIN RSA PUBLIC KEY-----",
            "-----END RSA PUBLIC KEY-----",
        );
        if let Some(bytes) = bare {
            return Self::of_numbers(&bytes);
        }
        let bytes = between("-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----")?;
        let mut outer = item(&mut &*bytes, SEQUENCE)?;
        item(&mut outer, SEQUENCE)?;
        let (unused_bits, key) = item(&mut outer, BIT_STRING)?.split_first()?;
        match unused_bits {
            0 => Self::of_numbers(key),
            _ => None,
        }
    }

    fn of_numbers(mut bytes: &[u8]) -> Option<Self> {
        let mut numbers = item(&mut bytes, SEQUENCE)?;
        let modulus = number(&mut numbers)?;
        let exponent = number(&mut numbers)?;
        let sound = MODULUS_BYTES.contains(&modulus.len())
            && modulus.last().is_some_and(|last| last % 2 == 1)
            && (1..=EXPONENT_BYTES_MAX).contains(&exponent.len());
        sound.then(|| Self {
            modulus: BigUint::from_bytes_be(modulus),
            exponent: BigUint::from_bytes_be(exponent),
            bytes: modulus.len(),
        })
    }

    /// Seals a few bytes; `None` where they are too many for the key.
    pub(super) fn seal(&self, text: &[u8], seed: [u8; HASH_BYTES]) -> Option<Vec<u8>> {
        let room = self.bytes.checked_sub(2 * HASH_BYTES + 2)?;
        let padding = room.checked_sub(text.len())?;
        let mut data = Sha1::digest([]).to_vec();
        data.resize(data.len() + padding, 0);
        data.push(1);
        data.extend_from_slice(text);
        mask(&mut data, &seed);
        let mut seed = seed;
        mask(&mut seed, &data);
        let sealed = BigUint::from_bytes_be(&[&seed[..], &data].concat());
        let sealed = sealed.modpow(&self.exponent, &self.modulus).to_bytes_be();
        let mut whole = vec![0; self.bytes.saturating_sub(sealed.len())];
        whole.extend(sealed);
        Some(whole)
    }
}

/// Lays a mask made of a seed over bytes (MGF1).
fn mask(bytes: &mut [u8], seed: &[u8]) {
    for (block, counter) in bytes.chunks_mut(HASH_BYTES).zip(0_u32..) {
        let digest = Sha1::new()
            .chain_update(seed)
            .chain_update(counter.to_be_bytes());
        for (byte, mask) in block.iter_mut().zip(digest.finalize()) {
            *byte ^= mask;
        }
    }
}

/// The content of a value of DER with this tag; what is behind it is left.
fn item<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (&found, rest) = bytes.split_first()?;
    let (&short, mut rest) = rest.split_first()?;
    let length = match short {
        0..=0x7f => usize::from(short),
        0x81 | 0x82 => {
            let (digits, behind) = rest.split_at_checked(usize::from(short & 0x7f))?;
            rest = behind;
            let add = |length: usize, digit: &u8| length << 8 | usize::from(*digit);
            digits.iter().fold(0, add)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    (found == tag).then_some(content)
}

/// The digits of a number above 0.
fn number<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let digits = item(bytes, INTEGER)?;
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    digits.get(zeros..).filter(|digits| !digits.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCbE+doTayqdAgTPY5x0Lkvlghf
pE4nwvYFQKI66FeL+FCo7/+IT48AKGDO81/6EiW6tWfnBQZxbc38tntib3hfxCY9
VeZSAEIvTRzvxpaSEPA/+egSVAe99Kl9DvocF1RnB1l5yGf/3p1SAQ8cgB0B+w5G
yc399dDanyuf3rxN6wIDAQAB
-----END PUBLIC KEY-----
";
    const BARE: &str = "-----BEGIN RSA PUBLIC KEY-----
MIGJAoGBAJsT52hNrKp0CBM9jnHQuS+WCF+kTifC9gVAojroV4v4UKjv/4hPjwAo
YM7zX/oSJbq1Z+cFBnFtzfy2e2JveF/EJj1V5lIAQi9NHO/GlpIQ8D/56BJUB730
qX0O+hwXVGcHWXnIZ//enVIBDxyAHQH7DkbJzf310NqfK5/evE3rAgMBAAE=
-----END RSA PUBLIC KEY-----
";
    /// Its other half, made for this test by `openssl genrsa 1024`.
    const PRIVATE: &[u8] = b"334e2876f78bb270e4e308b081b31e31421fcf149acec8cf7ff95c32c4ff\
        81cd4b5238e47f8262bb18a0be97021fc7b537ca206febd7afdb3614ef826e94966c04a25b60f6573c631c\
        eea336a1c9babfe1221c1c4e3565eb49c8cc9d63fa6679172d4348c50003fca00e81c96d6cb5d4b62aedd7\
        1673768c071b72426431d501";

    /// What the holder of the other half reads.
    fn opened(key: &PublicKey, sealed: &[u8]) -> Vec<u8> {
        let private = BigUint::parse_bytes(PRIVATE, 16).expect("a number");
        let plain = BigUint::from_bytes_be(sealed).modpow(&private, &key.modulus);
        let mut plain = plain.to_bytes_be();
        // The first of its bytes is 0.
        assert!(plain.len() < key.bytes);
        while plain.len() < key.bytes - 1 {
            plain.insert(0, 0);
        }
        let mut data = plain.split_off(HASH_BYTES);
        mask(&mut plain, &data);
        mask(&mut data, &plain);
        let text = data.split_off(HASH_BYTES);
        assert_eq!(data, Sha1::digest([]).to_vec());
        let begin = text.iter().position(|byte| *byte == 1).expect("its begin");
        assert!(text[..begin].iter().all(|byte| *byte == 0));
        text[begin + 1..].to_vec()
    }

    #[test]
    fn what_is_sealed_is_read_by_the_holder_of_the_key() {
        for text in [KEY, BARE] {
            let key = PublicKey::read(text.as_bytes()).expect("a key");
            for password in [&b"secret\0"[..], b"", &[7; 86]] {
                let sealed = key.seal(password, [0x5a; 20]).expect("short enough");
                assert_eq!(sealed.len(), 128);
                assert_eq!(opened(&key, &sealed), password);
            }
            assert_eq!(key.seal(&[7; 87], [0; 20]), None);
        }
    }

    #[test]
    fn what_is_no_key_is_none_wherever_it_is_cut_or_spoilt() {
        for end in 0..KEY.len() - 2 {
            let cut = &KEY.as_bytes()[..end];
            assert!(PublicKey::read(cut).is_none(), "{end}");
        }
        for place in 0..KEY.len() {
            let mut spoilt = KEY.as_bytes().to_vec();
            spoilt[place] ^= 1;
            if let Some(key) = PublicKey::read(&spoilt) {
                assert!(key.seal(b"p", [1; 20]).is_some());
            }
        }
        assert!(PublicKey::read(b"").is_none());
    }
}
