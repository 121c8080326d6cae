//! Hosts, and the name a site has from its first.

use std::fmt;

use super::Site;

/// An entry of `hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// A host: lower case, no port, no trailing dot.
    Exact(String),
    /// `*.example.jp`: any name below; holds `example.jp`.
    Below(String),
    /// `*`: the default site.
    Any,
}

impl fmt::Display for HostPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(name) => out.write_str(name),
            HostPattern::Below(name) => write!(out, "*.{name}"),
            HostPattern::Any => out.write_str("*"),
        }
    }
}

impl Site {
    /// What it is called: its first host.
    #[must_use]
    pub fn name(&self) -> String {
        self.hosts
            .first()
            .map_or_else(|| "*".to_owned(), HostPattern::to_string)
    }
}
