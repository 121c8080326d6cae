//! Addresses as people write them, taken apart: `10.0.0.0/8`, `app.internal:8080`, `[::1]:80`.
//!
//! Left out: what host and port have to be. That differs from place to place.

/// Splits what stands before a port from the port. An IPv6 address that has one stands in brackets,
/// which are taken off.
#[must_use]
pub fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some((inner, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return match rest.strip_prefix(':') {
            Some(port) => (inner, Some(port)),
            None if rest.is_empty() => (inner, None),
            None => (text, None),
        };
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}
