//! One connection to memcached with the commands of many requests under way on it.
//!
//! A task serves it: it takes commands from the server's queue, sends those that came in one turn of
//! the worker in one write, and hands the answers out in order; one read may bring many. The answer
//! to a command nobody waits for any more is skipped when it comes. One that is overdue ends the
//! connection: those who asked behind it are told once, and the next command connects anew.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::question::{Certainty, MemcachedQuestion};
use super::queue::{Busy, LONG_BYTES, MemcachedCommand};
use super::reply::{MemcachedFault, MemcachedReply};
use super::server::MemcachedServer;
use crate::channel::{Channel, Decode, Progress};
use crate::error::{Error, Kind, spell};
use crate::socket::Socket;

/// Commands under way on one connection; as many are lost with it at most.
pub(super) const DEPTH_MAX: usize = 128;
/// Bytes taken to be sent, beyond which no further command is.
const UNSENT_BYTES_MAX: usize = 256 * 1024;
/// Room for answers read at once.
const READ_BYTES: usize = 8 * 1024;

/// What a connection can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Load {
    /// Nothing yet; it will look at the queue when it is made.
    #[default]
    Connecting,
    /// Anything.
    Idle,
    /// Short commands.
    Open,
    /// Nothing until some answers have come.
    Full,
}

/// What others see of a connection.
pub(super) struct MemcachedConnection {
    load: Cell<Load>,
    used: Cell<Instant>,
    waker: RefCell<Option<Waker>>,
}

impl Default for MemcachedConnection {
    fn default() -> Self {
        Self {
            load: Cell::default(),
            used: Cell::new(Instant::now()),
            waker: RefCell::default(),
        }
    }
}

impl MemcachedConnection {
    pub(super) fn load(&self) -> Load {
        self.load.get()
    }

    /// When it last had something to do.
    pub(super) fn used(&self) -> Instant {
        self.used.get()
    }

    /// Lets it look at the queue in this turn of the worker, after those who run now.
    pub(super) fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Asks to be woken by the task that polls now.
    fn listen(&self, waker: &Waker) {
        self.waker.borrow_mut().get_or_insert_with(|| waker.clone());
    }
}

/// Serves a connection until there is nothing to do for it.
pub(super) async fn drive(server: Rc<MemcachedServer>, connection: Rc<MemcachedConnection>) {
    loop {
        match connect(&server).await {
            Ok(socket) => {
                let mut driver = Driver::new(&server, &connection, socket);
                let ended = poll_fn(|context| driver.poll(context)).await;
                driver.end(&ended);
            }
            Err(error) => {
                server.give_up(&error);
                break;
            }
        }
        connection.load.set(Load::Connecting);
        if server.queue().deadline().is_none() {
            break;
        }
    }
    // Those who ask from here on open another one.
    server.remove(&connection);
}

/// Makes the connection; the commands that wait for it may have less time than it has.
async fn connect(server: &Rc<MemcachedServer>) -> Result<Socket, Error> {
    let attempt = server.attempt();
    let mut making = pin!(attempt.connect(attempt.dial(server.names())));
    loop {
        let deadline = server.queue().deadline();
        let Some(deadline) = deadline else {
            return making.await;
        };
        match timeout_at(deadline, &mut making).await {
            Ok(made) => return made,
            Err(_) => server.expire(Instant::now()),
        }
    }
}

/// Why a connection is used no more.
enum Ended {
    /// It is gone.
    Lost(io::Error),
    /// What came is no answer to the oldest command.
    Faulty(MemcachedFault),
    /// After a refusal it is not sure what else will come.
    Doubtful,
    /// The answer to the oldest command did not come in its time.
    Overdue,
}

/// A command that was sent, or is being sent.
struct Awaited {
    question: MemcachedQuestion,
    deadline: Instant,
    asker: oneshot::Sender<Result<MemcachedReply, Error>>,
}

impl Decode for Awaited {
    type Reply = MemcachedReply;
    type Fault = MemcachedFault;
    const READ_BYTES: usize = READ_BYTES;

    fn decode(&mut self, bytes: &[u8]) -> Result<Progress<MemcachedReply>, MemcachedFault> {
        self.question.decode(bytes)
    }
}

struct Driver<'a> {
    server: &'a Rc<MemcachedServer>,
    connection: &'a Rc<MemcachedConnection>,
    channel: Channel<Awaited>,
    /// A long command is under way, or a long answer.
    long: bool,
    /// Short commands wait, but a long one has waited for longer.
    held_back: bool,
    timer: Pin<Box<Sleep>>,
    armed: bool,
}

impl<'a> Driver<'a> {
    fn new(
        server: &'a Rc<MemcachedServer>,
        connection: &'a Rc<MemcachedConnection>,
        socket: Socket,
    ) -> Self {
        Self {
            server,
            connection,
            channel: Channel::new(socket),
            long: false,
            held_back: false,
            timer: Box::pin(sleep_until(Instant::now())),
            armed: false,
        }
    }

