//! The queue of steps of TLS handshakes: who is next when there is more to compute than time.
//!
//! Nobody has proved who he is when a handshake is paid for, and anybody may say any name. So turns go to clients
//! first, over all names together: each has an account of the processor time it took, and only whose has not paid
//! beyond the round is let into the second stage: whoever comes anew waits for nobody who has had his turn. There the
//! short ones go first, within a share that leaves the full ones theirs, and among those of a kind tenants take turns by
//! their weight. Of those outside one at a time is let in out of its turn, with a small share of its own: newcomers
//! without end keep nobody out. What is charged in advance is an estimate, replaced by what was measured. Each of the
//! three stages is a [`Ring`].
//!
//! A client is an IPv4 address, or a /64 of IPv6. Where the queue is full, a newcomer pushes out the last of the
//! client that has most in it, or of the tenant that has, if that is more than the newcomer's own would have.
//! What is left out: the clock, threads, and what a step does.

mod accounts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use crate::time::Time;

use super::group::Seed;
use super::ring::{Account, Newcomers, Ring, Turn as Order};
use accounts::{Class, Client, Cost, Tenant, Waiting, client_number, length, lengthen};

/// Clients and tenants without waiters that are remembered at most, each.
const IDLE_MAX: usize = 16_384;
/// Their accounts are forgotten so long after their last step, whose debt is a quarter by then.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// How many accounts one call may forget.
const FORGET_MAX: usize = 4;
/// A client may have one in so many of the queue's places.
const CLIENT_PART: usize = 8;

/// How costly a step is said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepKind {
    /// A resumption, or the end of a handshake whose first step has been paid for.
    Short,
    /// A key exchange and a signature.
    Full,
}

/// A step of a handshake that asks for a place.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer {
    /// Who the client is.
    pub client: IpAddr,
    /// Whose name it said; any number that stays with the tenant.
    pub tenant: u64,
    /// The tenant's weight, 1 to 1000.
    pub weight: u32,
    /// What it says to be. Who said short and was not is taken at its word no more.
    pub kind: StepKind,
    /// When its patience ends.
    pub until: Time,
}

/// What a waiting step is called; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(u64);

/// Why a step is not waited for any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Its client, or its tenant, has more than others in a queue that is full.
    OverShare,
    /// The queue is full of such as have as good a right.
    QueueFull,
    /// Its patience has ended.
    Late,
}

impl Refused {
    /// The stable word for it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::OverShare => "handshake_over_share",
            Self::QueueFull => "handshake_queue_full",
            Self::Late => "handshake_late",
        }
    }
}

/// A step whose turn it is; given back to [`Queue::settle`] when it was made.
#[derive(Debug)]
#[must_use]
pub struct Turn {
    /// Which it is.
    pub id: StepId,
    client: u64,
    tenant: u64,
    kind: StepKind,
    class: Class,
    charged_ns: u64,
}

/// Who waits for a step of a handshake, and who is next.
///
/// Every operation costs O(log n); a waiter takes about 500 bytes with its accounts, a remembered client 150.
#[derive(Debug)]
pub struct Queue {
    places_max: usize,
    last: u64,
    now: Time,
    waiting: HashMap<u64, Waiting, Seed>,
    ends: BTreeSet<(Time, u64)>,
    clients: HashMap<u64, Client, Seed>,
    tenants: HashMap<u64, Tenant, Seed>,
    /// Clients that have something to let in, and nothing there.
    outside: Ring,
    /// Classes, and tenants by class, of what was let in.
    classes: Ring,
    of_classes: [Account; Class::ALL.len()],
    inside: [Ring; Class::ALL.len()],
    /// By kind.
    costs: [Cost; 2],
    /// By how many wait.
    client_lengths: BTreeSet<(u64, u64)>,
    tenant_lengths: BTreeSet<(u64, u64)>,
    idle_clients: BTreeSet<(Time, u64)>,
    idle_tenants: BTreeSet<(Time, u64)>,
}

