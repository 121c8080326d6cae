//! The slow path: says what is wrong with a head, and where it first goes wrong.
//!
//! The fast path only knows "fine", "more" and "no". Whatever is not fine comes here, and is read
//! byte by byte by a machine that never looks ahead: the first byte that no head can have at its
//! place decides the refusal. So a head refused in one piece is refused alike in any pieces, and
//! garbage is refused as soon as it is seen. What needs the whole head (framing, host, target
//! form) is not decided here.

use crate::{
    caps::{FIELDS_MAX, HeadCaps},
    head,
    octets::{is_token_byte, is_value_byte},
    refusal::Refusal,
};

/// Which start line a head begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartLine {
    Request,
    Status,
}

/// The first fault of a head, complete or not; `None` as long as it may still become one.
pub(crate) fn first_fault(input: &[u8], start: StartLine, caps: &HeadCaps) -> Option<Refusal> {
    let window = head::window(input, caps);
    let mut place = match start {
        StartLine::Request => ScanState::Start,
        StartLine::Status => ScanState::Status(0),
    };
    let (mut index, mut fields) = (0, 0);
    while let Some(&byte) = window.get(index) {
        let next = match place.step(byte, caps) {
            Ok(ScanState::Lines(Lines::End)) => return None,
            Ok(next) => next,
            Err(refusal) => return Some(refusal),
        };
        fields += usize::from(
            place == ScanState::Lines(Lines::LineStart) && next == ScanState::Lines(Lines::Name),
        );
        if fields > caps.fields.min(FIELDS_MAX) {
            return Some(Refusal::new(431, "too_many_fields"));
        }
        let run = next.run(window.get(index + 1..).unwrap_or_default(), caps);
        place = next.after(run);
        index += 1 + run;
    }
    (input.len() > window.len()).then_some(Refusal::new(431, "head_too_long"))
}

/// Length of the run of `fine` bytes that `bytes` begins with, found in blocks a processor can take at once.
fn run_of(fine: impl Fn(u8) -> bool, bytes: &[u8]) -> usize {
    let all_fine = |block: &&[u8; 32]| block.iter().fold(true, |all, &byte| all & fine(byte));
    let blocks = bytes
        .as_chunks::<32>()
        .0
        .iter()
        .take_while(all_fine)
        .count()
        * 32;
    let rest = bytes.get(blocks..).unwrap_or_default();
    blocks + rest.iter().take_while(|&&byte| fine(byte)).count()
}

/// Where the machine stands in a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// Before a request line.
    Start,
    /// After the CR of the one empty line a request may begin with.
    EmptyLine,
    /// Right after that empty line.
    Method0,
    Method,
    /// In the target, with its length so far.
    Target(usize),
    /// In the version of a request line, with what was read of it.
    Version(usize, [u8; 8]),
    /// In a status line, at this byte.
    Status(usize),
    /// After the CR of the start line.
    StartLineEnd,
    Lines(Lines),
}

impl ScanState {
    /// How many of the bytes that follow change nothing but a count: long targets and values need
    /// no machine, and a head that comes in many pieces is looked at many times.
    fn run(self, rest: &[u8], caps: &HeadCaps) -> usize {
        match self {
            ScanState::Target(length) => {
                let room = rest.len().min(caps.target_bytes.saturating_sub(length));
                run_of(
                    |byte| byte.is_ascii_graphic(),
                    rest.get(..room).unwrap_or_default(),
                )
            }
            ScanState::Lines(Lines::Value) => run_of(is_value_byte, rest),
            _ => 0,
        }
    }

    /// The place after a run.
    fn after(self, run: usize) -> ScanState {
        match self {
            ScanState::Target(length) => ScanState::Target(length + run),
            place => place,
        }
    }

