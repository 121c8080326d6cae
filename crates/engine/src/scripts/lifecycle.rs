//! One worker's VM for one generation: opened, started, and ended with `worker_exit`.
//!
//! A worker opens it before the generation is in force, so that a script that is no Ruby, or an
//! `init` that raises, refuses the generation and changes nothing. When the last request of the
//! generation has ended, `worker_exit` runs and the VM closes.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use script::{Failure, Interpreter, Phase, Script, Settings};
use tokio::sync::Notify;

use super::plan::{Plan, Use};
use super::reader::HelperReader;
use crate::generation::Generation;
use crate::worker::resources::Resources;

/// How long scripts are compiled before requests have their turn.
const COMPILING_AT_A_STRETCH: Duration = Duration::from_millis(2);

/// The scripts of a generation, compiled for one worker.
pub(crate) struct Scripts {
    interpreter: Rc<Interpreter>,
    /// As the plan counts them.
    compiled: Box<[Script]>,
    exits: Vec<(Phase, Script)>,
    /// Scripts of which it was said that a body was too long for them.
    told: RefCell<HashSet<usize>>,
    /// Told when no request of the generation is left.
    unused: Notify,
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts")
            .field("compiled", &self.compiled.len())
            .finish_non_exhaustive()
    }
}

impl Scripts {
    /// Opens the VM of a generation, compiles what is compiled once, and runs `init` and
    /// `worker_init`. `None`: it has no scripts.
    ///
    /// # Errors
    /// The first script that is no Ruby, or that failed.
    pub(crate) async fn open(
        resources: &Resources,
        shared: &Arc<script::Shared>,
        generation: &Generation,
    ) -> Result<Option<Rc<Self>>, Failure> {
        let Some(plan) = &generation.scripts else {
            return Ok(None);
        };
        let settings = settings(resources, generation, plan);
        let interpreter = Interpreter::open(settings, Arc::clone(shared))?;
        let planned = plan.scripts.iter();
        let compiled: Box<[Script]> = planned
            .map(|planned| Script::new(planned.name.clone(), planned.source.clone()))
            .collect();
        let mut since = Instant::now();
        for (script, planned) in compiled.iter().zip(&plan.scripts) {
            if !is_compiled_each_time(&planned.source) {
                interpreter.check(script).await?;
                // There may be many, and requests are served meanwhile.
                if since.elapsed() > COMPILING_AT_A_STRETCH {
                    tokio::task::yield_now().await;
                    since = Instant::now();
                }
            }
        }
        let all = |phase, used: &[Use]| -> Vec<(Phase, Script)> {
            let scripts = used.iter().filter_map(|used| compiled.get(used.script));
            scripts.map(|script| (phase, script.clone())).collect()
        };
        let mut starters = all(Phase::Init, &plan.init);
        starters.extend(all(Phase::WorkerInit, &plan.worker_init));
        let exits = all(Phase::WorkerExit, &plan.worker_exit);
        interpreter.start(starters).await?;
        let scripts = Rc::new(Self {
            interpreter,
            compiled,
            exits,
            told: RefCell::default(),
            unused: Notify::new(),
        });
        Ok(Some(scripts))
    }

    /// The VM.
    pub(crate) fn interpreter(&self) -> &Rc<Interpreter> {
        &self.interpreter
    }

    /// The script used here.
    pub(super) fn script(&self, used: Use) -> Option<&Script> {
        self.compiled.get(used.script)
    }

    /// The name of a script of which something is to be said, once.
    pub(super) fn tell_once(&self, used: Use) -> Option<&str> {
        let is_news = self.told.borrow_mut().insert(used.script);
        let script = self.script(used).filter(|_| is_news)?;
        Some(script.name())
    }

    /// No request of the generation is left, or none is waited for.
    pub(crate) fn release(&self) {
        self.unused.notify_one();
    }

    /// Waits until it is released, then runs `worker_exit`.
    pub(crate) async fn end(&self) {
        self.unused.notified().await;
        for (phase, exit) in &self.exits {
            let ended = self.interpreter.run(*phase, exit, None).await;
            if let Err(failure) = ended {
                tracing::error!(%failure, "worker_exit failed");
            }
        }
    }
}

fn is_compiled_each_time(source: &script::Source) -> bool {
    let never = script::Cache::Never;
    matches!(source, script::Source::File { cache, .. } if *cache == never)
}

fn settings(resources: &Resources, generation: &Generation, plan: &Plan) -> Settings {
    let env = plan.env.iter().filter_map(|name| {
        let value = std::env::var_os(name)?;
        Some((name.clone(), value.to_string_lossy().into_owned()))
    });
    Settings {
        server: plan.server,
        budgets: plan.budgets.clone(),
        env: env.collect(),
        cache_files: plan.cache_files.clone(),
        library: Arc::clone(&plan.library),
        worker: resources.index,
        reader: Rc::new(HelperReader::new(&resources.helpers, &generation.guarded)),
    }
}
