//! The clients against real stores, on a runtime like a worker's.

mod corpus;
mod memcached;
mod mysql;
mod properties;
mod redis;
mod worker;
