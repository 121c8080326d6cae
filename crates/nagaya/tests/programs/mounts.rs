//! Programs below mounts: what they are told of their place, and as whom they run.

use testkit::client::reply;
use testkit::fastcgi::printed;
use testkit::{FastCgiResponder, Gateway, Step};

use crate::fixtures::pools::{Wish, bed};
use crate::fixtures::programs::is_root;

const CONFIG: &str = r#"
[[sites]]
hosts = ["*"]
root = "{dir}/site"
index = ["index.php", "index.cgi"]
  [[sites.mounts]]
  path = "/wiki"
  root = "{dir}/wiki"
  try = ["$path", "$path/", "/index.php"]
  [[sites.mounts]]
  path = "/apps/tools"
  root = "{dir}/tools"
  {user}
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { fastcgi = { address = "{responder}", root = "/elsewhere" } }
  [[sites.rules]]
  match = { file = "*.cgi" }
  handler = { cgi = true }
"#;

const SCRIPT: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nid -u\n\
    for name in SCRIPT_NAME PATH_INFO SCRIPT_FILENAME DOCUMENT_ROOT; do\n\
    eval \"value=\\${$name-unset}\"; echo \"$name=$value\"; done\n";

/// Whom programs of a mount run as here, where the tests run as root.
const USER: (&str, u32) = ("www-data", 33);

fn gateway(responder: &FastCgiResponder) -> Gateway {
    let user = match is_root() {
        true => format!("user = \"{}\"", USER.0),
        false => String::new(),
    };
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("responder", responder.address())
        .with("user", user);
    let directory = builder.directory();
    for name in ["site", "wiki"] {
        directory.write(&format!("{name}/index.php"), "not shown");
    }
    for name in ["site", "tools"] {
        directory.write_program(&format!("{name}/index.cgi"), SCRIPT);
    }
    builder.start()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").into_bytes()
}

#[test]
fn a_program_is_told_of_the_mount_as_if_it_were_its_document_root() {
    let page = b"Content-Type: text/plain\r\n\r\nhello";
    let responder = FastCgiResponder::start(move |_| vec![Step::Send(printed(page))]);
    let gateway = gateway(&responder);
    let wiki = gateway.directory().path().join("wiki");
    let wiki = wiki.to_str().unwrap();
    for (path, root, name, info) in [
        ("/wiki/", wiki, "/wiki/index.php", None),
        (
            "/wiki/index.php/Main%20Page",
            wiki,
            "/wiki/index.php",
            Some("/Main Page"),
        ),
        // Its front controller, and not the site's.
        ("/wiki/Main_Page", wiki, "/wiki/index.php", None),
        // What is said of the site's root does not hold for the mount's.
        ("/index.php/wiki", "/elsewhere", "/index.php", Some("/wiki")),
    ] {
        let answer = reply(gateway.ask(&get(path)));
        assert_eq!(answer.status, 200, "{path}: {}", gateway.stderr());
        let call = responder.next_call();
        let file = format!("{root}/index.php");
        let uri = format!("{name}{}", info.unwrap_or_default());
        for (variable, value) in [
            ("DOCUMENT_ROOT", Some(root)),
            ("DOCUMENT_URI", Some(&*uri)),
            ("PATH_INFO", info),
            ("REQUEST_URI", Some(path)),
            ("SCRIPT_FILENAME", Some(&*file)),
            ("SCRIPT_NAME", Some(name)),
        ] {
            assert_eq!(call.param(variable), value, "{path}: {variable}");
        }
    }
}

#[test]
fn a_cgi_program_of_a_mount_runs_there_as_its_user() {
    let responder = FastCgiResponder::start(|_| Vec::new());
    let gateway = gateway(&responder);
    let root = gateway.directory().path().to_str().unwrap().to_owned();
    let run = |path: &str| {
        let answer = reply(gateway.ask(&get(path)));
        assert_eq!(answer.status, 200, "{path}: {}", gateway.stderr());
        let text = answer.text();
        let (user, told) = text.split_once('\n').unwrap();
        (user.to_owned(), told.to_owned())
    };
    let (sites_user, told) = run("/index.cgi/x");
    let expected = |name: &str, at: &str, info: &str| {
        format!(
            "SCRIPT_NAME={at}/index.cgi\nPATH_INFO={info}\n\
             SCRIPT_FILENAME={root}/{name}/index.cgi\nDOCUMENT_ROOT={root}/{name}\n"
        )
    };
    assert_eq!(told, expected("site", "", "/x"));
    let (user, told) = run("/apps/tools/");
    assert_eq!(told, expected("tools", "/apps/tools", "unset"));
    if is_root() {
        assert_eq!((user.parse(), sites_user == user), (Ok(USER.1), false));
    }
    assert_eq!(reply(gateway.ask(&get("/apps/tools/none.cgi"))).status, 404);
}

