//! Which country an address is in, by a file of MaxMind's format (MMDB).
//!
//! The idea: the file is somebody else's, read whole and never believed: what makes no sense in it is
//! an address whose country is not known. Who asks remembers what the last addresses came to; a look
//! takes no lock and no system call.

use std::fs::Metadata;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Weak};

use maxminddb::Reader;

use crate::looks::{read_bytes, read_end};

/// The largest file: cities of the whole world take a third of it.
const BYTES_MAX: u64 = 256 << 20;
/// What a file's description of itself begins with, within so many bytes of its end.
const DESCRIBED: &[u8] = b"\xab\xcd\xefMaxMind.com";
const DESCRIPTION_BYTES_MAX: u64 = 128 << 10;
/// Addresses that are remembered, as a power of two.
const KNOWN_BITS: u32 = 12;

/// A country, as two capital letters; zeros where it is not known.
pub type Country = [u8; 2];

/// A file that was read.
pub struct CountryFile {
    reader: Reader<Vec<u8>>,
    stamp: Option<FileStamp>,
}

/// By what a file at a path is the one that was read: device, number, size, and when it changed.
type FileStamp = (u64, u64, u64, i64, i64);

impl CountryFile {
    /// Reads it.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn read(path: &Path) -> Result<CountryFile, String> {
        let stamp = stamp(path);
        let bytes = read_bytes(path, BYTES_MAX)?;
        let reader = Reader::from_source(bytes);
        let reader = reader.map_err(|error| format!("no database of countries: {error}"))?;
        Ok(CountryFile { reader, stamp })
    }

    /// Whether it is such a file, as far as its end shows, where it describes itself: one that is not written to
    /// its end does not. Who only wants to know reads no more.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn look(path: &Path) -> Result<(), String> {
        let end = read_end(path, BYTES_MAX, DESCRIPTION_BYTES_MAX)?;
        let is_described = end.windows(DESCRIBED.len()).any(|it| it == DESCRIBED);
        let why = "no database of countries: at its end it does not describe itself";
        is_described.then_some(()).ok_or_else(|| why.to_owned())
    }

    /// Whether what is at this path is what was read.
    pub fn is_still_at(&self, path: &Path) -> bool {
        self.stamp.is_some() && self.stamp == stamp(path)
    }

    /// Two layouts are common: MaxMind's, and one with the code alone.
    fn country(&self, address: IpAddr) -> Option<Country> {
        let found = self.reader.lookup(address).ok()?;
        let nested = maxminddb::path!["country", "iso_code"];
        let nested: Option<&str> = found.decode_path(&nested).ok().flatten();
        let alone = maxminddb::path!["country_code"];
        let code = nested.or_else(|| found.decode_path(&alone).ok().flatten())?;
        let code: Country = code.as_bytes().try_into().ok()?;
        code.iter().all(u8::is_ascii_uppercase).then_some(code)
    }
}

impl std::fmt::Debug for CountryFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountryFile").finish_non_exhaustive()
    }
}

fn stamp(path: &Path) -> Option<FileStamp> {
    let of = |it: Metadata| (it.dev(), it.ino(), it.size(), it.mtime(), it.mtime_nsec());
    std::fs::metadata(path).ok().map(of)
}

/// The countries of the addresses somebody asked about last.
#[derive(Debug, Default)]
pub struct KnownCountries {
    /// By which file; it lives no longer for that.
    file: Weak<CountryFile>,
    known: Vec<Option<(IpAddr, Country)>>,
}

impl KnownCountries {
    /// The country of an address, by this file.
    pub fn country(&mut self, file: &Arc<CountryFile>, address: IpAddr) -> Country {
        if !std::ptr::eq(self.file.as_ptr(), Arc::as_ptr(file)) {
            self.file = Arc::downgrade(file);
            self.known.clear();
            self.known.resize(1 << KNOWN_BITS, None);
        }
        let place = self.known.get_mut(place(address));
        match place {
            Some(Some((known, country))) if *known == address => *country,
            place => {
                let country = file.country(address).unwrap_or_default();
                if let Some(place) = place {
                    *place = Some((address, country));
                }
                country
            }
        }
    }
}

