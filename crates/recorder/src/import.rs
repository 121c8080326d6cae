//! Logs read into the database, from end to end.
//!
//! The idea: what was folded is written every ten seconds together with how far the log was read, so
//! that an import that is ended by whatever goes on where it was, and nothing is counted twice. While
//! the disk is full nothing more is read; a database that turns out broken is set aside, with a line.

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fold::Fold;
use crate::input::{LogInput, NextLine, hash};
use crate::reader::{LineError, LineFate, LogReader};
use crate::store::{FigureStore, SourceMark, StoreError};

/// Microseconds between two writes.
const WRITE_US: u64 = 10_000_000;
/// Names in pieces with which they are written at once: some 30 MB.
const HELD_MAX: usize = 150_000;
/// Lines between two looks at the clock.
const LINES_A_LOOK: u64 = 512;
/// How often a log that has ended for now is looked at.
const POLL: Duration = Duration::from_millis(250);
/// How long is waited before a write that failed for want of room is tried again.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// How a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// To its end.
    Once,
    /// For ever, and on in the file that takes its place.
    Following,
}

/// What happens meanwhile.
#[derive(Debug)]
pub enum ImportEvent<'a> {
    /// Some lines were read.
    Progress(&'a ImportCounts),
    /// The database was broken and is where this says; a new one was begun.
    SetAside(&'a Path),
    /// There is no room; reading waits.
    Full(&'a StoreError),
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// Lines read.
    pub lines: u64,
    /// Bytes of them, unpacked.
    pub bytes: u64,
    /// Lines that were counted.
    pub taken: u64,
    /// Lines of the operator's own accesses.
    pub own: u64,
    /// Lines that could not be read.
    pub unread: u64,
    /// The first of these, by its number, and why.
    pub first_unread: Option<(u64, &'static str)>,
    /// Bytes that had been read by an earlier run, and were passed.
    pub known_bytes: u64,
    /// Bytes behind the last line feed of a log that may grow.
    pub begun_bytes: u64,
}

/// Why an import ended early.
#[derive(Debug)]
pub enum ImportError {
    /// The log cannot be read.
    Log(PathBuf, io::Error),
    /// The database cannot be used.
    Store(StoreError),
    /// A salt cannot be made or stored.
    Salt(io::Error),
}

impl Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Log(path, why) => write!(f, "read {}: {why}", path.display()),
            ImportError::Store(error) => error.fmt(f),
            ImportError::Salt(why) => write!(f, "make a salt: {why}"),
        }
    }
}

impl std::error::Error for ImportError {}

impl From<StoreError> for ImportError {
    fn from(error: StoreError) -> ImportError {
        ImportError::Store(error)
    }
}

/// Reads logs into a database.
#[derive(Debug)]
pub struct Importer {
    fold: Fold,
    store: FigureStore,
    reader: LogReader,
    /// What logs are told apart by beside how they begin: the site they were said to be of.
    of_site: String,
    clock: fn() -> i64,
    now_us: i64,
    written_us: i64,
    reading: Reading,
    counts: ImportCounts,
}

impl Importer {
    /// Begins, and goes on with the visits of the last run. `clock` tells microseconds after 1970.
    ///
    /// # Errors
    /// Where the database cannot be used.
    pub fn new(
        mut fold: Fold,
        store: FigureStore,
        reader: LogReader,
        of_site: &str,
        clock: fn() -> i64,
    ) -> Result<Importer, ImportError> {
        for visit in store.take_open_visits()? {
            fold.resume(reader.site_hash(&visit.site), &visit);
        }
        let now_us = clock();
        Ok(Importer {
            fold,
            store,
            reader,
            of_site: of_site.into(),
            clock,
            now_us,
            written_us: now_us,
            reading: Reading::Once,
            counts: ImportCounts::default(),
        })
    }

