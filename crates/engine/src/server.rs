//! The server process: its workers, and what the supervisor tells it.
//!
//! The main thread only reads the link to the supervisor. A new configuration is parsed and
//! compiled here, off the workers; each worker then swaps to it and the supervisor hears `Ready`
//! when the last one has. A warden thread watches over workers that are held up.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::model::ListenAddress;

use crate::access_log::{self, Order};
use crate::control::Control;
use crate::error::{Error, Kind, Result};
use crate::generation::Generation;
use crate::link::{Configure, ToServer, ToSupervisor, Voice};
use crate::stats::bump;
use crate::thread;
use crate::warden::{self, Watched};
use crate::worker::{Command, Shared, Swap};

/// How long the workers may take to swap generations.
const SWAP_MAX: Duration = Duration::from_secs(5);
/// Largest configuration, all files together.
const SOURCES_BYTES_MAX: usize = 256 << 20;
/// How long the last access records may take to be written.
const LAST_RECORDS_MAX: Duration = Duration::from_secs(2);
/// Beyond the drain's own deadline: closing and ending.
const END_MARGIN: Duration = Duration::from_secs(2);

/// Serves until drained or until the supervisor has gone.
///
/// # Errors
/// When the first generation can't be served, or the link breaks.
pub fn serve(link: OwnedFd, first: Configure) -> Result<()> {
    let number = first.generation;
    let voice = Voice::new(&link).map_err(unheard)?;
    let mut server = match Server::start(first, &voice) {
        Ok(server) => server,
        Err(error) => {
            voice
                .say(&ToSupervisor::Refused {
                    generation: number,
                    message: error.to_string(),
                })
                .map_err(unheard)?;
            return Err(error);
        }
    };
    voice
        .say(&ToSupervisor::Ready { generation: number })
        .map_err(unheard)?;
    loop {
        let message = match ToServer::recv(link.as_fd()) {
            Ok(message) => message,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                server.drain();
                return Ok(());
            }
            Err(error) => return Err(internal("link", &error)),
        };
        match message {
            ToServer::Configure(configure) => {
                let generation = configure.generation;
                let answer = match server.configure(configure) {
                    Ok(()) => ToSupervisor::Ready { generation },
                    Err(error) => ToSupervisor::Refused {
                        generation,
                        message: error.to_string(),
                    },
                };
                voice.say(&answer).map_err(unheard)?;
            }
            ToServer::Reopen { logs } => server.order(Order::Reopen(logs)),
            ToServer::LogFile { path, result } => server.order(Order::Opened { path, result }),
            ToServer::Drain => {
                server.drain();
                return voice.say(&ToSupervisor::Drained).map_err(unheard);
            }
        }
    }
}

struct Server {
    shared: Shared,
    threads: Vec<JoinHandle<()>>,
    log_writer: JoinHandle<()>,
    /// Listeners by address and worker that are being accepted from.
    open: HashSet<(ListenAddress, usize)>,
    watched: Arc<Watched>,
    control: Control,
    drain_max: Duration,
}

impl Server {
    fn start(first: Configure, voice: &Voice) -> Result<Self> {
        let (workers, generation) = compile(&first, None)?;
        let (shared, receivers) = Shared::new(workers);
        let watched = Arc::new(Watched::new(shared.clone()));
        let mut threads = Vec::with_capacity(workers);
        for (index, commands) in receivers.into_iter().enumerate() {
            let (generation, shared) = (Arc::clone(&generation), shared.clone());
            let seed = RandomState::new().hash_one(index);
            let body = move || {
                if let Err(error) = thread::run(index, generation, shared, seed, commands) {
                    tracing::error!(worker = index, %error, "worker ended");
                }
            };
            threads.push(spawn(&format!("worker-{index}"), body)?);
        }
        let (warden, report) = (Arc::clone(&watched), voice.clone());
        spawn("warden", move || warden::run(&warden, &report))?;
        let (records, ask) = (Arc::clone(&shared.access_log), voice.clone());
        let log_writer = spawn("access-log", move || {
            access_log::run(&records, |path| {
                let path = path.to_owned();
                ask.say(&ToSupervisor::OpenLog { path })
            });
        })?;
        let mut server = Self {
            shared,
            threads,
            log_writer,
            open: HashSet::new(),
            watched,
            control: Control::default(),
            drain_max: Duration::ZERO,
        };
        server.install(first, &generation)?;
        Ok(server)
    }

