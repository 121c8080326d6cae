//! What supervisor and server say to each other, over a pair of sockets (`os::fdpass`).
//!
//! The idea: plain messages, one enum for each direction, each encoded by hand as a tag, numbers
//! and length-prefixed bytes; descriptors travel beside the bytes in the order the bytes name
//! them. The supervisor keeps its privileges and the server has none, so what the server sends
//! is decoded as if it were hostile: every length is checked against what is there.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use config::model::ListenAddress;
use os::cgroup::Layout;

use crate::codec::{BadMessage, Reader, Writer};

/// Bytes in one message to the server.
pub const TO_SERVER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Largest configuration, all files together, as [`Configure::sources`].
pub const SOURCES_BYTES_MAX: usize = 256 << 20;
/// Descriptors in one message to the server: listeners and logs.
pub const TO_SERVER_FDS_MAX: usize = 65_536;
/// Bytes in one message to the supervisor.
pub const TO_SUPERVISOR_BYTES_MAX: usize = 64 * 1024;
/// As much of a text as fits a message to the supervisor beside its numbers.
const TEXT_BYTES_MAX: usize = TO_SUPERVISOR_BYTES_MAX - 64;

/// The server's voice on the link: any thread may speak, one message at a time.
#[derive(Debug, Clone)]
pub struct Voice {
    /// Held while one message is sent: 5 s at most (`os::fdpass`).
    link: Arc<Mutex<OwnedFd>>,
}

impl Voice {
    /// Speaks on `link`.
    ///
    /// # Errors
    /// When the descriptor can't be duplicated.
    pub fn new(link: &OwnedFd) -> io::Result<Self> {
        Ok(Self {
            link: Arc::new(Mutex::new(link.try_clone()?)),
        })
    }

    /// Says one thing.
    ///
    /// # Errors
    /// When the supervisor has gone or does not listen.
    pub fn say(&self, message: &ToSupervisor) -> io::Result<()> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        message.send(link.as_fd())
    }
}

/// What the supervisor says.
#[derive(Debug)]
pub enum ToServer {
    /// Become this generation; answered by `Ready` or `Refused`.
    Configure(Configure),
    /// Write to these logs from now on.
    Reopen {
        /// Every log of the last generation that has a fixed path.
        logs: Vec<Log>,
    },
    /// Finish what is under way, then end; answered by `Drained`.
    Drain,
    /// Show these counts from now on.
    Tally(Tally),
    /// The spawner that ran programs has ended: there is another, at the other ends of these.
    Programs {
        /// A link for each worker.
        links: Vec<OwnedFd>,
    },
    /// The answer to `OpenLog`.
    LogFile {
        /// The path asked for.
        path: String,
        /// The log, or why there is none.
        result: Result<OwnedFd, String>,
    },
}

/// What the supervisor said with descriptors for which this process had no room: they are gone.
#[derive(Debug, PartialEq, Eq)]
pub enum Unheld {
    /// A generation.
    Configure {
        /// Its number.
        generation: u64,
    },
    /// Logs that were opened again.
    Reopen,
    /// Links to the spawner.
    Programs,
    /// A log that was asked for.
    LogFile {
        /// Its path.
        path: String,
    },
}

/// A word of the supervisor, as it arrived.
pub type Word = Result<ToServer, Unheld>;

/// A generation and what it needs from outside.
#[derive(Debug)]
pub struct Configure {
    /// Its number, from 1.
    pub generation: u64,
    /// The configuration's sources (`config::Sources::to_bytes`), a sealed memory file.
    pub sources: OwnedFd,
    /// Every listening socket of the generation. One whose address is missing here is to be
    /// accepted empty and closed.
    pub listeners: Vec<ListenerSocket>,
    /// Every log with a fixed path.
    pub logs: Vec<Log>,
    /// The listening control socket.
    pub control: Option<OwnedFd>,
    /// A link to the spawner for each worker (`programs::message`); none where the server has
    /// them already.
    pub programs: Vec<OwnedFd>,
    /// Where the groups of programs stand.
    pub layout: Layout,
    /// What was counted when this was sent, the generation's own reload included.
    pub tally: Tally,
}

/// What the supervisor counts for `status` and metrics: it outlives every server.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Generations taken over after the first.
    pub reloads: u64,
    /// Reloads that changed nothing.
    pub reloads_refused: u64,
    /// Servers started again after an unwanted end.
    pub restarts: u64,
}

/// A listening socket.
#[derive(Debug)]
pub struct ListenerSocket {
    /// Its address as configured.
    pub address: ListenAddress,
    /// The worker it belongs to; `None` is one socket that all workers accept from.
    pub worker: Option<usize>,
    /// The socket.
    pub socket: OwnedFd,
}

/// An open log.
#[derive(Debug)]
pub struct Log {
    /// Its path as configured.
    pub path: String,
    /// Open for appending.
    pub file: OwnedFd,
}

