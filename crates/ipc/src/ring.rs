//! What a worker tells the recorder: a record of fixed size for each request, in memory both have mapped.
//!
//! The idea: a ring with one writer, who never waits, and one reader, who is never woken. Texts go once,
//! in a ring beside it, and records name them by a hash whose key the reader has chosen; who is asked
//! for what by whom is told by no address, but by a hash with a salt of the reader's. What the reader
//! says lies in a page of its own, and is taken as hostile by the writer: the worst it can say is that
//! there is no room. What the writer says is copied once by the reader before it is judged.
//!
//! Not here: who makes the memory (the supervisor), and what comes of the records (`recorder`).

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use os::shared::{SharedReader, SharedWriter};
use siphasher::sip::SipHasher13;

use crate::archive::SentState;

/// Records that wait at most; at 20,000 requests a second those of 0.4 s.
pub const RECORDS_MAX: usize = 8_192;
/// Bytes of a text that is told; what is longer is cut.
pub const TEXT_BYTES_MAX: usize = 1_024;
/// Words of the ring of texts: half a MiB.
const TEXT_WORDS: usize = 65_536;
/// Words of a record.
const RECORD_WORDS: usize = 16;
/// Where the ring's own numbers are: how many records and words of texts were written.
const RECORDS_WRITTEN: usize = 0;
const TEXTS_WRITTEN: usize = 8;
const RECORDS_AT: usize = 16;
const TEXTS_AT: usize = RECORDS_AT + RECORDS_MAX * RECORD_WORDS;
/// Words of a ring: 1.5 MiB.
pub const RING_WORDS: usize = TEXTS_AT + TEXT_WORDS;
/// Words of the reader's page.
pub const CURSOR_WORDS: usize = 512;
/// Words before a text: its hash, then what it is and how long.
const TEXT_HEAD_WORDS: usize = 2;
/// Lines of the table of texts that were told: with those below it remembers 16,384, in 128 KiB.
const TOLD_LINES: usize = 2_048;
/// Texts of a line, which a processor fetches as a whole: those told last.
const TOLD_TEXTS: usize = 8;
/// Places in the reader's page.
mod place {
    pub(super) const TELLING: usize = 0;
    pub(super) const NAMES: usize = 1;
    pub(super) const SALT: usize = 3;
    pub(super) const SEEN_US: usize = 5;
    pub(super) const CPU_US: usize = 6;
    pub(super) const WRITTEN_US: usize = 7;
    pub(super) const RECORDS_READ: usize = 8;
    pub(super) const TEXTS_READ: usize = 9;
    pub(super) const SENT: usize = 10;
}

/// One request. Texts are meant by their hashes, 0 where there is none.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RingRecord {
    /// When it came in, microseconds after 1970.
    pub at_us: i64,
    /// Its site.
    pub site: u64,
    /// Its path.
    pub path: u64,
    /// Where it says it comes from.
    pub referrer: u64,
    /// Its user agent.
    pub agent: u64,
    /// The campaign it came by.
    pub campaign: u64,
    /// What was searched for.
    pub search: u64,
    /// Who sent it.
    pub visitor: u64,
    /// Bytes of the reply's body.
    pub bytes_out: u64,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// The rule that answered.
    pub rule: u64,
    /// The server behind us that did.
    pub upstream: u64,
    /// Why it failed or was refused.
    pub reason: u64,
    /// How long it took, in microseconds, or [`UNKNOWN_US`], as the next.
    pub total_us: u32,
    /// How long it waited before its handler.
    pub queue_us: u32,
    /// How long a back end took.
    pub upstream_us: u32,
    /// Processor time of the program that was run for it.
    pub program_us: u32,
    /// The reply's status.
    pub status: u16,
    /// How many requests it stands for.
    pub stands_for: u16,
    /// Where the client is, as ISO 3166 has it, or zeros.
    pub country: [u8; 2],
    /// Whether somebody may have looked at what it asked for: a GET, and not beforehand.
    pub is_look: bool,
    /// Whether it is the first after a handshake of TLS.
    pub is_after_handshake: bool,
}

/// Stands for a duration that is not known.
pub const UNKNOWN_US: u32 = u32::MAX;

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TextOf {
    /// The name of a site.
    Site,
    /// A target, without its query.
    Path,
    /// Where a request says it comes from, without query.
    Referrer,
    /// A user agent.
    Agent,
    /// Whatever is only counted: a campaign, what was searched for, a reason.
    Name,
}

/// A text that is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldText<'a> {
    /// What means it in records.
    pub hash: u64,
    /// What it is.
    pub of: TextOf,
    /// Its bytes, which may be any; at most [`TEXT_BYTES_MAX`].
    pub bytes: &'a [u8],
}

