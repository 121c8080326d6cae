//! Files that clients do not get: hidden ones, sources and their copies, what links lead to, and
//! what the server may not read.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Instant;

use crate::fixtures::files::{ask, gateway, get};
use testkit::{Gateway, PATIENCE, eventually};

#[test]
fn what_begins_with_a_dot_is_hidden() {
    let gateway = gateway(&[
        (".htaccess", b"secret"),
        (".git/config", b"secret"),
        ("a/.env", b"secret"),
        (".well-known/acme", b"token"),
        (".well-known/.hidden", b"secret"),
    ]);
    for path in [
        "/.htaccess",
        "/.git/config",
        "/a/.env",
        "/.well-known/.hidden",
        "/.git/",
        "/%2egit/config",
    ] {
        assert_eq!(get(&gateway, "plain.test", path).status, 404, "{path}");
        assert_eq!(get(&gateway, "list.test", path).status, 404, "{path}");
    }
    assert_eq!(
        get(&gateway, "plain.test", "/.well-known/acme").text(),
        "token"
    );
}

#[test]
fn sources_are_never_shown() {
    let gateway = gateway(&[
        ("a.php", b"<?php secret"),
        ("b.phtml", b"secret"),
        ("c.cgi", b"secret"),
        ("d.rb", b"secret"),
        ("dir/index.php", b"secret"),
    ]);
    for path in [
        "/a.php",
        "/b.phtml",
        "/c.cgi",
        "/d.rb",
        "/a.php/",
        "/a.php/info",
    ] {
        for host in ["plain.test", "list.test"] {
            let reply = get(&gateway, host, path);
            assert_eq!(reply.status, 404, "{path}");
            assert!(!reply.text().contains("secret"), "{path}");
        }
    }
    assert!(!get(&gateway, "list.test", "/").text().contains("a.php"));
}

#[test]
fn a_copy_of_a_source_is_not_shown_either() {
    let gateway = gateway(&[
        ("page.html", b"page"),
        ("a.php", b"<?php secret"),
        ("a.php.gz", b"secret"),
        ("a.PHP.Gz", b"secret"),
        ("b.phtml.br", b"secret"),
        ("c.cgi.zst", b"secret"),
        ("d.rb.gz.br", b"secret"),
        ("a.php.bak", b"secret"),
        ("a.PHP~", b"secret"),
        ("a.php.old.gz", b"secret"),
        ("notes.txt.gz", b"notes"),
    ]);
    let www = gateway.directory().path().join("www");
    // By a link, a copy of a source stands beside a page as if it were the page's.
    symlink("a.php.gz", www.join("page.html.gz")).expect("make a link");
    for path in [
        "a.php.gz",
        "a.PHP.Gz",
        "b.phtml.br",
        "c.cgi.zst",
        "d.rb.gz.br",
        "a.php.bak",
        "a.PHP~",
        "a.php.old.gz",
        "page.html.gz",
    ] {
        let reply = get(&gateway, "plain.test", &format!("/{path}"));
        assert_eq!(reply.status, 404, "{path}");
        assert!(!reply.text().contains("secret"), "{path}");
        let listed = get(&gateway, "list.test", "/")
            .text()
            .contains(&format!(">{path}<"));
        assert!(!listed || path == "page.html.gz", "{path} is listed");
    }
    for (path, body) in [("/page.html", "page"), ("/notes.txt.gz", "notes")] {
        let reply = ask(
            &gateway,
            "plain.test",
            &format!("GET {path}"),
            "Accept-Encoding: gzip\r\n",
        );
        assert_eq!((reply.status, reply.text().as_str()), (200, body), "{path}");
    }
}

