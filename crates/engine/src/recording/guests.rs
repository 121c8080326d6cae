//! Who is at the console: the links that have let somebody in, and how many watch.
//!
//! The idea: a link is for one use, so that what has been used is remembered until it would not hold any
//! more. Both have a bound; who comes beyond it is told to come again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use ipc::console::ConsoleScope;

use super::places::{ConsolePlace, ConsolePlaces};

/// Links that are remembered.
const USED_MAX: usize = 10_000;

/// The signature of a link.
pub(crate) type LinkSignature = [u8; 32];

/// Who is at the console.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    /// Until when each link that was used holds, in seconds after 1970. Held to look one up.
    used: Mutex<BTreeMap<LinkSignature, u64>>,
    /// When this process began to serve; empty until then. Links from before are not known.
    pub(crate) serves_since: OnceLock<Instant>,
    viewers: Arc<ConsolePlaces>,
}

/// What becomes of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkUse {
    /// It is used by this.
    First,
    /// It was used before.
    Again,
    /// There is no room to remember it.
    Full,
}

impl Guests {
    /// Uses a link that holds until then.
    pub(crate) fn enter(&self, link: LinkSignature, until_s: u64, now_s: u64) -> LinkUse {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.contains_key(&link) {
            return LinkUse::Again;
        }
        if used.len() >= USED_MAX {
            used.retain(|_, until_s| *until_s >= now_s);
        }
        if used.len() >= USED_MAX {
            return LinkUse::Full;
        }
        used.insert(link, until_s);
        LinkUse::First
    }

    /// Watches, where not too many do.
    pub(crate) fn watch(&self, scope: &ConsoleScope) -> Option<ConsolePlace> {
        self.viewers.take(scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_used_once_and_forgotten_when_it_is_over() {
        let guests = Guests::default();
        let link = |number: usize| {
            let mut link = [0; 32];
            link[..8].copy_from_slice(&number.to_le_bytes());
            link
        };
        assert_eq!(guests.enter(link(0), 60, 0), LinkUse::First);
        assert_eq!(guests.enter(link(0), 60, 60), LinkUse::Again);
        for number in 1..USED_MAX {
            assert_eq!(guests.enter(link(number), 100, 60), LinkUse::First);
        }
        assert_eq!(guests.enter(link(USED_MAX), 100, 60), LinkUse::Full);
        assert_eq!(guests.enter(link(USED_MAX), 120, 61), LinkUse::First);
        assert_eq!(guests.enter(link(USED_MAX), 120, 61), LinkUse::Again);
    }
}
