//! The phase `ssl_handshake`: scripts say which certificate a handshake shows.
//!
//! The idea: there is no request yet, and what scripts see of one is what the hello says. They run before anything is
//! computed for the client, level by level as for requests; what was said last counts. What they take of the
//! processor is for whoever asked to account for.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Instant;

use config::model::OnError;
use ipc::scripted::Wanted;
use os::cgroup::Layout;
use script::{
    Ask, Failure, Phase, Property, Refused, Request, Scope, ShownPart, Side, TlsProperty, Woken,
};

use super::lifecycle::Scripts;
use super::outcome::{Spoken, spoken};
use super::plan::{Level, Use, VmIndex};
use super::request::{address, port, server_of, word};
use crate::exchange::request::Peer;
use crate::site::Site;
use crate::site_log::{self, Audience};
use crate::stderr_log::Due;
use crate::worker::Worker;
use crate::worker::serving::Serving;

/// Bytes of what is told of a failure.
const DETAIL_BYTES_MAX: usize = 2_048;

/// What scripts see of a handshake, and have said of it.
pub(crate) struct Handshaking {
    worker: Rc<Worker>,
    serving: Rc<Serving>,
    site: u32,
    peer: Peer,
    name: Option<Box<str>>,
    version: &'static str,
    scope: Scope,
    shown: [Vec<u8>; 4],
}

/// Why a handshake is refused by scripts.
#[derive(Debug)]
pub(crate) struct Denied {
    /// The stable word.
    pub(crate) reason: &'static str,
    /// More.
    pub(crate) detail: String,
}

/// Whether scripts run for handshakes to a site.
pub(crate) fn has(serving: &Serving, site: u32) -> bool {
    let plan = serving.generation.scripts.as_ref();
    let site = serving.generation.sites.get(site as usize);
    site.is_some_and(|site| site.is_shown_by_scripts)
        && plan.is_some_and(|plan| plan.has(Phase::SslHandshake))
        && serving.scripts.is_some()
}

impl Handshaking {
    /// One to a site, before its scripts have run.
    pub(crate) fn new(
        (worker, serving): (&Rc<Worker>, &Rc<Serving>),
        site: u32,
        peer: &Peer,
        name: Option<&str>,
        version: &'static str,
    ) -> Self {
        Self {
            worker: Rc::clone(worker),
            serving: Rc::clone(serving),
            site,
            peer: *peer,
            name: name.map(Into::into),
            version,
            scope: Scope::default(),
            shown: Default::default(),
        }
    }

    /// Runs all scripts; the processor time that they take here is added to `cpu_ns`. What they want shown, if they
    /// say so.
    ///
    /// # Errors
    /// One failed, or said that the handshake is to be refused.
    pub(crate) async fn run(&mut self, cpu_ns: &mut u64) -> Result<Option<Wanted>, Denied> {
        let mut all = pin!(self.all());
        poll_fn(|cx| {
            let begun_ns = os::cpu::thread_cpu_ns();
            let polled = all.as_mut().poll(cx);
            *cpu_ns += os::cpu::thread_cpu_ns().saturating_sub(begun_ns);
            polled
        })
        .await
    }

    async fn all(&mut self) -> Result<Option<Wanted>, Denied> {
        let serving = Rc::clone(&self.serving);
        let generation = &serving.generation;
        let Some(site) = generation.sites.get(self.site as usize) else {
            return Ok(None);
        };
        let process = generation
            .scripts
            .as_ref()
            .and_then(|plan| plan.process.as_deref());
        let levels = [
            process,
            site.tenant_scripts.as_deref(),
            site.scripts.as_deref(),
        ];
        let scripts = levels.into_iter().flatten();
        for used in scripts.flat_map(|level: &Level| level.of(Phase::SslHandshake)) {
            let ended = self.one(&serving, site, *used).await;
            self.worker.stats.scripts.count(Phase::SslHandshake, &ended);
            match (ended, used.on_error) {
                (Ok(()), _) => {}
                (Err(failure), OnError::Allow) => {
                    self.tell(
                        site,
                        failure.reason(),
                        &failure.to_string(),
                        "the handshake goes on",
                    );
                    // What it was about to say is forgotten.
                    spoken(&mut self.scope);
                    continue;
                }
                (Err(failure), OnError::Deny) => {
                    let (reason, detail) = (failure.reason(), failure.to_string());
                    self.tell(site, reason, &detail, "the handshake is refused");
                    return Err(Denied { reason, detail });
                }
            }
            if let Spoken::Status(status) = spoken(&mut self.scope) {
                let detail = format!("a script returned {status}");
                return Err(Denied {
                    reason: "script_said",
                    detail,
                });
            }
        }
        self.wanted(site)
    }

    async fn one(&mut self, serving: &Rc<Serving>, site: &Site, used: Use) -> Result<(), Failure> {
        let vms = serving.scripts.as_ref();
        let (Some(vms), Some(plan)) = (vms, serving.generation.scripts.as_ref()) else {
            return Ok(());
        };
        let kept;
        let scripts: &Scripts = match vms.has_own() && site.vm != VmIndex::SHARED {
            false => vms.shared(),
            true => {
                let name = plan.name_of(site.vm, used);
                let opened = || Rc::clone(vms).pin_opened(site.vm, name, plan.budgets.wall);
                kept = match vms.pin(site.vm) {
                    Some(open) => open,
                    None => opened().await?,
                };
                &kept
            }
        };
        let Some(script) = scripts.script(used) else {
            return Ok(());
        };
        let interpreter = scripts.interpreter();
        let ran = interpreter.run(Phase::SslHandshake, script, Some(self));
        ran.await.map(drop)
    }

