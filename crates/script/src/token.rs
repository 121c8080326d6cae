//! JSON Web Tokens in their compact form (RFC 7515): taken apart, and their signatures judged.
//!
//! Which algorithm may have signed a token is said by whoever asks, never by the token alone, and a
//! key fits one kind of algorithm: what looks like a public key is no secret, and the other way round.
//!
//! Left out: encrypted tokens, sets of keys (JWK), and what claims mean.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use memchr::memmem;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer,
    alg_id,
};
use webpki::{EndEntityCert, RawPublicKeyEntity};

use crate::checksum;

/// Longest token: a field of a request is no longer.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// What begins a key in PEM.
const PEM: &[u8] = b"-----BEGIN";

/// A token taken apart; nothing of it is to be believed yet.
#[derive(Debug)]
pub(crate) struct Token<'a> {
    signed: &'a [u8],
    signature: Vec<u8>,
    /// JSON.
    pub(crate) header: Vec<u8>,
    /// JSON.
    pub(crate) payload: Vec<u8>,
}

/// How a token may be signed (RFC 7518, 3.1; RFC 8037).
#[derive(Debug)]
pub(crate) struct Algorithm {
    /// Its name in headers.
    pub(crate) name: &'static str,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// By a secret that both sides have, with the checksum of this name.
    Secret(&'static [u8]),
    /// By a private key.
    Key {
        key: AlgorithmIdentifier,
        signature: AlgorithmIdentifier,
        form: Form,
    },
}

/// How the signature is written.
#[derive(Debug)]
enum Form {
    /// As X.509 has it.
    Same,
    /// Two numbers of so many bytes each (RFC 7518, 3.4).
    Pair(usize),
}

/// Why a token is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The key is none for this algorithm.
    Key(&'static str),
    /// The signature is not of this key.
    Signature,
}

const fn secret(name: &'static str, checksum: &'static [u8]) -> Algorithm {
    let kind = Kind::Secret(checksum);
    Algorithm { name, kind }
}

const fn key(
    name: &'static str,
    key: AlgorithmIdentifier,
    signature: AlgorithmIdentifier,
    form: Form,
) -> Algorithm {
    let kind = Kind::Key {
        key,
        signature,
        form,
    };
    Algorithm { name, kind }
}

/// Every algorithm; `none` is not one.
pub(crate) static ALGORITHMS: &[Algorithm] = &[
    secret("HS256", b"sha256"),
    secret("HS384", b"sha384"),
    secret("HS512", b"sha512"),
    key(
        "RS256",
        alg_id::RSA_ENCRYPTION,
        alg_id::RSA_PKCS1_SHA256,
        Form::Same,
    ),
    key(
        "RS384",
        alg_id::RSA_ENCRYPTION,
        alg_id::RSA_PKCS1_SHA384,
        Form::Same,
    ),
    key(
        "RS512",
        alg_id::RSA_ENCRYPTION,
        alg_id::RSA_PKCS1_SHA512,
        Form::Same,
    ),
    key(
        "ES256",
        alg_id::ECDSA_P256,
        alg_id::ECDSA_SHA256,
        Form::Pair(32),
    ),
    key(
        "ES384",
        alg_id::ECDSA_P384,
        alg_id::ECDSA_SHA384,
        Form::Pair(48),
    ),
    key("EdDSA", alg_id::ED25519, alg_id::ED25519, Form::Same),
];

impl Algorithm {
    /// The algorithm of that name.
    pub(crate) fn of_name(name: &[u8]) -> Option<&'static Self> {
        let mut all = ALGORITHMS.iter();
        all.find(|algorithm| algorithm.name.as_bytes() == name)
    }
}

