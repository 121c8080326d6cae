//! The directory process as the supervisor keeps it: there where the configuration has directories, and given
//! their passwords.
//!
//! The idea: as the recorder, it is started again with a rest, and is another process where it has to work by other
//! settings; the one before ends at once, since it has nothing to write that would be missed. Each server, and each
//! process, gets a link that is new at both ends. The supervisor reads files of passwords, which nobody else has to.

mod settings;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use config::model::{
    DatabaseServer, Directory, DirectoryChanges, Fleet, Model, RowTrust, ServerAddress,
};
use config::reason;
use ipc::directory::{ChangesSettings, DirectoryNews, DirectoryOrder, DirectorySettings};
use ipc::recorder::ToRecorder;
use ipc::rows::{RowKey, RowUsers};
use ipc::server::{ProcessLife, ToServer};
use os::user::User;

pub use settings::fleet_settings;
pub(crate) use settings::unaskable;
use settings::{archive_settings, source};

use crate::Supervisor;
use crate::child::{Child, KeptProcess, Server, user_beside};
use crate::phase::Phase;
use crate::role::Role;

/// The word of its command line.
pub(super) const DIRECTORY: &str = "directory";
/// Whom it becomes where nobody is named, if there is such a user and it is not the server's.
const USERS: [&str; 4] = ["nagaya-directory", "bin", "sys", "daemon"];
/// Users of the gateway's other processes, where nobody names others.
const OTHERS: [&str; 5] = [
    "nagaya-acme",
    "nagaya-dns",
    "nagaya-keys",
    "nagaya-recorder",
    "nobody",
];
/// Whom everybody may become who is to be nobody.
const NOBODY: u32 = 65_534;
/// When it is told again that no process can be started.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
/// How soon files are tried again of the fleet's store, and of the database that the recorder sends to.
const FILES_PAUSE: Duration = Duration::from_secs(60);
/// Tenants whose names the process is told.
const TENANTS_MAX: usize = 100_000;

/// Which directories a configuration has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DirectoryWish {
    directories: Vec<Directory>,
    /// Which columns of each their sites use.
    columns: Vec<Vec<String>>,
    fleet: Option<Fleet>,
    /// Where the recorder sends to.
    send: Option<DatabaseServer>,
    user: Option<String>,
    /// When the files of passwords and authorities were written last.
    written: Vec<Option<SystemTime>>,
    /// Whose the directories of snapshots are, and who may write there.
    places: Vec<Option<(u32, u32)>>,
    /// Users whom no row may name.
    own: Vec<String>,
}

impl DirectoryWish {
    pub(super) fn of(model: &Model) -> Option<DirectoryWish> {
        let send = model.recorder.as_ref().and_then(|it| it.send.clone());
        let user = match (model.directories.first(), &model.fleet) {
            (Some(directory), _) => directory.user.clone(),
            (None, Some(fleet)) => fleet.user.clone(),
            (None, None) if send.is_some() => None,
            (None, None) => return None,
        };
        let servers = model.directories.iter().filter_map(|it| it.source.server());
        let servers = servers.chain(&send);
        let files = servers.flat_map(|it| [&it.password_file, &it.authorities]);
        let snapshots = model.directories.iter().map(|it| it.snapshot.as_ref());
        let places = snapshots.map(|file| {
            let facts = file?.parent()?.metadata().ok()?;
            Some((facts.uid(), facts.mode()))
        });
        let of_fleet = model.fleet.iter().map(|it| &it.store);
        let of_fleet = of_fleet.flat_map(|it| [&it.password_file, &it.authorities]);
        let written = files
            .chain(of_fleet)
            .flatten()
            .map(|file| file.metadata().ok()?.modified().ok());
        Some(DirectoryWish {
            directories: model.directories.clone(),
            columns: (0..model.directories.len())
                .map(|at| columns(model, at))
                .collect(),
            fleet: model.fleet.clone(),
            user,
            written: written.collect(),
            send: send.clone(),
            places: places.collect(),
            own: taken_users(model),
        })
    }
}

