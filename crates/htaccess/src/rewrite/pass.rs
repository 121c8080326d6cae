//! One pass through a set of rules, as mod_rewrite goes through it in a directory.

use std::collections::BTreeSet;

use super::escape::{has_blanks, hides_separators, unescaped};
use super::target;
use super::template::{Captured, Template};
use super::{Query, RESULT_BYTES_MAX, RewriteCondition, RewriteLines, Rule, Test, is_absolute};
use crate::chain::yes;
use crate::evaluation::FileKind;
use crate::expression;
use crate::pattern::Groups;
use crate::request::Stop;
use crate::variable::{Scope, VARY_MAX};
use crate::work::LINE_STEPS;

/// Cookies that one pass sets.
const COOKIES_MAX: usize = 64;

/// What a pass comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) result: RewriteResult,
    /// The line of the rule that refuses.
    pub(crate) line: u32,
    /// `END`: nothing is rewritten any more, in this request.
    pub(crate) has_ended: bool,
    /// Variables that rules of the virtual host have set: nobody else can.
    pub(crate) server_env: BTreeSet<Vec<u8>>,
    pub(crate) media_type: Option<Vec<u8>>,
    pub(crate) handler: Option<Vec<u8>>,
    /// Fields of the request that made a difference.
    pub(crate) vary: Vec<Vec<u8>>,
    /// Values of `Set-Cookie`.
    pub(crate) cookies: Vec<Vec<u8>>,
    /// The query that goes with a path.
    pub(crate) query: Option<Vec<u8>>,
}

/// Where a pass leads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum RewriteResult {
    /// Nothing has changed but variables, and perhaps the query.
    #[default]
    Same,
    Status(u16),
    /// Refused, as a path that nobody could ask for.
    Nowhere(u16),
    Redirect(u16, Vec<u8>),
    /// A path of the site, which begins anew.
    Path(Vec<u8>),
}

/// What a rule has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Applied {
    No,
    NoResult,
    Changed,
    /// It refuses, because of what was asked.
    Status(u16),
}

/// What a pass has come to so far.
struct Pass<'p> {
    lines: &'p RewriteLines,
    /// What paths are relative to; empty where they are the site's and not those of files.
    directory: &'p [u8],
    /// The path it began with.
    begun: &'p [u8],
    scope: &'p Scope<'p>,
    passed: Passed,
    /// The status of the last rule that redirects.
    status: u16,
    is_changed: bool,
    no_escape: bool,
    /// The path and what follows it, until a rule changes either.
    whole: Option<Vec<u8>>,
}

/// Goes through the rules, unless those of the virtual host have ended all rewriting.
///
/// # Errors
/// 500 where bounds are passed, 403 where links may not be followed or a rule would forward.
pub(crate) async fn run(
    lines: &RewriteLines,
    (follows, ends): (bool, bool),
    scope: &Scope<'_>,
) -> Result<Passed, Stop> {
    let directory = match &lines.directory {
        Some(directory) if lines.engine == Some(true) && !ends && !has_ended(scope) => directory,
        _ => return Ok(Passed::default()),
    };
    let allows_no_slash = lines.options.unwrap_or_default().allow_no_slash;
    let is_itself = directory.strip_suffix(b"/") == Some(scope.request.filename);
    if is_itself && !allows_no_slash {
        return Ok(Passed::default());
    }
    if !follows {
        return Err(Stop::new(403, "htaccess_denied"));
    }
    let begun = scope.request.filename;
    Pass::new(lines, (directory, begun), scope).run().await
}

/// Goes through the rules of the virtual host, which see the path of the site: no file is known yet.
///
/// # Errors
/// As [`run`].
pub(crate) async fn translate(lines: &RewriteLines, scope: &Scope<'_>) -> Result<Passed, Stop> {
    if lines.engine != Some(true) || has_ended(scope) {
        return Ok(Passed::default());
    }
    let uri = scope.request.uri;
    let filename = scope.filename.replace(uri.to_vec());
    let path_info = scope.path_info.take();
    let passed = Pass::new(lines, (b"", uri), scope).run().await;
    scope.filename.replace(filename);
    scope.path_info.replace(path_info);
    passed
}

