//! Maps: programs and files that answer a key with a text.
//!
//! The idea: a question is one line, and so is its answer. Whoever asks on behalf of a request
//! gets the answer at once, from a file or from memory, or waits for it while its worker goes on
//! with others. The processes of a program belong to the server as a whole (as Apache's do), so a
//! question is put into the queue of one of them by whichever worker has it ([`inbox`]), and
//! the worker that hosts the process does the reading and writing for all ([`process`]): all
//! questions of one turn leave in one write. Whatever becomes of a program, each question is
//! answered in time, if only with what the map's `on_error` says.
//! What a request has heard is kept with it ([`Answers`]): rules, limits and texts look there.

mod answers;
mod back_off;
mod cache;
mod file;
mod inbox;
mod process;
mod program;
mod protocol;
mod stderr;
mod texts;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use config::model::{self, MapSource, Model};
use tokio::sync::oneshot;
use tokio::time::timeout;

pub(crate) use answers::number;
pub use answers::{Answer, Answers};
pub(crate) use inbox::Inbox;
pub(crate) use texts::{ask_for_texts, texts_ask};

use self::file::FileMap;
use self::program::Program;
use crate::conditions::Conditions;
use crate::error::{Error, Kind, Result};
use crate::exchange::{Exchange, Request};
use crate::generation::Generation;
use crate::stage::{Arrived, Chosen};
use crate::worker::Worker;

/// How much longer than a question may take is waited where nobody attends to it yet.
const UNATTENDED: Duration = Duration::from_secs(1);

/// A map of a generation. One that stays as it is stays with the next generation.
#[derive(Debug)]
pub struct Map {
    config: model::Map,
    source: Source,
    stats: Arc<MapStats>,
}

#[derive(Debug)]
enum Source {
    Program(Arc<Program>),
    File(Arc<FileMap>),
}

/// What is counted of a map, as long as there is one of its name.
#[derive(Debug, Default)]
pub struct MapStats {
    /// Questions.
    pub questions: AtomicU64,
    /// Of these, those that were answered from memory.
    pub cached: AtomicU64,
    /// Of these, those that got what `on_error` says.
    pub errors: AtomicU64,
    /// Times that a process had to be started again.
    pub restarts: AtomicU64,
}

/// What a map is to be asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Index of the map in the generation.
    pub(crate) map: usize,
    pub(crate) key: Vec<u8>,
}

/// What a map says to a question.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The answer.
    Known(Answer),
    /// It comes within the time a question may take.
    Later(oneshot::Receiver<Answer>),
    /// The same, but nobody attends to it yet.
    Unattended(oneshot::Receiver<Answer>),
}

/// Makes the maps of a generation; those that are as they were `before` are the same ones.
///
/// # Errors
/// When files cannot be read: all of them.
pub(crate) fn compile(model: &Model, before: Option<&Generation>) -> Result<Box<[Arc<Map>]>> {
    let known = before.map_or(&[][..], |before| &before.maps);
    let of_name = |name: &str| known.iter().find(|map| map.config.name == name);
    let maps = model.maps.iter().enumerate();
    let maps = maps.map(|(seat, config)| match of_name(&config.name) {
        Some(map) if map.config == *config => Ok(Arc::clone(map)),
        other => {
            let stats = other.map(|map| Arc::clone(&map.stats)).unwrap_or_default();
            Map::new(config, seat, stats).map(Arc::new)
        }
    });
    let (mut made, mut problems) = (Vec::new(), Vec::new());
    for map in maps {
        match map {
            Ok(map) => made.push(map),
            Err(problem) => problems.push(problem),
        }
    }
    match problems.as_slice() {
        [] => Ok(made.into()),
        // All at once, so that nobody mends them one start at a time.
        _ => Err(Error::new(Kind::Internal, "map_file", problems.join("; "))),
    }
}

/// Starts what this worker hosts of the maps of a generation that has come into force.
pub(crate) fn start(worker: &Rc<Worker>, generation: &Generation) {
    for map in &generation.maps {
        match &map.source {
            Source::Program(program) => program.start(worker),
            Source::File(file) => FileMap::start(file, worker),
        }
    }
}

/// Ends the programs that the next generation does not have. Requests that began before may ask
/// on for a moment.
pub(crate) fn retire(before: &Generation, next: &Generation) {
    for map in &before.maps {
        let stays = next.maps.iter().any(|kept| Arc::ptr_eq(kept, map));
        if let Source::Program(program) = &map.source
            && !stays
        {
            program.retire(Instant::now());
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

impl Map {
    fn new(
        config: &model::Map,
        seat: usize,
        stats: Arc<MapStats>,
    ) -> std::result::Result<Self, String> {
        let source = match &config.source {
            MapSource::Program(program) => {
                Source::Program(Arc::new(Program::new(config, program, seat, &stats)))
            }
            MapSource::File(path) => Source::File(Arc::new(FileMap::open(config, path, seat)?)),
        };
        Ok(Self {
            config: config.clone(),
            source,
            stats,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// What is counted of it.
    pub fn stats(&self) -> &MapStats {
        &self.stats
    }

    /// Processes that run, and those there are to be; `None` for a file.
    pub fn processes(&self) -> Option<(usize, usize)> {
        match &self.source {
            Source::Program(program) => Some(program.processes()),
            Source::File(_) => None,
        }
    }

    /// Whether this program is the map's.
    fn is_of(&self, program: &Arc<Program>) -> bool {
        matches!(&self.source, Source::Program(own) if Arc::ptr_eq(own, program))
    }

    /// The answer of a file to a key, or the program that is to be asked.
    fn look_up(&self, key: &[u8]) -> std::result::Result<Answer, &Arc<Program>> {
        match &self.source {
            Source::File(file) => {
                self.stats.questions.fetch_add(1, Relaxed);
                Ok(file.answer(key))
            }
            Source::Program(program) => Err(program),
        }
    }

    /// The answer to a key, for a request of this worker's.
    async fn answer(&self, worker: &Worker, key: &[u8]) -> Answer {
        let program = match self.look_up(key) {
            Ok(answer) => return answer,
            Err(program) => program,
        };
        // A sender that is gone belonged to a worker that has ended.
        let lost = |_| program.on_error();
        match program.ask(worker, key) {
            Asked::Known(answer) => answer,
            Asked::Later(answer) => answer.await.unwrap_or_else(lost),
            Asked::Unattended(answer) => {
                match timeout(program.timeout() + UNATTENDED, answer).await {
                    Ok(answer) => answer.unwrap_or_else(lost),
                    Err(_) => program.on_error(),
                }
            }
        }
    }
}
