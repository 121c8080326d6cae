//! What supervisor and acme process say to each other.
//!
//! The idea: the acme process talks with authorities and holds nothing else: it opens no file of
//! the store, and no key of a site is ever in a message to it or of it. It asks for a request for a
//! certificate by the certificate's name ([`FromAcme::Request`]) and hands over the chain that came
//! of it ([`FromAcme::Issued`]); the supervisor has the key made by the keeper and writes both into
//! the store. What it publishes, the supervisor checks against the plan before anybody answers with
//! it. Each takes the other's word for hostile.

use serde::{Deserialize, Serialize};

use crate::certificates::{Blob, NAME_BYTES_MAX, TEXT_BYTES_MAX};
use crate::codec::{self, BadMessage};
use crate::message::Message;

/// Names of one certificate: as many as authorities take in an order.
pub const ORDER_NAMES_MAX: usize = 100;
/// Bytes of a token or key authorization (RFC 8555, 8.1): both are some dozens long.
pub const TOKEN_BYTES_MAX: usize = 512;
/// Bytes of a chain in PEM.
pub const CHAIN_BYTES_MAX: usize = 256 * 1024;

/// What the supervisor says to the acme process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAcme {
    /// This is to be held, instead of what was before.
    Plan(Plan),
    /// Answers `Request`: the request in DER, or why there is none.
    Requested {
        /// The certificate.
        certificate: String,
        /// The request (RFC 2986).
        result: Result<Blob, String>,
    },
    /// Answers `Publish`: clients and other machines see it now, or why not.
    Published {
        /// Its number.
        number: u32,
        /// Why not.
        result: Result<(), String>,
    },
    /// Answers `Issued`: what the certificate is now, or why it was not taken.
    Stored {
        /// The certificate.
        certificate: String,
        /// What it says.
        result: Result<Held, String>,
    },
    /// An operator wants a certificate now, whenever it is due.
    Renew {
        /// The certificate.
        certificate: String,
    },
    /// A client asks for a name: this is to be held beside what the plan says, or its `demand` is another now.
    Demand(Wanted),
    /// An operator wants to know whether its names would validate; nothing is to be ordered.
    Rehearse {
        /// The certificate.
        certificate: String,
    },
}

/// Everything the acme process is to see to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// `[acme.NAME]`, in their order.
    pub accounts: Vec<Account>,
    /// What is wanted.
    pub certificates: Vec<Wanted>,
}

/// An account with an authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its name in the configuration.
    pub name: String,
    /// The URL of the authority's directory.
    pub directory: String,
    /// Where the authority may write to: URLs.
    pub contact: Vec<String>,
    /// How the account is bound to one that the authority has already.
    pub binding: Option<Binding>,
    /// The ways of showing that a name is ours, the preferred one first.
    pub challenges: Vec<ChallengeKind>,
    /// The authority's profile; `None`: the authority's default.
    pub profile: Option<String>,
    /// The file with the authorities that the directory's own certificate may come from; empty: the
    /// machine's.
    pub authorities: String,
    /// What the store has of the account; `None`: it is to be made.
    pub credentials: Option<Blob>,
    /// Whether this machine may order: it holds the store's lease.
    pub is_writer: bool,
    /// How much may be ordered on demand; `None`: nothing.
    pub budgets: Option<Budgets>,
}

/// How many names may be ordered that were not known before (`config::model::OnDemand`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// Of a tenant's sites within three hours.
    pub per_tenant: u32,
    /// Below a registered domain within seven days.
    pub per_domain: u32,
    /// Within three hours.
    pub in_all: u32,
    /// For how many seconds a name need not be asked for and is renewed all the same.
    pub unused_s: i64,
}

/// Who wants a certificate that no site names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// The tenant whose site covers it.
    pub tenant: String,
    /// When it was last asked for and accepted: seconds since 1970; 0: not in this run, or it was refused since.
    pub asked_s: i64,
    /// When its first certificate came, where that is no longer ago than budgets look back; `None`: it spent nothing.
    pub first_s: Option<i64>,
}

