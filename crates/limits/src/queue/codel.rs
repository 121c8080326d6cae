//! Whether a queue runs late, by the shortest wait in an interval.
//!
//! Controlled delay (RFC 8289) in the form used for requests instead of packets: a queue is overloaded when
//! even the luckiest of an interval waited longer than the target, which is as long as the interval. Then the newest
//! is served first, because it is the likeliest to be still wanted, and, if that lasts, who waited longer is refused.
//! A queue that was empty in between is a burst, not an overload.
//!
//! The target is what the operator calls late; without one, none of this happens, and the queue is served in order.

use crate::time::Time;

/// What is known of one tenant's queue.
#[derive(Debug, Default)]
pub(super) struct Codel {
    /// When the current interval began; `None` until somebody was taken out.
    started: Option<Time>,
    /// Since when there has always been somebody waiting.
    filled: Time,
    /// The shortest wait in the current interval; `None` until somebody was taken out.
    shortest_ns: Option<u64>,
    overloaded: bool,
    /// Whether the interval before was overloaded too: a burst that takes one to drain costs nobody his place.
    dropping: bool,
    newest_first: bool,
}

impl Codel {
    /// Whether the newest is to be served first.
    pub(super) fn newest_first(&self) -> bool {
        self.newest_first
    }

    /// Somebody came to an empty queue.
    pub(super) fn filled(&mut self, now: Time, late_ns: Option<u64>) {
        self.filled = now;
        let (Some(started), Some(late_ns)) = (self.started, late_ns) else {
            return;
        };
        let age_ns = now.since_ns(started);
        if age_ns >= late_ns {
            self.close(now, Load::Light);
        }
        if age_ns >= late_ns.saturating_mul(2) {
            self.newest_first = false;
        }
    }

    /// Ends the interval if it is over; to be called before the next is chosen from a queue that is not empty.
    pub(super) fn roll(&mut self, now: Time, late_ns: u64) {
        let Some(started) = self.started else {
            return self.close(now, Load::Light);
        };
        let age_ns = now.since_ns(started);
        if age_ns < late_ns {
            return;
        }
        let stood = self.filled <= started;
        let over = match self.shortest_ns {
            // A whole interval went by in which nobody was taken out.
            _ if age_ns >= late_ns.saturating_mul(2) => now.since_ns(self.filled) >= late_ns,
            None => stood,
            Some(shortest_ns) => stood && shortest_ns > late_ns,
        };
        self.close(now, if over { Load::Heavy } else { Load::Light });
    }

    /// Judges who is about to be served, having waited so long; `true` if that was too long.
    ///
    /// `first_ns` is how long the first in order has waited: while the newest is served first, what those
    /// served have waited says nothing about the queue.
    pub(super) fn is_late(&mut self, waited_ns: u64, first_ns: u64, late_ns: u64) -> bool {
        let Some(shortest_ns) = self.shortest_ns else {
            // The first of an interval is always served, or a queue of late ones would empty unserved.
            self.shortest_ns = Some(first_ns);
            return false;
        };
        self.shortest_ns = Some(shortest_ns.min(first_ns));
        self.dropping && waited_ns > late_ns
    }

    /// Begins an interval. Back to oldest first only after a whole interval that began without overload.
    fn close(&mut self, now: Time, load: Load) {
        let over = load == Load::Heavy;
        self.newest_first = over || (self.newest_first && self.overloaded);
        self.dropping = over && self.overloaded;
        self.overloaded = over;
        self.started = Some(now);
        self.shortest_ns = None;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Light,
    Heavy,
}
