//! What the scripts of one request leave behind: for each other, and for the engine.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Keys and values of notes and variables of one request, in bytes.
const NOTES_BYTES_MAX: usize = 1 << 20;

/// Things one request may hold at once: locks, permits, pinned connections.
const HELD_MAX: usize = 1_024;

/// Room for output that is kept from one request to the next.
const OUTPUT_BYTES_KEPT: usize = 4 * 1024;

/// Serials that a thread takes for itself at once: workers would meet at every request otherwise.
const SERIALS: u64 = 1 << 16;

static NEXT: AtomicU64 = AtomicU64::new(SERIALS);

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// A number that no other scope of the process has, greater than those before it of this thread.
fn next_serial() -> u64 {
    let mut serial = OWN.get();
    if serial.is_multiple_of(SERIALS) {
        serial = NEXT.fetch_add(SERIALS, Relaxed);
    }
    OWN.set(serial + 1);
    serial
}

/// What [`Scope::returned`] holds for `DECLINED`, whichever server's: the number of nginx.
pub const DECLINED: i64 = -5;

/// Where a script sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redirect {
    /// The client is told to go there.
    Outside {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The value of `Location`.
        location: Vec<u8>,
    },
    /// It is resolved anew, as if it had asked for this path and query.
    Inside {
        /// Path and query.
        target: Vec<u8>,
    },
}

/// A control group that a request's program is to be born in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupWish {
    /// The name a script gave it.
    pub name: String,
    /// What it may use.
    pub limits: os::cgroup::Limits,
}

/// Notes and variables, by name.
type Notes = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the scripts of a request had said before one ran in shadow.
#[derive(Debug)]
pub struct Said {
    returned: Option<i64>,
    output: Vec<u8>,
    redirect: Option<Redirect>,
    upstream: Option<Vec<u8>>,
    server_of: Option<(Vec<u8>, Vec<u8>)>,
    cgroup: Option<CgroupWish>,
    notes: Notes,
    notes_bytes: usize,
}

impl Said {
    /// Whether another upstream was named since, and whether another group.
    #[must_use]
    pub fn differs_from(&self, scope: &Scope) -> (bool, bool) {
        (self.upstream != scope.upstream, self.cgroup != scope.cgroup)
    }
}

/// What the scripts of one request have said and hold.
pub struct Scope {
    serial: u64,
    /// What `return` was called with last in this phase; taken by the engine after each phase.
    pub returned: Option<i64>,
    /// What `rputs` and `echo` wrote.
    pub output: Vec<u8>,
    /// Where it was sent.
    pub redirect: Option<Redirect>,
    /// How often it was resolved anew for a script; counted by the engine.
    pub redirects: u32,
    /// The upstream a script chose by `reverse_proxy` or `Upstream#server=`.
    pub upstream: Option<Vec<u8>>,
    /// The upstream whose `server=` was called last, and what it was given.
    pub(crate) server_of: Option<(Vec<u8>, Vec<u8>)>,
    /// The group its program is to be born in, by `Cgroup#attach`.
    pub cgroup: Option<CgroupWish>,
    notes: Notes,
    notes_bytes: usize,
    /// Notes of scripts in shadow.
    shadow_notes: Notes,
    held: Vec<(u64, Box<dyn Any>)>,
    next_held: u64,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            serial: next_serial(),
            returned: None,
            output: Vec::new(),
            redirect: None,
            redirects: 0,
            upstream: None,
            server_of: None,
            cgroup: None,
            notes: Notes::new(),
            notes_bytes: 0,
            shadow_notes: Notes::new(),
            held: Vec::new(),
            next_held: 0,
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("serial", &self.serial)
            .field("returned", &self.returned)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

impl Scope {
    /// No other request's scope in this process has this number.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// A note or variable by its name.
    pub fn note(&self, name: &[u8]) -> Option<&[u8]> {
        self.notes.get(name).map(Vec::as_slice)
    }

    /// Every note, by name.
    pub fn notes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.notes
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// Leaves a note; `None` takes it away. `false` when there is no room for it.
    pub(crate) fn set_note(&mut self, name: &[u8], value: Option<&[u8]>) -> bool {
        let before = self.notes.get(name).map_or(0, |old| name.len() + old.len());
        let after = value.map_or(0, |value| name.len() + value.len());
        if self.notes_bytes - before + after > NOTES_BYTES_MAX {
            return false;
        }
        self.notes_bytes = self.notes_bytes - before + after;
        match value {
            Some(value) => self.notes.insert(name.to_vec(), value.to_vec()),
            None => self.notes.remove(name),
        };
        true
    }

    /// Sets aside what was said so far, for a script in shadow. It sees what others like it have
    /// left in notes, beside those that all see.
    pub fn set_aside(&mut self) -> Said {
        let said = Said {
            returned: self.returned.take(),
            output: std::mem::take(&mut self.output),
            redirect: self.redirect.take(),
            upstream: self.upstream.clone(),
            server_of: self.server_of.clone(),
            cgroup: self.cgroup.clone(),
            notes: self.notes.clone(),
            notes_bytes: self.notes_bytes,
        };
        self.show_shadow_notes();
        said
    }

    /// Forgets what was said since, but for notes: these are kept for scripts in shadow, and for
    /// those that can change nothing any more.
    pub fn take_back(&mut self, said: Said) {
        self.returned = said.returned;
        self.output = said.output;
        self.redirect = said.redirect;
        self.upstream = said.upstream;
        self.server_of = said.server_of;
        self.cgroup = said.cgroup;
        let mut left = std::mem::replace(&mut self.notes, said.notes);
        left.retain(|name, value| self.notes.get(name) != Some(value));
        self.shadow_notes = left;
        self.notes_bytes = said.notes_bytes;
    }

    /// Shows the notes of scripts in shadow.
    pub fn show_shadow_notes(&mut self) {
        for (name, value) in std::mem::take(&mut self.shadow_notes) {
            // Where there is no room for it, it is gone.
            self.set_note(&name, Some(&value));
        }
    }

    /// Holds something until the request ends; `None` when it holds too much already.
    pub fn hold(&mut self, thing: Box<dyn Any>) -> Option<u64> {
        if self.held.len() >= HELD_MAX {
            return None;
        }
        self.next_held += 1;
        self.held.push((self.next_held, thing));
        Some(self.next_held)
    }

    /// Gives something up that was held under this number.
    pub fn release(&mut self, number: u64) -> Option<Box<dyn Any>> {
        let index = self.held.iter().position(|(held, _)| *held == number)?;
        Some(self.held.swap_remove(index).1)
    }

    /// Becomes another request's: gives up everything and keeps some memory.
    pub fn renew(&mut self) {
        self.release_all();
        self.serial = next_serial();
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES_KEPT);
        (self.returned, self.redirect, self.redirects) = (None, None, 0);
        (self.upstream, self.server_of, self.cgroup) = (None, None, None);
        // Mostly there are none, and to drop even that takes a while.
        for notes in [&mut self.notes, &mut self.shadow_notes] {
            if !notes.is_empty() {
                notes.clear();
            }
        }
        (self.notes_bytes, self.next_held) = (0, 0);
    }

    /// Gives up everything held, the last first.
    pub fn release_all(&mut self) {
        while self.held.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_serial_comes_twice() {
        let all = || (0..SERIALS + 2).map(|_| next_serial()).collect::<Vec<_>>();
        let other = std::thread::spawn(all);
        let own = all();
        assert!(own.is_sorted() && own.first().is_some_and(|first| *first > 0));
        let other = other.join().expect("it ends");
        let mut both = [own, other].concat();
        both.sort_unstable();
        assert!(both.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
