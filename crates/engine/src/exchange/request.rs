//! What was asked, by whom and when.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use fastcgi::environment::Scheme;
use wire::{FieldId, RequestHead};

use crate::directory::site_row::SiteRow;
use crate::tls::facts::TlsFacts;

/// A request's head and what is known of its sender.
#[derive(Debug)]
pub struct Request {
    /// The parsed head.
    pub head: RequestHead,
    /// The other end of the connection, or whom a balancer announced as that.
    pub peer: Peer,
    /// What its handshake came to; `None` where it speaks without TLS.
    pub tls: Option<Rc<TlsFacts>>,
    /// The client on whose behalf it asks: the peer, or whom a trusted proxy names.
    pub client: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub peer_trusted: bool,
    /// Names the request in replies, logs and towards upstreams.
    pub id: RequestId,
    /// When its head was complete.
    pub received: Instant,
    /// Which request of its connection it is, from 1.
    pub number: u64,
    /// The number of its connection: no other of the server has it.
    pub connection: u64,
    /// What the balancer in front said of the connection; `None` where there is none that does.
    pub announced: Option<Rc<Announced>>,
    /// The regular expression that was given up on it: whatever depends on that is not known.
    pub gave_up: RefCell<Option<Arc<str>>>,
    /// Variables that rewrite rules of its virtual host have set, each with the path that they had come to.
    pub server_env: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What the row of its host says: columns are looked up in it, all of one version.
    pub(crate) row: Option<Arc<SiteRow>>,
}

/// What a header of the PROXY protocol says beside addresses: for logs.
#[derive(Debug, PartialEq, Eq)]
pub struct Announced {
    /// Who sent it; the unspecified address for a Unix socket.
    pub sender: IpAddr,
    /// The connection's name there; empty where it has none, as each of the others.
    pub unique_id: Box<[u8]>,
    /// The name the client asked for.
    pub authority: Box<str>,
    /// Its version of TLS.
    pub tls_version: Box<str>,
    /// Its cipher.
    pub tls_cipher: Box<str>,
    /// The common name of its certificate.
    pub tls_client_name: Box<str>,
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address; the unspecified address for a Unix socket.
    pub address: SocketAddr,
    /// The address it connected to; the unspecified address for a Unix socket.
    pub local_ip: IpAddr,
    /// The port it connected to; 0 for a Unix socket.
    pub local_port: u16,
}

impl Peer {
    /// A peer without an address: a Unix socket or memory.
    pub const LOCAL: Self = Self {
        address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        local_ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        local_port: 0,
    };
}

/// A request's name: ours (16 hex digits), or one a trusted proxy sent (at most 64 bytes of `[A-Za-z0-9._-]`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    bytes: [u8; 64],
    len: u8,
}

/// Every byte as two hex digits.
static HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    table
};

impl RequestId {
    /// Formats a number as an id.
    pub fn from_number(number: u64) -> Self {
        let mut bytes = [0; 64];
        let (pairs, _) = bytes.as_chunks_mut::<2>();
        for (pair, byte) in pairs.iter_mut().zip(number.to_be_bytes()) {
            *pair = HEX[usize::from(byte)];
        }
        Self { bytes, len: 16 }
    }

    /// Takes over an id that arrived, if it is short and harmless.
    pub fn from_field(value: &[u8]) -> Option<Self> {
        let harmless = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        if value.is_empty() || value.len() > 64 || !value.iter().all(harmless) {
            return None;
        }
        let mut bytes = [0; 64];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self {
            bytes,
            len: u8::try_from(value.len()).ok()?,
        })
    }

    /// The id as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(self.as_bytes()).unwrap_or_default())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Request {
    /// What the handshake of its connection took of processors, in microseconds, where it is the first request there:
    /// from here on somebody has asked for it who made it to its end.
    pub(crate) fn own_handshake_us(&self) -> Option<u64> {
        let tls = self.tls.as_ref()?;
        (self.number == 1).then_some(tls.cpu_us)
    }

    /// How the client speaks: to us, or to a proxy of ours, as that tells.
    pub(crate) fn scheme(&self) -> Scheme {
        let told = || self.head.fields.get(FieldId::XForwardedProto);
        let is_told = || told().is_some_and(|told| told.eq_ignore_ascii_case(b"https"));
        match self.tls.is_some() || (self.peer_trusted && is_told()) {
            true => Scheme::Https,
            false => Scheme::Http,
        }
    }

    /// The port the client connected to; behind a Unix socket, the one its URL must have had.
    pub(crate) fn port(&self) -> u16 {
        match self.peer.local_port {
            0 => self.port_of_url(),
            port => port,
        }
    }

    /// The port that the client's URL must have had: what its `Host` says, or the usual one.
    pub(crate) fn port_of_url(&self) -> u16 {
        let authority = str::from_utf8(self.head.authority()).unwrap_or_default();
        let written = authority.rsplit_once(':');
        let written = written.and_then(|(_, port)| port.parse().ok());
        written.unwrap_or(match self.scheme() {
            Scheme::Http => 80,
            Scheme::Https => 443,
        })
    }

    /// What the row of its host says in a column; nothing where there is none.
    pub(crate) fn column(&self, name: &str) -> &str {
        self.row.as_ref().map_or("", |row| row.column(name))
    }

    /// Its word.
    pub(crate) fn scheme_word(&self) -> &'static [u8] {
        match self.scheme() {
            Scheme::Http => b"http",
            Scheme::Https => b"https",
        }
    }

    pub(super) fn new(peer: Peer) -> Self {
        Self {
            head: RequestHead::default(),
            peer,
            tls: None,
            client: peer.address.ip(),
            peer_trusted: false,
            id: RequestId::from_number(0),
            received: Instant::now(),
            number: 1,
            connection: 0,
            announced: None,
            gave_up: RefCell::default(),
            server_env: BTreeMap::new(),
            row: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_sixteen_hex_digits() {
        assert_eq!(
            RequestId::from_number(0xabc).to_string(),
            "0000000000000abc"
        );
    }

    #[test]
    fn an_odd_incoming_id_is_not_taken_over() {
        assert!(RequestId::from_field(b"a-b_c.9").is_some());
        for odd in [&b""[..], b"a b", b"a\r\nb", &[b'a'; 65]] {
            assert_eq!(RequestId::from_field(odd), None);
        }
    }
}
