//! The configuration file: parsed with recovery, lowered to a model that cannot be wrong.
//!
//! `load` reads a file and its includes and returns either a [`model::Model`] or every problem
//! it found, each with file, line, column and what to do. Nobody else reads configuration.
#![forbid(unsafe_code)]

pub mod model;
