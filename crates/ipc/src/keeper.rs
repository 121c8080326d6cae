//! What supervisor and keeper say to each other, and what the server asks the keeper.
//!
//! The idea: the supervisor hands over files unread and hears what is in them ([`ToKeeper`],
//! [`FromKeeper`]); the server asks over links of its own, one question and one answer at a time
//! ([`KeeperLink`]). It names a key by its number and never says what is to be signed, only the
//! parts of which the keeper makes the one message that TLS signs ([`Sign`]); parts of any other
//! shape are no question. Both ends take the other's word for hostile.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::certificates::{
    Blob, CHAIN_MAX, DER_BYTES_MAX, KeyId, KeyKind, NAME_BYTES_MAX, NAMES_MAX, TEXT_BYTES_MAX,
};
use crate::codec::{self, BadMessage, beside};

/// Bytes in one message to the keeper: a batch of files.
pub const TO_KEEPER_BYTES_MAX: usize = 16 << 20;
/// Descriptors in one message to the keeper: links of a server.
pub const TO_KEEPER_FDS_MAX: usize = 1_024;
/// Bytes in one message of the keeper to the supervisor.
pub const FROM_KEEPER_BYTES_MAX: usize = 64 << 20;
/// Files in one batch.
pub const BATCH_MAX: usize = 256;
/// Bytes of all files of a batch, unless it is one alone.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes of a file with a chain, or with a chain and its key.
pub const CHAIN_FILE_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a file with a key.
pub const KEY_FILE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a question of the server's, and of an answer.
pub const QUESTION_BYTES_MAX: usize = 512;
/// Bytes of an answer to the server.
pub const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a signature: RSA of 16,384 bits.
const SIGNATURE_BYTES_MAX: usize = 2_048;
/// Generations of ticket keys that are told at once.
pub const TICKET_KEYS_MAX: usize = 16;

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
}

/// By what the keeper works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How long a ticket key is the current one, in seconds.
    pub tickets_rotate_s: u64,
    /// How many before it are still accepted.
    pub tickets_before: u8,
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

impl ToKeeper {
    /// Sends the message.
    ///
    /// # Errors
    /// When the keeper has gone or does not listen.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let fds: Vec<_> = match self {
            ToKeeper::Links { links } => links.iter().map(AsFd::as_fd).collect(),
            _ => Vec::new(),
        };
        os::fdpass::send(link, &codec::encode(self)?, &fds)
    }

    /// Receives the next message; the supervisor's end is `UnexpectedEof`.
    ///
    /// # Errors
    /// When the supervisor has gone, or says what cannot be understood.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<ToKeeper> {
        let (bytes, fds) = os::fdpass::recv(link, TO_KEEPER_BYTES_MAX, TO_KEEPER_FDS_MAX)?;
        let message = codec::decode_passed(&bytes, fds)?;
        match &message {
            ToKeeper::Judge { candidates } if candidates.len() > BATCH_MAX => {
                Err(BadMessage::new("more files than a batch has").into())
            }
            _ => Ok(message),
        }
    }
}

impl FromKeeper {
    /// Sends the message.
    ///
    /// # Errors
    /// When the supervisor has gone.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        os::fdpass::send(link, &codec::encode(self)?, &[])
    }

    /// Receives the next message; the keeper's end is `UnexpectedEof`.
    ///
    /// # Errors
    /// When the keeper has gone, or says what cannot be understood.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<FromKeeper> {
        let (bytes, fds) = os::fdpass::recv(link, FROM_KEEPER_BYTES_MAX, 0)?;
        let mut message = codec::decode_passed(&bytes, fds)?;
        FromKeeper::bound(&mut message)?;
        Ok(message)
    }

    /// Refuses what is larger than it may be, and cuts texts.
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

/// What the server asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its number, which the answer has, too.
    pub number: u32,
    /// What is asked.
    pub what: Asked,
}

/// What the server wants to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    /// A signature.
    Sign(Sign),
    /// The keys of tickets under a policy.
    TicketKeys {
        /// A hash of what the policy says.
        policy: [u8; 32],
    },
}