/// What hashes are made with. It is the reader's to choose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingKeys {
    /// For names.
    pub names: [u64; 2],
    /// For visitors, and for what they are known by.
    pub salt: [u64; 2],
}

/// Why a record is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// Nobody has begun to read.
    NoReader,
    /// The reader is behind.
    Full,
}

/// The worker's end.
#[derive(Debug)]
pub struct RingWriter {
    ring: SharedWriter,
    cursor: SharedReader,
    /// How often the reader has had everything told anew; 0: nobody reads.
    telling: u64,
    names: SipHasher13,
    salt: SipHasher13,
    /// Hashes of texts that were told since it last began anew, by their lowest bits.
    told: Box<[ToldLine]>,
    records: u64,
    texts: u64,
    /// As far as the reader has said it has read, at most so much.
    records_read: u64,
    untold: u64,
}

/// Hashes that share their lowest bits, the one told last first.
#[derive(Debug, Default, Clone, Copy)]
#[repr(align(64))]
struct ToldLine([u64; TOLD_TEXTS]);

/// The recorder's end.
#[derive(Debug)]
pub struct RingReader {
    ring: SharedReader,
    cursor: SharedWriter,
    records: u64,
    texts: u64,
}

/// What came of a look into the ring.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ReadCounts {
    /// Records read.
    pub records: u64,
    /// Texts read.
    pub texts: u64,
    /// Whether what was in it made no sense, and was passed over.
    pub was_broken: bool,
}

/// What the reader says of itself. It may say anything.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ReaderState {
    /// When it looked last, in microseconds by `CLOCK_MONOTONIC`; 0: never.
    pub seen_us: u64,
    /// When it has last written what it had, likewise.
    pub written_us: u64,
    /// What it has taken of processors, in microseconds.
    pub cpu_us: u64,
    /// How sending stands, where it sends.
    pub sent: SentState,
}

impl RingWriter {
    /// Maps a ring that nobody has written to, and its reader's page.
    ///
    /// # Errors
    /// When these are no such memory, or cannot be mapped.
    pub fn new(ring: BorrowedFd<'_>, cursor: BorrowedFd<'_>) -> io::Result<RingWriter> {
        Ok(RingWriter {
            ring: SharedWriter::map(ring, RING_WORDS)?,
            cursor: SharedReader::map(cursor, CURSOR_WORDS)?,
            telling: 0,
            names: SipHasher13::new(),
            salt: SipHasher13::new(),
            told: vec![ToldLine::default(); TOLD_LINES].into(),
            records: 0,
            texts: 0,
            records_read: 0,
            untold: 0,
        })
    }

    /// To be asked before a record is put together: whether there is room for it. Where the reader is
    /// another, or has forgotten what it was told, everything is told again.
    ///
    /// # Errors
    /// Why there is none.
    pub fn begin(&mut self) -> Result<(), Dropped> {
        let telling = self.cursor.get_published(place::TELLING);
        if telling != self.telling {
            let keys = |at| [self.cursor.get(at), self.cursor.get(at + 1)];
            let ([one, two], [three, four]) = (keys(place::NAMES), keys(place::SALT));
            self.names = SipHasher13::new_with_keys(one, two);
            self.salt = SipHasher13::new_with_keys(three, four);
            self.told.fill(ToldLine::default());
            self.telling = telling;
        }
        if telling == 0 {
            return Err(Dropped::NoReader);
        }
        if self.records.wrapping_sub(self.records_read) >= RECORDS_MAX as u64 {
            self.records_read = self.cursor.get_published(place::RECORDS_READ);
            // What it cannot have read is no room either.
            if self.records.wrapping_sub(self.records_read) >= RECORDS_MAX as u64 {
                self.records_read = self.records.wrapping_sub(RECORDS_MAX as u64);
                return Err(Dropped::Full);
            }
        }
        Ok(())
    }

