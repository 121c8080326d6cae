//! A change of a `.htaccess` file, or of a directory, holds for the request that comes next.

use std::path::Path;
use std::time::Duration;

use testkit::Gateway;

use super::{MEMORY, ask, gateway};

/// A file that is written, changed or removed holds for the request that comes next.
fn check_freshness(gateway: &Gateway, (host, path): (&str, &str), file: &Path, rounds: usize) {
    for round in 0..rounds {
        let (text, status) = match round % 4 {
            0 => (Some("Require all denied\n"), 403),
            1 => (Some("Require all granted\n"), 200),
            2 => (Some("RewriteEngine on\nRewriteRule ^ - [G]\n"), 410),
            _ => (None, 200),
        };
        match text {
            Some(text) => std::fs::write(file, text).expect("a file"),
            None => std::fs::remove_file(file).expect("no file"),
        }
        let answer = ask(gateway, host, path, "");
        assert_eq!(answer.status, status, "{host}: round {round}");
    }
}

#[test]
fn what_is_written_on_a_disk_holds_for_the_request_that_comes_next() {
    let gateway = gateway(&[]);
    let file = gateway.directory().path().join("site/sub/.htaccess");
    check_freshness(&gateway, ("a.test", "/sub/page.txt"), &file, 400);
}

#[test]
fn what_is_written_in_memory_holds_for_the_request_that_comes_next() {
    let gateway = gateway(&[]);
    let name = format!("nagaya-htaccess-{}", std::process::id());
    let directory = Path::new(MEMORY).join(&name);
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("page.txt"), "page").expect("a file");
    let path = format!("/{name}/page.txt");
    check_freshness(
        &gateway,
        ("memory.test", &path),
        &directory.join(".htaccess"),
        400,
    );
    std::fs::remove_dir_all(&directory).expect("no directory");
}

/// What changes, and what a file in `hot/deep` is answered from then on.
type Change = (&'static str, fn(&Path), u16);

const CHANGES: [Change; 11] = [
    (
        "a file comes",
        |at| put(at, "hot/.htaccess", "Require all denied \n"),
        403,
    ),
    (
        "it is written anew",
        |at| put(at, "hot/.htaccess", "Require all granted\n"),
        200,
    ),
    (
        "another takes its name",
        |at| {
            put(at, "hot/.htaccess.new", "Require all denied\n");
            rename(at, "hot/.htaccess.new", "hot/.htaccess");
        },
        403,
    ),
    (
        "it goes",
        |at| std::fs::remove_file(at.join("hot/.htaccess")).expect("it is there"),
        200,
    ),
    (
        "another directory takes the place of one",
        |at| {
            rename(at, "hot", "cold");
            rename(at, "closed", "hot");
        },
        403,
    ),
    (
        "and goes again",
        |at| {
            rename(at, "hot", "closed");
            rename(at, "cold", "hot");
        },
        200,
    ),
    (
        "a link that leads nowhere comes",
        |at| std::os::unix::fs::symlink("there", at.join("hot/deep/.htaccess")).expect("a link"),
        200,
    ),
    (
        "what it leads to comes",
        |at| put(at, "hot/deep/there", "Require all denied\n"),
        403,
    ),
    (
        "a file of two names comes",
        |at| {
            std::fs::remove_file(at.join("hot/deep/.htaccess")).expect("it is there");
            put(at, "../named", "Require all granted\n");
            std::fs::hard_link(at.join("../named"), at.join("hot/.htaccess")).expect("a name");
        },
        200,
    ),
    (
        "it is written by the other",
        |at| put(at, "../named", "Require all denied \n"),
        403,
    ),
    (
        "the root has one as well",
        |at| {
            std::fs::remove_file(at.join("hot/.htaccess")).expect("it is there");
            put(at, ".htaccess", "RewriteEngine on\nRewriteRule ^ - [G]\n");
        },
        410,
    ),
];

fn put(at: &Path, name: &str, text: &str) {
    std::fs::write(at.join(name), text).expect("a file");
}

fn rename(at: &Path, from: &str, to: &str) {
    std::fs::rename(at.join(from), at.join(to)).expect("it is there");
}

#[test]
fn a_change_holds_for_the_next_request_of_a_file_that_is_asked_for_all_the_time() {
    let gateway = gateway(&[
        ("site/hot/deep/x.txt", "x"),
        ("site/closed/.htaccess", "Require all denied\n"),
        ("site/closed/deep/x.txt", "closed"),
    ]);
    let site = gateway.directory().path().join("site");
    let asked = || ask(&gateway, "a.test", "/hot/deep/x.txt", "").status;
    let mut last = 200;
    for _ in 0..2 {
        for (what, change, status) in CHANGES {
            // Until times are old enough to tell a change.
            let since = std::time::Instant::now();
            while since.elapsed() < Duration::from_millis(250) {
                assert_eq!(asked(), last, "before {what}");
            }
            change(&site);
            assert_eq!(asked(), status, "{what}");
            last = status;
        }
        std::fs::remove_file(site.join(".htaccess")).expect("it is there");
        std::fs::remove_file(site.join("hot/deep/there")).expect("it is there");
        last = 200;
    }
}

/// What becomes of a directory that asks for a password.
const GOING: [Change; 3] = [
    ("a directory goes", |at| rename(at, "hot", "gone"), 404),
    (
        "a file takes its name",
        |at| {
            rename(at, "hot", "gone");
            put(at, "hot", "a file");
        },
        404,
    ),
    (
        "one that is open takes its name",
        |at| {
            rename(at, "hot", "gone");
            rename(at, "open", "hot");
        },
        404,
    ),
];

#[test]
fn a_file_is_not_sent_once_the_directory_is_gone_that_keeps_it_closed() {
    for (what, change, status) in GOING {
        let gateway = gateway(&[
            (
                "site/hot/.htaccess",
                "AuthType Basic\nAuthName a\nAuthUserFile {dir}/users\nRequire valid-user\n",
            ),
            ("site/hot/x.txt", "x"),
            ("site/open/y.txt", "y"),
        ]);
        let site = gateway.directory().path().join("site");
        let user = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
        let asked = |file: &str, fields: &str| ask(&gateway, "a.test", file, fields).status;
        let settle = |file: &str| {
            let since = std::time::Instant::now();
            while since.elapsed() < Duration::from_millis(250) {
                asked(file, user);
            }
        };
        settle("/hot/x.txt");
        assert_eq!(asked("/hot/x.txt", user), 200, "before {what}");
        assert_eq!(asked("/hot/x.txt", ""), 401, "before {what}");
        change(&site);
        assert_eq!(asked("/hot/x.txt", ""), status, "{what}");
        settle("/hot/y.txt");
        assert_eq!(asked("/hot/x.txt", ""), status, "{what}, after a while");
    }
}