#[test]
fn a_source_is_not_shown_under_a_name_that_packages_and_people_give_it() {
    let hidden = [
        "a.php.dpkg-old",
        "a.php.dpkg-dist",
        "a.PHP.UCF-Dist",
        "b.cgi.dpkg-new",
        "b.pl.ucf-old",
        "a.php.save",
        "a.php.save.1",
        "a.php.txt",
        "a.php.1",
        "a.Php.Html",
        "a.phtml.inc",
        "c.phps",
        "c.php7",
        "c.php5.bak",
        "a.php,v",
        "d.py.rej",
        "d.rb.tmp",
        "x.php.txt.dpkg-old.gz",
        "settings.ini.dpkg-dist",
        "settings.ini.ucf-old~",
    ];
    let shown = [
        "datepicker.pl.js",
        "notes.dpkg",
        "a.phpinfo.txt",
        "dir.php.d/style.css",
    ];
    let files: Vec<_> = hidden.iter().chain(&shown).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|name| (**name, &b"text"[..])).collect();
    let gateway = gateway(&files);
    for name in hidden {
        let path = format!("/{name}");
        assert_eq!(get(&gateway, "plain.test", &path).status, 404, "{name}");
        assert_eq!(get(&gateway, "more.test", &path).status, 404, "{name}");
        let listing = get(&gateway, "list.test", "/").text();
        assert!(!listing.contains(&format!(">{name}<")), "{name}");
    }
    for name in shown {
        let reply = get(&gateway, "plain.test", &format!("/{name}"));
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (200, "text"),
            "{name}"
        );
    }
}

#[test]
fn sources_may_be_added_to_the_defaults_or_take_their_place() {
    let gateway = gateway(&[
        ("a.php", b"x"),
        ("a.php.txt", b"x"),
        ("b.inc", b"x"),
        ("b.inc.bak", b"x"),
        ("c.tpl", b"x"),
    ]);
    for (host, statuses) in [
        ("plain.test", [404, 404, 200, 200, 200]),
        ("more.test", [404, 404, 404, 404, 200]),
        ("other.test", [200, 200, 404, 404, 404]),
    ] {
        let names = ["a.php", "a.php.txt", "b.inc", "b.inc.bak", "c.tpl"];
        for (name, status) in names.into_iter().zip(statuses) {
            let reply = get(&gateway, host, &format!("/{name}"));
            assert_eq!(reply.status, status, "{host} {name}");
        }
    }
}

