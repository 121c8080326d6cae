//! Text with variables.

use super::map::MapLookup;

/// Text with variables, as used in redirects, replies and field values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// Pieces in order.
    pub parts: Vec<TemplatePart>,
}

/// One piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// Text as it is.
    Text(String),
    /// `$host`: canonical host, without port.
    Host,
    /// `$path`: canonical path, wire form.
    Path,
    /// `$query`: query without `?`, empty if none.
    Query,
    /// `$uri`: `$path`, and `?$query` if there is one.
    Uri,
    /// `$request_uri`: the same as the client has sent them, whatever was put in their place.
    RequestUri,
    /// `$scheme`: `http` or `https`.
    Scheme,
    /// `$client`: the resolved client's address.
    Client,
    /// `$request_id`.
    RequestId,
    /// `$method`.
    Method,
    /// `$tls_client_…`: what the client's certificate says; empty where it has shown none.
    TlsClient(TlsClientFact),
    /// `$1`, `${name}`: what a group of the rule's `path_regex` holds, or of the `from` of a rewrite;
    /// 0 is all of the match.
    Capture(usize),
    /// `$row.NAME`: what the row of the host says in this column; empty where it says nothing.
    Row(String),
    /// `${NAME:KEY|DEFAULT}`: a map's answer.
    Map(Box<MapLookup>),
}

/// Something that a client's certificate says, or what was found of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsClientFact {
    /// `$tls_client_subject`: its subject, as RFC 4514 writes names.
    Subject,
    /// `$tls_client_issuer`: who signed it.
    Issuer,
    /// `$tls_client_serial`: its number, in hexadecimal digits.
    Serial,
    /// `$tls_client_fingerprint`: SHA-256 over it, in hexadecimal digits.
    Fingerprint,
    /// `$tls_client_verify`: `SUCCESS`, or `NONE` where there is none.
    Verify,
    /// `$tls_client_not_before`: from when it is valid, as OpenSSL writes dates.
    NotBefore,
    /// `$tls_client_not_after`: until when.
    NotAfter,
    /// `$tls_client_cert`: it in PEM, escaped as in a URL.
    EscapedPem,
}

impl Template {
    /// Whether groups of a regular expression stand in it.
    #[must_use]
    pub fn has_captures(&self) -> bool {
        let is_one = |part: &TemplatePart| match part {
            TemplatePart::Capture(_) => true,
            TemplatePart::Map(lookup) => lookup.key.has_captures() || lookup.default.has_captures(),
            _ => false,
        };
        self.parts.iter().any(is_one)
    }

    /// Whether columns of rows stand in it.
    #[must_use]
    pub fn has_rows(&self) -> bool {
        let is_one = |part: &TemplatePart| match part {
            TemplatePart::Row(_) => true,
            TemplatePart::Map(lookup) => lookup.key.has_rows() || lookup.default.has_rows(),
            _ => false,
        };
        self.parts.iter().any(is_one)
    }

    /// The column that it is, and nothing else.
    #[must_use]
    pub fn as_row(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [TemplatePart::Row(name)] => Some(name),
            _ => None,
        }
    }

    /// What it asks of maps.
    pub fn lookups(&self) -> impl Iterator<Item = &MapLookup> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Map(lookup) => Some(&**lookup),
            _ => None,
        })
    }
}
