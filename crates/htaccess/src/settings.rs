//! What the lines of one place say, and how a place within changes it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::access::{HostLines, Required};
use crate::expression::Word;
use crate::options::{AllowedOptions, OptionsEdit};
use crate::pattern::Pattern;
use crate::redirect::Redirect;
use crate::reply::{FieldEdit, FieldTable};
use crate::request::Stop;
use crate::rewrite::RewriteLines;
use crate::types::Endings;
use crate::work::{LINE_STEPS, Work};

pub use crate::types::Described;

/// Places whose requirements go together.
const REQUIRED_MAX: usize = 128;
/// Names that lists of a directory leave out.
pub(crate) const UNLISTED_MAX: usize = 64;

/// About as many bytes as an entry of a table or a list takes, without its texts.
pub(crate) const ENTRY_BYTES: usize = 64;

/// All that holds for a file, merged.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// What makes everything here refused.
    pub(crate) fault: Option<Stop>,
    pub(crate) options: OptionsEdit,
    pub(crate) hosts: Option<Placed<HostLines>>,
    /// What is required; of more than one place where `AuthMerging` says so.
    pub(crate) require: Vec<Required>,
    /// How requirements go with those of the directory above: all of both, or any of them.
    pub(crate) merges_require: Option<Merging>,
    pub(crate) auth: Auth,
    pub(crate) tls_only: bool,
    /// Lines that set variables by what is asked, in their order.
    pub(crate) env_conditions: Vec<Placed<EnvCondition>>,
    /// Variables that are set whatever is asked; none where one is taken away.
    pub(crate) env: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    pub(crate) rewrite: RewriteLines,
    /// Rules of the virtual host, which come before any directory's.
    pub(crate) server_rewrite: RewriteLines,
    /// Redirects of the virtual host, which come right after these.
    pub(crate) server_redirects: Vec<Placed<Redirect>>,
    /// Of one place as its file has them, merged the other way round: the innermost are asked first.
    pub(crate) redirects: Vec<Placed<Redirect>>,
    pub(crate) fields: Vec<Placed<FieldEdit>>,
    pub(crate) expiry: Expiry,
    pub(crate) endings: Endings,
    pub(crate) media_type: Option<Option<Vec<u8>>>,
    pub(crate) handler: Option<Option<Vec<u8>>>,
    pub(crate) default_charset: Option<Option<Vec<u8>>>,
    pub(crate) default_language: Option<Vec<u8>>,
    pub(crate) path_info: Option<PathInfo>,
    pub(crate) index: Option<Vec<Vec<u8>>>,
    pub(crate) index_ignore: Vec<Vec<u8>>,
    pub(crate) slash: Option<bool>,
    pub(crate) fallback: Option<Option<Vec<u8>>>,
    pub(crate) errors: BTreeMap<u16, Arc<ErrorDocument>>,
    pub(crate) php: BTreeMap<String, Vec<u8>>,
    pub(crate) php_engine: Option<PhpEngine>,
    pub(crate) body_bytes_max: Option<u64>,
}

/// A line, and the directory whose file it stands in, once it is merged.
#[derive(Debug)]
pub(crate) struct Placed<T> {
    pub(crate) directory: Option<Arc<[u8]>>,
    line: Arc<T>,
}

impl<T> Placed<T> {
    /// The same, in the file of this directory.
    pub(crate) fn below(&self, directory: &Arc<[u8]>) -> Self {
        Self {
            directory: Some(Arc::clone(directory)),
            line: Arc::clone(&self.line),
        }
    }
}

impl<T: Clone> Placed<T> {
    /// The line, to be changed.
    pub(crate) fn line_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.line)
    }
}

impl<T> Clone for Placed<T> {
    fn clone(&self) -> Self {
        Self {
            directory: self.directory.clone(),
            line: Arc::clone(&self.line),
        }
    }
}

impl<T> From<T> for Placed<T> {
    fn from(line: T) -> Self {
        Self {
            directory: None,
            line: Arc::new(line),
        }
    }
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.line
    }
}

