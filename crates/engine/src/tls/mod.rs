//! TLS: what comes before the first request of a connection, and around every byte of it.

pub(crate) mod accept;
pub(crate) mod certifier;
pub(crate) mod client_certificate;
pub(crate) mod demands;
pub(crate) mod facts;
pub(crate) mod failures;
pub(crate) mod handshake;
pub(crate) mod keeper;
pub(crate) mod obtain;
pub(crate) mod order_book;
pub(crate) mod policy;
pub(crate) mod servers;
pub(crate) mod session;
pub(crate) mod site;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod teller;
pub(crate) mod tickets;
