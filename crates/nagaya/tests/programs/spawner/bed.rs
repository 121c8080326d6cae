//! Where pools are tried: a tenant with an application that says who it is, the places of its pools, and what a
//! spawner and a worker say of them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ipc::codec::Packed;
use ipc::manifest::{FromSpawner, Manifest, ToSpawner};
use ipc::message::Message;
use ipc::order::{Order, Report};
use ipc::pools::{
    PoolAnswer, PoolManifest, PoolProcess, PoolProgramManifest, PoolQuestion, PoolSocket,
    PoolStanding,
};
use rustix::process::Signal;

use super::{PATIENCE, Spawner, Tenant, Worker};

/// Answers who it is, what it was told to listen at, and what it has open.
pub(super) const APP: &str = r#"#!/usr/bin/perl
use IO::Socket::UNIX;
my $path = shift;
my $listener = $path ? IO::Socket::UNIX->new(Local => $path, Listen => 9)
    : IO::Socket::UNIX->new_from_fd(3, '+<');
die "no socket: $!" unless $listener;
print STDERR "words of an app\n";
$SIG{TERM} = sub { exit 0 };
while (1) {
    my $client = $listener->accept or next;
    my $line = <$client>;
    shutdown($listener, 2) if $line eq "shut\n";
    exit 3 if $line eq "exit\n";
    opendir(my $open, '/proc/self/fd');
    my @open = grep { /^\d+$/ && $_ != fileno($client) && readlink("/proc/self/fd/$_") !~ m(/proc) } readdir($open);
    my $pid = $ENV{LISTEN_PID} == $$ ? 'own' : 'other';
    print $client join(' ', $$, $ENV{LISTEN_FDS} || 0, $pid, sort @open), "\n" if $line;
}
"#;

/// A tenant with an application, and the places of its pools.
pub(super) struct Bed {
    pub(super) tenant: Tenant,
}

impl Bed {
    pub(super) fn new() -> Bed {
        let tenant = Tenant::new();
        tenant.program("app", APP);
        fs::create_dir(tenant.path("pools")).unwrap();
        tenant.mode("pools", 0o711);
        Bed { tenant }
    }

    pub(super) fn socket_path(&self, id: &str) -> PathBuf {
        self.tenant.path(&format!("pools/{id}.sock"))
    }

    /// A pool with this command; its directory is made.
    pub(super) fn pool(&self, id: &str, arguments: &[&str]) -> PoolManifest {
        let directory = self.tenant.path(&format!("pools/{id}"));
        if fs::create_dir(&directory).is_ok() && os::process::is_root() {
            let nobody = os::user::User::look_up("nobody").unwrap();
            chown(&directory, Some(nobody.uid), Some(nobody.gid)).unwrap();
        }
        let program = self.tenant.path("site/www/app").display().to_string();
        let arguments = arguments.iter().map(|&word| word.to_owned());
        PoolManifest {
            id: id.into(),
            name: format!("app {id}"),
            tenant: "tenant".into(),
            weight: 1,
            user: os::process::is_root().then(|| "nobody".into()),
            users: None,
            group: None,
            directory,
            socket: self.socket_path(id),
            program: PoolProgramManifest::App {
                command: [program].into_iter().chain(arguments).collect(),
                directory: self.tenant.path("site/www"),
                env: Vec::new(),
                instances: 1,
                start_ms: 20_000,
                stop_ms: 5_000,
                ready: None,
            },
            walls: None,
            idle_ms: Some(600_000),
        }
    }

    pub(super) fn plan(&self, pools: Vec<PoolManifest>) -> Manifest {
        Manifest {
            pools: pools.iter().map(|pool| Packed::of(pool).unwrap()).collect(),
            starting_max: 2,
            ..self.tenant.plan()
        }
    }

    pub(super) fn bind(&self, id: &str) -> OwnedFd {
        let path = self.socket_path(id);
        let _ = fs::remove_file(&path);
        os::net::bind_unix(&path, 16, 0o666).unwrap()
    }

