//! What machines say of themselves in the store, and what operators want of them.
//!
//! The idea: a call of its own (`machines.lua`) some seconds apart, over the connections that there are. It never keeps a lease
//! waiting, and what it comes to says nothing of the store. Whoever may write there may lie: what is read has bounds.

use ipc::directory::REASON_BYTES_MAX;
use ipc::fleet::{
    DrainOrder, FleetAnswer, FleetSaid, MACHINE_BYTES_MAX, MACHINES_MAX, MachineReport,
    OrderOutcome, REPORT_BYTES_MAX,
};
use stores::redis::RedisReply;

use super::{FleetAsker, SESSION, number};

const SCRIPT: &str = include_str!("machines.lua");
/// Values of each machine.
const OF_MACHINE: usize = 5;

/// What is said and asked in a call.
#[derive(Default)]
pub(super) struct Call<'a> {
    report: &'a str,
    /// The order that this machine obeys.
    obeyed: u64,
    order: Option<&'a DrainOrder>,
    is_list: bool,
}

/// What the store says to it.
pub(super) struct MachinesReply {
    /// The order of this machine.
    order: u64,
    /// Whether it is instead of the one that this machine obeys.
    is_instead: bool,
    pub(super) has_namesake: bool,
    /// Whether it evicts keys; `None`: it does not say.
    pub(super) evicts: Option<bool>,
    outcome: OrderOutcome,
    machines: Vec<MachineReport>,
}

impl FleetAsker {
    /// Has the store know what this machine says of itself; what the store says of it.
    pub async fn tell(&self, report: &str, obeyed: u64) -> Option<FleetAnswer> {
        let call = Call {
            report,
            obeyed,
            ..Call::default()
        };
        if self.is_telling.replace(true) {
            return None;
        }
        let told = self.machines(call).await;
        self.is_telling.set(false);
        // What was not told is told the next time.
        let told = told.ok()?;
        self.has_told.set(true);
        let said = FleetSaid::Told {
            order: told.order,
            instead_of: if told.is_instead { obeyed } else { 0 },
            has_namesake: told.has_namesake,
            is_evicting: told.evicts == Some(true),
        };
        Some(answer(0, said))
    }

    /// Says which machines there are, after what an operator wants of one.
    pub async fn list(&self, id: u64, order: Option<&DrainOrder>) -> Vec<FleetAnswer> {
        let call = Call {
            order,
            is_list: true,
            ..Call::default()
        };
        let mut said = Vec::new();
        let listed = self.machines(call).await.map(|told| {
            said.extend(told.machines.into_iter().map(FleetSaid::Machine));
            told.outcome
        });
        let listed = listed.map_err(|mut why| {
            ipc::codec::cut(&mut why, REASON_BYTES_MAX);
            why
        });
        said.push(FleetSaid::Listed(listed));
        said.into_iter().map(|said| answer(id, said)).collect()
    }

    pub(super) async fn machines(&self, call: Call<'_>) -> Result<MachinesReply, String> {
        let own = self.settings.machine.as_str();
        let flag = |is_set| if is_set { "1" } else { "0" };
        let (whom, wish) = call
            .order
            .map_or(("", false), |it| (it.machine.as_str(), it.is_drained));
        let gateway = format!("{:x}", self.settings.gateway);
        let is_again = flag(self.has_told.get());
        let obeyed = call.obeyed.to_string();
        let of_machine = [own, &gateway, call.report, &obeyed, is_again];
        let of_others = [whom, flag(wish), flag(call.is_list)];
        let keys = [b"m", b"o"].map(|key| [self.prefix.get(), key].concat());
        let words = of_machine.into_iter().chain(of_others);
        let reply = self.eval(SCRIPT, &keys, words).await?;
        let told = understood(&reply, own);
        told.ok_or_else(|| "the store's answer is not understood".to_owned())
    }

    /// Has the store run a script with these keys and words.
    pub(super) async fn eval(
        &self,
        script: &str,
        keys: &[Vec<u8>],
        words: impl IntoIterator<Item = &str>,
    ) -> Result<RedisReply, String> {
        let way = self.way.borrow().clone()?;
        let count = keys.len().to_string().into_bytes();
        let mut all = vec![b"EVAL".to_vec(), script.into(), count];
        all.extend_from_slice(keys);
        all.extend(words.into_iter().map(Into::into));
        let reply = way.client.command(SESSION, all).await;
        reply.map_err(|error| self.told(&error))
    }
}

fn answer(seq: u64, said: FleetSaid) -> FleetAnswer {
    FleetAnswer { seq, said }
}

/// What the script has answered.
fn understood(reply: &RedisReply, own: &str) -> Option<MachinesReply> {
    let RedisReply::Array(replies) = reply else {
        return None;
    };
    let ([order, is_instead, has_namesake, evicts, outcome], machines) =
        replies.split_first_chunk()?;
    let machines = machines.chunks_exact(OF_MACHINE).take(MACHINES_MAX);
    let machines = machines.filter_map(|of_machine| match of_machine {
        [
            RedisReply::Bytes(machine),
            heard_ms,
            is_drained,
            has_namesake,
            RedisReply::Bytes(report),
        ] => report_of(machine, report).map(|(machine, report)| MachineReport {
            is_here: machine == own,
            machine,
            heard_ms: number(heard_ms),
            is_drained: number(is_drained) == Some(1),
            has_namesake: number(has_namesake) == Some(1),
            report,
        }),
        _ => None,
    });
    Some(MachinesReply {
        order: number(order)?,
        is_instead: number(is_instead)? == 1,
        has_namesake: number(has_namesake)? == 1,
        evicts: number(evicts).map(|it| it == 1),
        outcome: match number(outcome)? {
            0 => OrderOutcome::Unknown,
            1 => OrderOutcome::Kept,
            _ => OrderOutcome::Several,
        },
        machines: machines.collect(),
    })
}

/// A machine's name, which is one, and what it says, as far as it is text and short.
fn report_of(machine: &[u8], report: &[u8]) -> Option<(String, String)> {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_name = (1..=MACHINE_BYTES_MAX).contains(&machine.len()) && machine.iter().all(fits);
    let report = str::from_utf8(report)
        .ok()
        .filter(|report| report.len() <= REPORT_BYTES_MAX);
    let machine = str::from_utf8(machine).ok().filter(|_| is_name)?;
    Some((machine.to_owned(), report.unwrap_or_default().to_owned()))
}
