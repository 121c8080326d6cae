//! The thread that asks the agents, once a second, as long as its server lives.
//!
//! The idea: all are asked at the same time, each with little time, and a round waits for the
//! slowest of them; so one that hangs costs half a second of nobody else's. What was told is taken
//! back when it ends, however that comes: no server is to be left alone for ever because of it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::model::{ServerAddress, Upstream};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::names::Names;
use super::{AgentKey, AgentLine, Agents, Told};
use crate::upstream::label;
use crate::worker::Shared;

/// How often they are asked: a round begins so long after the one before.
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
pub(crate) struct Asking {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    /// Asks from now on.
    ///
    /// # Errors
    /// When no thread or no runtime can be had.
    pub(crate) fn start(shared: Shared) -> io::Result<Self> {
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
struct AskedAgent {
    /// Its upstream, and its server.
    key: AgentKey,
    place: AgentAddress,
    told: Arc<Told>,
}

/// Where an agent is.
#[derive(Clone)]
enum AgentAddress {
    At(SocketAddr),
    Named(String, u16),
}

/// Rounds in which an agent has been silent, by upstream and server.
type Silences = HashMap<AgentKey, u32>;

/// Takes back what was told.
struct Heard<'a>(&'a Agents);

impl Drop for Heard<'_> {
    fn drop(&mut self) {
        self.0.keep(&HashSet::new());
    }
}

