//! `htaccess` of a site.

use htaccess::{Overrides, SectionContext};

use super::handler::Handler;

/// What `.htaccess` files of a site may say, and what the configuration says in their way.
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
    /// Sections that count as files do: the virtual host's first, then those of outer directories
    /// before those of inner ones; of one directory in their order.
    pub directories: Vec<DirectorySection>,
}

/// A section of the configuration in the words of `.htaccess` files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectorySection {
    /// The directory, absolute, with a slash at its end.
    pub directory: String,
    /// Whether it is the directory's or the virtual host's.
    pub context: SectionContext,
    /// What it says; nothing in it refuses because it is not understood.
    pub text: String,
}

/// What becomes of a line that is unknown or not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownLines {
    /// It is left out and told.
    Log,
    /// It refuses what it covers.
    Error,
}
