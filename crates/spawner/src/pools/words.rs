//! What a pool says on its standard output and error.
//!
//! The idea: what it says is read, so that it seldom waits for us, and little of it is kept: a line
//! has a length, a second has a number of lines for the error log, and of all the last lines are
//! remembered, which say why it ended. One that never stops costs us little: so much is read in a
//! second, and then it waits. What requests of PHP have cost is said by a line each, which weighs
//! little: after one of those nothing is read for a moment, since others follow.
//!
//! An error of PHP in a request is told by that request as well. So it is none of what a child has said,
//! in however many lines it comes: its last one ends with where it happened.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::costs::Costs;

/// Bytes of a line; the rest of a longer one is dropped.
pub(super) const LINE_BYTES_MAX: usize = 1_280;
/// Bytes read before others have their turn.
const BYTES_A_TURN: usize = 64 * 1_024;
/// Bytes after which no more is read in a second.
const BYTES_A_SECOND: usize = 64 * 1_024;
/// What is said of requests counts as one of so many: it is as much as there are requests.
const COSTS_WEIGH: usize = 64;
/// Lines remembered.
const LAST_MAX: usize = 20;
/// Bytes of each of them that are told.
const LAST_BYTES_MAX: usize = 300;
/// Lines for the error log in a second.
const LINES_A_SECOND: u32 = 20;
const SECOND: Duration = Duration::from_secs(1);
/// How a child's words begin with which it tells what PHP logs, and an error among that.
const MESSAGE: &str = "NOTICE: PHP message: ";
const ERROR: &str = "NOTICE: PHP message: PHP ";
/// What php-fpm says when all its children are at work.
const CHILDREN_AT_WORK: &str = "max_children setting (";
/// Lines of an error, and children amid one.
const ERROR_LINES_MAX: u32 = 200;
const ERRORS_MAX: usize = 1_024;
/// How long lines gather once there was one of a request.
const REST: Duration = Duration::from_millis(50);

/// How much a line is for the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// Of no interest, or told elsewhere.
    Light,
    /// What a program has said.
    Usual,
    /// Trouble.
    Grave,
}

/// Lines for the error log: so many a second.
#[derive(Debug, Default)]
pub(super) struct Ration {
    second: Option<Instant>,
    said: u32,
    /// Lines it was spared.
    spared: u64,
}

/// The words of one run.
#[derive(Debug)]
pub(super) struct Words {
    /// `None` once everybody who could say something has ended.
    fd: Option<OwnedFd>,
    /// What requests have cost, until somebody is told.
    pub(super) costs: Costs,
    /// Until when nothing is read.
    rests_until: Option<Instant>,
    line: Vec<u8>,
    /// Children amid an error of several lines, and how many of these may still come.
    errors: BTreeMap<u32, u32>,
    last: VecDeque<String>,
    /// Bytes read since then, which is less than a second ago.
    read: (Instant, usize),
    ration: Ration,
}

