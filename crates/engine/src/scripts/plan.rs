//! What a generation knows of scripts: each distinct one once, and which run at each level.
//!
//! Nothing is compiled here: a compiled script belongs to one worker's VM. As the rest of
//! a generation, it is made of copies.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::model::{self, Cache, Mode, Model, OnError, PhaseScripts, Source};
use script::{Budgets, Library, LibraryFile, Phase, ServerClass};

/// The scripts of a generation.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Each distinct one once, as [`Use`] counts them.
    pub(super) scripts: Vec<Planned>,
    pub(super) init: Vec<Use>,
    pub(super) worker_init: Vec<Use>,
    pub(super) worker_exit: Vec<Use>,
    /// Those every request meets.
    pub(super) process: Option<Arc<Level>>,
    pub(super) server: ServerClass,
    pub(super) budgets: Budgets,
    /// Largest body that a `body_filter` is given.
    pub(super) body_filter_bytes: usize,
    /// Directories whose files `Cache` may keep namespaces in.
    pub(super) cache_files: Vec<PathBuf>,
    /// What scripts may require.
    pub(super) library: Arc<Library>,
    /// Names of environment variables.
    pub(super) env: Vec<String>,
    /// The longest that opening a VM takes.
    pub(crate) opening_max: Duration,
    /// Those in shadow, each once.
    pub(crate) in_shadow: Vec<InShadow>,
    phases: Phases,
}

/// A script that is to be compiled.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) name: Arc<str>,
    pub(super) source: script::Source,
}

/// Where a script is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    /// Which one.
    pub(super) script: usize,
    /// What a raise means.
    pub(super) on_error: OnError,
    /// Whether a request can do without it.
    pub(super) is_optional: bool,
    /// Whether nothing of what it says comes to pass.
    pub(super) is_in_shadow: bool,
}

/// A script that is in shadow somewhere, by its name in logs, and the phase.
pub(crate) type InShadow = (Arc<str>, Phase);

/// The scripts of one level.
#[derive(Debug, Default)]
pub(crate) struct Level {
    rewrite: Box<[Use]>,
    access: Box<[Use]>,
    header_filter: Box<[Use]>,
    body_filter: Box<[Use]>,
    log: Box<[Use]>,
}

impl Level {
    /// Those of a phase, in the order they run in.
    pub(super) fn of(&self, phase: Phase) -> &[Use] {
        match phase {
            Phase::Rewrite => &self.rewrite,
            Phase::Access => &self.access,
            Phase::HeaderFilter => &self.header_filter,
            Phase::BodyFilter => &self.body_filter,
            Phase::Log => &self.log,
            Phase::Init | Phase::WorkerInit | Phase::WorkerExit | Phase::Set | Phase::Content => {
                &[]
            }
        }
    }
}

/// The phases of requests in which a generation runs a script at all.
#[derive(Debug, Clone, Copy, Default)]
struct Phases(u16);

impl Phases {
    fn add(&mut self, phase: Phase) {
        self.0 |= 1 << phase as u16;
    }

    fn has(self, phase: Phase) -> bool {
        self.0 & 1 << phase as u16 != 0
    }
}

impl Plan {
    /// Whether any request runs a script in this phase.
    pub(crate) fn has(&self, phase: Phase) -> bool {
        self.phases.has(phase)
    }

    /// What the scripts of one request may write, in all.
    pub(super) fn output_bytes(&self) -> usize {
        self.budgets.output_bytes
    }
}

/// Gathers the scripts of a model.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    scripts: Vec<Planned>,
    known: HashMap<(Text, u8), usize>,
    levels: HashMap<*const PhaseScripts, Option<Arc<Level>>>,
    in_shadow: Vec<InShadow>,
    phases: Phases,
}

/// What tells scripts apart, besides when they are compiled.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Text {
    File(PathBuf),
    Code(Arc<str>),
}

impl Builder {
    /// One use of a script.
    pub(crate) fn one(&mut self, script: &model::Script) -> Use {
        let text = match &script.source {
            Source::File(file) => Text::File(file.path.clone()),
            Source::Code(code) => Text::Code(Arc::from(&**code)),
        };
        let scripts = &mut self.scripts;
        let known = self.known.entry((text, script.cache as u8));
        let index = *known.or_insert_with(|| {
            scripts.push(planned(script));
            scripts.len() - 1
        });
        Use {
            script: index,
            on_error: script.on_error,
            is_optional: script.optional,
            is_in_shadow: script.mode == Mode::Shadow,
        }
    }

    /// The script of a handler.
    pub(crate) fn of_handler(&mut self, handler: Option<&model::Handler>) -> Option<Use> {
        handler?.script().map(|script| self.one(script))
    }

