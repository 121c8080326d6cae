//! Files in PEM to a certificate and its key, or to a sentence that says what to do.
//!
//! The idea: everything that can be wrong with the pair is found here, before either is used. What
//! comes out fits together: the key is the leaf's. Whether the dates fit is for others to say, who
//! know which day they ask about.

use std::net::IpAddr;

use ipc::certificates::{
    Blob, CHAIN_MAX, DER_BYTES_MAX, KeyId, KeyKind, NAME_BYTES_MAX, NAMES_MAX,
};
use ipc::keeper::{Candidate, Judged};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A certificate and its key.
#[derive(Debug)]
pub struct Pair {
    /// What it is good for, as `ipc::certificates::Certificate::names`.
    pub names: Vec<String>,
    /// From when it is valid: seconds since 1970.
    pub not_before_s: i64,
    /// Until when.
    pub not_after_s: i64,
    /// What the key is.
    pub kind: KeyKind,
    /// DER, leaf first.
    pub chain: Vec<Blob>,
    /// The key as it is written.
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Pair {
    /// What is told of it, once its key has a number.
    pub(crate) fn judged(self, key: KeyId) -> Judged {
        Judged {
            key,
            names: self.names,
            not_before_s: self.not_before_s,
            not_after_s: self.not_after_s,
            kind: self.kind,
            chain: self.chain,
        }
    }
}

/// What is read of a leaf.
struct Leaf {
    names: Vec<String>,
    not_before_s: i64,
    not_after_s: i64,
    public_key: Vec<u8>,
    kind: Option<KeyKind>,
}

/// Reads a chain and a key, and finds out whether they belong together.
///
/// # Errors
/// One sentence: which file, what is wrong with it, and what to do.
pub fn judge(candidate: &Candidate) -> Result<Pair, String> {
    let (chain_file, key_file) = (&candidate.chain_file, &candidate.key_file);
    let chain = read_chain(&candidate.chain.0).map_err(|why| format!("{chain_file}: {why}"))?;
    let first = chain.first().map_or(&[][..], |leaf| &leaf.0);
    let leaf = Leaf::read(first).map_err(|why| format!("{chain_file}: {why}"))?;
    let kind = leaf.kind.ok_or_else(|| {
        format!(
            "{chain_file}: its key is of a kind that does not sign here: have one made with ECDSA \
             on P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits"
        )
    })?;
    let text = match candidate.key.0.is_empty() {
        true => &candidate.chain.0,
        false => &candidate.key.0,
    };
    let key = read_key(text).map_err(|why| format!("{key_file}: {why}"))?;
    let signing = any_supported_type(&key).map_err(|_| {
        format!(
            "{key_file}: its private key cannot be read: it is damaged, or of a kind that does not \
             sign here; take the file that was made with the certificate"
        )
    })?;
    if !is_key_of(&*signing, &leaf.public_key) {
        return Err(not_its_key(&*signing, &chain, chain_file, key_file));
    }
    Ok(Pair {
        names: leaf.names,
        not_before_s: leaf.not_before_s,
        not_after_s: leaf.not_after_s,
        kind,
        chain,
        key,
    })
}

/// The certificates of a file, in its order.
fn read_chain(pem: &[u8]) -> Result<Vec<Blob>, String> {
    let mut chain = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let der = certificate.map_err(|error| {
            format!(
                "no PEM after certificate {}: {error}: copy the file anew",
                chain.len()
            )
        })?;
        if chain.len() == CHAIN_MAX {
            return Err(format!(
                "more than {CHAIN_MAX} certificates: a chain is the site's own and those of the \
                 authorities between it and the root"
            ));
        }
        if der.len() > DER_BYTES_MAX {
            return Err(format!("a certificate of more than {DER_BYTES_MAX} bytes"));
        }
        chain.push(Blob::from(&*der));
    }
    if chain.is_empty() {
        return Err(
            "no certificate is in it: it should hold the chain in PEM, the site's own first".into(),
        );
    }
    Ok(chain)
}

fn read_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let is_there = |word: &[u8]| pem.windows(word.len()).any(|part| part == word);
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(key) => Ok(key),
        Err(_) if is_there(b"ENCRYPTED") => Err(
            "its private key is encrypted, and nobody is there to type a password: write it out \
             with `openssl pkey -in FILE -out NEW`, for root to read alone"
                .into(),
        ),
        Err(_) => Err(
            "no private key is in it: it should hold one in PEM (BEGIN PRIVATE KEY, \
                       EC PRIVATE KEY or RSA PRIVATE KEY)"
                .into(),
        ),
    }
}