    /// Reads a log.
    ///
    /// # Errors
    /// Where it cannot be read, or what came of it cannot be written.
    pub fn read(
        &mut self,
        mut input: LogInput,
        reading: Reading,
        tell: &mut impl FnMut(ImportEvent<'_>),
    ) -> Result<(), ImportError> {
        self.reading = reading;
        let mut mark = None;
        let mut line = Vec::new();
        loop {
            let next = match input.next_line(&mut line) {
                Ok(next) => next,
                Err(why) => {
                    // What stands before it is good, and counts.
                    self.write(&input, &mut mark, tell)?;
                    return Err(failed(&input, why));
                }
            };
            match next {
                NextLine::Line | NextLine::TooLong => {}
                NextLine::Nothing => {
                    self.look(&input, &mut mark, tell)?;
                    continue;
                }
                NextLine::End if reading == Reading::Following && input.may_grow() => {
                    self.look(&input, &mut mark, tell)?;
                    if input.was_replaced() {
                        self.write(&input, &mut mark, tell)?;
                        mark = None;
                        input = input.reopened().map_err(|why| failed(&input, why))?;
                    } else {
                        std::thread::sleep(POLL);
                    }
                    continue;
                }
                NextLine::End => break,
            }
            if mark.is_none() && input.has_name() && self.begin(&mut input, &line, &mut mark)? {
                continue;
            }
            self.line(&line)?;
            if self.counts.lines.is_multiple_of(LINES_A_LOOK) || self.fold.held() > HELD_MAX {
                self.look(&input, &mut mark, tell)?;
            }
        }
        if input.may_grow() {
            self.counts.begun_bytes += input.begun_bytes();
        } else if input.last_line(&mut line) {
            self.line(&line)?;
        }
        self.write(&input, &mut mark, tell)?;
        tell(ImportEvent::Progress(&self.counts));
        Ok(())
    }

    /// Ends: takes up all pieces, and keeps the visits under way for the next run.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub fn end(mut self) -> Result<(ImportCounts, u64), ImportError> {
        self.store.settle()?;
        self.store.keep_open_visits(&self.fold.open_visits())?;
        Ok((self.counts, self.fold.not_recorded()))
    }

    /// Knows a log by its first line; true where that is not to be taken now, since the log was read
    /// before, to its end or from its beginning on.
    fn begin(
        &mut self,
        input: &mut LogInput,
        first: &[u8],
        mark: &mut Option<SourceMark>,
    ) -> Result<bool, ImportError> {
        let named = [self.of_site.as_bytes(), b"\n", first].concat();
        let source = hash(&named);
        let known = self.store.source(source)?;
        let before = known.map_or(0, |(position, _)| position);
        *mark = Some(SourceMark {
            source,
            before,
            position: 0,
            tail: 0,
        });
        let Some((position, tail)) = known else {
            return Ok(false);
        };
        let goes_on = input.go_on(position, tail);
        if goes_on.map_err(|why| failed(input, why))? {
            self.counts.known_bytes += position;
        }
        Ok(true)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), ImportError> {
        self.counts.lines += 1;
        self.counts.bytes += line.len() as u64;
        let text = String::from_utf8_lossy(line);
        if text.trim().is_empty() {
            return Ok(());
        }
        match self.reader.take(&text, self.now_us, &mut self.fold) {
            Ok(LineFate::Taken) => self.counts.taken += 1,
            Ok(LineFate::Own) => self.counts.own += 1,
            Err(LineError::Unreadable(why)) => {
                self.counts.unread += 1;
                let number = self.counts.lines;
                self.counts.first_unread.get_or_insert((number, why));
            }
            Err(LineError::Salt(why)) => return Err(ImportError::Salt(why)),
        }
        Ok(())
    }

    /// Looks at the clock, and writes where it is time to.
    fn look(
        &mut self,
        input: &LogInput,
        mark: &mut Option<SourceMark>,
        tell: &mut impl FnMut(ImportEvent<'_>),
    ) -> Result<(), ImportError> {
        self.now_us = (self.clock)();
        tell(ImportEvent::Progress(&self.counts));
        let is_time = self.now_us.abs_diff(self.written_us) >= WRITE_US;
        if is_time || self.fold.held() > HELD_MAX {
            self.write(input, mark, tell)?;
        }
        Ok(())
    }

    /// Writes what was folded, and how far the log was read. Who follows waits for room.
    fn write(
        &mut self,
        input: &LogInput,
        mark: &mut Option<SourceMark>,
        tell: &mut impl FnMut(ImportEvent<'_>),
    ) -> Result<(), ImportError> {
        self.written_us = self.now_us;
        if let Some(mark) = mark {
            (mark.position, mark.tail) = (input.position(), input.tail());
        }
        let has_moved = mark.is_some_and(|mark| mark.position != mark.before);
        if self.fold.held() == 0 && !has_moved {
            return Ok(());
        }
        let today = self.fold.day_of(self.now_us);
        let mut was_set_aside = false;
        loop {
            let written = self.store.write(self.fold.pieces(), mark.as_ref(), today);
            match written {
                Ok(()) => break,
                Err(error) if error.is_full() && self.reading == Reading::Following => {
                    tell(ImportEvent::Full(&error));
                    std::thread::sleep(ROOM_WAIT);
                }
                Err(error) if error.is_broken() && !was_set_aside => {
                    was_set_aside = true;
                    let now_s = u64::try_from(self.now_us / 1_000_000).unwrap_or(0);
                    let aside = self.store.set_aside(now_s)?;
                    tell(ImportEvent::SetAside(&aside));
                    if let Some(mark) = mark {
                        mark.before = 0;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.fold.written();
        if let Some(mark) = mark {
            mark.before = mark.position;
        }
        Ok(())
    }
}

fn failed(input: &LogInput, why: io::Error) -> ImportError {
    ImportError::Log(input.name(), why)
}

#[cfg(test)]
mod tests;
