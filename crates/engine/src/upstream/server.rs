//! One server of an upstream: its health, its load and its idle connections.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use config::model;

use super::dial::Names;
use super::link::Link;
use super::slots::Slots;
use crate::agents::Told;
use crate::error::{Error, Kind};
use crate::stats::{Health, UpstreamStats, WorkerStats, bump};
use crate::tls::servers::ServerTls;
use crate::worker::resources::Resources;

/// How long a connection has to be idle to count as kept by its server too. One that means to
/// close it does so in microseconds, unless its machine is very busy.
const SETTLED_MS: u64 = 1_000;

/// One server.
#[derive(Debug)]
pub struct Server {
    /// Its address as configured: for logs, the access record and the `Host` it may be sent.
    pub label: Arc<str>,
    /// Where it is.
    pub address: model::ServerAddress,
    /// Its share.
    pub weight: u32,
    /// What this worker counts of it, or of all of its kind where nobody is told of each.
    stats: Arc<UpstreamStats>,
    /// Whether it is told of by itself.
    is_listed: bool,
    /// Who waits for its processes, where it speaks FastCGI.
    pub slots: Option<Arc<Slots>>,
    /// What the agent beside it says, where one is asked.
    pub(super) told: Option<Arc<Told>>,
    /// The addresses its name stands for.
    pub(super) names: Rc<Names>,
    /// How TLS is spoken with it; `None` is plain.
    pub(super) tls: Option<Arc<ServerTls>>,
    /// Requests in flight on this worker.
    pub(super) in_flight: Cell<u32>,
    /// Smooth weighted round robin: what the server is still owed.
    pub(super) owed: Cell<i64>,
    fails: Cell<u32>,
    rest_ms: Cell<u64>,
    resting_until_ms: Cell<u64>,
    /// How often the processes behind it had been replaced when it was last asked.
    pub(super) hand_overs: Cell<u64>,
    /// The one used last on top.
    idle: RefCell<Vec<(u64, Box<Link>)>>,
}

/// Counts a request as in flight until it is dropped.
#[derive(Debug)]
pub struct InFlight {
    server: Rc<Server>,
    since_ms: u64,
    /// Its number among those of the server.
    flight: usize,
    is_heard: Cell<bool>,
}

impl InFlight {
    pub(super) fn new(server: &Rc<Server>, since_ms: u64) -> Self {
        server.in_flight.set(server.in_flight.get() + 1);
        Self {
            server: Rc::clone(server),
            since_ms,
            flight: server.stats.begin(since_ms),
            is_heard: Cell::new(false),
        }
    }

    /// The server has said the first byte of its reply; only FastCGI servers are asked for it.
    pub fn note_heard(&self, now_ms: u64) {
        if let Some(slots) = &self.server.slots
            && !self.is_heard.replace(true)
        {
            self.server.stats.note_heard(self.flight);
            slots.note_answer(now_ms);
        }
    }

    /// It is for this program.
    pub fn note_script(&self, script: &[u8]) {
        self.server.stats.note_script(self.flight, script);
    }

    /// Notes that it ended in an error: silence is counted, and speaks of processes that are stuck
    /// where a FastCGI server has not said a byte.
    pub fn note_end(&self, resources: &Resources, error: &Error) {
        if error.kind != Kind::UpstreamSlow {
            return;
        }
        bump(&self.server.stats.timeouts, 1);
        if let (Some(slots), false) = (&self.server.slots, self.is_heard.get()) {
            slots.note_silence(self.since_ms, resources.deadlines.now_ms());
        }
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let server = &self.server;
        server.in_flight.set(server.in_flight.get() - 1);
        server.stats.end(self.flight);
    }
}

impl Server {
    pub(super) fn new(config: &model::Server, upstream: &str, stats: &WorkerStats) -> Self {
        let label = label(&config.address);
        let stats = stats.upstream(upstream, &label);
        stats.note_health(0, Health::Up);
        Self::counted(config, label, stats)
    }