    /// A spawner in charge of these pools, and of masters that run.
    pub(super) fn spawner(&self, plan: Manifest, masters: Vec<PoolProcess>) -> Spawner {
        let pools = plan.pools.iter().map(|pool| pool.open().unwrap());
        let sockets: Vec<_> = pools.map(|pool| self.bind(&pool.id)).collect();
        self.spawner_with(plan, masters, &sockets)
    }

    pub(super) fn spawner_with(
        &self,
        plan: Manifest,
        masters: Vec<PoolProcess>,
        sockets: &[OwnedFd],
    ) -> Spawner {
        Self::in_charge(Spawner::begin(), plan, masters, sockets)
    }

    pub(super) fn in_charge(
        spawner: Spawner,
        plan: Manifest,
        masters: Vec<PoolProcess>,
        sockets: &[OwnedFd],
    ) -> Spawner {
        let sockets = plan
            .pools
            .iter()
            .zip(sockets)
            .map(|(pool, socket)| PoolSocket {
                id: pool.open().unwrap().id,
                socket: socket.try_clone().unwrap(),
            });
        let link = spawner.link().as_fd();
        ToSpawner::Sockets(sockets.collect()).send(link).unwrap();
        ToSpawner::PoolProcesses(masters).send(link).unwrap();
        spawner.tell(plan);
        spawner
    }

    /// Asks the application of a pool.
    pub(super) fn ask(&self, id: &str, line: &str) -> String {
        let mut stream = UnixStream::connect(self.socket_path(id)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    pub(super) fn pid(&self, id: &str) -> u32 {
        let answer = self.ask(id, "who");
        answer.split(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Masters outlive spawners.
        let place = self.tenant.path("").display().to_string();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(pid) = pid.filter(|_| String::from_utf8_lossy(&command).contains(&place)) {
                kill(pid);
            }
        }
    }
}

impl Spawner {
    /// What it says of pools.
    pub(super) fn hear_of_pools(&self) -> FromSpawner {
        let link = self.link().as_fd();
        let waits = os::net::wait_readable(&[link], Some(PATIENCE)).unwrap();
        assert_eq!(waits, [true], "no word of the spawner");
        FromSpawner::recv(link).unwrap()
    }

    pub(super) fn hear_of_master(&self) -> PoolProcess {
        match self.hear_of_pools() {
            FromSpawner::PoolProcess(master) => master,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn hear_of_end(&self) -> u32 {
        match self.hear_of_pools() {
            FromSpawner::PoolProcessEnded { pid } => pid,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn question(&self, question: PoolQuestion) -> PoolAnswer {
        let asked = ToSpawner::Pools {
            number: 7,
            question,
        };
        asked.send(self.link().as_fd()).unwrap();
        match self.hear_of_pools() {
            FromSpawner::Pools { number: 7, answer } => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn standing(&self) -> PoolStanding {
        match self.question(PoolQuestion::List) {
            PoolAnswer::Pools(mut standings) => standings.remove(0),
            other => panic!("{other:?}"),
        }
    }
}

impl Worker {
    /// Wants the pool `a`, and hears what comes of it.
    pub(super) fn warm(&mut self) -> Report {
        self.warm_of("a")
    }

    pub(super) fn warm_of(&mut self, pool: &str) -> Report {
        let (id, pool) = (self.next, pool.to_owned());
        self.next += 1;
        self.send(&Order::Warm {
            id,
            pool,
            is_latest: false,
        });
        loop {
            match self.hear().unwrap() {
                Report::Warming { .. } | Report::HandedOver { .. } => {}
                report => return report,
            }
        }
    }

    #[track_caller]
    pub(super) fn is_warm(&mut self) {
        let report = self.warm();
        assert!(matches!(report, Report::Warm { .. }), "{report:?}");
    }
}

pub(super) fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

pub(super) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    // It may end by itself meanwhile.
    let _ = rustix::process::kill_process(pid, signal);
}
