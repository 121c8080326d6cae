//! The store that several machines count limits by, asked for the server.
//!
//! The idea: a question is one call of one script, in which the store decides everything by its own clock (`store.lua`);
//! nothing is known here, so that this process may be lost at any time. Each step towards an answer may take a sixth of a lease;
//! the server waits for a fifth. Beside that it listens whether the store calls: another machine waits for what this one has, or has
//! given back what is waited for here. A call that is lost comes with the next answer, or again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ipc::directory::REASON_BYTES_MAX;
use ipc::fleet::{
    CALLED_MAX, FleetAnswer, FleetClaim, FleetGrant, FleetQuestion, FleetRateClaim, FleetRateGrant,
    FleetSaid, FleetSettings,
};
use stores::redis::{Command, Redis, RedisLogin, RedisReply};
use stores::{Address, Limits, ServerTls, Session, Stores};

use tokio::sync::Notify;

use crate::source::tls;

mod check;
mod machines;
mod refusal;

pub use check::{FleetChecked, check_fleet};

/// What runs in the store.
const SCRIPT: &str = include_str!("store.lua");
/// What is known of machines; the key of a claim has its number behind it. The braces keep all of them together.
const KEY: &[u8] = b"nagaya{f}:";
/// The same where it is only tried whether all can be done.
const TRIED_KEY: &[u8] = b"nagaya{f}:check:";
/// Connections: one that works, and one that is waited for no longer.
const CONNECTIONS_MAX: usize = 4;
/// No request of a client has this number.
const SESSION: Session = Session(0);
/// Most that permits are given for, whatever the server says: as much as may be configured.
const LEASE_MS_MAX: u64 = 60_000;
/// Numbers that the store tells of each claim, and of each of a rate.
const OF_CLAIM: usize = 4;
const OF_RATE: usize = 3;
/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// How long the store is listened to at a time, in whole seconds, and how long an answer may take.
const LISTEN_S: u64 = 5;
const LISTEN_PATIENCE: Duration = Duration::from_secs(LISTEN_S + 3);

/// Questions under way at once.
const ASKED_MAX: usize = 8;
/// How long Sentinels are not asked again after the store has failed.
const DOUBT_REST: Duration = Duration::from_millis(100);
/// How long a Sentinel may take at the least.
const SENTINEL_MS_MIN: u64 = 100;

/// The way to the store.
pub struct FleetAsker {
    stores: Rc<Stores>,
    /// For connections over which calls are waited for.
    listening: Rc<Stores>,
    settings: FleetSettings,
    /// How all keys begin.
    prefix: Cell<&'static [u8]>,
    login: RedisLogin,
    timeout: Duration,
    /// Where it is, or where Sentinels are.
    places: Vec<Address>,
    /// The Sentinel that is asked first.
    sentinel: Cell<usize>,
    way: RefCell<Result<Way, String>>,
    /// Told when the store of the way has failed, and when there is another.
    doubt: Notify,
    moved: Notify,
    /// Whether it was told that the store may not be listened to.
    is_deaf: Cell<bool>,
    asked: Cell<usize>,
    /// Whether this machine is just told of: what is told later is never heard before.
    is_telling: Cell<bool>,
    /// Whether the store was told of it before.
    has_told: Cell<bool>,
    /// What the store of the way calls the script, once it has it.
    script: RefCell<Option<Vec<u8>>>,
}

/// A store that has been found.
#[derive(Clone)]
struct Way {
    address: Address,
    client: Rc<Redis>,
    listener: Rc<Redis>,
}

