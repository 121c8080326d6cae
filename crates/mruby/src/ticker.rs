//! The clock that ends runaways: a timer on the thread's own CPU time.
//!
//! One a thread, for as long as an interpreter is open on it. Its period is a millisecond of CPU
//! time; the kernel rounds up to its own tick.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use std::rc::{Rc, Weak};

use crate::raw;

const PERIOD_NS: u64 = 1_000_000;

/// Ticks on this thread while it lives.
#[derive(Debug)]
pub(crate) struct Ticker {
    timer: *mut c_void,
}

thread_local! {
    static TICKER: RefCell<Weak<Ticker>> = const { RefCell::new(Weak::new()) };
}

impl Ticker {
    /// This thread's; none when the kernel has no timer to give.
    pub(crate) fn of_this_thread() -> Option<Rc<Self>> {
        TICKER.with_borrow_mut(|known| {
            if let Some(ticker) = known.upgrade() {
                return Some(ticker);
            }
            let mut timer = ptr::null_mut();
            // SAFETY: `timer` is written only when the answer is 0.
            let started = unsafe { raw::ngy_ticker_start(PERIOD_NS, &raw mut timer) } == 0;
            let ticker = started.then(|| Rc::new(Self { timer }))?;
            *known = Rc::downgrade(&ticker);
            Some(ticker)
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // SAFETY: the timer this was made with, deleted once.
        unsafe { raw::ngy_ticker_stop(self.timer) };
    }
}