    /// One of which nobody is told by itself: it counts `together` with its like.
    pub(super) fn unlisted(config: &model::Server, together: &Arc<UpstreamStats>) -> Self {
        Self {
            is_listed: false,
            ..Self::counted(config, label(&config.address), Arc::clone(together))
        }
    }

    fn counted(config: &model::Server, label: Arc<str>, stats: Arc<UpstreamStats>) -> Self {
        Self {
            stats,
            is_listed: true,
            label,
            address: config.address.clone(),
            weight: config.weight,
            slots: None,
            told: None,
            names: Rc::default(),
            tls: None,
            in_flight: Cell::new(0),
            owed: Cell::new(0),
            fails: Cell::new(0),
            rest_ms: Cell::new(0),
            resting_until_ms: Cell::new(0),
            hand_overs: Cell::new(0),
            idle: RefCell::new(Vec::new()),
        }
    }

    /// Whether it has nothing to do, and no connection either.
    pub(super) fn is_forgettable(&self) -> bool {
        self.in_flight.get() == 0 && self.idle.borrow().is_empty()
    }

    fn note_health(&self, fails: u32, health: Health) {
        if self.is_listed {
            self.stats.note_health(fails, health);
        }
    }

    /// Its share now, in hundredths: its weight, as far as its agent says it is up to that; 0 while
    /// it is to be left alone.
    pub(super) fn share(&self) -> u64 {
        let percent = self.told.as_ref().map_or(100, |told| told.percent());
        u64::from(self.weight) * u64::from(percent)
    }

    /// Its share as configured, whatever its agent says.
    pub(super) fn whole_share(&self) -> u64 {
        u64::from(self.weight) * 100
    }

    /// Whether it rests after failures.
    pub fn is_resting(&self, now_ms: u64) -> bool {
        self.resting_until_ms.get() > now_ms
    }

    /// Whether it may be asked: not while it rests or its agent wants it left alone, and after a rest
    /// by one request at a time until it has answered.
    pub(super) fn is_fit(&self, now_ms: u64) -> bool {
        self.is_rested(now_ms) && self.share() > 0
    }

    /// Whether it may be asked, whatever its agent says.
    pub(super) fn is_rested(&self, now_ms: u64) -> bool {
        let has_answered = self.rest_ms.get() == 0 || self.in_flight.get() == 0;
        !self.is_resting(now_ms) && has_answered
    }

    /// When its rest ends.
    pub(super) fn resting_until_ms(&self) -> u64 {
        self.resting_until_ms.get()
    }

    /// It answered: whatever failures there were are over.
    pub fn note_success(&self) {
        if self.fails.replace(0) != 0 {
            self.rest_ms.set(0);
            self.resting_until_ms.set(0);
            self.note_health(0, Health::Up);
        }
    }

    /// It failed; after enough failures in a row it rests, each time twice as long, up to a cap.
    /// An only server never rests: there is nobody to take its place.
    pub(super) fn note_failure(&self, config: &model::Upstream, now_ms: u64, alone: bool) {
        let fails = self.fails.get().saturating_add(1);
        self.fails.set(fails);
        bump(&self.stats.failures, 1);
        let (name, server) = (&config.name, &self.label);
        if fails < config.fails {
            return self.note_health(fails, Health::Up);
        }
        if alone {
            if fails == config.fails {
                tracing::warn!(%name, %server, fails, "upstream server fails, and is asked on: there is no other");
            }
            return self.note_health(fails, Health::Failing);
        }
        self.note_health(fails, Health::Out);
        // Requests that were under way when the rest began tell nothing new.
        if self.is_resting(now_ms) {
            return;
        }
        let rest_ms = match self.rest_ms.get() {
            0 => config.back_off_ms,
            before => before.saturating_mul(2).min(config.back_off_max_ms),
        };
        self.rest_ms.set(rest_ms);
        self.resting_until_ms.set(now_ms + rest_ms);
        tracing::warn!(%name, %server, fails, rest_ms, "upstream server rests");
    }

