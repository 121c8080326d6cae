//! Compressing as bytes come: one encoder for one reply, which takes pieces and gives pieces.
//!
//! What an encoder holds is bounded by its parameters: gzip's has 380 KB with the window of 32 KiB
//! that every client can read, zstd's 665 KB, since its window and tables are made small ones. How
//! many there are at a time is bounded, too ([`Place`]).

use std::fmt;
use std::io;
use std::rc::Rc;

use flate2::{Compress, Compression, FlushCompress, Status};
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, get_error_name};

use super::Coding;

/// The window of gzip: 32 KiB.
const GZIP_WINDOW_LOG: u8 = 15;
/// The window of zstd: 64 KiB.
const ZSTD_WINDOW_LOG: u32 = 16;
/// Entries of zstd's tables: more cost memory, and pages are no smaller for it.
const ZSTD_HASH_LOG: u32 = 15;
const ZSTD_CHAIN_LOG: u32 = 14;
/// Room that is made for what comes out, at a time.
const ROOM_BYTES: usize = 4 * 1024;
/// Encoders at work at a time on one worker: 85 MB of zstd's.
const PLACES_MAX: usize = 128;

/// Compresses one body.
pub(crate) enum Encoder {
    /// To gzip.
    Gzip(Box<Compress>),
    /// To Zstandard.
    Zstd(Box<CCtx<'static>>),
}

/// What is to become of what an encoder has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It may keep it back: more comes.
    More,
    /// All of it is to come out: whoever reads must be able to see it.
    Flush,
    /// It was the last.
    End,
}

/// The places for the encoders of one worker.
#[derive(Debug, Default)]
pub(crate) struct Places(Rc<()>);

/// An encoder's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place(#[allow(dead_code, reason = "it is counted")] Rc<()>);

impl Places {
    /// Takes one; `None` where all are taken.
    pub(crate) fn take(&self) -> Option<Place> {
        (Rc::strong_count(&self.0) <= PLACES_MAX).then(|| Place(Rc::clone(&self.0)))
    }
}

impl Encoder {
    /// Makes one that tries as hard as `level` says, from 1 to 9.
    ///
    /// # Errors
    /// When there is no memory, or for a coding that is not made here.
    pub(crate) fn new(coding: Coding, level: u32) -> io::Result<Self> {
        match coding {
            Coding::Gzip => {
                let level = Compression::new(gzip_level(level));
                let made = Compress::new_gzip(level, GZIP_WINDOW_LOG);
                Ok(Self::Gzip(Box::new(made)))
            }
            Coding::Zstd => {
                let mut made = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
                for parameter in [
                    CParameter::CompressionLevel(zstd_level(level)),
                    CParameter::WindowLog(ZSTD_WINDOW_LOG),
                    CParameter::HashLog(ZSTD_HASH_LOG),
                    CParameter::ChainLog(ZSTD_CHAIN_LOG),
                ] {
                    made.set_parameter(parameter).map_err(zstd_error)?;
                }
                Ok(Self::Zstd(Box::new(made)))
            }
            Coding::Brotli => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Takes all of `data` and appends what comes out.
    ///
    /// # Errors
    /// When the library fails.
    pub(crate) fn take(&mut self, data: &[u8], step: Step, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Gzip(gzip) => take_gzip(gzip, data, step, out),
            Self::Zstd(zstd) => take_zstd(zstd, data, step, out),
        }
    }
}

/// The library's first level is a kind of its own, which leaves a quarter more than zlib's first;
/// its second leaves less than that in half of zlib's time.
pub(super) fn gzip_level(level: u32) -> u32 {
    level.clamp(2, 9)
}

/// At half the number zstd takes less time than gzip and leaves about as much.
pub(super) fn zstd_level(level: u32) -> i32 {
    i32::try_from(level.min(9).div_ceil(2)).unwrap_or(1)
}

fn take_gzip(
    gzip: &mut Compress,
    mut data: &[u8],
    step: Step,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let flush = match step {
        Step::More => FlushCompress::None,
        Step::Flush => FlushCompress::Sync,
        Step::End => FlushCompress::Finish,
    };
    loop {
        out.reserve(ROOM_BYTES);
        let before = gzip.total_in();
        let status = gzip.compress_vec(data, out, flush)?;
        let taken = usize::try_from(gzip.total_in() - before).unwrap_or(usize::MAX);
        data = data.get(taken..).unwrap_or_default();
        // Room that is left over says that nothing more was to come out.
        let is_out = data.is_empty() && out.len() < out.capacity();
        if status == Status::StreamEnd || is_out && step != Step::End {
            return Ok(());
        }
    }
}

fn take_zstd(
    zstd: &mut CCtx<'static>,
    data: &[u8],
    step: Step,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let directive = match step {
        Step::More => ZSTD_EndDirective::ZSTD_e_continue,
        Step::Flush => ZSTD_EndDirective::ZSTD_e_flush,
        Step::End => ZSTD_EndDirective::ZSTD_e_end,
    };
    let mut input = InBuffer::around(data);
    loop {
        out.reserve(ROOM_BYTES);
        let end = out.len();
        let mut room = OutBuffer::around_pos(out, end);
        let left = zstd
            .compress_stream2(&mut room, &mut input, directive)
            .map_err(zstd_error)?;
        let is_out = left == 0 || step == Step::More;
        if input.pos() == data.len() && is_out {
            return Ok(());
        }
    }
}

fn zstd_error(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

impl fmt::Debug for Encoder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Gzip(_) => "Gzip",
            Self::Zstd(_) => "Zstd",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn decoded(coding: Coding, data: &[u8]) -> Vec<u8> {
        let mut back = Vec::new();
        // A flushed stream is no whole one: what has come out so far is what counts.
        let _ = match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(data).read_to_end(&mut back),
            _ => zstd::stream::read::Decoder::new(data)
                .and_then(|mut decoder| decoder.read_to_end(&mut back)),
        };
        back
    }

