//! The test bed: a temporary directory with what is served, and the services that run in it.
//!
//! The idea: the bed owns everything that was started or written, so that dropping it, on the way
//! out of an error as well, leaves nothing.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::answer;
use super::child::{Running, Start};
use super::hook::Surroundings;
use super::interrupt;
use super::model::{Command, Content, Experiment, Ready, Service, ServiceAddress, SiteFile};
use super::ports::Ports;
use super::program::Programs;
use super::template::Values;
use load::Error;

/// Between two looks at a service that is starting.
const LOOK: Duration = Duration::from_millis(10);
/// The line of which files of bytes consist.
const LINE: &[u8] = b"thick walls.\n";
/// Whom a server started by root becomes.
const NOBODY: &str = "nobody";

/// Everything that services share.
#[derive(Debug)]
pub(crate) struct Bed {
    /// Dropped in this order: what runs, then the directory.
    backends: Vec<Started>,
    values: Values,
    ports: Ports,
    named_ports: BTreeMap<String, u16>,
    programs: Programs,
    here: PathBuf,
    directory: Directory,
}

/// A service that is up.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) name: String,
    pub(crate) address: ServiceAddress,
    pub(crate) home: PathBuf,
    pub(crate) running: Running,
    pub(crate) values: Values,
    pub(crate) environment: Vec<(String, String)>,
}

impl Bed {
    /// Makes the directory and writes the files that are served.
    pub(crate) fn new(
        experiment: &Experiment,
        programs: Programs,
        keep: Keep,
    ) -> Result<Bed, Error> {
        let directory = Directory::new(keep)?;
        let here = std::path::absolute(&experiment.directory);
        let here = here.map_err(|e| Error::new("find the experiment's directory", e))?;
        let mut values = Values::default();
        values.set_all(&experiment.values);
        let site = directory.make("site", 0o755)?;
        values.set("site", site.display());
        values.set("here", here.display());
        set_user(&mut values);
        for file in &experiment.files {
            write_site_file(&site, file, &values)?;
        }
        Ok(Bed {
            backends: Vec::new(),
            values,
            ports: Ports::default(),
            named_ports: BTreeMap::new(),
            programs,
            here,
            directory,
        })
    }

    /// Starts a back end, known from then on as `@backend.NAME@`.
    pub(crate) fn start_backend(&mut self, service: &Service) -> Result<(), Error> {
        let started = self.start(service, "backend")?;
        let name = &service.name;
        self.values.set(
            format!("backend.{name}"),
            format!("127.0.0.1:{}", started.address.port),
        );
        self.values
            .set(format!("backend.{name}.port"), started.address.port);
        self.values
            .set(format!("backend.{name}.home"), started.home.display());
        self.backends.push(started);
        Ok(())
    }

    /// A back end that runs.
    pub(crate) fn backend(&self, name: &str) -> Option<&Started> {
        self.backends.iter().find(|backend| backend.name == name)
    }

    /// What each back end that ended by itself said.
    pub(crate) fn check_backends(&mut self) -> Result<(), Error> {
        self.backends.iter_mut().try_for_each(Started::check)
    }

    /// Starts a service in a directory of its own, and waits until it is up.
    pub(crate) fn start(&mut self, service: &Service, kind: &str) -> Result<Started, Error> {
        let doing = format!("start {}", service.name);
        let name: String = service
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let home = self.directory.fresh(&format!("{kind}-{name}"))?;
        let port = self.ports.free()?;
        let mut values = self.values.clone();
        values.set("port", port);
        values.set("home", home.display());
        values.set("workers", service.workers);
        values.set("name", &service.name);
        self.set_programs(&mut values, service)
            .map_err(|e| Error::new(&doing, e))?;
        values.set_all(&service.values);
        self.set_named_ports(&mut values, service)?;
        let config = self.write_configs(service, &home, &mut values)?;
        let mut environment = self.environment(service, port, &home, &config, &values);
        for (name, value) in &service.environment {
            let value = values.fill(value).map_err(|e| Error::new(&doing, e))?;
            environment.push((name.clone(), value));
        }
        let fill = |word: &String| values.fill(word).map_err(|e| Error::new(&doing, e));
        let words: Vec<String> = service.command.iter().map(fill).collect::<Result<_, _>>()?;
        let output = home.join("output");
        let surroundings = Surroundings {
            values: &values,
            environment: environment.clone(),
            directory: &home,
            output: &home.join("prepare-output"),
        };
        surroundings.run_all(&service.prepare)?;
        let start = Start {
            words: &words,
            cores: &service.cores,
            directory: &home,
            output: &output,
            environment: &environment,
        };
        let mut started = Started {
            name: service.name.clone(),
            address: ServiceAddress {
                port,
                scheme: service.scheme,
            },
            running: start.run()?,
            home,
            values,
            environment,
        };
        self.wait_until_up(service, &mut started)?;
        Ok(started)
    }