/// The columns that the site of a directory's rows uses.
fn columns(model: &Model, directory: usize) -> Vec<String> {
    let rows = model.sites.iter().filter_map(|site| site.rows.as_deref());
    let rows = rows.filter(|rows| rows.directory == directory);
    rows.flat_map(|rows| &rows.columns).cloned().collect()
}

/// Tenants of written sites, which no row may name.
pub fn written_tenants(model: &Model) -> Vec<String> {
    let named = model.tenants.iter().map(|tenant| &tenant.name);
    let mut tenants: Vec<_> = model
        .sites
        .iter()
        .filter(|site| site.rows.is_none())
        .map(|site| &site.tenant)
        .chain(named)
        .cloned()
        .collect();
    tenants.sort();
    tenants.dedup();
    tenants.truncate(TENANTS_MAX);
    tenants
}

/// Users whom no row may name: those of the gateway's processes, and of all that is written.
fn taken_users(model: &Model) -> Vec<String> {
    let recorder = model.recorder.as_ref().and_then(|it| it.user.as_ref());
    let directories = model.directories.iter().filter_map(|it| it.user.as_ref());
    let written = model.sites.iter().filter(|site| site.rows.is_none());
    let sites = written.flat_map(|site| {
        let mounts = site.mounts.iter().filter_map(|mount| mount.user.as_ref());
        mounts.chain([&site.user])
    });
    let mut users: Vec<_> = [&model.user]
        .into_iter()
        .chain(recorder)
        .chain(directories)
        .chain(sites)
        .cloned()
        .collect();
    users.sort();
    users.dedup();
    users
}

/// Whom rows of a directory may name as their user.
pub(crate) fn row_users(model: &Model, directory: usize) -> RowUsers {
    let least = model.directories.get(directory).map(|it| it.uid_min.max(1));
    let taken = taken_users(model);
    match taken_uids(taken.iter().map(String::as_str)) {
        Ok(own) => RowUsers {
            least: least.unwrap_or(u32::MAX),
            own,
        },
        Err(why) => {
            tracing::warn!("no programs of rows run until the next reload: {why}");
            RowUsers {
                least: u32::MAX,
                own: Vec::new(),
            }
        }
    }
}

/// Uids of these users and of those that a process of the gateway may become.
fn taken_uids<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<u32>, String> {
    let mut uids = vec![NOBODY];
    for name in names.chain(USERS).chain(OTHERS) {
        match User::look_up(name) {
            Ok(user) => uids.push(user.uid),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let error = config::reason(&error);
                return Err(format!("user {name} cannot be looked up: {error}"));
            }
        }
    }
    Ok(uids)
}

/// The directories of a model, with passwords and authorities as they are in their files now.
///
/// # Errors
/// Which file cannot be read, and why.
pub fn directory_settings(model: &Model) -> Result<Vec<DirectorySettings>, String> {
    DirectoryWish::of(model).map_or(Ok(Vec::new()), |wish| settings(&wish, &[]))
}

fn settings(wish: &DirectoryWish, others: &[&str]) -> Result<Vec<DirectorySettings>, String> {
    let own = wish
        .own
        .iter()
        .map(String::as_str)
        .chain(others.iter().copied());
    let own_uids = taken_uids(own)?;
    let directories = wish.directories.iter().zip(&wish.columns);
    let settings = directories.map(|(it, columns)| {
        Ok(DirectorySettings {
            name: it.name.clone(),
            source: source(&it.source)?,
            query: it.query.clone(),
            columns: columns.clone(),
            all: it.all.clone(),
            changes: it.changes.as_ref().map(|changes| match changes {
                DirectoryChanges::Query(text) => ChangesSettings::Query(text.clone()),
                DirectoryChanges::Listen(channel) => ChangesSettings::Listen(channel.clone()),
            }),
            memcached: it.memcached.as_ref().map(|address| match address {
                ServerAddress::Unix(path) => path.display().to_string(),
                address => address.to_string(),
            }),
            trusts_unsigned: it.trust == RowTrust::Unsigned,
            keep_ms: it.keep_ms,
            stale_ms: it.stale_ms,
            snapshot: it.snapshot.clone(),
            wait_ms: it.wait_ms,
            uid_min: it.uid_min,
            own_uids: own_uids.clone(),
            row_key: row_key()?,
        })
    });
    settings.collect()
}

