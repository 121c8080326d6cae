//! What a configuration says of mounts, and what is refused of them.

use std::path::Path;

use config::Sources;
use config::model::{Handler, Model, Mount, TryEntry};

use crate::written::{self, LISTEN};

fn sources(lines: &str) -> Sources {
    let text = format!("{LISTEN}[[sites]]\nhosts = [\"a.jp\"]\n{lines}\n");
    Sources::from_text("nagaya.toml", &text).with_php("8.2", "/usr/sbin/php-fpm8.2")
}

/// What a site of these lines says; what is printed of it says the same.
fn model(lines: &str) -> Model {
    written::model_of(&sources(lines))
}

fn problems(lines: &str) -> String {
    written::problems(&sources(lines))
}

fn mount(lines: &str) -> String {
    format!("root = \"/srv\"\n[[sites.mounts]]\n{lines}\n")
}

const PHP: &str = "[[sites.rules]]\nhandler = { php = true }\n";

/// The pool that answers below a mount, by its index.
fn pool_of(mount: &Mount) -> Option<usize> {
    let [(0, Handler::FastCgi(fastcgi))] = &mount.handlers[..] else {
        return None;
    };
    fastcgi.pool
}

#[test]
fn the_longest_path_comes_first_and_what_is_not_said_is_as_of_a_site() {
    let lines = "index = [\"index.php\"]\ntry = [\"/front.php\"]\nmounts = [\n\
        { path = \"/wiki/\", root = \"wiki\" },\n\
        { path = \"/wiki/deep\", root = \"/srv/deep\", within = \"/srv\", index = [\"i.html\"], try = [\"=404\"], symlinks = \"deny\" },\n]";
    let model = model(lines);
    let site = &model.sites[0];
    assert!(site.root.is_none());
    let [deep, wiki] = &site.mounts[..] else {
        panic!("{:?}", site.mounts);
    };
    assert_eq!((&*wiki.path, &*deep.path), ("/wiki", "/wiki/deep"));
    assert_eq!(wiki.root.path, Path::new("/wiki"));
    assert_eq!(wiki.root.within, wiki.root.path);
    assert_eq!(wiki.index, site.index);
    assert_eq!(*wiki.resolve, [TryEntry::Path, TryEntry::Directory]);
    assert_eq!(
        (&*deep.index[0], &*deep.resolve),
        ("i.html", &vec![TryEntry::Status(404)])
    );
    assert_eq!(deep.root.within, Path::new("/srv"));
}

#[test]
fn php_below_a_mount_with_a_user_of_its_own_has_a_pool_of_that_user() {
    let mounts = "[[sites.mounts]]\npath = \"/a\"\nroot = \"/a\"\n\
        [[sites.mounts]]\npath = \"/bb\"\nroot = \"/b\"\nuser = \"bob\"\n\
        [[sites.mounts]]\npath = \"/ccc\"\nroot = \"/c\"\nuser = \"alice\"\n";
    let model = model(&format!("root = \"/srv\"\nuser = \"alice\"\n{mounts}{PHP}"));
    let [alice, bob] = &model.pools[..] else {
        panic!("{:?}", model.pools);
    };
    let users = (alice.user.as_deref(), bob.user.as_deref());
    assert_eq!(users, (Some("alice"), Some("bob")));
    assert_ne!(alice.id, bob.id);
    assert_eq!((&*alice.sites, &*bob.sites), (&[0][..], &[0][..]));
    let pools: Vec<_> = model.sites[0].mounts.iter().map(pool_of).collect();
    assert_eq!(pools, [Some(0), Some(1), None]);
}

#[test]
fn a_user_of_a_mount_as_whom_nothing_runs_is_told() {
    let server = "[[sites.rules]]\nhandler = { fastcgi = \"unix:/run/php.sock\" }\n";
    for (rule, is_told) in [(PHP, false), (server, true)] {
        let mount = mount("path = \"/w\"\nroot = \"/w\"\nuser = \"bob\"");
        let lines = format!("user = \"alice\"\n{mount}{rule}");
        let told = written::warnings(&sources(&lines)).contains("`user` says nothing");
        assert_eq!(told, is_told, "{lines}");
    }
}

#[test]
fn what_can_be_no_mount_is_refused() {
    for (lines, expected) in [
        ("path = \"/\"\nroot = \"/w\"", "`/` is no path to mount at"),
        (
            "path = \"wiki\"\nroot = \"/w\"",
            "`wiki` is no path to mount at",
        ),
        (
            "path = \"/a//b\"\nroot = \"/w\"",
            "`/a//b` is no path to mount at",
        ),
        (
            "path = \"/a/../b\"\nroot = \"/w\"",
            "`/a/../b` is no path to mount at",
        ),
        (
            "path = \"/a%20b\"\nroot = \"/w\"",
            "`/a%20b` is no path to mount at",
        ),
        (
            "path = \"/w/*\"\nroot = \"/w\"",
            "`/w/*` is no path to mount at",
        ),
        ("path = \"/w\"", "`root` is missing in `[[sites.mounts]]`"),
        (
            "path = \"/w\"\nroot = \"/w\"\nwithin = \"/v\"",
            "does not lie beneath `within`",
        ),
        (
            "path = \"/w\"\nroot = \"/w\"\nuser = \"a b\"",
            "`a b` is no user name",
        ),
        (
            "path = \"/w\"\nroot = \"/w\"\nuser = \"root\"",
            "must not run as root",
        ),
        (
            "path = \"/w\"\nroot = \"/w\"\nhandler = 1",
            "unknown key `handler` in `[[sites.mounts]]`",
        ),
        (
            "path = \"/w\"\nroot = \"/w\"\n[[sites.mounts]]\npath = \"/w/\"\nroot = \"/v\"",
            "`/w` is mounted twice",
        ),
    ] {
        let told = problems(&format!("{}{PHP}", mount(lines)));
        assert!(told.contains(expected), "{expected}\n{told}");
    }
    let many: String = (0..65)
        .map(|at| format!("{{ path = \"/{at}\", root = \"/w\" }},"))
        .collect();
    let told = problems(&format!("mounts = [{many}]"));
    assert!(
        told.contains("there are more than 64 mounts in this site"),
        "{told}"
    );
}
