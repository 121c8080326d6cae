//! Which names are forgotten: those of which nothing is known when nobody waits, and others when there is no room.
//!
//! The idea: anybody can make names up, so those without a row go before all that have one.

use super::{BYTES_MAX, KnownDirectory, NAME_BYTES};

/// Names that are looked at for room at once, and how many of them stay if they were used.
const ROOM_LOOKS_MAX: usize = 256;
const SECOND_CHANCES: usize = 16;

impl KnownDirectory {
    /// Nobody asks for a name any more; one of which nothing is known is forgotten.
    pub(super) fn leave(&mut self, host: &str) {
        let Some(slot) = self.hosts.get_mut(host) else {
            return;
        };
        slot.asked = None;
        if !slot.is_listed {
            self.forget(host);
        }
    }

    fn forget(&mut self, host: &str) {
        if let Some(slot) = self.hosts.remove(host) {
            // Workers that have a site of it ask before they serve on, and so hear of changes.
            slot.outdate_entry();
            let bytes = NAME_BYTES + host.len() + slot.entry.map_or(0, |it| it.bytes());
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Forgets names until there is room: those without a row, and then those that were not used since the last look.
    pub(super) fn make_room(&mut self) {
        let mut chances = SECOND_CHANCES;
        for _ in 0..ROOM_LOOKS_MAX {
            if self.bytes < BYTES_MAX {
                return;
            }
            let other = self.without_row.pop_front();
            let is_other = other.is_some();
            let Some(host) = other.or_else(|| self.order.pop_front()) else {
                return;
            };
            let stays = self.hosts.get(&host).is_some_and(|slot| {
                let row = slot.entry.as_ref().filter(|it| it.row().is_some());
                let is_used = !is_other && chances > 0 && row.is_some_and(|it| it.take_used());
                chances -= usize::from(is_used);
                // Of one that was without a row and has one now the turn comes later.
                slot.asked.is_some() || is_used || (is_other && row.is_some())
            });
            match stays {
                true => self.order.push_back(host),
                false => self.forget(&host),
            }
        }
    }

    /// Has what is known of a name looked at when there is no room.
    pub(super) fn list(&mut self, host: &str) {
        let Some(slot) = self.hosts.get_mut(host).filter(|slot| !slot.is_listed) else {
            return;
        };
        slot.is_listed = true;
        let has_row = slot.entry.as_ref().is_some_and(|it| it.row().is_some());
        match has_row {
            true => self.order.push_back(host.into()),
            false => self.without_row.push_back(host.into()),
        }
    }
}
