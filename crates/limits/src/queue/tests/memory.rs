//! What a waiter and an idle flow cost in memory.
//!
//! `cargo test -p limits --release memory -- --ignored --nocapture` prints it.

use super::waiter;
use crate::queue::{Next, Queue, Share};
use crate::time::Time;

/// Bytes in memory, as the system counts them.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

#[test]
#[ignore = "prints figures that depend on the allocator"]
fn memory_of_waiters_and_idle_flows() {
    let before = resident();
    let mut queue = Queue::new(Share::Clients, Time::ZERO);
    for id in 0..1_000_000 {
        queue.push(Time(id), waiter(id, id / 1_000_000, 0, 0));
    }
    println!("a waiter: {} bytes", (resident() - before) / 1_000_000);

    let before = resident();
    let mut queues: Vec<Queue> = (0..100)
        .map(|_| Queue::new(Share::Clients, Time::ZERO))
        .collect();
    for queue in &mut queues {
        for id in 0..1_000 {
            queue.push(Time(id), waiter(id, 0, 0, id as u32));
            assert!(matches!(queue.next(Time(id)), Some(Next::Serve(..))));
        }
    }
    println!("an idle flow: {} bytes", (resident() - before) / 100_000);
    println!("an empty queue: {} bytes", size_of::<Queue>());
}