impl<'a> Token<'a> {
    /// Takes a token apart; `None` where it is not three texts in Base64 without padding.
    pub(crate) fn split(token: &'a [u8]) -> Option<Self> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let last = token.iter().rposition(|byte| *byte == b'.')?;
        let (signed, signature) = (token.get(..last)?, token.get(last + 1..)?);
        let first = signed.iter().position(|byte| *byte == b'.')?;
        let decode = |text: Option<&[u8]>| URL_SAFE_NO_PAD.decode(text?).ok();
        Some(Self {
            signed,
            signature: decode(Some(signature))?,
            header: decode(signed.get(..first))?,
            payload: decode(signed.get(first + 1..))?,
        })
    }

    /// Whether `key` has signed it by this algorithm: a secret, or a public key or certificate in PEM.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn verify(&self, algorithm: &Algorithm, key: &[u8]) -> Result<(), Doubt> {
        let is_pem = memmem::find(key, PEM).is_some();
        match &algorithm.kind {
            Kind::Secret(_) if key.is_empty() => Err(Doubt::Key("the secret is empty")),
            Kind::Secret(_) if is_pem => Err(Doubt::Key(
                "a key in PEM is no secret: whoever has the public key could sign",
            )),
            Kind::Secret(name) => {
                match checksum::is_keyed(name, key, self.signed, &self.signature) {
                    true => Ok(()),
                    false => Err(Doubt::Signature),
                }
            }
            Kind::Key { .. } if !is_pem => Err(Doubt::Key(
                "the key is not in PEM: a text that begins with -----BEGIN PUBLIC KEY-----; a plain secret goes with HS256, HS384 or HS512",
            )),
            Kind::Key {
                key: of_key,
                signature,
                form,
            } => {
                let known = webpki::ALL_VERIFICATION_ALGS.iter();
                let judge = known.copied().find(|known| {
                    known.public_key_alg_id() == *of_key && known.signature_alg_id() == *signature
                });
                let judge = judge.ok_or(Doubt::Key("no such algorithm is built in"))?;
                match form {
                    Form::Same => self.judged(judge, key, &self.signature),
                    Form::Pair(bytes) => {
                        let signature = of_pair(&self.signature, *bytes);
                        self.judged(judge, key, &signature.ok_or(Doubt::Signature)?)
                    }
                }
            }
        }
    }

    fn judged(
        &self,
        judge: &dyn SignatureVerificationAlgorithm,
        key: &[u8],
        signature: &[u8],
    ) -> Result<(), Doubt> {
        const NO_KEY: Doubt = Doubt::Key("the key is neither a public key nor a certificate");
        let judged = if let Ok(public) = SubjectPublicKeyInfoDer::from_pem_slice(key) {
            RawPublicKeyEntity::try_from(&public)
                .map_err(|_| NO_KEY)?
                .verify_signature(judge, self.signed, signature)
        } else {
            let certificate = CertificateDer::from_pem_slice(key).map_err(|_| NO_KEY)?;
            EndEntityCert::try_from(&certificate)
                .map_err(|_| NO_KEY)?
                .verify_signature(judge, self.signed, signature)
        };
        judged.map_err(|error| match error {
            webpki::Error::InvalidSignatureForPublicKey => Doubt::Signature,
            _ => Doubt::Key("the key is of another kind than the algorithm"),
        })
    }
}

/// Two numbers of `bytes` each, one behind the other, as the SEQUENCE of two INTEGERs that X.509 has
/// for a signature (RFC 5480); they are short enough for lengths of one byte.
fn of_pair(signature: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let (first, second) = signature.split_at_checked(bytes)?;
    if second.len() != bytes {
        return None;
    }
    let mut numbers = Vec::new();
    for number in [first, second] {
        let leading = number.iter().take_while(|byte| **byte == 0).count();
        let digits = number.get(leading.min(bytes - 1)..)?;
        // The first bit is the sign.
        let is_negative = digits.first().is_some_and(|byte| *byte >= 0x80);
        let length = digits.len() + usize::from(is_negative);
        numbers.extend([2, u8::try_from(length).ok()?]);
        numbers.extend(is_negative.then_some(0));
        numbers.extend_from_slice(digits);
    }
    let mut out = vec![0x30, u8::try_from(numbers.len()).ok()?];
    out.extend(numbers);
    Some(out)
}