/// `AuthMerging`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merging {
    Off,
    And,
    Or,
}

/// `php_flag engine`, and `php_admin_flag engine`, over which only another of these counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PhpEngine {
    pub(crate) is_on: bool,
    pub(crate) is_fixed: bool,
}

/// `AcceptPathInfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathInfo {
    /// Programs take it, files do not.
    Default,
    /// What follows a file in a path is always taken.
    Taken,
    /// What follows a file in a path is never there.
    Refused,
}

/// `AuthType Basic` and what goes with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Auth {
    /// Whether there is one: `Basic`, or `None`.
    pub(crate) kind: Option<bool>,
    pub(crate) realm: Option<Vec<u8>>,
    pub(crate) user_file: Option<Vec<u8>>,
    pub(crate) group_file: Option<Vec<u8>>,
    pub(crate) forbids_on_failure: Option<bool>,
}

/// `SetEnvIf` and its like.
#[derive(Debug)]
pub(crate) struct EnvCondition {
    pub(crate) line: u32,
    pub(crate) test: EnvTest,
    /// Names, and what they are set to; none where one is taken away.
    pub(crate) sets: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

#[derive(Debug)]
pub(crate) enum EnvTest {
    /// A fact, a field or a variable of this name.
    Named(Vec<u8>, Pattern),
    /// The last field whose name matches.
    Field(Pattern, Pattern),
    Expression(crate::expression::Condition),
}

/// What a failure is answered with.
#[derive(Debug)]
pub enum ErrorDocument {
    /// What stands in the server.
    Default,
    /// A path of the site.
    Path(Vec<u8>),
    /// A URL that the client is sent to.
    Url(Vec<u8>),
    /// This text.
    Text(Vec<u8>),
}

/// How long files are fresh.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expiry {
    pub(crate) is_active: Option<bool>,
    pub(crate) by_type: BTreeMap<Vec<u8>, Age>,
    pub(crate) default: Option<Age>,
}

/// From when on, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Age {
    pub(crate) since_change: bool,
    pub(crate) seconds: i64,
}

/// Replaces what is said again.
fn over<T: Clone>(outer: &mut Option<T>, inner: &Option<T>) {
    if inner.is_some() {
        outer.clone_from(inner);
    }
}

impl Settings {
    /// Steps of copying it all.
    pub(crate) fn steps(&self) -> usize {
        let pages = self.index.as_ref().map_or(0, Vec::len);
        let lines = self.env_conditions.len()
            + self.rewrite.rules.len()
            + self.server_rewrite.rules.len()
            + self.redirects.len()
            + self.server_redirects.len()
            + self.fields.len()
            + self.require.len();
        let owned = self.env.len()
            + self.expiry.by_type.len()
            + self.endings.len()
            + self.errors.len()
            + self.php.len()
            + self.index_ignore.len()
            + pages;
        LINE_STEPS + lines + 8 * owned
    }

