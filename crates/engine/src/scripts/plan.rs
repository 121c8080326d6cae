//! What a generation knows of scripts: each distinct one once, which run at each level, and in
//! which VM.
//!
//! A VM has the scripts that its requests can meet, counted from those of the process, which every
//! VM has: a use tells a script by its place in there, whichever VM that is.
//!
//! Nothing is compiled here: a compiled script belongs to one worker's VM. As the rest of
//! a generation, it is made of copies.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::model::{self, Cache, Mode, Model, OnError, PhaseScripts, Source};
use script::{Budgets, Library, LibraryFile, Phase, Script, ServerClass};

/// Which VM of a worker: the one that all share, or that of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct VmIndex(usize);

impl VmIndex {
    /// The one that all share.
    pub(crate) const SHARED: Self = Self(0);

    /// That of a tenant, by its place among those of tenants.
    pub(super) fn of_tenant(place: usize) -> Self {
        Self(place + 1)
    }

    /// Its place among those of tenants; `None` for the shared one.
    pub(super) fn own(self) -> Option<usize> {
        self.0.checked_sub(1)
    }
}

/// The scripts of a generation.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Each distinct one once.
    pub(super) scripts: Vec<Planned>,
    /// What each VM has of them, as [`Use`] counts them; the shared one first.
    pub(super) vms: Vec<VmPlan>,
    /// VMs of tenants that a worker has open at once.
    pub(super) vms_max: usize,
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
    pub(super) cache_files: Arc<[PathBuf]>,
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

/// What runs in one VM.
#[derive(Debug, Default, Clone)]
pub(super) struct VmPlan {
    /// Whose it is; empty for the shared one.
    pub(super) tenant: Arc<str>,
    /// The scripts it may have to run, those of the process first.
    pub(super) scripts: Vec<usize>,
}

/// Where a script is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    /// Which one of its VM's.
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
    ssl_handshake: Box<[Use]>,
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
            Phase::SslHandshake => &self.ssl_handshake,
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

    /// The scripts of a VM, none of them compiled.
    pub(super) fn scripts_of(&self, vm: VmIndex) -> impl Iterator<Item = Script> {
        let all = self.vms.get(vm.0).into_iter().flat_map(|vm| &vm.scripts);
        all.filter_map(|script| Some(self.scripts.get(*script)?.script()))
    }

    /// Those that only VMs of tenants have.
    pub(super) fn own_alone(&self) -> impl Iterator<Item = Script> {
        let shared = self.vms.first().into_iter().flat_map(|vm| &vm.scripts);
        let shared: HashSet<_> = shared.collect();
        let others = self.scripts.iter().enumerate();
        let others = others.filter(move |(index, _)| !shared.contains(index));
        others.map(|(_, planned)| planned.script())
    }

    /// The number of a script, whatever VM it runs in.
    pub(super) fn number_of(&self, vm: VmIndex, used: Use) -> Option<usize> {
        self.vms.get(vm.0)?.scripts.get(used.script).copied()
    }

    /// What log lines call a script.
    pub(super) fn name_of(&self, vm: VmIndex, used: Use) -> Arc<str> {
        let number = self.number_of(vm, used);
        let planned = number.and_then(|number| self.scripts.get(number));
        planned.map_or_else(Arc::default, |planned| Arc::clone(planned.script().name()))
    }
}

impl Planned {
    fn script(&self) -> Script {
        Script::new(Arc::clone(&self.name), self.source.clone())
    }
}

/// Gathers the scripts of a model.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    scripts: Vec<Planned>,
    known: HashMap<(Text, u8), usize>,
    levels: HashMap<(VmIndex, *const PhaseScripts), Option<Arc<Level>>>,
    in_shadow: Vec<InShadow>,
    phases: Phases,
    vms: Vec<VmBuilder>,
    by_tenant: HashMap<Box<str>, VmIndex>,
    process: Starters,
}

/// Gathers the scripts of one VM.
#[derive(Debug, Default, Clone)]
struct VmBuilder {
    plan: VmPlan,
    /// Their places in it.
    places: HashMap<usize, usize>,
}

/// Scripts that belong to VMs, and those of the process's level.
#[derive(Debug, Default)]
struct Starters {
    init: Vec<Use>,
    worker_init: Vec<Use>,
    worker_exit: Vec<Use>,
    level: Option<Arc<Level>>,
}

/// What tells scripts apart, besides when they are compiled.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Text {
    File(PathBuf),
    Code(Arc<str>),
}

