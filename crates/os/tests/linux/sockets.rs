//! Listening, accepting and the calls on what was accepted.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use os::net::{self, Bind, Peer};
use testkit::{TempDir, alone};

const LOOPBACK: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

/// How long what is on its way may take on a busy machine.
const WAIT: Option<Duration> = Some(Duration::from_secs(60));

fn accept(listener: &OwnedFd) -> (OwnedFd, Peer) {
    assert_eq!(
        net::wait_readable(&[listener.as_fd()], WAIT).unwrap(),
        [true]
    );
    net::accept(listener.as_fd()).unwrap()
}

#[test]
fn sockets_of_one_user_share_a_port_and_all_of_them_get_connections() {
    for address in LOOPBACK {
        let first = net::bind(&Bind::Tcp(address.parse().unwrap()), 128).unwrap();
        let address = net::local_address(first.as_fd()).unwrap();
        let second = net::bind(&Bind::Tcp(address), 128).unwrap();
        let clients: Vec<_> = (0..64)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut counts = [0, 0];
        // Who has connected may come to be accepted a moment later.
        while counts[0] + counts[1] < clients.len() {
            let ready = net::wait_readable(&[first.as_fd(), second.as_fd()], WAIT).unwrap();
            assert!(ready.contains(&true), "{counts:?}");
            for (listener, count) in [&first, &second].into_iter().zip(&mut counts) {
                while let Ok((_, peer)) = net::accept(listener.as_fd()) {
                    assert!(matches!(peer, Peer::Tcp(from) if from.ip() == address.ip()));
                    *count += 1;
                }
            }
        }
        assert_eq!(counts[0] + counts[1], clients.len());
        assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    }
}

#[test]
fn a_port_somebody_listens_on_is_not_free() {
    // What another thread starts holds all descriptors until it has become a program.
    alone(|| {
        for address in LOOPBACK {
            let listener = net::bind(&Bind::Tcp(address.parse().unwrap()), 1).unwrap();
            let address: SocketAddr = net::local_address(listener.as_fd()).unwrap();
            assert_eq!(
                net::check_free(address).unwrap_err().kind(),
                ErrorKind::AddrInUse
            );
            drop(listener);
            net::check_free(address).unwrap();
        }
    });
}

#[test]
fn what_is_accepted_never_blocks_and_never_leaks_into_children() {
    let listener = net::bind(&Bind::Tcp(LOOPBACK[0].parse().unwrap()), 1).unwrap();
    assert_eq!(
        net::accept(listener.as_fd()).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    let mut client = TcpStream::connect(net::local_address(listener.as_fd()).unwrap()).unwrap();
    let (socket, _) = accept(&listener);
    net::set_nodelay(socket.as_fd()).unwrap();
    for fd in [&listener, &socket] {
        assert!(
            rustix::io::fcntl_getfd(fd)
                .unwrap()
                .contains(rustix::io::FdFlags::CLOEXEC)
        );
    }
    let mut buffer = [0; 16];
    assert_eq!(
        net::read(socket.as_fd(), &mut buffer).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    assert_eq!(
        net::wait_readable(&[socket.as_fd()], Some(Duration::ZERO)).unwrap(),
        [false]
    );
    client.write_all(b"ping").unwrap();
    assert_eq!(
        net::wait_readable(&[listener.as_fd(), socket.as_fd()], WAIT).unwrap(),
        [false, true]
    );
    assert_eq!(net::read(socket.as_fd(), &mut buffer).unwrap(), 4);
    net::write(socket.as_fd(), b"pong").unwrap();
    drop(socket);
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "pong");
}

#[test]
fn sendfile_moves_its_offset_and_ends_at_the_end() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let file = os::file::memfd("body", b"0123456789").unwrap();
    let mut offset = 4;
    assert_eq!(
        net::sendfile(here.as_fd(), file.as_fd(), &mut offset, 3).unwrap(),
        3
    );
    assert_eq!(
        net::sendfile(here.as_fd(), file.as_fd(), &mut offset, 100).unwrap(),
        3
    );
    assert_eq!(
        net::sendfile(here.as_fd(), file.as_fd(), &mut offset, 100).unwrap(),
        0
    );
    assert_eq!(offset, 10);
    drop(here);
    let mut sent = String::new();
    there.read_to_string(&mut sent).unwrap();
    assert_eq!(sent, "456789");
}

#[test]
fn a_dead_unix_socket_is_replaced_and_a_live_one_is_not() {
    alone(|| {
        let directory = TempDir::new();
        let path = directory.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listener = net::bind(&Bind::Unix(path.clone()), 8).unwrap();
        let error = net::bind(&Bind::Unix(path.clone()), 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let _client = UnixStream::connect(&path).unwrap();
        let (socket, peer) = accept(&listener);
        assert_eq!(peer, Peer::Unix);
        let (pid, uid, _) = net::peer_credentials(socket.as_fd()).unwrap();
        assert_eq!(
            (pid, uid),
            (std::process::id(), rustix::process::geteuid().as_raw())
        );
    });
}

#[test]
fn what_is_no_socket_is_never_removed() {
    let directory = TempDir::new();
    let path = directory.write("socket", "precious");
    let error = net::bind(&Bind::Unix(path.clone()), 8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn an_owners_socket_is_closed_to_others_from_the_start() {
    let directory = TempDir::new();
    let path = directory.path().join("socket");
    let _listener = net::bind_unix(&path, 8, net::MODE_OWNER).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn what_the_other_end_has_not_taken_is_counted() {
    let (one, mut other) = UnixStream::pair().unwrap();
    let untaken = || os::stream::untaken_bytes(one.as_fd()).unwrap();
    assert_eq!(untaken(), 0);
    assert_eq!(os::stream::send(one.as_fd(), &[0; 1000]).unwrap(), 1000);
    let held = untaken();
    assert!(held >= 1000, "{held}");
    std::io::Read::read_exact(&mut other, &mut [0; 1000]).unwrap();
    assert_eq!(untaken(), 0);
}
