//! Limits of one generation, compiled: what they count by, and when they count a request.
//!
//! The ledger knows a limit by an id and a key by its bytes; what these are for a request is
//! decided here. Which parts of a key can differ between requests depends on where the limit
//! stands: the site is the same for all requests of a site's limit, so that a limit by site there
//! has one key, known beforehand, and costs least.

use std::sync::Arc;

use config::model::{self, LimitKey, LimitOn, LimitPlace};

use super::hours::Hours;
use crate::conditions::Conditions;
use crate::costs::Costs;
use crate::error::{Error, Kind, Result};

/// Where a limit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At the top: every request meets it.
    Process,
    /// On a tenant.
    Tenant,
    /// On a site.
    Site,
    /// On a rule.
    Rule,
    /// On an upstream.
    Upstream,
    /// On a plan: of each of its tenants.
    Plan,
    /// On a site of rows: of each of their hosts.
    RowSite,
    /// On a rule of one.
    RowRule,
}

impl Place {
    /// The same place on a site that stands for those of rows.
    pub(super) fn of_rows(self) -> Self {
        match self {
            Self::Site => Self::RowSite,
            Self::Rule => Self::RowRule,
            other => other,
        }
    }

    /// What keeps those apart that share a limit which stands there, whatever its keys say.
    fn apart(self) -> Option<Part> {
        match self {
            Self::Plan => Some(Part::Tenant),
            Self::RowSite | Self::RowRule => Some(Part::Site),
            _ => None,
        }
    }
}

impl From<LimitPlace<'_>> for Place {
    fn from(place: LimitPlace<'_>) -> Self {
        match place {
            LimitPlace::Process => Self::Process,
            LimitPlace::Tenant(_) => Self::Tenant,
            LimitPlace::Site(_) => Self::Site,
            LimitPlace::Rule(..) | LimitPlace::UnnamedRule(..) => Self::Rule,
            LimitPlace::Upstream(_) => Self::Upstream,
            LimitPlace::Plan(_) => Self::Plan,
        }
    }
}

/// A limit, ready to be asked.
#[derive(Debug)]
pub struct Limit {
    index: u32,
    on: LimitOn,
    pub(super) key: Key,
    pub(super) conditions: Option<Box<Conditions>>,
    pub(super) hours: Option<Arc<Hours>>,
    /// Whether it counts how fast requests come.
    pub(super) has_rate: bool,
    /// Whether it counts how many there are at once.
    pub(super) has_permits: bool,
    /// Whether it can only count once it is known which upstream a request goes to.
    pub(super) needs_upstream: bool,
    /// Whether a tunnel keeps its permits.
    pub(super) keeps_tunnels: bool,
    /// Status of a refusal.
    pub(super) status: u16,
    /// Its page, where the limit has one of its own.
    pub(super) page: Option<Arc<model::ErrorPage>>,
}

/// What a limit counts, for those who ask about the limit.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) hours: Option<Arc<Hours>>,
    has_match: bool,
    on: LimitOn,
}

impl Scope {
    /// Whether it holds at this second since 1970.
    pub(super) fn holds(&self, unix_s: u64) -> bool {
        self.hours.as_deref().is_none_or(|hours| hours.hold(unix_s))
    }

    /// Whether it counts handshakes.
    pub(super) fn is_of_handshakes(&self) -> bool {
        self.on == LimitOn::Handshake
    }

    /// Whether it looks at what a request is like.
    pub(super) fn has_match(&self) -> bool {
        self.has_match
    }
}

/// What a limit counts by.
#[derive(Debug)]
pub(super) enum Key {
    /// All its requests together.
    Fixed,
    /// These, together.
    Parts(Box<[Part]>),
}

/// Something that may differ between the requests of a limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Tenant,
    Site,
    Rule,
    Upstream,
    File,
    Path,
    Client,
    Network,
    Header(Box<[u8]>),
    Cookie(Box<[u8]>),
    /// Of the rule it stands on.
    Capture(usize),
}

impl Limit {
    /// Compiles a limit that stands at `place`.
    ///
    /// # Errors
    /// When a pattern is too large to compile, or a time zone is not known here.
    pub(super) fn compile(
        limit: &model::Limit,
        index: u32,
        place: Place,
        (zone, costs): (Option<&str>, &Arc<Costs>),
    ) -> Result<Self> {
        let whose = format!("limit {}", limit.name);
        let conditions = match limit.conditions.as_slice() {
            [] => None,
            some => {
                let known = (costs, &Default::default());
                let compiled = Conditions::compile(some, &whose, known);
                Some(Box::new(compiled.map_err(|error| {
                    let detail = format!("{whose}: {error}");
                    Error::new(Kind::Internal, "pattern_too_large", detail)
                })?))
            }
        };
        let hours = limit.when.as_ref().map(|when| Hours::compile(when, zone));
        let key = Key::of(&limit.key, place);
        Ok(Self {
            index,
            on: limit.on,
            needs_upstream: place == Place::Upstream || key.needs_upstream(),
            key,
            conditions,
            hours: hours.transpose()?.map(Arc::new),
            has_rate: limit.rate.is_some(),
            has_permits: limit.concurrent.is_some(),
            keeps_tunnels: limit.tunnels,
            status: limit.status,
            page: limit.page.clone(),
        })
    }

