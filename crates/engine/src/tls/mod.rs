//! TLS: what comes before the first request of a connection, and around every byte of it.

#[allow(dead_code, reason = "sessions will record what fails")]
pub(crate) mod failures;
#[allow(dead_code, reason = "sessions will have their steps made")]
pub(crate) mod handshake;
#[allow(dead_code, reason = "sessions will sign")]
pub(crate) mod keeper;
#[allow(dead_code, reason = "sessions will be resumed")]
pub(crate) mod tickets;
