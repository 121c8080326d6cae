//! What operators are told of certificates that are ordered, and what they may ask for.
//!
//! The idea: whoever asks, asks the server, and so the server is told how it goes: everything when it
//! starts or another plan is in force, and then what has changed, gathered for a moment, so that a
//! night in which thousands are ordered is not thousands of messages.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ipc::acme::{OrderedCertificate, ToAcme};
use ipc::certificates::Source;
use ipc::server::{CertificateNews, ORDERED_MAX, ProcessLife, ToServer};

use super::{Authorities, Store};
use crate::Supervisor;
use crate::phase::Phase;

/// How long changes are gathered.
const GATHERED: Duration = Duration::from_millis(200);

/// What a server is still to be told.
#[derive(Debug, Default)]
pub(super) struct Telling {
    /// Everything, and that nothing else counts.
    anew: bool,
    /// The certificates of which something has changed.
    changed: BTreeSet<String>,
    /// When it is told.
    due: Option<Instant>,
    /// What it knows of keeper and acme process.
    lives: Option<[ProcessLife; 2]>,
}

impl Telling {
    /// The server knows nothing, or what it knows is of another plan.
    pub(super) fn begin_anew(&mut self) {
        self.anew = true;
        self.due = Some(Instant::now());
    }

    /// Something has changed of a certificate.
    pub(super) fn add(&mut self, certificate: String) {
        self.changed.insert(certificate);
        self.due.get_or_insert_with(|| Instant::now() + GATHERED);
    }

    /// When something is to be told.
    pub(super) fn until(&self) -> Option<Instant> {
        self.due
    }
}

impl Authorities {
    /// The process, for who asks how it is.
    pub(crate) fn life(&self) -> ProcessLife {
        ProcessLife {
            pid: self.kept.pid().unwrap_or(0),
            restarts: self.restarts,
        }
    }

    /// A server has come that knows nothing.
    pub(crate) fn tell_all(&mut self) {
        self.telling.lives = None;
        self.telling.begin_anew();
    }

    /// What is to be told now.
    fn due(&mut self, now: Instant, keeper: ProcessLife) -> Vec<CertificateNews> {
        let acme = self.life();
        let is_due = self.telling.due.is_some_and(|due| due <= now);
        if !is_due && self.telling.lives == Some([keeper, acme]) {
            return Vec::new();
        }
        let known = std::mem::take(&mut self.telling);
        let (anew, changed) = (known.anew, known.changed);
        self.telling.lives = Some([keeper, acme]);
        let wanted = self.wishes.certificates.iter();
        let wanted = wanted.chain(self.demanded.values().map(|it| &it.wish));
        let told = wanted.filter(|(it, _)| anew || changed.contains(&it.name));
        let told: Vec<_> = told.filter_map(|wanted| self.ordered(wanted)).collect();
        let news = |certificates: &[OrderedCertificate]| CertificateNews {
            anew: false,
            keeper,
            acme,
            certificates: certificates.to_vec(),
        };
        let mut all: Vec<_> = told.chunks(ORDERED_MAX).map(news).collect();
        if all.is_empty() {
            all.push(news(&[]));
        }
        if let Some(first) = all.first_mut() {
            first.anew = anew;
        }
        all
    }

    fn ordered(
        &self,
        (certificate, sources): &(config::model::AcmeCertificate, Vec<Source>),
    ) -> Option<OrderedCertificate> {
        let account = self.wishes.accounts.get(certificate.account)?;
        let store = self.stores.get(certificate.account);
        let state = self.states.get(&certificate.name).cloned();
        let told = OrderedCertificate {
            path: path(sources)?.to_owned(),
            account: account.name.clone(),
            names: certificate.names.clone(),
            is_ordered_here: store.is_some_and(|it| it.as_ref().is_some_and(Store::is_held)),
            state: state.unwrap_or_default(),
        };
        Some(told.bounded())
    }
}

/// Where the chain lies in the store.
fn path(sources: &[Source]) -> Option<&str> {
    sources.iter().find_map(|source| match source {
        Source::Acme(path) => Some(path.as_str()),
        Source::File(_) | Source::Upstream(_) | Source::Local(_) => None,
    })
}

impl Authorities {
    /// The name of the certificate whose chain lies at this path.
    fn name_of(&self, wanted: &str) -> Option<&str> {
        let certificates = self.wishes.certificates.iter();
        let mut certificates = certificates.chain(self.demanded.values().map(|it| &it.wish));
        let found = certificates.find(|(_, sources)| path(sources) == Some(wanted));
        found.map(|(certificate, _)| certificate.name.as_str())
    }
}

