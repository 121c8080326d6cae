//! What supervisor and server say is heard as it was said, and nothing else is.

use super::*;

fn memory(content: &str) -> OwnedFd {
    os::file::memfd("test", content.as_bytes()).unwrap()
}

fn content(fd: &OwnedFd) -> String {
    String::from_utf8(os::file::read_whole(fd.as_fd(), 100).unwrap()).unwrap()
}

fn layout() -> Layout {
    let hierarchy = os::cgroup::Hierarchy {
        version: os::cgroup::Version::V1,
        controllers: [os::cgroup::Controller::Cpu].into_iter().collect(),
        directory: "/sys/fs/cgroup/cpu/nagaya-7".into(),
    };
    Layout {
        hierarchies: vec![hierarchy],
    }
}

fn tally() -> Tally {
    let file = SetAsideFile {
        file: "sites.d/a.toml".into(),
        since: "2026-11-25T02:17:00Z".into(),
        verdict: "it is left out".into(),
        problem: "unknown key".into(),
    };
    Tally {
        reloads: 1,
        reloads_refused: 2,
        restarts: 3,
        last_reload: LastReload::new(4, ReloadOutcome::Wrong, "no".into()),
        last_upgrade: LastReload::new(5, ReloadOutcome::Failed, "it ended".into()),
        files_set_aside: 5,
        set_aside: vec![file],
        held: vec!["group a: it waits".into()],
    }
}

fn configure() -> ToServer {
    let listener = |address, worker, content| ListenerSocket {
        address,
        worker,
        socket: memory(content),
    };
    ToServer::Configure(Configure {
        generation: 7,
        sources: memory("sources"),
        listeners: vec![
            listener(
                ListenAddress::Tcp("127.0.0.1:80".parse().unwrap()),
                Some(0),
                "v4",
            ),
            listener(
                ListenAddress::Tcp("[::1]:80".parse().unwrap()),
                Some(1),
                "v6",
            ),
            listener(ListenAddress::Unix("/run/x.sock".into()), None, "unix"),
        ],
        logs: vec![Log {
            path: "/var/log/a".into(),
            file: memory("log"),
        }],
        control: Some(memory("control")),
        programs: vec![memory("worker 0"), memory("worker 1")],
        keeper: vec![memory("handshakes"), memory("tickets")],
        certificates: Some(memory("certificates")),
        earlier: Some(memory("earlier")),
        challenges: Vec::new(),
        layout: layout(),
        tally: tally(),
    })
}

fn challenge() -> Challenge {
    Challenge {
        name: "a.example".into(),
        proof: ChallengeProof::Http {
            token: "token".into(),
            authorization: "token.thumb".into(),
        },
    }
}

fn challenge_in_a_handshake() -> Challenge {
    Challenge {
        name: "b.example".into(),
        proof: ChallengeProof::TlsAlpn {
            certificate: Blob::from(*b"DER"),
            key: KeyId(7),
            kind: KeyKind::P256,
        },
    }
}

/// A message and its descriptors' contents, as text.
fn shown(message: &ToServer) -> String {
    let bytes = codec::encode(message).unwrap();
    let fds = message.fds();
    let contents = fds.iter().map(|fd| os::file::read_whole(*fd, 100).unwrap());
    let contents: Vec<_> = contents
        .map(|bytes| String::from_utf8(bytes).unwrap())
        .collect();
    format!("{bytes:?} {contents:?}")
}

#[test]
fn what_the_supervisor_says_arrives() {
    let (here, there) = os::fdpass::pair().unwrap();
    let log = |path: &str, result| ToServer::LogFile {
        path: path.into(),
        result,
    };
    for message in [
        configure(),
        ToServer::Reopen {
            logs: vec![Log {
                path: "/l".into(),
                file: memory("l"),
            }],
        },
        ToServer::Drain,
        ToServer::Tally(tally()),
        ToServer::Programs {
            links: vec![memory("again 0"), memory("again 1")],
        },
        ToServer::Certificates {
            set: memory("changed"),
        },
        ToServer::Keeper {
            links: vec![memory("another")],
            set: memory("anew"),
        },
        ToServer::Challenges {
            number: 3,
            challenges: vec![challenge(), challenge_in_a_handshake()],
        },
        ToServer::CertificateNews(CertificateNews {
            certificates: vec![OrderedCertificate::default()],
            ..CertificateNews::default()
        }),
        log("/a", Ok(memory("a"))),
        log("/b", Err("no such directory".into())),
    ] {
        message.send(here.as_fd()).unwrap();
        let arrived = ToServer::recv(there.as_fd()).unwrap().unwrap();
        assert_eq!(shown(&arrived), shown(&message));
    }
    configure().send(here.as_fd()).unwrap();
    let Ok(ToServer::Configure(arrived)) = ToServer::recv(there.as_fd()).unwrap() else {
        panic!("another message arrived");
    };
    assert_eq!((arrived.generation, arrived.tally), (7, tally()));
    assert_eq!(arrived.layout, layout());
    assert_eq!(
        arrived.listeners[1].address,
        ListenAddress::Tcp("[::1]:80".parse().unwrap())
    );
    assert_eq!(arrived.listeners[1].worker, Some(1));
    assert_eq!(arrived.listeners[2].worker, None);
    assert_eq!(content(&arrived.listeners[2].socket), "unix");
    assert_eq!(content(arrived.control.as_ref().unwrap()), "control");
    assert_eq!(content(&arrived.programs[1]), "worker 1");
}

