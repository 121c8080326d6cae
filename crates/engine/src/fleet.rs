//! The thread that has permits of limits leased which several machines share.
//!
//! The idea: the ledger says what is to be asked and hears what was answered; this carries both, over a link to the directory
//! process, which asks the store. It looks at leases whether there is a link or not, so that they end, and what holds while
//! the store is away begins, in time. No worker waits for it but in the queue of a limit. Some seconds apart it tells what the
//! machine is, and hears whether operators want it drained.

pub(crate) mod inquiry;
mod report;
mod trips;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ipc::console::Outgoing;
use ipc::directory::DirectoryMessage;
use ipc::fleet::{FleetAnswer, FleetClaim, FleetQuestion, FleetRateClaim, FleetSaid, ToFleet};
use limits::FleetCall;
use limits::fleet::{FleetKey, FleetState, Grant, RateGrant, StoreReply};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::io::register;
use crate::linked_thread::{LinkedThread, tell_lost};
use crate::permits::limiter::Limiter;
use crate::worker::Shared;
use report::OwnReport;
use trips::Trips;

/// The least time between two questions, however many wait for the store.
const REST: Duration = Duration::from_millis(2);

/// Why it does not answer, where nobody else says why.
const NO_ANSWER: &str = "no answer came in time";
const NO_PROCESS: &str = "there is no process that asks the store";
/// Whom it speaks with.
const WITH: &str = "the directory process";

/// Starts the thread, without a link.
///
/// # Errors
/// When no thread or no runtime can be had.
pub(crate) fn start(shared: Shared) -> io::Result<LinkedThread<OwnedFd>> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let body = move |links| {
        runtime.block_on(run(&shared, links));
        // Nobody is left who could say that it is over.
        shared.fleet.forget();
    };
    LinkedThread::start("fleet", WITH, body)
}

async fn run(shared: &Shared, mut links: mpsc::Receiver<OwnedFd>) {
    let limiter = &*shared.limits;
    shared.fleet.set_why("the store was not asked yet");
    let mut asking = Asking {
        shared,
        limiter,
        link: None,
        outgoing: Outgoing::default(),
        asked: None,
        rested: Instant::now(),
        is_called: false,
        started: Instant::now(),
        told: None,
        has_namesake: false,
        report: OwnReport::default(),
        trips: Trips::default(),
        is_slow_told: false,
    };
    let mut rounds = interval(FleetCall::ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let is_asking = asking.asked.is_some();
        tokio::select! {
            next = links.recv() => match next {
                Some(link) => asking.use_link(link),
                None => return,
            },
            _ = rounds.tick() => asking.round(),
            () = drawn(limiter, asking.rested, asking.is_called), if !is_asking => {
                asking.is_called = false;
                asking.round();
            }
            heard = heard(asking.link.as_ref()) => asking.hear(heard),
            () = room(asking.link.as_ref()), if !asking.outgoing.is_empty() => asking.send(),
            () = shared.fleet.asked.notified() => asking.list(),
        }
    }
}

/// What the process says next; never without a link.
async fn heard(link: Option<&AsyncFd<OwnedFd>>) -> io::Result<FleetAnswer> {
    let Some(link) = link else {
        return std::future::pending().await;
    };
    loop {
        let mut ready = link.readable().await?;
        match FleetAnswer::try_recv(link.get_ref().as_fd())? {
            Some(answer) => return Ok(answer),
            None => ready.clear_ready(),
        }
    }
}

/// Waits until somebody waits for permits of the store, or the store has called, and it may be asked again.
async fn drawn(limiter: &Limiter, rested: Instant, is_called: bool) {
    tokio::time::sleep_until(rested.into()).await;
    if !is_called {
        limiter.draws.notified().await;
    }
}

/// Waits until something can be said.
async fn room(link: Option<&AsyncFd<OwnedFd>>) {
    if let Some(link) = link
        && let Ok(mut ready) = link.writable().await
    {
        return ready.clear_ready();
    }
    std::future::pending().await
}

