//! What a server and the directory process say to each other, and what the supervisor says to that.
//!
//! The idea: a message is a packet, so none is longer than one, and a text in it has a bound that is checked
//! when it is read: each end takes the other as hostile. Rows are texts by column; what columns mean is
//! judged by both ends.
//!
//! Left out: what is asked of which source, and how long an answer is good for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::archive::ArchiveSettings;
use crate::codec::{self, BadMessage, beside};
use crate::console::Outgoing;
use crate::fleet::FleetSettings;
use crate::rows::RowKey;
use crate::server::ProcessLife;

/// Bytes of a host.
pub const HOST_BYTES_MAX: usize = 255;
/// Columns of a row.
pub const COLUMNS_MAX: usize = 64;
/// Bytes of a column's name.
pub const COLUMN_NAME_BYTES_MAX: usize = 64;
/// Bytes of one column.
pub const COLUMN_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a row's columns and their names.
pub const ROW_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a text that says what is wrong.
pub const REASON_BYTES_MAX: usize = 200;
/// Directories, as many as a configuration may have.
pub const DIRECTORIES_MAX: usize = config::model::DIRECTORIES_MAX;
/// Slow questions that a state tells of.
pub const SLOWEST_MAX: usize = 5;
/// Bytes of a message between a server and the directory process: a packet, with one byte before it.
const BYTES_MAX: usize = 56 * 1024;
/// Bytes of what the supervisor says.
const ORDER_BYTES_MAX: usize = 8 << 20;
/// Descriptors beside that.
const ORDER_DESCRIPTORS_MAX: usize = 2;

/// What the server says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToDirectory {
    /// Which row does this host have? Answered by `Answer`.
    Ask {
        /// Which directory, by its place in the configuration.
        directory: u16,
        /// The host, canonical.
        host: String,
        /// The server's number for the question.
        id: u64,
    },
    /// Nothing that is kept of these is to be believed any more.
    Forget {
        /// Which directory; `None`: all.
        directory: Option<u16>,
        /// Which host; `None`: all.
        host: Option<String>,
    },
    /// How are the directories? Answered by `State`.
    State {
        /// The server's number for the question.
        id: u64,
    },
}

/// What the directory process says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromDirectory {
    /// A question's answer.
    Answer {
        /// The question's number.
        id: u64,
        /// Which directory.
        directory: u16,
        /// The host that was asked for.
        host: String,
        /// What it has.
        answer: RowAnswer,
        /// How long ago that was read from the source.
        age_ms: u64,
    },
    /// Rows have changed: what is kept of them is to be asked for again.
    Changed {
        /// Which directory.
        directory: u16,
        /// Which host; `None`: any.
        host: Option<String>,
    },
    /// How the directories are, in the order of the configuration.
    State {
        /// The question's number.
        id: u64,
        /// At most [`STATES_MAX`] from the `first` on; more come in further messages.
        first: u16,
        /// Each directory's state.
        states: Vec<DirectoryState>,
    },
}

/// States in one message.
pub const STATES_MAX: usize = 16;

/// What a host has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowAnswer {
    /// A row.
    Row(Row),
    /// None.
    Missing,
    /// Nobody knows: the source does not answer, and why. At most [`REASON_BYTES_MAX`].
    Down(String),
    /// One that cannot be used, and why. At most [`REASON_BYTES_MAX`].
    Wrong(String),
}

/// What a table says of a host. Columns without a value, or an empty one, are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Says to the spawner that the host has this row; of other columns another.
    pub seal: u128,
    /// Names and texts, in the order of the source; at most [`COLUMNS_MAX`], names unique.
    pub columns: Vec<(String, String)>,
    /// The uid of column `user`.
    pub uid: Option<u32>,
    /// Where it comes from.
    pub from: RowFrom,
}

/// Where a row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum RowFrom {
    Source,
    Memcached,
    Snapshot,
}

/// How a directory is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryState {
    /// Whether the source has answered the last question.
    pub is_up: bool,
    /// How long ago it has answered last.
    pub answered_ms: Option<u64>,
    /// What went wrong last, and how long ago; empty: nothing did. At most [`REASON_BYTES_MAX`].
    pub error: (String, u64),
    /// Questions that were asked.
    pub asked: u64,
    /// Of these, those that the source was asked for.
    pub source: u64,
    /// Those that memcached answered.
    pub memcached: u64,
    /// Those that the snapshot answered.
    pub snapshot: u64,
    /// Those of which there is no row.
    pub missing: u64,
    /// Rows that could not be used.
    pub wrong: u64,
    /// Questions that nothing answered.
    pub down: u64,
    /// Rows in the snapshot.
    pub rows: u64,
    /// Changes that were heard of.
    pub changes: u64,
    /// The questions that took longest of late, in microseconds; at most [`SLOWEST_MAX`].
    pub slowest: Vec<(String, u64)>,
}

