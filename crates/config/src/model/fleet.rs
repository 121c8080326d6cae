//! `[fleet]`: what machines share.

use std::path::PathBuf;

use super::upstream::ServerAddress;

/// Bytes of a machine's name.
const NAME_BYTES_MAX: usize = 64;

/// `[fleet]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// The Redis or Valkey that limits are counted by.
    pub store: FleetStore,
    /// What this machine is called; `None`: as its kernel does.
    pub machine: Option<String>,
    /// How long permits are given to a machine. Default 5 s.
    pub lease_ms: u64,
    /// Machines there are at least, for shares while the store is away. Default 0.
    pub machines: u32,
    /// Whom the process becomes that asks it, where there are no directories; `None` is whoever there is for it.
    pub user: Option<String>,
}

impl Fleet {
    /// Whether a machine may be called so.
    #[must_use]
    pub fn is_machine_name(name: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
    }
}

/// A Redis or Valkey, and who logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetStore {
    /// Where it listens: one address, or those of Sentinels.
    pub addresses: Vec<ServerAddress>,
    /// What Sentinels at these addresses call the store; `None`: it is there itself.
    pub sentinel: Option<String>,
    /// Who logs in; `None`: a password alone, or nobody.
    pub user: Option<String>,
    /// The file whose first line is the password; the supervisor reads it.
    pub password_file: Option<PathBuf>,
    /// The number of the database.
    pub database: u32,
    /// Whether it, and Sentinels, are spoken to by TLS alone.
    pub tls: bool,
    /// PEM file of the authorities that its certificate may come from; `None`: the machine's.
    pub authorities: Option<PathBuf>,
}

impl FleetStore {
    /// As `store` says it.
    #[must_use]
    pub fn url(&self) -> String {
        let mut url = String::from("redis://");
        if let Some(user) = &self.user {
            url.push_str(&format!("{user}@"));
        }
        let mut options = Vec::new();
        match self.addresses.as_slice() {
            [ServerAddress::Unix(path)] => options.push(format!("socket={}", path.display())),
            addresses => {
                let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                url.push_str(&addresses.join(","));
            }
        }
        url.push_str(&format!("/{}", self.database));
        options.extend(self.sentinel.iter().map(|name| format!("sentinel={name}")));
        super::directory::add_options(
            &mut url,
            options,
            (&self.password_file, &self.authorities, self.tls),
        );
        url
    }
}
