//! Checksums, plain and keyed, by name.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

/// The checksum of that name; `None` where no such kind is known.
pub(crate) fn plain(name: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    Some(match name {
        b"md5" => Md5::digest(data).to_vec(),
        b"sha1" => Sha1::digest(data).to_vec(),
        b"sha256" => Sha256::digest(data).to_vec(),
        b"sha384" => Sha384::digest(data).to_vec(),
        b"sha512" => Sha512::digest(data).to_vec(),
        _ => return None,
    })
}

/// The same with a key: HMAC, RFC 2104.
pub(crate) fn keyed(name: &[u8], key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    match name {
        b"md5" => code::<Hmac<Md5>>(key, data),
        b"sha1" => code::<Hmac<Sha1>>(key, data),
        b"sha256" => code::<Hmac<Sha256>>(key, data),
        b"sha384" => code::<Hmac<Sha384>>(key, data),
        b"sha512" => code::<Hmac<Sha512>>(key, data),
        _ => None,
    }
}

/// Whether that is the keyed checksum of the data, found out in a time that does not tell how much of it
/// is right.
pub(crate) fn is_keyed(name: &[u8], key: &[u8], data: &[u8], given: &[u8]) -> bool {
    match name {
        b"sha256" => is_code::<Hmac<Sha256>>(key, data, given),
        b"sha384" => is_code::<Hmac<Sha384>>(key, data, given),
        b"sha512" => is_code::<Hmac<Sha512>>(key, data, given),
        _ => false,
    }
}

fn is_code<M: Mac + KeyInit>(key: &[u8], data: &[u8], given: &[u8]) -> bool {
    <M as KeyInit>::new_from_slice(key)
        .is_ok_and(|mac| mac.chain_update(data).verify_slice(given).is_ok())
}

/// A key may be of any length: the error of the trait is for other kinds of codes.
fn code<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let mac = <M as KeyInit>::new_from_slice(key).ok()?;
    Some(mac.chain_update(data).finalize().into_bytes().to_vec())
}
