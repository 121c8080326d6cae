//! What the supervisor starts this program again as.

use ipc::handover::FORMAT;

/// Who a process is that the supervisor has started.
#[derive(Debug, PartialEq, Eq)]
pub enum Role {
    /// The server, which becomes this user.
    Server {
        /// Its name.
        user: String,
    },
    /// The spawner.
    Spawner,
    /// The acme process, which becomes this user.
    Acme {
        /// Its name.
        user: String,
    },
    /// The keeper, which becomes this user.
    Keeper {
        /// Its name.
        user: String,
    },
    /// The recorder, which becomes this user.
    Recorder {
        /// Its name.
        user: String,
    },
    /// The directory process, which becomes this user.
    Directory {
        /// Its name.
        user: String,
    },
    /// The one that is to take the supervisor's place.
    Successor {
        /// The format that the supervisor speaks to it in.
        format: String,
    },
}

impl Role {
    /// The successor of this supervisor.
    pub(crate) fn successor() -> Role {
        let format = FORMAT.to_string();
        Role::Successor { format }
    }

    /// The words of the command line.
    pub(crate) fn words(&self) -> Vec<&str> {
        match self {
            Role::Server { user } => vec!["server", "--user", user],
            Role::Spawner => vec!["spawner", "--link"],
            Role::Acme { user } => vec!["acme", "--user", user],
            Role::Keeper { user } => vec!["keeper", "--user", user],
            Role::Recorder { user } => vec!["recorder", "--user", user],
            Role::Directory { user } => vec!["directory", "--user", user],
            Role::Successor { format } => vec!["successor", "--format", format],
        }
    }

    /// Who this process is, if the supervisor has started it. No command, so that no help,
    /// completion or suggestion leads to it.
    #[must_use]
    pub fn of_this_process() -> Option<Role> {
        let words: Vec<_> = std::env::args().skip(1).take(4).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match *words.as_slice() {
            ["server", "--user", user] => Some(Role::Server { user: user.into() }),
            ["spawner", "--link"] => Some(Role::Spawner),
            ["acme", "--user", user] => Some(Role::Acme { user: user.into() }),
            ["keeper", "--user", user] => Some(Role::Keeper { user: user.into() }),
            ["recorder", "--user", user] => Some(Role::Recorder { user: user.into() }),
            ["directory", "--user", user] => Some(Role::Directory { user: user.into() }),
            ["successor", "--format", format] => Some(Role::Successor {
                format: format.into(),
            }),
            _ => None,
        }
    }
}
