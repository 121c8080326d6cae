//! Waiting with a deadline, and ports nobody listens on.
//!
//! The idea: a test never sleeps for "long enough"; it polls for what it wants and says what was
//! missing when the deadline passed.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long what takes no time may take: also on a machine that is emulated, busy, or stands still for a while.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How long between two looks.
const POLL: Duration = Duration::from_millis(2);

/// Calls `probe` until it gives something, and once more when the deadline has passed.
///
/// # Panics
/// When it gave nothing then either; the message names `what` was awaited.
pub fn eventually<T>(deadline: Duration, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        // Asked before the look: a machine that stood still beyond the deadline gets one more.
        let late = start.elapsed() >= deadline;
        if let Some(found) = probe() {
            return found;
        }
        assert!(!late, "waited {deadline:?} in vain for {what}");
        std::thread::sleep(POLL);
    }
}

/// Makes the same attempt up to five times, until one takes less than `limit`. Whatever else the
/// machine does only ever adds to a time, so that one quick attempt shows what is possible.
///
/// # Panics
/// When none was quick; the message names `what` was tried, and the times.
pub fn quick_once(limit: Duration, what: &str, mut attempt: impl FnMut() -> Duration) {
    const ATTEMPTS: usize = 5;
    let mut times = Vec::new();
    while times.len() < ATTEMPTS {
        let took = attempt();
        if took < limit {
            return;
        }
        times.push(took);
    }
    panic!("{what}: never within {limit:?} but {times:?}");
}

/// A TCP port of 127.0.0.1 nobody listens on.
///
/// Ports come from below the range the kernel gives to outgoing connections. The trial bind does
/// not share ports, so a port another process listens on, shared or not, is never handed out.
///
/// # Panics
/// When a thousand ports in a row are taken.
#[must_use]
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let seed = std::process::id().wrapping_mul(7919) ^ clock_noise();
    for _ in 0..1_000 {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = seed.wrapping_add(turn.wrapping_mul(31)) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("below 32,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port found");
}

/// Differs between processes started in the same instant with reused ids.
fn clock_noise() -> u32 {
    use std::sync::OnceLock;
    static NOISE: OnceLock<u32> = OnceLock::new();
    *NOISE.get_or_init(|| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos())
    })
}
