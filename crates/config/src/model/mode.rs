//! Whether what decides over requests has its way.

/// Whether what decides over requests, such as a limit, a rule that sheds or a script, has its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It has.
    Enforce,
    /// It counts and decides, and lets everybody pass.
    Shadow,
}
