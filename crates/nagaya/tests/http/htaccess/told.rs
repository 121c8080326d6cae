//! What of `.htaccess` files operators are told: refusals, what cannot be read, explanations.

use super::{ask, gateway};

#[test]
fn a_refusal_names_the_file_and_line_it_comes_of() {
    let gateway = gateway(&[
        ("site/closed/.htaccess", "# Nobody.\nRequire all denied\n"),
        ("site/sub/.htaccess", "Order deny,allow\nDeny from all\n"),
        (
            "site/sub/deep/.htaccess",
            "Satisfy any\nAuthType Basic\nAuthName a\nAuthUserFile {dir}/none\nRequire valid-user\n",
        ),
        (
            "site/empty/.htaccess",
            "RewriteEngine On\n\nRewriteRule ^x - [F]\n",
        ),
    ]);
    for (path, expected) in [
        (
            "/closed/x.txt",
            "403 (htaccess_denied): {site}/closed/.htaccess:2: Require",
        ),
        (
            "/sub/page.txt",
            "403 (htaccess_denied): {site}/sub/.htaccess:1: Order, Allow and Deny",
        ),
        (
            "/empty/x",
            "403 (htaccess_rule): {site}/empty/.htaccess:3: RewriteRule",
        ),
    ] {
        let (_, said, _) =
            gateway.command(&["htaccess", "explain", &format!("http://a.test{path}")]);
        let site = gateway
            .directory()
            .path()
            .join("site")
            .display()
            .to_string();
        let expected = expected.replace("{site}", &site);
        assert!(said.contains(&expected), "{expected}\n{said}");
        assert_eq!(ask(&gateway, "a.test", path, "").status, 403, "{path}");
    }
}

#[test]
fn what_the_server_cannot_read_is_told_by_root() {
    if testkit::lacks_root("to read what the server cannot") {
        return;
    }
    let gateway = gateway(&[
        ("site/closed/.htaccess", "Require all granted\n"),
        (
            "site/sub/.htaccess",
            "AuthType Basic\nAuthName a\nAuthUserFile {dir}/own\nRequire valid-user\n",
        ),
        ("own", "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"),
    ]);
    for name in ["site/closed/.htaccess", "own"] {
        let path = gateway.directory().path().join(name);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path, mode).expect("a mode");
    }
    for (path, status, told) in [
        ("/closed/x.txt", 403, "(htaccess_unreadable)"),
        (
            "/sub/page.txt",
            500,
            "own cannot be read: permission denied",
        ),
    ] {
        assert_eq!(ask(&gateway, "a.test", path, "").status, status, "{path}");
        let (_, said, _) =
            gateway.command(&["htaccess", "explain", &format!("http://a.test{path}")]);
        assert!(
            said.contains(&format!("{status}")) && said.contains(told),
            "{said}"
        );
    }
    let (_, _, warned) = gateway.command(&["check"]);
    for told in [
        "closed/.htaccess: cannot be read, and refuses all below it: permission denied",
        "own cannot be read: permission denied",
    ] {
        assert!(warned.contains(told), "{told}\n{warned}");
    }
}

#[test]
fn an_explanation_names_files_lines_and_where_it_ends() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "Frobnicate on\nRewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^post/(.*)$ /front.txt?p=$1 [L]\n",
    )]);
    let explain = |url: &str| gateway.command(&["htaccess", "explain", url]);
    let (status, said, complained) = explain("http://a.test/post/17");
    assert_eq!(status, Some(0), "{complained}");
    for part in [
        "/post/17",
        "line 1 is left out: there is no directive Frobnicate",
        "site/.htaccess:\n",
        "goes on at /front.txt?p=17",
        "it stands",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert_eq!(explain("http://off.test/").0, Some(2));
    assert_eq!(explain("http://nobody.test/").0, Some(2));
}
