//! `htaccess` of a site.

use htaccess::Overrides;

use super::handler::Handler;

/// What `.htaccess` files of a site may say.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteHtaccess {
    /// What they may say, as it is written.
    pub words: Vec<String>,
    /// What becomes of lines that are unknown or not allowed, and not about access.
    pub unknown: UnknownLines,
    /// Both, as files are read by them.
    pub overrides: Overrides,
    /// Names of handlers, the version of PHP that each stands for, and what answers then.
    pub handlers: Vec<(String, String, Handler)>,
}

/// What becomes of a line that is unknown or not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownLines {
    /// It is left out and told.
    Log,
    /// It refuses what it covers.
    Error,
}
