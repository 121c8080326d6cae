//! Limits of handshakes: asked when a hello was read and its name led to a site, before a key is touched.
//!
//! The same ledger and the same counts as for requests, with less to look at: there is a client and a site, and
//! nothing waits here, as handshakes have a queue of their own.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use limits::{Admission, Ask, Defined, Outcome, Permit, RateCheck, Used, WANTS_MAX, Want};

use super::limit::{Key, Limit, Part};
use super::limiter::Limiter;
use super::scratch::{Found, Scratch};
use super::wants::{push_client, push_escaped};
use crate::error::{Error, Kind, Result};
use crate::site::Site;
use crate::worker::Worker;
use crate::worker::serving::Serving;

/// What a handshake was admitted to, until it is done. Dropped, it is given back.
#[derive(Debug)]
pub(crate) struct HandshakePermit {
    permit: Permit,
    since: Instant,
    limiter: Arc<Limiter>,
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let now = Instant::now();
        let used = Used::Measured(super::held::nanos(self.since, now));
        self.permit
            .end_in_place(self.limiter.time(now), used, Outcome::Ignored);
    }
}

/// What is asked of the ledger.
#[derive(Clone, Copy)]
enum Phase {
    Rates,
    Permits,
}

/// Admits a handshake for a site; `None` where no limit has anything to say.
///
/// # Errors
/// A limit refuses it; the detail names it.
pub(crate) fn admit(
    worker: &Worker,
    serving: &Serving,
    site: &Site,
    client: IpAddr,
) -> Result<Option<HandshakePermit>> {
    let limits = &serving.generation.limits;
    let Some(defined) = limits.defined().filter(|_| limits.has_handshakes) else {
        return Ok(None);
    };
    let asking = Asking {
        worker,
        serving,
        site,
        client,
        defined,
    };
    let limiter = &worker.shared.limits;
    let since = Instant::now();
    let now = limiter.time(since);
    if let Some(checked) = asking.put(Phase::Rates, |ask| limiter.ledger.check_rates(now, ask)) {
        match checked {
            // What those in shadow would have refused, the ledger has counted.
            RateCheck::Passed(_) => {}
            RateCheck::Refused(refusal) => return Err(limited(&refusal.identity)),
            // No store counts handshakes.
            RateCheck::Waiting(_) => return Err(limited("")),
        }
    }
    let admission = asking.put(Phase::Permits, |ask| limiter.ledger.admit(now, ask));
    match admission {
        None => Ok(None),
        Some(Admission::Admitted(permit)) => Ok(Some(HandshakePermit {
            permit,
            since,
            limiter: Arc::clone(limiter),
        })),
        Some(Admission::Refused(refusal)) => Err(limited(&refusal.identity)),
        // An operator has given it a queue while running: nobody waits in it.
        Some(Admission::Waiting(_)) => Err(limited("")),
    }
}

/// Why a handshake ends: the limit of this identity lets no more in.
fn limited(identity: &str) -> Error {
    Error::new(Kind::Full, "handshake_limited", identity)
}

struct Asking<'a> {
    worker: &'a Worker,
    serving: &'a Serving,
    site: &'a Site,
    client: IpAddr,
    defined: &'a Defined,
}

