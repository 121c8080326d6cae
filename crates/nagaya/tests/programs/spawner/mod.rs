//! The spawner alone, with a supervisor and workers that are this test.

mod bed;
mod orders;
mod pools;

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ipc::manifest::{FromSpawner, Manifest, RuleManifest, SiteManifest, ToSpawner};
use ipc::message::Message;
use ipc::order::{End, Ended, Failure, LimitHit, Order, Report, Run};
use os::file::Symlinks;
use testkit::PATIENCE;
use testkit::processes::{children, memory_kib, open_files};
use testkit::temp::TempDir;
use testkit::wait::eventually;

const FINE: &str = "#!/bin/sh\nexit 0\n";

/// The site's directory: `site`, with the root `site/www`, and `outside` beside it.
struct Tenant(TempDir);

impl Tenant {
    fn new() -> Tenant {
        let tenant = Tenant(TempDir::new());
        for directory in ["", "site", "site/www", "outside"] {
            fs::create_dir_all(tenant.path(directory)).unwrap();
            tenant.mode(directory, 0o755);
        }
        tenant.program("fine", FINE);
        tenant
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn script(&self, name: &str, text: &str, mode: u32) {
        self.0.write(name, text);
        self.mode(name, mode);
    }

    /// A program below the root.
    fn program(&self, name: &str, text: &str) {
        self.script(&format!("site/www/{name}"), text, 0o755);
    }

    fn site(&self, index: u32, symlinks: Symlinks) -> SiteManifest {
        SiteManifest {
            index,
            name: "tenant.test".into(),
            tenant: "tenant".into(),
            root: self.path("site/www"),
            within: self.path("site"),
            symlinks,
            user: os::process::is_root().then(|| "nobody".into()),
            rules: vec![RuleManifest {
                index: 3,
                names: vec!["APP".into()],
                ..RuleManifest::default()
            }],
        }
    }

    /// One site for each policy for links: 0 denies, 1 asks for the owner, 2 allows.
    fn plan(&self) -> Manifest {
        Manifest {
            generation: 1,
            is_beside: false,
            programs_max: 8,
            sites: vec![
                self.site(0, Symlinks::Deny),
                self.site(1, Symlinks::Owner),
                self.site(2, Symlinks::Allow),
            ],
            ..Manifest::default()
        }
    }
}

/// The program as a spawner; killed when dropped.
struct Spawner {
    process: Child,
    link: Option<OwnedFd>,
}

impl Spawner {
    fn start(plan: Manifest) -> Spawner {
        let spawner = Spawner::begin();
        spawner.tell(plan);
        spawner
    }

    /// One that knows nothing yet.
    fn begin() -> Spawner {
        let (link, its_link) = os::fdpass::pair().unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_nagaya"))
            .args(["spawner", "--link"])
            .env("LD_LIBRARY_PATH", "/nonexistent")
            .env("SECRET", "of the supervisor")
            .stdin(Stdio::from(its_link))
            .spawn()
            .unwrap();
        Spawner {
            process,
            link: Some(link),
        }
    }

    /// As [`Spawner::begin`], but its parent, who may end, is not this process: killed when dropped, it
    /// leaves the spawner behind.
    fn begin_below_another() -> Spawner {
        let (link, its_link) = os::fdpass::pair().unwrap();
        // What runs beside a shell has no input but one that it is given.
        let script = "exec 3<&0; \"$0\" spawner --link <&3 3<&- & wait";
        let process = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_nagaya")])
            .stdin(Stdio::from(its_link))
            .spawn()
            .unwrap();
        Spawner {
            process,
            link: Some(link),
        }
    }

    fn link(&self) -> &OwnedFd {
        self.link.as_ref().unwrap()
    }

    fn tell(&self, plan: Manifest) {
        let generation = plan.generation;
        ToSpawner::Manifest(Box::new(plan))
            .send(self.link().as_fd())
            .unwrap();
        let answer = FromSpawner::recv(self.link().as_fd()).unwrap();
        assert!(
            matches!(answer, FromSpawner::Ready { generation: said } if said == generation),
            "{answer:?}"
        );
    }

