//! What a server asks the keeper while it shakes hands, and what it is answered.
//!
//! The idea: each thread that may wait has a link of its own, and asks one question at a time
//! ([`KeeperLink`]). It names a key by its number and never says what is to be signed, only the
//! parts of which the keeper makes the one message that TLS signs ([`Sign`]); parts of any other
//! shape are no question. Both ends take the other's word for hostile.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::certificates::KeyId;
use crate::codec::{self, BadMessage};

/// Bytes of a question of the server's, and of an answer.
pub const QUESTION_BYTES_MAX: usize = TRANSCRIPT_BYTES_MAX + 512;
/// Bytes of a handshake of TLS 1.2 that a client signs, with two chains of certificates.
const TRANSCRIPT_BYTES_MAX: usize = 24 * 1024;
/// Bytes of an answer to the server.
pub const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a signature: RSA of 16,384 bits.
const SIGNATURE_BYTES_MAX: usize = 2_048;
/// Generations of ticket keys that are told at once.
pub const TICKET_KEYS_MAX: usize = 16;

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
    /// Of a client's `CertificateVerify` in TLS 1.3: what a back end is shown.
    Tls13Client {
        /// As a server's.
        transcript: Vec<u8>,
    },
    /// Of a client's `CertificateVerify` in TLS 1.2 (RFC 5246, 7.4.8).
    Tls12Client {
        /// The messages of the handshake so far, whole.
        transcript: Vec<u8>,
    },
}

/// What stands before the transcript's hash in what a server signs in TLS 1.3.
const CONTEXT: &[u8; 34] = b"TLS 1.3, server CertificateVerify\0";
/// As [`CONTEXT`], for what a client signs.
const CLIENT_CONTEXT: &[u8; 34] = b"TLS 1.3, client CertificateVerify\0";
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
        let of = |context: &[u8]| rest?.strip_prefix(context).map(<[u8]>::to_vec);
        let parts = match (of(CONTEXT), of(CLIENT_CONTEXT)) {
            (Some(transcript), _) => Parts::Tls13 { transcript },
            (None, Some(transcript)) => Parts::Tls13Client { transcript },
            (None, None) if is_client_transcript(message) => Parts::Tls12Client {
                transcript: message.to_vec(),
            },
            (None, None) => {
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
            Parts::Tls13 { transcript } => hashed(CONTEXT, transcript),
            Parts::Tls13Client { transcript } => hashed(CLIENT_CONTEXT, transcript),
            Parts::Tls12Client { transcript } => {
                is_client_transcript(transcript).then(|| transcript.clone())
            }
            Parts::Tls12 {
                client_random,
                server_random,
                params,
            } => is_point(params).then(|| [client_random, server_random, &params[..]].concat()),
        }
    }
}

fn hashed(context: &[u8], transcript: &[u8]) -> Option<Vec<u8>> {
    let is_hash = matches!(transcript.len(), 32 | 48);
    is_hash.then(|| [&[b' '; SPACES][..], context, transcript].concat())
}