impl Words {
    pub(super) fn new(fd: Option<OwnedFd>, now: Instant) -> Words {
        Words {
            fd,
            costs: Costs::default(),
            rests_until: None,
            line: Vec::new(),
            errors: BTreeMap::new(),
            last: VecDeque::new(),
            read: (now, 0),
            ration: Ration::default(),
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// How long nothing is to be read: of one that says much, or whose lines gather.
    pub(super) fn rest(&self, now: Instant) -> Option<Duration> {
        let (since, bytes) = self.read;
        let left = SECOND.saturating_sub(now.saturating_duration_since(since));
        let of_second = (bytes >= BYTES_A_SECOND).then_some(left);
        let gather = self.rests_until;
        let gather = gather.map(|until| until.saturating_duration_since(now));
        of_second.max(gather).filter(|left| !left.is_zero())
    }

    /// Reads what is there, up to a turn's; the lines that are whole, as they were meant. Of PHP, some
    /// tell what requests have cost, and are none of them.
    pub(super) fn read(&mut self, is_php: bool, now: Instant) -> Vec<(Weight, String)> {
        if now.saturating_duration_since(self.read.0) >= SECOND {
            self.read = (now, 0);
        }
        let mut buffer = [0; BYTES_A_TURN];
        let Some(fd) = &self.fd else {
            return Vec::new();
        };
        match os::net::read(fd.as_fd(), &mut buffer) {
            Ok(0) => self.fd = None,
            Ok(bytes) => {
                let lines = self.take(buffer.get(..bytes).unwrap_or_default(), is_php);
                let has_costs = !self.costs.is_empty();
                let said: usize = lines.iter().map(|(_, line)| line.len()).sum();
                self.read.1 += match has_costs {
                    true => said + bytes / COSTS_WEIGH,
                    false => bytes,
                };
                self.rests_until = has_costs.then(|| now + REST);
                return lines;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Vec::new(),
            Err(_) => self.fd = None,
        }
        self.take(b"\n", is_php)
    }

    fn take(&mut self, bytes: &[u8], is_php: bool) -> Vec<(Weight, String)> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = part.ends_with(b"\n");
            let part = part.strip_suffix(b"\n").unwrap_or(part);
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
            self.line
                .extend_from_slice(part.get(..room).unwrap_or(part));
            if is_whole {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                let is_cost = is_php && self.costs.take(&line);
                if is_cost {
                    continue;
                }
                let (weight, line) = match is_php {
                    true => self.of_php(&line),
                    false => (weight(&line), line.as_str()),
                };
                if !line.is_empty() {
                    self.remember(line);
                    lines.push((weight, line.to_owned()));
                }
            }
        }
        lines
    }

    /// A line of php-fpm or of who writes to its log: how much it is, and what it says.
    fn of_php<'a>(&mut self, line: &'a str) -> (Weight, &'a str) {
        let line = without_time(line);
        let Some((child, text)) = said_by_child(line) else {
            return (weight(line), line);
        };
        let left = self.errors.remove(&child);
        let left = match text.starts_with(MESSAGE) {
            true => text.starts_with(ERROR).then_some(ERROR_LINES_MAX),
            false => left,
        };
        let goes_on = left.and_then(|left| left.checked_sub(1));
        if let Some(left) = goes_on.filter(|_| !tells_where(text))
            && self.errors.len() < ERRORS_MAX
        {
            self.errors.insert(child, left);
        }
        match left {
            Some(_) => (Weight::Light, text),
            None => (weight(text), text),
        }
    }

    fn remember(&mut self, line: &str) {
        if self.last.len() >= LAST_MAX {
            self.last.pop_front();
        }
        let mut line = line.to_owned();
        ipc::codec::cut(&mut line, LAST_BYTES_MAX);
        self.last.push_back(line);
    }

    /// The last lines, in one.
    pub(super) fn last(&self) -> String {
        let lines: Vec<_> = self.last.iter().map(String::as_str).collect();
        lines.join(" | ")
    }

    /// Whether the error log is to have another line now; before that, how many it was spared.
    pub(super) fn may_tell(&mut self, now: Instant) -> (bool, Option<u64>) {
        self.ration.may_tell(now)
    }
}

impl Ration {
    /// Whether there may be another line now; before that, how many there might not.
    pub(super) fn may_tell(&mut self, now: Instant) -> (bool, Option<u64>) {
        let mut spared = None;
        let second = *self.second.get_or_insert(now);
        if now.saturating_duration_since(second) >= SECOND {
            (self.second, self.said) = (Some(now), 0);
            spared = Some(std::mem::take(&mut self.spared)).filter(|spared| *spared > 0);
        }
        self.said = self.said.saturating_add(1);
        let may = self.said <= LINES_A_SECOND;
        if !may {
            self.spared += 1;
        }
        (may, spared)
    }
}

/// Whether a line of `nagaya sendmail` tells of a message that everybody it was for was sent; `None`
/// for any other line. Who writes one without sending anything is counted for it.
pub(super) fn mail(line: &str) -> Option<bool> {
    let rest = line.strip_prefix("nagaya sendmail: mail")?;
    Some(rest.contains(": accepted: "))
}

/// How much a line is by what it begins with, as php-fpm writes it. That all its processes are at
/// work is what they are for: how many requests wait for one is told who asks (`nagaya pools`).
fn weight(line: &str) -> Weight {
    if line.contains(CHILDREN_AT_WORK) && line.starts_with("WARNING: [pool ") {
        return Weight::Light;
    }
    match line.split_once(": ").map(|(level, _)| level) {
        Some("NOTICE" | "DEBUG") => Weight::Light,
        Some("WARNING" | "ERROR" | "ALERT") => Weight::Grave,
        _ => Weight::Usual,
    }
}

/// Who has said what, out of the line in which its master tells that.
fn said_by_child(line: &str) -> Option<(u32, &str)> {
    let (_, rest) = line
        .strip_prefix("WARNING: [pool ")?
        .split_once("] child ")?;
    let (child, rest) = rest.split_once(" said into std")?;
    let (_, text) = rest.split_once(": ")?;
    let text = text.strip_suffix(", pipe is closed").unwrap_or(text);
    let text = text.strip_prefix('"').unwrap_or(text);
    Some((child.parse().ok()?, text.strip_suffix('"').unwrap_or(text)))
}

