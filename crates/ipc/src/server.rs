//! What supervisor and server say to each other, over a pair of sockets (`os::fdpass`).
//!
//! The idea: plain messages, one enum for each direction. The supervisor keeps its privileges and
//! the server has none, so what the server sends is decoded as if it were hostile.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use config::model::ListenAddress;
use os::cgroup::Layout;
use serde::{Deserialize, Serialize};

use crate::acme::OrderedCertificate;
use crate::certificates::{Blob, KeyId, KeyKind};
use crate::codec::{self, BadMessage, beside};
use crate::directory::DirectoryNews;
pub use crate::link_sender::LinkSender;
use crate::pools::{PoolAnswer, PoolQuestion};
use crate::recorder::RecorderNews;
use crate::scripted;

/// Bytes in one message to the server.
pub const TO_SERVER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Largest configuration, all files together, as [`Configure::sources`].
pub const SOURCES_BYTES_MAX: usize = 256 << 20;
/// Descriptors in one message to the server: listeners and logs.
pub const TO_SERVER_FDS_MAX: usize = 65_536;
/// Bytes in one message to the supervisor.
pub const TO_SUPERVISOR_BYTES_MAX: usize = 64 * 1024;
/// Challenges that are published at once: each takes less than two KiB.
pub const CHALLENGES_MAX: usize = 2_000;
/// Ordered certificates in one message: each takes less than 30 KiB.
pub const ORDERED_MAX: usize = 100;
/// As much of a text as fits a message to the supervisor beside its numbers.
const TEXT_BYTES_MAX: usize = TO_SUPERVISOR_BYTES_MAX - 64;

/// What the supervisor says.
#[derive(Debug, Serialize, Deserialize)]
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
    /// As `Drain`, where another server has taken over: connections that wait for their next
    /// request may still send one, no question is answered any more, and `Held` is said.
    Retire,
    /// An earlier server's requests hold these permits.
    HeldElsewhere {
        /// Its process.
        by: u32,
        /// All of them.
        held: Vec<HeldPermits>,
    },
    /// Show these counts from now on.
    Tally(Tally),
    /// The spawner that ran programs has ended: there is another, at the other ends of these.
    Programs {
        /// A link for each worker.
        #[serde(with = "beside")]
        links: Vec<OwnedFd>,
    },
    /// The answer to `OpenLog`.
    LogFile {
        /// The path asked for.
        path: String,
        /// The log, or why there is none.
        #[serde(with = "beside")]
        result: Result<OwnedFd, String>,
    },
    /// The current generation's certificates from now on: a file has changed.
    Certificates {
        /// A set (`crate::certificates`), a sealed memory file.
        #[serde(with = "beside")]
        set: OwnedFd,
    },
    /// The keeper has ended: there is another, at the other ends of these.
    Keeper {
        /// As in [`Configure::keeper`].
        #[serde(with = "beside")]
        links: Vec<OwnedFd>,
        /// The certificates anew, with this keeper's numbers for the keys.
        #[serde(with = "beside")]
        set: OwnedFd,
    },
    /// Answer authorities with these, instead of what was before; answered by `Challenged`.
    Challenges {
        /// Its number.
        number: u32,
        /// All that are published, at most [`CHALLENGES_MAX`].
        challenges: Vec<Challenge>,
    },
    /// Tell operators this.
    CertificateNews(CertificateNews),
    /// No certificate comes of what was demanded, for now.
    NotObtained(NotObtained),
    /// The answer to `Certificate`.
    Certificate(scripted::CertificateAnswer),
    /// The answer to `Pools`.
    Pools {
        /// The server's number for the question.
        number: u64,
        /// What is to be said.
        answer: PoolAnswer,
    },
    /// How the recorder is, and where it is told of requests.
    Recorder(RecorderNews),
    /// How the directory process is, and where it is asked.
    Directory(DirectoryNews),
}

/// What a client asked for that there will be no certificate for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotObtained {
    /// The name.
    pub name: String,
    /// Why.
    pub why: String,
    /// Whether that may be otherwise a moment later: it is not to be remembered.
    pub is_passing: bool,
}

/// What an authority is answered with that looks whether a name is ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// The name.
    pub name: String,
    /// What is to be seen.
    pub proof: ChallengeProof,
}

