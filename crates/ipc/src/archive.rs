//! What the recorder and the directory process say to each other of the archive: the database that machines send
//! what they keep by the minute to.
//!
//! The idea: over links of their own, one for what is sent and one for what is asked ([`question`]), one question and
//! then its answer. What is sent is what a minute came to as a whole, so that whatever is sent twice stands there once.
//! Each end takes the other as hostile.
//!
//! Left out: what is sent when (`recorder`), and the tables it comes into (`directory`).

pub mod question;

use std::io;
use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};

use crate::codec;
use crate::console::{Incoming, Outgoing};
use crate::directory::{REASON_BYTES_MAX, ServerSettings};

/// Rows of one batch, and about how many bytes they have: what is more is another batch.
pub const BATCH_ROWS_MAX: usize = 2_000;
/// See [`BATCH_ROWS_MAX`].
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Numbers of a site's minute, beside its durations.
pub const SITE_NUMBERS: usize = 15;

/// The database, and who sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveSettings {
    /// The PostgreSQL.
    pub server: ServerSettings,
    /// What this machine is called.
    pub machine: String,
}

/// What the recorder says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToArchive {
    /// Its number for it; it grows.
    pub id: u64,
    /// What is to be written.
    pub rows: ArchiveRows,
}

/// What the directory process says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FromArchive {
    /// The number of what is answered.
    pub id: u64,
    /// What became of it.
    pub said: ArchiveSaid,
}

/// What became of what was said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ArchiveSaid {
    /// It is written, for good.
    Written,
    /// The database does not take it, and will not: one of its rows is wrong. At most [`REASON_BYTES_MAX`].
    Refused(String),
    /// The database cannot be reached or used for now. At most [`REASON_BYTES_MAX`].
    Down(String),
    /// It took too long: less of it may do. At most [`REASON_BYTES_MAX`].
    Late(String),
}

/// Rows of the archive, each of them once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArchiveRows {
    /// Minutes of figures.
    pub samples: Vec<ArchivedSample>,
    /// Minutes of sites.
    pub sites: Vec<ArchivedSite>,
    /// What went wrong.
    pub incidents: Vec<ArchivedIncident>,
}

/// What a figure was in a minute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchivedSample {
    /// Its name.
    pub name: String,
    /// When the minute begins, seconds after 1970.
    pub at_s: i64,
    /// How many values there were, their sum, the least, and the most.
    pub sums: [f64; 4],
}

/// What a site came to in a minute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchivedSite {
    /// The site.
    pub site: String,
    /// When the minute begins, seconds after 1970.
    pub at_s: i64,
    /// Counts, in the recorder's order.
    pub numbers: [i64; SITE_NUMBERS],
    /// Counts of durations, which merge.
    pub durations: Vec<u8>,
}

/// What went wrong in a second: all of one cause is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchivedIncident {
    /// Seconds after 1970.
    pub at_s: i64,
    /// What kind of thing it was, by its number.
    pub kind: i16,
    /// Which.
    pub what: String,
    /// How often it happened.
    pub times: i64,
    /// All there is to say of it, as the recorder has it.
    pub content: String,
    /// Whom it concerns: by that it is found, and not told.
    pub owners: Vec<String>,
}

impl ArchiveRows {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.len() + self.sites.len() + self.incidents.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the first of them out that fit a batch of so many at most: one at least, where there is one.
    #[must_use]
    pub fn split_batch(&mut self, rows_max: usize) -> ArchiveRows {
        let mut room = (rows_max.clamp(1, BATCH_ROWS_MAX), BATCH_BYTES_MAX);
        ArchiveRows {
            samples: fitting(&mut self.samples, &mut room, |it| it.name.len() + 48),
            sites: fitting(&mut self.sites, &mut room, |it| {
                it.site.len() + it.durations.len() + 160
            }),
            incidents: fitting(&mut self.incidents, &mut room, |it| {
                let owners = it.owners.iter().map(|it| it.len() + 1);
                it.what.len() + it.content.len() + owners.sum::<usize>() + 48
            }),
        }
    }

    /// The second half of them, of two or more, which are taken out.
    #[must_use]
    pub fn split_half(&mut self) -> ArchiveRows {
        let mut left = self.len() / 2;
        let mut half = |all: usize| {
            let kept = all.min(left);
            left -= kept;
            kept
        };
        ArchiveRows {
            samples: self.samples.split_off(half(self.samples.len())),
            sites: self.sites.split_off(half(self.sites.len())),
            incidents: self.incidents.split_off(half(self.incidents.len())),
        }
    }
}

/// Takes the first rows out that there is room for. One that is larger than all the room goes alone.
fn fitting<T>(
    rows: &mut Vec<T>,
    (count, bytes): &mut (usize, usize),
    size: impl Fn(&T) -> usize,
) -> Vec<T> {
    let fits = |row: &T| {
        let size = size(row).min(BATCH_BYTES_MAX);
        let has_room = *count > 0 && size <= *bytes;
        if has_room {
            (*count, *bytes) = (*count - 1, *bytes - size);
        } else {
            // What follows is for the next one.
            *count = 0;
        }
        has_room
    };
    let mut fits = fits;
    let end = rows.iter().position(|row| !fits(row));
    let rest = rows.split_off(end.unwrap_or(rows.len()));
    std::mem::replace(rows, rest)
}

