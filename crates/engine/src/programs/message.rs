//! What a worker and the spawner say to each other: one packet each (`os::fdpass::packet_pair`).
//!
//! The idea: a worker numbers its programs as it likes; everything said about one carries that
//! number. An [`Order`] to run is answered by exactly one `Failed` or `Ended`, whoever ended the
//! program; only where it asks for that, `Started` comes before `Ended`. A close of either end means that
//! the other process has gone: the spawner then kills the worker's programs.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use os::cgroup::{Group, Limits, directory_name};

use super::plan::{decode_group, encode_group};
use crate::codec::{BadMessage, Reader, Writer};

/// Bytes in one order; what is longer cannot be sent.
pub const ORDER_BYTES_MAX: usize = 128 * 1024;
/// Bytes in one report.
pub const REPORT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of free text in a report: a detail, the name of a group.
const TEXT_BYTES_MAX: usize = 1024;

/// What a worker says.
#[derive(Debug)]
pub enum Order {
    /// Run a program; answered by `Failed` or `Ended`.
    Run(Run),
    /// Run a map's program; answered likewise.
    RunMap(RunMap),
    /// Kill a program and all in its process group. Nothing happens where it has ended.
    Kill {
        /// The worker's number for it.
        id: u64,
    },
}

/// A program to run.
#[derive(Debug)]
pub struct Run {
    /// The worker's number for it; none of its programs that has not ended may have it.
    pub id: u64,
    /// The generation whose plan is meant.
    pub generation: u64,
    /// Index of the site in the generation's model.
    pub site: u32,
    /// Index of the rule in the site.
    pub rule: u32,
    /// The group a script wants it born in, below its rule's: one name, as [`wish`] makes it.
    pub group: Option<Group>,
    /// The file, relative to the site's root, as it was resolved: no `.` nor `..`.
    pub script: Vec<u8>,
    /// Whether `Started` is to be said. Few ask: it costs both ends a turn while the program loads.
    pub says_start: bool,
    /// Its environment: names and values.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its standard input.
    pub stdin: OwnedFd,
    /// Its standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
}

/// A map's program to run. As whom, where and with what arguments says the plan.
#[derive(Debug)]
pub struct RunMap {
    /// The worker's number for it; none of its programs that has not ended may have it.
    pub id: u64,
    /// The generation whose plan is meant.
    pub generation: u64,
    /// Index of the map in the generation's model.
    pub map: u32,
    /// Its standard input.
    pub stdin: OwnedFd,
    /// Its standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
}

/// What the spawner says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The program runs: its `execve` has succeeded. Said where it was asked for.
    Started {
        /// The worker's number for it.
        id: u64,
        /// Its process id.
        pid: u32,
    },
    /// The program was not started.
    Failed {
        /// The worker's number for it.
        id: u64,
        /// Why.
        failure: Failure,
        /// What exactly, for the log.
        detail: String,
    },
    /// The program has ended.
    Ended(Ended),
}

/// How a program ended and what it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The worker's number for it.
    pub id: u64,
    /// How.
    pub end: End,
    /// Processor time of it and of the children it waited for, in microseconds.
    pub cpu_us: u64,
    /// The most memory one of these processes had resident, in bytes.
    pub peak_rss_bytes: u64,
    /// The limit it ran into, as far as can be told.
    pub limit: Option<LimitHit>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status.
    Exit(u8),
    /// By this signal.
    Signal(u8),
}

/// A limit that a program ran into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitHit {
    /// Its group was out of memory, and the kernel killed it.
    Memory {
        /// The group whose limit it was.
        group: String,
        /// The limit.
        bytes: u64,
    },
    /// Its group had as many processes as it may.
    Pids {
        /// The group whose limit it was.
        group: String,
        /// The limit.
        pids: u64,
    },
    /// It used up its processor time (`RLIMIT_CPU`).
    CpuTime {
        /// The limit.
        seconds: u64,
    },
    /// It wrote a file larger than it may (`RLIMIT_FSIZE`).
    FileSize {
        /// The limit.
        bytes: u64,
    },
}