    fn step(self, byte: u8, caps: &HeadCaps) -> Result<ScanState, Refusal> {
        match (self, byte) {
            (ScanState::Lines(lines), byte) => lines.step(byte).map(ScanState::Lines),
            (ScanState::Start, b'\r') => Ok(ScanState::EmptyLine),
            (ScanState::EmptyLine, b'\n') => Ok(ScanState::Method0),
            (ScanState::EmptyLine | ScanState::StartLineEnd, byte) if byte != b'\n' => {
                Err(Refusal::bad("bare_cr"))
            }
            (ScanState::StartLineEnd, _) => Ok(ScanState::Lines(Lines::LineStart)),
            (_, b'\n') => Err(Refusal::bad("bare_lf")),
            (ScanState::Start | ScanState::Method0 | ScanState::Method, byte)
                if is_token_byte(byte) =>
            {
                Ok(ScanState::Method)
            }
            (ScanState::Method, b' ') => Ok(ScanState::Target(0)),
            (ScanState::Target(length), 0x21..=0x7e) if length >= caps.target_bytes => {
                Err(Refusal::new(414, "target_too_long"))
            }
            (ScanState::Target(length), 0x21..=0x7e) => Ok(ScanState::Target(length + 1)),
            (ScanState::Target(1..), b' ') => Ok(ScanState::Version(0, [0; 8])),
            (ScanState::Target(_), b'\r') => Err(Refusal::bad("no_version")),
            (ScanState::Target(_), _) => Err(Refusal::bad("bad_target")),
            (ScanState::Version(length, read), byte) => version(length, read, byte),
            (ScanState::Status(index), byte) => status(index, byte),
            _ => Err(Refusal::bad("bad_method")),
        }
    }
}

/// One more byte of a request line's version. 1.0 and 1.1 are ours, others are answered 505.
fn version(length: usize, mut read: [u8; 8], byte: u8) -> Result<ScanState, Refusal> {
    if byte == b'\r' {
        return match &read {
            b"HTTP/1.0" | b"HTTP/1.1" => Ok(ScanState::StartLineEnd),
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
                Err(Refusal::new(505, "unknown_version"))
            }
            _ => Err(Refusal::bad("bad_version")),
        };
    }
    let fits = match length {
        0..5 => b"HTTP/".get(length) == Some(&byte),
        5 | 7 => byte.is_ascii_digit(),
        6 => byte == b'.',
        _ => false,
    };
    match read.get_mut(length) {
        Some(slot) if fits => {
            *slot = byte;
            Ok(ScanState::Version(length + 1, read))
        }
        _ => Err(Refusal::bad("bad_version")),
    }
}

/// One more byte of a status line.
fn status(index: usize, byte: u8) -> Result<ScanState, Refusal> {
    let fits = match index {
        0..7 => b"HTTP/1.".get(index) == Some(&byte),
        7 => matches!(byte, b'0' | b'1'),
        8 => byte == b' ',
        9 => matches!(byte, b'1'..=b'5'),
        10 | 11 => byte.is_ascii_digit(),
        12 => matches!(byte, b' ' | b'\r'),
        _ => is_value_byte(byte) || byte == b'\r',
    };
    match (fits, byte) {
        (true, b'\r') => Ok(ScanState::StartLineEnd),
        (true, _) => Ok(ScanState::Status(index.saturating_add(1))),
        (false, _) => Err(Refusal::bad("bad_status_line")),
    }
}

/// Where a machine stands in field lines, of a head or of trailers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lines {
    /// At the first byte of a line.
    LineStart,
    Name,
    Value,
    /// After a line's CR.
    LineEnd,
    /// After the CR of the blank line.
    BlankLine,
    /// After the blank line.
    End,
}

impl Lines {
    /// Takes one byte, or refuses it with 400.
    pub(crate) fn step(self, byte: u8) -> Result<Lines, Refusal> {
        match (self, byte) {
            (Lines::LineEnd, b'\n') => Ok(Lines::LineStart),
            (Lines::BlankLine, b'\n') => Ok(Lines::End),
            (Lines::LineEnd | Lines::BlankLine, _) => Err(Refusal::bad("bare_cr")),
            (_, b'\n') => Err(Refusal::bad("bare_lf")),
            (_, 0) => Err(Refusal::bad("nul")),
            (Lines::LineStart, b'\r') => Ok(Lines::BlankLine),
            (Lines::LineStart, b' ' | b'\t') => Err(Refusal::bad("folded_line")),
            (Lines::LineStart, b':') => Err(Refusal::bad("empty_field_name")),
            (Lines::LineStart | Lines::Name, byte) if is_token_byte(byte) => Ok(Lines::Name),
            (Lines::Name, b':') => Ok(Lines::Value),
            (Lines::Name, b' ' | b'\t') => Err(Refusal::bad("blank_in_field_name")),
            (Lines::Name, b'\r') => Err(Refusal::bad("no_colon")),
            (Lines::LineStart | Lines::Name, _) => Err(Refusal::bad("bad_field_name")),
            (Lines::Value, b'\r') => Ok(Lines::LineEnd),
            (Lines::Value, byte) if is_value_byte(byte) => Ok(Lines::Value),
            (Lines::Value | Lines::End, _) => Err(Refusal::bad("control_byte")),
        }
    }
}
