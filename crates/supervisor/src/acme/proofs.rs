//! What the server shows to authorities, made of what is published.
//!
//! The idea: a reply over HTTP goes to the server as it is. Of a handshake's certificate only its
//! digest is published: each machine has its own keeper make one, once, and anew when the keeper is
//! another. What cannot be made is told where it was asked for here, and is left out where another
//! machine has published it.

use std::collections::HashMap;
use std::net::IpAddr;

use ipc::acme::Proof;
use ipc::certificates::{Blob, KeyId, KeyKind};
use ipc::server::{Challenge, ChallengeProof, ToServer};

use super::store::Publication;
use crate::keeper::Keys;

/// The certificates of what is published, and how often the server was told.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    made: HashMap<(String, [u8; 32]), Made>,
    /// The number under which the server was told last.
    told: u32,
}

/// A certificate that shows a digest.
#[derive(Debug, Clone)]
struct Made {
    /// Whose number the key has.
    life: u64,
    certificate: Blob,
    key: KeyId,
    kind: KeyKind,
}

impl Proofs {
    /// The number under which the server is told next.
    pub(super) fn next(&self) -> u32 {
        self.told.saturating_add(1)
    }

    /// Whether all can be shown by this keeper's keys as it was told last.
    pub(super) fn are_of(&self, life: u64) -> bool {
        self.made.values().all(|made| made.life == life)
    }

    /// Has what this needs made.
    ///
    /// # Errors
    /// In words.
    pub(super) fn make(
        &mut self,
        publication: &Publication,
        keys: &mut Keys,
    ) -> Result<(), String> {
        self.shown(publication, keys).map(drop)
    }

    /// All of it, as the server is told.
    pub(super) fn told<'a>(
        &mut self,
        published: impl Iterator<Item = &'a Publication>,
        keys: &mut Keys,
    ) -> ToServer {
        let challenges = self.challenges(published, keys);
        self.told = self.next();
        ToServer::Challenges {
            number: self.told,
            challenges,
        }
    }

    /// Likewise, for a server that is told more.
    pub(super) fn challenges<'a>(
        &mut self,
        published: impl Iterator<Item = &'a Publication>,
        keys: &mut Keys,
    ) -> Vec<Challenge> {
        let mut needed = Vec::new();
        let mut challenges = Vec::new();
        for publication in published {
            needed.extend(digest_key(publication));
            match self.shown(publication, keys) {
                Ok(shown) => challenges.extend(shown),
                Err(why) => tracing::error!(name = publication.name, "not shown: {why}"),
            }
        }
        let life = keys.life();
        self.made
            .retain(|key, made| made.life == life && needed.contains(key));
        challenges
    }

    fn shown(
        &mut self,
        publication: &Publication,
        keys: &mut Keys,
    ) -> Result<Option<Challenge>, String> {
        let Publication { name, proof } = publication;
        let challenge = match proof {
            Proof::Http {
                token,
                authorization,
            } => Challenge {
                name: name.clone(),
                proof: ChallengeProof::Http {
                    token: token.clone(),
                    authorization: authorization.clone(),
                },
            },
            Proof::TlsAlpn { digest } => {
                let made = self.certificate(name, *digest, keys)?;
                Challenge {
                    name: asked_name(name),
                    proof: ChallengeProof::TlsAlpn {
                        certificate: made.certificate,
                        key: made.key,
                        kind: made.kind,
                    },
                }
            }
            Proof::Dns { .. } => return Ok(None),
        };
        Ok(Some(challenge))
    }

    fn certificate(
        &mut self,
        name: &str,
        digest: [u8; 32],
        keys: &mut Keys,
    ) -> Result<Made, String> {
        let life = keys.life();
        let place = (name.to_owned(), digest);
        if let Some(made) = self.made.get(&place).filter(|made| made.life == life) {
            return Ok(made.clone());
        }
        let judged = keys.challenge(name.to_owned(), digest)??;
        let certificate = judged.chain.into_iter().next();
        let made = Made {
            life,
            certificate: certificate.ok_or("the keeper has made no certificate")?,
            key: judged.key,
            kind: judged.kind,
        };
        self.made.insert(place, made.clone());
        Ok(made)
    }
}

fn digest_key(publication: &Publication) -> Option<(String, [u8; 32])> {
    match publication.proof {
        Proof::TlsAlpn { digest } => Some((publication.name.clone(), digest)),
        Proof::Http { .. } | Proof::Dns { .. } => None,
    }
}

/// What an authority says it wants when it asks for a name: an address is spelt as the domain name
/// system has it in reverse (RFC 8738, 6).
fn asked_name(name: &str) -> String {
    match name.parse() {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let octets = address.octets().into_iter().rev();
            let digits = octets.map(|octet| format!("{:x}.{:x}.", octet & 15, octet >> 4));
            format!("{}ip6.arpa", digits.collect::<String>())
        }
        Err(_) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_asked_for_by_its_reverse_name() {
        let six = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
        for (name, expected) in [
            ("www.example.jp", "www.example.jp"),
            ("192.0.2.7", "7.2.0.192.in-addr.arpa"),
            ("2001:db8::1", six),
        ] {
            assert_eq!(asked_name(name), expected);
        }
    }
}
