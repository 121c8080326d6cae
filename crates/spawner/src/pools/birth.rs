//! How a run begins: what it needs is looked for, then its processes are started.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use config::reason;
use ipc::manifest::{FromSpawner, NamedProgram};
use ipc::order::Failure;
use ipc::pools::{PoolManifest, PoolProgramManifest, Seen};
use ipc::rows::RowUsers;
use os::spawn::{Birth, Limits, Walls};

use super::mail::sendmail;
use super::run::{RunGroup, Running, Who};
use super::way::Way;
use super::words::Words;
use super::{POOLS, fpm, instances, probe, run};
use crate::groups::Cradle;
use crate::lookups::{Found, Ordered, Wanted};
use crate::manifests::Known;
use crate::{Refusal, Spawner, environment, named, programs};

/// In a command, the path that an application is to listen at.
const SOCKET_WORD: &str = "$socket";
/// What that path is, in the pool's own directory.
const OWN_SOCKET: &str = "socket";
/// Names of the groups of runs: as many of a pool may leave at once, and one serve.
const GROUPS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// What a run needs that has to be looked for.
#[derive(Debug)]
pub(crate) struct WantedRun {
    pub(crate) program: NamedProgram,
    /// Whom it may run as, where a row has named its user, and the root that must be that user's.
    users: Option<(RowUsers, Option<PathBuf>)>,
    /// What is seen, and the size of `/tmp`.
    walls: Option<(Vec<Seen>, u64)>,
    /// Where it keeps what it has compiled.
    cache: Option<PathBuf>,
}

/// What of that belongs to runs alone.
#[derive(Debug)]
pub(crate) struct FoundRun {
    walls: Option<Walls>,
    home: Option<PathBuf>,
}

/// Looks for it, however long it takes: for a thread of its own.
pub(crate) fn find(wanted: &WantedRun) -> Result<Found, Refusal> {
    let mut found = named::find(&wanted.program)?;
    if let Some((users, root)) = &wanted.users {
        named::check_user_of_row(Some(users), found.user.uid)?;
        check_root_of_row(root.as_deref(), found.user.uid)?;
    }
    let walls = wanted.walls.as_ref().map(|(sees, tmp_bytes)| {
        let sees = sees.iter().map(|seen| os::spawn::Seen {
            path: &seen.path,
            is_writable: seen.is_writable,
            is_optional: seen.is_optional,
        });
        Walls::new(sees, *tmp_bytes, &wanted.program.directory)
    });
    let walls = walls.transpose();
    let walls = walls.map_err(|failed| programs::refusal(&failed, &wanted.program.whose))?;
    if let Some(cache) = &wanted.cache {
        let made = found.user.act(|| make_cache(cache)).and_then(|made| made);
        made.map_err(|error| failed(&format!("make {}", cache.display()), &error))?;
    }
    let user = wanted.program.user.as_deref();
    let home = user.and_then(|user| os::user::home(user).ok());
    found.run = Some(Box::new(FoundRun { walls, home }));
    Ok(found)
}

/// The root of the one site that a row's pool serves.
fn root_of_row(pool: &PoolManifest) -> Option<PathBuf> {
    match &pool.program {
        PoolProgramManifest::Php { sites, .. } => sites.first().map(|site| site.root.clone()),
        PoolProgramManifest::App { .. } => None,
    }
}

/// Refuses pages of somebody else than their user, whoever says that a row has them.
fn check_root_of_row(root: Option<&Path>, uid: u32) -> Result<(), Refusal> {
    let Some(root) = root else {
        return Ok(());
    };
    match std::fs::metadata(root) {
        Ok(facts) if facts.is_dir() && facts.uid() == uid => Ok(()),
        Ok(_) => {
            let what = format!("{} is no directory of uid {uid}", root.display());
            Err(Refusal::new(Failure::PoolFailed, what))
        }
        Err(error) => Err(failed(&format!("look at {}", root.display()), &error)),
    }
}

/// Makes the directory of a cache, and removes those of other settings.
fn make_cache(cache: &Path) -> std::io::Result<()> {
    if cache.is_dir() {
        return Ok(());
    }
    let above = cache.parent().unwrap_or(cache);
    match os::directory::prune(above, 0) {
        // The rest goes when it is too much.
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {}
        pruned => drop(pruned?),
    }
    std::fs::create_dir(cache)
}