fn is_key_of(signing: &dyn SigningKey, public_key: &[u8]) -> bool {
    let own = signing.public_key();
    own.is_some_and(|own| own.as_ref() == public_key)
}

/// Says that the key is another's, and whose where that can be seen.
fn not_its_key(
    signing: &dyn SigningKey,
    chain: &[Blob],
    chain_file: &str,
    key_file: &str,
) -> String {
    let is_its =
        |der: &Blob| Leaf::read(&der.0).is_ok_and(|leaf| is_key_of(signing, &leaf.public_key));
    match chain.iter().position(is_its) {
        Some(place) => format!(
            "{chain_file}: its chain is not in order, the site's own certificate is number {}: put \
             it first",
            place + 1
        ),
        None if chain_file == key_file => format!(
            "{chain_file}: its private key is not the certificate's: take the one that was made \
             with it"
        ),
        None => format!(
            "{key_file}: not the private key of {chain_file}: take the one that was made with it"
        ),
    }
}

impl Leaf {
    fn read(der: &[u8]) -> Result<Leaf, String> {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|error| format!("its certificate cannot be read: {error}"))?;
        let validity = certificate.validity();
        let public_key = certificate.public_key();
        Ok(Leaf {
            names: names(&certificate),
            not_before_s: validity.not_before.timestamp(),
            not_after_s: validity.not_after.timestamp(),
            public_key: public_key.raw.to_vec(),
            kind: kind(public_key),
        })
    }
}

/// What kind of key it is; `None` for those that do not sign here.
fn kind(public_key: &x509_parser::x509::SubjectPublicKeyInfo<'_>) -> Option<KeyKind> {
    use x509_parser::public_key::PublicKey;
    match public_key.parsed().ok()? {
        PublicKey::RSA(key) => {
            let bits = u16::try_from(key.key_size()).ok()?;
            (2_048..=8_192)
                .contains(&bits)
                .then_some(KeyKind::Rsa { bits })
        }
        PublicKey::EC(point) => match point.key_size() {
            256 => Some(KeyKind::P256),
            384 => Some(KeyKind::P384),
            // What the point's bytes say of 521 bits.
            521..=528 => Some(KeyKind::P521),
            _ => None,
        },
        PublicKey::Unknown(_) => {
            let is_ed25519 = public_key.algorithm.algorithm.to_id_string() == "1.3.101.112";
            is_ed25519.then_some(KeyKind::Ed25519)
        }
        _ => None,
    }
}

/// The names that a certificate is good for; what is no name of a host, or would be one of too
/// many, is left out.
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let found = certificate.subject_alternative_name().ok().flatten();
    let found = found.map_or(&[][..], |extension| &extension.value.general_names);
    let names = found.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => host(name),
        GeneralName::IPAddress(bytes) => address(bytes),
        _ => None,
    });
    names.take(NAMES_MAX).collect()
}

fn host(name: &str) -> Option<String> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let rest = name.strip_prefix("*.").unwrap_or(&name);
    let is_host = !rest.is_empty() && rest.bytes().all(is_letter) && !rest.contains("..");
    (is_host && name.len() <= NAME_BYTES_MAX).then_some(name)
}

