//! The request that a pool's php-fpm is longest at, as it says itself.
//!
//! The idea: each process of php-fpm answers for all of them, before it looks for any page, at a
//! path that no request of a client has: one with `..` in it. All pools are asked at once and have
//! little time; one whose processes are all at work does not answer. What is answered is a
//! tenant's process's word: it has a length, and is read for what is looked for.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use fastcgi::environment::Environment;
use fastcgi::record::{self, Connection, Decoder, Event};
use ipc::pools::FPM_STATUS_PATH;

/// How long all answers may take.
const PATIENCE: Duration = Duration::from_millis(400);
/// Bytes of an answer, whatever they are for: 200 or so a process.
const ANSWER_BYTES_MAX: usize = 512 * 1_024;
/// Bytes of what is asked.
const QUESTION_BYTES_MAX: usize = 1_024;
const READ_BYTES: usize = 16 * 1_024;
/// Characters of a script's name that are told.
pub(super) const SCRIPT_CHARS_MAX: usize = 256;
/// Stands between processes.
const RULE: &str = "************************";

/// A request under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Longest {
    pub(super) ms: u64,
    pub(super) script: String,
}

/// A php-fpm that was asked.
struct Respondent {
    key: usize,
    socket: OwnedFd,
    decoder: Decoder,
    text: Vec<u8>,
    bytes_read: usize,
}

/// The longest request of each of these that answers and has one.
pub(super) fn longest<'a>(
    sockets: impl Iterator<Item = (usize, &'a Path)>,
) -> BTreeMap<usize, Longest> {
    let until = Instant::now() + PATIENCE;
    let mut asked: Vec<Respondent> = sockets.filter_map(|(key, path)| ask(key, path)).collect();
    let mut found = BTreeMap::new();
    while !asked.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        // Who writes without end is ready even now.
        if left.is_zero() {
            break;
        }
        let fds: Vec<BorrowedFd<'_>> = asked.iter().map(|it| it.socket.as_fd()).collect();
        let ready = match os::net::wait_readable(&fds, Some(left)) {
            Ok(ready) if ready.contains(&true) => ready,
            _ => break,
        };
        let mut open = Vec::new();
        for (mut one, is_ready) in asked.into_iter().zip(ready) {
            if !is_ready || one.read() {
                open.push(one);
            } else if let Some(longest) = parse(&String::from_utf8_lossy(&one.text)) {
                found.insert(one.key, longest);
            }
        }
        asked = open;
    }
    found
}

fn ask(key: usize, path: &Path) -> Option<Respondent> {
    let question = question()?;
    let socket = os::net::connect_unix(path).ok()?;
    let written = os::net::write(socket.as_fd(), &question).ok()?;
    (written == question.len()).then(|| Respondent::new(key, socket))
}

fn question() -> Option<Vec<u8>> {
    let mut variables = Environment::new(QUESTION_BYTES_MAX);
    for (name, value) in [
        ("REQUEST_METHOD", "GET"),
        ("QUERY_STRING", "full"),
        ("SCRIPT_NAME", FPM_STATUS_PATH),
        ("SCRIPT_FILENAME", FPM_STATUS_PATH),
    ] {
        variables.set(name.as_bytes(), value.as_bytes()).ok()?;
    }
    let mut out = Vec::new();
    record::begin(Connection::Close, &mut out);
    record::params(variables.iter(), &mut out).ok()?;
    record::stdin_end(&mut out);
    Some(out)
}

impl Respondent {
    fn new(key: usize, socket: OwnedFd) -> Self {
        Self {
            key,
            socket,
            decoder: Decoder::default(),
            text: Vec::new(),
            bytes_read: 0,
        }
    }

    /// Reads what is there; whether there is more to come.
    fn read(&mut self) -> bool {
        let mut buffer = [0; READ_BYTES];
        let count = match os::net::read(self.socket.as_fd(), &mut buffer) {
            Ok(count @ 1..) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
            Ok(_) | Err(_) => return false,
        };
        self.bytes_read = self.bytes_read.saturating_add(count);
        let mut rest = buffer.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            let Ok(decoded) = self.decoder.decode(rest) else {
                return false;
            };
            match decoded.event {
                Event::Stdout(data) => self.text.extend_from_slice(data),
                Event::End(_) => return false,
                Event::Stderr(_) | Event::More => {}
            }
            rest = rest.get(decoded.consumed..).unwrap_or_default();
        }
        self.bytes_read <= ANSWER_BYTES_MAX
    }
}

