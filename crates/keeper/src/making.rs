//! Keys and certificates that are made here: for an authority to sign, for a challenge, and for
//! development.
//!
//! The idea: a request names nothing but hosts, and its key is new. The certificate of a challenge
//! is good for one name and one digest and for nobody who checks chains. The authority for
//! development is a key in a file of the operator's; its certificate is made of that key alike each
//! time but for its dates, so that who trusts it once trusts it after every start.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipc::certificates::{Blob, KeyKind};
use ipc::keeper::Request;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SignatureAlgorithm,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// Names of one request.
const NAMES_MAX: usize = 100;
/// How long a certificate of the authority for development is valid: what clients of Apple's take.
const LOCAL_DAYS: u64 = 800;
/// How long the authority itself is.
const AUTHORITY_DAYS: u64 = 3_650;
/// How long the certificate of a challenge is.
const CHALLENGE_DAYS: u64 = 7;
/// How the authority is called where somebody looks at what his machine trusts.
const AUTHORITY: &str = "Nagaya development authority";

/// A certificate and its key, both new.
pub(crate) struct Made {
    /// DER, leaf first.
    pub(crate) chain: Vec<Blob>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// From when it is valid: seconds since 1970.
    pub(crate) not_before_s: i64,
    /// Until when.
    pub(crate) not_after_s: i64,
}

impl Made {
    fn of(params: &CertificateParams, key: &KeyPair, chain: Vec<Blob>) -> Made {
        Made {
            chain,
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            not_before_s: params.not_before.unix_timestamp(),
            not_after_s: params.not_after.unix_timestamp(),
        }
    }
}

/// Makes a key, and a request for a certificate of these names.
///
/// # Errors
/// In words.
pub(crate) fn request(kind: KeyKind, names: &[String]) -> Result<Request, String> {
    let algorithm = algorithm(kind)?;
    if names.is_empty() || names.len() > NAMES_MAX {
        return Err(format!("a request is for 1 to {NAMES_MAX} names"));
    }
    let key = KeyPair::generate_for(algorithm).map_err(said)?;
    let mut params = CertificateParams::new(names).map_err(said)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(said)?;
    Ok(Request {
        request: Blob::from(&**request.der()),
        key: Blob::from(key.serialize_pem().into_bytes()),
    })
}

/// Makes the certificate that answers TLS-ALPN-01 for a name (RFC 8737, 3).
///
/// # Errors
/// In words.
pub(crate) fn challenge(name: &str, digest: &[u8; 32]) -> Result<Made, String> {
    let key = KeyPair::generate().map_err(said)?;
    let mut params = valid_for(vec![name.to_owned()], CHALLENGE_DAYS)?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key).map_err(said)?;
    let chain = vec![Blob::from(&**certificate.der())];
    Ok(Made::of(&params, &key, chain))
}

/// An authority for development.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Blob,
}

impl Authority {
    /// Makes one, and tells it in PEM: certificate and key.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn make() -> Result<(Authority, Blob), String> {
        let key = KeyPair::generate().map_err(said)?;
        let params = authority()?;
        let certificate = params.self_signed(&key).map_err(said)?;
        let text = certificate.pem() + &key.serialize_pem();
        let authority = Authority {
            issuer: Issuer::new(params, key),
            certificate: Blob::from(&**certificate.der()),
        };
        Ok((authority, Blob::from(text.into_bytes())))
    }

    /// The one that [`Authority::make`] told; `None` where its time is over.
    ///
    /// # Errors
    /// In words, where it is another's.
    pub(crate) fn of_pem(pem: &[u8]) -> Result<Option<Authority>, String> {
        let certificate = CertificateDer::from_pem_slice(pem);
        let certificate = certificate.map_err(|error| format!("no certificate: {error}"))?;
        let (_, parsed) = X509Certificate::from_der(&certificate)
            .map_err(|error| format!("no certificate: {error}"))?;
        if parsed.validity().not_after < ASN1Time::now() {
            return Ok(None);
        }
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem);
        let key = key.map_err(|error| format!("no private key: {error}"))?;
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &rcgen::PKCS_ECDSA_P256_SHA256);
        let key = key.map_err(said)?;
        Ok(Some(Authority {
            issuer: Issuer::new(authority()?, key),
            certificate: Blob::from(&*certificate),
        }))
    }

    /// Makes a certificate of these names.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn certify(&self, names: &[String]) -> Result<Made, String> {
        let key = KeyPair::generate().map_err(said)?;
        let mut params = valid_for(names.to_vec(), LOCAL_DAYS)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).map_err(said)?;
        let chain = vec![Blob::from(&**certificate.der()), self.certificate.clone()];
        Ok(Made::of(&params, &key, chain))
    }
}

