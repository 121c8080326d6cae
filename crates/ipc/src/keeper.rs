//! What supervisor and keeper say to each other.
//!
//! The idea: the supervisor hands over files unread and hears what is in them ([`ToKeeper`],
//! [`FromKeeper`]). What a server asks the keeper, over links that the supervisor hands both of
//! them, is in [`signing`](crate::signing). Both ends take the other's word for hostile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::certificates::{
    Blob, CHAIN_MAX, DER_BYTES_MAX, KeyId, KeyKind, NAME_BYTES_MAX, NAMES_MAX, TEXT_BYTES_MAX,
};
use crate::codec::{self, BadMessage, beside};
use crate::message::Message;

/// Descriptors in one message to the keeper: links of a server.
pub const TO_KEEPER_FDS_MAX: usize = 1_024;
/// Files in one batch.
pub const BATCH_MAX: usize = 256;
/// Bytes of all files of a batch, unless it is one alone.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes of a file with a chain, or with a chain and its key.
pub const CHAIN_FILE_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a file with a key.
pub const KEY_FILE_BYTES_MAX: usize = 64 * 1024;

/// What the supervisor says to the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToKeeper {
    /// Work by these; not answered.
    Settings(Settings),
    /// Look at these files, and keep their keys; answered by `Judged`.
    Judge {
        /// At most [`BATCH_MAX`].
        candidates: Vec<Candidate>,
    },
    /// Forget every key but these; not answered.
    Keep {
        /// The keys of the sets that may still be asked for.
        keys: Vec<KeyId>,
    },
    /// Answer a server at these links; not answered.
    Links {
        /// The keeper's ends.
        #[serde(with = "beside")]
        links: Vec<OwnedFd>,
    },
    /// Make a key, and a request for a certificate of these names; answered by `Requested`.
    Request {
        /// What the key is to be.
        kind: KeyKind,
        /// The names, each of the plan.
        names: Vec<String>,
    },
    /// Make a key, and the certificate that answers TLS-ALPN-01 (RFC 8737) with it; answered by
    /// `Challenge`.
    Challenge {
        /// The name that is validated.
        name: String,
        /// SHA-256 of the key authorization.
        digest: [u8; 32],
    },
    /// Make a certificate for development; answered by `Local`.
    Local {
        /// The authority's certificate and key in PEM; empty: make one.
        authority: Blob,
        /// The names.
        names: Vec<String>,
    },
    /// As `Judge`, of what a script wants shown: its key is one of those that scripts may have in
    /// all, and none that is planned becomes another by it.
    JudgeScripted {
        /// It.
        candidate: Candidate,
    },
}

/// By what the keeper works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How long a ticket key is the current one, in seconds.
    pub tickets_rotate_s: u64,
    /// How many before it are still accepted.
    pub tickets_before: u8,
    /// What ticket keys are derived from; empty: made by chance.
    pub ticket_secret: Blob,
}

/// Files that should be a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// How the file with the chain is called where something is said of it.
    pub chain_file: String,
    /// As `chain_file`, for the key: the same where one file has both.
    pub key_file: String,
    /// What stands in the file with the chain.
    pub chain: Blob,
    /// What stands in the file with the key; empty where that is the same one.
    pub key: Blob,
    /// To whom the certificate is shown: its key signs nothing else.
    pub shown_to: ShownTo,
}

/// To whom a certificate is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShownTo {
    /// Clients: its key signs as a server.
    Clients,
    /// The servers of an upstream: its key signs as a client.
    Servers,
}

/// What the keeper says to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromKeeper {
    /// What the files are, in their order.
    Judged {
        /// For each a certificate, or what is wrong and what to do.
        verdicts: Vec<Result<Judged, String>>,
    },
    /// A key was made.
    Requested {
        /// The request, and the key in PEM for the store; or why there is none.
        result: Result<Request, String>,
    },
    /// A certificate for a challenge.
    Challenge {
        /// It, or why there is none. Its key is forgotten by the next `Keep` without it.
        result: Result<Judged, String>,
    },
    /// A certificate for development.
    Local {
        /// It, or why there is none.
        result: Result<Local, String>,
    },
}

