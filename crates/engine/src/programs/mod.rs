//! What worker, spawner and supervisor say to each other about programs.
//!
//! The idea: a worker asks for a program by naming a rule of a generation and a file below the
//! site's root; everything else (as which user, in which group, under which limits) the spawner
//! knows from the plan that the supervisor gave it. What a worker sends is decoded as hostile.
//! A worker's end of it is in [`link::Programs`], what it knows of pools in [`pools`], and of requests
//! that were refused in [`recent`]; [`inquiries`] passes on what operators ask of them.

pub(crate) mod inquiries;
pub(crate) mod link;
pub(crate) mod pools;
pub(crate) mod recent;
mod slot;

pub(crate) use link::Program;
pub(crate) use slot::ProgramOutcome;
