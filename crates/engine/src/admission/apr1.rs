//! Apache's own variant of the MD5 crypt scheme (`$apr1$`), as `htpasswd -m` writes it.
//!
//! MD5 is long broken and a thousand rounds are few; it is here because files hold it.

use md5::{Digest as _, Md5};

const ROUNDS: usize = 1_000;
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The 22 characters after the salt.
pub(super) fn digest(password: &[u8], salt: &[u8]) -> [u8; 22] {
    let mut sum = first(password, salt);
    for round in 0..ROUNDS {
        let mut md5 = Md5::new();
        let (before, after) = match round % 2 {
            0 => (&sum[..], password),
            _ => (password, &sum[..]),
        };
        md5.update(before);
        if round % 3 != 0 {
            md5.update(salt);
        }
        if round % 7 != 0 {
            md5.update(password);
        }
        md5.update(after);
        sum = md5.finalize().into();
    }
    encode(&sum)
}

fn first(password: &[u8], salt: &[u8]) -> [u8; 16] {
    let inner = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize();
    let mut md5 = Md5::new();
    md5.update(password);
    md5.update(b"$apr1$");
    md5.update(salt);
    for _ in 0..password.len() / inner.len() {
        md5.update(inner);
    }
    md5.update(&inner[..password.len() % inner.len()]);
    // Every bit of the length: set, a zero; clear, the password's first byte.
    let mut bits = password.len();
    while bits != 0 {
        match bits & 1 {
            1 => md5.update([0]),
            _ => md5.update(&password[..1]),
        }
        bits >>= 1;
    }
    md5.finalize().into()
}

/// Three bytes become four characters, the bytes taken in this order.
fn encode(sum: &[u8; 16]) -> [u8; 22] {
    const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let mut out = [b'.'; 22];
    for (group, places) in out.chunks_mut(4).zip(ORDER) {
        let number = places
            .iter()
            .fold(0, |number, place| number << 8 | usize::from(sum[*place]));
        write(number, group);
    }
    write(usize::from(sum[11]), &mut out[20..]);
    out
}

/// Six bits a character, the lowest first.
fn write(mut number: usize, out: &mut [u8]) {
    for character in out {
        *character = ALPHABET[number & 63];
        number >>= 6;
    }
}