/// Whether a rule with `END` was met; a page is looked at in a request of its own, and does not count
/// what ended the one that it is for.
fn has_ended(scope: &Scope<'_>) -> bool {
    scope.request.has_ended && !scope.request.is_subrequest
}

impl<'p> Pass<'p> {
    fn new(
        lines: &'p RewriteLines,
        (directory, begun): (&'p [u8], &'p [u8]),
        scope: &'p Scope<'p>,
    ) -> Self {
        Self {
            lines,
            directory,
            begun,
            scope,
            passed: Passed::default(),
            status: 302,
            is_changed: false,
            no_escape: false,
            whole: None,
        }
    }

    async fn run(mut self) -> Result<Passed, Stop> {
        let refused = self.rules().await?;
        self.finish(refused)
    }

    /// What `RewriteBase` says, where it counts.
    fn base(&self) -> Option<&'p [u8]> {
        let base = self.lines.base.as_deref();
        base.filter(|_| !self.directory.is_empty())
    }

    /// All rules; the status where one refuses.
    async fn rules(&mut self) -> Result<Option<u16>, Stop> {
        let rules = &self.lines.rules;
        let mut rounds = 1;
        let mut at = 0;
        while let Some(rule) = rules.get(at) {
            self.scope.asker.enter(rule.directory.as_ref());
            let flags = &rule.flags;
            if flags.skips_pages && self.scope.request.is_subrequest {
                at += 1;
                continue;
            }
            let applied = self.rule(rule).await;
            let applied = applied.map_err(|stop| stop.at(rule.line, rule.pattern.as_str()))?;
            at += 1;
            match applied {
                Applied::No => {
                    // A chain that does not begin is skipped whole.
                    let mut chained = flags.chain;
                    while chained && at < rules.len() {
                        chained = rules.get(at).is_some_and(|rule| rule.flags.chain);
                        at += 1;
                    }
                    continue;
                }
                Applied::Status(status) => return Ok(Some(status)),
                Applied::NoResult => {}
                Applied::Changed => {
                    self.is_changed = true;
                    self.no_escape = flags.no_escape;
                }
            }
            if self.scope.filename.borrow().len() > RESULT_BYTES_MAX {
                return Err(Stop::new(500, "htaccess_loop").at(rule.line, rule.pattern.as_str()));
            }
            if flags.refuses() {
                self.passed.line = rule.line;
                return Ok(flags.refusal);
            }
            if flags.pass_through {
                // Handed on as a path, which a URL is not.
                if is_absolute(&self.scope.filename.borrow()).is_some() {
                    return Ok(Some(400));
                }
                self.no_escape = false;
                self.is_changed = true;
                break;
            }
            self.passed.has_ended |= flags.end;
            if flags.end || flags.last {
                break;
            }
            if let Some(most) = flags.rounds {
                rounds += 1;
                if rounds >= most {
                    let stop = Stop::new(500, "htaccess_loop");
                    return Err(stop.at(rule.line, rule.pattern.as_str()));
                }
                at = 0;
                continue;
            }
            at += flags.skip;
        }
        Ok(None)
    }

    async fn rule(&mut self, rule: &Rule) -> Result<Applied, Stop> {
        let scope = self.scope;
        scope.asker.spend(LINE_STEPS)?;
        let both = || [&scope.filename.borrow()[..], &scope.path_info.borrow()].concat();
        let whole = self.whole.get_or_insert_with(both);
        let text = whole.strip_prefix(self.directory).unwrap_or(whole);
        let groups = scope.matched(&rule.pattern, text)?;
        let is_hit = groups.is_some() != rule.negated && !rule.flags.never;
        scope.asker.trace(rule.line, || {
            let text = String::from_utf8_lossy(text);
            format!(
                "RewriteRule {} {} `{text}`",
                rule.pattern.as_str(),
                yes(is_hit)
            )
        });
        if !is_hit {
            return Ok(Applied::No);
        }
        let of_rule = groups.filter(|_| !rule.negated).unwrap_or_default();
        let mut of_condition = Groups::default();
        let mut vary = Vec::new();
        if !self
            .conditions(rule, &of_rule, &mut of_condition, &mut vary)
            .await?
        {
            return Ok(Applied::No);
        }
        for name in vary {
            let known = &mut self.passed.vary;
            if !known.contains(&name) {
                known.push(name);
            }
            if known.len() > VARY_MAX {
                return Err(Stop::new(500, "htaccess_loop"));
            }
        }
        let captured = Captured {
            rule: &of_rule,
            condition: &of_condition,
        };
        self.apply(rule, &captured)
    }

    async fn conditions(
        &self,
        rule: &Rule,
        of_rule: &Groups,
        of_condition: &mut Groups,
        vary: &mut Vec<Vec<u8>>,
    ) -> Result<bool, Stop> {
        let mut conditions = rule.conditions.iter();
        while let Some(condition) = conditions.next() {
            self.scope.looked_at.take();
            let holds = self.condition(condition, of_rule, of_condition).await;
            let holds = holds.map_err(|stop| stop.at(condition.line, &condition.text))?;
            let mut looked_at = self.scope.looked_at.take();
            if condition.no_vary {
                looked_at.clear();
            }
            match (holds, condition.or_next) {
                (false, true) => continue,
                (false, false) => return Ok(false),
                // The rest of those joined by `OR` is skipped.
                (true, true) => while conditions.next().is_some_and(|next| next.or_next) {},
                (true, false) => {}
            }
            vary.append(&mut looked_at);
        }
        Ok(true)
    }

    async fn condition(
        &self,
        condition: &RewriteCondition,
        of_rule: &Groups,
        of_condition: &mut Groups,
    ) -> Result<bool, Stop> {
        let scope = self.scope;
        scope.asker.spend(LINE_STEPS)?;
        let captured = Captured {
            rule: of_rule,
            condition: of_condition,
        };
        let input = match &condition.test {
            Test::Expression(_) => Vec::new(),
            _ => condition.input.expand(&captured, None, scope)?.text,
        };
        let holds = match &condition.test {
            Test::File(letter) => self.is_file(*letter, &input).await?,
            Test::Text(order, text, folds) => order.holds(compared(&input, text, *order, *folds)),
            Test::Number(order, number) => order.holds(expression::number(&input).cmp(number)),
            Test::Lookup => false,
            Test::Pattern(pattern) => match scope.matched(pattern, &input)? {
                Some(groups) => {
                    if !condition.negated {
                        *of_condition = groups;
                    }
                    true
                }
                None => false,
            },
            Test::Expression(expression) => {
                scope.groups.take();
                let holds = expression::holds(expression, scope).await?;
                if holds && !condition.negated {
                    *of_condition = scope.groups.take();
                }
                holds
            }
        };
        let holds = holds != condition.negated;
        scope.asker.trace(condition.line, || {
            let input = String::from_utf8_lossy(&input);
            format!("RewriteCond {} {}: `{input}`", condition.text, yes(holds))
        });
        Ok(holds)
    }

    async fn is_file(&self, letter: u8, path: &[u8]) -> Result<bool, Stop> {
        let facts = self.scope.asker.file(path).await?;
        Ok(match letter {
            b'f' => facts.kind == FileKind::Regular,
            b's' => facts.kind == FileKind::Regular && facts.bytes > 0,
            b'd' => facts.kind == FileKind::Directory,
            b'x' => facts.is_executable,
            _ => facts.is_link,
        })
    }

    /// Does what a rule says whose conditions hold.
    fn apply(&mut self, rule: &Rule, captured: &Captured<'_>) -> Result<Applied, Stop> {
        let (scope, flags) = (self.scope, &rule.flags);
        let escaping = flags.escapes.then_some(&flags.escaping);
        let mut result = Vec::new();
        if !flags.no_result {
            let expanded = rule.output.expand(captured, escaping, scope)?;
            let is_asked = match flags.splits_last {
                true => expanded.last_is_asked,
                false => expanded.first_is_asked,
            };
            if is_asked == Some(true) && !flags.allows_question_mark {
                return Ok(Applied::Status(403));
            }
            result = expanded.text;
        }
        self.set(flags, captured)?;
        self.whole = None;
        if flags.no_result {
            self.force(flags, captured)?;
            return Ok(Applied::NoResult);
        }
        if flags.proxy {
            return Err(Stop::new(403, "htaccess_refused"));
        }
        let is_relative = !result.starts_with(b"/") && is_absolute(&result).is_none();
        if is_relative {
            result = [self.directory, &result].concat();
        }
        if flags.discards_path_info {
            scope.path_info.take();
        }
        split_query(
            &mut result,
            &mut scope.query.borrow_mut(),
            flags.query,
            flags.splits_last,
        );
        if flags.redirect {
            if is_absolute(&result).is_none() {
                result = target::qualified(&result, scope.request);
            }
            self.status = flags.status.unwrap_or(302);
        } else {
            target::reduce(&mut result, scope.request);
            if is_absolute(&result).is_some() {
                self.status = flags.status.unwrap_or(302);
            } else {
                if !flags.keeps_slashes && !is_relative && !rule.output.raw().starts_with(b"//") {
                    let slashes = result.iter().take_while(|byte| **byte == b'/');
                    let more = slashes.count().saturating_sub(1);
                    result.drain(..more);
                }
                self.force(flags, captured)?;
            }
        }
        scope.asker.trace(rule.line, || {
            format!("to `{}`", String::from_utf8_lossy(&result))
        });
        scope.filename.replace(result);
        Ok(Applied::Changed)
    }

    /// `E` and `CO`.
    fn set(&mut self, flags: &super::Flags, captured: &Captured<'_>) -> Result<(), Stop> {
        let scope = self.scope;
        for template in &flags.env {
            let text = template.expand(captured, None, scope)?.text;
            if let Some(name) = text.strip_prefix(b"!") {
                scope.set_variable(name, None)?;
                continue;
            }
            let colon = text.iter().position(|byte| *byte == b':');
            let (name, value) = text.split_at(colon.unwrap_or(text.len()));
            scope.set_variable(name, Some(value.get(1..).unwrap_or_default()))?;
            if self.directory.is_empty() {
                self.passed.server_env.insert(name.to_vec());
            }
        }
        for template in &flags.cookies {
            let text = template.expand(captured, None, scope)?.text;
            let cookies = &mut self.passed.cookies;
            let cookie = target::cookie(&text, scope.request.now.epoch_s);
            let is_new =
                |cookie: &Vec<u8>| !cookies.iter().any(|it| name_of(it) == name_of(cookie));
            let cookie = cookie.filter(is_new);
            cookies.extend(cookie);
            if cookies.len() > COOKIES_MAX {
                return Err(Stop::new(500, "htaccess_loop"));
            }
        }
        Ok(())
    }

    /// `T` and `H`.
    fn force(&mut self, flags: &super::Flags, captured: &Captured<'_>) -> Result<(), Stop> {
        let expand = |template: &Option<Template>| -> Result<Option<Vec<u8>>, Stop> {
            let expanded = template
                .as_ref()
                .map(|it| it.expand(captured, None, self.scope));
            Ok(expanded.transpose()?.map(|it| it.text))
        };
        let (media_type, handler) = (expand(&flags.media_type)?, expand(&flags.handler)?);
        self.passed.media_type = media_type.or(self.passed.media_type.take());
        self.passed.handler = handler.or(self.passed.handler.take());
        Ok(())
    }

    fn finish(mut self, refused: Option<u16>) -> Result<Passed, Stop> {
        let scope = self.scope;
        let path = scope.filename.borrow().clone();
        let query = scope.query.borrow().clone();
        let will_escape = is_absolute(&path).is_some() && !self.no_escape;
        let is_done = refused.is_some() || self.is_changed;
        if is_done && query.as_deref().is_some_and(has_blanks) && !will_escape {
            return Err(Stop::new(403, "htaccess_query"));
        }
        if let Some(status) = refused {
            self.passed.result = RewriteResult::Status(status);
            return Ok(self.passed);
        }
        if !self.is_changed {
            return Ok(self.passed);
        }
        let result = match is_absolute(&path) {
            Some((scheme, _)) => {
                let path = target::with_base(path, scheme, self.directory, self.base());
                let location = target::location(path, scheme, query, self.no_escape, scope);
                if location.iter().any(|byte| *byte < b' ' || *byte == 127) {
                    return Err(Stop::new(403, "htaccess_location"));
                }
                RewriteResult::Redirect(self.status, location)
            }
            None if !path.starts_with(b"/") => RewriteResult::Status(400),
            None if path == self.begun => RewriteResult::Same,
            None => {
                let options = self.lines.options.unwrap_or_default();
                let (directory, request) = (self.directory, scope.request);
                let mut path = target::local(path, directory, self.base(), options, request);
                let mut query = query;
                target::without_fragment(&mut path, &mut query);
                self.passed.query = query;
                // It begins anew as what a client asks for: what is escaped in it means a byte.
                match unescaped(&path) {
                    _ if hides_separators(&path) => RewriteResult::Nowhere(404),
                    Some(path) => RewriteResult::Path(path),
                    None => RewriteResult::Nowhere(400),
                }
            }
        };
        self.passed.result = result;
        Ok(self.passed)
    }
}