impl Supervisor {
    /// Has a certificate ordered now, whenever it is due.
    pub(crate) fn renew(&mut self, path: &str) {
        let Some(certificate) = self.authorities.name_of(path) else {
            return;
        };
        let certificate = certificate.to_owned();
        tracing::info!(certificate, "an operator has it ordered now");
        self.authorities.say(&ToAcme::Renew { certificate });
    }

    /// Has an authority look whether a certificate's names would validate.
    pub(crate) fn rehearse(&mut self, path: &str) {
        if let Some(certificate) = self.authorities.name_of(path) {
            let certificate = certificate.to_owned();
            self.authorities.say(&ToAcme::Rehearse { certificate });
        }
    }

    /// Tells a server that serves what it is to know of keeper, acme process and orders.
    pub(crate) fn tell_operators(&mut self) {
        if !matches!(self.phase, Phase::Serving { .. }) {
            return;
        }
        let keeper = self.keys.life_of_process();
        for news in self.authorities.due(Instant::now(), keeper) {
            let news = ToServer::CertificateNews(news);
            let told = self.phase.server().map(|server| server.send(&news));
            if let Some(Err(error)) = told {
                return self.lose_server_by("it does not hear of certificates", &error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ipc::acme::CertificateState;

    use super::super::Wishes;
    use super::*;

    /// So many certificates wanted, and none ordered yet.
    fn authorities(count: usize) -> Authorities {
        let mut text =
            "[[listen]]\naddress = \"127.0.0.1:8443\"\ntls = true\n[acme.le]\n".to_owned();
        text.push_str("directory = \"https://acme.example/dir\"\nstore = \"/store\"\n");
        for index in 0..count {
            text.push_str(&format!(
                "[[sites]]\nhosts = [\"w{index}.example\"]\ntls = {{ acme = \"le\" }}\n\
                 rules = [{{ handler = {{ respond = {{ body = \"x\" }} }} }}]\n"
            ));
        }
        let model = config::load(&config::Sources::from_text("nagaya.toml", &text));
        let model = model.unwrap_or_else(|problems| panic!("{problems}"));
        Authorities {
            wishes: std::sync::Arc::new(Wishes::of(&model)),
            stores: vec![None],
            ..Authorities::default()
        }
    }

    const KEEPER: ProcessLife = ProcessLife {
        pid: 7,
        restarts: 0,
    };

    fn told(news: &[CertificateNews]) -> Vec<(bool, usize)> {
        let each = news.iter().map(|it| (it.anew, it.certificates.len()));
        each.collect()
    }

    #[test]
    fn a_server_is_told_everything_once_and_then_what_changes_gathered() {
        let mut authorities = authorities(250);
        authorities.tell_all();
        let later = Instant::now() + GATHERED * 2;
        let all = authorities.due(later, KEEPER);
        assert_eq!(told(&all), [(true, 100), (false, 100), (false, 50)]);
        assert!(authorities.due(later, KEEPER).is_empty());
        for _ in 0..2 {
            for name in ["w7.example", "w8.example", "no.example"] {
                authorities.telling.add(name.to_owned());
            }
        }
        assert!(authorities.due(Instant::now(), KEEPER).is_empty());
        assert_eq!(
            told(&authorities.due(later + GATHERED, KEEPER)),
            [(false, 2)]
        );
        std::sync::Arc::make_mut(&mut authorities.wishes)
            .certificates
            .clear();
        authorities.telling.begin_anew();
        assert_eq!(told(&authorities.due(later, KEEPER)), [(true, 0)]);
        // Another keeper is told at once.
        let next = ProcessLife { pid: 8, ..KEEPER };
        assert_eq!(told(&authorities.due(later, next)), [(false, 0)]);
        assert!(authorities.due(later, next).is_empty());
    }

    #[test]
    fn names_that_were_left_out_are_told_in_one_bounded_error() {
        let mut authorities = authorities(1);
        let why = "no such name ".repeat(40);
        let left_out = (0..100).map(|index| (format!("n{index}.example"), why.clone()));
        let state = CertificateState {
            left_out: left_out.collect(),
            ..CertificateState::default()
        };
        authorities.states.insert("w0.example".into(), state);
        authorities.telling.begin_anew();
        let messages = authorities.due(Instant::now(), KEEPER);
        let error = &messages[0].certificates[0].state.error;
        assert!(error.starts_with("n0.example: no such name"), "{error}");
        assert!(error.len() <= 1_100, "{}", error.len());
    }

    #[test]
    fn a_certificate_is_found_by_the_path_of_its_chain() {
        let authorities = authorities(2);
        let found = |path: &str| authorities.name_of(path).map(str::to_owned);
        assert_eq!(
            found("/store/le/certificates/w1.example.pem"),
            Some("w1.example".into())
        );
        assert_eq!(found("/store/le/certificates/w2.example.pem"), None);
    }
}
