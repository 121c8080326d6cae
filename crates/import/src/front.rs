//! What servers are told apart by: addresses and hosts.
//!
//! The idea: a site answers on every listener and stands alone for its hosts. A server that only
//! redirects to TLS becomes a key of the site it redirects to, two that say the same at different
//! addresses become one, and where two others have one host, neither gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::draft::{SharedDraft, SiteDraft, TomlItem};
use crate::ledger::Ledger;
use crate::{Listening, words};

/// Who reached an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    Loopback,
    Private,
    Anyone,
}

/// An address that is listened on.
#[derive(Debug, Clone)]
pub(crate) struct Socket {
    pub(crate) address: String,
    pub(crate) is_tls: bool,
    pub(crate) is_default: bool,
    pub(crate) reach: Reach,
}

impl Socket {
    /// The address of a text: `80`, `*:80`, `127.0.0.1`, `[::]:80`, `unix:/run/a.sock`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let socket = |address: String, reach| Self {
            address,
            is_tls: false,
            is_default: false,
            reach,
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return Some(socket(words::unix(path)?, Reach::Loopback));
        }
        let text = text
            .replace("_default_", "*")
            .replace("localhost", "127.0.0.1");
        let text = text.replace('*', "0.0.0.0");
        let address: SocketAddr = match (text.parse::<u16>(), text.parse::<IpAddr>()) {
            (Ok(port), _) => SocketAddr::from(([0, 0, 0, 0], port)),
            (_, Ok(ip)) => SocketAddr::new(ip, 80),
            _ if text.ends_with(']') => format!("{text}:80").parse().ok()?,
            _ => text.parse().ok()?,
        };
        let is_private = match address.ip() {
            IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
            IpAddr::V6(ip) => {
                let [first, ..] = ip.segments();
                (first & 0xfe00) == 0xfc00 || (first & 0xffc0) == 0xfe80
            }
        };
        let reach = match address.ip().is_loopback() {
            true => Reach::Loopback,
            false if is_private => Reach::Private,
            false => Reach::Anyone,
        };
        (address.port() != 0).then(|| socket(address.to_string(), reach))
    }
}

/// A server as clients see it.
#[derive(Debug)]
pub(crate) struct Front {
    /// Its line.
    pub(crate) id: usize,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) hosts: Vec<String>,
    /// Whether it redirects all to TLS, and does nothing else.
    pub(crate) goes_to_tls: bool,
    /// What it says beside addresses and TLS: two that are alike say the same.
    pub(crate) likeness: String,
    /// What was made of it where it is no site.
    pub(crate) merged: Merged,
}

/// What was made of a server that is no site of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merged {
    No,
    /// It is a redirect of another site's.
    Redirect,
    /// Another site says the same.
    Alike,
}

impl Front {
    pub(crate) fn is_tls(&self) -> bool {
        self.sockets.iter().any(|socket| socket.is_tls)
    }

    fn is_plain(&self) -> bool {
        self.sockets.iter().any(|socket| !socket.is_tls)
    }

    fn addresses(&self) -> BTreeSet<&str> {
        self.sockets
            .iter()
            .map(|socket| socket.address.as_str())
            .collect()
    }
}

/// The servers of a configuration.
#[derive(Debug)]
pub(crate) struct Fronts {
    pub(crate) list: Vec<Front>,
    /// Hosts whose requests without TLS are redirected.
    redirected: BTreeSet<String>,
    /// Whether anybody reaches one of the addresses.
    is_public: bool,
    has_plain: bool,
}

impl Fronts {
    /// Gives each host to one server alone.
    pub(crate) fn part(list: Vec<Front>, ledger: &Ledger) -> Self {
        let sockets = || list.iter().flat_map(|front| &front.sockets);
        let is_public = sockets().any(|socket| socket.reach == Reach::Anyone);
        let has_plain = sockets().any(|socket| !socket.is_tls);
        let mut fronts = Self {
            list,
            redirected: BTreeSet::new(),
            is_public,
            has_plain,
        };
        fronts.give_default(ledger);
        fronts.merge_alike(ledger);
        fronts.part_hosts(ledger);
        fronts
    }

    /// The first server of an address takes what nobody names, if it says so or has no name.
    fn give_default(&mut self, ledger: &Ledger) {
        let says = |front: &Front| front.sockets.iter().any(|socket| socket.is_default);
        let at = self.list.iter().position(says);
        let at = at.or_else(|| self.list.iter().position(|front| front.hosts.is_empty()));
        match at.and_then(|at| self.list.get_mut(at)) {
            Some(front) if !front.goes_to_tls => front.hosts.push("*".to_owned()),
            Some(_) => {}
            None => {
                if let Some(first) = self.list.first() {
                    let note = "hosts that nobody names were answered by the first server: here they are answered 421, \
                        never by another site; add `\"*\"` to `hosts` where that was meant";
                    ledger.differs(first.id, note);
                }
            }
        }
        for front in self.list.iter().filter(|front| front.hosts.is_empty()) {
            ledger.lost(
                front.id,
                "it has no host of its own: a site is told by its hosts alone",
            );
        }
    }

