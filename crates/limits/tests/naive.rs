//! The ledger beside one that a child could check: a few maps, no locks, no cells, no wait_queue.
//! The same events have to bring the same decisions.

use std::collections::BTreeMap;

use limits::{Admission, Change, Concurrent, Definition, Permit, Refusal, Ticket, Time, Why};
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_assert_eq};
use proptest::prop_oneof;

use crate::setting::{Setting, cap, dynamic, fixed};

const NAMES: [&str; 3] = ["file", "site", "process"];
const WAIT_NS: u64 = 2_000_000_000;

#[derive(Debug, Clone)]
enum Event {
    /// A worker, and which key at each limit; 0: none.
    Arrive(usize, [u8; 3]),
    /// The permit at this place of the list, from its end.
    End(usize),
    /// The waiter at this place of the list.
    Abort(usize),
    Pass(u64),
    Cap(usize, u32),
    Queue(usize, u32),
}

type Gate = (usize, u8);

/// The child's ledger.
#[derive(Default)]
struct Naive {
    caps: [u32; 3],
    queues: [u32; 3],
    in_flight: BTreeMap<Gate, u32>,
    /// Who waits where, in order of arrival; and whether it came from another gate.
    waiting: BTreeMap<Gate, Vec<(u64, bool)>>,
    gates: BTreeMap<u64, (Vec<Gate>, u64)>,
    granted: Vec<u64>,
}

/// What is said to a request: a limit and why, where it is refused.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Admitted,
    Waiting,
    Refused(usize, Why),
}

impl Naive {
    fn full(&self, gate: Gate) -> bool {
        self.in_flight.get(&gate).copied().unwrap_or(0) >= self.caps[gate.0]
    }

    fn waited_at(&self, gate: Gate) -> bool {
        self.waiting
            .get(&gate)
            .is_some_and(|queue| !queue.is_empty())
    }

    fn admit(&mut self, id: u64, gates: &[Gate], until: u64) -> Said {
        let stop = gates
            .iter()
            .copied()
            .find(|gate| self.full(*gate) || self.waited_at(*gate));
        let Some(stop) = stop else {
            self.take(gates);
            self.gates.insert(id, (gates.to_vec(), until));
            return Said::Admitted;
        };
        let queue = self.waiting.entry(stop).or_default();
        let hosts = queue.iter().filter(|(_, guest)| !guest).count();
        match self.queues[stop.0] {
            0 => Said::Refused(stop.0, Why::Full),
            most if hosts >= most as usize => Said::Refused(stop.0, Why::QueueFull),
            _ => {
                queue.push((id, false));
                self.gates.insert(id, (gates.to_vec(), until));
                Said::Waiting
            }
        }
    }

    fn take(&mut self, gates: &[Gate]) {
        for gate in gates {
            *self.in_flight.entry(*gate).or_default() += 1;
        }
    }

    fn end(&mut self, id: u64) {
        let Some((gates, _)) = self.gates.remove(&id) else {
            return;
        };
        for gate in &gates {
            *self.in_flight.entry(*gate).or_default() -= 1;
        }
        for gate in gates {
            self.serve(gate);
        }
    }

    fn leave(&mut self, id: u64) {
        self.gates.remove(&id);
        for queue in self.waiting.values_mut() {
            queue.retain(|(other, _)| *other != id);
        }
    }

    fn serve(&mut self, gate: Gate) {
        while !self.full(gate) && self.waited_at(gate) {
            let (id, guest) = self.waiting.entry(gate).or_default().remove(0);
            let gates = self
                .gates
                .get(&id)
                .map(|(gates, _)| gates.clone())
                .unwrap_or_default();
            let stop = gates
                .iter()
                .copied()
                .find(|other| self.full(*other) || (*other != gate && self.waited_at(*other)));
            match stop {
                None => {
                    self.take(&gates);
                    self.granted.push(id);
                }
                Some(stop) => {
                    let queue = self.waiting.entry(stop).or_default();
                    // Numbers are given in order of arrival.
                    let at = queue.partition_point(|(other, _)| *other < id);
                    queue.insert(at, (id, guest || stop != gate));
                }
            }
        }
    }

    fn expire(&mut self, now: u64) -> Vec<u64> {
        let waits = |id: &u64| {
            self.waiting
                .values()
                .flatten()
                .any(|(other, _)| other == id)
        };
        let over: Vec<u64> = self
            .gates
            .iter()
            .filter(|(id, (_, until))| *until <= now && waits(id))
            .map(|(id, _)| *id)
            .collect();
        over.iter().for_each(|id| self.leave(*id));
        over
    }

    fn serve_all(&mut self, limit: usize) {
        let gates: Vec<Gate> = self
            .waiting
            .keys()
            .copied()
            .filter(|gate| gate.0 == limit)
            .collect();
        gates.into_iter().for_each(|gate| self.serve(gate));
    }
}

/// Both ledgers, and what is under way at them.
struct Pair {
    setting: Setting,
    naive: Naive,
    held: Vec<(u64, Permit)>,
    waiting: Vec<(u64, Ticket)>,
    last: u64,
}

