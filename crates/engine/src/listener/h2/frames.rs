//! What passes below the crate `h2`: the heads of frames (RFC 9113, 4.1), and what they cost.
//!
//! The one idea: a frame that carries no payload is work for nothing. All kinds of such work draw on one budget of their
//! connection, which payload and time fill again: who is answered may ask for more, who only keeps us busy may not. Of a
//! frame nothing but its head is looked at; whether it makes sense is the crate's to say. Bodies are counted by frames,
//! too, until somebody has read them: each may hold a buffer of the crate's, however short it is.

use std::collections::BTreeMap;

/// What a client sends first (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame's head.
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// What a budget holds at most. A frame that is nothing but work takes [`FRAME_COST`].
const BUDGET_MAX: u32 = 4_000;
/// What a second adds.
const PER_SECOND: u64 = 400;
/// What a KiB of a reply adds.
const PER_KIB: u32 = 4;
/// What a frame of data of ours adds: windows are opened in reply.
const PER_DATA_SENT: u32 = 12;
/// What a head adds that is all of a reply; one before a body, or before the reply's own, adds nothing.
const PER_WHOLE_HEAD: u32 = 12;
/// What data of ours adds that is worth its frame's head but little: less than the window costs that let it out.
const PER_TINY_SENT: u32 = 2;
const FRAME_COST: u32 = 4;
/// A header block goes on: it is to come in one frame where that has room.
const CONTINUATION_COST: u32 = 8;
/// A stream that is begun or answered in vain, whoever resets it.
const RESET_COST: u32 = 8;
/// All streams are gone over.
const SETTINGS_COST: u32 = 40;
/// Data shorter than this is worth its frame's head but little.
const TINY_BYTES: usize = 256;
const TINY_COST: u32 = 1;
/// Frames of bodies that nobody has read yet: twice those of a hundred streams that fill their windows as browsers do.
const UNREAD_MAX: u32 = 2_000;
/// Streams whose bodies are counted: those there may be, and others on their way out.
const BODIES_MAX: usize = 400;

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FrameHead {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

/// Finds the heads of frames in a stream of bytes, however that is cut up.
#[derive(Debug, Default)]
struct Heads {
    head: [u8; HEAD_BYTES],
    /// Bytes of the head that are there.
    begun: usize,
    /// Bytes until the next head begins.
    skipped: usize,
}

impl Heads {
    fn pass(&mut self, mut bytes: &[u8], mut each: impl FnMut(FrameHead)) {
        while !bytes.is_empty() {
            let skip = self.skipped.min(bytes.len());
            self.skipped -= skip;
            bytes = bytes.get(skip..).unwrap_or_default();
            let room = self.head.get_mut(self.begun..).unwrap_or_default();
            let count = room.len().min(bytes.len());
            let (taken, rest) = bytes.split_at(count);
            if let Some(room) = room.get_mut(..count) {
                room.copy_from_slice(taken);
            }
            bytes = rest;
            self.begun += count;
            if self.begun == HEAD_BYTES {
                let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = self.head;
                self.skipped = u32::from_be_bytes([0, l0, l1, l2]) as usize;
                self.begun = 0;
                each(FrameHead {
                    length: self.skipped,
                    kind,
                    flags,
                    stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
                });
            }
        }
    }

    /// Whether a frame has begun and not ended.
    fn is_within(&self) -> bool {
        self.begun > 0 || self.skipped > 0
    }
}

/// What is wrong with a connection's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Too much work without payload.
    Flood,
    /// The crate has read other frames than were seen here.
    Disagreement,
}

/// Both directions of a connection, and its budget.
#[derive(Debug)]
pub(super) struct Frames {
    preface: usize,
    received: Heads,
    sent: Heads,
    budget: u32,
    filled_ms: u64,
    /// The highest stream of which a head was seen.
    stream_max: u32,
    /// The highest stream the crate has accepted.
    accepted_max: u32,
    /// How many frames of a stream's body nobody has read, for streams that have one.
    bodies: BTreeMap<u32, u32>,
    /// All of these.
    unread: u32,
    /// Pings that were received and not yet answered.
    pings: u64,
    /// The kind of the frame that is under way or was last.
    kind: u8,
    /// Whether a block of fields goes on in the next frame.
    is_in_block: bool,
    fault: Option<Fault>,
}