/// Where an address is remembered: neighbours lie apart (Fibonacci hashing).
fn place(address: IpAddr) -> usize {
    let bits = match address {
        IpAddr::V4(it) => u128::from(u32::from(it)),
        IpAddr::V6(it) => u128::from(it),
    };
    let folded = (bits as u64) ^ ((bits >> 64) as u64);
    let mixed = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> (u64::BITS - KNOWN_BITS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;
    use testkit::countries::country_file;

    use super::*;

    fn read(directory: &TempDir, bytes: &[u8]) -> Result<Arc<CountryFile>, String> {
        let path = directory.path().join("countries.mmdb");
        std::fs::write(&path, bytes).expect("written");
        CountryFile::read(&path).map(Arc::new)
    }

    fn at(file: &Arc<CountryFile>, address: &str) -> Country {
        let address = address.parse().expect("an address");
        KnownCountries::default().country(file, address)
    }

    #[test]
    fn the_country_is_that_of_the_network_an_address_is_in() {
        let directory = TempDir::new();
        let networks = [([203, 0, 113, 0], 24, "JP"), ([192, 0, 2, 128], 25, "fr")];
        let file = read(&directory, &country_file(&networks)).expect("a file");
        for (address, country) in [
            ("203.0.113.9", *b"JP"),
            ("203.0.114.9", [0; 2]),
            // No code of a country.
            ("192.0.2.200", [0; 2]),
            ("2001:db8::1", [0; 2]),
        ] {
            assert_eq!(at(&file, address), country, "{address}");
        }
    }

    #[test]
    fn what_is_remembered_is_of_the_file_that_is_asked() {
        let directory = TempDir::new();
        let path = directory.path().join("countries.mmdb");
        let mut known = KnownCountries::default();
        let address = "203.0.113.9".parse().expect("an address");
        let mut files = Vec::new();
        for country in ["JP", "FR"] {
            let bytes = country_file(&[([203, 0, 113, 0], 24, country)]);
            let file = read(&directory, &bytes).expect("a file");
            for _ in 0..2 {
                assert_eq!(known.country(&file, address), country.as_bytes());
            }
            assert!(file.is_still_at(&path));
            files.push(file);
            std::fs::remove_file(&path).expect("removed");
        }
        assert!(!files[0].is_still_at(&path));
    }

    #[test]
    fn no_file_whatever_it_holds_does_harm() {
        let directory = TempDir::new();
        let good = country_file(&[([203, 0, 113, 0], 24, "JP"), ([198, 51, 0, 0], 16, "US")]);
        let cut = (0..good.len()).map(|length| good[..length].to_vec());
        let changed = (0..good.len()).flat_map(|at| {
            [0x00, 0xff, 0x20, 0x80].map(|byte| {
                let mut bytes = good.clone();
                bytes[at] ^= byte;
                bytes
            })
        });
        for bytes in cut.chain(changed) {
            if let Ok(file) = read(&directory, &bytes) {
                for address in ["203.0.113.9", "198.51.1.1", "::1"] {
                    let country = at(&file, address);
                    let is_code = country.iter().all(u8::is_ascii_uppercase);
                    assert!(is_code || country == [0; 2], "{country:?}");
                }
            }
        }
        let why = read(&directory, b"<html>").expect_err("no database");
        assert!(why.starts_with("no database of countries"), "{why}");
        let path = directory.path().join("cut.mmdb");
        for (length, is_whole) in [(good.len(), true), (good.len() / 4, false), (0, false)] {
            std::fs::write(&path, &good[..length]).expect("written");
            assert_eq!(CountryFile::look(&path).is_ok(), is_whole, "{length}");
        }
        let why = CountryFile::read(directory.path()).expect_err("a directory");
        assert_eq!(why, "a directory, not a file");
    }
}