/// What rows are sealed with, as spawner and directory process hear it: it outlives them, and upgrades.
static ROW_KEY: OnceLock<RowKey> = OnceLock::new();

/// What rows are sealed with.
///
/// # Errors
/// The kernel has no random bytes.
pub(crate) fn row_key() -> Result<RowKey, String> {
    if let Some(key) = ROW_KEY.get() {
        return Ok(*key);
    }
    let mut key = [0; 16];
    os::random::fill(&mut key).map_err(|error| format!("no key for rows: {}", reason(&error)))?;
    Ok(*ROW_KEY.get_or_init(|| RowKey(key)))
}

/// Goes on with the key of the program before, unless there is one already.
pub(crate) fn take_row_key(key: RowKey) {
    ROW_KEY.get_or_init(|| key);
}

/// The process, or the wait for the next one.
#[derive(Debug, Default)]
pub(super) struct Directories {
    pub(super) kept: KeptProcess<Box<DirectoryWish>>,
    /// The server that has a link to this process.
    linked: Option<u32>,
    /// What the process was told last of tenants.
    tenants: Vec<String>,
    /// The server's ends of its links, until they are handed to it.
    link: Option<OwnedFd>,
    fleet_link: Option<OwnedFd>,
    told: Option<ProcessLife>,
    /// When the process is told of the fleet's store, and of the recorder's database, where it has not been.
    fleet_due: Option<Instant>,
    archive_due: Option<Instant>,
    /// The recorder, and the process, that have a link to each other.
    archive_linked: Option<(u32, u32)>,
    /// Why none could be started, and when that was told last.
    failure: Option<(String, Instant)>,
}

impl Directories {
    fn until(&self) -> Option<Instant> {
        let dues = self.fleet_due.into_iter().chain(self.archive_due);
        let of_servers = self.kept.process().and(dues.min());
        self.kept.until().or(of_servers)
    }

    /// Ends the process, if it has not ended, and rests before the next.
    pub(super) fn lose(&mut self, why: &str) {
        self.kept.lose("directory process", why);
    }

    /// Starts one beside a server of this user.
    fn start(&mut self, wish: &DirectoryWish, server: &str) {
        let user = wish
            .user
            .as_deref()
            .unwrap_or_else(|| user_beside(server, &USERS));
        let started = settings(wish, &[user, server]).map_err(io::Error::other);
        let started = started.and_then(|settings| {
            let process = Child::start(&Role::Directory {
                user: user.to_owned(),
            })?;
            DirectoryOrder::Settings(settings).send(process.link())?;
            Ok(process)
        });
        match started {
            Ok(process) => {
                tracing::info!(pid = process.pid(), "directory process started");
                self.fleet_due = wish.fleet.as_ref().map(|_| Instant::now());
                self.archive_due = wish.send.as_ref().map(|_| Instant::now());
                self.kept.run(process, Box::new(wish.clone()));
                self.failure = None;
                (self.linked, self.tenants) = (None, Vec::new());
            }
            Err(error) => {
                let error = reason(&error);
                if self.is_news(&error, Instant::now()) {
                    tracing::error!(error, "the directory process cannot be started");
                }
                self.kept.rest(Duration::ZERO);
            }
        }
    }

    /// Notes why none could be started; whether that is to be told: the same once a minute.
    fn is_news(&mut self, failure: &str, now: Instant) -> bool {
        let is_known = |(known, told): &(String, Instant)| {
            known == failure && now.saturating_duration_since(*told) < TOLD_AGAIN
        };
        let is_news = !self.failure.as_ref().is_some_and(is_known);
        if is_news {
            self.failure = Some((failure.to_owned(), now));
        }
        is_news
    }

