//! Starting programs as somebody else.

/// What each process of a program may use; `None` is what this process may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Processor time in seconds.
    pub cpu_s: Option<u64>,
    /// Address space in bytes.
    pub memory_bytes: Option<u64>,
    /// Open descriptors.
    pub files: Option<u64>,
    /// Processes of the user.
    pub processes: Option<u64>,
    /// Size of a file it writes, in bytes.
    pub file_size_bytes: Option<u64>,
}
