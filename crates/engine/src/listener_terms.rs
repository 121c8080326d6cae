//! What is spoken at each listener of a generation, and who is believed there. Most have nothing of their own to say, and
//! are asked first: a connection to one of those costs no look-up.

use std::collections::HashMap;
use std::net::IpAddr;

use config::model::{self, ListenAddress, ListenTls, Model, Protocols, Senders};

/// The terms of all listeners.
#[derive(Debug)]
pub(crate) struct ListenerTerms {
    /// Those that speak TLS, and how.
    tls: HashMap<ListenAddress, ListenTls>,
    /// Those at which something else is spoken than HTTP/1.1 alone.
    protocols: HashMap<ListenAddress, Protocols>,
    /// Who has to say for whom it speaks; of most, nobody.
    senders: Box<[(ListenAddress, Senders)]>,
}

impl ListenerTerms {
    pub(crate) fn new(model: &Model) -> Self {
        let listeners = || model.listeners.iter();
        let tls = listeners().filter_map(|it| Some((it.address.clone(), it.tls.clone()?)));
        let others = listeners().filter(|it| it.protocols != Protocols::HTTP11);
        let believing = listeners().filter(|it| it.senders != Senders::Nobody);
        let sender = |it: &model::Listener| (it.address.clone(), it.senders.clone());
        Self {
            tls: tls.collect(),
            protocols: others
                .map(|it| (it.address.clone(), it.protocols))
                .collect(),
            senders: believing.map(sender).collect(),
        }
    }

    /// Whether TLS is spoken anywhere.
    pub(crate) fn has_tls(&self) -> bool {
        !self.tls.is_empty()
    }

    /// How TLS is spoken at a listener, if it is.
    pub(crate) fn tls_at(&self, address: &ListenAddress) -> Option<&ListenTls> {
        match self.tls.is_empty() {
            true => None,
            false => self.tls.get(address),
        }
    }

    /// The versions of HTTP that are spoken at a listener.
    pub(crate) fn protocols_at(&self, address: &ListenAddress) -> Protocols {
        let own = match self.protocols.is_empty() {
            true => None,
            false => self.protocols.get(address).copied(),
        };
        own.unwrap_or(Protocols::HTTP11)
    }

    /// Whether a peer has to say for whom it speaks there.
    pub(crate) fn is_sender(&self, at: &ListenAddress, peer: IpAddr) -> bool {
        let mut senders = self.senders.iter();
        senders.any(|(address, senders)| address == at && senders.holds(peer))
    }
}