    /// Sends and hears what it can; ends with the connection.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        self.connection.listen(context.waker());
        // Each turn moves bytes, and the runtime bounds how many reads go through at once.
        loop {
            self.fill();
            let moved = self.write(context).and_then(|wrote| {
                let heard = self.read(context)?;
                Ok(wrote || heard)
            });
            match moved {
                Ok(true) => {}
                Ok(false) => break,
                Err(ended) => return Poll::Ready(ended),
            }
        }
        self.connection.load.set(self.load());
        if self.server.queue().deadline().is_some() {
            self.server.nudge();
        }
        self.watch_time(context)
    }

    fn load(&self) -> Load {
        match self.busy() {
            Busy::No => Load::Idle,
            Busy::Yes if self.has_room() && !self.held_back => Load::Open,
            Busy::Yes => Load::Full,
        }
    }

    fn busy(&self) -> Busy {
        match self.channel.depth() == 0 && self.channel.unsent_bytes() == 0 {
            true => Busy::No,
            false => Busy::Yes,
        }
    }

    fn has_room(&self) -> bool {
        let (depth, unsent) = (self.channel.depth(), self.channel.unsent_bytes());
        !self.long && depth < DEPTH_MAX && unsent < UNSENT_BYTES_MAX
    }

    /// Takes commands as long as there is room for them.
    fn fill(&mut self) {
        if self.busy() == Busy::No {
            self.long = false;
        }
        self.held_back = false;
        while self.has_room() {
            let next = self.server.queue().next(self.busy());
            let Some(command) = next else {
                self.held_back = self.server.queue().short() > 0;
                return;
            };
            self.enqueue(command);
        }
    }

    fn enqueue(&mut self, command: MemcachedCommand) {
        self.long = command.bytes.len() >= LONG_BYTES;
        self.channel.put(command.bytes);
        self.channel.expect(Awaited {
            question: command.question,
            deadline: command.deadline,
            asker: command.asker,
        });
    }

    /// Says whether it wrote something.
    fn write(&mut self, context: &mut Context<'_>) -> Result<bool, Ended> {
        let wrote = self.channel.poll_send(context).map_err(Ended::Lost)?;
        if wrote {
            self.connection.used.set(Instant::now());
        }
        Ok(wrote)
    }

    /// Says whether it read something, and hands out the answers that are whole. It reads also when
    /// nothing is awaited: the server may close.
    fn read(&mut self, context: &mut Context<'_>) -> Result<bool, Ended> {
        if !self.channel.poll_read(context).map_err(Ended::Lost)? {
            return Ok(false);
        }
        while let Some((oldest, reply)) = self.channel.next().map_err(Ended::Faulty)? {
            self.answer(oldest, reply)?;
        }
        self.long |= self.channel.missing() >= LONG_BYTES;
        match self.channel.has_unasked() {
            true => Err(Ended::Faulty(MemcachedFault::Unasked)),
            false => Ok(true),
        }
    }

    fn answer(&self, oldest: Awaited, reply: MemcachedReply) -> Result<(), Ended> {
        let certainty = oldest.question.certainty(&reply);
        // With more behind it than was asked, it may belong to another question.
        let unasked = self
            .channel
            .has_unasked()
            .then_some(MemcachedFault::Unasked);
        let answer = match (unasked, reply) {
            (Some(fault), _) => Err(self.failed(&oldest, fault.kind(), &fault.to_string())),
            (None, MemcachedReply::Refused(words)) => {
                Err(self.failed(&oldest, Kind::Server, &words))
            }
            (None, reply) => Ok(reply),
        };
        // Whoever asked may have gone: then the answer is skipped.
        let _ = oldest.asker.send(answer);
        match certainty {
            Certainty::Sure => Ok(()),
            Certainty::Doubtful => Err(Ended::Doubtful),
        }
    }

    /// Ends the connection when the oldest command is out of time; until then it sleeps.
    fn watch_time(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        loop {
            let oldest = self.channel.oldest().map(|oldest| oldest.deadline);
            let waits = self.server.queue().deadline();
            let Some(next) = oldest.into_iter().chain(waits).min() else {
                return Poll::Pending;
            };
            // Set for an earlier one, it just looks again then.
            if !self.armed || next < self.timer.deadline() {
                self.timer.as_mut().reset(next);
                self.armed = true;
            }
            ready!(self.timer.as_mut().poll(context));
            self.armed = false;
            let now = Instant::now();
            self.server.expire(now);
            if oldest.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(Ended::Overdue);
            }
        }
    }

    /// Tells those who still wait for answers what became of them.
    fn end(&mut self, ended: &Ended) {
        let now = Instant::now();
        let mut oldest = true;
        for awaited in self.channel.give_up() {
            let error = match ended {
                Ended::Lost(error) => self.server.attempt().lost(awaited.question.what, error),
                Ended::Faulty(fault) if oldest => {
                    self.failed(&awaited, fault.kind(), &fault.to_string())
                }
                Ended::Overdue if awaited.deadline <= now => {
                    self.server.attempt().unanswered(awaited.question.what)
                }
                ended => self.failed(&awaited, Kind::Lost, &self.left_because(ended)),
            };
            oldest = false;
            let _ = awaited.asker.send(Err(error));
        }
    }

    /// Why those behind the one who is to blame get no answer.
    fn left_because(&self, ended: &Ended) -> String {
        let why = match ended {
            Ended::Overdue => {
                let limit = spell(self.server.limits().command_timeout);
                format!("had no answer within {limit} (scripts.store_timeout)")
            }
            Ended::Doubtful => "was refused, and it is not sure as what it was taken".to_owned(),
            _ => "was answered with what is no answer to it".to_owned(),
        };
        format!("the connection was given up: a command before this one {why}")
    }

    fn failed(&self, awaited: &Awaited, kind: Kind, why: &str) -> Error {
        let attempt = self.server.attempt();
        attempt.failed(kind, awaited.question.what, why)
    }
}