impl Row {
    /// A column's text.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&str> {
        let mut columns = self.columns.iter();
        let found = columns.find(|(known, _)| known == name)?;
        Some(&found.1)
    }

    /// Whether it keeps to its bounds.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let fits = |(name, text): &(String, String)| {
            (1..=COLUMN_NAME_BYTES_MAX).contains(&name.len()) && text.len() <= COLUMN_BYTES_MAX
        };
        let columns = self.columns.iter();
        let bytes: usize = columns
            .clone()
            .map(|(name, text)| name.len() + text.len())
            .sum();
        self.columns.len() <= COLUMNS_MAX && bytes <= ROW_BYTES_MAX && columns.clone().all(fits)
    }
}

/// A message of this link.
pub trait DirectoryMessage: Serialize + DeserializeOwned {
    /// Whether its texts and lists keep to their bounds.
    fn is_bounded(&self) -> bool;

    /// Has it sent with others; says whether there was room for it.
    ///
    /// # Errors
    /// What cannot be written down, or keeps to no bounds: none of ours.
    fn put(&self, to: &mut Outgoing) -> io::Result<bool> {
        if !self.is_bounded() {
            return Err(BadMessage::new("texts without bounds").into());
        }
        to.put(self)
    }

    /// Reads a message, if one has come.
    ///
    /// # Errors
    /// When the other end has gone (`UnexpectedEof`), or says what cannot be understood.
    fn try_recv(link: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let mut packet = vec![0; 1 + BYTES_MAX];
        let (bytes, fds) = match os::fdpass::try_recv(link, &mut packet) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received?,
        };
        if fds.is_none_or(|fds| !fds.is_empty()) {
            return Err(BadMessage::new("descriptors that nobody asked for").into());
        }
        Ok(Some(Self::of_packet(
            packet.get(..bytes).unwrap_or_default(),
        )?))
    }

    /// A message out of its packet.
    ///
    /// # Errors
    /// It is none of ours.
    fn of_packet(packet: &[u8]) -> Result<Self, BadMessage> {
        let Some([os::fdpass::LAST, bytes @ ..]) =
            packet.get(..=BYTES_MAX.min(packet.len().wrapping_sub(1)))
        else {
            return Err(BadMessage::new("a message in parts"));
        };
        let message: Self = codec::decode(bytes, Vec::new())?;
        match message.is_bounded() {
            true => Ok(message),
            false => Err(BadMessage::new("texts without bounds")),
        }
    }
}

fn is_host(host: &str) -> bool {
    host.len() <= HOST_BYTES_MAX
}

fn is_reason(text: &str) -> bool {
    text.len() <= REASON_BYTES_MAX
}

impl DirectoryMessage for ToDirectory {
    fn is_bounded(&self) -> bool {
        match self {
            ToDirectory::Ask { host, .. } => is_host(host),
            ToDirectory::Forget { host, .. } => host.as_deref().is_none_or(is_host),
            ToDirectory::State { .. } => true,
        }
    }
}

impl DirectoryMessage for FromDirectory {
    fn is_bounded(&self) -> bool {
        match self {
            FromDirectory::Answer { host, answer, .. } => {
                is_host(host)
                    && match answer {
                        RowAnswer::Row(row) => row.is_bounded(),
                        RowAnswer::Missing => true,
                        RowAnswer::Down(why) | RowAnswer::Wrong(why) => is_reason(why),
                    }
            }
            FromDirectory::Changed { host, .. } => host.as_deref().is_none_or(is_host),
            FromDirectory::State { states, .. } => {
                let fits = |state: &DirectoryState| {
                    is_reason(&state.error.0)
                        && state.slowest.len() <= SLOWEST_MAX
                        && state.slowest.iter().all(|(host, _)| is_host(host))
                };
                states.len() <= STATES_MAX && states.iter().all(fits)
            }
        }
    }
}

