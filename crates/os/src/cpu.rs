//! CPU time of a thread, read without a system call where the kernel's vDSO allows.

use rustix::time::{ClockId, clock_gettime};

/// CPU time the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// CPU time all threads of the process have used, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// Microseconds of `CLOCK_MONOTONIC`, which is what service managers expect in a notification.
pub fn monotonic_us() -> u64 {
    nanoseconds(ClockId::Monotonic) / 1_000
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
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
}
