//! Agents: what `nagaya agent` answers, and what the gateway makes of an agent's answers.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use testkit::temp::TempDir;
use testkit::{Gateway, Outcome, PATIENCE, ScriptedUpstream, Step, eventually, free_port};

const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");

struct Agent {
    child: Child,
    address: SocketAddr,
}

impl Agent {
    fn start(more: &[&str]) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = Command::new(NAGAYA);
        command.args(["agent", "--listen", &address.to_string()]);
        let command = command.args(more).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let agent = Self { child, address };
        eventually(PATIENCE, "the agent", || {
            TcpStream::connect(address).ok().map(drop)
        });
        agent
    }

    /// Asks until there is an answer that begins so: an agent does not wait long for a question,
    /// and closes before one that was held up on its way, as if it had been asked nothing.
    fn told(&self, question: &str, begins: &str) -> String {
        eventually(PATIENCE, &format!("`{begins}`"), || {
            let mut stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(question.as_bytes()).ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.starts_with(begins).then_some(answer)
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_agent_answers_whoever_connects() {
    let directory = TempDir::new();
    let drain = directory.path().join("drain");
    let agent = Agent::start(&["--drain", drain.to_str().unwrap()]);
    let has_load = std::path::Path::new("/proc/loadavg").exists();
    let line = eventually(PATIENCE, "a first sample", || {
        let line = agent.told("sensors\n", "up ready ");
        (line.contains(" load1=") || !has_load).then_some(line)
    });
    assert!(line.ends_with('\n'), "{line}");
    // HAProxy says nothing.
    let _ = agent.told("", "up ready ");
    let ok = "HTTP/1.1 200 OK\r\n";
    let http = agent.told("GET / HTTP/1.1\r\nHost: a\r\n\r\n", ok);
    let (head, body) = http.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", body.len())),
        "{head}"
    );
    assert!(body.starts_with("{\"state\":\"up\",\"percent\":"), "{body}");
    std::fs::write(&drain, "").unwrap();
    let _ = agent.told("\n", "drain");
    let http = agent.told("GET / HTTP/1.1\r\n\r\n", ok);
    assert!(
        http.contains("{\"state\":\"drain\",\"percent\":0,"),
        "{http}"
    );
}

/// An agent that says what it is told to say.
struct Scripted {
    says: Arc<Mutex<String>>,
}

impl Scripted {
    fn start(address: SocketAddr, says: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let says = Arc::new(Mutex::new(says.to_owned()));
        let said = Arc::clone(&says);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let text = said.lock().unwrap().clone();
                let _ = (&stream).write_all(text.as_bytes());
            }
        });
        Self { says }
    }

    fn say(&self, text: &str) {
        text.clone_into(&mut self.says.lock().unwrap());
    }
}

const CONFIG: &str = r#"
workers = 1
[control]
socket = "{dir}/control"
[upstreams.app]
servers = ["{one}", "{two}"]
agent = {agent}
[[sites]]
hosts = ["a.test"]
rules = [{ handler = { proxy = "app" } }]
"#;

/// What thirty requests are answered by the first server, of the two.
fn answered_by_first(gateway: &Gateway) -> usize {
    let mut client = gateway.client();
    let ask = |_| match client.ask(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n") {
        Outcome::Reply(reply) => reply.body == b"one",
        other => panic!("no reply: {other:?}"),
    };
    (0..30).map(ask).filter(|is_first| *is_first).count()
}

fn sensors(gateway: &Gateway) -> String {
    gateway.command(&["sensors", "--json"]).1
}

#[test]
fn servers_are_asked_as_their_agents_say() {
    let hosts = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
    let port = free_port();
    let [first, second] = hosts.map(|host| Scripted::start(SocketAddr::new(host, port), "up"));
    let server = |host, says: &'static str| {
        let address = SocketAddr::new(host, 0);
        ScriptedUpstream::start_at(address, move |_| {
            vec![Step::ReadBody, Step::reply(200, says)]
        })
    };
    let (one, two) = (server(hosts[0], "one"), server(hosts[1], "two"));
    let gateway = Gateway::with_config(NAGAYA, CONFIG)
        .with("one", one.address())
        .with("two", two.address())
        .with("agent", port)
        .start();
    let comes_to = |expected: usize| {
        eventually(PATIENCE, &format!("{expected} of 30"), || {
            (answered_by_first(&gateway) == expected).then_some(())
        });
    };
    comes_to(15);
    first.say("up 50% # load1=7.5 memory_available=0.5\n");
    second.say("up # load1=3 memory_available=0.25\n");
    comes_to(10);
    eventually(PATIENCE, "the worst of both", || {
        let json = sensors(&gateway);
        let worst = [
            "\"upstream.app.load1\":{\"value\":7.5,",
            "\"upstream.app.memory_available\":{\"value\":0.25,",
        ];
        worst.iter().all(|part| json.contains(part)).then_some(())
    });
    let shows = |part: &str| {
        eventually(PATIENCE, part, || {
            gateway.command(&["status"]).1.contains(part).then_some(())
        });
    };
    shows(" up · weight 50% ");
    first.say("drain\n");
    comes_to(0);
    shows(" drain ");
    let json = gateway.command(&["status", "--json"]).1;
    assert!(json.contains("\"agent_weight\":0,\"drain\":true"), "{json}");
    assert!(
        json.contains("\"agent_weight\":1,\"drain\":false"),
        "{json}"
    );
    gateway.wait_for_message("the agent wants its server left alone");
    // Where all are to be left alone, all of them answer.
    second.say("MAINT\n");
    comes_to(15);
    // What is not understood is silence, and what was said before is forgotten.
    first.say("what?\n");
    second.say("up # load1=3\n");
    gateway.wait_for_message("an agent does not answer");
    comes_to(15);
    eventually(PATIENCE, "the one that speaks", || {
        let told = "\"upstream.app.load1\":{\"value\":3,";
        sensors(&gateway).contains(told).then_some(())
    });
}

#[test]
fn whoever_is_not_asked_any_more_says_nothing() {
    let port = free_port();
    let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let agent = Scripted::start(SocketAddr::new(host, port), "drain # load1=7.5\n");
    let upstream = ScriptedUpstream::start(|_| vec![Step::reply(200, "one")]);
    let mut gateway = Gateway::with_config(NAGAYA, CONFIG)
        .with("one", upstream.address())
        .with("two", upstream.address())
        .with("agent", port)
        .start();
    let told = "\"upstream.app.load1\":{\"value\":7.5,";
    let comes = |gateway: &Gateway, is_told: bool| {
        eventually(PATIENCE, "the sensor", || {
            (sensors(gateway).contains(told) == is_told).then_some(())
        });
    };
    comes(&gateway, true);
    gateway.reload(&CONFIG.replace("agent = {agent}", ""));
    comes(&gateway, false);
    gateway.reload(CONFIG);
    comes(&gateway, true);
    drop(agent);
}

#[test]
fn an_agent_is_asked_at_the_name_of_its_server() {
    let port = free_port();
    let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let _agent = Scripted::start(SocketAddr::new(host, port), "up # load1=7.5\n");
    let gateway = Gateway::with_config(NAGAYA, CONFIG)
        .with("one", format!("localhost:{port}"))
        .with("two", format!("no-such-host.invalid:{port}"))
        .with("agent", port)
        .start();
    eventually(PATIENCE, "the sensor", || {
        let told = "\"upstream.app.load1\":{\"value\":7.5,";
        sensors(&gateway).contains(told).then_some(())
    });
    gateway.wait_for_message("an agent does not answer");
}
