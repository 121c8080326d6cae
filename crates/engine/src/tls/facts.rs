//! What a connection's handshake has come to, for everybody who asks later: logs, programs, rules.

use super::session::Agreed;

/// What is known of the TLS of a connection.
#[derive(Debug)]
pub struct TlsFacts {
    /// What was agreed on.
    pub(crate) agreed: Agreed,
    /// The host the client asked for, as sites are looked up; `None` where it said none.
    pub(crate) name: Option<Box<str>>,
    /// The policy it came under.
    pub(crate) policy: [u8; 32],
    /// How long the handshake took, in microseconds of processors.
    pub(crate) cpu_us: u64,
}
