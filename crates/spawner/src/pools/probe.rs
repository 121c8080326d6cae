//! Whether an application is ready.
//!
//! The idea: a connection is made as a request's would be. It is ready when it has taken that one
//! and all that waited, or where it is asked something, when it has answered that it is well; where
//! it takes over from another one at the same socket, when it was itself that answered, which the
//! kernel tells. One that binds a socket itself is looked for at the name it was told, and given the
//! name the gateway knows.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of an answer that are read: its status is at the beginning.
const ANSWER_BYTES: usize = 64;
/// An answer that says no, and one that does not come, are asked for again after so long.
const AGAIN: Duration = Duration::from_millis(250);
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// An answer from here on says that it is not well.
const UNWELL: u16 = 500;
/// One that takes over and is asked nothing is not looked at before: who it takes over from accepts.
const TAKES_OVER: Duration = Duration::from_secs(2);
/// One that takes over is asked again so soon when the other one has answered.
const OTHER: Duration = Duration::from_millis(50);

/// A look at an application.
#[derive(Debug)]
pub(super) struct Probe {
    /// Where it is connected to.
    socket: PathBuf,
    /// What it is asked; empty: nothing.
    question: Vec<u8>,
    /// Where it binds a socket itself, and who it is then.
    own: Option<(PathBuf, u32)>,
    /// Whether another one may answer.
    takes_over: bool,
    from: Instant,
    asked: Option<(OwnedFd, Instant)>,
    answer: Vec<u8>,
}

impl Probe {
    pub(super) fn new(
        socket: &Path,
        path: Option<&str>,
        own: Option<(PathBuf, u32)>,
        (takes_over, now): (bool, Instant),
    ) -> Probe {
        let question = path.map_or_else(Vec::new, |path| {
            format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n").into()
        });
        let rest = match takes_over && question.is_empty() {
            true => TAKES_OVER,
            false => Duration::ZERO,
        };
        Probe {
            socket: socket.to_owned(),
            question,
            own,
            takes_over,
            from: now + rest,
            asked: None,
            answer: Vec::new(),
        }
    }