impl FleetAsker {
    /// Makes one; it connects when it is asked.
    ///
    /// # Errors
    /// The store cannot be where it is said to be, or no authority vouches for it.
    pub fn new(settings: FleetSettings) -> Result<Self, String> {
        let place = |(host, port): &(String, Option<u16>)| match port {
            Some(port) => Address::tcp(host, *port).map_err(|error| error.to_string()),
            None => Ok(Address::unix(host)),
        };
        let places: Vec<_> = (settings.places.iter().map(place)).collect::<Result<_, _>>()?;
        let tls = settings.tls.as_deref().map(tls::client_config);
        let words = settings.user.iter().chain(&settings.password);
        let login = RedisLogin {
            auth: words.map(|word| word.clone().into_bytes()).collect(),
            database: settings.database,
            tls: tls.transpose()?.map(ServerTls),
        };
        let timeout = Duration::from_millis(settings.lease_ms / 6);
        let stores = |command_timeout, connections_max| {
            Stores::new(Limits {
                connect_timeout: timeout,
                command_timeout,
                connections_max,
                time_key: Some("fleet.lease"),
                ..Limits::default()
            })
        };
        let asker = Self {
            stores: stores(timeout, CONNECTIONS_MAX),
            listening: stores(LISTEN_PATIENCE, 1),
            settings,
            prefix: Cell::new(KEY),
            login,
            timeout,
            places,
            sentinel: Cell::default(),
            way: RefCell::new(Err("no Sentinel has been asked yet".to_owned())),
            doubt: Notify::new(),
            moved: Notify::new(),
            is_deaf: Cell::default(),
            asked: Cell::default(),
            is_telling: Cell::default(),
            has_told: Cell::default(),
            script: RefCell::default(),
        };
        if asker.settings.sentinel.is_none() {
            let address = asker.places.first().ok_or("no store is named")?;
            *asker.way.borrow_mut() = Ok(asker.to(address));
        }
        Ok(asker)
    }

    fn to(&self, address: &Address) -> Way {
        let login = || self.login.clone();
        let listener = self.listening.redis_as(address, login(), LISTEN_PATIENCE);
        Way {
            address: address.clone(),
            client: self.stores.redis_as(address, login(), self.timeout),
            listener,
        }
    }

    /// Asks the store.
    pub async fn ask(&self, question: FleetQuestion) -> FleetAnswer {
        let asked = self.asked.replace(self.asked.get() + 1);
        let said = match asked < ASKED_MAX {
            true => self.grants(&question).await,
            false => Err("it is still asked what it was asked before".to_owned()),
        };
        self.asked.set(self.asked.get() - 1);
        let said = said.unwrap_or_else(|mut why| {
            ipc::codec::cut(&mut why, REASON_BYTES_MAX);
            FleetSaid::Down(why)
        });
        FleetAnswer {
            seq: question.seq,
            said,
        }
    }

    /// Waits for the next call of the store; none came for a while.
    ///
    /// # Errors
    /// The store does not say whether there is one.
    pub async fn listen(&self) -> Result<Option<FleetAnswer>, String> {
        let way = self.way.borrow().clone()?;
        let list = self.list_of_calls();
        let seconds = LISTEN_S.to_string().into_bytes();
        let command = vec![b"BLPOP".to_vec(), list, seconds];
        let reply = tokio::select! {
            reply = way.listener.command(SESSION, command) => reply,
            // Whoever calls now calls there.
            () = self.moved.notified() => return Ok(None),
        };
        match reply.map_err(|error| self.unheard(&error))? {
            RedisReply::Array(mut words) => match words.pop() {
                Some(RedisReply::Bytes(keys)) => Ok(Some(FleetAnswer {
                    seq: 0,
                    said: FleetSaid::Called(called(&keys)),
                })),
                _ => Err("the store's call is not understood".to_owned()),
            },
            _ => Ok(None),
        }
    }

    /// Why it is not listened to; what does not pass by itself is told once.
    fn unheard(&self, error: &stores::Error) -> String {
        let why = self.told(error);
        let is_refused = ["NOPERM", "unknown command"]
            .iter()
            .any(|it| why.contains(it));
        if is_refused && !self.is_deaf.replace(true) {
            tracing::warn!(
                error = why,
                "the fleet's store refuses BLPOP, so it cannot call this machine: permits move slowly between machines until it is allowed"
            );
        }
        why
    }

    fn told(&self, error: &stores::Error) -> String {
        // One that has answered speaks what is spoken here.
        let is_heard = self.settings.tls.is_some() || self.script.borrow().is_some();
        refusal::told(error, is_heard)
    }

    async fn grants(&self, question: &FleetQuestion) -> Result<FleetSaid, String> {
        let way = self.way.borrow().clone()?;
        let reply = self.call(&way.client, question).await;
        let reply = reply.inspect_err(|_| self.doubt.notify_one())?;
        understood(&reply, question)
            .ok_or_else(|| "the store's answer is not understood".to_owned())
    }