    /// The hash of a text, which is told where it was not; 0 for an empty one.
    pub fn text(&mut self, of: TextOf, text: &[u8]) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
        // Agents are hashed with the salt: so their hash is good for visitors, too.
        let is_agent = of == TextOf::Agent;
        let hasher = if is_agent { &self.salt } else { &self.names };
        let hash = of_text(hasher, of, text);
        let line = self.told.get(hash as usize % TOLD_LINES);
        if !line.is_some_and(|line| line.0.contains(&hash)) {
            self.tell(of, hash, text);
        }
        hash
    }

    /// Who asks a site: by address and agent, as they were hashed.
    pub fn visitor(&self, site: u64, address: IpAddr, agent: u64) -> u64 {
        let address = match address.to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        // Both are hashes with keys nobody else knows: so are the two in one.
        let asks = site ^ agent.rotate_left(32);
        // No global IPv6 address looks like an IPv4 one.
        match (address >> 64) as u64 {
            0 => (self.salt).hash([asks, address as u64].map(u64::to_le_bytes).as_flattened()),
            network => {
                let parts = [asks, address as u64, network];
                (self.salt).hash(parts.map(u64::to_le_bytes).as_flattened())
            }
        }
    }

    /// Writes a record, after [`RingWriter::begin`] has found room for it.
    // Inlined, the record stays in registers. Else it is read from memory by wider words than it was just
    // written by, which waits until all that was written before is in the cache.
    #[inline(always)]
    pub fn push(&mut self, record: &RingRecord) {
        self.ring
            .set_all(record_at(self.records), record.to_words());
        self.records = self.records.wrapping_add(1);
        self.ring.publish(RECORDS_WRITTEN, self.records);
        // The next one's two cache lines were touched last when the ring came round to them: whatever is
        // locked after they are written would wait for them.
        let next = record_at(self.records);
        self.ring.prefetch(next);
        self.ring.prefetch(next + RECORD_WORDS / 2);
    }

    /// Texts for which there was no room, so that records name them in vain.
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// What the reader says of itself.
    pub fn reader(&self) -> ReaderState {
        ReaderState {
            seen_us: self.cursor.get(place::SEEN_US),
            written_us: self.cursor.get(place::WRITTEN_US),
            cpu_us: self.cursor.get(place::CPU_US),
            sent: SentState::of_words(std::array::from_fn(|at| self.cursor.get(place::SENT + at))),
        }
    }

    /// Tells a text, where there is room for it.
    #[cold]
    fn tell(&mut self, of: TextOf, hash: u64, text: &[u8]) {
        let words = TEXT_HEAD_WORDS + text.len().div_ceil(8);
        let read = self.cursor.get_published(place::TEXTS_READ);
        let used = self.texts.wrapping_sub(read);
        if used > (TEXT_WORDS - words) as u64 {
            self.untold = self.untold.saturating_add(1);
            return;
        }
        let length = (text.len() as u64) << 8 | of as u64;
        let (chunks, rest) = text.as_chunks::<8>();
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let body = chunks.iter().copied().map(u64::from_le_bytes);
        let body = body.chain((!rest.is_empty()).then_some(u64::from_le_bytes(last)));
        let (ring, mut at) = (&self.ring, self.texts);
        for word in [hash, length].into_iter().chain(body) {
            ring.set(TEXTS_AT + at as usize % TEXT_WORDS, word);
            at = at.wrapping_add(1);
        }
        self.texts = at;
        ring.publish(TEXTS_WRITTEN, at);
        if let Some(ToldLine(line)) = self.told.get_mut(hash as usize % TOLD_LINES) {
            line.rotate_right(1);
            line[0] = hash;
        }
    }
}

/// Where a record's words begin.
fn record_at(record: u64) -> usize {
    RECORDS_AT + record as usize % RECORDS_MAX * RECORD_WORDS
}

/// Never 0, which says that there is nothing; another for each kind of text.
fn of_text(hasher: &SipHasher13, of: TextOf, text: &[u8]) -> u64 {
    let kind = (of as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hasher.hash(text) ^ kind).max(1)
}

impl RingKeys {
    /// The hash that the writers name a site by.
    pub fn site(&self, name: &str) -> u64 {
        let hasher = SipHasher13::new_with_keys(self.names[0], self.names[1]);
        of_text(&hasher, TextOf::Site, name.as_bytes())
    }
}

impl RingReader {
    /// Maps a ring and the reader's page, and goes on where the last reader was.
    ///
    /// # Errors
    /// When these are no such memory, or cannot be mapped.
    pub fn new(ring: BorrowedFd<'_>, cursor: BorrowedFd<'_>) -> io::Result<RingReader> {
        let cursor = SharedWriter::map(cursor, CURSOR_WORDS)?;
        Ok(RingReader {
            ring: SharedReader::map(ring, RING_WORDS)?,
            records: cursor.get(place::RECORDS_READ),
            texts: cursor.get(place::TEXTS_READ),
            cursor,
        })
    }

    /// Has everything told anew, hashed by these.
    pub fn tell_anew(&self, keys: &RingKeys) {
        let telling = self.cursor.get(place::TELLING).wrapping_add(1).max(1);
        self.cursor.set_all(place::NAMES, keys.names);
        self.cursor.set_all(place::SALT, keys.salt);
        self.cursor.publish(place::TELLING, telling);
    }

    /// Says how the reader is.
    pub fn say(&self, state: &ReaderState) {
        self.cursor.set(place::SEEN_US, state.seen_us);
        self.cursor.set(place::WRITTEN_US, state.written_us);
        self.cursor.set(place::CPU_US, state.cpu_us);
        for (at, word) in state.sent.words().into_iter().enumerate() {
            self.cursor.set(place::SENT + at, word);
        }
    }