/// A certificate as the keeper found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// As in `certificates::Certificate`.
    pub names: Vec<String>,
    /// From when it is valid: seconds since 1970.
    pub not_before_s: i64,
    /// Until when.
    pub not_after_s: i64,
    /// What its key is.
    pub kind: KeyKind,
    /// The key's number.
    pub key: KeyId,
    /// DER, leaf first.
    pub chain: Vec<Blob>,
}

/// A request for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The request (RFC 2986) in DER: for the authority.
    pub request: Blob,
    /// The key in PEM: for the store, and for nobody else.
    pub key: Blob,
}

/// A certificate for development.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// It.
    pub certificate: Judged,
    /// The authority in PEM, certificate and key, where it was made for this.
    pub authority: Option<Blob>,
}

impl Message for ToKeeper {
    /// A batch of files.
    const BYTES_MAX: usize = 16 << 20;
    const FDS_MAX: usize = TO_KEEPER_FDS_MAX;

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            ToKeeper::Links { links } => links.iter().map(AsFd::as_fd).collect(),
            _ => Vec::new(),
        }
    }

    fn bound(&mut self) -> Result<(), BadMessage> {
        match self {
            ToKeeper::Judge { candidates } if candidates.len() > BATCH_MAX => {
                Err(BadMessage::new("more files than a batch has"))
            }
            _ => Ok(()),
        }
    }
}

impl Message for FromKeeper {
    const BYTES_MAX: usize = 64 << 20;

    fn bound(&mut self) -> Result<(), BadMessage> {
        let judged = |result: &mut Result<Judged, String>| match result {
            Ok(judged) => judged.is_bounded(),
            Err(text) => cut(text),
        };
        let is_bounded = match self {
            FromKeeper::Judged { verdicts } => {
                verdicts.len() <= BATCH_MAX && verdicts.iter_mut().all(judged)
            }
            FromKeeper::Challenge { result } => judged(result),
            FromKeeper::Requested { result } => match result {
                Ok(made) => made.request.0.len().max(made.key.0.len()) <= DER_BYTES_MAX,
                Err(text) => cut(text),
            },
            FromKeeper::Local { result } => match result {
                Ok(local) => {
                    let authority = local.authority.as_ref().map_or(0, |pem| pem.0.len());
                    local.certificate.is_bounded() && authority <= DER_BYTES_MAX
                }
                Err(text) => cut(text),
            },
        };
        is_bounded
            .then_some(())
            .ok_or_else(|| BadMessage::new("larger than a certificate is"))
    }
}

fn cut(text: &mut String) -> bool {
    codec::cut(text, TEXT_BYTES_MAX);
    true
}

