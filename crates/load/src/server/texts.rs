//! What the texts of /proc say. Pure functions: a text in, figures out; whatever is not understood
//! is left out.

use std::time::Duration;

use super::clock::of_ticks;
use super::reading::MachineReading;

/// A process, from `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: u32,
    /// Whether it is on its way out: some of what is told of it holds no more.
    pub(super) is_exiting: bool,
    /// CPU time, its ended threads included.
    pub(super) own_ticks: u64,
    /// CPU time of the children it waited for, and of theirs.
    pub(super) reaped_ticks: u64,
    pub(super) threads: u64,
    /// When it began, since the machine did: with the number, what tells it from every other.
    pub(super) start_ticks: u64,
}

/// The bit of a process's flags that is set when it begins to end.
const EXITING: u64 = 4;

/// The name of the process may hold anything, brackets and line ends included: what counts stands
/// after the last bracket.
pub(super) fn stat(bytes: &[u8]) -> Option<Stat> {
    let name_end = bytes.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(bytes.get(name_end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
    let number = |at: usize| fields.get(at).and_then(|field| unsigned(field));
    Some(Stat {
        parent: number(1)?.try_into().ok()?,
        is_exiting: number(6)? & EXITING != 0,
        own_ticks: number(11)?.saturating_add(number(12)?),
        reaped_ticks: number(13)?.saturating_add(number(14)?),
        threads: number(17)?,
        start_ticks: number(19)?,
    })
}

/// Numbers that the kernel writes with a sign though they are none.
fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix('-') {
        Some(rest) => rest.parse::<u64>().ok().map(|_| 0),
        None => text.parse().ok(),
    }
}

/// Nanoseconds a thread waited for a core, from `schedstat`.
pub(super) fn run_queue_ns(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Of a process or thread, from `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) peak_bytes: u64,
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
}

/// The name stands in it too, but the kernel writes its line ends as `\n`.
pub(super) fn status(text: &[u8]) -> Status {
    let text = String::from_utf8_lossy(text);
    let mut found = Status::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let number = || value.split_ascii_whitespace().next()?.parse::<u64>().ok();
        let place = match key {
            "VmHWM" => &mut found.peak_bytes,
            "voluntary_ctxt_switches" => &mut found.voluntary,
            "nonvoluntary_ctxt_switches" => &mut found.involuntary,
            _ => continue,
        };
        *place = number().unwrap_or(0);
    }
    found.peak_bytes = found.peak_bytes.saturating_mul(1024);
    found
}

/// Bytes of the line `Pss:` of `smaps_rollup`.
pub(super) fn pss_bytes(text: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// The machine's work, from `/proc/stat`: all that file tells.
/// A kernel that does not time its interrupts charges them to whatever process they interrupt. It
/// has no time of hard interrupts at all, which is how it is told from the others.
pub(super) fn work(text: &str) -> MachineReading {
    let mut work = MachineReading::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("cpu") => {
                let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
                let at = |index: usize| of_ticks(ticks.get(index).copied().unwrap_or(0));
                work.busy = at(0).saturating_add(at(1)).saturating_add(at(2));
                work.idle = at(3).saturating_add(at(4));
                work.interrupts = at(5).saturating_add(at(6));
                work.interrupts_are_apart = !at(5).is_zero();
                work.steal = at(7);
            }
            Some("processes") => {
                work.started = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            }
            Some(word) if word.starts_with("cpu") => work.cores += 1,
            _ => {}
        }
    }
    work
}

/// Time some task waited, from a file of `/proc/pressure`.
pub(super) fn pressure(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let mut words = line.split_ascii_whitespace();
    let total = words.find_map(|word| word.strip_prefix("total="))?;
    Some(Duration::from_micros(total.parse().ok()?))
}

/// A value of a two-line table such as `/proc/net/snmp`: names in one line, values in the next,
/// both after the same word.
pub(super) fn tabled(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| {
        let (word, rest) = line.split_once(':')?;
        (word == group).then(|| rest.split_ascii_whitespace())
    });
    let (mut names, mut values) = (lines.next()?, lines.next()?);
    let at = names.position(|found| found == name)?;
    values.nth(at)?.parse().ok()
}

/// A value of `/proc/net/sockstat`, names and values in turn after a word.
pub(super) fn paired(text: &str, group: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(group))?;
    let mut words = line.strip_prefix(':')?.split_ascii_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

/// The first word of `/proc/loadavg`.
pub(super) fn load1(text: &str) -> Option<f64> {
    let load: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    load.is_finite().then_some(load)
}

/// A TCP socket, from a line of `/proc/net/tcp` or `tcp6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) port: u16,
    pub(super) state: u8,
    pub(super) inode: u64,
}