    /// Reads what was written until now: texts, then the records that name them.
    pub fn read(
        &mut self,
        mut text: impl FnMut(ToldText<'_>),
        mut record: impl FnMut(&RingRecord),
    ) -> ReadCounts {
        let mut counts = ReadCounts::default();
        let records = self.ring.get_published(RECORDS_WRITTEN);
        let texts = self.ring.get_published(TEXTS_WRITTEN);
        if texts.wrapping_sub(self.texts) > TEXT_WORDS as u64 {
            (self.texts, counts.was_broken) = (texts, true);
        }
        let mut bytes = Vec::with_capacity(TEXT_BYTES_MAX);
        while self.texts != texts {
            match self.next_text(texts, &mut bytes) {
                Some((hash, of)) => {
                    counts.texts += 1;
                    let bytes = &bytes;
                    text(ToldText { hash, of, bytes });
                }
                None => (self.texts, counts.was_broken) = (texts, true),
            }
        }
        self.cursor.publish(place::TEXTS_READ, texts);
        if records.wrapping_sub(self.records) > RECORDS_MAX as u64 {
            (self.records, counts.was_broken) = (records, true);
        }
        while self.records != records {
            let at = record_at(self.records);
            let words: [u64; RECORD_WORDS] = std::array::from_fn(|word| self.ring.get(at + word));
            record(&RingRecord::of_words(&words));
            self.records = self.records.wrapping_add(1);
            counts.records += 1;
        }
        self.cursor.publish(place::RECORDS_READ, records);
        counts
    }

    /// Copies the next text and judges it; `None` where there is none that makes sense.
    fn next_text(&mut self, end: u64, bytes: &mut Vec<u8>) -> Option<(u64, TextOf)> {
        let word = |at: u64| self.ring.get(TEXTS_AT + at as usize % TEXT_WORDS);
        let [hash, head] = [word(self.texts), word(self.texts.wrapping_add(1))];
        let of = TextOf::of(head as u8)?;
        let length = usize::try_from(head >> 8).ok()?;
        let words = TEXT_HEAD_WORDS + length.div_ceil(8);
        let is_there = (1..=TEXT_BYTES_MAX).contains(&length);
        if !is_there || words as u64 > end.wrapping_sub(self.texts) {
            return None;
        }
        let body = (TEXT_HEAD_WORDS..words).map(|at| word(self.texts.wrapping_add(at as u64)));
        bytes.clear();
        bytes.extend(body.flat_map(u64::to_le_bytes).take(length));
        self.texts = self.texts.wrapping_add(words as u64);
        Some((hash, of))
    }
}

impl TextOf {
    fn of(number: u8) -> Option<TextOf> {
        use TextOf::{Agent, Name, Path, Referrer, Site};
        let all = [Site, Path, Referrer, Agent, Name];
        all.into_iter().find(|it| *it as u8 == number)
    }
}

impl RingRecord {
    #[inline(always)]
    fn to_words(self) -> [u64; RECORD_WORDS] {
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let flags = u64::from(self.is_look) | u64::from(self.is_after_handshake) << 1;
        let [first, second] = self.country.map(u64::from);
        // 16 bits each; flags have 15 of theirs to spare.
        let small = u64::from(self.status)
            | u64::from(self.stands_for) << 16
            | (first | second << 8) << 32
            | flags << 48;
        [
            self.at_us.cast_unsigned(),
            self.site,
            self.path,
            self.referrer,
            self.agent,
            self.campaign,
            self.search,
            self.visitor,
            self.bytes_out,
            self.bytes_in,
            self.rule,
            self.upstream,
            self.reason,
            pair(self.total_us, self.queue_us),
            pair(self.upstream_us, self.program_us),
            small,
        ]
    }

    fn of_words(words: &[u64; RECORD_WORDS]) -> RingRecord {
        let [
            at_us,
            site,
            path,
            referrer,
            agent,
            campaign,
            search,
            visitor,
            rest @ ..,
        ] = *words;
        let [
            bytes_out,
            bytes_in,
            rule,
            upstream,
            reason,
            times,
            parts,
            small,
        ] = rest;
        RingRecord {
            at_us: at_us.cast_signed(),
            site,
            path,
            referrer,
            agent,
            campaign,
            search,
            visitor,
            bytes_out,
            bytes_in,
            rule,
            upstream,
            reason,
            total_us: times as u32,
            queue_us: (times >> 32) as u32,
            upstream_us: parts as u32,
            program_us: (parts >> 32) as u32,
            status: small as u16,
            stands_for: (small >> 16) as u16,
            country: [(small >> 32) as u8, (small >> 40) as u8],
            is_look: small >> 48 & 1 == 1,
            is_after_handshake: small >> 49 & 1 == 1,
        }
    }
}

#[cfg(test)]
mod tests;