/// What is to be seen of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChallengeProof {
    /// The reply to `GET /.well-known/acme-challenge/TOKEN` (RFC 8555, 8.3).
    Http {
        /// The token.
        token: String,
        /// The body.
        authorization: String,
    },
    /// The certificate of a handshake with the protocol `acme-tls/1` (RFC 8737); the name is what such a client wants.
    TlsAlpn {
        /// It, as DER.
        certificate: Blob,
        /// The keeper's number for its key.
        key: KeyId,
        /// What its key is.
        kind: KeyKind,
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
    /// A set of certificates.
    Certificates,
    /// Links to the keeper.
    Keeper,
    /// Rings for the recorder.
    Recorder,
    /// A link to the directories.
    Directory,
}

/// A word of the supervisor, as it arrived.
pub type Word = Result<ToServer, Unheld>;

/// A generation and what it needs from outside.
#[derive(Debug, Serialize, Deserialize)]
pub struct Configure {
    /// Its number, from 1.
    pub generation: u64,
    /// The configuration's sources (`config::Sources::to_bytes`), a sealed memory file.
    #[serde(with = "beside")]
    pub sources: OwnedFd,
    /// Every listening socket. One whose address is missing here is to be accepted empty and closed.
    pub listeners: Vec<ListenerSocket>,
    /// Every log with a fixed path.
    pub logs: Vec<Log>,
    /// The listening control socket.
    #[serde(with = "beside")]
    pub control: Option<OwnedFd>,
    /// A link to the spawner for each worker ([`crate::order`]); none where the server has them already.
    #[serde(with = "beside")]
    pub programs: Vec<OwnedFd>,
    /// Links to the keeper ([`crate::signing::KeeperLink`]), one more than there are workers; none
    /// where the server has them already, or no listener speaks TLS.
    #[serde(with = "beside")]
    pub keeper: Vec<OwnedFd>,
    /// The generation's certificates (`crate::certificates`), sealed, where a listener speaks TLS.
    #[serde(with = "beside")]
    pub certificates: Option<OwnedFd>,
    /// Likewise the sources of the generation before, where processes of pools may know of no other; none otherwise.
    #[serde(with = "beside")]
    pub earlier: Option<OwnedFd>,
    /// As of [`ToServer::Challenges`], from the first connection on; none for a server that serves already.
    pub challenges: Vec<Challenge>,
    /// Where the groups of programs stand.
    pub layout: Layout,
    /// What was counted when this was sent, the generation's own reload included.
    pub tally: Tally,
}

/// What the supervisor counts, and knows, for `status` and metrics: it outlives every server.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Generations taken over after the first.
    pub reloads: u64,
    /// Reloads that changed nothing.
    pub reloads_refused: u64,
    /// Servers started again after an unwanted end.
    pub restarts: u64,
    /// What came of the last reload.
    pub last_reload: LastReload,
    /// What came of the last upgrade.
    pub last_upgrade: LastReload,
    /// Files of the configuration that are set aside.
    pub files_set_aside: u64,
    /// The first of them.
    pub set_aside: Vec<SetAsideFile>,
    /// Limits of control groups that are not in force yet, each in words.
    pub held: Vec<String>,
}

/// What operators are told of certificates that are ordered, and of the two processes for them.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateNews {
    /// Whether what was told of certificates before is to be forgotten.
    pub anew: bool,
    /// The keeper of private keys.
    pub keeper: ProcessLife,
    /// The process that asks authorities.
    pub acme: ProcessLife,
    /// Those of which something has changed, at most [`ORDERED_MAX`].
    pub certificates: Vec<OrderedCertificate>,
}

/// A process that the supervisor keeps, where one is wanted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLife {
    /// The process; 0: there is none.
    pub pid: u32,
    /// How often it was started again after an unwanted end.
    pub restarts: u64,
}

/// What came of a reload, or of an upgrade.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastReload {
    /// When it began, in microseconds by `CLOCK_MONOTONIC`; 0 where there was none.
    pub begun_us: u64,
    /// How it ended.
    pub outcome: ReloadOutcome,
    /// What is to be said of it, line by line.
    pub told: String,
}

/// How a reload ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReloadOutcome {
    /// The new configuration is in force.
    #[default]
    Taken,
    /// The new configuration is wrong.
    Wrong,
    /// Something else was in the way: the machine, or a process of ours.
    Failed,
}

/// A file of the configuration that is set aside.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAsideFile {
    /// Its name.
    pub file: String,
    /// Since when, as RFC 3339 writes it.
    pub since: String,
    /// What became of it.
    pub verdict: String,
    /// What is wrong with it, or the first thing that is.
    pub problem: String,
}