impl Queue {
    /// Makes an empty queue of so many places, whose hashes nobody outside can foresee.
    #[must_use]
    pub fn new(places_max: usize, seed: u64) -> Self {
        let seed = Seed(seed);
        Self {
            places_max,
            last: 0,
            now: Time::ZERO,
            waiting: HashMap::with_hasher(seed),
            ends: BTreeSet::new(),
            clients: HashMap::with_hasher(seed),
            tenants: HashMap::with_hasher(seed),
            outside: Ring::new(Newcomers::Unrested),
            classes: Ring::new(Newcomers::Unrested),
            of_classes: Class::ALL.map(|class| Account::new(Time::ZERO, class.weight())),
            inside: Class::ALL.map(|_| Ring::new(Newcomers::Rested)),
            costs: [StepKind::Short, StepKind::Full].map(Cost::new),
            client_lengths: BTreeSet::new(),
            tenant_lengths: BTreeSet::new(),
            idle_clients: BTreeSet::new(),
            idle_tenants: BTreeSet::new(),
        }
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Clients and tenants that are remembered.
    #[must_use]
    pub fn accounts(&self) -> usize {
        self.clients.len() + self.tenants.len()
    }

    /// Lets a step wait; says what it is called, and who had to leave for it.
    ///
    /// # Errors
    /// There is no place, and nobody has a worse right to his.
    pub fn push(
        &mut self,
        now: Time,
        newcomer: &Newcomer,
    ) -> Result<(StepId, Option<StepId>), Refused> {
        self.now = self.now.max(now);
        let client = client_number(newcomer.client);
        if self.clients.get(&client).map_or(0, Client::length) >= self.client_max() {
            return Err(Refused::OverShare);
        }
        let mut pushed_out = None;
        if self.waiting.len() >= self.places_max {
            let rival = self.rival(client, newcomer)?;
            self.take(rival);
            pushed_out = Some(StepId(rival));
        }
        let place = self.stand(client, newcomer);
        self.let_in();
        self.forget();
        Ok((place, pushed_out))
    }

    /// Takes out whose turn it is; `None` only if nobody waits.
    pub fn next(&mut self, now: Time) -> Option<Turn> {
        self.now = self.now.max(now);
        self.let_in();
        let is_beyond_inside = self.inside[Class::Beyond as usize].len() > 0;
        match self.outside.first(Order::Oldest) {
            Some(client) if self.classes.len() == 0 => self.admit(client, Class::of),
            Some(client) if !is_beyond_inside => self.admit(client, |_| Class::Beyond),
            _ => {}
        }
        let class = Class::at(self.classes.first(Order::Oldest)?);
        self.next_of(class)
    }

    /// As [`Queue::next`], of short steps alone: what the full ones need is not there.
    pub fn next_short(&mut self, now: Time) -> Option<Turn> {
        self.now = self.now.max(now);
        self.let_in();
        while self.inside[Class::Short as usize].len() == 0 {
            self.admit(self.outside.first(Order::Oldest)?, Class::of);
        }
        self.next_of(Class::Short)
    }

    fn next_of(&mut self, class: Class) -> Option<Turn> {
        let at = class as usize;
        let tenant = self.inside[at].first(Order::Oldest)?;
        let (_, place) = *self.tenants.get(&tenant)?.inside[at].first()?;
        let Waiting { client, kind, .. } = self.take(place)?;
        let charged_ns = self.charge(client, tenant, kind, class);
        Some(Turn {
            id: StepId(place),
            client,
            tenant,
            kind,
            class,
            charged_ns,
        })
    }

    /// Takes out one whose patience has ended; to be called until there is none.
    pub fn expired(&mut self, now: Time) -> Option<StepId> {
        self.now = self.now.max(now);
        let &(until, place) = self.ends.first()?;
        (until <= self.now && self.take(place).is_some()).then_some(StepId(place))
    }

    /// When the next one's patience ends.
    #[must_use]
    pub fn next_end(&self) -> Option<Time> {
        self.ends.first().map(|(until, _)| *until)
    }

    /// Lets one leave that waits no more; `false` if it does not wait here.
    pub fn remove(&mut self, place: StepId) -> bool {
        self.take(place.0).is_some()
    }

    /// Replaces what was charged for a step by the processor time it took, and takes note of what it was.
    pub fn settle(&mut self, now: Time, turn: &Turn, was: StepKind, cpu_ns: u64) {
        self.now = self.now.max(now);
        self.costs[was as usize].measured.note(cpu_ns);
        let (unit_ns, at, charged_ns) = (self.unit_ns(), turn.class as usize, turn.charged_ns);
        if let Some(client) = self.clients.get_mut(&turn.client) {
            client.is_distrusted |= was > turn.kind;
            let account = &mut client.account;
            self.outside
                .correct(now, turn.client, account, charged_ns, cpu_ns, unit_ns);
        }
        if let Some(tenant) = self.tenants.get_mut(&turn.tenant) {
            let account = &mut tenant.accounts[at];
            self.inside[at].correct(now, turn.tenant, account, charged_ns, cpu_ns, unit_ns);
        }
        let account = &mut self.of_classes[at];
        self.classes
            .correct(now, at as u64, account, charged_ns, cpu_ns, unit_ns);
    }
}

/// The insides.
impl Queue {
    fn client_max(&self) -> u64 {
        (self.places_max / CLIENT_PART).max(1) as u64
    }

