//! What is done when the acme process says something, and between that.
//!
//! The idea: each word is looked up in the plan and done at once, by the store, the keeper or the
//! server, and answered; what the server has to answer first is answered when it has.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::model::AcmeCertificate;
use config::reason;
use ipc::acme::{Demand, FromAcme, Held, Plan, Proof, ToAcme, Wanted};
use ipc::certificates::{Blob, KeyKind, Source};
use ipc::keeper::{Candidate, ShownTo};
use ipc::message::Message;
use ipc::server::CHALLENGES_MAX;

use super::store::Publication;
use super::{Purpose, READ_BY_OTHERS, Shown, USERS, Wishes, account, held};
use crate::Supervisor;
use crate::child::{Child, Server, user_beside};
use crate::phase::Phase;
use crate::role::Role;

impl Supervisor {
    /// When there is next something to be done for the acme process.
    pub(crate) fn authorities_until(&self) -> Option<Instant> {
        let is_serving = matches!(self.phase, Phase::Serving { .. });
        is_serving.then(|| self.authorities.until()).flatten()
    }

    /// Does what is to be done for the acme process while a server serves.
    pub(crate) fn mind_authorities(&mut self) {
        if !matches!(self.phase, Phase::Serving { .. }) {
            return;
        }
        if self.current.certificates.is_none() || self.current.wishes.accounts.is_empty() {
            if *self.authorities.wishes != Wishes::default() {
                self.authorities.end();
                self.publish();
            }
            return;
        }
        let now = Instant::now();
        // Those of one generation are the same, and all their hosts need not be looked at.
        let mut is_another_plan = !Arc::ptr_eq(&self.authorities.wishes, &self.current.wishes);
        if is_another_plan {
            self.authorities.adopt(&self.current.wishes);
        }
        is_another_plan |= self.authorities.step(now);
        if self.authorities.next_find.is_none_or(|next| next <= now) {
            self.find_demanded();
        }
        let is_signed = !self.keys.is_running() || self.authorities.proofs.are_of(self.keys.life());
        if self.authorities.read_others(now) || !is_signed {
            self.publish();
        }
        self.say_what_all_see(now);
        self.mind_demands(now);
        let certificates = self.current.certificates.as_ref();
        self.authorities.advance_exports(certificates, now);
        if self.authorities.kept.is_due(now) {
            self.start_acme();
        } else if is_another_plan {
            self.tell_plan();
        }
    }

    fn start_acme(&mut self) {
        let user = user_beside(&self.current.user, &USERS).to_owned();
        match Child::start(&Role::Acme { user }) {
            Ok(process) => {
                tracing::info!(pid = process.pid(), "acme process started");
                self.authorities.kept.run(process, ());
                self.tell_plan();
            }
            Err(error) => {
                tracing::error!(error = reason(&error), "start the acme process");
                self.authorities.kept.rest(Duration::ZERO);
            }
        }
    }

    fn tell_plan(&mut self) {
        self.find_demanded();
        let wishes = &self.authorities.wishes;
        let stores = &self.authorities.stores;
        let accounts = wishes.accounts.iter().zip(stores);
        let accounts = accounts.map(|(acme, store)| account(acme, store.as_ref()));
        let certificates = wishes.certificates.iter();
        let certificates = certificates.map(|wish| self.wanted(wish, None));
        let demanded = self.authorities.demanded.values();
        let demanded = demanded.map(|it| self.wanted(&it.wish, Some(it.demand.clone())));
        let plan = Plan {
            accounts: accounts.collect(),
            certificates: certificates.chain(demanded).collect(),
        };
        self.authorities.say(&ToAcme::Plan(plan));
    }

    /// A certificate as the process is told of it.
    pub(super) fn wanted(
        &self,
        (certificate, sources): &(AcmeCertificate, Vec<Source>),
        demand: Option<Demand>,
    ) -> Wanted {
        let (accounts, stores) = (&self.authorities.wishes.accounts, &self.authorities.stores);
        let known = self.current.certificates.as_ref();
        let found = sources.iter().find_map(|source| known?.judged(source));
        let index = |index: usize| u16::try_from(index).unwrap_or(u16::MAX);
        let first = accounts.get(certificate.account);
        let others = first.map_or(&[][..], |acme| &acme.fallback);
        let accounts = std::iter::once(&certificate.account).chain(others);
        let store = stores.get(certificate.account).and_then(Option::as_ref);
        Wanted {
            certificate: certificate.name.clone(),
            accounts: accounts.map(|it| index(*it)).collect(),
            names: certificate.names.clone(),
            held: found.map(|(judged, leaf)| held(judged, leaf)),
            order: store.and_then(|store| store.order(&certificate.name)),
            demand,
        }
    }

