//! Which rules of its site a request matches.
//!
//! The idea: rules are tried in order, at once. One that depends on a map's answer is tried again
//! when the answer is there: only this request waits, and a map is asked only if everything else
//! the rule wants holds.

use crate::exchange::Exchange;
use crate::maps;
use crate::stage::{Chosen, Routed};

/// Notes every rule that matches, up to the first one with a handler.
pub(crate) async fn choose<'a>(routed: Routed<'a>, exchange: &mut Exchange) -> Chosen<'a> {
    if routed.site.rules_ask_maps {
        // Boxed: few sites have such rules, and the others need not have room for it.
        Box::pin(note_matches_asking(routed, exchange)).await;
    } else {
        note_matches(routed, exchange);
    }
    routed.chosen(&exchange.route)
}

fn note_matches(routed: Routed<'_>, exchange: &mut Exchange) {
    let Exchange { request, route, .. } = exchange;
    for (index, rule) in routed.site.rules.iter().enumerate() {
        if rule.conditions.hold(request, route.file.as_deref()) {
            route.add_rule(index);
            if rule.handler.is_some() {
                return;
            }
        }
    }
}

async fn note_matches_asking(routed: Routed<'_>, exchange: &mut Exchange) {
    for (index, rule) in routed.site.rules.iter().enumerate() {
        // Each question is one of the rule's own, and asked once.
        let matches = loop {
            let (request, route) = (&exchange.request, &exchange.route);
            let (file, answers) = (route.file.as_deref(), &route.answers);
            match rule.conditions.judge(request, file, answers) {
                Some(matches) => break matches,
                None => match rule.conditions.question(request, file, answers) {
                    Some(question) => maps::ask(*routed, exchange, question).await,
                    None => break false,
                },
            }
        };
        if matches {
            exchange.route.add_rule(index);
            if rule.handler.is_some() {
                return;
            }
        }
    }
}
