//! `[fleet]`.

use super::Lines;
use super::write::quote;
use crate::model::Fleet;

impl Lines {
    pub(super) fn fleet(&mut self, fleet: &Fleet) {
        self.section("[fleet]");
        self.key("store", quote(fleet.store.url()));
        if let Some(machine) = &fleet.machine {
            self.key("machine", quote(machine));
        }
        self.duration("lease", fleet.lease_ms);
        self.key("machines", fleet.machines);
        if let Some(user) = &fleet.user {
            self.key("user", quote(user));
        }
    }
}