#[test]
fn only_regular_files_are_served() {
    let gateway = gateway(&[]);
    let fifo = gateway.directory().path().join("www/fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .expect("make a FIFO");
    let socket = gateway.directory().path().join("www/socket");
    let _listener = std::os::unix::net::UnixListener::bind(socket).expect("make a socket");
    for path in ["/fifo", "/socket"] {
        assert_eq!(get(&gateway, "allow.test", path).status, 404, "{path}");
    }
}

#[test]
fn links_are_followed_as_the_policy_says() {
    let gateway = gateway(&[("dir/file", b"inside")]);
    let directory = gateway.directory();
    directory.write("outside", "outside");
    let www = directory.path().join("www");
    let link = |to: &str, at: &str| symlink(to, www.join(at)).expect("make a link");
    link("dir/file", "to_file");
    link("dir", "to_dir");
    link("../outside", "to_outside");
    link("/etc/hostname", "to_absolute");
    let place = |name: &str| directory.path().join(name).display().to_string();
    link(&place("www/dir/file"), "to_itself");
    link(&place("www/dir"), "to_directory");
    link(&place("www/to_itself"), "to_chain");
    link(&place("outside"), "to_its_neighbour");
    link(
        &format!("/proc/self/root{}", place("www/dir/file")),
        "to_magic",
    );
    link("www", "../current");
    link(&place("current/dir/file"), "to_current");
    link("to_loop", "to_loop");
    // plain.test has the default policy: owner.
    for (host, path, status) in [
        ("plain.test", "/to_file", 200),
        ("plain.test", "/to_dir/file", 200),
        ("plain.test", "/to_outside", 404),
        ("plain.test", "/to_absolute", 404),
        ("plain.test", "/to_loop", 404),
        ("deny.test", "/to_file", 404),
        ("deny.test", "/to_dir/file", 404),
        ("deny.test", "/dir/file", 200),
        ("allow.test", "/to_file", 200),
        ("allow.test", "/to_outside", 404),
        ("allow.test", "/to_absolute", 404),
        ("within.test", "/to_outside", 200),
        ("within.test", "/to_absolute", 404),
        ("plain.test", "/to_itself", 200),
        ("plain.test", "/to_directory/file", 200),
        ("plain.test", "/to_chain", 200),
        ("plain.test", "/to_current", 200),
        ("plain.test", "/to_magic", 404),
        ("plain.test", "/to_its_neighbour", 404),
        ("deny.test", "/to_itself", 404),
        ("allow.test", "/to_itself", 200),
        ("allow.test", "/to_directory/file", 200),
        ("allow.test", "/to_chain", 200),
        ("allow.test", "/to_current", 200),
        ("allow.test", "/to_magic", 404),
        ("allow.test", "/to_its_neighbour", 404),
        ("within.test", "/to_its_neighbour", 200),
    ] {
        assert_eq!(get(&gateway, host, path).status, status, "{host} {path}");
    }
    // A link of one user to another's file: only root can make one.
    if rustix::process::getuid().is_root() {
        link("dir/file", "foreign");
        std::os::unix::fs::lchown(www.join("foreign"), Some(12345), None).expect("give away");
        link(&place("www/dir/file"), "foreign_absolute");
        let foreign = www.join("foreign_absolute");
        std::os::unix::fs::lchown(foreign, Some(12345), None).expect("give away");
        assert_eq!(get(&gateway, "plain.test", "/foreign_absolute").status, 404);
        assert_eq!(get(&gateway, "plain.test", "/foreign").status, 404);
        assert_eq!(get(&gateway, "allow.test", "/foreign").status, 200);
    }
}

#[test]
fn a_root_that_is_an_absolute_link_to_a_release_is_served() {
    let releases = r#"
workers = 1
[[sites]]
hosts = ["owner.test"]
root = "{dir}/app/current"
within = "{dir}/app"
[[sites]]
hosts = ["allow.test"]
root = "{dir}/app/current"
within = "{dir}/app"
symlinks = "allow"
"#;
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), releases);
    let directory = builder.directory();
    let shared = "app/shared/.well-known";
    for (name, content) in [
        ("app/releases/7/index.html", "seven"),
        ("app/releases/7/.env", "secret"),
        ("app/releases/8/index.html", "eight"),
        ("app/shared/logo.txt", "logo"),
        (&format!("{shared}/acme"), "token"),
        ("outside/index.html", "secret"),
    ] {
        directory.write(name, content);
    }
    let at = |name: &str| directory.path().join(name);
    for release in ["7", "8"] {
        let release = at("app/releases").join(release);
        symlink(at("app/shared/logo.txt"), release.join("logo.txt")).expect("link");
        symlink(at(shared), release.join(".well-known")).expect("link");
    }
    symlink(at("app/releases/7"), at("app/current")).expect("link");
    let gateway = builder.start();
    let app = gateway.directory().path().join("app");
    for host in ["owner.test", "allow.test"] {
        for (path, body) in [
            ("/", "seven"),
            ("/index.html", "seven"),
            ("/logo.txt", "logo"),
            ("/.well-known/acme", "token"),
        ] {
            let reply = get(&gateway, host, path);
            assert_eq!(
                (reply.status, reply.text().as_str()),
                (200, body),
                "{host} {path}"
            );
        }
        assert_eq!(get(&gateway, host, "/.env").status, 404);
    }
    let deploy = |to: &str| {
        symlink(app.join(to), app.join("next")).expect("link");
        std::fs::rename(app.join("next"), app.join("current")).expect("rename");
    };
    deploy("releases/8");
    eventually(PATIENCE, "the next release", || {
        (get(&gateway, "allow.test", "/").text() == "eight").then_some(())
    });
    deploy("../outside");
    eventually(PATIENCE, "a release outside to be refused", || {
        let reply = get(&gateway, "allow.test", "/");
        assert!(!reply.text().contains("secret"));
        (reply.status == 404).then_some(())
    });
}

#[test]
fn a_link_dresses_no_source_and_no_hidden_file_as_something_else() {
    let gateway = gateway(&[
        ("secret.php", b"<?php secret"),
        (".env", b"secret"),
        (".git/config", b"secret"),
    ]);
    let www = gateway.directory().path().join("www");
    for (to, at) in [
        ("secret.php", "alias.txt"),
        ("alias.txt", "twice.txt"),
        (".env", "settings.txt"),
        (".git", "repository"),
    ] {
        symlink(to, www.join(at)).expect("make a link");
    }
    std::fs::copy(www.join("secret.php"), www.join("SHOUT.PHP")).expect("copy");
    let paths = [
        "/alias.txt",
        "/twice.txt",
        "/settings.txt",
        "/repository/config",
        "/SHOUT.PHP",
    ];
    for host in ["plain.test", "allow.test"] {
        for path in paths {
            let reply = get(&gateway, host, path);
            assert_eq!(reply.status, 404, "{host} {path}");
            assert!(!reply.text().contains("secret"), "{host} {path}");
        }
    }
}

