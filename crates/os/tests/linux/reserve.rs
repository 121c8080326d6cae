//! Descriptors that are set aside, in a process of their own: its limit is that of all threads.

use std::fs::File;
use std::os::fd::AsFd;

use os::{fdpass, process};
use testkit::alone;

/// Opens as many as there are.
fn open_all() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn what_is_set_aside_is_there_when_all_others_are_taken_and_only_then() {
    alone(|| {
        let (here, there) = fdpass::pair().unwrap();
        let send = || {
            let passed = [here.as_fd(), there.as_fd()];
            fdpass::send(here.as_fd(), b"two", &passed).unwrap();
        };
        let allowed = process::nofile_max();
        let ordinary = process::reserve_descriptors(8).unwrap();
        assert_eq!(ordinary, allowed - 8);
        let all = open_all();
        assert!(process::next_descriptor().is_err());
        for _ in 0..20 {
            send();
            let (message, fds) = fdpass::recv(there.as_fd(), 9, 2).unwrap();
            assert_eq!((&*message, fds.unwrap().len()), (b"two".as_slice(), 2));
        }
        assert!(process::with_reserve(|| File::open("/dev/null")).is_ok());
        assert!(File::open("/dev/null").is_err());

        // Those who have taken all get the message without them, and the next one whole.
        assert_eq!(process::raise_nofile().unwrap(), allowed);
        let rest = open_all();
        assert_eq!(rest.len(), 8);
        send();
        let (message, fds) = fdpass::recv(there.as_fd(), 9, 2).unwrap();
        assert!(message == b"two" && fds.is_none());
        drop((all, rest));
        send();
        let (message, fds) = fdpass::recv(there.as_fd(), 9, 2).unwrap();
        assert_eq!((&*message, fds.unwrap().len()), (b"two".as_slice(), 2));
    });
}