/// Why a program was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The spawner has no plan for that generation, site and rule.
    UnknownRule,
    /// As many programs run as may.
    ProgramsFull,
    /// The file is not there.
    NotFound,
    /// The way to it is no plain path, or leads out of the site's directory.
    OutsideRoot,
    /// A symbolic link on the way that the site's policy refuses.
    SymlinkRefused,
    /// The file is no regular file.
    NotRegular,
    /// The user may not execute it, or not enter its directory.
    NotExecutable,
    /// File or directory belong neither to the site's user nor to root.
    OwnerMismatch,
    /// Somebody else may change file or directory.
    WritableByOthers,
    /// The file is setuid or setgid.
    SetuidFile,
    /// The site's user is root.
    UserIsRoot,
    /// There is no such user.
    UserUnknown,
    /// A variable that programs do not get, or one that cannot be told.
    EnvironmentRefused,
    /// The program its `#!` line names is missing.
    InterpreterMissing,
    /// Neither a binary for this machine nor a script with a `#!` line.
    NotAProgram,
    /// Its group, its user or the machine has as many processes as it may.
    PidsLimit,
    /// The machine has no memory for another process.
    NoMemory,
    /// It cannot be put into its group.
    GroupFailed,
    /// The file system it is on, or the database of users, does not answer.
    FilesSilent,
    /// Something else: see the detail.
    SpawnFailed,
}

impl Failure {
    /// Every failure with its word, in the order of their numbers in a message.
    const ALL: [(Failure, &'static str); 20] = [
        (Failure::UnknownRule, "unknown_rule"),
        (Failure::ProgramsFull, "programs_full"),
        (Failure::NotFound, "program_not_found"),
        (Failure::OutsideRoot, "outside_root"),
        (Failure::SymlinkRefused, "symlink_refused"),
        (Failure::NotRegular, "not_regular"),
        (Failure::NotExecutable, "not_executable"),
        (Failure::OwnerMismatch, "owner_mismatch"),
        (Failure::WritableByOthers, "writable_by_others"),
        (Failure::SetuidFile, "setuid_file"),
        (Failure::UserIsRoot, "user_is_root"),
        (Failure::UserUnknown, "user_unknown"),
        (Failure::EnvironmentRefused, "environment_refused"),
        (Failure::InterpreterMissing, "interpreter_missing"),
        (Failure::NotAProgram, "not_a_program"),
        (Failure::PidsLimit, "pids_limit"),
        (Failure::NoMemory, "no_memory"),
        (Failure::GroupFailed, "group_failed"),
        (Failure::FilesSilent, "files_silent"),
        (Failure::SpawnFailed, "spawn_failed"),
    ];

    /// The word for it in logs and metrics: stable.
    #[must_use]
    pub fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(failure, _)| *failure == self);
        found.map_or("spawn_failed", |(_, word)| word)
    }

    fn number(self) -> u8 {
        let at = Self::ALL.iter().position(|(failure, _)| *failure == self);
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
    }

    fn of_number(number: u8) -> Result<Failure, BadMessage> {
        let found = Self::ALL.get(usize::from(number));
        found.map_or(Err(BadMessage("unknown failure")), |(failure, _)| {
            Ok(*failure)
        })
    }
}

/// An order for whose pipes the spawner had no room: they are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unheld {
    /// The program's number.
    pub id: u64,
}

impl Unheld {
    fn decode(mut from: Reader<'_>) -> Result<Unheld, BadMessage> {
        match from.byte()? {
            1 | 3 => Ok(Unheld { id: from.number()? }),
            _ => Err(BadMessage("no descriptors belong to it")),
        }
    }
}

impl Order {
    /// Sends it, or says `WouldBlock` where the link is full.
    ///
    /// # Errors
    /// `InvalidInput` where it is larger than an order may be; otherwise the spawner has gone.
    pub fn try_send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let mut out = Writer::default();
        self.encode(&mut out);
        if out.bytes.len() > ORDER_BYTES_MAX {
            let error = "more environment than a program can be given";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        os::fdpass::try_send(link, &out.bytes, &out.fds)
    }

    /// Receives the next one, with the help of a buffer that grows to [`ORDER_BYTES_MAX`]; says
    /// `WouldBlock` where there is none.
    ///
    /// # Errors
    /// `UnexpectedEof` when the worker has gone, `InvalidData` for what is no order.
    pub fn try_recv(
        link: BorrowedFd<'_>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Result<Order, Unheld>> {
        buffer.resize(ORDER_BYTES_MAX, 0);
        let (bytes, fds) = os::fdpass::try_recv(link, buffer)?;
        let bytes = buffer.get(..bytes).unwrap_or_default();
        Ok(match fds {
            Some(fds) => Ok(Order::decode(Reader::new(bytes, fds))?),
            None => Err(Unheld::decode(Reader::new(bytes, Vec::new()))?),
        })
    }