#[test]
fn what_may_not_be_read_is_forbidden() {
    let gateway = gateway(&[("locked", b"x")]);
    let path = gateway.directory().path().join("www/locked");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("lock");
    // Started by root, the server is somebody else by now.
    assert_eq!(get(&gateway, "plain.test", "/locked").status, 403);
}

#[test]
fn a_directory_that_keeps_the_server_out_of_a_root_is_named_in_the_error_log() {
    let gateway = gateway(&[("locked", b"x")]);
    let above = gateway.directory().path();
    let root = above.join("www");
    let close = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    close(&root.join("locked"), 0o000);
    assert_eq!(get(&gateway, "plain.test", "/locked").status, 403);
    assert!(
        !gateway.stderr().contains("root_denied"),
        "the root is fine"
    );
    // May be entered, but not read: a file in it is its own business.
    close(&root, 0o711);
    assert_eq!(get(&gateway, "plain.test", "/hello.txt").status, 200);
    let mut table = vec![
        (root.as_path(), 0o011, "/", "read", "o+rx"),
        (root.as_path(), 0o000, "/hello.txt", "enter", "o+x"),
    ];
    if os::process::is_root() {
        // The test itself must still come by.
        table.push((above, 0o700, "/", "enter", "o+x"));
    }
    for (closed, mode, path, verb, change) in table {
        let place = closed.display();
        let advice = format!("may not {verb} {place}: try chmod {change} {place}");
        let said = || gateway.stderr().matches(&advice).count();
        let before = said();
        close(closed, mode);
        // What was found before is used for a while.
        eventually(PATIENCE, &advice, || {
            let status = get(&gateway, "plain.test", path).status;
            (status == 403 && said() > before).then_some(())
        });
        assert!(
            gateway
                .stderr()
                .contains("warn server: the site's root cannot be opened")
        );
        close(closed, 0o755);
        eventually(PATIENCE, "an open root", || {
            (get(&gateway, "plain.test", path).status != 403).then_some(())
        });
    }
}

#[test]
fn the_advice_for_somebodys_own_directory_opens_it_to_the_server_alone() {
    let gateway = gateway(&[]);
    let root = gateway.directory().path().join("www");
    if os::process::is_root() {
        std::os::unix::fs::chown(&root, Some(12_345), Some(12_345)).expect("give away");
    }
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o600)).expect("chmod");
    let place = root.display();
    let advice = format!("&& chmod 750 {place}, or another `user`");
    eventually(PATIENCE, &advice, || {
        assert_ne!(get(&gateway, "plain.test", "/hello.txt").status, 500);
        gateway.stderr().contains(&advice).then_some(())
    });
    assert!(gateway.stderr().contains(": try chgrp "));
    assert!(!gateway.stderr().contains("o+x"));
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).expect("chmod");
}

#[test]
fn a_flood_of_refusals_is_not_one_of_lines_in_the_error_log() {
    let gateway = gateway(&[]);
    let root = gateway.directory().path().join("www");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o011)).expect("chmod");
    let ask = |path: &str| get(&gateway, "plain.test", path).status;
    eventually(PATIENCE, "a closed root", || {
        (ask("/") == 403).then_some(())
    });
    let (before, since) = (
        gateway.stderr().matches("root_denied").count(),
        Instant::now(),
    );
    for _ in 0..300 {
        assert_eq!(ask("/"), 403);
    }
    let seconds = 2 + usize::try_from(since.elapsed().as_secs()).expect("a few");
    gateway.wait_for_message("root_denied");
    let lines = gateway.stderr().matches("root_denied").count() - before;
    // One a second, from each worker.
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(lines <= workers * seconds, "{lines} in {seconds} s");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).expect("chmod");
}

#[test]
fn a_root_that_cannot_be_opened_is_named_in_the_error_log() {
    let gateway = gateway(&[]);
    let root = gateway.directory().path().join("www");
    std::fs::rename(&root, root.with_extension("away")).expect("move the root away");
    let said = format!("reason=root_missing root={}", root.display());
    // One opened before is used for a while.
    eventually(PATIENCE, &said, || {
        get(&gateway, "plain.test", "/hello.txt");
        gateway.stderr().contains(&said).then_some(())
    });
    assert_eq!(get(&gateway, "plain.test", "/hello.txt").status, 404);
}
