//! HTTP/1.1 on the wire.

mod body;
mod corpus;
mod path;
mod properties;
mod property;
mod proxy_protocol;
mod reply;
mod request;
mod vectors;
