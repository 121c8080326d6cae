//! The request path: listeners, pipeline, handlers, upstreams.
#![forbid(unsafe_code)]
pub mod link;
