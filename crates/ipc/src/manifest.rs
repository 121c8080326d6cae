//! What the supervisor and the spawner say to each other, over a pair of sockets
//! (`os::fdpass::pair`).
//!
//! The idea: the spawner reads no configuration. For each generation it gets a [`Manifest`]: every
//! rule that runs programs, and all it has to know to run them. Sites and rules without programs
//! are not in it, so that it costs nothing where there are none.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use config::model::LogLevel;
use os::cgroup::{Group, Layout};
use os::file::Symlinks;
use serde::{Deserialize, Serialize};

use crate::codec::{self, BadMessage, Packed, beside, path};
use crate::message::Message;
use crate::pools::{PoolAnswer, PoolManifest, PoolProcess, PoolQuestion, PoolSocket, Seen};
use crate::rows::{RowKey, RowsManifest};

/// As much of a text as is told of a refusal.
const TEXT_BYTES_MAX: usize = 64 * 1024 - 64;

/// Where a program named without a slash is looked for.
const DIRECTORIES: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// What the supervisor says to the spawner.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToSpawner {
    /// Be ready to run this generation's programs; answered by `Ready` or `Refused`.
    Manifest(Box<Manifest>),
    /// Take orders from the workers of a new server, one link each.
    Workers {
        /// The spawner's ends.
        #[serde(with = "beside")]
        links: Vec<OwnedFd>,
    },
    /// Take chores over this link, of which there is one: where another was, what it ran is ended.
    Chores {
        /// The spawner's end.
        #[serde(with = "beside")]
        link: OwnedFd,
    },
    /// Sockets of pools that a manifest to come is the first to name, or that take the place of
    /// one that refuses connections. That of a pool which this manifest and those before do not
    /// name any more is let go of; one that is told again is the same as before where it has the
    /// same inode.
    Sockets(Vec<PoolSocket>),
    /// The place of a row's pool cannot be had.
    NoPlace {
        /// The pool.
        id: String,
        /// Why.
        why: String,
    },
    /// Masters that run, of each pool the latest last: pools are in this spawner's charge from now
    /// on. Said before the first manifest; to one whose manifest says that another is beside it,
    /// when that has let go of them. Who is not in charge neither starts nor ends any master, and
    /// answers `Warm` to who wants a pool: whoever is in charge sees its connection.
    PoolProcesses(Vec<PoolProcess>),
    /// Pools are in another's charge from now on; answered by `Master` for each that runs, told
    /// of before or not, and then by `LetGo`.
    LetGo,
    /// What an operator asks of pools; answered by `Pools`.
    Pools {
        /// The asker's number for it.
        number: u64,
        /// What.
        question: PoolQuestion,
    },
}

/// What the spawner says to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromSpawner {
    /// Programs of the generation can be run.
    Ready {
        /// Its number.
        generation: u64,
    },
    /// They cannot; nothing has changed.
    Refused {
        /// Its number.
        generation: u64,
        /// Why: a problem a line.
        message: String,
    },
    /// A master has been started; said unasked.
    PoolProcess(PoolProcess),
    /// One has ended, and so has all in its group; said unasked.
    PoolProcessEnded {
        /// Its process.
        pid: u32,
    },
    /// No master is started or ended here any more, and every one has been told of.
    LetGo,
    /// A pool's socket refuses connections, as when a program in it has shut it down: bind another,
    /// told by `Sockets`. Said unasked, and again where it is not heard.
    Deaf {
        /// The pool.
        id: String,
    },
    /// A row's pool wants a directory of its user's and a socket; answered by `Sockets` or `NoPlace`.
    Place {
        /// The pool.
        id: String,
        /// The user.
        user: String,
    },
    /// Nobody wants the pool of a row any more, and its socket can go. Said unasked.
    Leave {
        /// The pool.
        id: String,
    },
    /// The answer to `Pools`.
    Pools {
        /// The asker's number.
        number: u64,
        /// What is to be said.
        answer: PoolAnswer,
    },
    /// Limits of groups that wait, each in words: all that do by now. Said unasked.
    Held {
        /// One a group.
        limits: Vec<String>,
    },
}

