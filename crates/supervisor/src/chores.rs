//! Programs that are run on the gateway's own behalf: started by the spawner, looked after here.
//!
//! The idea: nobody waits for one. It is asked for over a link of its own, which no worker has, a
//! few run at a time, and how each ended is told at a later turn, with the last of what it wrote.
//! What one is to know that others have said stands on its standard input, never among its arguments.
//! One that takes too long is killed with its group. The link goes with the spawner, and what ran
//! with it; what waits is run by the next.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use config::model::Chore;
use config::reason;
use ipc::manifest::NamedProgram;
use ipc::order::{End, Order, Report, RunChore};

/// Chores that run at once.
const RUNNING_MAX: usize = 8;
/// What of a chore's output is kept: its end.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of its output that are read in one turn.
const READ_BYTES_MAX: usize = 64 * 1024;
/// Bytes of standard input: a pipe holds them, whatever its user has in others.
pub(super) const STDIN_BYTES_MAX: usize = 4 * 1024;
/// How soon something is tried again that could not be done at once.
const SOON: Duration = Duration::from_millis(500);

/// What is run and waits to be; `T` says what for.
#[derive(Debug)]
pub(super) struct Chores<T> {
    /// To the spawner.
    link: Option<OwnedFd>,
    running: BTreeMap<u64, Running<T>>,
    waiting: VecDeque<WaitingChore<T>>,
    /// When to look for a spawner that is not there, or does not listen.
    next_look: Option<Instant>,
    /// The next one's number.
    next: u64,
}

#[derive(Debug)]
struct Running<T> {
    purpose: T,
    output: File,
    has_ended_output: bool,
    said: Vec<u8>,
    limit: Duration,
    until: Instant,
    is_late: bool,
}

/// One that waits, what is on its standard input, and for how long it may run.
type WaitingChore<T> = (T, NamedProgram, String, Duration);

/// How a chore ended: if it went well, or why not and what it wrote.
pub(super) type ChoreEnd = Result<(), String>;

/// What is run for a chore, with these words more; `user` is whom it runs as, if not as the spawner.
pub(super) fn program(
    chore: &Chore,
    whose: String,
    user: Option<String>,
    more: &[&str],
) -> NamedProgram {
    let more = more.iter().map(|word| (*word).to_owned());
    NamedProgram {
        whose,
        command: chore.command.iter().cloned().chain(more).collect(),
        directory: chore.directory.clone(),
        user,
        may_be_root: false,
    }
}

impl<T> Default for Chores<T> {
    fn default() -> Chores<T> {
        Chores {
            link: None,
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
            next_look: None,
            next: 0,
        }
    }
}

impl<T> Chores<T> {
    /// Has a program run for no longer than this, when it is its turn.
    pub(super) fn add(&mut self, purpose: T, program: NamedProgram, limit: Duration) {
        self.add_told(purpose, program, String::new(), limit);
    }

    /// The same, with at most [`STDIN_BYTES_MAX`] on its standard input.
    pub(super) fn add_told(
        &mut self,
        purpose: T,
        program: NamedProgram,
        stdin: String,
        limit: Duration,
    ) {
        self.waiting.push_back((purpose, program, stdin, limit));
    }