    /// Who we are to it now, by the certificate that is shown: what is kept and was begun as another
    /// is used no more.
    pub(super) fn who(&self) -> u64 {
        self.tls.as_ref().map_or(0, |tls| tls.who())
    }

    /// Whether a connection was begun as who we are now, with the processes that are there now.
    fn is_of_now(&self, link: &Link) -> bool {
        link.who == self.who() && link.hand_overs == self.hand_overs.get()
    }

    /// A connection that is still open, the one used last first.
    pub(super) fn take_idle(&self) -> Option<Box<Link>> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut idle = self.idle.borrow_mut();
        while let Some((_, mut link)) = idle.pop() {
            if self.is_of_now(&link) && !link.is_stale(&mut cx) {
                link.reused = true;
                return Some(link);
            }
        }
        None
    }

    /// As [`Self::take_idle`], but only one that was idle for [`SETTLED_MS`]. Where there is none
    /// a younger one is closed, so that the connection made instead finds a process free.
    pub(super) fn take_settled(&self, now_ms: u64) -> Option<Box<Link>> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut idle = self.idle.borrow_mut();
        let is_settled = |since_ms: u64| now_ms.saturating_sub(since_ms) >= SETTLED_MS;
        while let Some(at) = idle.iter().rposition(|(since_ms, _)| is_settled(*since_ms)) {
            let (_, mut link) = idle.remove(at);
            if self.is_of_now(&link) && !link.is_stale(&mut cx) {
                link.reused = true;
                return Some(link);
            }
        }
        idle.pop();
        None
    }

    pub(super) fn keep(&self, mut link: Box<Link>, keepalive: usize, now_ms: u64) {
        link.out.clear();
        let mut idle = self.idle.borrow_mut();
        if idle.len() < keepalive && self.is_of_now(&link) {
            idle.push((now_ms, link));
        }
        if self.is_wanted() {
            idle.clear();
        }
    }

    /// The processes behind it have been replaced so often.
    pub(super) fn renew(&self, hand_overs: u64) {
        if self.hand_overs.replace(hand_overs) != hand_overs {
            self.release();
        }
    }

    /// Closes connections that were idle for so long.
    pub(super) fn close_older(&self, idle_ms: u64, now_ms: u64) {
        let mut idle = self.idle.borrow_mut();
        // In the order in which they were kept.
        let is_young = |(since_ms, _): &(u64, _)| now_ms.saturating_sub(*since_ms) < idle_ms;
        let old = idle.iter().position(is_young).unwrap_or(idle.len());
        idle.drain(..old);
    }

    /// Closes all idle connections.
    pub(super) fn release(&self) {
        self.idle.borrow_mut().clear();
    }

    /// Whether somebody waits for one of its processes.
    fn is_wanted(&self) -> bool {
        self.slots.as_ref().is_some_and(|slots| slots.are_wanted())
    }

    /// Closes connections that were idle for too long, that the server has closed or that were begun
    /// as another, and looks how long its requests have waited.
    pub(super) fn sweep(&self, now_ms: u64, idle_ms: u64) {
        if let Some(slots) = &self.slots {
            let (count, oldest_ms) = self.stats.unheard(slots.answered_ms());
            slots.look(count, oldest_ms.unwrap_or(now_ms), now_ms);
        }
        let (mut cx, wanted) = (Context::from_waker(Waker::noop()), self.is_wanted());
        self.idle.borrow_mut().retain(|(since_ms, link)| {
            let is_young = now_ms.saturating_sub(*since_ms) < idle_ms;
            !wanted && is_young && self.is_of_now(link) && !link.is_stale(&mut cx)
        });
    }
}

/// What a server is called, by its address as configured.
pub(crate) fn label(address: &model::ServerAddress) -> Arc<str> {
    address.to_string().into()
}