    fn prose(bytes: usize) -> Vec<u8> {
        let words = [
            "thick", "walls", "keep", "the", "site", "and", "its", "heat",
        ];
        let (mut text, mut draw) = (Vec::new(), 7_u32);
        while text.len() < bytes {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text.extend_from_slice(words[draw as usize >> 29].as_bytes());
            text.push(b' ');
        }
        text.truncate(bytes);
        text
    }

    #[test]
    fn pieces_of_any_size_come_back_as_one_at_every_level() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            for level in 1..=9 {
                for (bytes, piece) in [(0, 1), (1, 1), (3_000, 7), (300_000, 4_096)] {
                    let text = prose(bytes);
                    let mut encoder = Encoder::new(coding, level).expect("memory");
                    let mut out = Vec::new();
                    for data in text.chunks(piece) {
                        encoder.take(data, Step::More, &mut out).expect("it works");
                    }
                    encoder.take(b"", Step::End, &mut out).expect("it works");
                    assert!(decoded(coding, &out) == text, "{coding:?} {level} {bytes}");
                    assert!(out.len() <= 64 + bytes / 2, "{coding:?} {level} {bytes}");
                }
            }
        }
    }

    #[test]
    fn what_was_taken_can_be_read_once_it_is_flushed() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let mut encoder = Encoder::new(coding, 5).expect("memory");
            let mut out = Vec::new();
            for count in 1..=40 {
                encoder
                    .take(b"tick ", Step::More, &mut out)
                    .expect("it works");
                encoder.take(b"", Step::Flush, &mut out).expect("it works");
                let before = out.len();
                encoder.take(b"", Step::Flush, &mut out).expect("it works");
                assert!(out.len() <= before + 5, "nothing is said twice");
                assert_eq!(decoded(coding, &out), b"tick ".repeat(count), "{coding:?}");
            }
        }
    }

    #[test]
    fn there_are_so_many_places_and_no_more() {
        let places = Places::default();
        let mut taken: Vec<_> = (0..PLACES_MAX).map(|_| places.take()).collect();
        assert!(taken.iter().all(Option::is_some));
        assert!(places.take().is_none());
        taken.pop();
        assert!(places.take().is_some());
    }
}
