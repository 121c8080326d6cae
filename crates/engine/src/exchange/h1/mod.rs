//! An exchange carried by an HTTP/1.1 connection (RFC 9112).
//!
//! Both halves share one stream and outlive the request: a connection takes an exchange when it
//! has something to say and gives it back when it falls idle. Framing is decided in `wire`; here
//! it meets the socket. When a connection may be kept is decided in `listener/connection.rs`.

mod body;
mod reply;

pub use body::{H1Body, HeadRead};
pub use reply::H1Reply;

/// How long one side of a connection may take.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Longest silence, in milliseconds.
    pub silence_ms: u64,
    /// Fewest bytes per second on average, once `grace_ms` have passed.
    pub rate_min: u64,
    /// How long the average is not looked at, in milliseconds.
    pub grace_ms: u64,
}

impl Pace {
    /// Whether `bytes` in `elapsed_ms` is slower than allowed.
    fn is_too_slow(&self, bytes: u64, elapsed_ms: u64) -> bool {
        elapsed_ms > self.grace_ms
            && bytes.saturating_mul(1000) < self.rate_min.saturating_mul(elapsed_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drip_is_too_slow_only_after_the_grace() {
        let pace = Pace {
            silence_ms: 1,
            rate_min: 100,
            grace_ms: 10_000,
        };
        assert!(!pace.is_too_slow(1, 10_000));
        assert!(pace.is_too_slow(1_999, 20_000));
        assert!(!pace.is_too_slow(2_000, 20_000));
    }
}