    /// Where commands of a variant run, or of nobody.
    pub(crate) fn surroundings<'a>(
        &'a self,
        started: Option<&'a Started>,
        output: &'a Path,
    ) -> Surroundings<'a> {
        let own = started.map(|started| {
            let mut environment = started.environment.clone();
            environment.push(("LAB_PID".into(), started.running.pid().to_string()));
            environment
        });
        Surroundings {
            values: started.map_or(&self.values, |started| &started.values),
            environment: own.unwrap_or_else(|| self.common_environment()),
            directory: &self.here,
            output,
        }
    }

    /// Where what a command says goes.
    pub(crate) fn command_output(&self) -> PathBuf {
        self.directory.path.join("command-output")
    }

    fn wait_until_up(&self, service: &Service, started: &mut Started) -> Result<(), Error> {
        let what = || format!("wait for {} on port {}", started.name, started.address.port);
        let doing = what();
        let deadline = Instant::now() + service.ready_within;
        let mut last = String::from("nothing happened");
        while Instant::now() < deadline {
            interrupt::check()?;
            if let Some(status) = started.running.ended() {
                let cause = format!("it ended ({status}); {}", started.running.words());
                return Err(Error::new(doing, cause));
            }
            match self.is_up(&service.ready, started) {
                Ok(()) => return Ok(()),
                Err(said) => last = said,
            }
            std::thread::sleep(LOOK);
        }
        let seconds = service.ready_within.as_secs_f64();
        let words = started.running.words();
        Err(Error::new(
            doing,
            format!(
                "not up after {seconds} s ({last}); {words}; `ready_seconds` gives it more time"
            ),
        ))
    }

    fn is_up(&self, ready: &Ready, started: &Started) -> Result<(), String> {
        let connected = |result: std::io::Result<()>| result.map_err(|e| e.to_string());
        match ready {
            Ready::AtOnce => Ok(()),
            Ready::Port => {
                connected(TcpStream::connect((Ipv4Addr::LOCALHOST, started.address.port)).map(drop))
            }
            Ready::Unix(path) => {
                let path = started.values.fill(path)?;
                connected(UnixStream::connect(path).map(drop))
            }
            Ready::Path(path) => match answer::get(started.address, &started.values.fill(path)?) {
                Ok(answer) if answer.status < 400 => Ok(()),
                Ok(answer) => Err(format!("status {}", answer.status)),
                Err(error) => Err(error),
            },
            Ready::Command(command) => self.is_well(command, started),
        }
    }

    fn is_well(&self, command: &Command, started: &Started) -> Result<(), String> {
        let output = self.command_output();
        let surroundings = self.surroundings(Some(started), &output);
        let ran = surroundings.run(command, Duration::from_secs(10));
        ran.map(drop).map_err(|e| e.to_string())
    }

    fn set_programs(&self, values: &mut Values, service: &Service) -> Result<(), String> {
        for (index, name) in service.needs.iter().enumerate() {
            let path = self.programs.find(name)?;
            values.set(format!("program.{name}"), path.display());
            if index == 0 {
                values.set("program", path.display());
            }
        }
        Ok(())
    }

    /// `@port.NAME@` wherever it stands gets a port that is the same for all.
    fn set_named_ports(&mut self, values: &mut Values, service: &Service) -> Result<(), Error> {
        let read = |(_, path): &(String, PathBuf)| fs::read_to_string(path).unwrap_or_default();
        let mut texts: Vec<String> = service.configs.iter().map(read).collect();
        texts.extend(service.command.iter().cloned());
        texts.extend(service.values.values().cloned());
        for text in &texts {
            for name in text.split('@').filter(|part| part.starts_with("port.")) {
                let known = self.named_ports.get(name).copied();
                let port = known.map_or_else(|| self.ports.free(), Ok)?;
                self.named_ports.insert(name.to_owned(), port);
            }
        }
        for (name, port) in &self.named_ports {
            values.set(name.clone(), port);
            self.values.set(name.clone(), port);
        }
        Ok(())
    }

    /// Fills in the configs; returns the path of the first.
    fn write_configs(
        &self,
        service: &Service,
        home: &Path,
        values: &mut Values,
    ) -> Result<String, Error> {
        let paths: Vec<PathBuf> = service
            .configs
            .iter()
            .map(|(name, _)| home.join(name))
            .collect();
        let first = paths
            .first()
            .map(|path| path.display().to_string())
            .unwrap_or_default();
        if !first.is_empty() {
            values.set("config", &first);
        }
        for ((_, from), to) in service.configs.iter().zip(&paths) {
            let doing = || format!("fill in {}", from.display());
            let text = fs::read_to_string(from).map_err(|e| Error::new(doing(), e))?;
            let text = values.fill(&text).map_err(|e| Error::new(doing(), e))?;
            write(to, text.as_bytes(), 0o644)?;
        }
        Ok(first)
    }

    fn common_environment(&self) -> Vec<(String, String)> {
        let value = |name: &str| self.values.get(name).unwrap_or_default().to_owned();
        let mut found = vec![
            ("LAB_SITE".to_owned(), value("site")),
            ("LAB_HERE".to_owned(), value("here")),
        ];
        for backend in &self.backends {
            let name = backend.name.to_ascii_uppercase().replace('-', "_");
            found.push((
                format!("LAB_BACKEND_{name}_PORT"),
                backend.address.port.to_string(),
            ));
            found.push((
                format!("LAB_BACKEND_{name}_HOME"),
                backend.home.display().to_string(),
            ));
        }
        found
    }

    fn environment(
        &self,
        service: &Service,
        port: u16,
        home: &Path,
        config: &str,
        values: &Values,
    ) -> Vec<(String, String)> {
        let mut found = self.common_environment();
        let program = values.get("program").unwrap_or_default();
        for (name, value) in [
            ("LAB_VARIANT", service.name.as_str()),
            ("LAB_PORT", &port.to_string()),
            ("LAB_HOME", &home.display().to_string()),
            ("LAB_PROGRAM", program),
            ("LAB_CONFIG", config),
        ] {
            found.push((name.to_owned(), value.to_owned()));
        }
        found
    }
}