/// What the server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToSupervisor {
    /// The generation answers requests.
    Ready {
        /// Its number.
        generation: u64,
    },
    /// The generation cannot be; the one before goes on.
    Refused {
        /// Its number.
        generation: u64,
        /// Why.
        message: String,
    },
    /// A log whose path was made from a template is needed.
    OpenLog {
        /// The path, filled in.
        path: String,
    },
    /// Everything is finished; the server ends now.
    Drained,
    /// A worker stands still; the server ends now.
    Stuck {
        /// What it was doing.
        report: String,
    },
}

impl ToServer {
    /// Sends the message.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let mut out = Writer::default();
        self.encode(&mut out);
        os::fdpass::send(link, &out.bytes, &out.fds)
    }

    /// Receives the next message; the supervisor's end is `UnexpectedEof`.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<Word> {
        let (bytes, fds) = os::fdpass::recv(link, TO_SERVER_BYTES_MAX, TO_SERVER_FDS_MAX)?;
        Ok(match fds {
            Some(fds) => Ok(ToServer::decode(Reader::new(&bytes, fds))?),
            None => Err(Unheld::decode(Reader::new(&bytes, Vec::new()))?),
        })
    }

    fn encode<'fds>(&'fds self, out: &mut Writer<'fds>) {
        match self {
            ToServer::Configure(configure) => {
                out.byte(1);
                configure.encode(out);
            }
            ToServer::Reopen { logs } => {
                out.byte(2);
                encode_logs(logs, out);
            }
            ToServer::Drain => out.byte(3),
            ToServer::Tally(tally) => {
                out.byte(5);
                tally.encode(out);
            }
            ToServer::Programs { links } => {
                out.byte(6);
                out.fds(links);
            }
            ToServer::LogFile { path, result } => {
                out.byte(4);
                out.text(path.as_bytes());
                match result {
                    Ok(file) => {
                        out.byte(1);
                        out.fd(file);
                    }
                    Err(message) => {
                        out.byte(0);
                        out.text(message.as_bytes());
                    }
                }
            }
        }
    }

    fn decode(mut from: Reader<'_>) -> Result<ToServer, BadMessage> {
        let message = match from.byte()? {
            1 => ToServer::Configure(Configure::decode(&mut from)?),
            2 => ToServer::Reopen {
                logs: decode_logs(&mut from)?,
            },
            3 => ToServer::Drain,
            4 => ToServer::LogFile {
                path: from.string()?,
                result: match from.byte()? {
                    1 => Ok(from.fd()?),
                    _ => Err(from.string()?),
                },
            },
            5 => ToServer::Tally(Tally::decode(&mut from)?),
            6 => ToServer::Programs { links: from.fds()? },
            _ => return Err(BadMessage("unknown kind")),
        };
        from.end()?;
        Ok(message)
    }
}

impl Unheld {
    /// Reads what comes before the first descriptor of a message.
    fn decode(mut from: Reader<'_>) -> Result<Unheld, BadMessage> {
        match from.byte()? {
            1 => Ok(Unheld::Configure {
                generation: from.number()?,
            }),
            2 => Ok(Unheld::Reopen),
            4 => Ok(Unheld::LogFile {
                path: from.string()?,
            }),
            6 => Ok(Unheld::Programs),
            _ => Err(BadMessage("no descriptors belong to it")),
        }
    }
}

impl Tally {
    fn encode(&self, out: &mut Writer<'_>) {
        for number in [self.reloads, self.reloads_refused, self.restarts] {
            out.number(number);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Tally, BadMessage> {
        Ok(Tally {
            reloads: from.number()?,
            reloads_refused: from.number()?,
            restarts: from.number()?,
        })
    }
}

impl Configure {
    fn encode<'fds>(&'fds self, out: &mut Writer<'fds>) {
        out.number(self.generation);
        self.tally.encode(out);
        out.fd(&self.sources);
        out.number(self.listeners.len() as u64);
        for listener in &self.listeners {
            listener.encode(out);
        }
        encode_logs(&self.logs, out);
        out.byte(self.control.is_some().into());
        if let Some(control) = &self.control {
            out.fd(control);
        }
        out.fds(&self.programs);
        out.text(self.layout.encode().as_bytes());
    }

    fn decode(from: &mut Reader<'_>) -> Result<Configure, BadMessage> {
        Ok(Configure {
            generation: from.number()?,
            tally: Tally::decode(from)?,
            sources: from.fd()?,
            listeners: from.list(ListenerSocket::decode)?,
            logs: decode_logs(from)?,
            control: match from.byte()? {
                0 => None,
                _ => Some(from.fd()?),
            },
            programs: from.fds()?,
            layout: Layout::decode(&from.string()?).ok_or(BadMessage("no layout of groups"))?,
        })
    }
}

impl ListenerSocket {
    fn encode<'fds>(&'fds self, out: &mut Writer<'fds>) {
        match &self.address {
            ListenAddress::Tcp(address) => {
                out.byte(0);
                out.text(address.to_string().as_bytes());
            }
            ListenAddress::Unix(path) => {
                out.byte(1);
                out.text(path.as_os_str().as_bytes());
            }
        }
        // Numbers from 1, so that 0 is nobody's.
        out.number(self.worker.map_or(0, |worker| worker as u64 + 1));
        out.fd(&self.socket);
    }

