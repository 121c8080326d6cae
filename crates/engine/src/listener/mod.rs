//! From a listening socket to connections, spread over the workers and held within their caps.
//!
//! Each worker accepts from sockets of its own. A fresh connection is handed, unread, to another
//! worker when the load table says that this one is held up or has clearly more than its share.
//! Whoever speaks for others there says so before anything else. Its life is told in [`connection`], where it speaks
//! HTTP/2 in [`h2`].

pub(crate) mod accept;
pub(crate) mod arrival;
pub(crate) mod clients;
pub(crate) mod connection;
mod h2;
mod proxy_protocol;

pub(crate) use accept::run;
pub(crate) use connection::start_handed;