impl Running {
    /// Whether it binds a socket itself.
    pub(super) fn binds_itself(&self) -> bool {
        self.pool().is_some_and(binds_itself)
    }
}

fn binds_itself(pool: &PoolManifest) -> bool {
    let names_socket = |word: &String| word.contains(SOCKET_WORD);
    match &pool.program {
        PoolProgramManifest::App { command, .. } => command.iter().any(names_socket),
        PoolProgramManifest::Php { .. } => false,
    }
}

impl Spawner {
    /// Has what a run needs looked for.
    pub(super) fn begin_run(&mut self, id: &str, run: u64, now: Instant) {
        let Some((known, index)) = self.pools.named.get(id).cloned() else {
            let why = "no manifest names it";
            return self.pools.machine.died(run, why, now);
        };
        let Some(pool) = known.pool(index) else {
            return self.pools.machine.died(run, "no manifest names it", now);
        };
        let (command, directory) = match &pool.program {
            PoolProgramManifest::Php { program, .. } => {
                let program = program.to_string_lossy().into_owned();
                (vec![program], pool.directory.clone())
            }
            PoolProgramManifest::App {
                command, directory, ..
            } => (command.clone(), directory.clone()),
        };
        let program = NamedProgram {
            whose: format!("pool {}", pool.name),
            command,
            directory,
            user: pool.user.clone(),
            may_be_root: false,
        };
        let walls = pool.walls.as_ref().map(|walls| {
            let sees = known.sees.iter().chain(&walls.sees);
            (sees.cloned().collect(), walls.tmp_bytes)
        });
        let cache = fpm(&pool, None).map(|master| {
            let cache = pool.directory.join("cache");
            cache.join(master.cache_name())
        });
        let wanted = Wanted::Run(Box::new(WantedRun {
            program,
            users: pool.users.clone().map(|users| (users, root_of_row(&pool))),
            walls,
            cache,
        }));
        let running = Running::new(Rc::clone(&known), index, now);
        self.pools.runs.insert(run, running);
        let order = (POOLS, run);
        if let Err(refusal) = self.lookups.add(order, Ordered::Pool, wanted, now) {
            self.pools.machine.died(run, &refusal.detail, now);
        }
    }

    /// Starts what was found.
    pub(crate) fn start_run(&mut self, run: u64, found: &Found) {
        if !self.pools.machine.is_coming(run) {
            return;
        }
        if let Err(refusal) = self.bear(run, found) {
            self.fail_run(run, &refusal);
        }
    }

    fn bear(&mut self, run: u64, found: &Found) -> Result<(), Refusal> {
        let (known, pool) = {
            let running = self.pools.runs.get(&run);
            let running = running.ok_or_else(|| refused("it is no more wanted"))?;
            (Rc::clone(&running.known), running.pool.clone())
        };
        let pool = pool.ok_or_else(|| refused("no manifest names it"))?;
        let (ours, theirs) = os::pipe::from_program().map_err(|it| failed("make a pipe", &it))?;
        // Nobody reads between two spawners, and requests are to go on.
        os::pipe::widen(ours.as_fd());
        let born = self.spawn_all((&known, &*pool), found, theirs.as_fd())?;
        let Born {
            masters,
            gives_way,
            group,
            problem,
        } = born;
        let mut told = Vec::new();
        let now = Instant::now();
        let takes_over = self.pools.machine.run(&pool.id) != Some(run);
        if let Some(running) = self.pools.runs.get_mut(&run) {
            let hierarchies = known.manifest.layout.hierarchies.iter();
            let path = group.as_ref().map(|group| &group.path);
            let directories = path.map(|path| hierarchies.map(|it| it.group(path)).collect());
            running.directories = directories.unwrap_or_default();
            running.masters = masters;
            running.identity = match &pool.program {
                PoolProgramManifest::Php { program, .. } => super::facts::identity(program),
                PoolProgramManifest::App { .. } => None,
            };
            told.extend(running.told(&ours));
            running.words = Words::new(Some(ours), now);
            running.group = group;
            let used_us = running.cpu_of_group_us().unwrap_or(0);
            running.way = gives_way.then(|| Way::new(used_us, now));
            if gives_way {
                tracing::debug!(pool = pool.name, "it gives way to others while it starts");
            }
            running.probe = probe_of(&pool, found, takes_over);
        }
        for master in told {
            self.tell_supervisor(&FromSpawner::PoolProcess(master));
        }
        problem.map_or(Ok(()), Err)
    }

