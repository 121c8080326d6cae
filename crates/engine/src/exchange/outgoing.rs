//! What a handler says of its reply before a byte of it leaves: status, fields, how long the body is. Framing is left to
//! whatever carries it.

use wire::Fields;

/// Status and fields of a reply, without framing.
#[derive(Debug, Default, Clone)]
pub struct Outgoing {
    /// Status code; 0 until a handler has chosen one.
    pub status: u16,
    /// Fields in the order they will be sent.
    pub fields: Fields,
    /// Whether its handler has judged the request's conditions and chosen the coding.
    pub is_settled: bool,
}

impl Outgoing {
    /// Empties it for the next reply.
    pub fn clear(&mut self) {
        self.status = 0;
        self.fields.clear();
        self.is_settled = false;
    }
}

/// How long a reply's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodySize {
    /// There is none and no length is said (204, 304, tunnels).
    None,
    /// So many bytes.
    Length(u64),
    /// Not known yet.
    Unknown,
}
