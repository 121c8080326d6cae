//! A limit as it is written on a command line: `file concurrent=2 queue=10 wait=2s`.
//!
//! It becomes an entry of `limits` in a small configuration and is read by the same code, so that
//! both mean the same and complain in the same words.

use std::fmt::Write;
use std::time::Duration;

use config::Sources;
use config::model::{Concurrent, Limit, LimitKey, LimitMode, Model};
use limits::{Definition, Keyed, Mode, RateDefinition, Shared};

use crate::outcome::{Outcome, complain, wrong_config};

/// Permits of `auto` at most, where a log is replayed.
const AUTO_MAX: u32 = 1_024;

/// A limit to be tried.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    /// As it was written.
    pub(super) text: String,
    pub(super) limit: Limit,
}

impl Spec {
    /// Reads a limit; when it cannot be understood, that has been told.
    pub(super) fn read(text: &str) -> Result<Spec, Outcome> {
        let entry = entry(text).ok_or_else(|| {
            complain(&format!(
                "nagaya: `{text}` is no limit: write a key and what holds for it, such as \
                 'file concurrent=2 queue=10 wait=2s' or 'client rate=10/s burst=20'\n"
            ));
            Outcome::Wrong
        })?;
        let sources = Sources::from_text("the limit", &around(text, &entry));
        let model = config::load(&sources).map_err(|problems| wrong_config(&problems))?;
        let limit = only_limit(&model).ok_or(Outcome::Wrong)?;
        if let Some(unlogged) = limit.key.iter().find(|key| is_unlogged(key)) {
            let word = match unlogged {
                LimitKey::Header(_) => "fields",
                _ => "cookies",
            };
            complain(&format!(
                "nagaya: access logs hold no {word}, so `{text}` cannot be tried on one; put it in \
                 the configuration with mode = \"shadow\" instead\n"
            ));
            return Err(Outcome::Wrong);
        }
        let text = text.to_owned();
        Ok(Spec { text, limit })
    }

    /// What the ledger is told of it.
    pub(super) fn definition(&self) -> Definition {
        let limit = &self.limit;
        let fixed = limit
            .key
            .iter()
            .all(|key| matches!(key, LimitKey::Process | LimitKey::Const(_)));
        let over_tenants = |key: &LimitKey| matches!(key, LimitKey::Process | LimitKey::Upstream);
        Definition {
            identity: limit.name.clone(),
            name: limit.name.clone(),
            shared: match limit.key.iter().any(over_tenants) {
                true => Shared::Tenants,
                false => Shared::OneTenant,
            },
            keyed: match fixed {
                true => Keyed::Fixed,
                false => Keyed::Dynamic,
            },
            concurrent: limit.concurrent.map(|concurrent| match concurrent {
                Concurrent::Fixed(count) => limits::Concurrent::Fixed(count),
                Concurrent::Auto => limits::Concurrent::Auto {
                    floor: 1,
                    ceiling: AUTO_MAX,
                },
            }),
            queue: limit.queue,
            wait: Duration::from_millis(limit.wait_ms),
            rate: limit.rate.map(|rate| RateDefinition {
                count: rate.count,
                per: Duration::from_millis(rate.per_ms),
                burst: rate.burst,
            }),
            mode: match limit.mode {
                LimitMode::Enforce => Mode::Enforce,
                LimitMode::Shadow => Mode::Shadow,
            },
        }
    }
}

fn is_unlogged(key: &LimitKey) -> bool {
    matches!(key, LimitKey::Header(_) | LimitKey::Cookie(_))
}

/// The entry of `limits` that a text stands for.
fn entry(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let keys: Vec<String> = words
        .next()?
        .split(',')
        .map(|key| format!("{key:?}"))
        .collect();
    let mut entry = format!("{{ key = [{}]", keys.join(", "));
    for word in words {
        let (name, value) = word.split_once('=')?;
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if !is_name {
            return None;
        }
        match value.parse::<u64>() {
            Ok(number) => write!(entry, ", {name} = {number}").ok()?,
            Err(_) => write!(entry, ", {name} = {value:?}").ok()?,
        }
    }
    Some(entry + " }")
}

/// The smallest configuration in which the entry may stand.
fn around(text: &str, entry: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    let has = |key: &str| first.split(',').any(|word| word == key);
    let limits = format!("limits = [{entry}]\n");
    let at = |level: bool| if level { limits.as_str() } else { "" };
    let (process, tenant, rule) = (has("process"), has("tenant"), has("rule"));
    let upstream = has("upstream");
    let site = !(process || tenant || rule || upstream);
    format!(
        "{}[[listen]]\naddress = \"127.0.0.1:1\"\n[tenants.t]\n{}[upstreams.u]\nservers = [\"127.0.0.1:1\"]\n{}\
         [[sites]]\nhosts = [\"*\"]\ntenant = \"t\"\n{}[[sites.rules]]\nhandler = {{ proxy = \"u\" }}\n{}",
        at(process),
        at(tenant && !process),
        at(upstream && !process && !tenant),
        at(site),
        at(rule && !process && !tenant && !upstream),
    )
}

/// The one limit of such a configuration.
fn only_limit(model: &Model) -> Option<Limit> {
    let tenants = model.tenants.iter().flat_map(|tenant| &*tenant.limits);
    let upstreams = model
        .upstreams
        .iter()
        .flat_map(|upstream| &*upstream.limits);
    let rules = model.sites.iter().flat_map(|site| &site.rules);
    let rules = rules.flat_map(|rule| &*rule.limits);
    let sites = model.sites.iter().flat_map(|site| &*site.limits);
    let all = model.limits.iter().chain(tenants).chain(upstreams);
    all.chain(sites).chain(rules).next().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_as_the_configuration_would() {
        for (text, keyed, shared) in [
            (
                "file concurrent=2 queue=10 wait=3s",
                Keyed::Dynamic,
                Shared::OneTenant,
            ),
            ("process concurrent=2", Keyed::Fixed, Shared::Tenants),
            ("upstream concurrent=2", Keyed::Dynamic, Shared::Tenants),
            ("tenant concurrent=2", Keyed::Dynamic, Shared::OneTenant),
            (
                "site,client rate=10/s burst=20",
                Keyed::Dynamic,
                Shared::OneTenant,
            ),
        ] {
            let definition = Spec::read(text).expect(text).definition();
            assert_eq!(
                (definition.keyed, definition.shared),
                (keyed, shared),
                "{text}"
            );
        }
        let definition = Spec::read("file concurrent=2 queue=10 wait=3s")
            .expect("right")
            .definition();
        assert_eq!(definition.concurrent, Some(limits::Concurrent::Fixed(2)));
        assert_eq!(
            (definition.queue, definition.wait),
            (10, Duration::from_secs(3))
        );
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for text in [
            "",
            "file",
            "file concurrent",
            "file concurrent=none",
            "file CONCURRENT=2",
            "nothing concurrent=2",
            "header:x concurrent=2",
            "cookie:id concurrent=2",
            "file concurrent=2 colour=red",
        ] {
            assert_eq!(Spec::read(text).err(), Some(Outcome::Wrong), "{text}");
        }
    }
}
