//! `php_value` and `php_flag` of `.htaccess` files: they go to the processes of a pool with the
//! requests of their directories, and to nobody else.

use testkit::client::{Body, reply};
use testkit::{PATIENCE, RawClient, eventually};

use crate::fixtures::pools::{Bed, Wish, bed, request};

/// Says how some settings are, and which process says it.
const SAYS: &str = "<?php foreach (['memory_limit', 'upload_max_filesize', 'post_max_size', \
    'display_errors', 'user_agent', 'session.gc_maxlifetime', 'auto_prepend_file'] as $name) \
    echo ini_get($name), '|';";

const FILES: [(&str, &str); 12] = [
    ("app/index.php", SAYS),
    ("app/a/index.php", SAYS),
    (
        "app/a/.htaccess",
        "php_value memory_limit 77M\nphp_value upload_max_filesize 64M\nphp_value post_max_size 65M\n\
         php_flag display_errors on\nphp_value user_agent \"it's \\\"odd\\\"; ${HOME}\"\n\
         <Files quiet.php>\nphp_flag display_errors off\n</Files>\n",
    ),
    ("app/a/quiet.php", SAYS),
    (
        "app/a/slow.php",
        "<?php touch('../under-way'); usleep(400000); unlink('../under-way');",
    ),
    (
        "app/a/long.php",
        "<?php for ($at = 0; $at < 400; $at++) echo str_repeat('long', 16384);",
    ),
    ("app/a/broken.php", "<?php header('A: b'); exit(1);"),
    (
        "app/a/goes-on.php",
        "<?php echo 'all'; fastcgi_finish_request(); while (!file_exists('../go')) usleep(10000);",
    ),
    ("app/a/plain.txt", "plain"),
    ("app/b/index.php", SAYS),
    (
        "app/b/.htaccess",
        "php_value session.gc_maxlifetime 99\nphp_value user_agent none\nphp_value open_basedir /\n",
    ),
    ("other/index.php", SAYS),
];

const IN_A: &str = "77M|64M|65M|1|it's \"odd\"; ${HOME}|1440||";
const QUIET: &str = "77M|64M|65M|0|it's \"odd\"; ${HOME}|1440||";

fn wish() -> Wish<'static> {
    Wish {
        app: "htaccess = { override = [\"Options\"] }",
        pool: ", processes = 1, requests = 50",
        files: &FILES,
        ..Wish::default()
    }
}

fn said(client: &mut RawClient, path: &str) -> String {
    client.send(&request("app.test", path));
    reply(client.read_reply(Body::Framed)).text()
}

/// What pages say where no file does, before any has, and what they say below `/b/`.
fn usual(bed: &Bed) -> (String, String) {
    let usual = bed.get("/").text();
    let mut words: Vec<&str> = usual.split('|').collect();
    (words[4], words[5]) = ("", "99");
    let in_b = words.join("|");
    (usual, in_b)
}

#[test]
fn settings_of_a_directory_hold_for_its_pages_and_for_no_other() {
    let Some(bed) = bed(&wish()) else { return };
    let (usual, in_b) = usual(&bed);
    let expected = [
        ("/a/", IN_A),
        ("/", &usual),
        ("/a/quiet.php", QUIET),
        ("/b/", &in_b),
        ("/index.php", &usual),
    ];
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    let count = std::env::var("NAGAYA_MIXED").map_or(600, |count| count.parse().unwrap());
    for at in 0..count {
        if at % 500 == 499 {
            client = bed.gateway.client().with_deadline(PATIENCE);
        }
        let (path, expected) = expected[at * 7_usize / 3 % expected.len()];
        assert_eq!(said(&mut client, path), expected, "{path}, the {at}th");
    }
    let told = "open_basedir is nothing that a directory sets";
    bed.gateway.wait_for_message(told);
}

#[test]
fn a_page_whose_client_has_left_leaves_no_settings_behind() {
    let Some(bed) = bed(&wish()) else { return };
    let (usual, _) = usual(&bed);
    for _ in 0..5 {
        let mut leaves = bed.gateway.client().with_deadline(PATIENCE);
        leaves.send(&request("app.test", "/a/slow.php"));
        eventually(PATIENCE, "a page under way", || {
            bed.site.path().join("app/under-way").exists().then_some(())
        });
        drop(leaves);
        assert_eq!(bed.get("/").text(), usual);
    }
    // Far more than buffers hold is still to come.
    for _ in 0..3 {
        let mut leaves = bed.gateway.client().with_deadline(PATIENCE);
        leaves.send(&request("app.test", "/a/long.php"));
        leaves.read_exactly(1_000);
        drop(leaves);
        assert_eq!(bed.get("/").text(), usual);
    }
    assert_eq!(bed.get("/a/broken.php").status, 200);
    assert_eq!(bed.get("/").text(), usual);
}

#[test]
fn a_page_that_goes_on_behind_its_reply_holds_nobody_up() {
    let wish = Wish {
        app: "htaccess = { override = [\"Options\"] }\nlimits = [{ concurrent = 1, queue = 8, wait = \"40s\" }]",
        ..wish()
    };
    let Some(bed) = bed(&wish) else { return };
    let (usual, _) = usual(&bed);
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    assert_eq!(said(&mut client, "/a/goes-on.php"), "all");
    // Its place in limits is free, and its process still knows what was its own.
    assert_eq!(said(&mut client, "/a/plain.txt"), "plain");
    let go = bed.site.path().join("app/go");
    assert!(!go.exists());
    std::fs::write(go, "").unwrap();
    assert_eq!(bed.get("/").text(), usual);
}

#[test]
fn what_the_pool_sets_no_directory_changes() {
    let wish = Wish {
        pool: ", admin = { memory_limit = \"64M\" }",
        ..wish()
    };
    let Some(bed) = bed(&wish) else { return };
    let expected = IN_A.replace("77M", "64M");
    for _ in 0..3 {
        assert_eq!(bed.get("/a/").text(), expected);
        assert!(bed.get("/").text().starts_with("64M|2M|"));
    }
}
