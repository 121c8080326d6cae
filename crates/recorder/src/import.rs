//! Logs read into the database, from end to end.
//!
//! The idea: what was folded is written every ten seconds together with how far the log was read, so
//! that an import that is ended by whatever goes on where it was, and nothing is counted twice. While
//! the disk is full nothing more is read; a database that turns out broken is set aside, with a line.

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use report::harmless;

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
/// Lines of a pipe that are still read when the end has been told.
const DRAINED_LINES_MAX: u32 = 100_000;
/// How often a log that has ended for now is looked at.
const POLL: Duration = Duration::from_millis(250);
/// How often in a row nothing is to come of a log whose name another has, before that is read: 2 s.
const QUIET_POLLS: u32 = 8;
/// How long is waited before a write that failed for want of room is tried again.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// How a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// To its end.
    Once,
    /// Until it is told to end, and on in the file that takes its place.
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
    /// Lines of requests for none of the server's sites.
    pub no_site: u64,
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
    /// A salt cannot be made, stored or deleted.
    Salt(io::Error),
}

impl Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Log(path, why) => {
                write!(f, "read {}: {why}", harmless(&path.display().to_string()))
            }
            ImportError::Store(error) => error.fmt(f),
            ImportError::Salt(why) => write!(f, "write the salt: {why}"),
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
    is_to_end: fn() -> bool,
    has_to_end: bool,
    now_us: i64,
    written_us: i64,
    reading: Reading,
    counts: ImportCounts,
}

impl Importer {
    /// Begins, and goes on with the visits of the last run. `clock` tells microseconds after 1970,
    /// `is_to_end` whether reading is to end at the next look at it.
    ///
    /// # Errors
    /// Where the database cannot be used.
    pub fn new(
        mut fold: Fold,
        store: FigureStore,
        reader: LogReader,
        of_site: &str,
        clock: fn() -> i64,
        is_to_end: fn() -> bool,
    ) -> Result<Importer, ImportError> {
        for site in store.sites()? {
            fold.tell_site(reader.site_hash(&site), &site);
        }
        for visit in store.open_visits()? {
            fold.resume(reader.site_hash(&visit.site), &visit);
        }
        let now_us = clock();
        Ok(Importer {
            fold,
            store,
            reader,
            of_site: of_site.into(),
            clock,
            is_to_end,
            has_to_end: false,
            now_us,
            written_us: now_us,
            reading: Reading::Once,
            counts: ImportCounts::default(),
        })
    }

    /// Whether it was told to end: what is read from now on ends at once.
    pub fn has_to_end(&self) -> bool {
        self.has_to_end
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
        let mut quiet_polls = 0;
        // What was read ahead of a pipe is nowhere else any more.
        let mut lines_left = DRAINED_LINES_MAX;
        while !self.has_to_end || (!input.has_name() && lines_left > 0) {
            lines_left -= u32::from(self.has_to_end);
            let next = match input.next_line(&mut line) {
                Ok(next) => next,
                Err(why) => {
                    // What stands before it is good, and counts.
                    self.write(&input, &mut mark, tell)?;
                    return Err(failed(&input, why));
                }
            };
            match next {
                NextLine::Line | NextLine::TooLong => quiet_polls = 0,
                NextLine::Nothing if self.has_to_end => break,
                NextLine::Nothing => {
                    self.look(&input, &mut mark, tell)?;
                    continue;
                }
                NextLine::End if reading == Reading::Following && input.may_grow() => {
                    self.look(&input, &mut mark, tell)?;
                    // Who writes it goes on with the old one for a while.
                    quiet_polls += u32::from(input.was_replaced());
                    if quiet_polls < QUIET_POLLS {
                        std::thread::sleep(POLL);
                        continue;
                    }
                    let reopened = match input.reopened() {
                        // It has been renamed once more, or cannot be read yet.
                        Err(why) if is_of_now(&why) => continue,
                        reopened => reopened.map_err(|why| failed(&input, why))?,
                    };
                    self.write(&input, &mut mark, tell)?;
                    (mark, quiet_polls) = (None, 0);
                    input = reopened;
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
        if input.may_grow() || self.has_to_end {
            self.counts.begun_bytes += input.begun_bytes();
        } else if input.last_line(&mut line) {
            self.line(&line)?;
        }
        self.write(&input, &mut mark, tell)?;
        tell(ImportEvent::Progress(&self.counts));
        Ok(())
    }

    /// Ends, whatever became of the logs: takes up the pieces of days that are over, and keeps the visits under way for the
    /// next run.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub fn end(mut self) -> Result<(ImportCounts, u64), ImportError> {
        let today = self.fold.day_of(self.now_us);
        self.store.settle(today)?;
        self.store.bound_unsent()?;
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
        let mut begun = SourceMark {
            source,
            alike: known.len(),
            before: None,
            position: 0,
            tail: 0,
        };
        let is_known = !known.is_empty();
        // Several may begin alike: the logs of two machines with a balancer's first question.
        for (position, tail) in known {
            let goes_on = input.go_on(position, tail);
            if goes_on.map_err(|why| failed(input, why))? {
                self.counts.known_bytes += position;
                begun.before = Some((position, tail));
                (begun.position, begun.tail) = (position, tail);
                break;
            }
        }
        *mark = Some(begun);
        Ok(is_known)
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
            Ok(LineFate::NoSite) => self.counts.no_site += 1,
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
        self.has_to_end |= (self.is_to_end)();
        self.now_us = (self.clock)();
        let today = self.fold.day_of(self.now_us);
        self.reader.expire(today).map_err(ImportError::Salt)?;
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
        let here = |mark: SourceMark| Some((mark.position, mark.tail));
        let has_moved = mark.is_some_and(|mark| here(mark) != mark.before);
        let today = self.fold.day_of(self.now_us);
        if self.fold.held() == 0 && !has_moved && self.store.is_thinned(today) {
            return Ok(());
        }
        let mut was_set_aside = false;
        loop {
            let written = self.store.write(self.fold.pieces(), mark.as_ref(), today);
            match written {
                Ok(()) => break,
                Err(error)
                    if error.is_full()
                        && self.reading == Reading::Following
                        && !self.has_to_end =>
                {
                    self.has_to_end |= (self.is_to_end)();
                    tell(ImportEvent::Full(&error));
                    std::thread::sleep(ROOM_WAIT);
                }
                Err(error) if error.is_broken() && !was_set_aside => {
                    was_set_aside = true;
                    let now_s = u64::try_from(self.now_us / 1_000_000).unwrap_or(0);
                    let aside = self.store.set_aside(now_s)?;
                    tell(ImportEvent::SetAside(&aside));
                    if let Some(mark) = mark {
                        (mark.before, mark.alike) = (None, 0);
                    }
                }
                Err(error) => {
                    if error.is_raced() {
                        // The other counts it.
                        self.fold.written();
                    }
                    return Err(error.into());
                }
            }
        }
        self.fold.written();
        if let Some(mark) = mark {
            mark.before = here(*mark);
        }
        Ok(())
    }
}

/// Whether a file that could not be opened may be there soon.
fn is_of_now(why: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
    kinds.contains(&why.kind())
}

fn failed(input: &LogInput, why: io::Error) -> ImportError {
    ImportError::Log(input.name(), why)
}

#[cfg(test)]
mod tests;
