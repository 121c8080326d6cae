//! Test tools: the gateway as a process, a byte-exact client, a scripted upstream, vectors as data.
//!
//! The idea: tests speak to the real binary over real sockets and see exact bytes, so that no
//! client library tidies up what is being tested. Everything blocks, on plain threads, and every
//! wait has a deadline. Nothing here is part of the product, and nothing here depends on it.
#![forbid(unsafe_code)]

pub mod alone;
pub mod chromium;
pub mod client;
pub mod corpus;
pub mod countries;
pub mod fastcgi;
pub mod gateway;
pub mod http2;
mod listening;
pub mod message;
pub mod pebble;
pub mod peer;
pub mod php;
pub mod processes;
pub mod script_cases;
pub mod skip;
pub mod slow_mount;
pub mod stores;
pub mod temp;
pub mod upstream;
pub mod vectors;
pub mod wait;

pub use alone::{alone, alone_with};
pub use client::{Outcome, RawClient, Reply};
pub use corpus::{mutate, replay};
pub use fastcgi::{Call, FastCgiResponder};
pub use gateway::Gateway;
pub use http2::{H2Client, RawH2};
pub use message::Head;
pub use pebble::Pebble;
pub use peer::Peer;
pub use php::PhpFpm;
pub use processes::hold_still;
pub use skip::{lacks, lacks_program, lacks_root};
pub use stores::{MariaDb, Memcached, Postgres, RedisServer, a_mariadb, a_postgres, a_redis};
pub use temp::TempDir;
pub use upstream::{ScriptedUpstream, Seen, Step};
pub use wait::{PATIENCE, eventually, free_port, quick_once};