impl Pair {
    fn new(definitions: Vec<Definition>) -> Self {
        let mut naive = Naive::default();
        for (limit, definition) in definitions.iter().enumerate() {
            naive.caps[limit] = cap(definition);
            naive.queues[limit] = definition.queue;
        }
        Self {
            setting: Setting::new(2, definitions),
            naive,
            held: Vec::new(),
            waiting: Vec::new(),
            last: 0,
        }
    }

    fn apply(&mut self, event: &Event) -> Result<(), proptest::test_runner::TestCaseError> {
        self.setting.now = Time(self.setting.now.0 + 1);
        match *event {
            Event::Arrive(worker, keys) => self.arrive(worker, keys)?,
            Event::End(at) if at < self.held.len() => {
                let (id, permit) = self.held.remove(self.held.len() - 1 - at);
                drop(permit);
                self.naive.end(id);
            }
            Event::Abort(at) if at < self.waiting.len() => {
                let (id, ticket) = self.waiting.remove(at);
                drop(ticket);
                self.naive.leave(id);
            }
            Event::Pass(nanos) => {
                self.setting.now = Time(self.setting.now.0 + nanos);
                self.setting.ledger.tick(self.setting.now);
            }
            Event::Cap(limit, cap) => {
                let concurrent = Some(Concurrent::Fixed(cap));
                self.setting
                    .change(NAMES[limit], Change::Concurrent(concurrent));
                self.naive.caps[limit] = cap;
                self.naive.serve_all(limit);
            }
            Event::Queue(limit, queue) => {
                self.setting.change(NAMES[limit], Change::Queue(queue));
                self.naive.queues[limit] = queue;
            }
            Event::End(_) | Event::Abort(_) => {}
        }
        self.settle()
    }

    fn arrive(
        &mut self,
        worker: usize,
        keys: [u8; 3],
    ) -> Result<(), proptest::test_runner::TestCaseError> {
        self.last += 1;
        let keys = [keys[0].max(1), keys[1], keys[2]];
        let text = keys[0].to_string();
        // A request stands under its first limits, as many as it names in a row.
        let count = keys.iter().take_while(|key| **key > 0).count();
        let gates: Vec<Gate> = (0..count)
            .map(|limit| (limit, if limit == 0 { keys[0] } else { 1 }))
            .collect();
        let said = self.setting.say(worker, &[&*text, "", ""][..count]);
        let until = self.setting.now.0 + WAIT_NS;
        let expected = self.naive.admit(self.last, &gates, until);
        let said = match said {
            Admission::Admitted(permit) => {
                self.held.push((self.last, permit));
                Said::Admitted
            }
            Admission::Waiting(ticket) => {
                self.waiting.push((self.last, ticket));
                Said::Waiting
            }
            Admission::Refused(refusal) => self.refused(&refusal),
        };
        prop_assert_eq!(said, expected);
        Ok(())
    }

    fn refused(&self, refusal: &Refusal) -> Said {
        let limit = self
            .setting
            .limits
            .iter()
            .position(|limit| *limit == refusal.limit);
        Said::Refused(limit.expect("a limit of the test"), refusal.why)
    }

    /// Polls everybody: those who got something are those of the naive ledger.
    fn settle(&mut self) -> Result<(), proptest::test_runner::TestCaseError> {
        let mut over = self.naive.expire(self.setting.now.0);
        let mut granted = std::mem::take(&mut self.naive.granted);
        let (mut got, mut ended) = (Vec::new(), Vec::new());
        for (id, mut ticket) in std::mem::take(&mut self.waiting) {
            match self.setting.poll(&mut ticket) {
                None => self.waiting.push((id, ticket)),
                Some(Ok(permit)) => {
                    got.push(id);
                    self.held.push((id, permit));
                }
                Some(Err(refusal)) => {
                    prop_assert_eq!(refusal.why, Why::WaitedTooLong);
                    ended.push(id);
                }
            }
        }
        over.sort_unstable();
        granted.sort_unstable();
        prop_assert_eq!((got, ended), (granted, over));
        prop_assert_eq!(self.setting.ledger.drift(), 0);
        Ok(())
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0_usize..2, [1_u8..4, 0_u8..2, 0_u8..2]).prop_map(|(worker, keys)| Event::Arrive(worker, keys)),
        6 => (0_usize..12).prop_map(Event::End),
        1 => (0_usize..6).prop_map(Event::Abort),
        1 => prop_oneof![Just(1), 0..WAIT_NS, Just(WAIT_NS * 2)].prop_map(Event::Pass),
        // Only where there is one gate: in which order several are served is nobody's promise.
        1 => (1_usize..3, 1_u32..20).prop_map(|(limit, cap)| Event::Cap(limit, cap)),
        1 => (0_usize..3, 0_u32..6).prop_map(|(limit, queue)| Event::Queue(limit, queue)),
    ]
}

proptest::proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_same_events_bring_the_same_decisions(
        caps in (1_u32..4, 1_u32..12, 1_u32..20),
        queues in (0_u32..5, 0_u32..5, 0_u32..5),
        events in proptest::collection::vec(event(), 0..250),
    ) {
        let mut definitions = vec![
            dynamic("file", caps.0),
            fixed("site", caps.1),
            fixed("process", caps.2),
        ];
        for (definition, queue) in definitions.iter_mut().zip([queues.0, queues.1, queues.2]) {
            definition.queue = queue;
        }
        let mut pair = Pair::new(definitions);
        for event in &events {
            pair.apply(event)?;
        }
    }
}
