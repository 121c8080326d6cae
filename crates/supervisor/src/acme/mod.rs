//! What the supervisor does for the acme process: it keeps the stores, and is its way to the others.
//!
//! The idea: the acme process says names of certificates, and each is looked up in the generation's
//! plan before anything is done in its name. A key is kept in the store before the request for its
//! certificate leaves, a chain is judged by the keeper with its key before it is stored, and a proof
//! is published once the server answers with it and other machines have had the time to see it. All
//! of it is done between two phases, while a server serves; what cannot be done is answered so, and
//! the process tries again later. Whatever it is told by the store's files is no more than the
//! account, orders under way and tokens: certificates go the way of all files.

mod demand;
mod export;
mod lease;
mod operators;
mod proofs;
mod records;
mod relay;
mod store;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::model::{Acme, AcmeCertificate, AcmeChallenge, DemandedHosts, Model};
use config::reason;
use ipc::acme::{Account, Binding, CertificateState, ChallengeKind, Held, ToAcme};
use ipc::certificates::{Blob, Source};
use ipc::keeper::Judged;
use ipc::message::Message;
use ipc::server::{CHALLENGES_MAX, Challenge};

use os::file::Wait;

use crate::child::KeptProcess;
use crate::chores::Chores;
use crate::keeper::Keys;
use demand::Demanded;
use export::Exports;
use proofs::Proofs;
use records::Records;
use store::{Publication, Store};

/// Whom the acme process becomes, if there is such a user and it is not the server's: what the
/// package makes for it, and what every system has.
const USERS: [&str; 3] = ["nagaya-acme", "bin", "daemon"];
/// How often another machine's challenges are looked for.
const READ: Duration = Duration::from_secs(1);
/// How long other machines have to see a challenge.
const READ_BY_OTHERS: Duration = Duration::from_millis(2_500);
/// Bytes of a file with a key for a binding.
const BINDING_BYTES_MAX: usize = 4_096;

/// What a configuration wants of authorities.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wishes {
    accounts: Vec<Acme>,
    certificates: Vec<(AcmeCertificate, Vec<Source>)>,
    /// Which hosts are ordered on demand, and the tenants of all sites; `None`: no host is.
    demanded: Option<(DemandedHosts, Vec<String>)>,
}

impl Wishes {
    /// Those of a configuration. For each certificate where it comes from: the store, and before it
    /// is there the file that its site names.
    pub(super) fn of(model: &Model) -> Wishes {
        let certificates = model.acme_certificates().map(|certificate| {
            let own = certificate.file(model).display().to_string();
            let site = model.sites.get(certificate.site);
            let files = site.and_then(|site| site.tls.files.as_ref());
            let files = files.map(|files| files.certificate.display().to_string());
            let sources = std::iter::once(Source::Acme(own));
            let sources = sources.chain(files.map(Source::File)).collect();
            (certificate, sources)
        });
        Wishes {
            accounts: model.acme.clone(),
            certificates: certificates.collect(),
            demanded: model.demanded_hosts().map(|hosts| {
                let tenants = model.sites.iter().map(|site| site.tenant.clone());
                (hosts, tenants.collect())
            }),
        }
    }

    fn certificate(&self, name: &str) -> Option<&(AcmeCertificate, Vec<Source>)> {
        let mut certificates = self.certificates.iter();
        certificates.find(|(certificate, _)| certificate.name == name)
    }
}

/// The acme process, and what is done for it.
#[derive(Debug, Default)]
pub(super) struct Authorities {
    pub(super) kept: KeptProcess,
    /// What is wanted by the generation whose stores are open.
    wishes: Arc<Wishes>,
    /// By account; `None` where it cannot be opened.
    stores: Vec<Option<Store>>,
    /// What is published here, by the numbers of the process.
    shown: BTreeMap<u32, Shown>,
    /// What other machines have published.
    read: Vec<Publication>,
    next_read: Option<Instant>,
    /// When it is looked next what other machines ask for.
    next_heard: Option<Instant>,
    proofs: Proofs,
    /// What clients have asked for, by name.
    demanded: BTreeMap<String, Demanded>,
    /// When it is looked what of them has ended; `None`: at once.
    next_find: Option<Instant>,
    records: Records,
    pub(super) chores: Chores<Purpose>,
    exports: Exports,
    states: BTreeMap<String, CertificateState>,
    /// What the server knows of them.
    telling: operators::Telling,
    /// How often the process was started again.
    restarts: u64,
}

/// What a program is run for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The record with this value.
    Record(String),
    /// The files of this account have changed.
    Export(String),
    /// This alert has news.
    Alert(String),
}