    /// Starts the processes of a run, as many as can be.
    fn spawn_all(
        &mut self,
        (known, pool): (&Rc<Known>, &PoolManifest),
        found: &Found,
        words: BorrowedFd<'_>,
    ) -> Result<Born, Refusal> {
        self.make_ready()?;
        let others = self.pools.runs.values();
        let others = others.filter(|it| it.pool().is_some_and(|other| other.id == pool.id));
        let taken: Vec<&str> = others.flat_map(Running::group_names).collect();
        let name = GROUPS.into_iter().find(|name| !taken.contains(name));
        let Some(null) = &self.pools.null else {
            return Err(refused("/dev/null is missing"));
        };
        let socket = self.pools.sockets.get(&pool.id);
        let socket = socket.ok_or_else(|| refused("its socket is missing"))?;
        let told = Told::of(pool, &known.manifest.mail, found)?;
        // The last that can fail: its group is to go with the run.
        let mut cradle = self.groups.cradle_of_run(known, pool.group, name)?;
        let mut listeners: Vec<BorrowedFd<'_>> = Vec::new();
        if !binds_itself(pool) {
            listeners.push(socket.listener.as_fd());
        }
        listeners.extend(told.file.as_ref().map(AsFd::as_fd));
        let limits = Limits::default();
        let (mut masters, mut problem) = (Vec::new(), None);
        for _ in 0..instances(pool) {
            let started = os::spawn::spawn(&Birth {
                directory: found.runnable.directory.as_fd(),
                name: &found.runnable.name,
                arguments: &told.arguments,
                environment: &told.environment,
                stdio: [null.as_fd(), words, words],
                listeners: &listeners,
                user: pool.user.is_some().then_some(&*found.user),
                limits: &limits,
                birthplace: cradle.birthplace(),
                walls: found.run.as_ref().and_then(|run| run.walls.as_ref()),
                filter: self.pools.filter.as_ref(),
                outlives: true,
            });
            match started {
                Ok((process, verdict)) => masters.push(run::MainProcess {
                    pid: process.pid(),
                    process: Who::Own(process),
                    verdict: Some(verdict),
                }),
                Err(failed) => problem = Some(programs::refusal(&failed, &pool.name)),
            }
        }
        Ok(Born {
            masters,
            gives_way: cradle.gives_way,
            group: name.and_then(|name| RunGroup::of(&mut cradle, name)),
            problem,
        })
    }

    /// Makes what all runs share.
    fn make_ready(&mut self) -> Result<(), Refusal> {
        if self.pools.null.is_none() {
            let null = File::open("/dev/null").map_err(|it| failed("open /dev/null", &it))?;
            self.pools.null = Some(null);
        }
        if self.pools.filter.is_none() {
            let filter = crate::walls::filter();
            let filter = filter.map_err(|it| failed("make a filter of calls", &it))?;
            self.pools.filter = Some(filter);
        }
        Ok(())
    }
}

/// What came of starting processes.
struct Born {
    masters: Vec<run::MainProcess>,
    /// Whether their group gives way to others.
    gives_way: bool,
    group: Option<RunGroup>,
    /// Why there are not all of them.
    problem: Option<Refusal>,
}

fn failed(what: &str, error: &std::io::Error) -> Refusal {
    refused(&format!("{what}: {}", reason(error)))
}

/// How it is found out that an application is ready; php-fpm says so.
fn probe_of(pool: &PoolManifest, found: &Found, takes_over: bool) -> Option<probe::Probe> {
    let PoolProgramManifest::App { ready, .. } = &pool.program else {
        return None;
    };
    let own = binds_itself(pool).then(|| (pool.directory.join(OWN_SOCKET), found.user.uid));
    let takes_over = takes_over && own.is_none();
    Some(probe::Probe::new(
        &pool.socket,
        ready.as_deref(),
        own,
        (takes_over, Instant::now()),
    ))
}