    /// The scripts of a level; `None` is none. Levels that share theirs in the model share them
    /// again.
    pub(crate) fn level(&mut self, scripts: &Arc<PhaseScripts>) -> Option<Arc<Level>> {
        let key = Arc::as_ptr(scripts);
        if let Some(known) = self.levels.get(&key) {
            return known.clone();
        }
        let level = (!scripts.is_empty()).then(|| {
            Arc::new(Level {
                rewrite: self.all(Phase::Rewrite, &scripts.rewrite),
                access: self.all(Phase::Access, &scripts.access),
                header_filter: self.all(Phase::HeaderFilter, &scripts.header_filter),
                body_filter: self.all(Phase::BodyFilter, &scripts.body_filter),
                log: self.all(Phase::Log, &scripts.log),
            })
        });
        self.levels.insert(key, level.clone());
        level
    }

    fn all(&mut self, phase: Phase, scripts: &[model::Script]) -> Box<[Use]> {
        if !scripts.is_empty() {
            self.phases.add(phase);
        }
        for script in scripts.iter().filter(|it| it.mode == Mode::Shadow) {
            let known = (logged_name(script), phase);
            if !self.in_shadow.contains(&known) {
                self.in_shadow.push(known);
            }
        }
        scripts.iter().map(|script| self.one(script)).collect()
    }

    /// The plan; `None` for a model without a script.
    pub(crate) fn finish(mut self, model: &Model) -> Option<Plan> {
        let own = &model.scripts;
        let mut process = |scripts: &[model::Script]| -> Vec<Use> {
            scripts.iter().map(|script| self.one(script)).collect()
        };
        let (init, worker_init) = (process(&own.init), process(&own.worker_init));
        let worker_exit = process(&own.worker_exit);
        let process = self.level(&own.phases);
        if self.scripts.is_empty() {
            return None;
        }
        Some(Plan {
            scripts: self.scripts,
            init,
            worker_init,
            worker_exit,
            process,
            server: match own.server {
                model::ServerClass::Nginx => ServerClass::Nginx,
                model::ServerClass::Apache => ServerClass::Apache,
            },
            budgets: budgets(&own.budgets),
            body_filter_bytes: own.budgets.body_filter_bytes,
            cache_files: own.cache_files.to_vec(),
            library: Arc::new(library(&own.lib)),
            env: own.env.to_vec(),
            opening_max: model.scripts_start_max(),
            in_shadow: self.in_shadow,
            phases: self.phases,
        })
    }
}

/// What log lines call a script.
fn logged_name(script: &model::Script) -> Arc<str> {
    let Planned { name, source } = planned(script);
    Arc::clone(script::Script::new(name, source).name())
}

fn planned(script: &model::Script) -> Planned {
    let cache = match script.cache {
        Cache::Mtime => script::Cache::Mtime,
        Cache::Always => script::Cache::Always,
        Cache::Never => script::Cache::Never,
    };
    match &script.source {
        Source::File(file) => Planned {
            name: Arc::from(&*script.name),
            source: script::Source::File {
                path: file.path.clone(),
                text: file.text.as_ref().map(|text| Arc::from(&**text)),
                cache,
            },
        },
        Source::Code(code) => {
            let (name, line) = script.place();
            let text = Arc::from(code.as_bytes());
            Planned {
                name: Arc::from(name),
                source: script::Source::Code { text, line },
            }
        }
    }
}

/// What scripts may require, out of a model's directories.
fn library(model: &[model::Library]) -> Library {
    let below = |library: &model::Library, file: &model::ScriptFile| {
        let name = file.path.strip_prefix(&library.directory).ok()?;
        Some(LibraryFile {
            name: name.with_extension("").to_str()?.into(),
            path: file.path.to_str()?.into(),
            text: Arc::from(&**file.text.as_ref()?),
        })
    };
    let files = model.iter().flat_map(|library| {
        let files = library.files.iter();
        files.filter_map(move |file| below(library, file))
    });
    let shown = |library: &model::Library| library.directory.display().to_string();
    Library {
        files: files.collect(),
        directories: model.iter().map(shown).collect(),
    }
}

fn budgets(model: &model::Budgets) -> Budgets {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Budgets {
        cpu: Duration::from_millis(model.cpu_ms),
        wall: Duration::from_millis(model.wall_ms),
        log_wall: Duration::from_millis(model.log_wall_ms),
        memory_bytes: size(model.memory_bytes),
        parked: model.parked,
        output_bytes: size(model.output_bytes),
        connect_timeout: Duration::from_millis(model.connect_timeout_ms),
        store_timeout: Duration::from_millis(model.store_timeout_ms),
        store_connections: model.store_connections,
        cache_bytes: size(model.cache_bytes),
        cache_entries: model.cache_entries,
        read_bytes: size(model.read_bytes),
    }
}
