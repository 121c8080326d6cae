//! Scripts in an interpreter, with a request in memory.

mod api;
mod bed;
mod corpus;
mod fuzz;
mod groups;
mod keeping;
mod library;
mod locks;
mod log_lines;
mod method_fuzz;
mod properties;
mod regexp;
mod required;
mod routing;
mod runs;
mod stores;
mod tokens;