    /// Takes in what a place within says, below this directory.
    ///
    /// # Errors
    /// It is more work than a request may be.
    pub(crate) fn merge(
        &mut self,
        inner: &Self,
        directory: &Arc<[u8]>,
        work: &Work,
    ) -> Result<(), Stop> {
        work.spend(inner.steps())?;
        if inner.rewrite.is_said {
            work.spend(self.rewrite.rules.len())?;
        }
        if self.fault.is_none() {
            let fault = inner.fault.clone();
            self.fault = fault.map(|fault| fault.below(Some(directory)));
        }
        self.options = self.options.then(inner.options);
        if let Some(hosts) = &inner.hosts {
            self.hosts = Some(hosts.below(directory));
        }
        self.merge_require(inner, directory);
        over(&mut self.auth.kind, &inner.auth.kind);
        over(&mut self.auth.realm, &inner.auth.realm);
        over(&mut self.auth.user_file, &inner.auth.user_file);
        over(&mut self.auth.group_file, &inner.auth.group_file);
        over(
            &mut self.auth.forbids_on_failure,
            &inner.auth.forbids_on_failure,
        );
        self.tls_only |= inner.tls_only;
        let conditions = inner.env_conditions.iter();
        self.env_conditions
            .extend(conditions.map(|it| it.below(directory)));
        let env = inner
            .env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        self.env.extend(env);
        self.rewrite.merge(&inner.rewrite, directory);
        self.server_rewrite.merge(&inner.server_rewrite, directory);
        for (all, inner) in [
            (&mut self.redirects, &inner.redirects),
            (&mut self.server_redirects, &inner.server_redirects),
        ] {
            all.extend(inner.iter().rev().map(|it| it.below(directory)));
        }
        let fields = inner.fields.iter().map(|it| it.below(directory));
        self.fields.extend(fields);
        over(&mut self.expiry.is_active, &inner.expiry.is_active);
        over(&mut self.expiry.default, &inner.expiry.default);
        let ages = inner
            .expiry
            .by_type
            .iter()
            .map(|(name, age)| (name.clone(), *age));
        self.expiry.by_type.extend(ages);
        self.merge_files(inner);
        self.errors.extend(
            inner
                .errors
                .iter()
                .map(|(status, it)| (*status, Arc::clone(it))),
        );
        let php = inner
            .php
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        self.php.extend(php);
        if !self
            .php_engine
            .is_some_and(|it| it.is_fixed && !inner.fixes_php())
        {
            over(&mut self.php_engine, &inner.php_engine);
        }
        over(&mut self.body_bytes_max, &inner.body_bytes_max);
        Ok(())
    }

    fn merge_require(&mut self, inner: &Self, directory: &Arc<[u8]>) {
        let Some(required) = inner.require.last() else {
            return;
        };
        if !matches!(inner.merges_require, Some(Merging::And | Merging::Or)) {
            self.require.clear();
        }
        if self.require.len() >= REQUIRED_MAX {
            let fault = Stop::new(500, "htaccess_too_large");
            self.fault.get_or_insert(fault);
            return;
        }
        self.require.push(Required {
            all: inner.merges_require == Some(Merging::And) && !self.require.is_empty(),
            directory: Some(Arc::clone(directory)),
            ..required.clone()
        });
    }

    fn merge_files(&mut self, inner: &Self) {
        self.endings.then(&inner.endings);
        over(&mut self.media_type, &inner.media_type);
        over(&mut self.handler, &inner.handler);
        over(&mut self.default_charset, &inner.default_charset);
        over(&mut self.default_language, &inner.default_language);
        over(&mut self.path_info, &inner.path_info);
        over(&mut self.index, &inner.index);
        let more = UNLISTED_MAX.saturating_sub(self.index_ignore.len());
        let unlisted = inner.index_ignore.iter().take(more);
        self.index_ignore.extend(unlisted.cloned());
        over(&mut self.slash, &inner.slash);
        over(&mut self.fallback, &inner.fallback);
    }

    /// About as many bytes as it takes, without the lines it shares with programs.
    pub(crate) fn memory_bytes(&self) -> usize {
        let rules = self.rewrite.rules.len() + self.server_rewrite.rules.len();
        let redirects = self.redirects.len() + self.server_redirects.len();
        let lines = self.env_conditions.len() + rules + redirects + self.fields.len();
        let text = |value: Option<&Vec<u8>>| value.map_or(0, Vec::len);
        let env = self.env.iter();
        let env = env.map(|(name, value)| ENTRY_BYTES + name.len() + text(value.as_ref()));
        let php = self.php.iter();
        let php = php.map(|(name, value)| ENTRY_BYTES + name.len() + value.len());
        let ages = self.expiry.by_type.keys();
        let ages = ages.map(|name| ENTRY_BYTES + name.len());
        let index = self.index.iter().flatten().chain(&self.index_ignore);
        let index = index.map(|name| ENTRY_BYTES + name.len());
        let texts = env.chain(php).chain(ages).chain(index).sum::<usize>();
        let errors = self.errors.len() * ENTRY_BYTES;
        let lines = lines * size_of::<Placed<()>>();
        size_of::<Self>() + lines + errors + texts + self.endings.memory_bytes()
    }

