//! A server's RSA key, and a password sealed with it (PKCS #1 2.2: RSAES-OAEP with SHA-1).
//!
//! `caching_sha2_password` wants it over TCP, where a server does not remember the account yet. The
//! key is the server's word and nobody else's, as everything else without TLS: it keeps the
//! password from those who only listen.

use aws_lc_rs::rsa::{OAEP_SHA1_MGF1SHA1, OaepPublicEncryptingKey, PublicEncryptingKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;

/// The longest text of a key looked at.
const TEXT_BYTES_MAX: usize = 8 * 1024;

/// The public half of a key.
#[derive(Debug)]
pub(super) struct PublicKey(OaepPublicEncryptingKey);

impl PublicKey {
    /// Reads a key as servers send it: in PEM, of 2048 to 8192 bits.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
        let key = SubjectPublicKeyInfoDer::from_pem_slice(text).ok()?;
        let key = PublicEncryptingKey::from_der(&key).ok()?;
        OaepPublicEncryptingKey::new(key).ok().map(Self)
    }

    /// Seals a few bytes; `None` where they are too many for the key.
    pub(super) fn seal(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut room = vec![0; self.0.ciphertext_size()];
        let sealed = self.0.encrypt(&OAEP_SHA1_MGF1SHA1, text, &mut room, None);
        sealed.ok().map(|sealed| sealed.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
    use aws_lc_rs::rsa::{KeySize, OaepPrivateDecryptingKey, PrivateDecryptingKey};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// A key pair: its private half, and what a server sends of the public one.
    fn pair() -> (OaepPrivateDecryptingKey, String) {
        let private = PrivateDecryptingKey::generate(KeySize::Rsa2048).expect("a key");
        let public: PublicKeyX509Der<'_> = private.public_key().as_der().expect("its public half");
        let body = STANDARD.encode(public.as_ref());
        let lines: Vec<&str> = (0..body.len())
            .step_by(64)
            .map(|at| &body[at..body.len().min(at + 64)])
            .collect();
        let lines = lines.join("\n");
        let text = format!("-----BEGIN PUBLIC KEY-----\n{lines}\n-----END PUBLIC KEY-----\n");
        let private = OaepPrivateDecryptingKey::new(private).expect("a key for this");
        (private, text)
    }

    #[test]
    fn what_is_sealed_is_read_by_the_holder_of_the_key() {
        let (private, text) = pair();
        let key = PublicKey::read(text.as_bytes()).expect("a key");
        for password in [&b"secret\0"[..], b"", &[7; 214]] {
            let sealed = key.seal(password).expect("short enough");
            assert_eq!(sealed.len(), 256);
            let mut room = [0; 256];
            let opened = private.decrypt(&OAEP_SHA1_MGF1SHA1, &sealed, &mut room, None);
            assert_eq!(opened.expect("what was sealed"), password);
        }
        assert_eq!(key.seal(&[7; 215]), None);
    }

    #[test]
    fn what_is_no_key_is_none_wherever_it_is_cut_or_spoilt() {
        let (_, text) = pair();
        for end in 0..text.len() - 2 {
            let cut = &text.as_bytes()[..end];
            assert!(PublicKey::read(cut).is_none(), "{end}");
        }
        for place in 0..text.len() {
            let mut spoilt = text.clone().into_bytes();
            spoilt[place] ^= 1;
            if let Some(key) = PublicKey::read(&spoilt) {
                let _ = key.seal(b"p");
            }
        }
        assert!(PublicKey::read(b"").is_none());
    }
}
