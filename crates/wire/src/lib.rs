//! Strict HTTP/1.1 rules without I/O: framing, targets, authorities, fields, ranges.
#![forbid(unsafe_code)]