impl LastReload {
    /// Bytes of what is said of a reload.
    const TOLD_BYTES_MAX: usize = 256 * 1024;

    /// A reload that has ended; text too long is cut.
    #[must_use]
    pub fn new(begun_us: u64, outcome: ReloadOutcome, mut told: String) -> LastReload {
        codec::cut(&mut told, Self::TOLD_BYTES_MAX);
        LastReload {
            begun_us,
            outcome,
            told,
        }
    }
}

impl SetAsideFile {
    /// Most of them that are told of.
    pub const TOLD_MAX: usize = 500;
    /// Bytes of each of its texts.
    const TEXT_BYTES_MAX: usize = 1_024;

    /// It, with texts too long cut.
    #[must_use]
    pub fn bounded(mut self) -> SetAsideFile {
        for text in [&mut self.file, &mut self.verdict, &mut self.problem] {
            codec::cut(text, Self::TEXT_BYTES_MAX);
        }
        self
    }
}

impl ReloadOutcome {
    /// Its word, where it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ReloadOutcome::Taken => "taken",
            ReloadOutcome::Wrong => "wrong",
            ReloadOutcome::Failed => "failed",
        }
    }
}

/// A listening socket.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListenerSocket {
    /// Its address as configured.
    pub address: ListenAddress,
    /// The worker it belongs to; `None` is one socket that all workers accept from.
    pub worker: Option<usize>,
    /// The socket.
    #[serde(with = "beside")]
    pub socket: OwnedFd,
}

/// An open log.
#[derive(Debug, Serialize, Deserialize)]
pub struct Log {
    /// Its path as configured.
    pub path: String,
    /// Open for appending.
    #[serde(with = "beside")]
    pub file: OwnedFd,
}

/// Permits of a limit that requests of a server hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldPermits {
    /// What the limit's state is kept by.
    pub limit: String,
    /// The key, empty for a limit that has one.
    pub key: String,
    /// How many.
    pub permits: u32,
}

impl HeldPermits {
    /// As many of them as fit a message.
    #[must_use]
    pub fn bounded(mut held: Vec<HeldPermits>) -> Vec<HeldPermits> {
        /// Beside the texts.
        const NUMBERS_BYTES_MAX: usize = 16;
        let mut bytes = 0;
        let fit = held.iter().take_while(|it| {
            bytes += it.limit.len() + it.key.len() + NUMBERS_BYTES_MAX;
            bytes <= TEXT_BYTES_MAX
        });
        let count = fit.count();
        held.truncate(count);
        held
    }
}

/// What the server says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Authorities are answered with what was said under this number.
    Challenged {
        /// The number.
        number: u32,
    },
    /// A worker stands still; the server ends now.
    Stuck {
        /// What it was doing.
        report: String,
    },
    /// Of a server that retires: what its requests still hold of limits.
    Held {
        /// All of it, as [`HeldPermits::bounded`] has it.
        held: Vec<HeldPermits>,
    },
    /// An operator wants a certificate ordered now.
    Renew {
        /// The path of its chain in the store.
        path: String,
    },
    /// An operator wants to know whether its names would validate.
    Rehearse {
        /// The path of its chain in the store.
        path: String,
    },
    /// A client asks for a name that a pattern of a site or a row covers, and the account's map or the row was asked.
    Demand {
        /// The name.
        name: String,
        /// Whose it is, where its row says that.
        tenant: Option<String>,
        /// Whether it is accepted.
        is_accepted: bool,
    },
    /// A script wants a certificate shown.
    Certificate(scripted::CertificateQuestion),
    /// An operator asks something of pools; answered by `Pools`, unless the spawner is lost over it.
    Pools {
        /// The server's number for it.
        number: u64,
        /// What.
        question: PoolQuestion,
    },
}

/// Of what the supervisor says, what comes before the first descriptor.
#[derive(Deserialize)]
enum Beginning {
    Configure { generation: u64 },
    Reopen,
    Drain,
    Retire,
    HeldElsewhere,
    Tally,
    Programs,
    LogFile { path: String },
    Certificates,
    Keeper,
    Challenges,
    CertificateNews,
    NotObtained,
    Certificate,
    Pools,
    Recorder,
    Directory,
}

