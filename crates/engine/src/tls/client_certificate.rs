//! What a client's certificate says, in the words that configurations, scripts and programs have for it.
//!
//! The idea: it was verified in the handshake, and is read here when somebody first asks, once a connection. Names are
//! written as RFC 4514 has them, the last part first and everything beyond visible ASCII escaped, so that no name can
//! end a line of a log or a field; dates and numbers are written as OpenSSL does, which nginx and Apache show.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::model::TlsClientFact;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// How dates are written.
const DATE: &str = "%b %e %H:%M:%S %Y GMT";
/// What attributes of a name are called (RFC 4514, 3, and as OpenSSL adds to it); others are called by their numbers.
const ATTRIBUTES: [(&str, &str); 14] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// The subject's name.
    pub(crate) subject: String,
    /// The subject's common name, as it is; empty where it has none, or one that would end a line.
    pub(crate) common_name: String,
    /// The name of who signed it.
    pub(crate) issuer: String,
    /// Its number, in hexadecimal digits.
    pub(crate) serial: String,
    /// SHA-256 over it, in hexadecimal digits.
    pub(crate) fingerprint: String,
    /// From when it is valid.
    pub(crate) not_before: String,
    /// Until when.
    pub(crate) not_after: String,
    /// It as text (RFC 7468).
    pub(crate) pem: String,
}

impl ClientCertificate {
    /// Reads it; `None` for what is none: such a one is not verified either.
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let common_name = subject.iter_common_name().next();
        let common_name = common_name.and_then(|it| it.as_str().ok());
        let is_plain = |name: &&str| !name.contains(char::is_control);
        let serial = certificate.raw_serial();
        let serial = serial
            .strip_prefix(&[0])
            .filter(|rest| !rest.is_empty())
            .unwrap_or(serial);
        Some(Self {
            subject: name(subject),
            common_name: common_name.filter(is_plain).unwrap_or_default().to_owned(),
            issuer: name(certificate.issuer()),
            serial: serial.iter().map(|byte| format!("{byte:02X}")).collect(),
            fingerprint: hex(digest(&SHA256, der).as_ref()),
            not_before: date(certificate.validity().not_before),
            not_after: date(certificate.validity().not_after),
            pem: pem(der),
        })
    }

    /// Appends what it says of this.
    pub(crate) fn push(&self, fact: TlsClientFact, out: &mut Vec<u8>) {
        let text = match fact {
            TlsClientFact::Subject => &self.subject,
            TlsClientFact::Issuer => &self.issuer,
            TlsClientFact::Serial => &self.serial,
            TlsClientFact::Fingerprint => &self.fingerprint,
            TlsClientFact::NotBefore => &self.not_before,
            TlsClientFact::NotAfter => &self.not_after,
            TlsClientFact::Verify => return out.extend_from_slice(b"SUCCESS"),
            TlsClientFact::EscapedPem => return escape(&self.pem, out),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn date(time: ASN1Time) -> String {
    let time = jiff::Timestamp::from_second(time.timestamp());
    time.map_or_else(|_| String::new(), |time| time.strftime(DATE).to_string())
}

/// A name as RFC 4514 writes it.
fn name(name: &X509Name<'_>) -> String {
    let mut out = String::new();
    let parts: Vec<_> = name.iter().collect();
    for (at, part) in parts.iter().rev().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        for (at, attribute) in part.iter().enumerate() {
            out.push_str(if at > 0 { "+" } else { "" });
            push_attribute(attribute, &mut out);
        }
    }
    out
}

fn push_attribute(attribute: &AttributeTypeAndValue<'_>, out: &mut String) {
    let number = attribute.attr_type().to_id_string();
    let known = ATTRIBUTES.iter().find(|(known, _)| *known == number);
    match (known, attribute.as_str()) {
        (Some((_, called)), Ok(value)) => {
            out.push_str(called);
            out.push('=');
            push_escaped(value, out);
        }
        _ => {
            out.push_str(&number);
            out.push_str("=#");
            out.push_str(&hex(attribute.as_slice()));
        }
    }
}

/// A value, with what would mean something escaped by a backslash (RFC 4514, 2.4), and the rest by its bytes.
fn push_escaped(value: &str, out: &mut String) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        let is_at_edge = (byte == b' ' && (at == 0 || at == last)) || (byte == b'#' && at == 0);
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' if is_at_edge => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\{byte:02X}")),
        }
    }
}