fn authority() -> Result<CertificateParams, String> {
    let mut params = valid_for(Vec::new(), AUTHORITY_DAYS)?;
    params
        .distinguished_name
        .push(DnType::CommonName, AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Of these names, from yesterday on, for so many days.
fn valid_for(names: Vec<String>, days: u64) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::new(names).map_err(said)?;
    let day = Duration::from_secs(86_400);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let yesterday = now.unwrap_or_default().saturating_sub(day);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + yesterday;
    let days = u32::try_from(days).unwrap_or(u32::MAX);
    params.not_after = epoch + yesterday + day.saturating_mul(days);
    params.distinguished_name = rcgen::DistinguishedName::new();
    Ok(params)
}

fn algorithm(kind: KeyKind) -> Result<&'static SignatureAlgorithm, String> {
    match kind {
        KeyKind::P256 => Ok(&rcgen::PKCS_ECDSA_P256_SHA256),
        KeyKind::P384 => Ok(&rcgen::PKCS_ECDSA_P384_SHA384),
        KeyKind::Ed25519 => Ok(&rcgen::PKCS_ED25519),
        KeyKind::Rsa { .. } | KeyKind::P521 => {
            Err("no key of this kind is made here: P-256, P-384 or Ed25519".into())
        }
    }
}

fn said(error: rcgen::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::X509CertificationRequest;

    use super::*;

    fn is_signed(bytes: &[u8], signature: &[u8], key: &[u8]) -> bool {
        use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key);
        key.verify(bytes, signature).is_ok()
    }

    #[test]
    fn a_request_names_its_hosts_and_its_key_is_new() {
        let names = ["a.example".to_owned(), "*.b.example".to_owned()];
        let one = request(KeyKind::P256, &names).unwrap();
        let other = request(KeyKind::P256, &names).unwrap();
        assert_ne!(one.key, other.key);
        let (rest, parsed) = X509CertificationRequest::from_der(&one.request.0).unwrap();
        assert!(rest.is_empty());
        let asked = &parsed.certification_request_info;
        assert!(is_signed(
            asked.raw,
            &parsed.signature_value.data,
            &asked.subject_pki.subject_public_key.data
        ));
        let text = String::from_utf8_lossy(&one.request.0);
        assert!(names.iter().all(|name| text.contains(name.as_str())));
        assert!(PrivateKeyDer::from_pem_slice(&one.key.0).is_ok());
        assert!(request(KeyKind::P256, &[]).is_err());
        assert!(request(KeyKind::Rsa { bits: 2_048 }, &names).is_err());
    }

    #[test]
    fn the_certificate_of_a_challenge_has_the_digest_and_the_name() {
        let made = challenge("a.example", &[7; 32]).unwrap();
        let (_, parsed) = X509Certificate::from_der(&made.chain[0].0).unwrap();
        let extension = parsed
            .extensions()
            .iter()
            .find(|it| it.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
        let extension = extension.unwrap();
        assert!(extension.critical);
        assert_eq!(extension.value, [&[4, 32][..], &[7; 32]].concat());
    }

    #[test]
    fn an_authority_that_was_kept_certifies_as_the_one_it_was() {
        let (_, kept) = Authority::make().unwrap();
        let authority = Authority::of_pem(&kept.0).unwrap().unwrap();
        let made = authority.certify(&["localhost".into()]).unwrap();
        let (_, leaf) = X509Certificate::from_der(&made.chain[0].0).unwrap();
        let (_, root) = X509Certificate::from_der(&made.chain[1].0).unwrap();
        let key = &root.public_key().subject_public_key.data;
        for signed in [&leaf, &root] {
            let bytes = signed.tbs_certificate.as_ref();
            assert!(is_signed(bytes, &signed.signature_value.data, key));
        }
        assert_eq!(leaf.issuer(), root.subject());
        assert!(root.is_ca() && !leaf.is_ca());
        assert!(Authority::of_pem(b"").is_err());
    }

    #[test]
    fn an_authority_whose_time_is_over_is_none() {
        let key = KeyPair::generate().unwrap();
        let mut params = authority().unwrap();
        params.not_after = params.not_before + Duration::from_secs(3_600);
        let ended = params.self_signed(&key).unwrap();
        let kept = ended.pem() + &key.serialize_pem();
        assert!(matches!(Authority::of_pem(kept.as_bytes()), Ok(None)));
    }
}
