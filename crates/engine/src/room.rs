//! How many descriptors the process may open, and for what.
//!
//! The idea: they are shared out before the first connection. Some are set aside for what the
//! supervisor hands over and for whoever asks at the control socket; of the rest each connection
//! is meant to have two, its own and one for the file or the server that answers. Should some
//! have more, as programs' have, accepting stops while there are still some left for those who
//! are here.

use ipc::server::Configure;

/// Descriptors of the process itself, and of each worker.
const OWN: u64 = 24;
const OWN_OF_WORKER: u64 = 6;
/// Descriptors of one connection: its own, and a file's or an upstream's.
const OF_CONNECTION: u64 = 2;
/// Set aside besides what a configuration and its logs are.
const RESERVE_MIN: u64 = 16;
/// No larger part of all is set aside, kept from accepting, or held by files nobody reads now.
const PART: u64 = 8;
/// Never more than this is kept from accepting.
const SPARE_MAX: u64 = 1_024;
/// Files a worker keeps open at most though nobody reads them now; its open roots are no more.
pub(crate) const HANDLES_MAX: usize = 1_024;
/// With fewer connections than this a server is not worth starting.
const CONNECTIONS_MIN: u64 = 8;

/// What there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Descriptors that are set aside.
    pub reserve: u64,
    /// Clients' connections.
    pub connections: usize,
    /// Files each worker may keep open though nobody reads them now, and as many roots.
    pub handles: usize,
    /// Where the next descriptor has this number, no connection is accepted.
    pub full_at: u64,
}

/// What a configuration takes of descriptors.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    workers: u64,
    /// What comes with it, counted as often as it is held.
    given: u64,
    /// Logs that are opened when they have records.
    logs_on_demand: u64,
}

impl Needs {
    /// Those of what the supervisor sent.
    pub fn of(configure: &Configure, workers: usize, files_max: usize) -> Self {
        let held = |worker: Option<usize>| worker.map_or(workers, |_| 1);
        let listeners = configure.listeners.iter();
        let listeners: usize = listeners.map(|listener| held(listener.worker)).sum();
        let control = usize::from(configure.control.is_some());
        Self {
            workers: workers as u64,
            given: (listeners + configure.logs.len() + workers + control + 1) as u64,
            logs_on_demand: files_max as u64,
        }
    }

    /// So many descriptors are enough for so many connections.
    pub fn for_connections(self, connections: u64) -> u64 {
        let of_part = |rest: u64| rest.saturating_add(rest / (PART - 1) + PART);
        let ordinary = of_part(connections.saturating_mul(OF_CONNECTION)) + self.fixed();
        of_part(ordinary).min(ordinary.saturating_add(self.reserve_max()))
    }

    fn fixed(self) -> u64 {
        OWN + OWN_OF_WORKER * self.workers + 2 * self.given
    }

    /// Twice what is given: what takes another's place is there before that goes.
    fn reserve_max(self) -> u64 {
        RESERVE_MIN + self.workers + 2 * self.given + self.logs_on_demand
    }
}

impl Room {
    /// Room for anything.
    pub const ENOUGH: Self = Self {
        reserve: 0,
        connections: usize::MAX,
        handles: HANDLES_MAX,
        full_at: u64::MAX,
    };

    /// Shares out so many descriptors; `None` where they are too few to serve anybody.
    pub fn share_out(allowed: u64, needs: Needs) -> Option<Self> {
        let reserve = needs.reserve_max().min(allowed / PART);
        let ordinary = allowed - reserve;
        let free = ordinary.checked_sub(needs.fixed())?;
        let handles = (free / PART / 2 / needs.workers.max(1)).min(HANDLES_MAX as u64);
        let connections = (free - 2 * handles * needs.workers) / OF_CONNECTION;
        (connections >= CONNECTIONS_MIN).then(|| Self {
            reserve,
            connections: usize::try_from(connections).unwrap_or(usize::MAX),
            handles: usize::try_from(handles).unwrap_or(HANDLES_MAX),
            full_at: ordinary - (ordinary / PART).min(SPARE_MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs {
        workers: 2,
        given: 7,
        logs_on_demand: 256,
    };

    #[test]
    fn every_connection_has_room_for_an_answer_beside_what_is_set_aside() {
        for allowed in [128, 256, 512, 1_024, 4_096, 20_000, 524_288, u64::MAX] {
            let room = Room::share_out(allowed, NEEDS).expect("enough");
            let held = NEEDS.fixed() + 2 * room.connections as u64 + 4 * room.handles as u64;
            assert!(held + room.reserve <= allowed, "{allowed}: {room:?}");
            assert!(room.full_at < allowed - room.reserve, "{allowed}: {room:?}");
            assert!(room.full_at > NEEDS.fixed(), "{allowed}: {room:?}");
        }
    }

    #[test]
    fn too_few_for_anybody_are_no_room() {
        assert_eq!(Room::share_out(64, NEEDS), None);
        let many = Needs {
            workers: 64,
            ..NEEDS
        };
        assert_eq!(Room::share_out(256, many), None);
        assert_eq!(Room::share_out(0, NEEDS), None);
    }

    #[test]
    fn what_is_said_to_be_needed_is_enough() {
        for connections in [CONNECTIONS_MIN, 100, 1_000, 65_536, 10_000_000] {
            let needed = NEEDS.for_connections(connections);
            let room = Room::share_out(needed, NEEDS).expect("enough");
            assert!(
                room.connections as u64 >= connections,
                "{connections}: {room:?}"
            );
            assert!(needed < 4 * connections + 400, "{connections}: {needed}");
        }
    }
}