const ONE: &str = r#"
[[sites]]
hosts = ["*"]
root = "{dir}/site"
{files}
  [[sites.mounts]]
  path = "/tool"
  root = "{dir}/tools"
  try = ["/tool.cgi"]
  [[sites.rules]]
  match = { path_regex = '^/tool(/.*)?$' }
  handler = { cgi = { params = { set = { SCRIPT_NAME = "/tool", PATH_INFO = "$1" } } } }
  [[sites.rules]]
  match = { path = "*/", file = "tool.cgi" }
  handler = { cgi = { params = { set = { SCRIPT_NAME = "/tool" } } } }
"#;

#[test]
fn a_mount_that_tries_a_program_alone_is_that_program_without_a_slash_too() {
    let files = "htaccess = { override = [], directories = [{ path = \"/\", text = \"DirectoryIndex /tool\" }] }";
    for files in ["", files] {
        let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), ONE).with("files", files);
        let directory = builder.directory();
        directory.write("site/none.txt", "nothing");
        for name in ["tool.cgi", "other.cgi"] {
            directory.write_program(&format!("tools/{name}"), SCRIPT);
        }
        let gateway = builder.start();
        for (path, info) in [
            ("/tool", ""),
            ("/tool/", "/"),
            ("/tool/a//b", "/a/b"),
            ("/tool/other.cgi", "/other.cgi"),
        ] {
            let answer = reply(gateway.ask(&get(path)));
            assert_eq!(answer.status, 200, "{path}: {}", gateway.stderr());
            let told = format!("SCRIPT_NAME=/tool\nPATH_INFO={info}\n");
            assert!(answer.text().contains(&told), "{path}: {}", answer.text());
        }
        // A directory's page is there as well.
        let answer = reply(gateway.ask(&get("/")));
        let is_page = answer.status == 200 && answer.text().contains("SCRIPT_NAME=/tool\n");
        assert_eq!(is_page, !files.is_empty(), "{}", gateway.stderr());
    }
}

/// Whom it runs as, what it is told, and whether it sees the files that are asked for.
const PAGE: &str = "<?php $sees = array_map('file_exists', explode(',', $_GET['files']));
echo implode(' ', [fileowner('/proc/self'), $_SERVER['SCRIPT_NAME'], $_SERVER['DOCUMENT_ROOT'], json_encode($sees)]);";

const SITE: &str = r#"
[[sites]]
hosts = ["mounts.test"]
root = "{site}/app"
{user0}
pool = { php = "{version}" }
  [[sites.mounts]]
  path = "/wiki"
  root = "{site}/wiki"
  [[sites.mounts]]
  path = "/tools"
  root = "{site}/tools"
  {user1}
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { php = true }
"#;

#[test]
fn php_of_a_mount_runs_in_the_sites_pool_or_in_one_of_its_own_user() {
    let wish = Wish {
        sites: SITE,
        files: &[
            ("app/page.php", PAGE),
            ("wiki/page.php", PAGE),
            ("tools/page.php", PAGE),
        ],
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let site = bed.site.path().to_str().unwrap().to_owned();
    let files = ["app", "wiki", "tools"].map(|name| format!("{site}/{name}/page.php"));
    let ask = |path: &str| {
        let answer = bed.get_of("mounts.test", &format!("{path}?files={}", files.join(",")));
        assert_eq!(answer.status, 200, "{path}: {}", bed.gateway.stderr());
        answer.text()
    };
    // Without root there are neither users nor walls.
    let root = is_root();
    let (own, others) = (!root, if root { [33, 34] } else { [0, 0] });
    let told = |user: u32, at: &str, name: &str, sees: [bool; 3]| {
        let [app, wiki, tools] = sees;
        format!("{user} {at}/page.php {site}/{name} [{app},{wiki},{tools}]")
    };
    let page = |path: &str| {
        let text = ask(path);
        match root {
            true => text,
            // Whoever runs the test.
            false => format!("0 {}", text.split_once(' ').unwrap().1),
        }
    };
    assert_eq!(
        page("/page.php"),
        told(others[0], "", "app", [true, true, own])
    );
    assert_eq!(
        page("/wiki/page.php"),
        told(others[0], "/wiki", "wiki", [true, true, own])
    );
    assert_eq!(
        page("/tools/page.php"),
        told(others[1], "/tools", "tools", [own, own, true])
    );
    assert_eq!(bed.masters().len(), if root { 2 } else { 1 });
}
