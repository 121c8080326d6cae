//! What would have become of a request, had all that is in shadow had its way.

use std::sync::Arc;

use limits::Refusal;

use crate::shedding::standing::Standing;

/// What was decided over a request in shadow, and had no effect on it.
#[derive(Debug, Default)]
pub struct Shadow {
    /// The word of what came first: why it would have been refused.
    pub reason: &'static str,
    /// The first limit, the most specific, that would have refused it.
    pub limit: Option<Box<Refusal>>,
    /// The rule that would have shed it.
    pub(crate) shed: Option<Arc<Standing>>,
    /// The script whose word would have counted.
    pub(crate) script: Option<Said>,
}

/// What a script in shadow said of a request.
#[derive(Debug)]
pub(crate) struct Said {
    /// The script's name.
    pub(crate) script: Arc<str>,
    /// What the request would have been: `answered 403`.
    pub(crate) word: String,
    /// Whether nothing else would have had a say in it.
    pub(crate) ends: bool,
}
