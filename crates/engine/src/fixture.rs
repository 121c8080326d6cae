//! A worker and exchanges without sockets, for tests of the pipeline.

use std::rc::Rc;
use std::sync::Arc;

use config::Sources;
use wire::HeadCaps;

use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::exchange::memory::{MemoryBody, MemoryReply};
use crate::exchange::request::Peer;
use crate::generation::Generation;
use crate::listener::arrival::Listener;
use crate::stage::Arrived;
use crate::worker::Worker;
use crate::worker::serving::Serving;
use crate::worker::shared::Shared;
use crate::{access_log, pipeline};

/// One worker that serves a configuration.
pub(crate) struct Fixture {
    pub(crate) worker: Rc<Worker>,
    pub(crate) shared: Shared,
}

impl Fixture {
    pub(crate) fn new(configuration: &str) -> Self {
        Self::of(generation(1, configuration))
    }

    pub(crate) fn of(generation: Arc<Generation>) -> Self {
        let (shared, _) = Shared::new(1);
        shared.limits.put_in_force(&generation.limits);
        shared.program_pools.put_in_force(&generation.program_pools);
        let directories = &shared.rows.directories;
        directories.put_in_force(&generation.directories);
        shared.program_pools.tell_costs(&generation.costs);
        shared.set_generation(&generation);
        let worker = Worker::new(
            0,
            Arc::clone(&generation),
            shared.clone(),
            1,
            pipeline::serve_inside,
        );
        let fixture = Self {
            worker: Rc::new(worker),
            shared,
        };
        if generation.scripts.is_some() {
            block_on(fixture.worker.prepare(&generation)).expect("scripts that start");
            fixture.worker.swap(generation);
        }
        fixture
    }

    /// The first stage of a request in a generation.
    pub(crate) fn arrived<'a>(&'a self, serving: &'a Rc<Serving>) -> Arrived<'a> {
        let worker = &self.worker;
        Arrived {
            worker,
            serving,
            row: None,
        }
    }

    /// Serves another generation from now on.
    pub(crate) fn reload(&self, generation: Arc<Generation>) {
        self.shared.limits.put_in_force(&generation.limits);
        let pools = &self.shared.program_pools;
        pools.put_in_force(&generation.program_pools);
        self.shared.set_generation(&generation);
        self.worker.swap(generation);
    }

    /// Serves one request from `peer` to its end.
    pub(crate) fn ask_from(&self, peer: Peer, request: &str) -> Exchange {
        let mut exchange = exchange(peer, request);
        block_on(pipeline::serve(&self.worker, &mut exchange)).expect("memory takes all");
        exchange
    }

    pub(crate) fn ask(&self, request: &str) -> Exchange {
        self.ask_from(peer("192.0.2.7:40000"), request)
    }

    /// The access records since the last call.
    pub(crate) fn records(&self) -> String {
        self.worker.access_log.tick();
        access_log::waiting(&self.shared.access_log)
    }
}

pub(crate) fn generation(number: u64, configuration: &str) -> Arc<Generation> {
    compile(number, &sources(configuration), None)
}

/// The generation a reload makes, after `before`.
pub(crate) fn generation_after(before: &Generation, configuration: &str) -> Arc<Generation> {
    compile(before.number + 1, &sources(configuration), Some(before))
}

fn sources(configuration: &str) -> Sources {
    Sources::from_text("test.toml", &listening(configuration))
}

/// A configuration that names no listener gets one.
fn listening(configuration: &str) -> String {
    match configuration.contains("[[listen]]") {
        true => configuration.to_owned(),
        false => format!("{configuration}\n[[listen]]\naddress = '127.0.0.1:8080'\n"),
    }
}

/// Writes files into a fresh directory, which `{dir}` stands for in `configuration`.
pub(crate) fn generation_with_files(
    configuration: &str,
    files: &[(&str, &str)],
) -> Arc<Generation> {
    let directory = std::env::temp_dir();
    let directory = directory.join(format!(
        "nagaya-{:?}-{}",
        std::thread::current().id(),
        std::process::id()
    ));
    std::fs::create_dir_all(&directory).expect("a directory");
    for (name, text) in files {
        std::fs::write(directory.join(name), text).expect("a file");
    }
    let file = directory.join("nagaya.toml");
    let text = listening(configuration).replace("{dir}", &directory.display().to_string());
    std::fs::write(&file, text).expect("a configuration");
    let sources = Sources::read(&file);
    std::fs::remove_dir_all(&directory).expect("the directory");
    compile(1, &sources.expect("a configuration that can be read"), None)
}

fn compile(number: u64, sources: &Sources, before: Option<&Generation>) -> Arc<Generation> {
    let model = match config::load(sources) {
        Ok(model) => model,
        Err(problems) => panic!("{problems}"),
    };
    let generation = Generation::compile(number, &model, before);
    Arc::new(generation.expect("a configuration that compiles"))
}

pub(crate) fn peer(address: &str) -> Peer {
    Peer {
        address: address.parse().expect("an address"),
        local_ip: "127.0.0.1".parse().expect("an address"),
        local_port: 8080,
    }
}

/// A listener that nobody accepts from.
pub(crate) fn listener() -> Arc<Listener> {
    let address = config::model::ListenAddress::Unix("/run/front.sock".into());
    Arc::new(Listener::new(address))
}

pub(crate) fn exchange(peer: Peer, request: &str) -> Exchange {
    let (body, reply) = (MemoryBody::default(), MemoryReply::default());
    let mut exchange = Exchange::new(peer, Body::Memory(body), reply.into());
    let caps = HeadCaps {
        head_bytes: 64 * 1024,
        target_bytes: 32 * 1024,
        fields: 100,
    };
    let parsed = exchange.request.head.parse(request.as_bytes(), &caps);
    assert!(matches!(parsed, Ok(Some(_))), "{parsed:?}: {request}");
    exchange
}

/// Runs a future on a runtime like a worker's.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .expect("a runtime");
    runtime.block_on(future)
}

/// The reply an exchange ended with: its status, field lines and body.
pub(crate) fn reply(exchange: &Exchange) -> (u16, Vec<String>, String) {
    let reply = exchange.reply.memory().expect("a reply in memory");
    let body = String::from_utf8_lossy(reply.body()).into_owned();
    (exchange.reply.status(), reply.fields().to_vec(), body)
}
