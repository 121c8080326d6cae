//! The machines of a fleet: what they tell of each other, one that is drained, and a reload that is refused.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{self, JoinHandle};

use control::{FleetMachine, FleetMachines};
use rustix::process::{Pid, Signal, kill_process};
use testkit::client::{Body, RawClient, reply};
use testkit::gateway::Builder;
use testkit::http2::{RawH2, kind};
use testkit::{Gateway, PATIENCE, RedisServer, a_redis, eventually, free_port};

use crate::fixtures::fleet::{CONFIG, calls, machine};
use crate::fixtures::limited::ask;

const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");

fn builder(store: &RedisServer, name: &str, concurrent: u32) -> Builder {
    let rate =
        "limits = [{ rate = \"1000/s\", burst = 2000, scope = \"fleet\", on_loss = \"open\" }, ";
    let config = CONFIG.replace("limits = [", rate);
    builder_with(&config, store.address(), name, (concurrent, "closed"))
}

fn start(store: &RedisServer, name: &str, concurrent: u32) -> Gateway {
    builder(store, name, concurrent).start()
}

fn builder_with(
    config: &str,
    store: SocketAddr,
    name: &str,
    (concurrent, on_loss): (u32, &str),
) -> Builder {
    let limit = format!("concurrent = {concurrent}, queue = 500, wait = \"100s\"");
    machine(config, store, name)
        .with("lease", "2s")
        .with("limit", format!("{limit}, on_loss = \"{on_loss}\""))
        .with("handler", "respond = { body = \"fine\" }")
}