/// Whether these are the messages of a handshake of TLS 1.2 up to where a client signs, each whole: hello, the server's
/// hello, certificates, the status of one where it is told, key exchange, request, and word that it has done; then our
/// certificates and key exchange (RFC 5246, 7.3). No parameters that a server signs are that long.
fn is_client_transcript(messages: &[u8]) -> bool {
    const TYPES: &[u8] = &[1, 2, 11, 12, 13, 14, 11, 16];
    const STATUS: u8 = 22;
    const TLS12: &[u8] = &[3, 3];
    if messages.len() > TRANSCRIPT_BYTES_MAX || messages.len() <= 64 + 4 + 97 {
        return false;
    }
    let (mut rest, mut types) = (messages, TYPES.iter());
    let mut before = 0;
    while let [kind, high, middle, low, behind @ ..] = rest {
        let bytes = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        let Some((body, next)) = behind.split_at_checked(bytes) else {
            return false;
        };
        let is_hello = matches!(kind, 1 | 2);
        if is_hello && !body.starts_with(TLS12) {
            return false;
        }
        let is_status = *kind == STATUS && before == 11 && types.len() == TYPES.len() - 3;
        if !is_status && types.next() != Some(kind) {
            return false;
        }
        (rest, before) = (next, *kind);
    }
    rest.is_empty() && types.len() == 0
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

    /// Waits for the next one; `buffer` has [`QUESTION_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// `UnexpectedEof` when the server has gone, `InvalidData` for what is no question.
    pub fn recv(link: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Question> {
        let (bytes, fds) = os::fdpass::recv_waiting(link, buffer)?;
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
    /// All there are.
    pub const ALL: [Refusal; 5] = [
        Refusal::UnknownKey,
        Refusal::Scheme,
        Refusal::KeyCap,
        Refusal::Cap,
        Refusal::Failed,
    ];

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
    /// How long is waited for an answer at the link as it is.
    patience: Option<Duration>,
    buffer: Vec<u8>,
}

impl KeeperLink {
    /// Asks over `link`, one end of `os::fdpass::packet_pair`.
    #[must_use]
    pub fn new(link: OwnedFd) -> KeeperLink {
        KeeperLink {
            link,
            asked: 0,
            patience: None,
            buffer: vec![0; ANSWER_BYTES_MAX],
        }
    }

    /// Asks, and waits for the answer. What comes late, to a question that was given up, is
    /// passed over by the next.
    ///
    /// # Errors
    /// `TimedOut` after `patience`, or twice that where late answers come; anything else means that this keeper does not answer any more.
    pub fn ask(&mut self, what: Asked, patience: Duration) -> io::Result<Answer> {
        self.asked = self.asked.wrapping_add(1);
        let number = self.asked;
        let question = codec::encode(&Question { number, what })?;
        let link = self.link.as_fd();
        // One question at a time: there is room, unless many were given up and nobody reads.
        os::fdpass::try_send(link, &question, &[]).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })?;
        if self.patience != Some(patience) {
            os::fdpass::wait_at_most(link, patience)?;
            self.patience = Some(patience);
        }
        let until = Instant::now() + patience;
        loop {
            let (bytes, _) = match os::fdpass::recv_waiting(link, &mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                received => received?,
            };
            let (of, answer) = Answer::decode(self.buffer.get(..bytes).unwrap_or_default())?;
            if of == number {
                return Ok(answer);
            }
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
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

    /// Messages of a handshake of these types.
    fn transcript(types: &[u8]) -> Vec<u8> {
        let message = |kind: &u8| [&[*kind, 0, 0, 40, 3, 3][..], &[8; 38]].concat();
        types.iter().flat_map(message).collect()
    }

    fn sign(parts: Parts) -> Asked {
        Asked::Sign(Sign {
            key: KeyId(5),
            scheme: 0x0403,
            parts,
        })
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

    #[test]
    fn questions_get_their_answers_and_late_ones_are_passed_over() {
        let (server, keeper) = os::fdpass::packet_pair().unwrap();
        let mut link = KeeperLink::new(server);
        let nobody = link.ask(sign(tls13()), Duration::from_millis(1));
        assert_eq!(nobody.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let answers = std::thread::spawn(move || {
            let mut numbers = Vec::new();
            while numbers.len() < 2 {
                let mut buffer = [0; QUESTION_BYTES_MAX];
                let question = Question::recv(keeper.as_fd(), &mut buffer).unwrap();
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
    fn a_keeper_that_is_held_up_for_long_is_there_again_afterwards() {
        let (server, keeper) = os::fdpass::packet_pair().unwrap();
        let mut link = KeeperLink::new(server);
        // Until there is no room for another question.
        for _ in 0..2_000 {
            let nobody = link.ask(sign(tls13()), Duration::ZERO);
            assert_eq!(nobody.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        std::thread::spawn(move || {
            let mut buffer = [0; QUESTION_BYTES_MAX];
            while let Ok(question) = Question::recv(keeper.as_fd(), &mut buffer) {
                // As the keeper does: one that finds no room is missed by nobody.
                let _ = signature(vec![7]).try_send(question.number, keeper.as_fd());
            }
        });
        let begun = Instant::now();
        while link.ask(sign(tls13()), Duration::from_secs(1)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_message_becomes_its_parts_and_they_become_the_message() {
        let tls13_of = |hash: usize| [&[b' '; 64][..], CONTEXT, &vec![7; hash]].concat();
        let tls13_client_of =
            |hash: usize| [&[b' '; 64][..], CLIENT_CONTEXT, &vec![7; hash]].concat();
        let tls12_of = |params: &[u8]| [&[1; 32][..], &[2; 32], params].concat();
        let p256 = [&[3, 0, 23, 65, 4][..], &[9; 64]].concat();
        let p384 = [&[3, 0, 24, 97, 4][..], &[9; 96]].concat();
        for message in [
            tls13_of(32),
            tls13_of(48),
            tls12_of(&x25519()),
            tls12_of(&p256),
            tls12_of(&p384),
            tls13_client_of(32),
            tls13_client_of(48),
            transcript(&[1, 2, 11, 12, 13, 14, 11, 16]),
            transcript(&[1, 2, 11, 22, 12, 13, 14, 11, 16]),
        ] {
            let parts = Parts::of_message(&message).unwrap();
            assert_eq!(parts.message().unwrap(), message);
        }
        for (other, message) in [
            ("no hash", tls13_of(0)),
            ("a hash of another length", tls13_of(64)),
            ("no hash of a client's", tls13_client_of(0)),
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
    fn what_a_client_signs_in_tls_1_2_is_a_whole_handshake_and_nothing_else() {
        for (other, message) in [
            (
                "a handshake cut short",
                transcript(&[1, 2, 11, 12, 13, 14, 11]),
            ),
            (
                "one that goes on",
                transcript(&[1, 2, 11, 12, 13, 14, 11, 16, 15]),
            ),
            (
                "one in which nobody is asked",
                transcript(&[1, 2, 11, 12, 14, 11, 16]),
            ),
            (
                "one of another order",
                transcript(&[2, 1, 11, 12, 13, 14, 11, 16]),
            ),
            (
                "a status too many",
                transcript(&[1, 2, 11, 22, 22, 12, 13, 14, 11, 16]),
            ),
            ("one of TLS 1.1", {
                let mut transcript = transcript(&[1, 2, 11, 12, 13, 14, 11, 16]);
                transcript[5] = 2;
                transcript
            }),
            (
                "bytes behind it",
                [&transcript(&[1, 2, 11, 12, 13, 14, 11, 16])[..], &[16]].concat(),
            ),
            ("a transcript without end", {
                let mut transcript = transcript(&[1, 2, 11, 12, 13, 14, 11, 16]);
                transcript.resize(TRANSCRIPT_BYTES_MAX + 1, 0);
                transcript
            }),
        ] {
            assert_eq!(Parts::of_message(&message), None, "{other}");
            let parts = Parts::Tls12Client {
                transcript: message,
            };
            assert_eq!(parts.message(), None, "{other}");
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
            Parts::Tls13Client {
                transcript: vec![0; 33],
            },
            Parts::Tls12Client {
                transcript: vec![0x30; 300],
            },
            Parts::Tls12Client {
                transcript: [&[1; 32][..], &[2; 32], &x25519()].concat(),
            },
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
        let mut transcript = transcript(&[1, 2, 11, 12, 13, 14, 11]);
        let left = TRANSCRIPT_BYTES_MAX - transcript.len() - 4;
        let [.., high, low] = left.to_be_bytes();
        transcript.extend([16, 0, high, low]);
        transcript.resize(TRANSCRIPT_BYTES_MAX, 0);
        let question = Question {
            number: u32::MAX,
            what: sign(Parts::Tls12Client { transcript }),
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
    fn secrets_are_never_shown() {
        let shown = format!("{:?}", Answer::TicketKeys(vec![ticket_key()]));
        assert_eq!(shown, "TicketKeys([TicketKey(accepted until 6)])");
        let shown = format!("{:?}", signature(vec![1, 2]));
        assert_eq!(shown, "Signature(2 bytes)");
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
        let messages = [codec::encode(&question), codec::encode(&answer)];
        for sound in messages {
            crate::codec::tests::mangled(&sound.unwrap(), |bytes| {
                let _ = Question::decode(bytes);
                let _ = Answer::decode(bytes);
            });
        }
    }
}