fn run(shared: &Shared, runtime: &runtime::Runtime, stopped: &Receiver<()>) {
    let heard = Heard(&shared.sensors.agents);
    let (mut silences, mut names) = (Silences::new(), Names::default());
    loop {
        let begun = Instant::now();
        let asked = asked(shared);
        let keys: HashSet<&AgentKey> = asked.iter().map(|asked| &asked.key).collect();
        silences.retain(|key, _| keys.contains(key));
        names.retain(&asked.iter().filter_map(AskedAgent::host).collect());
        let answers = answers(&asked, &mut names, runtime);
        for (asked, answer) in asked.iter().zip(answers) {
            record(asked, answer, &mut silences);
        }
        heard.0.keep(&keys);
        let rest = EVERY.saturating_sub(begun.elapsed());
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

impl AskedAgent {
    /// Its name, where it has one that must be looked up.
    fn host(&self) -> Option<&str> {
        match &self.place {
            AgentAddress::At(_) => None,
            AgentAddress::Named(host, _) => Some(host),
        }
    }

    /// Where it can be asked now.
    fn addresses(
        &self,
        names: &mut Names,
        runtime: &runtime::Runtime,
    ) -> Result<Vec<SocketAddr>, String> {
        let (host, port) = match &self.place {
            AgentAddress::At(address) => return Ok(vec![*address]),
            AgentAddress::Named(host, port) => (host, *port),
        };
        let name = host.clone();
        let look_up = move || Ok((name.as_str(), 0).to_socket_addrs()?.collect());
        let found = names.of(host, runtime, look_up)?;
        let with_port = found.iter().map(|address| {
            let mut address = *address;
            address.set_port(port);
            address
        });
        Ok(with_port.collect())
    }

    fn port(&self) -> u16 {
        match &self.place {
            AgentAddress::At(address) => address.port(),
            AgentAddress::Named(_, port) => *port,
        }
    }
}

/// The agents of the generation in force.
fn asked(shared: &Shared) -> Vec<AskedAgent> {
    let Some(generation) = shared.generation() else {
        return Vec::new();
    };
    let of = |upstream: &Arc<Upstream>| {
        let port = upstream.agent_port;
        let servers = upstream.servers.iter().filter_map(move |server| {
            Some((place(&server.address, port?), label(&server.address)))
        });
        let name = &upstream.name;
        let asked = servers.map(|(place, server)| AskedAgent {
            told: shared.sensors.agents.of(name, &server),
            key: (name.clone(), server),
            place,
        });
        asked.collect::<Vec<_>>()
    };
    let mut keys = HashSet::new();
    let all = generation.upstreams.iter().flat_map(of);
    // A server may stand in its upstream twice.
    let each_once = all.filter(|asked| keys.insert(asked.key.clone()));
    each_once.take(AGENTS_MAX).collect()
}

/// Where the agent of a server answers.
fn place(server: &ServerAddress, port: u16) -> AgentAddress {
    match server {
        ServerAddress::Tcp(address) => {
            let mut address = *address;
            address.set_port(port);
            AgentAddress::At(address)
        }
        ServerAddress::Name { host, .. } => AgentAddress::Named(host.clone(), port),
        // It can be nowhere but here.
        ServerAddress::Unix(_) => AgentAddress::At(SocketAddr::from(([127, 0, 0, 1], port))),
    }
}

/// What each answers, in their order.
fn answers(
    asked: &[AskedAgent],
    names: &mut Names,
    runtime: &runtime::Runtime,
) -> Vec<Result<AgentLine, String>> {
    let addresses = asked.iter().map(|asked| asked.addresses(names, runtime));
    let addresses: Vec<_> = addresses.collect();
    runtime.block_on(async {
        let mut asking = JoinSet::new();
        let mut answers: Vec<_> = asked.iter().map(|_| Err(String::new())).collect();
        for (at, (addresses, place)) in addresses.into_iter().zip(&mut answers).enumerate() {
            match addresses {
                Ok(addresses) => {
                    asking.spawn(async move { (at, answer(&addresses).await) });
                }
                Err(why) => *place = Err(why),
            }
        }
        while let Some(joined) = asking.join_next().await {
            if let Ok((at, answer)) = joined
                && let Some(place) = answers.get_mut(at)
            {
                *place = answer;
            }
        }
        answers
    })
}

async fn answer(addresses: &[SocketAddr]) -> Result<AgentLine, String> {
    let said = timeout(PATIENCE, said(addresses)).await;
    let said = said.map_err(|_| format!("no answer within {} ms", PATIENCE.as_millis()))?;
    let said = said.map_err(|error| config::reason(&error))?;
    let text = String::from_utf8_lossy(&said);
    AgentLine::read(&text).ok_or_else(|| {
        let begin: String = text.chars().take(40).collect();
        format!("it says {begin:?}, which is no state")
    })
}

/// The line an agent says, or as much of it as is read.
async fn said(addresses: &[SocketAddr]) -> io::Result<Vec<u8>> {
    let stream = TcpStream::connect(addresses).await?;
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
fn record(asked: &AskedAgent, answer: Result<AgentLine, String>, silences: &mut Silences) {
    let key = asked.key.clone();
    let (upstream, server) = &asked.key;
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
                let port = asked.port();
                tracing::warn!(upstream, %server, port, why, "an agent does not answer: its server is weighed as configured");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream as Blocking};

    use super::*;

    /// An agent that does this with whoever connects, once.
    fn agent(does: impl FnOnce(Blocking) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            does(stream);
        });
        (address, thread)
    }

    fn runtime() -> runtime::Runtime {
        let mut runtime = runtime::Builder::new_current_thread();
        runtime.enable_all().build().expect("a runtime")
    }

    #[test]
    fn of_an_endless_line_so_much_is_read() {
        let (address, agent) = agent(|mut stream| while stream.write_all(&[b'x'; 1024]).is_ok() {});
        let said = runtime().block_on(said(&[address])).expect("some of it");
        assert_eq!(said.len(), ANSWER_BYTES_MAX);
        assert_eq!(AgentLine::read(&String::from_utf8_lossy(&said)), None);
        agent.join().expect("it was let go");
    }

    #[test]
    fn who_drips_or_says_nothing_is_not_waited_for() {
        let drips = |mut stream: Blocking| {
            let drop_every = Some(Duration::from_millis(50));
            stream.set_read_timeout(drop_every).expect("a socket");
            while stream.write_all(b"u").is_ok() {
                let _ = stream.read(&mut [0; 64]);
            }
        };
        let (dripping, agent_1) = agent(drips);
        let says_nothing = |mut stream: Blocking| {
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard);
        };
        let (silent, agent_2) = agent(says_nothing);
        for address in [dripping, silent] {
            let answer = runtime().block_on(answer(&[address]));
            assert!(answer.is_err_and(|why| why.contains("no answer within")));
        }
        for agent in [agent_1, agent_2] {
            agent.join().expect("it was let go");
        }
    }

    #[test]
    fn who_is_silent_is_forgotten_after_some_rounds_and_not_before() {
        let told = Arc::<Told>::default();
        let asked = AskedAgent {
            key: ("app".to_owned(), "a:1".into()),
            place: AgentAddress::Named("a".to_owned(), 9_707),
            told: Arc::clone(&told),
        };
        let mut silences = Silences::new();
        let silent = || Err("no answer".to_owned());
        record(&asked, Ok(AgentLine::new(0, [])), &mut silences);
        for _ in 1..SILENCES_MAX {
            record(&asked, silent(), &mut silences);
            assert_eq!(told.percent(), 0);
        }
        record(&asked, silent(), &mut silences);
        assert_eq!(told.percent(), 100);
        record(&asked, Ok(AgentLine::new(30, [])), &mut silences);
        assert!(silences.is_empty() && told.percent() == 30);
    }

    #[test]
    fn an_agent_is_on_its_servers_host() {
        let tcp = "[fe80::1%3]:80".parse().expect("an address");
        for (server, expected) in [
            (ServerAddress::Tcp(tcp), "[fe80::1%3]:9"),
            (ServerAddress::Unix("/run/app.sock".into()), "127.0.0.1:9"),
        ] {
            let AgentAddress::At(address) = place(&server, 9) else {
                panic!("{server:?} has no name");
            };
            assert_eq!(address.to_string(), expected);
        }
    }

    #[test]
    fn what_was_heard_is_taken_back_at_the_end() {
        let agents = Agents::default();
        let told = agents.of("app", &"a:1".into());
        told.note(&AgentLine::new(0, []));
        drop(Heard(&agents));
        assert_eq!(told.percent(), 100);
    }
}