impl Builder {
    /// Begins with what every VM has: the scripts of the process.
    pub(crate) fn new(model: &Model) -> Self {
        let mut builder = Self {
            vms: vec![VmBuilder::default()],
            ..Self::default()
        };
        let own = &model.scripts;
        let mut process = |scripts: &[model::Script]| -> Vec<Use> {
            let scripts = scripts.iter();
            scripts
                .map(|script| builder.one(VmIndex::SHARED, script))
                .collect()
        };
        let (init, worker_init) = (process(&own.init), process(&own.worker_init));
        let worker_exit = process(&own.worker_exit);
        builder.process = Starters {
            init,
            worker_init,
            worker_exit,
            level: builder.level(VmIndex::SHARED, &own.phases),
        };
        let shared = builder.vms.first().cloned().unwrap_or_default();
        for tenant in model.own_vms() {
            let index = VmIndex(builder.vms.len());
            builder.by_tenant.insert(tenant.into(), index);
            let mut vm = shared.clone();
            vm.plan.tenant = tenant.into();
            builder.vms.push(vm);
        }
        builder
    }

    /// The VM in which the scripts run that a tenant's requests meet.
    pub(crate) fn vm_of(&self, tenant: &str) -> VmIndex {
        let own = self.by_tenant.get(tenant).copied();
        own.unwrap_or(VmIndex::SHARED)
    }

    /// One use of a script in a VM.
    pub(crate) fn one(&mut self, vm: VmIndex, script: &model::Script) -> Use {
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
        let place = self.vms.get_mut(vm.0).map(|vm| vm.place(index));
        Use {
            script: place.unwrap_or(usize::MAX),
            on_error: script.on_error,
            is_optional: script.optional,
            is_in_shadow: script.mode == Mode::Shadow,
        }
    }

    /// The script of a handler.
    pub(crate) fn of_handler(
        &mut self,
        vm: VmIndex,
        handler: Option<&model::Handler>,
    ) -> Option<Use> {
        handler?.script().map(|script| self.one(vm, script))
    }

    /// The scripts of a level; `None` is none. Levels that share theirs in the model share them
    /// again, as far as they run in the same VM.
    pub(crate) fn level(&mut self, vm: VmIndex, scripts: &Arc<PhaseScripts>) -> Option<Arc<Level>> {
        let key = (vm, Arc::as_ptr(scripts));
        if let Some(known) = self.levels.get(&key) {
            return known.clone();
        }
        let level = (!scripts.is_empty()).then(|| {
            Arc::new(Level {
                ssl_handshake: self.all(vm, Phase::SslHandshake, &scripts.ssl_handshake),
                rewrite: self.all(vm, Phase::Rewrite, &scripts.rewrite),
                access: self.all(vm, Phase::Access, &scripts.access),
                header_filter: self.all(vm, Phase::HeaderFilter, &scripts.header_filter),
                body_filter: self.all(vm, Phase::BodyFilter, &scripts.body_filter),
                log: self.all(vm, Phase::Log, &scripts.log),
            })
        });
        self.levels.insert(key, level.clone());
        level
    }

    fn all(&mut self, vm: VmIndex, phase: Phase, scripts: &[model::Script]) -> Box<[Use]> {
        if !scripts.is_empty() {
            self.phases.add(phase);
        }
        for script in scripts.iter().filter(|it| it.mode == Mode::Shadow) {
            let known = (logged_name(script), phase);
            if !self.in_shadow.contains(&known) {
                self.in_shadow.push(known);
            }
        }
        scripts.iter().map(|script| self.one(vm, script)).collect()
    }

    /// The plan; `None` for a model without a script.
    pub(crate) fn finish(self, model: &Model) -> Option<Plan> {
        let own = &model.scripts;
        if self.scripts.is_empty() {
            return None;
        }
        Some(Plan {
            scripts: self.scripts,
            vms: self.vms.into_iter().map(|vm| vm.plan).collect(),
            vms_max: own.budgets.vms,
            init: self.process.init,
            worker_init: self.process.worker_init,
            worker_exit: self.process.worker_exit,
            process: self.process.level,
            server: match own.server {
                model::ServerClass::Nginx => ServerClass::Nginx,
                model::ServerClass::Apache => ServerClass::Apache,
            },
            budgets: budgets(&own.budgets),
            body_filter_bytes: own.budgets.body_filter_bytes,
            cache_files: own.cache_files.to_vec().into(),
            library: Arc::new(library(&own.lib)),
            env: own.env.to_vec(),
            opening_max: model.scripts_start_max(),
            in_shadow: self.in_shadow,
            phases: self.phases,
        })
    }
}

impl VmBuilder {
    /// Where it has a script; at its end, if it did not have it yet.
    fn place(&mut self, script: usize) -> usize {
        let scripts = &mut self.plan.scripts;
        *self.places.entry(script).or_insert_with(|| {
            scripts.push(script);
            scripts.len() - 1
        })
    }
}

/// What log lines call a script.
fn logged_name(script: &model::Script) -> Arc<str> {
    Arc::clone(planned(script).script().name())
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
