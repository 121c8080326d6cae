//! TCP sockets asked of the kernel over netlink (`sock_diag`), many times cheaper than the tables
//! of /proc, which are text.
//!
//! The idea: one question for each family, answered in a bounded number of messages. What is
//! answered is of this process's own network namespace. A kernel without it answers with an error,
//! and the tables are read instead.

use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    sockopt,
};

/// Kind of the question and of its answers: sockets of a family.
const BY_FAMILY: u16 = 20;
/// A question for all there are.
const REQUEST_DUMP: u16 = 0x301;
/// Kinds of messages that end the answer.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const TCP: u8 = 6;
/// Families of addresses: versions 4 and 6 of IP.
const FAMILIES: [u8; 2] = [2, 10];
/// Head of a message: length, kind, flags, number, sender.
const HEAD_BYTES: usize = 16;
/// Sockets looked at for one answer.
const SOCKETS_MAX: u64 = 500_000;
/// Room for what comes in one piece; the kernel sends half as much.
const PIECE_BYTES: usize = 64 * 1024;
/// The kernel answers at once or not at all.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells port and state of each TCP socket, of one port alone where it is named. Returns whether
/// there were more than are looked at; `None` where the kernel does not answer.
pub(super) fn each_socket(port: Option<u16>, mut each: impl FnMut(u16, u8)) -> Option<bool> {
    let mut is_cut = false;
    for family in FAMILIES {
        is_cut |= of_family(family, port, &mut each)?;
    }
    Some(is_cut)
}

fn of_family(family: u8, port: Option<u16>, each: &mut impl FnMut(u16, u8)) -> Option<bool> {
    let socket = ask(family, port).ok()?;
    let mut piece = vec![0_u8; PIECE_BYTES];
    let mut count = 0;
    while count < SOCKETS_MAX {
        let (length, _) = recv(&socket, piece.as_mut_slice(), RecvFlags::empty()).ok()?;
        let mut rest = piece.get(..length).filter(|piece| !piece.is_empty())?;
        while !rest.is_empty() {
            let (message, after) = message(rest)?;
            rest = after;
            match message {
                Message::Socket { port, state } => {
                    count += 1;
                    each(port, state);
                }
                Message::Other => {}
                Message::Done => return Some(false),
                Message::Error => return None,
            }
        }
    }
    Some(true)
}

fn ask(family: u8, port: Option<u16>) -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    send(&socket, &question(family, port), SendFlags::empty())?;
    Ok(socket)
}

/// Head, family, protocol, extensions, padding, all states, and the name of a socket of which only
/// its own port counts.
fn question(family: u8, port: Option<u16>) -> Vec<u8> {
    const NAME_BYTES: usize = 48;
    const LENGTH: u32 = (HEAD_BYTES + 8 + NAME_BYTES) as u32;
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&LENGTH.to_ne_bytes());
    bytes.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&REQUEST_DUMP.to_ne_bytes());
    bytes.extend_from_slice(&1_u32.to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(&[family, TCP, 0, 0]);
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(&port.unwrap_or(0).to_be_bytes());
    bytes.resize(HEAD_BYTES + 8 + NAME_BYTES, 0);
    bytes
}

#[derive(Debug, PartialEq, Eq)]
enum Message {
    Socket { port: u16, state: u8 },
    Done,
    Error,
    Other,
}

/// The first message of a piece, and what follows it; `None` where it is none.
fn message(bytes: &[u8]) -> Option<(Message, &[u8])> {
    let (length, _) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
    if length < HEAD_BYTES {
        return None;
    }
    let body = bytes.get(HEAD_BYTES..length)?;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let message = match kind {
        // Family, state, timer, sent again, own port.
        BY_FAMILY => match body {
            [_, state, _, _, high, low, ..] => Message::Socket {
                port: u16::from_be_bytes([*high, *low]),
                state: *state,
            },
            _ => return None,
        },
        ERROR => Message::Error,
        DONE => Message::Done,
        _ => Message::Other,
    };
    let next = length.next_multiple_of(4).min(bytes.len());
    Some((message, bytes.get(next..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEAD_BYTES + body.len()).expect("it is short");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.resize(HEAD_BYTES, 0);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn an_answer_is_read_message_by_message() {
        let mut bytes = made(BY_FAMILY, &[2, 6, 0, 0, 0x1f, 0x90, 1]);
        bytes.push(0);
        bytes.extend(made(DONE, &[]));
        let (first, rest) = message(&bytes).expect("a message");
        assert_eq!(
            first,
            Message::Socket {
                port: 8080,
                state: 6
            }
        );
        assert_eq!(message(rest), Some((Message::Done, &[][..])));
    }

    #[test]
    fn a_broken_answer_is_none() {
        let whole = made(BY_FAMILY, &[2, 6, 0, 0, 0x1f, 0x90]);
        for length in 0..whole.len() {
            assert_eq!(message(&whole[..length]), None, "{length}");
        }
        assert_eq!(message(&made(BY_FAMILY, &[2, 6, 0])), None);
        for length in [0, 15, u32::MAX] {
            let mut bytes = whole.clone();
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(message(&bytes), None, "{length}");
        }
    }

    #[test]
    fn the_kernel_and_its_tables_agree() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let _client = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        for asked in [Some(port), None] {
            let mut states = Vec::new();
            let told = each_socket(asked, |of, state| {
                if of == port {
                    states.push(state);
                }
            });
            states.sort_unstable();
            match told {
                None => testkit::lacks("a kernel's feature", "sock_diag does not answer"),
                Some(is_cut) => {
                    assert!(!is_cut);
                    assert_eq!(states, [1, super::super::texts::LISTEN], "{asked:?}");
                }
            }
        }
    }
}
