//! What a supervisor hands to the one of a new program, and what the two say to each other before.
//!
//! The idea: the new program is started as a *successor*, a child that is given everything the
//! supervisor holds, starts processes of its own beside those that serve, and gives the same kind
//! of [`Handover`] back once they serve, too. With that the supervisor executes the new program in
//! its own place. So one type is written by one program and read by another, and [`FORMAT`] counts
//! its changes, those of the messages here, and those of what else may be said between two
//! programs: what an ending server says and hears ([`ToServer::Retire`], [`ToServer::LogFile`],
//! [`ToServer::Reopen`], [`ToServer::Drain`]; [`ToSupervisor`] but for `Ready` and `Refused`).
//!
//! [`ToServer::Retire`]: crate::server::ToServer::Retire
//! [`ToServer::LogFile`]: crate::server::ToServer::LogFile
//! [`ToServer::Reopen`]: crate::server::ToServer::Reopen
//! [`ToServer::Drain`]: crate::server::ToServer::Drain
//! [`ToSupervisor`]: crate::server::ToSupervisor

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use os::cgroup::Placed;
use os::exec::Handed;
use serde::{Deserialize, Serialize};

use crate::codec::{self, beside, path};
use crate::message::Message;
use crate::pools::PoolProcess;
use crate::rows::RowKey;
use crate::server::{ListenerSocket, Log, ReloadOutcome, TO_SERVER_FDS_MAX, Tally};

/// The format of all that two programs may say to each other; another one is refused.
pub const FORMAT: u32 = 5;
/// Bytes of a message between supervisor and successor.
const BYTES_MAX: usize = 12 << 20;
/// Bytes of the last good versions of files.
pub const LAST_GOOD_BYTES_MAX: usize = 256 << 20;
/// As much of a text as is told of a refusal.
const TOLD_BYTES_MAX: usize = 256 * 1024;

/// Everything a supervisor holds and knows.
#[derive(Debug, Serialize, Deserialize)]
pub struct Handover {
    /// The file of the configuration.
    #[serde(with = "path")]
    pub config: PathBuf,
    /// The generation in force.
    pub generation: u64,
    /// Its sources, a sealed memory file; only for the program that wrote this.
    #[serde(with = "beside")]
    pub sources: OwnedFd,
    /// The last good versions of files that may be set aside, as text in a sealed memory file.
    #[serde(with = "beside")]
    pub last_good: OwnedFd,
    /// Listening sockets.
    pub listeners: Vec<ListenerSocket>,
    /// Logs with a fixed path.
    pub logs: Vec<Log>,
    /// The control socket, and perhaps that of before.
    pub control: Vec<SocketAt>,
    /// Workers of a server, and so sockets of an address.
    pub workers: usize,
    /// What the server becomes.
    pub user: String,
    /// What is counted and known.
    pub tally: Tally,
    /// Where control groups stand.
    pub places: Placed,
    /// What holds these places.
    #[serde(with = "beside")]
    pub locks: Vec<OwnedFd>,
    /// The processes that serve.
    pub children: Vec<ChildProcess>,
    /// How long the server may take to finish what is under way, in milliseconds.
    pub drain_ms: u64,
    /// Those of earlier programs that finish what is under way.
    pub retiring: Vec<RetiringProcesses>,
    /// Children that are none of ours.
    pub strangers: Vec<u32>,
    /// Listening sockets of pools, those included that the generation does not name any more.
    pub pools: Vec<SocketAt>,
    /// Masters of pools that run.
    pub masters: Vec<PoolProcess>,
    /// What rows are sealed with: workers, spawner and directory process go on with rows of before.
    pub row_key: RowKey,
}

/// A Unix socket that listens.
#[derive(Debug, Serialize, Deserialize)]
pub struct SocketAt {
    /// Its path.
    #[serde(with = "path")]
    pub path: PathBuf,
    /// The socket.
    #[serde(with = "beside")]
    pub socket: OwnedFd,
}

/// A process that the supervisor has started.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChildProcess {
    /// The first word of its command line.
    pub kind: String,
    /// Its process id.
    pub pid: u32,
    /// When it was started, in microseconds by `CLOCK_MONOTONIC`.
    pub started_us: u64,
    /// The supervisor's end of the link to it.
    #[serde(with = "beside")]
    pub link: OwnedFd,
}

