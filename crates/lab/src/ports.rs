//! Ports nobody listens on, below the range the kernel gives to outgoing connections.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};

use load::Error;

const FIRST: u16 = 10_000;
/// Where outgoing connections begin on any Linux we know.
const LAST: u16 = 29_999;
const TRIES: usize = 1000;

/// Ports given out so far.
#[derive(Debug, Default)]
pub struct Ports {
    given: BTreeSet<u16>,
}

impl Ports {
    /// A port that was not given out before.
    pub fn free(&mut self) -> Result<u16, Error> {
        for _ in 0..TRIES {
            let port = fastrand::u16(FIRST..=LAST);
            if !self.given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
            {
                self.given.insert(port);
                return Ok(port);
            }
        }
        Err(Error::new(
            "find a free port",
            format!("{TRIES} were taken between {FIRST} and {LAST}"),
        ))
    }
}
