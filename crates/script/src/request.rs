//! What scripts see of a request, and may do to it.
//!
//! One trait with two implementations: the engine's exchange, and the made-up request of
//! `nagaya script run` and the tests. Values are bytes, as they came; classes give them shapes.

use std::future::Future;
use std::pin::Pin;

use os::cgroup::Layout;

use crate::scope::Scope;
use crate::wait::{Ask, Woken};

/// Something a request has one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Property {
    /// Its id.
    Id,
    /// The method. Writable before the handler.
    Method,
    /// The canonical path, decoded, without the query. Writable in `rewrite`.
    Uri,
    /// Path and query as the client sent them.
    UnparsedUri,
    /// The request line as the client sent it.
    RequestLine,
    /// The query, without `?`. Writable before the handler.
    Args,
    /// The resolved file. Writable in `rewrite`.
    Filename,
    /// What follows the file in the path.
    PathInfo,
    /// The site's root.
    DocumentRoot,
    /// `HTTP/1.1`.
    Protocol,
    /// `http` or `https`.
    Scheme,
    /// The host it is for: lower case, without port.
    Host,
    /// The `Host` field as sent.
    HttpHost,
    /// The site's first host.
    SiteName,
    /// The tenant.
    Tenant,
    /// The user who gave a password.
    User,
    /// The client's address.
    RemoteAddress,
    /// The client's port.
    RemotePort,
    /// The address it connected to.
    LocalAddress,
    /// The port it connected to.
    LocalPort,
    /// The reply's status, once there is one. Writable in `header_filter`, and before by scripts.
    Status,
    /// The reply's `Content-Type`. Writable before its head is sent.
    ContentType,
    /// Bytes of reply body sent so far.
    BodyBytesSent,
    /// Bytes of the reply sent so far, its head and framing counted.
    BytesSent,
    /// Bytes of the request's body, as announced.
    ContentLength,
    /// Bytes of the request that came so far, its head counted.
    RequestLength,
    /// Seconds since the request came, with milliseconds: `0.123`.
    RequestTime,
    /// The reply's body. Readable and writable in `body_filter`.
    Body,
    /// Name of the upstream.
    UpstreamName,
    /// Address of the server that was tried last.
    UpstreamAddress,
    /// Status the upstream gave.
    UpstreamStatus,
    /// Seconds spent on the upstream.
    UpstreamTime,
    /// The handler that runs.
    Handler,
    /// The number of its connection, which no other has had since the start.
    Connection,
    /// Requests so far on this connection, this one counted.
    ConnectionRequests,
    /// What the connection's handshake came to.
    Tls(TlsProperty),
    /// Of the certificate that a handshake shows. Only to be written, in `ssl_handshake`; nothing
    /// takes it back.
    Shown(ShownPart),
}

/// A part of what a handshake is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShownPart {
    /// The file of the chain.
    Certificate,
    /// The file of its key.
    Key,
    /// The chain, in PEM.
    CertificateData,
    /// Its key, in PEM.
    KeyData,
}

impl ShownPart {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [
        Self::Certificate,
        Self::Key,
        Self::CertificateData,
        Self::KeyData,
    ];

    /// Whether it is the name of a file.
    #[must_use]
    pub fn is_file(self) -> bool {
        matches!(self, Self::Certificate | Self::Key)
    }
}

/// What a handshake came to, and what the client's certificate says: none without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TlsProperty {
    /// `TLSv1.3`.
    Protocol,
    /// The cipher suite.
    Cipher,
    /// The host the client asked for in it.
    ServerName,
    /// The certificate's subject, as RFC 4514 writes names.
    ClientSubject,
    /// Who signed it.
    ClientIssuer,
    /// Its number, in hexadecimal digits.
    ClientSerial,
    /// SHA-256 over it, in hexadecimal digits.
    ClientFingerprint,
    /// `SUCCESS`, or `NONE` where there is none.
    ClientVerify,
    /// From when it is valid.
    ClientNotBefore,
    /// Until when.
    ClientNotAfter,
    /// It in PEM, escaped as in a URL.
    ClientEscapedPem,
}

/// Which fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Of the request.
    In,
    /// Of the reply.
    Out,
    /// Of the reply as the upstream or the program gave it: only to be read, from `header_filter`
    /// on.
    Upstream,
}

/// Why a request does not let itself be changed so: what to say in the exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

/// A request, as scripts see it.
pub trait Request {
    /// What its scripts have left behind so far.
    fn scope(&mut self) -> &mut Scope;

    /// Appends a property's value; `false` when it has none.
    fn read(&self, property: Property, out: &mut Vec<u8>) -> bool;

    /// Appends the first server of an upstream; `false` when none has this name.
    fn server_of(&self, upstream: &[u8], out: &mut Vec<u8>) -> bool;

    /// Where the group stands that [`crate::CgroupWish`] of this name makes, be it there or not;
    /// `None` where the request's program would be in no group to make it in.
    fn group(&self, name: &str) -> Option<(&Layout, Vec<String>)>;

    /// Calls `each` with every column of the row that has made its site; `false` where none has.
    fn row(&self, each: &mut dyn FnMut(&str, &str)) -> bool {
        let _ = each;
        false
    }

    /// Changes a property.
    ///
    /// # Errors
    /// When it cannot be changed, not now, or not to this.
    fn write(&mut self, property: Property, value: &[u8]) -> Result<(), Refused>;

    /// Calls `each` with every value of a field, whose name is compared without case.
    fn field(&self, side: Side, name: &[u8], each: &mut dyn FnMut(&[u8]));

    /// Calls `each` with every field's name and value.
    fn fields(&self, side: Side, each: &mut dyn FnMut(&[u8], &[u8]));

    /// Gives a field these values instead of those it had; none removes it. A field that is the
    /// gateway's own (framing, hop by hop) is left as it is.
    ///
    /// # Errors
    /// When name or value are none (CR, LF and NUL are never let through), or when it is too late.
    fn set_field(&mut self, side: Side, name: &[u8], values: &[&[u8]]) -> Result<(), Refused>;

    /// Waits for something only the engine can wait for.
    fn perform<'a>(&'a mut self, ask: Ask) -> Pin<Box<dyn Future<Output = Woken> + 'a>>;
}