/// A challenge that is published.
#[derive(Debug)]
struct Shown {
    publication: Publication,
    store: usize,
    /// The number the server is to answer to, and the earliest time to say that all see it; `None`
    /// once that was said.
    awaited: Option<(u32, Instant)>,
    is_answered: bool,
}

impl Authorities {
    /// Ends the process and leaves the stores to others.
    pub(super) fn end(&mut self) {
        *self = Authorities {
            proofs: std::mem::take(&mut self.proofs),
            restarts: self.restarts,
            ..Authorities::default()
        };
        self.telling.begin_anew();
    }

    /// When there is next something to be done.
    fn until(&self) -> Option<Instant> {
        let resting = self.kept.until();
        let leases = self.stores.iter().flatten().map(Store::until);
        let shown = self.shown.values().filter(|shown| shown.is_answered);
        let shown = shown.filter_map(|shown| Some(shown.awaited?.1));
        let telling = self.telling.until();
        let others = telling.into_iter().chain(self.exports.until());
        let soonest = leases.chain(shown).chain(resting).chain(others).min();
        let looks = self.next_read.into_iter().chain(self.next_heard);
        soonest.into_iter().chain(looks).min()
    }

    /// Programs that are run.
    pub(super) fn chores(&self) -> &Chores<impl std::fmt::Debug> {
        &self.chores
    }

    /// When there is next something to be done about these, whether a server serves or not.
    pub(super) fn chores_until(&self) -> Option<Instant> {
        let until = self.chores.until().into_iter();
        until.chain(self.records.until()).min()
    }

    /// Has files for others looked at: a certificate is another.
    pub(super) fn look_at_exports(&mut self) {
        self.exports.look();
    }

    fn say(&mut self, message: &ToAcme) {
        let sent = self.kept.link().map(|link| message.send(link));
        if let Some(Err(error)) = sent {
            self.lose(&format!("it does not hear: {}", reason(&error)));
        }
    }

    /// Ends the process, if it has not ended, and rests before the next.
    fn lose(&mut self, why: &str) {
        let Some(process) = self.kept.take_running() else {
            return;
        };
        let lived = process.lose("acme process", why);
        self.kept.rest(lived);
        self.restarts += 1;
        // Nobody asks any more for what it had published.
        self.records.withdraw_all();
        for (_, shown) in std::mem::take(&mut self.shown) {
            self.take_back(&shown);
        }
    }

    fn take_back(&mut self, shown: &Shown) {
        let store = self.stores.get_mut(shown.store).and_then(Option::as_mut);
        if let Some(Err(error)) = store.map(|store| store.withdraw(&shown.publication)) {
            tracing::debug!(error = reason(&error), "a challenge stays in the store");
        }
    }

    /// The store of a certificate that this machine may write, or why there is none.
    fn store_of(&mut self, certificate: &str) -> Result<(usize, &mut Store), String> {
        let known = self.certificate(certificate);
        let (known, _) = known.ok_or("no site wants this certificate")?;
        let index = known.account;
        let store = self.stores.get_mut(index).and_then(Option::as_mut);
        let store = store.ok_or("its store cannot be opened")?;
        match store.is_held() {
            true => Ok((index, store)),
            false => Err("another machine writes its store".into()),
        }
    }

    /// Opens the stores of what is wanted now; those that stay are kept.
    fn adopt(&mut self, wishes: &Arc<Wishes>) {
        let mut before = std::mem::take(&mut self.stores);
        for acme in &wishes.accounts {
            let is_same = |store: &Option<Store>| {
                store
                    .as_ref()
                    .is_some_and(|it| it.directory() == acme.store)
            };
            let kept = before.iter().position(is_same);
            let lease = Duration::from_millis(acme.lease_ms);
            let store = match kept.and_then(|at| before.get_mut(at)?.take()) {
                Some(store) => Some(store),
                None => match Store::open(&acme.store, lease) {
                    Ok(store) => Some(store),
                    Err(error) => {
                        let (path, error) = (acme.store.display(), reason(&error));
                        tracing::error!(account = acme.name, "store {path}: {error}");
                        None
                    }
                },
            };
            self.stores.push(store);
        }
        self.wishes = Arc::clone(wishes);
        self.adopt_demanded();
        let (wishes, demanded) = (&self.wishes, &self.demanded);
        self.states
            .retain(|name, _| wishes.certificate(name).is_some() || demanded.contains_key(name));
        self.telling.begin_anew();
        (0..self.stores.len()).for_each(|index| self.inherit_records(index));
        self.exports.look();
    }

