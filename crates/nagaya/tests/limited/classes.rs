//! Classes of a tenant's requests, and reserves: who is served first of those that wait.

use std::sync::{Arc, Mutex};

use testkit::client::{Body, reply};
use testkit::{Gateway, PATIENCE, RawClient, ScriptedUpstream, Step};

use crate::fixtures::limited::{Gate, ask, await_counts};

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control"
[log]
access = "{dir}/access.log"
format = "json"
[upstreams.app]
servers = ["{upstream}"]
limits = [{ concurrent = 1, queue = 6, wait = "600s"{reserve} }]
[tenants.shop]
class = [
  { name = "posts", match = { method = "POST" }, weight = 8 },
  { name = "log-ins", match = { path = "/login" }, weight = 4 },
]
[tenants.blog]
[[sites]]
hosts = ["shop.test"]
tenant = "shop"
rules = [{ handler = { proxy = "app" } }]
[[sites]]
hosts = ["blog.test"]
tenant = "blog"
rules = [{ handler = { proxy = "app" } }]
"#;

/// A gateway, what its back end has seen, in order, and when that answers.
struct Scene {
    gateway: Gateway,
    seen: Arc<Mutex<Vec<String>>>,
    gate: Gate,
    _upstream: ScriptedUpstream,
}

impl Scene {
    fn new(reserve: &str) -> Self {
        let (gate, seen) = (Gate::default(), Arc::<Mutex<Vec<String>>>::default());
        let (held, noted) = (gate.clone(), Arc::clone(&seen));
        let upstream = ScriptedUpstream::start(move |request| {
            let target = request.head.line.split(' ').nth(1);
            noted.lock().unwrap().push(target.unwrap().to_owned());
            held.wait();
            vec![Step::ReadBody, Step::reply(200, "done")]
        });
        let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
            .with("reserve", reserve)
            .with("upstream", upstream.address())
            .start();
        gateway.wait_for_message("ready: generation 1 ");
        Self {
            gateway,
            seen,
            gate,
            _upstream: upstream,
        }
    }

    fn send(&self, line: &str, host: &str) -> RawClient {
        let mut client = self.gateway.client().with_deadline(PATIENCE);
        let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        client.send(head.as_bytes());
        client
    }

    /// Sends these one after the other, lets the first be answered, and tells in which order the back
    /// end saw them.
    fn order(&self, requests: &[(&str, &str)]) -> Vec<String> {
        let mut clients = Vec::new();
        for (at, (line, host)) in requests.iter().enumerate() {
            clients.push(self.send(line, host));
            await_counts(&self.gateway, 1, at);
        }
        self.gate.open();
        for mut client in clients {
            assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
        }
        self.seen.lock().unwrap().clone()
    }
}

#[test]
fn posts_and_log_ins_come_before_who_asks_without_end_and_all_are_answered() {
    let scene = Scene::new("");
    let seen = scene.order(&[
        ("GET /0", "shop.test"),
        ("GET /1", "shop.test"),
        ("GET /2", "shop.test"),
        ("GET /3", "shop.test"),
        ("GET /login", "shop.test"),
        ("POST /post", "shop.test"),
    ]);
    let place = |target: &str| seen.iter().position(|it| it == target).unwrap();
    assert_eq!(seen.len(), 6, "{seen:?}");
    for early in ["/login", "/post"] {
        assert!(place(early) < place("/2"), "{seen:?}");
    }
    let metrics = ask(&scene.gateway, "status json");
    for class in ["posts", "log-ins"] {
        let told = format!("{{\"tenant\":\"shop\",\"class\":\"{class}\",\"waited\":1,");
        assert!(metrics.contains(&told), "{metrics}");
    }
    let log = scene.gateway.directory().path().join("access.log");
    testkit::eventually(PATIENCE, "the records", || {
        let log = std::fs::read_to_string(&log).unwrap();
        let named = |class: &str| log.matches(&format!("\"class\":\"{class}\"")).count();
        (named("posts") == 1 && named("log-ins") == 1).then_some(())
    });
}

#[test]
fn a_full_queue_makes_room_for_a_post_and_why_tells_the_class_of_who_is_refused() {
    let scene = Scene::new("");
    let mut others = Vec::new();
    for at in 0..7 {
        others.push(scene.send("GET /", "shop.test"));
        await_counts(&scene.gateway, 1, at);
    }
    let mut posts = Vec::new();
    for _ in 0..6 {
        posts.push(scene.send("POST /post", "shop.test"));
        // The last of the others has made room.
        let refused = reply(others.pop().unwrap().read_reply(Body::Framed));
        assert_eq!(refused.status, 503);
    }
    let mut more = scene.send("POST /more", "shop.test");
    let refused = reply(more.read_reply(Body::Framed));
    assert_eq!(refused.status, 503);
    let why = ask(
        &scene.gateway,
        &format!("why {}", refused.head.field("X-Request-Id").unwrap()),
    );
    assert!(why.contains("class       posts\n"), "{why}");
    scene.gate.open();
}

#[test]
fn the_next_place_is_a_tenants_that_has_less_than_its_reserve() {
    let scene = Scene::new(", reserve = { shop = 1 }");
    let seen = scene.order(&[
        ("GET /blog0", "blog.test"),
        ("GET /blog1", "blog.test"),
        ("GET /blog2", "blog.test"),
        ("GET /shop0", "shop.test"),
        ("GET /blog3", "blog.test"),
    ]);
    assert_eq!(seen[..2], ["/blog0", "/shop0"], "{seen:?}");
    let list = ask(&scene.gateway, "limits list");
    assert!(list.contains(", 1 for shop"), "{list}");
}
