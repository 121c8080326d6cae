//! What is next for a request, after a script or a handler has had its say.

/// What is next for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Its next phase.
    On,
    /// It is sent elsewhere, inside: it is resolved anew.
    Anew,
    /// Nothing: it has its answer.
    Answered,
}
