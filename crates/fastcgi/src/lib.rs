//! What a program that answers requests is told and how it answers, without I/O.
//!
//! [`environment`] makes a request into CGI's variables (RFC 3875), [`reply`] reads the head a
//! program answers with, [`record`] wraps both for programs that stay (FastCGI 1.0). What a
//! program says is as little trusted as what a client says: anything doubtful is refused. No
//! sockets, no clock, no processes.
#![forbid(unsafe_code)]

pub mod environment;
pub mod record;
pub mod reply;
