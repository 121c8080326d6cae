//! What the measured server spends meanwhile: its whole process tree, and the machine around it,
//! read from /proc, /sys and control groups.
//!
//! The idea: a [`Server`] is looked at, before and after a slice or ten times a second; a look is a
//! [`Reading`], two of them make a [`Spent`]. Counters never go backwards: what a process used is
//! kept when it ends. Whatever a kernel does not tell is left out and fails nothing.

mod account;
mod clock;
mod cool_down;
mod diagnosis;
mod facts;
mod files;
mod find;
mod groups;
mod machine;
mod noise;
mod reading;
mod sample;
mod sockets;
mod spent;
mod texts;
mod tree;

use std::time::Instant;

pub use cool_down::{cool_down, cool_down_facts};
pub use facts::facts;
pub use find::Which;
pub use noise::{FOREIGN_MAX, Noise, STEAL_MAX};
pub use reading::*;
pub use sample::{Sample, Sampler};
pub use spent::Spent;

use crate::error::Error;
use sockets::Sockets;
use tree::{Depth, Tree};

/// A server that is looked at: its processes, and what those that ended used.
#[derive(Debug)]
pub struct Server {
    tree: Option<Tree>,
    sockets: Sockets,
}

impl Server {
    /// Finds the processes of a server.
    ///
    /// # Errors
    /// When there is no such process, nobody listens there, or it may not be seen who does.
    pub fn find(which: &Which) -> Result<Server, Error> {
        let roots = find::roots(which)?;
        let mut server = Server {
            sockets: Sockets::new(which, roots.first().copied()),
            tree: (!roots.is_empty()).then(|| Tree::new(roots)),
        };
        server.read();
        Ok(server)
    }

    /// Looks at all but the memory, which costs more than the rest.
    pub fn read(&mut self) -> Reading {
        let mut reading = self.look(Depth::Full);
        self.add_sockets(&mut reading);
        reading
    }

    /// Looks at all, the proportional share of memory included.
    pub fn read_memory(&mut self) -> Reading {
        let mut reading = self.read();
        self.add_memory(&mut reading);
        reading
    }

    /// The processes the tree grows from; none where no server was named.
    pub fn roots(&self) -> &[u32] {
        self.tree.as_ref().map_or(&[], Tree::roots)
    }

    /// The processes it has now, as of the last look.
    pub fn processes(&self) -> Vec<u32> {
        self.tree.as_ref().map_or_else(Vec::new, Tree::processes)
    }

    /// Looks at what costs little: no context switches, no peaks, no sockets, no memory.
    fn read_lightly(&mut self) -> Reading {
        self.look(Depth::Light)
    }

    /// The machine is looked at last: the time of a look is the server's or foreign, not both.
    fn look(&mut self, depth: Depth) -> Reading {
        let tree = self.tree.as_mut().map(|tree| tree.look(depth));
        Reading {
            at: Instant::now(),
            tree,
            machine: match depth {
                Depth::Light => machine::read_lightly(),
                Depth::Full => machine::read(),
            },
        }
    }

    fn add_memory(&self, reading: &mut Reading) {
        if let (Some(tree), Some(found)) = (&self.tree, &mut reading.tree) {
            found.pss_bytes = tree.pss_bytes();
        }
    }

    fn add_sockets(&mut self, reading: &mut Reading) {
        if let (Some(tree), Some(found)) = (&self.tree, &mut reading.tree) {
            self.sockets.find_ports(&tree.processes());
            (found.sockets, found.sockets_are_cut) = self.sockets.by_state();
        }
    }
}