/// A line of `/proc/net/tcp`; the heading is none.
pub(super) fn socket(line: &str) -> Option<Socket> {
    let mut words = line.split_ascii_whitespace();
    let local = words.nth(1)?;
    let state = words.nth(1)?;
    let (_, port) = local.rsplit_once(':')?;
    Some(Socket {
        port: u16::from_str_radix(port, 16).ok()?,
        state: u8::from_str_radix(state, 16).ok()?,
        inode: words.nth(5)?.parse().ok()?,
    })
}

/// State of a listening socket.
pub(super) const LISTEN: u8 = 10;

/// What people call a state of TCP.
pub(super) fn state_name(state: u8) -> &'static str {
    const NAMES: [&str; 13] = [
        "other",
        "ESTABLISHED",
        "SYN_SENT",
        "SYN_RECV",
        "FIN_WAIT1",
        "FIN_WAIT2",
        "TIME_WAIT",
        "CLOSE",
        "CLOSE_WAIT",
        "LAST_ACK",
        "LISTEN",
        "CLOSING",
        "SYN_RECV",
    ];
    NAMES.get(usize::from(state)).copied().unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str =
        "S 7 42 42 0 -1 4194560 1 2 3 4 110 20 3 4 20 0 9 0 1234 5678 9 18446744073709551615";

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let expected = Stat {
            parent: 7,
            is_exiting: false,
            own_ticks: 130,
            reaped_ticks: 7,
            threads: 9,
            start_ticks: 1234,
        };
        for name in [
            "nginx",
            "a b",
            "a) R 1 (b",
            ")",
            "x\n1 (y) S 1 1",
            "",
            "tab\there",
        ] {
            let line = format!("42 ({name}) {REST}\n");
            assert_eq!(stat(line.as_bytes()), Some(expected), "{name:?}");
        }
        let mut bytes = b"42 (\xff\xfe) ".to_vec();
        bytes.extend_from_slice(REST.as_bytes());
        assert_eq!(stat(&bytes), Some(expected));
    }

    #[test]
    fn a_text_cut_anywhere_is_no_process_and_no_harm() {
        let line = format!("42 (a) {REST}");
        let needed = line.find(" 5678").expect("it follows the start");
        for length in 0..line.len() {
            let found = stat(&line.as_bytes()[..length]);
            // A number cut within its digits is another number; then only the start is wrong.
            assert!(found.is_none() || length > needed - 4, "{length} {found:?}");
        }
        for hostile in ["42 (a) S", "42 (a) S x y", "()", ") ) )", "42 a S 1"] {
            assert_eq!(stat(hostile.as_bytes()), None, "{hostile}");
        }
        let exiting = line.replace(" 4194560 ", " 4194564 ");
        assert!(stat(exiting.as_bytes()).is_some_and(|stat| stat.is_exiting));
        let negative = line.replace(" 3 4 20 0 9", " -3 -4 20 0 9");
        assert_eq!(
            stat(negative.as_bytes()).map(|stat| stat.reaped_ticks),
            Some(0)
        );
        let huge = line.replace(" 110 20 ", " 18446744073709551615 18446744073709551615 ");
        assert_eq!(
            stat(huge.as_bytes()).map(|stat| stat.own_ticks),
            Some(u64::MAX)
        );
        let beyond = line.replace(" 110 20 ", " 99999999999999999999 20 ");
        assert_eq!(stat(beyond.as_bytes()), None);
    }

    #[test]
    fn a_status_is_read_line_by_line() {
        let text = b"Name:\tx\\nVmHWM: 9 kB\nVmHWM:\t    1800 kB\nThreads:\t1\n\
            voluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let expected = Status {
            peak_bytes: 1800 * 1024,
            voluntary: 12,
            involuntary: 3,
        };
        assert_eq!(status(text), expected);
        assert_eq!(
            status(b"VmHWM:\n:\n\xff:\xff\nvoluntary_ctxt_switches: -1"),
            Status::default()
        );
        let huge = status(b"VmHWM: 18446744073709551615 kB");
        assert_eq!(huge.peak_bytes, u64::MAX);
    }

    #[test]
    fn small_files_are_read_or_left_out() {
        assert_eq!(run_queue_ns(b"123 456 7\n"), Some(456));
        assert_eq!(run_queue_ns(b"123"), None);
        assert_eq!(run_queue_ns(b"\xff 1 2"), None);
        assert_eq!(
            pss_bytes("55 [rollup]\nRss: 1800 kB\nPss:  299 kB\nPss_Dirty: 1 kB"),
            Some(299 * 1024)
        );
        assert_eq!(pss_bytes("Pss_Dirty: 1 kB\n"), None);
        assert_eq!(load1("0.08 0.19 0.22 1/100 13985"), Some(0.08));
        for text in ["", "x", "inf", "NaN"] {
            assert_eq!(load1(text), None, "{text}");
        }
        let psi = "some avg10=53.00 avg60=26.82 avg300=12.20 total=56359713\n\
                   full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure(psi), Some(Duration::from_micros(56_359_713)));
        for text in ["", "full total=7", "some avg10=1", "some total=x"] {
            assert_eq!(pressure(text), None, "{text}");
        }
    }

    #[test]
    fn the_machines_work_is_read_with_and_without_times_of_interrupts() {
        let text = "cpu  100 10 50 1000 5 0 6 20 30 0\ncpu0 1 2\ncpu1 1 2\nintr 1 2 3\n\
                    ctxt 99\nprocesses 4711\nprocs_running 1\n";
        let seconds = |ticks: u64| Duration::from_millis(ticks * 10);
        let expected = MachineReading {
            cores: 2,
            busy: seconds(160),
            interrupts: seconds(6),
            interrupts_are_apart: false,
            idle: seconds(1_005),
            steal: seconds(20),
            started: 4_711,
            ..MachineReading::default()
        };
        assert_eq!(work(text), expected);
        let apart = work("cpu 1 1 1 1 1 4 6 1\ncpu0\n");
        assert!(apart.interrupts_are_apart && apart.interrupts == seconds(10));
        assert_eq!(work(""), MachineReading::default());
        let huge = work("cpu 18446744073709551615 18446744073709551615 9 9 9 9 9 9");
        assert!(huge.busy > Duration::from_secs(1));
    }

    #[test]
    fn values_are_found_in_tables() {
        let text =
            "Ip: A B\nIp: 1 2\nTcp: RtoAlgorithm MaxConn RetransSegs InErrs\nTcp: 1 -1 306 0\n";
        assert_eq!(tabled(text, "Tcp", "RetransSegs"), Some(306));
        assert_eq!(tabled(text, "Tcp", "MaxConn"), None);
        assert_eq!(tabled(text, "Udp", "RetransSegs"), None);
        assert_eq!(tabled("Tcp: RetransSegs\n", "Tcp", "RetransSegs"), None);
        assert_eq!(
            tabled("Tcp: A RetransSegs\nTcp: 1\n", "Tcp", "RetransSegs"),
            None
        );
        let text = "sockets: used 18\nTCP: inuse 2 orphan 0 tw 12 alloc 2 mem 0\n";
        assert_eq!(paired(text, "TCP", "tw"), Some(12));
        for text in ["TCP: inuse 2 tw", "TCP6: tw 3", "TCP tw 3", ""] {
            assert_eq!(paired(text, "TCP", "tw"), None, "{text}");
        }
    }

    #[test]
    fn sockets_are_read_line_by_line() {
        let four = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0";
        let expected = Socket {
            port: 8080,
            state: LISTEN,
            inode: 4711,
        };
        assert_eq!(socket(four), Some(expected));
        let six = "0: 00000000000000000000000001000000:1F90 0:0 06 0:0 0:0 0 0 0 0 3 0";
        assert_eq!(
            socket(six).map(|it| state_name(it.state)),
            Some("TIME_WAIT")
        );
        for line in [
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt",
            "0: 0100007F 0:0 0A 0:0 0:0 0 0 0 1",
            "0: 0100007F:1F901 0:0 0A 0:0 0:0 0 0 0 1",
            "0: 0100007F:1F90 0:0 0A",
            "",
        ] {
            assert_eq!(socket(line), None, "{line}");
        }
        assert_eq!(state_name(255), "other");
    }
}