/// The name of a cookie: the first of a name is the one that is set.
fn name_of(cookie: &[u8]) -> Option<&[u8]> {
    cookie.split(|byte| *byte == b'=').next()
}

fn compared(
    input: &[u8],
    text: &[u8],
    order: expression::Comparison,
    folds: bool,
) -> std::cmp::Ordering {
    if folds {
        return input.to_ascii_lowercase().cmp(&text.to_ascii_lowercase());
    }
    match order {
        expression::Comparison::Equal => input.cmp(text),
        // The longer one is the greater.
        _ => input.len().cmp(&text.len()).then_with(|| input.cmp(text)),
    }
}

/// Parts what a rule made into path and query.
fn split_query(path: &mut Vec<u8>, query: &mut Option<Vec<u8>>, how: Query, last: bool) {
    if how == Query::None {
        *query = None;
        return;
    }
    let scheme = match is_absolute(path) {
        Some((_, false)) => {
            *query = None;
            return;
        }
        Some((scheme, true)) => scheme,
        None => 0,
    };
    if how == Query::Discard {
        *query = None;
    }
    let rest = path.get(scheme..).unwrap_or_default();
    let mark = match last {
        true => rest.iter().rposition(|byte| *byte == b'?'),
        false => rest.iter().position(|byte| *byte == b'?'),
    };
    let Some(mark) = mark else {
        return;
    };
    let mut found = path.split_off(scheme + mark);
    found.remove(0);
    if how == Query::Append {
        match query.take() {
            Some(asked) if !found.is_empty() => {
                found.push(b'&');
                found.extend_from_slice(&asked);
            }
            Some(asked) => found = asked,
            None => {}
        }
    }
    if found.ends_with(b"&") {
        found.pop();
    }
    *query = (!found.is_empty()).then_some(found);
}