impl Asking<'_> {
    /// Puts the question of a phase; `None` where there is nothing to ask.
    fn put<T>(&self, phase: Phase, put: impl FnOnce(&Ask<'_>) -> T) -> Option<T> {
        let mut scratch = self.worker.wants.borrow_mut();
        self.fill(phase, &mut scratch);
        let Scratch { found, keys } = &*scratch;
        let first = found.first()?.want(keys);
        let mut wants: [Want<'_>; WANTS_MAX] = [first; WANTS_MAX];
        for (want, found) in wants.iter_mut().zip(found) {
            *want = found.want(keys);
        }
        let ask = Ask {
            worker: self.worker.index,
            tenant: *self.defined.tenants.get(self.site.tenant as usize)?,
            class: limits::Class::NONE,
            client: self.client,
            wants: wants.get(..found.len())?,
        };
        Some(put(&ask))
    }

    /// The limits of the site, then of its tenant, then of the process.
    fn fill(&self, phase: Phase, scratch: &mut Scratch) {
        scratch.found.clear();
        scratch.keys.clear();
        let limits = &self.serving.generation.limits;
        let tenant = limits.tenants.get(self.site.tenant as usize);
        let levels = [Some(&self.site.limits), tenant, Some(&limits.process)];
        let all = levels.into_iter().flatten();
        let unix_s = self.worker.clock.unix_s();
        for limit in all.flat_map(|level| level.of_handshakes.iter()) {
            let is_asked = match phase {
                Phase::Rates => limit.has_rate,
                Phase::Permits => limit.has_permits,
            };
            let holds = limit
                .hours
                .as_deref()
                .is_none_or(|hours| hours.hold(unix_s));
            if is_asked && holds && scratch.found.len() < WANTS_MAX {
                self.add(limit, scratch);
            }
        }
    }

    fn add(&self, limit: &Limit, scratch: &mut Scratch) {
        let Some(id) = self.defined.limits.get(limit.index()) else {
            return;
        };
        let end = |keys: &Vec<u8>| u32::try_from(keys.len()).unwrap_or(u32::MAX);
        let (from, until) = match &limit.key {
            Key::Fixed => Found::NO_KEY,
            Key::Parts(parts) => {
                let from = end(&scratch.keys);
                self.push_key(parts, &mut scratch.keys);
                (from, end(&scratch.keys))
            }
        };
        scratch.found.push(Found {
            id: *id,
            from,
            until,
        });
    }

    /// As the key of a request: several parts are joined by a space, which none of them can hold then.
    fn push_key(&self, parts: &[Part], keys: &mut Vec<u8>) {
        if let [only] = parts {
            return self.push(only, keys);
        }
        let mut value = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                keys.push(b' ');
            }
            value.clear();
            self.push(part, &mut value);
            push_escaped(&value, keys);
        }
    }

    fn push(&self, part: &Part, out: &mut Vec<u8>) {
        match part {
            Part::Tenant => {
                let name = self.serving.generation.limits.tenant_name(self.site.tenant);
                out.extend_from_slice(name.as_bytes());
            }
            Part::Site => out.extend_from_slice(self.site.name.as_bytes()),
            Part::Client => push_client(self.client, out),
            // The configuration lets none of the others stand here.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, reply};
    use crate::permits::questions;

    const SITES: &str = r#"
limits = [{ on = "handshake", key = "client", concurrent = 2 }]
[tenants.one]
limits = [{ on = "handshake", key = ["site", "client"], rate = "1/h", burst = 3 }]
[[sites]]
hosts = ["a"]
tenant = "one"
limits = [{ on = "handshake", concurrent = 1, mode = "shadow" }]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
[[sites]]
hosts = ["b"]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

    fn asked(fixture: &Fixture, site: usize, client: &str) -> Result<Option<HandshakePermit>> {
        let serving = fixture.worker.serving();
        let client = client.parse().expect("an address");
        let site = &serving.generation.sites[site];
        admit(&fixture.worker, &serving, site, client)
    }

    #[test]
    fn handshakes_are_counted_by_client_over_all_names_and_by_name() {
        let fixture = Fixture::new(SITES);
        let first = asked(&fixture, 0, "192.0.2.1").expect("room");
        let second = asked(&fixture, 1, "192.0.2.1").expect("room");
        assert!(first.is_some() && second.is_some());
        let over = asked(&fixture, 1, "192.0.2.1").expect_err("the third");
        assert_eq!(over.reason, "handshake_limited");
        assert_eq!(over.detail, "process/handshake client");
        assert!(
            asked(&fixture, 1, "192.0.2.2").is_ok(),
            "another has his own"
        );
        drop(second);
        assert!(asked(&fixture, 1, "192.0.2.1").is_ok(), "given back");
        drop(first);
        for _ in 0..2 {
            assert!(asked(&fixture, 0, "192.0.2.1").is_ok());
        }
        let over = asked(&fixture, 0, "192.0.2.1").expect_err("beyond the burst");
        assert_eq!(over.detail, "tenant one/handshake site+client");
        assert!(asked(&fixture, 0, "2001:db8::1").is_ok());
        assert!(asked(&fixture, 0, "2001:db8::2").is_ok());
    }

    #[test]
    fn requests_do_not_meet_them_and_an_operator_sees_what_they_count() {
        let fixture = Fixture::new(SITES);
        let held: Vec<_> = (0..2).map(|_| asked(&fixture, 0, "192.0.2.1")).collect();
        assert!(
            held.iter().all(Result::is_ok),
            "one in shadow refuses nobody"
        );
        for _ in 0..4 {
            let replied = reply(&fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(replied.0, 200, "a request");
        }
        let list = questions::answer(&fixture.shared, "limits list").expect("a list");
        assert!(list.contains("concurrent 2, of handshakes"), "{list}");
        let json = questions::answer(&fixture.shared, "limits list json").expect("a list");
        assert!(json.contains(r#""on":"handshake""#), "{json}");
    }
}