    /// What becomes readable when there is something to be done.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let outputs = self.running.values().filter(|it| !it.has_ended_output);
        let outputs = outputs.map(|it| it.output.as_fd());
        self.link.iter().map(AsFd::as_fd).chain(outputs)
    }

    /// When there is something to be done else.
    pub(super) fn until(&self) -> Option<Instant> {
        let limits = self.running.values().map(|it| it.until);
        limits.chain(self.next_look).min()
    }

    /// Does what is to be done now, with a link of `link`'s where there is none, and tells which
    /// have ended.
    pub(super) fn step(
        &mut self,
        now: Instant,
        link: impl FnOnce() -> Option<OwnedFd>,
    ) -> Vec<(T, ChoreEnd)> {
        let mut ended = self.hear();
        self.running.values_mut().for_each(Running::read);
        self.kill_late(now);
        let has_room = self.running.len() < RUNNING_MAX && !self.waiting.is_empty();
        self.next_look = None;
        if has_room && self.link.is_none() {
            self.link = link();
            self.next_look = self.link.is_none().then(|| now + SOON);
        }
        while self.link.is_some() && self.running.len() < RUNNING_MAX {
            let Some(waiting) = self.waiting.pop_front() else {
                break;
            };
            ended.extend(self.start(now, waiting));
            if self.next_look.is_some() {
                break;
            }
        }
        ended
    }

    /// Has one started; where the spawner is slow to listen, it waits in its place.
    fn start(
        &mut self,
        now: Instant,
        (purpose, program, stdin, limit): WaitingChore<T>,
    ) -> Option<(T, ChoreEnd)> {
        let id = self.next;
        let link = self.link.as_ref()?;
        let output = match order(link.as_fd(), id, program.clone(), &stdin) {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.waiting.push_front((purpose, program, stdin, limit));
                self.next_look = Some(now + SOON);
                return None;
            }
            Err(error) => return Some((purpose, Err(format!("have it run: {}", reason(&error))))),
        };
        self.next += 1;
        let running = Running {
            purpose,
            output,
            has_ended_output: false,
            said: Vec::new(),
            limit,
            until: now + limit,
            is_late: false,
        };
        self.running.insert(id, running);
        None
    }

    /// Hears of those that have ended; where the spawner has gone, all have.
    fn hear(&mut self) -> Vec<(T, ChoreEnd)> {
        let mut ended = Vec::new();
        while let Some(link) = &self.link {
            let (id, outcome) = match Report::try_recv(link.as_fd()) {
                // Of pools nothing is asked here.
                Ok(
                    Report::Started { .. }
                    | Report::Warming { .. }
                    | Report::Warm { .. }
                    | Report::NotWarm { .. }
                    | Report::Cold { .. }
                    | Report::HandedOver { .. }
                    | Report::Counts { .. }
                    | Report::Costs { .. },
                ) => continue,
                Ok(Report::Failed { id, detail, .. }) => (id, Err(detail)),
                Ok(Report::Ended(it)) => (it.id, of_end(it.end)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.link = None;
                    let why = || Err("the spawner has gone".to_owned());
                    let all = std::mem::take(&mut self.running).into_values();
                    ended.extend(all.map(|it| (it.purpose, why())));
                    break;
                }
            };
            if let Some(running) = self.running.remove(&id) {
                ended.push(running.end(outcome));
            }
        }
        ended
    }

    fn kill_late(&mut self, now: Instant) {
        for (id, running) in &mut self.running {
            if running.until <= now {
                running.is_late = true;
                running.until = now + SOON;
                let kill = Order::Kill { id: *id };
                // One that does not get through is sent again.
                let _ = self.link.as_ref().map(|link| kill.try_send(link.as_fd()));
            }
        }
    }
}

/// Has the spawner start it, with `told` on its standard input; gives what it writes.
fn order(link: BorrowedFd<'_>, id: u64, program: NamedProgram, told: &str) -> io::Result<File> {
    let (output, stdout) = os::pipe::from_program()?;
    let (input, stdin) = os::pipe::to_program()?;
    if told.len() > STDIN_BYTES_MAX {
        return Err(io::Error::other("it would be told too much"));
    }
    // The pipe is empty, and has room for all of it.
    File::from(input).write_all(told.as_bytes())?;
    let run = RunChore {
        id,
        program,
        stdin,
        stderr: stdout.try_clone()?,
        stdout,
    };
    Order::RunChore(run).try_send(link)?;
    Ok(File::from(output))
}

fn of_end(end: End) -> ChoreEnd {
    match end {
        End::Exit(0) => Ok(()),
        End::Exit(status) => Err(format!("it ended with status {status}")),
        End::Signal(signal) => Err(format!("it was ended by signal {signal}")),
    }
}

