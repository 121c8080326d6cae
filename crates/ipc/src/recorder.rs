//! What the supervisor says to the recorder, which reads rings and ends with the link; what that says: that
//! something is wrong somebody wants to be told of; and what a server is told of it.
//!
//! The idea: the recorder has fewer privileges. It says which rule has news, by its place among those it
//! was given, and numbers: nothing it says becomes a word of a command.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::codec::{self, beside, path};
use crate::server::ProcessLife;

/// Bytes of a message.
const BYTES_MAX: usize = 512 * 1024;
/// Bytes of what the recorder says.
const NEWS_BYTES_MAX: usize = 64;
/// Rings of one server: as many as there may be workers.
pub const RINGS_MAX: usize = 1_024;
/// Alerts of which a server is told that nobody was told of them.
pub const UNTOLD_MAX: usize = 20;

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
        /// The link to that server ([`crate::console`]).
        #[serde(with = "beside")]
        console: OwnedFd,
    },
    /// The links to the archive ([`crate::archive`]), from now on.
    Archive {
        /// Over which is sent what others keep as well.
        #[serde(with = "beside")]
        sending: OwnedFd,
        /// Over which is asked what others sent.
        #[serde(with = "beside")]
        asking: OwnedFd,
    },
}

/// What a server is told of the recorder.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecorderNews {
    /// The process.
    pub life: ProcessLife,
    /// What became of programs of alerts.
    pub alerts: AlertFailures,
    /// Two for each worker, as [`crate::ring`] has them; none where the server has them already.
    #[serde(with = "beside")]
    pub rings: Vec<OwnedFd>,
    /// The link to it ([`crate::console`]), where it is another one.
    #[serde(with = "beside")]
    pub console: Option<OwnedFd>,
}

/// Programs of alerts that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertFailures {
    /// How often one did.
    pub count: u64,
    /// Alerts whose program did when it was run last, at most [`UNTOLD_MAX`].
    pub untold: Vec<UntoldAlert>,
}

/// An alert of which nobody was told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UntoldAlert {
    /// Its name.
    pub alert: String,
    /// When that was, in seconds after 1970.
    pub at_s: i64,
    /// What became of its program, in a few words.
    pub why: String,
}

/// The process as operators are shown it, and what became of programs of alerts.
pub type ShownRecorder = (ProcessLife, AlertFailures);

/// What the recorder says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum FromRecorder {
    /// A rule has news.
    Alert {
        /// Its place among [`RecorderSettings::alerts`].
        rule: u32,
        /// What they are.
        news: AlertNews,
    },
}

/// What is watched, and what is too much of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlertRule {
    /// What it is called, unique.
    pub name: String,
    /// The figure.
    pub figure: String,
    /// On which side of `bound` it is bad.
    pub side: Side,
    /// Beyond it somebody wants to know.
    pub bound: f64,
    /// Back at it all is well; as good as `bound`, or better.
    pub leave: f64,
    /// Seconds for which it has to be beyond before it is told.
    pub for_s: u32,
}

/// A side of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Higher is worse.
    Above,
    /// Lower is worse.
    Below,
}

/// What is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum AlertNews {
    /// It began.
    Raised {
        /// When the figure passed its bound, seconds after 1970.
        since_s: i64,
        /// What it is.
        value: f64,
    },
    /// It is over.
    Over {
        /// When it had begun.
        since_s: i64,
        /// What it is.
        value: f64,
        /// The worst it was.
        worst: f64,
    },
}

/// By what the recorder works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// What somebody wants to be told of.
    pub alerts: Vec<AlertRule>,
    /// Whether minutes and incidents are sent elsewhere.
    pub is_sent: bool,
}

impl FromRecorder {
    /// Sends the message.
    ///
    /// # Errors
    /// When the supervisor has gone or does not listen.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        os::fdpass::send(link, &codec::encode(self)?, &[])
    }

    /// Receives the next message, if one has come; the recorder's end is `UnexpectedEof`. It waits for
    /// nothing: what does not fit one packet is none of ours.
    ///
    /// # Errors
    /// When the recorder has gone, or says what cannot be understood: a number that is none, too.
    pub fn try_recv(link: BorrowedFd<'_>) -> io::Result<Option<FromRecorder>> {
        let mut packet = [0; 1 + NEWS_BYTES_MAX];
        let (bytes, fds) = match os::fdpass::try_recv(link, &mut packet) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received?,
        };
        let Some([os::fdpass::LAST, bytes @ ..]) = packet.get(..bytes) else {
            return Err(codec::BadMessage::new("news in parts").into());
        };
        let said: FromRecorder = codec::decode_passed(bytes, fds)?;
        let FromRecorder::Alert { news, .. } = said;
        let are_numbers = match news {
            AlertNews::Raised { value, .. } => value.is_finite(),
            AlertNews::Over { value, worst, .. } => value.is_finite() && worst.is_finite(),
        };
        match are_numbers {
            true => Ok(Some(said)),
            false => Err(codec::BadMessage::new("a value that is no number").into()),
        }
    }
}

