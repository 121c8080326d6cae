//! Servers looked at: live processes that this test starts.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bench::server::{Server, Spent, Which};
use testkit::wait::eventually;

const DEADLINE: Duration = Duration::from_secs(20);

/// A shell that does `script`, killed at the end of the test.
struct Shell(Child);

impl Shell {
    fn start(script: &str) -> Shell {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        Shell(child)
    }

    fn server(&self) -> Server {
        Server::find(&Which::Pid(self.0.id())).expect("it is there")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_busy_process_is_seen_to_work() {
    let shell = Shell::start("while :; do :; done");
    let mut server = shell.server();
    let before = server.read();
    let spent = eventually(DEADLINE, "CPU time", || {
        let spent = Spent::between(&before, &server.read_memory());
        (spent.cpu() > Duration::from_millis(100)).then_some(spent)
    });
    let tree = spent.tree.expect("a tree");
    assert_eq!(tree.processes, 1);
    assert!(tree.peak_bytes > 100_000, "{tree:?}");
    assert!(
        tree.pss_bytes.is_some_and(|bytes| bytes > 10_000),
        "{tree:?}"
    );
    assert!(spent.charged > Duration::ZERO);
}

#[test]
fn whoever_listens_on_a_port_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut server = Server::find(&Which::Listening(port)).expect("we listen");
    assert_eq!(server.roots(), [std::process::id()]);
    let tree = server.read().tree.expect("a tree");
    assert_eq!(tree.sockets.get("LISTEN"), Some(&1), "{tree:?}");
}
