//! Asking the fleet's store from where an operator types: how long it takes, and whether it lets do all that is needed.
//!
//! The idea: what the gateway's process does is done here, by the same code, with keys of its own (`check.lua` tries each command
//! first, so that all that are refused are told at once). What machines have there is read and not changed.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use ipc::fleet::{FleetClaim, FleetQuestion, FleetRateClaim, FleetSaid, FleetSettings};
use stores::redis::RedisReply;
use tokio::time::Instant;

use super::machines::Call;
use super::refusal::is_lasting;
use super::{FleetAsker, KEY, TRIED_KEY};

const SCRIPT: &str = include_str!("check.lua");
/// How often the store is asked to know how long it takes, and how long it is tried again where it does not answer.
const TRIPS: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(100);
const TRIED: Duration = Duration::from_secs(10);

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetChecked {
    /// The longest that it took to answer.
    pub longest: Duration,
    /// Whether several gateways say that they are this machine.
    pub has_namesake: bool,
    /// Whether it evicts keys when it is full; `None`: it does not say.
    pub evicts: Option<bool>,
}

/// Asks the store some times, one after the other, and tries all that is asked of it.
///
/// # Errors
/// It does not answer, cannot be asked, or refuses something.
pub fn check_fleet(settings: FleetSettings) -> Result<FleetChecked, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| config::reason(&error))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let asker = Rc::new(FleetAsker::new(settings)?);
        let followed = Rc::clone(&asker);
        tokio::task::spawn_local(async move { followed.follow_sentinels().await });
        asker.prefix.set(TRIED_KEY);
        asker.try_all().await?;
        asker.prefix.set(KEY);
        let mut checked = FleetChecked {
            longest: Duration::ZERO,
            has_namesake: false,
            evicts: None,
        };
        for _ in 0..TRIPS {
            let asked = Instant::now();
            let said = asker.machines(Call::default()).await?;
            (checked.has_namesake, checked.evicts) = (said.has_namesake, said.evicts);
            checked.longest = checked.longest.max(asked.elapsed());
        }
        Ok(checked)
    })
}

impl FleetAsker {
    /// Does all that the gateway's process does with the store.
    async fn try_all(&self) -> Result<(), String> {
        let list = String::from_utf8_lossy(&self.list_of_calls()).into_owned();
        let until = Instant::now() + TRIED;
        // Sentinels are to be asked, and a connection made.
        let refused = loop {
            match self.try_commands(&list).await {
                Ok(refused) => break refused,
                Err(why) if Instant::now() >= until || is_lasting(&why) => return Err(why),
                Err(_) => tokio::time::sleep(TRY_AGAIN).await,
            }
        };
        if !refused.is_empty() {
            return Err(format!(
                "the store's account may not use {}: the guide on several machines lists all commands that are needed",
                Vec::from_iter(refused).join(", ")
            ));
        }
        self.listen().await?;
        let said = self.ask(question()).await.said;
        if let FleetSaid::Down(why) = said {
            return Err(why);
        }
        self.try_commands("").await.map(drop)
    }

    /// Tries commands, deletes what was left behind, and leaves a call in a list; which of them are refused.
    async fn try_commands(&self, list: &str) -> Result<BTreeSet<String>, String> {
        let question = question();
        let claims = question.claims.iter().map(|it| self.key(b"", it.key));
        let rates = question.rates.iter().map(|it| self.key(b"r", it.key));
        let tried = [b"1", b"2", b"3"].map(|it| [self.prefix.get(), it].concat());
        let keys = tried.into_iter().chain([self.prefix.get().to_vec()]);
        let keys: Vec<_> = keys.chain(claims).chain(rates).collect();
        let RedisReply::Array(refused) = self.eval(SCRIPT, &keys, [list]).await? else {
            return Err("the store's answer is not understood".to_owned());
        };
        let refused = refused.into_iter().filter_map(|it| match it {
            RedisReply::Bytes(command) => String::from_utf8(command).ok(),
            _ => None,
        });
        // Whoever answers there may say anything.
        Ok(refused.filter(|it| is_tried(it)).collect())
    }
}

fn is_tried(command: &str) -> bool {
    SCRIPT.contains(&format!("{{'{command}'"))
}

/// A claim of a permit, and one of a rate.
fn question() -> FleetQuestion {
    FleetQuestion {
        run: 0,
        seq: 1,
        lease_ms: 1_000,
        claims: vec![FleetClaim {
            key: [0, 1],
            limit: 1,
            want: 1,
            ..FleetClaim::default()
        }],
        rates: vec![FleetRateClaim {
            key: [0, 2],
            interval_ns: 1_000_000,
            full_us: 1_000,
            want: 1,
            ..FleetRateClaim::default()
        }],
    }
}
