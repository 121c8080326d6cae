//! Certificates that scripts choose in a handshake: what a server asks the supervisor, and is answered.
//!
//! The idea: a script names files, which the supervisor opens and the keeper judges, so that the
//! server gets a chain and the number of a key; or it has both in hand, and they go the same way.
//! What was answered before has a mark, and is not told again while that is the same. The
//! supervisor takes the server's word for hostile.

use serde::{Deserialize, Serialize};

use crate::certificates::{Blob, KeyId, KeyKind};

/// Questions of a server that are under way at once.
pub const QUESTIONS_MAX: usize = 256;

/// The certificate that a script wants shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Wanted {
    /// It stands in files.
    Files {
        /// That of the chain.
        chain: String,
        /// That of the key; empty: the same.
        key: String,
    },
    /// It is here, in PEM.
    Data {
        /// The chain.
        chain: Blob,
        /// The key; empty: it stands with the chain.
        key: Blob,
    },
}

/// What a server asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateQuestion {
    /// Comes back with the answer.
    pub number: u64,
    /// The site whose script wants it, by its name.
    pub site: String,
    /// What it wants.
    pub wanted: Wanted,
    /// What it was answered before.
    pub known: Option<KnownCertificate>,
}

/// By what an answer is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownCertificate {
    /// How the files were, and whose number the key has.
    pub mark: u64,
    /// The key's number.
    pub key: KeyId,
}

/// What the supervisor answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateAnswer {
    /// The question's.
    pub number: u64,
    /// The certificate; `None`: as it is known. Or why there is none, and what to do.
    pub found: Result<Option<FoundCertificate>, String>,
}

/// A certificate, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundCertificate {
    /// By what it is known.
    pub known: KnownCertificate,
    /// What its key is.
    pub kind: KeyKind,
    /// DER, leaf first.
    pub chain: Vec<Blob>,
}