/// External account binding (RFC 8555, 7.3.4).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The key's identifier.
    pub id: String,
    /// The key in base64url.
    pub key: String,
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Binding({:?})", self.id)
    }
}

/// A way of showing that a name is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChallengeKind {
    /// A reply over plain HTTP (RFC 8555, 8.3).
    Http01,
    /// A certificate in a handshake (RFC 8737).
    TlsAlpn01,
    /// A record in the domain name system (RFC 8555, 8.4).
    Dns01,
}

/// A certificate that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// What it is called: its name in the store.
    pub certificate: String,
    /// Indices of the accounts that may order it, the first one preferred.
    pub accounts: Vec<u16>,
    /// What it is to be good for, at most [`ORDER_NAMES_MAX`].
    pub names: Vec<String>,
    /// What is served with now.
    pub held: Option<Held>,
    /// The URL of an order that a run before this one had begun, with the account's name.
    pub order: Option<(String, String)>,
    /// Who wants it, where it is ordered on demand.
    pub demand: Option<Demand>,
}

/// What is known of a certificate that is served with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What it is good for.
    pub names: Vec<String>,
    /// From when it is valid: seconds since 1970.
    pub not_before_s: i64,
    /// Until when.
    pub not_after_s: i64,
    /// It, as DER.
    pub leaf: Blob,
}

/// What the acme process says to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAcme {
    /// An account was made: to be stored before anything is ordered with it.
    Account {
        /// Its name in the configuration.
        account: String,
        /// Its key and where it is, as JSON.
        credentials: Blob,
    },
    /// A key and a request for a certificate of these names; answered by `Requested`.
    Request {
        /// The certificate.
        certificate: String,
        /// Some of its names.
        names: Vec<String>,
    },
    /// An authority will ask for this; answered by `Published`.
    Publish {
        /// A number that is under way only once.
        number: u32,
        /// The certificate that it is for.
        certificate: String,
        /// The name that is validated, one of the certificate's.
        name: String,
        /// What is to be seen.
        proof: Proof,
    },
    /// Nobody asks for these any more.
    Withdraw {
        /// Their numbers.
        numbers: Vec<u32>,
    },
    /// An order was begun: the next run is to look at it first.
    Ordered {
        /// The certificate.
        certificate: String,
        /// The account's name.
        account: String,
        /// The order's URL.
        url: String,
    },
    /// An authority has signed; answered by `Stored`.
    Issued {
        /// The certificate.
        certificate: String,
        /// The chain in PEM, leaf first.
        chain: Blob,
    },
    /// How it goes with a certificate, for whoever asks.
    State(CertificateState),
    /// A certificate that was demanded is not ordered now: who waits for it need wait no longer.
    Refused {
        /// The certificate.
        certificate: String,
        /// Why.
        why: String,
        /// Whether nothing is remembered of it here.
        is_forgotten: bool,
    },
}

/// What an authority is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// `GET /.well-known/acme-challenge/TOKEN` is answered by the authorization.
    Http {
        /// The token.
        token: String,
        /// The key authorization.
        authorization: String,
    },
    /// A handshake with the protocol `acme-tls/1` is answered by a certificate with this digest.
    TlsAlpn {
        /// SHA-256 of the key authorization.
        digest: [u8; 32],
    },
    /// A `TXT` record at `_acme-challenge.NAME`.
    Dns {
        /// Its text.
        value: String,
    },
}

/// How it goes with a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateState {
    /// The certificate.
    pub certificate: String,
    /// When it was last tried: seconds since 1970; 0: never in this run.
    pub last_try_s: i64,
    /// When it is tried next.
    pub next_try_s: i64,
    /// How often it was tried in this run.
    pub tries: u32,
    /// How often an authority issued it in this run.
    pub issued: u32,
    /// How often it was rehearsed in this run.
    pub rehearsals: u32,
    /// What went wrong in the last of these; empty when nothing did.
    pub rehearsal: String,
    /// Failures since it last went well.
    pub failures: u32,
    /// What went wrong last; empty when nothing did.
    pub error: String,
    /// Names that were left out, each with why.
    pub left_out: Vec<(String, String)>,
}