    fn configure(&mut self, configure: Configure) -> Result<()> {
        let before = self.shared.generation();
        let (workers, generation) = compile(&configure, before.as_deref())?;
        drop(before);
        if workers != self.threads.len() {
            let detail = format!(
                "workers is {} and can only change with a restart",
                self.threads.len()
            );
            return Err(Error::new(Kind::Internal, "workers_changed", detail));
        }
        self.install(configure, &generation)?;
        bump(&self.shared.process.reloads, 1);
        Ok(())
    }

    fn install(&mut self, configure: Configure, generation: &Arc<Generation>) -> Result<()> {
        self.drain_max = Duration::from_millis(generation.process.timeouts.drain_ms);
        self.control.replace(configure.control, &self.shared)?;
        self.shared
            .process
            .restarts
            .store(configure.restarts, Relaxed);
        self.order(Order::Use {
            logs: configure.logs,
            files_max: generation.process.log.files_max,
        });
        let kept: Arc<[ListenAddress]> = configure
            .listeners
            .iter()
            .map(|socket| socket.address.clone())
            .collect();
        self.open.retain(|(address, _)| kept.contains(address));
        self.watched.retain(&kept);
        let mut added: Vec<Vec<(ListenAddress, OwnedFd)>> =
            self.threads.iter().map(|_| Vec::new()).collect();
        for listener in configure.listeners {
            let targets = listener
                .worker
                .map_or(0..self.threads.len(), |worker| worker..worker + 1);
            for worker in targets {
                let Some(sockets) = added.get_mut(worker) else {
                    continue;
                };
                if self.open.insert((listener.address.clone(), worker)) {
                    let socket = listener
                        .socket
                        .try_clone()
                        .map_err(|error| internal("listener", &error))?;
                    self.watched.add(worker, &listener.address, &socket)?;
                    sockets.push((listener.address.clone(), socket));
                }
            }
        }
        let swapped = self.swap(generation, added, &kept);
        self.shared.set_generation(generation);
        if swapped.is_ok() {
            crate::error_log::set_level(generation.process.log.level);
        }
        // What the configuration took while it was read would stay with the process for good.
        os::process::release_memory();
        swapped
    }

    fn swap(
        &self,
        generation: &Arc<Generation>,
        added: Vec<Vec<(ListenAddress, OwnedFd)>>,
        kept: &Arc<[ListenAddress]>,
    ) -> Result<()> {
        let (done, waiting) = mpsc::channel();
        for (worker, added) in added.into_iter().enumerate() {
            let swap = Swap {
                generation: Arc::clone(generation),
                added,
                kept: Arc::clone(kept),
                done: done.clone(),
            };
            self.shared
                .peers
                .tell(worker, Command::Swap(Box::new(swap)));
        }
        drop(done);
        match waiting.recv_timeout(SWAP_MAX) {
            Err(mpsc::RecvTimeoutError::Disconnected) | Ok(()) => Ok(()),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(Error::new(
                Kind::Internal,
                "swap_slow",
                "a worker did not take the new generation in time",
            )),
        }
    }

    fn drain(self) {
        for worker in 0..self.threads.len() {
            self.shared.peers.tell(worker, Command::Drain);
        }
        wait_for(&self.threads, self.drain_max + END_MARGIN);
        self.shared.access_log.close();
        wait_for(&[self.log_writer], LAST_RECORDS_MAX);
    }

    fn order(&self, order: Order) {
        self.shared.access_log.order(order);
    }
}

/// Waits until the threads have ended, but not for ever.
fn wait_for(threads: &[JoinHandle<()>], patience: Duration) {
    let until = Instant::now() + patience;
    for thread in threads {
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Parses and compiles what the supervisor sent.
fn compile(configure: &Configure, before: Option<&Generation>) -> Result<(usize, Arc<Generation>)> {
    let bytes = os::file::read_whole(configure.sources.as_fd(), SOURCES_BYTES_MAX)
        .map_err(|error| internal("sources", &error))?;
    let wrong = |error: &dyn std::fmt::Display| {
        Error::new(Kind::Internal, "configuration", error.to_string())
    };
    let sources = config::Sources::from_bytes(&bytes).map_err(|error| wrong(&error))?;
    drop(bytes);
    let model = config::load(&sources).map_err(|error| wrong(&error))?;
    drop(sources);
    let workers = model.workers;
    let mut generation = Generation::compile(configure.generation, model)?;
    if let Some(before) = before {
        generation.inherit(before);
    }
    Ok((workers, Arc::new(generation)))
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|error| internal("thread", &error))
}

fn unheard(error: std::io::Error) -> Error {
    internal("link", &error)
}

fn internal(reason: &'static str, error: &std::io::Error) -> Error {
    Error::new(Kind::Internal, reason, error.to_string())
}

#[cfg(test)]
mod tests;
