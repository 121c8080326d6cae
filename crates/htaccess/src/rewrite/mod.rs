//! `RewriteRule` and `RewriteCond` of a directory: the sets of rules, and one pass through them.
//!
//! `read` makes lines into rules, `template` expands results and what conditions test, `pass` goes
//! through a set, and `target` says what its result is: a redirect, or a path of the site.

mod escape;
mod pass;
mod read;
mod target;
mod template;

use std::sync::Arc;

use crate::expression;
use crate::pattern::Pattern;
use crate::settings::Placed;

pub(crate) use escape::{escape_path, is_absolute, unescaped};
pub(crate) use pass::{RewriteResult, run, translate};
pub(crate) use read::{condition, options, refuses, rule};
use template::{Escaping, Template};

/// Times that `N` begins a set anew.
const ROUNDS_MAX: u32 = 64;
/// The longest path or text that a rule makes.
const RESULT_BYTES_MAX: usize = 16 * 1024;
/// Conditions of one rule.
pub(crate) const CONDITIONS_MAX: usize = 512;

/// The lines of one place.
#[derive(Debug, Clone, Default)]
pub(crate) struct RewriteLines {
    pub(crate) engine: Option<bool>,
    pub(crate) options: Option<Options>,
    pub(crate) base: Option<Vec<u8>>,
    /// The directory that paths are relative to; none where no line is.
    pub(crate) directory: Option<Arc<[u8]>>,
    pub(crate) rules: Vec<Placed<Rule>>,
    /// Whether any line of rewriting stands here.
    pub(crate) is_said: bool,
}

/// `RewriteOptions`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) inherit: bool,
    pub(crate) inherit_before: bool,
    pub(crate) inherit_down: bool,
    pub(crate) inherit_down_before: bool,
    pub(crate) ignore_inherit: bool,
    pub(crate) allow_no_slash: bool,
    pub(crate) merge_base: bool,
    pub(crate) ignore_context: bool,
}

impl RewriteLines {
    /// Takes in the lines of a place within: its rules replace these, but where they are
    /// inherited.
    pub(crate) fn merge(&mut self, inner: &Self, directory: &Arc<[u8]>) {
        if !inner.is_said {
            return;
        }
        let outer = std::mem::take(self);
        let options = inner.options.or(outer.options);
        let said = options.unwrap_or_default();
        let down = outer.options.unwrap_or_default();
        let own = inner.rules.iter().map(|rule| rule.below(directory));
        let own: Vec<_> = own.collect();
        let both = |first: &[Placed<Rule>], then: &[Placed<Rule>]| [first, then].concat();
        let rules = if said.inherit || (down.inherit_down && !said.ignore_inherit) {
            both(&own, &outer.rules)
        } else if said.inherit_before || (down.inherit_down_before && !said.ignore_inherit) {
            both(&outer.rules, &own)
        } else {
            own
        };
        let base = match inner.base.is_none() && said.merge_base {
            true => outer.base,
            false => inner.base.clone(),
        };
        *self = Self {
            engine: inner.engine.or(outer.engine),
            options,
            base,
            directory: Some(Arc::clone(directory)),
            rules,
            is_said: true,
        };
    }
}

/// A rule and its conditions.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) line: u32,
    pub(crate) pattern: Pattern,
    pub(crate) negated: bool,
    pub(crate) conditions: Vec<RewriteCondition>,
    output: Template,
    pub(crate) flags: Flags,
}

/// What a rule's flags say.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// `C`: those that follow are skipped where this one does not match.
    chain: bool,
    /// `NS` and `R`: not for pages that are looked at in a subrequest.
    skips_pages: bool,
    discards_path_info: bool,
    end: bool,
    pub(crate) proxy: bool,
    pass_through: bool,
    last: bool,
    /// `N`: how often at most.
    rounds: Option<u32>,
    no_escape: bool,
    folds: bool,
    query: Query,
    /// `QSL`: the last `?` parts path and query.
    splits_last: bool,
    redirect: bool,
    /// The status of a redirect.
    status: Option<u16>,
    /// The status that it refuses with.
    refusal: Option<u16>,
    /// The result is none: `-`, or a status that is no redirect.
    no_result: bool,
    skip: usize,
    escaping: Escaping,
    escapes: bool,
    allows_question_mark: bool,
    keeps_slashes: bool,
    env: Vec<Template>,
    cookies: Vec<Template>,
    media_type: Option<Template>,
    handler: Option<Template>,
    /// It depends on what is not had here, and never matches.
    pub(crate) never: bool,
}

impl Flags {
    /// Whether it refuses: `F`, `G`, or another status that is no redirect.
    pub(crate) fn refuses(&self) -> bool {
        self.refusal.is_some()
    }
}

/// What becomes of the query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Query {
    #[default]
    Keep,
    Append,
    Discard,
    /// The result ends with a `?`: there is none, whatever is captured.
    None,
}

/// What must hold for a rule.
#[derive(Debug)]
pub(crate) struct RewriteCondition {
    pub(crate) line: u32,
    input: Template,
    test: Test,
    negated: bool,
    or_next: bool,
    no_vary: bool,
    /// Whether it may depend on variables.
    pub(crate) is_by_env: bool,
    text: Box<str>,
}

#[derive(Debug)]
enum Test {
    /// `-f` and its like.
    File(u8),
    Text(expression::Comparison, Vec<u8>, bool),
    Number(expression::Comparison, i64),
    Pattern(Pattern),
    Expression(expression::Condition),
    /// `-U` and `-F`.
    Lookup,
}

impl RewriteCondition {
    fn is_unsupported(&self) -> bool {
        matches!(self.test, Test::Lookup) || self.input.is_unsupported()
    }
}

impl Rule {
    /// The line of it or its conditions that needs what is not had here, if there is one.
    pub(crate) fn unsupported(&self) -> Option<u32> {
        let mut conditions = self.conditions.iter();
        let condition = conditions.find(|it| it.is_unsupported());
        let flags = &self.flags;
        let mut texts = [&flags.env, &flags.cookies].into_iter().flatten();
        let is_own = self.output.is_unsupported() || texts.any(Template::is_unsupported);
        condition.map(|it| it.line).or(is_own.then_some(self.line))
    }

    /// Whether it sets variables.
    pub(crate) fn sets_env(&self) -> bool {
        !self.flags.env.is_empty()
    }
}
