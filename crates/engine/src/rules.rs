//! Which rules of its site a request matches.
//!
//! The idea: rules are tried in order, at once. One that depends on a map's answer is tried again
//! when the answer is there: only this request waits, and a map is asked only if everything else
//! the rule wants holds. Where a rule rewrites the path all are tried again, from the first; what
//! matched before stays in force, so that nobody comes by another name past a rule that was met.
//! Where `.htaccess` files have led to another path, rules match the one that was asked for; of the
//! other hold those that keep somebody out, and limits count. Files are asked only of whom the rules
//! let in that match whatever the file is.

use config::model::{Handler, Settings};

use crate::error::Result;
use crate::exchange::Exchange;
use crate::exchange::request::Request;
use crate::exchange::route::{Refusing, Route};
use crate::resolve;
use crate::rewrite::{self, gave_up};
use crate::scripts::Next;
use crate::site::Rule;
use crate::stage::{Chosen, Routed};
use crate::template::Captured;
use crate::{admission, htaccess, maps, permits};

/// Notes every rule that matches, up to the first one with a handler; `None` where the files above a
/// path that a rule has led to have answered.
///
/// # Errors
/// A regular expression was given up, rules have rewritten the path too often, or to what cannot be
/// asked for.
pub(crate) async fn choose<'a>(
    routed: Routed<'a>,
    exchange: &mut Exchange,
) -> Result<Option<Chosen<'a>>> {
    if routed.site.rules_ask_maps || routed.site.rules_rewrite {
        // Boxed: few sites have such rules, and the others need not have room for it.
        let next = Box::pin(note_matches_waiting(routed, exchange)).await?;
        if next == Next::Answered {
            return Ok(None);
        }
    } else {
        note_matches(routed, exchange);
    }
    if routed.site.htaccess.is_some() {
        // Boxed, as above.
        Box::pin(note_led_to(routed, exchange)).await?;
    }
    check_given_up(&exchange.request)?;
    let chosen = routed.chosen(&exchange.route);
    forward_as_rewritten(chosen, &mut exchange.request)?;
    Ok(Some(chosen))
}

/// Has a back end asked for the path that the rule is about which forwards: another one than the client
/// asked for where that asks for a variable of rewrite rules. Programs are told what was asked.
fn forward_as_rewritten(chosen: Chosen<'_>, request: &mut Request) -> Result<()> {
    if let (Handler::Proxy(_), Some(rule)) = (chosen.handler, chosen.rule) {
        let path = rule.conditions.path(request);
        if path != request.head.path() {
            let path = path.to_vec();
            request.head.rewrite_path(&path, chosen.site.path_rules)?;
        }
    }
    Ok(())
}

/// Notes the rules that match whatever file the path comes to, and refuses whom they or the site keep
/// out: nothing that `.htaccess` files say is for those.
///
/// # Errors
/// As [`admission::check_client`].
pub(crate) async fn admit_to_files(routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
    for rule in routed.site.rules.iter() {
        let may_rewrite = rewrite::may_rewrite(&exchange.route, rule);
        let is_last = rule.handler.is_some() || may_rewrite;
        if !rule.needs_file && matches(routed, exchange, rule).await {
            if !exchange.route.matched().contains(&rule.index) {
                note(routed, rule, &exchange.request, &mut exchange.route);
            }
        } else if !rule.needs_file {
            continue;
        }
        // Beyond, it is not known whether a rule is come to.
        if is_last {
            break;
        }
    }
    admission::check_client(routed.chosen(&exchange.route), exchange)
}

/// Has a request counted by the rates that it is known to meet, which `.htaccess` files are about to
/// answer, or want a password of.
///
/// # Errors
/// One is exceeded, or an expression was given up.
pub(crate) async fn charge_for_files(routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
    let noted = exchange.route.noted();
    note_led_to(routed, exchange).await?;
    check_given_up(&exchange.request)?;
    let chosen = routed.chosen(&exchange.route);
    maps::ask_for_limits(chosen, exchange).await;
    let charged = permits::rates(chosen, exchange).await;
    exchange.route.take_back(noted);
    charged
}

