//! Gates that scripts make up: `Nagaya::Limit.acquire(key, concurrent: 2, queue: 10, wait: 1)`.
//!
//! A gate is there for as long as somebody holds a permit of it or waits for one, so that what is
//! not in use costs nothing and is never forgotten too early. Each call says how many may hold one
//! at once; whoever waits is served in the order they came, and waits until there is room by their
//! own number. All workers share them.
//!
//! They stand beside the ledger and not in it: its limits are known before the first request comes,
//! and a request takes all of them at once; these are taken one after another, by requests that
//! hold others already.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

/// Gates there may be at once.
const GATES_MAX: usize = if cfg!(test) { 4 } else { 65_536 };
/// Longest key.
const KEY_BYTES_MAX: usize = 1_024;

/// The gates of a process.
#[derive(Debug, Default)]
pub struct Gates {
    /// Held to come, to go and to wait: for a look at one gate.
    gates: Mutex<HashMap<Arc<[u8]>, Gate>>,
}

#[derive(Debug, Default)]
struct Gate {
    held: u32,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    concurrent: u32,
    turn: oneshot::Sender<GatePermit>,
}

/// A permit of a gate, given back when dropped.
#[derive(Debug)]
pub struct GatePermit {
    gates: Arc<Gates>,
    key: Arc<[u8]>,
}

/// A place in a gate's queue; gives the permit when it is there.
#[derive(Debug)]
pub struct Turn {
    gates: Arc<Gates>,
    key: Arc<[u8]>,
    /// `None` once the permit was handed out.
    permit: Option<oneshot::Receiver<GatePermit>>,
}

impl Future for Turn {
    type Output = Option<GatePermit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<GatePermit>> {
        let Some(permit) = &mut self.permit else {
            return Poll::Ready(None);
        };
        let permit = ready!(Pin::new(permit).poll(cx));
        self.permit = None;
        Poll::Ready(permit.ok())
    }
}

impl Drop for Turn {
    /// Whoever stood behind this one may need less room than it did.
    fn drop(&mut self) {
        let Some(mut permit) = self.permit.take() else {
            return;
        };
        permit.close();
        match permit.try_recv() {
            // It had come, and goes to the next.
            Ok(permit) => drop(permit),
            Err(_) => self.gates.let_in(&self.key, 0),
        }
    }
}

/// What became of asking for a permit.
#[derive(Debug)]
pub enum Asked {
    /// Here it is.
    Admitted(GatePermit),
    /// It comes when others have left. Dropped, its place in the queue is given up.
    Waits(Turn),
    /// Too many hold one, and too many wait.
    Refused,
}

/// What goes on at all gates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatesLook {
    /// Keys somebody holds a permit of, or waits for.
    pub keys: usize,
    /// Permits held.
    pub in_flight: u64,
    /// Who waits.
    pub queued: usize,
}

impl Gates {
    /// What goes on now.
    pub fn look(&self) -> GatesLook {
        let gates = self.lock();
        let mut look = GatesLook {
            keys: gates.len(),
            ..GatesLook::default()
        };
        for gate in gates.values() {
            let waiting = gate.waiting.iter().filter(|it| !it.turn.is_closed());
            look.in_flight += u64::from(gate.held);
            look.queued += waiting.count();
        }
        look
    }

    /// Asks for a permit of the gate `key`, of which `concurrent` may be held at once and for which
    /// `queue` may wait.
    pub fn ask(self: &Arc<Self>, key: &[u8], concurrent: u32, queue: u32) -> Asked {
        let mut gates = self.lock();
        if let Some((key, _)) = gates.get_key_value(key) {
            let key = Arc::clone(key);
            let Some(gate) = gates.get_mut(&key) else {
                return Asked::Refused;
            };
            return self.ask_at(key, gate, concurrent, queue);
        }
        if concurrent == 0 || gates.len() >= GATES_MAX || key.len() > KEY_BYTES_MAX {
            return Asked::Refused;
        }
        let key: Arc<[u8]> = key.into();
        gates.entry(Arc::clone(&key)).or_default().held = 1;
        Asked::Admitted(self.permit(key))
    }

    fn ask_at(
        self: &Arc<Self>,
        key: Arc<[u8]>,
        gate: &mut Gate,
        concurrent: u32,
        queue: u32,
    ) -> Asked {
        gate.waiting.retain(|waiter| !waiter.turn.is_closed());
        if gate.held < concurrent && gate.waiting.is_empty() {
            gate.held += 1;
            return Asked::Admitted(self.permit(key));
        }
        if concurrent == 0 || gate.waiting.len() >= queue as usize {
            return Asked::Refused;
        }
        let (turn, permit) = oneshot::channel();
        gate.waiting.push_back(Waiter { concurrent, turn });
        Asked::Waits(Turn {
            gates: Arc::clone(self),
            key,
            permit: Some(permit),
        })
    }