impl Judged {
    fn is_bounded(&self) -> bool {
        let is_name = |name: &String| name.len() <= NAME_BYTES_MAX;
        let is_der = |der: &Blob| der.0.len() <= DER_BYTES_MAX;
        (1..=CHAIN_MAX).contains(&self.chain.len())
            && self.chain.iter().all(is_der)
            && self.names.len() <= NAMES_MAX
            && self.names.iter().all(is_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged() -> Judged {
        Judged {
            names: vec!["a.example".into()],
            not_before_s: -1,
            not_after_s: i64::MAX,
            kind: KeyKind::P256,
            key: KeyId(1),
            chain: vec![Blob::from(*b"leaf"), Blob::from(*b"authority")],
        }
    }

    fn to_keeper() -> Vec<ToKeeper> {
        let candidate = Candidate {
            chain_file: "a.pem".into(),
            key_file: "a.key".into(),
            chain: Blob::from(*b"chain"),
            key: Blob::from(*b"key"),
            shown_to: ShownTo::Servers,
        };
        vec![
            ToKeeper::Settings(Settings {
                tickets_rotate_s: 8,
                tickets_before: 2,
                ticket_secret: Blob::from(*b"secret"),
            }),
            ToKeeper::Judge {
                candidates: vec![candidate],
            },
            ToKeeper::Keep {
                keys: vec![KeyId(1), KeyId(u32::MAX)],
            },
            ToKeeper::Request {
                kind: KeyKind::P384,
                names: vec!["a.example".into()],
            },
            ToKeeper::Challenge {
                name: "a.example".into(),
                digest: [1; 32],
            },
            ToKeeper::Local {
                authority: Blob::default(),
                names: vec!["localhost".into()],
            },
            ToKeeper::JudgeScripted {
                candidate: Candidate {
                    chain_file: "a.pem".into(),
                    key_file: "a.pem".into(),
                    chain: Blob::from(*b"both"),
                    key: Blob::default(),
                    shown_to: ShownTo::Clients,
                },
            },
        ]
    }

    fn from_keeper() -> Vec<FromKeeper> {
        let no = || "no".to_owned();
        vec![
            FromKeeper::Judged {
                verdicts: vec![Ok(judged()), Err(no())],
            },
            FromKeeper::Requested {
                result: Ok(Request {
                    request: Blob::from(*b"request"),
                    key: Blob::from(*b"key"),
                }),
            },
            FromKeeper::Challenge { result: Err(no()) },
            FromKeeper::Local {
                result: Ok(Local {
                    certificate: judged(),
                    authority: Some(Blob::from(*b"pem")),
                }),
            },
        ]
    }

    #[test]
    fn what_supervisor_and_keeper_say_arrives() {
        let (here, there) = os::fdpass::pair().unwrap();
        for message in to_keeper() {
            message.send(here.as_fd()).unwrap();
            let arrived = ToKeeper::recv(there.as_fd()).unwrap();
            assert_eq!(
                codec::encode(&arrived).unwrap(),
                codec::encode(&message).unwrap()
            );
        }
        for message in from_keeper() {
            message.send(there.as_fd()).unwrap();
            assert_eq!(FromKeeper::recv(here.as_fd()).unwrap(), message);
        }
        let (one, _other) = os::fdpass::packet_pair().unwrap();
        ToKeeper::Links { links: vec![one] }
            .send(here.as_fd())
            .unwrap();
        let links = ToKeeper::recv(there.as_fd()).unwrap();
        assert!(matches!(links, ToKeeper::Links { links } if links.len() == 1));
    }

    #[test]
    fn a_certificate_larger_than_any_is_refused_and_texts_are_cut() {
        let grown: [fn(&mut Judged); 4] = [
            |it| it.chain.clear(),
            |it| it.chain = vec![Blob::default(); CHAIN_MAX + 1],
            |it| it.chain = vec![Blob::from(vec![0; DER_BYTES_MAX + 1])],
            |it| it.names = vec!["a".repeat(NAME_BYTES_MAX + 1)],
        ];
        for grow in grown {
            let mut judged = judged();
            grow(&mut judged);
            let mut message = FromKeeper::Challenge { result: Ok(judged) };
            assert!(message.bound().is_err());
        }
        let mut message = FromKeeper::Judged {
            verdicts: vec![Err("遅".repeat(100_000))],
        };
        message.bound().unwrap();
        let FromKeeper::Judged { verdicts } = &message else {
            unreachable!();
        };
        assert!(matches!(&verdicts[0], Err(text) if text.len() <= TEXT_BYTES_MAX));
    }

    #[test]
    fn secrets_are_never_shown() {
        let [_, judge, ..] = &to_keeper()[..] else {
            unreachable!();
        };
        assert!(format!("{judge:?}").contains("key: Blob(3 bytes)"));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
        let to_keeper = to_keeper();
        let from_keeper = from_keeper();
        let to = to_keeper.iter().map(codec::encode);
        let messages = to.chain(from_keeper.iter().map(codec::encode));
        for sound in messages {
            crate::codec::tests::mangled(&sound.unwrap(), |bytes| {
                let _ = codec::decode::<ToKeeper>(bytes, Vec::new());
                let said = codec::decode::<FromKeeper>(bytes, Vec::new());
                let _ = said.map(|mut said| said.bound());
            });
        }
    }
}
