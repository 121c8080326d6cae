//! The maps of a generation, made of its model: who answers, and what is counted.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use config::model::{self, MapSource, Model};
use tokio::time::timeout;

use super::answers::Answer;
use super::file::FileMap;
use super::program::{Asked, Program};
use crate::error::{Error, Kind, Result};
use crate::worker::resources::Resources;

/// How much longer than a question may take is waited where nobody attends to it yet.
const UNATTENDED: Duration = Duration::from_secs(1);

/// A map of a generation. One that stays as it is stays with the next generation.
#[derive(Debug)]
pub struct Map {
    pub(super) config: model::Map,
    pub(super) source: Asker,
    stats: Arc<MapStats>,
}

#[derive(Debug)]
pub(super) enum Asker {
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

/// Makes the maps of a generation; those that are as they were `before` are the same ones.
///
/// # Errors
/// When files cannot be read: all of them.
pub(crate) fn compile(model: &Model, before: &[Arc<Map>]) -> Result<Box<[Arc<Map>]>> {
    let of_name = |name: &str| before.iter().find(|map| map.config.name == name);
    let maps = model.maps.iter().enumerate();
    let maps = maps.map(|(number, config)| match of_name(&config.name) {
        Some(map) if map.config == *config => Ok(Arc::clone(map)),
        other => {
            let stats = other.map(|map| Arc::clone(&map.stats)).unwrap_or_default();
            Map::new(config, number, stats).map(Arc::new)
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

/// Ends the programs that the next generation does not have. Requests that began before may ask
/// on for a moment.
pub(crate) fn retire(before: &[Arc<Map>], next: &[Arc<Map>]) {
    for map in before {
        let stays = next.iter().any(|kept| Arc::ptr_eq(kept, map));
        if let Asker::Program(program) = &map.source
            && !stays
        {
            program.retire(Instant::now());
        }
    }
}

impl Map {
    fn new(
        config: &model::Map,
        number: usize,
        stats: Arc<MapStats>,
    ) -> std::result::Result<Self, String> {
        let source = match &config.source {
            MapSource::Program(program) => {
                Asker::Program(Arc::new(Program::new(config, program, number, &stats)))
            }
            MapSource::File(path) => Asker::File(Arc::new(FileMap::open(config, path, number)?)),
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
            Asker::Program(program) => Some(program.processes()),
            Asker::File(_) => None,
        }
    }

    /// Whether this program is the map's.
    pub(super) fn is_of(&self, program: &Arc<Program>) -> bool {
        matches!(&self.source, Asker::Program(own) if Arc::ptr_eq(own, program))
    }

    /// The answer of a file to a key, or the program that is to be asked.
    pub(super) fn look_up(&self, key: &[u8]) -> std::result::Result<Answer, &Arc<Program>> {
        match &self.source {
            Asker::File(file) => {
                self.stats.questions.fetch_add(1, Relaxed);
                Ok(file.answer(key))
            }
            Asker::Program(program) => Err(program),
        }
    }

    /// The answer to a key, for a request of this worker's; of a program that fails, what `on_error`
    /// says.
    pub(crate) async fn answer(&self, resources: &Resources, key: &[u8]) -> Answer {
        match self.ask(resources, key).await {
            Ok(answer) | Err(answer) => answer,
        }
    }

    /// The answer to a key.
    ///
    /// # Errors
    /// Where the program fails; it is counted. Comes with what `on_error` says.
    pub(crate) async fn ask(
        &self,
        resources: &Resources,
        key: &[u8],
    ) -> std::result::Result<Answer, Answer> {
        let program = match self.look_up(key) {
            Ok(answer) => return Ok(answer),
            Err(program) => program,
        };
        let answer = match program.ask(resources, key) {
            Asked::Known(answer) => Some(answer),
            Asked::Later(answer) => answer.await.ok(),
            Asked::Unattended(answer) => {
                let answer = timeout(program.timeout() + UNATTENDED, answer).await;
                answer.ok().and_then(std::result::Result::ok)
            }
            Asked::Failed => None,
        };
        answer.ok_or_else(|| program.on_error())
    }
}
