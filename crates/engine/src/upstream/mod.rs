//! Upstreams as one worker sees them: servers, their health, and connections kept for reuse.
//!
//! Each worker has pools of its own, so that taking a connection locks nothing. A pool lives as
//! long as the configuration names the same upstream: a reload that doesn't touch it keeps its
//! connections. Choosing a server is in [`balance`], talking to it in `handler/proxy` and
//! `handler/fastcgi`; who waits for a FastCGI server's processes is in [`slots`]. Upstreams that
//! scripts name are judged in [`mod@named`] and have their pools in [`dynamic`].

mod balance;
mod dial;
pub(crate) mod dynamic;
mod handshake;
pub(crate) mod link;
pub(crate) mod named;
pub(crate) mod server;
pub(crate) mod slots;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::model::{self, Protocol, ProxyVersion};
use wire::proxy_protocol::{self, Endpoints};

pub(crate) use dial::UNREACHABLE;
pub(crate) use link::Link;
pub(crate) use server::label;
pub(crate) use server::{InFlight, Server};

use crate::error::{Error, Kind, Result};
use crate::exchange::request::Request;
use crate::stats::{UpstreamStats, WorkerStats};
use crate::tls::servers::ServerTerms;
use crate::worker::resources::Resources;
use crate::worker::shared::Shared;

/// Longest idle life of a FastCGI connection: it holds a process of php-fpm, for which another
/// program at the same pool may wait.
const FASTCGI_IDLE_MS: u64 = 5_000;

/// A connection that closes without a word within so long of being given a request may have been about
/// to close: what may happen twice is asked again. Later a server may have been at work on it, and
/// have ended of it. It is long as its process may wait for a processor, and less than the shortest
/// time that php-fpm gives a page, a second.
pub(crate) const CLOSING: Duration = Duration::from_millis(900);

/// One upstream's pool on one worker.
#[derive(Debug)]
pub struct Pool {
    config: Arc<model::Upstream>,
    servers: Vec<Rc<Server>>,
    /// Whether a script has named it.
    is_dynamic: bool,
    /// No new exchange will come.
    is_retired: Cell<bool>,
}

/// Which servers a request has tried already.
#[derive(Debug, Default)]
pub struct Tried {
    last: Option<usize>,
    /// Empty for most requests: their first server answers.
    before: Vec<usize>,
}

impl Tried {
    /// Lets the last server be tried once more.
    pub fn forgive_last(&mut self) {
        self.last = self.before.pop();
    }

    fn add(&mut self, server: usize) {
        self.before.extend(self.last.replace(server));
    }

    fn contains(&self, server: usize) -> bool {
        self.last == Some(server) || self.before.contains(&server)
    }
}

/// Where a script sends a request.
#[derive(Debug, Clone)]
pub enum Destination {
    /// To an upstream of the configuration, by its index.
    Configured(usize),
    /// To servers it has named.
    Dynamic(Rc<Pool>),
}

/// A server reached for a request, with a connection to it.
#[derive(Debug)]
pub struct Reached {
    /// The connection. It is handed around, so only its place is.
    pub link: Box<Link>,
    /// The server; counts the request as in flight until dropped.
    pub in_flight: InFlight,
}

impl Pool {
    /// Makes a pool without connections.
    pub(crate) fn new(
        (config, terms): (&Arc<model::Upstream>, &Option<Arc<ServerTerms>>),
        stats: &WorkerStats,
        shared: &Shared,
    ) -> Self {
        let server = |server| {
            let mut server = Server::new(server, &config.name, stats);
            if config.protocol == Protocol::FastCgi {
                server.slots = Some(shared.slots.of(&server.label));
            }
            if config.agent_port.is_some() {
                server.told = Some(shared.sensors.agents.of(&config.name, &server.label));
            }
            if let Some(terms) = terms {
                server.tls = terms.with(&server.address, shared).map(Arc::new);
            }
            Rc::new(server)
        };
        Self {
            is_dynamic: false,
            is_retired: Cell::new(false),
            servers: config.servers.iter().map(server).collect(),
            config: Arc::clone(config),
        }
    }

