//! Whether a slice was disturbed, so that its figures say more of the machine than of the server.

use std::fmt;
use std::time::Duration;

use super::spent::Spent;

/// The hypervisor's share of the machine's time that voids a slice, 0 to 1.
pub const STEAL_MAX: f64 = 0.02;
/// The share of others' CPU time that voids a slice, 0 to 1.
pub const FOREIGN_MAX: f64 = 0.05;

/// What disturbed a slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// The hypervisor took this share of the machine's time.
    Steal(f64),
    /// Processes of neither the server nor the generator took this share of the machine's time.
    Foreign(f64),
    /// So many requests were refused where none should be.
    Refusals(u64),
}

impl Noise {
    /// The worst that disturbed a slice; `None` where nothing did. `refusals` are those of a load
    /// that should see none. Without a server that is looked at, its own work cannot be told from
    /// foreign work, and only the rest is judged.
    pub fn of(spent: &Spent, generator_cpu: Duration, refusals: u64) -> Option<Noise> {
        let foreign = spent.foreign_share(generator_cpu);
        if refusals > 0 {
            Some(Noise::Refusals(refusals))
        } else if spent.steal_share > STEAL_MAX {
            Some(Noise::Steal(spent.steal_share))
        } else if spent.tree.is_some() && foreign > FOREIGN_MAX {
            Some(Noise::Foreign(foreign))
        } else {
            None
        }
    }
}

impl fmt::Display for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Noise::Steal(share) => {
                write!(
                    f,
                    "the hypervisor took {:.1} % of the machine's time",
                    share * 100.0
                )
            }
            Noise::Foreign(share) => write!(
                f,
                "other processes took {:.1} % of the machine's time",
                share * 100.0
            ),
            Noise::Refusals(1) => write!(f, "a request was refused"),
            Noise::Refusals(count) => write!(f, "{count} requests were refused"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reading::TreeFigures;
    use super::*;

    fn slice(server_ms: u64, charged_ms: u64, steal_share: f64) -> Spent {
        Spent {
            time: Duration::from_secs(1),
            cores: 2,
            tree: Some(TreeFigures {
                cpu: Duration::from_millis(server_ms),
                ..TreeFigures::default()
            }),
            charged: Duration::from_millis(charged_ms),
            steal_share,
            ..Spent::default()
        }
    }

    #[test]
    fn a_slice_is_void_for_a_reason() {
        // The server's and all CPU time, steal, refusals; the generator always takes 500 ms.
        for (server, charged, steal, refusals, expected) in [
            (900, 1_400, 0.0, 0, ""),
            (900, 1_500, 0.02, 0, ""),
            (900, 1_000, 0.0, 0, ""),
            (
                900,
                1_400,
                0.021,
                0,
                "the hypervisor took 2.1 % of the machine's time",
            ),
            (
                900,
                1_520,
                0.0,
                0,
                "other processes took 6.0 % of the machine's time",
            ),
            (900, 1_520, 0.5, 1, "a request was refused"),
            (900, 1_400, 0.0, 7, "7 requests were refused"),
        ] {
            let spent = slice(server, charged, steal);
            let noise = Noise::of(&spent, Duration::from_millis(500), refusals);
            let found = noise.map(|noise| noise.to_string()).unwrap_or_default();
            assert_eq!(found, expected, "{server} {charged} {steal} {refusals}");
        }
    }

    #[test]
    fn a_server_that_nobody_looks_at_is_not_foreign() {
        let mut spent = slice(0, 1_900, 0.0);
        spent.tree = None;
        assert_eq!(Noise::of(&spent, Duration::ZERO, 0), None);
    }
}
