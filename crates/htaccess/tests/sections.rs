//! Sections of the configuration: those of the virtual host, whose rules come before any directory's.

use htaccess::{SectionContext, compile_section};

use crate::site::{Site, get};

/// A site whose virtual host says this, and whose root has rules of its own.
fn site(server: &str) -> Site {
    let own = "RewriteEngine on\nRewriteRule ^go$ /other [L]\nRewriteRule ^b\\.txt$ - [E=own:b]\n";
    let site = Site::new(own).files(&["b.txt", "index.php", "dir/"]);
    site.of_server(&format!("RewriteEngine on\n{server}\n"))
}

#[test]
fn rules_of_the_server_see_the_path_of_the_site_and_come_first() {
    for (rules, target, expected) in [
        ("RewriteRule ^/a$ /b.txt", "/a", "/b.txt"),
        // No slash, no match.
        ("RewriteRule ^a$ /b.txt", "/a", "/a"),
        ("RewriteRule ^/a$ /b.txt?x=1 [QSA]", "/a?y", "/b.txt?x=1&y"),
        // Neither is a base had, nor a directory that what is relative could be below.
        ("RewriteBase /base/\nRewriteRule ^/a$ b.txt", "/a", "400"),
        (
            "RewriteBase /base/\nRewriteRule ^/a$ /b.txt",
            "/a",
            "/b.txt",
        ),
        // No file is known yet.
        (
            "RewriteCond %{REQUEST_FILENAME} ^/a$\nRewriteRule ^ /b.txt",
            "/a",
            "/b.txt",
        ),
        (
            "RewriteCond %{DOCUMENT_ROOT}%{REQUEST_URI} !-f\nRewriteRule ^ /index.php",
            "/a/b",
            "/index.php",
        ),
        (
            "RewriteCond %{DOCUMENT_ROOT}%{REQUEST_URI} !-f\nRewriteRule ^ /index.php",
            "/b.txt",
            "/b.txt",
        ),
        // The name of a file in the root is a path of the site.
        ("RewriteRule ^/a$ %{DOCUMENT_ROOT}/b.txt", "/a", "/b.txt"),
        ("RewriteRule ^/a$ - [F]", "/a", "403"),
        (
            "RewriteRule ^/a$ /b.txt [R=301]",
            "/a",
            "301 http://example.jp/b.txt",
        ),
    ] {
        assert_eq!(site(rules).followed(target), expected, "{rules}: {target}");
    }
}

#[test]
fn a_path_is_translated_once_and_what_directories_make_of_it_again() {
    let prefixed = site("RewriteRule ^/(.*)$ /x/$1");
    assert_eq!(prefixed.followed("/a"), "/x/a");
    // A rule of the directory leads elsewhere, and that is a path of the site as any other.
    assert_eq!(
        site("RewriteRule ^/other$ /b.txt").followed("/go"),
        "/b.txt"
    );
    let ends = site("RewriteRule ^/a$ /go [END]");
    assert_eq!(ends.followed("/a"), "/go");
}

#[test]
fn what_ends_at_the_server_is_rewritten_by_no_directory() {
    let ends = site("RewriteRule ^/(b|go) - [END]");
    assert_eq!(ends.followed("/go"), "/go");
    assert_eq!(ends.ask("/b.txt").variable("own"), None);
    // What is last ends the server's alone.
    let lasts = site("RewriteRule ^/(b|go) - [L]");
    assert_eq!(lasts.followed("/go"), "/other");
    assert_eq!(lasts.ask("/b.txt").variable("own").as_deref(), Some("b"));
}

#[test]
fn redirects_of_the_server_come_before_what_directories_rewrite() {
    let site = site("Redirect 301 /go http://b.example/gone");
    assert_eq!(site.followed("/go"), "301 http://b.example/gone");
    assert_eq!(site.followed("/go/x?y"), "301 http://b.example/gone/x?y");
    let refuses = Site::new("RewriteEngine on\nRewriteRule ^ - [F]\n");
    let refuses = refuses.of_server("RedirectMatch 410 ^/old\n");
    assert_eq!(refuses.short("/old"), "410");
    assert_eq!(refuses.short("/new"), "403");
}

