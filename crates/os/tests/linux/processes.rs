//! What a process does to itself, tried in processes of their own.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use os::signal::{Signal, Signals};
use os::{fdpass, process};
use testkit::alone;

/// A field of `/proc/self/task/…/status` of every thread.
fn of_every_thread(field: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut values = Vec::new();
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .unwrap();
        values.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    values
}

#[test]
fn privileges_are_gone_for_good_in_every_thread() {
    if testkit::lacks_root("to have something to give up") {
        return;
    }
    alone(|| {
        process::drop_privileges("nobody").unwrap();
        for value in of_every_thread("Uid:") {
            assert_eq!(value, "65534 65534 65534 65534");
        }
        for field in ["Gid:", "Groups:"] {
            for value in of_every_thread(field) {
                assert!(
                    !value.split(' ').any(|group| group == "0"),
                    "{field} {value}"
                );
            }
        }
        for value in of_every_thread("CapEff:") {
            assert_eq!(value, "0000000000000000");
        }
        assert!(!process::is_root());
        assert!(std::fs::File::open("/etc/shadow").is_err());
    });
}

#[test]
fn root_and_nobody_knows_who_are_no_users_to_become() {
    assert_eq!(
        process::check_user("no-such-user-here")
            .unwrap_err()
            .to_string(),
        "no such user"
    );
    process::check_user("nobody").unwrap();
    assert!(process::check_user("root").is_err());
    if process::is_root() {
        assert!(process::drop_privileges("root").is_err());
        assert!(process::is_root());
    }
    assert!(process::check_user("a\0b").is_err());
}

#[test]
fn signals_wait_to_be_read() {
    alone(|| {
        let signals = Signals::listen().unwrap();
        assert_eq!(signals.next().unwrap(), None);
        for number in [
            libc::SIGHUP,
            libc::SIGTERM,
            libc::SIGUSR1,
            libc::SIGINT,
            libc::SIGHUP,
        ] {
            // SAFETY: raise takes any number; the signal is blocked in this thread.
            assert_eq!(unsafe { libc::raise(number) }, 0);
        }
        assert_eq!(
            os::net::wait_readable(&[signals.as_fd()], Some(Duration::ZERO)).unwrap(),
            [true]
        );
        let mut come: Vec<_> = std::iter::from_fn(|| signals.next().unwrap()).collect();
        come.sort_by_key(|signal| format!("{signal:?}"));
        let wanted = [
            Signal::Hangup,
            Signal::Interrupt,
            Signal::Terminate,
            Signal::User1,
        ];
        assert_eq!(come, wanted, "each once, however often it came");
    });
}

/// Not a test but the child of the one below, which alone gives it a link.
#[test]
fn child_entry() {
    let Ok(link) = process::take_stdin() else {
        return;
    };
    if process::die_with_parent(&link).is_err() {
        return;
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter(|entry| {
        let target = std::fs::read_link(entry.as_ref().unwrap().path());
        target.is_ok_and(|target| target.to_string_lossy().contains("memfd:secret"))
    });
    let report = format!("{} {}", std::env::args().nth(1).unwrap(), open.count());
    fdpass::send(link.as_fd(), report.as_bytes(), &[]).unwrap();
    // Lives until killed: the other end never says anything.
    let _ = fdpass::recv(link.as_fd(), 9, 0);
}

#[test]
fn a_child_has_its_link_and_nothing_else_of_ours() {
    let _secret: OwnedFd = os::file::memfd("secret", b"not for children").unwrap();
    let (link, its_link) = fdpass::pair().unwrap();
    let program = os::exec::Program::running().unwrap();
    let child = program
        .spawn(&["--exact", "processes::child_entry"], its_link)
        .unwrap();
    let (report, _) = fdpass::recv(link.as_fd(), 99, 0).unwrap();
    assert_eq!(report, b"--exact 0");
    assert!(!child.ends_within(Duration::from_millis(1)).unwrap());
    child.kill().unwrap();
    assert!(child.ends_within(Duration::from_secs(60)).unwrap());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    let ended = fdpass::recv(link.as_fd(), 99, 0).unwrap_err();
    assert_eq!(ended.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn as_many_descriptors_as_allowed_can_be_had() {
    let allowed = process::raise_nofile().unwrap();
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let soft = line.split_whitespace().nth(3).unwrap();
    assert!(soft == "unlimited" || soft == allowed.to_string(), "{line}");
}

#[test]
fn a_thread_that_gives_way_more_already_goes_on_to() {
    let nice = || {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(16).unwrap().to_owned()
    };
    let given = std::thread::spawn(move || {
        for wanted in [15, 10] {
            process::give_way(wanted).unwrap();
        }
        nice()
    });
    assert_eq!(given.join().unwrap(), "15");
}
