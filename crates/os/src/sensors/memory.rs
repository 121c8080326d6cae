//! Memory and swapping: `/proc/meminfo`, `/proc/vmstat`.

/// The machine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All of it, in KiB.
    pub(crate) total_kib: u64,
    /// What programs can still have without swapping, as the kernel estimates, in KiB.
    pub(crate) available_kib: u64,
}

impl Memory {
    /// The share that is available, from 0 to 1.
    pub fn available_share(&self) -> f64 {
        let share = self.available_kib as f64 / self.total_kib as f64;
        share.clamp(0.0, 1.0)
    }
}

/// What the text of `/proc/meminfo` says.
pub fn memory(text: &str) -> Option<Memory> {
    let of = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        let mut words = line.split_ascii_whitespace();
        let number: u64 = words.next()?.parse().ok()?;
        (words.next() == Some("kB")).then_some(number)
    };
    let memory = Memory {
        total_kib: of("MemTotal:")?,
        available_kib: of("MemAvailable:")?,
    };
    (memory.total_kib > 0).then_some(memory)
}

/// Pages read back from swap since the machine started, in the text of `/proc/vmstat`.
pub fn pages_swapped_in(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix("pswpin "))?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_its_names() {
        for (text, expected) in [
            (
                "MemTotal:       24682416 kB\nMemFree:         5536716 kB\nMemAvailable:   22534040 kB\n",
                Some((24_682_416, 22_534_040)),
            ),
            ("MemAvailable: 1 kB\nMemTotal: 2 kB", Some((2, 1))),
            // Before Linux 3.14 there was no estimate.
            ("MemTotal: 2 kB\nMemFree: 1 kB\n", None),
            ("MemTotal: 0 kB\nMemAvailable: 0 kB\n", None),
            ("MemTotal: 2 MB\nMemAvailable: 1 MB\n", None),
            ("MemTotal: 2\nMemAvailable: 1\n", None),
            ("MemTotal: -2 kB\nMemAvailable: 1 kB\n", None),
            ("MemTotal:\nMemAvailable:\n", None),
            ("", None),
        ] {
            let found = memory(text).map(|it| (it.total_kib, it.available_kib));
            assert_eq!(found, expected, "{text:?}");
        }
        let more_than_all = memory("MemTotal: 2 kB\nMemAvailable: 3 kB\n").expect("memory");
        assert!((more_than_all.available_share() - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn swapped_pages_are_found_by_their_name() {
        for (text, expected) in [
            ("pgpgin 9\npswpin 41\npswpout 7\n", Some(41)),
            ("pswpin  41 \n", Some(41)),
            ("pswpinx 41\n", None),
            ("pswpin\n", None),
            ("pswpin 0x29\n", None),
            ("", None),
        ] {
            assert_eq!(pages_swapped_in(text), expected, "{text:?}");
        }
    }
}
