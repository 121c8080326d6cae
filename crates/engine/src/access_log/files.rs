//! The descriptors records are written to: those the supervisor gave, and those asked for.
//!
//! Paths from templates are opened by the supervisor when their first record comes; the record
//! waits here, with a cap on bytes and on time. Beyond `log.files_max` such descriptors the one
//! used longest ago is closed. A pipe whose reader is stuck is waited for once, for a second;
//! from then on it gets only what it takes at once, so that it can't hold up the other logs.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use config::model::LogTarget;
use os::file::FileKind;

use super::batch::lines;
use ipc::server::Log;

/// How long a pipe that takes nothing is waited for.
const STALL_MAX: Duration = Duration::from_secs(1);
/// Bytes a pipe takes in one piece or not at all (`PIPE_BUF`).
const PIPE_BYTES: usize = 4_096;
/// Bytes that wait for logs to be opened, all together.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long they wait; how long a path that was refused isn't asked for again.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Every descriptor in use. Each method says how many records were lost.
pub(super) struct Files<Ask> {
    open: HashMap<LogTarget, OpenFile>,
    asked: HashMap<String, AskedLog>,
    waiting_bytes: usize,
    files_max: usize,
    /// Counts writes: the age of descriptors.
    turn: u64,
    ask: Ask,
}

/// A path the supervisor was asked for.
struct AskedLog {
    since: Instant,
    /// Refused: records are lost until it is asked again.
    refused: bool,
    text: Vec<u8>,
}

impl<Ask: FnMut(&str) -> io::Result<()>> Files<Ask> {
    pub(super) fn new(ask: Ask) -> Self {
        Self {
            open: HashMap::new(),
            asked: HashMap::new(),
            waiting_bytes: 0,
            files_max: 0,
            turn: 0,
            ask,
        }
    }

    /// Takes over the logs of a generation. Those of the last one stay until they are the oldest.
    pub(super) fn use_logs(&mut self, logs: Vec<Log>, files_max: usize) {
        self.files_max = files_max.max(1);
        self.forget_refusals();
        for file in self.open.values_mut() {
            file.given = false;
        }
        for log in logs {
            self.put(log.path, OpenFile::new(log.file, true));
        }
    }

    /// Takes fresh descriptors; others are asked for again when they are needed.
    pub(super) fn reopen(&mut self, logs: Vec<Log>) {
        self.open.retain(|target, _| *target == LogTarget::Stdout);
        self.forget_refusals();
        for log in logs {
            self.put(log.path, OpenFile::new(log.file, true));
        }
    }

    /// Writes records, or keeps them until their log is open.
    pub(super) fn write(&mut self, target: &LogTarget, text: &[u8]) -> u64 {
        self.turn += 1;
        if *target == LogTarget::Stdout && !self.open.contains_key(target) {
            match io::stdout().as_fd().try_clone_to_owned() {
                Ok(stdout) => drop(
                    self.open
                        .insert(LogTarget::Stdout, OpenFile::new(stdout, true)),
                ),
                Err(_) => return lines(text),
            }
        }
        match (self.open.get_mut(target), target) {
            (Some(file), _) => {
                file.used = self.turn;
                file.write(target, text)
            }
            (None, LogTarget::File(path)) => self.keep(path, text),
            (None, _) => lines(text),
        }
    }

    /// The supervisor's answer.
    pub(super) fn opened(&mut self, path: String, result: Result<OwnedFd, String>) -> u64 {
        let waiting = self.asked.remove(&path);
        let text = waiting.map(|asked| asked.text).unwrap_or_default();
        self.waiting_bytes -= text.len();
        match result {
            Ok(file) => {
                self.make_room();
                let target = self.put(path, OpenFile::new(file, false));
                self.write(&target, &text)
            }
            Err(error) => {
                tracing::error!(path, error, "access log not opened");
                self.asked.insert(path, AskedLog::refused());
                lines(&text)
            }
        }
    }

