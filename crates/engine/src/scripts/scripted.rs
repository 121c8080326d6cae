//! What scripts leave in an exchange: for each other, and for the phases that follow.

use std::fmt;
use std::rc::Rc;
use std::time::Instant;

use script::{Phase, Scope};
use wire::Fields;

use super::plan::VmIndex;
use super::vms::{Pinned, Vms};
use crate::error::{Error, Kind, Result};
use crate::worker::Worker;
use crate::worker::serving::Serving;

/// How often a request may be sent elsewhere, inside.
const ELSEWHERE_MAX: u32 = 10;

/// What the scripts of one request have left behind. Made with a request's first script; its
/// memory stays with the exchange.
pub struct Scripted {
    /// What they said and hold.
    pub scope: Scope,
    /// The phase under way.
    pub(super) phase: Phase,
    /// Fields of the reply, set before there was one.
    pub(super) fields_out: Fields,
    /// Fields of the upstream's reply as they came.
    pub(super) fields_upstream: Fields,
    /// Where the exchange is served; `None` between requests.
    served: Option<(Rc<Worker>, Rc<Serving>)>,
    /// Its tenant's VM, from the first script on; `None` where scripts run in the shared one.
    vm: Option<Pinned>,
    /// What scripts are to do with the reply.
    pub(super) filters: Filters,
    /// What the client accepts, kept from whoever answers.
    pub(super) accept_encoding: Option<Vec<u8>>,
    /// The reply's body, while scripts look at it.
    pub(super) body: Option<Filtered>,
    /// How deep the request lies inside of others.
    pub(super) depth: u32,
    /// How often it was sent elsewhere.
    pub(super) elsewhere: Elsewhere,
    /// Why a script answered with an error; empty if none did.
    pub(super) said: &'static str,
    /// When the reply had been sent.
    pub(super) ended: Option<Instant>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted")
            .field("scope", &self.scope)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

impl Default for Scripted {
    fn default() -> Self {
        Self {
            scope: Scope::default(),
            phase: Phase::Rewrite,
            fields_out: Fields::default(),
            fields_upstream: Fields::default(),
            served: None,
            vm: None,
            filters: Filters::None,
            accept_encoding: None,
            body: None,
            depth: 0,
            elsewhere: Elsewhere::default(),
            said: "",
            ended: None,
        }
    }
}

impl Scripted {
    /// A phase begins.
    pub(crate) fn enter(&mut self, worker: &Rc<Worker>, serving: &Rc<Serving>, phase: Phase) {
        self.phase = phase;
        if self.served.is_none() {
            self.served = Some((Rc::clone(worker), Rc::clone(serving)));
        }
    }

    /// Where the exchange is served, while it is.
    pub(super) fn served(&self) -> Option<&(Rc<Worker>, Rc<Serving>)> {
        self.served.as_ref()
    }

    /// The VM that the request keeps; its tenant's is kept from here on, if it is open.
    pub(super) fn vm(&mut self, vms: &Rc<Vms>, index: VmIndex) -> Option<&Pinned> {
        if self.vm.is_none() {
            self.vm = vms.pin(index);
        }
        self.vm.as_ref()
    }

    /// Keeps a VM, or none any more.
    pub(super) fn keep_vm(&mut self, vm: Option<Pinned>) {
        self.vm = vm;
    }

    /// Whether it keeps a VM.
    pub(super) fn keeps_vm(&self) -> bool {
        self.vm.is_some()
    }

    /// Fields of the reply that were set before there was one.
    pub(crate) fn take_fields(&mut self) -> Option<Fields> {
        (!self.fields_out.is_empty()).then(|| std::mem::take(&mut self.fields_out))
    }

    /// Whether a field of this name was set before there was a reply.
    pub(crate) fn sets_field(&self, name: &str) -> bool {
        self.fields_out.get_named(name.as_bytes()).is_some()
    }

    /// Keeps the fields of an upstream's reply, for scripts that look at them later.
    pub(super) fn keep_upstream(&mut self, fields: &Fields) {
        self.fields_upstream.clear();
        self.fields_upstream.append(fields);
    }

    /// Forgets a type of content that was meant for another reply than ours.
    pub(crate) fn forget_content_type(&mut self) {
        self.fields_out.remove(wire::FieldId::ContentType);
    }

    /// Whether the request lies inside of another.
    pub(crate) fn is_inside(&self) -> bool {
        self.depth > 0
    }

    /// Whether the request was sent elsewhere, inside.
    pub(crate) fn was_sent_elsewhere(&self) -> bool {
        self.elsewhere.has_been()
    }

    /// The request has ended: gives up what its scripts hold.
    pub(crate) fn end(&mut self) {
        self.fields_upstream.clear();
        if self.served.take().is_some() {
            self.scope.renew();
            self.vm = None;
            self.fields_out.clear();
            self.filters = Filters::None;
            self.accept_encoding = None;
            self.body = None;
            self.depth = 0;
            self.elsewhere = Elsewhere::default();
            self.said = "";
            self.ended = None;
        }
    }

    /// Forgets what the last script said, when it is not to count.
    pub(super) fn unsay(&mut self) {
        self.scope.returned = None;
        self.scope.output.clear();
        self.scope.redirect = None;
    }
}

/// What scripts are to do with a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Filters {
    /// Nothing, or nothing more.
    #[default]
    None,
    /// They are to see its head.
    Armed,
}

/// A body that scripts look at.
#[derive(Debug, Clone, Default)]
pub(super) struct Filtered {
    pub(super) bytes: Vec<u8>,
    pub(super) is_changed: bool,
}

/// Counts how often a request was sent elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Elsewhere(u32);

impl Elsewhere {
    pub(super) fn has_been(self) -> bool {
        self.0 > 0
    }

    pub(super) fn go(&mut self, reason: &'static str) -> Result<()> {
        self.0 += 1;
        if self.0 > ELSEWHERE_MAX {
            let detail = format!("sent elsewhere inside more than {ELSEWHERE_MAX} times");
            return Err(Error::new(Kind::Internal, reason, detail));
        }
        Ok(())
    }
}
