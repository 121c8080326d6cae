//! `Cache` against a model, and locks without a runtime.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};

use super::lock::{Entered, Lock, Locks, Stake, Turn};
use super::pool::{Bounds, Pool, Refusal};

const ROOMY: Bounds = Bounds {
    bytes: 1 << 20,
    entries: 10_000,
};
const NARROW: Bounds = Bounds {
    bytes: 64,
    entries: 6,
};

#[derive(Debug, Clone)]
enum Step {
    Set(u8, usize),
    Get(u8),
    Add(u8, i64),
    Delete(u8),
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<u8>(), 0..40_usize).prop_map(|(key, size)| Step::Set(key % 40, size)),
        4 => any::<u8>().prop_map(|key| Step::Get(key % 40)),
        2 => (any::<u8>(), any::<i64>()).prop_map(|(key, by)| Step::Add(key % 40, by)),
        3 => any::<u8>().prop_map(|key| Step::Delete(key % 40)),
        1 => proptest::strategy::Just(Step::Clear),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn with_room_a_namespace_does_what_a_map_does(steps in steps()) {
        let pool = Pool::default();
        let namespace = pool.open(b"n").expect("a namespace");
        let mut model: HashMap<u8, Vec<u8>> = HashMap::new();
        for step in steps {
            match step {
                Step::Set(key, size) => {
                    namespace.set(&[key], &vec![b'x'; size], ROOMY).expect("room");
                    model.insert(key, vec![b'x'; size]);
                }
                Step::Get(key) => {
                    let mut out = Vec::new();
                    let found = namespace.get(&[key], &mut out).then_some(out);
                    assert_eq!(found.as_ref(), model.get(&key));
                }
                Step::Add(key, by) => {
                    let before = model.get(&key).map_or(Ok(0_i64), |text| {
                        String::from_utf8_lossy(text).parse().map_err(|_| Refusal::NotANumber)
                    });
                    let sum = before.and_then(|n| n.checked_add(by).ok_or(Refusal::OutOfRange));
                    assert_eq!(namespace.add(&[key], by, ROOMY), sum);
                    if let Ok(sum) = sum {
                        model.insert(key, sum.to_string().into_bytes());
                    }
                }
                Step::Delete(key) => {
                    assert_eq!(namespace.delete(&[key]), model.remove(&key).is_some());
                }
                Step::Clear => {
                    namespace.clear();
                    model.clear();
                }
            }
            let bytes: usize = model.values().map(|value| 1 + value.len()).sum();
            assert_eq!(namespace.used().now(), (bytes, model.len()));
            assert_eq!(namespace.len(), model.len());
        }
        let mut keys: Vec<Vec<u8>> = model.keys().map(|key| vec![*key]).collect();
        let mut known = namespace.keys();
        keys.sort();
        known.sort();
        assert_eq!(known, keys);
    }

    #[test]
    fn without_room_it_forgets_and_never_lies(steps in steps()) {
        let pool = Pool::default();
        let namespace = pool.open(b"n").expect("a namespace");
        let mut last: HashMap<u8, Vec<u8>> = HashMap::new();
        for step in steps {
            match step {
                Step::Set(key, size) => {
                    // Alone in the pool, whatever fits into it at all finds room.
                    namespace.set(&[key], &vec![key; size], NARROW).expect("room");
                    last.insert(key, vec![key; size]);
                    let mut out = Vec::new();
                    assert!(namespace.get(&[key], &mut out));
                }
                Step::Get(key) | Step::Add(key, _) => {
                    let mut out = Vec::new();
                    if namespace.get(&[key], &mut out) {
                        assert_eq!(Some(&out), last.get(&key));
                    }
                }
                Step::Delete(key) => {
                    namespace.delete(&[key]);
                    last.remove(&key);
                }
                Step::Clear => {
                    namespace.clear();
                    last.clear();
                }
            }
            let (bytes, entries) = namespace.used().now();
            assert!(bytes <= NARROW.bytes && entries <= NARROW.entries);
            assert_eq!(entries, namespace.len());
        }
    }
}

#[test]
fn what_is_dropped_gives_its_room_back() {
    let pool = Pool::default();
    let namespace = pool.open(b"n").expect("a namespace");
    namespace.set(b"a", b"1", ROOMY).expect("room");
    pool.drop_namespace(b"n");
    assert_eq!(namespace.used().now(), (0, 0));
    namespace
        .set(b"a", b"2", ROOMY)
        .expect("it is still in use");
    let same = pool.open(b"n").expect("the same");
    assert_eq!(same.len(), 1);
    drop((namespace, same));
    let kept = pool.open(b"n").expect("kept though no object is left");
    assert_eq!(kept.len(), 1);
}

#[test]
fn names_are_bounded_and_those_of_nobody_make_room() {
    let locks = Locks::default();
    let kept = locks.named(b"kept").expect("a lock");
    for number in 0..10_000 {
        let name = format!("{number}");
        assert!(locks.named(name.as_bytes()).is_some(), "{number}");
    }
    let again = locks.named(b"kept").expect("the same");
    assert!(Arc::ptr_eq(&kept, &again));
    let names: Vec<_> = (0..10_000)
        .map(|n: u32| locks.named(&n.to_be_bytes()))
        .collect();
    assert!(names.last().is_some_and(Option::is_none));
}

/// Takes a lock for a request that has no number yet.
fn taken(lock: &Arc<Lock>, serial: u64) -> Stake {
    let stake = lock.stake();
    assert_eq!(lock.try_enter(stake.ticket(), serial, 1), Entered::Now);
    stake
}

#[test]
fn a_waiter_is_passed_a_number_of_times_and_then_handed_the_lock() {
    let lock = Arc::<Lock>::default();
    let mut context = Context::from_waker(Waker::noop());
    let mut held = taken(&lock, 1);
    let waiting = lock.stake();
    let mut turn = lock.queue(waiting.ticket(), 2, 1);
    let poll = |turn: &mut Turn, context: &mut Context<'_>| std::pin::Pin::new(turn).poll(context);
    assert_eq!(poll(&mut turn, &mut context), Poll::Pending);
    let mut passed = 0;
    loop {
        drop(held);
        let other = lock.stake();
        match lock.try_enter(other.ticket(), 3, 1) {
            Entered::Now => held = other,
            entered => {
                assert_eq!(entered, Entered::Busy);
                break;
            }
        }
        passed += 1;
        assert!(passed < 100, "it is never handed over");
    }
    assert!(passed > 0);
    assert_eq!(poll(&mut turn, &mut context), Poll::Ready(()));
    assert_eq!(lock.held_by(2), Some(1));
}

#[test]
fn a_lock_handed_to_one_who_has_gone_goes_to_the_next() {
    let lock = Arc::<Lock>::default();
    let mut context = Context::from_waker(Waker::noop());
    let held = taken(&lock, 1);
    let (second, third) = (lock.stake(), lock.stake());
    let mut gone = lock.queue(second.ticket(), 2, 1);
    let mut next = lock.queue(third.ticket(), 3, 1);
    assert_eq!(
        std::pin::Pin::new(&mut gone).poll(&mut context),
        Poll::Pending
    );
    assert_eq!(
        std::pin::Pin::new(&mut next).poll(&mut context),
        Poll::Pending
    );
    drop(held);
    drop(gone);
    assert_eq!(
        std::pin::Pin::new(&mut next).poll(&mut context),
        Poll::Ready(())
    );
    drop((second, third));
    drop(taken(&lock, 4));
}
