//! What natives work on: the VM's own state, and what all workers share.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use mruby::{Call, Datum, Host};

use crate::library::Features;
use crate::patterns::Patterns;
use crate::phase::Phase;
use crate::request::Request;
use crate::scope::Scope;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::together::Together;
use crate::wait::Pending;

/// The state of one VM.
pub(crate) struct State {
    pub(crate) settings: Rc<Settings>,
    pub(crate) shared: Arc<Shared>,
    /// What it has with the worker's other VMs.
    pub(crate) together: Rc<Together>,
    /// The phase of the run under way.
    pub(crate) phase: Phase,
    /// The script of the run under way, by its name.
    pub(crate) script: Arc<str>,
    /// What the run under way waits for.
    pub(crate) pending: Option<Pending>,
    /// What the last request inside of each request was answered, by the serial of its scope.
    pub(crate) answered: Rc<RefCell<HashMap<u64, Datum>>>,
    /// What the run under way holds, if it runs for no request.
    pub(crate) own: Option<Box<Scope>>,
    /// Names of JSON texts that became Symbols, which the VM never forgets.
    pub(crate) json_names: HashSet<Vec<u8>>,
    /// Patterns that were compiled.
    pub(crate) patterns: Patterns,
    /// Files that scripts may require, as this VM has compiled them.
    pub(crate) features: Features,
}

impl State {
    pub(crate) fn new(
        settings: &Rc<Settings>,
        shared: &Arc<Shared>,
        together: &Rc<Together>,
    ) -> Self {
        Self {
            settings: Rc::clone(settings),
            shared: Arc::clone(shared),
            together: Rc::clone(together),
            phase: Phase::Init,
            script: Arc::from(""),
            pending: None,
            answered: Rc::default(),
            own: None,
            json_names: HashSet::new(),
            patterns: Patterns::default(),
            features: Features::default(),
        }
    }

    /// Another stretch of a run begins.
    pub(crate) fn begin(&mut self, phase: Phase, script: &Arc<str>) {
        self.phase = phase;
        if !Arc::ptr_eq(&self.script, script) {
            self.script = Arc::clone(script);
        }
        self.pending = None;
    }
}

impl Host for State {
    type Lent = dyn Request;

    fn cancel_wait(&mut self) {
        self.pending = None;
    }
}

/// A native at work.
pub(crate) type NativeCall<'a> = Call<'a, State>;