/// Refuses a request on which an expression was given up: what depends on it is not known.
///
/// # Errors
/// One was.
pub(crate) fn check_given_up(request: &Request) -> Result<()> {
    match &*request.gave_up.borrow() {
        Some(expression) => Err(gave_up("a `match`", expression)),
        None => Ok(()),
    }
}

fn note_matches(routed: Routed<'_>, exchange: &mut Exchange) {
    let Exchange { request, route, .. } = exchange;
    for rule in routed.site.rules.iter() {
        if rule.conditions.hold(request, route.file.as_deref()) {
            note(routed, rule, request, route);
            if rule.handler.is_some() {
                return;
            }
        }
    }
}

/// Notes that a rule matches, and what its texts want to know of that.
fn note(routed: Routed<'_>, rule: &Rule, request: &Request, route: &mut Route) {
    route.add_rule(rule.index);
    capture(routed, rule, request, route);
}

fn capture(routed: Routed<'_>, rule: &Rule, request: &Request, route: &mut Route) {
    if rule.captures {
        let path = rule.conditions.path(request);
        let encoded_slash = routed.site.path_rules.encoded_slash;
        if let Some(spans) = rule.conditions.find(path) {
            route.capture(rule.index, Captured::new(path, spans, encoded_slash));
        }
    }
}

async fn note_matches_waiting(routed: Routed<'_>, exchange: &mut Exchange) -> Result<Next> {
    let mut rules = routed.site.rules.iter();
    let (mut before, mut deciding) = (0, None);
    while let Some(rule) = rules.next() {
        let has_matched = exchange.route.matched().contains(&rule.index);
        // One that matched another path rewrites this one only if it matches it, too.
        let may_rewrite = rewrite::may_rewrite(&exchange.route, rule);
        let matches = (may_rewrite || !has_matched) && matches(routed, exchange, rule).await;
        match (has_matched, matches) {
            (false, false) => continue,
            (false, true) => note(routed, rule, &exchange.request, &mut exchange.route),
            (true, _) => {}
        }
        if matches && may_rewrite && rewrite::of_rule(routed, exchange, rule).await? {
            note_asking(routed, &mut exchange.route, before);
            before = exchange.route.matched().len();
            if htaccess::obey(routed, exchange).await? == Next::Answered {
                return Ok(Next::Answered);
            }
            resolve::before_rules(routed, exchange).await?;
            rules = routed.site.rules.iter();
            continue;
        }
        if rule.handler.is_some() {
            deciding = Some(rule.index);
            break;
        }
    }
    if exchange.route.rewrites > 0 {
        note_asking(routed, &mut exchange.route, before);
    }
    if let Some(index) = deciding {
        exchange.route.decide(index);
    }
    Ok(Next::On)
}

/// Notes the rules that hold for the path that `.htaccess` files have led to, where that is not the
/// one that was asked for: those that keep somebody out of it, and those whose limits count.
async fn note_led_to(routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
    if !routed.site.rules.iter().any(holds_there) {
        return Ok(());
    }
    let Exchange { request, route, .. } = &*exchange;
    let mut led_to: Vec<Vec<u8>> = request.server_env.values().cloned().collect();
    led_to.extend(route.lookup().at.map(Vec::from));
    led_to.sort_unstable();
    led_to.dedup();
    led_to.retain(|path| path != request.head.path());
    for path in led_to {
        note_at(routed, exchange, &path).await?;
    }
    Ok(())
}