impl Started {
    /// Fails with the service's words when it ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.running.ended() {
            None => Ok(()),
            Some(status) => {
                let cause = format!("it ended ({status}); {}", self.running.words());
                Err(Error::new(format!("measure {}", self.name), cause))
            }
        }
    }
}

/// Whether the temporary directory stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    No,
}

/// A temporary directory, gone with its owner.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    keep: Keep,
}

impl Directory {
    fn new(keep: Keep) -> Result<Directory, Error> {
        let name = format!(
            "nagaya-lab.{}.{:08x}",
            std::process::id(),
            fastrand::u32(..)
        );
        let path = std::env::temp_dir().join(name);
        make_directory(&path, 0o755)?;
        Ok(Directory { path, keep })
    }

    fn make(&self, name: &str, mode: u32) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        make_directory(&path, mode)?;
        Ok(path)
    }

    /// A directory that was not there before: `name`, or `name` and a number. It is open to every
    /// user, for servers started by root become somebody else; nobody moves what is another's.
    fn fresh(&self, name: &str) -> Result<PathBuf, Error> {
        let names = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{name}-{n}")));
        for name in names.take(100_000) {
            if !self.path.join(&name).exists() {
                return self.make(&name, 0o1777);
            }
        }
        Err(Error::new(
            format!("make a directory for {name}"),
            "there are too many",
        ))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        match self.keep {
            Keep::Yes => eprintln!("lab: kept {}", self.path.display()),
            Keep::No => {
                let _ = fs::remove_dir_all(&self.path);
            }
        }
    }
}

fn make_directory(path: &Path, mode: u32) -> Result<(), Error> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(|e| Error::new(format!("make the directory {}", path.display()), e))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let write = || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    write().map_err(|e| Error::new(format!("write {}", path.display()), e))
}

fn write_site_file(site: &Path, file: &SiteFile, values: &Values) -> Result<(), Error> {
    for turn in 0..file.repeat {
        let mut values = values.clone();
        if file.repeat > 1 {
            values.set("n", turn);
        }
        let doing = || format!("make the file {}", file.name);
        let name = values
            .fill(&file.name)
            .map_err(|e| Error::new(doing(), e))?;
        let fill = |text: &str| values.fill(text).map_err(|e| Error::new(doing(), e));
        let bytes = match &file.content {
            Content::Text(text) => fill(text)?.into_bytes(),
            Content::Bytes(count) => LINE.iter().copied().cycle().take(*count as usize).collect(),
            Content::From(path) => {
                let bytes = fs::read(path).map_err(|e| Error::new(doing(), e))?;
                match String::from_utf8(bytes) {
                    Ok(text) => fill(&text)?.into_bytes(),
                    Err(error) => error.into_bytes(),
                }
            }
        };
        write(&site.join(name), &bytes, file.mode)?;
    }
    open_directories(site)
}

/// Every user may look into the directories of the site, whatever the caller's umask.
fn open_directories(directory: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_directory(&entry.path(), 0o755)?;
            open_directories(&entry.path())?;
        }
    }
    Ok(())
}

/// Whom servers may become: nobody where we are root, ourselves where not.
fn set_user(values: &mut Values) {
    let is_root = os::process::is_root();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let own = os::process::user_id().to_string();
    let user = field(
        &users,
        if is_root { 0 } else { 2 },
        if is_root { NOBODY } else { &own },
    );
    let name = user.as_ref().and_then(|fields| fields.first().cloned());
    let group_id = user
        .and_then(|fields| fields.get(3).cloned())
        .unwrap_or_default();
    let group = field(&groups, 2, &group_id).and_then(|fields| fields.first().cloned());
    values.set("root", is_root);
    values.set("user", name.unwrap_or(own));
    values.set("group", group.unwrap_or(group_id));
}

/// The fields of the line in which field number `index` is `value`.
fn field(text: &str, index: usize, value: &str) -> Option<Vec<String>> {
    let mut lines = text
        .lines()
        .map(|line| line.split(':').map(str::to_owned).collect());
    lines.find(|fields: &Vec<String>| fields.get(index).is_some_and(|field| field == value))
}