/// How what is sent elsewhere stands.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SentState {
    /// 0 where nothing is sent, 1 while the database takes it, 2 while it does not, 3 where nothing was tried yet.
    pub standing: u64,
    /// How long ago the oldest minute was over that waits, in seconds.
    pub lag_s: u64,
    /// Minutes of figures and of sites, and incidents, that wait.
    pub waiting: u64,
    /// Those that were lost since it began: there was no room for them, or the database refused them.
    pub lost: u64,
}

impl SentState {
    /// As numbers, in the order of its fields.
    #[must_use]
    pub fn words(self) -> [u64; 4] {
        [self.standing, self.lag_s, self.waiting, self.lost]
    }

    /// What these numbers say.
    #[must_use]
    pub fn of_words([standing, lag_s, waiting, lost]: [u64; 4]) -> SentState {
        SentState {
            standing,
            lag_s,
            waiting,
            lost,
        }
    }
}

/// One end of a link.
#[derive(Debug)]
pub struct ArchiveEnd<T> {
    incoming: Incoming<T>,
    outgoing: Outgoing,
}

impl<T> Default for ArchiveEnd<T> {
    fn default() -> ArchiveEnd<T> {
        ArchiveEnd {
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
        }
    }
}

impl<T: serde::de::DeserializeOwned> ArchiveEnd<T> {
    /// Has something sent; says whether there was room for it.
    ///
    /// # Errors
    /// What cannot be written down: none of ours.
    pub fn put(&mut self, message: &impl Serialize) -> io::Result<bool> {
        self.outgoing.put(message)
    }

    /// Sends what there is room for; says whether that was all.
    ///
    /// # Errors
    /// When the other end has gone.
    pub fn send(&mut self, link: BorrowedFd<'_>) -> io::Result<bool> {
        self.outgoing.send(link)?;
        Ok(self.outgoing.is_empty())
    }

    /// What the other end has said, where all of it has come.
    ///
    /// # Errors
    /// When the other end has gone (`UnexpectedEof`), or says what cannot be understood.
    pub fn receive(&mut self, link: BorrowedFd<'_>) -> io::Result<Option<T>> {
        self.incoming.receive(link)
    }

    /// Bytes that have come of what is not all there yet.
    #[must_use]
    pub fn bytes_come(&self) -> usize {
        self.incoming.bytes_come()
    }
}

impl ArchiveSaid {
    /// Cuts what is said in words.
    #[must_use]
    pub fn bounded(mut self) -> ArchiveSaid {
        match &mut self {
            ArchiveSaid::Written => {}
            ArchiveSaid::Refused(why) | ArchiveSaid::Down(why) | ArchiveSaid::Late(why) => {
                codec::cut(why, REASON_BYTES_MAX);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(samples: usize, durations: &[usize]) -> ArchiveRows {
        let sample = |at: usize| ArchivedSample {
            name: "load1".into(),
            at_s: at as i64,
            sums: [1.0; 4],
        };
        let site = |bytes: &usize| ArchivedSite {
            site: "a.example".into(),
            at_s: 0,
            numbers: [0; SITE_NUMBERS],
            durations: vec![0; *bytes],
        };
        ArchiveRows {
            samples: (0..samples).map(sample).collect(),
            sites: durations.iter().map(site).collect(),
            incidents: Vec::new(),
        }
    }

    #[test]
    fn what_is_larger_than_a_batch_is_cut_and_nothing_is_left_out() {
        let mut all = rows(BATCH_ROWS_MAX + 1, &[10, 2 * BATCH_BYTES_MAX, 10]);
        let whole = all.clone();
        let (mut joined, mut sizes) = (ArchiveRows::default(), Vec::new());
        while !all.is_empty() {
            let mut batch = all.split_batch(BATCH_ROWS_MAX);
            sizes.push(batch.len());
            joined.samples.append(&mut batch.samples);
            joined.sites.append(&mut batch.sites);
        }
        assert_eq!(sizes, [BATCH_ROWS_MAX, 2, 1, 1]);
        assert_eq!(joined, whole);
    }

    #[test]
    fn halves_are_all_of_it() {
        let mut first = rows(3, &[1, 2]);
        let second = first.split_half();
        assert_eq!((first.samples.len(), first.sites.len()), (2, 0));
        assert_eq!((second.samples.len(), second.sites.len()), (1, 2));
    }

    #[test]
    fn mangled_messages_are_refused_or_something_else() {
        let message = ToArchive {
            id: 1,
            rows: rows(2, &[3]),
        };
        crate::codec::tests::mangled(&codec::encode(&message).unwrap(), |bytes| {
            let _ = codec::decode::<ToArchive>(bytes, Vec::new());
        });
    }
}
