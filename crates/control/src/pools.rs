//! Pools of processes, as who starts and ends them knows them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// How a pool stands.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolStanding {
    /// Its id.
    pub pool: String,
    /// What messages call it.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// `cold`, `waiting`, `starting`, `warm`, `handing_over`, `draining` or `failed`.
    pub state: Cow<'static, str>,
    /// Requests that wait: until it has started, or one of its processes has time.
    pub waiting: u64,
    /// Requests that it has been given and has not answered, those that wait for a process included.
    pub under_way: u64,
    /// Its master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Processes in it; of php-fpm those that run pages.
    pub processes: u32,
    /// How many there may be, where the configuration says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes_max: Option<u32>,
    /// Masters that have been ready.
    pub starts: u64,
    /// Masters that have not.
    pub starts_failed: u64,
    /// How long the last starts took: the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_p50_ms: Option<u64>,
    /// The longest but one in a hundred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_p99_ms: Option<u64>,
    /// Processor time of its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// The share of periods in which the quota ran out that binds it, its tenant's for instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_share: Option<f64>,
    /// The share of the last ten seconds in which its group waited for processors, as the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_pressure: Option<f64>,
    /// For memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<f64>,
    /// For devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_pressure: Option<f64>,
    /// Memory of its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// How long its longest request is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<u64>,
    /// The script that answers it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub longest_script: String,
    /// Messages that `nagaya sendmail` has handed over in it.
    pub mails: u64,
    /// Those that it could not, or not to everybody.
    pub mails_unsent: u64,
    /// Why it failed last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure: String,
    /// When it may be started again after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_ms: Option<u64>,
}
