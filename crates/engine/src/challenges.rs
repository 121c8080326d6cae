//! What authorities are answered with that look whether a name is ours (RFC 8555, 8.3; RFC 8737).
//!
//! The idea: a table of what is published, swapped whole, for all workers. Only what is in it is
//! answered from it, under the host it is for; whatever else is asked for below the same path is the
//! site's own. A request for another path pays a look at its second letter.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ipc::certificates::{Blob, KeyId, KeyKind};
use ipc::server::{Challenge, ChallengeProof};

/// Where HTTP-01 is asked.
pub(crate) const PATH: &[u8] = b"/.well-known/acme-challenge/";

/// The certificate that an authority is shown in a handshake.
#[derive(Debug)]
pub(crate) struct HandshakeProof {
    /// It, as DER.
    pub(crate) certificate: Blob,
    /// The keeper's number for its key.
    pub(crate) key: KeyId,
    /// What its key is.
    pub(crate) kind: KeyKind,
}

/// What is published now.
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    /// Held to copy or replace it.
    table: Mutex<Arc<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    /// Key authorizations by host and token.
    http: HashMap<(String, Vec<u8>), Arc<str>>,
    /// Certificates by what a client says it wants.
    handshakes: HashMap<String, Arc<HandshakeProof>>,
}

impl Challenges {
    /// Publishes these, and nothing else from now on.
    pub(crate) fn replace(&self, challenges: Vec<Challenge>) {
        let mut table = Table::default();
        for Challenge { name, proof } in challenges {
            match proof {
                ChallengeProof::Http {
                    token,
                    authorization,
                } => {
                    let key = (name, token.into_bytes());
                    table.http.insert(key, authorization.into());
                }
                ChallengeProof::TlsAlpn {
                    certificate,
                    key,
                    kind,
                } => {
                    let proof = HandshakeProof {
                        certificate,
                        key,
                        kind,
                    };
                    table.handshakes.insert(name, Arc::new(proof));
                }
            }
        }
        *self.lock() = Arc::new(table);
    }

    /// What is answered to a request for a path of a host.
    pub(crate) fn reply(&self, host: &str, path: &[u8]) -> Option<Arc<str>> {
        if path.get(1) != Some(&b'.') {
            return None;
        }
        let token = path.strip_prefix(PATH)?;
        let table = Arc::clone(&self.lock());
        let key = (host.to_owned(), token.to_vec());
        table.http.get(&key).cloned()
    }

    /// What a client is shown that speaks `acme-tls/1` alone and wants this name.
    pub(crate) fn handshake(&self, name: &str) -> Option<Arc<HandshakeProof>> {
        self.lock().handshakes.get(name).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Table>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(name: &str, token: &str) -> Challenge {
        Challenge {
            name: name.into(),
            proof: ChallengeProof::Http {
                token: token.into(),
                authorization: format!("{token}.thumb"),
            },
        }
    }

    #[test]
    fn only_what_is_published_is_answered_and_only_under_its_host() {
        let challenges = Challenges::default();
        let ask = |host: &str, path: &str| challenges.reply(host, path.as_bytes());
        let path = "/.well-known/acme-challenge/one";
        assert_eq!(ask("a.example", path), None);
        challenges.replace(vec![http("a.example", "one"), http("b.example", "two")]);
        assert_eq!(ask("a.example", path).as_deref(), Some("one.thumb"));
        for (host, path) in [
            ("b.example", path),
            ("a.example", "/.well-known/acme-challenge/two"),
            ("a.example", "/.well-known/acme-challenge/one/"),
            ("a.example", "/.well-known/acme-challenge/"),
            ("a.example", "/.well-known/security.txt"),
            ("a.example", "/one"),
            ("a.example", "/"),
            ("a.example", ""),
        ] {
            assert_eq!(ask(host, path), None, "{host} {path}");
        }
        challenges.replace(Vec::new());
        assert_eq!(ask("a.example", path), None);
    }
}
