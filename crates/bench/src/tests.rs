//! Comparisons and searches on a real server of a known pace, over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::compare::{self, Ended, Metric};
use crate::search::{self, Knee};
use load::client::{Live, Plan, RequestBuilder, Url};
use load::server::Which;

/// A server that takes one request at a time, each for so long. It ends with the process.
fn server(service: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let turn = Arc::new(Mutex::new(()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let turn = Arc::clone(&turn);
            std::thread::spawn(move || answer(stream, &turn, service));
        }
    });
    address
}

fn answer(mut stream: TcpStream, turn: &Mutex<()>, service: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0; 4096];
    while stream.read(&mut request)? > 0 {
        let held = turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Its work: what it takes is what the search looks for.
        std::thread::sleep(service);
        drop(held);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
    }
    Ok(())
}

fn plan(address: SocketAddr) -> Plan {
    let url: Url = format!("http://{address}/").parse().expect("a URL");
    let request = RequestBuilder::default().build(&url).expect("a request");
    let mut plan = Plan::new(vec![request]);
    plan.connections = 4;
    plan
}

#[test]
fn a_server_compared_with_itself_gives_whole_blocks_and_a_report() {
    let address = server(Duration::from_micros(100));
    let options = compare::Options {
        names: ["a".to_owned(), "b".to_owned()],
        servers: [Which::MachineOnly, Which::MachineOnly],
        blocks_max: 10,
        slice: Duration::from_millis(60),
        margin: 0.01,
        seed: 1,
    };
    let plan = plan(address);
    let mut told = 0;
    let mut tell = |_: &compare::Progress| told += 1;
    let seen =
        compare::run(&plan, &plan, &options, &Live::new(), &mut tell).expect("the server is there");
    assert_eq!((seen.blocks.len(), told), (10, 10));
    assert_ne!(seen.ended, Ended::Interrupted);
    assert_eq!(seen.metric, Metric::PerSecond);
    // A machine that stands still can empty a slice or two.
    let blocks = seen.blocks.iter();
    let full = blocks.filter(|block| block.a.requests > 0 && block.b.requests > 0);
    assert!(full.count() > 5, "{:?}", seen.blocks);
    assert!(seen.judgement.ratio.is_some() && seen.judgement.control.is_some());
    assert!(seen.document().to_html().contains("<svg"));
}

#[test]
fn the_search_ends_below_what_the_server_can_do() {
    // Two milliseconds each, one at a time: 500 a second and never more.
    let address = server(Duration::from_millis(2));
    let options = search::Options {
        name: "a".to_owned(),
        goals: "p50<200ms".parse().expect("a goal"),
        server: Which::MachineOnly,
        probe: Duration::from_millis(400),
        precision: 0.1,
    };
    let mut tried = Vec::new();
    let mut told = |probe: &search::Tried| tried.push(probe.clone());
    let seen = search::run(&plan(address), &options, &Live::new(), &mut told)
        .expect("the server is there");
    assert_eq!(tried, seen.probes);
    // A busy machine makes it slower, or the generator late; nothing makes it faster.
    if let Knee::Found { holds, .. } | Knee::GeneratorBound { holds } = seen.knee {
        assert!(holds < 650.0, "{:?}", seen.knee);
    }
    assert!(seen.closed_loop < 550.0, "{}", seen.closed_loop);
    assert!(seen.document().to_html().contains("<svg"));
}