    fn encode<'fds>(&'fds self, out: &mut Writer<'fds>) {
        match self {
            Order::Run(run) => {
                out.byte(1);
                run.encode(out);
            }
            Order::Kill { id } => {
                out.byte(2);
                out.number(*id);
            }
            Order::RunMap(run) => {
                out.byte(3);
                run.encode(out);
            }
        }
    }

    fn decode(mut from: Reader<'_>) -> Result<Order, BadMessage> {
        let order = match from.byte()? {
            1 => Order::Run(Run::decode(&mut from)?),
            2 => Order::Kill { id: from.number()? },
            3 => Order::RunMap(RunMap::decode(&mut from)?),
            _ => return Err(BadMessage("unknown kind")),
        };
        from.end()?;
        Ok(order)
    }
}

impl Order {
    /// The number of the program it is to start, if it is to start one.
    #[must_use]
    pub fn starts(&self) -> Option<u64> {
        match self {
            Order::Run(run) => Some(run.id),
            Order::RunMap(run) => Some(run.id),
            Order::Kill { .. } => None,
        }
    }
}

/// The kind of directory that groups of scripts are, in `os::cgroup::directory_name`'s words.
const WISH: &str = "script";

/// The group of this name, as an order may carry it.
#[must_use]
pub fn wish(name: &str, limits: Limits) -> Group {
    Group {
        path: vec![directory_name(WISH, name)],
        limits,
    }
}

fn decode_wish(from: &mut Reader<'_>) -> Result<Group, BadMessage> {
    let group = decode_group(from)?;
    let is_ours = |name: &String| {
        let rest = name
            .strip_prefix(WISH)
            .and_then(|rest| rest.strip_prefix('-'));
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b".-_%+".contains(&byte);
        name.len() < 255 && rest.is_some_and(|rest| rest.bytes().all(is_safe))
    };
    match group.path.as_slice() {
        [name] if is_ours(name) => Ok(group),
        _ => Err(BadMessage("no name of a script's group")),
    }
}

impl Run {
    fn encode<'fds>(&'fds self, out: &mut Writer<'fds>) {
        for number in [self.id, self.generation, self.site.into(), self.rule.into()] {
            out.number(number);
        }
        out.byte(self.group.is_some().into());
        if let Some(group) = &self.group {
            encode_group(group, out);
        }
        out.text(&self.script);
        out.byte(self.says_start.into());
        out.number(self.environment.len() as u64);
        for (name, value) in &self.environment {
            out.text(name);
            out.text(value);
        }
        for fd in [&self.stdin, &self.stdout, &self.stderr] {
            out.fd(fd);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Run, BadMessage> {
        Ok(Run {
            id: from.number()?,
            generation: from.number()?,
            site: from.small_number()?,
            rule: from.small_number()?,
            group: match from.byte()? {
                0 => None,
                _ => Some(decode_wish(from)?),
            },
            script: from.text()?.to_vec(),
            says_start: from.byte()? != 0,
            environment: from.list(|from| Ok((from.text()?.to_vec(), from.text()?.to_vec())))?,
            stdin: from.fd()?,
            stdout: from.fd()?,
            stderr: from.fd()?,
        })
    }
}

impl RunMap {
    fn encode<'fds>(&'fds self, out: &mut Writer<'fds>) {
        for number in [self.id, self.generation, self.map.into()] {
            out.number(number);
        }
        for fd in [&self.stdin, &self.stdout, &self.stderr] {
            out.fd(fd);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<RunMap, BadMessage> {
        Ok(RunMap {
            id: from.number()?,
            generation: from.number()?,
            map: from.small_number()?,
            stdin: from.fd()?,
            stdout: from.fd()?,
            stderr: from.fd()?,
        })
    }
}

impl Report {
    /// Writes it down; free text too long for a report is cut.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Report::Started { id, pid } => {
                out.byte(1);
                out.number(*id);
                out.number((*pid).into());
            }
            Report::Failed {
                id,
                failure,
                detail,
            } => {
                out.byte(2);
                out.number(*id);
                out.byte(failure.number());
                out.text_cut(detail, TEXT_BYTES_MAX);
            }
            Report::Ended(ended) => {
                out.byte(3);
                ended.encode(&mut out);
            }
        }
        out.bytes
    }

    /// Receives the next one; says `WouldBlock` where there is none.
    ///
    /// # Errors
    /// `UnexpectedEof` when the spawner has gone, `InvalidData` for what is no report.
    pub fn try_recv(link: BorrowedFd<'_>) -> io::Result<Report> {
        let mut buffer = [0; REPORT_BYTES_MAX];
        let (bytes, fds) = os::fdpass::try_recv(link, &mut buffer)?;
        let bytes = buffer.get(..bytes).unwrap_or_default();
        Ok(Report::decode(Reader::of(bytes, fds)?)?)
    }

    fn decode(mut from: Reader<'_>) -> Result<Report, BadMessage> {
        let report = match from.byte()? {
            1 => Report::Started {
                id: from.number()?,
                pid: from.small_number()?,
            },
            2 => Report::Failed {
                id: from.number()?,
                failure: Failure::of_number(from.byte()?)?,
                detail: from.string()?,
            },
            3 => Report::Ended(Ended::decode(&mut from)?),
            _ => return Err(BadMessage("unknown kind")),
        };
        from.end()?;
        Ok(report)
    }
}

