//! Bytes that nobody can foresee.

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
