//! Which rules of its site a request matches.
//!
//! The idea: rules are tried in order, at once. One that depends on a map's answer is tried again
//! when the answer is there: only this request waits, and a map is asked only if everything else
//! the rule wants holds.

use crate::exchange::Exchange;
use crate::maps;
use crate::worker::Worker;

/// Notes every rule that matches, up to the first one with a handler.
pub(crate) async fn choose(worker: &Worker, exchange: &mut Exchange) {
    if exchange
        .route
        .site()
        .is_some_and(|site| site.rules_ask_maps)
    {
        // Boxed: few sites have such rules, and the others need not have room for it.
        return Box::pin(choose_asking(worker, exchange)).await;
    }
    let Exchange { request, route, .. } = exchange;
    let Some(serving) = route.serving.clone() else {
        return;
    };
    let Some(site) = route.site_index.and_then(|index| serving.site(index)) else {
        return;
    };
    for (index, rule) in site.rules.iter().enumerate() {
        if rule.conditions.hold(request, route.file.as_deref()) {
            route.add_rule(index);
            if rule.handler.is_some() {
                break;
            }
        }
    }
}

async fn choose_asking(worker: &Worker, exchange: &mut Exchange) {
    let Some(serving) = exchange.route.serving.clone() else {
        return;
    };
    let Some(site) = exchange.route.site_index.and_then(|at| serving.site(at)) else {
        return;
    };
    for (index, rule) in site.rules.iter().enumerate() {
        // Each question is one of the rule's own, and asked once.
        let matches = loop {
            let (request, route) = (&exchange.request, &exchange.route);
            let (file, answers) = (route.file.as_deref(), &route.answers);
            match rule.conditions.judge(request, file, answers) {
                Some(matches) => break matches,
                None => match rule.conditions.question(request, file, answers) {
                    Some(question) => maps::ask(worker, exchange, question).await,
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