    /// The quantum of weight 1.
    fn unit_ns(&self) -> u64 {
        self.costs[StepKind::Full as usize].ns()
    }

    /// What a newcomer is taken to be.
    fn kind(&self, client: u64, newcomer: &Newcomer) -> StepKind {
        match self.clients.get(&client) {
            Some(client) if client.is_distrusted => StepKind::Full,
            _ => newcomer.kind,
        }
    }

    /// Who has a worse right to his place than a newcomer.
    fn rival(&self, client: u64, newcomer: &Newcomer) -> Result<u64, Refused> {
        let own = self.clients.get(&client).map_or(0, Client::length) + 1;
        if let Some(&(count, longest)) = self.client_lengths.last()
            && count > own
        {
            let longest = self.clients.get(&longest);
            let last = longest.and_then(|client| client.waiting.last());
            return last.map(|(_, place)| *place).ok_or(Refused::QueueFull);
        }
        if own > 1 {
            return Err(Refused::OverShare);
        }
        // Nobody has more than one: now it counts whose names they said.
        let tenant = self.tenants.get(&newcomer.tenant);
        let own = tenant.map_or(length(1, newcomer.weight), |tenant| tenant.length(1));
        let &(count, longest) = self.tenant_lengths.last().ok_or(Refused::QueueFull)?;
        let last = self.tenants.get(&longest);
        let last = last.and_then(|tenant| tenant.waiting.last().copied());
        match last {
            Some((kind, place)) if count > own || kind > self.kind(client, newcomer) => Ok(place),
            _ if longest == newcomer.tenant => Err(Refused::OverShare),
            _ => Err(Refused::QueueFull),
        }
    }

    fn stand(&mut self, client_number: u64, newcomer: &Newcomer) -> StepId {
        self.last += 1;
        let (place, now) = (self.last, self.now);
        let kind = self.kind(client_number, newcomer);
        let client = self.clients.entry(client_number).or_insert_with(|| Client {
            account: Account::new(now, 1),
            is_inside: false,
            is_distrusted: false,
            waiting: BTreeSet::new(),
        });
        let before = client.length();
        if before == 0 {
            self.idle_clients
                .remove(&(client.account.idle_since, client_number));
        }
        client.waiting.insert((kind, place));
        lengthen(&mut self.client_lengths, client_number, before, before + 1);
        let weight = newcomer.weight.max(1);
        let tenant = self
            .tenants
            .entry(newcomer.tenant)
            .or_insert_with(|| Tenant {
                weight,
                accounts: Class::ALL.map(|_| Account::new(now, weight)),
                inside: Default::default(),
                waiting: BTreeSet::new(),
            });
        let before = tenant.length(0);
        if before == 0 {
            self.idle_tenants
                .remove(&(tenant.accounts[0].idle_since, newcomer.tenant));
        }
        tenant.weight = weight;
        tenant.waiting.insert((kind, place));
        lengthen(
            &mut self.tenant_lengths,
            newcomer.tenant,
            before,
            tenant.length(0),
        );
        self.ends.insert((newcomer.until, place));
        let waiting = Waiting {
            client: client_number,
            tenant: newcomer.tenant,
            kind,
            until: newcomer.until,
            inside: None,
        };
        self.waiting.insert(place, waiting);
        self.reenter(client_number);
        StepId(place)
    }

    /// Stands a client among those who want to be let in, if it has anything to let in, nothing inside, and does not
    /// stand there.
    fn reenter(&mut self, number: u64) {
        let unit_ns = self.unit_ns();
        if let Some(client) = self.clients.get_mut(&number)
            && !client.is_inside
            && !client.waiting.is_empty()
            && client.account.waiting() == 0
        {
            self.outside
                .push(self.now, number, &mut client.account, 1, unit_ns, None);
        }
    }

    /// Lets in all clients that have paid less than the round: each once, so all in all as often as they came.
    fn let_in(&mut self) {
        while let Some(client) = self.outside.first_before() {
            self.admit(client, Class::of);
        }
    }