impl<T> Running<T> {
    /// Reads what is there, and keeps the end of all.
    fn read(&mut self) {
        let mut buffer = [0; OUTPUT_BYTES_MAX];
        for _ in 0..READ_BYTES_MAX / OUTPUT_BYTES_MAX {
            match self.output.read(&mut buffer) {
                Ok(0) => return self.has_ended_output = true,
                Ok(bytes) => self.said.extend(buffer.iter().take(bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.has_ended_output = true,
            }
            let surplus = self.said.len().saturating_sub(OUTPUT_BYTES_MAX);
            self.said.drain(..surplus);
        }
    }

    fn end(mut self, outcome: ChoreEnd) -> (T, ChoreEnd) {
        self.read();
        let outcome = outcome.map_err(|why| {
            let why = match self.is_late {
                true => format!("it was killed after {} s", self.limit.as_secs()),
                false => why,
            };
            let said = String::from_utf8_lossy(&self.said);
            let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
            let said = lines.collect::<Vec<_>>().join("; ");
            match said.is_empty() {
                true => why,
                false => format!("{why}: {said}"),
            }
        });
        (self.purpose, outcome)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use ipc::order::{Ended, Failure};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Adds one for each of these purposes.
    fn add(chores: &mut Chores<usize>, purposes: Range<usize>) {
        for purpose in purposes {
            let program = NamedProgram {
                whose: "a test".into(),
                command: vec!["true".into()],
                directory: "/".into(),
                user: None,
                may_be_root: false,
            };
            chores.add(purpose, program, LIMIT);
        }
    }

    /// Chores, and the spawner's end of their link.
    fn chores(count: usize) -> (Chores<usize>, OwnedFd) {
        let (link, spawner) = os::fdpass::packet_pair().unwrap();
        let mut chores = Chores::default();
        add(&mut chores, 0..count);
        assert!(chores.step(Instant::now(), || Some(link)).is_empty());
        (chores, spawner)
    }

    fn ordered(spawner: &OwnedFd) -> Vec<Order> {
        let orders = std::iter::from_fn(|| {
            let order = Order::try_recv(spawner.as_fd(), &mut Vec::new());
            order.ok().map(Result::unwrap)
        });
        orders.collect()
    }

    fn say(spawner: &OwnedFd, report: &Report) {
        let bytes = report.to_bytes().unwrap();
        os::fdpass::try_send(spawner.as_fd(), &bytes, &[]).unwrap();
    }

    fn ended(id: u64, end: End) -> Report {
        Report::Ended(Ended {
            id,
            end,
            cpu_us: 0,
            peak_rss_bytes: 0,
            limit: None,
        })
    }

    #[test]
    fn a_few_run_at_once_and_each_tells_how_it_ended_with_the_last_it_wrote() {
        let (mut chores, spawner) = chores(RUNNING_MAX + 1);
        let now = Instant::now();
        let mut runs = ordered(&spawner);
        assert_eq!(runs.len(), RUNNING_MAX);
        let Order::RunChore(run) = runs.remove(1) else {
            panic!("no chore");
        };
        let mut output = File::from(run.stdout);
        io::Write::write_all(&mut output, &[b'x'; 9_000]).unwrap();
        io::Write::write_all(&mut output, b"\n\n no zone\n").unwrap();
        say(&spawner, &ended(0, End::Exit(0)));
        say(&spawner, &ended(1, End::Exit(3)));
        let refused = Report::Failed {
            id: 2,
            failure: Failure::NotFound,
            detail: "no such program".into(),
        };
        say(&spawner, &refused);
        say(&spawner, &ended(77, End::Exit(0)));
        let told = chores.step(now, || None);
        assert_eq!(told[0], (0, Ok(())));
        let why = told[1].1.clone().unwrap_err();
        assert!(why.starts_with("it ended with status 3: xxx"), "{why}");
        assert!(why.ends_with("xxx; no zone") && why.len() < 4_200, "{why}");
        assert_eq!(told[2], (2, Err("no such program".into())));
        assert_eq!(told.len(), 3);
        assert_eq!(ordered(&spawner).len(), 1, "its turn has come");
    }

    #[test]
    fn one_that_is_late_is_killed_and_one_whose_spawner_has_gone_has_failed() {
        let (mut chores, spawner) = chores(2);
        ordered(&spawner);
        let late = Instant::now() + LIMIT * 2;
        assert!(chores.step(late, || None).is_empty());
        let killed = ordered(&spawner);
        assert!(matches!(
            killed[..],
            [Order::Kill { id: 0 }, Order::Kill { id: 1 }]
        ));
        say(&spawner, &ended(1, End::Signal(9)));
        let told = chores.step(late, || None);
        assert_eq!(told, [(1, Err("it was killed after 5 s".into()))]);
        drop(spawner);
        let told = chores.step(late, || None);
        assert_eq!(told, [(0, Err("the spawner has gone".into()))]);
        assert_eq!((chores.fds().count(), chores.until()), (0, None));
    }

    #[test]
    fn what_one_is_told_is_on_its_standard_input_and_then_it_ends() {
        let (mut chores, spawner) = chores(1);
        ordered(&spawner);
        let told = "x".repeat(STDIN_BYTES_MAX);
        for told in [told.clone(), format!("{told}x")] {
            add(&mut chores, 0..1);
            let (purpose, program, _, limit) = chores.waiting.pop_back().unwrap();
            chores.add_told(purpose, program, told, limit);
        }
        let refused = chores.step(Instant::now(), || None);
        assert_eq!(
            refused,
            [(0, Err("have it run: it would be told too much".into()))]
        );
        let Some(Order::RunChore(run)) = ordered(&spawner).pop() else {
            panic!("no chore");
        };
        let mut heard = String::new();
        File::from(run.stdin).read_to_string(&mut heard).unwrap();
        assert_eq!(heard, told);
    }

    #[test]
    fn those_that_the_spawner_does_not_listen_to_wait_in_their_places() {
        let (mut chores, spawner) = chores(1);
        let link = chores.link.as_ref().unwrap();
        while (Order::Kill { id: 77 }).try_send(link.as_fd()).is_ok() {}
        add(&mut chores, 1..3);
        let now = Instant::now();
        assert!(chores.step(now, || None).is_empty());
        assert_eq!(chores.until(), Some(now + SOON));
        let heard = ordered(&spawner);
        let runs = heard.iter().filter(|it| matches!(it, Order::RunChore(_)));
        assert_eq!(runs.count(), 1, "the first one");
        assert!(chores.step(now + SOON, || None).is_empty());
        assert_eq!(ordered(&spawner).len(), 2);
        say(&spawner, &ended(1, End::Exit(0)));
        say(&spawner, &ended(2, End::Exit(0)));
        assert_eq!(chores.step(now, || None), [(1, Ok(())), (2, Ok(()))]);
    }
}