/// Notes those that hold for one such path.
async fn note_at(routed: Routed<'_>, exchange: &mut Exchange, led_to: &[u8]) -> Result<()> {
    let mut head = exchange.request.head.clone();
    head.rewrite_path(led_to, routed.site.path_rules)?;
    let asked = std::mem::replace(&mut exchange.request.head, head);
    let (mut holding, mut by) = (Vec::new(), Refusing::Site);
    for rule in routed.site.rules.iter() {
        if !matches(routed, exchange, rule).await {
            continue;
        }
        if holds_there(rule) && !exchange.route.matched().contains(&rule.index) {
            capture(routed, rule, &exchange.request, &mut exchange.route);
            holding.push(rule);
        }
        if asks(rule) {
            by = Refusing::Rule(rule.index);
        }
        if rule.handler.is_some() {
            break;
        }
    }
    exchange.request.head = asked;
    let route = &mut exchange.route;
    if route.asked_by().is_empty() {
        note_asking(routed, route, 0);
    }
    route.note_asking(by);
    for rule in holding {
        match keeps_out(rule) {
            true => route.keep(rule.index),
            false => route.count_at(rule.index),
        }
    }
    Ok(())
}

/// Whether a program answers for what is missing at a path.
pub(crate) fn runs_program(routed: Routed<'_>, request: &Request, path: &[u8]) -> bool {
    let mut rules = routed.site.rules.iter();
    let answers = |rule: &&Rule| rule.handler.is_some() && rule.conditions.hold_at(request, path);
    let handler = rules.find(answers).and_then(|rule| rule.handler.as_ref());
    matches!(handler, Some(Handler::Cgi(_) | Handler::FastCgi(_)))
}

/// Whether a rule forwards what rules of the virtual host have said it does: no file stands for that.
///
/// # Errors
/// As [`fn@resolve::file`].
pub(crate) async fn is_forwarded(routed: Routed<'_>, exchange: &mut Exchange) -> Result<bool> {
    if exchange.request.server_env.is_empty() {
        return Ok(false);
    }
    resolve::file(routed, exchange).await?;
    for rule in routed.site.rules.iter() {
        if rule.handler.is_some() && matches(routed, exchange, rule).await {
            return Ok(matches!(rule.handler, Some(Handler::Proxy(_))));
        }
    }
    Ok(false)
}

/// Whether a rule holds for each path that a request comes to.
fn holds_there(rule: &Rule) -> bool {
    keeps_out(rule) || !rule.limits.is_empty()
}

/// Whether a rule says who may come in.
fn keeps_out(rule: &Rule) -> bool {
    let names = |settings: &Settings| {
        let lists = [settings.deny.is_empty(), settings.allow.is_empty()];
        lists.contains(&false) || !settings.deny_files.is_empty()
    };
    asks(rule) || rule.settings.as_deref().is_some_and(names)
}

/// Whether a rule asks for credentials.
fn asks(rule: &Rule) -> bool {
    let settings = rule.settings.as_deref();
    settings.is_some_and(|settings| settings.auth.is_some())
}

/// Notes who asks for credentials for the path as it is: the innermost of the site and the rules that
/// matched after those `before`.
fn note_asking(routed: Routed<'_>, route: &mut Route, before: usize) {
    let is_asking = |index: &&usize| {
        let rule = routed.site.rules.get(**index);
        rule.is_some_and(asks)
    };
    let rule = route.matched().iter().skip(before).rev().find(is_asking);
    let by = rule.map_or(Refusing::Site, |index| Refusing::Rule(*index));
    route.note_asking(by);
}

async fn matches(routed: Routed<'_>, exchange: &mut Exchange, rule: &Rule) -> bool {
    // Each question is one of the rule's own, and asked once.
    loop {
        let (request, route) = (&exchange.request, &exchange.route);
        let (file, answers) = (route.file.as_deref(), &route.answers);
        match rule.conditions.judge(request, file, answers) {
            Some(matches) => return matches,
            None => match rule.conditions.question(request, file, answers) {
                Some(question) => maps::ask(*routed, exchange, question).await,
                None => return false,
            },
        }
    }
}