/// The processes of an earlier program, among them its server, that finish what is under way.
#[derive(Debug, Serialize, Deserialize)]
pub struct RetiringProcesses {
    /// When the server is cut short, in microseconds by `CLOCK_MONOTONIC`.
    pub until_us: u64,
    /// The processes.
    pub children: Vec<ChildProcess>,
}

/// What the supervisor says to a successor.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToSuccessor {
    /// Begin with this: a written [`Handover`].
    Handover {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its descriptors.
        #[serde(with = "beside")]
        fds: Vec<OwnedFd>,
    },
    /// The process that was asked for runs.
    Started {
        /// Its process id.
        pid: u32,
        /// The link to it.
        #[serde(with = "beside")]
        link: OwnedFd,
    },
    /// It cannot be started.
    NotStarted {
        /// Why.
        why: String,
    },
}

/// What a successor says.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromSuccessor {
    /// Start the new program with these words; answered by `Started` or `NotStarted`.
    Start {
        /// The words of its command line.
        words: Vec<String>,
    },
    /// The new program cannot serve.
    Refused {
        /// Whose fault that is.
        outcome: ReloadOutcome,
        /// Why, line by line.
        told: String,
    },
    /// Its processes serve: go on with this, a written [`Handover`].
    Ready {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its descriptors.
        #[serde(with = "beside")]
        fds: Vec<OwnedFd>,
    },
}

impl Handover {
    /// Writes it down.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated.
    pub fn write(&self) -> io::Result<Handed> {
        let fds = self.fds().into_iter().map(|fd| fd.try_clone_to_owned());
        Ok(Handed {
            bytes: codec::encode(self)?,
            fds: fds.collect::<io::Result<_>>()?,
        })
    }

    /// Reads one.
    ///
    /// # Errors
    /// Bytes that are none.
    pub fn read(handed: Handed) -> io::Result<Handover> {
        Ok(codec::decode(&handed.bytes, handed.fds)?)
    }

    /// Its descriptors, in the order of its fields.
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let listeners = self.listeners.iter().map(|listener| &listener.socket);
        let logs = self.logs.iter().map(|log| &log.file);
        let control = self.control.iter().map(|control| &control.socket);
        let retiring = self.retiring.iter().flat_map(|it| &it.children);
        let children = self.children.iter().chain(retiring);
        let fds = [&self.sources, &self.last_good]
            .into_iter()
            .chain(listeners)
            .chain(logs)
            .chain(control)
            .chain(&self.locks)
            .chain(children.map(|child| &child.link))
            .chain(self.pools.iter().map(|it| &it.socket));
        let masters = self.masters.iter().flat_map(PoolProcess::fds);
        fds.map(AsFd::as_fd).chain(masters).collect()
    }
}

impl Message for ToSuccessor {
    const BYTES_MAX: usize = BYTES_MAX;
    const FDS_MAX: usize = TO_SERVER_FDS_MAX;

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Handover { fds, .. } => fds.iter().map(AsFd::as_fd).collect(),
            Self::Started { link, .. } => vec![link.as_fd()],
            Self::NotStarted { .. } => Vec::new(),
        }
    }
}

impl FromSuccessor {
    /// That the new program cannot serve; text too long is cut.
    #[must_use]
    pub fn refused(outcome: ReloadOutcome, mut told: String) -> FromSuccessor {
        codec::cut(&mut told, TOLD_BYTES_MAX);
        Self::Refused { outcome, told }
    }
}