    async fn call(
        &self,
        client: &Rc<Redis>,
        question: &FleetQuestion,
    ) -> Result<RedisReply, String> {
        let known = self.script.borrow().clone();
        let script = match known {
            Some(script) => script,
            None => self.load(client).await?,
        };
        let ask = |script: &[u8]| client.command(SESSION, self.command(question, script));
        let mut reply = ask(&script).await;
        let is_lacking = |error: &stores::Error| error.to_string().contains("NOSCRIPT");
        if reply.as_ref().is_err_and(is_lacking) {
            // A store that was started again knows no scripts.
            let script = self.load(client).await?;
            reply = ask(&script).await;
        }
        reply.map_err(|error| self.told(&error))
    }

    /// Has the store keep the script, and learns what it calls it.
    async fn load(&self, client: &Rc<Redis>) -> Result<Vec<u8>, String> {
        let load = [&b"SCRIPT"[..], b"LOAD", SCRIPT.as_bytes()];
        let load = load.iter().map(|word| word.to_vec()).collect();
        match client.command(SESSION, load).await {
            Ok(RedisReply::Bytes(name)) => {
                self.script.replace(Some(name.clone()));
                Ok(name)
            }
            Ok(_) => Err("the store does not take the script".to_owned()),
            Err(error) => Err(self.told(&error)),
        }
    }

    /// Follows Sentinels for as long as it is run: ten times a lease, and when the store has failed. Never ends where there are any.
    pub async fn follow_sentinels(&self) {
        let Some(name) = &self.settings.sentinel else {
            return;
        };
        let pause = Duration::from_millis(self.settings.lease_ms / 10);
        loop {
            match self.ask_sentinels(name).await {
                Ok(address) => {
                    let is_known = |way: &Way| way.address == address;
                    if !self.way.borrow().as_ref().is_ok_and(is_known) {
                        // Of that one nothing is known.
                        self.script.replace(None);
                        // Whoever knew none does not listen there.
                        if self.way.replace(Ok(self.to(&address))).is_ok() {
                            self.moved.notify_one();
                        }
                    }
                }
                // Sentinels that are away stop nobody who knows a store.
                Err(why) => {
                    if self.way.borrow().is_err() {
                        *self.way.borrow_mut() = Err(why);
                    }
                }
            }
            let doubted = tokio::time::timeout(pause, self.doubt.notified()).await;
            if doubted.is_ok() {
                // What the first one says may be old.
                self.sentinel.set(self.sentinel.get().wrapping_add(1));
                tokio::time::sleep(DOUBT_REST).await;
            }
        }
    }

    /// Where the store of this name is, by the first Sentinel that knows.
    async fn ask_sentinels(&self, name: &str) -> Result<Address, String> {
        let mut why = "no Sentinel is named".to_owned();
        let all = self.places.len();
        let timeout = self.timeout / u32::try_from(all).unwrap_or(1).max(1);
        let timeout = timeout.max(Duration::from_millis(SENTINEL_MS_MIN));
        let login = RedisLogin {
            tls: self.login.tls.clone(),
            ..RedisLogin::default()
        };
        let first = self.sentinel.get();
        for at in first..first.saturating_add(all) {
            let Some(sentinel) = self.places.get(at % all) else {
                break;
            };
            let client = self.stores.redis_as(sentinel, login.clone(), timeout);
            let words = [
                &b"SENTINEL"[..],
                b"GET-MASTER-ADDR-BY-NAME",
                name.as_bytes(),
            ];
            let words = words.iter().map(|word| word.to_vec()).collect();
            match client.command(SESSION, words).await.map(|it| place_in(&it)) {
                Ok(Some(place)) => {
                    self.sentinel.set(at % all);
                    return Ok(place);
                }
                Ok(None) => why = format!("no Sentinel knows `{name}`"),
                Err(error) => why = refusal::told_of_sentinel(&error),
            }
        }
        Err(why)
    }

    /// What a key of a claim is called in the store: those of rates are kept apart.
    fn key(&self, kind: &[u8], key: [u64; 2]) -> Vec<u8> {
        let [first, second] = key.map(u64::to_be_bytes);
        [self.prefix.get(), kind, &first, &second].concat()
    }