    /// Looks; whether it is ready. `listener` is the gateway's socket; `is_its` tells its processes
    /// from others.
    ///
    /// # Errors
    /// When it never will be.
    pub(super) fn look(
        &mut self,
        listener: Option<BorrowedFd<'_>>,
        is_its: impl Fn(u32) -> bool,
        now: Instant,
    ) -> io::Result<bool> {
        if now < self.from {
            return Ok(false);
        }
        if let Some((own, user)) = &self.own {
            if !os::net::take_in(own, *user, &self.socket)? {
                return Ok(false);
            }
            self.own = None;
        }
        let Some((asked, since)) = &self.asked else {
            self.ask(now);
            return Ok(false);
        };
        if self.question.is_empty() {
            let waits = listener.is_some_and(|it| is_readable(it));
            return Ok(!waits);
        }
        let is_late = now.saturating_duration_since(*since) >= ANSWER_MAX;
        let mut buffer = [0; ANSWER_BYTES];
        match os::net::read_with_sender(asked.as_fd(), &mut buffer) {
            Ok((bytes, sender)) if bytes > 0 => {
                if self.takes_over && !sender.is_some_and(is_its) {
                    self.again(now, OTHER);
                    return Ok(false);
                }
                self.answer
                    .extend_from_slice(buffer.get(..bytes).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_late => {}
            _ => self.again(now, AGAIN),
        }
        Ok(match status(&self.answer) {
            None => {
                if self.answer.len() >= ANSWER_BYTES {
                    self.again(now, AGAIN);
                }
                false
            }
            Some(status) if status < UNWELL => true,
            Some(_) => {
                self.again(now, AGAIN);
                false
            }
        })
    }

    fn ask(&mut self, now: Instant) {
        self.answer.clear();
        let asked = os::net::connect_unix(&self.socket).and_then(|socket| {
            if !self.question.is_empty() {
                os::net::tell_senders(socket.as_fd())?;
                os::net::write(socket.as_fd(), &self.question)?;
            }
            Ok(socket)
        });
        match asked {
            Ok(socket) => self.asked = Some((socket, now)),
            Err(_) => self.again(now, AGAIN),
        }
    }

    fn again(&mut self, now: Instant, rest: Duration) {
        (self.asked, self.from) = (None, now + rest);
        self.answer.clear();
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let ready = os::net::wait_readable(&[fd], Some(Duration::ZERO));
    ready.is_ok_and(|ready| ready == [true])
}

/// The status of an answer, once it is there.
fn status(answer: &[u8]) -> Option<u16> {
    let rest = answer.strip_prefix(b"HTTP/1.")?.get(1..)?;
    let digits = rest.strip_prefix(b" ")?.get(..3)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use testkit::{TempDir, eventually};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const ITS: fn(u32) -> bool = |_| true;

    #[test]
    fn one_that_accepts_is_ready() {
        let place = TempDir::new();
        let path = place.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let now = Instant::now();
        let mut probe = Probe::new(&path, None, None, (false, now));
        for _ in 0..3 {
            assert!(!probe.look(Some(listener.as_fd()), ITS, now).unwrap());
        }
        drop(listener.accept().unwrap());
        assert!(probe.look(Some(listener.as_fd()), ITS, now).unwrap());
        let mut next = Probe::new(&path, None, None, (true, now));
        assert!(!next.look(Some(listener.as_fd()), ITS, now).unwrap());
        assert!(next.asked.is_none(), "another may still accept");
    }

    #[test]
    fn one_that_is_asked_is_ready_when_it_says_so() {
        let place = TempDir::new();
        let path = place.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut now = Instant::now();
        let mut probe = Probe::new(&path, Some("/up"), None, (false, now));
        for answer in [
            "HTTP/1.1 503 Not yet\r\n\r\n",
            "nonsense",
            "HTTP/1.0 204 Fine\r\n",
        ] {
            assert!(!probe.look(None, ITS, now).unwrap());
            let (mut asked, _) = listener.accept().unwrap();
            let mut question = [0; 18];
            asked.read_exact(&mut question).unwrap();
            assert_eq!(&question, b"GET /up HTTP/1.0\r\n");
            asked.write_all(answer.as_bytes()).unwrap();
            drop(asked);
            let is_ready = answer.contains("204");
            eventually(PATIENCE, "what comes of the answer", || {
                match probe.look(None, ITS, now).unwrap() {
                    true => Some(()),
                    false => (!is_ready && probe.asked.is_none()).then_some(()),
                }
            });
            now += AGAIN;
        }
    }

    #[test]
    fn one_that_takes_over_is_ready_when_it_was_itself_that_answered() {
        let place = TempDir::new();
        let path = place.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut now = Instant::now();
        let mut probe = Probe::new(&path, Some("/up"), None, (true, now));
        for is_its in [false, false, true] {
            assert!(!probe.look(None, ITS, now).unwrap());
            let (mut asked, _) = listener.accept().unwrap();
            asked.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let tells = |pid| is_its && pid == std::process::id();
            assert_eq!(probe.look(None, tells, now).unwrap(), is_its);
            now += OTHER;
        }
    }

    #[test]
    fn one_that_binds_for_itself_gets_the_name_that_is_known() {
        let place = TempDir::new();
        let (own, known) = (place.path().join("own"), place.path().join("known"));
        let former = UnixListener::bind(&known).unwrap();
        let now = Instant::now();
        let user = os::process::user_id();
        let mut probe = Probe::new(&known, None, Some((own.clone(), user)), (false, now));
        assert!(!probe.look(None, ITS, now).unwrap());
        let listener = UnixListener::bind(&own).unwrap();
        assert!(!probe.look(None, ITS, now).unwrap());
        assert!(probe.look(None, ITS, now).unwrap());
        listener.accept().unwrap();
        drop(former);
        let stranger = Some((own.clone(), user + 1));
        std::fs::remove_file(&own).unwrap();
        let _other = UnixListener::bind(&own).unwrap();
        let mut probe = Probe::new(&known, None, stranger, (false, now));
        assert!(probe.look(None, ITS, now).is_err());
    }

    #[test]
    fn a_status_is_read_where_it_stands() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK", Some(200)),
            ("HTTP/1.0 503", Some(503)),
            ("HTTP/1.1 20", None),
            ("HTTP/2 200", None),
            ("", None),
            ("HTTP/1.1  20", None),
        ] {
            assert_eq!(status(answer.as_bytes()), expected, "{answer}");
        }
    }
}
