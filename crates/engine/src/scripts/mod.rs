//! Scripts on the way of a request: which of the configuration's run, when, and what comes of it.
//!
//! [`plan`] is what a generation knows of scripts, shared by all workers; [`vms`] has one
//! worker's VMs for it, and [`lifecycle`] is one of them, from opening to its last script; [`phases`] runs the scripts of a
//! phase, level by level, and [`outcome`] says what their words mean for the request, which they
//! see through [`request`]; of scripts in [`shadow`] it is only told, by [`tried`]; [`mod@set`] names upstreams, [`filters`] has the reply seen, and [`asks`]
//! does what scripts wait for that only the engine can do. What they leave behind lies in the exchange ([`scripted::Scripted`]).
//!
//! Left out: Ruby, budgets and the classes scripts use. They are the crate `script`.

mod asks;
mod content;
pub(crate) mod filters;
pub(crate) mod handshake;
pub(crate) mod lifecycle;
mod log;
mod next;
mod outcome;
mod phases;
pub(crate) mod plan;
mod reader;
mod request;
pub(crate) mod scripted;
mod set;
mod shadow;
mod sub_request;
#[cfg(test)]
mod tests;
pub(crate) mod tried;
pub(crate) mod vms;

pub(crate) use content::content;
pub(crate) use filters::{arm_filters, ask_for_identity, filter_body, keep_upstream};
pub(crate) use log::log;
pub(crate) use next::Next;
pub(crate) use outcome::serve_locally;
pub(crate) use phases::{access, leave_vm, rewrite};
pub(crate) use set::{set, take_named};