/// A generation's programs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// The generation's number.
    pub generation: u64,
    /// Whether another spawner still has programs below the same places.
    pub is_beside: bool,
    /// What the error log is told.
    pub log_level: LogLevel,
    /// Programs that may run at once.
    pub programs_max: u64,
    /// Where control groups stand; no hierarchy where none is wanted or to be had.
    pub layout: Layout,
    /// The groups there are to be (`groups::Shape`), each after those it is in.
    pub groups: Packed<Vec<Group>>,
    /// Every site with a rule that runs programs, and their mounts, by rising index.
    pub sites: Vec<SiteManifest>,
    /// Every map that runs a program, by rising index.
    pub maps: Vec<MapManifest>,
    /// Every pool, by its index in the model.
    pub pools: Vec<Packed<PoolManifest>>,
    /// Sites whose rows have pools.
    pub rows: Vec<RowsManifest>,
    /// What rows are sealed with.
    pub row_key: RowKey,
    /// Tenants of written sites, in order, where rows have programs: no row is one's.
    pub written_tenants: Vec<String>,
    /// Pools that may start at once.
    pub starting_max: u32,
    /// What every pool with walls sees beside its own.
    pub sees: Vec<Seen>,
    /// Most bytes that compiled files of a pool keep of the disk.
    pub cache_bytes: u64,
    /// `HOST:PORT` of the server that takes mail of pools.
    pub mail: String,
    /// Tenants of which nothing is to run.
    pub suspended: Vec<String>,
}

/// A map that runs a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapManifest {
    /// Its index in the model.
    pub index: u32,
    /// What it runs.
    pub program: NamedProgram,
    /// How many of it run.
    pub processes: u32,
}

/// A program that the configuration names, and not what a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedProgram {
    /// Whose it is, in messages: `map load`.
    pub whose: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it starts.
    #[serde(with = "path")]
    pub directory: PathBuf,
    /// The user it runs as; `None` is the user of the spawner itself, which is not root.
    pub user: Option<String>,
    /// Whether that may be root, where its file is root's and nobody else's to write.
    pub may_be_root: bool,
}

/// A site that runs programs, or a mount of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteManifest {
    /// Its index in the model; mounts are counted on behind the sites, in their order.
    pub index: u32,
    /// Its name in messages: the first host, and the path of a mount.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// The root in which the programs are.
    #[serde(with = "path")]
    pub root: PathBuf,
    /// The directory nothing leads out of; `root` is in it.
    #[serde(with = "path")]
    pub within: PathBuf,
    /// What is done with symbolic links.
    pub symlinks: Symlinks,
    /// The user its programs run as; `None` is the user of the spawner itself, which is not root.
    pub user: Option<String>,
    /// Its rules that run programs, by rising index.
    pub rules: Vec<RuleManifest>,
}

/// A rule that runs programs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuleManifest {
    /// Its index in the site.
    pub index: u32,
    /// Variables it sets beyond those that every program may get.
    pub names: Vec<String>,
    /// What each process of it may use.
    pub limits: os::spawn::Limits,
    /// Which of the manifest's groups its programs are born in; none: the spawner's own.
    pub group: Option<u32>,
}

impl Manifest {
    /// Whether no request is answered by a program.
    #[must_use]
    pub fn starts_nothing(&self) -> bool {
        self.sites.is_empty() && self.pools.is_empty() && self.rows.is_empty()
    }

    /// Takes down who is suspended or resumed: of whom something runs here.
    pub fn note_suspended(&mut self, question: &PoolQuestion) {
        let is_here = |tenant: &String| {
            let mut pools = self.pools.iter().filter_map(|pool| pool.open().ok());
            let mut sites = self.sites.iter();
            sites.any(|it| it.tenant == *tenant) || pools.any(|it| it.tenant == *tenant)
        };
        let of_rows = !self.rows.is_empty();
        match question {
            PoolQuestion::Suspend(tenant) if of_rows || is_here(tenant) => {
                self.suspended.retain(|it| it != tenant);
                self.suspended.push(tenant.clone());
            }
            PoolQuestion::Resume(tenant) => self.suspended.retain(|it| it != tenant),
            _ => {}
        }
    }

    /// Whether all that is packed in it can be read, and is what it should be.
    fn check(&self) -> Result<(), BadMessage> {
        for pool in &self.pools {
            pool.open()?;
        }
        match self.groups.open()?.iter().all(is_group) {
            true => Ok(()),
            false => Err(BadMessage::new("no path of a group")),
        }
    }
}

