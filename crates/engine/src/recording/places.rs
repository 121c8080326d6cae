//! Places that all who look at the console share: so many, few of them for one tenant, and some for those
//! who see everything.
//!
//! The idea: whoever a tenant lets in asks in the tenant's name, so that nobody but the tenant itself finds
//! no place because of them, and the operator always finds one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ipc::console::ConsoleScope;

/// Places there are.
pub(super) const PLACES_MAX: usize = 256;
/// Those that a tenant may have.
const OF_TENANT_MAX: usize = 32;
/// Those that no tenant gets.
const KEPT: usize = 32;

/// Places of one kind.
#[derive(Debug, Default)]
pub(crate) struct ConsolePlaces {
    /// By tenant, and by none for those who see everything. Held to count.
    taken: Mutex<HashMap<Option<Box<str>>, usize>>,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(crate) struct ConsolePlace {
    places: Arc<ConsolePlaces>,
    of: Option<Box<str>>,
}

impl ConsolePlaces {
    /// Takes one for who sees this, if there is one.
    pub(crate) fn take(self: &Arc<Self>, scope: &ConsoleScope) -> Option<ConsolePlace> {
        let of: Option<Box<str>> = match scope {
            ConsoleScope::All => None,
            ConsoleScope::Tenants(tenants) => {
                let first = tenants.first().map(|it| it.tenant.as_str());
                Some(first.unwrap_or_default().into())
            }
        };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let its_own = taken.get(&of).copied().unwrap_or_default();
        let operators = taken.get(&None).copied().unwrap_or_default();
        let has_room = match of {
            None => all < PLACES_MAX,
            Some(_) => {
                let tenants = all - operators;
                all < PLACES_MAX && its_own < OF_TENANT_MAX && tenants < PLACES_MAX - KEPT
            }
        };
        has_room.then(|| {
            taken.insert(of.clone(), its_own + 1);
            let places = Arc::clone(self);
            ConsolePlace { places, of }
        })
    }
}

impl Drop for ConsolePlace {
    fn drop(&mut self) {
        let taken = self.places.taken.lock();
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ipc::console::TenantSites;

    use super::*;

    fn tenant(number: usize) -> ConsoleScope {
        ConsoleScope::Tenants(vec![TenantSites {
            tenant: number.to_string(),
            sites: Vec::new(),
        }])
    }

    #[test]
    fn a_tenant_takes_no_place_of_another_and_the_operator_finds_one() {
        let places = Arc::new(ConsolePlaces::default());
        let of_one: Vec<_> = (0..PLACES_MAX)
            .filter_map(|_| places.take(&tenant(0)))
            .collect();
        assert_eq!(of_one.len(), OF_TENANT_MAX);
        assert!(places.take(&tenant(1)).is_some());
        let of_many: Vec<_> = (1..PLACES_MAX)
            .filter_map(|number| places.take(&tenant(number)))
            .collect();
        assert_eq!(of_one.len() + of_many.len(), PLACES_MAX - KEPT);
        let mut operators: Vec<_> = (0..PLACES_MAX)
            .filter_map(|_| places.take(&ConsoleScope::All))
            .collect();
        assert_eq!(operators.len(), KEPT);
        operators.pop();
        assert!(places.take(&ConsoleScope::All).is_some());
        drop((of_one, of_many, operators));
        assert!(places.taken.lock().expect("a lock").is_empty());
    }
}
