//! What machines say of themselves in the store, and what operators want of them.
//!
//! The idea: a call of its own (`machines.lua`) some seconds apart, over the connections that there are. It never keeps a lease
//! waiting, and what it comes to says nothing of the store. Whoever may write there may lie: what is read has bounds.

use std::rc::Rc;
use std::time::Duration;

use ipc::directory::REASON_BYTES_MAX;
use ipc::fleet::{
    DrainOrder, FleetAnswer, FleetSaid, FleetSettings, MACHINE_BYTES_MAX, MACHINES_MAX,
    MachineReport, REPORT_BYTES_MAX,
};
use stores::redis::RedisReply;
use tokio::time::Instant;

use super::{FleetAsker, KEY, SESSION, number, told};

const SCRIPT: &str = include_str!("machines.lua");
/// Values of each machine.
const OF_MACHINE: usize = 4;
/// How often the store is asked to know how long it takes, and how long it is tried again where it does not answer.
const TRIPS: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(100);
const TRIED: Duration = Duration::from_secs(10);

/// Asks the store some times, one after the other: the longest that it took. Nothing is changed there.
///
/// # Errors
/// It does not answer, or cannot be asked.
pub fn fleet_round_trip(settings: FleetSettings) -> Result<Duration, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| config::reason(&error))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let asker = Rc::new(FleetAsker::new(settings)?);
        let followed = Rc::clone(&asker);
        tokio::task::spawn_local(async move { followed.follow_sentinels().await });
        let until = Instant::now() + TRIED;
        // Sentinels are to be asked, and a connection made.
        while let Err(why) = asker.machines(Call::default()).await {
            if Instant::now() >= until {
                return Err(why);
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
        let mut longest = Duration::ZERO;
        for _ in 0..TRIPS {
            let asked = Instant::now();
            asker.machines(Call::default()).await?;
            longest = longest.max(asked.elapsed());
        }
        Ok(longest)
    })
}

/// What is said and asked in a call.
#[derive(Default)]
struct Call<'a> {
    report: &'a str,
    is_drained: bool,
    order: Option<&'a DrainOrder>,
    is_list: bool,
}

impl FleetAsker {
    /// Has the store know what this machine says of itself; whether it is to be drained, where the store says it.
    pub async fn tell(&self, report: &str, is_drained: bool) -> Option<FleetAnswer> {
        let call = Call {
            report,
            is_drained,
            ..Call::default()
        };
        if self.is_telling.replace(true) {
            return None;
        }
        let told = self.machines(call).await;
        self.is_telling.set(false);
        // What was not told is told the next time.
        let (is_drained, _) = told.ok()?;
        Some(answer(0, FleetSaid::Drain(is_drained)))
    }

    /// Says which machines there are, after what an operator wants of one.
    pub async fn list(&self, id: u64, order: Option<&DrainOrder>) -> Vec<FleetAnswer> {
        let call = Call {
            order,
            is_list: true,
            ..Call::default()
        };
        let listed = self.machines(call).await;
        let (machines, listed) = match listed {
            Ok((_, machines)) => (machines, Ok(())),
            Err(mut why) => {
                ipc::codec::cut(&mut why, REASON_BYTES_MAX);
                (Vec::new(), Err(why))
            }
        };
        let machines = machines.into_iter().map(FleetSaid::Machine);
        let said = machines.chain([FleetSaid::Listed(listed)]);
        said.map(|said| answer(id, said)).collect()
    }

    async fn machines(&self, call: Call<'_>) -> Result<(bool, Vec<MachineReport>), String> {
        let way = self.way.borrow().clone()?;
        let own = self.settings.machine.as_str();
        let flag = |is_set| if is_set { "1" } else { "0" };
        let (whom, wish) = call
            .order
            .map_or(("", false), |it| (it.machine.as_str(), it.is_drained));
        let of_machine = [own, call.report, flag(call.is_drained)];
        let of_others = [whom, flag(wish), flag(call.is_list)];
        let mut words = vec![b"EVAL".to_vec(), SCRIPT.into(), b"2".to_vec()];
        words.extend([b"m", b"o"].map(|key| [KEY, key].concat()));
        words.extend([of_machine, of_others].concat().into_iter().map(Into::into));
        let reply = way.client.command(SESSION, words).await;
        let reply = reply.map_err(|error| told(&error))?;
        let (is_drained, is_known, machines) =
            understood(&reply, own).ok_or("the store's answer is not understood")?;
        match is_known {
            true => Ok((is_drained, machines)),
            false => Err(format!("no machine of the fleet is called `{whom}`")),
        }
    }
}

fn answer(seq: u64, said: FleetSaid) -> FleetAnswer {
    FleetAnswer { seq, said }
}

/// Whether the machine that asks is to be drained, whether an order's is known, and who is there.
fn understood(reply: &RedisReply, own: &str) -> Option<(bool, bool, Vec<MachineReport>)> {
    let RedisReply::Array(replies) = reply else {
        return None;
    };
    let ([is_drained, is_known], machines) = replies.split_first_chunk()?;
    let machines = machines.chunks_exact(OF_MACHINE).take(MACHINES_MAX);
    let machines = machines.filter_map(|of_machine| match of_machine {
        [
            RedisReply::Bytes(machine),
            heard_ms,
            is_drained,
            RedisReply::Bytes(report),
        ] => report_of(machine, report).map(|(machine, report)| MachineReport {
            is_here: machine == own,
            machine,
            heard_ms: number(heard_ms),
            is_drained: number(is_drained) == Some(1),
            report,
        }),
        _ => None,
    });
    Some((
        number(is_drained)? == 1,
        number(is_known)? == 1,
        machines.collect(),
    ))
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