    /// Makes a pool of servers that a script has named; they are counted `together`.
    fn dynamic(config: model::Upstream, together: &Arc<UpstreamStats>) -> Self {
        let server = |server| Rc::new(Server::unlisted(server, together));
        Self {
            is_dynamic: true,
            is_retired: Cell::new(false),
            servers: config.servers.iter().map(server).collect(),
            config: Arc::new(config),
        }
    }

    /// The `Host` that a server of it is known by.
    pub fn host_of<'a>(&'a self, server: &'a Server) -> &'a str {
        match self.is_dynamic {
            true => &self.config.name,
            false => &server.label,
        }
    }

    /// Whether nothing is under way in it and nothing kept.
    fn is_forgettable(&self) -> bool {
        self.servers.iter().all(|server| server.is_forgettable())
    }

    /// Whether a request is under way in it.
    fn is_busy(&self) -> bool {
        self.servers.iter().any(|server| server.in_flight.get() > 0)
    }

    /// Name of the upstream it was made for.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Whether another configuration of the upstream needs no other pool: nothing that the pool
    /// looks at is different. Limits are the ledger's.
    pub fn suits(&self, other: &model::Upstream) -> bool {
        // Every field by name, so that whoever adds one decides.
        let model::Upstream {
            name,
            protocol,
            servers,
            keepalive,
            balance,
            fails,
            back_off_ms,
            back_off_max_ms,
            tries,
            agent_port,
            proxy_protocol,
            tls,
            limits: _,
        } = &*self.config;
        *name == other.name
            && *protocol == other.protocol
            && *servers == other.servers
            && *keepalive == other.keepalive
            && *balance == other.balance
            && *fails == other.fails
            && *back_off_ms == other.back_off_ms
            && *back_off_max_ms == other.back_off_max_ms
            && *tries == other.tries
            && *agent_port == other.agent_port
            && *proxy_protocol == other.proxy_protocol
            && *tls == other.tls
    }

    /// The servers, in the order of the configuration.
    pub fn servers(&self) -> &[Rc<Server>] {
        &self.servers
    }

    /// The server that was tried last.
    pub fn last_tried(&self, tried: &Tried) -> Option<&Server> {
        self.servers.get(tried.last?).map(|server| &**server)
    }

