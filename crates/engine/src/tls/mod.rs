//! TLS: what comes before the first request of a connection, and around every byte of it.

#[allow(dead_code, reason = "sessions will record what fails")]
pub(crate) mod failures;
#[allow(dead_code, reason = "sessions will have their steps made")]
pub(crate) mod handshake;