impl Message for ToSpawner {
    const BYTES_MAX: usize = 64 * 1024 * 1024;
    /// A link for every worker.
    const FDS_MAX: usize = 65_536;

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            ToSpawner::Manifest(_)
            | ToSpawner::LetGo
            | ToSpawner::Pools { .. }
            | ToSpawner::NoPlace { .. } => Vec::new(),
            ToSpawner::Workers { links } => links.iter().map(AsFd::as_fd).collect(),
            ToSpawner::Chores { link } => vec![link.as_fd()],
            ToSpawner::Sockets(sockets) => sockets.iter().map(|it| it.socket.as_fd()).collect(),
            ToSpawner::PoolProcesses(masters) => {
                masters.iter().flat_map(PoolProcess::fds).collect()
            }
        }
    }

    fn bound(&mut self) -> Result<(), BadMessage> {
        match self {
            ToSpawner::Manifest(manifest) => manifest.check(),
            _ => Ok(()),
        }
    }
}

/// Whether its path becomes directories: the supervisor makes it of letters that are safe.
fn is_group(group: &Group) -> bool {
    let is_name = |name: &String| !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    !group.path.is_empty() && group.path.iter().all(is_name)
}

impl FromSpawner {
    /// That the generation cannot be run; text too long is cut.
    #[must_use]
    pub fn refused(generation: u64, mut message: String) -> FromSpawner {
        codec::cut(&mut message, TEXT_BYTES_MAX);
        Self::Refused {
            generation,
            message,
        }
    }
}

impl Message for FromSpawner {
    /// That on every pool is the longest.
    const BYTES_MAX: usize = 4 * 1024 * 1024;
    /// Those of a master.
    const FDS_MAX: usize = 2;

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            FromSpawner::PoolProcess(master) => master.fds().into(),
            _ => Vec::new(),
        }
    }
}

/// A program that is named without a slash.
#[must_use]
pub fn find_in_path(word: &str) -> Option<PathBuf> {
    let mut places = DIRECTORIES.iter().map(|place| Path::new(place).join(word));
    places.find(|path| is_program(path))
}