    /// What was said of the certificate, all in all.
    fn wanted(&mut self, site: &Site) -> Result<Option<Wanted>, Denied> {
        let [chain, key, chain_data, key_data] = std::mem::take(&mut self.shown);
        let wanted = match (chain_data.is_empty(), chain.is_empty()) {
            (false, _) => Wanted::Data {
                chain: chain_data.into(),
                key: key_data.into(),
            },
            (true, _) if !key_data.is_empty() => return self.half(site, "certificate_data"),
            (true, false) => {
                let text = |path: Vec<u8>| String::from_utf8_lossy(&path).into_owned();
                Wanted::Files {
                    chain: text(chain),
                    key: text(key),
                }
            }
            (true, true) if !key.is_empty() => return self.half(site, "certificate"),
            (true, true) => return Ok(None),
        };
        Ok(Some(wanted))
    }

    fn half(&self, site: &Site, missing: &str) -> Result<Option<Wanted>, Denied> {
        let detail = format!("a script has given a key and no certificate: {missing}=");
        self.tell(
            site,
            "script_certificate",
            &detail,
            "the handshake is refused",
        );
        Err(Denied {
            reason: "script_certificate",
            detail,
        })
    }

    /// Says what went wrong, once a minute for each cause.
    pub(crate) fn tell(&self, site: &Site, reason: &'static str, detail: &str, what: &'static str) {
        let mut ends = (0..=DETAIL_BYTES_MAX.min(detail.len())).rev();
        let end = ends.find(|end| detail.is_char_boundary(*end));
        let detail = detail.get(..end.unwrap_or(0)).unwrap_or(detail);
        let complaints = &self.serving.stderr.complaints;
        let cause = format!("{what}: {reason} {detail}");
        match complaints.refused.note(&site.name, &cause, Instant::now()) {
            Due::Now => {}
            Due::Counted => return,
            Due::NoRoom => return complaints.note_unnamed(),
        }
        let (client, name, phase) = (
            self.peer.address.ip(),
            self.name.as_deref(),
            Phase::SslHandshake,
        );
        let (site, logs) = (&*site.name, &self.serving.generation.logs);
        site_log::tell(
            logs,
            &self.worker.access_log,
            Some(site),
            Audience::Tenant,
            &|| {
                tracing::error!(%client, name, site, reason, %phase, detail, "script failed, {what}");
            },
        );
    }

    /// The site that it is to.
    pub(crate) fn site(&self) -> Option<&Site> {
        self.serving.generation.sites.get(self.site as usize)
    }
}

impl Request for Handshaking {
    fn scope(&mut self) -> &mut Scope {
        &mut self.scope
    }

    fn read(&self, property: Property, out: &mut Vec<u8>) -> bool {
        let site = self.site();
        match property {
            Property::Tls(TlsProperty::Protocol) => word(self.version, out),
            Property::Tls(TlsProperty::ServerName) | Property::Host => {
                word(self.name.as_deref().unwrap_or_default(), out)
            }
            Property::Scheme => word("https", out),
            Property::SiteName => site.is_some_and(|site| word(&site.name, out)),
            Property::Tenant => site.is_some_and(|site| word(&site.tenant_name, out)),
            Property::RemoteAddress => address(self.peer.address.ip(), out),
            Property::RemotePort => port(self.peer.address.port(), out),
            Property::LocalAddress => address(self.peer.local_ip, out),
            Property::LocalPort => port(self.peer.local_port, out),
            _ => false,
        }
    }

    fn server_of(&self, upstream: &[u8], out: &mut Vec<u8>) -> bool {
        server_of(&self.serving, upstream, out)
    }

    fn group(&self, _: &str) -> Option<(&Layout, Vec<String>)> {
        None
    }

    fn write(&mut self, property: Property, value: &[u8]) -> Result<(), Refused> {
        let Property::Shown(part) = property else {
            return Err(no_request());
        };
        let place = match part {
            ShownPart::Certificate => 0,
            ShownPart::Key => 1,
            ShownPart::CertificateData => 2,
            ShownPart::KeyData => 3,
        };
        if let Some(shown) = self.shown.get_mut(place) {
            value.clone_into(shown);
        }
        Ok(())
    }

    fn field(&self, _: Side, _: &[u8], _: &mut dyn FnMut(&[u8])) {}

    fn fields(&self, _: Side, _: &mut dyn FnMut(&[u8], &[u8])) {}

    fn set_field(&mut self, _: Side, _: &[u8], _: &[&[u8]]) -> Result<(), Refused> {
        Err(no_request())
    }

    fn perform<'a>(&'a mut self, _: Ask) -> Pin<Box<dyn Future<Output = Woken> + 'a>> {
        let Refused(why) = no_request();
        Box::pin(std::future::ready(Woken::error(why)))
    }
}

fn no_request() -> Refused {
    Refused("there is no request yet in the phase ssl_handshake".to_owned())
}
