//! Files as clients see them: what is served, what is not, and while it changes.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod changing_files;
mod hidden;
mod static_files;
