//! Permits that requests of an earlier server hold, which finishes them beside this one.
//!
//! The idea: the server before says now and then how many permits are out at which gates; here as
//! many are taken out, as far as there are any, and given back as they are there. So both servers
//! together stay within a limit, but for what was admitted before the first word came and for what
//! the server before still admits: one request for each connection that it has kept. Keys that are
//! not shown whole are not told of, and begin anew.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use ipc::server::HeldPermits;
use limits::{Admission, Ask, Permit, Want};

use super::compiled::Limits;
use super::limiter::Limiter;

/// Gates that are told of.
const GATES_MAX: usize = 512;
/// Permits of one gate that are taken out for a server before.
const PERMITS_MAX: usize = 65_536;

/// Permits taken out, by the process that holds them in truth, and by limit and key.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(HashMap<u32, HashMap<(String, String), Vec<Permit>>>);

/// What requests of this server hold.
pub(crate) fn held(limiter: &Limiter) -> Vec<HeldPermits> {
    let now = limiter.time(Instant::now());
    let gates = limiter.ledger.look(now, None, GATES_MAX).into_iter();
    let whole = gates.filter(|gate| gate.in_flight > 0 && !gate.overflow && is_whole(&gate.key));
    whole
        .map(|gate| HeldPermits {
            limit: gate.identity.to_string(),
            key: gate.key,
            permits: gate.in_flight,
        })
        .collect()
}

impl Elsewhere {
    /// Takes out what another process holds now, in place of what it held before.
    pub(crate) fn hear(
        &mut self,
        (limiter, limits): (&Limiter, &Limits),
        by: u32,
        held: Vec<HeldPermits>,
    ) {
        let mut before = self.0.remove(&by).unwrap_or_default();
        let mut now = HashMap::new();
        for it in held.into_iter().take(GATES_MAX) {
            let place = (it.limit, it.key);
            let mut permits = before.remove(&place).unwrap_or_default();
            let wanted = usize::try_from(it.permits).unwrap_or(PERMITS_MAX);
            permits.truncate(wanted);
            while permits.len() < wanted.min(PERMITS_MAX)
                && let Some(permit) = take(limiter, limits, &place.0, &place.1)
            {
                permits.push(permit);
            }
            now.insert(place, permits);
        }
        if !now.is_empty() {
            self.0.insert(by, now);
        }
    }
}

/// Takes out one permit, if there is one.
fn take(limiter: &Limiter, limits: &Limits, identity: &str, key: &str) -> Option<Permit> {
    let limit = limits.id(limits.position(identity)?)?;
    let wants = [Want {
        limit,
        key: (!key.is_empty()).then_some(key.as_bytes()),
    }];
    let ask = Ask {
        worker: 0,
        // Whose it is matters to those who wait, and to how many keys a tenant has.
        tenant: *limits.defined()?.tenants.first()?,
        class: limits::Class::NONE,
        client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        wants: &wants,
    };
    match limiter.ledger.admit(limiter.time(Instant::now()), &ask) {
        Admission::Admitted(permit) => Some(permit),
        // Dropped, it does not wait.
        Admission::Waiting(_) | Admission::Refused(_) => None,
    }
}

/// Whether a key that is shown is the key itself.
fn is_whole(shown: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'?';
    shown.as_bytes().iter().all(is_plain) && shown != "(none)"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const LIMITED: &str = r#"
[[limits]]
name = "all"
concurrent = 3
[[limits]]
name = "each"
key = "client"
concurrent = 2
[[sites]]
hosts = ["a"]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

    fn told(limiter: &Limiter) -> Vec<(String, String, u32)> {
        let held = held(limiter).into_iter();
        let mut told: Vec<_> = held.map(|it| (it.limit, it.key, it.permits)).collect();
        told.sort();
        told
    }

    #[test]
    fn what_another_holds_is_out_here_until_it_says_otherwise() {
        let fixtures = [Fixture::new(LIMITED), Fixture::new(LIMITED)];
        let generations = fixtures
            .each_ref()
            .map(|it| it.shared.generation().unwrap());
        for (fixture, generation) in fixtures.iter().zip(&generations) {
            fixture.shared.limits.put_in_force(&generation.limits);
        }
        let [one, other] = fixtures.each_ref().map(|it| &*it.shared.limits);
        let [limits, theirs] = generations.each_ref().map(|it| &it.limits);
        let [all, each] = [0, 1].map(|at| limits.definitions()[at].identity.as_str());
        let mut permits: Vec<_> = (0..2).filter_map(|_| take(one, limits, all, "")).collect();
        permits.extend(take(one, limits, each, "192.0.2.1"));
        assert_eq!(permits.len(), 3);
        let mut elsewhere = Elsewhere::default();
        elsewhere.hear((other, theirs), 7, held(one));
        let both = told(one);
        assert_eq!(both.len(), 2, "{both:?}");
        assert_eq!(told(other), both);
        let last = take(other, theirs, all, "");
        assert!(last.is_some() && take(other, theirs, all, "").is_none());
        // What cannot be had is asked for again as long as it is held.
        permits.extend(take(one, limits, all, ""));
        elsewhere.hear((other, theirs), 7, held(one));
        drop(last);
        elsewhere.hear((other, theirs), 7, held(one));
        assert_eq!(told(other), told(one));
        drop(permits);
        elsewhere.hear((other, theirs), 7, held(one));
        assert_eq!(told(other), []);
        assert!(elsewhere.0.is_empty());
    }

    #[test]
    fn only_keys_that_are_shown_whole_are_told_of() {
        for (key, expected) in [
            ("", true),
            ("192.0.2.1", true),
            ("/index.php", true),
            ("(none)", false),
            ("a?b", false),
            ("a b", false),
            ("begin…end", false),
        ] {
            assert_eq!(is_whole(key), expected, "{key}");
        }
    }
}