    /// Connects to one server after another, as many as a request may try. Nothing has been sent,
    /// so each may be tried. A connection that is made begins with `opening`.
    ///
    /// # Errors
    /// The last server's, when none can be reached.
    pub async fn reach(
        &self,
        resources: &Resources,
        tried: &mut Tried,
        fresh: Fresh,
        opening: &[u8],
    ) -> Result<Reached> {
        let mut failure = None;
        for _ in 0..self.config.tries.max(1) {
            match self.connect(resources, tried, fresh, opening).await {
                Ok(chosen) => return Ok(chosen),
                Err(error) if error.reason == "upstream_none_left" => {
                    return Err(failure.unwrap_or(error));
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or(Error::new(
            Kind::UpstreamDown,
            "upstream_none_left",
            String::new(),
        )))
    }

    /// Chooses a server and connects to it, or reuses a connection.
    async fn connect(
        &self,
        resources: &Resources,
        tried: &mut Tried,
        fresh: Fresh,
        opening: &[u8],
    ) -> Result<Reached> {
        let now_ms = resources.deadlines.now_ms();
        let Some(index) = balance::choose(&self.servers, self.config.balance, tried, now_ms) else {
            let detail = format!("upstream {}: no server left to try", self.config.name);
            return Err(Error::new(Kind::UpstreamDown, "upstream_none_left", detail));
        };
        let Some(server) = self.servers.get(index) else {
            return Err(Error::new(Kind::Internal, "upstream_index", String::new()));
        };
        tried.add(index);
        let in_flight = InFlight::new(server, now_ms);
        let idle = match fresh {
            Fresh::Yes => None,
            Fresh::OrSettled => server.take_settled(now_ms),
            Fresh::No => server.take_idle(),
        };
        if let Some(link) = idle {
            return Ok(Reached { link, in_flight });
        }
        match dial::dial(resources, server, opening).await {
            Ok(link) => Ok(Reached { link, in_flight }),
            Err(error) => {
                in_flight.note_end(resources, &error);
                self.note_failure(server, resources);
                Err(error)
            }
        }
    }

    /// What a connection that is made for this request begins with: who its client is, if that is said.
    pub fn opening(&self, request: &Request) -> Vec<u8> {
        let mut out = Vec::new();
        match self.config.proxy_protocol {
            ProxyVersion::Off => {}
            ProxyVersion::V1 => proxy_protocol::write_v1(endpoints(request), &mut out),
            ProxyVersion::V2 => {
                proxy_protocol::write_v2(endpoints(request), request.id.as_bytes(), &mut out);
            }
        }
        out
    }

    /// Counts a failure; after enough in a row the server rests.
    pub fn note_failure(&self, server: &Server, resources: &Resources) {
        let alone = self.servers.len() == 1;
        server.note_failure(&self.config, resources.deadlines.now_ms(), alone);
    }

    /// Keeps a connection for the next request, if there can be one.
    pub fn keep(&self, resources: &Resources, link: Box<Link>, in_flight: &InFlight) {
        if self.is_retired.get() {
            return;
        }
        in_flight
            .server()
            .keep(link, self.config.keepalive, resources.deadlines.now_ms());
    }

    /// Closes all idle connections and keeps none from now on: a generation without this upstream
    /// serves, and exchanges of the one before may go on for long.
    pub fn retire(&self) {
        self.is_retired.set(true);
        for server in &self.servers {
            server.release();
        }
    }

    /// The processes behind it have been replaced so often: connections to those before are used no
    /// more, and none that was idle for so long.
    pub fn renew(&self, hand_overs: u64, idle_ms: u64, now_ms: u64) {
        for server in &self.servers {
            server.renew(hand_overs);
            server.close_older(idle_ms, now_ms);
        }
    }

    /// Whether connections are kept at all.
    pub fn keeps(&self) -> bool {
        self.config.keepalive > 0
    }

    /// Closes all idle connections to a server: its processes are wanted.
    pub fn release(&self, label: &str) {
        for server in self.servers.iter().filter(|server| &*server.label == label) {
            server.release();
        }
    }

    /// Closes connections that were idle for too long or that the server has closed.
    pub fn sweep(&self, now_ms: u64, idle_ms: u64) {
        let idle_ms = match self.config.protocol {
            model::Protocol::Http => idle_ms,
            model::Protocol::FastCgi => idle_ms.min(FASTCGI_IDLE_MS),
        };
        for server in &self.servers {
            server.sweep(now_ms, idle_ms);
        }
    }
}

/// Whose request it is and where it came in; `None` for a client without an address. Of one that a
/// trusted proxy names no port is known.
fn endpoints(request: &Request) -> Option<Endpoints> {
    let peer = request.peer;
    let source = match request.client == peer.address.ip().to_canonical() {
        true => peer.address,
        false => SocketAddr::new(request.client, 0),
    };
    let destination = SocketAddr::new(peer.local_ip, peer.local_port);
    let ends = Endpoints {
        source,
        destination,
    };
    (!request.client.is_unspecified()).then_some(ends)
}

/// Whether a reused connection will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// No: one has just failed.
    Yes,
    /// If it was idle for a while: the request must not happen twice, and a server that means to
    /// close a connection does so right after a reply.
    OrSettled,
    /// Any that is open.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, block_on, generation_after};
    use crate::worker::serving::Serving;

    const CONFIG: &str = r#"
[upstreams.app]
servers = ["127.0.0.1:9000"]
[[sites]]
hosts = ["a"]
rules = [{ handler = { proxy = "app" } }]
"#;

    fn pool_of(serving: &Serving) -> &Rc<Pool> {
        serving.pools().next().expect("an upstream")
    }

    /// Whether the pool outlives a reload that puts this line in the place of the servers'.
    fn check(line: &str, is_kept: bool) {
        let fixture = Fixture::new(CONFIG);
        let before = fixture.worker.serving();
        let servers = r#"servers = ["127.0.0.1:9000"]"#;
        let changed = CONFIG.replace(servers, line);
        fixture.reload(generation_after(&before.generation, &changed));
        let after = fixture.worker.serving();
        let same = Rc::ptr_eq(pool_of(&before), pool_of(&after));
        assert_eq!(same, is_kept, "{line}");
        assert_eq!(pool_of(&before).is_retired.get(), !is_kept, "{line}");
    }

    #[test]
    fn a_reload_keeps_the_connections_of_an_upstream_whose_limits_alone_have_changed() {
        let servers = r#"servers = ["127.0.0.1:9000"]"#;
        check(servers, true);
        check(&format!("{servers}\nlimits = [{{ concurrent = 2 }}]"), true);
        check(&format!("{servers}\nkeepalive = 3"), false);
        check(&format!("{servers}\ntries = 1"), false);
        check(r#"servers = ["127.0.0.1:9001"]"#, false);
        check(&format!("{servers}\ntls = {{ verify = false }}"), false);
    }

    #[test]
    fn connections_over_tls_are_kept_on_the_same_terms_and_under_the_same_name_alone() {
        let terms = |tls: &str| CONFIG.replace("9000\"]", &format!("9000\"]\ntls = {tls}"));
        let fixture = Fixture::new(&terms("{ verify = false, name = \"a.test\" }"));
        for (tls, is_kept) in [
            ("{ verify = false, name = \"a.test\" }", true),
            ("{ verify = false, name = \"b.test\" }", false),
            ("{ verify = false }", false),
        ] {
            let before = fixture.worker.serving();
            fixture.reload(generation_after(&before.generation, &terms(tls)));
            let after = fixture.worker.serving();
            let same = Rc::ptr_eq(pool_of(&before), pool_of(&after));
            assert_eq!(same, is_kept, "{tls}");
            let [before, after] = [&before, &after].map(|it| it.generation.server_terms[0].clone());
            let same = Arc::ptr_eq(&before.expect("terms"), &after.expect("terms"));
            assert_eq!(same, is_kept, "{tls}");
        }
        let before = fixture.worker.serving();
        fixture.reload(generation_after(&before.generation, CONFIG));
        let after = fixture.worker.serving();
        assert!(!Rc::ptr_eq(pool_of(&before), pool_of(&after)));
    }

    #[test]
    fn connections_to_processes_that_were_replaced_are_used_no_more() {
        let place = testkit::TempDir::new();
        let path = place.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("free");
        let address = format!("unix:{}", path.display());
        let fixture = Fixture::new(&CONFIG.replace("127.0.0.1:9000", &address));
        let serving = fixture.worker.serving();
        let pool = pool_of(&serving);
        block_on(async {
            for (hand_overs, is_reused) in [(0, false), (0, true), (1, false), (1, true)] {
                pool.renew(hand_overs, 5_000, 0);
                let mut tried = Tried::default();
                let reached = pool.reach(&fixture.worker, &mut tried, Fresh::No, &[]);
                let Reached { link, in_flight } = reached.await.expect("it listens");
                assert_eq!(link.reused, is_reused, "after {hand_overs}");
                pool.keep(&fixture.worker, link, &in_flight);
            }
            // One that is in use meanwhile is not kept afterwards.
            for is_reused in [true, false] {
                let mut tried = Tried::default();
                let reached = pool.reach(&fixture.worker, &mut tried, Fresh::No, &[]);
                let Reached { link, in_flight } = reached.await.expect("it listens");
                assert_eq!(link.reused, is_reused);
                pool.renew(2, 5_000, 0);
                pool.keep(&fixture.worker, link, &in_flight);
            }
        });
    }

    #[test]
    fn the_oldest_request_is_known_through_a_reload_and_forgotten_with_its_end() {
        let fixture = Fixture::new(CONFIG);
        let before = fixture.worker.serving();
        let oldest = || fixture.worker.stats.upstreams()[0].under_way().oldest_ms;
        let first = InFlight::new(&pool_of(&before).servers()[0], 5);
        let second = InFlight::new(&pool_of(&before).servers()[0], 7);
        assert_eq!(oldest(), Some(5));
        let changed = format!("{CONFIG}[upstreams.b]\nservers = [\"127.0.0.1:1\"]")
            .replace("9000\"]", "9000\"]\nkeepalive = 3");
        fixture.reload(generation_after(&before.generation, &changed));
        let after = fixture.worker.serving();
        let third = InFlight::new(&pool_of(&after).servers()[0], 9);
        assert_eq!(oldest(), Some(5));
        drop(first);
        assert_eq!(oldest(), Some(7));
        drop(second);
        assert_eq!(oldest(), Some(9));
        let in_flight = || fixture.worker.stats.upstreams()[0].under_way().count;
        assert_eq!(in_flight(), 1);
        drop(third);
        assert_eq!((in_flight(), oldest()), (0, None));
    }
}