    /// Keeps leases; tells whether another machine writes now, or this one.
    fn step(&mut self, now: Instant) -> bool {
        let mut changed = Vec::new();
        let stores = self.stores.iter_mut().enumerate();
        for (index, store) in stores.filter_map(|(index, it)| Some((index, it.as_mut()?))) {
            if store.until() > now {
                continue;
            }
            let before = store.is_held();
            let stepped = store.step(now);
            let path = store.directory().display();
            if let Err(error) = stepped {
                tracing::error!(error = reason(&error), "the lease of {path}");
            }
            if before != store.is_held() {
                changed.push(index);
                self.telling.begin_anew();
                tracing::info!(writes = store.is_held(), "store {path}");
            }
        }
        for index in &changed {
            self.inherit_records(*index);
        }
        !changed.is_empty()
    }

    /// Reads what other machines have published; tells whether that changed.
    fn read_others(&mut self, now: Instant) -> bool {
        if self.next_read.is_some_and(|next| next > now) {
            return false;
        }
        let mut read = Vec::new();
        let mut is_reader = false;
        for store in self.stores.iter_mut().flatten().filter(|it| !it.is_held()) {
            is_reader = true;
            let published = store.say_reader(now).and_then(|()| store.published());
            match published {
                Ok(published) => read.extend(published),
                Err(error) => tracing::error!(error = reason(&error), "challenges of others"),
            }
        }
        self.next_read = is_reader.then(|| now + READ);
        read.truncate(CHALLENGES_MAX / 2);
        let changed = read != self.read;
        self.read = read;
        changed
    }

    /// Everything that is published, as a server that starts is told.
    pub(super) fn challenges(&mut self, keys: &mut Keys) -> Vec<Challenge> {
        let mut proofs = std::mem::take(&mut self.proofs);
        let challenges = proofs.challenges(self.published(), keys);
        self.proofs = proofs;
        challenges
    }

    /// Everything that is published, here and by other machines.
    fn published(&self) -> impl Iterator<Item = &Publication> {
        let own = self.shown.values().map(|shown| &shown.publication);
        own.chain(&self.read)
    }
}

/// What is published in the stores now, for a server that is to answer before this program keeps them: an
/// authority may be looking at what another program has published.
pub(super) fn left_by_another(wishes: &Wishes, keys: &mut Keys) -> Vec<Challenge> {
    let mut published = Vec::new();
    for acme in &wishes.accounts {
        let lease = Duration::from_millis(acme.lease_ms);
        let read = Store::open(&acme.store, lease).and_then(|store| store.published());
        // What cannot be read is told by whoever keeps the store.
        published.extend(read.unwrap_or_default());
    }
    published.truncate(CHALLENGES_MAX / 2);
    Proofs::default().challenges(published.iter(), keys)
}

/// The accounts as the process is told them.
fn account(acme: &Acme, store: Option<&Store>) -> Account {
    let binding = acme.binding.as_ref().and_then(|binding| {
        let key = read_binding(&binding.key);
        let key = key.inspect_err(|error| {
            let (path, error) = (binding.key.display(), reason(error));
            tracing::error!(account = acme.name, "{path}: {error}");
        });
        Some(Binding {
            id: binding.id.clone(),
            key: key.ok()?,
        })
    });
    let authorities = acme.authorities.as_ref();
    Account {
        name: acme.name.clone(),
        directory: acme.directory.clone(),
        contact: acme.contact.clone(),
        binding,
        challenges: acme.challenges.iter().map(kind).collect(),
        profile: acme.profile.clone(),
        authorities: authorities.map_or_else(String::new, |path| path.display().to_string()),
        credentials: store.and_then(Store::account).map(Blob::from),
        is_writer: store.is_some_and(Store::is_held),
        budgets: acme.on_demand.as_ref().map(demand::budgets),
    }
}

fn kind(challenge: &AcmeChallenge) -> ChallengeKind {
    match challenge {
        AcmeChallenge::Http01 => ChallengeKind::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeKind::TlsAlpn01,
        AcmeChallenge::Dns01 => ChallengeKind::Dns01,
    }
}

fn read_binding(path: &Path) -> io::Result<String> {
    let file = os::file::open(path, Wait::Allowed)?;
    let bytes = os::file::read_whole(file.as_fd(), BINDING_BYTES_MAX)?;
    let text = String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(text.trim().to_owned())
}

fn held(judged: &Judged, leaf: Option<&Blob>) -> Held {
    Held {
        names: judged.names.clone(),
        not_before_s: judged.not_before_s,
        not_after_s: judged.not_after_s,
        leaf: leaf.cloned().unwrap_or_default(),
    }
}
