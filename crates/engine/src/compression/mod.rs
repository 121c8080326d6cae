//! Content codings: which one a client gets, and compression itself.
//!
//! One rule for all files, whether or not a script has seen them: text of a size within the site's
//! bounds is compressed, and sent so where that saves a tenth of it. It waits for nobody: where
//! all threads for it are busy, the reply goes out as it is.

pub(crate) mod filtered;

use std::io::{self, Write};

use config::model::Files;

use flate2::Compression;
use flate2::write::GzEncoder;
use wire::{FieldId, Fields};

use crate::error::{Error, Kind, Result};
use crate::helper::Helpers;

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Brotli, from siblings only.
    Brotli,
    /// Zstandard.
    Zstd,
    /// gzip.
    Gzip,
}

/// In the order preferred among those a client wants equally.
pub(crate) const CODINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// Beyond gzip's sixth level time grows and size does not shrink to match.
const GZIP_LEVEL: u32 = 6;
/// The library's default level.
const ZSTD_LEVEL: i32 = 3;

/// What came of compressing.
pub(crate) enum Made {
    /// This, clearly smaller.
    Smaller(Box<[u8]>),
    /// Nothing that is worth it, now or later.
    Nothing,
    /// Nobody was free to do it.
    Busy,
}

/// What is compressed without a helper thread: it takes less time than asking one.
const HERE_BYTES: usize = 4 * 1024;
/// The part of its size that compressing must save.
const SAVED_PART: usize = 10;

impl Coding {
    /// Its name in `Accept-Encoding` and `Content-Encoding`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// What sets its entity tags apart.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zst",
            Self::Gzip => "gz",
        }
    }

    /// Whether content is compressed on the fly with it.
    pub(crate) fn is_made_here(self) -> bool {
        self != Self::Brotli
    }
}

/// The coding a client wants most among those that can be had.
pub(crate) fn choose(
    accept_encoding: &[u8],
    can_be_had: impl Fn(Coding) -> bool,
) -> Option<Coding> {
    let mut best = None;
    let mut best_quality = 0;
    for coding in CODINGS.into_iter().filter(|coding| can_be_had(*coding)) {
        let quality = wire::accept::coding_quality(Some(accept_encoding), coding.name());
        if quality > best_quality {
            (best, best_quality) = (Some(coding), quality);
        }
    }
    best
}

/// Whether content of this size is to be compressed, if its type is.
pub(crate) fn is_sized(files: &Files, bytes: usize) -> bool {
    files.compress && (files.compress_min_bytes..=files.compress_max_bytes).contains(&bytes)
}

/// Compresses what is in memory.
///
/// # Errors
/// When the library fails.
pub(crate) async fn held(helpers: &Helpers, data: &[u8], coding: Coding) -> Result<Made> {
    if data.len() <= HERE_BYTES {
        return outcome(data.len(), Some(compress(data, coding)));
    }
    let copy: Box<[u8]> = data.into();
    read(helpers, data.len(), coding, move || Ok(copy)).await
}

/// Compresses what `content` reads, which is that large.
///
/// # Errors
/// When reading or the library fails.
pub(crate) async fn read(
    helpers: &Helpers,
    bytes: usize,
    coding: Coding,
    content: impl FnOnce() -> io::Result<Box<[u8]>> + Send + 'static,
) -> Result<Made> {
    let work = move || compress(&content()?, coding);
    outcome(bytes, helpers.run_if_free(work).await?)
}

fn outcome(before: usize, done: Option<io::Result<Vec<u8>>>) -> Result<Made> {
    match done {
        None => Ok(Made::Busy),
        Some(Ok(made)) if made.len() <= before - before / SAVED_PART => {
            Ok(Made::Smaller(made.into()))
        }
        Some(Ok(_)) => Ok(Made::Nothing),
        Some(Err(error)) => Err(Error::io(Kind::Internal, "compress", &error)),
    }
}

/// Compresses `data`. Takes its time: meant for a helper thread unless `data` is short.
///
/// # Errors
/// When the library fails, or for a coding that is not made here.
fn compress(data: &[u8], coding: Coding) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Gzip => {
            let room = Vec::with_capacity(data.len() / 2);
            let mut encoder = GzEncoder::new(room, Compression::new(GZIP_LEVEL));
            encoder.write_all(data)?;
            encoder.finish()
        }
        Coding::Zstd => zstd::bulk::compress(data, ZSTD_LEVEL),
        Coding::Brotli => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// An entity tag that names other bytes of the same meaning is a weak one (RFC 9110 §8.8.1).
pub(crate) fn weaken_tag(fields: &mut Fields) {
    if let Some(tag) = fields.get(FieldId::ETag)
        && !tag.starts_with(b"W/")
    {
        let weak = [b"W/", tag].concat();
        fields.set(b"ETag", &weak);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn clients_get_what_they_want_most() {
        for (accept, expected) in [
            ("gzip", Some(Coding::Gzip)),
            ("gzip, deflate, br, zstd", Some(Coding::Brotli)),
            ("gzip, zstd", Some(Coding::Zstd)),
            ("gzip;q=1, zstd;q=0.5", Some(Coding::Gzip)),
            ("gzip;q=0", None),
            ("identity", None),
            ("", None),
            ("*", Some(Coding::Brotli)),
        ] {
            assert_eq!(choose(accept.as_bytes(), |_| true), expected, "{accept}");
        }
        let no_brotli = |coding: Coding| coding.is_made_here();
        assert_eq!(choose(b"br, gzip", no_brotli), Some(Coding::Gzip));
    }

    #[test]
    fn what_was_compressed_comes_back() {
        let text = b"thick walls. ".repeat(1000);
        let gzip = compress(&text, Coding::Gzip).expect("in memory");
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&*gzip)
            .read_to_end(&mut back)
            .expect("our own gzip");
        assert_eq!(back, text);
        let zstd = compress(&text, Coding::Zstd).expect("in memory");
        assert_eq!(
            zstd::bulk::decompress(&zstd, text.len()).expect("our own zstd"),
            text
        );
        assert!(gzip.len() < text.len() / 10 && zstd.len() < text.len() / 10);
    }
}
