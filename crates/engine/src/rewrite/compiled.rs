//! Entries of `rewrite`, compiled.

use config::model::Rewrite;
use pattern::{Expression, Expressions, Syntax};

/// An entry, ready to be matched.
#[derive(Debug)]
pub(crate) struct CompiledRewrite {
    pub(super) from: Expression,
    pub(super) said: Rewrite,
}

/// Compiles the entries of a site, a mount or a rule.
///
/// # Errors
/// When a pattern's compiled form is too large.
pub(crate) fn compile(
    rewrites: &[Rewrite],
    expressions: &Expressions,
) -> Result<Box<[CompiledRewrite]>, Syntax> {
    let entry = |said: &Rewrite| {
        Ok(CompiledRewrite {
            from: expressions.of(&said.from)?,
            said: said.clone(),
        })
    };
    rewrites.iter().map(entry).collect()
}

/// Whether one of them may put something else in the place of a path.
pub(crate) fn may_rewrite(rewrites: &[CompiledRewrite], path: &[u8]) -> bool {
    let mut rewrites = rewrites.iter();
    rewrites.any(|rewrite| rewrite.from.is_match(path) != Ok(false))
}