/// What the supervisor says to the directory process, which ends with the link.
#[derive(Debug, Serialize, Deserialize)]
pub enum DirectoryOrder {
    /// By what it works, in the order of the configuration; said first, and once.
    Settings(Vec<DirectorySettings>),
    /// The store that machines share, where there is one; said next, and once.
    Fleet(FleetSettings),
    /// Tenants of written sites, which no row may name.
    Tenants(Vec<String>),
    /// The link to the server from now on.
    Link(#[serde(with = "beside")] OwnedFd),
    /// The link over which the server asks the store from now on.
    FleetLink(#[serde(with = "beside")] OwnedFd),
    /// The database that the recorder sends to, where it does.
    Archive(ArchiveSettings),
    /// The links over which the recorder does, and asks, from now on.
    ArchiveLinks {
        /// What is sent.
        #[serde(with = "beside")]
        sending: OwnedFd,
        /// What is asked.
        #[serde(with = "beside")]
        asking: OwnedFd,
    },
}

/// What a server is told of the directory process.
#[derive(Debug, Serialize, Deserialize)]
pub struct DirectoryNews {
    /// The process.
    pub life: ProcessLife,
    /// The names of the directories, in whose order it is asked for them.
    pub names: Vec<String>,
    /// The link to it, where it is another one.
    #[serde(with = "beside")]
    pub link: Option<OwnedFd>,
    /// The link for what machines share, where it is another one.
    #[serde(with = "beside")]
    pub fleet: Option<OwnedFd>,
}

impl DirectoryNews {
    /// Its descriptors.
    pub(crate) fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        self.link.iter().chain(&self.fleet)
    }
}

/// A directory as its process has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectorySettings {
    /// Its name.
    pub name: String,
    /// Where the table is.
    pub source: SourceSettings,
    /// What is asked for one host.
    pub query: String,
    /// The columns that the site of its rows uses.
    pub columns: Vec<String>,
    /// What lists everything.
    pub all: Option<String>,
    /// How changes are heard of.
    pub changes: Option<ChangesSettings>,
    /// The memcached that is asked first: `host:port` or the path of a socket.
    pub memcached: Option<String>,
    /// Whether its rows are believed without a signature.
    pub trusts_unsigned: bool,
    /// How long a row is fresh.
    pub keep_ms: u64,
    /// How long a row serves that cannot be asked for again.
    pub stale_ms: u64,
    /// The file that outlives the process.
    pub snapshot: Option<PathBuf>,
    /// How long a question may take.
    pub wait_ms: u64,
    /// The least uid of a row's `user`.
    pub uid_min: u32,
    /// Uids of the gateway's own processes and of written sites, which no row may name.
    pub own_uids: Vec<u32>,
    /// What its rows are sealed with.
    pub row_key: RowKey,
}

/// Where a table is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SourceSettings {
    Mysql(ServerSettings),
    Postgres(ServerSettings),
    Sqlite(PathBuf),
    Csv(PathBuf),
    JsonLines(PathBuf),
}

/// A server of databases, and who logs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// A host name, an address or, where `port` is none, the path of a socket.
    pub host: String,
    /// Its port.
    pub port: Option<u16>,
    /// Who logs in.
    pub user: String,
    /// The password.
    pub password: Option<String>,
    /// The database.
    pub database: String,
    /// The authorities as PEM that its certificate may come from, where it is spoken to by TLS.
    pub tls: Option<Vec<u8>>,
}

/// How changes are heard of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ChangesSettings {
    Query(String),
    Listen(String),
}