    fn decode(from: &mut Reader<'_>) -> Result<ListenerSocket, BadMessage> {
        let address = match from.byte()? {
            0 => {
                let address = from.string()?.parse();
                ListenAddress::Tcp(address.map_err(|_| BadMessage("not an address"))?)
            }
            _ => ListenAddress::Unix(PathBuf::from(OsStr::from_bytes(from.text()?))),
        };
        let worker = match from.number()? {
            0 => None,
            number => Some(usize::try_from(number - 1).map_err(|_| BadMessage("huge worker"))?),
        };
        Ok(ListenerSocket {
            address,
            worker,
            socket: from.fd()?,
        })
    }
}

fn encode_logs<'fds>(logs: &'fds [Log], out: &mut Writer<'fds>) {
    out.number(logs.len() as u64);
    for log in logs {
        out.text(log.path.as_bytes());
        out.fd(&log.file);
    }
}

fn decode_logs(from: &mut Reader<'_>) -> Result<Vec<Log>, BadMessage> {
    from.list(|from| {
        Ok(Log {
            path: from.string()?,
            file: from.fd()?,
        })
    })
}

impl ToSupervisor {
    /// Sends the message. Text too long for one is cut.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let mut out = Writer::default();
        self.encode(&mut out);
        os::fdpass::send(link, &out.bytes, &[])
    }

    /// Receives the next message; the server's end is `UnexpectedEof`.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<ToSupervisor> {
        let (bytes, fds) = os::fdpass::recv(link, TO_SUPERVISOR_BYTES_MAX, 0)?;
        Ok(ToSupervisor::decode(Reader::of(&bytes, fds)?)?)
    }

    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            ToSupervisor::Ready { generation } => {
                out.byte(1);
                out.number(*generation);
            }
            ToSupervisor::Refused {
                generation,
                message,
            } => {
                out.byte(2);
                out.number(*generation);
                out.text_cut(message, TEXT_BYTES_MAX);
            }
            ToSupervisor::OpenLog { path } => {
                out.byte(3);
                out.text_cut(path, TEXT_BYTES_MAX);
            }
            ToSupervisor::Drained => out.byte(4),
            ToSupervisor::Stuck { report } => {
                out.byte(5);
                out.text_cut(report, TEXT_BYTES_MAX);
            }
        }
    }

    fn decode(mut from: Reader<'_>) -> Result<ToSupervisor, BadMessage> {
        let message = match from.byte()? {
            1 => ToSupervisor::Ready {
                generation: from.number()?,
            },
            2 => ToSupervisor::Refused {
                generation: from.number()?,
                message: from.string()?,
            },
            3 => ToSupervisor::OpenLog {
                path: from.string()?,
            },
            4 => ToSupervisor::Drained,
            5 => ToSupervisor::Stuck {
                report: from.string()?,
            },
            _ => return Err(BadMessage("unknown kind")),
        };
        from.end()?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(content: &str) -> OwnedFd {
        os::file::memfd("test", content.as_bytes()).unwrap()
    }

    fn content(fd: &OwnedFd) -> String {
        String::from_utf8(os::file::read_whole(fd.as_fd(), 100).unwrap()).unwrap()
    }

    const TALLY: Tally = Tally {
        reloads: 1,
        reloads_refused: 2,
        restarts: 3,
    };

    fn configure() -> ToServer {
        let listener = |address, worker, content| ListenerSocket {
            address,
            worker,
            socket: memory(content),
        };
        ToServer::Configure(Configure {
            generation: 7,
            sources: memory("sources"),
            listeners: vec![
                listener(
                    ListenAddress::Tcp("127.0.0.1:80".parse().unwrap()),
                    Some(0),
                    "v4",
                ),
                listener(
                    ListenAddress::Tcp("[::1]:80".parse().unwrap()),
                    Some(1),
                    "v6",
                ),
                listener(ListenAddress::Unix("/run/x.sock".into()), None, "unix"),
            ],
            logs: vec![Log {
                path: "/var/log/a".into(),
                file: memory("log"),
            }],
            control: Some(memory("control")),
            programs: vec![memory("worker 0"), memory("worker 1")],
            layout: Layout::decode("v1 cpu /sys/fs/cgroup/cpu/nagaya-7\n").unwrap(),
            tally: TALLY,
        })
    }

    /// A message and its descriptors' contents, as text.
    fn shown(message: &ToServer) -> String {
        let mut out = Writer::default();
        message.encode(&mut out);
        let contents = out
            .fds
            .iter()
            .map(|fd| os::file::read_whole(*fd, 100).unwrap());
        let contents: Vec<_> = contents
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .collect();
        format!("{:?} {contents:?}", out.bytes)
    }

    #[test]
    fn what_the_supervisor_says_arrives() {
        let (here, there) = os::fdpass::pair().unwrap();
        let log = |path: &str, result| ToServer::LogFile {
            path: path.into(),
            result,
        };
        for message in [
            configure(),
            ToServer::Reopen {
                logs: vec![Log {
                    path: "/l".into(),
                    file: memory("l"),
                }],
            },
            ToServer::Drain,
            ToServer::Tally(TALLY),
            ToServer::Programs {
                links: vec![memory("again 0"), memory("again 1")],
            },
            log("/a", Ok(memory("a"))),
            log("/b", Err("no such directory".into())),
        ] {
            message.send(here.as_fd()).unwrap();
            let arrived = ToServer::recv(there.as_fd()).unwrap().unwrap();
            assert_eq!(shown(&arrived), shown(&message));
        }
        configure().send(here.as_fd()).unwrap();
        let Ok(ToServer::Configure(arrived)) = ToServer::recv(there.as_fd()).unwrap() else {
            panic!("another message arrived");
        };
        assert_eq!((arrived.generation, arrived.tally), (7, TALLY));
        assert_eq!(
            arrived.listeners[1].address,
            ListenAddress::Tcp("[::1]:80".parse().unwrap())
        );
        assert_eq!(arrived.listeners[1].worker, Some(1));
        assert_eq!(arrived.listeners[2].worker, None);
        assert_eq!(content(&arrived.listeners[2].socket), "unix");
        assert_eq!(content(arrived.control.as_ref().unwrap()), "control");
        assert_eq!(content(&arrived.programs[1]), "worker 1");
    }

    #[test]
    fn what_the_server_says_arrives() {
        let (here, there) = os::fdpass::pair().unwrap();
        for message in [
            ToSupervisor::Ready {
                generation: u64::MAX,
            },
            ToSupervisor::Refused {
                generation: 2,
                message: "worker 1: no memory".into(),
            },
            ToSupervisor::OpenLog {
                path: "/var/log/example.jp".into(),
            },
            ToSupervisor::Drained,
            ToSupervisor::Stuck {
                report: "worker 0: 10 s in example.jp".into(),
            },
        ] {
            message.send(there.as_fd()).unwrap();
            assert_eq!(ToSupervisor::recv(here.as_fd()).unwrap(), message);
        }
    }

    #[test]
    fn a_report_too_long_is_cut_not_lost() {
        let (here, there) = os::fdpass::pair().unwrap();
        ToSupervisor::Stuck {
            report: "遅".repeat(100_000),
        }
        .send(there.as_fd())
        .unwrap();
        let ToSupervisor::Stuck { report } = ToSupervisor::recv(here.as_fd()).unwrap() else {
            panic!("another message arrived");
        };
        assert!(report.len() > TO_SUPERVISOR_BYTES_MAX - 100 && report.chars().all(|c| c == '遅'));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
        let message = configure();
        let mut out = Writer::default();
        message.encode(&mut out);
        let fds = || {
            out.fds
                .iter()
                .map(|fd| fd.try_clone_to_owned().unwrap())
                .collect()
        };
        for length in 0..out.bytes.len() {
            assert!(
                ToServer::decode(Reader::new(&out.bytes[..length], fds())).is_err(),
                "{length}"
            );
        }
        for at in 0..out.bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = out.bytes.clone();
                bytes[at] = value;
                let _ = ToServer::decode(Reader::new(&bytes, fds()));
                let _ = ToSupervisor::decode(Reader::new(&bytes, Vec::new()));
            }
        }
    }

    #[test]
    fn lengths_that_promise_too_much_reserve_nothing() {
        for number in [u64::MAX, u64::MAX / 2, 1 << 40] {
            for kind in [2, 4] {
                let mut bytes = vec![kind];
                bytes.extend_from_slice(&number.to_le_bytes());
                assert!(ToServer::decode(Reader::new(&bytes, Vec::new())).is_err());
                bytes[0] = 3;
                assert!(ToSupervisor::decode(Reader::new(&bytes, Vec::new())).is_err());
            }
        }
    }

    #[test]
    fn descriptors_nobody_asked_for_are_refused() {
        let drain = ToServer::decode(Reader::new(&[3], vec![memory("x")]));
        assert_eq!(drain.unwrap_err(), BadMessage("too long"));
    }
}
