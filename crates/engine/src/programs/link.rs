//! A worker's end of its link to the spawner: orders go out, reports come in, nobody waits.
//!
//! Each program an exchange has started is a [`Program`]: it says how the program is, and dropped,
//! whatever the reason, it has the program killed. What was said about a program goes to whoever
//! holds it; when the spawner is lost, that is what all of them hear. One task a link carries the
//! bytes; it ends with the link.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::pools::{AllPools, Newcomer, ProgramPool};
use super::slot::{Permit, ProgramOutcome, Slot};
use crate::error::{Error, Kind, Result};
use crate::io::register;
use ipc::order::{Failure, Order, Report, Run, RunMap};

/// Orders to run a program that may wait for the spawner to listen.
const WAITING_MAX: usize = 64;
/// Spawners an order is offered to: one may end just then, hardly two.
const LINKS_MAX: usize = 3;
/// How long a request waits for a spawner while there is none.
const SPAWNER_WAIT: Duration = Duration::from_secs(5);

/// A worker's programs.
#[derive(Debug)]
pub struct Programs {
    link: RefCell<Option<Rc<Link>>>,
    /// Wakes those who wait for a spawner.
    came: Notify,
    next_id: Cell<u64>,
    /// Programs of all workers.
    running: Arc<AtomicUsize>,
    /// Pools, as all workers know them.
    pools: Arc<AllPools>,
    left: Rc<Left>,
}

/// Addresses of php-fpm's whose processes serve no more: each waits in vain for the next request of a
/// connection that is kept.
#[derive(Debug, Default)]
struct Left {
    servers: RefCell<Vec<String>>,
    came: Notify,
}

/// A program that was ordered. Dropped, it is killed.
#[derive(Debug)]
pub struct Program {
    id: u64,
    link: Rc<Link>,
    slot: Rc<Slot>,
}

/// Why a link did not take an order.
enum NotRun {
    /// Too many wait already.
    Busy,
    /// The spawner has gone; it never heard of this one.
    Gone(Box<(Order, Permit)>),
}

#[derive(Debug)]
struct Link {
    socket: AsyncFd<OwnedFd>,
    slots: RefCell<HashMap<u64, Rc<Slot>>>,
    /// Pools that were asked for, by the numbers of the orders: each once, and once for a newcomer.
    warming: RefCell<HashMap<u64, Asked>>,
    pools: Arc<AllPools>,
    left: Rc<Left>,
    orders: RefCell<VecDeque<Order>>,
    /// The task that carries the bytes.
    carrier: RefCell<Option<Waker>>,
    is_lost: Cell<bool>,
}

/// A pool that was asked for, for a newcomer perhaps.
#[derive(Debug)]
struct Asked {
    pool: Arc<ProgramPool>,
    newcomer: Option<Arc<Newcomer>>,
}

impl Asked {
    fn newcomer(&self) -> Option<&Newcomer> {
        self.newcomer.as_deref()
    }
}

impl Programs {
    /// Begins without a spawner; `running` counts the programs of all workers.
    pub fn new(running: Arc<AtomicUsize>, pools: Arc<AllPools>) -> Self {
        Self {
            link: RefCell::default(),
            came: Notify::new(),
            next_id: Cell::new(0),
            running,
            pools,
            left: Rc::default(),
        }
    }

    /// The next server to which no idle connection is to be kept: its processes serve no more.
    pub async fn left(&self) -> String {
        loop {
            let server = self.left.servers.borrow_mut().pop();
            match server {
                Some(server) => return server,
                None => self.left.came.notified().await,
            }
        }
    }

    /// Orders programs over this link from now on. A spawner there was before is lost, even where
    /// its end of the link is still open: something of it may hang in the kernel.
    ///
    /// # Errors
    /// When epoll takes no more descriptors.
    pub fn use_link(&self, socket: OwnedFd) -> io::Result<()> {
        let link = Rc::new(Link {
            socket: register(socket, Interest::READABLE | Interest::WRITABLE)?,
            slots: RefCell::default(),
            warming: RefCell::default(),
            pools: Arc::clone(&self.pools),
            left: Rc::clone(&self.left),
            orders: RefCell::default(),
            carrier: RefCell::default(),
            is_lost: Cell::new(false),
        });
        let carried = Rc::clone(&link);
        tokio::task::spawn_local(async move { poll_fn(|cx| carried.poll_carry(cx)).await });
        if let Some(before) = self.link.replace(Some(link)) {
            before.lose();
        }
        self.pools.note_spawner();
        self.came.notify_waiters();
        Ok(())
    }

