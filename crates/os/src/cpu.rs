//! CPU time of a thread or a process, and how long the machine was suspended, read without a system call where the
//! kernel's vDSO allows.
//!
//! Asked by way of the C library: what looks for the vDSO by itself does not find it in a profiler.

use std::time::Duration;

/// CPU time the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// The calling thread's CPU time, lap by lap: one look at the clock, which costs a call of the kernel, ends a lap and
/// begins the next.
#[derive(Debug)]
pub struct CpuLaps {
    begun_ns: u64,
}

impl CpuLaps {
    /// Begins the first lap. For the calling thread alone.
    pub fn begin() -> Self {
        Self {
            begun_ns: thread_cpu_ns(),
        }
    }

    /// Ends a lap, and says what it took, in nanoseconds.
    pub fn lap_ns(&mut self) -> u64 {
        let now_ns = thread_cpu_ns();
        now_ns.saturating_sub(std::mem::replace(&mut self.begun_ns, now_ns))
    }
}

/// CPU time all threads of the process have used, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// CPU time all threads of another process have used, those that ended included, in nanoseconds.
/// `None` where there is no such process any more; one that was not waited for is still there.
///
/// Every process has a clock of its own that anybody may read: one call, where `/proc` would need
/// one file for each thread and forget the threads that ended.
pub fn process_cpu_ns_of(pid: u32) -> Option<u64> {
    /// What the low bits of such a clock's number say: all that the scheduler gave the process.
    const SCHEDULED: i32 = 2;
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    let clock: libc::clockid_t = (!pid).checked_mul(8)? | SCHEDULED;
    nanoseconds(clock)
}

/// What the scheduler gave a thread of this process, and how long that waited for it, so far. `None`
/// where there is no such thread, or the kernel does not tell.
pub fn thread_schedule(thread: u32) -> Option<(Duration, Duration)> {
    let path = format!("/proc/self/task/{thread}/schedstat");
    let text = std::fs::read_to_string(path).ok()?;
    let mut numbers = text.split_ascii_whitespace();
    let mut next = || numbers.next()?.parse().ok().map(Duration::from_nanos);
    Some((next()?, next()?))
}

/// Microseconds of `CLOCK_MONOTONIC`, which is what service managers expect in a notification.
pub fn monotonic_us() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC).unwrap_or(0) / 1_000
}

/// How long the machine has been suspended since it was started, in nanoseconds; a few more or less each time.
pub fn suspended_ns() -> u64 {
    let steady = nanoseconds(libc::CLOCK_MONOTONIC).unwrap_or(0);
    nanoseconds(libc::CLOCK_BOOTTIME).map_or(0, |all| all.saturating_sub(steady))
}

/// `None` where there is no such clock.
fn nanoseconds(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is ours and lives through the call, which writes to nothing else; a
    // clock that is not there is an error.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u64::try_from(time.tv_nsec).ok()?;
    (answer == 0).then(|| {
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_work_moves_the_clocks_forward() {
        let (wall, process, thread) = (monotonic_us(), process_cpu_ns(), thread_cpu_ns());
        let mut sum = 0_u64;
        while thread_cpu_ns() < thread + 2_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        // The kernel accounts for each clock by itself: half is proof enough that they run.
        assert!(process_cpu_ns() >= process + 1_000_000);
        assert!(monotonic_us() >= wall + 1_000);
    }

    #[test]
    fn what_the_scheduler_gave_a_thread_grows_with_its_work() {
        let own = crate::process::thread_id();
        let Some((before, _)) = thread_schedule(own) else {
            return testkit::lacks(
                "schedstat",
                "the kernel does not tell what it gave a thread",
            );
        };
        let until = thread_cpu_ns() + 5_000_000;
        while thread_cpu_ns() < until {
            std::hint::spin_loop();
        }
        // The kernel brings it up to date when the thread goes to sleep.
        std::thread::sleep(Duration::from_millis(1));
        let (after, _) = thread_schedule(own).expect("as before");
        assert!(
            after >= before + Duration::from_millis(4),
            "{before:?} {after:?}"
        );
        assert_eq!(thread_schedule(u32::MAX), None);
    }

    #[test]
    fn another_process_is_read_until_it_is_waited_for() {
        let own = process_cpu_ns();
        assert!(process_cpu_ns_of(std::process::id()).is_some_and(|time| time >= own));
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done"])
            .spawn()
            .expect("a shell starts");
        let options =
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).expect("it ends");
        let spent = process_cpu_ns_of(child.id()).expect("it was not waited for");
        assert!(spent > 1_000_000, "{spent} ns");
        child.wait().expect("it is ours");
        for pid in [child.id(), 0, u32::MAX, i32::MAX as u32, 1 << 29] {
            assert_eq!(process_cpu_ns_of(pid), None, "{pid}");
        }
    }
}
