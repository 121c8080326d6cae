//! What the texts of /proc say. Pure functions: a text in, figures out; whatever is not understood
//! is left out.

use std::time::Duration;

use super::clock::of_ticks;

/// A process, from `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: u32,
    /// CPU time, its ended threads included.
    pub(super) own_ticks: u64,
    /// CPU time of the children it waited for, and of theirs.
    pub(super) reaped_ticks: u64,
    pub(super) threads: u64,
    /// When it began, since the machine did: with the number, what tells it from every other.
    pub(super) start_ticks: u64,
}

/// The name of the process may hold anything, brackets and line ends included: what counts stands
/// after the last bracket.
pub(super) fn stat(bytes: &[u8]) -> Option<Stat> {
    let name_end = bytes.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(bytes.get(name_end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
    let number = |at: usize| fields.get(at).and_then(|field| unsigned(field));
    Some(Stat {
        parent: number(1)?.try_into().ok()?,
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

/// The machine's work, from `/proc/stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) cores: u64,
    pub(super) busy: Duration,
    pub(super) interrupts: Duration,
    pub(super) interrupts_are_apart: bool,
    pub(super) idle: Duration,
    pub(super) steal: Duration,
    pub(super) started: u64,
}

/// A kernel that does not time its interrupts charges them to whatever process they interrupt. It
/// has no time of hard interrupts at all, which is how it is told from the others.
pub(super) fn work(text: &str) -> Work {
    let mut work = Work::default();
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