/// A certificate that is ordered, and how it goes with it, as a server is told for operators.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedCertificate {
    /// The path of its chain in the store.
    pub path: String,
    /// The account in the configuration that orders it.
    pub account: String,
    /// What it is to be good for, at most [`ORDER_NAMES_MAX`].
    pub names: Vec<String>,
    /// Whether this machine orders: it holds the store's lease.
    pub is_ordered_here: bool,
    /// How it goes; names that were left out are in its error.
    pub state: CertificateState,
}

impl OrderedCertificate {
    /// Bytes of what went wrong, of which a name may be told a thousand times.
    const ERROR_BYTES_MAX: usize = 1_024;

    /// It, with what went wrong in one bounded text.
    #[must_use]
    pub fn bounded(mut self) -> OrderedCertificate {
        let error = &mut self.state.error;
        for (name, why) in std::mem::take(&mut self.state.left_out) {
            let join = if error.is_empty() { "" } else { "; " };
            if error.len() < Self::ERROR_BYTES_MAX {
                error.push_str(&format!("{join}{name}: {why}"));
            }
        }
        codec::cut(error, Self::ERROR_BYTES_MAX);
        codec::cut(&mut self.state.rehearsal, Self::ERROR_BYTES_MAX);
        self
    }
}

impl Message for ToAcme {
    /// A plan, with the certificates that are held.
    const BYTES_MAX: usize = 256 << 20;
}

impl Message for FromAcme {
    /// A chain.
    const BYTES_MAX: usize = 1 << 20;

    fn bound(&mut self) -> Result<(), BadMessage> {
        let is_name = |name: &String| name.len() <= NAME_BYTES_MAX;
        let is_bounded = match self {
            FromAcme::Account {
                account,
                credentials,
            } => is_name(account) && credentials.0.len() <= TEXT_BYTES_MAX,
            FromAcme::Request { certificate, names } => {
                is_name(certificate) && names.len() <= ORDER_NAMES_MAX && names.iter().all(is_name)
            }
            FromAcme::Publish {
                certificate,
                name,
                proof,
                ..
            } => is_name(certificate) && is_name(name) && proof.is_sound(),
            FromAcme::Withdraw { numbers } => numbers.len() <= ORDER_NAMES_MAX,
            FromAcme::Ordered {
                certificate,
                account,
                url,
            } => is_name(certificate) && is_name(account) && is_line(url, TEXT_BYTES_MAX),
            FromAcme::Issued { certificate, chain } => {
                is_name(certificate) && chain.0.len() <= CHAIN_BYTES_MAX
            }
            FromAcme::Refused {
                certificate, why, ..
            } => {
                codec::cut(why, TEXT_BYTES_MAX);
                is_name(certificate)
            }
            FromAcme::State(state) => {
                codec::cut(&mut state.error, TEXT_BYTES_MAX);
                codec::cut(&mut state.rehearsal, TEXT_BYTES_MAX);
                for (_, why) in &mut state.left_out {
                    codec::cut(why, TEXT_BYTES_MAX);
                }
                let mut left_out = state.left_out.iter();
                is_name(&state.certificate)
                    && state.left_out.len() <= ORDER_NAMES_MAX
                    && left_out.all(|(name, _)| is_name(name))
            }
        };
        is_bounded
            .then_some(())
            .ok_or_else(|| BadMessage::new("nothing that an order needs"))
    }
}