impl ToServer {
    /// Sends the message.
    ///
    /// # Errors
    /// When the server has gone or does not listen.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        os::fdpass::send(link, &codec::encode(self)?, &self.fds())
    }

    /// Receives the next message; the supervisor's end is `UnexpectedEof`.
    ///
    /// # Errors
    /// When the supervisor has gone, or says what cannot be understood.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<Word> {
        let (bytes, fds) = os::fdpass::recv(link, TO_SERVER_BYTES_MAX, TO_SERVER_FDS_MAX)?;
        Ok(match fds {
            Some(fds) => Ok(codec::decode(&bytes, fds)?),
            None => Err(Unheld::decode(&bytes)?),
        })
    }

    /// Its descriptors, in the order of its fields.
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            ToServer::Configure(configure) => configure.fds().map(AsFd::as_fd).collect(),
            ToServer::Reopen { logs } => logs.iter().map(|log| log.file.as_fd()).collect(),
            ToServer::Programs { links } => links.iter().map(AsFd::as_fd).collect(),
            ToServer::Recorder(news) => news.fds().map(AsFd::as_fd).collect(),
            ToServer::Directory(news) => news.fds().map(AsFd::as_fd).collect(),
            ToServer::LogFile { result, .. } => result.iter().map(AsFd::as_fd).collect(),
            ToServer::Certificates { set } => vec![set.as_fd()],
            ToServer::Keeper { links, set } => links.iter().chain([set]).map(AsFd::as_fd).collect(),
            ToServer::Drain
            | ToServer::Tally(_)
            | ToServer::Retire
            | ToServer::Challenges { .. }
            | ToServer::CertificateNews(_)
            | ToServer::NotObtained(_)
            | ToServer::Certificate(_)
            | ToServer::Pools { .. }
            | ToServer::HeldElsewhere { .. } => Vec::new(),
        }
    }
}

impl Unheld {
    fn decode(bytes: &[u8]) -> Result<Unheld, BadMessage> {
        match codec::decode_beginning(bytes)? {
            Beginning::Configure { generation } => Ok(Unheld::Configure { generation }),
            Beginning::Reopen => Ok(Unheld::Reopen),
            Beginning::Programs => Ok(Unheld::Programs),
            Beginning::LogFile { path } => Ok(Unheld::LogFile { path }),
            Beginning::Certificates => Ok(Unheld::Certificates),
            Beginning::Keeper => Ok(Unheld::Keeper),
            Beginning::Recorder => Ok(Unheld::Recorder),
            Beginning::Directory => Ok(Unheld::Directory),
            Beginning::Drain
            | Beginning::Tally
            | Beginning::Challenges
            | Beginning::CertificateNews
            | Beginning::NotObtained
            | Beginning::Certificate
            | Beginning::Pools
            | Beginning::Retire
            | Beginning::HeldElsewhere => Err(BadMessage::new("no descriptors belong to it")),
        }
    }
}

impl Configure {
    fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        let listeners = self.listeners.iter().map(|listener| &listener.socket);
        let logs = self.logs.iter().map(|log| &log.file);
        let rest = self.control.iter().chain(&self.programs);
        let rest = rest.chain(&self.keeper).chain(&self.certificates);
        let rest = listeners.chain(logs).chain(rest).chain(&self.earlier);
        std::iter::once(&self.sources).chain(rest)
    }
}

impl ToSupervisor {
    /// Sends the message. Text too long for one is cut.
    ///
    /// # Errors
    /// When the supervisor has gone.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let mut cut = self.clone();
        match &mut cut {
            ToSupervisor::Refused { message: text, .. }
            | ToSupervisor::OpenLog { path: text }
            | ToSupervisor::Stuck { report: text } => codec::cut(text, TEXT_BYTES_MAX),
            ToSupervisor::Ready { .. }
            | ToSupervisor::Challenged { .. }
            | ToSupervisor::Renew { .. }
            | ToSupervisor::Rehearse { .. }
            | ToSupervisor::Demand { .. }
            | ToSupervisor::Certificate(_)
            | ToSupervisor::Pools { .. }
            | ToSupervisor::Held { .. }
            | ToSupervisor::Drained => {}
        }
        os::fdpass::send(link, &codec::encode(&cut)?, &[])
    }

    /// Receives the next message; the server's end is `UnexpectedEof`.
    ///
    /// # Errors
    /// When the server has gone, or says what cannot be understood.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<ToSupervisor> {
        let (bytes, fds) = os::fdpass::recv(link, TO_SUPERVISOR_BYTES_MAX, 0)?;
        codec::decode_passed(&bytes, fds)
    }
}

#[cfg(test)]
mod tests;
