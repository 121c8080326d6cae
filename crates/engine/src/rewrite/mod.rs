//! `rewrite`: another path in the place of the one that was asked for.
//!
//! A site's entries are gone through once, before a file is looked for, and then those of a mount.
//! A rule's are when it matches; its path being another then, all rules are tried again
//! ([`crate::rules`]). What comes of
//! an entry is read as a client's target would be, so that it leads nowhere a client could not go.
//! Left out: redirects, and what stands in front of a host; rules say these.

pub(crate) mod compiled;
pub(crate) mod told;

use config::model::QueryChange;
use pattern::{Exhausted, Spans};
use wire::RequestHead;

use self::compiled::CompiledRewrite;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::route::Route;
use crate::resolve;
use crate::site::Rule;
use crate::stage::Routed;
use crate::template::{Captured, Values, expand_url};

/// How often the rules of a site may rewrite one request.
const ROUNDS_MAX: u32 = 10;
/// Longest target that is made.
const TARGET_BYTES_MAX: usize = 16 << 10;

/// Rewrites what is asked for as the request's site says, and then as the mount does below which the
/// path is.
///
/// # Errors
/// An expression was given up, or what came of it is nothing that can be asked for.
pub(crate) async fn of_site(routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
    // Boxed: few sites have any, and the others need not have room for it.
    if !routed.site.rewrites.is_empty() {
        Box::pin(all(routed, exchange, &routed.site.rewrites, "the site")).await?;
    }
    match routed.site.tree_of(exchange.request.head.path()) {
        Some(tree) if !tree.rewrites.is_empty() => {
            let all = Box::pin(all(routed, exchange, &tree.rewrites, &tree.path));
            all.await.map(drop)
        }
        _ => Ok(()),
    }
}

/// Whether a rule has something to rewrite, and has not done so before.
pub(crate) fn may_rewrite(route: &Route, rule: &Rule) -> bool {
    !rule.rewrites.is_empty() && !route.was_rewritten_by(rule.index)
}

/// Rewrites what is asked for as a rule says that matches; whether something else is asked for now.
///
/// # Errors
/// As [`of_site`], or rules have rewritten it too often.
pub(crate) async fn of_rule(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    rule: &Rule,
) -> Result<bool> {
    let has_changed = all(routed, exchange, &rule.rewrites, &rule.name).await?;
    if has_changed {
        if exchange.route.rewrites == ROUNDS_MAX {
            let detail = format!(
                "rules have rewritten the path more than {ROUNDS_MAX} times, the last of them `{}`",
                rule.name
            );
            return Err(Error::new(Kind::Internal, "rewrite_loop", detail));
        }
        exchange.route.note_rewritten(rule.index);
    }
    Ok(has_changed)
}

/// The error of a request on which an expression was given up.
pub(crate) fn gave_up(whose: &str, expression: &str) -> Error {
    let detail = format!("{whose}: `{expression}` takes too many steps on what was asked for");
    Error::new(Kind::Internal, "regex_steps", detail)
}

/// Goes through entries; whether something else is asked for now.
async fn all(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    entries: &[CompiledRewrite],
    whose: &str,
) -> Result<bool> {
    let mut has_changed = false;
    for CompiledRewrite { from, said } in entries {
        let found = from.find(exchange.request.head.path());
        let found = found.map_err(|Exhausted| gave_up(whose, &said.from))?;
        let Some(spans) = found else {
            continue;
        };
        if (said.unless_file || said.unless_directory)
            && stands(routed, exchange, [said.unless_file, said.unless_directory]).await?
        {
            continue;
        }
        let target = target(routed, exchange, said, spans);
        has_changed |= replace(routed, exchange, whose, target)?;
        if said.last {
            break;
        }
    }
    Ok(has_changed)
}

/// Whether something of this kind, a file or a directory, stands at the path.
async fn stands(routed: Routed<'_>, exchange: &mut Exchange, wanted: [bool; 2]) -> Result<bool> {
    let Some(resolved) = resolve::file(routed, exchange).await? else {
        return Ok(false);
    };
    let path = exchange.route.lookup_path(&exchange.request);
    let tree = routed.site.tree(resolved.tree);
    let below = tree.and_then(|tree| tree.below(path)).unwrap_or(path);
    let stands = resolved.stands_at(below).into_iter().zip(wanted);
    Ok(stands.into_iter().any(|(stands, wanted)| stands && wanted))
}

/// What is to be asked for instead.
fn target(
    routed: Routed<'_>,
    exchange: &Exchange,
    said: &config::model::Rewrite,
    spans: Spans,
) -> Vec<u8> {
    let (head, rules) = (&exchange.request.head, routed.site.path_rules);
    let captured = Captured::new(head.path(), spans, rules.encoded_slash);
    let values = Values {
        captured: Some(&captured),
        ..exchange.route.values(&exchange.request)
    };
    let mut target = Vec::new();
    expand_url(&said.to, values, &mut target);
    let query = match said.query {
        QueryChange::Keep | QueryChange::Append => head.query(),
        QueryChange::Replace | QueryChange::Drop => None,
    };
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        target.push(match target.contains(&b'?') {
            false => b'?',
            true => b'&',
        });
        target.extend_from_slice(query);
    }
    // One that is empty is none.
    if target.last() == Some(&b'?') {
        target.pop();
    }
    target
}

/// Asks for `target` from here on; whether that is something else.
fn replace(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    whose: &str,
    target: Vec<u8>,
) -> Result<bool> {
    let shown = target.get(..target.len().min(200)).unwrap_or_default();
    let shown = shown.escape_ascii();
    if target.len() > TARGET_BYTES_MAX {
        let detail = format!("{whose}: longer than {TARGET_BYTES_MAX} bytes: {shown}");
        return Err(Error::new(Kind::Internal, "rewrite_too_long", detail));
    }
    let Exchange {
        request,
        route,
        record,
        ..
    } = exchange;
    let head = &mut request.head;
    let asked = |head: &RequestHead| (head.path().to_vec(), head.query().map(<[u8]>::to_vec));
    let before = asked(head);
    let rules = routed.site.path_rules;
    let judged = wire::judge_target(&target, rules);
    let rewritten = judged.and_then(|()| head.rewrite_target(&target, rules));
    rewritten.map_err(|refusal| {
        let detail = format!("{whose}: {shown}: {}", refusal.reason);
        Error::new(Kind::Refused(404), "rewritten_nowhere", detail)
    })?;
    let has_changed = asked(head) != before;
    if has_changed {
        route.forget_file();
        let (client, id, site) = (request.client, request.id, &*routed.site.name);
        let (from, to) = (before.0.escape_ascii(), shown);
        tracing::debug!(%client, request_id = %id, site, rule = whose, %from, %to, "request rewritten");
        record.steps.note(whose, &before.0, &target);
        record.rewritten = target;
    }
    Ok(has_changed)
}

#[cfg(test)]
mod tests;
