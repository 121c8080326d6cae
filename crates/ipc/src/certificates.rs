//! The certificates that a server answers with: what each is for, and where its key is asked for.
//!
//! The idea: a set is made whole by the supervisor and travels as one sealed memory file. It holds
//! what every client may see, and a number for each key; the keys are the keeper's. Blobs of DER
//! are interned, so that thousands of certificates of one authority have its chain once. A changed
//! file makes another set, no generation.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::codec::{self, BadMessage};

/// Bytes of a set.
pub const SET_BYTES_MAX: usize = 512 << 20;
/// Certificates of a set.
pub const CERTIFICATES_MAX: usize = 200_000;
/// Certificates of a chain, the leaf included.
pub const CHAIN_MAX: usize = 10;
/// Bytes of one certificate as DER.
pub const DER_BYTES_MAX: usize = 64 * 1024;
/// Names of one certificate that are known; the others are as if it had them not.
pub const NAMES_MAX: usize = 1_000;
/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 253;
/// Bytes of what is said of a certificate, and of a path.
pub const TEXT_BYTES_MAX: usize = 4 * 1024;

/// Bytes that are one value; what they are is not shown.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Blob(pub Box<[u8]>);

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

impl<T: Into<Box<[u8]>>> From<T> for Blob {
    fn from(bytes: T) -> Blob {
        Blob(bytes.into())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Blob, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Blob;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(Blob::from(bytes))
            }
        }
        from.deserialize_bytes(Bytes)
    }
}

/// A key of the keeper's. It is never another key's while the keeper lives; the next keeper
/// numbers anew, and the set that comes with the links to it has its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId(pub u32);

/// What kind of key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyKind {
    /// RSA, of so many bits.
    Rsa {
        /// Bits of the modulus.
        bits: u16,
    },
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// ECDSA on P-521.
    P521,
    /// Ed25519.
    Ed25519,
}

/// Where a certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// A file in PEM, by its path: the one that a site names, or one that `[tls] certificates`
    /// leads to.
    File(String),
    /// A file in PEM whose certificate is shown to the servers of an upstream, and to nobody else.
    Upstream(String),
    /// An authority's, by ACME, by the path of its chain in the store.
    Acme(String),
    /// Our own authority for development, for the hosts of the site of this name.
    Local(String),
}

/// What a certificate of `[tls] certificates` is called: as its file without the ending, or as the directory that certbot has
/// made for it.
#[must_use]
pub fn called(file: &Path) -> Option<&str> {
    let is_certbots = file.file_name().is_some_and(|name| name == "fullchain.pem");
    let name = match is_certbots {
        true => file.parent().and_then(Path::file_name),
        false => file.file_stem(),
    };
    name?.to_str()
}

/// A certificate that can be answered with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// Where it comes from.
    pub source: Source,
    /// The tenant whose site names its file: it is answered with for that tenant's hosts alone, whatever names stand in
    /// it. `None`: for every host that it is good for.
    pub tenant: Option<String>,
    /// What it is good for: names in lower case, with `*.` at the front where it is a wildcard,
    /// and addresses as text.
    pub names: Vec<String>,
    /// From when it is valid: seconds since 1970.
    pub not_before_s: i64,
    /// Until when.
    pub not_after_s: i64,
    /// What its key is.
    pub kind: KeyKind,
    /// The key, as the keeper numbers it.
    pub key: KeyId,
    /// The chain, leaf first: places in [`CertificateSet::blobs`].
    pub chain: Vec<u32>,
    /// What is wrong with what its source holds now, where this is what it held before.
    pub problem: Option<String>,
}

/// Whether a certificate is valid at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// It is.
    Valid,
    /// Its time has not come.
    NotYet,
    /// Its time is over.
    Expired,
}

impl Certificate {
    /// Whether it is valid at `now_s`, in seconds since 1970.
    #[must_use]
    pub fn validity(&self, now_s: i64) -> Validity {
        Validity::at(now_s, self.not_before_s..=self.not_after_s)
    }
}

impl Validity {
    /// What is the case at `now_s` of something valid in these seconds since 1970.
    #[must_use]
    pub fn at(now_s: i64, valid_s: RangeInclusive<i64>) -> Validity {
        if now_s < *valid_s.start() {
            Validity::NotYet
        } else if now_s > *valid_s.end() {
            Validity::Expired
        } else {
            Validity::Valid
        }
    }
}

/// A source that gives no certificate, and never did while this supervisor lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// The source.
    pub source: Source,
    /// What is wrong with it.
    pub problem: String,
}

/// All certificates that a server has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CertificateSet {
    /// Its number: a later set has a greater one.
    pub number: u64,
    /// Every DER of any chain, once.
    pub blobs: Vec<Blob>,
    /// The certificates, by their sources.
    pub certificates: Vec<Certificate>,
    /// Sources without one.
    pub broken: Vec<Broken>,
}