/// What a master of php-fpm is told.
fn fpm<'a>(pool: &'a PoolManifest, sendmail: Option<&'a str>) -> Option<fpm::Fpm<'a>> {
    let PoolProgramManifest::Php {
        processes,
        requests,
        time_ms,
        ini,
        admin,
        ..
    } = &pool.program
    else {
        return None;
    };
    Some(fpm::Fpm {
        id: &pool.id,
        directory: &pool.directory,
        processes: *processes,
        requests: *requests,
        time_ms: *time_ms,
        idle_ms: pool.idle_ms,
        ini,
        admin,
        sendmail,
        has_walls: pool.walls.is_some(),
    })
}

/// What its processes are told.
struct Told {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// What php-fpm reads.
    file: Option<std::os::fd::OwnedFd>,
}

impl Told {
    fn of(pool: &PoolManifest, mail: &str, found: &Found) -> Result<Told, Refusal> {
        let mut environment = environment::check(&[], &[])?;
        match &pool.program {
            PoolProgramManifest::Php { sites, .. } => {
                let sendmail = sendmail(pool, sites, mail);
                let master = fpm(pool, sendmail.as_deref());
                let master = master.ok_or_else(|| refused("it is no php-fpm"))?;
                let file = master.file().map_err(|why| refused(&why))?;
                let file = os::file::memfd("php-fpm.conf", file.as_bytes());
                let file = file.map_err(|error| refused(&reason(&error)))?;
                let sockets = format!("FPM_SOCKETS={}=3", fpm::SOCKET);
                environment.extend(CString::new(sockets));
                Ok(Told {
                    arguments: master.arguments().map_err(|why| refused(&why))?,
                    environment,
                    file: Some(file),
                })
            }
            PoolProgramManifest::App { command, env, .. } => {
                let own = pool.directory.join(OWN_SOCKET);
                let own = own.to_string_lossy();
                if binds_itself(pool) {
                    // What a run before has left there.
                    let _ = std::fs::remove_file(&*own);
                }
                let words = command.iter().skip(1);
                let words = words.map(|word| word.replace(SOCKET_WORD, &own));
                let variables = variables(pool, env, found);
                Ok(Told {
                    arguments: texts(words)?,
                    environment: {
                        let names = variables.iter().filter_map(|it| it.split_once('='));
                        let has_path = names.into_iter().any(|(name, _)| name == "PATH");
                        if has_path {
                            environment.clear();
                        }
                        environment.extend(texts(variables.into_iter())?);
                        environment
                    },
                    file: None,
                })
            }
        }
    }
}

/// The variables of an application.
fn variables(pool: &PoolManifest, env: &[(String, String)], found: &Found) -> Vec<String> {
    let mut variables: Vec<String> = Vec::new();
    let home = found.run.as_ref().and_then(|run| run.home.as_deref());
    let home = home.map(Path::to_string_lossy);
    let usual = [
        ("HOME", home.as_deref()),
        ("USER", pool.user.as_deref()),
        ("LOGNAME", pool.user.as_deref()),
        ("LANG", Some("C.UTF-8")),
    ];
    for (name, value) in usual {
        if !env.iter().any(|(known, _)| known == name) {
            variables.extend(value.map(|value| format!("{name}={value}")));
        }
    }
    let is_ours = |name: &str| ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"].contains(&name);
    let env = env.iter().filter(|(name, _)| !is_ours(name));
    variables.extend(env.map(|(name, value)| format!("{name}={value}")));
    if !binds_itself(pool) {
        variables.push("LISTEN_FDS=1".to_owned());
    }
    variables
}

fn texts(words: impl Iterator<Item = String>) -> Result<Vec<CString>, Refusal> {
    let words: Result<Vec<_>, _> = words.map(CString::new).collect();
    words.map_err(|_| refused("a word or variable with a NUL"))
}

fn refused(why: &str) -> Refusal {
    Refusal::new(Failure::SpawnFailed, why.to_owned())
}

impl RunGroup {
    fn of(cradle: &mut Cradle<'_>, name: &'static str) -> Option<RunGroup> {
        let watch = cradle.watch.take();
        let path = watch.as_ref()?.path();
        Some(RunGroup { path, name, watch })
    }
}

impl Running {
    fn group_names(&self) -> Vec<&str> {
        let own = self.group.as_ref().map(|group| group.name);
        let found = self
            .directories
            .iter()
            .filter_map(|it| it.file_name()?.to_str());
        own.into_iter().chain(found).collect()
    }
}
