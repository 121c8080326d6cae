//! An exchange carried by an HTTP/1.1 connection (RFC 9112).
//!
//! Both halves share one stream and outlive the request: a connection takes an exchange when it
//! has something to say, attaches both halves to its stream, and gives it back when it falls idle. Framing is decided in `wire`; here
//! it meets the socket. When a connection may be kept is decided in `listener/connection.rs`.

pub(crate) mod body;
pub(crate) mod reply;

pub(crate) use body::H1Body;
pub(crate) use reply::H1Reply;

use std::ops::Deref;
use std::rc::Rc;

use crate::io::Io;

/// The connection of a half, which has none while its exchange is at rest.
#[derive(Debug)]
struct Attached(Option<Rc<Io>>);

impl Deref for Attached {
    type Target = Io;

    fn deref(&self) -> &Io {
        self.0.as_deref().expect("a half at rest is not used")
    }
}
