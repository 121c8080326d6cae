//! A configuration made ready to serve: hosts looked up in one step, globs compiled.
//!
//! A generation never changes. A reload makes a new one and swaps it whole; an exchange holds the
//! one it began with until its access record is written.

use std::collections::HashMap;
use std::sync::Arc;

use config::model::{self, HostPattern, Model};
use ipnet::IpNet;

use crate::access_log::{TargetIndex, Targets, TargetsBuilder};
use crate::error::{Error, Kind, Result};
use crate::site::Site;
use crate::stats::SiteStats;

/// Labels of a host looked at when searching for a wildcard.
const LABELS_MAX: usize = 32;

/// One generation.
#[derive(Debug)]
pub struct Generation {
    /// Counts up with each accepted configuration.
    pub number: u64,
    /// What concerns the whole process.
    pub process: Process,
    /// Sites in file order.
    pub sites: Vec<Site>,
    /// Upstreams in file order.
    pub upstreams: Vec<Arc<model::Upstream>>,
    /// Where access records go.
    pub logs: Targets,
    exact: HashMap<Box<str>, Destination>,
    below: HashMap<Box<str>, Destination>,
    any: Option<Destination>,
}

/// What a host leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// Index in [`Generation::sites`].
    pub site: u32,
    /// Where the access record goes.
    pub log: Option<TargetIndex>,
}

/// Settings of the process.
#[derive(Debug)]
pub struct Process {
    /// Every wait.
    pub timeouts: model::Timeouts,
    /// Every size and count.
    pub caps: model::Caps,
    /// Logging.
    pub log: model::Log,
    /// Peers whose forwarding fields are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Field edits on every request.
    pub request_headers: model::FieldEdits,
    /// Field edits on every reply.
    pub reply_headers: model::FieldEdits,
}

impl Generation {
    /// Makes a model ready.
    ///
    /// # Errors
    /// When a pattern is too large to compile.
    pub fn compile(number: u64, model: Model) -> Result<Self> {
        let mut targets = TargetsBuilder::new(&model.log.access);
        let mut generation = Self {
            number,
            process: Process {
                timeouts: model.timeouts,
                caps: model.caps,
                log: model.log,
                trusted_proxies: model.trusted_proxies,
                request_headers: model.request_headers,
                reply_headers: model.reply_headers,
            },
            sites: Vec::with_capacity(model.sites.len()),
            upstreams: model.upstreams.into_iter().map(Arc::new).collect(),
            logs: Targets::default(),
            exact: HashMap::with_capacity(model.sites.len()),
            below: HashMap::new(),
            any: None,
        };
        for site in model.sites {
            generation.add(site, &mut targets)?;
        }
        generation.logs = targets.finish();
        Ok(generation)
    }

    /// Takes over from `before` what was counted of the sites that stay.
    pub fn inherit(&mut self, before: &Self) {
        let counted: HashMap<&str, &Arc<SiteStats>> = before
            .sites
            .iter()
            .map(|site| (&*site.name, &site.stats))
            .collect();
        for site in &mut self.sites {
            if let Some(stats) = counted.get(&*site.name) {
                site.stats = Arc::clone(stats);
            }
        }
    }

    fn add(&mut self, site: model::Site, targets: &mut TargetsBuilder) -> Result<()> {
        let index = u32::try_from(self.sites.len())
            .map_err(|_| Error::new(Kind::Internal, "too_many_sites", String::new()))?;
        for host in &site.hosts {
            let destination = Destination {
                site: index,
                log: targets.add(&site, host),
            };
            match host {
                HostPattern::Exact(host) => {
                    self.exact.insert(host.as_str().into(), destination);
                }
                HostPattern::Below(host) => {
                    self.below.insert(host.as_str().into(), destination);
                }
                HostPattern::Any => self.any = Some(destination),
            }
        }
        let site = Site::compile(site, self.sites.last())?;
        self.sites.push(site);
        Ok(())
    }

    /// Site and log of a canonical host: exact before the longest wildcard before the default.
    pub fn destination_of(&self, host: &str) -> Option<Destination> {
        match self.exact.get(host) {
            Some(destination) => Some(*destination),
            None => self.below_of(host).or(self.any),
        }
    }

    fn below_of(&self, host: &str) -> Option<Destination> {
        if self.below.is_empty() {
            return None;
        }
        let mut rest = host;
        for _ in 0..LABELS_MAX {
            rest = rest.split_once('.')?.1;
            if let Some(destination) = self.below.get(rest) {
                return Some(*destination);
            }
        }
        None
    }

    /// Whether `peer` is a proxy whose word is taken.
    pub fn trusts(&self, peer: std::net::IpAddr) -> bool {
        self.process
            .trusted_proxies
            .iter()
            .any(|net| net.contains(&peer))
    }
}