/// Runs `nagaya fleet` with these words beside a gateway.
fn fleet(gateway: &Gateway, words: &[&str]) -> (Option<i32>, String) {
    let socket = gateway.directory().path().join("control");
    let mut command = Command::new(NAGAYA);
    command.arg("fleet").args(words).arg("--socket").arg(socket);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// Waits until machines are so, as a gateway tells them.
fn await_machines(gateway: &Gateway, what: &str, is_so: impl Fn(&[FleetMachine]) -> bool) {
    eventually(PATIENCE, what, || {
        let told = ask(gateway, "fleet json");
        let told = FleetMachines::of_json(&told).ok()?;
        is_so(&told.machines).then_some(())
    });
}

/// Waits until `web2` is to be drained, or serves and is to.
fn await_order(gateway: &Gateway, what: &str, is_drain: bool) {
    let is_so = |it: &FleetMachine| it.to_drain == is_drain && (is_drain || !it.drained);
    await_machines(gateway, what, |all| {
        all.iter().any(|it| it.machine == "web2" && is_so(it))
    });
}

fn await_told(gateway: &Gateway, question: &str, text: &str) {
    eventually(PATIENCE, text, || {
        ask(gateway, question).contains(text).then_some(())
    });
}

/// Runs it until it ends and says so: a gateway that stood still answers nobody who waits five seconds.
fn await_fleet(gateway: &Gateway, words: &[&str], status: i32, texts: &[&str]) {
    eventually(PATIENCE, &format!("fleet {words:?}"), || {
        let (ended, said) = fleet(gateway, words);
        let is_said = texts.iter().all(|it| said.contains(it));
        (ended == Some(status) && is_said).then_some(())
    });
}

/// An agent beside a gateway.
struct Agent(Child, SocketAddr);

impl Agent {
    fn start(gateway: &Gateway) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let socket = gateway.directory().path().join("control");
        let mut command = Command::new(NAGAYA);
        command.args(["agent", "--listen", &address.to_string(), "--gateway"]);
        let child = command.arg(socket).stderr(Stdio::null()).spawn().unwrap();
        Self(child, address)
    }

    fn await_line(&self, begins: &str) {
        eventually(PATIENCE, &format!("an agent that says `{begins}`"), || {
            let mut stream = TcpStream::connect(self.1).ok()?;
            stream.write_all(b"\n").ok()?;
            let mut line = String::new();
            stream.read_to_string(&mut line).ok()?;
            line.starts_with(begins).then_some(())
        });
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn machines_tell_where_they_differ_and_one_is_drained_from_another_until_that_is_undone() {
    let Some(mut store) = a_redis() else { return };
    let web1 = start(&store, "web1", 5);
    let web2 = start(&store, "web2", 6);
    await_machines(&web1, "two machines, of which one differs", |all| {
        // Files stand in directories of the test's, so that more differs.
        let differs = |it: &FleetMachine| it.differs.iter().any(|it| it == "limits");
        matches!(all, [web1, web2] if web1.here && web1.differs.is_empty() && differs(web2))
    });
    await_fleet(&web1, &[], 0, &["web1 (here)", "web2 differs: limits "]);
    eventually(PATIENCE, "what came to the rate", || {
        assert_eq!(web2.get("a", "/").status, 200);
        let shown = ask(&web1, "fleet");
        let lines = shown.lines();
        let mut rates = lines.filter(|it| it.contains("1000/s") && it.contains("web2 "));
        rates.next().map(drop)
    });
    await_told(
        &web1,
        "why 0",
        "remembers its own: `nagaya fleet` names them",
    );
    let unknown = "no machine of the fleet is called `web9`";
    await_fleet(&web1, &["drain", "web9"], 2, &[unknown]);

    let agent = Agent::start(&web2);
    agent.await_line("up ready ");
    let drain = ["drain", "web2", "--timeout", "600"];
    await_fleet(&web1, &drain, 0, &["web2: drained, and idle\n"]);
    agent.await_line("drain");
    await_told(&web2, "status", " · drained");
    let served = web2.get("a", "/");
    assert_eq!(
        (served.status, served.head.field("connection")),
        (200, Some("close"))
    );
    assert_eq!(web1.get("a", "/").head.field("connection"), None);

    // Another server hears of it, and a store that has lost it is told.
    let server = web2.server_pid();
    let pid = Pid::from_raw(i32::try_from(server).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    eventually(PATIENCE, "another server", || {
        let is_other = !web2.children().contains(&server);
        is_other.then(|| web2.server_pid())
    });
    await_told(&web2, "status", " · drained");
    store.restart();
    await_order(&web1, "an empty store to be told", true);

    let undo = ["undrain", "web2", "--timeout", "600"];
    await_fleet(&web1, &undo, 0, &["web2: serves\n"]);
    agent.await_line("up ready ");
    eventually(PATIENCE, "connections that are kept", || {
        web2.get("a", "/")
            .head
            .field("connection")
            .is_none()
            .then_some(())
    });
    await_machines(&web1, "no order any more", |all| {
        all.iter().all(|it| !it.to_drain && !it.drained)
    });

    // Without the store each is drained from itself alone, and the store hears of it.
    store.stop();
    let unheard = "is not known, `nagaya fleet` tells it when it answers; `nagaya fleet drain web2` typed on web2 needs no store";
    await_fleet(&web1, &["drain", "web2"], 1, &["does not answer", unheard]);
    await_fleet(&web2, &["drain", "web2"], 1, &["web2 is drained"]);
    agent.await_line("drain");
    store.restart();
    await_order(&web1, "the store to be told", true);
    store.stop();
    await_fleet(&web2, &["undrain", "web2"], 1, &["web2 serves, and"]);
    store.restart();
    await_order(&web1, "the store to be told of the end", false);
}

#[test]
fn a_machine_is_drained_from_itself_where_the_store_stands_still_and_of_another_nobody_knows() {
    let Some(store) = a_redis() else { return };
    let web1 = start(&store, "web1", 5);
    // The store is waited for longer than any operator.
    let config = CONFIG.replace("{lease}", "60s");
    let web2 = builder_with(&config, store.address(), "web2", (5, "closed")).start();
    await_machines(&web1, "two machines", |all| all.len() == 2);
    store.pause();
    let unknown = [
        "whether the store has the order is not known",
        "typed on web2",
    ];
    await_fleet(&web1, &["drain", "web2"], 1, &unknown);
    await_fleet(&web2, &["drain", "web2"], 1, &["web2 is drained"]);
    await_told(&web2, "status", " · drained");
    store.resume();
    await_machines(&web1, "the store to be told", |all| {
        all.iter()
            .any(|it| it.machine == "web2" && it.to_drain && it.drained)
    });
    let undo = ["undrain", "web2", "--timeout", "600"];
    await_fleet(&web1, &undo, 0, &["web2: serves\n"]);
}

#[test]
fn a_store_that_wants_a_password_and_a_second_machine_of_one_name_are_told_with_what_helps() {
    let Some(shut) = RedisServer::start(&["--requirepass", "secret"]) else {
        return;
    };
    let alone = builder_with(CONFIG, shut.address(), "web1", (5, "open")).start();
    let wanted = "the store wants a password: add `?password_file=FILE` to `store`";
    await_told(&alone, "status", &format!("store never answered: {wanted}"));
    await_told(&alone, "fleet", wanted);
    alone.wait_for_message("nothing is to be had of the fleet's store");

    let store = RedisServer::start(&[]).unwrap();
    let web1 = start(&store, "web1", 5);
    let other = start(&store, "web1", 5);
    for gateway in [&web1, &other] {
        gateway.wait_for_message("another machine of the fleet has the name of this one");
    }
    await_told(
        &web1,
        "fleet",
        "several machines are called web1: give each",
    );
    let several = "several machines are called `web1`, and all would be drained";
    await_fleet(&web1, &["drain", "web1"], 2, &[several]);
}

#[test]
fn a_store_that_evicts_keys_is_told_to_whoever_looks() {
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let Some(store) = RedisServer::start(&evicting) else {
        return;
    };
    let config = CONFIG.replace("{handler}", "metrics = \"prometheus\"");
    let web1 = builder_with(&config, store.address(), "web1", (5, "closed")).start();
    web1.wait_for_message("the fleet's store evicts keys when it is full");
    for question in ["status", "fleet"] {
        await_told(&web1, question, "store answers, and evicts keys: set ");
    }
    let metrics = web1.get("a", "/").text();
    assert!(metrics.contains("nagaya_fleet_evicts 1"), "{metrics}");
    let elsewhere = builder(&store, "web2", 5);
    eventually(PATIENCE, "a check that tells it", || {
        let (status, said, _) = elsewhere.run(&["fleet", "check"]);
        (status.code() == Some(1) && said.contains("it evicts keys")).then_some(())
    });
}

/// Asks one thing after another, over connections that are kept as long as they may be, and counts replies and connections.
struct Browsing {
    is_over: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    thread: JoinHandle<u64>,
}

impl Browsing {
    fn start(to: SocketAddr) -> Self {
        let (is_over, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (ended, count) = (Arc::clone(&is_over), Arc::clone(&served));
        let thread = thread::spawn(move || {
            let mut connections = 0;
            while !ended.load(SeqCst) {
                connections += 1;
                let mut client = RawClient::connect(to).with_deadline(PATIENCE);
                let mut is_kept = true;
                while is_kept && !ended.load(SeqCst) {
                    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                    let reply = reply(client.read_reply(Body::Framed));
                    assert_eq!((reply.status, &*reply.text()), (200, "fine"));
                    is_kept = reply.head.field("connection").is_none();
                    count.fetch_add(1, SeqCst);
                }
            }
            connections
        });
        Self {
            is_over,
            served,
            thread,
        }
    }

    fn await_more(&self, more: u64) {
        let wanted = self.served.load(SeqCst) + more;
        eventually(PATIENCE, "more replies", || {
            (self.served.load(SeqCst) >= wanted || self.thread.is_finished()).then_some(())
        });
    }

    /// Ends it; how many connections there were. Panics where a request was not answered.
    fn end(self) -> u64 {
        self.is_over.store(true, SeqCst);
        self.thread.join().unwrap()
    }
}

#[test]
fn a_machine_that_is_drained_under_load_answers_all_that_comes_and_ends_connections() {
    let Some(store) = a_redis() else { return };
    let listen =
        "[[listen]]\naddress = \"127.0.0.1:{port}\"\nprotocols = [\"http/1.1\", \"h2c\"]\n";
    let web1 = builder_with(
        &format!("{CONFIG}{listen}"),
        store.address(),
        "web1",
        (5, "closed"),
    )
    .start();
    web1.wait_for_message("the fleet's store answers");
    let browsing: Vec<_> = (0..4).map(|_| Browsing::start(web1.address())).collect();
    browsing.iter().for_each(|it| it.await_more(20));
    let mut streams = RawH2::connect(web1.address(), &[]);
    streams.get(1, "a", "/");
    assert_eq!(streams.reply(1).status(), 200);
    // It is never idle under load, so nobody waits for that.
    await_fleet(&web1, &["drain", "web1", "--timeout", "0"], 1, &["web1"]);
    await_told(&web1, "status", " · drained");
    // What is under way is whole, and so is what is asked before the end was heard of.
    streams.get(3, "a", "/");
    assert_eq!(streams.reply(3).status(), 200);
    streams.read_until("the end to be told", |it| {
        !it.goaways.is_empty() && !it.pings.is_empty()
    });
    streams.get(5, "a", "/");
    let ping = streams.pings.remove(0);
    streams.send(kind::PING, 1, 0, &ping);
    assert_eq!(streams.reply(5).status(), 200);
    assert_eq!(streams.read_to_end(), Some(0));
    assert_eq!(streams.goaways, [(u32::MAX >> 1, 0), (5, 0)]);
    browsing.iter().for_each(|it| it.await_more(20));
    let connections: Vec<_> = browsing.into_iter().map(Browsing::end).collect();
    assert!(connections.iter().all(|it| *it >= 10), "{connections:?}");
    let drain = ["drain", "web1", "--timeout", "600"];
    await_fleet(&web1, &drain, 0, &["web1: drained, and idle\n"]);
}

#[test]
fn leases_go_on_where_a_reload_without_the_fleet_is_refused() {
    let Some(store) = a_redis() else { return };
    let mut gateway = start(&store, "web1", 5);
    gateway.wait_for_message("the fleet's store answers");
    assert_eq!(gateway.get("a", "/").status, 200);
    let from = CONFIG.find("[fleet]").unwrap();
    let to = CONFIG.find("[[sites]]").unwrap();
    let without = format!("{}{}", &CONFIG[..from], &CONFIG[to..]);
    let without = without.replace("{limit}, scope = \"fleet\"", "concurrent = 5");
    let broken = "[scripts]\ninit = { code = \"raise 'no'\" }\n[[sites]]";
    gateway.reload(&without.replace("[[sites]]", broken));
    eventually(PATIENCE, "the reload to be refused", || {
        ask(&gateway, "status json")
            .contains("\"reloads_refused\":1")
            .then_some(())
    });
    let asked = || calls(&store, "evalsha");
    let before = asked();
    // A word each fifth of a lease: leases that nobody renews would be over.
    eventually(PATIENCE, "two leases", || {
        (asked() > before + 10).then_some(())
    });
    assert_eq!(gateway.get("a", "/").status, 200);
    assert!(ask(&gateway, "status json").contains("\"store\":\"answers\""));
    // Without it nobody asks, and with it again somebody does.
    gateway.reload(&without);
    eventually(PATIENCE, "no fleet", || {
        ask(&gateway, "fleet")
            .contains("no `[fleet]`")
            .then_some(())
    });
    gateway.reload(CONFIG);
    await_machines(&gateway, "the machine", |all| all.len() == 1);
    assert_eq!(gateway.get("a", "/").status, 200);
}
