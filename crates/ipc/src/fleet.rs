//! What a server and the directory process say to each other of limits that machines share, over a link of its own.
//!
//! The idea: a question is one packet with what is claimed of many keys, its answer one with what is granted, in the same order.
//! At most one is under way. Beside it machines say of themselves what operators want to know: a text, which the process only
//! carries.
//!
//! Left out: what is claimed and why (crate `limits`), and how the store is asked.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::directory::{DirectoryMessage, REASON_BYTES_MAX};

/// Claims in one question, and as many of rates.
pub const CLAIMS_MAX: usize = 750;
/// Claims of rates beside them: all of them are one packet.
pub const RATES_MAX: usize = 300;
/// Keys that a machine is called for at once.
pub const CALLED_MAX: usize = 512;

/// Bytes of what a machine says of itself.
pub const REPORT_BYTES_MAX: usize = 8 * 1_024;
/// Bytes of a machine's name.
pub const MACHINE_BYTES_MAX: usize = 64;
/// Machines that an operator is told of.
pub const MACHINES_MAX: usize = 256;

/// What the server says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToFleet {
    /// What may be held? Answered by [`FleetSaid::Granted`].
    Ask(FleetQuestion),
    /// What this machine says of itself; answered by [`FleetSaid::Told`].
    Tell {
        /// At most [`REPORT_BYTES_MAX`].
        report: String,
        /// The number of the order that it obeys; 0: of none. Of two orders the later has the greater one, which is odd where the
        /// machine is to be drained.
        obeyed: u64,
    },
    /// Which machines are there? Answered by [`FleetSaid::Machine`] for each, and then by [`FleetSaid::Listed`].
    List {
        /// The server's number for the question.
        id: u64,
        /// What an operator wants of a machine, before that.
        order: Option<DrainOrder>,
    },
}

/// What an operator wants of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    /// Which, at most [`MACHINE_BYTES_MAX`].
    pub machine: String,
    /// Whether it is to be drained, or to serve again.
    pub is_drained: bool,
}

/// What became of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderOutcome {
    /// The store has it, or there was none.
    Kept,
    /// No machine is called so.
    Unknown,
    /// Several gateways go by that name, so nothing was ordered.
    Several,
}

/// What the store knows of a machine. Whoever writes to the store may have made it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineReport {
    /// Its name, at most [`MACHINE_BYTES_MAX`].
    pub machine: String,
    /// Whether it is the one that asks.
    pub is_here: bool,
    /// How long ago it was heard of, by the store's clock; never.
    pub heard_ms: Option<u64>,
    /// Whether it is to be drained.
    pub is_drained: bool,
    /// Whether several gateways say that they are it.
    pub has_namesake: bool,
    /// What it says, at most [`REPORT_BYTES_MAX`].
    pub report: String,
}

/// What the server asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetQuestion {
    /// Which run of the server it is.
    pub run: u64,
    /// The number of the question; it grows.
    pub seq: u64,
    /// For how long what is granted may be held, in milliseconds.
    pub lease_ms: u64,
    /// At most [`CLAIMS_MAX`].
    pub claims: Vec<FleetClaim>,
    /// As many at the most.
    pub rates: Vec<FleetRateClaim>,
}

/// What is claimed of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetClaim {
    /// The limit and its key.
    pub key: [u64; 2],
    /// Permits there are over all machines.
    pub limit: u32,
    /// Permits in flight.
    pub used: u32,
    /// Permits that are kept until there is an answer.
    pub keep: u32,
    /// Permits that are needed.
    pub need: u32,
    /// Permits that are wanted.
    pub want: u32,
    /// For how many.
    pub weight: u32,
}

/// What is claimed of one key of a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetRateClaim {
    /// The limit and its key.
    pub key: [u64; 2],
    /// The time that the rate takes for one, in nanoseconds.
    pub interval_ns: u64,
    /// The time that it takes for a burst.
    pub full_us: u64,
    /// How many are to begin.
    pub want: u32,
    /// How many came lately.
    pub demand: u32,
    /// How much of a burst was used while the store was away.
    pub spent_us: u64,
}