impl Frames {
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            preface: PREFACE.len(),
            received: Heads::default(),
            sent: Heads::default(),
            budget: BUDGET_MAX,
            filled_ms: now_ms,
            stream_max: 0,
            accepted_max: 0,
            bodies: BTreeMap::new(),
            unread: 0,
            pings: 0,
            kind: DATA,
            is_in_block: false,
            fault: None,
        }
    }

    /// What is wrong, if anything is.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Whether the head of a request has begun and is not complete.
    pub(super) fn is_within_head(&self) -> bool {
        let is_of_head = matches!(self.kind, HEADERS | CONTINUATION);
        self.is_in_block
            || self.preface > 0
            || self.received.begun > 0
            || (self.received.is_within() && is_of_head)
    }

    /// More is asked for than is answered, whatever it costs here.
    pub(super) fn note_flood(&mut self) {
        self.fault = self.fault.or(Some(Fault::Flood));
    }

    /// The crate has accepted this stream.
    pub(super) fn note_accepted(&mut self, stream: u32) {
        self.accepted_max = self.accepted_max.max(stream);
        if stream > self.stream_max {
            self.fault = Some(Fault::Disagreement);
        }
    }

    /// A frame of this stream's body was read.
    pub(super) fn note_read(&mut self, stream: u32) {
        if let Some(count) = self.bodies.get_mut(&stream)
            && let Some(left) = count.checked_sub(1)
        {
            *count = left;
            self.unread -= 1;
        }
    }

    /// Nobody waits for a body of this stream, and the crate holds nothing of it.
    pub(super) fn note_body_over(&mut self, stream: u32) {
        self.unread -= self.bodies.remove(&stream).unwrap_or(0);
    }

    fn note_unread(&mut self, stream: u32) {
        if let Some(count) = self.bodies.get_mut(&stream) {
            *count += 1;
            self.unread += 1;
            if self.unread > UNREAD_MAX {
                self.note_flood();
            }
        }
    }

    /// Bytes of the client's pass.
    pub(super) fn note_received(&mut self, bytes: &[u8], now_ms: u64) {
        self.fill_by_time(now_ms);
        let skip = self.preface.min(bytes.len());
        self.preface -= skip;
        let mut received = std::mem::take(&mut self.received);
        received.pass(bytes.get(skip..).unwrap_or_default(), |head| {
            self.receive(head);
        });
        self.received = received;
    }

    fn receive(&mut self, head: FrameHead) {
        self.kind = head.kind;
        let is_ended = head.flags & END_HEADERS != 0;
        if head.kind == DATA && head.length > 0 {
            self.note_unread(head.stream);
        }
        match head.kind {
            HEADERS => {
                if head.stream > self.stream_max && head.flags & END_STREAM == 0 {
                    self.bodies.insert(head.stream, 0);
                }
                self.stream_max = self.stream_max.max(head.stream);
                self.is_in_block = !is_ended;
                match self.bodies.len() > BODIES_MAX {
                    true => self.note_flood(),
                    // Its reply gives that back, and more.
                    false => self.spend(FRAME_COST),
                }
            }
            CONTINUATION => {
                self.is_in_block &= !is_ended;
                self.spend(CONTINUATION_COST);
            }
            DATA if head.length >= TINY_BYTES || head.flags & END_STREAM != 0 => {}
            DATA if head.length > 0 => self.spend(TINY_COST),
            RST_STREAM => self.reset(head.stream),
            SETTINGS if head.flags & ACK == 0 => self.spend(SETTINGS_COST),
            PING => {
                if head.flags & ACK == 0 {
                    self.pings += 1;
                }
                self.spend(FRAME_COST);
            }
            // Empty data, priorities, windows, and what nobody knows.
            _ => self.spend(FRAME_COST),
        }
    }

    /// Bytes of ours pass.
    pub(super) fn note_sent(&mut self, bytes: &[u8]) {
        let mut sent = std::mem::take(&mut self.sent);
        sent.pass(bytes, |head| self.send(head));
        self.sent = sent;
    }

    fn send(&mut self, head: FrameHead) {
        match head.kind {
            DATA if head.length < TINY_BYTES && head.flags & END_STREAM == 0 => {
                self.fill(PER_TINY_SENT);
            }
            DATA => {
                self.fill(PER_DATA_SENT);
                self.fill_by_bytes(head.length);
            }
            // The crate answers by itself what is not even a request.
            HEADERS if head.stream > self.accepted_max => self.spend(RESET_COST),
            HEADERS if head.flags & END_STREAM != 0 => self.fill(PER_WHOLE_HEAD),
            RST_STREAM => self.reset(head.stream),
            PING if head.flags & ACK != 0 => match self.pings.checked_sub(1) {
                Some(left) => self.pings = left,
                None => self.fault = Some(Fault::Disagreement),
            },
            _ => {}
        }
    }

    fn reset(&mut self, stream: u32) {
        self.note_body_over(stream);
        self.spend(RESET_COST);
    }

    fn spend(&mut self, cost: u32) {
        match self.budget.checked_sub(cost) {
            Some(left) => self.budget = left,
            None => self.note_flood(),
        }
    }

    fn fill(&mut self, by: u32) {
        self.budget = self.budget.saturating_add(by).min(BUDGET_MAX);
    }

    fn fill_by_bytes(&mut self, bytes: usize) {
        let kib = u32::try_from(bytes / 1024).unwrap_or(u32::MAX);
        self.fill(kib.saturating_mul(PER_KIB));
    }

    fn fill_by_time(&mut self, now_ms: u64) {
        let by = now_ms.saturating_sub(self.filled_ms) * PER_SECOND / 1_000;
        if by > 0 {
            self.filled_ms = now_ms;
            self.fill(u32::try_from(by).unwrap_or(u32::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIORITY: u8 = 2;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, flags: u8, stream: u32, length: usize) -> Vec<u8> {
        let mut bytes = u32::try_from(length).expect("a length").to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.resize(HEAD_BYTES + length, 0);
        bytes
    }

    /// How often such a frame may come at once before the connection ends.
    fn endured(kind: u8, flags: u8, length: usize) -> usize {
        let mut frames = Frames::new(0);
        frames.note_received(PREFACE, 0);
        let frame = frame(kind, flags, 1, length);
        let mut count = 0;
        while frames.fault().is_none() && count < 100_000 {
            frames.note_received(&frame, 0);
            count += 1;
        }
        count - 1
    }

    #[test]
    fn work_without_payload_is_bounded_whatever_its_kind() {
        for (kind, flags, length, most) in [
            (PING, 0, 8, 1_000),
            (PING, ACK, 8, 1_000),
            (SETTINGS, 0, 6, 100),
            (RST_STREAM, 0, 4, 500),
            (PRIORITY, 0, 5, 1_000),
            (WINDOW_UPDATE, 0, 4, 1_000),
            (CONTINUATION, 0, 100, 500),
            (DATA, 0, 0, 1_000),
            (DATA, 0, 1, 4_000),
            (0xfe, 0, 100, 1_000),
        ] {
            assert_eq!(
                endured(kind, flags, length),
                most,
                "{kind} {flags} {length}"
            );
        }
        assert_eq!(endured(DATA, 0, 16_384), 99_999);
    }

    #[test]
    fn a_body_and_a_head_before_the_last_pay_for_no_reset() {
        for is_upload in [false, true] {
            let mut frames = Frames::new(0);
            frames.note_received(PREFACE, 0);
            let mut rounds = 0;
            while frames.fault().is_none() && rounds < 10_000 {
                let stream = 2 * rounds + 1;
                frames.note_received(&frame(HEADERS, END_HEADERS, stream, 40), 0);
                frames.note_accepted(stream);
                match is_upload {
                    true => frames.note_received(&frame(DATA, 0, stream, 2_048), 0),
                    false => frames.note_sent(&frame(HEADERS, END_HEADERS, stream, 10)),
                }
                frames.note_received(&frame(RST_STREAM, 0, stream, 4), 0);
                rounds += 1;
            }
            assert_eq!(rounds, 334, "{is_upload}");
        }
    }

    #[test]
    fn heads_that_are_refused_below_are_work_for_nothing() {
        let mut frames = Frames::new(0);
        frames.note_received(PREFACE, 0);
        let flags = END_HEADERS | END_STREAM;
        for round in 0..400 {
            frames.note_received(&frame(HEADERS, flags, 2 * round + 1, 900), 0);
            frames.note_sent(&frame(HEADERS, flags, 2 * round + 1, 10));
        }
        assert_eq!(frames.fault(), Some(Fault::Flood));
    }

    #[test]
    fn frames_of_bodies_are_bounded_until_they_are_read() {
        let begin = |frames: &mut Frames, stream| {
            frames.note_received(&frame(HEADERS, END_HEADERS, stream, 40), 0);
            frames.note_accepted(stream);
        };
        let mut frames = Frames::new(0);
        frames.note_received(PREFACE, 0);
        begin(&mut frames, 1);
        for _ in 0..100_000 {
            frames.note_received(&frame(DATA, 0, 1, 256), 0);
            frames.note_read(1);
        }
        for stream in [3, 5, 7, 9] {
            begin(&mut frames, stream);
            for _ in 0..1_900 {
                frames.note_received(&frame(DATA, 0, stream, 256), 0);
            }
            match stream {
                3 => frames.note_received(&frame(RST_STREAM, 0, stream, 4), 0),
                5 => frames.note_sent(&frame(RST_STREAM, 0, stream, 4)),
                7 => frames.note_body_over(stream),
                _ => {}
            }
            // What comes behind the end is nobody's.
            if stream != 9 {
                frames.note_received(&frame(DATA, 0, stream, 256), 0);
            }
            assert_eq!(frames.fault(), None);
        }
        assert_eq!((frames.unread, frames.bodies.len()), (1_900, 2));
        for _ in 0..101 {
            frames.note_received(&frame(DATA, 0, 1, 256), 0);
        }
        assert_eq!(frames.fault(), Some(Fault::Flood));
    }

    #[test]
    fn who_is_answered_may_open_windows() {
        let mut frames = Frames::new(0);
        frames.note_received(PREFACE, 0);
        for _ in 0..100_000 {
            frames.note_sent(&frame(DATA, 0, 1, 300));
            frames.note_received(&frame(WINDOW_UPDATE, 0, 0, 4), 0);
            frames.note_received(&frame(WINDOW_UPDATE, 0, 1, 4), 0);
        }
        assert_eq!(frames.fault(), None);
    }

    #[test]
    fn a_window_that_opens_by_a_byte_costs_more_than_that_byte_gives() {
        let mut frames = Frames::new(0);
        frames.note_received(PREFACE, 0);
        for _ in 0..2_100 {
            frames.note_received(&frame(WINDOW_UPDATE, 0, 1, 4), 0);
            frames.note_sent(&frame(DATA, 0, 1, 1));
        }
        assert_eq!(frames.fault(), Some(Fault::Flood));
    }

    #[test]
    fn time_fills_the_budget_again() {
        let mut frames = Frames::new(0);
        frames.note_received(PREFACE, 0);
        for second in 0..1_000 {
            for _ in 0..100 {
                frames.note_received(&frame(PING, 0, 0, 8), second * 1_000);
            }
        }
        assert_eq!(frames.fault(), None);
    }

    #[test]
    fn resets_that_the_server_is_made_to_send_count_too() {
        let mut frames = Frames::new(0);
        for _ in 0..501 {
            frames.note_sent(&frame(RST_STREAM, 0, 1, 4));
        }
        assert_eq!(frames.fault(), Some(Fault::Flood));
    }

    #[test]
    fn heads_are_found_however_the_bytes_are_cut_up() {
        let mut bytes = PREFACE.to_vec();
        for (kind, length) in [
            (SETTINGS, 12),
            (PING, 8),
            (HEADERS, 300),
            (DATA, 0),
            (PING, 8),
        ] {
            bytes.extend(frame(kind, END_HEADERS, 7, length));
        }
        for size in 1..40 {
            let mut frames = Frames::new(0);
            for part in bytes.chunks(size) {
                frames.note_received(part, 0);
            }
            assert_eq!((frames.pings, frames.stream_max), (2, 7), "{size}");
            assert!(!frames.is_within_head());
            frames.note_accepted(7);
            assert_eq!(frames.fault(), None);
        }
    }

    #[test]
    fn a_stream_or_an_answer_that_nobody_asked_for_ends_the_connection() {
        let mut frames = Frames::new(0);
        frames.note_accepted(1);
        assert_eq!(frames.fault(), Some(Fault::Disagreement));
        let mut frames = Frames::new(0);
        frames.note_sent(&frame(PING, ACK, 0, 8));
        assert_eq!(frames.fault(), Some(Fault::Disagreement));
    }

    #[test]
    fn a_head_is_under_way_until_its_block_ends() {
        let mut frames = Frames::new(0);
        assert!(frames.is_within_head());
        frames.note_received(PREFACE, 0);
        assert!(!frames.is_within_head());
        let head = frame(HEADERS, 0, 1, 10);
        frames.note_received(&head[..12], 0);
        assert!(frames.is_within_head());
        frames.note_received(&head[12..], 0);
        assert!(frames.is_within_head());
        frames.note_received(&frame(CONTINUATION, END_HEADERS, 1, 10), 0);
        assert!(!frames.is_within_head());
    }
}
