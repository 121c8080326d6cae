//! The generator over real sockets: what it counts is what its server did.

mod hostile;
mod plain;
mod tls;