impl Message for FromSuccessor {
    const BYTES_MAX: usize = BYTES_MAX;
    const FDS_MAX: usize = TO_SERVER_FDS_MAX;

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Ready { fds, .. } => fds.iter().map(AsFd::as_fd).collect(),
            Self::Start { .. } | Self::Refused { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{HeldPermits, ToServer, ToSupervisor};

    fn memory(content: &str) -> OwnedFd {
        os::file::memfd("test", content.as_bytes()).unwrap()
    }

    fn child(pid: u32) -> ChildProcess {
        ChildProcess {
            kind: "server".into(),
            pid,
            started_us: 5,
            link: memory("link"),
        }
    }

    fn handover() -> Handover {
        let listener = ListenerSocket {
            address: config::model::ListenAddress::Tcp("127.0.0.1:80".parse().unwrap()),
            worker: Some(1),
            socket: memory("socket"),
        };
        let log = Log {
            path: "/l".into(),
            file: memory("log"),
        };
        Handover {
            config: "/c".into(),
            generation: 2,
            sources: memory("sources"),
            last_good: memory("last good"),
            listeners: vec![listener],
            logs: vec![log],
            control: vec![SocketAt {
                path: "/s".into(),
                socket: memory("control"),
            }],
            workers: 3,
            user: "u".into(),
            tally: Tally::default(),
            places: Placed::default(),
            locks: vec![memory("lock")],
            children: vec![child(300)],
            drain_ms: 4,
            retiring: vec![RetiringProcesses {
                until_us: 6,
                children: vec![child(7)],
            }],
            strangers: vec![8],
            pools: vec![SocketAt {
                path: "/p".into(),
                socket: memory("pool"),
            }],
            masters: vec![PoolProcess {
                id: "a".into(),
                pid: 9,
                settings: 5,
                identity: None,
                process: memory("process"),
                words: memory("words"),
            }],
            row_key: RowKey([1; 16]),
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn content(fd: &OwnedFd) -> String {
        String::from_utf8(os::file::read_whole(fd.as_fd(), 100).unwrap()).unwrap()
    }

    #[test]
    fn a_handover_arrives_with_every_descriptor_where_it_was() {
        let read = Handover::read(handover().write().unwrap()).unwrap();
        let found = [
            &read.sources,
            &read.last_good,
            &read.listeners[0].socket,
            &read.logs[0].file,
            &read.control[0].socket,
            &read.locks[0],
            &read.children[0].link,
            &read.retiring[0].children[0].link,
            &read.pools[0].socket,
            &read.masters[0].process,
            &read.masters[0].words,
        ];
        let wanted = [
            "sources",
            "last good",
            "socket",
            "log",
            "control",
            "lock",
            "link",
            "link",
            "pool",
            "process",
            "words",
        ];
        assert_eq!(found.map(content), wanted);
        assert_eq!(read.config, PathBuf::from("/c"));
        assert_eq!((read.children[0].pid, read.strangers), (300, vec![8]));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
        let handed = handover().write().unwrap();
        let fds = || {
            handed
                .fds
                .iter()
                .map(|fd| fd.try_clone().unwrap())
                .collect()
        };
        for length in 0..handed.bytes.len() {
            let bytes = handed.bytes[..length].to_vec();
            assert!(
                Handover::read(Handed { bytes, fds: fds() }).is_err(),
                "{length}"
            );
        }
        for at in 0..handed.bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = handed.bytes.clone();
                bytes[at] = value;
                let _ = codec::decode::<FromSuccessor>(&bytes, Vec::new());
                let _ = Handover::read(Handed { bytes, fds: fds() });
            }
        }
    }

    /// Where this fails, two versions of the program do not understand each other any more: put
    /// what is new behind what is there, or count [`FORMAT`] up and write down here what it writes.
    #[test]
    fn what_two_programs_say_to_each_other_is_as_its_format_has_it() {
        fn written(message: &impl Serialize) -> String {
            hex(&codec::encode(message).unwrap())
        }
        let (bytes, fds) = (vec![9], Vec::new());
        let held = vec![HeldPermits {
            limit: "l".into(),
            key: "k".into(),
            permits: 2,
        }];
        let said = [
            FORMAT.to_string(),
            hex(&handover().write().unwrap().bytes),
            written(&ToSuccessor::Handover { bytes, fds }),
            written(&ToSuccessor::NotStarted { why: "w".into() }),
            written(&FromSuccessor::Start {
                words: vec!["s".into()],
            }),
            written(&FromSuccessor::refused(ReloadOutcome::Wrong, "t".into())),
            written(&FromSuccessor::Ready {
                bytes: vec![9],
                fds: Vec::new(),
            }),
            written(&ToServer::Drain),
            written(&ToServer::Retire),
            written(&ToServer::Reopen { logs: Vec::new() }),
            written(&ToServer::LogFile {
                path: "p".into(),
                result: Err("e".into()),
            }),
            written(&ToSupervisor::OpenLog { path: "p".into() }),
            written(&ToSupervisor::Drained),
            written(&ToSupervisor::Stuck { report: "r".into() }),
            written(&ToSupervisor::Held { held }),
        ];
        let expected = [
            "5",
            "022f63020100007f00000150010101022f6c01022f730301750000000000000000000000000000000001\
             0106736572766572ac0205040106010673657276657207050108\
             01022f70010161090500\
             01010101010101010101010101010101",
            "00010900 020177 00010173 01010174 02010900",
            "02 03 0100 070170010165 020170 03 050172 0601016c016b02",
        ];
        assert_eq!(said.join(" "), expected.join(" "));
    }
}