/// Whether a text is one line of printable ASCII.
fn is_line(text: &str, bytes_max: usize) -> bool {
    text.len() <= bytes_max && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Proof {
    /// Whether it is of the form that RFC 8555 gives it: base64url, and for an authorization two
    /// of these with a dot between them.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let is_base64 = |text: &str| {
            let mut bytes = text.bytes();
            let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            (1..=TOKEN_BYTES_MAX).contains(&text.len()) && bytes.all(is_digit)
        };
        match self {
            Proof::Http {
                token,
                authorization,
            } => {
                let parts = authorization.split_once('.');
                is_base64(token)
                    && parts.is_some_and(|(first, thumb)| first == token && is_base64(thumb))
            }
            Proof::TlsAlpn { .. } => true,
            Proof::Dns { value } => is_base64(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(token: &str, authorization: &str) -> FromAcme {
        FromAcme::Publish {
            number: 1,
            certificate: "a.example".into(),
            name: "a.example".into(),
            proof: Proof::Http {
                token: token.into(),
                authorization: authorization.into(),
            },
        }
    }

    fn every_kind() -> Vec<FromAcme> {
        vec![
            FromAcme::Account {
                account: "le".into(),
                credentials: Blob::from(*b"{}"),
            },
            FromAcme::Request {
                certificate: "a.example".into(),
                names: vec!["a.example".into()],
            },
            publish("tok-en_1", "tok-en_1.thumb"),
            FromAcme::Withdraw { numbers: vec![1] },
            FromAcme::Ordered {
                certificate: "a.example".into(),
                account: "le".into(),
                url: "https://ca.example/order/1".into(),
            },
            FromAcme::Issued {
                certificate: "a.example".into(),
                chain: Blob::from(*b"-----BEGIN CERTIFICATE-----"),
            },
            FromAcme::State(CertificateState {
                certificate: "a.example".into(),
                left_out: vec![("b.example".into(), "no such name".into())],
                ..CertificateState::default()
            }),
            FromAcme::Refused {
                certificate: "a.example".into(),
                why: "enough was ordered".into(),
                is_forgotten: true,
            },
        ]
    }

    #[test]
    fn what_is_said_is_understood() {
        for message in every_kind() {
            let bytes = codec::encode(&message).unwrap();
            assert_eq!(FromAcme::decode(&bytes).unwrap(), message);
        }
    }

    #[test]
    fn a_token_is_base64_and_its_authorization_begins_with_it() {
        let long = "a".repeat(TOKEN_BYTES_MAX + 1);
        let wrong = [
            ("", ".thumb"),
            ("token", "other.thumb"),
            ("token", "token"),
            ("token", "token."),
            ("../token", "../token.thumb"),
            ("token", "token.thumb\r\nX: y"),
            (&long, &format!("{long}.thumb")),
        ];
        for (token, authorization) in wrong {
            let bytes = codec::encode(&publish(token, authorization)).unwrap();
            assert!(FromAcme::decode(&bytes).is_err(), "{token} {authorization}");
        }
    }

    #[test]
    fn what_is_larger_than_it_may_be_is_refused() {
        let name = "a".repeat(NAME_BYTES_MAX + 1);
        let chain = vec![b'a'; CHAIN_BYTES_MAX + 1];
        let wrong = [
            FromAcme::Request {
                certificate: name.clone(),
                names: Vec::new(),
            },
            FromAcme::Request {
                certificate: "a".into(),
                names: vec!["a".into(); ORDER_NAMES_MAX + 1],
            },
            FromAcme::Issued {
                certificate: "a".into(),
                chain: Blob::from(chain),
            },
            FromAcme::Ordered {
                certificate: "a".into(),
                account: "le".into(),
                url: "https://a/\n".into(),
            },
            FromAcme::Withdraw {
                numbers: vec![0; ORDER_NAMES_MAX + 1],
            },
        ];
        for message in wrong {
            let bytes = codec::encode(&message).unwrap();
            assert!(FromAcme::decode(&bytes).is_err(), "{message:?}");
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
        for message in every_kind() {
            let sound = codec::encode(&message).unwrap();
            for at in 0..sound.len() {
                assert!(FromAcme::decode(&sound[..at]).is_err(), "{at}");
                for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                    let mut bytes = sound.clone();
                    bytes[at] = value;
                    let _ = FromAcme::decode(&bytes);
                }
            }
        }
    }
}