impl Ended {
    fn encode(&self, out: &mut Writer<'_>) {
        out.number(self.id);
        let (kind, number) = match self.end {
            End::Exit(status) => (0, status),
            End::Signal(signal) => (1, signal),
        };
        out.byte(kind);
        out.byte(number);
        out.number(self.cpu_us);
        out.number(self.peak_rss_bytes);
        match &self.limit {
            None => out.byte(0),
            Some(limit) => limit.encode(out),
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Ended, BadMessage> {
        Ok(Ended {
            id: from.number()?,
            end: match from.byte()? {
                0 => End::Exit(from.byte()?),
                _ => End::Signal(from.byte()?),
            },
            cpu_us: from.number()?,
            peak_rss_bytes: from.number()?,
            limit: LimitHit::decode(from)?,
        })
    }
}

impl LimitHit {
    fn encode(&self, out: &mut Writer<'_>) {
        let (kind, group, value) = match self {
            LimitHit::Memory { group, bytes } => (1, group.as_str(), *bytes),
            LimitHit::Pids { group, pids } => (2, group.as_str(), *pids),
            LimitHit::CpuTime { seconds } => (3, "", *seconds),
            LimitHit::FileSize { bytes } => (4, "", *bytes),
        };
        out.byte(kind);
        out.text_cut(group, TEXT_BYTES_MAX);
        out.number(value);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Option<LimitHit>, BadMessage> {
        let kind = from.byte()?;
        if kind == 0 {
            return Ok(None);
        }
        let (group, value) = (from.string()?, from.number()?);
        Ok(Some(match kind {
            1 => LimitHit::Memory {
                group,
                bytes: value,
            },
            2 => LimitHit::Pids { group, pids: value },
            3 => LimitHit::CpuTime { seconds: value },
            4 => LimitHit::FileSize { bytes: value },
            _ => return Err(BadMessage("unknown limit")),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn run() -> Order {
        let memory = |content: &str| os::file::memfd("test", content.as_bytes()).unwrap();
        Order::Run(Run {
            id: 1,
            generation: 2,
            site: 3,
            rule: 4,
            group: Some(wish("a/b c", Limits::default())),
            script: b"cgi-bin/hello.cgi".to_vec(),
            says_start: true,
            environment: vec![
                (b"QUERY_STRING".to_vec(), b"a=\xff".to_vec()),
                (b"EMPTY".to_vec(), Vec::new()),
            ],
            stdin: memory("in"),
            stdout: memory("out"),
            stderr: memory("err"),
        })
    }

    fn reports() -> Vec<Report> {
        let ended = |end, limit| {
            Report::Ended(Ended {
                id: 9,
                end,
                cpu_us: 1_500,
                peak_rss_bytes: 1 << 20,
                limit,
            })
        };
        let group = || "tenant/site/rule".to_owned();
        let mut reports = vec![
            Report::Started {
                id: u64::MAX,
                pid: 77,
            },
            ended(End::Exit(3), None),
            ended(
                End::Signal(9),
                Some(LimitHit::Memory {
                    group: group(),
                    bytes: 5,
                }),
            ),
            ended(
                End::Exit(0),
                Some(LimitHit::Pids {
                    group: group(),
                    pids: 6,
                }),
            ),
            ended(End::Signal(24), Some(LimitHit::CpuTime { seconds: 7 })),
            ended(End::Signal(25), Some(LimitHit::FileSize { bytes: 8 })),
        ];
        reports.extend(Failure::ALL.map(|(failure, word)| Report::Failed {
            id: 5,
            failure,
            detail: word.into(),
        }));
        reports
    }

    #[test]
    fn orders_arrive_with_their_descriptors_in_order() {
        let (here, there) = os::fdpass::packet_pair().unwrap();
        let mut buffer = Vec::new();
        run().try_send(here.as_fd()).unwrap();
        Order::Kill { id: 8 }.try_send(here.as_fd()).unwrap();
        let Ok(Order::Run(arrived)) = Order::try_recv(there.as_fd(), &mut buffer).unwrap() else {
            panic!("another order arrived");
        };
        let Order::Run(sent) = run() else {
            unreachable!();
        };
        assert_eq!(
            (arrived.id, arrived.generation, arrived.site, arrived.rule),
            (1, 2, 3, 4)
        );
        assert_eq!(arrived.script, sent.script);
        assert_eq!(arrived.environment, sent.environment);
        for (fd, content) in [
            (arrived.stdin, "in"),
            (arrived.stdout, "out"),
            (arrived.stderr, "err"),
        ] {
            let found = os::file::read_whole(fd.as_fd(), 100).unwrap();
            assert_eq!(found, content.as_bytes());
        }
        let next = Order::try_recv(there.as_fd(), &mut buffer).unwrap();
        assert!(matches!(next, Ok(Order::Kill { id: 8 })));
        let none = Order::try_recv(there.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn reports_arrive() {
        let (here, there) = os::fdpass::packet_pair().unwrap();
        for report in reports() {
            os::fdpass::try_send(here.as_fd(), &report.to_bytes(), &[]).unwrap();
            assert_eq!(Report::try_recv(there.as_fd()).unwrap(), report);
        }
    }

    #[test]
    fn the_largest_order_passes_and_a_larger_one_is_refused_before_it_is_sent() {
        let (here, there) = os::fdpass::packet_pair().unwrap();
        let Order::Run(mut run) = run() else {
            unreachable!();
        };
        let bytes = |run: &Run| {
            let mut out = Writer::default();
            out.byte(1);
            run.encode(&mut out);
            out.bytes.len()
        };
        let room = ORDER_BYTES_MAX - bytes(&run);
        run.environment[1].1 = vec![b'x'; room];
        let mut order = Order::Run(run);
        order.try_send(here.as_fd()).unwrap();
        let arrived = Order::try_recv(there.as_fd(), &mut Vec::new()).unwrap();
        assert!(matches!(arrived, Ok(Order::Run(run)) if run.environment[1].1.len() == room));
        if let Order::Run(run) = &mut order {
            run.environment[1].1.push(b'x');
        }
        let error = order.try_send(here.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn details_too_long_are_cut_at_a_character() {
        let long = "遅".repeat(10_000);
        let limit = LimitHit::Memory {
            group: long.clone(),
            bytes: 1,
        };
        for report in [
            Report::Failed {
                id: 1,
                failure: Failure::SpawnFailed,
                detail: long,
            },
            Report::Ended(Ended {
                id: 1,
                end: End::Exit(0),
                cpu_us: 0,
                peak_rss_bytes: 0,
                limit: Some(limit),
            }),
        ] {
            let bytes = report.to_bytes();
            assert!(bytes.len() <= REPORT_BYTES_MAX, "{}", bytes.len());
            Report::decode(Reader::new(&bytes, Vec::new())).unwrap();
        }
    }

    #[test]
    fn every_failure_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = Failure::ALL
            .iter()
            .map(|(failure, _)| failure.word())
            .collect();
        assert_eq!(words.len(), Failure::ALL.len());
        assert!(Failure::of_number(Failure::ALL.len() as u8).is_err());
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
        let order = run();
        let mut out = Writer::default();
        order.encode(&mut out);
        let fds = || -> Vec<OwnedFd> {
            let copies = out.fds.iter().map(|fd| fd.try_clone_to_owned().unwrap());
            copies.collect()
        };
        for length in 0..out.bytes.len() {
            let cut = out.bytes.get(..length).unwrap();
            assert!(Order::decode(Reader::new(cut, fds())).is_err(), "{length}");
        }
        for missing in 1..=3 {
            let few = fds().into_iter().skip(missing).collect();
            assert!(Order::decode(Reader::new(&out.bytes, few)).is_err());
        }
        let many = fds().into_iter().chain(fds()).collect();
        assert!(Order::decode(Reader::new(&out.bytes, many)).is_err());
        let messages = reports().iter().map(Report::to_bytes).collect::<Vec<_>>();
        for bytes in messages.iter().chain([&out.bytes]) {
            for at in 0..bytes.len() {
                for value in [0, 1, 2, 3, 0x7f, 0xff] {
                    let mut bytes = bytes.clone();
                    bytes[at] = value;
                    let _ = Order::decode(Reader::new(&bytes, fds()));
                    let _ = Report::decode(Reader::new(&bytes, Vec::new()));
                }
            }
        }
    }
}