/// The longest request in a full status that is not the one for the status.
fn parse(text: &str) -> Option<Longest> {
    let processes = text.split(RULE).skip(1);
    let running = processes.filter_map(|process| {
        let field = |name: &str| {
            let mut lines = process.lines();
            lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
        };
        let is_ours = field("request URI")?.starts_with(FPM_STATUS_PATH);
        let us: u64 = field("request duration")?.parse().ok()?;
        (field("state")? == "Running" && !is_ours).then(|| Longest {
            ms: us / 1_000,
            script: field("script")
                .unwrap_or_default()
                .chars()
                .take(SCRIPT_CHARS_MAX)
                .collect(),
        })
    });
    running.max_by_key(|it| it.ms)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;
    use testkit::TempDir;

    use super::*;

    const STATUS: &str = "Expires: Thu\r\nContent-type: text/plain\r\n\r\n\
        pool:                 a\nactive processes:     2\n\n\
        ************************\npid:                  7\nstate:                Running\n\
        request duration:     2500000\nrequest method:       GET\nrequest URI:          /a.php?x\n\
        script:               /srv/a/a.php\n\n\
        ************************\npid:                  8\nstate:                Idle\n\
        request duration:     9900000\nrequest URI:          /b.php\nscript:               /srv/a/b.php\n\n\
        ************************\npid:                  9\nstate:                Running\n\
        request duration:     3900000\nrequest URI:          /../status?full\nscript:               -\n";

    /// Records of a reply.
    fn records(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(100) {
            let [high, low] = u16::try_from(piece.len()).expect("short").to_be_bytes();
            out.extend_from_slice(&[1, 6, 0, 1, high, low, 0, 0]);
            out.extend_from_slice(piece);
        }
        out.extend_from_slice(&[1, 6, 0, 1, 0, 0, 0, 0]);
        out.extend_from_slice(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        out
    }

    #[test]
    fn the_longest_request_is_one_that_runs_and_is_not_ours() {
        let longest = parse(STATUS).expect("one that runs");
        assert_eq!(
            (longest.ms, longest.script.as_str()),
            (2_500, "/srv/a/a.php")
        );
        assert_eq!(parse("pool: a\n"), None);
        assert_eq!(parse(&STATUS.replace("Running", "Ending")), None);
    }

    #[test]
    fn those_that_answer_in_time_are_heard_whatever_others_do() {
        let place = TempDir::new();
        let paths = ["one", "silent", "wrong", "none"].map(|name| place.path().join(name));
        let listen = |at: usize| UnixListener::bind(&paths[at]).expect("a socket");
        let (one, _silent, wrong) = (listen(0), listen(1), listen(2));
        let answer = |listener: UnixListener, bytes: Vec<u8>| {
            std::thread::spawn(move || {
                let (mut asked, _) = listener.accept().expect("a question");
                let mut question = [0; 16];
                asked.read_exact(&mut question).expect("its beginning");
                for piece in bytes.chunks(33) {
                    let _ = asked.write_all(piece);
                }
            })
        };
        let threads = [
            answer(one, records(STATUS)),
            answer(wrong, vec![b'x'; 2_000]),
        ];
        let found = longest(paths.iter().enumerate().map(|(at, path)| (at, &**path)));
        threads
            .into_iter()
            .for_each(|it| it.join().expect("an end"));
        let keys: Vec<_> = found.into_keys().collect();
        assert_eq!(keys, [0]);
    }

    #[test]
    fn one_that_writes_errors_without_end_is_left() {
        let place = TempDir::new();
        let path = place.path().join("flood");
        let listener = UnixListener::bind(&path).expect("a socket");
        let flood = std::thread::spawn(move || {
            let (mut asked, _) = listener.accept().expect("a question");
            let mut record = vec![1, 7, 0, 1, 0x40, 0, 0, 0];
            record.resize(8 + 0x4000, b'x');
            // Until nobody reads any more.
            while asked.write_all(&record).is_ok() {}
        });
        assert_eq!(longest([(0, &*path)].into_iter()), BTreeMap::new());
        flood.join().expect("an end");
    }

    #[test]
    fn an_answer_is_as_long_as_all_that_is_read_of_it() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut asked = Respondent::new(0, ours.into());
        let mut record = vec![1, 7, 0, 1, 0x1f, 0xf8, 0, 0];
        record.resize(8_192, b'x');
        for _ in 0..ANSWER_BYTES_MAX / record.len() {
            (&theirs).write_all(&record).expect("room");
            assert!(asked.read());
        }
        (&theirs).write_all(&record).expect("room");
        assert!(!asked.read() && asked.text.is_empty());
    }

    proptest! {
        #[test]
        fn whatever_is_answered_is_read_or_left(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
            let mut text = records(STATUS);
            let at = bytes.len() % text.len();
            text.splice(at..at, bytes);
            (&theirs).write_all(&text).expect("room");
            drop(theirs);
            let mut asked = Respondent::new(0, ours.into());
            while asked.read() {}
            let _ = parse(&String::from_utf8_lossy(&asked.text));
        }
    }
}
