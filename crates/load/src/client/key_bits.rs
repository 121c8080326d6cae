//! How long the key in a certificate is: a short walk through its DER, for the report alone.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT: u8 = 0x06;
const VERSION: u8 = 0xa0;

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ELLIPTIC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

/// Bits of the public key of an X.509 certificate (RFC 5280, 4.1); `None` for a kind not known
/// here, and for what is no certificate.
pub(crate) fn key_bits(certificate: &[u8]) -> Option<u32> {
    let mut certificate = Walk(Walk(certificate).take(SEQUENCE)?);
    let mut signed = Walk(certificate.take(SEQUENCE)?);
    if signed.0.first() == Some(&VERSION) {
        signed.take(VERSION)?;
    }
    signed.take(INTEGER)?;
    // Signature, issuer, validity and subject.
    for _ in 0..4 {
        signed.take(SEQUENCE)?;
    }
    let mut key = Walk(signed.take(SEQUENCE)?);
    let mut algorithm = Walk(key.take(SEQUENCE)?);
    match algorithm.take(OBJECT)? {
        RSA => {
            let bits = key.take(BIT_STRING)?.strip_prefix(&[0])?;
            let modulus = Walk(Walk(bits).take(SEQUENCE)?).take(INTEGER)?;
            integer_bits(modulus)
        }
        ELLIPTIC => match algorithm.take(OBJECT)? {
            P256 => Some(256),
            P384 => Some(384),
            P521 => Some(521),
            _ => None,
        },
        ED25519 => Some(256),
        _ => None,
    }
}

fn integer_bits(bytes: &[u8]) -> Option<u32> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = bytes.get(zeros..)?;
    let first = bytes.first()?;
    u32::try_from(bytes.len() * 8)
        .ok()?
        .checked_sub(first.leading_zeros())
}

/// Values one after the other.
struct Walk<'a>(&'a [u8]);

impl<'a> Walk<'a> {
    /// The content of the next value, if it has this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, rest) = self.0.split_first()?;
        let (first, mut rest) = rest.split_first()?;
        let length = match first {
            0..=0x7f => usize::from(*first),
            // Up to three bytes of length: 16 MiB. Without a length is not for certificates.
            0x81..=0x83 => {
                let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
                rest = after;
                bytes
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        (*found == tag).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn certificate(name: &str) -> CertificateDer<'static> {
        let file = format!("{}/tests/keys/{name}.pem", env!("CARGO_MANIFEST_DIR"));
        CertificateDer::from_pem_file(file).expect("a certificate of the tests")
    }

    #[test]
    fn keys_are_as_long_as_they_were_made() {
        for (name, bits) in [
            ("rsa-2048", 2048),
            ("p-256", 256),
            ("p-384", 384),
            ("ed25519", 256),
        ] {
            assert_eq!(key_bits(&certificate(name)), Some(bits), "{name}");
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_no_reason_to_panic() {
        let whole = certificate("rsa-2048");
        for end in 0..whole.len() {
            let _ = key_bits(&whole[..end]);
            let mut changed = whole.to_vec();
            changed[end] ^= 0x81;
            let _ = key_bits(&changed);
        }
    }
}