    /// Takes one of `programs_max` places and orders a program; `order` makes the order, given its
    /// number.
    ///
    /// # Errors
    /// 503 where no place is free or the spawner does not listen, 502 where there is no spawner.
    pub async fn run(
        &self,
        programs_max: usize,
        order: impl FnOnce(u64) -> Run,
    ) -> Result<Program> {
        let permit = Permit::acquire(&self.running, programs_max)?;
        self.order(permit, |id| Order::Run(order(id))).await
    }

    /// Orders a map's program, which is none of those that requests wait for; `order` makes the
    /// order, given its number.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn run_map(&self, order: impl FnOnce(u64) -> RunMap) -> Result<Program> {
        let permit = Permit::acquire(&Arc::default(), 1)?;
        self.order(permit, |id| Order::RunMap(order(id))).await
    }

    /// Asks for a pool, unless this was done already. What comes of it is noted in the pool, or in the
    /// newcomer for whom it is asked.
    ///
    /// # Errors
    /// 502 where there is no spawner, and none comes for a while.
    pub async fn warm(
        &self,
        pool: &Arc<ProgramPool>,
        newcomer: Option<&Arc<Newcomer>>,
    ) -> Result<()> {
        let link = self.link().await?;
        link.warm(self.take_id(), pool, newcomer);
        Ok(())
    }

    /// As [`Self::warm`], for nobody in particular, where there is a spawner; otherwise nothing happens.
    pub fn warm_now(&self, pool: &Arc<ProgramPool>) {
        let link = self.link.borrow().clone();
        if let Some(link) = link.filter(|link| !link.is_lost.get()) {
            link.warm(self.take_id(), pool, None);
        }
    }

    /// Tells the spawner which pools are in use, where nobody has done so lately; where it does not
    /// listen, the next time.
    pub fn tell_use(&self, now_ms: u64) {
        let link = self.link.borrow().clone();
        let listens = |link: &Rc<Link>| !link.is_lost.get() && link.orders.borrow().is_empty();
        let Some(link) = link.filter(listens) else {
            return;
        };
        for pool in self.pools.each() {
            if pool.is_use_to_tell(now_ms) {
                let pool = pool.id.to_string();
                link.give(Order::Used { pool });
            }
        }
    }

    fn take_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id.wrapping_add(1));
        id
    }

    async fn order(&self, mut permit: Permit, order: impl FnOnce(u64) -> Order) -> Result<Program> {
        let id = self.take_id();
        let mut run = order(id);
        for _ in 0..LINKS_MAX {
            let link = self.link().await?;
            match link.run(id, run, permit) {
                Ok(program) => return Ok(program),
                Err(NotRun::Busy) => {
                    let detail = "the spawner takes no more orders just now";
                    return Err(Error::new(Kind::Full, "spawner_busy", detail));
                }
                Err(NotRun::Gone(back)) => (run, permit) = *back,
            }
        }
        Err(lost())
    }

    /// The spawner's link; waits a while for one to come.
    async fn link(&self) -> Result<Rc<Link>> {
        let found = async {
            loop {
                let came = self.came.notified();
                let link = self.link.borrow().clone();
                match link.filter(|link| !link.is_lost.get()) {
                    Some(link) => return link,
                    None => came.await,
                }
            }
        };
        timeout(SPAWNER_WAIT, found).await.map_err(|_| lost())
    }
}

/// There is no spawner to ask or to hear from.
pub(crate) fn lost() -> Error {
    let detail = "the spawner has ended; it is started again, see the error log";
    Error::new(Kind::UpstreamDown, "spawner_lost", detail)
}

impl Program {
    /// Ready once the program runs, or there is an outcome instead. Ask where the order does.
    pub fn poll_started(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.slot.started.get() || self.slot.outcome.borrow().is_some() {
            return Poll::Ready(());
        }
        self.slot.listen(cx);
        Poll::Pending
    }

    /// Ready once there is an outcome.
    pub fn poll_outcome(&self, cx: &mut Context<'_>) -> Poll<ProgramOutcome> {
        if let Some(outcome) = &*self.slot.outcome.borrow() {
            return Poll::Ready(outcome.clone());
        }
        self.slot.listen(cx);
        Poll::Pending
    }