/// A certificate as text (RFC 7468).
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = behind;
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

/// A text with everything escaped that a field or a URL might not have (RFC 3986, 2.1).
fn escape(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SerialNumber};

    use super::*;

    fn certificate(names: &[(DnType, &str)], serial: &[u8]) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.serial_number = Some(SerialNumber::from(serial.to_vec()));
        params.not_before = rcgen::date_time_ymd(2026, 1, 2);
        params.not_after = rcgen::date_time_ymd(2060, 11, 30);
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("a certificate");
        ClientCertificate::read(made.der()).expect("a certificate")
    }

    fn fact(of: &ClientCertificate, fact: TlsClientFact) -> String {
        let mut out = Vec::new();
        of.push(fact, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_certificate_says_what_nginx_and_apache_would_show_of_it() {
        let of = certificate(
            &[
                (DnType::CountryName, "JP"),
                (DnType::OrganizationName, "Example, K.K."),
                (DnType::CommonName, "alice"),
            ],
            &[0x0a, 0xff],
        );
        for (asked, expected) in [
            (TlsClientFact::Subject, "CN=alice,O=Example\\, K.K.,C=JP"),
            (TlsClientFact::Issuer, "CN=alice,O=Example\\, K.K.,C=JP"),
            (TlsClientFact::Serial, "0AFF"),
            (TlsClientFact::NotBefore, "Jan  2 00:00:00 2026 GMT"),
            (TlsClientFact::NotAfter, "Nov 30 00:00:00 2060 GMT"),
            (TlsClientFact::Verify, "SUCCESS"),
        ] {
            assert_eq!(fact(&of, asked), expected, "{asked:?}");
        }
        assert_eq!(of.common_name, "alice");
        let fingerprint = fact(&of, TlsClientFact::Fingerprint);
        assert!(fingerprint.len() == 64 && fingerprint.bytes().all(|it| it.is_ascii_hexdigit()));
        let escaped = fact(&of, TlsClientFact::EscapedPem);
        assert!(
            escaped.starts_with("-----BEGIN%20CERTIFICATE-----%0A"),
            "{escaped}"
        );
        assert!(
            escaped.ends_with("-----END%20CERTIFICATE-----%0A"),
            "{escaped}"
        );
    }

    #[test]
    fn nothing_in_a_name_can_end_a_line_or_a_part_of_it() {
        for (value, written) in [
            ("a\r\nX-Admin: 1", "CN=a\\0D\\0AX-Admin: 1"),
            (" #b ", "CN=\\ #b\\ "),
            ("#c", "CN=\\#c"),
            ("d+e=f;<g>\"\\", "CN=d\\+e=f\\;\\<g\\>\\\"\\\\"),
            ("日", "CN=\\E6\\97\\A5"),
            ("\u{7f}\0", "CN=\\7F\\00"),
            ("", "CN="),
        ] {
            let of = certificate(&[(DnType::CommonName, value)], &[1]);
            assert_eq!(of.subject, written, "{value:?}");
            assert!(!of.common_name.contains(char::is_control));
        }
        let odd = DnType::CustomDnType(vec![1, 2, 3, 4]);
        let of = certificate(&[(odd, "x")], &[0x00, 0x80]);
        assert!(of.subject.starts_with("1.2.3.4=#"), "{}", of.subject);
        assert_eq!(of.serial, "80");
    }

    #[test]
    fn what_is_no_certificate_says_nothing() {
        assert_eq!(ClientCertificate::read(b""), None);
        assert_eq!(ClientCertificate::read(&[0x30, 0x03, 1, 2, 3]), None);
    }
}
