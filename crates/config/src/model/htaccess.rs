//! `htaccess` of a site.

use htaccess::{Overrides, SectionContext, is_directory};

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

impl SiteHtaccess {
    /// What a file in a directory may say, whose name has a slash at its end: the innermost section
    /// above it that says so decides.
    pub fn overrides_in(&self, directory: &[u8]) -> &Overrides {
        let mut sections = self.directories.iter().rev();
        let found = sections.find(|it| it.overrides.is_some() && it.holds(directory));
        let found = found.and_then(|section| section.overrides.as_ref());
        found.map_or(&self.overrides, |(_, overrides)| overrides)
    }

    /// Whether the virtual host says anything of all paths.
    pub fn says_server(&self) -> bool {
        let mut sections = self.directories.iter();
        sections.any(|it| it.context == SectionContext::Server)
    }

    /// Whether any file counts.
    pub fn obeys_files(&self) -> bool {
        let sections = self
            .directories
            .iter()
            .filter_map(|it| it.overrides.as_ref());
        let mut said = sections.map(|(_, overrides)| overrides);
        !self.overrides.is_none() || said.any(|overrides| !overrides.is_none())
    }
}

/// A section of the configuration in the words of `.htaccess` files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectorySection {
    /// The directory, absolute, with a slash at its end; a pattern where it has `*`, `?` or `[`.
    pub directory: String,
    /// What files from there inwards may say, as it is written and as they are read by it.
    pub overrides: Option<(Vec<String>, Overrides)>,
    /// Whether it is the directory's or the virtual host's.
    pub context: SectionContext,
    /// What it says; nothing in it refuses because it is not understood.
    pub text: String,
}

impl DirectorySection {
    /// Whether it is for all directories of such names.
    pub fn is_pattern(&self) -> bool {
        self.directory.contains(['*', '?', '['])
    }

    /// Whether it is for this very directory: one below a root.
    pub fn is_at(&self, root: &[u8], below: &[u8]) -> bool {
        match self.is_pattern() {
            true => is_directory(self.directory.as_bytes(), &[root, below].concat()),
            false => self.directory.as_bytes().strip_prefix(root) == Some(below),
        }
    }

    /// Whether it is for a directory or one above it.
    pub fn holds(&self, directory: &[u8]) -> bool {
        if !self.is_pattern() {
            return directory.starts_with(self.directory.as_bytes());
        }
        let levels = self.directory.matches('/').count();
        let slashes = directory.iter().enumerate();
        let mut slashes = slashes.filter(|(_, byte)| **byte == b'/');
        let end = levels.checked_sub(1).and_then(|last| slashes.nth(last));
        let above = end.and_then(|(end, _)| directory.get(..=end));
        above.is_some_and(|above| is_directory(self.directory.as_bytes(), above))
    }
}

/// What becomes of a line that is unknown or not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownLines {
    /// It is left out and told.
    Log,
    /// It refuses what it covers.
    Error,
}
