//! `nagaya lab`: experiments that anyone can run again.
//!
//! The idea: an experiment is a file that says what is started, what is asked of it and what the
//! question is. It is read and checked whole before anything is started.

#![expect(dead_code, reason = "what runs experiments is not there yet")]

mod answer;
mod bed;
mod child;
mod hook;
mod interrupt;
mod model;
mod ports;
mod program;
mod reading;
mod source;
mod template;
