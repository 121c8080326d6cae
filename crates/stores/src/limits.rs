//! What is allowed to the clients of a worker.

use std::time::Duration;

/// The longest value, row set or body taken from or given to a store: 10 MiB.
pub const VALUE_BYTES_MAX: usize = 10 * 1024 * 1024;

/// What a worker allows its users to ask of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time to make one connection, looking up its name and logging in included.
    pub connect_timeout: Duration,
    /// Time for one operation as a whole, waiting for a free connection and connecting included.
    pub command_timeout: Duration,
    /// Connections of this worker to one server, idle ones included; at least 1.
    pub connections_max: usize,
    /// How long a connection may lie idle before it is closed.
    pub idle_timeout: Duration,
    /// The key that an operator would change where time ran out, if that is none of `[scripts]`.
    pub time_key: Option<&'static str>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(1),
            command_timeout: Duration::from_secs(5),
            connections_max: 32,
            idle_timeout: Duration::from_secs(60),
            time_key: None,
        }
    }
}
