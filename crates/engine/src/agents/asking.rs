//! The thread that asks the agents, once a second, as long as its server lives.
//!
//! The idea: all are asked at the same time, each with little time, and a round waits for the
//! slowest of them; so one that hangs costs half a second of nobody else's. A server's name is
//! looked up at each round, off this thread, within the same time.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use config::model::{ServerAddress, Upstream};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Key, Line, Told};
use crate::upstream::label;
use crate::worker::Shared;

/// How often they are asked.
const EVERY: Duration = Duration::from_secs(1);
/// How long an agent may take.
const PATIENCE: Duration = Duration::from_millis(500);
/// Rounds without an answer after which what it said is forgotten.
const SILENCES_MAX: u32 = 5;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 4_096;
/// Agents that are asked; those of the servers that stand first in the configuration.
const AGENTS_MAX: usize = 1_024;
/// What is said to an agent that wants to be spoken to first.
const QUESTION: &[u8] = b"sensors\n";

/// The thread, from outside; it ends with this.
#[derive(Debug)]
pub struct Asking {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    /// Asks from now on.
    ///
    /// # Errors
    /// When no thread or no runtime can be had.
    pub fn start(shared: Shared) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .thread_name("agent-names")
            .build()?;
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("agents".to_owned())
            .spawn(move || {
                run(&shared, &runtime, &stopped);
                // A look-up may hang: nobody waits for it.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// An agent that is to be asked.
#[derive(Clone)]
struct Asked {
    upstream: String,
    server: Arc<str>,
    host: String,
    port: u16,
    told: Arc<Told>,
}

/// Rounds in which an agent has been silent, by upstream and server.
type Silences = HashMap<Key, u32>;

fn run(shared: &Shared, runtime: &runtime::Runtime, stopped: &Receiver<()>) {
    let mut silences = Silences::new();
    loop {
        let asked = asked(shared);
        let is_asked = |key: &Key| {
            let mut asked = asked.iter();
            asked.any(|it| it.upstream == key.0 && it.server == key.1)
        };
        silences.retain(|key, _| is_asked(key));
        let answers = runtime.block_on(answers(&asked));
        for (asked, answer) in asked.iter().zip(answers) {
            take(asked, answer, &mut silences);
        }
        drop(asked);
        shared.sensors.agents.sweep();
        if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The agents of the generation in force.
fn asked(shared: &Shared) -> Vec<Asked> {
    let Some(generation) = shared.generation() else {
        return Vec::new();
    };
    let of = |upstream: &Arc<Upstream>| {
        let port = upstream.agent_port;
        let servers = upstream.servers.iter().filter_map(move |server| {
            let host = match &server.address {
                ServerAddress::Tcp(address) => address.ip().to_string(),
                ServerAddress::Name { host, .. } => host.clone(),
                // It can be nowhere but here.
                ServerAddress::Unix(_) => "127.0.0.1".to_owned(),
            };
            Some((port?, host, label(&server.address)))
        });
        let name = &upstream.name;
        let asked = servers.map(|(port, host, server)| Asked {
            told: shared.sensors.agents.of(name, &server),
            upstream: name.clone(),
            server,
            host,
            port,
        });
        asked.collect::<Vec<_>>()
    };
    let all = generation.upstreams.iter().flat_map(of);
    all.take(AGENTS_MAX).collect()
}

/// What each answers, in their order.
async fn answers(asked: &[Asked]) -> Vec<Result<Line, String>> {
    let mut asking = JoinSet::new();
    for (at, asked) in asked.iter().enumerate() {
        let asked = asked.clone();
        asking.spawn(async move { (at, answer(&asked).await) });
    }
    let mut answers: Vec<_> = asked.iter().map(|_| Err(String::new())).collect();
    while let Some(joined) = asking.join_next().await {
        if let Ok((at, answer)) = joined
            && let Some(place) = answers.get_mut(at)
        {
            *place = answer;
        }
    }
    answers
}

async fn answer(asked: &Asked) -> Result<Line, String> {
    let place = (asked.host.as_str(), asked.port);
    let said = timeout(PATIENCE, said(place)).await;
    let said = said.map_err(|_| format!("no answer within {} ms", PATIENCE.as_millis()))?;
    let said = said.map_err(|error| config::reason(&error))?;
    let text = String::from_utf8_lossy(&said);
    Line::read(&text).ok_or_else(|| {
        let begin: String = text.chars().take(40).collect();
        format!("it says {begin:?}, which is no state")
    })
}

async fn said(place: (&str, u16)) -> io::Result<Vec<u8>> {
    let stream = TcpStream::connect(place).await?;
    // One that has answered and closed already wants no question.
    let _ = stream.try_write(QUESTION);
    let mut said = Vec::with_capacity(ANSWER_BYTES_MAX);
    let ends = |said: &[u8]| said.contains(&b'\n') || said.len() >= ANSWER_BYTES_MAX;
    while !ends(&said) {
        stream.readable().await?;
        match stream.try_read_buf(&mut said) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It had what it wanted to say before.
            Err(_) if !said.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(said)
}

/// Notes what an agent answered, and says what of that is news.
fn take(asked: &Asked, answer: Result<Line, String>, silences: &mut Silences) {
    let (upstream, server) = (&asked.upstream, &asked.server);
    let key = (upstream.clone(), Arc::clone(server));
    let was_percent = asked.told.percent();
    match answer {
        Ok(line) => {
            asked.told.note(&line);
            if silences
                .remove(&key)
                .is_some_and(|rounds| rounds >= SILENCES_MAX)
            {
                tracing::info!(upstream, %server, "the agent answers again");
            }
            match (was_percent, line.percent) {
                (1.., 0) => {
                    tracing::warn!(upstream, %server, "the agent wants its server left alone")
                }
                (0, 1..) => {
                    tracing::info!(upstream, %server, "the agent has its server asked again")
                }
                _ => {}
            }
        }
        Err(why) => {
            let rounds = silences.entry(key).or_default();
            *rounds = rounds.saturating_add(1);
            if *rounds == SILENCES_MAX {
                asked.told.forget();
                let port = asked.port;
                tracing::warn!(upstream, %server, port, why, "an agent does not answer: its server is weighed as configured");
            }
        }
    }
}
