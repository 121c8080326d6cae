//! Request methods.
//!
//! Names are case-sensitive: `get` is not GET but some other token, and is forwarded as such.

/// A method this gateway knows, or [`Method::Other`] for any other token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the protocol's own")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Patch,
    Trace,
    Connect,
    Other,
}

impl Method {
    /// Recognises a method by its exact name.
    pub fn from_bytes(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// Whether sending the request twice does the same as sending it once (RFC 9110 §9.2.2).
    pub fn is_idempotent(self) -> bool {
        use Method::{Delete, Get, Head, Options, Put, Trace};
        matches!(self, Get | Head | Put | Delete | Options | Trace)
    }
}