impl CertificateSet {
    /// The set as a sealed memory file.
    ///
    /// # Errors
    /// The machine's, and a set that is too large.
    pub fn to_memory(&self) -> io::Result<OwnedFd> {
        let bytes = codec::encode(self)?;
        if bytes.len() > SET_BYTES_MAX {
            let error = "more certificates than a set may have";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        os::file::memfd("nagaya certificates", &bytes)
    }

    /// The set in a memory file.
    ///
    /// # Errors
    /// What cannot be read, is too large or is no set.
    pub fn of_memory(file: BorrowedFd<'_>) -> io::Result<CertificateSet> {
        let bytes = os::file::read_whole(file, SET_BYTES_MAX)?;
        Ok(CertificateSet::of_bytes(&bytes)?)
    }

    /// The set that these bytes are.
    ///
    /// # Errors
    /// Bytes that are no set, or one whose parts do not fit together.
    pub fn of_bytes(bytes: &[u8]) -> Result<CertificateSet, BadMessage> {
        let set: CertificateSet = codec::decode(bytes, Vec::new())?;
        let blobs = set.blobs.len();
        let is_place = |place: &u32| (*place as usize) < blobs;
        let is_chain =
            |chain: &[u32]| (1..=CHAIN_MAX).contains(&chain.len()) && chain.iter().all(is_place);
        let certificates = &set.certificates;
        let is_sound = certificates.len() <= CERTIFICATES_MAX
            && certificates.iter().all(|it| is_chain(&it.chain))
            && certificates.iter().all(|it| it.names.len() <= NAMES_MAX);
        is_sound
            .then_some(set)
            .ok_or_else(|| BadMessage::new("a set of certificates that does not fit together"))
    }

    /// The DER of a certificate's chain, leaf first.
    pub fn chain<'a>(&'a self, certificate: &'a Certificate) -> impl Iterator<Item = &'a [u8]> {
        let blobs = certificate.chain.iter();
        blobs.filter_map(|place| self.blobs.get(*place as usize).map(|blob| &*blob.0))
    }
}

/// Blobs while a set is being made: each once.
#[derive(Debug, Default)]
pub struct Interned {
    places: HashMap<Blob, u32>,
}

impl Interned {
    /// The place of these bytes.
    pub fn place(&mut self, blob: Blob) -> u32 {
        let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        *self.places.entry(blob).or_insert(next)
    }

    /// All of them, by their places.
    #[must_use]
    pub fn into_blobs(self) -> Vec<Blob> {
        let mut blobs: Vec<_> = self.places.into_iter().collect();
        blobs.sort_unstable_by_key(|(_, place)| *place);
        blobs.into_iter().map(|(blob, _)| blob).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn certificate(name: &str, chain: Vec<u32>) -> Certificate {
        Certificate {
            source: Source::File(format!("/etc/nagaya/{name}.pem")),
            tenant: None,
            names: vec![name.into(), format!("*.{name}")],
            not_before_s: 10,
            not_after_s: 20,
            kind: KeyKind::Rsa { bits: 2_048 },
            key: KeyId(7),
            chain,
            problem: Some("the file is empty".into()),
        }
    }

    fn set() -> CertificateSet {
        let mut interned = Interned::default();
        let mut chain = |leaf: &[u8]| {
            let blobs = [leaf, b"authority"];
            blobs.map(|der| interned.place(der.into())).to_vec()
        };
        let certificates = vec![
            certificate("a.example", chain(b"a")),
            certificate("b.example", chain(b"b")),
        ];
        CertificateSet {
            number: 3,
            certificates,
            blobs: interned.into_blobs(),
            broken: vec![Broken {
                source: Source::Local("c.example".into()),
                problem: "no key".into(),
            }],
        }
    }

    #[test]
    fn a_set_arrives_with_every_chain() {
        let set = set();
        let file = set.to_memory().unwrap();
        let arrived = CertificateSet::of_memory(file.as_fd()).unwrap();
        assert_eq!(arrived, set);
        let chains = arrived.certificates.iter().map(|it| arrived.chain(it));
        let chains: Vec<Vec<_>> = chains.map(Iterator::collect).collect();
        assert_eq!(chains, [[&b"a"[..], b"authority"], [b"b", b"authority"]]);
    }

    #[test]
    fn an_authority_of_many_is_there_once() {
        assert_eq!(set().blobs.len(), 3);
    }

    #[test]
    fn a_chain_that_leads_nowhere_is_no_set() {
        for chain in [vec![], vec![3], vec![u32::MAX], vec![0; CHAIN_MAX + 1]] {
            let mut set = set();
            set.certificates[1].chain = chain.clone();
            let bytes = codec::encode(&set).unwrap();
            assert!(CertificateSet::of_bytes(&bytes).is_err(), "{chain:?}");
        }
        let mut set = set();
        set.certificates[0].names = vec!["a".into(); NAMES_MAX + 1];
        assert!(CertificateSet::of_bytes(&codec::encode(&set).unwrap()).is_err());
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
        let sound = codec::encode(&set()).unwrap();
        for at in 0..sound.len() {
            assert!(CertificateSet::of_bytes(&sound[..at]).is_err(), "{at}");
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut bytes = sound.clone();
                bytes[at] = value;
                let _ = CertificateSet::of_bytes(&bytes);
            }
        }
    }

    #[test]
    fn validity_has_both_ends() {
        let certificate = certificate("a.example", vec![0]);
        for (now_s, expected) in [
            (9, Validity::NotYet),
            (10, Validity::Valid),
            (20, Validity::Valid),
            (21, Validity::Expired),
        ] {
            assert_eq!(certificate.validity(now_s), expected, "{now_s}");
        }
    }

    #[test]
    fn bytes_are_never_shown() {
        assert_eq!(format!("{:?}", Blob::from(*b"secret")), "Blob(6 bytes)");
    }
}
