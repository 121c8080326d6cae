//! What a program that answers requests is told and how it answers, without I/O.
//!
//! [`environment`] makes a request into CGI's variables (RFC 3875), [`reply`] reads the head a
//! program answers with. FastCGI and CGI share both. What a program says is as little trusted as
//! what a client says: anything doubtful is refused. No sockets, no clock, no processes.
#![forbid(unsafe_code)]

pub mod environment;
pub mod reply;