#[test]
fn variables_of_rules_of_the_server_are_told_apart_from_those_of_directories() {
    let own = "RewriteEngine on\nRewriteRule ^ - [E=forward:1]\n";
    let site = Site::new(own).files(&["a", "b"]);
    let site = site.of_server(
        "SetEnvIf Request_URI a other=1\nRewriteEngine on\nRewriteRule ^/a - [E=met:1]\n",
    );
    assert_eq!(site.ask("/a").server_env, ["met"]);
    assert!(site.ask("/b").server_env.is_empty());
    assert_eq!(site.ask("/b").variable("forward").as_deref(), Some("1"));
}

#[test]
fn php_that_the_server_turns_off_no_file_turns_on() {
    let engine = |server: &str, own: &str| {
        let site = Site::new(own)
            .of_server(server)
            .below("up", "php_flag engine on\n");
        site.files(&["up/x.php"])
            .ask("/up/x.php")
            .settings
            .php_engine()
    };
    let off = "php_admin_flag engine off\n";
    let own = "<If \"true\">\nphp_flag engine on\n</If>\n";
    assert_eq!(engine(off, own), Some(false));
    assert_eq!(
        engine("php_admin_value engine 0\nphp_flag engine on\n", own),
        Some(false)
    );
    assert_eq!(engine("php_flag engine off\n", own), Some(true));
    // Nor does a file say what only a server may.
    assert_eq!(Site::new(off).short("/"), "403");
}

#[test]
fn rules_of_directories_keep_their_place_beside_those_of_the_server() {
    let site = site("RewriteRule ^/a$ /b.txt");
    let asked = site.ask("/b.txt");
    assert_eq!(asked.variable("own").as_deref(), Some("b"));
    // What leads there is no redirect: nothing is renamed.
    let asked = site.asked(
        &crate::site::Get {
            is_translated: true,
            ..get("/b.txt")
        },
        None,
    );
    assert_eq!(asked.variable("own").as_deref(), Some("b"));
    assert_eq!(asked.variable("REDIRECT_URL"), None);
}

#[test]
fn rules_of_the_server_know_its_variables_and_none_of_directories() {
    let rule = "RewriteCond %{ENV:bad} 1\nRewriteRule ^ - [F]";
    let own = site(&format!("SetEnvIf User-Agent evil bad=1\n{rule}"));
    let asked = |site: &Site| site.asked(&get("/b.txt").with("User-Agent", "evil"), None);
    assert_eq!(asked(&own).short(), "403");
    assert_eq!(own.short("/b.txt"), "200");
    let of_directory = Site::new("SetEnvIf User-Agent evil bad=1\n")
        .files(&["b.txt"])
        .of_server(&format!("RewriteEngine on\n{rule}\n"));
    assert_eq!(asked(&of_directory).short(), "200");
}

#[test]
fn what_else_the_server_says_is_the_outermost() {
    let site = Site::new("DirectoryIndex inner.html\n")
        .of_server("DirectoryIndex outer.html\nDirectorySlash Off\n");
    let settings = site.ask("/").settings;
    assert_eq!(settings.index(), Some(&[b"inner.html".to_vec()][..]));
    assert_eq!(settings.directory_slash(), Some(false));
}

#[test]
fn sections_may_say_all_and_tell_what_they_refuse() {
    for (text, refuses) in [
        ("Options All\nRequire all granted\nSetHandler none\n", None),
        ("php_value memory_limit 1G\n", None),
        ("Frobnicate on\n", Some(false)),
        ("php_admin_value open_basedir /srv\n", Some(true)),
        ("php_admin_flag engine off\n", None),
        ("AllowOverride None\n", Some(true)),
        ("Require moonphase full\n", Some(true)),
        ("<Files x>\n", Some(true)),
        ("RewriteRule ^x$ http://127.0.0.1/ [P]\n", Some(true)),
    ] {
        for context in [SectionContext::Directory, SectionContext::Server] {
            let program = compile_section(text.as_bytes(), context);
            let told = program.problems.first().map(|problem| problem.refuses);
            assert_eq!(told, refuses, "{text}");
            assert!(program.is_section);
        }
    }
}