    /// The options that hold over those of the site.
    pub fn options(&self, outer: AllowedOptions) -> AllowedOptions {
        self.options.over(outer)
    }

    /// As much of a name as its type is told by, where a table knows of some names which they have.
    pub fn typed_name<'n>(&self, name: &'n [u8], knows: impl Fn(&[u8]) -> bool) -> &'n [u8] {
        self.endings.typed(name, knows)
    }

    /// What a file of this name is.
    pub fn describe(&self, name: &[u8]) -> Described {
        let mut described = self.endings.describe(name);
        if let Some(forced) = &self.media_type {
            described.media_type = forced.is_some().then(|| forced.clone());
        }
        if let Some(forced) = &self.handler {
            described.handler = Some(forced.clone());
        }
        if described.language.is_none() {
            described.language.clone_from(&self.default_language);
        }
        described
    }

    /// The charset of texts that say none; `Some(None)` where none is to be added.
    pub fn default_charset(&self) -> Option<Option<&[u8]>> {
        self.default_charset.as_ref().map(Option::as_deref)
    }

    /// What becomes of the rest of a path that follows a file.
    pub fn path_info(&self) -> PathInfo {
        self.path_info.unwrap_or(PathInfo::Default)
    }

    /// The names of a directory's page, in the order they are looked for; none where no file
    /// says any.
    pub fn index(&self) -> Option<&[Vec<u8>]> {
        self.index.as_deref()
    }

    /// Whether a list of a directory leaves out this name.
    pub fn is_unlisted(&self, name: &[u8]) -> bool {
        let is_hit = |pattern: &Vec<u8>| {
            crate::glob::matches(pattern, name, crate::glob::Slashes::Plain, false)
        };
        self.index_ignore.iter().any(is_hit)
    }

    /// Whether a directory without its slash is redirected; none where no file says so.
    pub fn directory_slash(&self) -> Option<bool> {
        self.slash
    }

    /// The path that answers for what is not there.
    pub fn fallback(&self) -> Option<&[u8]> {
        self.fallback.as_ref()?.as_deref()
    }

    /// What a failure with this status is answered with.
    pub fn error_document(&self, status: u16) -> Option<&ErrorDocument> {
        self.errors.get(&status).map(Arc::as_ref)
    }

    /// Settings of PHP, by their names.
    pub fn php(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.php
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Whether PHP runs; none where no file says so.
    pub fn php_engine(&self) -> Option<bool> {
        self.php_engine.map(|it| it.is_on)
    }

    fn fixes_php(&self) -> bool {
        self.php_engine.is_some_and(|it| it.is_fixed)
    }

    /// The longest body of a request, where it is to be shorter than the site's.
    pub fn body_bytes_max(&self) -> Option<u64> {
        self.body_bytes_max.filter(|bytes| *bytes > 0)
    }

    /// Whether heads of replies are changed.
    pub fn edits_replies(&self) -> bool {
        let is_reply = |line: &Placed<FieldEdit>| line.place != FieldTable::Request;
        self.expiry.is_active == Some(true) || self.fields.iter().any(is_reply)
    }

    /// Whether fields of requests are changed.
    pub fn edits_requests(&self) -> bool {
        let is_request = |line: &Placed<FieldEdit>| line.place == FieldTable::Request;
        self.fields.iter().any(is_request)
    }

    /// What the client is asked to log in to.
    pub fn realm(&self) -> Option<&[u8]> {
        self.auth.realm.as_deref()
    }
}

/// A text that may have parts of the request in it.
#[derive(Debug)]
pub(crate) enum Computed {
    Plain(Vec<u8>),
    Expression(Word),
}