#[test]
fn what_the_server_says_arrives() {
    let (here, there) = os::fdpass::pair().unwrap();
    for message in [
        ToSupervisor::Ready {
            generation: u64::MAX,
        },
        ToSupervisor::Refused {
            generation: 2,
            message: "worker 1: no memory".into(),
        },
        ToSupervisor::OpenLog {
            path: "/var/log/example.jp".into(),
        },
        ToSupervisor::Challenged { number: 3 },
        ToSupervisor::Renew {
            path: "/store/a.example.pem".to_owned(),
        },
        ToSupervisor::Drained,
        ToSupervisor::Stuck {
            report: "worker 0: 10 s in example.jp".into(),
        },
    ] {
        message.send(there.as_fd()).unwrap();
        assert_eq!(ToSupervisor::recv(here.as_fd()).unwrap(), message);
    }
}

#[test]
fn a_report_too_long_is_cut_not_lost() {
    let (here, there) = os::fdpass::pair().unwrap();
    ToSupervisor::Stuck {
        report: "遅".repeat(100_000),
    }
    .send(there.as_fd())
    .unwrap();
    let ToSupervisor::Stuck { report } = ToSupervisor::recv(here.as_fd()).unwrap() else {
        panic!("another message arrived");
    };
    assert!(report.len() > TO_SUPERVISOR_BYTES_MAX - 100 && report.chars().all(|c| c == '遅'));
}

#[test]
fn what_found_no_room_is_told_from_its_first_words() {
    let log = ToServer::LogFile {
        path: "/a".into(),
        result: Ok(memory("a")),
    };
    let reopen = ToServer::Reopen { logs: Vec::new() };
    let programs = ToServer::Programs { links: Vec::new() };
    let certificates = ToServer::Certificates { set: memory("set") };
    let keeper = ToServer::Keeper {
        links: Vec::new(),
        set: memory("set"),
    };
    for (message, expected) in [
        (configure(), Some(Unheld::Configure { generation: 7 })),
        (reopen, Some(Unheld::Reopen)),
        (programs, Some(Unheld::Programs)),
        (certificates, Some(Unheld::Certificates)),
        (keeper, Some(Unheld::Keeper)),
        (log, Some(Unheld::LogFile { path: "/a".into() })),
        (ToServer::Drain, None),
        (ToServer::Tally(tally()), None),
    ] {
        let bytes = codec::encode(&message).unwrap();
        assert_eq!(Unheld::decode(&bytes).ok(), expected);
    }
}

#[test]
fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
    let message = configure();
    let bytes = codec::encode(&message).unwrap();
    let fds = || -> Vec<OwnedFd> {
        let fds = message.fds().into_iter();
        fds.map(|fd| fd.try_clone_to_owned().unwrap()).collect()
    };
    for length in 0..bytes.len() {
        let cut = codec::decode::<ToServer>(&bytes[..length], fds());
        assert!(cut.is_err(), "{length}");
    }
    for count in 0..fds().len() {
        let few = fds().into_iter().take(count).collect();
        assert!(codec::decode::<ToServer>(&bytes, few).is_err(), "{count}");
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            let _ = codec::decode::<ToServer>(&bytes, fds());
            let _ = codec::decode::<ToSupervisor>(&bytes, Vec::new());
            let _ = Unheld::decode(&bytes);
        }
    }
}

#[test]
fn lengths_that_promise_too_much_reserve_nothing() {
    for number in [u64::MAX, u64::MAX / 2, 1 << 40] {
        for kind in 0..8_u8 {
            let bytes = postcard::to_stdvec(&(kind, number)).unwrap();
            assert!(codec::decode::<ToServer>(&bytes, Vec::new()).is_err());
            let said = codec::decode::<ToSupervisor>(&bytes, Vec::new());
            assert!(said.is_err() || kind == 0, "{said:?}");
        }
    }
}

#[test]
fn descriptors_and_bytes_nobody_asked_for_are_refused() {
    let drain = codec::encode(&ToServer::Drain).unwrap();
    for (bytes, fds) in [
        (drain.clone(), vec![memory("x")]),
        ([drain, vec![0]].concat(), Vec::new()),
    ] {
        let refused = codec::decode::<ToServer>(&bytes, fds);
        assert_eq!(refused.unwrap_err(), BadMessage::new("too long"));
    }
}
