//! `Redirect` and `RedirectMatch`.

use crate::expression::{self, Word};
use crate::pattern::{Pattern, substituted};
use crate::request::Stop;
use crate::rewrite::escape_path;
use crate::settings::Placed;
use crate::variable::Scope;
use crate::work::LINE_STEPS;

/// A line that redirects, or answers with a status.
#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) line: u32,
    pub(crate) status: u16,
    pub(crate) from: From,
    /// Where to; none where the status is no redirect.
    pub(crate) to: Option<Vec<u8>>,
}

/// What is redirected.
#[derive(Debug)]
pub(crate) enum From {
    /// A path, and all below it.
    Path(Vec<u8>),
    Pattern(Pattern),
    /// Everything here, to what an expression says.
    All(Option<Word>),
}

/// The first of these, from the last one on, that is about the request: its status, and where to.
///
/// # Errors
/// 500 where bounds are passed or the target is no URL.
pub(crate) async fn first(
    redirects: &[Placed<Redirect>],
    scope: &Scope<'_>,
) -> Result<Option<(u16, Option<Vec<u8>>)>, Stop> {
    // What is redirected whole comes before single paths.
    let is_whole = |it: &&Placed<Redirect>| matches!(it.from, From::All(_));
    let whole = redirects.iter().rev().filter(is_whole);
    let single = redirects.iter().rev().filter(|it| !is_whole(it));
    for redirect in whole.chain(single) {
        scope.asker.spend(LINE_STEPS)?;
        scope.asker.enter(redirect.directory.as_ref());
        let target = redirect.target(scope).await;
        let target = target.map_err(|stop| stop.at(redirect.line, "Redirect"))?;
        let Some(mut location) = target else {
            continue;
        };
        scope
            .asker
            .trace(redirect.line, || format!("Redirect {}", redirect.status));
        if redirect.to.is_none() && !matches!(redirect.from, From::All(Some(_))) {
            return Ok(Some((redirect.status, None)));
        }
        if location.starts_with(b"/") {
            location = [&scope.request.origin()[..], &location].concat();
        }
        if !is_url(&location) || location.iter().any(|byte| *byte < b' ' || *byte == 127) {
            return Err(Stop::new(500, "htaccess_location").at(redirect.line, "Redirect"));
        }
        // What rules have made of it, though their path is not what counts.
        if let Some(query) = &*scope.query.borrow()
            && !location.contains(&b'?')
        {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        return Ok(Some((redirect.status, Some(location))));
    }
    Ok(None)
}

/// Whether a text begins with a scheme.
pub(crate) fn is_url(text: &[u8]) -> bool {
    let colon = text.iter().position(|byte| *byte == b':').unwrap_or(0);
    let scheme = text.get(..colon).unwrap_or_default();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    colon > 0 && scheme.iter().all(is_part)
}

impl Redirect {
    /// Where to, if it is about the request; empty of a status.
    async fn target(&self, scope: &Scope<'_>) -> Result<Option<Vec<u8>>, Stop> {
        let uri = scope.request.uri;
        let to = self.to.as_deref().unwrap_or_default();
        match &self.from {
            From::Path(path) => Ok(below(uri, path).map(|rest| {
                let escaped = escape_path(rest);
                [to, &escaped].concat()
            })),
            From::Pattern(pattern) => {
                let Some(groups) = scope.matched(pattern, uri)? else {
                    return Ok(None);
                };
                Ok(Some(escape_kept(&substituted(to, &groups)?)))
            }
            From::All(None) => Ok(Some(Vec::new())),
            From::All(Some(word)) => Ok(Some(expression::text(word, scope).await?)),
        }
    }
}

/// What follows a path that it begins with, slash for slash.
fn below<'u>(uri: &'u [u8], path: &[u8]) -> Option<&'u [u8]> {
    let rest = uri.strip_prefix(path)?;
    (path.ends_with(b"/") || rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// A target with its path escaped, and its query and fragment as they are.
fn escape_kept(target: &[u8]) -> Vec<u8> {
    let end = target.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let (path, rest) = target.split_at(end.unwrap_or(target.len()));
    [&escape_path(path)[..], rest].concat()
}
