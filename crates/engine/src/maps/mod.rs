//! Maps: programs and files that answer a key with a text.
//!
//! The idea: a question is one line, and so is its answer. Whoever asks on behalf of a request
//! gets the answer at once, from a file or from memory, or waits for it while its worker goes on
//! with others. The processes of a program belong to the server as a whole (as Apache's do), so a
//! question is put into the queue of one of them by whichever worker has it ([`mailbox`]), and
//! the worker that hosts the process does the reading and writing for all ([`process`]): all
//! questions of one turn leave in one write. Whatever becomes of a program, each question is
//! answered in time, if only with what the map's `on_error` says.
//! What a request has heard is kept with it ([`Answers`]): rules, limits and texts look there.

pub(crate) mod answers;
mod back_off;
pub(crate) mod cache;
mod file;
pub(crate) mod mailbox;
pub(crate) mod map;
mod process;
mod program;
mod protocol;
mod stderr;
pub(crate) mod texts;

use std::rc::Rc;
use std::sync::Arc;

use config::model::MapLookup;

pub(crate) use answers::Answers;
pub(crate) use answers::Question;
pub(crate) use map::Map;
pub(crate) use map::retire;

use self::file::FileMap;
use self::map::Asker;
use self::texts::{of_edits, of_settings};
use crate::conditions::Conditions;
use crate::exchange::Exchange;
use crate::exchange::request::Request;
use crate::generation::Generation;
use crate::stage::{Arrived, Chosen};
use crate::template::{self, Values};
use crate::worker::Worker;

/// Starts what this worker hosts of the maps of a generation that has come into force.
pub(crate) fn start(worker: &Rc<Worker>, generation: &Generation) {
    for map in &generation.maps {
        match &map.source {
            Asker::Program(program) => {
                for mailbox in program.to_be_hosted(worker) {
                    process::host(worker, Arc::clone(program), Arc::clone(mailbox));
                }
            }
            Asker::File(file) => FileMap::start(file, worker),
        }
    }
}

/// Asks a map on behalf of an exchange, and keeps the answer with it. What was asked already is
/// not asked again.
pub(crate) async fn ask(arrived: Arrived<'_>, exchange: &mut Exchange, question: Question) {
    let Question { map, key } = question;
    if exchange.route.answers.find(map, &key).is_some() {
        return;
    }
    let answer = match arrived.serving.generation.maps.get(map) {
        Some(map) => map.answer(arrived.worker, &key).await,
        None => None,
    };
    exchange.route.answers.keep(map, key, answer);
}

/// Asks what the limits must know that a request of this site may meet.
pub(crate) async fn ask_for_limits(chosen: Chosen<'_>, exchange: &mut Exchange) {
    if chosen.site.limits_ask_maps {
        // Boxed: few sites have such limits, and the others need not have room for it.
        Box::pin(ask_for(chosen, exchange)).await;
    }
}

async fn ask_for(chosen: Chosen<'_>, exchange: &mut Exchange) {
    let of_rules = chosen.rules(&exchange.route);
    let of_rules = of_rules.chain(chosen.counting(&exchange.route));
    let of_rules = of_rules.map(|rule| &rule.asking_limits);
    let asking: Vec<_> = [&chosen.site.asking_limits]
        .into_iter()
        .chain(of_rules)
        .collect();
    for conditions in asking.iter().flat_map(|asking| asking.iter()) {
        while let Some(question) = open_question(exchange, conditions) {
            ask(**chosen, exchange, question).await;
        }
    }
}

/// What is to be asked before these conditions can be judged.
fn open_question(exchange: &Exchange, conditions: &Conditions) -> Option<Question> {
    let route = &exchange.route;
    conditions.question(&exchange.request, route.file.as_deref(), &route.answers)
}

/// Asks whatever texts of the request's process, site, rules and handler ask.
pub(crate) async fn ask_for_texts(chosen: Chosen<'_>, exchange: &mut Exchange) {
    if chosen.serving.generation.texts_ask_maps {
        // Boxed: few ask, and the others need not have room for it.
        Box::pin(ask_for_all(chosen, exchange)).await;
    }
}

async fn ask_for_all(chosen: Chosen<'_>, exchange: &mut Exchange) {
    for question in questions(chosen, exchange) {
        ask(**chosen, exchange, question).await;
    }
}

fn questions(chosen: Chosen<'_>, exchange: &Exchange) -> Vec<Question> {
    let (request, route) = (&exchange.request, &exchange.route);
    let of_level = Values {
        request,
        answers: &route.answers,
        captured: None,
    };
    let process = &chosen.serving.generation.process;
    let of_process = [&process.request_headers, &process.reply_headers];
    let of_process = of_process.into_iter().flat_map(of_edits);
    let of_process = of_process.map(|template| (template, of_level));
    let of_levels = chosen.layers(route).flat_map(|layer| {
        let captured = layer.captured;
        let values = Values {
            captured,
            ..of_level
        };
        of_settings(layer.settings).map(move |template| (template, values))
    });
    let of_handler = chosen.handler.texts();
    let of_handler = of_handler.map(|template| (template, route.values(request)));
    let all = of_process.chain(of_levels).chain(of_handler);
    let question = |(lookup, values): (&MapLookup, Values<'_>)| {
        let mut key = Vec::new();
        template::expand(&lookup.key, values, &mut key);
        let map = lookup.map;
        Question { map, key }
    };
    all.flat_map(|(template, values)| template.lookups().map(move |lookup| (lookup, values)))
        .map(question)
        .collect()
}

/// Whether conditions hold, for who cannot wait: files are asked, but no program.
pub(crate) fn hold_at_once(
    conditions: &Conditions,
    request: &Request,
    answers: &mut Answers,
    maps: &[Arc<Map>],
) -> bool {
    loop {
        if let Some(holds) = conditions.judge(request, None, answers) {
            return holds;
        }
        // Each question is one of theirs, and asked once.
        let Some(Question { map, key }) = conditions.question(request, None, answers) else {
            return false;
        };
        match maps.get(map).map(|map| map.look_up(&key)) {
            Some(Ok(answer)) => answers.keep(map, key, answer),
            Some(Err(_)) | None => return false,
        }
    }
}
