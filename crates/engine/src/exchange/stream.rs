//! What carried an exchange and carries bytes from there on, for a tunnel.

use std::rc::Rc;

use super::h2::H2Tunnel;
use crate::buffer::ReadBuffer;
use crate::io::Io;

/// What carries no more exchanges.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A connection of HTTP/1.1, and what was read of it already.
    H1(Rc<Io>, ReadBuffer),
    /// A stream of HTTP/2.
    H2(Box<H2Tunnel>),
}