    /// Tells the process of the fleet's store and of the recorder's database, once their files can be read:
    /// directories can do without them.
    fn tell_of_servers(&mut self) {
        let now = Instant::now();
        let Some((process, wish)) = self.kept.running() else {
            return;
        };
        let is_due = |due: Option<Instant>| due.is_some_and(|it| it <= now);
        let fleet = wish.fleet.as_ref().filter(|_| is_due(self.fleet_due));
        let fleet = fleet.map(|it| fleet_settings(it).map(DirectoryOrder::Fleet));
        let archive = wish.send.as_ref().filter(|_| is_due(self.archive_due));
        let archive = archive.map(|it| archive_settings(it, wish.fleet.as_ref()));
        let archive = archive.map(|it| it.map(DirectoryOrder::Archive));
        let mut failed = None;
        for (order, due, undone) in [
            (fleet, &mut self.fleet_due, "the fleet's store is not asked"),
            (
                archive,
                &mut self.archive_due,
                "the recorder's figures are not sent",
            ),
        ] {
            match order {
                None => {}
                Some(Ok(order)) => {
                    *due = None;
                    failed = order.send(process.link()).err().or(failed);
                }
                Some(Err(why)) => {
                    *due = Some(now + FILES_PAUSE);
                    tracing::error!(error = why, "{undone}");
                }
            }
        }
        if let Some(error) = failed {
            self.lose(&format!("it does not hear: {}", reason(&error)));
        }
    }

    /// Gives the process links to the recorder, where either is another; what the recorder is told.
    fn link_recorder(&mut self, recorder: u32) -> Option<ToRecorder> {
        let (process, wish) = self.kept.running()?;
        let both = Some((recorder, process.pid()));
        if wish.send.is_none() || self.archive_linked == both {
            return None;
        }
        let pairs = os::fdpass::packet_pair().and_then(|it| Ok((it, os::fdpass::packet_pair()?)));
        let linked = pairs.and_then(|((for_sending, sending), (for_asking, asking))| {
            DirectoryOrder::ArchiveLinks { sending, asking }.send(process.link())?;
            Ok(ToRecorder::Archive {
                sending: for_sending,
                asking: for_asking,
            })
        });
        match linked {
            Ok(told) => {
                self.archive_linked = both;
                Some(told)
            }
            Err(error) => {
                self.lose(&format!("it does not hear: {}", reason(&error)));
                None
            }
        }
    }

    /// Tells the process of tenants and gives it a link to the server, where these are others.
    fn tell(&mut self, server: u32, tenants: &[String]) {
        let Some(process) = self.kept.process() else {
            return;
        };
        let mut told = Ok(());
        if self.tenants != tenants {
            told = DirectoryOrder::Tenants(tenants.to_vec()).send(process.link());
        }
        let mut linked = None;
        if told.is_ok() && self.linked != Some(server) {
            let pairs =
                os::fdpass::packet_pair().and_then(|it| Ok((it, os::fdpass::packet_pair()?)));
            told = pairs.and_then(|((for_server, link), (for_fleet, fleet_link))| {
                DirectoryOrder::Link(link).send(process.link())?;
                DirectoryOrder::FleetLink(fleet_link).send(process.link())?;
                linked = Some((for_server, for_fleet));
                Ok(())
            });
        }
        if let Err(error) = told {
            return self.lose(&format!("it does not hear: {}", reason(&error)));
        }
        self.tenants = tenants.to_vec();
        if let Some((for_server, for_fleet)) = linked {
            (self.link, self.fleet_link) = (Some(for_server), Some(for_fleet));
            self.linked = Some(server);
        }
    }
}

impl Supervisor {
    /// Does what is to be done for directories while a server serves.
    pub(super) fn mind_directories(&mut self) {
        if self.upgrade.is_some() || !matches!(self.phase, Phase::Serving { .. }) {
            return;
        }
        let wanted = self.current.directories.as_ref();
        if let Some((_, wish)) = self.directories.kept.running()
            && Some(&**wish) != wanted
        {
            self.directories.kept.end();
        }
        let Some(wish) = wanted else {
            self.directories.kept.take();
            return self.tell_directories(Vec::new());
        };
        if self.directories.kept.is_due(Instant::now()) {
            self.directories.start(wish, &self.current.user);
        }
        self.directories.tell_of_servers();
        let names = wish.directories.iter().map(|it| it.name.clone()).collect();
        let server = self.phase.server().map_or(0, Server::pid);
        self.directories.tell(server, &self.current.written_tenants);
        self.link_archive();
        self.tell_directories(names);
    }

