//! Hosts.

use std::fmt;

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
