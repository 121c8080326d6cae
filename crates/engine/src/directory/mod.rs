//! Sites that rows of directories make: a name that no site has is looked up, and its row stamps a copy of the
//! site that stands for all of them.
//!
//! The idea: such a site is compiled once, as any other (`crate::site`). What of it is the row's (name, tenant, root,
//! plan) stands in the copy; rules, files and limits are shared with the one it is stamped of, and everything
//! downstream takes it for a site. Workers keep what they have stamped (`kept`) and share what is known of rows
//! (`table`), which a thread asks the directory process for (`link`), in turns by the network of who came (`turns`).
//!
//! A row is not trusted: what it makes is judged in `row`. Its programs are `programs`'s.

pub(crate) mod entry;
pub(crate) mod eyes;
pub(crate) mod find;
pub(crate) mod hosts;
pub(crate) mod kept;
pub(crate) mod link;
pub(crate) mod programs;
pub mod row;
pub(crate) mod rows;
pub(crate) mod site_row;
pub(crate) mod table;
pub(crate) mod tenants;
#[cfg(test)]
mod tests;
pub(crate) mod told;
mod turns;
