//! A configuration made ready to serve: hosts looked up in one step, globs compiled.
//!
//! A generation never changes. A reload makes a new one and swaps it whole; an exchange holds the
//! one it began with until its access record is written.

use std::collections::HashMap;
use std::sync::Arc;

use config::model::{self, HostPattern, Model};
use ipnet::IpNet;

use crate::error::{Error, Kind, Result};
use crate::site::Site;

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
    exact: HashMap<Box<str>, u32>,
    below: HashMap<Box<str>, u32>,
    any: Option<u32>,
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
            exact: HashMap::with_capacity(model.sites.len()),
            below: HashMap::new(),
            any: None,
        };
        for site in model.sites {
            generation.add(site)?;
        }
        Ok(generation)
    }

    fn add(&mut self, site: model::Site) -> Result<()> {
        let index = u32::try_from(self.sites.len())
            .map_err(|_| Error::new(Kind::Internal, "too_many_sites", String::new()))?;
        for host in &site.hosts {
            match host {
                HostPattern::Exact(host) => drop(self.exact.insert(host.as_str().into(), index)),
                HostPattern::Below(host) => drop(self.below.insert(host.as_str().into(), index)),
                HostPattern::Any => self.any = Some(index),
            }
        }
        self.sites.push(Site::compile(site)?);
        Ok(())
    }

    /// The site of a canonical host: exact before the longest wildcard before the default.
    ///
    /// Returns its index in [`Self::sites`].
    pub fn site_of(&self, host: &str) -> Option<u32> {
        match self.exact.get(host) {
            Some(index) => Some(*index),
            None => self.below_of(host).or(self.any),
        }
    }

    fn below_of(&self, host: &str) -> Option<u32> {
        if self.below.is_empty() {
            return None;
        }
        let mut rest = host;
        for _ in 0..LABELS_MAX {
            rest = rest.split_once('.')?.1;
            if let Some(index) = self.below.get(rest) {
                return Some(*index);
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
