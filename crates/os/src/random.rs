//! Bytes that nobody can foresee, and numbers that only look so.

use std::io;

use rustix::io::{Errno, retry_on_intr};
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` from the kernel's generator.
///
/// # Errors
/// When the kernel has none, or has not yet gathered enough at the machine's start.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = retry_on_intr(|| getrandom(&mut *rest, GetRandomFlags::NONBLOCK))?;
        rest = match rest.get_mut(written..) {
            Some(rest) if written > 0 => rest,
            _ => return Err(Errno::IO.into()),
        };
    }
    Ok(())
}

/// Spreads a counter over all 64-bit numbers, one to one (the finaliser of SplitMix64).
#[must_use]
pub fn spread(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_fillings_differ() {
        let (mut one, mut other) = ([0; 32], [0; 32]);
        fill(&mut one).expect("random bytes");
        fill(&mut other).expect("random bytes");
        assert_ne!(one, other);
        assert!(fill(&mut []).is_ok());
    }
}
