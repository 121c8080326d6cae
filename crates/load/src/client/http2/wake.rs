//! What wants to be polled: a list that wakers write and the event loop reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// Who wants to be polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// A link, by its place in the slab.
    Link(usize),
    Stream(usize),
}

/// Those of one thread; each stands in it once.
#[derive(Debug, Default)]
pub(crate) struct WakeList(Mutex<Vec<Woken>>);

impl WakeList {
    /// Exchanges the list for an empty one.
    pub(crate) fn swap(&self, other: &mut Vec<Woken>) {
        std::mem::swap(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
            other,
        );
    }

    pub(crate) fn is_empty(&self) -> bool {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.is_empty()
    }
}

/// Puts one of them on the list.
#[derive(Debug)]
pub(crate) struct WakeTarget {
    who: Woken,
    list: Arc<WakeList>,
    rung: AtomicBool,
}

impl WakeTarget {
    pub(crate) fn new(who: Woken, list: &Arc<WakeList>) -> (Arc<WakeTarget>, Waker) {
        let target = Arc::new(WakeTarget {
            who,
            list: list.clone(),
            rung: AtomicBool::new(false),
        });
        (target.clone(), Waker::from(target))
    }

    /// It may ring again: whom it stands for is polled now.
    pub(crate) fn rearm(&self) {
        self.rung.store(false, Ordering::Relaxed);
    }
}

impl Wake for WakeTarget {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::Relaxed) {
            let mut list = self.list.0.lock().unwrap_or_else(PoisonError::into_inner);
            list.push(self.who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wakes_twice_stands_once_in_the_list() {
        let list = Arc::default();
        let (target, waker) = WakeTarget::new(Woken::Stream(7), &list);
        waker.wake_by_ref();
        waker.wake_by_ref();
        let mut woken = Vec::new();
        list.swap(&mut woken);
        assert_eq!(woken, [Woken::Stream(7)]);
        assert!(list.is_empty());
        target.rearm();
        waker.wake();
        assert!(!list.is_empty());
    }
}