/// Of what the keeper makes a message, and with what it signs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sign {
    /// The key.
    pub key: KeyId,
    /// The scheme, as TLS numbers it (RFC 8446, 4.2.3).
    pub scheme: u16,
    /// What is signed.
    pub parts: Parts,
}

/// What of a signed message is not the same in all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parts {
    /// Of a server's `CertificateVerify` in TLS 1.3 (RFC 8446, 4.4.3).
    Tls13 {
        /// The hash of the handshake so far: 32 or 48 bytes.
        transcript: Vec<u8>,
    },
    /// Of a `ServerKeyExchange` in TLS 1.2 (RFC 8422, 5.4).
    Tls12 {
        /// What the client made up.
        client_random: [u8; 32],
        /// What the server made up.
        server_random: [u8; 32],
        /// `ServerECDHParams`: a named curve and a point on it.
        params: Vec<u8>,
    },
}

/// What stands before the transcript's hash in what a server signs in TLS 1.3.
const CONTEXT: &[u8; 34] = b"TLS 1.3, server CertificateVerify\0";
/// How many spaces stand before that.
const SPACES: usize = 64;
/// A named curve follows (RFC 8422, 5.4).
const NAMED_CURVE: u8 = 3;
/// Curves, and the bytes of a point on each: X25519, P-256, P-384.
const CURVES: [([u8; 2], u8); 3] = [([0, 29], 32), ([0, 23], 65), ([0, 24], 97)];

impl Parts {
    /// The parts of a message that TLS has signed; `None` for any other.
    #[must_use]
    pub fn of_message(message: &[u8]) -> Option<Parts> {
        let rest = message.strip_prefix(&[b' '; SPACES]);
        let parts = match rest.and_then(|rest| rest.strip_prefix(CONTEXT)) {
            Some(transcript) => Parts::Tls13 {
                transcript: transcript.to_vec(),
            },
            None => {
                let (client_random, rest) = message.split_first_chunk()?;
                let (server_random, params) = rest.split_first_chunk()?;
                Parts::Tls12 {
                    client_random: *client_random,
                    server_random: *server_random,
                    params: params.to_vec(),
                }
            }
        };
        parts.message().is_some().then_some(parts)
    }

    /// The message that these are parts of; `None` where they are of another shape.
    #[must_use]
    pub fn message(&self) -> Option<Vec<u8>> {
        match self {
            Parts::Tls13 { transcript } => {
                let is_hash = matches!(transcript.len(), 32 | 48);
                is_hash.then(|| [&[b' '; SPACES][..], CONTEXT, transcript].concat())
            }
            Parts::Tls12 {
                client_random,
                server_random,
                params,
            } => is_point(params).then(|| [client_random, server_random, &params[..]].concat()),
        }
    }
}

/// Whether these are parameters of a key exchange over a curve.
fn is_point(params: &[u8]) -> bool {
    let [NAMED_CURVE, high, low, bytes, point @ ..] = params else {
        return false;
    };
    let is_curve = CURVES.contains(&([*high, *low], *bytes));
    // Points on the curves of NIST are written uncompressed.
    let is_written = *bytes == 32 || point.first() == Some(&4);
    is_curve && point.len() == usize::from(*bytes) && is_written
}

impl Question {
    /// The question that a packet is.
    ///
    /// # Errors
    /// A packet that is none: whoever sent it is not to be answered any more.
    pub fn decode(bytes: &[u8]) -> Result<Question, BadMessage> {
        if bytes.len() > QUESTION_BYTES_MAX {
            return Err(BadMessage::new("larger than a question is"));
        }
        let question: Question = codec::decode(bytes, Vec::new())?;
        match &question.what {
            Asked::Sign(sign) if sign.parts.message().is_none() => {
                Err(BadMessage::new("nothing that TLS signs"))
            }
            _ => Ok(question),
        }
    }

    /// Receives the next one; says `WouldBlock` where there is none.
    ///
    /// # Errors
    /// `UnexpectedEof` when the server has gone, `InvalidData` for what is no question.
    pub fn try_recv(link: BorrowedFd<'_>) -> io::Result<Question> {
        let mut buffer = [0; QUESTION_BYTES_MAX];
        let (bytes, fds) = os::fdpass::try_recv(link, &mut buffer)?;
        if fds.is_none_or(|fds| !fds.is_empty()) {
            return Err(BadMessage::new("descriptors beside a question").into());
        }
        Ok(Question::decode(buffer.get(..bytes).unwrap_or_default())?)
    }
}

