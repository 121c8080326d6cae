//! Content codings: which one a client gets, and compression itself.
//!
//! Files are compressed whole, here, and kept so, where that saves a tenth of them. All else is
//! compressed on its way: whether it is stands in `negotiation`, with what in `encoder`. Either way
//! nobody waits for it: where all threads are busy, or all places of encoders are taken, the reply
//! goes out as it is.

pub(crate) mod encoder;
pub(crate) mod negotiation;

use std::io;

use config::model::Files;
use wire::{FieldId, Fields};

use self::encoder::{Encoder, Step, zstd_level};

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

/// Fields that speak of the very bytes of a body.
const OF_BYTES: [&[u8]; 4] = [b"Content-MD5", b"Digest", b"Content-Digest", b"Repr-Digest"];

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

/// Compresses what is in memory, as hard as `level` says.
///
/// # Errors
/// When the library fails.
pub(crate) async fn held(
    helpers: &Helpers,
    data: &[u8],
    (coding, level): (Coding, u32),
) -> Result<Made> {
    if data.len() <= HERE_BYTES {
        return outcome(data.len(), Some(compress(data, (coding, level))));
    }
    let copy: Box<[u8]> = data.into();
    read(helpers, data.len(), (coding, level), move || Ok(copy)).await
}

/// Compresses what `content` reads, which is that large.
///
/// # Errors
/// When reading or the library fails.
pub(crate) async fn read(
    helpers: &Helpers,
    bytes: usize,
    coding: (Coding, u32),
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
fn compress(data: &[u8], (coding, level): (Coding, u32)) -> io::Result<Vec<u8>> {
    // All of it is there: zstd may look as far back as it likes.
    if coding == Coding::Zstd {
        return zstd::bulk::compress(data, zstd_level(level));
    }
    let mut made = Vec::with_capacity(data.len() / 2);
    let mut encoder = Encoder::new(coding, level)?;
    encoder.take(data, Step::End, &mut made)?;
    Ok(made)
}

/// Forgets what fields say of a body's very bytes: it is sent as others of the same meaning.
pub(crate) fn forget_bytes(fields: &mut Fields) {
    for name in OF_BYTES {
        fields.remove_named(name);
    }
    fields.remove_named(b"Accept-Ranges");
    weaken_tag(fields);
}

/// An entity tag that names other bytes of the same meaning is a weak one (RFC 9110 §8.8.1); what
/// is none cannot be made one.
fn weaken_tag(fields: &mut Fields) {
    let weak = match fields.get(FieldId::ETag) {
        Some(tag) if !tag.starts_with(b"W/") => {
            Some([b"W/", tag].concat()).filter(|_| tag.starts_with(b"\""))
        }
        _ => return,
    };
    match weak {
        Some(weak) => fields.set(b"ETag", &weak),
        None => fields.remove(FieldId::ETag),
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
        let gzip = compress(&text, (Coding::Gzip, 5)).expect("in memory");
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&*gzip)
            .read_to_end(&mut back)
            .expect("our own gzip");
        assert_eq!(back, text);
        let zstd = compress(&text, (Coding::Zstd, 5)).expect("in memory");
        assert_eq!(
            zstd::bulk::decompress(&zstd, text.len()).expect("our own zstd"),
            text
        );
        assert!(gzip.len() < text.len() / 10 && zstd.len() < text.len() / 10);
    }
}
