//! A server whose workers do not all come up, in a process of its own: descriptors are counted
//! for all of its threads.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::fd::AsFd;

use config::model::ListenAddress;
use ipc::server::{Configure, ListenerSocket, ToServer, ToSupervisor};
use testkit::alone;

use super::configure_by;

const WORKERS: usize = 4;
/// Descriptors that the test leaves may be opened at all.
const ORDINARY: u64 = 300;

fn configure() -> Configure {
    let text = format!(
        "workers = {WORKERS}\n[[listen]]\naddress = \"127.0.0.1:80\"\n[log]\naccess = \"\"\n\
         [[sites]]\nhosts = [\"*\"]\nrules = [{{ handler = {{ respond = {{ body = \"x\" }} }} }}]\n"
    );
    let any = os::net::Bind::Tcp("127.0.0.1:0".parse().unwrap());
    let listeners = (0..WORKERS).map(|worker| ListenerSocket {
        address: ListenAddress::Tcp("127.0.0.1:80".parse().unwrap()),
        worker: Some(worker),
        socket: os::net::bind(&any, 9).unwrap(),
    });
    configure_by(1, &text, listeners.collect())
}

#[test]
fn a_server_is_ready_when_all_its_workers_are_and_else_refuses_to_start() {
    alone(|| {
        let few = os::process::nofile_max() - ORDINARY;
        let (mut refused, mut ready) = (0, 0);
        for left in [5, 60] {
            let first = configure();
            let (ours, theirs) = os::fdpass::pair().unwrap();
            os::process::reserve_descriptors(few).unwrap();
            let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
            taken.truncate(taken.len() - left);
            let server = std::thread::spawn(move || crate::serve(theirs, first));
            let word = ToSupervisor::recv(ours.as_fd()).unwrap();
            drop(taken);
            match word {
                ToSupervisor::Refused { message, .. } => {
                    assert!(
                        message.contains("cannot start: too many open files"),
                        "{message}"
                    );
                    refused += 1;
                    assert!(server.join().unwrap().is_err());
                }
                word => {
                    assert_eq!(word, ToSupervisor::Ready { generation: 1 });
                    ready += 1;
                    ToServer::Drain.send(ours.as_fd()).unwrap();
                    server.join().unwrap().unwrap();
                }
            }
        }
        assert_eq!((refused, ready), (1, 1));
    });
}