/// What the directory process answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetAnswer {
    /// The question's number; of a call, which answers none, 0.
    pub seq: u64,
    /// What the store said.
    pub said: FleetSaid,
}

/// What the store said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FleetSaid {
    /// Nothing, and why. At most [`REASON_BYTES_MAX`].
    Down(String),
    /// Without having been asked: these keys are to be claimed. At most [`CALLED_MAX`].
    Called(Vec<[u64; 2]>),
    /// This.
    Granted {
        /// How much longer it gives out nothing new.
        quiet_ms: u64,
        /// Machines there are.
        machines: u32,
        /// Keys to be claimed at once. At most [`CALLED_MAX`].
        called: Vec<[u64; 2]>,
        /// To each claim.
        grants: Vec<FleetGrant>,
        /// To each claim of a rate.
        rates: Vec<FleetRateGrant>,
    },
    /// What is known of this machine.
    Told {
        /// The number of its order; 0: there is none.
        order: u64,
        /// The order that it obeyed and obeys no more, as it is of a time far ahead; 0: none.
        instead_of: u64,
        /// Whether another gateway says that it is this machine.
        has_namesake: bool,
        /// Whether the store evicts keys when it is full.
        is_evicting: bool,
    },
    /// A machine that there is.
    Machine(MachineReport),
    /// That were all, and what became of the order; or why neither is known. At most [`REASON_BYTES_MAX`].
    Listed(Result<OrderOutcome, String>),
}

/// What may be held of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetGrant {
    /// Permits.
    pub held: u32,
    /// The machine's part.
    pub part: u32,
    /// Whether more is wanted than there is.
    pub is_contended: bool,
    /// Whether others were called to give back what they do not need.
    pub is_coming: bool,
}

/// What may begin of a key of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetRateGrant {
    /// How many.
    pub count: u32,
    /// In how long there is one more.
    pub next_us: u64,
    /// In how long there is a whole burst.
    pub full_us: u64,
}

impl DirectoryMessage for ToFleet {
    fn is_bounded(&self) -> bool {
        match self {
            ToFleet::Ask(question) => {
                question.claims.len() <= CLAIMS_MAX && question.rates.len() <= RATES_MAX
            }
            ToFleet::Tell { report, .. } => report.len() <= REPORT_BYTES_MAX,
            ToFleet::List { order, .. } => {
                let mut machines = order.iter().map(|it| it.machine.len());
                machines.all(|bytes| bytes <= MACHINE_BYTES_MAX)
            }
        }
    }
}

impl DirectoryMessage for FleetAnswer {
    fn is_bounded(&self) -> bool {
        match &self.said {
            FleetSaid::Down(why) | FleetSaid::Listed(Err(why)) => why.len() <= REASON_BYTES_MAX,
            FleetSaid::Called(called) => called.len() <= CALLED_MAX,
            FleetSaid::Granted {
                called,
                grants,
                rates,
                ..
            } => {
                let is_bounded = grants.len() <= CLAIMS_MAX && rates.len() <= RATES_MAX;
                called.len() <= CALLED_MAX && is_bounded
            }
            FleetSaid::Told { .. } | FleetSaid::Listed(Ok(_)) => true,
            FleetSaid::Machine(of) => {
                of.machine.len() <= MACHINE_BYTES_MAX && of.report.len() <= REPORT_BYTES_MAX
            }
        }
    }
}

/// The store as the directory process has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetSettings {
    /// Where it is, or where Sentinels are: a host name or an address with its port, or the path of a socket.
    pub places: Vec<(String, Option<u16>)>,
    /// What Sentinels call it; `None`: it is there itself.
    pub sentinel: Option<String>,
    /// PEM of the authorities that its certificate may come from; `None`: without TLS.
    pub tls: Option<Vec<u8>>,
    /// Who logs in by name.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
    /// What this machine is called.
    pub machine: String,
    /// How long permits are given to a machine.
    pub lease_ms: u64,
    /// The gateway that is that machine: the same while it runs, and over upgrades.
    pub gateway: u64,
}

