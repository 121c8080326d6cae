//! What the supervisor does about keys and certificates while it goes round: the keeper comes back
//! where it is lost, and what changed in files reaches the server.
//!
//! The idea: nothing here waits its turn in [`Phase`]: it is done between two phases, while a
//! server serves, and what cannot be done now is done at the next look. A server has links to one
//! keeper at a time, and the set it has is of the same one.

use std::os::fd::OwnedFd;
use std::time::Instant;

use config::reason;
use ipc::server::ToServer;

use crate::certificates::{Certificates, Lacking};
use crate::phase::Phase;
use crate::reload::Generation;
use crate::{Server, Supervisor};

impl Supervisor {
    /// When there is next something to be done about keys and certificates.
    pub(super) fn keys_until(&self) -> Option<Instant> {
        if !matches!(self.phase, Phase::Serving { .. }) {
            return None;
        }
        let certificates = self.current.certificates.as_ref()?;
        // Without a keeper nothing can be judged.
        Some(self.keys.kept.until().unwrap_or(certificates.next_look()))
    }

    /// Does what is to be done about keys and certificates while a server serves.
    pub(super) fn mind_keys(&mut self) {
        if !matches!(self.phase, Phase::Serving { .. }) {
            return;
        }
        let now = Instant::now();
        self.answer_late_questions();
        if self.current.certificates.is_none() {
            return self.keys.end();
        }
        if self.keys.kept.until().is_some_and(|until| until <= now) {
            self.renew_keys();
        }
        if self.keys.is_running() && self.linked != self.keys.life() {
            return self.link_keeper();
        }
        self.forget_scripted(now);
        let certificates = self.current.certificates.as_mut();
        let is_due = |it: &&mut Certificates| it.next_look() <= now && self.keys.is_running();
        let Some(certificates) = certificates.filter(is_due) else {
            return;
        };
        self.keys.look();
        match certificates.look(&mut self.keys) {
            Ok(true) => {
                self.find_demanded();
                self.tell_certificates(|set| ToServer::Certificates { set });
                self.authorities.look_at_exports();
            }
            Ok(false) => {}
            Err(lacking) => log(lacking),
        }
    }

    /// Has a keeper that knows the certificates of the current generation, if one can be had.
    pub(super) fn renew_keys(&mut self) {
        let Some(certificates) = &mut self.current.certificates else {
            return;
        };
        if let Err(problem) = self.keys.start(&self.current.user) {
            return tracing::error!("{problem}");
        }
        if certificates.life() != self.keys.life()
            && let Err(lacking) = certificates.renew(&mut self.keys)
        {
            log(lacking);
        }
    }

    /// Has the keeper work as the current generation says, where it was told of another that does not come into force.
    pub(super) fn take_keeping_back(&mut self) {
        let keeping = self.current.keeping.clone();
        if let Some(Err(problem)) = keeping.map(|keeping| self.keys.set(keeping)) {
            tracing::error!("{problem}");
        }
    }

    /// Links to the keeper for a server that has none; none without a keeper.
    pub(super) fn links_to_keeper(&mut self) -> Vec<OwnedFd> {
        self.linked = 0;
        // Another server asked that.
        self.keys.unanswered.clear();
        if self.current.certificates.is_none() {
            return Vec::new();
        }
        self.make_links(self.current.workers)
    }

    /// Links to the keeper for the next generation of a server, where it has none to this keeper.
    pub(super) fn links_where_none(&mut self, next: &Generation) -> Vec<OwnedFd> {
        if next.certificates.is_none() || self.linked == self.keys.life() {
            return Vec::new();
        }
        self.make_links(next.workers)
    }

    /// One for each thread that makes handshakes, and one more.
    fn make_links(&mut self, workers: usize) -> Vec<OwnedFd> {
        let links = self.keys.links(workers + 1);
        if !links.is_empty() {
            self.linked = self.keys.life();
        }
        links
    }

    /// Gives the server links to this keeper, and the set with its numbers.
    fn link_keeper(&mut self) {
        self.renew_keys();
        if let Some(certificates) = &mut self.current.certificates {
            // What fails is tried again with the next look.
            certificates.look_later();
        }
        let knows = |certificates: &Certificates| certificates.life() == self.keys.life();
        if !self.current.certificates.as_ref().is_some_and(knows) {
            return;
        }
        let links = self.make_links(self.current.workers);
        if !links.is_empty() {
            self.tell_certificates(|set| ToServer::Keeper { links, set });
        }
    }

    /// Tells the server about the current set of certificates.
    fn tell_certificates(&mut self, message: impl FnOnce(OwnedFd) -> ToServer) {
        let Some(certificates) = &self.current.certificates else {
            return;
        };
        let set = match certificates.set() {
            Ok(set) => set,
            Err(error) => {
                let error = reason(&error);
                return tracing::error!(error, "certificates cannot be handed on");
            }
        };
        let message = message(set);
        let told = self
            .phase
            .server()
            .map(|server: &Server| server.send(&message));
        if let Some(Err(error)) = told {
            self.lose_server_by("it does not take certificates", &error);
        }
    }
}

fn log(lacking: Lacking) {
    for problem in lacking.into_problems() {
        tracing::error!("{problem}");
    }
}