impl Side {
    /// Whether a value is worse than another.
    #[must_use]
    pub fn is_worse(self, value: f64, than: f64) -> bool {
        match self {
            Side::Above => value > than,
            Side::Below => value < than,
        }
    }

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Side::Above => "above",
            Side::Below => "below",
        }
    }
}

impl RecorderNews {
    /// Its descriptors, in the order of its fields.
    pub(crate) fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        self.rings.iter().chain(&self.console)
    }
}

impl ToRecorder {
    /// Sends the message.
    ///
    /// # Errors
    /// When the recorder has gone or does not listen.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let fds: Vec<_> = match self {
            ToRecorder::Settings(_) => Vec::new(),
            ToRecorder::Archive { sending, asking } => vec![sending.as_fd(), asking.as_fd()],
            ToRecorder::Rings { rings, console } => {
                rings.iter().chain([console]).map(AsFd::as_fd).collect()
            }
        };
        os::fdpass::send(link, &codec::encode(self)?, &fds)
    }

    /// Receives the next message; the supervisor's end is `UnexpectedEof`.
    ///
    /// # Errors
    /// When the supervisor has gone, or says what cannot be understood.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<ToRecorder> {
        let (bytes, fds) = os::fdpass::recv(link, BYTES_MAX, 2 * RINGS_MAX + 1)?;
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
            alerts: vec![AlertRule {
                name: "busy".into(),
                figure: "load1".into(),
                side: Side::Above,
                bound: 3.0,
                leave: 2.5,
                for_s: 60,
            }],
            is_sent: true,
        };
        ToRecorder::Settings(settings.clone())
            .send(here.as_fd())
            .unwrap();
        let (write, read) = os::shared::memory("test", 8).unwrap();
        ToRecorder::Rings {
            rings: vec![read, write],
            console: os::fdpass::packet_pair().unwrap().0,
        }
        .send(here.as_fd())
        .unwrap();
        drop(here);
        match ToRecorder::recv(there.as_fd()).unwrap() {
            ToRecorder::Settings(heard) => assert_eq!(heard, settings),
            other => panic!("{other:?}"),
        }
        match ToRecorder::recv(there.as_fd()).unwrap() {
            ToRecorder::Rings { rings, .. } => assert_eq!(rings.len(), 2),
            other => panic!("{other:?}"),
        }
        let ended = ToRecorder::recv(there.as_fd()).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn news_arrive_and_what_is_no_number_is_refused() {
        let heard = |news| {
            let (here, there) = os::fdpass::pair().unwrap();
            let said = FromRecorder::Alert { rule: 3, news };
            said.send(here.as_fd()).unwrap();
            assert_eq!(FromRecorder::try_recv(here.as_fd()).unwrap(), None);
            FromRecorder::try_recv(there.as_fd()).map(|heard| heard == Some(said))
        };
        let (since_s, value) = (i64::MIN, 0.1);
        assert!(heard(AlertNews::Raised { since_s, value }).unwrap());
        for worst in [f64::NAN, f64::INFINITY] {
            let news = AlertNews::Over {
                since_s,
                value,
                worst,
            };
            assert!(heard(news).unwrap_err().to_string().contains("no number"));
        }
    }

    #[test]
    fn news_without_end_are_refused_and_not_waited_for() {
        let (here, there) = os::fdpass::pair().unwrap();
        let more = [1];
        os::fdpass::try_send(here.as_fd(), &more, &[]).unwrap();
        let refused = FromRecorder::try_recv(there.as_fd()).unwrap_err();
        assert!(refused.to_string().contains("in parts"), "{refused}");
    }

    #[test]
    fn mangled_news_are_refused_or_numbers() {
        let said = FromRecorder::Alert {
            rule: 3,
            news: AlertNews::Over {
                since_s: 1,
                value: 2.0,
                worst: 3.0,
            },
        };
        crate::codec::tests::mangled(&codec::encode(&said).unwrap(), |bytes| {
            if bytes.is_empty() {
                return;
            }
            let (here, there) = os::fdpass::pair().unwrap();
            os::fdpass::send(here.as_fd(), bytes, &[]).unwrap();
            if let Ok(Some(said)) = FromRecorder::try_recv(there.as_fd()) {
                let FromRecorder::Alert { news, .. } = said;
                let (AlertNews::Raised { value, .. } | AlertNews::Over { value, .. }) = news;
                assert!(value.is_finite());
            }
        });
    }
}