    /// Whether there is an outcome.
    pub fn is_over(&self) -> bool {
        self.slot.outcome.borrow().is_some()
    }

    /// Has the program and all in its group killed; its outcome is still to come.
    pub fn kill(&self) {
        if !self.is_over() {
            self.link.kill(self.id);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Link {
    /// Orders a program: at once, or as soon as the spawner takes more.
    fn run(
        self: &Rc<Self>,
        id: u64,
        run: Order,
        permit: Permit,
    ) -> std::result::Result<Program, NotRun> {
        if self.orders.borrow().len() >= WAITING_MAX {
            return Err(NotRun::Busy);
        }
        let slot = Rc::new(Slot {
            started: Cell::new(false),
            outcome: RefCell::default(),
            waker: RefCell::default(),
            permit,
        });
        self.slots.borrow_mut().insert(id, Rc::clone(&slot));
        self.give(run);
        if self.is_lost.get()
            && let Some(run) = self.take_back(id)
        {
            let permit = slot.permit.again();
            return Err(NotRun::Gone(Box::new((run, permit))));
        }
        Ok(Program {
            id,
            link: Rc::clone(self),
            slot,
        })
    }

    /// Asks for a pool. No bound but the number of pools: none is asked for twice at once.
    fn warm(&self, id: u64, pool: &Arc<ProgramPool>, newcomer: Option<&Arc<Newcomer>>) {
        let newcomer = newcomer.filter(|newcomer| !newcomer.is_in());
        let mut warming = self.warming.borrow_mut();
        let is_same = |asked: &Asked| {
            let of = asked.newcomer.as_ref().map(Arc::as_ptr);
            Arc::ptr_eq(&asked.pool, pool) && of == newcomer.map(Arc::as_ptr)
        };
        if warming.values().any(is_same) {
            return;
        }
        let asked = Asked {
            pool: Arc::clone(pool),
            newcomer: newcomer.cloned(),
        };
        warming.insert(id, asked);
        drop(warming);
        self.give(match &pool.row {
            Some(row) => Order::WarmRow {
                id,
                row: row.clone(),
            },
            None => Order::Warm {
                id,
                pool: pool.id.to_string(),
                is_latest: newcomer.is_some(),
            },
        });
    }

    /// An order that never went out is taken back; there is at most one `Kill` for each program,
    /// so these need no bound of their own.
    fn kill(&self, id: u64) {
        let is_kill = |order: &Order| matches!(order, Order::Kill { id: known } if *known == id);
        let is_told = self.orders.borrow().iter().any(is_kill);
        if self.take_back(id).is_none() && !is_told && self.slots.borrow().contains_key(&id) {
            self.give(Order::Kill { id });
        }
    }

    /// Forgets a program of which the spawner was not told yet.
    fn take_back(&self, id: u64) -> Option<Order> {
        let mut orders = self.orders.borrow_mut();
        let at = orders.iter().position(|order| order.starts() == Some(id))?;
        let run = orders.remove(at)?;
        self.slots.borrow_mut().remove(&id);
        Some(run)
    }

    /// Sends an order at once, or leaves it to the carrier.
    fn give(&self, order: Order) {
        self.orders.borrow_mut().push_back(order);
        let Err(error) = self.send() else {
            return;
        };
        if error.kind() != io::ErrorKind::WouldBlock {
            return self.lose();
        }
        self.wake_carrier();
    }

    /// No order goes over it any more; the carrier tells those who wait.
    fn lose(&self) {
        self.is_lost.set(true);
        self.wake_carrier();
    }

    fn wake_carrier(&self) {
        if let Some(waker) = self.carrier.take() {
            waker.wake();
        }
    }

    /// Sends what waits; the error is the socket's, `WouldBlock` where it takes no more.
    fn send(&self) -> io::Result<()> {
        loop {
            let mut orders = self.orders.borrow_mut();
            let Some(order) = orders.front() else {
                return Ok(());
            };
            match order.try_send(self.socket.as_fd()) {
                Ok(()) => drop(orders.pop_front()),
                // One that cannot be sent must not keep those behind it.
                Err(error) if is_orders_fault(&error) => {
                    let order = orders.pop_front();
                    drop(orders);
                    if let Some(id) = order.and_then(|order| order.starts()) {
                        let detail = format!("tell the spawner: {}", config::reason(&error));
                        let failed = ProgramOutcome::Failed(Failure::EnvironmentRefused, detail);
                        self.end(id, failed);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Carries until the spawner has gone.
    fn poll_carry(&self, cx: &mut Context<'_>) -> Poll<()> {
        *self.carrier.borrow_mut() = Some(cx.waker().clone());
        let over = self.poll_reports(cx).is_ready()
            || self.is_lost.get()
            || self.poll_orders(cx).is_ready();
        if !over {
            return Poll::Pending;
        }
        self.is_lost.set(true);
        self.orders.borrow_mut().clear();
        // What was said before is heard: at most a start and an end of each.
        let asked = self.slots.borrow().len() + self.warming.borrow().len();
        let reports_max = 2 * (asked + self.pools.count());
        for _ in 0..reports_max {
            match Report::try_recv(self.socket.as_fd()) {
                Ok(report) => self.hear(report),
                Err(_) => break,
            }
        }
        let slots = std::mem::take(&mut *self.slots.borrow_mut());
        for slot in slots.values() {
            slot.end(ProgramOutcome::Lost);
        }
        let warming = std::mem::take(&mut *self.warming.borrow_mut());
        for asked in warming.values() {
            asked.pool.note_lost(asked.newcomer());
        }
        Poll::Ready(())
    }

    /// Hears what the spawner says; ready when it says no more. How much of that one turn may
    /// take is bounded by the runtime's own budget.
    fn poll_reports(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Ok(mut ready) = ready!(self.socket.poll_read_ready(cx)) else {
                return Poll::Ready(());
            };
            match Report::try_recv(self.socket.as_fd()) {
                Ok(report) => self.hear(report),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => {
                    if error.kind() != io::ErrorKind::UnexpectedEof {
                        let error = config::reason(&error);
                        tracing::error!(error, "the link to the spawner failed");
                    }
                    return Poll::Ready(());
                }
            }
        }
    }

    /// Sends what waits; ready when nobody is there to hear it.
    fn poll_orders(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.send() {
                Ok(()) => return Poll::Pending,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(()),
            }
            match ready!(self.socket.poll_write_ready(cx)) {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return Poll::Ready(()),
            }
        }
    }

    fn hear(&self, report: Report) {
        match report {
            Report::Started { id, .. } => {
                if let Some(slot) = self.slots.borrow().get(&id) {
                    slot.started.set(true);
                    slot.wake();
                }
            }
            Report::Failed {
                id,
                failure,
                detail,
            } => self.end(id, ProgramOutcome::Failed(failure, detail)),
            Report::Ended(ended) => self.end(ended.id, ProgramOutcome::Ended(ended)),
            Report::Warming { id, wait_ms } => {
                if let Some(asked) = self.warming.borrow().get(&id) {
                    asked.pool.note_starting(asked.newcomer(), wait_ms);
                }
            }
            Report::Warm { id } => {
                if let Some(asked) = self.warming.borrow_mut().remove(&id) {
                    asked.pool.note_warm(asked.newcomer());
                }
            }
            Report::NotWarm {
                id,
                failure,
                detail,
                retry_ms,
            } => {
                if let Some(asked) = self.warming.borrow_mut().remove(&id) {
                    let failure = (failure, &*detail);
                    asked.pool.note_failed(asked.newcomer(), failure, retry_ms);
                }
            }
            Report::Cold { pool } => self.note_left(self.pools.note_cold(&pool)),
            Report::Counts { pool, counts } => self.pools.note_counts(&pool, counts),
            Report::HandedOver { pool } => self.note_left(self.pools.note_handed_over(&pool)),
            Report::Costs { tenant, costs } => self.pools.note_costs(&tenant, &costs),
        }
    }

    fn note_left(&self, pool: Option<Arc<ProgramPool>>) {
        if let Some(socket) = pool.as_ref().and_then(|pool| pool.php_socket.as_ref()) {
            let server = format!("unix:{}", socket.display());
            self.left.servers.borrow_mut().push(server);
            self.left.came.notify_one();
        }
    }

    fn end(&self, id: u64, outcome: ProgramOutcome) {
        let slot = self.slots.borrow_mut().remove(&id);
        if let Some(slot) = slot {
            slot.end(outcome);
        }
    }
}

/// Whether it is the order that cannot be sent, and not the link.
fn is_orders_fault(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

#[cfg(test)]
mod tests;
