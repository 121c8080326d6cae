//! What the threads of a load share: the plan, its clock, and a few words they all read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::http2::Head;
use super::live::Live;
use super::order::Routes;
use super::plan::{Opening, Pace, Plan, Protocol};
use super::pulse::{Pulse, nanoseconds};
use super::tls::TlsTarget;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) live: &'a Live,
    pub(crate) routes: Routes,
    /// TLS of each endpoint, where it has any.
    pub(crate) tls: Vec<Option<TlsTarget>>,
    /// The requests in HTTP/2, where that is spoken.
    pub(crate) heads: Vec<Head>,
    pub(crate) threads: usize,
    pub(crate) pulse: Pulse,
    pub(crate) began: Instant,
    /// When nothing more is sent.
    pub(crate) end_ns: u64,
    /// Where rising numbers begin.
    pub(crate) first_number: u64,
    /// Requests begun, where their number is limited.
    issued: AtomicU64,
    /// Whether connections other than the first may begin.
    gate: AtomicBool,
    /// Length of the first body; `u64::MAX` before there is one.
    first_length: AtomicU64,
}

impl<'a> Shared<'a> {
    /// Fails where TLS or HTTP/2 cannot be spoken as the plan wants it.
    pub(crate) fn new(plan: &'a Plan, live: &'a Live, routes: Routes) -> Result<Self, String> {
        let threads = plan.threads.min(plan.connections);
        let ramp = match plan.pace {
            Pace::Closed => std::time::Duration::ZERO,
            Pace::Open { ramp, .. } => ramp,
        };
        let alone = plan.opening == Opening::FirstAlone && plan.pace == Pace::Closed;
        let tls = routes.endpoints.iter().map(|endpoint| {
            let new = |tls| TlsTarget::new(tls, plan.protocol);
            endpoint.tls.as_ref().map(new).transpose()
        });
        let requests = plan.requests.iter();
        let http2 = requests.filter(|_| plan.protocol != Protocol::Http1);
        let heads = http2.map(|request| Head::of(request, &request.bytes));
        Ok(Shared {
            heads: heads.collect::<Result<_, _>>()?,
            plan,
            live,
            tls: tls.collect::<Result<_, _>>()?,
            routes,
            threads,
            pulse: Pulse::new(threads, plan.warm_up, ramp),
            began: Instant::now(),
            end_ns: plan.end.after.map_or(u64::MAX, nanoseconds),
            first_number: fastrand::u64(..),
            issued: AtomicU64::new(0),
            gate: AtomicBool::new(!alone),
            first_length: AtomicU64::new(u64::MAX),
        })
    }

    /// Nanoseconds since the load began.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.began.elapsed())
    }

    /// Takes the right to send one more request.
    #[inline]
    pub(crate) fn issue(&self) -> bool {
        match self.plan.end.requests {
            None => true,
            Some(most) => self.issued.fetch_add(1, Ordering::Relaxed) < most,
        }
    }

    /// The length bodies are compared with: of the first that was whole.
    #[inline]
    pub(crate) fn first_length(&self, length: u64) -> u64 {
        match self.first_length.load(Ordering::Relaxed) {
            u64::MAX => {
                let swapped = self.first_length.compare_exchange(
                    u64::MAX,
                    length,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                swapped.err().unwrap_or(length)
            }
            first => first,
        }
    }

    /// Lets the other connections begin.
    #[inline]
    pub(crate) fn open_gate(&self) {
        // Reading first keeps the line shared among the threads' cores.
        if !self.gate_is_open() {
            self.gate.store(true, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn gate_is_open(&self) -> bool {
        self.gate.load(Ordering::Acquire)
    }
}
