//! Measures this gateway beside its peers.
#![forbid(unsafe_code)]
