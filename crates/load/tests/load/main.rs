//! The generator over real sockets: what it counts is what its server did. And servers looked at.

mod hostile;
mod plain;
mod server;
mod tls;
