//! The request path: listeners, pipeline, handlers, upstreams.
#![forbid(unsafe_code)]

pub mod error_log;
pub mod link;
pub mod log_paths;
