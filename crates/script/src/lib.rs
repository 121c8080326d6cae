//! Operators' Ruby at the phases of a request.
//!
//! A script that waits suspends only its own request: each call of a hook runs in a fiber, and a
//! native that has to wait parks it until the answer is there.
#![forbid(unsafe_code)]
