//! The templates for HestiaCP, filled in as the panel fills them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use testkit::client::reply;
use testkit::{Gateway, TempDir};

use crate::readme::root;

/// What HestiaCP does for a domain: the template with its variables filled in, a link to the file
/// where the server looks for it, and the trigger.
fn write_domain(home: &Path, links: &Path, template: &str, aliases: &str) {
    let templates = root().join("packaging/hestiacp");
    let directory = home.join("shop/conf/web/shop.example.jp");
    let docroot = home.join("shop/web/shop.example.jp/public_html");
    fs::create_dir_all(&directory).unwrap();
    fs::create_dir_all(&docroot).unwrap();
    fs::write(docroot.join("index.html"), "hello, shop\n").unwrap();
    let values = [
        ("%domain%", "shop.example.jp"),
        ("%domain_idn%", "shop.example.jp"),
        ("%alias_idn%", aliases),
        ("%user%", "shop"),
        ("%home%", home.to_str().unwrap()),
        ("%docroot%", docroot.to_str().unwrap()),
        (
            "%backend_lsnr%",
            "unix:/run/php/php8.2-fpm-shop.example.jp.sock",
        ),
    ];
    // The one for TLS is that of all templates.
    let sources = [
        (format!("{template}.tpl"), "nagaya.conf"),
        ("default.stpl".to_owned(), "nagaya.ssl.conf"),
    ];
    for (source, file) in sources {
        let mut text = fs::read_to_string(templates.join(source)).unwrap();
        for (name, value) in values {
            text = text.replace(name, value);
        }
        // Neither the user nor the place of logs is on this machine.
        text = text.replace("user = \"shop\"", "user = \"daemon\"");
        text = text.replace(
            "/var/log/nagaya/domains",
            links.parent().unwrap().to_str().unwrap(),
        );
        assert!(!text.contains('%'), "{text}");
        fs::write(directory.join(file), text).unwrap();
        let link = links.join(file.replace("nagaya", "shop.example.jp"));
        let _ = fs::remove_file(&link);
        symlink(directory.join(file), link).unwrap();
    }
    let done = Command::new(templates.join("default.sh"))
        .args(["shop", "shop.example.jp", "192.0.2.1"])
        .args([home, &docroot])
        .status();
    assert!(done.unwrap().success());
}

#[test]
fn a_domain_that_the_panel_writes_is_served_after_a_reload_and_so_is_its_alias() {
    let text = fs::read_to_string(root().join("packaging/hestiacp/nagaya.toml")).unwrap();
    // The same with the addresses and places of a test.
    let text = text
        .replace("user = \"www-data\"\n", "")
        .replace("0.0.0.0:80", "127.0.0.1:{port}")
        .replace("[[listen]]\naddress = \"0.0.0.0:443\"\ntls = true\n", "")
        .replace("conf.d/", "{dir}/conf.d/")
        .replace("/home/", "{dir}/home/")
        .replace("/var/lib/nagaya/", "{dir}/")
        .replace("/run/nagaya/nagaya.sock", "{dir}/control")
        .replace("/var/log/nagaya/", "{dir}/")
        .replace("/usr/share/nagaya/welcome", "{dir}");
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &text);
    let place = builder.directory().path().to_owned();
    let (home, links) = (place.join("home"), place.join("conf.d/domains"));
    fs::create_dir_all(&links).unwrap();
    fs::create_dir_all(&home).unwrap();
    let gateway = builder.start();
    let served = |host: &str| {
        let (status, _, said) = gateway.command(&["reload"]);
        assert_eq!(status, Some(0), "{said}");
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let body = reply(gateway.ask(request.as_bytes())).text();
        (body == "hello, shop\n", said)
    };
    assert!(!served("shop.example.jp").0);
    write_domain(
        &home,
        &links,
        "default",
        "www.shop.example.jp shop.example.com",
    );
    for host in ["shop.example.jp", "www.shop.example.jp", "shop.example.com"] {
        let (is_served, said) = served(host);
        assert!(is_served, "{host}: {said}");
    }
    write_domain(&home, &links, "default", "");
    assert!(served("shop.example.jp").0 && !served("www.shop.example.jp").0);
}

#[test]
fn every_template_is_a_configuration() {
    for template in ["default", "pool", "suspended"] {
        let directory = TempDir::new();
        let (home, links) = (
            directory.path().join("home"),
            directory.path().join("domains"),
        );
        fs::create_dir_all(&links).unwrap();
        write_domain(&home, &links, template, "");
        let config = directory.write(
            "nagaya.toml",
            "include = [\"domains/*.conf\"]\n[[listen]]\naddress = \"127.0.0.1:80\"\n\
             [php.\"8.2\"]\nprogram = \"/bin/true\"\n",
        );
        let checked = Command::new(env!("CARGO_BIN_EXE_nagaya"))
            .args(["check", "-c"])
            .arg(config)
            .output()
            .unwrap();
        assert!(checked.status.success(), "{template}: {checked:?}");
    }
}