    /// Gives recorder and process links to each other, where the one sends by the other.
    fn link_archive(&mut self) {
        let Some(recorder) = self.recordings.kept.pid() else {
            return;
        };
        if let Some(links) = self.directories.link_recorder(recorder) {
            self.recordings.tell(&links);
        }
    }

    /// Tells the server how the process is, where that is new, and its link, where there is one.
    fn tell_directories(&mut self, names: Vec<String>) {
        let life = self.directories.kept.life();
        let was_told = self.directories.told.unwrap_or_default() == life;
        let link = self.directories.link.take();
        let fleet = self.directories.fleet_link.take();
        if link.is_none() && was_told {
            return;
        }
        let message = ToServer::Directory(DirectoryNews {
            life,
            names,
            link,
            fleet,
        });
        self.directories.told = Some(life);
        if let Some(Err(error)) = self.phase.server().map(|server| server.send(&message)) {
            self.lose_server_by("it does not hear", &error);
        }
    }

    /// When the process is to be started again.
    pub(super) fn directories_until(&self) -> Option<Instant> {
        let is_serving = matches!(self.phase, Phase::Serving { .. }) && self.upgrade.is_none();
        is_serving.then(|| self.directories.until()).flatten()
    }
}

/// Whom the process becomes by a configuration.
#[must_use]
pub fn directory_user(model: &Model) -> &str {
    let named = model.directories.first().and_then(|it| it.user.as_deref());
    named.unwrap_or_else(|| user_beside(&model.user, &USERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
user = "nobody"
[[listen]]
address = "127.0.0.1:1"
[directories.d]
source = "sqlite:/rows.db"
query = "SELECT tenant FROM t WHERE host = $host"
user = "games"
[[sites]]
hosts = ["panel.example"]
user = "daemon"
rules = [{ handler = { respond = { body = "x" } } }]
[[sites]]
hosts = { directory = "d" }
tenant = "$row.tenant"
user = "$row.user"
rules = [{ handler = { respond = { body = "x" } } }]
"#;

    #[test]
    fn why_no_process_can_be_started_is_told_once_a_minute() {
        let mut directories = Directories::default();
        let begun = Instant::now();
        let mut told = |why: &str, s: u64| directories.is_news(why, begun + Duration::from_secs(s));
        let first = ["no password", "no password", "no user", "no user"];
        let first: Vec<_> = first.iter().zip(0..).map(|(why, s)| told(why, s)).collect();
        assert_eq!(first, [true, false, true, false]);
        assert!(!told("no user", 61) && told("no user", 62));
    }

    #[test]
    fn no_row_names_the_user_of_a_written_site() {
        let model = config::load(&config::Sources::from_text("nagaya.toml", TEXT)).unwrap();
        assert_eq!(taken_users(&model), ["daemon", "games", "nobody"]);
        let users = row_users(&model, 0);
        let uid = |name| User::look_up(name).unwrap().uid;
        assert!(!users.may_be(uid("daemon")) && !users.may_be(uid("games")));
    }

    #[test]
    fn a_machine_is_called_by_its_host_name_and_files_that_are_missing_are_told() {
        let text = |file: &str| {
            format!(
                "[[listen]]\naddress = \"127.0.0.1:1\"\n[fleet]\nstore = \"redis://127.0.0.1/0{file}\"\n\
                 [[sites]]\nhosts = [\"*\"]\nrules = [{{ handler = {{ respond = {{ body = \"x\" }} }} }}]\n"
            )
        };
        let model = |file: &str| {
            let sources = config::Sources::from_text("nagaya.toml", &text(file));
            config::load(&sources).expect("a configuration")
        };
        let fleet = model("").fleet.expect("a fleet");
        let settings = fleet_settings(&fleet).expect("settings");
        assert_eq!(settings.machine, os::kernel::name().node);
        assert_eq!(unaskable(&model("")).next(), None);
        let told: Vec<_> = unaskable(&model("?password_file=/no/such/file")).collect();
        let [told] = told.as_slice() else {
            panic!("{told:?}");
        };
        assert!(
            told.contains("will not be asked: cannot read `/no/such/file`"),
            "{told}"
        );
    }
}