/// What to say where there is none.
#[must_use]
pub fn missing_in_path(word: &str) -> String {
    let places = DIRECTORIES.join(", ");
    format!(
        "no program `{word}` in {places}: install it, or write its path (./{word} for one beside the configuration)"
    )
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use os::cgroup::{CpuLimit, Device, IoLimit, NumberList};

    use super::*;
    use crate::pools::{PoolProgramManifest, PoolSite, WallsManifest};

    fn map(index: u32, user: Option<&str>) -> MapManifest {
        MapManifest {
            index,
            program: NamedProgram {
                whose: "map load".into(),
                command: vec!["perl".into(), "load average.pl".into(), String::new()],
                directory: "/etc/nagaya".into(),
                user: user.map(str::to_owned),
                may_be_root: false,
            },
            processes: 4,
        }
    }

    fn manifest() -> Manifest {
        let rule = |index| RuleManifest {
            index,
            names: vec!["APP_MODE".into(), "PATH".into()],
            limits: os::spawn::Limits {
                cpu_s: Some(60),
                memory_bytes: None,
                files: Some(0),
                processes: Some(u64::MAX - 1),
                file_size_bytes: Some(1 << 30),
            },
            group: (index == 0).then_some(1),
        };
        let site = |index, symlinks, user: Option<&str>| SiteManifest {
            index,
            name: "example.jp".into(),
            tenant: "example".into(),
            root: "/srv/a/htdocs".into(),
            within: "/srv/a".into(),
            symlinks,
            user: user.map(str::to_owned),
            rules: vec![rule(0), rule(7)],
        };
        Manifest {
            generation: 12,
            is_beside: true,
            log_level: LogLevel::Debug,
            programs_max: 256,
            layout: Layout::default(),
            groups: Packed::of(&groups()).unwrap(),
            sites: vec![
                site(0, Symlinks::Deny, Some("a")),
                site(1, Symlinks::Owner, None),
                site(u32::MAX, Symlinks::Allow, Some("c")),
            ],
            maps: vec![map(0, None), map(9, Some("maps"))],
            pools: vec![Packed::of(&pool()).unwrap()],
            rows: Vec::new(),
            row_key: RowKey([1; 16]),
            written_tenants: vec!["own".into()],
            starting_max: 2,
            sees: vec![seen("/usr", false)],
            cache_bytes: 1 << 29,
            mail: "127.0.0.1:25".into(),
            suspended: vec!["example".into()],
        }
    }

    fn seen(path: &str, is_writable: bool) -> Seen {
        Seen {
            path: path.into(),
            is_writable,
            is_optional: !is_writable,
        }
    }

    fn pool() -> PoolManifest {
        PoolManifest {
            id: "example-php82-1".into(),
            name: "php 8.2 of example.jp".into(),
            tenant: "example".into(),
            weight: 3,
            user: Some("example".into()),
            users: None,
            group: Some(1),
            directory: "/var/lib/nagaya/pools/example-php82-1".into(),
            socket: "/var/lib/nagaya/pools/example-php82-1.sock".into(),
            program: PoolProgramManifest::Php {
                program: "/usr/sbin/php-fpm8.2".into(),
                processes: 8,
                requests: 4_000,
                time_ms: 300_000,
                ini: vec![("opcache.enable".into(), "1".into())],
                admin: vec![("memory_limit".into(), "64M".into())],
                sites: vec![PoolSite {
                    name: "example.jp".into(),
                    root: "/srv/a".into(),
                }],
            },
            walls: Some(WallsManifest {
                sees: vec![seen("/srv/a", true)],
                tmp_bytes: 1 << 28,
            }),
            idle_ms: Some(600_000),
        }
    }

    fn memory(content: &str) -> OwnedFd {
        os::file::memfd("test", content.as_bytes()).unwrap()
    }

    fn content(fd: &OwnedFd) -> String {
        String::from_utf8(os::file::read_whole(fd.as_fd(), 100).unwrap()).unwrap()
    }

    fn pool_process(id: &str) -> PoolProcess {
        PoolProcess {
            id: id.into(),
            pid: 7,
            settings: u64::MAX,
            identity: Some((1, 2, -3, 4)),
            process: memory(&format!("process of {id}")),
            words: memory(&format!("words of {id}")),
        }
    }

    fn groups() -> Vec<Group> {
        let limits = os::cgroup::Limits {
            cpu: Some(CpuLimit {
                millicores: 100,
                burst_us: 5_000,
            }),
            cpu_weight: Some(10_000),
            memory_bytes: Some(1 << 40),
            memory_high_bytes: None,
            pids: Some(u32::MAX),
            io: vec![IoLimit {
                device: Device {
                    major: 254,
                    minor: 0,
                },
                read_bytes: Some(1),
                write_bytes: None,
                read_ops: Some(0),
                write_ops: None,
            }],
            cpus: NumberList::parse("0-3,8"),
            mems: None,
        };
        let group = |path: &[&str], limits| Group {
            path: path.iter().map(|&name| name.to_owned()).collect(),
            limits,
        };
        vec![
            group(&["tenant-a"], os::cgroup::Limits::default()),
            group(&["tenant-a", "rule-a.example-1"], limits),
        ]
    }

    #[test]
    fn what_the_supervisor_says_arrives() {
        let (here, there) = os::fdpass::pair().unwrap();
        ToSpawner::Manifest(Box::new(manifest()))
            .send(here.as_fd())
            .unwrap();
        let ToSpawner::Manifest(arrived) = ToSpawner::recv(there.as_fd()).unwrap() else {
            panic!("another message arrived");
        };
        assert_eq!(*arrived, manifest());
        for count in [0, 1, 300] {
            let links = (0..count).map(|_| os::fdpass::packet_pair().unwrap().0);
            let links = links.collect();
            ToSpawner::Workers { links }.send(here.as_fd()).unwrap();
            let ToSpawner::Workers { links } = ToSpawner::recv(there.as_fd()).unwrap() else {
                panic!("another message arrived");
            };
            assert_eq!(links.len(), count);
        }
        let socket = |id: &str| PoolSocket {
            id: id.into(),
            socket: memory(&format!("socket of {id}")),
        };
        let sockets = ToSpawner::Sockets(vec![socket("a"), socket("b")]);
        sockets.send(here.as_fd()).unwrap();
        let ToSpawner::Sockets(sockets) = ToSpawner::recv(there.as_fd()).unwrap() else {
            panic!("another message arrived");
        };
        let found: Vec<_> = sockets
            .iter()
            .map(|it| (&*it.id, content(&it.socket)))
            .collect();
        assert_eq!(
            found,
            [("a", "socket of a".into()), ("b", "socket of b".into())]
        );
        let masters = ToSpawner::PoolProcesses(vec![pool_process("a"), pool_process("b")]);
        masters.send(here.as_fd()).unwrap();
        let ToSpawner::PoolProcesses(masters) = ToSpawner::recv(there.as_fd()).unwrap() else {
            panic!("another message arrived");
        };
        let last = masters.last().unwrap();
        let found = (&*last.id, content(&last.process), content(&last.words));
        assert_eq!(found, ("b", "process of b".into(), "words of b".into()));
    }

    #[test]
    fn what_the_spawner_says_arrives() {
        let (here, there) = os::fdpass::pair().unwrap();
        let refused = |message| FromSpawner::refused(3, message);
        let ready = FromSpawner::Ready { generation: 3 };
        let told = FromSpawner::Pools {
            number: 4,
            answer: PoolAnswer::Refused("no".into()),
        };
        let limits = vec!["group a: it waits".into()];
        let held = FromSpawner::Held { limits };
        for message in [ready, refused("no such user: example".into()), told, held] {
            message.send(there.as_fd()).unwrap();
            let arrived = FromSpawner::recv(here.as_fd()).unwrap();
            assert_eq!(format!("{arrived:?}"), format!("{message:?}"));
        }
        FromSpawner::PoolProcess(pool_process("a"))
            .send(there.as_fd())
            .unwrap();
        let FromSpawner::PoolProcess(arrived) = FromSpawner::recv(here.as_fd()).unwrap() else {
            panic!("another message arrived");
        };
        assert_eq!((&*arrived.id, arrived.pid), ("a", 7));
        assert_eq!(arrived.settings, u64::MAX);
        assert_eq!(arrived.identity, Some((1, 2, -3, 4)));
        assert_eq!(content(&arrived.words), "words of a");
        refused("遅".repeat(100_000)).send(there.as_fd()).unwrap();
        let FromSpawner::Refused { message, .. } = FromSpawner::recv(here.as_fd()).unwrap() else {
            panic!("another message arrived");
        };
        assert!(message.len() > TEXT_BYTES_MAX - 3 && message.chars().all(|c| c == '遅'));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
        let bytes = codec::encode(&ToSpawner::Manifest(Box::new(manifest()))).unwrap();
        let decode = |bytes: &[u8]| codec::decode::<ToSpawner>(bytes, Vec::new());
        for length in 0..bytes.len() {
            let cut = bytes.get(..length).unwrap();
            assert!(decode(cut).is_err(), "{length}");
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                let _ = decode(&bytes);
                let _ = codec::decode::<FromSpawner>(&bytes, Vec::new());
            }
        }
    }

    #[test]
    fn who_is_suspended_is_noted_of_those_that_are_here() {
        let mut manifest = manifest();
        let questions = [
            (PoolQuestion::Resume("example".into()), &[][..]),
            (PoolQuestion::Suspend("elsewhere".into()), &[][..]),
            (PoolQuestion::Suspend("example".into()), &["example"][..]),
            (PoolQuestion::Suspend("example".into()), &["example"][..]),
            (PoolQuestion::List, &["example"][..]),
        ];
        for (question, suspended) in questions {
            manifest.note_suspended(&question);
            assert_eq!(manifest.suspended, suspended, "{question:?}");
        }
    }

    #[test]
    fn a_group_whose_path_leads_elsewhere_is_refused() {
        let (here, there) = os::fdpass::pair().unwrap();
        for path in [&[][..], &[""], &[".."], &["a", "../b"], &["a/b"]] {
            let mut groups = groups();
            groups[0].path = path.iter().map(|&name| name.to_owned()).collect();
            let manifest = Manifest {
                groups: Packed::of(&groups).unwrap(),
                ..manifest()
            };
            ToSpawner::Manifest(Box::new(manifest))
                .send(here.as_fd())
                .unwrap();
            let refused = ToSpawner::recv(there.as_fd()).unwrap_err();
            assert!(
                refused.to_string().contains("no path of a group"),
                "{refused}"
            );
        }
    }
}