    fn permit(self: &Arc<Self>, key: Arc<[u8]>) -> GatePermit {
        GatePermit {
            gates: Arc::clone(self),
            key,
        }
    }

    /// So many permits have come back; whoever is next gets one, if there is room by their number.
    fn let_in(self: &Arc<Self>, key: &Arc<[u8]>, came_back: u32) {
        let mut unwanted = None;
        let mut gates = self.lock();
        let Some(gate) = gates.get_mut(key) else {
            return;
        };
        gate.held = gate.held.saturating_sub(came_back);
        while let Some(next) = gate.waiting.front()
            && (gate.held < next.concurrent || next.turn.is_closed())
        {
            let Some(next) = gate.waiting.pop_front() else {
                break;
            };
            if next.turn.is_closed() {
                continue;
            }
            gate.held += 1;
            if let Err(permit) = next.turn.send(self.permit(Arc::clone(key))) {
                // It left this very moment. Dropped here, the permit would come back through the
                // lock that is held.
                unwanted = Some(permit);
                break;
            }
        }
        if gate.held == 0 && gate.waiting.is_empty() {
            gates.remove(key);
        }
        drop(gates);
        drop(unwanted);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<[u8]>, Gate>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GatePermit {
    fn drop(&mut self) {
        let gates = Arc::clone(&self.gates);
        gates.let_in(&self.key, 1);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn admitted(asked: Asked) -> GatePermit {
        match asked {
            Asked::Admitted(permit) => permit,
            other => panic!("{other:?}"),
        }
    }

    fn waits(asked: Asked) -> Turn {
        match asked {
            Asked::Waits(waits) => waits,
            other => panic!("{other:?}"),
        }
    }

    /// The permit, if its turn has come.
    fn now(turn: &mut Turn) -> Option<GatePermit> {
        match Pin::new(turn).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => permit,
            Poll::Pending => None,
        }
    }

    fn is_refused(asked: &Asked) -> bool {
        matches!(asked, Asked::Refused)
    }

    #[test]
    fn so_many_hold_a_permit_so_many_wait_and_the_rest_is_refused() {
        let gates = Arc::<Gates>::default();
        let (one, two) = (gates.ask(b"a", 2, 1), gates.ask(b"a", 2, 1));
        let (one, two) = (admitted(one), admitted(two));
        let mut third = waits(gates.ask(b"a", 2, 1));
        assert!(is_refused(&gates.ask(b"a", 2, 1)));
        assert!(now(&mut third).is_none());
        admitted(gates.ask(b"b", 1, 0));
        drop(one);
        let third = now(&mut third).expect("its turn");
        drop((two, third));
        assert!(gates.lock().is_empty(), "nobody needs them any more");
    }

    #[test]
    fn whoever_has_left_the_queue_is_passed_over() {
        let gates = Arc::<Gates>::default();
        let held = admitted(gates.ask(b"a", 1, 2));
        let gone = waits(gates.ask(b"a", 1, 2));
        let mut next = waits(gates.ask(b"a", 1, 2));
        drop(gone);
        drop(held);
        let held = now(&mut next).expect("its turn");
        let late = waits(gates.ask(b"a", 1, 1));
        drop(late);
        drop(waits(gates.ask(b"a", 1, 1)));
        drop(held);
        assert!(gates.lock().is_empty());
    }

    #[test]
    fn a_permit_that_nobody_takes_comes_back() {
        let gates = Arc::<Gates>::default();
        let held = admitted(gates.ask(b"a", 1, 1));
        let waiter = waits(gates.ask(b"a", 1, 1));
        drop(held);
        // The permit lies in the channel of somebody who leaves without looking.
        drop(waiter);
        assert!(gates.lock().is_empty());
    }

    #[test]
    fn each_waits_by_its_own_number() {
        let gates = Arc::<Gates>::default();
        let (one, two) = (gates.ask(b"a", 2, 0), gates.ask(b"a", 2, 0));
        let (one, _two) = (admitted(one), admitted(two));
        let mut narrow = waits(gates.ask(b"a", 1, 2));
        let mut wide = waits(gates.ask(b"a", 3, 2));
        drop(one);
        assert!(
            now(&mut narrow).is_none(),
            "one is held, and it wants none beside it"
        );
        assert!(now(&mut wide).is_none(), "in the order they came");
        drop(narrow);
        let _wide = now(&mut wide).expect("nobody stands before it any more");
    }

    #[test]
    fn there_is_an_end_to_gates() {
        let gates = Arc::<Gates>::default();
        let held: Vec<_> = (0..4_u8)
            .map(|key| admitted(gates.ask(&[key], 1, 0)))
            .collect();
        assert!(is_refused(&gates.ask(b"more", 1, 0)));
        assert!(is_refused(&gates.ask(b"none", 0, 1)));
        drop(held);
        assert!(is_refused(&gates.ask(&[b'x'; 1_025], 1, 0)));
        admitted(gates.ask(b"more", 1, 0));
    }
}