    /// Whether records wait for a log to be opened.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting_bytes > 0
    }

    /// Forgets what was asked for too long ago.
    pub(super) fn give_up(&mut self, now: Instant) -> u64 {
        if self.asked.is_empty() {
            return 0;
        }
        self.forget(|asked| now.saturating_duration_since(asked.since) >= ANSWER_MAX)
    }

    /// Forgets all that was asked for: nobody will answer any more.
    pub(super) fn give_up_all(&mut self) -> u64 {
        self.forget(|_| true)
    }

    fn forget(&mut self, is_over: impl Fn(&AskedLog) -> bool) -> u64 {
        let (mut lost, mut bytes) = (0, 0);
        self.asked.retain(|_, asked| {
            let stays = !is_over(asked);
            if !stays {
                lost += lines(&asked.text);
                bytes += asked.text.len();
            }
            stays
        });
        self.waiting_bytes -= bytes;
        lost
    }

    /// Whoever tells us of logs may have put right what was refused; none of its text waits here.
    fn forget_refusals(&mut self) {
        self.asked.retain(|_, asked| !asked.refused);
    }

    fn keep(&mut self, path: &str, text: &[u8]) -> u64 {
        if !self.asked.contains_key(path) {
            let asked = match (self.ask)(path) {
                Ok(()) => AskedLog::now(),
                Err(error) => {
                    let error = config::reason(&error);
                    tracing::error!(path, error, "access log not asked for");
                    AskedLog::refused()
                }
            };
            self.asked.insert(path.to_owned(), asked);
        }
        match self.asked.get_mut(path) {
            Some(asked)
                if !asked.refused && self.waiting_bytes + text.len() <= WAITING_BYTES_MAX =>
            {
                self.waiting_bytes += text.len();
                asked.text.extend_from_slice(text);
                0
            }
            _ => lines(text),
        }
    }

    fn put(&mut self, path: String, mut file: OpenFile) -> LogTarget {
        file.used = self.turn;
        let target = LogTarget::File(path);
        self.open.insert(target.clone(), file);
        target
    }

    /// Closes the descriptor used longest ago when there are as many as there may be.
    fn make_room(&mut self) {
        let asked_for = || self.open.iter().filter(|(_, file)| !file.given);
        if asked_for().count() < self.files_max {
            return;
        }
        let oldest = asked_for().min_by_key(|(_, file)| file.used);
        if let Some(target) = oldest.map(|(target, _)| target.clone()) {
            self.open.remove(&target);
        }
    }
}

impl AskedLog {
    fn now() -> Self {
        Self {
            since: Instant::now(),
            refused: false,
            text: Vec::new(),
        }
    }

    fn refused() -> Self {
        Self {
            refused: true,
            ..Self::now()
        }
    }
}

struct OpenFile {
    file: OwnedFd,
    /// Given with the configuration: never closed to make room.
    given: bool,
    used: u64,
    is_pipe: bool,
    stalled: bool,
    /// The last write broke off inside a line.
    torn: bool,
    failing: bool,
}

impl OpenFile {
    fn new(file: OwnedFd, given: bool) -> Self {
        let facts = os::file::facts(file.as_fd());
        Self {
            is_pipe: !facts.is_ok_and(|facts| facts.kind == FileKind::Regular),
            file,
            given,
            used: 0,
            stalled: false,
            torn: false,
            failing: false,
        }
    }

    /// Writes lines; says how many were lost.
    fn write(&mut self, target: &LogTarget, text: &[u8]) -> u64 {
        if std::mem::take(&mut self.torn) && !matches!(self.write_some(b"\n"), Ok(1)) {
            self.torn = true;
            return lines(text);
        }
        let mut rest = text;
        while !rest.is_empty() {
            match self.write_some(rest) {
                Ok(count @ 1..) => rest = rest.get(count..).unwrap_or_default(),
                Ok(_) => return self.fail(target, text, rest, &io::ErrorKind::WriteZero.into()),
                Err(error) => return self.fail(target, text, rest, &error),
            }
        }
        self.failing = false;
        0
    }

