//! A log as lines: a file, plain or packed by gzip, or standard input.
//!
//! The idea: a log is known by its first line, whatever it is called today and whether it has been
//! packed since, and how far it was read by the bytes before that place. So one that was rotated is
//! read on, and one that begins alike but goes on differently is another.

use std::fs::{File, Metadata};
use std::hash::Hasher;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use siphasher::sip::SipHasher13;

use crate::line::LINE_BYTES_MAX;

/// To open a pipe without waiting for who writes to it, as Linux has it on all that we build for.
const O_NONBLOCK: i32 = 0o4000;
/// Bytes before a place that it is known by.
const TAIL_BYTES: usize = 128;
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Pieces of standard input that are read ahead.
const AHEAD: usize = 4;
/// How long is waited for more of standard input before something else is looked at.
const PATIENCE: Duration = Duration::from_secs(1);

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextLine {
    /// A line, with its line feed.
    Line,
    /// A line that is too long; what is told of it is its beginning.
    TooLong,
    /// Nothing for now.
    Nothing,
    /// The end; perhaps behind a line without its line feed.
    End,
}

/// A log that is being read.
#[derive(Debug)]
pub struct LogInput {
    path: Option<PathBuf>,
    bytes: Bytes,
    /// Device and number of the file.
    file: Option<(u64, u64)>,
    position: u64,
    tail: Vec<u8>,
    /// A line that has no line feed yet, and was read.
    begun: Vec<u8>,
    /// Whether its first bytes were seen, which say how it is packed.
    is_known: bool,
    /// Whether it stands within a line that is too long.
    is_skipping: bool,
}

#[derive(Debug)]
enum Bytes {
    Plain(BufReader<LogSource>),
    Packed(Box<BufReader<MultiGzDecoder<BufReader<LogSource>>>>),
}