    /// Where the store calls this machine.
    fn list_of_calls(&self) -> Vec<u8> {
        [self.prefix.get(), b"w", self.settings.machine.as_bytes()].concat()
    }

    fn command(&self, question: &FleetQuestion, script: &[u8]) -> Command {
        let FleetQuestion { claims, rates, .. } = question;
        let number = |number: u64| number.to_string().into_bytes();
        let mut words = vec![b"EVALSHA".to_vec(), script.to_vec()];
        words.push(number((claims.len() + rates.len()) as u64 + 1));
        words.push(self.prefix.get().to_vec());
        words.extend(claims.iter().map(|claim| self.key(b"", claim.key)));
        words.extend(rates.iter().map(|claim| self.key(b"r", claim.key)));
        words.push(self.settings.machine.clone().into_bytes());
        words.push(format!("{:x}", question.run).into_bytes());
        words.push(number(question.seq));
        words.push(number(question.lease_ms.clamp(1, LEASE_MS_MAX)));
        words.push(number(claims.len() as u64));
        for claim in claims {
            let FleetClaim {
                limit,
                used,
                keep,
                need,
                want,
                weight,
                ..
            } = *claim;
            let all = [limit, used, keep, need, want, weight];
            words.extend(all.map(|it| number(u64::from(it))));
        }
        for claim in rates {
            let (want, demand) = (u64::from(claim.want), u64::from(claim.demand));
            let FleetRateClaim {
                interval_ns,
                full_us,
                spent_us,
                ..
            } = *claim;
            words.extend([interval_ns.max(1), full_us, want, demand, spent_us].map(number));
        }
        words
    }
}

/// The address that a Sentinel has told.
fn place_in(reply: &RedisReply) -> Option<Address> {
    let RedisReply::Array(words) = reply else {
        return None;
    };
    let [RedisReply::Bytes(host), RedisReply::Bytes(port)] = words.as_slice() else {
        return None;
    };
    let port = str::from_utf8(port).ok()?.parse().ok()?;
    Address::tcp(str::from_utf8(host).ok()?, port).ok()
}

/// What the script has answered to a question.
fn understood(reply: &RedisReply, question: &FleetQuestion) -> Option<FleetSaid> {
    let RedisReply::Array(replies) = reply else {
        return None;
    };
    let ([quiet_ms, machines, keys], said) = replies.split_first_chunk()?;
    let RedisReply::Bytes(keys) = keys else {
        return None;
    };
    let (grants, rates) = said.split_at_checked(question.claims.len() * OF_CLAIM)?;
    let grants = grants
        .chunks_exact(OF_CLAIM)
        .map(|of_claim| match of_claim {
            [held, part, is_contended, is_coming] => Some(FleetGrant {
                held: count(held)?,
                part: count(part)?,
                is_contended: number(is_contended)? > 0,
                is_coming: number(is_coming)? > 0,
            }),
            _ => None,
        });
    let of_rate = |of: &[RedisReply]| match of {
        [many, next_us, full_us] => Some(FleetRateGrant {
            count: count(many)?,
            next_us: number(next_us)?,
            full_us: number(full_us)?,
        }),
        _ => None,
    };
    let rates: Vec<_> = rates.chunks(OF_RATE).map(of_rate).collect::<Option<_>>()?;
    if rates.len() != question.rates.len() {
        return None;
    }
    Some(FleetSaid::Granted {
        quiet_ms: number(quiet_ms)?,
        machines: count(machines)?,
        called: called(keys),
        grants: grants.collect::<Option<_>>()?,
        rates,
    })
}

fn number(reply: &RedisReply) -> Option<u64> {
    match reply {
        RedisReply::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn count(reply: &RedisReply) -> Option<u32> {
    Some(u32::try_from(number(reply)?).unwrap_or(u32::MAX))
}

/// Keys, one after the other.
fn called(keys: &[u8]) -> Vec<[u64; 2]> {
    let keys = keys.chunks_exact(KEY_BYTES).take(CALLED_MAX);
    let half = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |all, byte| all << 8 | u64::from(*byte))
    };
    keys.map(|key| {
        let (first, second) = key.split_at(KEY_BYTES / 2);
        [half(first), half(second)]
    })
    .collect()
}