    fn write_some(&mut self, text: &[u8]) -> io::Result<usize> {
        if !self.is_pipe {
            return os::net::write(self.file.as_fd(), text);
        }
        let patience = if self.stalled {
            Duration::ZERO
        } else {
            STALL_MAX
        };
        self.stalled = !os::net::wait_writable(self.file.as_fd(), patience)?;
        if self.stalled {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        os::net::write(self.file.as_fd(), one_piece(text))
    }

    fn fail(&mut self, target: &LogTarget, text: &[u8], rest: &[u8], error: &io::Error) -> u64 {
        let written = text.len() - rest.len();
        self.torn = written > 0 && text.get(written - 1) != Some(&b'\n');
        // Each failing log is named once; how much is lost is said as it goes on.
        if !std::mem::replace(&mut self.failing, true) {
            let error = config::reason(error);
            tracing::error!(?target, error, "access log not written");
        }
        lines(rest)
    }
}

/// As many whole lines as a pipe takes in one piece; a longer line is cut.
fn one_piece(text: &[u8]) -> &[u8] {
    let Some(piece) = text.get(..PIPE_BYTES) else {
        return text;
    };
    match piece.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => piece.get(..=at).unwrap_or(piece),
        None => piece,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    type Asks = Rc<RefCell<Vec<String>>>;

    fn files(files_max: usize) -> (Files<impl FnMut(&str) -> io::Result<()>>, Asks) {
        let asks = Asks::default();
        let heard = Rc::clone(&asks);
        let mut files = Files::new(move |path: &str| {
            heard.borrow_mut().push(path.to_owned());
            Ok(())
        });
        files.use_logs(Vec::new(), files_max);
        (files, asks)
    }

    fn log(path: &str) -> LogTarget {
        LogTarget::File(path.to_owned())
    }

    fn memory() -> (OwnedFd, OwnedFd) {
        let file = os::file::temporary(&std::env::temp_dir()).unwrap();
        (file.try_clone().unwrap(), file)
    }

    fn content(file: &OwnedFd) -> String {
        String::from_utf8(os::file::read_whole(file.as_fd(), 1 << 20).unwrap()).unwrap()
    }

    fn given(path: &str, file: OwnedFd) -> Vec<Log> {
        let path = path.to_owned();
        vec![Log { path, file }]
    }

    #[test]
    fn records_wait_for_a_log_that_is_asked_for_once() {
        let (mut files, asks) = files(4);
        assert_eq!(files.write(&log("/a"), b"1\n"), 0);
        assert_eq!(files.write(&log("/a"), b"2\n"), 0);
        let (seen, file) = memory();
        assert_eq!(files.opened("/a".into(), Ok(file)), 0);
        assert_eq!(files.write(&log("/a"), b"3\n"), 0);
        assert_eq!(
            (content(&seen).as_str(), asks.borrow().len()),
            ("1\n2\n3\n", 1)
        );
        assert_eq!(files.waiting_bytes, 0);
    }

    #[test]
    fn records_for_a_log_that_cannot_be_opened_are_lost_and_counted() {
        let (mut files, asks) = files(4);
        files.write(&log("/a"), b"1\n2\n");
        assert_eq!(files.opened("/a".into(), Err("no".into())), 2);
        assert_eq!(files.write(&log("/a"), b"3\n"), 1);
        assert_eq!(asks.borrow().len(), 1);
        // After a while it is asked for again.
        files.give_up(Instant::now() + ANSWER_MAX);
        assert_eq!(files.write(&log("/a"), b"4\n"), 0);
        assert_eq!(asks.borrow().len(), 2);
        assert_eq!(files.give_up(Instant::now() + ANSWER_MAX), 1);
        assert_eq!(files.waiting_bytes, 0);
    }

    #[test]
    fn a_refused_log_is_asked_for_again_after_a_rotation_and_a_reload() {
        let (mut files, asks) = files(4);
        for turn in 1..=3 {
            assert_eq!(files.write(&log("/a"), b"1\n"), 0);
            assert_eq!(asks.borrow().len(), turn);
            assert_eq!(files.opened("/a".into(), Err("no".into())), 1);
            assert_eq!(files.write(&log("/a"), b"2\n"), 1);
            if turn == 1 {
                files.reopen(Vec::new());
            } else {
                files.use_logs(Vec::new(), 4);
            }
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let (mut files, _) = files(4);
        let text = [&[b'x'; 1023][..], b"\n"].concat();
        let lost: u64 = (0..5_000).map(|_| files.write(&log("/a"), &text)).sum();
        assert_eq!(lost, 5_000 - 4_096);
    }

    #[test]
    fn the_log_used_longest_ago_makes_room() {
        let (mut files, asks) = files(2);
        files.use_logs(given("/fixed", memory().1), 2);
        for path in ["/a", "/b"] {
            files.opened(path.into(), Ok(memory().1));
        }
        files.write(&log("/a"), b"1\n");
        files.opened("/c".into(), Ok(memory().1));
        for path in ["/fixed", "/a", "/c", "/b"] {
            files.write(&log(path), b"2\n");
        }
        assert_eq!(*asks.borrow(), ["/b"]);
    }

    #[test]
    fn after_a_rotation_records_go_to_the_new_files() {
        let (mut files, asks) = files(2);
        let (old, file) = memory();
        files.use_logs(given("/fixed", file), 2);
        files.opened("/a".into(), Ok(memory().1));
        files.write(&log("/fixed"), b"1\n");
        let (new, file) = memory();
        files.reopen(given("/fixed", file));
        files.write(&log("/fixed"), b"2\n");
        files.write(&log("/a"), b"3\n");
        assert_eq!(
            (content(&old).as_str(), content(&new).as_str()),
            ("1\n", "2\n")
        );
        assert_eq!(*asks.borrow(), ["/a"]);
    }

    #[test]
    fn a_full_disk_loses_records_and_counts_them() {
        let (mut files, _) = files(2);
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        files.use_logs(given("/full", full.into()), 2);
        assert_eq!(files.write(&log("/full"), b"1\n2\n3\n"), 3);
        assert_eq!(files.write(&log("/full"), b"4\n"), 1);
    }

    #[test]
    fn a_stuck_reader_is_waited_for_once_and_loses_no_half_line() {
        let (mut files, _) = files(2);
        let (reader, writer) = io::pipe().unwrap();
        files.use_logs(given("/pipe", writer.into()), 2);
        let text = format!("{}\n", "x".repeat(99)).repeat(1_000);
        let started = Instant::now();
        let lost = files.write(&log("/pipe"), text.as_bytes());
        assert!((300..900).contains(&lost), "{lost}");
        assert!(started.elapsed() >= STALL_MAX);
        for _ in 0..100 {
            assert_eq!(files.write(&log("/pipe"), b"y\n"), 1);
        }
        assert!(started.elapsed() < STALL_MAX * 2);
        // The reader comes back: what it gets is whole lines.
        let mut bytes = vec![0; 1 << 20];
        let count = os::net::read(reader.as_fd(), &mut bytes).unwrap();
        assert_eq!(files.write(&log("/pipe"), b"z\n"), 0);
        let more = os::net::read(reader.as_fd(), &mut bytes[count..]).unwrap();
        let seen = String::from_utf8(bytes[..count + more].to_vec()).unwrap();
        assert_eq!(seen.lines().count() as u64, 1_000 - lost + 1);
        assert!(seen.lines().all(|line| line.len() == 99 || line == "z"));
    }

    #[test]
    fn a_line_longer_than_a_pipe_takes_is_ended_before_the_next() {
        let (mut files, _) = files(2);
        let (reader, writer) = io::pipe().unwrap();
        files.use_logs(given("/pipe", writer.into()), 2);
        let long = format!("{}\n", "x".repeat(100_000));
        assert_eq!(files.write(&log("/pipe"), long.as_bytes()), 1);
        let mut bytes = vec![0; 1 << 20];
        let count = os::net::read(reader.as_fd(), &mut bytes).unwrap();
        files.write(&log("/pipe"), b"z\n");
        let more = os::net::read(reader.as_fd(), &mut bytes[count..]).unwrap();
        assert!(bytes[..count + more].ends_with(b"x\nz\n"));
    }
}