impl Bytes {
    /// Them as they were before they were packed.
    fn reader(&mut self) -> &mut dyn BufRead {
        match self {
            Bytes::Plain(bytes) => bytes,
            Bytes::Packed(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
enum LogSource {
    File(File),
    /// Standard input, which a thread reads: who waits for it can look at the clock meanwhile.
    Standard(Receiver<io::Result<Vec<u8>>>, Vec<u8>),
    Nothing,
}

impl Read for LogSource {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            LogSource::File(file) => file.read(room),
            LogSource::Nothing => Ok(0),
            LogSource::Standard(pieces, piece) => {
                if piece.is_empty() {
                    *piece = match pieces.recv_timeout(PATIENCE) {
                        Ok(read) => read?,
                        Err(RecvTimeoutError::Timeout) => return Err(ErrorKind::TimedOut.into()),
                        Err(RecvTimeoutError::Disconnected) => return Ok(0),
                    };
                }
                let taken = piece.as_slice().read(room)?;
                piece.drain(..taken);
                Ok(taken)
            }
        }
    }
}

impl LogInput {
    /// Opens a log.
    ///
    /// # Errors
    /// Where it cannot be opened or read.
    pub fn open(path: &Path) -> io::Result<LogInput> {
        // Who opens a pipe waits for whoever writes to it.
        let is_log = |metadata: &Metadata| match metadata.is_file() {
            true => Ok(()),
            false => Err(io::Error::other("it is no file: give what it says as `-`")),
        };
        is_log(&std::fs::metadata(path)?)?;
        // It may be another by now; and of a file nobody waits.
        let at_once = File::options()
            .read(true)
            .custom_flags(O_NONBLOCK)
            .open(path);
        let file = at_once?;
        let metadata = file.metadata()?;
        is_log(&metadata)?;
        let mut input = LogInput::over(LogSource::File(file));
        input.know()?;
        input.path = Some(path.into());
        input.file = Some(identity(&metadata));
        Ok(input)
    }

    /// Reads standard input.
    pub fn standard() -> LogInput {
        let (sender, pieces) = sync_channel(AHEAD);
        // It ends with standard input, or with the process.
        std::thread::spawn(move || {
            let mut stdin = io::stdin().lock();
            loop {
                let mut piece = vec![0; READ_BYTES];
                let read = stdin.read(&mut piece).map(|taken| {
                    piece.truncate(taken);
                    piece
                });
                let is_last = read.as_ref().map_or(true, Vec::is_empty);
                if sender.send(read).is_err() || is_last {
                    return;
                }
            }
        });
        LogInput::over(LogSource::Standard(pieces, Vec::new()))
    }

    fn over(source: LogSource) -> LogInput {
        LogInput {
            path: None,
            bytes: Bytes::Plain(BufReader::with_capacity(READ_BYTES, source)),
            file: None,
            position: 0,
            tail: Vec::new(),
            begun: Vec::new(),
            is_known: false,
            is_skipping: false,
        }
    }

    /// Looks at the first bytes, and unpacks what is packed.
    fn know(&mut self) -> io::Result<()> {
        let Bytes::Plain(plain) = &mut self.bytes else {
            return Ok(());
        };
        if !self.is_known && plain.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            let nothing = BufReader::with_capacity(1, LogSource::Nothing);
            let unpacked = MultiGzDecoder::new(std::mem::replace(plain, nothing));
            let unpacked = BufReader::with_capacity(READ_BYTES, unpacked);
            self.bytes = Bytes::Packed(Box::new(unpacked));
        }
        self.is_known = true;
        Ok(())
    }

    /// Whether it may grow: a plain file does.
    pub fn may_grow(&self) -> bool {
        self.path.is_some() && matches!(self.bytes, Bytes::Plain(_))
    }

    /// Whether it can be known again.
    pub fn has_name(&self) -> bool {
        self.path.is_some()
    }

    /// What it is called.
    pub fn name(&self) -> PathBuf {
        let standard = || PathBuf::from("standard input");
        self.path.clone().unwrap_or_else(standard)
    }

    /// Bytes behind the last line feed.
    pub fn begun_bytes(&self) -> u64 {
        self.begun.len() as u64
    }

    /// What has its name now, from its beginning.
    pub(crate) fn reopened(&self) -> io::Result<LogInput> {
        match &self.path {
            Some(path) => LogInput::open(path),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Bytes of whole lines that were read, unpacked.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// A hash of the bytes before the position.
    pub fn tail(&self) -> u64 {
        hash(&self.tail)
    }

    /// Reads the next line into `line`.
    pub(crate) fn next_line(&mut self, line: &mut Vec<u8>) -> io::Result<NextLine> {
        match self.know() {
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(NextLine::Nothing),
            known => known?,
        }
        if self.is_skipping {
            self.skip_line()?;
            if self.is_skipping {
                return Ok(NextLine::Nothing);
            }
        }
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.begun.len()) as u64;
        let mut bytes = self.bytes.reader().take(room);
        match bytes.read_until(b'\n', &mut self.begun) {
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(NextLine::Nothing),
            read => read?,
        };
        let is_whole = self.begun.ends_with(b"\n");
        if !is_whole && self.begun.len() <= LINE_BYTES_MAX {
            return Ok(NextLine::End);
        }
        line.clear();
        line.append(&mut self.begun);
        self.passed(line);
        if is_whole {
            return Ok(NextLine::Line);
        }
        self.skip_line()?;
        Ok(NextLine::TooLong)
    }

    /// What stands behind the last line feed, if anything; where a log has ended for good that is
    /// its last line.
    pub fn last_line(&mut self, line: &mut Vec<u8>) -> bool {
        if self.begun.is_empty() {
            return false;
        }
        line.clear();
        line.append(&mut self.begun);
        self.passed(line);
        true
    }

    /// Passes the rest of a line that is too long, as far as it is there.
    fn skip_line(&mut self) -> io::Result<()> {
        self.is_skipping = true;
        let mut part = Vec::new();
        loop {
            part.clear();
            let mut bytes = self.bytes.reader().take(LINE_BYTES_MAX as u64);
            let read = bytes.read_until(b'\n', &mut part);
            self.passed(&part);
            match read {
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(()),
                read => read?,
            };
            if part.is_empty() || part.ends_with(b"\n") {
                self.is_skipping = false;
                return Ok(());
            }
        }
    }

    fn passed(&mut self, bytes: &[u8]) {
        self.position += bytes.len() as u64;
        let last = bytes.get(bytes.len().saturating_sub(TAIL_BYTES)..);
        self.tail.extend_from_slice(last.unwrap_or_default());
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
    }

    /// Goes to where a log was read to before; false where these are other bytes, or fewer: then it
    /// stands at its beginning.
    pub(crate) fn go_on(&mut self, position: u64, tail: u64) -> io::Result<bool> {
        let before = position.saturating_sub(TAIL_BYTES as u64);
        self.rewind()?;
        self.begun.clear();
        let passed = match &mut self.bytes {
            Bytes::Plain(bytes) => seek(bytes, before)?,
            Bytes::Packed(bytes) => {
                io::copy(&mut bytes.by_ref().take(before), &mut io::sink())? == before
            }
        };
        let mut last = Vec::new();
        if passed {
            let mut bytes = self.bytes.reader().take(position - before);
            bytes.read_to_end(&mut last)?;
        }
        if passed && last.len() as u64 == position - before && hash(&last) == tail {
            (self.position, self.tail) = (position, last);
            return Ok(true);
        }
        self.rewind()?;
        Ok(false)
    }

    /// Goes to the beginning of a file.
    fn rewind(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            *self = LogInput::open(path)?;
        }
        Ok(())
    }

    /// Whether another file has the name of this one now, or this one has become shorter.
    pub fn was_replaced(&self) -> bool {
        let Some(path) = &self.path else { return false };
        let Ok(now) = std::fs::metadata(path) else {
            // Between two files there is none.
            return false;
        };
        Some(identity(&now)) != self.file || now.len() < self.position
    }
}

/// Goes to a place of a file; false where it is none.
fn seek(bytes: &mut BufReader<LogSource>, place: u64) -> io::Result<bool> {
    let LogSource::File(file) = bytes.get_mut() else {
        return Ok(false);
    };
    file.seek(SeekFrom::Start(place))?;
    // What was read before is of another place.
    let unread = bytes.buffer().len();
    bytes.consume(unread);
    Ok(true)
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// A hash of bytes of a log, the same in each run.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use testkit::TempDir;

    use super::*;

    fn lines(input: &mut LogInput) -> Vec<String> {
        let (mut found, mut line) = (Vec::new(), Vec::new());
        loop {
            match input.next_line(&mut line).expect("it is read") {
                NextLine::Nothing | NextLine::End => return found,
                _ => found.push(String::from_utf8_lossy(&line).trim_end().to_owned()),
            }
        }
    }

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn a_log_that_grew_is_read_on_even_when_it_was_packed_meanwhile() {
        let directory = TempDir::new();
        let path = directory.path().join("access.log");
        let (old, new) = ("first line\nsecond\n".repeat(40), "third\n");
        fs::write(&path, &old).expect("written");
        let mut input = LogInput::open(&path).expect("opened");
        assert_eq!(lines(&mut input).len(), 80);
        let (position, tail) = (input.position(), input.tail());
        for content in [
            format!("{old}{new}").into_bytes(),
            packed(&format!("{old}{new}")),
        ] {
            fs::write(&path, content).expect("written");
            let mut input = LogInput::open(&path).expect("opened");
            assert!(input.go_on(position, tail).expect("read"));
            assert_eq!(lines(&mut input), ["third"]);
        }
    }

    #[test]
    fn a_log_that_goes_on_differently_is_another_and_read_from_its_beginning() {
        let directory = TempDir::new();
        let path = directory.path().join("access.log");
        fs::write(&path, "first\nsecond\n").expect("written");
        let mut input = LogInput::open(&path).expect("opened");
        lines(&mut input);
        let (position, tail) = (input.position(), input.tail());
        for (content, count) in [("first\nSecond\nthird\n", 3), ("first\n", 1)] {
            fs::write(&path, content).expect("written");
            let mut input = LogInput::open(&path).expect("opened");
            lines(&mut input);
            assert!(!input.go_on(position, tail).expect("read"));
            assert_eq!(lines(&mut input).len(), count);
        }
    }

    #[test]
    fn a_line_is_read_when_it_has_ended() {
        let directory = TempDir::new();
        let path = directory.path().join("access.log");
        fs::write(&path, "first\nsec").expect("written");
        let mut input = LogInput::open(&path).expect("opened");
        assert_eq!(lines(&mut input), ["first"]);
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .expect("opened");
        file.write_all(b"ond\n").expect("written");
        assert_eq!(lines(&mut input), ["second"]);
        assert_eq!(input.position(), 13);
        assert!(!input.was_replaced());
        fs::write(&path, "new\n").expect("written");
        assert!(input.was_replaced());
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let directory = TempDir::new();
        let path = directory.path().join("access.log");
        let long = "x".repeat(5 * LINE_BYTES_MAX);
        fs::write(&path, format!("{long}\nnext\n")).expect("written");
        let mut input = LogInput::open(&path).expect("opened");
        let mut line = Vec::new();
        assert_eq!(input.next_line(&mut line).expect("read"), NextLine::TooLong);
        assert_eq!(line.len(), LINE_BYTES_MAX + 1);
        assert_eq!(lines(&mut input), ["next"]);
    }
}