impl fmt::Debug for FleetSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = (&self.places, &self.sentinel, &self.machine);
        out.debug_tuple("FleetSettings").field(&known).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::codec::tests::mangled;
    use crate::console::Outgoing;

    fn claim(number: u32) -> FleetClaim {
        FleetClaim {
            key: [u64::MAX, u64::from(number)],
            limit: u32::MAX,
            used: u32::MAX,
            keep: u32::MAX,
            need: u32::MAX,
            want: u32::MAX,
            weight: u32::MAX,
        }
    }

    fn rate() -> FleetRateClaim {
        FleetRateClaim {
            key: [u64::MAX; 2],
            interval_ns: u64::MAX,
            full_us: u64::MAX,
            want: u32::MAX,
            demand: u32::MAX,
            spent_us: u64::MAX,
        }
    }

    fn answer(grants: usize, rates: usize) -> FleetAnswer {
        FleetAnswer {
            seq: u64::MAX,
            said: FleetSaid::Granted {
                quiet_ms: u64::MAX,
                machines: u32::MAX,
                called: vec![[u64::MAX; 2]; CALLED_MAX],
                grants: vec![
                    FleetGrant {
                        held: u32::MAX,
                        part: u32::MAX,
                        is_contended: true,
                        is_coming: true,
                    };
                    grants
                ],
                rates: vec![
                    FleetRateGrant {
                        count: u32::MAX,
                        next_us: u64::MAX,
                        full_us: u64::MAX,
                    };
                    rates
                ],
            },
        }
    }

    #[test]
    fn the_largest_question_and_answer_are_one_packet_each() {
        let (here, there) = os::fdpass::packet_pair().unwrap();
        let asked = ToFleet::Ask(FleetQuestion {
            run: u64::MAX,
            seq: u64::MAX,
            lease_ms: u64::MAX,
            claims: (0..CLAIMS_MAX as u32).map(claim).collect(),
            rates: vec![rate(); RATES_MAX],
        });
        let mut outgoing = Outgoing::default();
        assert!(asked.put(&mut outgoing).unwrap());
        outgoing.send(here.as_fd()).unwrap();
        assert_eq!(ToFleet::try_recv(there.as_fd()).unwrap(), Some(asked));
        assert!(answer(CLAIMS_MAX, RATES_MAX).put(&mut outgoing).unwrap());
        outgoing.send(there.as_fd()).unwrap();
        let heard = FleetAnswer::try_recv(here.as_fd()).unwrap();
        assert_eq!(heard, Some(answer(CLAIMS_MAX, RATES_MAX)));
    }

    #[test]
    fn what_keeps_to_no_bounds_is_neither_sent_nor_read() {
        let long = FleetAnswer {
            seq: 1,
            said: FleetSaid::Down("x".repeat(REASON_BYTES_MAX + 1)),
        };
        let many = FleetAnswer {
            seq: 0,
            said: FleetSaid::Called(vec![[1, 2]; CALLED_MAX + 1]),
        };
        let report = FleetAnswer {
            seq: 1,
            said: FleetSaid::Machine(MachineReport {
                machine: "x".repeat(MACHINE_BYTES_MAX),
                is_here: false,
                heard_ms: None,
                is_drained: false,
                has_namesake: false,
                report: "x".repeat(REPORT_BYTES_MAX + 1),
            }),
        };
        for said in [
            answer(CLAIMS_MAX + 1, 1),
            answer(1, RATES_MAX + 1),
            long,
            many,
            report,
        ] {
            assert!(said.put(&mut Outgoing::default()).is_err());
        }
        let sound = crate::codec::encode(&answer(3, 3)).unwrap();
        mangled(&sound, |bytes| {
            let packet = [&[os::fdpass::LAST], bytes].concat();
            if let Ok(said) = FleetAnswer::of_packet(&packet) {
                assert!(said.is_bounded());
            }
        });
    }
}
