//! What a request asks of the ledger: its worker, its tenant, its client, and a key at each limit.

use std::net::IpAddr;

/// Limits one request may stand under at once; further ones are not looked at. Sixteen that are
/// configured, and the four that are places for programs.
pub const WANTS_MAX: usize = 22;

/// Names a limit of a [`Ledger`](crate::Ledger): the same as long as its identity is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitId {
    pub(crate) index: u32,
    /// Tells a limit from an earlier one at the same index, which old generations may still name.
    pub(crate) version: u32,
}

impl LimitId {
    /// Marks versions of limits whose permits are leased.
    pub(crate) const LEASED: u32 = 1 << 31;

    /// Whether its permits are leased.
    #[inline]
    pub(crate) fn is_leased(self) -> bool {
        self.version & Self::LEASED != 0
    }

    /// Its number. A limit that comes when another has gone may get that one's.
    #[must_use]
    pub fn number(self) -> u32 {
        self.index
    }
}

/// Names a tenant of a [`Ledger`](crate::Ledger).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub(crate) u32);

/// A request that asks to go on.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The worker that asks, from 0; one too high is taken for another.
    pub worker: usize,
    /// Whose request it is.
    pub tenant: TenantId,
    /// Which of the tenant's requests it is, for those that wait.
    pub class: Class,
    /// Who sent it, for fairness between clients.
    pub client: IpAddr,
    /// The limits it stands under, most specific first; at most [`WANTS_MAX`] are looked at.
    pub wants: &'a [Want<'a>],
}

impl<'a> Ask<'a> {
    /// One of no class.
    #[must_use]
    pub fn of(worker: usize, tenant: TenantId, client: IpAddr, wants: &'a [Want<'a>]) -> Ask<'a> {
        Ask {
            worker,
            tenant,
            class: Class::NONE,
            client,
            wants,
        }
    }
}

/// A class of a tenant's requests: its turns are shared among them by weight, and inside each among
/// clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    /// Which of the tenant's.
    pub number: u8,
    /// Its share relative to the others', from 1.
    pub weight: u32,
}

impl Class {
    /// What is in no class.
    pub const NONE: Self = Self {
        number: 0,
        weight: 1,
    };
}

/// One limit a request stands under, and its key there.
#[derive(Debug, Clone, Copy)]
pub struct Want<'a> {
    /// The limit. One that is not in force any more admits everybody.
    pub limit: LimitId,
    /// The key: `None` for a fixed limit. A dynamic one without a key counts as the empty key.
    pub key: Option<&'a [u8]>,
}