/// What the keeper answers.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The signature.
    Signature {
        /// As TLS has it.
        bytes: Vec<u8>,
        /// What making it took of a processor, in microseconds.
        cpu_us: u32,
    },
    /// Keys of tickets, the current one first.
    TicketKeys(Vec<TicketKey>),
    /// There is none.
    Refused(Refusal),
}

/// Why the keeper does not do what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// It has no such key.
    UnknownKey,
    /// The key does not sign by this scheme, or not in this version of TLS.
    Scheme,
    /// The key has signed as often as one may in a second.
    KeyCap,
    /// All keys together have.
    Cap,
    /// The key cannot sign: it is broken.
    Failed,
}

impl Refusal {
    /// Its word, in logs and metrics: stable.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Refusal::UnknownKey => "unknown_key",
            Refusal::Scheme => "scheme",
            Refusal::KeyCap => "key_cap",
            Refusal::Cap => "cap",
            Refusal::Failed => "failed",
        }
    }
}

/// A key for tickets under one policy.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKey {
    /// What names it in a ticket.
    pub name: [u8; 16],
    /// The key.
    pub secret: [u8; 32],
    /// Until when it is the current one: seconds since 1970. From then on ask again.
    pub issues_until_s: u64,
    /// Until when its tickets are accepted.
    pub accepted_until_s: u64,
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketKey(accepted until {})", self.accepted_until_s)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Signature { bytes, .. } => write!(f, "Signature({} bytes)", bytes.len()),
            Answer::TicketKeys(keys) => f.debug_tuple("TicketKeys").field(keys).finish(),
            Answer::Refused(refusal) => f.debug_tuple("Refused").field(refusal).finish(),
        }
    }
}

/// An answer on its way.
#[derive(Serialize, Deserialize)]
struct Numbered {
    number: u32,
    answer: Answer,
}

impl Answer {
    /// Sends it as the answer to a question of this number, or says `WouldBlock`.
    ///
    /// # Errors
    /// When the server has gone, or does not take its answers.
    pub fn try_send(self, number: u32, link: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = codec::encode(&Numbered {
            number,
            answer: self,
        })?;
        os::fdpass::try_send(link, &bytes, &[])
    }

    /// The answer that a packet is, and its number.
    ///
    /// # Errors
    /// A packet that is none.
    pub fn decode(bytes: &[u8]) -> Result<(u32, Answer), BadMessage> {
        let Numbered { number, answer } = codec::decode(bytes, Vec::new())?;
        let is_bounded = match &answer {
            Answer::Signature { bytes, .. } => bytes.len() <= SIGNATURE_BYTES_MAX,
            Answer::TicketKeys(keys) => (1..=TICKET_KEYS_MAX).contains(&keys.len()),
            Answer::Refused(_) => true,
        };
        is_bounded
            .then_some((number, answer))
            .ok_or_else(|| BadMessage::new("larger than an answer is"))
    }
}

/// The server's end of a link to the keeper, for one thread that may wait.
#[derive(Debug)]
pub struct KeeperLink {
    link: OwnedFd,
    asked: u32,
}

impl KeeperLink {
    /// Asks over `link`, one end of `os::fdpass::packet_pair`.
    #[must_use]
    pub fn new(link: OwnedFd) -> KeeperLink {
        KeeperLink { link, asked: 0 }
    }