    /// Its index among all limits of the generation.
    pub(super) fn index(&self) -> usize {
        self.index as usize
    }

    /// What it counts, if not all requests at all times.
    pub(super) fn scope(&self) -> Option<Scope> {
        let scope = Scope {
            hours: self.hours.clone(),
            has_match: self.conditions.is_some(),
            on: self.on,
        };
        (scope.has_match || scope.hours.is_some() || scope.on != LimitOn::Request).then_some(scope)
    }

    /// Whether its key is known before a request is.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self.key, Key::Fixed)
    }

    /// Whether it counts every request, and all together.
    pub(super) fn is_plain(&self) -> bool {
        self.is_fixed() && self.hours.is_none() && self.conditions.is_none()
    }
}

impl Key {
    fn of(keys: &[LimitKey], place: Place) -> Self {
        let said = keys.iter().filter_map(|key| Part::of(key, place));
        let parts: Box<[Part]> = place.apart().into_iter().chain(said).collect();
        match parts.is_empty() {
            true => Self::Fixed,
            false => Self::Parts(parts),
        }
    }

    /// Whether requests of one tenant only can have the same key, at `place`.
    pub(super) fn is_of_one_tenant(&self, place: Place) -> bool {
        let names_tenant = match self {
            Self::Fixed => false,
            Self::Parts(parts) => {
                let finer = |part| matches!(part, &Part::Tenant | &Part::Site | &Part::Rule);
                parts.iter().any(finer)
            }
        };
        names_tenant || matches!(place, Place::Tenant | Place::Site | Place::Rule)
    }

    /// Whether there are several, of which none says who a client is.
    pub(super) fn is_public(&self) -> bool {
        use Part::{File, Path, Rule, Site, Tenant, Upstream};
        let is_public = |part: &Part| matches!(part, Tenant | Site | Rule | Upstream | File | Path);
        match self {
            Self::Fixed => false,
            Self::Parts(parts) => parts.iter().all(is_public),
        }
    }

    /// Whether the upstream is part of it.
    fn needs_upstream(&self) -> bool {
        match self {
            Self::Fixed => false,
            Self::Parts(parts) => parts.contains(&Part::Upstream),
        }
    }

    /// Whether the resolved file is part of it.
    pub(super) fn needs_file(keys: &[LimitKey]) -> bool {
        keys.contains(&LimitKey::File)
    }
}

impl Part {
    /// `None` for what is the same for all requests that come to `place`.
    fn of(key: &LimitKey, place: Place) -> Option<Self> {
        use Place::{Plan, RowRule, RowSite, Rule, Site, Tenant, Upstream};
        match key {
            LimitKey::Process | LimitKey::Const(_) => None,
            LimitKey::Tenant => {
                let is_one = matches!(place, Tenant | Site | Rule | Plan | RowSite | RowRule);
                (!is_one).then_some(Self::Tenant)
            }
            LimitKey::Site => {
                (!matches!(place, Site | Rule | RowSite | RowRule)).then_some(Self::Site)
            }
            LimitKey::Rule => (!matches!(place, Rule | RowRule)).then_some(Self::Rule),
            LimitKey::Upstream => (place != Upstream).then_some(Self::Upstream),
            LimitKey::File => Some(Self::File),
            LimitKey::Path => Some(Self::Path),
            LimitKey::Client => Some(Self::Client),
            LimitKey::Network => Some(Self::Network),
            LimitKey::Header(name) => Some(Self::Header(name.as_bytes().into())),
            LimitKey::Cookie(name) => Some(Self::Cookie(name.as_bytes().into())),
            LimitKey::Capture(group) => Some(Self::Capture(*group)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_for_all_requests_of_a_place_is_no_part_of_a_key() {
        use LimitKey as By;
        let fixed = |keys: &[LimitKey], place| matches!(Key::of(keys, place), Key::Fixed);
        for (keys, place, is_fixed) in [
            (&[By::Process][..], Place::Process, true),
            (&[By::Process], Place::Upstream, true),
            (&[By::Tenant], Place::Process, false),
            (&[By::Tenant], Place::Rule, true),
            (&[By::Tenant], Place::Upstream, false),
            (&[By::Site], Place::Tenant, false),
            (&[By::Site, By::Const("a".into())], Place::Site, true),
            (&[By::Rule], Place::Site, false),
            (&[By::Upstream], Place::Upstream, true),
            (&[By::Upstream], Place::Process, false),
            (&[By::Site, By::Client], Place::Rule, false),
        ] {
            assert_eq!(fixed(keys, place), is_fixed, "{keys:?} {place:?}");
        }
        let Key::Parts(parts) = Key::of(&[By::Site, By::File], Place::Site) else {
            panic!("a file is not known beforehand");
        };
        assert_eq!(*parts, [Part::File]);
    }
}