fn address(bytes: &[u8]) -> Option<String> {
    let four: Option<[u8; 4]> = bytes.try_into().ok();
    let sixteen: Option<[u8; 16]> = bytes.try_into().ok();
    let address = four.map(IpAddr::from).or(sixteen.map(IpAddr::from));
    address.map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};

    use super::*;
    use crate::making::Authority;

    /// A chain and a key in PEM.
    fn made(names: &[&str], algorithm: &'static SignatureAlgorithm) -> (String, String) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn pem(label: &str, der: &[u8]) -> String {
        pem::encode(&pem::Pem::new(label, der))
    }

    fn candidate(chain: &str, key: &str) -> Candidate {
        Candidate {
            chain_file: "a.pem".into(),
            key_file: if key.is_empty() { "a.pem" } else { "a.key" }.into(),
            chain: Blob::from(chain.as_bytes()),
            key: Blob::from(key.as_bytes()),
            shown_to: ipc::keeper::ShownTo::Clients,
        }
    }

    #[test]
    fn every_kind_of_key_is_found_with_its_names_and_dates() {
        for (algorithm, expected) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, KeyKind::P256),
            (&rcgen::PKCS_ECDSA_P384_SHA384, KeyKind::P384),
            (&rcgen::PKCS_ECDSA_P521_SHA512, KeyKind::P521),
            (&rcgen::PKCS_ED25519, KeyKind::Ed25519),
            (&rcgen::PKCS_RSA_SHA256, KeyKind::Rsa { bits: 2_048 }),
        ] {
            let names = ["WWW.Example.jp", "*.example.jp", "127.0.0.1", "::1"];
            let (chain, key) = made(&names, algorithm);
            let pair = judge(&candidate(&chain, &key)).unwrap();
            assert_eq!(pair.kind, expected);
            assert_eq!(
                pair.names,
                ["www.example.jp", "*.example.jp", "127.0.0.1", "::1"]
            );
            assert_eq!(pair.not_before_s, 157_766_400);
            assert_eq!(pair.chain.len(), 1);
            let together = judge(&candidate(&format!("{chain}{key}"), "")).unwrap();
            assert_eq!(together.chain, pair.chain);
            let key_first = judge(&candidate(&format!("{key}{chain}"), "")).unwrap();
            assert_eq!(key_first.chain, pair.chain);
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_file_and_what_to_do() {
        let (chain, key) = made(&["a.example"], &rcgen::PKCS_ECDSA_P256_SHA256);
        let (other_chain, other) = made(&["b.example"], &rcgen::PKCS_ED25519);
        let authority = Authority::make().unwrap().0;
        let leaf = authority.certify(&["a.example".into()]).unwrap();
        let leaf_key = pem("PRIVATE KEY", leaf.key.secret_der());
        let turned: String = leaf
            .chain
            .iter()
            .rev()
            .map(|der| pem("CERTIFICATE", &der.0))
            .collect();
        let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let many = chain.repeat(CHAIN_MAX + 1);
        let garbage = pem("CERTIFICATE", b"no certificate");
        for (chain, key, expected) in [
            ("", "", "a.pem: no certificate is in it"),
            (&*key, &*key, "a.pem: no certificate is in it"),
            (&*chain, "", "a.pem: no private key is in it"),
            (&*chain, &*chain, "a.key: no private key is in it"),
            (&*chain, &*encrypted, "a.key: its private key is encrypted"),
            (
                &*chain,
                &*other,
                "a.key: not the private key of a.pem: take the one",
            ),
            (
                &*format!("{chain}{other}"),
                "",
                "a.pem: its private key is not the certificate's",
            ),
            (
                &*turned,
                &*leaf_key,
                "a.pem: its chain is not in order, the site's own certificate is number 2",
            ),
            (&*many, &*key, "a.pem: more than 10 certificates"),
            (&*garbage, &*key, "a.pem: its certificate cannot be read"),
            (
                &*chain[..chain.len() - 10].to_owned(),
                &*key,
                "a.pem: no PEM after certificate 0",
            ),
            (
                &*chain,
                &*pem("PRIVATE KEY", b"no key"),
                "a.key: its private key cannot be read",
            ),
        ] {
            let problem = judge(&candidate(chain, key)).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
        assert!(judge(&candidate(&other_chain, &other)).is_ok());
    }

    #[test]
    fn a_chain_keeps_its_authorities() {
        let authority = Authority::make().unwrap().0;
        let made = authority.certify(&["a.example".into()]).unwrap();
        let ders = made.chain.iter();
        let chain: String = ders.map(|der| pem("CERTIFICATE", &der.0)).collect();
        let key = pem("PRIVATE KEY", made.key.secret_der());
        let pair = judge(&candidate(&chain, &key)).unwrap();
        assert_eq!(pair.chain, made.chain);
    }

    #[test]
    fn what_is_no_name_of_a_host_is_none() {
        for (name, expected) in [
            ("a.example.", Some("a.example")),
            ("*.A.example", Some("*.a.example")),
            ("a_b.example", Some("a_b.example")),
            ("", None),
            ("*.", None),
            ("*", None),
            ("a.*.example", None),
            ("a..example", None),
            ("a b", None),
            ("a/../b", None),
            ("日本.example", None),
        ] {
            assert_eq!(host(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_judged_never_a_panic() {
        let (chain, key) = made(&["a.example"], &rcgen::PKCS_ECDSA_P256_SHA256);
        let der = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
        for at in 0..der.len() {
            for value in [0, 1, 0x30, 0x7f, 0xff] {
                let mut bytes = der.to_vec();
                bytes[at] = value;
                let _ = judge(&candidate(&pem("CERTIFICATE", &bytes), &key));
            }
            let _ = judge(&candidate(&pem("CERTIFICATE", &der[..at]), &key));
        }
        for at in 0..chain.len() {
            let _ = judge(&candidate(&chain[..at], &key));
        }
    }
}
