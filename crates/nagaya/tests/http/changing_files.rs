//! Files that change while they are served: seen within a second, cut short visibly, never mixed up.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use crate::fixtures::files::{gateway, get};
use testkit::{Gateway, Outcome, Reply, eventually};

/// How soon a change must be seen.
const NOTICED: Duration = Duration::from_millis(1_000);

/// Asks until the reply is as wanted, which whoever asks after a second must be told.
fn soon(gateway: &Gateway, what: &str, path: &str, wanted: impl Fn(&Reply) -> bool) {
    let begun = Instant::now();
    let mut late = Vec::new();
    eventually(Duration::from_secs(60), what, || {
        let asked = begun.elapsed();
        let seen = wanted(&get(gateway, "plain.test", path));
        if !seen && asked > NOTICED + Duration::from_millis(250) {
            late.push(asked);
        }
        seen.then_some(())
    });
    // A worker that stood still answers what has waited for it before it looks at the time again.
    assert!(late.len() < 5, "{what} was not seen at {late:?}");
}

#[test]
fn a_change_is_noticed_within_a_second() {
    let big = vec![b'a'; 100_000];
    let gateway = gateway(&[("new/target", b"swapped"), ("big", &big)]);
    let path = |name: &str| gateway.directory().path().join("www").join(name);
    let body = |body: &'static str| move |reply: &Reply| reply.text() == body;
    assert_eq!(get(&gateway, "plain.test", "/late.txt").status, 404);
    assert_eq!(get(&gateway, "plain.test", "/hello.txt").status, 200);

    std::fs::write(path("hello.txt"), "HELLO, WORLD!\n").expect("write in place");
    soon(
        &gateway,
        "new content of the same size",
        "/hello.txt",
        body("HELLO, WORLD!\n"),
    );
    std::fs::write(path("next"), "renamed").expect("write aside");
    std::fs::rename(path("next"), path("hello.txt")).expect("rename over");
    soon(&gateway, "another file", "/hello.txt", body("renamed"));
    std::fs::remove_file(path("hello.txt")).expect("remove");
    soon(&gateway, "a deletion", "/hello.txt", |reply| {
        reply.status == 404
    });
    symlink("new/target", path("hello.txt")).expect("link");
    soon(
        &gateway,
        "a link in its place",
        "/hello.txt",
        body("swapped"),
    );
    std::fs::write(path("late.txt"), "here").expect("write");
    soon(
        &gateway,
        "a file that was missing",
        "/late.txt",
        body("here"),
    );
    std::fs::write(path("big"), vec![b'b'; 100_000]).expect("write in place");
    soon(&gateway, "a large file's change", "/big", |reply| {
        reply.body[99_999] == b'b'
    });
    let none = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(path("late.txt"), none).expect("take permission");
    soon(&gateway, "a lost permission", "/late.txt", |reply| {
        reply.status == 403
    });
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_is_visibly_cut_short() {
    let gateway = gateway(&[("shrinks", &vec![b'x'; 32 << 20])]);
    let mut client = gateway.client();
    client.send(b"GET /shrinks HTTP/1.1\r\nHost: plain.test\r\n\r\n");
    // The rest waits for the client, who takes its time.
    let begun = client.read_exactly(100_000);
    assert_eq!(begun.len(), 100_000);
    let file = std::fs::File::options()
        .write(true)
        .open(gateway.directory().path().join("www/shrinks"))
        .expect("open the file");
    file.set_len(1_000).expect("shrink it");
    let (rest, end) = client.read_to_end();
    assert!(rest.len() < 32 << 20, "{} bytes came", rest.len());
    assert!(matches!(end, Outcome::Eof | Outcome::Reset), "{end:?}");
    assert_eq!(get(&gateway, "plain.test", "/hello.txt").status, 200);
}

/// Swaps two names below the root while their first is asked for under three policies; `body` is
/// all that may come of it.
fn swapped(gateway: &Gateway, (one, two): (&str, &str), path: &str, body: &str) {
    let root = gateway.directory().path().join("www");
    let (one, two) = (root.join(one), root.join(two));
    let until = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            // A fresh query makes no difference to the cache, a fresh host does: three policies.
            let hosts = ["plain.test", "deny.test", "allow.test"];
            for (asked, host) in hosts.iter().cycle().enumerate() {
                if asked > 100 && Instant::now() >= until {
                    break;
                }
                let reply = get(gateway, host, path);
                assert!(matches!(reply.status, 200 | 404), "{}", reply.status);
                assert!(reply.status == 404 || reply.text() == body);
            }
        });
        while !asking.is_finished() {
            // There and back: they end as they began.
            for _ in 0..2 {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &two, flags)
                    .expect("swap");
            }
        }
    });
}

#[test]
fn a_name_swapped_back_and_forth_never_shows_what_is_outside() {
    let gateway = gateway(&[("inside", b"inside"), ("dir/file", b"inside")]);
    let directory = gateway.directory();
    directory.write("secret", "outside");
    directory.write("elsewhere/file", "outside");
    let at = |name: &str| directory.path().join(name);
    symlink("../secret", at("www/other")).expect("link");
    swapped(&gateway, ("inside", "other"), "/inside", "inside");

    // By absolute links: to the secret, to a directory that holds it, and to one swapped for it.
    symlink(at("secret"), at("www/absolute_out")).expect("link");
    symlink(at("www/dir/file"), at("www/absolute")).expect("link");
    swapped(
        &gateway,
        ("absolute", "absolute_out"),
        "/absolute",
        "inside",
    );
    symlink(at("elsewhere"), at("www/other_dir")).expect("link");
    swapped(&gateway, ("dir", "other_dir"), "/absolute", "inside");
    symlink(at("www/dir"), at("pivot")).expect("link");
    symlink(at("pivot/file"), at("www/by_pivot")).expect("link");
    swapped(
        &gateway,
        ("../pivot", "../elsewhere"),
        "/by_pivot",
        "inside",
    );
}