/// What is asked, and of whom.
struct Asking<'a> {
    shared: &'a Shared,
    limiter: &'a Limiter,
    link: Option<AsyncFd<OwnedFd>>,
    outgoing: Outgoing,
    /// The number of the question that is not answered yet, and when it was asked.
    asked: Option<(u64, Instant)>,
    /// When it may be asked again.
    rested: Instant,
    /// Whether keys are to be claimed at once.
    is_called: bool,
    started: Instant,
    /// What was told last of the store.
    told: Option<FleetState>,
    has_namesake: bool,
    report: OwnReport,
    trips: Trips,
    is_slow_told: bool,
}

impl Asking<'_> {
    fn use_link(&mut self, link: OwnedFd) {
        self.give_up();
        self.outgoing = Outgoing::default();
        self.link = match register(link, Interest::READABLE | Interest::WRITABLE) {
            Ok(link) => Some(link),
            Err(error) => {
                tell_lost(WITH, &error);
                None
            }
        };
    }

    /// Has leases looked at, and asks what is to be asked.
    fn round(&mut self) {
        let now = self.limiter.time(Instant::now());
        if let Some(call) = self.limiter.ledger.fleet_round(now) {
            self.ask(call);
        }
        self.tell();
        self.introduce();
    }

    /// Has the store know what this machine is, if it is time.
    fn introduce(&mut self) {
        if self.link.is_some()
            && let Some(report) = self.report.next(self.shared)
        {
            let obeyed = self.shared.fleet.obeyed();
            // One that finds no room is told the next time.
            let _ = ToFleet::Tell { report, obeyed }.put(&mut self.outgoing);
            self.send();
        }
    }

    /// Asks which machines there are, for an operator.
    fn list(&mut self) {
        let Some((id, order)) = self.shared.fleet.take() else {
            return;
        };
        let question = ToFleet::List { id, order };
        if self.link.is_none() || !matches!(question.put(&mut self.outgoing), Ok(true)) {
            let why = Err(NO_PROCESS.to_owned());
            return self.shared.fleet.hear(id, FleetSaid::Listed(why));
        }
        self.send();
    }

    fn ask(&mut self, call: FleetCall) {
        self.asked = Some((call.seq, Instant::now()));
        self.rested = Instant::now() + REST;
        if self.link.is_none() {
            self.shared.fleet.set_why(NO_PROCESS);
            return self.give_up();
        }
        let claims = call.claims.iter().map(|claim| FleetClaim {
            key: claim.key.0,
            limit: claim.limit,
            used: claim.used,
            keep: claim.keep,
            need: claim.need,
            want: claim.want,
            weight: claim.weight,
        });
        let rates = call.rates.iter().map(|claim| FleetRateClaim {
            key: claim.key.0,
            interval_ns: claim.interval_ns,
            full_us: claim.full_us,
            want: claim.want,
            demand: claim.demand,
            spent_us: claim.spent_us,
        });
        let question = FleetQuestion {
            run: self.limiter.run,
            seq: call.seq,
            lease_ms: u64::try_from(call.lease.as_millis()).unwrap_or(u64::MAX),
            claims: claims.collect(),
            rates: rates.collect(),
        };
        match ToFleet::Ask(question).put(&mut self.outgoing) {
            Ok(true) => self.send(),
            Ok(false) | Err(_) => self.give_up(),
        }
    }

    fn send(&mut self) {
        let sent = self
            .link
            .as_ref()
            .map(|link| self.outgoing.send(link.get_ref().as_fd()));
        if let Some(Err(error)) = sent {
            self.lose(&error);
        }
    }

    fn hear(&mut self, heard: io::Result<FleetAnswer>) {
        let FleetAnswer { seq, said } = match heard {
            Ok(answer) => answer,
            Err(error) => return self.lose(&error),
        };
        match &said {
            // Also one that comes too late says why.
            FleetSaid::Down(why) => self.shared.fleet.set_why(why),
            FleetSaid::Called(called) => {
                let now = self.limiter.time(Instant::now());
                self.limiter.ledger.call_fleet(now, &keys(called));
                self.is_called = true;
                return;
            }
            FleetSaid::Granted { .. } => self.shared.fleet.set_why(NO_ANSWER),
            FleetSaid::Told {
                order,
                instead_of,
                has_namesake,
                is_evicting,
            } => {
                self.tell_namesake(*has_namesake);
                self.shared.fleet.set_evicting(*is_evicting);
                if self.shared.fleet.obey(*order, *instead_of) {
                    self.report.hurry();
                }
                return;
            }
            FleetSaid::Machine(_) | FleetSaid::Listed(_) => {
                return self.shared.fleet.hear(seq, said);
            }
        }
        let Some((_, asked)) = self.asked.filter(|(asked, _)| *asked == seq) else {
            return;
        };
        let Some(reply) = reply(said) else {
            return self.give_up();
        };
        self.asked = None;
        self.note_trip(asked.elapsed());
        let now = self.limiter.time(Instant::now());
        self.limiter.ledger.hear_fleet(now, seq, Some(&reply));
        // Whoever came meanwhile waits no longer than he has to.
        self.is_called = true;
        self.tell();
    }

    /// Says once that the store takes long for the lease.
    fn note_trip(&mut self, took: Duration) {
        let now = Instant::now();
        let rules = self.limiter.ledger.fleet_state(self.limiter.time(now));
        let lease = rules.map_or(Duration::MAX, |(_, rules)| rules.lease);
        let is_slow = self.trips.note(now, took, lease);
        let longest = self.trips.longest();
        self.shared.fleet.set_slowest(longest);
        if is_slow && !std::mem::replace(&mut self.is_slow_told, true) {
            let (lease_ms, slowest_ms) = (lease.as_millis(), longest.as_millis());
            tracing::warn!(
                lease_ms,
                slowest_ms,
                "the fleet's store often takes longer than a tenth of a lease to answer: make `lease` longer, or the way there shorter"
            );
        }
    }

    /// Says that another gateway has this one's name, when that begins.
    fn tell_namesake(&mut self, has_namesake: bool) {
        if !std::mem::replace(&mut self.has_namesake, has_namesake) && has_namesake {
            tracing::warn!(
                "another machine of the fleet has the name of this one, so neither can be told from the other or drained: give each a `machine` of its own in [fleet]"
            );
        }
    }

    fn lose(&mut self, error: &io::Error) {
        tell_lost(WITH, error);
        self.link = None;
        self.shared.fleet.set_why(NO_PROCESS);
        self.give_up();
    }

    /// Nobody answers what was asked.
    fn give_up(&mut self) {
        if let Some((seq, _)) = self.asked.take() {
            let now = self.limiter.time(Instant::now());
            self.limiter.ledger.hear_fleet(now, seq, None);
        }
    }

    /// Says once how the store is.
    fn tell(&mut self) {
        let now = Instant::now();
        let Some((state, rules)) = self.limiter.ledger.fleet_state(self.limiter.time(now)) else {
            return;
        };
        // One that was just started has not been answered yet.
        let is_early = self.told.is_none() && now - self.started < rules.lease;
        if self.told == Some(state) || is_early && state == FleetState::Lost {
            return;
        }
        match state {
            FleetState::Lost => tracing::warn!(
                error = self.shared.fleet.why(),
                "nothing is to be had of the fleet's store: limits with scope = \"fleet\" do what on_loss says"
            ),
            FleetState::Quiet => tracing::info!(
                "the fleet's store gives out nothing yet: it has started, or nobody has asked it for a while"
            ),
            FleetState::Answers => tracing::info!("the fleet's store answers"),
        }
        self.told = Some(state);
    }
}

fn keys(called: &[[u64; 2]]) -> Vec<FleetKey> {
    called.iter().map(|key| FleetKey(*key)).collect()
}

/// What the store said; `None` where that was no answer.
fn reply(said: FleetSaid) -> Option<StoreReply> {
    let FleetSaid::Granted {
        quiet_ms,
        machines,
        called,
        grants,
        rates,
    } = said
    else {
        return None;
    };
    let grants = grants.into_iter().map(|it| Grant {
        held: it.held,
        part: it.part,
        is_contended: it.is_contended,
        is_coming: it.is_coming,
    });
    let rates = rates.into_iter().map(|it| RateGrant {
        count: it.count,
        next_us: it.next_us,
        full_us: it.full_us,
    });
    Some(StoreReply {
        quiet_ms,
        machines,
        called: keys(&called),
        grants: grants.collect(),
        rates: rates.collect(),
    })
}