    /// Lets in the first step of a client that stands outside, into the class for its kind.
    fn admit(&mut self, number: u64, class_of: impl Fn(StepKind) -> Class) {
        let unit_ns = self.unit_ns();
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        self.outside.pop(number, &mut client.account);
        let Some((kind, place)) = client.waiting.pop_first() else {
            return;
        };
        client.is_inside = true;
        let Some(waiting) = self.waiting.get_mut(&place) else {
            return;
        };
        self.last += 1;
        let class = class_of(kind);
        waiting.inside = Some((self.last, class));
        let (at, now) = (class as usize, self.now);
        if let Some(tenant) = self.tenants.get_mut(&waiting.tenant) {
            tenant.inside[at].insert((self.last, place));
            let (account, weight) = (&mut tenant.accounts[at], tenant.weight);
            self.inside[at].push(now, waiting.tenant, account, weight, unit_ns, None);
        }
        let account = &mut self.of_classes[at];
        let weight = class.weight();
        if class == Class::Beyond {
            self.classes.defer(account, unit_ns);
        }
        self.classes
            .push(now, at as u64, account, weight, unit_ns, None);
    }

    /// Takes one out, wherever it stands.
    fn take(&mut self, place: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&place)?;
        self.ends.remove(&(waiting.until, place));
        if let Some(tenant) = self.tenants.get_mut(&waiting.tenant) {
            let before = tenant.length(0);
            tenant.waiting.remove(&(waiting.kind, place));
            if let Some((since, class)) = waiting.inside {
                let at = class as usize;
                tenant.inside[at].remove(&(since, place));
                self.inside[at].pop(waiting.tenant, &mut tenant.accounts[at]);
            }
            let after = tenant.length(0);
            lengthen(&mut self.tenant_lengths, waiting.tenant, before, after);
            if after == 0 {
                tenant.accounts[0].idle_since = self.now;
                self.idle_tenants.insert((self.now, waiting.tenant));
            }
        }
        if let Some((_, class)) = waiting.inside {
            let at = class as usize;
            self.classes.pop(at as u64, &mut self.of_classes[at]);
        }
        self.leave_client(place, &waiting);
        Some(waiting)
    }

    fn leave_client(&mut self, place: u64, waiting: &Waiting) {
        let Some(client) = self.clients.get_mut(&waiting.client) else {
            return;
        };
        let before = client.length();
        match waiting.inside {
            Some(_) => client.is_inside = false,
            None => {
                client.waiting.remove(&(waiting.kind, place));
            }
        }
        if client.waiting.is_empty() && client.account.waiting() > 0 {
            self.outside.pop(waiting.client, &mut client.account);
        }
        let after = client.length();
        lengthen(&mut self.client_lengths, waiting.client, before, after);
        if after == 0 {
            client.account.idle_since = self.now;
            self.idle_clients.insert((self.now, waiting.client));
        }
        self.reenter(waiting.client);
    }

    /// Charges all three for a step that begins.
    fn charge(&mut self, client: u64, tenant: u64, kind: StepKind, class: Class) -> u64 {
        let (at, now) = (class as usize, self.now);
        let cost_ns = self.costs[kind as usize].ns();
        if let Some(client_account) = self.clients.get_mut(&client) {
            let account = &mut client_account.account;
            match class {
                Class::Beyond => self.outside.charge_aside(now, client, account, cost_ns),
                _ => self.outside.charge(now, client, account, cost_ns),
            }
        }
        if let Some(tenant_accounts) = self.tenants.get_mut(&tenant) {
            let account = &mut tenant_accounts.accounts[at];
            self.inside[at].charge(now, tenant, account, cost_ns);
        }
        let account = &mut self.of_classes[at];
        self.classes.charge(now, at as u64, account, cost_ns);
        cost_ns
    }

    /// Forgets accounts that have had nothing to pay for long, or the longest idle of too many.
    fn forget(&mut self) {
        let now = self.now;
        while_idle(&mut self.idle_clients, now, |client| {
            self.clients.remove(&client);
        });
        while_idle(&mut self.idle_tenants, now, |tenant| {
            self.tenants.remove(&tenant);
        });
    }
}

fn while_idle(idle: &mut BTreeSet<(Time, u64)>, now: Time, mut forget: impl FnMut(u64)) {
    for _ in 0..FORGET_MAX {
        let Some(&(since, number)) = idle.first() else {
            return;
        };
        let is_old = now.since_ns(since) >= FORGET_AFTER.as_nanos() as u64;
        if !is_old && idle.len() <= IDLE_MAX {
            return;
        }
        idle.remove(&(since, number));
        forget(number);
    }
}
