//! What the supervisor says to the recorder, which answers nothing: it reads rings, and ends with the link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::codec::{self, beside, path};

/// Bytes of a message.
const BYTES_MAX: usize = 64 * 1024;
/// Rings of one server: as many as there may be workers.
pub const RINGS_MAX: usize = 1_024;

/// What the supervisor says.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToRecorder {
    /// By what it works; said first, and once.
    Settings(RecorderSettings),
    /// The rings of the server from now on. What the ones before still hold is read first.
    Rings {
        /// For each worker its ring, to be read, and the page that says how far it was, to be written.
        #[serde(with = "beside")]
        rings: Vec<OwnedFd>,
    },
}

/// By what the recorder works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecorderSettings {
    /// Where figures are kept.
    #[serde(with = "path")]
    pub directory: PathBuf,
    /// How long a salt holds: `day`, `week` or `month`.
    pub salt: String,
    /// The zone whose days are counted, as the tz database calls it; `None` is the machine's.
    pub zone: Option<String>,
    /// Pairs of a text that referrers may contain and the name they count under then.
    pub groups: Vec<(String, String)>,
    /// How much it gives way to others.
    pub nice: i32,
}

impl ToRecorder {
    /// Sends the message.
    ///
    /// # Errors
    /// When the recorder has gone or does not listen.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let fds: Vec<_> = match self {
            ToRecorder::Settings(_) => Vec::new(),
            ToRecorder::Rings { rings } => rings.iter().map(AsFd::as_fd).collect(),
        };
        os::fdpass::send(link, &codec::encode(self)?, &fds)
    }

    /// Receives the next message; the supervisor's end is `UnexpectedEof`.
    ///
    /// # Errors
    /// When the supervisor has gone, or says what cannot be understood.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<ToRecorder> {
        let (bytes, fds) = os::fdpass::recv(link, BYTES_MAX, 2 * RINGS_MAX)?;
        codec::decode_passed(&bytes, fds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_rings_arrive_as_they_were_sent() {
        let (here, there) = os::fdpass::pair().unwrap();
        let settings = RecorderSettings {
            directory: "/var/lib/figures".into(),
            salt: "week".into(),
            zone: Some("Asia/Tokyo".into()),
            groups: vec![("a".into(), "b".into())],
            nice: 10,
        };
        ToRecorder::Settings(settings.clone())
            .send(here.as_fd())
            .unwrap();
        let (write, read) = os::shared::memory("test", 8).unwrap();
        ToRecorder::Rings {
            rings: vec![read, write],
        }
        .send(here.as_fd())
        .unwrap();
        drop(here);
        match ToRecorder::recv(there.as_fd()).unwrap() {
            ToRecorder::Settings(heard) => assert_eq!(heard, settings),
            other => panic!("{other:?}"),
        }
        match ToRecorder::recv(there.as_fd()).unwrap() {
            ToRecorder::Rings { rings } => assert_eq!(rings.len(), 2),
            other => panic!("{other:?}"),
        }
        let ended = ToRecorder::recv(there.as_fd()).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }
}