impl DirectoryOrder {
    /// Sends the message.
    ///
    /// # Errors
    /// When the process has gone or does not listen.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let fds: Vec<_> = match self {
            DirectoryOrder::Settings(_)
            | DirectoryOrder::Fleet(_)
            | DirectoryOrder::Archive(_)
            | DirectoryOrder::Tenants(_) => Vec::new(),
            DirectoryOrder::Link(fd) | DirectoryOrder::FleetLink(fd) => vec![fd.as_fd()],
            DirectoryOrder::ArchiveLinks { sending, asking } => {
                vec![sending.as_fd(), asking.as_fd()]
            }
        };
        os::fdpass::send(link, &codec::encode(self)?, &fds)
    }

    /// Receives the next message; the supervisor's end is `UnexpectedEof`.
    ///
    /// # Errors
    /// When the supervisor has gone, or says what cannot be understood.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<DirectoryOrder> {
        let (bytes, fds) = os::fdpass::recv(link, ORDER_BYTES_MAX, ORDER_DESCRIPTORS_MAX)?;
        codec::decode_passed(&bytes, fds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::mangled;

    fn row(columns: Vec<(String, String)>) -> FromDirectory {
        FromDirectory::Answer {
            id: 7,
            directory: 1,
            host: "a.example".into(),
            answer: RowAnswer::Row(Row {
                seal: 1,
                columns,
                uid: Some(1_000),
                from: RowFrom::Source,
            }),
            age_ms: 3,
        }
    }

    fn column(name: &str, bytes: usize) -> (String, String) {
        (name.into(), "x".repeat(bytes))
    }

    #[test]
    fn questions_and_answers_arrive_as_they_were_sent() {
        let (here, there) = os::fdpass::packet_pair().unwrap();
        let asked = ToDirectory::Ask {
            directory: 1,
            host: "a.example".into(),
            id: 7,
        };
        let mut outgoing = Outgoing::default();
        assert!(asked.put(&mut outgoing).unwrap());
        outgoing.send(here.as_fd()).unwrap();
        assert_eq!(ToDirectory::try_recv(there.as_fd()).unwrap(), Some(asked));
        assert_eq!(ToDirectory::try_recv(there.as_fd()).unwrap(), None);
        // The largest of each.
        let columns = (0..4).map(|at| column(&format!("column{at}"), COLUMN_BYTES_MAX - 8));
        let states = FromDirectory::State {
            id: 8,
            first: 0,
            states: vec![
                DirectoryState {
                    error: ("x".repeat(REASON_BYTES_MAX), u64::MAX),
                    slowest: vec![("x".repeat(HOST_BYTES_MAX), u64::MAX); SLOWEST_MAX],
                    ..DirectoryState::default()
                };
                STATES_MAX
            ],
        };
        for said in [row(columns.collect()), states] {
            assert!(said.put(&mut outgoing).unwrap());
            outgoing.send(there.as_fd()).unwrap();
            assert_eq!(FromDirectory::try_recv(here.as_fd()).unwrap(), Some(said));
        }
        drop(here);
        let ended = ToDirectory::try_recv(there.as_fd()).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_keeps_to_no_bounds_is_neither_sent_nor_read() {
        for said in [
            row(vec![column("a", COLUMN_BYTES_MAX + 1)]),
            row(vec![column("", 1)]),
            row(vec![column("a", COLUMN_BYTES_MAX); 5]),
            row(vec![column("a", 0); COLUMNS_MAX + 1]),
            FromDirectory::Changed {
                directory: 0,
                host: Some("x".repeat(HOST_BYTES_MAX + 1)),
            },
        ] {
            let refused = said.put(&mut Outgoing::default()).unwrap_err();
            assert!(refused.to_string().contains("bounds"), "{refused}");
            let packet = [&[os::fdpass::LAST], &*codec::encode(&said).unwrap()].concat();
            assert!(FromDirectory::of_packet(&packet).is_err());
        }
        let long = FromDirectory::of_packet(&vec![os::fdpass::LAST; BYTES_MAX + 2]);
        assert!(long.is_err());
        assert!(ToDirectory::of_packet(&[]).is_err());
    }

    #[test]
    fn mangled_messages_are_refused_or_bounded() {
        let sound = codec::encode(&row(vec![column("tenant", 3)])).unwrap();
        mangled(&sound, |bytes| {
            let packet = [&[os::fdpass::LAST], bytes].concat();
            if let Ok(said) = FromDirectory::of_packet(&packet) {
                assert!(said.is_bounded());
            }
        });
    }

    #[test]
    fn orders_arrive_as_they_were_sent() {
        let (here, there) = os::fdpass::pair().unwrap();
        let settings = DirectorySettings {
            name: "customers".into(),
            source: SourceSettings::Mysql(ServerSettings {
                host: "127.0.0.1".into(),
                port: Some(3306),
                user: "nagaya".into(),
                password: Some("secret".into()),
                database: "hosting".into(),
                tls: None,
            }),
            query: "SELECT 1".into(),
            columns: vec!["plan".into()],
            all: None,
            changes: Some(ChangesSettings::Listen("domains".into())),
            memcached: None,
            trusts_unsigned: false,
            keep_ms: 60_000,
            stale_ms: 1,
            snapshot: None,
            wait_ms: 1,
            uid_min: 1_000,
            own_uids: vec![65_534],
            row_key: RowKey::default(),
        };
        let orders = [
            DirectoryOrder::Settings(vec![settings.clone()]),
            DirectoryOrder::Tenants(vec!["own".into()]),
            DirectoryOrder::Link(os::fdpass::packet_pair().unwrap().0),
            DirectoryOrder::ArchiveLinks {
                sending: os::fdpass::packet_pair().unwrap().0,
                asking: os::fdpass::packet_pair().unwrap().0,
            },
        ];
        for order in orders {
            order.send(here.as_fd()).unwrap();
            match DirectoryOrder::recv(there.as_fd()).unwrap() {
                DirectoryOrder::Settings(heard) => assert_eq!(heard.first(), Some(&settings)),
                DirectoryOrder::Tenants(heard) => assert_eq!(heard, ["own"]),
                DirectoryOrder::Link(_)
                | DirectoryOrder::FleetLink(_)
                | DirectoryOrder::ArchiveLinks { .. }
                | DirectoryOrder::Archive(_)
                | DirectoryOrder::Fleet(_) => {}
            }
        }
    }
}
