//! `rewrite`: what is asked for in the place of what was.

use super::template::Template;

/// An entry of `rewrite`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// Regular expression over the canonical path (syntax checked).
    pub from: String,
    /// The path, and behind a `?` the query, of what is asked for instead. No map is asked.
    pub to: Template,
    /// What becomes of the client's query.
    pub query: QueryChange,
    /// Not where a file stands at the path.
    pub unless_file: bool,
    /// Not where a directory does.
    pub unless_directory: bool,
    /// Whether those below are passed over.
    pub last: bool,
}

/// What becomes of a client's query when its path is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryChange {
    /// It stays. Default where `to` has none.
    Keep,
    /// That of `to` takes its place, which may be none. Default where it has one.
    Replace,
    /// It follows that of `to`.
    Append,
    /// It goes.
    Drop,
}