    /// One without TLS that says the same as one with it is that.
    fn merge_alike(&mut self, ledger: &Ledger) {
        for at in 0..self.list.len() {
            let Some(plain) = self
                .list
                .get(at)
                .filter(|it| !it.is_tls() && !it.goes_to_tls)
            else {
                continue;
            };
            let is_like = |it: &Front| {
                it.is_tls() && it.hosts == plain.hosts && it.likeness == plain.likeness
            };
            let (Some(like), sockets, id) = (
                self.list.iter().position(is_like),
                plain.sockets.clone(),
                plain.id,
            ) else {
                continue;
            };
            ledger.carried(id);
            if let Some(plain) = self.list.get_mut(at) {
                plain.hosts.clear();
                plain.merged = Merged::Alike;
            }
            if let Some(like) = self.list.get_mut(like) {
                like.sockets.extend(sockets);
            }
        }
    }

    fn part_hosts(&mut self, ledger: &Ledger) {
        let mut owners: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, front) in self
            .list
            .iter()
            .enumerate()
            .filter(|(_, front)| !front.goes_to_tls)
        {
            for host in &front.hosts {
                owners.entry(host.clone()).or_default().push(at);
            }
        }
        for (host, owners) in owners.iter().filter(|(_, owners)| owners.len() > 1) {
            let addresses =
                |at: &usize| self.list.get(*at).map(Front::addresses).unwrap_or_default();
            let taken = owners.first().map(addresses).unwrap_or_default();
            let is_shadowed = owners.iter().all(|at| addresses(at).is_subset(&taken));
            let (out, note) = match is_shadowed {
                true => (
                    owners.get(1..).unwrap_or_default(),
                    format!("no request came to it: another server before it has `{host}`"),
                ),
                false => (
                    owners.as_slice(),
                    format!(
                        "two servers have `{host}` at different addresses: neither is carried for it, for a site is told by \
                         its hosts alone; write one site by hand"
                    ),
                ),
            };
            for at in out {
                if let Some(front) = self.list.get_mut(*at) {
                    front.hosts.retain(|it| it != host);
                    ledger.lost(front.id, &note);
                }
            }
        }
        let with_tls = self
            .list
            .iter()
            .filter(|front| front.is_tls() && !front.goes_to_tls);
        let tls: BTreeSet<String> = with_tls
            .flat_map(|front| front.hosts.iter().cloned())
            .collect();
        let mut taken = BTreeSet::new();
        for front in self.list.iter_mut().filter(|front| front.goes_to_tls) {
            let hosts = std::mem::take(&mut front.hosts);
            let (to_tls, own): (Vec<_>, Vec<_>) =
                hosts.into_iter().partition(|host| tls.contains(host));
            front.hosts = own
                .into_iter()
                .filter(|host| !owners.contains_key(host) && taken.insert(host.clone()))
                .collect();
            if !to_tls.is_empty() && front.hosts.is_empty() {
                front.merged = Merged::Redirect;
                ledger.carried(front.id);
            }
            self.redirected.extend(to_tls);
        }
    }

    /// What follows for a site from who its server was.
    pub(crate) fn settle(&self, front: &Front, draft: &mut SiteDraft) {
        draft.forget_files();
        let goes_to_tls = front
            .hosts
            .iter()
            .any(|host| self.redirected.contains(host));
        if front.is_tls() && (goes_to_tls || (!front.is_plain() && self.has_plain)) {
            draft.keys.put_in("tls", "redirect", true, &[]);
            draft
                .keys
                .remark("requests without TLS are redirected: a site answers on every listener");
        }
        let most = front.sockets.iter().map(|socket| socket.reach).max();
        match most.filter(|_| self.is_public) {
            None | Some(Reach::Anyone) => {}
            Some(Reach::Loopback) if !draft.keys.has("allow") && !draft.keys.has("deny") => {
                draft
                    .keys
                    .put("allow", TomlItem::texts(words::LOOPBACK), &[]);
                draft
                    .keys
                    .remark("only this machine reached it: a site answers on every listener");
            }
            Some(Reach::Loopback | Reach::Private) => {
                draft
                    .keys
                    .close("only some networks reached its address: say them in `allow`");
            }
        }
    }
}

/// The listeners that are wanted of those that were read.
pub(crate) fn listeners<'s>(
    wanted: &Listening,
    read: impl Iterator<Item = &'s Socket>,
    shared: &mut SharedDraft,
) {
    let mut listeners: BTreeMap<String, bool> = BTreeMap::new();
    match wanted {
        Listening::Unsaid => {}
        Listening::At(addresses) => listeners.extend(addresses.iter().cloned()),
        Listening::AsRead => {
            for socket in read {
                *listeners.entry(socket.address.clone()).or_default() |= socket.is_tls;
            }
        }
    }
    for (address, is_tls) in listeners {
        let keys = shared.table("[[listen]]".to_owned());
        keys.put("address", address, &[]);
        if is_tls {
            keys.put("tls", true, &[]);
        }
    }
}

/// Leaves out sites that could answer nothing.
pub(crate) fn worth_writing(drafts: Vec<SiteDraft>, ledger: &Ledger) -> Vec<SiteDraft> {
    let answers = |draft: &SiteDraft| {
        let is_rooted = draft.keys.has("root") || !draft.mounts.is_empty();
        let engine = format!("{:?}", draft.keys.get("htaccess")).to_ascii_lowercase();
        let leads = engine.contains("redirect") || engine.contains("rewriterule");
        is_rooted || leads || draft.rules.iter().any(|rule| rule.has("handler"))
    };
    let (fine, empty): (Vec<_>, Vec<_>) = drafts.into_iter().partition(answers);
    for draft in empty {
        let note = "nothing of it could answer: its site is left out";
        draft.lines().iter().for_each(|id| ledger.lost(*id, note));
    }
    fine
}