    /// Deals with a word of the acme process, or with its end.
    pub(crate) fn on_acme_word(&mut self) {
        let Some(link) = self.authorities.kept.link() else {
            return;
        };
        match FromAcme::recv(link) {
            Ok(word) => self.do_for_acme(word),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.authorities.lose("it ended");
                self.publish();
            }
            Err(error) => {
                let why = format!("the link to it failed: {}", reason(&error));
                self.authorities.lose(&why);
                self.publish();
            }
        }
    }

    fn do_for_acme(&mut self, word: FromAcme) {
        match word {
            FromAcme::Account {
                account,
                credentials,
            } => self.keep_account(&account, &credentials),
            FromAcme::Request { certificate, names } => {
                let result = self.request(&certificate, names);
                self.authorities.say(&ToAcme::Requested {
                    certificate,
                    result,
                });
            }
            FromAcme::Publish {
                number,
                certificate,
                name,
                proof,
            } => {
                if let Err(why) = self.show(number, &certificate, name, proof) {
                    let result = Err(why);
                    self.authorities.say(&ToAcme::Published { number, result });
                }
            }
            FromAcme::Withdraw { numbers } => {
                for number in numbers {
                    match self.authorities.shown.remove(&number) {
                        Some(shown) => self.authorities.take_back(&shown),
                        None => self.authorities.records.withdraw(number),
                    }
                }
                self.publish();
            }
            FromAcme::Ordered {
                certificate,
                account,
                url,
            } => {
                let kept = self.authorities.store_of(&certificate);
                let kept = kept.and_then(|(_, store)| {
                    let kept = store.keep_order(&certificate, &account, &url);
                    kept.map_err(|error| reason(&error))
                });
                if let Err(error) = kept {
                    tracing::error!(certificate, error, "an order is not kept");
                }
            }
            FromAcme::Issued { certificate, chain } => {
                let result = self.store(&certificate, &chain);
                self.authorities.say(&ToAcme::Stored {
                    certificate,
                    result,
                });
            }
            FromAcme::State(state) => {
                if self.authorities.certificate(&state.certificate).is_some() {
                    let name = state.certificate.clone();
                    self.authorities.telling.add(name.clone());
                    self.authorities.states.insert(name, state);
                }
            }
            FromAcme::Refused {
                certificate,
                why,
                is_forgotten,
            } => self.refuse_demand(certificate, why, is_forgotten),
        }
    }

    fn keep_account(&mut self, account: &str, credentials: &Blob) {
        let accounts = &self.authorities.wishes.accounts;
        let index = accounts.iter().position(|acme| acme.name == account);
        let stores = &mut self.authorities.stores;
        let store = index.and_then(|index| stores.get_mut(index)?.as_mut());
        let kept = store.map(|store| store.keep_account(&credentials.0));
        if let Some(Err(error)) = kept {
            tracing::error!(account, error = reason(&error), "the account is not kept");
        }
    }

    /// Has a key made and kept, and the request for its certificate made.
    fn request(&mut self, certificate: &str, names: Vec<String>) -> Result<Blob, String> {
        let known = self.authorities.certificate(certificate);
        let (known, _) = known.ok_or("no site wants this certificate")?;
        if names.is_empty() || !names.iter().all(|name| known.names.contains(name)) {
            return Err("these are not its names".into());
        }
        self.authorities.store_of(certificate)?;
        let made = self.keys.request(KeyKind::P256, names)??;
        let (_, store) = self.authorities.store_of(certificate)?;
        let kept = store.keep_key(certificate, &made.key.0);
        kept.map_err(|error| format!("keep its key: {}", reason(&error)))?;
        Ok(made.request)
    }

    /// Goes on with programs that were run, and has others run.
    pub(crate) fn mind_chores(&mut self) {
        loop {
            let now = Instant::now();
            self.authorities.advance_records(now);
            let link = || self.programs.link_for_chores();
            let ended = self.authorities.chores.step(now, link);
            if ended.is_empty() {
                return;
            }
            for (purpose, outcome) in ended {
                match purpose {
                    Purpose::Record(value) => self.on_record(&value, outcome),
                    Purpose::Export(account) => self.on_exported(&account, &outcome),
                    Purpose::Alert(alert) => self.on_alert_told(&alert, &outcome),
                }
            }
        }
    }

    /// Publishes a proof, once the server answers with it, or a record is there.
    fn show(
        &mut self,
        number: u32,
        certificate: &str,
        name: String,
        proof: Proof,
    ) -> Result<(), String> {
        let known = self.authorities.certificate(certificate);
        let (known, _) = known.ok_or("no site wants this certificate")?;
        if !known.names.contains(&name) {
            return Err("it has no such name".into());
        }
        if self.authorities.shown.len() >= CHALLENGES_MAX / 2 {
            return Err("too much is published".into());
        }
        let publication = Publication { name, proof };
        if let Proof::Dns { .. } = publication.proof {
            return self.authorities.present(number, certificate, publication);
        }
        if publication.name.starts_with("*.") {
            return Err("a wildcard is shown by a record alone".into());
        }
        self.authorities.proofs.make(&publication, &mut self.keys)?;
        let (index, store) = self.authorities.store_of(certificate)?;
        let published = store.publish(&publication);
        let published = published.and_then(|()| store.has_readers());
        let has_readers = published.map_err(|error| format!("publish: {}", reason(&error)))?;
        let wait = if has_readers {
            READ_BY_OTHERS
        } else {
            Duration::ZERO
        };
        let told = self.authorities.proofs.next();
        let shown = Shown {
            publication,
            store: index,
            awaited: Some((told, Instant::now() + wait)),
            is_answered: false,
        };
        self.authorities.shown.insert(number, shown);
        self.publish();
        Ok(())
    }

    /// Tells the server, which may be another one, everything that is published: that it is nothing, too, for
    /// it may know what was.
    pub(crate) fn publish(&mut self) {
        let mut proofs = std::mem::take(&mut self.authorities.proofs);
        let message = proofs.told(self.authorities.published(), &mut self.keys);
        self.authorities.proofs = proofs;
        let told = self
            .phase
            .server()
            .map(|server: &Server| server.send(&message));
        if let Some(Err(error)) = told {
            self.lose_server_by("it does not take challenges", &error);
        }
    }

    /// The server answers with what was said under this number.
    pub(crate) fn on_challenged(&mut self, number: u32) {
        for shown in self.authorities.shown.values_mut() {
            shown.is_answered |= shown.awaited.is_some_and(|(told, _)| told <= number);
        }
        self.say_what_all_see(Instant::now());
    }

    fn say_what_all_see(&mut self, now: Instant) {
        let mut seen = Vec::new();
        for (number, shown) in &mut self.authorities.shown {
            if shown.is_answered && shown.awaited.is_some_and(|(_, until)| until <= now) {
                shown.awaited = None;
                seen.push(*number);
            }
        }
        for number in seen {
            let result = Ok(());
            self.authorities.say(&ToAcme::Published { number, result });
        }
    }

    /// Stores a chain with its key, once the keeper has found that they belong together.
    fn store(&mut self, certificate: &str, chain: &Blob) -> Result<Held, String> {
        let (_, store) = self.authorities.store_of(certificate)?;
        let key = store.key(certificate);
        let key = key.map_err(|error| format!("its key: {}", reason(&error)))?;
        let pem = [&chain.0[..], b"\n", &key].concat();
        let file = format!("the certificate that was issued for {certificate}");
        let candidate = Candidate {
            chain_file: file.clone(),
            key_file: file,
            chain: pem.clone().into(),
            key: Blob::default(),
            shown_to: ShownTo::Clients,
        };
        let verdict = self.keys.judge(vec![candidate])?.pop();
        let judged = verdict.ok_or("the keeper says nothing of it")??;
        self.authorities.note_first(certificate);
        let (_, store) = self.authorities.store_of(certificate)?;
        let kept = store.keep_certificate(certificate, &pem);
        kept.map_err(|error| format!("store it: {}", reason(&error)))?;
        if let Some(demanded) = self.authorities.demanded.get_mut(certificate) {
            demanded.is_held = true;
        }
        if let Some(certificates) = &mut self.current.certificates {
            certificates.look_soon();
        }
        let leaf = judged.chain.first();
        Ok(held(&judged, leaf))
    }
}