    fn worker(&self) -> Worker {
        let (ours, its) = os::fdpass::packet_pair().unwrap();
        let links = vec![its];
        let workers = ToSpawner::Workers { links };
        workers.send(self.link().as_fd()).unwrap();
        Worker {
            link: ours,
            next: 1,
        }
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn descriptors(&self) -> usize {
        open_files(self.pid()).len()
    }

    fn resident_kb(&self) -> u64 {
        memory_kib(self.pid(), "VmRSS")
    }

    fn await_no_children(&self) {
        eventually(PATIENCE, "the spawner to have no children", || {
            children(self.pid()).is_empty().then_some(())
        });
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Worker {
    link: OwnedFd,
    next: u64,
}

/// What a run came to.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// It ran; what it said, and how it ended.
    Ran(String, End, Option<LimitHit>),
    Refused(Failure),
}

impl Worker {
    /// An order with nothing on standard input; comes with our end of standard output and error.
    fn order(&mut self, script: &str, environment: &[(&str, &str)]) -> (Run, OwnedFd) {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let (output, its_output) = os::pipe::from_program().unwrap();
        let (_, its_input) = os::pipe::to_program().unwrap();
        let id = self.next;
        self.next += 1;
        let run = Run {
            id,
            generation: 1,
            site: 0,
            rule: 3,
            row: None,
            group: None,
            script: bytes(script),
            says_start: true,
            environment: environment
                .iter()
                .map(|(name, value)| (bytes(name), bytes(value)))
                .collect(),
            stdin: its_input,
            stderr: its_output.try_clone().unwrap(),
            stdout: its_output,
        };
        (run, output)
    }

    fn send(&self, order: &Order) {
        order.try_send(self.link.as_fd()).unwrap();
    }

    /// What it is told next, but for counts, which come at any time.
    fn hear(&self) -> io::Result<Report> {
        loop {
            let waits = os::net::wait_readable(&[self.link.as_fd()], Some(PATIENCE))?;
            assert_eq!(waits, [true], "no word of the spawner");
            match Report::try_recv(self.link.as_fd()) {
                Ok(Report::Counts { .. }) => {}
                heard => return heard,
            }
        }
    }

    fn hear_ended(&self) -> Ended {
        match self.hear().unwrap() {
            Report::Ended(ended) => ended,
            other => panic!("{other:?}"),
        }
    }

    fn came(&self, run: Run, output: OwnedFd) -> Came {
        let id = run.id;
        self.send(&Order::Run(run));
        match self.hear().unwrap() {
            Report::Started { id: told, .. } => {
                assert_eq!(told, id);
                let ended = self.hear_ended();
                assert_eq!(ended.id, id);
                Came::Ran(read(output), ended.end, ended.limit)
            }
            Report::Failed {
                id: told,
                failure,
                detail,
            } => {
                assert_eq!(told, id);
                assert!(!detail.is_empty());
                Came::Refused(failure)
            }
            other => panic!("{other:?}"),
        }
    }

    fn run(&mut self, script: &str) -> Came {
        let (run, output) = self.order(script, &[]);
        self.came(run, output)
    }

    /// Starts a program that stays; its number, its process and its output.
    fn stay(&mut self, script: &str) -> (u64, u32, OwnedFd) {
        let (run, output) = self.order(script, &[]);
        let id = run.id;
        self.send(&Order::Run(run));
        match self.hear().unwrap() {
            Report::Started { pid, .. } => (id, pid, output),
            other => panic!("{other:?}"),
        }
    }

    fn is_dropped(&self) {
        let error = self.hear().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

fn fine() -> Came {
    Came::Ran(String::new(), End::Exit(0), None)
}

fn read(from: OwnedFd) -> String {
    rustix::fs::fcntl_setfl(&from, rustix::fs::OFlags::empty()).unwrap();
    let mut said = String::new();
    fs::File::from(from).read_to_string(&mut said).unwrap();
    said
}

fn read_line(from: &OwnedFd) -> String {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let waits = os::net::wait_readable(&[from.as_fd()], Some(PATIENCE)).unwrap();
        assert_eq!(waits, [true]);
        let mut byte = [0];
        assert_eq!(
            os::net::read(from.as_fd(), &mut byte).unwrap(),
            1,
            "the end"
        );
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}
