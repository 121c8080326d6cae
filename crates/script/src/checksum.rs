//! Checksums, plain and keyed, by name.

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

/// A kind of checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checksum {
    Md5,
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Checksum {
    pub(crate) fn of_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"md5" => Self::Md5,
            b"sha1" => Self::Sha1,
            b"sha256" => Self::Sha256,
            b"sha384" => Self::Sha384,
            b"sha512" => Self::Sha512,
            _ => return None,
        })
    }

    /// Of the parts, one after the other.
    pub(crate) fn of(self, parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Md5 => sum::<Md5>(parts),
            Self::Sha1 => sum::<Sha1>(parts),
            Self::Sha256 => sum::<Sha256>(parts),
            Self::Sha384 => sum::<Sha384>(parts),
            Self::Sha512 => sum::<Sha512>(parts),
        }
    }

    /// With a key: HMAC, RFC 2104.
    pub(crate) fn keyed(self, key: &[u8], data: &[u8]) -> Vec<u8> {
        let block = match self {
            Self::Md5 | Self::Sha1 | Self::Sha256 => 64,
            Self::Sha384 | Self::Sha512 => 128,
        };
        let mut key = match key.len() > block {
            true => self.of(&[key]),
            false => key.to_vec(),
        };
        key.resize(block, 0);
        let padded = |pad: u8| -> Vec<u8> { key.iter().map(|byte| byte ^ pad).collect() };
        let inner = self.of(&[&padded(0x36), data]);
        self.of(&[&padded(0x5c), &inner])
    }
}

fn sum<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
    let mut digest = D::new();
    for part in parts {
        digest.update(part);
    }
    digest.finalize().to_vec()
}
