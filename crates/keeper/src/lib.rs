//! The processes that hold keys: the keeper of private keys, and the one that asks authorities for
//! certificates.
#![forbid(unsafe_code)]

pub mod acme;
