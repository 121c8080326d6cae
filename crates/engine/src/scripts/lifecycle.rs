//! One VM with its scripts: opened, started, and ended with `worker_exit`.
//!
//! A worker opens the VM that all share before a generation is in force, and compiles every script
//! of the generation, so that a script that is no Ruby, or an `init` that raises, refuses the
//! generation and changes nothing. A tenant's own opens when it is first needed ([`super::vms`]).

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use script::{Failure, Interpreter, Phase, Script, Settings};

use super::plan::{Plan, Use, VmIndex};
use super::reader::HelperReader;
use crate::generation::Generation;
use crate::worker::resources::Resources;

/// How long scripts are compiled before requests have their turn.
const COMPILING_AT_A_STRETCH: Duration = Duration::from_millis(2);

/// A VM, and the scripts it may have to run.
pub(crate) struct Scripts {
    interpreter: Rc<Interpreter>,
    /// As the plan counts them.
    scripts: Rc<[Script]>,
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts")
            .field("scripts", &self.scripts.len())
            .finish_non_exhaustive()
    }
}

impl Scripts {
    /// Opens the VM that all share: compiles what is compiled once, of every VM, and runs `init`
    /// and `worker_init`.
    ///
    /// # Errors
    /// The first script that is no Ruby, or that failed.
    pub(super) async fn open(
        resources: &Resources,
        shared: &Arc<script::Shared>,
        generation: &Generation,
        plan: &Plan,
    ) -> Result<Self, Failure> {
        let settings = settings(resources, generation, plan);
        let scripts = Self {
            interpreter: Interpreter::open(settings, Arc::clone(shared))?,
            scripts: plan.scripts_of(VmIndex::SHARED).collect(),
        };
        let mut turn = Turn::begin();
        for script in scripts
            .scripts
            .iter()
            .filter(|it| !it.is_compiled_each_time())
        {
            scripts.interpreter.check(script).await?;
            turn.end().await;
        }
        scripts.try_out(plan.own_alone(), &mut turn).await?;
        scripts.start(plan).await?;
        Ok(scripts)
    }

    /// Compiles what only other VMs run, in one that goes again.
    async fn try_out(
        &self,
        scripts: impl Iterator<Item = Script>,
        turn: &mut Turn,
    ) -> Result<(), Failure> {
        let mut scripts = scripts.filter(|it| !it.is_compiled_each_time()).peekable();
        if scripts.peek().is_none() {
            return Ok(());
        }
        let passing = self.interpreter.another()?;
        for script in scripts {
            passing.try_out(&script).await?;
            turn.end().await;
        }
        Ok(())
    }

    /// Opens another VM in this one's memory and runs `init` and `worker_init` in it; what it is to
    /// run it compiles when that is first run.
    ///
    /// # Errors
    /// There is no room, or the first script that failed.
    pub(super) async fn beside(&self, plan: &Plan, scripts: Rc<[Script]>) -> Result<Self, Failure> {
        let interpreter = self.interpreter.another()?;
        let beside = Self {
            interpreter,
            scripts,
        };
        beside.start(plan).await?;
        Ok(beside)
    }

    async fn start(&self, plan: &Plan) -> Result<(), Failure> {
        let starters = self.all(Phase::Init, &plan.init);
        let starters = starters.chain(self.all(Phase::WorkerInit, &plan.worker_init));
        self.interpreter.start(starters.collect()).await
    }

    fn all(&self, phase: Phase, used: &[Use]) -> impl Iterator<Item = (Phase, Script)> {
        let scripts = used.iter().filter_map(|used| self.script(*used));
        scripts.map(move |script| (phase, script.clone()))
    }

    /// Runs `worker_exit`.
    pub(super) async fn exit(&self, plan: &Plan) {
        for (phase, exit) in self.all(Phase::WorkerExit, &plan.worker_exit) {
            let ended = self.interpreter.run(phase, &exit, None).await;
            if let Err(failure) = ended {
                tracing::error!(%failure, "worker_exit failed");
            }
        }
    }

    /// The VM.
    pub(crate) fn interpreter(&self) -> &Rc<Interpreter> {
        &self.interpreter
    }

    /// The script used here.
    pub(super) fn script(&self, used: Use) -> Option<&Script> {
        self.scripts.get(used.script)
    }
}

/// Compiling at a stretch: there may be many scripts, and requests are served meanwhile.
struct Turn(Instant);

impl Turn {
    fn begin() -> Self {
        Self(Instant::now())
    }

    async fn end(&mut self) {
        if self.0.elapsed() > COMPILING_AT_A_STRETCH {
            tokio::task::yield_now().await;
            *self = Self::begin();
        }
    }
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
        cache_files: Arc::clone(&plan.cache_files),
        library: Arc::clone(&plan.library),
        worker: resources.index,
        reader: Rc::new(HelperReader::new(&resources.helpers, &generation.guarded)),
    }
}