    /// Asks, and waits for the answer. What comes late, to a question that was given up, is
    /// passed over by the next.
    ///
    /// # Errors
    /// `TimedOut` after `patience`; anything else means that this keeper does not answer any more.
    pub fn ask(&mut self, what: Asked, patience: Duration) -> io::Result<Answer> {
        self.asked = self.asked.wrapping_add(1);
        let number = self.asked;
        let question = codec::encode(&Question { number, what })?;
        let link = self.link.as_fd();
        // One question at a time: there is room unless nobody reads.
        os::fdpass::try_send(link, &question, &[])?;
        let until = Instant::now() + patience;
        let mut buffer = [0; ANSWER_BYTES_MAX];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || os::net::wait_readable(&[link], Some(left))? != [true] {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (bytes, _) = match os::fdpass::try_recv(link, &mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                received => received?,
            };
            let (of, answer) = Answer::decode(buffer.get(..bytes).unwrap_or_default())?;
            if of == number {
                return Ok(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls13() -> Parts {
        Parts::Tls13 {
            transcript: vec![7; 32],
        }
    }

    fn tls12(params: &[u8]) -> Parts {
        Parts::Tls12 {
            client_random: [1; 32],
            server_random: [2; 32],
            params: params.to_vec(),
        }
    }

    fn x25519() -> Vec<u8> {
        [&[3, 0, 29, 32][..], &[9; 32]].concat()
    }

    fn sign(parts: Parts) -> Asked {
        Asked::Sign(Sign {
            key: KeyId(5),
            scheme: 0x0403,
            parts,
        })
    }

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

    fn signature(bytes: Vec<u8>) -> Answer {
        Answer::Signature { bytes, cpu_us: 9 }
    }

    fn ticket_key() -> TicketKey {
        TicketKey {
            name: [3; 16],
            secret: [4; 32],
            issues_until_s: 5,
            accepted_until_s: 6,
        }
    }

    fn to_keeper() -> Vec<ToKeeper> {
        let candidate = Candidate {
            chain_file: "a.pem".into(),
            key_file: "a.key".into(),
            chain: Blob::from(*b"chain"),
            key: Blob::from(*b"key"),
        };
        vec![
            ToKeeper::Settings(Settings {
                tickets_rotate_s: 8,
                tickets_before: 2,
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
    fn questions_get_their_answers_and_late_ones_are_passed_over() {
        let (server, keeper) = os::fdpass::packet_pair().unwrap();
        let mut link = KeeperLink::new(server);
        let nobody = link.ask(sign(tls13()), Duration::from_millis(1));
        assert_eq!(nobody.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let answers = std::thread::spawn(move || {
            let mut numbers = Vec::new();
            while numbers.len() < 2 {
                os::net::wait_readable(&[keeper.as_fd()], None).unwrap();
                let question = Question::try_recv(keeper.as_fd()).unwrap();
                let said = vec![u8::try_from(question.number).unwrap(); 3];
                signature(said)
                    .try_send(question.number, keeper.as_fd())
                    .unwrap();
                numbers.push(question.number);
            }
            numbers
        });
        let answer = link.ask(sign(tls12(&x25519())), Duration::from_secs(10));
        assert_eq!(answer.unwrap(), signature(vec![2; 3]));
        assert_eq!(answers.join().unwrap(), [1, 2]);
        let gone = link.ask(sign(tls13()), Duration::from_secs(10));
        assert_ne!(gone.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_message_becomes_its_parts_and_they_become_the_message() {
        let tls13_of = |hash: usize| [&[b' '; 64][..], CONTEXT, &vec![7; hash]].concat();
        let tls12_of = |params: &[u8]| [&[1; 32][..], &[2; 32], params].concat();
        let p256 = [&[3, 0, 23, 65, 4][..], &[9; 64]].concat();
        let p384 = [&[3, 0, 24, 97, 4][..], &[9; 96]].concat();
        for message in [
            tls13_of(32),
            tls13_of(48),
            tls12_of(&x25519()),
            tls12_of(&p256),
            tls12_of(&p384),
        ] {
            let parts = Parts::of_message(&message).unwrap();
            assert_eq!(parts.message().unwrap(), message);
        }
        let client = b"TLS 1.3, client CertificateVerify\0";
        for (other, message) in [
            ("no hash", tls13_of(0)),
            ("a hash of another length", tls13_of(64)),
            (
                "a client's signature",
                [&[b' '; 64][..], client, &[7; 32]].concat(),
            ),
            ("63 spaces", tls13_of(32).split_off(1)),
            ("a curve of the client's making", tls12_of(&[1, 0, 29, 32])),
            ("no point", tls12_of(&[3, 0, 29, 0])),
            ("a point too short", tls12_of(&x25519()[..35])),
            (
                "something behind it",
                tls12_of(&[&x25519()[..], &[0]].concat()),
            ),
            ("a compressed point", {
                let mut p256 = p256;
                p256[4] = 2;
                tls12_of(&p256)
            }),
            (
                "another curve",
                tls12_of(&[&[3, 0, 25, 65, 4][..], &[9; 64]].concat()),
            ),
            ("randoms alone", tls12_of(&[])),
            ("any 32 bytes", vec![0; 32]),
            ("nothing", Vec::new()),
        ] {
            assert_eq!(Parts::of_message(&message), None, "{other}");
        }
    }

    #[test]
    fn what_tls_does_not_sign_is_no_question() {
        for parts in [
            Parts::Tls13 {
                transcript: vec![0; 33],
            },
            tls12(&[]),
            tls12(&[0x30; 100]),
        ] {
            let question = Question {
                number: 1,
                what: sign(parts.clone()),
            };
            let bytes = codec::encode(&question).unwrap();
            assert!(Question::decode(&bytes).is_err(), "{parts:?}");
        }
    }

    #[test]
    fn the_largest_question_passes() {
        let p384 = [&[3, 0, 24, 97, 4][..], &[9; 96]].concat();
        let question = Question {
            number: u32::MAX,
            what: sign(tls12(&p384)),
        };
        let bytes = codec::encode(&question).unwrap();
        assert_eq!(Question::decode(&bytes).unwrap(), question);
        let padded = [bytes, vec![0; QUESTION_BYTES_MAX]].concat();
        assert!(Question::decode(&padded).is_err());
    }

    #[test]
    fn answers_larger_than_any_are_refused() {
        let decoded = |answer| {
            let bytes = codec::encode(&Numbered { number: 1, answer }).unwrap();
            Answer::decode(&bytes)
        };
        assert!(decoded(signature(vec![0; SIGNATURE_BYTES_MAX])).is_ok());
        assert!(decoded(signature(vec![0; SIGNATURE_BYTES_MAX + 1])).is_err());
        assert!(decoded(Answer::TicketKeys(vec![ticket_key(); TICKET_KEYS_MAX])).is_ok());
        assert!(decoded(Answer::TicketKeys(vec![ticket_key(); TICKET_KEYS_MAX + 1])).is_err());
        assert!(decoded(Answer::TicketKeys(Vec::new())).is_err());
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
        let shown = format!("{:?}", Answer::TicketKeys(vec![ticket_key()]));
        assert_eq!(shown, "TicketKeys([TicketKey(accepted until 6)])");
        let shown = format!("{:?}", signature(vec![1, 2]));
        assert_eq!(shown, "Signature(2 bytes)");
        let [_, judge, ..] = &to_keeper()[..] else {
            unreachable!();
        };
        assert!(format!("{judge:?}").contains("key: Blob(3 bytes)"));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
        let question = Question {
            number: 3,
            what: sign(tls12(&x25519())),
        };
        let answer = Numbered {
            number: 3,
            answer: Answer::TicketKeys(vec![ticket_key(); 2]),
        };
        let mut messages = vec![
            codec::encode(&question).unwrap(),
            codec::encode(&answer).unwrap(),
        ];
        messages.extend(to_keeper().iter().map(|it| codec::encode(it).unwrap()));
        messages.extend(from_keeper().iter().map(|it| codec::encode(it).unwrap()));
        let decode = |bytes: &[u8]| {
            let _ = Question::decode(bytes);
            let _ = Answer::decode(bytes);
            let _ = codec::decode::<ToKeeper>(bytes, Vec::new());
            let said = codec::decode::<FromKeeper>(bytes, Vec::new());
            let _ = said.map(|mut said| said.bound());
        };
        for sound in messages {
            for at in 0..sound.len() {
                decode(&sound[..at]);
                for value in [0, 1, 2, 3, 0x7f, 0x80, 0xff] {
                    let mut bytes = sound.clone();
                    bytes[at] = value;
                    decode(&bytes);
                }
            }
        }
    }
}