/// Whether a line ends as the last one of an error does.
fn tells_where(line: &str) -> bool {
    let number = line.rsplit_once(" on line ").map(|(_, number)| number);
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// A line of php-fpm without when it was said, which the error log knows.
fn without_time(line: &str) -> &str {
    let rest = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "));
    match rest {
        Some((time, rest)) if time.len() < 40 && time.contains(':') => rest,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn texts(lines: Vec<(Weight, String)>) -> Vec<String> {
        lines.into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn lines_are_whole_bounded_and_the_last_are_remembered() {
        let (ours, theirs) = os::pipe::from_program().unwrap();
        let now = Instant::now();
        let mut words = Words::new(Some(ours), now);
        let mut theirs = std::fs::File::from(theirs);
        theirs
            .write_all(b"[26-Nov-2026 23:45:01] NOTICE: one\n\ntw")
            .unwrap();
        assert_eq!(texts(words.read(true, now)), ["NOTICE: one"]);
        theirs.write_all(b"o\xff\r\n").unwrap();
        assert_eq!(texts(words.read(true, now)), ["two\u{fffd}"]);
        assert_eq!(words.last(), "NOTICE: one | two\u{fffd}");
        theirs.write_all(&[b'x'; 5_000]).unwrap();
        theirs.write_all(b"\nlast words").unwrap();
        let long = texts(words.read(true, now));
        assert_eq!(
            long.iter().map(String::len).collect::<Vec<_>>(),
            [LINE_BYTES_MAX]
        );
        assert!(words.read(true, now).is_empty());
        drop(theirs);
        assert_eq!(texts(words.read(true, now)), ["last words"]);
        assert!(words.fd().is_none() && words.read(true, now).is_empty());
        for number in 0..100 {
            words.take(format!("{number}\n").as_bytes(), true);
        }
        assert!(words.last().starts_with("80 | ") && words.last().ends_with(" | 99"));
    }

    #[test]
    fn errors_of_php_are_told_by_requests_and_what_else_is_said_here() {
        use Weight::{Grave, Light, Usual};
        let mut words = Words::new(None, Instant::now());
        let said = |child: u32, text: &str| {
            format!(
                "[26-Nov-2026 23:45:01] WARNING: [pool a-1] child {child} said into stderr: \"{text}\""
            )
        };
        let lines = [
            ("cannot open shared object".to_owned(), Usual),
            (
                "[26-Nov-2026 23:45:01] NOTICE: fpm is running, pid 3".to_owned(),
                Light,
            ),
            (
                "[26-Nov-2026 23:45:01] WARNING: [pool a-1] child 7 exited on signal 9".to_owned(),
                Grave,
            ),
            (
                "[26-Nov-2026 23:45:01] WARNING: [pool a-1] server reached pm.max_children setting (2), consider raising it".to_owned(),
                Light,
            ),
            (
                said(
                    7,
                    "NOTICE: PHP message: PHP Fatal error:  Uncaught x in /a.php:3",
                ),
                Light,
            ),
            (said(7, "Stack trace:"), Light),
            (said(8, "a \"word\" of another"), Usual),
            (said(7, "WARNING: of a message"), Light),
            (said(7, "  thrown in /a.php on line 3"), Light),
            (said(7, "its own words"), Usual),
            (
                said(
                    7,
                    "NOTICE: PHP message: PHP Warning:  x in /a.php on line 3",
                ),
                Light,
            ),
            (said(7, "its own words"), Usual),
            (said(7, "NOTICE: PHP message: PHP Warning:  cut"), Light),
            (said(7, "NOTICE: PHP message: a program's"), Light),
            (said(7, "its own words"), Usual),
        ];
        for (line, weight) in lines {
            let told = words.take(format!("{line}\n").as_bytes(), true);
            let text = line
                .split_once("stderr: \"")
                .map(|(_, text)| text.trim_end_matches('"'));
            let [(told, said)] = &told[..] else {
                panic!("{line}: {told:?}");
            };
            assert_eq!(*told, weight, "{line}");
            assert!(text.is_none_or(|text| said == text), "{line}: {said}");
        }
        let closed = said(7, "").replace("\"\"", "\"\", pipe is closed");
        assert_eq!(words.take(format!("{closed}\n").as_bytes(), true), []);
        // One that does not end is over some time.
        words.take(
            format!("{}\n", said(7, "NOTICE: PHP message: PHP x")).as_bytes(),
            true,
        );
        let line = format!("{}\n", said(7, "x"));
        let light = (0..1_000).take_while(|_| words.take(line.as_bytes(), true)[0].0 == Light);
        assert_eq!(light.count(), ERROR_LINES_MAX as usize);
        // What applications say stands for itself.
        let told = words.take(b"NOTICE: one\ntwo\n", false);
        assert_eq!(
            told,
            [(Light, "NOTICE: one".to_owned()), (Usual, "two".to_owned())]
        );
    }

    #[test]
    fn lines_of_mail_tell_whether_it_was_sent() {
        for (line, expected) in [
            (
                "nagaya sendmail: mail of a in /srv from <b@c> to <d@e>, 9 bytes: accepted: 250 ok",
                Some(true),
            ),
            (
                "nagaya sendmail: mail: not sent: it is for nobody",
                Some(false),
            ),
            (
                "nagaya sendmail: mail of a: accepted for 1 recipients: 250; not for 1, the first x: 451",
                Some(false),
            ),
            ("NOTICE: nagaya sendmail: mail: accepted: 250", None),
            ("", None),
        ] {
            assert_eq!(mail(line), expected, "{line}");
        }
    }

    #[test]
    fn who_never_stops_is_read_so_much_a_second() {
        let (ours, theirs) = os::pipe::from_program().unwrap();
        let mut now = Instant::now();
        let mut words = Words::new(Some(ours), now);
        let mut theirs = std::fs::File::from(theirs);
        for _ in 0..3 {
            for _ in 0..BYTES_A_SECOND / BYTES_A_TURN {
                assert_eq!(words.rest(now), None);
                theirs.write_all(&[b'\n'; BYTES_A_TURN]).unwrap();
                words.read(true, now);
            }
            let half = SECOND / 2;
            assert_eq!(words.rest(now + half), Some(half));
            now += SECOND;
        }
    }

    #[test]
    fn what_requests_have_cost_is_no_word_and_gathers_for_a_moment() {
        let (ours, theirs) = os::pipe::from_program().unwrap();
        let now = Instant::now();
        let mut words = Words::new(Some(ours), now);
        let mut theirs = std::fs::File::from(theirs);
        theirs.write_all(b"a word\n").unwrap();
        assert_eq!(texts(words.read(true, now)), ["a word"]);
        assert_eq!(words.rest(now), None);
        theirs
            .write_all(b"nagaya-cost 1.00 100 /srv/a.php\nanother\n")
            .unwrap();
        assert_eq!(texts(words.read(true, now)), ["another"]);
        assert_eq!(words.last(), "a word | another");
        assert_eq!(words.rest(now), Some(REST));
        assert_eq!(words.rest(now + REST), None);
    }

    #[test]
    fn lines_of_cost_are_read_a_turn_at_a_time_and_of_php_alone() {
        let (ours, theirs) = os::pipe::from_program().unwrap();
        let mut now = Instant::now();
        let mut words = Words::new(Some(ours), now);
        let mut theirs = std::fs::File::from(theirs);
        let line = "nagaya-cost 1.00 100 /srv/a.php\n";
        let much = line.repeat(BYTES_A_TURN / line.len());
        let turns = SECOND.as_millis() / REST.as_millis();
        for _ in 0..turns {
            assert_eq!(words.rest(now), None);
            theirs.write_all(much.as_bytes()).unwrap();
            assert!(words.read(true, now).is_empty());
            assert_eq!(words.rest(now), Some(REST));
            now += REST;
        }
        words.costs = Costs::default();
        theirs.write_all(much.as_bytes()).unwrap();
        let said = texts(words.read(false, now));
        assert_eq!(said.first().map(String::as_str), Some(line.trim_end()));
        assert!(words.costs.is_empty());
        theirs.write_all(line.as_bytes()).unwrap();
        words.read(false, now);
        assert!(words.rest(now).is_some());
    }

    #[test]
    fn the_error_log_is_spared_and_told_so() {
        let now = Instant::now();
        let mut words = Words::new(None, now);
        let told = (0..100).filter(|_| words.may_tell(now).0).count();
        assert_eq!(told, LINES_A_SECOND as usize);
        assert_eq!(words.may_tell(now + SECOND), (true, Some(80)));
        assert_eq!(words.may_tell(now + SECOND), (true, None));
    }
}
